"""Pictures of graphs: SVG, and HTML for notebooks.

A box is an op, an arrow a value. What depends on parameters and constants alone is left out: it would cover the rest.
igraph places the boxes (`pip install "gluonjit[draw]"`): the layered layout of Sugiyama, Tagawa and Toda (1981).
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gluonjit.ir.printer import Names, print_graph, print_op
from gluonjit.ir.types import IRError

if TYPE_CHECKING:
    from gluonjit.ir.graph import Graph, Op, Value

MAX_BOXES = 2000
"""Graphs with more boxes are not drawn."""
LINES = 400
"""So many lines of a graph's text go into a notebook."""
_WIDTH, _HEIGHT, _ACROSS, _DOWN = 168, 40, 184, 72
"""Of a box, and from one box to the next, in pixels."""
_LABEL = 24
"""The most characters on a line of a box."""
_FILLS = {"input": "#e8e8e8", "matrix": "#ffd8a8", "moves": "#d0ebff", "reduction": "#d8f5a2", "": "#f3f0ff"}


def svg(graph: Graph) -> str:
    """The graph as an SVG picture. IRError if igraph is missing, or for more than `MAX_BOXES` ops."""
    inputs, ops = _drawn(graph)
    if len(ops) + len(inputs) > MAX_BOXES:
        raise IRError(f"@{graph.name} has {len(ops)} ops; pictures show {MAX_BOXES} at most")
    makers: dict[Value, int] = {v: k for k, v in enumerate(inputs)}
    for k, op in enumerate(ops, len(inputs)):
        makers.update((r, k) for r in op.results)
    edges = [
        (makers[v], k, v) for k, op in enumerate(ops, len(inputs)) for v in dict.fromkeys(op.operands) if v in makers
    ]
    places, bends = _layout(len(ops) + len(inputs), [(a, b) for a, b, _ in edges])
    names = Names(graph)
    for op in graph.ops:
        for r in op.results:
            names.define(r)
    parts = [
        _arrow([places[a], *bend, places[b]], f"{names.use(v)}: {v.type}") for (a, b, v), bend in zip(edges, bends)
    ]
    parts += [
        _box(places[k], names.use(v), str(v.type), _FILLS["input"], f"input {names.use(v)}: {v.type}")
        for k, v in enumerate(inputs)
    ]
    for k, op in enumerate(ops, len(inputs)):
        parts.append(_box(places[k], _label(op), str(op.results[0].type), _fill(op), _about(op, names)))
    points = [*places, *(p for bend in bends for p in bend)] or [(0.0, 0.0)]
    left, top = min(x for x, _ in points) - _WIDTH, min(y for _, y in points) - _HEIGHT
    width, height = max(x for x, _ in points) - left + _WIDTH, max(y for _, y in points) - top + _HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} {top:.0f} {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="sans-serif" font-size="11" role="img" '
        f'aria-label="{html.escape(f"graph {graph.name}")}">'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#868e96"/></marker></defs>'
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
        f"{''.join(parts)}</svg>"
    )


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


Point = tuple[float, float]


def _layout(count: int, edges: Sequence[tuple[int, int]]) -> tuple[list[Point], list[list[Point]]]:
    """The centre of each box, and the points at which each edge bends."""
    try:
        import igraph
    except ImportError:
        raise IRError('pictures of graphs need igraph: pip install "gluonjit[draw]"') from None
    if not count:
        return [], []
    found: Any = igraph.Graph(count, list(edges), directed=True).layout_sugiyama(hgap=_ACROSS, vgap=_DOWN)
    bends = [[(float(x), float(y)) for x, y in points] for points in found.edge_routing]
    return [(float(x), float(y)) for x, y in found.coords], bends


def _box(place: Point, first: str, second: str, fill: str, about: str) -> str:
    x, y = place[0] - _WIDTH / 2, place[1] - _HEIGHT / 2
    at = f'<text x="{place[0]:.0f}" text-anchor="middle" fill="#212529"'
    lines = (
        f'{at} y="{y + 16:.0f}" font-weight="bold">{html.escape(_cut(first))}</text>'
        f'{at} y="{y + 31:.0f}">{html.escape(_cut(second))}</text>'
    )
    return (
        f"<g><title>{html.escape(about)}</title>"
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="{fill}" stroke="#adb5bd"/>'
        f"{lines}</g>"
    )


def _arrow(points: Sequence[Point], about: str) -> str:
    """From the lower edge of the first box to the upper edge of the last one, through the points between them."""
    start, *bends, end = points
    path = [(start[0], start[1] + _HEIGHT / 2), *bends, (end[0], end[1] - _HEIGHT / 2)]
    drawn = f"M{path[0][0]:.0f} {path[0][1]:.0f}"
    for (x0, y0), (x1, y1) in zip(path, path[1:]):
        middle = (y0 + y1) / 2
        drawn += f"C{x0:.0f} {middle:.0f} {x1:.0f} {middle:.0f} {x1:.0f} {y1:.0f}"
    title = f"<title>{html.escape(about)}</title>"
    return f'<path d="{drawn}" fill="none" stroke="#868e96" marker-end="url(#arrow)">{title}</path>'


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


def _cut(text: str) -> str:
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"
