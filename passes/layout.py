"""`layout`: convolutions and what lies between them run channels-last (NHWC), by ordinary transposes.

A convolution region keeps the channels of a pixel together: the kernels vectorize over channels, and need no padding of
the channel axis. Values are carried in both layouts, each made on demand: an op that can work channels-last does so as
soon as one of its operands is channels-last; every other op gets the original order. A layout that no op uses is dead,
and `dce` drops it; so transposes remain only at the borders of the regions.

Where a region ends in a flattening and a dense layer, the dense layer's weights are permuted instead of the pixels, and
`hoist` has that done once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence

from gluonjit.ir.dims import hint
from gluonjit.ir.graph import Builder, Graph, Op, Rewriter, Value, reemit
from gluonjit.ir.primitives.movement import broadcast_dims
from gluonjit.passes.hoist import fixed_ops
from gluonjit.passes.manager import register_pass
from gluonjit.passes.remarks import missed


@register_pass("layout", needs="legal")
def layout(graph: Graph) -> Graph:
    """Makes convolutions and the ops between them channels-last, with transposes at the borders."""
    if not any(op.name == "conv" for op in graph.ops):
        return graph
    found = _ChannelsLast(graph)
    new = found.run()
    for op in found.left:
        missed(op, "it does not run channels-last, so what it reads is transposed")
    return new


def carried_last(graph: Graph) -> set[Value]:
    """The values that `layout` computes channels-last; none of a graph that it cannot take yet."""
    if graph.level != "legal" or not any(op.name == "conv" for op in graph.ops):
        return set()
    found = _ChannelsLast(graph)
    found.run()
    return {v for v, layouts in found.layouts.items() if v.ndim >= 3 and layouts.is_last}


class _ChannelsLast(Rewriter):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.fixed = {graph.inputs[k] for k in graph.attrs.get("params", ())}
        self.fixed.update(r for op in fixed_ops(graph) for r in op.results)
        self.given = set(graph.inputs)
        self.layouts = {v: _Layouts(self.b, new) for v, new in self.env.items()}
        self.left: list[Op] = []
        """The ops that read something channels-last in the graph's own order."""

    def value(self, v: Value) -> Value:
        return self.layouts[v].plain()

    def visit(self, op: Op) -> Sequence[Value]:
        operands = [self.layouts[v] for v in op.operands]
        if self._is_given_last(op):
            self.layouts[op.result] = _Layouts(self.b, last=operands[0].plain())
            return ()
        new = _channels_last(self.b, op, operands, self.fixed) if len(op.results) == 1 else None
        if new is not None:
            self.layouts[op.result] = new
        else:
            if any(layouts.is_only_last for layouts in operands):
                self.left.append(op)
            values = reemit(self.b, op, [o.plain() for o in operands])
            self.layouts.update((old, _Layouts(self.b, v)) for old, v in zip(op.results, values, strict=True))
        return ()

    def _is_given_last(self, op: Op) -> bool:
        """Whether the op makes the usual order of an input that is channels-last, as saved values are."""
        x = op.operands[0] if op.operands else None
        if op.name != "transpose" or x not in self.given or x in self.fixed:
            return False
        return op.result.ndim >= 3 and op.attrs["perm"] == first_perm(op.result.ndim)


def last_perm(rank: int) -> tuple[int, ...]:
    """The permutation from N, C, spatial… to N, spatial…, C."""
    return (0, *range(2, rank), 1)


def first_perm(rank: int) -> tuple[int, ...]:
    """The inverse of `last_perm`."""
    return (0, rank - 1, *range(1, rank - 1))


class _Layouts:
    """A value in the graph's own order, channels-last, or both; the missing one is transposed on demand."""

    def __init__(self, b: Builder, plain: Value | None = None, last: Value | None = None) -> None:
        self._b = b
        self._plain = plain
        self._last = last

    @property
    def is_last(self) -> bool:
        """Whether the channels-last form exists already."""
        return self._last is not None

    @property
    def is_only_last(self) -> bool:
        """Whether the other form would have to be made."""
        return self._plain is None and self._last is not None

    def plain(self) -> Value:
        if self._plain is None:
            assert self._last is not None
            self._plain = self._b.transpose(self._last, perm=first_perm(self._last.ndim))
        return self._plain

    def last(self) -> Value:
        if self._last is None:
            self._last = self._b.transpose(self.plain(), perm=last_perm(self.plain().ndim))
        return self._last


class _Deferred(_Layouts):
    """A value whose op is emitted on demand, so that a reader can use the op's operand instead."""

    def __init__(self, b: Builder, op: Op, source: _Layouts) -> None:
        super().__init__(b)
        self.op = op
        self.source = source

    def plain(self) -> Value:
        if self._plain is None:
            self._plain = reemit(self._b, self.op, [self.source.plain()])[0]
        return self._plain


