"""The cheapest set of arcs whose removal separates a network's source from its sink, by a maximum flow.

Dinic, "Algorithm for solution of a problem of maximum flow in a network with power estimation", 1970. Of several
cheapest sets it is the one nearest to the sink. Written here because it runs before every first training step:
networkx takes longer to be imported than this takes for ResNet-50.
"""

from __future__ import annotations

from collections import deque

SOURCE, SINK = 0, 1


class Network:
    """A directed graph whose nodes are numbered as they are made, after `SOURCE` and `SINK`. Capacities are integers of
    at least 0; arcs without one are never cut."""

    def __init__(self) -> None:
        self._arcs: list[list[int]] = [[], []]
        """By node, the numbers of the arcs that leave it. Arc k ^ 1 is k's reverse, along which flow is taken back."""
        self._heads: list[int] = []
        """Where each arc leads."""
        self._capacities: list[int | None] = []

    def node(self) -> int:
        """A new node."""
        self._arcs.append([])
        return len(self._arcs) - 1

    def arc(self, tail: int, head: int, capacity: int | None = None) -> None:
        """A new arc."""
        self._arcs[tail].append(len(self._heads))
        self._arcs[head].append(len(self._heads) + 1)
        self._heads += head, tail
        self._capacities += capacity, 0

    def behind_the_cut(self) -> list[bool]:
        """By node, whether the sink can still be reached from it when the cheapest arcs are cut. ValueError if arcs
        that are never cut lead from source to sink."""
        finite = sum(c for c in self._capacities if c is not None)
        left = [finite + 1 if c is None else c for c in self._capacities]
        total = 0
        while True:
            distance = self._distances(left)
            if not distance[SOURCE]:
                return [k == SINK or d > 0 for k, d in enumerate(distance)]
            total += self._fill(left, distance)
            if total > finite:
                raise ValueError("no arc between source and sink can be cut")

    def _distances(self, left: list[int]) -> list[int]:
        """By node, the number of arcs with capacity left to the sink; 0 if there is no such path."""
        distance = [0] * len(self._arcs)
        queue = deque([SINK])
        while queue:
            node = queue.popleft()
            for arc in self._arcs[node]:
                tail = self._heads[arc]
                if left[arc ^ 1] and not distance[tail] and tail != SINK:
                    distance[tail] = distance[node] + 1
                    queue.append(tail)
        return distance

    def _fill(self, left: list[int], distance: list[int]) -> int:
        """Sends as much as fits along shortest paths. Returns how much that is."""
        heads, arcs = self._heads, self._arcs
        untried = [len(a) for a in arcs]
        path: list[int] = []
        node, total = SOURCE, 0
        while True:
            if node == SINK:
                most = min([left[arc] for arc in path])
                total += most
                full = -1
                for k, arc in enumerate(path):
                    left[arc] -= most
                    left[arc ^ 1] += most
                    if full < 0 and not left[arc]:
                        full = k
                node = heads[path[full] ^ 1]
                del path[full:]
            wanted = distance[node] - 1
            while untried[node]:
                arc = arcs[node][untried[node] - 1]
                head = heads[arc]
                if left[arc] and distance[head] == wanted and (wanted or head == SINK):
                    path.append(arc)
                    node = head
                    break
                untried[node] -= 1
            else:
                if not path:
                    return total
                node = heads[path.pop() ^ 1]
                untried[node] -= 1
