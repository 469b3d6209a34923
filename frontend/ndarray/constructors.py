"""Functions that create arrays (`nd.array`, `nd.zeros`, `nd.arange`, …), and others that are not operators."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from gluonjit.base import MXNetError, integer_types, mx_real_t
from gluonjit.context import Context, current_context
from gluonjit.language.running import running
from gluonjit.ndarray.deferred import settle
from gluonjit.ndarray.ndarray import NDArray, _placed_copy, convert, element_type, from_values

__all__ = [
    "arange",
    "array",
    "concatenate",
    "empty",
    "eye",
    "fill_element_0index",
    "full",
    "histogram",
    "linspace",
    "moveaxis",
    "onehot_encode",
    "ones",
    "reset_arrays",
    "split_v2",
    "waitall",
    "zeros",
]


def _internal() -> Any:
    return NDArray._functions._internal


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A copy of an array or of nested lists. float32 unless `dtype` says otherwise; an NDArray keeps its type.

    >>> mx.nd.array([[1, 2], [3, 4]], dtype="int32").asnumpy()
    array([[1, 2],
           [3, 4]], dtype=int32)
    """
    if running.trace is not None and hasattr(source_array, "asnumpy"):
        return source_array.copy() if dtype is None else source_array.astype(dtype)
    if getattr(source_array, "stype", "default") != "default" or type(source_array).__module__.startswith("scipy."):
        return NDArray._functions.sparse.array(source_array, ctx, dtype)
    if isinstance(source_array, NDArray):
        if source_array._grad_state is not None:  # the copy may be recorded
            return source_array.astype(source_array.dtype if dtype is None else dtype).as_in_context(_context(ctx))
        source = source_array._array
        target = source.dtype if dtype is None else element_type(dtype)
    else:
        target = element_type(mx_real_t if dtype is None else dtype)
        if isinstance(source_array, np.ndarray):
            source = source_array
        else:
            try:
                source = from_values(source_array, target)
            except (TypeError, ValueError, OverflowError) as e:
                raise TypeError(f"source_array must be array like object: {e}") from e
    return _placed_copy(convert(source, target), _context(ctx))


def _context(ctx: Context | None) -> Context:
    return current_context() if ctx is None else ctx


def empty(shape: Any, ctx: Context | None = None, dtype: Any = None, stype: str | None = None) -> NDArray:
    """An uninitialized array.

    >>> mx.nd.empty((2, 3)).shape
    (2, 3)
    """
    if stype not in (None, "default"):
        return NDArray._functions.sparse.empty(stype, shape, ctx, dtype)
    return _placed_copy(np.empty(shape, element_type(mx_real_t if dtype is None else dtype)), _context(ctx))


