"""Diagrams as SVG: boxes with two lines of text, and arrows between them, in layers from top to bottom.

igraph places the boxes (`pip install "gluonjit[draw]"`): the layered layout of Sugiyama, Tagawa and Toda (1981).
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any, NamedTuple

_WIDTH, _HEIGHT = 168, 40
"""The size of a box, in pixels."""
_ACROSS, _DOWN = 184, 72
"""From the left, or upper, edge of a box to that of its neighbour, in pixels."""
_LABEL = 24
"""The most characters on a line of a box."""


class Box(NamedTuple):
    first: str
    """Its upper line, which is bold."""
    second: str
    fill: str
    """Its colour, as in CSS."""
    about: str
    """What a browser shows when the mouse is over it."""


class Arrow(NamedTuple):
    start: int
    """The box it begins at: an index."""
    end: int
    about: str


def diagram(boxes: Sequence[Box], arrows: Sequence[Arrow], title: str) -> str:
    """The SVG text. ImportError without igraph."""
    places, bends = _layout(len(boxes), [(a.start, a.end) for a in arrows])
    parts = [_arrow([places[a.start], *bend, places[a.end]], a.about) for a, bend in zip(arrows, bends)]
    parts += [_box(place, box) for place, box in zip(places, boxes)]
    points = [*places, *(p for bend in bends for p in bend)] or [(0.0, 0.0)]
    left, top = min(x for x, _ in points) - _WIDTH, min(y for _, y in points) - _HEIGHT
    width, height = max(x for x, _ in points) - left + _WIDTH, max(y for _, y in points) - top + _HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} {top:.0f} {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="sans-serif" font-size="11" role="img" '
        f'aria-label="{html.escape(title)}">'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#868e96"/></marker></defs>'
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
        f"{''.join(parts)}</svg>"
    )


Point = tuple[float, float]


def _layout(count: int, edges: Sequence[tuple[int, int]]) -> tuple[list[Point], list[list[Point]]]:
    """The centre of each box, and the points at which each edge bends."""
    import igraph

    if not count:
        return [], []
    found: Any = igraph.Graph(count, list(edges), directed=True).layout_sugiyama(hgap=_ACROSS, vgap=_DOWN)
    bends = [[(float(x), float(y)) for x, y in points] for points in found.edge_routing]
    return [(float(x), float(y)) for x, y in found.coords], bends


def _box(place: Point, box: Box) -> str:
    x, y = place[0] - _WIDTH / 2, place[1] - _HEIGHT / 2
    at = f'<text x="{place[0]:.0f}" text-anchor="middle" fill="#212529"'
    lines = (
        f'{at} y="{y + 16:.0f}" font-weight="bold">{html.escape(_cut(box.first))}</text>'
        f'{at} y="{y + 31:.0f}">{html.escape(_cut(box.second))}</text>'
    )
    return (
        f"<g><title>{html.escape(box.about)}</title>"
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="{box.fill}" stroke="#adb5bd"/>'
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


def _cut(text: str) -> str:
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"
