"""Lists the kernels of a graph after `select`: what each computes, its expected time, and why it was chosen.

All of this is read from the graph's annotations and the estimates that `select` used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from gluonjit.ir.buffers import is_view, runs_kernel
from gluonjit.ir.dims import HINT, names_of
from gluonjit.ir.graph import Graph, Op
from gluonjit.ir.machine import Machine
from gluonjit.ir.sizes import with_hints
from gluonjit.ir.winograd_tile import WinogradTile
from gluonjit.ir.work import origin
from gluonjit.passes.alternatives import PER_MICROSECOND, Alternative, alternatives, product_of
from gluonjit.passes.cost import nanoseconds, transfer_and_computing
from gluonjit.passes.select_winograd import problem_of
from gluonjit.passes.tiling_winograd import direct_cycles, winograd_cycles


class Row(NamedTuple):
    """One kernel's call. `microseconds` are those expected on one core, if every open size is HINT; `alternatives` are
    what it was chosen among."""

    kernel: str
    what: str
    tile: str
    microseconds: float
    why: str
    loc: str
    alternatives: list[Alternative]


def explain(graph: Graph, target: Machine) -> list[Row]:
    """A row per kernel, in order."""
    pairs = zip(graph.ops, with_hints(graph).ops, strict=True)
    return [row(op, hinted, target) for op, hinted in pairs if runs_kernel(op)]


def row(op: Op, hinted: Op, target: Machine) -> Row:
    """The row of an op that runs a kernel; `hinted` is the one with sizes in place of open extents."""
    tile = "×".join(map(str, op.attrs.get(".tile", ())))
    time = nanoseconds(hinted, target) / 1e3
    if op.attrs.get(".kernel") == "winograd":
        time = _cycles(hinted, target)[1] / PER_MICROSECOND
    others = alternatives(hinted, target)
    why = "; ".join([*_why(hinted, target), *_not_the_fastest(op, others)])
    place = str(origin(op) or "")
    return Row(op.attrs.get(".kernel", op.name), _what(op), tile, time, why, place, others)


def table(graph: Graph, target: Machine) -> str:
    """`explain` as text, followed by a line that counts views and prepared parts."""
    rows = explain(graph, target)
    heads = ("kernel", "what", "tile", "µs")
    cells = [heads, *((r.kernel, r.what, r.tile, f"{r.microseconds:.1f}") for r in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(heads))]
    lines = []
    for row, why in zip(cells, ["why", *(r.why + (f"  [{r.loc}]" if r.loc else "") for r in rows)]):
        shown = [c.rjust(w) if k == 3 else c.ljust(w) for k, (c, w) in enumerate(zip(row, widths))]
        lines.append("  ".join([*shown, why]).rstrip())
    views = sum(is_view(op) for op in graph.ops)
    prepared = sum(op.name == "prepare" for op in graph.ops)
    total = sum(r.microseconds for r in rows)
    threads = int(graph.attrs.get("threads", 1))
    names = sorted({name for v in graph.inputs for name in names_of(v.shape)})
    assumed = f" (for {' = '.join(names)} = {HINT})" if names else ""
    lines.append(
        f"{len(rows)} kernels, {total:.0f} µs expected on one core{assumed}, "
        f"{'up to' if threads > 1 else 'on'} {threads} thread{'s' if threads > 1 else ''}; "
        f"{views} views, {prepared} parts prepared when a parameter changes"
    )
    return "\n".join(lines) + "\n"


def _what(op: Op) -> str:
    shapes = f" -> {op.results[0].type}"
    if not op.regions:
        return op.name + shapes
    product = product_of(op)
    if product is None:
        names = dict.fromkeys(o.name for o in op.regions[0].ops if o.name not in ("broadcast", "constant"))
        return (" ".join([*names][:4]) + (" …" if len(names) > 4 else "") or "copy") + shapes
    x, w = product.operands
    if product.name == "dot_general":
        (con, _), (batch, _) = product.attrs["contract"], product.attrs["batch"]
        terms = math.prod(x.shape[k] for k in con)
        lots = math.prod(x.shape[k] for k in batch)
        columns = product.result.shape[-1]
        rows = math.prod(product.result.shape[len(batch) : -1])
        return (f"{lots} × " if lots > 1 else "") + f"{rows}×{columns}, sums of {terms}"
    taps = "×".join(map(str, w.shape[:-2]))
    stride = max(product.attrs["stride"])
    extra = f" /{stride}" if stride > 1 else ""
    groups = product.attrs["groups"]
    extra += f", {groups} groups" if groups > 1 else ""
    return (
        f"{taps}{extra}, {x.shape[-1]} -> {product.result.shape[-1]} @{'×'.join(map(str, product.result.shape[1:-1]))}"
    )


def _why(op: Op, target: Machine) -> Iterator[str]:
    kernel = op.attrs.get(".kernel")
    if kernel in ("winograd", "conv"):
        yield _transformed_or_not(op, target)
    elif kernel == "planar":
        yield "filters fill less than half of a vector, so lanes are pixels"
    elif kernel == "depthwise":
        yield "no sums over many channels, so lanes are channels"
    elif kernel == "expand_depthwise":
        yield "a panel of the product stays near until it is convolved"
    elif kernel == "sequential":
        yield "one element after the other"
    if op.name == "fused":
        transfer, computing = transfer_and_computing(op, target)
        yield "bound by memory" if transfer > computing else "bound by computing"
    if op.attrs.get(".streaming"):
        yield "written past the caches"
    if any(s is not None for s in op.attrs.get(".strides", ())[len(op.operands) :]):
        yield "written into a concat"
    if op.attrs.get(".threads") == 1:
        yield "too small to share"


def _not_the_fastest(op: Op, others: list[Alternative]) -> Iterator[str]:
    tiles = [a for a in others if a.kind == "tile"]
    if tiles and not tiles[0].chosen:
        yield "a small tile, as its epilogue reads what is not cached" if len(op.operands) > 2 else "a measured tile"


def _transformed_or_not(op: Op, target: Machine) -> str:
    conv = product_of(op)
    assert conv is not None
    x, w = conv.operands
    problem = problem_of(x, w, conv.attrs, conv.result.shape)
    if problem is None:
        return "directly, as there is no transform for strides, dilation, groups and such types"
    if op.attrs[".kernel"] == "conv":
        return "directly, as a transform saves too little"
    tile = _tile(op)
    direct, transformed = _cycles(op, target)
    return f"F({tile.height}×{tile.width}), expected to be {direct / transformed:.1f} times as fast as directly"


def _cycles(op: Op, target: Machine) -> tuple[float, float]:
    """Expected cycles of a Winograd convolution: if it were computed directly, and as it is computed."""
    conv = product_of(op)
    assert conv is not None
    x, w = conv.operands
    problem = problem_of(x, w, conv.attrs, conv.result.shape)
    assert problem is not None
    return direct_cycles(problem, target), winograd_cycles(problem, _tile(op), target)


def _tile(op: Op) -> WinogradTile:
    """Of a Winograd convolution; estimates know no steps that are shared for some tiles at a time."""
    tile = WinogradTile(*op.attrs[".tile"])
    return tile._replace(block=max(tile.block, 0))
