"""`hoist-strides`: computes only those pixels of a value that its readers use.

A 1×1 convolution of stride s reads every s-th row and column. Where all readers of a value are such convolutions, or
elementwise ops that lead to them, the stride moves to the producer: the readers get stride 1, and the convolution or
pooling that makes the value multiplies its own stride by s. In ResNet v1 both convolutions at the entry of a stage are
of this kind, so the last block before it computes a quarter of its pixels. Exact: the same products and sums, fewer of
them.

A value that has other readers as well stays whole, and is read through a strided slice. So a stride moves only where
that saves more work than the slices cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any

from gluonjit.ir.dims import Extent, divides, hint
from gluonjit.ir.graph import Graph, Op, Rewriter, Value
from gluonjit.ir.primitives.convolution_layout import Layout
from gluonjit.ir.primitives.movement import broadcast_dims
from gluonjit.passes.manager import register_pass

Steps = tuple[int, ...]
"""For each axis of a value, the step between wanted elements, the first of which is element 0."""

_PER_BYTE = 2
"""Multiply-adds in the time of moving a byte."""


@register_pass("hoist-strides", needs="legal")
def hoist_strides(graph: Graph) -> Graph:
    """Computes what only strided 1×1 convolutions read for the pixels that they read."""
    if not any(op.name in _ORIGINS and _strides(op) for op in graph.ops):
        return graph
    thinned = _worthwhile(graph, _wanted(graph))
    return _Thinned(graph, thinned).run() if thinned else graph


_ORIGINS = {"conv": "stride", "reduce_window": "stride", "slice": "step"}
"""Ops that may read less than all, and the attribute that says so."""


def _strides(op: Op) -> bool:
    return any(n > 1 for n in op.attrs[_ORIGINS[op.name]] or ())


def _wanted(graph: Graph) -> dict[Value, Steps]:
    """What readers want of a value, where none wants all of it and its maker can leave out the rest."""
    wanted: dict[Value, Steps] = {}
    results = set(graph.results)
    for op in reversed(graph.ops):
        if len(op.results) != 1 or op.result in results:
            continue
        v = op.result
        reads = [
            _read(user, k, wanted.get(user.results[0]))
            for user in graph.uses.get(v, ())
            for k, x in enumerate(user.operands)
            if x is v
        ]
        if not reads or None in reads:
            continue
        steps = tuple(gcd(*each) for each in zip(*reads))  # type: ignore[arg-type]
        if any(n > 1 for n in steps) and _can_thin(op, steps):
            wanted[v] = steps
    return wanted


def _read(op: Op, k: int, steps: Steps | None) -> Steps | None:
    """What of its operand `k` an op reads when `steps` of its only result are wanted; None for everything."""
    if len(op.results) != 1:
        return None
    x, rank = op.operands[k], op.results[0].ndim
    own = steps or (1,) * rank
    if op.name in _ORIGINS:
        if k > 0:
            return None
        read = [1] * x.ndim
        for axis, target, stride, taps, first in _axes(op):
            step = stride * own[target]
            count = _every(op.result.shape[target], own[target])
            if taps == 1 and first == 0 and count is not None and count == _every(x.shape[axis], step):
                read[axis] = step
    elif _is_elementwise(op) or op.name == "concat":
        read = list(own)
    elif op.name == "broadcast":
        dims = broadcast_dims(x.ndim, op.attrs["shape"], op.attrs["dims"])
        read = [own[d] if n != 1 else 1 for n, d in zip(x.shape, dims, strict=True)]
    else:
        return None
    return tuple(read) if any(n > 1 for n in read) else None


def _every(n: Extent, step: int) -> Extent | None:
    """How many of n elements are taken if it is every `step`-th; None if that depends on a size."""
    return -(-n // step) if divides(step, n) or isinstance(n, int) else None


def _axes(op: Op) -> list[tuple[int, int, int, int, int]]:
    """(operand axis, result axis, stride, taps, position of the first) for each axis that a window moves along."""
    a = op.attrs
    if op.name == "conv":
        layout = Layout.parse(a["layout"])
        taps = [op.operands[1].shape[axis] for axis in layout.weight[2:]]
        # Dilated input is another one than that which is read.
        first = [low if n == 1 else 1 for low, n in zip(a["low"], a["input_dilation"], strict=True)]
        return list(zip(layout.input[2:], layout.result[2:], a["stride"], taps, first, strict=True))
    axes = range(op.result.ndim)
    if op.name == "slice":
        return list(zip(axes, axes, a["step"] or (1,) * len(axes), (1,) * len(axes), a["start"], strict=True))
    return list(zip(axes, axes, a["stride"], a["window"], a["low"], strict=True))


def _can_thin(op: Op, steps: Steps) -> bool:
    """Whether the op can make every `steps`-th element of its result alone."""
    if op.name == "conv":
        moving = {target for _, target, *_ in _axes(op)}
        return all(n == 1 or axis in moving for axis, n in enumerate(steps))
    if op.name == "concat":
        return steps[op.attrs["axis"]] == 1
    return op.name in ("reduce_window", "slice", "broadcast") or _is_elementwise(op)


def _is_elementwise(op: Op) -> bool:
    return op.definition.elementwise and bool(op.operands)


def _worthwhile(graph: Graph, wanted: dict[Value, Steps]) -> dict[Value, Steps]:
    """The values worth thinning: those that save more work than the slices that they need cost. Connected values are
    decided together."""
    parent = {v: v for v in wanted}

    def find(v: Value) -> Value:
        while parent[v] is not v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    gain = dict.fromkeys(wanted, 0.0)
    for v, steps in wanted.items():
        op = graph.producers[v]
        gain[v] += (1 - 1 / prod(steps)) * _work(op)
        for k, x in enumerate(op.operands):
            if x in wanted:
                parent[find(x)] = find(v)
            if op.name in _ORIGINS or (read := _read(op, k, steps)) in (None, wanted.get(x)):
                continue
            maker = graph.producers.get(x)
            if maker is None or maker.name != "broadcast":  # of which a slice is a broadcast
                gain[v] -= _PER_BYTE * 2 * hint(x.type.nbytes) / prod(read)
    total: dict[Value, float] = {}
    for v, amount in gain.items():
        total[find(v)] = total.get(find(v), 0.0) + amount
    return {v: steps for v, steps in wanted.items() if total[find(v)] > 0}


def _work(op: Op) -> float:
    """The work of an op, in multiply-adds."""
    if op.name == "conv":
        filters = Layout.parse(op.attrs["layout"]).weight[0]
        w = op.operands[1]
        return hint(op.result.size) * (hint(w.size) / max(hint(w.shape[filters]), 1))
    return float(hint(op.result.size * prod(op.attrs["window"]))) if op.name == "reduce_window" else 0.0


class _Thinned(Rewriter):
    """The graph with only some elements of the values in `thinned`."""

    def __init__(self, graph: Graph, thinned: dict[Value, Steps]) -> None:
        super().__init__(graph)
        self.thinned = thinned
        self.slices: dict[tuple[Value, Steps], Value] = {}

    def thin(self, x: Value, read: Steps | None) -> Value:
        """The part of `x` that is read, sliced from the part that is computed."""
        there = self.thinned.get(x, (1,) * x.ndim)
        if read is None or read == there:
            return self.env[x]
        if (x, read) not in self.slices:
            step = tuple(n // k for n, k in zip(read, there, strict=True))
            start, size = (0,) * x.ndim, _thinner(x.shape, read)
            self.slices[x, read] = self.b.slice(self.env[x], start=start, size=size, step=step)
        return self.slices[x, read]

    def visit(self, op: Op) -> Sequence[Value] | None:
        steps = self.thinned.get(op.results[0]) if len(op.results) == 1 else None
        if steps is None and not any(v in self.thinned for v in op.operands):
            return None
        if op.name in _ORIGINS:
            operands, attrs = [self.env[v] for v in op.operands], _faster(op, steps, self.thinned)
        else:
            assert steps is not None, "a reader of a thinned value is thinned itself, or has a stride"
            attrs = dict(op.attrs)
            if op.name == "broadcast":
                attrs["shape"] = _thinner(op.result.shape, steps)
            operands = [self.thin(v, _read(op, k, steps)) for k, v in enumerate(op.operands)]
        return self.b.emit(op.name, operands, attrs, (), op.loc, [op.result.name])


def _thinner(shape: Sequence[int], steps: Steps) -> tuple[int, ...]:
    return tuple(-(-n // k) for n, k in zip(shape, steps, strict=True))


def _faster(op: Op, steps: Steps | None, thinned: dict[Value, Steps]) -> dict[str, Any]:
    """The attributes of an op with a stride whose operand or result is thinned."""
    read = thinned.get(op.operands[0], (1,) * op.operands[0].ndim)
    own = steps or (1,) * op.result.ndim
    key = _ORIGINS[op.name]
    axes = _axes(op)
    attrs = dict(op.attrs)
    attrs[key] = tuple(stride * own[target] // read[axis] for axis, target, stride, *_ in axes)
    if op.name == "slice":
        attrs["size"] = _thinner(op.result.shape, own)
    else:  # a crop or padding after the last element that is read
        attrs["high"] = tuple(0 if read[axis] > 1 else n for (axis, *_), n in zip(axes, attrs["high"], strict=True))
    return attrs
