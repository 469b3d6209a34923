"""Results in a trace whose gradient is a function of its own, traced too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gluonjit.base import StateChange
from gluonjit.language.source import quote
from gluonjit.operators.own_gradients import OWN_GRADIENT, REDIRECTED_GRADIENT
from gluonjit.symbol.graph import Entry, Node, post_order
from gluonjit.symbol.symbolic_loops import record_body


def with_own_gradient(
    name: str, results: Sequence[Any], inputs: Sequence[Any], gradient: Callable[..., Sequence[Any]], trace: Any
) -> list[Any]:
    """`results` of a trace, computed from `inputs`, as symbols through which gradients flow as `gradient` says.

    `gradient(*cotangents)` gives the cotangents of the inputs, None for an input that gets none. It runs now, once.
    StateChange if it draws random numbers: a plain call draws them in `backward`, after all those of the forward
    computation.
    """
    to: list[int] = []

    def run(*cotangents: Any) -> Any:
        found = gradient(*cotangents)
        to.extend(k for k, g in enumerate(found) if g is not None)
        return [g for g in found if g is not None], None

    body = record_body(name, results, 0, run)
    if body.graph.draws(training=True):
        loc = trace.loc()
        raise StateChange(
            f"{name}.backward draws random numbers, which a compiled gradient cannot{quote(loc)}",
            tuple(trace.blocks),
            again=False,
            loc=loc,
        )
    count = len(results)
    captured = [o for o in body.origins if not isinstance(o, int)]
    first = count + count + len(inputs)
    locs = [o if isinstance(o, int) else first + captured.index(o) for o in body.origins]
    attrs = {"num_outputs": count, "to": [count + k for k in to], "in_locs": locs}
    return trace.append_control(OWN_GRADIENT, [body.graph], [*results, *inputs], captured, attrs, body.sensitive)


def without_own_gradients(heads: Sequence[Entry]) -> tuple[Sequence[Entry], bool]:
    """A graph in which results with a gradient of their own are plain results; whether there were any."""
    order = post_order(heads)
    if not any(_has_own_gradient(node) for node in order):
        return heads, False
    table: dict[Entry, Entry] = {}
    for node in order:
        inputs = [table[e] for e in node.inputs]
        if _has_own_gradient(node):
            table.update({(node, k): inputs[k] for k in range(node.visible)})
        else:
            new = Node(node.op, node.name, node.attrs, inputs, node.parsed, node.loc, node.versions) if inputs else node
            table.update({(node, k): (new, k) for k in range(len(node.output_names))})
    return [table[e] for e in heads], True


def _has_own_gradient(node: Node) -> bool:
    return node.op is OWN_GRADIENT or node.op is REDIRECTED_GRADIENT
