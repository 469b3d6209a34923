"""Symbols to `-symbol.json`, character by character as MXNet 1.9.1 writes them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from gluonjit.files import atomic
from gluonjit.symbol.graph import Entry, Node, post_order
from gluonjit.symbol.json_upgrade import CURRENT
from gluonjit.util import is_np_shape

LONG = 10
"""Lists of more items have each on a line of its own."""


def write(path: str | os.PathLike[str], heads: Sequence[Entry], remove_amp_cast: bool = True) -> None:
    """Writes `text(heads)` to a file, which is replaced at once if it exists. MXNetError when that fails."""
    atomic.write(path, [text(heads, remove_amp_cast).encode()])


def text(heads: Sequence[Entry], remove_amp_cast: bool = True) -> str:
    """The JSON of the graph with these outputs; `remove_amp_cast` leaves out what automatic mixed precision put in.

    With NumPy's semantics of shapes (`np_shape`) the JSON says so: 0 in a shape is then a dimension of no elements.
    """
    if remove_amp_cast:
        heads = _without_amp_casts(heads)
    attrs = {"is_np_shape": '["int", 1]'} if is_np_shape() else {}
    attrs["mxnet_version"] = f'["int", {CURRENT}]'
    return _graph(post_order(heads), heads, 0, {"attrs": _object(attrs, 1, long=len(attrs) > 1)})


def _graph(order: Sequence[Node], heads: Sequence[Entry], depth: int, more: Mapping[str, str]) -> str:
    """A graph, whose nodes are listed in `order`; `more` are its last members."""
    number = {node: k for k, node in enumerate(order)}
    versions = _versions(order)
    nodes = []
    for node in order:
        edges = [(number[source], k, version) for (source, k), version in zip(node.inputs, versions[node])]
        members = {"op": _string(node.op.name if node.op else "null"), "name": _string(node.name)}
        if node.attrs:
            attrs = {key: _string(node.attrs[key]) for key in sorted(node.attrs, key=str.encode)}
            members["attrs"] = _object(attrs, depth + 3, long=len(attrs) > 1)
        members["inputs"] = _list(map(_edge, edges), depth + 3, long=len(edges) > LONG)
        if node.graphs:
            bodies = [_graph([*post_order(g.heads), *g.unread], g.heads, depth + 4, {}) for g in node.graphs]
            members["subgraphs"] = _list(bodies, depth + 3, long=True)
        nodes.append(_object(members, depth + 2))
    variables = [str(k) for k, node in enumerate(order) if node.op is None]
    rows = [str(n) for n in accumulate((len(node.output_names) for node in order), initial=0)]
    members = {
        "nodes": _list(nodes, depth + 1, long=True),
        "arg_nodes": _list(variables, depth + 1, long=len(variables) > LONG),
        "node_row_ptr": _list(rows, depth + 1, long=len(rows) > LONG),
        "heads": _list((_edge((number[node], k, 0)) for node, k in heads), depth + 1, long=len(heads) > LONG),
    }
    return _object({**members, **more}, depth)


def _versions(order: Iterable[Node]) -> dict[Node, Sequence[int]]:
    """The third number of every input's edge.

    MXNet counts the writes of operators to a variable: an operator that has it as auxiliary state creates a new
    version, which operators composed later read. Versions from a file are kept.
    """
    current: dict[Node, int] = {}
    versions: dict[Node, Sequence[int]] = {}
    for node in order:
        found = []
        aux = node.aux_inputs
        for k, (source, _) in enumerate(node.inputs):
            if source.op is None and k in aux:
                current[source] = current.get(source, 0) + 1
            found.append(current.get(source, 0))
        versions[node] = node.versions or found
    return versions


def _without_amp_casts(heads: Sequence[Entry]) -> Sequence[Entry]:
    """`heads` over a graph in which the users of a cast read its input; a cast that is an output itself stays."""
    order = post_order(heads)
    if not any(map(_is_amp_cast, order)):
        return heads
    renewed: dict[Node, Node] = {}
    source: dict[Entry, Entry] = {}
    for node in order:
        inputs = [source[e] for e in node.inputs]
        new = Node(node.op, node.name, node.attrs, inputs, node.parsed, node.loc, node.versions)
        renewed[node] = node if inputs == node.inputs else new
        for k in range(len(node.output_names)):
            source[node, k] = inputs[k] if _is_amp_cast(node) else (renewed[node], k)
    return [(renewed[node], k) for node, k in heads]


def _is_amp_cast(node: Node) -> bool:
    return node.op is not None and node.op.name in ("amp_cast", "amp_multicast")


# JSON. A long list or object has its items on lines of their own, at the depth given in steps of two spaces.


def _edge(edge: tuple[int, int, int]) -> str:
    return f"[{edge[0]}, {edge[1]}, {edge[2]}]"


def _list(items: Iterable[str], depth: int, long: bool) -> str:
    return _enclosed("[", "]", list(items), depth, long)


def _object(members: Mapping[str, str], depth: int, long: bool = True) -> str:
    return _enclosed("{", "}", [f"{_string(key)}: {value}" for key, value in members.items()], depth, long)


def _enclosed(opening: str, closing: str, items: Sequence[str], depth: int, long: bool) -> str:
    if not items or not long:
        return f"{opening}{', '.join(items)}{closing}"
    indent = "\n" + "  " * depth
    return f"{opening}{indent}  {f', {indent}  '.join(items)}{indent}{closing}"


_ESCAPES = str.maketrans({"\r": "\\r", "\n": "\\n", "\\": "\\\\", "\t": "\\t", '"': '\\"'})


def _string(value: str) -> str:
    return f'"{value.translate(_ESCAPES)}"'