class _Broadcast(_Deferred):
    """A broadcast, which costs nothing in either layout, and so is no reason to prefer one."""

    @property
    def is_last(self) -> bool:
        return False

    def last(self) -> Value:
        if self._last is None:
            x, shape = self.source.plain(), self.op.attrs["shape"]
            perm = last_perm(len(shape))
            moved = [perm.index(d) for d in broadcast_dims(x.ndim, shape, self.op.attrs["dims"])]
            order = tuple(sorted(range(len(moved)), key=moved.__getitem__))
            if order != tuple(range(x.ndim)):
                x = self._b.transpose(x, perm=order)
            self._last = self._b.broadcast(x, shape=tuple(shape[p] for p in perm), dims=tuple(sorted(moved)))
        return self._last


class _Split(_Deferred):
    """A value whose channels are split in two axes, [N, a, b, spatial…], or these two transposed."""


def _channels_last(b: Builder, op: Op, operands: list[_Layouts], fixed: Container[Value]) -> _Layouts | None:
    """The op's result computed channels-last; None where that is impossible or not useful."""
    rank = op.result.ndim
    if op.name == "broadcast" and rank >= 3:
        return _repeat(b, op, operands[0]) or _Broadcast(b, op, operands[0])
    if op.name == "dot_general":
        return _dense(b, op, operands) if op.operands[1] in fixed else None
    if op.name in _RULES:
        return _RULES[op.name](b, op, operands)
    if rank < 3 or not any(o.is_last for o in operands):
        return None
    if op.definition.elementwise:
        return _Layouts(b, last=b.emit(op.name, [o.last() for o in operands], op.attrs)[0])
    if op.name == "concat":
        axis = last_perm(rank).index(op.attrs["axis"])
        return _Layouts(b, last=b.emit("concat", [o.last() for o in operands], {"axis": axis})[0])
    if op.name == "gather" and operands[0].is_last and op.operands[1].ndim == 1 and op.attrs["axis"] >= 2:
        axis = last_perm(rank).index(op.attrs["axis"])
        attrs = {**op.attrs, "axis": axis}
        return _Layouts(b, last=b.emit("gather", [operands[0].last(), operands[1].plain()], attrs)[0])
    if op.name in _AXIS_ATTRS and operands[0].is_last:
        attrs = dict(op.attrs)
        for key in _AXIS_ATTRS[op.name]:
            if attrs[key] is not None:
                attrs[key] = tuple(attrs[key][p] for p in last_perm(rank))
        others = [o.plain() for o in operands[1:]]
        return _Layouts(b, last=b.emit(op.name, [operands[0].last(), *others], attrs)[0])
    return None


_AXIS_ATTRS = {
    "reduce_window": ("window", "stride", "low", "high", "dilation"),
    "pad": ("low", "high", "interior"),
    "slice": ("start", "size", "step"),
}
"""Attributes with an entry per axis, of ops with one operand of rank 1 or more."""


def _conv(b: Builder, op: Op, operands: list[_Layouts]) -> _Layouts:
    x, w = operands
    lx, lw, ly = op.attrs["layout"]
    spatial = "".join(map(str, range(len(lx) - 2)))
    if (lx, lw) == (f"CN{spatial}", f"IO{spatial}") and is_weight_gradient(op):
        # Pixels are the terms, whose order is free; images and channels keep their places in memory.
        letters = f"C{spatial}N", f"I{spatial}O", f"{spatial}NC"
        y = b.emit("conv", [x.last(), w.last()], {**op.attrs, "layout": letters})[0]
        return _Layouts(b, _to(b, y, letters[2], ly))
    channels_last = f"N{spatial}C"
    kernel = f"{spatial}IO"
    data = x.last() if lx == f"NC{spatial}" else _to(b, x.plain(), lx, channels_last)
    weight = _to(b, w.plain(), lw, kernel)
    attrs = {**op.attrs, "layout": (channels_last, kernel, channels_last)}
    y = b.emit("conv", [data, weight], attrs)[0]
    if ly != f"NC{spatial}":
        # The op's own layout is another one (perhaps channels-last itself): convert the result to N, C, spatial….
        y = b.transpose(_to(b, y, channels_last, ly), perm=last_perm(y.ndim))
    return _Layouts(b, last=y)


def is_weight_gradient(op: Op) -> bool:
    """Whether a convolution has the form of a gradient by a convolution's weights: a window as large as an image, which
    is moved by a few positions."""
    w, attrs = op.operands[1], op.attrs
    taps = [w.shape[k] for k, letter in enumerate(attrs["layout"][1]) if letter not in "OI"]
    count = [op.result.shape[k] for k, letter in enumerate(attrs["layout"][2]) if letter not in "NC"]
    plain = attrs["groups"] == 1 and set(attrs["input_dilation"]) == {1}
    blank = any((*(attrs["blank_low"] or ()), *(attrs["blank_high"] or ())))
    terms = math.prod(taps) * w.shape[attrs["layout"][1].index("I")]
    return plain and not blank and hint(math.prod(count)) <= hint(terms)


