"""`fuse-depthwise`: a matrix product whose result only a depthwise convolution reads becomes one kernel with it.

A depthwise convolution does a few multiply-adds for each element that it reads, so it waits for memory: for what the
product before it has just written, perhaps on another core. Neither mixes the channels of what lies between, so both
can be computed panel by panel of channels, and a panel is small enough to stay near
(`codegen/kernels/expand_depthwise.py`).
"""

from __future__ import annotations

from typing import Any

from gluonjit.ir.annotations import GUARD, KERNEL, SCRATCH
from gluonjit.ir.buffers import is_view
from gluonjit.ir.dims import hint, is_static
from gluonjit.ir.graph import Builder, Graph, Op, Value, copy_ops, rewrite
from gluonjit.ir.kernels.expand_parts import rows_read
from gluonjit.ir.kernels.product_plans import Depthwise, ExpandDepthwise, Matmul
from gluonjit.ir.machine import Machine
from gluonjit.passes import tiling
from gluonjit.passes.dce import dce
from gluonjit.passes.manager import register_pass

_TASKS = 10
"""Tasks that are wanted, for threads to share."""
_TWICE = 0.08
"""The largest share of rows that may be computed twice, so that tasks stay in near caches and there are more of
them."""
_CONSTANTS = 2
"""Registers that hold the constants of the product's epilogue, such as the bounds of a ReLU6."""


@register_pass("fuse-depthwise", needs="fused")
def fuse_depthwise(graph: Graph, *, target: Machine) -> Graph:
    """Merges matrix products (1×1 convolutions) with the depthwise convolutions that alone read them."""
    merged: dict[Op, tuple[Op, dict[str, Any]]] = {}
    for op in graph.ops:
        product = _product_before(graph, op)
        notes = _notes(product, op, target) if product is not None else None
        if product is not None and notes is not None:
            merged[op] = product, notes
    if not merged:
        return graph
    operands_of: dict[Op, tuple[Value, ...]] = {product: () for product, _ in merged.values()}

    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if op in operands_of:
            operands_of[op] = operands
        if op not in merged:
            return None
        product, notes = merged[op]
        body = _body(product.regions[0], op.regions[0])
        names = [r.name for r in op.results]
        return b.emit("fused", [*operands_of[product], *operands[1:]], notes, [body], op.loc, names)

    return dce(rewrite(graph, rule))


def _product_before(graph: Graph, op: Op) -> Op | None:
    """The product that makes the input of a depthwise convolution, if that is its only reader."""
    plan = KERNEL.of(op)
    if not isinstance(plan, Depthwise) or op.operands[0].ndim != 4 or op.operands[0] in op.operands[1:]:
        return None
    if plan.rows == 0 or op.operands[0].shape[-1] != op.results[0].shape[-1]:
        return None
    v = op.operands[0]
    while v not in graph.results and len(graph.uses[v]) == 1:
        maker = graph.producers.get(v)
        if maker is not None and is_view(maker) and maker.name == "reshape":
            (v,) = maker.operands
            continue
        if maker is None or not isinstance(KERNEL.of(maker), Matmul) or v.ndim != 2:
            return None
        body = maker.regions[0]
        read = {x for o in body.ops for x in o.operands}
        fits = v.shape[-1] == op.operands[0].shape[-1] and read.issuperset(body.inputs)
        return maker if fits else None
    return None


def _notes(product: Op, op: Op, target: Machine) -> dict[str, Any] | None:
    """The annotations of the merged kernel; None where it would compute too many rows twice."""
    conv = next(o for o in op.regions[0].ops if o.name == "conv")
    images, *size, channels = conv.operands[0].shape
    if not is_static((*size, conv.result.shape[1])):
        return None  # scratch memory holds bands of rows of known length
    width = size[1]
    out, item = conv.result.shape[1], conv.result.dtype.itemsize
    dot = next(o for o in reversed(product.regions[0].ops) if o.name == "dot_general")
    terms = dot.operands[0].shape[-1]
    multiplied, convolved = Matmul.of(product), Depthwise.of(op)
    columns = multiplied.columns

    def nbytes(bands: int) -> int:
        """The bytes that a task touches."""
        band = -(-out // bands)
        read, written = rows_read(band, conv) * width, band * conv.result.shape[2]
        return int(read * (terms + columns) + written * columns) * item

    bands = 1
    while nbytes(bands) > target.l2 and _twice(bands, conv) <= _TWICE:
        bands *= 2
    if _twice(bands, conv) > _TWICE:
        return None
    panels = -(-channels // columns)
    while hint(images) * bands * panels < _TASKS and _twice(2 * bands, conv) <= _TWICE:
        bands *= 2
    band = -(-out // bands)
    computed = rows_read(band, conv) * width
    rows = _rows(computed, width, terms, columns // target.lanes(conv.result.dtype), target)
    height, pixels = convolved.rows, convolved.pixels
    plan = ExpandDepthwise(rows, columns, band, height, pixels, multiplied.packed, multiplied.halved)
    notes = KERNEL(plan) | SCRATCH(computed * columns * item)
    if (guard := GUARD.of(op)) is not None:  # what the convolution reads comes after what the product does
        notes |= GUARD(len(product.operands) + guard - 1)
    return notes


def _twice(bands: int, conv: Op) -> float:
    """The share of rows that `bands` bands compute twice."""
    if bands > conv.result.shape[1]:
        return 1.0
    shared = rows_read(1, conv) - conv.attrs["stride"][0]
    return max(0, shared) * (bands - 1) / float(conv.operands[0].shape[1])


def _rows(pixels: int, most: int, terms: int, vectors: int, target: Machine) -> int:
    """Rows, at most `most`, of the register tile that computes sums of `terms` for `pixels` in the least time."""
    free = target.num_vector_registers - _CONSTANTS
    rows = [r for r in range(1, min(most, tiling.MAX_ROWS) + 1) if tiling.registers(r, vectors, target) <= free]
    return min(rows or [1], key=lambda r: -(-pixels // r) * tiling.tile_cycles(r, vectors, terms, target))


def _body(product: Graph, convolution: Graph) -> Graph:
    b = Builder("body", "fused")
    env = {v: b.input(v.name, v.type) for v in product.inputs}
    between, *others = convolution.inputs
    copy_ops(b, product.ops, env)
    inner = {between: b.reshape(env[product.outputs[0]], shape=between.shape)}
    inner.update((v, b.input(v.name, v.type)) for v in others)
    copy_ops(b, convolution.ops, inner)
    return b.build([inner[convolution.outputs[0]]])
