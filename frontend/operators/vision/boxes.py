"""Box arithmetic of the detection operators: overlaps, greedy suppression and greedy matching.

A box is given by its left, top, right and bottom coordinates (`corner`), or by its center, width and height (`center`).
Here it is four arrays, one per coordinate, so that arithmetic on them needs no strides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gluonjit.ir.dims import is_at_most
from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import BOOL, I64, dtype_of
from gluonjit.operators.control.looping import loop
from gluonjit.operators.support import scalar

Box = Sequence[Any]


def both(b: Emitter, *conditions: Any) -> Any:
    """The logical and of all the bools."""
    y = conditions[0]
    for x in conditions[1:]:
        y = y & x
    return y


def negated(b: Emitter, x: Any) -> Any:
    return ~x


def columns(b: Emitter, x: Any, first: int, count: int = 4) -> list[Any]:
    """x[..., first], x[..., first + 1], …"""
    rest = tuple(x.shape[:-1])
    none = tuple(0 for _ in rest)
    parts = (b.slice(x, start=(*none, first + k), size=(*rest, 1)) for k in range(count))
    return [b.reshape(part, shape=rest) for part in parts]


def joined(b: Emitter, parts: Sequence[Any]) -> Any:
    """Stacks the arrays along a new last axis."""
    return b.concat(*(b.reshape(p, shape=(*p.shape, 1)) for p in parts), axis=len(parts[0].shape))


def corners(b: Emitter, box: Box, form: str) -> list[Any]:
    """Converts a box from the form 'corner' or 'center' to left, top, right, bottom."""
    if form == "corner":
        return list(box)
    x, y, width, height = box
    two = scalar(b, 2, dtype_of(x))
    half_width, half_height = width / two, height / two
    return [x - half_width, y - half_height, x + half_width, y + half_height]


def centers(b: Emitter, box: Box, form: str) -> list[Any]:
    """Converts a box from the form 'corner' or 'center' to center x, center y, width, height."""
    if form == "center":
        return list(box)
    left, top, right, bottom = box
    half = scalar(b, 0.5, dtype_of(left))
    width, height = right - left, bottom - top
    return [left + width * half, top + height * half, width, height]


def offsets(b: Emitter, box: Box, anchor: Box) -> list[Any]:
    """Encodes a box relative to an anchor (both corners): shifts in anchor sizes, logarithms of the scales."""
    x, y, width, height = centers(b, box, "corner")
    ax, ay, awidth, aheight = centers(b, anchor, "corner")
    return [
        (x - ax) / awidth,
        (y - ay) / aheight,
        b.log(width / awidth),
        b.log(height / aheight),
    ]


def moved(b: Emitter, anchor: Box, form: str, offset: Box, factors: Sequence[float], most: float = 0) -> list[Any]:
    """Decodes an offset: the anchor, shifted and scaled by the offset times `factors`, as corners.

    `most`, if positive, is the upper bound of the logarithms of the scales.
    """
    dtype = dtype_of(offset[0])
    dx, dy, dw, dh = (v * scalar(b, f, dtype) for v, f in zip(offset, factors))
    if most > 0:
        dw, dh = (b.minimum(v, scalar(b, most, dtype)) for v in (dw, dh))
    ax, ay, awidth, aheight = centers(b, anchor, form)
    x, y = dx * awidth + ax, dy * aheight + ay
    half = scalar(b, 0.5, dtype)
    w, h = b.exp(dw) * awidth * half, b.exp(dh) * aheight * half
    return [x - w, y - h, x + w, y + h]


def area(b: Emitter, box: Box, form: str) -> Any:
    """Width times height; 0 where one of them is negative."""
    left, top, right, bottom = box
    width, height = (right, bottom) if form == "center" else (right - left, bottom - top)
    zero = scalar(b, 0, dtype_of(left))
    return b.select(b.minimum(width, height) < zero, zero, width * height)


def intersection(b: Emitter, first: Box, second: Box) -> Any:
    """The area of the intersection of two boxes, given as corners."""
    zero = scalar(b, 0, dtype_of(first[0]))
    sides = []
    for low, high in ((0, 2), (1, 3)):
        side = b.minimum(first[high], second[high]) - b.maximum(first[low], second[low])
        sides.append(b.maximum(side, zero))
    return b.mul(*sides)


def suppressed(
    b: Emitter,
    boxes: Box,
    areas: Any,
    kinds: Any,
    candidates: Any,
    overlaps: Callable[[Emitter, Any, Any], Any],
) -> Any:
    """Greedy non-maximum suppression: a bool for each candidate, whether it is kept.

    All operands are (batch, n), sorted from the best box to the worst; `candidates` is bool. Each box that is kept
    removes the later boxes of the same kind (of any kind if `kinds` is None) that overlap it too much according to
    `overlaps(b, intersection, union)`.
    """
    batch, n = areas.shape
    position = b.iota(shape=(1, n), axis=1, dtype=I64)
    # Candidates after the last one of any batch entry need no iteration.
    numbers = b.select(candidates, position + 1, b.constant(0, I64))
    count = b.reduce(numbers, op="max", axes=(0, 1)) if batch * n else b.constant(0, I64)
    captured = [count, position, areas, *boxes]
    if kinds is not None:
        captured.append(kinds)

    def body(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        (left,) = state
        _, position, areas, *rest = captured

        def this(x: Any) -> Any:
            return b.reshape(b.gather(x, index, axis=1), shape=(batch, 1))

        shared = intersection(b, rest[:4], [this(x) for x in rest[:4]])
        hit = overlaps(b, shared, areas + this(areas) - shared)
        hit = both(b, hit, this(left), position > index)
        if len(rest) > 4:
            hit = both(b, hit, b.eq(rest[4], this(rest[4])))
        return [both(b, left, negated(b, hit))], []

    def more(b: Emitter, index: Any, state: Any, captured: Any) -> Any:
        return index < captured[0]

    (left,), _ = loop(b, body, [candidates], (), captured, trip=n, condition=more)
    return left


def front(b: Emitter, kept: Any) -> Any:
    """For each batch entry of `kept` (batch, n): the positions of the true elements, in order, then all others."""
    _, order = b.sort(b.select(kept, b.constant(0, I64), b.constant(1, I64)), axis=1)
    return order


def rows(b: Emitter, x: Any, order: Any) -> Any:
    """Gathers the rows `order` (batch, m) of each batch entry of x (batch, n, …)."""
    batch, m = order.shape
    entry = b.broadcast(b.iota(shape=(batch, 1), axis=0, dtype=I64), shape=(batch, m))
    index = b.concat(b.reshape(entry, shape=(1, batch, m)), b.reshape(order, shape=(1, batch, m)), axis=0)
    return b.gather_nd(x, index)


def greedy_match(b: Emitter, scores: Any, fits: Callable[[Emitter, Any], Any], most: int) -> tuple[Any, Any]:
    """Pairs rows with columns greedily by descending score, while `fits(b, score)` holds; at most `most` pairs.

    `scores` (batch, rows, columns) must not contain NaN; ties are resolved in row-major order. Returns the column of
    each row, (batch, rows), and the row of each column, (batch, columns); -1 for those without a partner.
    """
    batch, m, n = scores.shape
    dtype = dtype_of(scores)
    free = [b.broadcast(b.constant(-1, I64), shape=(batch, k)) for k in (m, n)]
    going = b.broadcast(b.constant(True, BOOL), shape=(batch,))

    def body(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        column_of, row_of, going = state
        none, zero = b.constant(-math.inf, dtype), b.constant(0, I64)
        open_rows = b.reshape(column_of < zero, shape=(batch, m, 1))
        open_columns = b.reshape(row_of < zero, shape=(batch, 1, n))
        left = b.reshape(b.select(both(b, open_rows, open_columns), captured[0], none), shape=(batch, m * n))
        best = b.reshape(b.arg_reduce(left, op="argmax", axis=1), shape=(batch, 1))
        going = both(b, going, fits(b, b.reduce(left, op="max", axes=(1,))))
        row, column = b.div(best, b.constant(n, I64)), b.mod(best, b.constant(n, I64))
        chosen = b.reshape(going, shape=(batch, 1))
        at_row = both(b, chosen, b.eq(b.iota(shape=(1, m), axis=1, dtype=I64), row))
        at_column = both(b, chosen, b.eq(b.iota(shape=(1, n), axis=1, dtype=I64), column))
        return [b.select(at_row, column, column_of), b.select(at_column, row, row_of), going], []

    def more(b: Emitter, index: Any, state: Any, captured: Any) -> Any:
        return b.reduce(state[2], op="any", axes=(0,))

    # Rounds after the last pair change nothing, so any of the bounds does if it is not known which is the least.
    trip = most if batch else 0
    for k in (m, n):
        trip = k if is_at_most(k, trip) else trip
    (column_of, row_of, _), _ = loop(b, body, [*free, going], (), [scores], trip=trip, condition=more)
    return column_of, row_of
