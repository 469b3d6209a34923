"""`name-values`: names the values that passes have made after the layers that they come from.

Passes keep the names of what they replace. Those of new values, such as the results of fused groups, are the path of
the layer without the net's own name: `features.stage1.0.conv2`, and `features.stage1.0.conv2.view` where nothing is
computed. What is prepared of one parameter is called after it:
`conv0_weight.prepared`. A name is only a hint for readers of dumps; the printer tells equal ones apart.
"""

from __future__ import annotations

import re

from gluonjit.ir.buffers import is_view
from gluonjit.ir.graph import Graph, Op, Rewriter, Value
from gluonjit.ir.work import origin
from gluonjit.passes.manager import register_pass

_NO_PART_OF_A_NAME = re.compile(r"[^\w.$-]+", re.ASCII)


@register_pass("name-values")
def name_values(graph: Graph) -> Graph:
    """Names nameless values after the layers that they come from."""
    wanted = {r: name for op in graph.ops for r in op.results if not r.name and (name := _name(op))}
    return _Named(graph, wanted).run() if wanted else graph


def _name(op: Op) -> str:
    if op.name == "prepare" and len(op.operands) == 1 and op.operands[0].name:
        return f"{op.operands[0].name}.prepared"
    loc = origin(op)
    if loc is None or not loc.block:
        return ""
    path = loc.block.partition("/")[2] or loc.block
    name = _NO_PART_OF_A_NAME.sub("_", path.replace("/", "."))
    if is_view(op):
        name += ".view"
    return name if not name[0].isdigit() else f"_{name}"


class _Named(Rewriter):
    def __init__(self, graph: Graph, wanted: dict[Value, str]) -> None:
        super().__init__(graph)
        self.wanted = wanted

    def visit(self, op: Op) -> tuple[Value, ...]:
        operands = tuple([self.env[v] for v in op.operands])
        results = tuple([Value(self.wanted.get(r, r.name), r.type, r.offset) for r in op.results])
        self.b._append(Op(op.name, operands, op.attrs, results, op.regions, op.loc))
        return results
