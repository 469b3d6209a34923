"""`fold-moves`: padding, crops and strides in front of windows become attributes of the windows.

    conv(pad(x, 0), w)              →  conv(x, w) with more padding
    conv(x[start : start + n], w)   →  conv(x, w) with less
    conv(x[::s], w), w of 1×1       →  conv(x, w) with a stride of s; so for pooling with windows of 1
    reduce_window(pad(x, identity)) →  reduce_window(x) with more padding

So the padded or cropped copy is not made, and kernels leave out the taps that would read padding. The zeros of a `pad`
stay terms of the sum, which shows where they meet weights that are infinite or NaN: the convolution's `blank_low` and
`blank_high` say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.ir.dims import is_static
from gluonjit.ir.graph import Builder, Graph, Op, Value, rewrite
from gluonjit.ir.primitives.convolution_layout import Layout
from gluonjit.ir.primitives.reduction import identity
from gluonjit.passes.dce import dce
from gluonjit.passes.manager import register_pass

_WINDOWED, _MOVES = ("conv", "reduce_window"), ("pad", "slice", "reduce_window")
"""The primitives that do the moves, and those that may be moves."""


@register_pass("fold-moves", needs="legal")
def fold_moves(graph: Graph) -> Graph:
    """Has convolutions and pooling do the padding, cropping and striding of what they read."""
    moved = {op.result for op in graph.ops if op.name in _MOVES}

    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        if op.name not in _WINDOWED or not op.result.size:
            return None
        fold = _conv if op.name == "conv" else _pool
        x, attrs = operands[0], dict(op.attrs)
        while (move := b.producer(x)) is not None and (found := fold(b, op, attrs, move)) is not None:
            x, attrs = move.operands[0], found
        return None if x is operands[0] else b.emit(op.name, [x, *operands[1:]], attrs)

    changed = rewrite(graph, rule, only_with=lambda op: op.name in _WINDOWED and op.operands[0] in moved)
    return changed if changed is graph else dce(changed)


def _pool(b: Builder, op: Op, attrs: dict[str, Any], move: Op) -> dict[str, Any] | None:
    """The attributes of a pooling that does the padding, if that is what the reduction of nothing gives."""
    if move.name != "pad" or any(move.attrs["interior"] or ()) or not _is_static_pad(move):
        return None
    if not _is(b, move.operands[1], identity(attrs["op"], op.result.dtype)):
        return None
    return {**attrs, **{k: _sums(attrs[k], move.attrs[k]) for k in ("low", "high")}}


def _conv(b: Builder, op: Op, attrs: dict[str, Any], move: Op) -> dict[str, Any] | None:
    """The attributes of a convolution that does the move; None when it cannot."""
    axes = Layout.parse(attrs["layout"]).input
    if move.name == "pad":
        if not _is_static_pad(move):
            return None
        low, high, inner = (move.attrs[k] or (0,) * len(axes) for k in ("low", "high", "interior"))
        # A dilated input has no kernel of its own: writing it out is cheaper.
        if any(low[k] or high[k] for k in axes[:2]) or any(inner) or not _is(b, move.operands[1], 0):
            return None
        weight = Layout.parse(attrs["layout"]).weight
        # Other passes take strides of 1 tap apart, and know nothing of terms that are outside.
        taps = [op.operands[1].shape[k] for k in weight[2:]]
        if any((low[axis] or high[axis]) and n == 1 for axis, n in zip(axes[2:], taps, strict=True)):
            return None
        if any(d > 1 for d in attrs["input_dilation"]):
            return None
        padded = dict(attrs)
        for key, amounts in (("low", low), ("high", high)):
            more = [amounts[k] for k in axes[2:]]
            padded[key] = _sums(attrs[key], more)
            blank = _sums(attrs[f"blank_{key}"] or (0,) * len(more), [-n for n in more])
            padded[f"blank_{key}"] = blank if any(blank) else None
        return padded
    if attrs["blank_low"] or attrs["blank_high"]:
        return None
    found = _slice(move)
    if found is None:
        return None
    source, kept = move.operands[0].shape, move.results[0].shape
    start, step = found
    if any(source[k] != kept[k] for k in axes[:2]) or any(k > 1 for k in attrs["input_dilation"]):
        return None
    taps = [op.operands[1].shape[k] for k in Layout.parse(attrs["layout"]).weight[2:]]
    result = [op.result.shape[k] for k in Layout.parse(attrs["layout"]).result[2:]]
    stride, low, high = (list(attrs[k]) for k in ("stride", "low", "high"))
    for k, axis in enumerate(axes[2:]):
        before, after = start[axis], source[axis] - start[axis] - (kept[axis] - 1) * step[axis] - 1
        if (before, after, step[axis]) == (0, 0, 1):
            continue
        if not is_static((before, after, result[k])):
            return None
        if step[axis] > 1:
            if taps[k] > 1 or low[k] or (result[k] - 1) * stride[k] >= kept[axis]:
                return None
            stride[k] *= step[axis]
            low[k] = -before
            high[k] = before + (result[k] - 1) * stride[k] + 1 - source[axis]
        elif (before and low[k] > 0) or (after and high[k] > 0):
            return None  # what is cropped would come back in place of padding
        else:
            low[k] -= before
            high[k] -= after
    return {**attrs, "stride": tuple(stride), "low": tuple(low), "high": tuple(high)}


def _is_static_pad(move: Op) -> bool:
    return is_static((*move.attrs["low"], *move.attrs["high"]))


def _slice(move: Op) -> tuple[Sequence[int], Sequence[int]] | None:
    """(start, step) of a slice, or of pooling that is one."""
    a = move.attrs
    if move.name == "slice":
        return a["start"], a["step"] or (1,) * len(a["start"])
    if move.name == "reduce_window" and {*a["window"]} == {1} and not any((*a["low"], *a["high"])):
        return (0,) * len(a["stride"]), a["stride"]
    return None


def _sums(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(m + n for m, n in zip(a, b, strict=True))


def _is(b: Builder, x: Value, number: Any) -> bool:
    """Whether a 0-d value is known to be a number, or either zero."""
    op = b.producer(x)
    return op is not None and op.name == "constant" and bool(np.all(op.attrs["value"] == number))
