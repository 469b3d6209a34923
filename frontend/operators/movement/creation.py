"""Operators that create tensors from attributes or from another tensor's shape, and diagonals."""

from __future__ import annotations

import math
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, F64, I64, DType, dtype_of
from gluonjit.operators.attributes import boolean, dtype, integer, number, optional, shape, string
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import axis_in, convert, require_numeric, scalar, shape_text

FLOATS_AND_INTEGERS = ("bfloat16", "float16", "float32", "float64", "int32", "int64", "int8", "uint8")
CTX = string("", doc="the device of the result")
_PLACED = {
    "shape": shape((), doc="the shape of the result"),
    "ctx": CTX,
    "dtype": dtype(F32, among=(*FLOATS_AND_INTEGERS, "bool"), doc="the element type of the result"),
}


def filled(b: Emitter, value: float, shape: Shape, dtype: DType) -> Any:
    """A tensor of equal elements."""
    return b.broadcast(scalar(b, value, dtype), shape=tuple(shape))


@operator("_zeros", inputs=(), attrs=_PLACED)
def zeros(b: Emitter, *, shape: Shape, ctx: str, dtype: DType) -> Any:
    """A tensor of zeros

    Shapes: no inputs -> `shape`

    >>> mx.nd.zeros((2, 3)).asnumpy()
    array([[0., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    return filled(b, 0, shape, dtype)


@operator("_ones", inputs=(), attrs=_PLACED)
def ones(b: Emitter, *, shape: Shape, ctx: str, dtype: DType) -> Any:
    """A tensor of ones

    Shapes: no inputs -> `shape`

    >>> mx.nd.ones(3, dtype="int32").asnumpy()
    array([1, 1, 1], dtype=int32)
    """
    return filled(b, 1, shape, dtype)


@operator("_full", inputs=(), attrs={**_PLACED, "value": number(doc="the value of all elements")})
def full(b: Emitter, *, shape: Shape, ctx: str, dtype: DType, value: float) -> Any:
    """A tensor in which every element is `value`

    Shapes: no inputs -> `shape`

    >>> mx.nd.full((2, 2), 7).asnumpy()
    array([[7., 7.],
           [7., 7.]], dtype=float32)
    """
    return filled(b, value, shape, dtype)


@operator("zeros_like", same_shape=True)
def zeros_like(b: Emitter, data: Any) -> Any:
    """A tensor of zeros with the data's shape and element type

    Shapes: data (any) -> the same

    >>> mx.nd.zeros_like(mx.nd.array([1, 2])).asnumpy()
    array([0., 0.], dtype=float32)
    """
    return filled(b, 0, data.shape, dtype_of(data))


@operator("ones_like", same_shape=True)
def ones_like(b: Emitter, data: Any) -> Any:
    """A tensor of ones with the data's shape and element type

    Shapes: data (any) -> the same

    >>> mx.nd.ones_like(mx.nd.array([1, 2])).asnumpy()
    array([1., 1.], dtype=float32)
    """
    return filled(b, 1, data.shape, dtype_of(data))


# Ranges


def progression(b: Emitter, start: float, step: float, n: int, dtype: DType, repeat: int = 1) -> Any:
    """start, start + step, … (`n` elements in all, each number `repeat` times), computed in `dtype`."""
    repeat = min(repeat, max(n, 1))  # what is cut off must not take memory
    if n == 0:
        return filled(b, 0, (0,), dtype)
    if repeat == 1:
        x = b.iota(shape=(n,), axis=0, dtype=dtype)
    else:
        rows = -(-n // repeat)
        x = b.reshape(b.iota(shape=(rows, repeat), axis=0, dtype=dtype), shape=(rows * repeat,))
        if rows * repeat != n:
            x = b.slice(x, start=(0,), size=(n,))
    if step != 1:
        x = x * scalar(b, step, dtype)
    return x + scalar(b, start, dtype) if start else x


@operator(
    "_arange",
    inputs=(),
    attrs={
        "start": number(doc="the first number"),
        "stop": optional(number(doc="the end, which is not reached"), None),
        "step": number(1.0, doc="the difference of one number to the next"),
        "repeat": integer(1, low=1, doc="how often each number is repeated"),
        "infer_range": boolean(False, doc="whether the length is taken from the use of the result"),
        "ctx": CTX,
        "dtype": dtype(F32, among=FLOATS_AND_INTEGERS, doc="the element type of the result"),
    },
)
def arange(
    b: Emitter, *, start: float, stop: float | None, step: float, repeat: int, infer_range: bool, ctx: str, dtype: DType
) -> Any:
    """The numbers start, start + step, … below stop; without stop, from 0 up to `start`

    Shapes: no inputs -> (repeat * ceil((stop - start) / step),)

    MXNetError for a step of 0 and for an empty range.

    >>> mx.nd.arange(2, 5).asnumpy()
    array([2., 3., 4.], dtype=float32)
    """
    if stop is None:
        if infer_range:
            raise OperatorError("infer_range=True without a stop, but no use of the result determines its shape")
        start, stop = 0.0, start
    if step == 0:
        raise OperatorError("Range does not support step=0, received 0")
    count = range_length(start, stop, step)
    if count <= 0:
        raise OperatorError(f"Invalid range (start, stop, step) = ({start:g},{stop:g},{step:g})")
    return progression(b, start, step, count * repeat, dtype, repeat)


def range_length(start: float, stop: float, step: float) -> int:
    """The count of numbers in a range, 0 or less if it is empty; OperatorError if it is not finite or exceeds 2**62."""
    count = (stop - start) / step
    if not abs(count) < 2**62:  # NaN, too
        raise OperatorError(f"Invalid range (start, stop, step) = ({start:g},{stop:g},{step:g}): it has no end")
    return math.ceil(count)


@operator(
    "_linspace",
    inputs=(),
    attrs={
        "start": number(doc="the first number"),
        "stop": number(doc="the end, which is not reached"),
        "num": integer(low=0, doc="how many numbers there are"),
        "endpoint": boolean(True, doc="whether the last number is the stop"),
        "ctx": CTX,
        "dtype": dtype(F32, among=FLOATS_AND_INTEGERS, doc="the element type of the result"),
    },
)
def linspace(b: Emitter, *, start: float, stop: float, num: int, endpoint: bool, ctx: str, dtype: DType) -> Any:
    """`num` evenly spaced numbers from start to stop

    Shapes: no inputs -> (num,)

    >>> mx.nd.linspace(0, 1, 5).asnumpy()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    gaps = num - 1 if endpoint else num
    x = progression(b, start, (stop - start) / gaps if gaps > 0 else 0.0, num, F64)
    return convert(b, x, dtype) if dtype is not F64 else x


