"""`split-phases`: a convolution of a dilated input becomes one small convolution for each phase of its result.

See `ir/primitives/conv_phases.py`. Gradients of strided convolutions and transposed convolutions have this form.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from gluonjit.ir.graph import Builder, Graph, Op, Value, rewrite
from gluonjit.ir.primitives.conv_phases import MOST_PHASES, Phase, phases_of
from gluonjit.ir.primitives.convolution_layout import Layout
from gluonjit.ir.primitives.movement import interleaved
from gluonjit.passes.manager import register_pass


@register_pass("split-phases", needs="expanded")
def split_phases(graph: Graph) -> Graph:
    """Replaces convolutions of dilated inputs, without strides, by a convolution for each phase of the result."""

    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        attrs = op.attrs
        dilated = [k for k, n in enumerate(attrs["input_dilation"]) if n > 1] if op.name == "conv" else []
        if not dilated or any(attrs["stride"][k] > 1 for k in dilated) or 0 in op.result.shape:
            return None
        if math.prod(attrs["input_dilation"][k] for k in dilated) > MOST_PHASES:  # or the graph would be long
            return None
        return [_interleaved(b, operands, attrs, op.result)]

    return rewrite(graph, rule, only_with=_is_dilated)


def _is_dilated(op: Op) -> bool:
    return op.name == "conv" and any(n > 1 for n in op.attrs["input_dilation"])


def _interleaved(b: Builder, operands: Sequence[Value], attrs: Any, result: Value) -> Value:
    x, w = operands
    axes = Layout.parse(attrs["layout"])
    spatial = range(result.ndim - 2)
    per_axis = [
        phases_of(
            result.shape[axes.result[k + 2]],
            x.shape[axes.input[k + 2]],
            w.shape[axes.weight[k + 2]],
            attrs["low"][k],
            attrs["dilation"][k],
            attrs["input_dilation"][k],
        )
        if attrs["stride"][k] == 1
        else None
        for k in spatial
    ]
    counts = [
        max(p.length for p in phases) if phases else result.shape[axes.result[k + 2]]
        for k, phases in enumerate(per_axis)
    ]
    parts = {}
    choices = [range(len(phases)) if phases else range(1) for phases in per_axis]
    for choice in itertools.product(*choices):
        chosen = [phases[n] if phases else None for phases, n in zip(per_axis, choice)]
        parts[choice] = _one(b, x, w, attrs, axes, chosen, counts, result)
    return interleaved(b, parts, [axes.result[k + 2] for k in spatial], result.shape)


def _one(
    b: Builder,
    x: Value,
    w: Value,
    attrs: Any,
    axes: Layout,
    phases: Sequence[Phase | None],
    counts: Sequence[int],
    result: Value,
) -> Value:
    """The results of one phase along each axis; those past the last position exist, and are dropped later."""
    shape = list(result.shape)
    for k, n in enumerate(counts):
        shape[axes.result[k + 2]] = n
    if any(p is not None and p.taps <= 0 for p in phases):
        return b.broadcast(b.constant(0, result.dtype), shape=tuple(shape))
    start, size, step = [0] * w.ndim, list(w.shape), [1] * w.ndim
    new: dict[str, list[int]] = {key: list(attrs[key]) for key in ("low", "high", "dilation", "input_dilation")}
    for k, phase in enumerate(phases):
        if phase is None:
            continue
        axis = axes.weight[k + 2]
        start[axis], size[axis], step[axis] = phase.first, phase.taps, phase.step
        new["low"][k], new["dilation"][k], new["input_dilation"][k] = phase.low, phase.dilation, 1
        new["high"][k] = phase.high(counts[k], x.shape[axes.input[k + 2]])
    part = w if list(w.shape) == size else b.slice(w, start=tuple(start), size=tuple(size), step=tuple(step))
    return b.emit("conv", [x, part], {**attrs, **{key: tuple(value) for key, value in new.items()}})[0]
