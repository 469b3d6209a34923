"""Operators that repeat elements: broadcasting, `tile` and `repeat`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.operators.attributes import axes, integer, optional, shape
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import axis_in, shape_text


def _stretched(b: Emitter, x: Any, new: Sequence[int]) -> Any:
    """`x` broadcast to shape `new` of its own rank."""
    old = tuple(x.shape)
    if any(n != 1 and n != m for n, m in zip(old, new)):
        raise OperatorError(f"Array cannot be broadcasted from {shape_text(old)} to {shape_text(new)}")
    return b.broadcast(x, shape=tuple(new))


def _same_rank(old: Sequence[int], new: Sequence[int]) -> None:
    if len(old) != len(new):
        raise OperatorError(f"Operand of shape {shape_text(old)} cannot be broadcasted to {shape_text(new)}")


@operator("broadcast_to", attrs={"shape": shape((), doc="0 keeps the dimension")})
def broadcast_to(b: Emitter, data: Any, *, shape: Shape) -> Any:
    """Broadcasts axes of length 1 to the given shape; a 0 in the shape keeps the axis unchanged

    Shapes: data (any) -> `shape`, of as many axes

    MXNetError if an axis that is to change is not 1 long.

    >>> mx.nd.broadcast_to(mx.nd.array([[1, 2]]), shape=(2, 0)).asnumpy()
    array([[1., 2.],
           [1., 2.]], dtype=float32)
    """
    old = tuple(data.shape)
    _same_rank(old, shape)
    return _stretched(b, data, [m or n for n, m in zip(old, shape)])


@operator(
    "broadcast_axis",
    aliases=("broadcast_axes",),
    attrs={
        "axis": shape((), doc="axes of length 1"),
        "size": shape((), doc="their new extents"),
    },
)
def broadcast_axis(b: Emitter, data: Any, *, axis: Shape, size: Shape) -> Any:
    """Broadcasts the given axes, which must have length 1, to the given sizes

    Shapes: data (any) -> the same, but `size` along `axis`

    >>> mx.nd.broadcast_axis(mx.nd.array([[1], [2]]), axis=1, size=3).asnumpy()
    array([[1., 1., 1.],
           [2., 2., 2.]], dtype=float32)
    """
    if len(axis) != len(size):
        raise OperatorError(f"Check failed: param.axis.ndim() == param.size.ndim() ({len(axis)} vs. {len(size)})")
    new = list(data.shape)
    for a, n in zip(axis, size):
        a = axis_in(a, len(new))
        if new[a] != 1:
            raise OperatorError(f"Broadcasting axis must have size 1, but axis {a} of {shape_text(data.shape)} has not")
        new[a] = n
    return b.broadcast(data, shape=tuple(new))


@operator(
    "broadcast_like",
    inputs=("lhs", "rhs"),
    attrs={
        "lhs_axes": axes(None, doc="the axes of lhs; None: all"),
        "rhs_axes": axes(None, doc="the axes of rhs; None: all"),
    },
)
def broadcast_like(b: Emitter, lhs: Any, rhs: Any, *, lhs_axes: Shape | None, rhs_axes: Shape | None) -> Any:
    """Broadcasts lhs to the shape of rhs, or only its axes `lhs_axes` to the sizes of the axes `rhs_axes` of rhs

    Shapes: lhs (any), rhs of as many axes -> rhs's shape

    >>> mx.nd.broadcast_like(mx.nd.array([[1, 2]]), mx.nd.zeros((3, 2))).asnumpy()
    array([[1., 2.],
           [1., 2.],
           [1., 2.]], dtype=float32)
    """
    mine, other = tuple(lhs.shape), tuple(rhs.shape)
    if lhs_axes is None or rhs_axes is None:
        _same_rank(mine, other)
        return _stretched(b, lhs, other)
    if len(lhs_axes) != len(rhs_axes):
        raise OperatorError("Input_axis and other_axis size does not match")
    new = list(mine)
    for a, c in zip(lhs_axes, rhs_axes):
        a, c = axis_in(a, len(mine)), axis_in(c, len(other))
        if mine[a] != 1:
            raise OperatorError(f"Input axis {a} at dimension {a} cannot be broadcasted to {other[c]}")
        new[a] = other[c]
    return b.broadcast(lhs, shape=tuple(new))


@operator("tile", attrs={"reps": shape(doc="repetitions of each axis; missing leading ones are 1")})
def tile(b: Emitter, data: Any, *, reps: Shape) -> Any:
    """Repeats the whole tensor `reps` times along each axis

    Shapes: data (any) -> each extent times its entry of `reps`

    >>> mx.nd.tile(mx.nd.array([1, 2]), reps=(2, 2)).asnumpy()
    array([[1., 2., 1., 2.],
           [1., 2., 1., 2.]], dtype=float32)
    """
    if any(r < 0 for r in reps):
        raise OperatorError(f"shape dim size must be >= -1, while received reps={tuple(reps)}")
    rank = max(len(reps), len(data.shape))
    old = (1,) * (rank - len(data.shape)) + tuple(data.shape)
    counts = (1,) * (rank - len(reps)) + tuple(reps)
    # Each repeated axis becomes a pair of axes (repetition, position); the others stay as they are.
    wide: list[int] = []
    dims: list[int] = []
    for axis, (count, n) in enumerate(zip(counts, old)):
        if count != 1:
            wide.append(count)
        if axis >= rank - len(data.shape):
            dims.append(len(wide))
        wide.append(n)
    spread = b.broadcast(data, shape=tuple(wide), dims=tuple(dims))
    return b.reshape(spread, shape=tuple(count * n for count, n in zip(counts, old)))


def repeated(b: Emitter, x: Any, counts: Sequence[int]) -> Any:
    """Repeats each element `counts[axis]` times in succession along each axis."""
    old = tuple(x.shape)
    wide: list[int] = []
    dims: list[int] = []
    for count, n in zip(counts, old):
        dims.append(len(wide))
        wide += (n, count) if count != 1 else (n,)
    if len(wide) == len(old):
        return x
    spread = b.broadcast(x, shape=tuple(wide), dims=tuple(dims))
    return b.reshape(spread, shape=tuple(count * n for count, n in zip(counts, old)))


@operator(
    "repeat",
    attrs={
        "repeats": integer(doc="how often each element is repeated"),
        "axis": optional(integer(doc="the axis along which to repeat; None: in the flattened data"), None),
    },
)
def repeat(b: Emitter, data: Any, *, repeats: int, axis: int | None) -> Any:
    """Repeats each element `repeats` times in succession along the axis; without an axis, in the flattened tensor

    Shapes: data (any) -> the same, with `repeats` times the extent along `axis`; a vector if `axis` is None

    >>> mx.nd.repeat(mx.nd.array([[1, 2], [3, 4]]), repeats=2, axis=1).asnumpy()
    array([[1., 1., 2., 2.],
           [3., 3., 4., 4.]], dtype=float32)
    """
    if repeats < 0:
        raise OperatorError("repeats cannot be a negative number")
    if axis is None:
        return repeated(b, b.reshape(data, shape=(math.prod(data.shape),)), (repeats,))
    rank = len(data.shape)
    if not -rank <= axis < rank:
        raise OperatorError(f"Check failed: axis >= 0 && axis < ndims: axis = {axis} out of bounds")
    return repeated(b, data, [repeats if k == axis % rank else 1 for k in range(rank)])
