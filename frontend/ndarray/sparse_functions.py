"""`mx.nd.sparse`: functions that make sparse arrays, beside the operators of the same package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.base import MXNetError, integer_types, mx_real_t
from gluonjit.context import Context, current_context, placed
from gluonjit.ndarray import array_arithmetic, sparse_arrays
from gluonjit.ndarray.constructors import array as dense_array
from gluonjit.ndarray.constructors import zeros as dense_zeros
from gluonjit.ndarray.imperative import invoke
from gluonjit.ndarray.ndarray import NDArray, convert, element_type
from gluonjit.ndarray.sparse_arrays import BaseSparseNDArray, CSRNDArray, RowSparseNDArray, cast_dense
from gluonjit.operators.registry import get


def zeros(stype: str, shape: Any, ctx: Context | None = None, dtype: Any = None, **kwargs: Any) -> NDArray:
    """An array of zeros in this storage type.

    >>> mx.nd.sparse.zeros("row_sparse", (2, 3)).stype
    'row_sparse'
    """
    if stype == "default":
        return dense_zeros(shape, ctx=ctx, dtype=dtype, **kwargs)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return sparse_arrays.zeros(stype, shape, element_type(dtype or mx_real_t), _device(ctx))


def empty(stype: str, shape: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """An array of zeros in this storage type.

    >>> mx.nd.sparse.empty("csr", (2, 3)).asnumpy()
    array([[0., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    return zeros(stype, shape, ctx, dtype)


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A copy of a sparse array, or of a `scipy.sparse.csr_matrix`.

    >>> mx.nd.sparse.array(mx.nd.sparse.csr_matrix(mx.nd.array([[0, 1]]))).asnumpy()
    array([[0., 1.]], dtype=float32)
    """
    if isinstance(source_array, NDArray):
        if not isinstance(source_array, BaseSparseNDArray):
            raise AssertionError("Please use `tostype` to create RowSparseNDArray or CSRNDArray from an NDArray")
        return _placed(source_array, ctx, dtype)
    if _is_scipy(source_array):
        return csr_matrix(source_array, ctx=ctx, dtype=dtype or source_array.dtype)
    raise ValueError(f"Please use mx.nd.array to create an NDArray with source_array of type {type(source_array)}")


def csr_matrix(arg1: Any, shape: Any = None, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A CSRNDArray.

    `arg1`: (data, indices, indptr), see CSRNDArray; (data, (rows, columns)), where elements of one place are summed;
    a shape, for zeros; a CSRNDArray, a `scipy.sparse` matrix, or a dense array.

    >>> x = mx.nd.sparse.csr_matrix(([5, 6], ([0, 1], [2, 0])), shape=(2, 3))
    >>> x.asnumpy()
    array([[0., 0., 5.],
           [6., 0., 0.]], dtype=float32)
    """
    if not isinstance(arg1, tuple):
        return _converted(arg1, "csr", shape, ctx, dtype)
    if len(arg1) == 2 and all(isinstance(n, integer_types) for n in arg1):
        _same_shape(arg1, shape)
        return zeros("csr", arg1, ctx, dtype)
    if len(arg1) == 2:
        data, (rows, columns) = arg1
        values, (rows, columns) = _values(data, dtype, 1), (_indices(rows, "rows"), _indices(columns, "columns"))
        if not values.shape == rows.shape == columns.shape:
            raise ValueError(f"{len(values)} elements, {len(rows)} rows, {len(columns)} columns; expected equally many")
        shape = _shape(shape, lambda: (_end(rows), _end(columns)))
        if rows.size and (rows.min() < 0 or rows.max() >= shape[0]):
            raise ValueError(f"rows from {rows.min()} to {rows.max()}; expected them in the range 0 to {shape[0] - 1}")
        where, values = sparse_arrays.sum_rows(rows * max(shape[1], 1) + columns, values)
        rows, columns = where // max(shape[1], 1), where % max(shape[1], 1)
        return sparse_arrays.from_elements(shape, rows, columns, values, _device(ctx))
    if len(arg1) != 3:
        raise ValueError(f"Unexpected length of input tuple: {len(arg1)}")
    data, columns, indptr = arg1
    values, columns, indptr = _values(data, dtype, 1), _indices(columns, "indices"), _indices(indptr, "indptr")
    shape = _shape(shape, lambda: (len(indptr) - 1, _end(columns)))
    if not len(indptr):
        raise ValueError("indptr is empty; expected the position of each row's first element, and the end")
    if len(shape) != 2 or len(indptr) != shape[0] + 1:
        raise ValueError(f"indptr has {len(indptr)} elements; expected {shape[0] + 1} for shape {shape}")
    return CSRNDArray(shape, values, (indptr, columns), _device(ctx))


def row_sparse_array(arg1: Any, shape: Any = None, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A RowSparseNDArray.

    `arg1`: (data, indices), the rows and their numbers; a shape, for zeros; a RowSparseNDArray, or a dense array.

    >>> x = mx.nd.sparse.row_sparse_array(([[1, 2]], [1]), shape=(3, 2))
    >>> x.asnumpy()
    array([[0., 0.],
           [1., 2.],
           [0., 0.]], dtype=float32)
    """
    if not isinstance(arg1, tuple):
        return _converted(arg1, "row_sparse", shape, ctx, dtype)
    if len(arg1) < 2:
        raise ValueError(f"Unexpected length of input tuple: {len(arg1)}")
    if len(arg1) > 2 or all(isinstance(n, integer_types) for n in arg1):
        _same_shape(arg1, shape)
        return zeros("row_sparse", arg1, ctx, dtype)
    data, indices = arg1
    values, rows = _values(data, dtype), _indices(indices, "indices")
    if values.shape[:1] != rows.shape:
        raise ValueError(f"{values.shape[:1]} rows for {rows.shape} indices; expected equally many")
    shape = _shape(shape, lambda: (_end(rows), *values.shape[1:]))
    if shape[1:] != values.shape[1:]:
        raise ValueError(f"rows of shape {values.shape[1:]} do not fit an array of shape {shape}")
    return RowSparseNDArray(shape, values, (rows,), _device(ctx))


def retain(data: Any, indices: Any = None, out: Any = None, name: Any = None, **kwargs: Any) -> Any:
    """The rows of a row_sparse array that `indices` lists, ascending; others are 0 in the result.

    >>> rows = mx.nd.array([[1], [2], [3]]).tostype("row_sparse")
    >>> mx.nd.sparse.retain(rows, mx.nd.array([0, 2])).asnumpy()
    array([[1.],
           [0.],
           [3.]], dtype=float32)
    """
    if getattr(data, "stype", "row_sparse") != "row_sparse":
        raise MXNetError(f"retain takes a row_sparse array, not one of storage type {data.stype!r}: use .tostype first")
    if indices is None or kwargs:
        raise MXNetError(f"retain takes data, indices and out, not {', '.join(kwargs) or 'data alone'}")
    if not isinstance(indices, NDArray):
        indices = dense_array(indices, dtype="int64")
    return invoke(get("_sparse_retain"), (data, indices), {}, out, name)


def _arithmetic(name: str, operator: str) -> Any:
    """A function of `mx.nd`, which for sparse arrays of one shape is the operator without broadcasting: that one keeps
    their storage."""
    broadcasting = getattr(array_arithmetic, name)

    def function(lhs: Any, rhs: Any) -> Any:
        if _alike(lhs, rhs):
            return invoke(get(operator), (lhs, rhs), {})
        return broadcasting(lhs, rhs)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "gluonjit.ndarray.sparse"
    function.__doc__ = broadcasting.__doc__
    return function


def _alike(lhs: Any, rhs: Any) -> bool:
    return isinstance(lhs, NDArray) and isinstance(rhs, NDArray) and lhs.shape == rhs.shape


add = _arithmetic("add", "elemwise_add")
subtract = _arithmetic("subtract", "elemwise_sub")
multiply = _arithmetic("multiply", "elemwise_mul")
divide = _arithmetic("divide", "elemwise_div")


def _as_methods(name: str, function: Any, operator: str) -> None:
    """`x + other` and `x += other` of sparse arrays."""
    dense = getattr(NDArray, f"__{name}__"), getattr(NDArray, f"__i{name}__")

    def method(self: Any, other: Any) -> Any:
        return function(self, other) if isinstance(other, NDArray) else dense[0](self, other)

    def in_place(self: Any, other: Any) -> Any:
        return invoke(get(operator), (self, other), {}, self) if _alike(self, other) else dense[1](self, other)

    setattr(BaseSparseNDArray, f"__{name}__", method)
    setattr(BaseSparseNDArray, f"__i{name}__", in_place)


_as_methods("add", add, "elemwise_add")
_as_methods("sub", subtract, "elemwise_sub")
_as_methods("mul", multiply, "elemwise_mul")
_as_methods("truediv", divide, "elemwise_div")


def getnnz(data: Any, axis: int | None = None, out: Any = None, name: Any = None) -> Any:
    """How many elements of a csr array are stored, zeros that are stored included: i64[1], or for each column (axis 0)
    or each row (axis 1), which MXNet has alone.

    >>> mx.nd.contrib.getnnz(mx.nd.array([[0, 1], [2, 3]]).tostype("csr")).asnumpy().tolist()
    [3]
    """
    if not isinstance(data, CSRNDArray):
        stype = getattr(data, "stype", type(data).__name__)
        raise MXNetError(f"getnnz takes a csr array, not one of storage type {stype!r}: use .tostype('csr') first")
    if axis not in (None, 0, 1):
        raise MXNetError(f"Unexpected value for axis({axis}). Candidates are None, 0, and 1")
    if axis is None:
        counts = data._indptr[-1:] - data._indptr[:1]
    else:
        counts = np.bincount(data._columns, minlength=data.shape[1]) if axis == 0 else np.diff(data._indptr)
    result = data._copied(counts.astype(np.int64))
    if out is None:
        return result
    result.copyto(out)
    return out


def _converted(source: Any, stype: str, shape: Any, ctx: Context | None, dtype: Any) -> NDArray:
    """A sparse array from one that is sparse already, or dense."""
    if isinstance(source, BaseSparseNDArray) and source.stype == stype:
        _same_shape(source.shape, shape)
        return _placed(source, ctx, dtype)
    if _is_scipy(source) and stype == "csr":
        source = source.tocsr(copy=True)
        source.sum_duplicates()
        _same_shape(source.shape, shape)
        return csr_matrix((source.data, source.indices, source.indptr), source.shape, ctx, dtype or source.dtype)
    if dtype is None:
        dtype = getattr(source, "dtype", None)
    dense = dense_array(source.asnumpy() if isinstance(source, BaseSparseNDArray) else source, ctx, dtype)
    _same_shape(dense.shape, shape)
    return cast_dense(dense._array, stype, dense._device)


def _placed(x: Any, ctx: Context | None, dtype: Any) -> NDArray:
    """A copy of a sparse array."""
    copy = x.copyto(ctx or current_context())
    return copy if dtype is None else copy.astype(dtype, copy=False)


def _is_scipy(x: Any) -> bool:
    return type(x).__module__.startswith("scipy.sparse")


def _device(ctx: Context | None) -> Context | None:
    return placed(ctx or current_context())


def _values(data: Any, dtype: Any, rank: int | None = None) -> np.ndarray:
    """What is stored: float32 unless `dtype` or an array says otherwise."""
    if isinstance(data, NDArray):
        values = data.asnumpy()
        target = values.dtype if dtype is None else element_type(dtype)
    else:
        own = data.dtype if isinstance(data, np.ndarray) and data.dtype.kind != "O" else mx_real_t
        target = element_type(own if dtype is None else dtype)
        values = np.array(data)
    values = np.ascontiguousarray(convert(values, target)).reshape(values.shape)
    if rank is not None and values.ndim != rank:
        raise ValueError(f"data has {values.ndim} axes; expected {rank}")
    return values


def _indices(given: Any, what: str) -> np.ndarray:
    found = np.array(given.asnumpy() if isinstance(given, NDArray) else given)
    if found.ndim != 1:
        raise ValueError(f"{what} must be a vector, got shape {found.shape}")
    return found.astype(np.int64)


def _end(indices: np.ndarray) -> int:
    if not indices.size:
        raise ValueError("invalid shape: it cannot be inferred where nothing is stored; pass shape=")
    return int(indices.max()) + 1


def _shape(given: Any, inferred: Any) -> tuple[int, ...]:
    shape = tuple(map(int, given if given is not None else inferred()))
    if any(n < 0 for n in shape) or math.prod(shape) >= 1 << 62:
        raise ValueError(f"shape {shape} is not possible")
    return shape


def _same_shape(own: Sequence[int], wanted: Any) -> None:
    if wanted is not None and tuple(wanted) != tuple(own):
        raise ValueError(f"Shape mismatch detected. {tuple(own)} vs {tuple(wanted)}")


FUNCTIONS: dict[str, Any] = {
    "BaseSparseNDArray": BaseSparseNDArray,
    "CSRNDArray": CSRNDArray,
    "RowSparseNDArray": RowSparseNDArray,
    "array": array,
    "csr_matrix": csr_matrix,
    "empty": empty,
    "retain": retain,
    "row_sparse_array": row_sparse_array,
    "zeros": zeros,
    "add": add,
    "divide": divide,
    "multiply": multiply,
    "subtract": subtract,
}
"""What `mx.nd.sparse` has besides operators."""
