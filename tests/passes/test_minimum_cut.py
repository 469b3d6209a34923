"""Minimum cuts are those of networkx."""

import math
import random

import networkx as nx
import pytest

from gluonjit.ir.types import IRError
from gluonjit.passes.minimum_cut import beyond_cut


def test_random_graphs():
    rand = random.Random(0)
    for _ in range(300):
        count = rand.randint(2, 9)
        edges = {
            (rand.randrange(count), rand.randrange(count)): rand.choice([0, 1, 1, 2, 3, 7, 10**12, math.inf])
            for _ in range(rand.randint(1, 3 * count))
        }
        edges = {(a, b): capacity for (a, b), capacity in edges.items() if a != b}
        graph = nx.DiGraph()
        graph.add_nodes_from(range(count))
        graph.add_edges_from((a, b, {"capacity": capacity}) for (a, b), capacity in edges.items())
        listed = [(a, b, capacity) for (a, b), capacity in edges.items()]
        try:
            value, (_, beyond) = nx.minimum_cut(graph, 0, 1)
        except nx.NetworkXUnbounded:
            with pytest.raises(IRError, match="infinite"):
                beyond_cut(listed, 0, 1)
            continue
        found = beyond_cut(listed, 0, 1)
        assert 1 in found and 0 not in found
        assert sum(capacity for a, b, capacity in listed if a not in found and b in found) == value
        assert found == set(beyond)


def test_a_long_chain():
    count = 20_000
    edges = [(k, k + 1, 5 if k == 12_345 else 6) for k in range(count)]
    assert beyond_cut(edges, 0, count) == set(range(12_346, count + 1))
