"""Who lives in the arena of a planned graph, where, and from which op to which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gluonjit.ir.annotations import WORKSPACE, WORKSPACE_OFFSET
from gluonjit.ir.buffers import is_view, runs_kernel
from gluonjit.ir.dims import Extent
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.windows import Window, result_buffers, windows


class Tenant(NamedTuple):
    """A piece of the arena."""

    op: Op
    """The first op that writes there."""
    value: Value | None
    """What lies there; None for an op's workspace."""
    offset: Extent
    """The offset in the arena, in bytes."""
    nbytes: Extent
    first: int
    last: int
    """The ops that write it first and use it last, as indices into `graph.ops`."""


def tenants(graph: Graph) -> list[Tenant]:
    """The values in the graph's own arena, in the order in which they move in; those of the bodies of loops are
    workspaces."""
    places = windows(graph)
    owned = result_buffers(graph, places)
    last = last_uses(graph, places)
    found: dict[Value, Tenant] = {}
    workspaces = []
    for t, op in enumerate(graph.ops):
        if not runs_kernel(op):
            continue
        for root in dict.fromkeys(places[r].root for r in op.results):
            if root not in owned and root not in found and root.offset is not None:
                found[root] = Tenant(op, root, root.offset, root.type.nbytes, t, last.get(root, t))
        if WORKSPACE.of(op):
            workspaces.append(Tenant(op, None, WORKSPACE_OFFSET.of(op), WORKSPACE.of(op), t, t))
    return sorted([*found.values(), *workspaces], key=lambda tenant: tenant.first)


def last_uses(graph: Graph, places: Mapping[Value, Window]) -> dict[Value, int]:
    """Root → the index of the last op that reads or writes its buffer."""
    last: dict[Value, int] = {}
    for t, op in enumerate(graph.ops):
        if not is_view(op):
            last.update((places[v].root, t) for v in (*op.operands, *op.results))
    return last
