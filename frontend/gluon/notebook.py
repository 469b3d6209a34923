"""What notebooks show of blocks and parameters: HTML tables."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gluonjit.base import dtype_name

if TYPE_CHECKING:
    from gluonjit.gluon.base_block import Block
    from gluonjit.gluon.parameter import Parameter

ROWS = 500
"""The most rows of a table that are shown."""


def of_block(block: Block) -> str:
    """The tree of layers, with the number of elements of each one's own parameters; shared ones count once."""
    counted: set[int] = set()
    rows = []
    for depth, name, layer in _tree(block, "", 0):
        own = [p for p in layer._reg_params.values() if id(p) not in counted]
        counted.update(map(id, own))
        sizes = [_size(p) for p in own]
        count = "not known yet" if None in sizes else f"{sum(n for n in sizes if n):,}" if sizes else ""
        types = ", ".join(dict.fromkeys(_dtype(p) for p in own))
        label = f"{'&emsp;' * depth}{html.escape(name)}"
        lines = repr(layer).splitlines()  # that of a container has a line for each layer in it, which are rows here
        described = lines[0] if len(lines) == 1 and lines[0] != f"{type(layer).__name__}()" else ""
        rows.append([label, type(layer).__name__, html.escape(described), types, count])
    sizes = [_size(p) for p in block.collect_params().values()]
    in_all = "some shapes are not known yet" if None in sizes else f"{sum(n for n in sizes if n):,}"
    state = "compiled" if getattr(block, "_active", False) else "not hybridized"
    title = f"<b>{html.escape(type(block).__name__)} {html.escape(block.name)}</b>, {state}, parameters: {in_all}"
    return _table(title, ["layer", "class", "", "type", "elements"], rows)


def of_parameters(parameters: Iterable[Parameter]) -> str:
    """A row for each parameter."""
    rows = [
        [html.escape(p.name), str(p.shape), _dtype(p), p.grad_req, "" if p._first is None else str(p.list_ctx()[0])]
        for p in parameters
    ]
    return _table(f"{len(rows)} parameter{'s' * (len(rows) != 1)}", ["name", "shape", "type", "gradient", "on"], rows)


def _tree(block: Block, name: str, depth: int) -> Iterator[tuple[int, str, Block]]:
    yield depth, name or block.name, block
    for key, child in block._children.items():
        yield from _tree(child, key, depth + 1)


def _size(p: Parameter) -> int | None:
    """How many elements; None if the shape is not known yet."""
    total = 1
    for n in p.shape if p.shape is not None else (0,):
        total *= n
    return total if total > 0 or p._first is not None else None


def _dtype(p: Parameter) -> str:
    return dtype_name(p.dtype)


def _table(title: str, heads: list[str], rows: list[list[str]]) -> str:
    """The table as HTML, of a `title` and `rows` that are HTML."""
    shown = rows[:ROWS]
    more = f"<p>… {len(rows) - ROWS} rows more</p>" if len(rows) > ROWS else ""
    head = "".join(f"<th>{text}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f'<td style="text-align:left">{x}</td>' for x in row) + "</tr>" for row in shown)
    return f"<div><p>{title}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</div>"
