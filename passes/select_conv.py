"""Brings convolutions into the form of their kernels: channels last, weights packed into panels of output channels.

* A 1×1 convolution without stride or padding, or one whose window is the whole input, becomes a matrix product.
* A depthwise convolution keeps its weights; it is vectorized over channels, whose values it never mixes.
* A small window with stride 1 gets transformed weights, where that is expected to be faster (Winograd).
* Every other convolution gets packed weights [P, taps…, I, nr], or [G, P, taps…, I, nr] for groups.

Axes of 1 along which the convolution does nothing are dropped first, so that a kernel's rows of pixels are long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.dims import least_usual
from gluonjit.ir.graph import Builder, Op, Value
from gluonjit.ir.kernels.product_plans import Conv
from gluonjit.ir.machine import Machine
from gluonjit.passes import tiling
from gluonjit.passes.choices import Alternative, Choice, choice_of, tiles
from gluonjit.passes.regroup import Groups, regroup
from gluonjit.passes.select_depthwise import select_depthwise
from gluonjit.passes.select_matmul import emit_product, filled_up, pack
from gluonjit.passes.select_winograd import algorithms, select_winograd, why_directly
from gluonjit.passes.site import Convolution, Site, moved, padded_line, view, weights_guard

_PER_AXIS = ("stride", "low", "high", "dilation", "input_dilation", "blank_low", "blank_high")


def select_conv(site: Site) -> Value | None:
    """The kernel for a `conv`; None when it is left to loops."""
    b, anchor, attrs = site.b, site.anchor, site.anchor.attrs
    x, w = anchor.operands
    spatial = "".join(map(str, range(x.ndim - 2)))
    if attrs["layout"] != (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C") or not spatial:
        return None
    if any(d != 1 for d in attrs["input_dilation"]):
        return None
    if attrs["groups"] == 1 and (_is_pointwise(anchor) or _covers_input(anchor)):
        epilogue = regroup(site.body, anchor, [tuple(range(x.ndim - 1)), (x.ndim - 1,)])
        if epilogue is not None:
            n = w.shape[-1]
            left = view(b, site.operand(0), (math.prod(anchor.result.shape[:-1]), math.prod(w.shape[:-1])))
            return emit_product(site, epilogue, left, range(w.ndim), n)

    if not site.is_open_in_images():
        return None
    kept = _working_axes(anchor)
    epilogue = regroup(site.body, anchor, _merged(kept, x.ndim))
    if epilogue is None:
        return None
    letters = "".join(map(str, range(len(kept))))
    attrs = {
        **attrs,
        **{name: tuple(attrs[name][k] for k in kept) for name in _PER_AXIS if attrs[name] is not None},
        "layout": (f"N{letters}C", f"{letters}IO", f"N{letters}C"),
    }
    left = view(b, site.operand(0), (x.shape[0], *(x.shape[k + 1] for k in kept), x.shape[-1]))
    right = view(b, site.operand(1), (*(w.shape[k] for k in kept), *w.shape[-2:]))
    plain = Convolution(left, right, attrs, epilogue)
    if site.factors > 1:
        return _select_by_factors(site, plain)
    for select_kind in (select_depthwise, select_winograd, _select_direct):
        made = select_kind(site, plain)
        if made is not None:
            return made
    return None


def _select_by_factors(site: Site, plain: Convolution) -> Value | None:
    """The direct kernel, of channels that are multiplied several at a time. None if groups would share them."""
    b, left, right = site.b, plain.x, plain.w
    if plain.attrs["groups"] > 1 and right.shape[-2] % site.factors:
        return None
    left, right = filled_up(b, left, site.factors), filled_up(b, right, site.factors, axis=-2)
    return _select_direct(site, plain._replace(x=left, w=right))


def _select_direct(site: Site, plain: Convolution) -> Value:
    left, right, attrs, epilogue = plain
    groups, filters = attrs["groups"], right.shape[-1]
    factors = site.factors
    plan, packed = _pack(site.b, left, right, attrs, epilogue.shape, site.target, site.most, factors)
    line = tiling.Line(left.shape[-2], right.shape[-3], *(attrs[k][-1] for k in ("stride", "low", "dilation")))
    if tiling.ragged(plan.pixels, epilogue.shape[-2], line):
        left, attrs = padded_line(site.b, left, attrs)

    def result(body: Builder, x: Value, w: Value) -> Value:
        return body.emit("conv", [x, _unpack(body, w, groups, filters, factors)], attrs)[0]

    return site.emit(epilogue, [left, packed], result, KERNEL(plan), weights_guard(site.b, right, attrs))


def _is_pointwise(anchor: Op) -> bool:
    """Whether each pixel of the result depends on the same pixel of the input alone."""
    x, w = anchor.operands
    ones = set(w.shape[:-2]) | set(anchor.attrs["stride"]) == {1}
    return ones and not any(anchor.attrs["low"]) and anchor.result.shape[:-1] == x.shape[:-1]


def _covers_input(anchor: Op) -> bool:
    """Whether there is one window, which covers the whole input."""
    x, w = anchor.operands
    whole = w.shape[:-2] == x.shape[1:-1] and set(anchor.result.shape[1:-1]) == {1}
    return whole and set(anchor.attrs["dilation"]) == {1} and not any(anchor.attrs["low"])


def _working_axes(anchor: Op) -> list[int]:
    """The spatial axes along which the convolution does anything; at least one."""
    x, w = anchor.operands
    sizes = zip(x.shape[1:-1], w.shape, anchor.result.shape[1:-1], anchor.attrs["low"])
    kept = [k for k, (n, taps, out, low) in enumerate(sizes) if (n, taps, out, low) != (1, 1, 1, 0)]
    return kept or [x.ndim - 3]


def _merged(kept: Sequence[int], rank: int) -> Groups:
    """Groups of result axes, one for each kept spatial axis; dropped axes are merged with the axis before them."""
    groups: list[tuple[int, ...]] = [(0,)]
    for k in range(rank - 2):
        if k in kept:
            groups.append((k + 1,))
        else:
            groups[-1] = (*groups[-1], k + 1)
    return [*groups, (rank - 1,)]


_HALVED = 0.95
"""The share of the expected time from which on two pixels do not share a register."""
_LONG = 64
"""The terms of a row of taps from which on they do: for fewer, it takes too long to bring them together, and apart. A
Zen 3 computed 12 or 20 filters in 0.88 to 0.95 of the time with 80 to 250 terms, in 0.99 to 1.03 with 5 or 48."""


def _pack(
    b: Builder, x: Value, w: Value, attrs: Any, out: tuple[int, ...], target: Machine, most: int, factors: int
) -> tuple[Conv, Value]:
    """The kernel's plan, and the packed weights, with `factors` as in `select_matmul.pack`."""
    *taps, depth, filters = w.shape
    groups = attrs["groups"]
    per_group = filters // groups
    terms = math.prod(taps) * depth
    images, *rows, width = out[:-1]
    apart = tiling.pixels_apart(attrs["stride"][-1], x.shape[-1] * x.dtype.itemsize, target)
    halved = False
    if isinstance(width, int):
        if groups == factors == 1 and taps[-1] * depth >= _LONG and tiling.is_halved(filters, x.dtype, target):
            plain, shared = (
                min(tiling.register_tiles(width, filters, terms, apart, x.dtype, target, most, h)).cycles
                for h in (False, True)
            )
            halved = shared < _HALVED * plain
        pixels, columns = tiling.register_tile(width, per_group, terms, apart, x.dtype, target, most, halved)
    else:
        pixels, columns = tiling.open_line_tile(width, per_group, terms, apart, x.dtype, target, most)
    panels = -(-per_group // columns)
    # A task is a number of rows of pixels; if there is only one row, a number of its tiles.
    *usual_rows, usual_width = tiling.usual((*rows, width))
    units = math.prod(usual_rows) if rows else -(-usual_width // pixels)
    image: int = math.prod(tiling.usual(x.shape[1:]))
    unit_bytes = image // units * x.dtype.itemsize
    block = tiling.tasks_block(units, unit_bytes, least_usual(images) * groups * panels, target)
    axes = len(taps)
    if halved:
        packed = pack(b, w, range(w.ndim), (), terms, filters, columns, target.lanes(w.dtype) // 2)
        return Conv(pixels, columns, block, halved), view(b, packed, (panels, *taps, depth, columns))

    def write(body: Builder, v: Value) -> Value:
        lead = (*taps, depth)
        if groups > 1:
            lead = (*lead, groups)
            v = body.reshape(v, shape=(*lead, per_group))
        if per_group % columns:
            none = (0,) * len(lead)
            zero = body.constant(0, v.dtype)
            v = body.pad(v, zero, low=(*none, 0), high=(*none, panels * columns - per_group))
        if factors > 1:
            v = body.reshape(v, shape=(*taps, depth // factors, factors, *lead[axes + 1 :], panels, columns))
            first = (axes + 2, axes + 3) if groups > 1 else (axes + 2,)
            return body.transpose(v, perm=(*first, *range(axes + 1), v.ndim - 1, axes + 1))
        v = body.reshape(v, shape=(*lead, panels, columns))
        first = (axes + 1, axes + 2) if groups > 1 else (axes + 1,)
        return body.transpose(v, perm=(*first, *range(axes + 1), v.ndim - 1))

    return Conv(pixels, columns, block), moved(b, w, write, "pack")


def _unpack(body: Builder, w: Value, groups: int, filters: int, factors: int) -> Value:
    """The inverse of the packing: [taps…, I, O]."""
    lead = 2 if groups > 1 else 1
    if factors > 1:
        *rest, depth, columns, _ = w.shape
        order = range(w.ndim)
        w = body.transpose(w, perm=(*order[:-2], w.ndim - 1, w.ndim - 2))
        w = body.reshape(w, shape=(*rest, depth * factors, columns))
    middle = w.shape[lead:-1]
    panels, columns = w.shape[lead - 1], w.shape[-1]
    v = body.transpose(w, perm=(*range(lead, w.ndim - 1), *range(lead), w.ndim - 1))
    shape = (*middle, *([groups] if groups > 1 else []), panels * columns)
    v = body.reshape(v, shape=shape)
    if panels * columns != filters // groups:
        v = body.slice(v, start=(0,) * v.ndim, size=(*shape[:-1], filters // groups))
    return v if groups == 1 else body.reshape(v, shape=(*middle, filters))


@choice_of(Conv)
class _Choice(Choice):
    def alternatives(self, op: Op, target: Machine) -> Iterator[Alternative]:
        yield from algorithms(op, target)
        yield from tiles(op, Conv.of(op).halved, target)

    def why(self, op: Op, target: Machine) -> Iterator[str]:
        yield why_directly(op)