@operator(
    "_contrib_arange_like",
    attrs={
        "start": number(0.0, doc="the first number"),
        "step": number(1.0, doc="the difference of one number to the next"),
        "repeat": integer(1, low=1, doc="how often each number is repeated"),
        "ctx": CTX,
        "axis": optional(integer(doc="the axis of which the result has the length; None: the data's shape"), None),
    },
)
def arange_like(b: Emitter, data: Any, *, start: float, step: float, repeat: int, ctx: str, axis: int | None) -> Any:
    """The numbers start, start + step, … in the data's shape; with `axis`, a vector of that axis's length

    Shapes: data (any) -> the same; with `axis`, (data.shape[axis],)

    >>> mx.nd.contrib.arange_like(mx.nd.zeros((2, 3)), axis=1).asnumpy()
    array([0., 1., 2.], dtype=float32)
    >>> mx.nd.contrib.arange_like(mx.nd.zeros((2, 3)), start=1).asnumpy()
    array([[1., 2., 3.],
           [4., 5., 6.]], dtype=float32)
    """
    own = require_numeric("arange_like", data)
    old = tuple(data.shape)
    if axis is None:
        return b.reshape(progression(b, start, step, math.prod(old), own, repeat), shape=old)
    return progression(b, start, step, old[axis_in(axis, len(old))], own, repeat)


