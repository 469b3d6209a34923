"""`join-pads`: in a sum, many padded values that lie beside each other become a concat.

The gradient of an array of which slices were taken, such as the steps of an unrolled loop, is a sum with one term for
each slice: its cotangent among zeros. Computed as it stands, the sum of n slices takes n times the size of the array.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gluonjit.ir.graph import Builder, Graph, Op, Rewriter, Value
from gluonjit.passes.manager import register_pass


class _Pad(NamedTuple):
    """`x` in places `first` to `last` (exclusive) of an axis, and zeros around it."""

    result: Value
    x: Value
    axis: int
    first: int
    last: int


@register_pass("join-pads", needs="legal")
def join_pads(graph: Graph, *, least: int = 8) -> Graph:
    """Joins at least `least` values of a sum that are padded with zeros along the same axis and do not overlap.

    Fewer, such as the gates of an LSTM, are one kernel with what computes them, whose loops are cut where they meet.
    The other terms are added in another order, and -0.0 + 0.0, which is 0.0, may become -0.0.
    """
    sums = {op: rows for op in graph.ops if op.name == "add" for rows in [_rows(graph, op, least)] if rows}
    return _Joined(graph, sums).run() if sums else graph


class _Joined(Rewriter):
    def __init__(self, graph: Graph, sums: dict[Op, list[list[_Pad]]]) -> None:
        super().__init__(graph)
        self.sums = sums

    def visit(self, op: Op) -> Sequence[Value] | None:
        rows = self.sums.get(op)
        if rows is None:
            return None
        joined = {pad.result for row in rows for pad in row}
        terms = [self.env[v] for v in _terms(self.graph, op) if v not in joined]
        terms += [_concat(self.b, [pad._replace(x=self.env[pad.x]) for pad in row]) for row in rows]
        total = terms[0]
        for term in terms[1:]:
            total = self.b.add(total, term)
        return (total,)


def _rows(graph: Graph, op: Op, least: int) -> list[list[_Pad]]:
    """The padded values, in order, for each concat that is to be part of a sum."""
    if _added_to(graph, op.result):
        return []  # a part of another sum
    pads = [pad for v in _terms(graph, op) if (pad := _padded(graph, v)) is not None]
    rows: list[list[_Pad]] = []
    for pad in sorted(pads, key=lambda pad: (pad.axis, pad.first)) if len(pads) >= least else ():
        fitting = (row for row in rows if row[-1].axis == pad.axis and row[-1].last <= pad.first)
        row = next(fitting, None)
        if row is None:
            rows.append(row := [])
        row.append(pad)
    return [row for row in rows if len(row) >= least]


def _added_to(graph: Graph, v: Value) -> bool:
    """Whether a value is nothing but one term of another sum."""
    users = graph.uses.get(v, ())
    return len(users) == 1 and users[0].name == "add" and users[0].operands.count(v) == 1 and v not in graph.results


def _terms(graph: Graph, op: Op) -> Iterable[Value]:
    """The terms of a sum, in order."""
    pending = list(reversed(op.operands))
    while pending:
        v = pending.pop()
        producer = graph.producers.get(v)
        if producer is not None and producer.name == "add" and _added_to(graph, v):
            pending += reversed(producer.operands)
        else:
            yield v


def _padded(graph: Graph, v: Value) -> _Pad | None:
    op = graph.producers.get(v)
    if op is None or op.name != "pad" or any(op.attrs["interior"] or ()):
        return None
    x, zero = op.operands
    constant = graph.producers.get(zero)
    axes = [k for k, (low, high) in enumerate(zip(op.attrs["low"], op.attrs["high"])) if low or high]
    if constant is None or constant.name != "constant" or constant.attrs["value"] != 0 or len(axes) != 1:
        return None
    (axis,) = axes
    first, size = op.attrs["low"][axis], x.shape[axis]
    return _Pad(v, x, axis, first, first + size) if type(first) is int and type(size) is int else None


def _concat(b: Builder, row: Sequence[_Pad]) -> Value:
    """The sum of padded values that do not overlap."""
    axis, shape = row[0].axis, row[0].result.shape
    zero = b.constant(0, row[0].x.dtype)
    parts: list[Value] = []
    at = 0
    for pad in row:
        parts += [*_zeros(b, zero, shape, axis, pad.first - at), pad.x]
        at = pad.last
    parts += _zeros(b, zero, shape, axis, shape[axis] - at)
    return b.concat(*parts, axis=axis)


def _zeros(b: Builder, zero: Value, shape: Sequence[int], axis: int, size: int) -> list[Value]:
    return [b.broadcast(zero, shape=(*shape[:axis], size, *shape[axis + 1 :]))] if size else []
