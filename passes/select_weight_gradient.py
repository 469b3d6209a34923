"""Brings gradients of convolution weights into the form of their kernels (`codegen/kernels/weight_gradient.py`,
`codegen/kernels/depthwise_gradient.py`; `select_winograd_gradient.py` tells whether transforms are faster)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gluonjit.ir.annotations import KERNEL, SCRATCH
from gluonjit.ir.dims import hint, is_static
from gluonjit.ir.graph import Builder, Op, Value
from gluonjit.ir.kernels.product_plans import DepthwiseGradient, WeightGradient
from gluonjit.ir.kernels.weight_gradient_memory import WeightGradientMemory, with_copies
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import DType
from gluonjit.passes import tiling
from gluonjit.passes.choices import Alternative, Choice, choice_of, product_of, the_fastest
from gluonjit.passes.regroup import regroup
from gluonjit.passes.select_winograd_gradient import algorithms, by_winograd, why_directly
from gluonjit.passes.site import Site

_LONGEST = 2048
"""The most pixels of a block: bounds the rounding error of a sum of f32."""


_OF_L1 = 4
"""A block takes this part of the first-level cache: sums of tiles, and the hardware's prefetches, pass through it."""


def select_weight_gradient(site: Site) -> Value | None:
    """The kernel for a `conv` that the pass `layout` has recognized as such a gradient; None for any other."""
    anchor, attrs = site.anchor, site.anchor.attrs
    x, g = anchor.operands
    spatial = "".join(map(str, range(x.ndim - 2)))
    if attrs["layout"] != (f"C{spatial}N", f"I{spatial}O", f"{spatial}NC") or not spatial:
        return None
    if attrs["groups"] != 1 or set(attrs["input_dilation"]) != {1} or attrs["blank_low"] or attrs["blank_high"]:
        return None
    if not is_static((x.shape[-1], g.shape[-1], *anchor.result.shape)):
        return None
    left, right = site.operand(0), site.operand(1)
    if site.body.outputs[0] is not anchor.result or left.dtype is not anchor.result.dtype:
        return None
    epilogue = regroup(site.body, anchor, [(k,) for k in range(x.ndim)])
    if epilogue is None:
        return None
    notes = by_winograd(site, left.dtype) or _directly(site, left.dtype)

    def result(body: Builder, x: Value, g: Value) -> Value:
        return body.emit("conv", [x, g], attrs)[0]

    return site.emit(epilogue, [left, right], result, notes)


def _directly(site: Site, dtype: DType) -> dict[str, Any]:
    """The annotations of the kernel that computes it by the definition."""
    (x, g), result, target, item = site.anchor.operands, site.anchor.result, site.target, dtype.itemsize
    shapes, step = (x.shape, g.shape, result.shape[:-2]), site.anchor.attrs["dilation"][-1]
    channels, filters = x.shape[-1], g.shape[-1]
    pixels = hint(g.size) // filters
    rows, columns = tiling.register_tile(channels, filters, pixels, item, dtype, target, site.most)
    lines = min(_near(x, g, target), max(_LONGEST // max(hint(g.shape[-2]), 1), 1))
    tiles, panels = -(-channels // rows), -(-filters // columns)
    taps = math.prod(result.shape[:-2])
    most = max(1, target.l2 // 2 // (taps * rows * columns * item))  # tiles of a group
    # A group with as many channels of the input as of the cotangent reads each the fewest times.
    side = math.isqrt(target.l2 // 2 // (taps * item))
    wide = _even(panels, max(1, side // columns, most // tiles))
    high = _even(tiles, max(1, most // wide))
    plan = with_copies(WeightGradient(rows, columns, lines, high, wide), *shapes, step, item, target)
    if not (plan.copies_x or plan.copies_g):
        # Tiles side by side, and the taps along a row, read the same lines of x, and the same panel of g.
        pixel = min(channels * item, target.line) + columns * item
        plan = replace(plan, block=min(lines, -(-(target.l1 // _OF_L1 // pixel) // max(hint(g.shape[-2]), 1))))
    memory = WeightGradientMemory.of(plan, *shapes, item, target)
    if copied := hint(memory.x + memory.g) * item:
        blocks = -(-pixels // (hint(g.shape[-2]) * lines))
        plan = replace(plan, near=max(1, min(blocks, target.l2 // 4 // copied)))
        memory = WeightGradientMemory.of(plan, *shapes, item, target)
    return KERNEL(plan) | SCRATCH(memory.elements * item)


def _even(count: int, most: int) -> int:
    """The size of the largest of equal groups, of at most this size, of so many tiles."""
    groups = -(-count // most)
    return -(-count // groups)


def depthwise_gradient(op: Op, target: Machine) -> DepthwiseGradient:
    """The plan of an op of that name."""
    *outer, last = op.attrs["taps"]
    # A register for each tap, and some for what they multiply.
    most = target.num_vector_registers * 3 // 4
    columns = min(last, most)
    rows = max(1, min(math.prod(outer), most // columns))
    x, g = op.operands
    return DepthwiseGradient(rows, columns, _near(x, g, target))


def _near(x: Value, g: Value, target: Machine) -> int:
    """How many rows of pixels of g, with what they read of x, half of the second-level cache holds; at least one."""
    width = hint(g.shape[-2])
    lines = hint(g.size) // max(width * hint(g.shape[-1]), 1)
    line_bytes = g.dtype.itemsize * (width * hint(g.shape[-1]) + -(-hint(x.size) // max(lines, 1)))
    return max(1, min(lines, target.l2 // 2 // max(line_bytes, 1)))


@choice_of(WeightGradient)
class _Choice(Choice):
    def alternatives(self, op: Op, target: Machine) -> Iterator[Alternative]:
        product, plan = product_of(op), KERNEL.of(op)
        assert product is not None and plan is not None
        x, g = product.operands
        pixels, taps = math.prod(g.shape[:-1]), math.prod(product.result.shape[:-2])
        choices = tiling.register_tiles(x.shape[-1], g.shape[-1], pixels, x.dtype.itemsize, x.dtype, target)
        yield from the_fastest(choices, plan.tile[:2], taps, target)
        yield from algorithms(op, target)

    def why(self, op: Op, target: Machine) -> Iterator[str]:
        plan = KERNEL.of(op)
        assert isinstance(plan, WeightGradient)
        yield f"a sum over all pixels for each weight, {why_directly(op)}"
        copied = [name for name, is_copied in (("input", plan.copies_x), ("cotangent", plan.copies_g)) if is_copied]
        if copied:
            yield f"copies pixels of the {' and the '.join(copied)}, which lie far apart"