# Diagonals


@operator(
    "_eye",
    inputs=(),
    attrs={
        "N": integer(doc="rows"),
        "M": integer(0, doc="number of columns; 0 means N"),
        "k": integer(0, doc="which diagonal; positive ones are above the main one"),
        "ctx": CTX,
        "dtype": dtype(
            F32, among=tuple(n for n in FLOATS_AND_INTEGERS if n != "bfloat16"), doc="the element type of the result"
        ),
    },
)
def eye(b: Emitter, *, N: int, M: int, k: int, ctx: str, dtype: DType) -> Any:
    """A matrix with ones on a diagonal and zeros elsewhere

    Shapes: no inputs -> (N, M)

    >>> mx.nd.eye(2, 3, 1).asnumpy()
    array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    if N < 0 or M < 0:
        raise OperatorError(f"eye needs positive dimensions, got {N} x {M}")
    row = b.iota(shape=(N, 1), axis=0, dtype=I64)
    column = b.iota(shape=(1, M or N), axis=1, dtype=I64)
    return b.cast(b.eq(column, row + k), dtype=dtype)


def diagonal(b: Emitter, x: Any, k: int) -> Any:
    """Diagonal `k` of the matrices in the last two axes, as the last axis."""
    *lead, rows, columns = x.shape
    first, room = (k, min(rows, columns - k)) if k >= 0 else (-k * columns, min(rows + k, columns))
    count = max(room, 0)
    flat = b.reshape(x, shape=(*lead, rows * columns))
    start = (*(0 for _ in lead), first if count else 0)
    return b.slice(flat, start=start, size=(*lead, count), step=(*(1 for _ in lead), columns + 1))


def from_diagonal(b: Emitter, x: Any, k: int) -> Any:
    """Square matrices with the last axis of `x` on diagonal `k` and zeros elsewhere."""
    *lead, n = x.shape
    side = n + abs(k)
    if n == 0:
        return filled(b, 0, (*lead, side, side), dtype_of(x))
    # In row-major order, successive elements of a diagonal are side + 1 places apart.
    low = k if k >= 0 else -k * side
    high = side * side - low - ((n - 1) * (side + 1) + 1)
    none = tuple(0 for _ in lead)
    flat = b.pad(x, b.constant(0, dtype_of(x)), low=(*none, low), high=(*none, high), interior=(*none, side))
    return b.reshape(flat, shape=(*lead, side, side))


@operator(
    "diag",
    attrs={
        "k": integer(0, doc="which diagonal; positive ones are above the main one"),
        "axis1": integer(0, doc="the rows"),
        "axis2": integer(1, doc="the columns"),
    },
)
def diag(b: Emitter, data: Any, *, k: int, axis1: int, axis2: int) -> Any:
    """A diagonal of the matrices in two axes, as the last axis; for a vector, the matrix with that diagonal

    Shapes: data (n,) -> (n + |k|, n + |k|); data with axes of length n and m -> the other axes, then the length of the
    diagonal

    >>> mx.nd.diag(mx.nd.array([[1, 2], [3, 4]])).asnumpy()
    array([1., 4.], dtype=float32)
    >>> mx.nd.diag(mx.nd.array([1, 2])).asnumpy()
    array([[1., 0.],
           [0., 2.]], dtype=float32)
    """
    require_numeric("diag", data)
    rank = len(data.shape)
    if rank == 0:
        raise OperatorError("diag needs an array of at least one axis")
    if rank == 1:
        return from_diagonal(b, data, k)
    first, second = axis_in(axis1, rank), axis_in(axis2, rank)
    if first == second:
        raise OperatorError(f"axis1 and axis2 cannot refer to the same axis {axis1} of {shape_text(data.shape)}")
    rest = [a for a in range(rank) if a not in (first, second)]
    perm = (*rest, first, second)
    return diagonal(b, data if perm == tuple(range(rank)) else b.transpose(data, perm=perm), k)
