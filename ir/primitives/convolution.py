"""`conv`: correlation in any number of spatial axes, with padding, strides, dilations and groups.

Dilation, input dilation, negative padding and free layouts are general enough that the gradients of a convolution are
convolutions as well. Result position r along a spatial axis sums, over taps k,

    x[(r * stride + k * dilation - low) / input_dilation] * w[k]

where the quotient is whole and inside the input. What is outside is no term of the sum, whatever the weight. Float16
and bfloat16 are summed in float32 and rounded once. The result may have a wider `dtype` than the operands, which are
converted to it before they are multiplied.

Two attributes say where that differs from the input's border; they matter only where a weight is infinite or NaN. Of an
axis, the first `blank_low` and the last `blank_high` positions hold padding that is written out as zeros, and are no
terms. Negative: that many positions outside are terms, as zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gluonjit.ir.opdef import REQUIRED, primitive
from gluonjit.ir.primitives.checks import NUMERIC, check_kind, check_same_dtype, ints, window_extent
from gluonjit.ir.primitives.convolution_eval import evaluate
from gluonjit.ir.primitives.convolution_gradients import cotangents
from gluonjit.ir.primitives.convolution_layout import Layout, Window
from gluonjit.ir.primitives.movement import both
from gluonjit.ir.primitives.reduction import sums_of
from gluonjit.ir.types import DType, IRError, TensorType, dtype_of

if TYPE_CHECKING:
    from gluonjit.ir.graph import Emitter


Index = Any


def _infer(
    x: TensorType,
    w: TensorType,
    stride: Any,
    low: Any,
    high: Any,
    dilation: Any,
    input_dilation: Any,
    groups: Any,
    layout: Any,
    blank_low: Any,
    blank_high: Any,
    dtype: DType | None,
) -> TensorType:
    check_same_dtype(x, w)
    check_kind(x, NUMERIC)
    axes = Layout.parse(layout)
    rank = len(axes.input)
    if x.rank != rank or w.rank != rank:
        raise IRError(f"layout {layout} needs operands of {rank} axes, got {x} and {w}")
    spatial = rank - 2
    stride, dilation = ints("stride", stride, spatial, low=1), ints("dilation", dilation, spatial, low=1)
    low, high = ints("low", low, spatial), ints("high", high, spatial)
    inner = ints("input_dilation", input_dilation, spatial, low=1)
    for name, blank in (("blank_low", blank_low), ("blank_high", blank_high)):
        if blank is not None and any(ints(name, blank, spatial)) and set(inner) != {1}:
            raise IRError(f"{name} needs an input that is not dilated, got input_dilation={input_dilation}")
    if not isinstance(groups, int) or groups < 1:
        raise IRError(f"groups must be an int >= 1, got {groups!r}")
    batch, channels, *size = (x.shape[k] for k in axes.input)
    filters, depth, *taps = (w.shape[k] for k in axes.weight)
    if channels != depth * groups:
        raise IRError(f"input {x} has {channels} channels, weight {w} takes {groups} group(s) of {depth}")
    if filters % groups:
        raise IRError(f"{filters} filters of weight {w} do not divide into {groups} groups")
    if 0 in taps:
        raise IRError(f"weight {w} has a spatial axis of 0")
    extents = [
        window_extent(
            f"axis {axes.input[k + 2]} of {x}", size[k], taps[k], stride[k], low[k], high[k], dilation[k], inner[k]
        )
        for k in range(spatial)
    ]
    shape = [0] * rank
    for axis, n in zip(axes.result, (batch, filters, *extents)):
        shape[axis] = n
    return TensorType(sums_of(x.dtype, dtype)[1], tuple(shape))


def _element(
    s: Any,
    i: Index,
    x: Any,
    w: Any,
    stride: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    dilation: Sequence[int],
    input_dilation: Sequence[int],
    groups: int,
    layout: tuple[str, str, str],
    blank_low: Sequence[int] | None,
    blank_high: Sequence[int] | None,
    dtype: DType | None,
) -> Any:
    axes = Layout.parse(layout)
    own = x.type.dtype
    wide, dtype = sums_of(own, dtype)
    sizes = [x.type.shape[k] for k in axes.input[2:]]
    filters, depth, *taps = (w.type.shape[k] for k in axes.weight)
    n, o, *position = (i[axis] for axis in axes.result)
    blanks = list(zip(blank_low or (0,) * len(sizes), blank_high or (0,) * len(sizes), strict=True))

    def term(k: Index) -> Any:
        channel, *tap = k
        x_at: list[Any] = [None] * len(i)
        w_at: list[Any] = [None] * len(i)
        for axis, index in zip(axes.weight, (o, channel, *tap)):
            w_at[axis] = index
        x_at[axes.input[0]] = n
        x_at[axes.input[1]] = channel if groups == 1 else o // (filters // groups) * depth + channel
        inside = there = None  # whether it is a term; whether there is such an element
        for d, size in enumerate(sizes):
            place = position[d] * stride[d] if stride[d] > 1 else position[d]
            if taps[d] > 1:
                place = place + (tap[d] * dilation[d] if dilation[d] > 1 else tap[d])
            if low[d]:
                place = place + -low[d]
            extent = (size - 1) * input_dilation[d] + 1 if size else 0
            first, last = blanks[d]
            if low[d] > 0 or high[d] > 0 or first > 0 or last > 0:
                inside = both(s, inside, s.in_range(place, first, extent - last))
            if first < 0 or last < 0:
                there = both(s, there, s.in_range(place, 0, extent))
            if input_dilation[d] > 1:
                inside = both(s, inside, s.in_range(place % input_dilation[d], 0, 1))
                place = place // input_dilation[d]
            x_at[axes.input[d + 2]] = place

        def product() -> Any:
            a = x(tuple(x_at)) if there is None else s.guarded(there, lambda: x(tuple(x_at)), s.constant(0, own))
            b = w(tuple(w_at))
            return s.mul(a, b) if wide is own else s.mul(s.cast(a, wide), s.cast(b, wide))

        return product() if inside is None else s.guarded(inside, product, s.constant(0, wide))

    total = s.reduce("sum", (depth, *taps), term, wide)
    return total if wide is dtype else s.cast(total, dtype)


def _eval(x: Any, w: Any, layout: Sequence[str], blank_low: Any, blank_high: Any, **attrs: Any) -> Any:
    axes = Layout.parse(tuple(layout))
    none = (0,) * (x.ndim - 2)
    if not any(blank_low or none) and not any(blank_high or none):
        return _evaluated(x, w, axes, **attrs)
    for axis, first, last in zip(axes.input[2:], blank_low or none, blank_high or none, strict=True):
        x = x[(slice(None),) * axis + (slice(max(first, 0), x.shape[axis] - max(last, 0)),)]
        width = [(0, 0)] * x.ndim
        width[axis] = max(-first, 0), max(-last, 0)
        x = np.pad(x, width)
    for key, blank in (("low", blank_low or none), ("high", blank_high or none)):
        attrs[key] = tuple(n + k for n, k in zip(attrs[key], blank, strict=True))
    return _evaluated(x, w, axes, **attrs)


def _evaluated(x: Any, w: Any, axes: Layout, groups: int, dtype: DType | None, **window: Any) -> Any:
    return evaluate(x, w, axes, Window(**window), groups, dtype)


def _vjp(
    b: Emitter,
    g: Any,
    y: Any,
    x: Any,
    w: Any,
    *,
    groups: int,
    layout: Any,
    blank_low: Any,
    blank_high: Any,
    dtype: DType | None,
    **window: Any,
) -> tuple[Any, Any]:
    if dtype is None:
        return cotangents(b, g, x, w, Window(**window), groups, layout)
    wide_x, wide_w = (b.cast(v, dtype=dtype) for v in (x, w))
    of_x, of_w = cotangents(b, g, wide_x, wide_w, Window(**window), groups, layout)
    return b.cast(of_x, dtype=dtype_of(x)), b.cast(of_w, dtype=dtype_of(x))


primitive(
    "conv",
    infer=_infer,
    eval=_eval,
    element=_element,
    attrs={
        "stride": REQUIRED,
        "low": REQUIRED,
        "high": REQUIRED,
        "dilation": REQUIRED,
        "input_dilation": REQUIRED,
        "groups": 1,
        "layout": ("NC01", "OI01", "NC01"),
        "blank_low": None,
        "blank_high": None,
        "dtype": None,
    },
    accumulates="contraction",
    vjp=_vjp,
    doc="correlation; low and high pad each spatial axis (negative: crop); letters of layout: N C, O I, digits",
)
