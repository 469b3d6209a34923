"""`join-moments`: mean and variance of the columns of a large array in one pass over it.

A variance is the mean square of what is left when the mean is subtracted, which takes a second pass. But any number
near the mean can be subtracted first, for with d = x - k

    mean(x) = k + mean(d)   and   sum((x - mean(x))²) = sum(d²) - sum(d) · mean(d),

whose sums over d `fuse` makes one kernel of. As k serves the mean of m of the n terms, by which the array is read again
where it has just been written. Little is lost by the difference, whatever the data are: (k - mean(x))² is at most the
mean of the squares over those m terms, thus n / m times the variance, and sum(d²) at most 1 + n / m times what is left
(Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983, on shifted data).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gluonjit.ir.dims import is_static
from gluonjit.ir.graph import Builder, Graph, Op, Rewriter, Value
from gluonjit.ir.machine import Machine
from gluonjit.ir.primitives.movement import broadcast_dims
from gluonjit.ir.types import F32
from gluonjit.passes.dce import dce
from gluonjit.passes.manager import register_pass

_PART = 8
"""n / m, at most: 1 + n / m times the rounding error of a long sum of f32, 1e-6, has to be less than 1e-5."""


@register_pass("join-moments", needs="legal")
def join_moments(graph: Graph, *, target: Machine) -> Graph:
    """Takes mean and variance of the columns of arrays that no second-level cache holds in one pass."""
    found = {}
    for op in graph.ops:
        if op.name == "reduce" and op.attrs["op"] == "mean" and _is_large(op, target.l2):
            squares = sum_of_squares(graph, op)
            if squares is not None:
                found[op] = squares
    return dce(_Joined(graph, found).run()) if found else graph


def _is_large(op: Op, least: int) -> bool:
    """Whether the op reduces the columns of an array of more bytes, and a few of their terms are easily found."""
    (x,), axes = op.operands, op.attrs["axes"]
    if x.dtype is not F32 or not is_static(x.shape) or x.type.nbytes <= least or x.ndim - 1 in axes:
        return False
    return _axis(x.shape, axes) is not None


def _axis(shape: Sequence[int], axes: Sequence[int]) -> int | None:
    """The axis of which a part is taken first."""
    return next((k for k in sorted(axes) if shape[k] >= _PART // 2), None)


class Moments(NamedTuple):
    """Of the terms of each column."""

    near: Value
    """A number near their mean."""
    rest: Value
    """What the mean is above it: their sum would lose what the next digits of the mean are."""
    squares: Value
    """The sum of squares about the mean."""


def moments(b: Builder, x: Value, axes: Sequence[int]) -> Moments:
    """Emits sums over static axes of an f32 array, in one pass over it if one of the axes has a few elements."""
    kept = tuple(k for k in range(x.ndim) if k not in axes)
    few, axis = list(x.shape), _axis(x.shape, axes)
    if axis is not None:
        few[axis] = -(-few[axis] // _PART)
    near = b.reduce(b.slice(x, start=(0,) * x.ndim, size=tuple(few)), op="mean", axes=axes)

    def number(value: float) -> Value:
        return b.broadcast(b.constant(value, F32), shape=near.shape, dims=())

    near = b.select(b.isfinite(near), near, number(0))  # an infinity is no less one for what is subtracted
    apart = b.sub(x, b.broadcast(near, shape=x.shape, dims=kept))
    total = b.reduce(apart, op="sum", axes=axes)
    squares = b.reduce(b.mul(apart, apart), op="sum", axes=axes)
    rest = b.mul(total, number(1 / math.prod(x.shape[k] for k in axes)))
    left = b.sub(squares, b.mul(total, rest))
    # The squares of finite terms may be infinite, but they are no NaN, as a difference of infinities is.
    left = b.select(b.isfinite(total), b.select(b.isfinite(squares), left, squares), left)
    return Moments(near, rest, b.maximum(left, number(0)))


def sum_of_squares(graph: Graph, mean: Op) -> Op | None:
    """The sum of squares of what the mean is subtracted from."""
    (x,), axes = mean.operands, mean.attrs["axes"]
    kept = tuple(k for k in range(x.ndim) if k not in axes)
    for spread in graph.uses.get(mean.result, ()):
        if spread.name != "broadcast" or _dims(spread) != kept:
            continue
        for centred in graph.uses.get(spread.result, ()):
            if centred.name != "sub" or centred.operands != (x, spread.result):
                continue
            for square in graph.uses.get(centred.result, ()):
                if square.name != "mul" or square.operands != (centred.result, centred.result):
                    continue
                for total in graph.uses.get(square.result, ()):
                    if total.name == "reduce" and total.attrs["op"] == "sum" and total.attrs["axes"] == axes:
                        return total
    return None


def _dims(op: Op) -> tuple[int, ...]:
    return broadcast_dims(op.operands[0].ndim, op.attrs["shape"], op.attrs["dims"])


class _Joined(Rewriter):
    def __init__(self, graph: Graph, found: dict[Op, Op]) -> None:
        super().__init__(graph)
        self.found = found
        self.totals: dict[Op, Value] = {}
        """By sum of squares, its value."""

    def visit(self, op: Op) -> Sequence[Value] | None:
        if op in self.totals:
            return (self.totals[op],)
        if op not in self.found:
            return None
        found = moments(self.b, self.env[op.operands[0]], op.attrs["axes"])
        self.totals[self.found[op]] = found.squares
        return (self.b.add(found.near, found.rest),)
