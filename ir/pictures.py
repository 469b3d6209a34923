"""Pictures of graphs: SVG, and HTML for notebooks.

A box is an op, an arrow a value. What depends on parameters and constants alone is left out: it would cover the rest.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from gluonjit.common.diagrams import Arrow, Box, diagram
from gluonjit.ir.printer import Names, print_graph, print_op
from gluonjit.ir.types import IRError

if TYPE_CHECKING:
    from gluonjit.ir.graph import Graph, Op, Value

MAX_BOXES = 2000
"""Graphs with more boxes are not drawn."""
LINES = 400
"""Lines of a graph's text that are shown in a notebook; it says how many more there are."""
_FILLS = {"input": "#e8e8e8", "matrix": "#ffd8a8", "moves": "#d0ebff", "reduction": "#d8f5a2", "": "#f3f0ff"}


def svg(graph: Graph) -> str:
    """The graph as an SVG picture. IRError if igraph is missing, or for more than `MAX_BOXES` ops."""
    inputs, ops = _drawn(graph)
    if len(ops) + len(inputs) > MAX_BOXES:
        raise IRError(f"@{graph.name} has {len(ops)} ops; pictures show {MAX_BOXES} at most")
    names = Names(graph)
    for op in graph.ops:
        for r in op.results:
            names.define(r)
    makers: dict[Value, int] = {v: k for k, v in enumerate(inputs)}
    boxes = [Box(names.use(v), str(v.type), _FILLS["input"], f"input {names.use(v)}: {v.type}") for v in inputs]
    arrows = []
    for k, op in enumerate(ops, len(inputs)):
        boxes.append(Box(_label(op), str(op.results[0].type), _fill(op), _about(op, names)))
        makers.update((r, k) for r in op.results)
        used = (v for v in dict.fromkeys(op.operands) if v in makers)
        arrows += [Arrow(makers[v], k, f"{names.use(v)}: {v.type}") for v in used]
    try:
        return diagram(boxes, arrows, f"graph {graph.name}")
    except ImportError:
        raise IRError('pictures of graphs need igraph: pip install "gluonjit[draw]"') from None


def _drawn(graph: Graph) -> tuple[list[Value], list[Op]]:
    """The inputs and ops that a picture shows."""
    params = {graph.inputs[k] for k in graph.attrs.get("params", ()) if k < len(graph.inputs)}
    inputs = [v for v in graph.inputs if v not in params and v in graph.uses]
    changing = set(inputs)
    ops = []
    for op in graph.ops:
        if changing.intersection(op.operands) or not op.definition.pure:
            changing.update(op.results)
            ops.append(op)
    return (inputs, ops) if ops else (list(graph.inputs), list(graph.ops))


def as_html(graph: Graph) -> str:
    """For notebooks: a line about the graph, its picture if there can be one, and its text."""
    name, inputs = graph.name, graph.heading.removeprefix(graph.name)
    count = f"{len(graph.ops)} op{'s' * (len(graph.ops) != 1)}"
    lines = print_graph(graph, elide=16).splitlines()
    text = "\n".join(lines[:LINES]) + (f"\n… {len(lines) - LINES} lines more" if len(lines) > LINES else "")
    try:
        drawn = f'<div style="max-height:32em;overflow:auto">{svg(graph)}</div>'
    except IRError as e:
        drawn = f"<p><i>{html.escape(str(e))}</i></p>"
    return (
        f"<div><b>graph {html.escape(name)}</b>{html.escape(inputs)}, level {graph.level}, {count}"
        f"{drawn}<details><summary>text</summary>{_coloured(text)}</details></div>"
    )


def _coloured(text: str) -> str:
    try:
        from gluonjit.ir.highlight import as_html as coloured
    except ImportError:  # Pygments is optional
        return f"<pre>{html.escape(text)}</pre>"
    return coloured(text, "gluonjit")


def _label(op: Op) -> str:
    """What the box says: the operator, or what a kernel computes."""
    if op.name != "fused":
        return op.name.removeprefix("mx.")
    inside = dict.fromkeys(o.name for o in op.regions[0].ops if o.operands and not o.definition.moves)
    return " + ".join(inside or dict.fromkeys(o.name for o in op.regions[0].ops if o.operands))


def _about(op: Op, names: Names) -> str:
    where = "" if op.loc is None else f"\n{op.loc.block}\n{op.loc.file}:{op.loc.line}"
    return print_op(op, names) + where


def _fill(op: Op) -> str:
    inside = [op, *(o for region in op.regions for o in region.ops)]
    if any(o.name in _MATRIX for o in inside):
        return _FILLS["matrix"]
    if any(o.definition.accumulates or "ool" in o.name or "softmax" in o.name for o in inside):
        return _FILLS["reduction"]
    return _FILLS["moves"] if all(o.definition.moves or not o.operands for o in inside[-1:]) else _FILLS[""]


_MATRIX = {"conv", "dot_general", "mx.Convolution", "mx.Deconvolution", "mx.FullyConnected", "mx.dot", "mx.batch_dot"}
