"""`cse`: common subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gluonjit.ir.graph import Builder, Graph, Op, Value, reemit, rewrite
from gluonjit.ir.structure import op_key
from gluonjit.passes.dce import changes_late, is_pure
from gluonjit.passes.manager import register_pass


@register_pass("cse")
def cse(graph: Graph) -> Graph:
    """Computes equal ops once: same operator, operands and attributes. Constants are compared by their content.

    Where an op comes from does not matter; the first of equal ones stays. Ops that are not pure are never merged,
    nor those whose gradient changes a state, such as a moving mean: each of them changes it.
    """
    seen: dict[Hashable, Sequence[Value]] = {}
    merged = False

    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        nonlocal merged
        if not is_pure(op) or changes_late(op):
            return None
        order = sorted(operands, key=id) if op.definition.commutative else operands
        key = (op_key(op), tuple(order))
        if key in seen:
            merged = True
        else:
            seen[key] = reemit(b, op, operands)
        return seen[key]

    result = rewrite(graph, rule)
    return result if merged else graph