def zeros(shape: Any, ctx: Any = None, dtype: Any = None, stype: str | None = None, **kwargs: Any) -> NDArray:
    """Zeros in the given shape; float32 unless `dtype` says otherwise.

    `stype`: "row_sparse" or "csr" makes a sparse array.

    >>> mx.nd.zeros((2, 3)).asnumpy()
    array([[0., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    if stype not in (None, "default"):
        return NDArray._functions.sparse.zeros(stype, shape, ctx, dtype)
    return _internal()._zeros(shape=shape, ctx=str(_context(ctx)), dtype=_default(dtype), **kwargs)


def ones(shape: Any, ctx: Any = None, dtype: Any = None, **kwargs: Any) -> NDArray:
    """Ones in the given shape; float32 unless `dtype` says otherwise.

    >>> mx.nd.ones(3, dtype="int32").asnumpy()
    array([1, 1, 1], dtype=int32)
    """
    return _internal()._ones(shape=shape, ctx=str(_context(ctx)), dtype=_default(dtype), **kwargs)


def full(shape: Any, val: Any, ctx: Context | None = None, dtype: Any = mx_real_t, out: Any = None) -> NDArray:
    """An array of `shape` filled with `val`, which may be an array that broadcasts to it.

    >>> mx.nd.full((2, 2), 7).asnumpy()
    array([[7., 7.],
           [7., 7.]], dtype=float32)
    """
    out = empty(shape, ctx, dtype) if out is None else out
    out[:] = val
    return out


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: Any = None,
    ctx: Any = None,
    dtype: Any = mx_real_t,
) -> NDArray:
    """start, start + step, … below stop, each `repeat` times; a single argument is `stop`.

    >>> mx.nd.arange(2, 5).asnumpy()
    array([2., 3., 4.], dtype=float32)
    >>> mx.nd.arange(3, repeat=2).asnumpy()
    array([0., 0., 1., 1., 2., 2.], dtype=float32)
    """
    if infer_range is not None:
        warnings.warn("`infer_range` argument has been deprecated", DeprecationWarning, stacklevel=2)
    return _internal()._arange(
        start=start,
        stop=stop,
        step=step,
        repeat=repeat,
        infer_range=False,
        dtype=_default(dtype),
        ctx=str(_context(ctx)),
    )


def linspace(
    start: float, stop: float, num: int, endpoint: bool = True, ctx: Any = None, dtype: Any = mx_real_t
) -> NDArray:
    """`num` numbers from start to stop in equal steps; without the last one unless `endpoint`.

    >>> mx.nd.linspace(0, 1, 5).asnumpy()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    return _internal()._linspace(
        start=start, stop=stop, num=num, endpoint=endpoint, dtype=_default(dtype), ctx=str(_context(ctx))
    )


