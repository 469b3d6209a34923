"""`legalize-broadcast`: elementwise operands of different shapes are broadcast by ops of their own."""

from __future__ import annotations

from collections.abc import Sequence

from gluonjit.ir.graph import Builder, Graph, Op, Value, rewrite
from gluonjit.passes.manager import register_pass


@register_pass("legalize-broadcast", needs="expanded", gives="legal")
def legalize_broadcast(graph: Graph) -> Graph:
    """Makes NumPy's broadcasting explicit; afterwards (level `legal`) elementwise operands have the result's shape."""
    if graph.level != "expanded":
        return graph

    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        if not _broadcasts(op):
            return None
        shape = op.results[0].shape
        wide = [v if v.shape == shape else b.broadcast(v, shape=shape) for v in operands]
        return b.emit_typed(op.name, wide, op.attrs, tuple([Value(r.name, r.type) for r in op.results]))

    return rewrite(graph, rule, level="legal") if any(map(_broadcasts, graph.ops)) else graph.with_level("legal")


def _broadcasts(op: Op) -> bool:
    """Whether an operand has another shape than the result."""
    if not op.definition.elementwise:
        return False
    shape = op.results[0].type.shape
    for v in op.operands:
        if v.type.shape != shape:
            return True
    return False
