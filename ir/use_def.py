"""A graph as a `networkx` graph, for questions that its algorithms answer: paths, ancestors, cuts, drawings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gluonjit.ir.graph import Graph


def use_def_graph(graph: Graph) -> Any:
    """A `networkx.MultiDiGraph` from producers to consumers: its nodes are the ops and those inputs (`Value`s) that are
    used, in the order of the graph. There is an edge for each operand, whose `value` it is and `operand` its number.

    What an op's region captures is among its operands, so regions have no nodes.
    """
    import networkx as nx

    found = nx.MultiDiGraph(name=graph.name)
    found.add_nodes_from(v for v in graph.inputs if graph.uses.get(v))
    found.add_nodes_from(graph.ops)
    for op in graph.ops:
        for k, v in enumerate(op.operands):
            found.add_edge(graph.producers.get(v, v), op, value=v, operand=k)
    return found
