"""Brings gradients of convolution weights into the form of their kernel (`codegen/kernels/weight_gradient.py`)."""

from __future__ import annotations

import math

from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.dims import hint, is_static
from gluonjit.ir.graph import Builder, Value
from gluonjit.ir.kernels.product_plans import WeightGradient
from gluonjit.passes import tiling
from gluonjit.passes.regroup import regroup
from gluonjit.passes.site import Site

_LONGEST = 2048
"""The most pixels of a block: bounds the rounding error of a sum of f32."""


def select_weight_gradient(site: Site) -> Value | None:
    """The kernel for a `conv` that the pass `layout` has recognized as such a gradient; None for any other."""
    anchor, attrs, target = site.anchor, site.anchor.attrs, site.target
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
    item = left.dtype.itemsize
    channels, filters = x.shape[-1], g.shape[-1]
    pixels = hint(g.size) // filters
    rows, columns = tiling.register_tile(channels, filters, pixels, item, left.dtype, target, site.most)
    width = hint(g.shape[-2])
    # A row of pixels of g, and what it reads of x.
    line_bytes = item * (width * filters + -(-hint(x.size) // max(pixels // width, 1)))
    lines = max(1, min(pixels // width, target.l2 // 2 // max(line_bytes, 1), _LONGEST // max(width, 1)))
    tiles, panels = -(-channels // rows), -(-filters // columns)
    taps = math.prod(anchor.result.shape[:-2])
    most = max(1, target.l2 // 2 // (taps * rows * columns * item))  # tiles of a group
    # A group with as many channels of the input as of the cotangent reads each the fewest times.
    side = math.isqrt(target.l2 // 2 // (taps * item))
    wide = _even(panels, max(1, side // columns, most // tiles))
    high = _even(tiles, max(1, most // wide))
    plan = WeightGradient(rows, columns, lines, high, wide)

    def result(body: Builder, x: Value, g: Value) -> Value:
        return body.emit("conv", [x, g], attrs)[0]

    return site.emit(epilogue, [left, right], result, KERNEL(plan))


def _even(count: int, most: int) -> int:
    """The size of the largest of equal groups, of at most this size, of so many tiles."""
    groups = -(-count // most)
    return -(-count // groups)
