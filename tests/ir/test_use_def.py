"""`Graph.use_def`: the edges are the operands, and networkx's algorithms apply."""

import networkx as nx

from gluonjit.ir.text import parse_graph

TEXT = """
graph @g(%x: f32[4], %unused: f32[4]) {
  %a: f32[4] = mul(%x, %x)
  %b: f32[4] = exp(%a)
  %c: f32[4] = sub(%a, %b)
  return %c
}
"""


def test_edges_are_operands():
    graph = parse_graph(TEXT)
    found = graph.use_def()
    mul, exp, sub = graph.ops
    assert [*found] == [graph.inputs[0], mul, exp, sub]
    edges = [(a, b, data["operand"], data["value"]) for a, b, data in found.edges(data=True)]
    x = graph.inputs[0]
    expected = [(x, mul, 0, x), (x, mul, 1, x), (mul, exp, 0, mul.result)]
    expected += [(mul, sub, 0, mul.result), (exp, sub, 1, exp.result)]
    assert edges == expected


def test_algorithms_apply():
    graph = parse_graph(TEXT)
    assert nx.dag_longest_path(graph.use_def()) == [graph.inputs[0], *graph.ops]
