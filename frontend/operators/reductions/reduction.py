"""Reductions, the positions of extremes, and running sums.

`axis` is None or () (all axes), a number or a tuple; `exclude` reduces all other axes instead; `keepdims` keeps reduced
axes with length 1. MXNet has no 0-d tensors: the result of a reduction over all axes has shape (1,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import BOOL, F16, F32, F64, I64, DType, dtype_of
from gluonjit.operators.attributes import axes, boolean, dtype, integer, optional
from gluonjit.operators.documentation import documented, example, on
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import axis_in, convert, mean, narrowed, require_numeric, shape_text, widened
from gluonjit.operators.support import moments as central_moments

_ATTRS = {
    "axis": axes(None, doc="axes to reduce; None or () means all"),
    "keepdims": boolean(False, doc="whether reduced axes stay, with length 1"),
    "exclude": boolean(False, doc="whether to reduce the axes that are not in `axis`"),
}


def reduced_axes(shape: Sequence[int], axis: Shape | None, exclude: bool = False) -> tuple[int, ...]:
    """The axes that are reduced, in order, counted from 0."""
    rank = len(shape)
    if not axis:
        return tuple(range(rank))
    chosen = sorted(a + rank if a < 0 else a for a in axis)
    for a in chosen:
        if not 0 <= a < rank:
            raise OperatorError(
                f"Reduction axis {a if a >= 0 else a - rank} Exceeds input dimensions {shape_text(shape)}"
            )
    if len(set(chosen)) != len(chosen):
        raise OperatorError(f"Reduction axes have duplicates {shape_text(chosen)}")
    return tuple(a for a in range(rank) if a not in chosen) if exclude else tuple(chosen)


def finished(b: Emitter, y: Any, shape: Sequence[int], gone: Sequence[int], keepdims: bool) -> Any:
    """Reshapes `y`, the reduction of a tensor of shape `shape` over the axes `gone`, as MXNet does."""
    if keepdims:
        new = tuple(1 if axis in gone else n for axis, n in enumerate(shape))
    else:
        new = tuple(y.shape) or (1,)
    return y if new == tuple(y.shape) else b.reshape(y, shape=new)


_OF_BOOL = {"sum": "any", "prod": "all", "max": "any", "min": "all"}


def _reduce(b: Emitter, x: Any, op: str, gone: tuple[int, ...]) -> Any:
    if dtype_of(x) is BOOL:
        op = _OF_BOOL[op]
    return b.reduce(x, op=op, axes=gone)


def _sum(b: Emitter, x: Any, gone: tuple[int, ...]) -> Any:
    return _reduce(b, x, "sum", gone)


def _mean(b: Emitter, x: Any, gone: tuple[int, ...]) -> Any:
    own = dtype_of(x)
    if own is BOOL:
        return _reduce(b, x, "sum", gone)
    if own.is_float:
        return narrowed(b, mean(b, widened(b, x), gone), own)
    # Sums are wide because neither the sum of many integers nor their count fits into a narrow type. The quotient of
    # integers is truncated.
    total = _reduce(b, b.cast(x, dtype=I64), "sum", gone)
    count = b.constant(math.prod(x.shape[axis] for axis in gone), I64)
    return b.cast(b.div(total, count), dtype=own)


def require_elements(name: str, shape: Sequence[int], gone: Sequence[int]) -> None:
    """Raises OperatorError, as NumPy does, if each result would be the extreme of no elements."""
    if any(shape[axis] == 0 for axis in gone):
        raise OperatorError(f"{name} of no elements: the data has shape {shape_text(shape)}")


def _extreme(op: str) -> Callable[..., Any]:
    def function(b: Emitter, x: Any, gone: tuple[int, ...]) -> Any:
        require_elements(op, x.shape, gone)
        return _reduce(b, x, op, gone)

    return function


def _ignoring_nan(op: str, neutral: int) -> Callable[..., Any]:
    def function(b: Emitter, x: Any, gone: tuple[int, ...]) -> Any:
        if dtype_of(x).is_float:
            x = b.select(b.isnan(x), b.constant(neutral, dtype_of(x)), x)
        return _reduce(b, x, op, gone)

    return function


REDUCED = "data (any) -> data's without the reduced axes, or (1,) if none is left"


def _declare(name: str, doc: str, x: str, y: str, function: Callable[..., Any], aliases: tuple[str, ...] = ()) -> None:
    """`x`, `y`: an example, reduced along axis 1."""

    def expand(b: Emitter, data: Any, *, axis: Shape | None, keepdims: bool, exclude: bool) -> Any:
        gone = reduced_axes(data.shape, axis, exclude)
        return finished(b, function(b, data, gone), data.shape, gone, keepdims)

    refused = "MXNetError for an axis that there is not, or that is given twice."
    call = f"_internal.{name}" if name[0] == "_" else name
    expand.__doc__ = documented(doc, REDUCED, refused, example(f"mx.nd.{call}({on(x)}, axis=1)", y))
    operator(name, aliases=aliases, attrs=_ATTRS)(expand)


_MATRIX, _WITH_NAN = "[[1, 2], [3, 4]]", "[[1, 2], [3, np.nan]]"
_declare("sum", "The sum over axes", _MATRIX, "[3., 7.]", _sum, ("sum_axis",))
_declare("_square_sum", "The sum of squares over axes", _MATRIX, "[ 5., 25.]", lambda b, x, gone: _sum(b, x * x, gone))
_declare("mean", "The mean over axes", _MATRIX, "[1.5, 3.5]", _mean)
_declare("prod", "The product over axes", _MATRIX, "[ 2., 12.]", lambda b, x, gone: _reduce(b, x, "prod", gone))
_declare(
    "max",
    "The largest element over axes; NaN if any element is NaN",
    _MATRIX,
    "[2., 4.]",
    _extreme("max"),
    ("max_axis",),
)
_declare(
    "min",
    "The smallest element over axes; NaN if any element is NaN",
    _MATRIX,
    "[1., 3.]",
    _extreme("min"),
    ("min_axis",),
)
_declare("nansum", "The sum over axes, where NaN counts as 0", _WITH_NAN, "[3., 3.]", _ignoring_nan("sum", 0))
_declare("nanprod", "The product over axes, where NaN counts as 1", _WITH_NAN, "[2., 3.]", _ignoring_nan("prod", 1))


def norm_gradient(b: Emitter, data: Any, y: Any, g: Any, gone: Shape) -> Any:
    """The cotangent of data of which `y` is the root of the sum of squares over the axes `gone`: 0 where all are 0."""
    x = widened(b, data)
    wide = dtype_of(x)
    kept = tuple(1 if axis in gone else n for axis, n in enumerate(data.shape))
    length, g = (b.reshape(b.cast(v, dtype=wide), shape=kept) for v in (y, g))
    zero = b.constant(0, wide)
    none = b.eq(length, zero)
    scale = b.select(none, zero, g / b.select(none, b.constant(1, wide), length))
    return narrowed(b, x * scale, dtype_of(data))


def _norm_gradient(b: Emitter, g: Any, y: Any, x: Any, *, ord: int, axis: Shape | None, **_attrs: Any) -> Any:
    if ord != 2 or not dtype_of(x[0]).is_float:
        return None
    return (norm_gradient(b, x[0], y[0], g[0], reduced_axes(x[0].shape, axis)),)


@operator(
    "norm",
    gradient=_norm_gradient,
    attrs={
        "ord": integer(2, doc="1 or 2"),
        "axis": axes(None, doc="axes to reduce; None or () means all"),
        "out_dtype": optional(
            dtype(
                among=("float16", "float32", "float64", "int32", "int64", "int8"),
                doc="the element type of the result; None: the data's",
            )
        ),
        "keepdims": boolean(False, doc="whether reduced axes stay, with length 1"),
    },
)
def norm(b: Emitter, data: Any, *, ord: int, axis: Shape | None, out_dtype: DType | None, keepdims: bool) -> Any:
    """sum(|x|) for ord 1, sqrt(sum(x * x)) for ord 2, over axes

    Shapes: data (any) -> data's without the reduced axes, or (1,) if none is left

    >>> mx.nd.norm(mx.nd.array([[3, 4], [6, 8]]), axis=1).asnumpy()
    array([ 5., 10.], dtype=float32)
    """
    own = require_numeric("norm", data)
    gone = reduced_axes(data.shape, axis)
    if ord == 1:
        y = b.reduce(abs(data), op="sum", axes=gone)
    elif ord == 2:
        # Squares may overflow although their root does not; a type twice as wide holds them.
        x = data if own is F64 else b.cast(data, dtype=F32 if own is F16 else F64)
        y = b.sqrt(b.reduce(x * x, op="sum", axes=gone))
    else:
        raise OperatorError("norm only supports ord=1 and ord=2")
    y = finished(b, y, data.shape, gone, keepdims)
    return narrowed(b, y, out_dtype or own)


@operator(
    "moments",
    attrs={
        "axes": axes(None, doc="axes to reduce; must be given"),
        "keepdims": boolean(False, doc="whether reduced axes stay, with length 1"),
    },
    outputs=lambda attrs: ("output0", "output1"),
)
def moments(b: Emitter, data: Any, *, axes: Shape | None, keepdims: bool) -> Any:
    """Mean and variance (divided by the count) over axes

    Shapes: data (any) -> mean and variance, both data's shape without the reduced axes

    >>> mean, variance = mx.nd.moments(mx.nd.array([[1, 3], [2, 8]]), axes=1)
    >>> mean.asnumpy(), variance.asnumpy()
    (array([2., 5.], dtype=float32), array([1., 9.], dtype=float32))
    """
    own = require_numeric("moments", data)
    if not axes:
        raise OperatorError(
            "Empty axes is not supported, if you would like to do global moments, please pass all axes to axes argument"
        )
    gone = reduced_axes(data.shape, axes)
    mean, variance, _ = central_moments(b, widened(b, data), gone)
    kept = tuple(1 if axis in gone else n for axis, n in enumerate(data.shape))
    left = tuple(n for axis, n in enumerate(data.shape) if axis not in gone) or (1,)
    return tuple(narrowed(b, b.reshape(y, shape=kept if keepdims else left), own) for y in (mean, variance))


# Positions


def _position(b: Emitter, data: Any, op: str, axis: int | None, keepdims: bool) -> Any:
    own = require_numeric(op, data)
    shape = tuple(data.shape)
    require_elements(op, shape, range(len(shape)) if axis is None else (axis_in(axis, len(shape)),))
    if axis is None:
        flat = b.reshape(data, shape=(math.prod(shape),))
        y, gone = b.arg_reduce(flat, op=op, axis=0), tuple(range(len(shape)))
    else:
        axis = axis_in(axis, len(shape))
        y, gone = b.arg_reduce(data, op=op, axis=axis), (axis,)
    return finished(b, b.cast(y, dtype=own), shape, gone, keepdims)


_POSITION = {
    "axis": optional(integer(doc="the axis along which to search; None: in the flattened data"), None),
    "keepdims": boolean(False, doc="whether reduced axes stay, with length 1"),
}


@operator("argmax", attrs=_POSITION)
def argmax(b: Emitter, data: Any, *, axis: int | None, keepdims: bool) -> Any:
    """The index of the first largest element along the axis, in the data's element type

    Shapes: data (any) -> data's without `axis`; (1,) if `axis` is None

    MXNetError for an axis of length 0.

    >>> mx.nd.argmax(mx.nd.array([[1, 5, 2], [7, 0, 7]]), axis=1).asnumpy()
    array([1., 0.], dtype=float32)
    """
    return _position(b, data, "argmax", axis, keepdims)


@operator("argmin", attrs=_POSITION)
def argmin(b: Emitter, data: Any, *, axis: int | None, keepdims: bool) -> Any:
    """The index of the first smallest element along the axis, in the data's element type

    Shapes: data (any) -> data's without `axis`; (1,) if `axis` is None

    MXNetError for an axis of length 0.

    >>> mx.nd.argmin(mx.nd.array([[1, 5, 2], [7, 0, 7]]), axis=1).asnumpy()
    array([0., 1.], dtype=float32)
    """
    return _position(b, data, "argmin", axis, keepdims)


@operator("argmax_channel")
def argmax_channel(b: Emitter, data: Any) -> Any:
    """The index of the first largest element along axis 1, in the data's element type

    Shapes: data (n, channels, …) -> data's without axis 1

    >>> mx.nd.argmax_channel(mx.nd.array([[1, 5, 2], [7, 0, 7]])).asnumpy()
    array([1., 0.], dtype=float32)
    """
    return _position(b, data, "argmax", 1, False)


# Running sums


@operator(
    "_np_cumsum",
    aliases=("cumsum",),
    inputs=("a",),
    attrs={
        "axis": optional(integer(doc="the axis along which to sum; None: the flattened data"), None),
        "dtype": optional(
            dtype(
                among=("float16", "float32", "float64", "int32", "int64", "int8"),
                doc="the element type of the result; None: the data's",
            )
        ),
    },
)
def cumsum(b: Emitter, a: Any, *, axis: int | None, dtype: DType | None) -> Any:
    """Running sums along the axis; without an axis, of the flattened tensor; bool counts as int64

    Shapes: a (any) -> the same; a vector if `axis` is None

    >>> mx.nd.cumsum(mx.nd.array([[1, 2, 3], [4, 5, 6]]), axis=1).asnumpy()
    array([[ 1.,  3.,  6.],
           [ 4.,  9., 15.]], dtype=float32)
    """
    if dtype_of(a) is BOOL:
        a = b.cast(a, dtype=I64)
    own = dtype_of(a)
    if axis is None:
        a, axis = b.reshape(a, shape=(math.prod(a.shape),)), 0
    rank = len(a.shape)
    if not -rank <= axis < rank:
        raise OperatorError(f"axis value {axis} out of range for {shape_text(a.shape)}")
    x = a if dtype in (None, own) else convert(b, a, dtype)
    return b.cumsum(x, axis=axis % rank)
