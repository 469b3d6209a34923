"""What loops and branches need of fusion and hoisting: their bodies' invariants, computed once outside.

The pass `fuse` notes in each body which of its inputs are *captured*, the same in every iteration (graph attribute
`params`). So `select` packs weights inside of a loop as it does outside, and `hoist` gathers that work in `prepare`
ops of the body. `lift` moves those out of the body: what they compute becomes a further captured operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from gluonjit.ir.graph import Builder, Graph, Op, Rewriter, Value, copy_ops, reemit
from gluonjit.ir.types import IRError


def captured_inputs(op: Op) -> list[range]:
    """For each region of a loop or branch, which of its inputs are captured operands (always the last ones)."""
    if op.name == "branch":
        return [range(len(region.inputs)) for region in op.regions]
    if op.name == "call":
        return [range(len(op.operands) - op.attrs["captured"], len(op.operands))]
    if op.name != "loop":
        raise IRError(f"{op.name} has no captured inputs: `expand` and `differentiate` come before this pass")
    varying = op.attrs["carried"] + op.attrs["scanned"]
    first = [1 + varying, 1 + op.attrs["carried"]]
    return [range(start, len(region.inputs)) for start, region in zip(first, op.regions)]


def mark_captured(op: Op) -> tuple[Graph, ...]:
    """The regions of a loop or call with `params` set to their captured inputs.

    A branch has none: what only one side needs must not be computed for both.
    """
    if op.name == "branch":
        return op.regions
    return tuple(
        region.with_attrs(params=tuple(inputs)) for region, inputs in zip(op.regions, captured_inputs(op), strict=True)
    )


class Lifts:
    """Moves the `prepare` ops of regions out of these. Calls of one function with the same captured operands share what
    was in front of the first of them."""

    def __init__(self) -> None:
        self._known: dict[tuple[Graph | Value, ...], tuple[tuple[Graph, ...], list[Value]]] = {}
        """The new regions, and their further operands, by the old regions and the captured operands."""

    def lift(self, b: Builder, op: Op, operands: Sequence[Value]) -> tuple[Value, ...]:
        """Emits a loop, branch or call over new operands, after what its regions had prepared."""
        captured = len(captured_inputs(op)[0])
        outer = operands[len(operands) - captured :]
        key: tuple[Graph | Value, ...] = (*op.regions, *outer)
        if key not in self._known:
            self._known[key] = _lifted(b, op, outer)
        regions, extra = self._known[key]
        if not extra:
            return reemit(b, op, operands)
        attrs = {**op.attrs, "captured": captured + len(extra)} if op.name == "call" else op.attrs
        return b.emit(op.name, [*operands, *extra], attrs, regions, op.loc, [r.name for r in op.results])


def _lifted(b: Builder, op: Op, outer: Sequence[Value]) -> tuple[tuple[Graph, ...], list[Value]]:
    """The regions without their `prepare` ops, whose results became further inputs, and what was emitted for these;
    `outer` are the captured operands."""
    extra: list[Value] = []
    extra_of: list[list[Value]] = []
    """For each region, the values inside of it that further operands replace."""
    for region, inputs in zip(op.regions, captured_inputs(op), strict=True):
        table = dict(zip((region.inputs[k] for k in inputs), outer, strict=True))
        replaced: list[Value] = []
        for inner in region.ops:
            if inner.name == "prepare":
                made = _inline(b, inner.regions[0], [table[v] for v in inner.operands])
                extra += made
                replaced += inner.results
        extra_of.append(replaced)
    if not extra:
        return op.regions, extra
    starts = accumulate(map(len, extra_of), initial=0)
    regions = [_WithoutPrepare(r, extra, replaced, at).run() for r, replaced, at in zip(op.regions, extra_of, starts)]
    return tuple(regions), extra


def _inline(b: Builder, region: Graph, operands: Sequence[Value]) -> list[Value]:
    env = dict(zip(region.inputs, operands, strict=True))
    copy_ops(b, region.ops, env)
    return [env[v] for v in region.outputs]


class _WithoutPrepare(Rewriter):
    """The region with inputs for all of `extra`; those from `start` on stand for what its `prepare` ops gave."""

    def __init__(self, region: Graph, extra: Sequence[Value], replaced: Sequence[Value], start: int) -> None:
        super().__init__(region)
        added = [self.b.input(v.name, v.type) for v in extra]
        self.env.update(zip(replaced, added[start : start + len(replaced)], strict=True))

    def visit(self, op: Op) -> Sequence[Value] | None:
        return () if op.name == "prepare" else None
