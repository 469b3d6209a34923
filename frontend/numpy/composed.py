"""Functions of `mx.np` that choose an operator by their arguments, or are composed of several operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gluonjit.base import integer_types
from gluonjit.language.array import Array
from gluonjit.language.running import running
from gluonjit.ndarray.numpy_protocols import check_gradient
from gluonjit.numpy.dispatch import apply, is_number, unsupported
from gluonjit.numpy.methods import row_major
from gluonjit.numpy.multiarray import _wrapped, array
from gluonjit.trace.traced_symbol import TracedSymbol

# Choices


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """x where the condition is not 0, else y; without x and y, the positions where the condition is not 0

    >>> mx.np.where(mx.np.array([1, 0]), mx.np.array([5, 6]), 9).asnumpy()
    array([5., 9.], dtype=float32)
    """
    if x is None and y is None:
        return nonzero(condition)
    if is_number(condition):
        return x if condition != 0 else y
    if is_number(x) and is_number(y):
        return apply("_npi_where_scalar2", (condition,), {"x": float(x), "y": float(y)})
    if is_number(x):
        return apply("_npi_where_lscalar", (condition, y), {"scalar": float(x)})
    if is_number(y):
        return apply("_npi_where_rscalar", (condition, x), {"scalar": float(y)})
    return apply("_npi_where", (condition, x, y))


def clip(a: Any, a_min: Any, a_max: Any, out: Any = None) -> Any:
    """The elements limited to [a_min, a_max]; None is no limit

    >>> mx.np.clip(mx.np.array([-2, 0.5, 7]), 0, 1).asnumpy()
    array([0. , 0.5, 1. ], dtype=float32)
    """
    if a_min is None and a_max is None:
        raise ValueError("array_clip: must set either max or min")
    low = -np.inf if a_min is None else float(a_min)
    high = np.inf if a_max is None else float(a_max)
    return apply("_npi_clip", (a,), {"a_min": low, "a_max": high}, out)


def nonzero(a: Any) -> Any:
    """The positions of nonzero elements: an int64 array per axis. Not in compiled code: the shape depends on values

    >>> [index.asnumpy().tolist() for index in mx.np.nonzero(mx.np.array([[0, 5], [6, 0]]))]
    [[0, 1], [1, 0]]
    """
    return tuple(_wrapped(index) for index in np.nonzero(_values(a, "nonzero()")))


def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: Any = None
) -> Any:
    """The distinct elements, sorted. Not in compiled code: the shape depends on values

    >>> mx.np.unique(mx.np.array([3, 1, 3])).asnumpy()
    array([1., 3.], dtype=float32)
    """
    found: Any = np.unique(  # type: ignore[call-overload]
        _values(ar, "unique()"), return_index, return_inverse, return_counts, axis
    )
    results = tuple(map(_wrapped, found)) if isinstance(found, tuple) else _wrapped(found)
    check_gradient("unique", (ar,), results, wrapped=True)
    return results


FALLBACK = (
    "allclose alltrue apply_along_axis apply_over_axes argpartition argwhere array_equal array_equiv choose "
    "compress corrcoef correlate count_nonzero cov digitize divmod extract flatnonzero float_power frexp genfromtxt "
    "heaviside histogram2d histogram_bin_edges histogramdd i0 in1d interp intersect1d isclose isin ix_ lexsort modf "
    "min_scalar_type msort nanargmax nanargmin nancumprod nancumsum nanmax nanmedian nanmin nanpercentile nanprod "
    "nanquantile "
    "packbits partition piecewise poly polyadd polydiv polyfit polyint polymul polysub positive promote_types ptp "
    "real result_type roots searchsorted select setdiff1d setxor1d signbit spacing take_along_axis trapz "
    "tril_indices_from trim_zeros triu_indices_from union1d unpackbits unwrap vander"
).split()
"""Functions that MXNet leaves to NumPy: they need values, which are unknown while tracing."""


_RENAMED: dict[str, Callable[..., Any]] = {
    "alltrue": np.all,
    "in1d": np.isin,
    "msort": lambda a: np.sort(a, 0),
    "trapz": getattr(np, "trapezoid" if hasattr(np, "trapezoid") else "trapz"),
}


def on_values(name: str, plain: Callable[..., Any], why: str = "") -> Callable[..., Any]:
    """NumPy's function `plain` as one of `mx.np`, called `name`. `why` it cannot be compiled, if there is a special
    reason."""

    def inwards(x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return type(x)(map(inwards, x))
        return _values(x, f"np.{name}()", why) if hasattr(x, "as_np_ndarray") else x

    def outwards(y: Any) -> Any:
        if isinstance(y, (list, tuple)):
            return [*map(outwards, y)] if isinstance(y, list) else tuple(map(outwards, y))
        return _wrapped(y) if isinstance(y, np.ndarray) else y

    def function(*args: Any, **kwargs: Any) -> Any:
        found = outwards(plain(*map(inwards, args), **{key: inwards(value) for key, value in kwargs.items()}))
        check_gradient(name, (*args, *kwargs.values()), found, wrapped=True)
        return found

    function.__name__ = function.__qualname__ = name.rpartition(".")[2]
    function.__doc__ = f"`numpy.{name}`, on values: not in compiled code"
    return function


def _values(x: Any, what: str, why: str = "") -> np.ndarray:
    """The elements; an error if they are unknown."""
    if isinstance(x, Array) and x._symbolic:
        if running.trace is not None:
            running.trace.refuse(
                f"{what} cannot be compiled: {why or 'the shape of its result depends on values'}",
                "a call outside of the hybridized block"
                if why
                else "F.np.where(condition, x, 0), which keeps the shape",
                for_value=True,
            )
        raise TypeError(f"{what} needs values, which a symbol does not have")
    if not hasattr(x, "_array"):
        raise TypeError(f"type {type(x)} not supported")
    if running.trace is not None:
        return _values(running.trace.capture(x), what, why)
    return x._array


def take(a: Any, indices: Any, axis: Any = None, mode: str = "raise", out: Any = None) -> Any:
    """The slices at the indices along the axis; without an axis, of the flattened array

    >>> mx.np.take(mx.np.array([[1, 2], [3, 4]]), mx.np.array([1, 0], dtype="int32"), axis=0).asnumpy()
    array([[3., 4.],
           [1., 2.]], dtype=float32)
    """
    if mode not in ("wrap", "clip", "raise"):
        raise NotImplementedError(f"function take does not support mode '{mode}'")
    if axis is None:
        a, axis = apply("_np_reshape", (a,), {"newshape": -1}), 0
    if is_number(indices):
        indices = _constant(indices)
    return apply("_npi_take", (a, indices), {"axis": axis, "mode": mode}, out)


def _constant(value: Any) -> Any:
    return array(np.asarray(value))


def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None) -> Any:
    """The indices that sort the array, as int64

    >>> mx.np.argsort(mx.np.array([3, 1, 2])).asnumpy().tolist()
    [1, 2, 0]
    """
    if order is not None:
        raise NotImplementedError("order not supported here")
    return apply("_npi_argsort", (a,), {"axis": axis, "is_ascend": True, "dtype": "int64"})


# Joining and splitting


def concatenate(seq: Any, axis: Any = 0, out: Any = None) -> Any:
    """The arrays joined along the axis; flattened first if the axis is None

    >>> mx.np.concatenate([mx.np.array([[1, 2]]), mx.np.array([[3]])], axis=1).asnumpy()
    array([[1., 2., 3.]], dtype=float32)
    """
    return apply("_npi_concatenate", tuple(seq), {"axis": axis, "num_args": len(seq)}, out)


def stack(arrays: Any, axis: int = 0, out: Any = None) -> Any:
    """Arrays of equal shape joined along a new axis

    >>> mx.np.stack([mx.np.array([1, 2]), mx.np.array([3, 4])], axis=1).asnumpy()
    array([[1., 3.],
           [2., 4.]], dtype=float32)
    """
    return apply("_npi_stack", tuple(arrays), {"axis": axis, "num_args": len(arrays)}, out)


def _joining(name: str, doc: str) -> Callable[..., Any]:
    def function(tup: Any, out: Any = None) -> Any:
        return apply(f"_npi_{name}", tuple(tup), {"num_args": len(tup)}, out)

    call = f"mx.np.{name}([mx.np.array([1, 2]), mx.np.array([3, 4])])"
    shown = getattr(np, name)(np.array([[1, 2], [3, 4]], np.float32))
    function.__name__, function.__doc__ = name, f"{doc}\n\n>>> {call}.asnumpy()\n{shown!r}"
    return function


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Parts along the axis: a number of equal ones, or cut before each of the indices

    >>> [part.asnumpy().tolist() for part in mx.np.split(mx.np.array([1, 2, 3, 4]), (1,))]
    [[1.0], [2.0, 3.0, 4.0]]
    """
    attrs: dict[str, Any] = {"axis": axis, "indices": (), "sections": 0}
    if isinstance(indices_or_sections, integer_types):
        attrs["sections"] = indices_or_sections
    else:
        attrs["indices"] = (0, *indices_or_sections)
    found = apply("_npi_split", (ary,), attrs)
    return found if isinstance(found, list) or len(_heads(found)) > 1 else [found]


