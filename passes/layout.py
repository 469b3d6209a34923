"""`layout`: convolutions and what lies between them run channels-last (NHWC), by ordinary transposes.

A convolution region keeps the channels of a pixel together: the kernels vectorise over channels, and need no
padded ones. Values are carried in both layouts, each made only when somebody asks: an op that can work
channels-last does so as soon as one of its operands is, everything else gets the original order. What nobody asked
for is dead, and `dce` drops it; so the transposes that remain stand at the borders of the regions.
"""

from __future__ import annotations

from dataclasses import replace

from gluonjit.ir import opdef
from gluonjit.ir.graph import Builder, Graph, Op, Value, reemit
from gluonjit.passes.manager import register_pass


@register_pass("layout")
def layout(graph: Graph) -> Graph:
    """Has convolutions and what lies between them run channels-last, by transposes at the borders."""
    if not any(op.name == "conv" for op in graph.ops):
        return graph
    b = Builder(graph.name, graph.level)
    env = {v: _Both(b, b.input(v.name, v.type)) for v in graph.inputs}
    for op in graph.ops:
        b.loc = op.loc
        operands = [env[v] for v in op.operands]
        if not _channels_last(b, op, operands, env):
            new = reemit(b, op, [o.plain() for o in operands])
            env.update((old, _Both(b, v)) for old, v in zip(op.results, new, strict=True))
    for state, value in graph.updates:
        b.update(env[state].plain(), env[value].plain())
    return replace(b.build([env[v].plain() for v in graph.outputs]), attrs=graph.attrs)


def last_perm(rank: int) -> tuple[int, ...]:
    """Axes order N, spatial…, C out of N, C, spatial…"""
    return (0, *range(2, rank), 1)


def first_perm(rank: int) -> tuple[int, ...]:
    """The inverse of `last_perm`."""
    return (0, rank - 1, *range(1, rank - 1))


class _Both:
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
    def rank(self) -> int:
        v = self._plain if self._plain is not None else self._last
        return v.ndim  # type: ignore[union-attr]

    def plain(self) -> Value:
        if self._plain is None:
            self._plain = self._b.transpose(self._last, perm=first_perm(self.rank))
        return self._plain

    def last(self) -> Value:
        if self._last is None:
            self._last = self._b.transpose(self._plain, perm=last_perm(self.rank))
        return self._last


def _channels_last(b: Builder, op: Op, operands: list[_Both], env: dict[Value, _Both]) -> bool:
    """Emits `op` in channels-last form when that is possible and useful; its result then is there in that form."""
    rank = op.results[0].ndim if len(op.results) == 1 else 0
    if op.name == "conv":
        result = _conv(b, op, operands)
    elif rank < 3:
        return False
    elif isinstance(op.definition, opdef.Primitive) and op.definition.elementwise:
        if not any(o.is_last for o in operands):
            return False
        result = b.emit(op.name, [o.last() for o in operands], op.attrs)[0]
    elif op.name == "broadcast":
        return _broadcast(b, op, operands, env)
    elif op.name in _AXIS_ATTRS and operands[0].is_last and all(o.rank in (rank, 0) for o in operands):
        attrs = dict(op.attrs)
        perm = last_perm(rank)
        for key in _AXIS_ATTRS[op.name]:
            if attrs[key] is not None:
                attrs[key] = tuple(attrs[key][p] for p in perm)
        result = b.emit(op.name, [o.last() if o.rank else o.plain() for o in operands], attrs)[0]
    elif op.name == "concat" and any(o.is_last for o in operands):
        axis = last_perm(rank).index(op.attrs["axis"])
        result = b.emit("concat", [o.last() for o in operands], {"axis": axis})[0]
    else:
        return False
    env[op.result] = _Both(b, last=result)
    return True


_AXIS_ATTRS = {
    "reduce_window": ("window", "stride", "low", "high", "dilation"),
    "pad": ("low", "high", "interior"),
    "slice": ("start", "size", "step"),
}
"""Attributes with one entry per axis."""


def _conv(b: Builder, op: Op, operands: list[_Both]) -> Value | None:
    x, w = operands
    lx, lw, ly = op.attrs["layout"]
    n = len(lx) - 2
    spatial = "".join(map(str, range(n)))
    channels_last = f"N{spatial}C"
    kernel = f"{spatial}IO"
    data = x.last() if lx == f"NC{spatial}" else _to(b, x.plain(), lx, channels_last)
    weight = _to(b, w.plain(), lw, kernel)
    attrs = {**op.attrs, "layout": (channels_last, kernel, channels_last)}
    y = b.emit("conv", [data, weight], attrs)[0]
    if ly == f"NC{spatial}":
        return y
    # The graph's own order is another one (say channels-last itself); give the result in it, then as the rest expects.
    return b.transpose(_to(b, y, channels_last, ly), perm=last_perm(y.ndim))


def _to(b: Builder, x: Value, have: str, want: str) -> Value:
    return x if have == want else b.transpose(x, perm=tuple(have.index(c) for c in want))


def _broadcast(b: Builder, op: Op, operands: list[_Both], env: dict[Value, _Both]) -> bool:
    """A broadcast is made in both forms: whichever its users ask for is kept."""
    x = operands[0].plain()
    shape = op.attrs["shape"]
    dims = op.attrs["dims"]
    if dims is None:
        dims = tuple(range(len(shape) - x.ndim, len(shape)))
    perm = last_perm(len(shape))
    plain = reemit(b, op, [x])[0]
    moved = tuple(perm.index(d) for d in dims)
    order = tuple(sorted(range(len(moved)), key=moved.__getitem__))
    source = x if order == tuple(range(x.ndim)) else b.transpose(x, perm=order)
    last = b.broadcast(source, shape=tuple(shape[p] for p in perm), dims=tuple(sorted(moved)))
    env[op.result] = _Lazy(b, plain, last)
    return True


class _Lazy(_Both):
    """Both forms at hand, without saying that channels-last is the wanted one."""

    @property
    def is_last(self) -> bool:
        return False