def eye(N: int, M: int = 0, k: int = 0, ctx: Any = None, dtype: Any = None, **kwargs: Any) -> NDArray:
    """N x M (0: N x N) with ones on the k-th diagonal.

    >>> mx.nd.eye(2, 3, 1).asnumpy()
    array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    return _internal()._eye(N=N, M=M, k=k, ctx=str(_context(ctx)), dtype=_default(dtype), **kwargs)


def _default(dtype: Any) -> Any:
    return mx_real_t if dtype is None else dtype


def moveaxis(tensor: NDArray, source: Any, destination: Any) -> NDArray:
    """`tensor` with the axes `source` moved to the positions `destination`; the others keep their order.

    ValueError for an axis that there is not, or that is given twice.

    >>> mx.nd.moveaxis(mx.nd.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    sources = _axes(source, tensor.ndim, "Source should verify 0 <= source < tensor.ndim, got {}")
    targets = _axes(destination, tensor.ndim, "Destination should verify 0 <= destination < tensor.ndim, got {}")
    if len(sources) != len(targets):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [axis for axis in range(tensor.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources)):
        order.insert(target, axis)
    return tensor.transpose(tuple(order))


def _axes(axes: Any, ndim: int, complaint: str) -> tuple[int, ...]:
    axes = (axes,) if isinstance(axes, integer_types) else tuple(axes)
    if any(not -ndim <= axis < ndim for axis in axes):
        raise ValueError(complaint.format(axes))
    resolved = tuple(axis % ndim for axis in axes)
    if len(set(resolved)) != len(resolved):
        raise ValueError(f"repeated axis in {axes}")
    return resolved


def concatenate(arrays: list[NDArray], axis: int = 0, always_copy: bool = True) -> NDArray:
    """The arrays of a list joined along an axis; `nd.concat` takes them as arguments instead.

    >>> mx.nd.concatenate([mx.nd.array([[1, 2]]), mx.nd.array([[3, 4]])]).asnumpy()
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    if not isinstance(arrays, list) or not arrays or not hasattr(arrays[0], "asnumpy"):
        raise AssertionError("concatenate takes a list of NDArrays that is not empty")
    if len(arrays) == 1 and not always_copy:
        return arrays[0]
    return NDArray._functions.concat(*arrays, dim=axis)


def split_v2(ary: NDArray, indices_or_sections: Any, axis: int = 0, squeeze_axis: bool = False) -> Any:
    """Parts of `ary` along an axis: a number of equal ones, or cut before each of a tuple of indices.

    ValueError if the number does not divide the length.

    >>> [part.asnumpy().tolist() for part in mx.nd.split_v2(mx.nd.array([1, 2, 3, 4]), (1,))]
    [[1.0], [2.0, 3.0, 4.0]]
    """
    if isinstance(indices_or_sections, int):
        if ary.shape[axis] % indices_or_sections:
            raise ValueError("array split does not result in an equal division")
        size = ary.shape[axis] // indices_or_sections
        indices = [k * size for k in range(indices_or_sections)]
    elif isinstance(indices_or_sections, tuple):
        indices = [0, *indices_or_sections]
    else:
        raise ValueError("indices_or_sections must either int or tuple of ints")
    return _internal()._split_v2(ary, indices=tuple(indices), axis=axis, squeeze_axis=squeeze_axis)


def histogram(a: NDArray, bins: Any = 10, range: Any = None) -> Any:
    """Counts of the elements in each bin, and the bins' edges: a number of bins in a range, or given by an array.

    >>> counts, edges = mx.nd.histogram(mx.nd.array([0, 1, 1, 4]), bins=2, range=(0, 4))
    >>> counts.asnumpy().tolist(), edges.asnumpy().tolist()
    ([3, 1], [0.0, 2.0, 4.0])
    """
    if hasattr(bins, "asnumpy"):
        return _internal()._histogram(a, bins)
    if not isinstance(bins, integer_types):
        raise ValueError("bins argument should be either an integer or an NDArray")
    if range is None:
        warnings.warn("range is not specified, using numpy's result to ensure consistency with numpy", stacklevel=2)
        counts, edges = np.histogram(a.asnumpy(), bins=bins)
        return array(counts), array(edges)
    return _internal()._histogram(a, bin_cnt=bins, range=range)


def onehot_encode(indices: NDArray, out: NDArray) -> NDArray:
    """Row k of the matrix `out` becomes 1 at column indices[k] and 0 elsewhere. Returns `out`.

    >>> mx.nd.onehot_encode(mx.nd.array([1, 0]), mx.nd.zeros((2, 3))).asnumpy()
    array([[0., 1., 0.],
           [1., 0., 0.]], dtype=float32)
    """
    rows, columns = out.shape
    out[:] = np.arange(columns) == indices._array.astype(np.int64).reshape(rows, 1)
    return out


def waitall() -> None:
    """Computes what waits: a step of training, of which not all has been called yet (`ndarray/deferred.py`). Other
    calls are synchronous.

    >>> mx.nd.waitall()
    """
    settle()


def reset_arrays(*data: NDArray, num_arrays: int) -> list[NDArray]:
    """Fills `num_arrays` arrays with zeros, in place. MXNetError if that is not the number of arrays.

    >>> x = mx.nd.ones(2)
    >>> _ = mx.nd.reset_arrays(x, num_arrays=1)
    >>> x.asnumpy()
    array([0., 0.], dtype=float32)
    """
    if len(data) != num_arrays:
        raise MXNetError(f"Operator reset_arrays expects {num_arrays} inputs, but got {len(data)} instead.")
    for x in data:
        x[:] = 0
    return []


def fill_element_0index(lhs: NDArray, mhs: NDArray, rhs: NDArray, out: NDArray | None = None) -> NDArray:
    """`lhs` (n, m) with element `rhs[k]` of row k replaced by `mhs[k]`; out of bounds, the row does not change.

    >>> mx.nd.fill_element_0index(mx.nd.zeros((2, 3)), mx.nd.array([5, 6]), mx.nd.array([2, 0])).asnumpy()
    array([[0., 0., 5.],
           [6., 0., 0.]], dtype=float32)
    """
    target = lhs.copy() if out is None else out
    if out is not None and out is not lhs:
        lhs.copyto(out)
    index = rhs.asnumpy().astype(np.int64)
    rows = np.flatnonzero((index >= 0) & (index < lhs.shape[1]))
    target._array[rows, index[rows]] = mhs._array[rows]
    target._wrote()
    return target
