"""`conv`: correlation in any number of spatial axes, with padding, strides, dilations and groups.

Dilation, input dilation, negative padding and free layouts are general enough that the gradients of a convolution are
convolutions as well. Result position r along a spatial axis sums, over taps k,

    x[(r * stride + k * dilation - low) / input_dilation] * w[k]

where the quotient is whole and inside the input. What is outside is no term of the sum, whatever the weight. Float16
and bfloat16 are summed in float32 and rounded once.

Two attributes say where that differs from the input's border; they matter only where a weight is infinite or NaN. Of an
axis, the first `blank_low` and the last `blank_high` positions hold padding that is written out as zeros, and are no
terms. Negative: that many positions outside are terms, as zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gluonjit.ir.opdef import REQUIRED, primitive
from gluonjit.ir.primitives.checks import NUMERIC, check_kind, check_same_dtype, ints, window_extent
from gluonjit.ir.primitives.convolution_eval import evaluate
from gluonjit.ir.primitives.depthwise_filters import fits
from gluonjit.ir.primitives.movement import both
from gluonjit.ir.primitives.reduction import accumulator
from gluonjit.ir.types import IRError, TensorType, dtype_of

if TYPE_CHECKING:
    from gluonjit.ir.graph import Emitter


Index = Any


class Layout(NamedTuple):
    """The axes of input, weight and result by meaning, parsed from letters such as ('NC01', 'OI01', 'NC01')."""

    input: tuple[int, ...]  # axes of N, C, then spatial 0, 1, …
    weight: tuple[int, ...]  # axes of O, I, then spatial
    result: tuple[int, ...]  # axes of N, C, then spatial

    @staticmethod
    @lru_cache(maxsize=256)
    def parse(letters: tuple[str, str, str]) -> Layout:
        if not isinstance(letters, tuple) or not all(isinstance(text, str) for text in letters) or len(letters) != 3:
            raise IRError(f"layout must be three strings (input, weight, result), got {letters!r}")
        spatial = "".join(map(str, range(max(len(letters[0]) - 2, 0))))
        axes = []
        for text, first in zip(letters, ("NC", "OI", "NC")):
            wanted = first + spatial
            if sorted(text) != sorted(wanted):
                raise IRError(f"layout {text!r} must be a permutation of {wanted!r}")
            axes.append(tuple(text.index(letter) for letter in wanted))
        return Layout(*axes)


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
    return x.with_shape(tuple(shape))


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
) -> Any:
    axes = Layout.parse(layout)
    dtype = x.type.dtype
    wide = accumulator(dtype)
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
            a = x(tuple(x_at)) if there is None else s.guarded(there, lambda: x(tuple(x_at)), s.constant(0, dtype))
            b = w(tuple(w_at))
            return s.mul(a, b) if wide is dtype else s.mul(s.cast(a, wide), s.cast(b, wide))

        return product() if inside is None else s.guarded(inside, product, s.constant(0, wide))

    total = s.reduce("sum", (depth, *taps), term, wide)
    return total if wide is dtype else s.cast(total, dtype)


def _eval(x: Any, w: Any, layout: Sequence[str], blank_low: Any, blank_high: Any, **attrs: Any) -> Any:
    axes = Layout.parse(tuple(layout))
    none = (0,) * (x.ndim - 2)
    if not any(blank_low or none) and not any(blank_high or none):
        return evaluate(x, w, axes, **attrs)
    for axis, first, last in zip(axes.input[2:], blank_low or none, blank_high or none, strict=True):
        x = x[(slice(None),) * axis + (slice(max(first, 0), x.shape[axis] - max(last, 0)),)]
        width = [(0, 0)] * x.ndim
        width[axis] = max(-first, 0), max(-last, 0)
        x = np.pad(x, width)
    for key, blank in (("low", blank_low or none), ("high", blank_high or none)):
        attrs[key] = tuple(n + k for n, k in zip(attrs[key], blank, strict=True))
    return evaluate(x, w, axes, **attrs)


# gradients ------------------------------------------------------------------------------------------------------------


def _dilated(n: int, by: int) -> int:
    return (n - 1) * by + 1 if n else 0


def _swapped(letters: str, first: str, second: str) -> str:
    return letters.translate(str.maketrans(first + second, second + first))


def _vjp(
    b: Emitter,
    g: Any,
    y: Any,
    x: Any,
    w: Any,
    stride: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    dilation: Sequence[int],
    input_dilation: Sequence[int],
    groups: int,
    layout: tuple[str, str, str],
    blank_low: Any,
    blank_high: Any,
) -> tuple[Any, Any]:
    """Both cotangents are correlations again; with q = r * stride + k * dilation - low, an input position dilated,

    dx[q / input_dilation] = sum of g[r] w[k] over r, k: g dilated by `stride`, with the taps in reverse order;
    dw[k]                  = sum of g[r] x[q / input_dilation] over r: `stride` and `dilation` change places.

    Zeros that are written out as padding (`blank_low`, `blank_high`) get a cotangent, too; what pads drops it.
    """
    axes = Layout.parse(layout)
    spatial = range(len(axes.input) - 2)
    size = [x.shape[axes.input[k + 2]] for k in spatial]
    taps = [w.shape[axes.weight[k + 2]] for k in spatial]
    count = [g.shape[axes.result[k + 2]] for k in spatial]
    if 0 in g.shape or 0 in x.shape:  # empty sums
        return tuple(b.broadcast(b.constant(0, dtype_of(g)), shape=v.shape) for v in (x, w))  # type: ignore[return-value]

    reach = [(n - 1) * by for n, by in zip(taps, dilation, strict=True)]
    low_x = [r - a for r, a in zip(reach, low, strict=True)]
    high_x = [
        _dilated(n, inner) + r - a - _dilated(m, s)
        for n, inner, r, a, m, s in zip(size, input_dilation, reach, low_x, count, stride, strict=True)
    ]
    flipped = b.reverse(w, axes=tuple(axis for axis, n in zip(axes.weight[2:], taps, strict=True) if n > 1))
    letters = _swapped(layout[1], "O", "I")
    if groups > 1:
        flipped, letters = _per_group(b, flipped, axes.weight, groups), "OI" + "".join(map(str, spatial))
    dx = b.conv(
        g,
        flipped,
        stride=tuple(input_dilation),
        low=tuple(low_x),
        high=tuple(high_x),
        dilation=tuple(dilation),
        input_dilation=tuple(stride),
        groups=groups,
        layout=(layout[2], letters, layout[0]),
    )

    high_w = [
        r + (m - 1) * s + 1 - a - _dilated(n, inner)
        for r, m, s, a, n, inner in zip(reach, count, stride, low, size, input_dilation, strict=True)
    ]
    window: dict[str, Any] = {
        "stride": tuple(dilation),
        "low": tuple(low),
        "high": tuple(high_w),
        "dilation": tuple(stride),
        "input_dilation": tuple(input_dilation),
    }
    if groups == 1:
        # The batch is summed over: it takes the place of channels; channels that of the batch.
        letters_w = (
            _swapped(layout[0], "N", "C"),
            layout[2].translate(str.maketrans("NC", "IO")),
            layout[1].translate(str.maketrans("IO", "NC")),
        )
        return dx, b.conv(x, g, **window, layout=letters_w)
    if w.shape[axes.weight[1]] == 1 and set(input_dilation) == {1}:
        if groups == w.shape[axes.weight[0]] and fits(dtype_of(g), taps, stride, low, dilation):
            return dx, _depthwise_filters(b, x, g, w, axes, stride=stride, low=low, dilation=dilation)
        return dx, _depthwise_weight(b, x, g, w, axes, stride, low, dilation)
    return dx, _grouped_weight(b, x, g, w, axes, groups, window)


def _per_group(b: Emitter, w: Any, axes: Sequence[int], groups: int) -> Any:
    """The weight (O, I, taps…) with inputs and filters swapped within each group: (groups * I, O / groups, taps…)."""
    filters, depth, *taps = (w.shape[k] for k in axes)
    apart = b.reshape(b.transpose(w, perm=tuple(axes)), shape=(groups, filters // groups, depth, *taps))
    swapped = b.transpose(apart, perm=(0, 2, 1, *range(3, 3 + len(taps))))
    return b.reshape(swapped, shape=(groups * depth, filters // groups, *taps))


def _depthwise_filters(b: Emitter, x: Any, g: Any, w: Any, axes: Layout, **window: Any) -> Any:
    """The weight's cotangent where each channel has one filter."""

    def last(v: Any, order: Sequence[int]) -> Any:
        n, c, *rest = order
        return b.transpose(v, perm=(n, *rest, c))

    taps = tuple(w.shape[k] for k in axes.weight[2:])
    window = {name: tuple(value) for name, value in window.items()}
    dw = b.depthwise_gradient(last(x, axes.input), last(g, axes.result), taps=taps, **window)
    dw = b.reshape(dw, shape=(*taps, 1, w.shape[axes.weight[0]]))
    # As taps…, I, O.
    order = [*axes.weight[2:], axes.weight[1], axes.weight[0]]
    return b.transpose(dw, perm=tuple(sorted(range(len(order)), key=lambda k: order[k])))


