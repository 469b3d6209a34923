"""Minimum cuts, by the maximum flow (Dinic, 1970)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from gluonjit.ir.types import IRError


@dataclass(eq=False)
class _Arc:
    """What may still flow `start` → `end`. What does is what may flow back, by the arc `back`."""

    start: Hashable
    end: Hashable
    capacity: float
    back: _Arc | None = None


def beyond_cut(edges: Iterable[tuple[Hashable, Hashable, float]], source: Hashable, goal: Hashable) -> set[Hashable]:
    """The nodes on the goal's side of a minimum cut of the graph with edges (start, end, capacity).

    Of several minimum cuts it is the one with the fewest nodes on that side; there is one of these. Capacities may be
    infinite; IRError if all cuts are.
    """
    arcs: dict[Hashable, list[_Arc]] = {source: [], goal: []}
    for start, end, capacity in edges:
        there, back = _Arc(start, end, capacity), _Arc(end, start, 0)
        there.back, back.back = back, there
        arcs.setdefault(start, []).append(there)
        arcs.setdefault(end, []).append(back)
    while True:
        distances = _distances(arcs, goal)
        if source not in distances:
            return set(distances)
        _fill(arcs, distances, source, goal)


def _distances(arcs: dict[Hashable, list[_Arc]], goal: Hashable) -> dict[Hashable, int]:
    """The number of arcs to the goal, of the nodes from which more may flow there."""
    distances = {goal: 0}
    pending = [goal]
    for node in pending:
        for arc in arcs[node]:
            assert arc.back is not None
            if arc.back.capacity and arc.end not in distances:
                distances[arc.end] = distances[node] + 1
                pending.append(arc.end)
    return distances


def _fill(arcs: dict[Hashable, list[_Arc]], distances: dict[Hashable, int], source: Hashable, goal: Hashable) -> None:
    """Lets as much as possible flow along shortest paths."""
    tried = dict.fromkeys(distances, 0)
    """How many of a node's arcs lead to no further path."""
    path: list[_Arc] = []
    node = source
    while True:
        if node == goal:
            amount = min(arc.capacity for arc in path)
            if amount == math.inf:
                raise IRError("every cut is infinite")
            for arc in path:
                assert arc.back is not None
                arc.capacity -= amount
                arc.back.capacity += amount
            full = next(k for k, arc in enumerate(path) if not arc.capacity)
            node = path[full].start
            del path[full:]
        elif tried[node] < len(arcs[node]):
            arc = arcs[node][tried[node]]
            if arc.capacity and distances.get(arc.end) == distances[node] - 1:
                path.append(arc)
                node = arc.end
            else:
                tried[node] += 1
        elif path:
            node = path.pop().start
            tried[node] += 1
        else:
            return
