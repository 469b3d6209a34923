"""Lists the kernels of a graph after `select`: what each computes, its expected time, and why it was chosen.

All of this is read from the graph's annotations and the estimates that `select` used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from gluonjit.common.quantities import noun_text
from gluonjit.ir.annotations import KERNEL, STRIDES, THREADS
from gluonjit.ir.buffers import is_view, runs_kernel
from gluonjit.ir.cost import transfer_and_computing
from gluonjit.ir.graph import Graph, Op
from gluonjit.ir.kernels.product_plans import WeightGradient, WinogradGradient
from gluonjit.ir.machine import Machine
from gluonjit.ir.sizes import assumed, with_hints
from gluonjit.ir.work import origin
from gluonjit.passes.choices import Alternative, choice, not_the_fastest, product_of


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
    plan, chosen = KERNEL.of(op), choice(hinted)
    others = [*chosen.alternatives(hinted, target)]
    why = "; ".join([*_why(hinted, target), *not_the_fastest(hinted, others)])
    tile = "×".join(map(str, plan.tile)) if plan is not None else ""
    time = chosen.nanoseconds(hinted, target) / 1e3
    return Row(plan.kernel if plan is not None else op.name, _what(op), tile, time, why, str(origin(op) or ""), others)


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
    lines.append(
        f"{noun_text(len(rows), 'kernel')}, {total:.0f} µs expected on one core{assumed(graph)}, "
        f"{f'work for up to {threads}' if threads > 1 else 'work for 1'} thread{'s' if threads > 1 else ''}; "
        f"{views} views, {prepared} parts prepared when a parameter changes"
    )
    return "\n".join(lines) + "\n"


def _what(op: Op) -> str:
    shapes = f" -> {op.results[0].type}"
    if not op.regions:
        return op.name + shapes
    if op.definition.level == "control":
        kernels = dict.fromkeys(plan.kernel for o in _inside(op) if (plan := KERNEL.of(o)) and plan.computes)
        return (f"of {', '.join(kernels)}" if kernels else op.name) + shapes
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
    if isinstance(KERNEL.of(op), (WeightGradient, WinogradGradient)):
        return _of_weights(product)
    taps = "×".join(map(str, w.shape[:-2]))
    stride = max(product.attrs["stride"])
    extra = f" /{stride}" if stride > 1 else ""
    groups = product.attrs["groups"]
    extra += f", {groups} groups" if groups > 1 else ""
    return (
        f"{taps}{extra}, {x.shape[-1]} -> {product.result.shape[-1]} @{'×'.join(map(str, product.result.shape[1:-1]))}"
    )


def _of_weights(product: Op) -> str:
    """The convolution whose weights' gradient it is: its filters are the result, its dilation was their stride."""
    x, g = product.operands
    *taps, channels, filters = product.result.shape
    stride = max(product.attrs["dilation"])
    if taps == [1]:  # its pixels are in rows of another length than the image's
        return f"gradient of a product, {channels} -> {filters}, sums of {g.size // filters}"
    return (
        f"gradient of {'×'.join(map(str, taps))}{f' /{stride}' if stride > 1 else ''}, {channels} -> {filters} "
        f"@{'×'.join(map(str, g.shape[1:-1]))}"
    )


def _inside(op: Op) -> Iterator[Op]:
    """The ops of a loop, a branch or a call."""
    for region in op.regions:
        yield from region.ops


def _why(op: Op, target: Machine) -> Iterator[str]:
    yield from choice(op).why(op, target)
    if op.name == "fused":
        transfer, computing = transfer_and_computing(op, target)
        yield "bound by memory" if transfer > computing else "bound by computing"
    plan = KERNEL.of(op)
    if plan is not None:
        yield from plan.remarks()
    if any(s is not None for s in STRIDES.of(op)[len(op.operands) :]):
        yield "written into a concat"
    if THREADS.of(op) == 1:
        yield "too small to share"