def _depthwise_weight(
    b: Emitter,
    x: Any,
    g: Any,
    w: Any,
    axes: Layout,
    stride: Sequence[int],
    low: Sequence[int],
    dilation: Sequence[int],
) -> Any:
    """The weight's cotangent where each filter reads a single channel that others may read, too: for each tap, the sum
    per channel of g times the elements of x that the tap reads."""
    rank = len(axes.input)
    taps = [w.shape[k] for k in axes.weight[2:]]
    size = [x.shape[k] for k in axes.input[2:]]
    count = [g.shape[k] for k in axes.result[2:]]
    channels, filters = x.shape[axes.input[1]], g.shape[axes.result[1]]
    # As N, C, spatial….
    x, g = b.transpose(x, perm=axes.input), b.transpose(g, perm=axes.result)
    each = filters // channels
    sums = []
    for tap in itertools.product(*map(range, taps)):
        # Result r reads x[r * stride + tap * dilation - low], where that is inside.
        shift = [t * d - a for t, d, a in zip(tap, dilation, low, strict=True)]
        first = [max(0, -(m // s)) for m, s in zip(shift, stride, strict=True)]
        last = [min(n, (k - 1 - m) // s + 1) for n, k, m, s in zip(count, size, shift, stride, strict=True)]
        if any(a >= z for a, z in zip(first, last)):
            sums.append(b.broadcast(b.constant(0, dtype_of(g)), shape=(filters,)))
            continue
        length = tuple(z - a for a, z in zip(first, last))
        there = tuple(a * s + m for a, s, m in zip(first, stride, shift))
        step = (1, 1, *stride)
        part = b.slice(x, start=(0, 0, *there), size=(*x.shape[:2], *length), step=step if set(step) != {1} else None)
        cotangent = b.slice(g, start=(0, 0, *first), size=(*g.shape[:2], *length))
        if each > 1:
            cotangent = b.reshape(cotangent, shape=(g.shape[0], channels, each, *length))
            part = b.reshape(part, shape=(x.shape[0], channels, 1, *length))
            part = b.broadcast(part, shape=cotangent.shape)
        product = part * cotangent
        kept = 3 if each > 1 else 2
        total = b.reduce(product, op="sum", axes=(0, *range(kept, len(product.shape))))
        sums.append(b.reshape(total, shape=(filters,)))
    rows = b.concat(*(b.reshape(v, shape=(1, filters)) for v in sums), axis=0)
    dw = b.reshape(b.transpose(rows, perm=(1, 0)), shape=(filters, 1, *taps))
    inverse = sorted(range(rank), key=lambda k: axes.weight[k])
    return b.transpose(dw, perm=tuple(inverse))


def _grouped_weight(b: Emitter, x: Any, g: Any, w: Any, axes: Layout, groups: int, window: dict[str, Any]) -> Any:
    """The weight's cotangent by one correlation in which every group has the batch as channels."""
    spatial = "".join(str(k) for k in range(len(axes.input) - 2))
    batch, channels, *size = (x.shape[k] for k in axes.input)
    _, filters, *count = (g.shape[k] for k in axes.result)
    depth, each = channels // groups, filters // groups
    rest = tuple(range(3, 3 + len(size)))
    x = b.reshape(b.transpose(x, perm=axes.input), shape=(batch, groups, depth, *size))
    x = b.reshape(b.transpose(x, perm=(2, 1, 0, *rest)), shape=(depth, groups * batch, *size))
    g = b.reshape(b.transpose(g, perm=axes.result), shape=(batch, groups, each, *count))
    g = b.reshape(b.transpose(g, perm=(1, 2, 0, *rest)), shape=(filters, batch, *count))
    dw = b.conv(x, g, **window, groups=groups, layout=("NC" + spatial, "OI" + spatial, "CN" + spatial))
    inverse = sorted(range(len(axes.weight)), key=lambda k: axes.weight[k])
    return b.transpose(dw, perm=tuple(inverse))  # dw is (filters, depth, taps…)


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
    },
    accumulates="contraction",
    vjp=_vjp,
    doc="correlation; low and high pad each spatial axis (negative: crop); letters of layout: N C, O I, digits",
)
