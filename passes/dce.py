"""`dce`: dead code elimination."""

from __future__ import annotations

from dataclasses import replace

from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.passes.manager import register_pass


@register_pass("dce")
def dce(graph: Graph) -> Graph:
    """Removes ops whose results nothing needs: no output, no updated state, no op that stays.

    Unused inputs stay, for they are the graph's signature, and so do ops that are not pure. A `host_call` is told which
    of its results nothing needs.
    """
    live: set[Value] = set(graph.results)
    kept: list[Op] = []
    changed = False
    for op in reversed(graph.ops):
        if op.name == "host_call":
            unread = tuple(k for k, r in enumerate(op.results) if r not in live)
            if unread != op.attrs["unread"]:
                op, changed = replace(op, attrs={**op.attrs, "unread": unread}), True
        if not live.isdisjoint(op.results) or not is_pure(op):
            kept.append(op)
            live.update(op.operands)
    if len(kept) == len(graph.ops) and not changed:
        return graph
    return replace(graph, ops=tuple(reversed(kept)))


def is_pure(op: Op) -> bool:
    """Whether the op may be dropped and computed beforehand: neither it nor its regions draw random numbers."""
    pure = op.definition.pure
    return pure and (not op.regions or all(is_pure(inner) for region in op.regions for inner in region.ops))


def changes_late(op: Op) -> bool:
    """Whether the gradient of the op changes states, or that of an op in its regions: each such op does so once."""
    late = bool(op.attrs.get("late"))
    return late or bool(op.regions) and any(changes_late(inner) for region in op.regions for inner in region.ops)
