"""`autograd.get_symbol`: what was recorded, as a Symbol.

A node of the tape keeps what it ran, a graph of operators or one of them, and where its inputs come from
(`tape.Node.graph`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gluonjit.autodiff import tape
from gluonjit.base import MXNetError
from gluonjit.ir.graph import Graph, Value
from gluonjit.language.source import quote
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.variable import Variable
from gluonjit.operators.registry import OPERATORS, Operator
from gluonjit.symbol import Symbol
from gluonjit.symbol.compose import attr_string
from gluonjit.symbol.graph import Entry, Node


def recorded_symbol(x: NDArray) -> Symbol:
    """The graph that made `x`. Arrays with `attach_grad`, and others that were not recorded, are its variables, each
    once.

    MXNetError for an array that was not recorded, whose graph was freed by `backward`, or that was made by what is no
    graph of operators, such as `autograd.Function`.
    """
    state = x._grad_state
    if state is None:
        raise MXNetError("get_symbol: the NDArray is not part of a computation graph")
    nodes: dict[int, tape.Node] = {}
    waiting = [state]
    while waiting:
        source = waiting.pop()
        if source.__class__ is tape.Edge and source.node.number not in nodes:
            node = source.node
            nodes[node.number] = node
            if node.released:
                raise tape.freed(node)
            if node.graph is None:
                raise MXNetError(f"get_symbol: {node.name} is not a graph of operators{quote(node.loc)}")
            waiting.extend(node.states)
    made = _Symbols()
    for number in sorted(nodes):  # a node's inputs were made before it
        made.add(nodes[number])
    return Symbol([made.entry(state)])


class _Symbols:
    def __init__(self) -> None:
        self._variables: dict[Variable, Entry] = {}
        self._results: dict[int, list[Entry]] = {}
        """The results of each run, by the `id` of the sources of its inputs."""
        self._count = {"var": 0, "node": 0}

    def _name(self, kind: str) -> str:
        self._count[kind] += 1
        return f"{kind}{'_' if kind == 'node' else ''}{self._count[kind] - 1}"

    def _variable(self) -> Entry:
        return Node(None, self._name("var"), {}), 0

    def entry(self, state: Any) -> Entry:
        """Where an array comes from, in the symbol; a new variable for an array that nothing has made."""
        if state.__class__ is tape.Edge:
            return self._results[id(state.node.states)][state.number + state.node.first]
        if state is None:
            return self._variable()
        if state not in self._variables:
            self._variables[state] = self._variable()
        return self._variables[state]

    def add(self, node: tape.Node) -> None:
        if id(node.states) in self._results:
            return  # another node has other results of the same call
        inputs = [self.entry(state) for state in node.states]
        if isinstance(node.graph, Graph):
            results = self._of_graph(node, node.graph, inputs)
        else:
            operator, attrs = node.graph
            results = self._apply(operator, attrs, inputs)
        self._results[id(node.states)] = results

    def _of_graph(self, node: tape.Node, graph: Graph, inputs: list[Entry]) -> list[Entry]:
        found: dict[Value, Entry] = dict(zip(graph.inputs, inputs))
        for op in graph.ops:
            if op.name == "constant":
                found[op.results[0]] = self._variable()
                continue
            operator = OPERATORS.get(op.name.removeprefix("mx."))
            if op.regions or operator is None or not op.name.startswith("mx."):
                raise MXNetError(f"get_symbol: {node.name} is not a graph of operators: {op.name}{quote(node.loc)}")
            attrs = {key: value for key, value in op.attrs.items() if not key.startswith(".")}
            entries = self._apply(operator, attrs, [found[v] for v in op.operands])
            found.update(zip(op.results, entries))
        return [found[v] for v in graph.outputs]

    def _apply(self, op: Operator, attrs: Mapping[str, Any], inputs: list[Entry]) -> list[Entry]:
        given = {key: value for key, value in attrs.items() if value != op.attrs[key].default}
        strings = {key: attr_string(key, value) for key, value in given.items()}
        node = Node(op, self._name("node"), strings, inputs, attrs)
        return [(node, k) for k in range(len(node.output_names))]