def _to(b: Builder, x: Value, have: str, want: str) -> Value:
    return x if have == want else b.transpose(x, perm=tuple(have.index(c) for c in want))


def _reduce(b: Builder, op: Op, operands: list[_Layouts]) -> _Layouts | None:
    """The result may be in the graph's order though the operand is not, as for a mean over all pixels."""
    (x,) = operands
    if not x.is_last:
        return None
    perm = last_perm(op.operands[0].ndim)
    left = [p for p in perm if p not in op.attrs["axes"]]
    order = sorted(left)
    is_plain = left == order
    if not is_plain and (len(left) < 3 or left != [order[p] for p in last_perm(len(left))]):
        return None
    y = b.reduce(x.last(), op=op.attrs["op"], axes=tuple(sorted(perm.index(a) for a in op.attrs["axes"])))
    return _Layouts(b, y) if is_plain else _Layouts(b, last=y)


def _repeat(b: Builder, op: Op, x: _Layouts) -> _Layouts | None:
    """Repeats pixels of a channels-last image, as upsampling does; the result is channels-last."""
    old, new = op.operands[0].shape, op.result.shape
    if not x.is_last or len(old) != len(new) or old[:2] != new[:2] or all(n == 1 for n in old[2:]):
        return None
    return _Layouts(b, last=b.broadcast(x.last(), shape=tuple(new[p] for p in last_perm(len(new)))))


def _reshape(b: Builder, op: Op, operands: list[_Layouts]) -> _Layouts | None:
    """Handles reshapes of the spatial axes alone, those of a channel shuffle (split, transpose, join), and flattening,
    which is emitted on demand."""
    (x,) = operands
    old, new = op.operands[0].shape, op.result.shape
    if isinstance(x, _Split):
        return _shuffle(b, op, x)
    if not x.is_last or len(old) < 3:
        return None
    if len(new) == 2 and new[0] == old[0]:
        return _Deferred(b, op, x)
    if len(new) == len(old) + 1 and (new[0], *new[3:]) == (old[0], *old[2:]):
        return _Split(b, op, x)
    if len(new) >= 3 and new[:2] == old[:2]:
        return _Layouts(b, last=b.reshape(x.last(), shape=(new[0], *new[2:], new[1])))
    return None


def _transpose(b: Builder, op: Op, operands: list[_Layouts]) -> _Layouts | None:
    (x,) = operands
    rank = op.result.ndim
    swaps = op.attrs["perm"] == (0, 2, 1, *range(3, rank))
    return _Split(b, op, x) if swaps and isinstance(x, _Split) else None


def _shuffle(b: Builder, op: Op, x: _Split) -> _Layouts | None:
    """Joins channels that were split and transposed (a channel shuffle), on the last axis."""
    split = x.source
    if not isinstance(split, _Split) or isinstance(split.source, _Split):
        return None
    image = split.op.operands[0].shape
    if op.result.shape != image:
        return None
    rows, columns = split.op.result.shape[1:3]
    y = split.source.last()
    y = b.reshape(y, shape=(*y.shape[:-1], rows, columns))
    y = b.transpose(y, perm=(*range(y.ndim - 2), y.ndim - 1, y.ndim - 2))
    return _Layouts(b, last=b.reshape(y, shape=(*y.shape[:-2], rows * columns)))


def _dense(b: Builder, op: Op, operands: list[_Layouts]) -> _Layouts | None:
    """A dense layer on flattened pixels reads them channels-last, with its weights permuted to match."""
    x = operands[0]
    if not isinstance(x, _Deferred) or x.op.name != "reshape" or x.op.result.ndim != 2:
        return None
    if op.attrs["contract"][0] != (1,) or op.attrs["batch"][0]:
        return None
    (axis_w,) = op.attrs["contract"][1]
    terms = x.op.operands[0].shape[1:]
    w = operands[1].plain()
    w = b.reshape(w, shape=(*w.shape[:axis_w], *terms, *w.shape[axis_w + 1 :]))
    here = first_perm(1 + len(terms))[1:]
    there = tuple(range(axis_w, axis_w + len(terms)))
    return _Layouts(b, b.dot_general(x.source.last(), w, contract=(here, there), dtype=op.attrs["dtype"]))


_RULES: dict[str, Callable[[Builder, Op, list[_Layouts]], _Layouts | None]] = {
    "conv": _conv,
    "reduce": _reduce,
    "reshape": _reshape,
    "transpose": _transpose,
}
