"""`reorder-pooling`: of a 1×1 convolution and an average next to it, the one that leaves less work comes first.

Both are linear, one over channels, the other over pixels, so that their order is free:

    window sums of conv(x, w)  =  conv(window sums of x, w)        (padding, too: both give 0 for 0)

An average that drops pixels goes first, and the convolution has a quarter of them left (DenseNet's transitions); one
that keeps them goes last if the convolution drops channels (Inception's pooling branches).

This reassociates: the sum over channels and window is the same one in another order. For float32 and float64 only,
since sums of float16 pixels would be rounded in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gluonjit.ir.dims import hint
from gluonjit.ir.graph import Builder, Graph, Op, Value, rewrite
from gluonjit.ir.primitives.convolution_layout import Layout
from gluonjit.ir.types import F32, F64
from gluonjit.passes.dce import dce
from gluonjit.passes.manager import register_pass

_PER_BYTE, _PER_TERM = 2, 2
"""Multiply-adds of a convolution in the time of moving a byte, and of adding a term of a window's sum."""


@register_pass("reorder-pooling", needs="legal")
def reorder_pooling(graph: Graph) -> Graph:
    """Averages before a 1×1 convolution if that spares it pixels, after it if that spares the average channels."""
    results = set(graph.results)

    def only_for(v: Value, name: str) -> Op | None:
        """What made `v`, if it is a `name` and its one reader is the one that asks."""
        op = graph.producers.get(v)
        alone = op is not None and op.name == name and len(graph.uses[v]) == 1 and v not in results
        return op if alone else None

    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        if len(op.results) != 1 or op.result.dtype not in (F32, F64):
            return None
        if op.name == "reduce_window":
            conv = only_for(op.operands[0], "conv")
            if conv is None or not _is_pointwise(conv) or not _sums_pixels(op, conv) or not _pools_first(conv, op):
                return None
            made = b.producer(operands[0])
            if made is None or made.name != "conv":  # it has changed places with what is before it
                return None
            x, w = made.operands
            return [b.conv(b.reduce_window(x, **op.attrs), w, **conv.attrs)]
        if op.name == "conv" and _is_pointwise(op):
            scale = only_for(op.operands[0], "div") or only_for(op.operands[0], "mul")
            pool = only_for(scale.operands[0] if scale else op.operands[0], "reduce_window")
            if pool is None or not _sums_pixels(pool, op) or _pools_first(op, pool):
                return None
            x = operands[0]
            if scale is not None:
                number = _number(b, b.producer(x).operands[1])  # type: ignore[union-attr]
                if number is None:
                    return None
                x = b.producer(x).operands[0]  # type: ignore[union-attr]
            made = b.producer(x)
            if made is None or made.name != "reduce_window":  # as above
                return None
            y = b.conv(made.operands[0], operands[1], **op.attrs)
            y = b.reduce_window(y, **pool.attrs)
            return [y if scale is None else b.emit(scale.name, [y, b.broadcast(number, shape=y.shape, dims=())])[0]]
        return None

    changed = rewrite(graph, rule, only_with=lambda op: op.name == "reduce_window" and op.attrs["op"] == "sum")
    return changed if changed is graph else dce(changed)


def _is_pointwise(conv: Op) -> bool:
    """Whether each pixel of the result comes from that pixel of the input; in one layout, so that windows fit both."""
    a = conv.attrs
    layout = Layout.parse(a["layout"])
    taps = [conv.operands[1].shape[axis] for axis in layout.weight[2:]]
    plain = {*taps, *a["stride"], *a["input_dilation"]} == {1} and not any((*a["low"], *a["high"]))
    return plain and layout.input == layout.result


def _sums_pixels(pool: Op, conv: Op) -> bool:
    """Whether the windows are sums along the convolution's spatial axes alone."""
    a, spatial = pool.attrs, Layout.parse(conv.attrs["layout"]).input[2:]
    still = (1, 1, 0, 0)
    return a["op"] == "sum" and all(
        axis in spatial or entries == still
        for axis, entries in enumerate(zip(a["window"], a["stride"], a["low"], a["high"], strict=True))
    )


def _pools_first(conv: Op, pool: Op) -> bool:
    """Whether averaging before the convolution is less work than after it, as the two stand in either order."""
    layout = Layout.parse(conv.attrs["layout"])
    x, w = conv.operands
    channels, filters = hint(x.shape[layout.input[1]]), hint(w.shape[layout.weight[0]])
    many, few = (hint(v.size) // hint(v.shape[layout.input[1]]) for v in (pool.operands[0], pool.result))
    taps = hint(math.prod(pool.attrs["window"]))
    each = _PER_TERM * taps * few + _PER_BYTE * x.dtype.itemsize * (many + few)
    return (many - few) * hint(w.size) > (channels - filters) * each


def _number(b: Builder, x: Value) -> Value | None:
    """The one element that `x` repeats."""
    op = b.producer(x)
    if op is None or op.name != "broadcast" or op.operands[0].size != 1:
        return None
    return op.operands[0] if op.operands[0].shape == () else b.reshape(op.operands[0], shape=())
