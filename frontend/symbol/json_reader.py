"""MXNet's `-symbol.json` files to Symbols.

    {"nodes": [{"op", "name", "attrs", "inputs": [[node, output, version], …]}, …],
     "arg_nodes": [node, …], "node_row_ptr": […], "heads": [[node, output, version], …],
     "attrs": {"mxnet_version": ["int", 10901]}}

A variable's op is "null". Attributes are strings, without defaults; early versions call them `attr`, and 0.8 keeps the
operator's own ones separately, as `param`. `node_row_ptr`, the version of an edge and the graph's attributes may be
missing. `json_upgrade` says what a file of an early version means. Loops and branches hold graphs, without attributes,
as `subgraphs`.

A file is checked whole: keys, types, indices, heads, operators, their attributes and how many inputs they have. Inputs
come before their users, so that no cycle is possible.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from gluonjit.base import CheckpointError, MXNetError
from gluonjit.files import array_names, json_file
from gluonjit.files.array_names import shown
from gluonjit.files.json_file import brief
from gluonjit.operators import registry
from gluonjit.operators.control.loops_and_branches import ControlFlow
from gluonjit.symbol import json_upgrade
from gluonjit.symbol.graph import Entry, Node, post_order
from gluonjit.symbol.json_upgrade import Record
from gluonjit.symbol.shapes import written_shape
from gluonjit.symbol.subgraph import Subgraph
from gluonjit.util import is_np_shape

MAX_DEPTH = 16
"""How deep graphs may be nested."""

MAX_OUTPUTS = 1 << 20
"""Limit for operators whose number of outputs is an attribute: every output has a name, which takes time and memory."""

PYTHON_OPERATORS = {"Custom", "_Native", "_NDArray"}
"""Operators that the saving program wrote in Python: a file has no code for them, and never runs any."""

GRAPH_KEYS = {"nodes": True, "arg_nodes": True, "heads": True, "node_row_ptr": False, "attrs": False}
NODE_KEYS = {"op": True, "name": True, "inputs": True}
NODE_KEYS |= dict.fromkeys(("attrs", "attr", "param", "control_deps", "subgraphs", "backward_source_id"), False)
"""Known keys, and whether they are required."""


def read(path: str | os.PathLike[str]) -> Sequence[Entry]:
    """The outputs of the graph in a file. CheckpointError for a malformed one, MXNetError if it cannot be read."""
    return parse(json_file.read(path), os.fspath(path))


def parse(text: str | bytes, name: str) -> Sequence[Entry]:
    """`read` for the file's contents; `name` is for messages."""
    return _Reader(name).outputs(text)


class Summary(NamedTuple):
    """The contents of a graph, without its edges and attributes."""

    version: int
    """The MXNet that wrote it, as 10901 for 1.9.1."""
    nodes: int
    operators: dict[str, int]
    """How many nodes each operator has, under the name that it has here."""
    unknown: dict[str, list[str]]
    """The names of nodes of unknown operators, by operator."""
    variables: list[str]
    heads: list[str]
    """The names of the nodes whose outputs are the graph's."""


def summary(path: str | os.PathLike[str]) -> Summary:
    """The summary of a file, whose operators may be unknown. CheckpointError if it is not a graph."""
    reader = _Reader(os.fspath(path))
    graph = reader.mapping(json_file.decode(json_file.read(path), reader.name, "a graph"), "the graph", GRAPH_KEYS)
    operators: dict[str, int] = defaultdict(int)
    unknown: dict[str, list[str]] = defaultdict(list)
    count = 0
    for op, name in reader.operators(graph):
        count += 1
        if op == "null":
            continue
        try:
            here = None if op in PYTHON_OPERATORS else registry.get(json_upgrade.OPERATORS.get(op, op)).name
        except MXNetError:
            here = None
        if here is None:
            unknown[op].append(name)
        operators[here or op] += 1
    nodes = graph["nodes"]
    variables = [node["name"] for node in nodes if node["op"] == "null"]
    edges = enumerate(reader.list(graph["heads"], "heads"))
    heads = [nodes[reader.edge(value, f"heads[{k}]", len(nodes))[0]]["name"] for k, value in edges]
    return Summary(reader.version(graph), count, dict(operators), dict(unknown), variables, heads)


def _reword_unknown(heads: Sequence[Entry]) -> None:
    """Translates the declared shapes of a graph that was written without `np_shape` to shapes under `np_shape`.

    Without it, 0 is an unknown dimension, which is -1 here, and () an unknown rank.
    """
    for node in post_order(heads):
        shape = written_shape(node) if node.op is None else None
        if shape == ():
            del node.attrs["__shape__"]
        elif shape is not None and 0 in shape:
            node.attrs["__shape__"] = str(tuple(n or -1 for n in shape))


