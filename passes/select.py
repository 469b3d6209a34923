"""`select`: decides, for an explicit target, which kernel computes each op, and writes it down as `.kernel`.

Code generation decides nothing, so that a test of this pass never depends on the machine that runs it.
"""

from __future__ import annotations

from typing import Any

from gluonjit.ir.graph import Builder, Graph, Op, Value, rewrite
from gluonjit.passes.manager import register_pass

SEQUENTIAL = frozenset({"sort", "cumsum", "scatter_add"})


@register_pass("select")
def select(graph: Graph, *, target: Any) -> Graph:
    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if op.name == "reshape":
            kernel = "view"
        elif op.name in SEQUENTIAL:
            kernel = "sequential"
        elif op.name == "fused" and ".kernel" not in op.attrs:
            kernel = "loops"
        else:
            return None
        names = [r.name for r in op.results]
        return b.emit(op.name, operands, {**op.attrs, ".kernel": kernel}, op.regions, op.loc, names)

    return rewrite(graph, rule)
