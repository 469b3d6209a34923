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
    equal = _equal_ops(graph) if len(graph.ops) > 1 else {}
    firsts = set(equal.values())
    made: dict[Op, Sequence[Value]] = {}

    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        if op in firsts:
            made[op] = reemit(b, op, operands)
            return made[op]
        return made[equal[op]] if op in equal else None

    return rewrite(graph, rule) if equal else graph


def _equal_ops(graph: Graph) -> dict[Op, Op]:
    """For each op that an earlier one is equal to, that one."""
    equal: dict[Op, Op] = {}
    stands: dict[Value, Value] = {}
    seen: dict[Hashable, Op | dict[Hashable, Op]] = {}
    """By name and operands: the only op so far, or each that says something else, by what it says. Most ops have
    operands of their own, so what they say is not asked."""
    for op in graph.ops:
        operands = tuple([stands.get(v, v) for v in op.operands]) if stands else op.operands
        key = op.name, tuple(sorted(operands, key=id)) if op.definition.commutative else operands
        known = seen.setdefault(key, op)
        if known is op or not is_pure(op) or changes_late(op):
            continue
        if isinstance(known, Op):
            known = seen[key] = {op_key(known): known}
        first = known.setdefault(op_key(op), op)
        if first is not op:
            equal[op] = first
            stands.update(zip(op.results, first.results))
    return equal
