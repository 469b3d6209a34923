"""Brings gradients of convolution weights into the form of their kernels (`codegen/kernels/weight_gradient.py`,
`codegen/kernels/depthwise_gradient.py`; `select_winograd_gradient.py` tells whether transforms are faster)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
from gluonjit.passes.site import Site, view
from gluonjit.passes.tiling import FittingTile

_LONGEST = 2048
"""The most pixels of a block: bounds the rounding error of a sum of f32."""

_LINE = 64
"""Pixels of a row, about, where any number of them may be one: few enough that all tiles find them in a near cache, and
enough that beginning and ending a tile's sums takes little of the time."""
_SHORT = 16
"""Pixels of a row of an image, where a tile is chosen: rows are short where channels are many."""
_LOADS = tiling.Loads(0.8)
"""The share of a tile's loads that begin in time (`tiling.APART`). Here rows of a tile lie side by side, so it is more
than elsewhere, but tiles of one vector are far from the peak."""
_PARTS = 1.12
"""The factor by which panels are taken to cost more that share lines of the cotangent: mostly the last one is narrower
than the others, and has code of its own. Panels of whole lines suit more layers."""
_MANY = 2
"""From so many lines of channels on, what the last tile repeats does not count: layers with more should have the same
tiles, so that they share code."""
_OF_L1 = 4
"""A block takes this part of the first-level cache: sums of tiles, and the hardware's prefetches, pass through it."""
_OF_L1_COPIED = 2
"""The same of copies, which lie side by side."""


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
    if _is_product(anchor, site.target):
        line = _line_of(math.prod(x.shape[1:-1]))
        epilogue = regroup(site.body, anchor, [tuple(range(x.ndim - 2)), (x.ndim - 2,), (x.ndim - 1,)])
        left, right = (view(site.b, v, (v.size // v.shape[-1] // line, line, v.shape[-1])) for v in (left, right))
        attrs = {**attrs, **{key: attrs[key][:1] for key in _ALONG_AXES}, "layout": ("C0N", "I0O", "0NC")}
        notes = _directly((left.shape, right.shape, (1,)), 1, left.dtype, site, is_product=True)
    else:
        epilogue = regroup(site.body, anchor, [(k,) for k in range(x.ndim)])
        *outer, along = anchor.result.shape[:-2]
        # In padding there is nothing to read, and a zero would not do: its product with an infinity is none.
        by_taps = x.shape[-1] == 1 and along > 1 and attrs["low"][-1] <= 0 and attrs["high"][-1] <= 0
        shapes: Any = (x.shape, g.shape, (*outer, along))
        if by_taps:
            shapes = (*x.shape[:-1], along), g.shape, (*outer, 1)
        transformed = None if by_taps else by_winograd(site, left.dtype)
        notes = transformed or _directly(shapes, attrs["dilation"][-1], left.dtype, site, by_taps=by_taps)
    if epilogue is None:
        return None

    def result(body: Builder, x: Value, g: Value) -> Value:
        return body.emit("conv", [x, g], attrs)[0]

    return site.emit(epilogue, [left, right], result, notes)


_ALONG_AXES = ("stride", "low", "high", "dilation", "input_dilation")


def _is_product(anchor: Op, target: Machine) -> bool:
    """Whether any pixels may be a row of them: both operands are used pixel by pixel, and all sums stay near, so one
    group has all tiles."""
    (x, g), attrs = anchor.operands, anchor.attrs
    ones = {*anchor.result.shape[:-2], *attrs["dilation"]}
    if ones != {1} or {*attrs["low"], *attrs["high"]} != {0}:
        return False
    return is_static(x.shape[1:-1]) and x.shape[-1] * g.shape[-1] * x.dtype.itemsize < target.l2 // 2


def _line_of(pixels: int) -> int:
    """How many pixels of an image should be taken as a row of them."""
    most = min(pixels, _LINE**2)  # longer ones are further from it than a single pixel
    return min((k for k in range(1, most + 1) if pixels % k == 0), key=lambda k: max(k / _LINE, _LINE / k))


def _directly(
    shapes: tuple[Any, Any, Any], step: int, dtype: DType, site: Site, is_product: bool = False, by_taps: bool = False
) -> dict[str, Any]:
    """The annotations of the kernel that computes it by the definition. `shapes`: of the input, the cotangent, and the
    taps; `step`: of the window, along the last axis; `is_product`: see `_is_product`; `by_taps`: taps along the last
    axis stand for channels."""
    (x, g, taps), target, item = shapes, site.target, dtype.itemsize
    channels, filters, width = x[-1], g[-1], hint(g[-2])
    rows, columns = min(_tiles(channels, filters, width if is_product else None, dtype, target, site.most))[1:]
    tiles, panels, windows = -(-channels // rows), -(-filters // columns), math.prod(taps)
    most = max(1, target.l2 // 2 // (windows * rows * columns * item))  # tiles of a group
    # A group with as many channels of the input as of the cotangent reads each the fewest times.
    side = math.isqrt(target.l2 // 2 // (windows * item))
    wide = _even(panels, max(1, side // columns, most // tiles))
    high = _even(tiles, max(1, most // wide))
    plan = WeightGradient(rows, columns, 1, high, wide, by_taps=by_taps)
    if not by_taps:
        plan = with_copies(plan, *shapes, step, item, target)
    # Tiles side by side, and the taps along a row, read the same lines of x, and the same panel of g. Copies have what
    # lies between the pixels of a tap, too.
    of_x, of_g = min(channels * item, target.line), columns * item
    if plan.copies_x or plan.copies_g:
        lines = target.l1 // _OF_L1_COPIED // (of_x * step + of_g) // max(width, 1)
    elif is_product:
        lines = 1
    else:
        lines = min(_near(shapes, item, target), -(-(target.l1 // _OF_L1 // (of_x + of_g)) // max(width, 1)))
    plan = replace(plan, block=max(1, min(lines, _LONGEST // max(width, 1))))
    is_far = (math.prod(map(hint, x)) + math.prod(map(hint, g))) * item > target.l2
    plan = replace(plan, ahead=is_far and not plan.copies_x and (high, wide) == (tiles, panels))
    return KERNEL(plan) | SCRATCH(WeightGradientMemory.of(plan, *shapes, item, target).elements * item)


def _tiles(
    channels: int, filters: int, line: int | None, dtype: DType, target: Machine, most: int = tiling.MAX_ROWS
) -> Iterator[FittingTile]:
    """The register tiles that fit, with the time for a row of pixels. Tiles are all alike. `line`: the pixels of a row
    of a product; None for windows, of which all sizes of images should have the same tiles."""
    terms, loads = (line, tiling.APART) if line is not None else (_SHORT, _LOADS)
    for tile in tiling.register_tiles(channels, filters, terms, target.line, dtype, target, most):
        whole, vectors = -(-channels // tile.rows) * tile.rows, tile.columns // target.lanes(dtype)
        if line is None and channels * dtype.itemsize >= _MANY * target.line:
            whole = channels
        cycles = tiling.product_cycles(whole, filters, terms, tile.rows, vectors, dtype, target, loads=loads)
        if line is None and filters > tile.columns and tile.columns * dtype.itemsize % target.line:
            cycles *= _PARTS
        yield tile._replace(cycles=cycles)


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
    near = _near((x.shape, g.shape), x.dtype.itemsize, target)
    if not (ahead := hint(x.type.nbytes) + hint(g.type.nbytes) > target.l2):
        return DepthwiseGradient(rows, columns, near)
    return DepthwiseGradient(rows, columns, max(1, near // 2), ahead)  # the next block comes to lie beside this one


def _near(shapes: Sequence[Any], item: int, target: Machine) -> int:
    """How many rows of pixels of a cotangent, with what they read of the input, half of the second-level cache holds;
    at least one. `shapes`: of the input, and of the cotangent."""
    x, g = ([*map(hint, shape)] for shape in shapes[:2])
    line = g[-2] * g[-1]
    lines = math.prod(g) // max(line, 1)
    line_bytes = item * (line + -(-math.prod(x) // max(lines, 1)))
    return max(1, min(lines, target.l2 // 2 // max(line_bytes, 1)))


@choice_of(WeightGradient)
class _Choice(Choice):
    def alternatives(self, op: Op, target: Machine) -> Iterator[Alternative]:
        product, plan = product_of(op), KERNEL.of(op)
        assert product is not None and isinstance(plan, WeightGradient)
        x, g = product.operands
        pixels, taps = math.prod(g.shape[:-1]), math.prod(product.result.shape[:-2])
        line = g.shape[-2] if x.ndim == 3 and _is_product(product, target) else None
        channels = product.result.shape[-3] if plan.by_taps else x.shape[-1]
        choices = _tiles(channels, g.shape[-1], line, x.dtype, target)
        times = taps / (channels if plan.by_taps else 1) * pixels / (line or _SHORT)
        yield from the_fastest(choices, plan.tile[:2], times, target)
        yield from algorithms(op, target)

    def why(self, op: Op, target: Machine) -> Iterator[str]:
        plan = KERNEL.of(op)
        assert isinstance(plan, WeightGradient)
        yield f"a sum over all pixels for each weight, {why_directly(op)}"
        copied = [name for name, is_copied in (("input", plan.copies_x), ("cotangent", plan.copies_g)) if is_copied]
        if copied:
            yield f"copies pixels of the {' and the '.join(copied)}, which lie far apart"