class _Reader:
    """Checks a graph on its way from JSON. `where` in its methods names a part in messages."""

    def __init__(self, name: str, outer: _Reader | None = None) -> None:
        self.name = name
        self.depth: int = outer.depth + 1 if outer else 0
        """How many graphs enclose this one."""
        self.visible: dict[Node, int] = {}
        """The number of outputs of each node, kept because counting takes time and there may be many edges."""
        self.outputs_left: int = outer.outputs_left if outer else MAX_OUTPUTS

    def fail(self, where: str, found: str, expected: str) -> NoReturn:
        raise CheckpointError(f"{self.name}: {where}: {found}; expected {expected}")

    # JSON

    def outputs(self, text: str | bytes) -> Sequence[Entry]:
        graph = self.mapping(json_file.decode(text, self.name, "a graph"), "the graph", GRAPH_KEYS)
        heads = self.graph(graph, self.version(graph))[0]
        if is_np_shape() and not self.np_shape(graph):
            _reword_unknown(heads)
        return heads

    def mapping(self, value: Any, where: str, keys: Mapping[str, bool]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.fail(where, brief(value), "an object")
        for key in value:
            if key not in keys:
                self.fail(where, f"unknown key {brief(key)}", ", ".join(keys))
        needed = [key for key, required in keys.items() if required]
        for key in needed:
            if key not in value:
                self.fail(where, f'Missing field "{key}"', ", ".join(needed))
        return value

    def string(self, value: Any, where: str) -> str:
        if not isinstance(value, str):
            self.fail(where, brief(value), "a string")
        if found := array_names.fault(value):
            self.fail(where, f"{brief(value)}, which has {found}", "none")
        return value

    def list(self, value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            self.fail(where, brief(value), "a list")
        return value

    def index(self, value: Any, where: str, end: int | None, what: str) -> int:
        """An integer that is at least 0 and, if `end` is given, below it."""
        if type(value) is not int or value < 0 or end is not None and value >= end:
            limit = "" if end is None else f" below {end}"
            self.fail(where, f"{what} {brief(value)}", f"an integer from 0{limit}")
        return value

    def edge(self, value: Any, where: str, end: int) -> tuple[int, int, int]:
        """(node, output, version): the node's number is below `end`."""
        parts = self.list(value, where)
        if len(parts) not in (2, 3):
            self.fail(where, brief(value), "[node, output] or [node, output, version]")
        node = self.index(parts[0], where, end, "node")
        output = self.index(parts[1], where, None, "output")
        return node, output, self.index(parts[2], where, None, "version") if len(parts) == 3 else 0

    # Graph

    def graph(self, graph: Mapping[str, Any], version: int) -> tuple[Sequence[Entry], Sequence[Node]]:
        """(heads, every node) of a graph written by MXNet `version`."""
        nodes = self.list(graph["nodes"], "nodes")
        records = [self.record(value, k, version) for k, value in enumerate(nodes)]
        for k, value in enumerate(self.list(graph["arg_nodes"], "arg_nodes")):
            node = self.index(value, f"arg_nodes[{k}]", len(nodes), "node")
            if records[node].op is not None:
                self.fail(f"arg_nodes[{k}]", records[node].title, "a variable")
        for k, value in enumerate(self.list(graph.get("node_row_ptr", []), "node_row_ptr")):
            self.index(value, f"node_row_ptr[{k}]", None, "position")
        heads = self.list(graph["heads"], "heads")
        if not heads:
            self.fail("heads", "none", "at least one")
        outputs = [self.edge(value, f"heads[{k}]", len(nodes)) for k, value in enumerate(heads)]
        try:
            json_upgrade.fix_attributes(records, version)
        except MXNetError as e:
            raise CheckpointError(f"{self.name}: {e}") from e
        built: list[Node] = []
        for record in records:
            built.append(self.node(record, built, version))
        json_upgrade.complete_variables(built, version)
        return [self.entry(edge, built, f"heads[{k}]") for k, edge in enumerate(outputs)], built

    def inner(self, name: str) -> _Reader:
        """The reader of a subgraph."""
        if self.depth == MAX_DEPTH:
            self.fail(name, f"a graph within {MAX_DEPTH + 1}", f"at most {MAX_DEPTH}")
        return _Reader(f"{self.name}: {name}", self)

    def body(self, value: Any, name: str, version: int) -> Subgraph:
        reader = self.inner(name)
        heads, nodes = reader.graph(reader.mapping(value, "the graph", GRAPH_KEYS), version)
        self.outputs_left = reader.outputs_left
        used = set(post_order(heads))
        return Subgraph(heads, [node for node in nodes if node.op is None and node not in used])

    def operators(self, graph: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """(operator, name) of every node, also of the graphs within."""
        for k, value in enumerate(self.list(graph["nodes"], "nodes")):
            node = self.mapping(value, f"node {k}", NODE_KEYS)
            yield self.string(node["op"], f"node {k}: op"), self.string(node["name"], f"node {k}: name")
            for j, body in enumerate(self.list(node.get("subgraphs", []), f"node {k}: subgraphs")):
                reader = self.inner(f"node {k}: subgraphs[{j}]")
                yield from reader.operators(reader.mapping(body, "the graph", GRAPH_KEYS))

    def version(self, graph: Mapping[str, Any]) -> int:
        """The MXNet that wrote the file, as 10901 for 1.9.1."""
        attrs = graph.get("attrs", {})
        if not isinstance(attrs, dict):
            self.fail("attrs", brief(attrs), "an object")
        stated = attrs.get("mxnet_version", ["int", json_upgrade.OLDEST])
        if not (isinstance(stated, list) and len(stated) == 2 and stated[0] == "int" and type(stated[1]) is int):
            self.fail("attrs", f"mxnet_version {brief(stated)}", '["int", number]')
        return stated[1]

    def np_shape(self, graph: Mapping[str, Any]) -> bool:
        """Whether 0 in a shape means no elements, instead of an unknown dimension."""
        stated = graph.get("attrs", {}).get("is_np_shape", ["int", 0])
        if not (isinstance(stated, list) and len(stated) == 2 and stated[0] == "int" and type(stated[1]) is int):
            self.fail("attrs", f"is_np_shape {brief(stated)}", '["int", 1]')
        return bool(stated[1])

    def record(self, value: Any, number: int, version: int) -> Record:
        where = f"node {number}"
        node = self.mapping(value, where, NODE_KEYS)
        for key in ("op", "name"):
            self.string(node[key], f"{where}: {key}")
        name = node["name"]
        where = f"{where} ({name!r})"
        attrs: dict[str, str] = {}
        for key in ("param", "attrs", "attr"):  # of two that say different, the last counts
            attrs.update(self.strings(node.get(key, {}), f"{where}: {key}"))
        if self.list(node.get("control_deps", []), f"{where}: control_deps"):
            self.fail(where, "control_deps, which are not supported", "none")
        bodies = self.list(node.get("subgraphs", []), f"{where}: subgraphs")
        edges = self.list(node["inputs"], f"{where}: inputs")
        inputs = [self.edge(edge, f"{where}: inputs[{k}]", number) for k, edge in enumerate(edges)]
        if node["op"] == "null":
            if inputs:
                self.fail(where, f"a variable with {len(inputs)} inputs", "none")
            if bodies:
                self.fail(where, f"a variable with {len(bodies)} subgraphs", "none")
            return Record(number, None, name, attrs, inputs)
        failed = f"{self.name}: {where}: Failed loading Op {shown(name)} of type {shown(node['op'])}"
        if node["op"] in PYTHON_OPERATORS:
            raise CheckpointError(f"{failed}: it was written in Python, and files of graphs have no code")
        try:
            op = registry.get(json_upgrade.OPERATORS.get(node["op"], node["op"]))
        except MXNetError as e:
            raise CheckpointError(f"{failed}: {e}") from e
        expected = op.graphs if isinstance(op, ControlFlow) else 0
        if len(bodies) != expected:
            self.fail(where, f"{len(bodies)} subgraphs of {op.name}", str(expected or "none"))
        graphs = [self.body(body, f"{where}: subgraphs[{k}]", version) for k, body in enumerate(bodies)]
        return Record(number, op, name, attrs, inputs, graphs)

    def strings(self, value: Any, where: str) -> dict[str, str]:
        if not isinstance(value, dict):
            self.fail(where, brief(value), "an object")
        for key, text in value.items():
            if not isinstance(text, str):
                self.fail(where, f"{key} is {brief(text)}", "a string")
        return value

    def node(self, record: Record, built: Sequence[Node], version: int) -> Node:
        where = record.title
        entries = [self.entry(edge, built, f"{where}: inputs[{k}]") for k, edge in enumerate(record.inputs)]
        if record.op is None:
            return Node(None, record.name, record.attrs)
        try:
            parsed, names = record.signature()
        except MXNetError as e:
            raise CheckpointError(f"{self.name}: {e}") from e
        for count in (parsed.get("num_outputs"), parsed.get("sections")):
            if isinstance(count, int):
                if not 0 <= count <= self.outputs_left:
                    self.fail(where, f"{count} outputs of {record.op.name}", f"at most {self.outputs_left}")
                self.outputs_left -= count
        if version < json_upgrade.WITHOUT_AUX:
            entries += [(node, 0) for node in json_upgrade.missing_variables(record, names)]
        if len(entries) != len(names):
            self.fail(where, f"{len(entries)} inputs of {record.op.name}", f"{len(names)} ({', '.join(names)})")
        versions = (*(edge[2] for edge in record.inputs), *[0] * (len(entries) - len(record.inputs)))
        return Node(record.op, record.name, record.attrs, entries, parsed, versions=versions)

    def entry(self, edge: tuple[int, int, int], built: Sequence[Node], where: str) -> Entry:
        source = built[edge[0]]
        if source not in self.visible:
            self.visible[source] = source.visible
        self.index(edge[1], where, self.visible[source], f"node {edge[0]} ({source.name!r}), output")
        return source, edge[1]
