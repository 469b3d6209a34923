"""The gradients of `conv`, which are correlations again.

With q = r * stride + k * dilation - low, an input position dilated,

    dx[q / input_dilation] = sum of g[r] w[k] over r, k: g dilated by `stride`, with the taps in reverse order;
    dw[k]                  = sum of g[r] x[q / input_dilation] over r: `stride` and `dilation` change places.

Where x is dilated and g is not, as in a transposed convolution, few terms of the last sum are not zero. With p = q /
input_dilation it is taken over the positions p of x instead, as if x were the cotangent of a convolution of g:

    dw[last - k]           = sum of x[p] g[p * input_dilation + k * dilation - (last * dilation - low)] over p.

Zeros that are written out as padding (`blank_low`, `blank_high`) get a cotangent, too; what pads drops it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gluonjit.ir.primitives.convolution_layout import Layout, Window
from gluonjit.ir.primitives.depthwise_filters import fits
from gluonjit.ir.types import dtype_of

if TYPE_CHECKING:
    from gluonjit.ir.graph import Emitter


def cotangents(
    b: Emitter, g: Any, x: Any, w: Any, window: Window, groups: int, layout: tuple[str, str, str]
) -> tuple[Any, Any]:
    """Those of the operands."""
    if 0 in g.shape or 0 in x.shape:  # empty sums
        return tuple(b.broadcast(b.constant(0, dtype_of(g)), shape=v.shape) for v in (x, w))  # type: ignore[return-value]
    return _input(b, g, x, w, window, groups, layout), _weight(b, g, x, w, window, groups, layout)


def _input(b: Emitter, g: Any, x: Any, w: Any, window: Window, groups: int, layout: tuple[str, str, str]) -> Any:
    axes = Layout.parse(layout)
    stride, low, _, dilation, inner = window
    taps = [w.shape[axis] for axis in axes.weight[2:]]
    reach = [(n - 1) * by for n, by in zip(taps, dilation, strict=True)]
    before = [r - a for r, a in zip(reach, low, strict=True)]
    after = [
        _dilated(x.shape[i], by) + r - a - _dilated(g.shape[o], s)
        for i, by, r, a, o, s in zip(axes.input[2:], inner, reach, before, axes.result[2:], stride, strict=True)
    ]
    flipped = _with_taps_reversed(b, w, axes)
    letters = _swapped(layout[1], "O", "I")
    if groups > 1:
        flipped, letters = _per_group(b, flipped, axes.weight, groups), "OI" + "".join(map(str, range(len(taps))))
    turned = Window(tuple(inner), tuple(before), tuple(after), tuple(dilation), tuple(stride))
    return b.conv(g, flipped, **turned._asdict(), groups=groups, layout=(layout[2], letters, layout[0]))


def _weight(b: Emitter, g: Any, x: Any, w: Any, window: Window, groups: int, layout: tuple[str, str, str]) -> Any:
    axes = Layout.parse(layout)
    stride, low, _, dilation, inner = window
    taps, count = ([v.shape[axis] for axis in order[2:]] for v, order in ((w, axes.weight), (g, axes.result)))
    if groups == 1 and set(stride) == {1} != set(inner):
        before = tuple((n - 1) * d - a for n, d, a in zip(taps, dilation, low, strict=True))
        of_g = window._replace(stride=inner, low=before, input_dilation=stride)
        dw = _weight(b, x, g, w, of_g, groups, (layout[2], _swapped(layout[1], "O", "I"), layout[0]))
        return _with_taps_reversed(b, dw, axes)
    one_channel = w.shape[axes.weight[1]] == 1 and set(inner) == {1}
    if groups > 1 and one_channel:
        if groups == w.shape[axes.weight[0]] and fits(dtype_of(g), taps, stride, low, dilation):
            return _depthwise_filters(b, x, g, w, axes, window)
        return _depthwise_weight(b, x, g, w, axes, window)
    after = [
        (n - 1) * d + (m - 1) * s + 1 - a - _dilated(x.shape[axis], by)
        for n, d, m, s, a, axis, by in zip(taps, dilation, count, stride, low, axes.input[2:], inner, strict=True)
    ]
    turned = Window(tuple(dilation), tuple(low), tuple(after), tuple(stride), tuple(inner))._asdict()
    if groups > 1:
        return _grouped_weight(b, x, g, axes, groups, turned)
    # The batch is summed over: it takes the place of channels; channels that of the batch.
    letters = (
        _swapped(layout[0], "N", "C"),
        layout[2].translate(str.maketrans("NC", "IO")),
        layout[1].translate(str.maketrans("IO", "NC")),
    )
    return b.conv(x, g, **turned, layout=letters)


def _with_taps_reversed(b: Emitter, w: Any, axes: Layout) -> Any:
    return b.reverse(w, axes=tuple(axis for axis in axes.weight[2:] if w.shape[axis] > 1))


def _dilated(n: int, by: int) -> int:
    return (n - 1) * by + 1 if n else 0


def _swapped(letters: str, first: str, second: str) -> str:
    return letters.translate(str.maketrans(first + second, second + first))


def _per_group(b: Emitter, w: Any, axes: Sequence[int], groups: int) -> Any:
    """The weight (O, I, taps…) with inputs and filters swapped within each group: (groups * I, O / groups, taps…)."""
    filters, depth, *taps = (w.shape[k] for k in axes)
    apart = b.reshape(b.transpose(w, perm=tuple(axes)), shape=(groups, filters // groups, depth, *taps))
    swapped = b.transpose(apart, perm=(0, 2, 1, *range(3, 3 + len(taps))))
    return b.reshape(swapped, shape=(groups * depth, filters // groups, *taps))


def _depthwise_filters(b: Emitter, x: Any, g: Any, w: Any, axes: Layout, window: Window) -> Any:
    """The weight's cotangent where each channel has one filter."""

    def last(v: Any, order: Sequence[int]) -> Any:
        n, c, *rest = order
        return b.transpose(v, perm=(n, *rest, c))

    taps = tuple(w.shape[k] for k in axes.weight[2:])
    stride, low, dilation = tuple(window.stride), tuple(window.low), tuple(window.dilation)
    x, g = last(x, axes.input), last(g, axes.result)
    dw = b.depthwise_gradient(x, g, taps=taps, stride=stride, low=low, dilation=dilation)
    dw = b.reshape(dw, shape=(*taps, 1, w.shape[axes.weight[0]]))
    # As taps…, I, O.
    order = [*axes.weight[2:], axes.weight[1], axes.weight[0]]
    return b.transpose(dw, perm=tuple(sorted(range(len(order)), key=lambda k: order[k])))


def _depthwise_weight(b: Emitter, x: Any, g: Any, w: Any, axes: Layout, window: Window) -> Any:
    """The weight's cotangent where each filter reads a single channel that others may read, too: for each tap, the sum
    per channel of g times the elements of x that the tap reads."""
    rank = len(axes.input)
    stride, low, _, dilation, _ = window
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


def _grouped_weight(b: Emitter, x: Any, g: Any, axes: Layout, groups: int, window: dict[str, Any]) -> Any:
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
