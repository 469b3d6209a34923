"""`simplify`: algebraic identities. The rules stand in `rules_arithmetic.py`, `rules_movement.py` and
`rules_picking.py`."""

from __future__ import annotations

from collections.abc import Sequence

from gluonjit.ir.graph import Builder, Graph, Op, Value, rewrite
from gluonjit.passes import rules_arithmetic, rules_movement, rules_picking  # noqa: F401  (they declare the rules)
from gluonjit.passes.manager import register_pass
from gluonjit.passes.simplifier import RULES, Simplifier


@register_pass("simplify")
def simplify(graph: Graph) -> Graph:
    """Replaces ops by equal ones that are cheaper: x * 1, transposes of transposes, division by powers of two, …

    Every rule is exact in IEEE arithmetic and leads to fewer or cheaper ops, so that this ends. Operands are
    simplified before the ops that read them: one run finds all there is. What becomes unused stays for `dce`.
    """

    # Most graphs of plain operators are as simple as they can be, and copying one takes as long as asking the rules.
    asking = Simplifier(Builder(graph.name, graph.level), graph.producers)
    if all(asking.apply(op) is None for op in graph.ops if op.name in RULES):
        return graph

    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        if op.name not in RULES:
            return None
        simplifier = Simplifier(b)
        value = simplifier.apply(Op(op.name, operands, op.attrs, op.results, op.regions, op.loc))
        return None if value is None else [simplifier.settle(value)]

    return rewrite(graph, rule)
