"""Convolutions of one channel by a few filters, vectorised over pixels (`codegen/kernels/planar.py`).

With fewer filters than half of a vector's lanes, most lanes of a vector of filters would do nothing.
"""

from __future__ import annotations

from typing import Any

from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.dims import least_usual
from gluonjit.ir.graph import Builder, Value
from gluonjit.ir.kernels.product_plans import Planar
from gluonjit.ir.types import F32
from gluonjit.passes.regroup import Epilogue, regroup
from gluonjit.passes.site import Site, moved, weights_guard

_TAPS = 128
"""The most products that a plain sum adds up."""


def select_planar(site: Site) -> Value | None:
    """The kernel for a `conv` of one channel by a few filters; None for any other."""
    attrs = site.anchor.attrs
    x, w = site.anchor.operands
    if attrs["layout"] != ("N01C", "01IO", "N01C") or attrs["groups"] != 1 or x.shape[-1] != 1 or x.dtype is not F32:
        return None
    if attrs["stride"][1] != 1 or attrs["input_dilation"] != (1, 1) or w.size > _TAPS * w.shape[-1]:
        return None
    if min(*attrs["low"], *attrs["high"]) < 0 or not site.is_open_in_batch_alone():
        return None
    lanes = site.target.lanes(x.dtype)
    plan = planar_plan(tuple(map(least_usual, site.anchor.result.shape)), lanes)
    epilogue = regroup(site.body, site.anchor, [(0,), (1,), (2,), (3,)])
    if plan is None or epilogue is None or not _per_filter(epilogue):
        return None
    left = site.operand(0)
    if any(attrs["low"]) or any(attrs["high"]):
        # There is only one channel, so an explicitly padded input is small compared with the result.
        low, high = ((0, *attrs[key], 0) for key in ("low", "high"))
        left = moved(site.b, left, lambda body, v: body.pad(v, body.constant(0, v.dtype), low=low, high=high), "pad")
        attrs = {**attrs, "low": (0, 0), "high": (0, 0)}
        for key, written in (("blank_low", low[1:3]), ("blank_high", high[1:3])):
            attrs[key] = tuple(n + k for n, k in zip(written, attrs[key] or (0, 0), strict=True))
    right = site.operand(1)

    def result(body: Builder, x: Value, w: Value) -> Value:
        return body.emit("conv", [x, w], attrs)[0]

    return site.emit(epilogue, [left, right], result, KERNEL(plan), weights_guard(site.b, right, attrs))


def planar_plan(out: tuple[int, ...], lanes: int) -> Planar | None:
    """The plan for a result of shape `out`.

    None where there are too many filters, or too few pixels."""
    images, height, width, filters = out
    if 2 * filters > lanes:
        return None
    rest = width % lanes
    piece = max(2, 1 << (rest - 1).bit_length()) if rest else 0
    if piece and lanes // piece > height:
        piece = lanes
    rows = lanes // piece if piece else 1
    if piece > width:
        return None
    tiles = height // rows
    block = tiles
    while block > 1 and images * -(-tiles // block) < _TASKS:
        block = -(-block // 2)
    # Every block has `block` tiles except for the last, which has at least one.
    return Planar(rows, piece, block)


_TASKS = 16
"""The fewest tasks that threads can share evenly."""


def _per_filter(epilogue: Epilogue) -> bool:
    """Whether all operands of the epilogue vary along the filters alone."""
    sides: Any = epilogue.sides.values()
    return all(side.dims is not None and set(side.dims) <= {3} for side in sides)
