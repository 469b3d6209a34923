"""`sink-reshapes`: moves reshapes after elementwise work and into broadcasts, where they no longer split groups.

`exp(reshape(x))` becomes `reshape(exp(x))`, and a broadcast of a reshape that only adds axes of 1 becomes a broadcast
of what was reshaped. What `keepdims` reductions leave behind disappears this way, so that `fuse` sees a row's value
go straight from the reduction to its broadcast. Exact: the same values are computed, named by other indices.
"""

from __future__ import annotations

from collections.abc import Sequence

from gluonjit.ir.graph import Builder, Graph, Op, Value, rewrite
from gluonjit.ir.primitives.movement import broadcast_dims
from gluonjit.passes.manager import register_pass


@register_pass("sink-reshapes", needs="legal")
def sink_reshapes(graph: Graph) -> Graph:
    """Moves reshapes towards the results, past elementwise ops and into broadcasts."""

    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        new: Value | None = None
        if op.name == "broadcast":
            new = _absorb(b, op, operands[0])
        elif op.definition.elementwise and operands:
            new = _sink(b, op, operands)
        return None if new is None else [new]

    reshaped = {op.result for op in graph.ops if op.name == "reshape"}
    return rewrite(graph, rule, only_with=lambda op: op.name != "reshape" and not reshaped.isdisjoint(op.operands))


def _absorb(b: Builder, op: Op, x: Value) -> Value | None:
    """broadcast(reshape(v)) where the reshape only adds or drops axes of 1."""
    reshape = b.producer(x)
    if reshape is None or reshape.name != "reshape":
        return None
    source = reshape.operands[0]
    squeezed = _squeezed(source.shape)
    if squeezed != _squeezed(x.shape):
        return None
    axes = broadcast_dims(x.ndim, op.attrs["shape"], op.attrs["dims"])
    dims = tuple(d for n, d in zip(x.shape, axes, strict=True) if n != 1)
    if squeezed != source.shape:
        source = b.reshape(source, shape=squeezed)
    return b.broadcast(source, shape=op.attrs["shape"], dims=dims)


def _sink(b: Builder, op: Op, operands: tuple[Value, ...]) -> Value | None:
    """op(reshape(x), reshape(y), broadcast(z)) → reshape(op(x, y, broadcast(z))), where z is one element, or the
    reshape only adds or drops axes of 1."""
    made = [b.producer(v) for v in operands]
    shapes = {o.operands[0].shape for o in made if o is not None and o.name == "reshape"}
    if len(shapes) != 1:
        return None
    (shape,) = shapes
    sources = []
    for o in made:
        if o is not None and o.name == "reshape":
            sources.append(o.operands[0])
        elif o is not None and o.name == "broadcast" and o.operands[0].size == 1:
            scalar = o.operands[0]
            if scalar.shape:
                scalar = b.reshape(scalar, shape=())
            sources.append(b.broadcast(scalar, shape=shape))
        elif o is not None and o.name == "broadcast" and _squeezed(shape) == _squeezed(o.result.shape):
            sources.append(_reshaped_broadcast(b, o, shape))
        else:
            return None
    return b.reshape(b.emit(op.name, sources, op.attrs)[0], shape=op.results[0].shape)


def _squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _reshaped_broadcast(b: Builder, op: Op, shape: tuple[int, ...]) -> Value:
    """What a broadcast gives, reshaped to `shape`, which has other axes of 1."""
    x = op.operands[0]
    place = dict(zip((d for d, n in enumerate(op.result.shape) if n != 1), (d for d, n in enumerate(shape) if n != 1)))
    axes = broadcast_dims(x.ndim, op.result.shape, op.attrs["dims"])
    kept = [(n, place[d]) for n, d in zip(x.shape, axes, strict=True) if d in place]
    if len(kept) < x.ndim:
        x = b.reshape(x, shape=tuple(n for n, _ in kept))
    return b.broadcast(x, shape=shape, dims=tuple(d for _, d in kept))
