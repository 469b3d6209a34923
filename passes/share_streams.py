"""`share-streams`: random kernels that differ in nothing but their streams become equal, so that they share code.

The numbers of stream t under the key (seed, counter) are those of stream 0 under (seed, counter + t). So each kernel
counts its streams from 0, and gets a key of its own: a row of a table that one small kernel computes. Gamma variates,
for example, are seven equal rounds on different streams, which are most of a kernel each; a net has the same dropout
many times.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.graph import Builder, Graph, Op, Rewriter, Value
from gluonjit.ir.kernels.element_plans import Loops, View
from gluonjit.ir.structure import op_key
from gluonjit.passes.manager import register_pass


@register_pass("share-streams", needs="fused")
def share_streams(graph: Graph) -> Graph:
    """Random kernels that are equal but for their streams read these from a table of keys, and share code."""
    alike: dict[Hashable, list[_Draws]] = {}
    for op in graph.ops:
        if (draws := _draws(op)) is not None:
            alike.setdefault((op_key(draws.counted), op.operands[draws.key]), []).append(draws)
    shared = [draws for group in alike.values() if len({d.start for d in group}) > 1 for draws in group]
    return _Shared(graph, shared).run() if shared else graph


@dataclass
class _Draws:
    """A kernel that draws random numbers."""

    op: Op
    key: int
    """The number of the operand that is the key."""
    start: int
    """Its first stream."""
    counted: Op
    """The same, with streams numbered from `start`."""


def _draws(op: Op) -> _Draws | None:
    """None if the op draws no random numbers, or uses the key in another way."""
    if op.name != "fused":
        return None
    body = op.regions[0]
    drawn = [o for o in body.ops if o.name == "random_bits"]
    keys = {o.operands[0] for o in drawn}
    if len(keys) != 1:
        return None
    (key,) = keys
    if key not in body.inputs or len(body.uses[key]) != len(drawn) or key in body.results:
        return None
    start = min(o.attrs["stream"] for o in drawn)
    attrs = {o: MappingProxyType({**o.attrs, "stream": o.attrs["stream"] - start}) for o in drawn}
    counted = replace(body, ops=tuple(replace(o, attrs=attrs.get(o, o.attrs)) for o in body.ops))
    return _Draws(op, body.inputs.index(key), start, replace(op, regions=(counted,)))


class _Shared(Rewriter):
    def __init__(self, graph: Graph, shared: Sequence[_Draws]) -> None:
        super().__init__(graph)
        self.draws = {d.op: d for d in shared}
        self.starts: dict[Value, list[int]] = {}
        """The rows of each key's table."""
        for d in shared:
            known = self.starts.setdefault(d.op.operands[d.key], [])
            if d.start not in known:
                known.append(d.start)
        self.rows: dict[tuple[Value, int], Value] = {}
        """The row for each key and first stream."""

    def visit(self, op: Op) -> Sequence[Value] | None:
        d = self.draws.get(op)
        if d is None:
            return None
        key = op.operands[d.key]
        if (key, d.start) not in self.rows:
            self._add_table(key)
        operands = [self.env[v] for v in op.operands]
        operands[d.key] = self.rows[key, d.start]
        return self.b.emit(op.name, operands, op.attrs, d.counted.regions, op.loc, [r.name for r in op.results])

    def _add_table(self, key: Value) -> None:
        starts = self.starts[key]
        offsets = self.b.constant(np.array([[0, start] for start in starts], np.int64))
        body = Builder("keys", "fused")
        base, added = body.input("key", key.type), body.input("offsets", offsets.type)
        keys = body.add(body.broadcast(base, shape=offsets.shape, dims=(1,)), added)
        region = body.build([body.reshape(keys, shape=(offsets.size,))])
        (table,) = self.b.emit("fused", [self.env[key], offsets], KERNEL(Loops()), [region])
        for k, start in enumerate(starts):
            attrs = {"start": (2 * k,), "size": (2,), **KERNEL(View())}
            (self.rows[key, start],) = self.b.emit("slice", [table], attrs)