def _heads(x: Any) -> Any:
    """The outputs of a symbol; an array is one."""
    return (x,) if isinstance(x, TracedSymbol) else getattr(x, "_heads", (x,))


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """`split` into parts that need not be equal: the first ones may be longer by 1

    >>> [part.asnumpy().tolist() for part in mx.np.array_split(mx.np.array([1, 2, 3]), 2)]
    [[1.0, 2.0], [3.0]]
    """
    if isinstance(indices_or_sections, integer_types):
        count, n = indices_or_sections, ary.shape[axis]
        sizes = [n // count + (k < n % count) for k in range(count)]
        indices_or_sections = tuple(int(k) for k in np.cumsum(sizes)[:-1])
    return split(ary, indices_or_sections, axis)


def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    """`split` along the second axis; for a vector, along the first

    >>> [part.asnumpy().tolist() for part in mx.np.hsplit(mx.np.array([[1, 2]]), 2)]
    [[[1.0]], [[2.0]]]
    """
    return split(ary, indices_or_sections, 0 if ary.ndim == 1 else 1)


def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    """`split` along the first axis

    >>> [part.asnumpy().tolist() for part in mx.np.vsplit(mx.np.array([[1], [2]]), 2)]
    [[[1.0]], [[2.0]]]
    """
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> Any:
    """`split` along the third axis

    >>> [part.asnumpy().tolist() for part in mx.np.dsplit(mx.np.array([[[1, 2]]]), 2)]
    [[[[1.0]]], [[[2.0]]]]
    """
    return split(ary, indices_or_sections, 2)


# Shapes


def ravel(x: Any, order: str = "C") -> Any:
    """The elements as a vector

    >>> mx.np.ravel(mx.np.array([[1, 2], [3, 4]])).asnumpy()
    array([1., 2., 3., 4.], dtype=float32)
    """
    if order == "F":  # the others are, of row-major arrays, the same
        row_major(order)
    return apply("_np_reshape", (x,), {"newshape": -1})


def flip(m: Any, axis: Any = None, out: Any = None) -> Any:
    """The elements in reverse order along the axes; None is all axes

    >>> mx.np.flip(mx.np.array([[1, 2], [3, 4]])).asnumpy()
    array([[4., 3.],
           [2., 1.]], dtype=float32)
    """
    return apply("_npi_flip", (m,), {"axis": axis}, out)


def flipud(m: Any) -> Any:
    """The elements in reverse order along the first axis

    >>> mx.np.flipud(mx.np.array([[1, 2], [3, 4]])).asnumpy()
    array([[3., 4.],
           [1., 2.]], dtype=float32)
    """
    return flip(m, 0)


def fliplr(m: Any) -> Any:
    """The elements in reverse order along the second axis

    >>> mx.np.fliplr(mx.np.array([[1, 2], [3, 4]])).asnumpy()
    array([[2., 1.],
           [4., 3.]], dtype=float32)
    """
    return flip(m, 1)


def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """One axis moved in front of the axis `start`

    >>> mx.np.rollaxis(mx.np.zeros((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    n = a.ndim
    axis, start = axis % n, start + n if start < 0 else start
    return apply("_np_moveaxis", (a,), {"source": axis, "destination": start - (axis < start)})


def pad(x: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Any:
    """The array with padding on all sides: `constant_values`, its edge or its mirror image

    >>> mx.np.pad(mx.np.array([1, 2]), 1, constant_values=9).asnumpy()
    array([9., 1., 2., 9.], dtype=float32)
    """
    pairs = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    attrs = {"pad_width": tuple(map(tuple, pairs)), "mode": mode}
    value = kwargs.pop("constant_values", 0)
    if kwargs:
        raise TypeError(f"pad() does not take {', '.join(kwargs)}")
    return apply("_npi_pad", (x,), {**attrs, "constant_value": float(value)})


def nan_to_num(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """NaN and infinities replaced by numbers; with copy=False in place, in `x`, which is returned

    >>> mx.np.nan_to_num(mx.np.array([np.nan, np.inf, 1]), posinf=9).asnumpy()
    array([0., 9., 1.], dtype=float32)
    """
    attrs = {"copy": copy, "nan": nan, "posinf": posinf, "neginf": neginf}
    return apply("_npi_nan_to_num", (x,), attrs, out=None if copy else x)


def _at_least(rank: int) -> Callable[..., Any]:
    def function(*arys: Any) -> Any:
        found = []
        for x in arys:
            shape = np.broadcast_to(0, x.shape)
            wanted = getattr(np, f"atleast_{rank}d")(shape).shape
            found.append(apply("_np_reshape", (x,), {"newshape": wanted}))  # a copy, whatever the rank
        return found[0] if len(found) == 1 else found

    function.__name__ = f"atleast_{rank}d"
    call = f">>> mx.np.{function.__name__}(mx.np.array([1, 2])).shape\n{getattr(np, function.__name__)([1, 2]).shape}"
    function.__doc__ = f"The arrays with {rank} axes at least\n\n{call}"
    return function


def broadcast_arrays(*args: Any, **kwargs: Any) -> Any:
    """The arrays in the shape to which they broadcast

    >>> [x.shape for x in mx.np.broadcast_arrays(mx.np.zeros(3), mx.np.zeros((2, 1)))]
    [(2, 3), (2, 3)]
    """
    whole = np.broadcast_shapes(*(x.shape for x in args))
    return [apply("_npi_broadcast_to", (x,), {"shape": whole}) for x in args]


def meshgrid(*xi: Any, indexing: str = "xy", **kwargs: Any) -> Any:
    """Coordinate arrays of a grid, from the coordinates along each axis

    >>> x, y = mx.np.meshgrid(mx.np.array([1, 2]), mx.np.array([3, 4]))
    >>> x.asnumpy().tolist(), y.asnumpy().tolist()
    ([[1.0, 2.0], [1.0, 2.0]], [[3.0, 3.0], [4.0, 4.0]])
    """
    rank = len(xi)
    lengths = [x.size for x in xi]
    order = [1, 0, *range(2, rank)] if indexing == "xy" and rank > 1 else list(range(rank))
    whole = tuple(lengths[k] for k in order)
    found = []
    for k, x in enumerate(xi):
        own = tuple(lengths[k] if axis == order.index(k) else 1 for axis in range(rank))
        found.append(apply("_npi_broadcast_to", (apply("_np_reshape", (x,), {"newshape": own}),), {"shape": whole}))
    return found


def shape(a: Any) -> tuple[int, ...]:
    """The shape

    >>> mx.np.shape(mx.np.zeros((2, 3)))
    (2, 3)
    """
    return a.shape if hasattr(a, "shape") else np.shape(a)


def size(a: Any, axis: Any = None) -> int:
    """The number of elements, in all or along an axis

    >>> mx.np.size(mx.np.zeros((2, 3))), mx.np.size(mx.np.zeros((2, 3)), 0)
    (6, 2)
    """
    own = shape(a)
    return int(np.prod(own)) if axis is None else own[axis]


def ndim(a: Any) -> int:
    """The number of axes

    >>> mx.np.ndim(mx.np.zeros((2, 3)))
    2
    """
    return len(shape(a))


def may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Whether two arrays may share memory

    >>> x = mx.np.zeros(2)
    >>> mx.np.may_share_memory(x, x)
    True
    """
    return np.may_share_memory(a._array, b._array)


# Products and means


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """The sum of products over a number of axes, or over the given axes of both

    >>> mx.np.tensordot(mx.np.array([[1, 2], [3, 4]]), mx.np.array([1, 10]), axes=1).asnumpy()
    array([21., 43.], dtype=float32)
    """
    if isinstance(axes, integer_types):
        return apply("_npi_tensordot_int_axes", (a, b), {"axes": axes})
    over_a, over_b = ((k,) if isinstance(k, integer_types) else tuple(k) for k in axes)
    return apply("_npi_tensordot", (a, b), {"a_axes_summed": over_a, "b_axes_summed": over_b})


def inner(a: Any, b: Any) -> Any:
    """The sum of products over the last axes

    >>> mx.np.inner(mx.np.array([[1, 2], [3, 4]]), mx.np.array([1, 10])).asnumpy()
    array([21., 43.], dtype=float32)
    """
    return tensordot(a, b, [(-1,), (-1,)])


def outer(a: Any, b: Any) -> Any:
    """The products of every element of a with every element of b

    >>> mx.np.outer(mx.np.array([1, 2]), mx.np.array([3, 4])).asnumpy()
    array([[3., 4.],
           [6., 8.]], dtype=float32)
    """
    return tensordot(ravel(a), ravel(b), 0)


def vdot(a: Any, b: Any) -> Any:
    """The sum of products of all elements

    >>> mx.np.vdot(mx.np.array([1, 2]), mx.np.array([3, 4])).asnumpy().tolist()
    11.0
    """
    return tensordot(ravel(a), ravel(b), 1)


def einsum(subscripts: str, *operands: Any, out: Any = None, **kwargs: Any) -> Any:
    """Sums of products by Einstein's convention

    >>> mx.np.einsum("ij,j->i", mx.np.array([[1, 2], [3, 4]]), mx.np.array([1, 10])).asnumpy()
    array([21., 43.], dtype=float32)
    """
    attrs = {"subscripts": subscripts, "num_args": len(operands), "optimize": int(bool(kwargs.pop("optimize", False)))}
    if kwargs:
        raise TypeError(f"einsum() does not take {', '.join(kwargs)}")
    return apply("_npi_einsum", operands, attrs, out)


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, out: Any = None) -> Any:
    """The weighted mean over axes; with `returned`, also the sum of the weights

    >>> mx.np.average(mx.np.array([1, 3]), weights=mx.np.array([3, 1])).asnumpy().tolist()
    1.5
    """
    attrs = {"axis": axis, "returned": returned, "weighted": weights is not None}
    return apply("_npi_average", (a,) if weights is None else (a, weights), attrs, out)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The root of the sum of squares, or for vectors the norm of order 1, 2, inf or -inf, over the axes

    >>> mx.np.linalg.norm(mx.np.array([[3, 4], [6, 8]]), axis=1).asnumpy()
    array([ 5., 10.], dtype=float32)
    """
    single = axis is None or isinstance(axis, integer_types) or len(axis) == 1
    if ord in (np.inf, -np.inf) and single:
        op = "_np_max" if ord > 0 else "_np_min"
        return apply(op, (apply("_npi_absolute", (x,)),), {"axis": axis, "keepdims": keepdims})
    attrs = {"ord": 1 if ord == 1 else 2, "axis": axis, "keepdims": keepdims}
    if ord is None or ord == "fro":
        return apply("_npi_norm", (x,), {**attrs, "flag": -2 if axis is None else 1})
    if ord in (1, 2) and single:
        return apply("_npi_norm", (x,), {**attrs, "flag": -1})
    raise unsupported(f"norm of order {ord!r} over axes {axis}")


def det(a: Any) -> Any:
    """The determinant of the matrices in the last two axes

    >>> mx.np.linalg.det(mx.np.array([[2, 1], [0, 3]])).asnumpy().tolist()
    6.0
    """
    return apply("_npi_det", (a,))


def slogdet(a: Any) -> Any:
    """The sign of the determinant, and the logarithm of its magnitude

    >>> [y.asnumpy().tolist() for y in mx.np.linalg.slogdet(mx.np.array([[-1, 0], [0, 1]]))]
    [-1.0, 0.0]
    """
    return tuple(apply("_npi_slogdet", (a,)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function  # type: ignore[misc]
    for function in (
        where,
        clip,
        nonzero,
        unique,
        take,
        argsort,
        concatenate,
        stack,
        *(
            _joining(f"{kind}stack", f"The arrays {doc}")
            for kind, doc in (
                ("v", "one below the other"),
                ("h", "side by side"),
                ("d", "one after the other"),
                ("column_", "side by side; vectors are columns"),
            )
        ),
        split,
        array_split,
        hsplit,
        vsplit,
        dsplit,
        broadcast_arrays,
        ravel,
        flip,
        flipud,
        fliplr,
        rollaxis,
        nan_to_num,
        pad,
        *map(_at_least, (1, 2, 3)),
        meshgrid,
        shape,
        size,
        ndim,
        may_share_memory,
        tensordot,
        inner,
        outer,
        vdot,
        einsum,
        average,
    )
}
for _function in FUNCTIONS.values():
    _function.__module__ = "gluonjit.numpy"
FUNCTIONS |= {name: on_values(name, _RENAMED.get(name) or getattr(np, name)) for name in FALLBACK}
FUNCTIONS["row_stack"] = FUNCTIONS["vstack"]
FUNCTIONS["shares_memory"] = may_share_memory
