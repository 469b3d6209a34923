"""Convolutions whose groups are narrower than a vector keep their weights, and are vectorized over channels
(`codegen/kernels/depthwise.py`)."""

from __future__ import annotations

import math
from dataclasses import replace

from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.dims import hint
from gluonjit.ir.graph import Builder, Value
from gluonjit.ir.kernels.product_plans import Depthwise
from gluonjit.passes import tiling
from gluonjit.passes.site import Convolution, Site, padded_line, weights_guard


def select_depthwise(site: Site, plain: Convolution) -> Value | None:
    """The kernel for a convolution of narrow groups; None for any other."""
    left, right, attrs, epilogue = plain
    groups, depth, filters = attrs["groups"], right.shape[-2], right.shape[-1]
    if groups == 1 or left.ndim > 4 or not tiling.is_narrow(depth, filters // groups, left.dtype, site.target):
        return None
    plan = _plan(site, plain)
    line = tiling.Line(left.shape[-2], right.shape[-3], *(attrs[k][-1] for k in ("stride", "low", "dilation")))
    is_padded = attrs["low"][-1] > 0 or attrs["high"][-1] > 0
    if tiling.ragged(plan.pixels, epilogue.shape[-2], line) or (plan.rows == 0 and is_padded):
        left, attrs = padded_line(site.b, left, attrs)

    def result(body: Builder, x: Value, w: Value) -> Value:
        return body.emit("conv", [x, w], attrs)[0]

    return site.emit(epilogue, [left, right], result, KERNEL(plan), weights_guard(site.b, right, attrs))


def _plan(site: Site, plain: Convolution) -> Depthwise:
    x, w, attrs, epilogue = plain
    out = epilogue.shape
    # One spatial axis: treat it as an image of one row.
    rows, in_rows, taps, stride = (1, 1, 1, 1) if x.ndim == 3 else (out[1], x.shape[1], w.shape[0], attrs["stride"][0])
    plan = tiling.depthwise_tile(
        (rows, out[-2], int(out[-1])),
        (in_rows, x.shape[-2]),
        (taps, w.shape[-3]),
        stride,
        w.shape[-2],
        x.dtype,
        site.target,
    )
    moved = (math.prod(map(hint, x.shape)) + math.prod(map(hint, out))) * x.dtype.itemsize
    return replace(plan, ahead=x.ndim == 4 and plan.rows > 0 and moved > site.target.l2)
