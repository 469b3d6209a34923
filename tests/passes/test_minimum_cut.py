"""The minimum cut equals that of networkx, which also takes the one nearest to the sink."""

import random

import networkx as nx
import pytest

from gluonjit.passes.minimum_cut import SINK, SOURCE, Network


def network(arcs):
    """The network with these (tail, head, capacity), which is None for arcs that are never cut."""
    made = Network()
    for _ in range(max((max(a, b) for a, b, _ in arcs), default=SINK) - SINK):
        made.node()
    for arc in arcs:
        made.arc(*arc)
    return made


def by_networkx(arcs):
    graph = nx.DiGraph()
    graph.add_nodes_from((SOURCE, SINK))
    for a, b, capacity in arcs:
        graph.add_edge(a, b, **({} if capacity is None else {"capacity": capacity}))
    try:
        return nx.minimum_cut(graph, SOURCE, SINK)[1][1]
    except nx.NetworkXUnbounded:
        return None


def test_random_networks():
    cut = unbounded = 0
    for seed in range(300):
        r = random.Random(seed)
        nodes = r.randint(2, 30)
        ends = {(r.randrange(nodes), r.randrange(nodes)) for _ in range(r.randint(0, 90))}
        arcs = [(a, b, r.choice([None, *range(6)])) for a, b in sorted(ends) if a not in (b, SINK) and b != SOURCE]
        expected = by_networkx(arcs)
        if expected is None:
            unbounded += 1
            with pytest.raises(ValueError, match="can be cut"):
                network(arcs).behind_the_cut()
            continue
        found = {k for k, behind in enumerate(network(arcs).behind_the_cut()) if behind}
        assert found == expected, seed
        cut += any(expected - {SINK})
    assert cut > 50 and unbounded > 10


def test_of_equal_cuts_the_one_nearest_to_the_sink():
    found = network([(SOURCE, 2, 3), (2, 3, 3), (3, SINK, 3)]).behind_the_cut()
    assert found == [False, True, False, False]


def test_flow_is_taken_back():
    """The first shortest path blocks both others, unless part of its flow returns."""
    arcs = [(SOURCE, 2, 1), (SOURCE, 3, 1), (2, 5, 1), (2, 4, 1), (3, 5, 1), (4, SINK, 1), (5, SINK, 1)]
    expected = by_networkx(arcs)
    assert {k for k, behind in enumerate(network(arcs).behind_the_cut()) if behind} == expected
