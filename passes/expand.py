"""`expand`: operators of the front end become primitives."""

from __future__ import annotations

from collections.abc import Sequence

from gluonjit.ir.annotations import DETACHED, STREAM, TRAINING
from gluonjit.ir.graph import Builder, Graph, Op, Value, inline, rewrite
from gluonjit.passes.manager import register_pass


@register_pass("expand", gives="expanded")
def expand(graph: Graph, *, gradients: bool = False) -> Graph:
    """Replaces operators (`mx.*`) by their expansions into primitives; the graph is `expanded` then.

    Operators behave as the graph attribute `training` says, or their own annotation `.training`. Random ones draw the
    streams that their annotation `.stream` begins with, or the next free ones; `streams` becomes the number of streams
    that a call uses up. The input `rng_key` (i64[2]: seed, counter) is added after the others when one is needed and
    none is there.

    With `gradients`, operators whose gradient is not that of their expansion become `with_gradient`; otherwise, its
    forward region takes its place. It keeps the annotation `.detached`.
    """
    if graph.level != "traced":
        return graph
    training = bool(graph.attrs.get("training", False))
    streams = 0

    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        nonlocal streams
        definition = op.definition
        if op.name == "with_gradient" and not gradients:
            return inline(b, expand(op.regions[0].with_level("traced")), operands)
        if definition.level != "operator":
            return None
        # A program may switch the mode around a single operator (`with autograd.train_mode():`).
        mode = bool(op.attrs.get(TRAINING.name, training))
        b.stream = op.attrs.get(STREAM.name, streams)
        types = [v.type for v in operands]
        own = definition.with_gradient(types, op.attrs, mode) if gradients else None
        if own is not None:
            attrs = {**own.attrs, **DETACHED(True)} if DETACHED.of(op) else own.attrs
            replaced = b.emit("with_gradient", operands, attrs, own.regions)
            if not own.operands:
                return replaced[: len(op.results)]
            operands = replaced
        results = inline(b, definition.expansion(types, op.attrs, mode), operands)
        streams = max(streams, b.stream)
        return results

    expanded = rewrite(graph, rule, level="expanded")
    return expanded.with_attrs(streams=max(streams, graph.attrs.get("streams", 0))) if streams else expanded
