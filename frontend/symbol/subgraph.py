"""Graphs inside nodes: the bodies of `_foreach`, `_while_loop` and `_cond`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from gluonjit import attribute
from gluonjit.ir.graph import Builder, Loc, Value
from gluonjit.ir.types import TensorType
from gluonjit.operators import registry
from gluonjit.operators.registry import Operator
from gluonjit.operators.support import Shapes
from gluonjit.symbol.compose import make_node
from gluonjit.symbol.graph import Entry, Node, post_order
from gluonjit.symbol.lower import emit_nodes, stream_numbers
from gluonjit.symbol.shapes import solve_shapes

MARK = "__subgraph_name__"
"""The attribute of nodes that were made inside of a body, as MXNet writes it."""

_names: Counter[str] = Counter()


@contextmanager
def marked(name: str) -> Iterator[str]:
    """Marks the nodes created in this context as parts of a body; yields the body's unique name."""
    outer = attribute.current().get(None).get(MARK)
    full = f"{outer}${name}" if outer else name
    _names[full] += 1
    full += str(_names[full] - 1)
    with attribute.AttrScope(**{MARK: full}):
        yield full


class Subgraph:
    """A graph over its own variables, held by a node.

    * `heads`: its outputs; `inputs`: its variables, the last of which (`unread`) are not read.
    * `nodes`: its operators, inputs before users.
    * `modes`: operators that run in another mode than the node.

    `program` are the operators in program order, which numbers random streams; those that nothing uses may be among
    them, and count.
    """

    def __init__(
        self,
        heads: Sequence[Entry],
        unread: Sequence[Node] = (),
        program: Sequence[Node] | None = None,
        modes: Mapping[Node, bool] | None = None,
    ) -> None:
        self.heads = list(heads)
        order = post_order(self.heads)
        self.unread = list(unread)
        self.inputs = [*(node for node in order if node.op is None), *self.unread]
        self.nodes = [node for node in order if node.op is not None]
        self._program = self.nodes if program is None else list(program)
        self.modes = dict(modes or {})

    def without_unread(self) -> Subgraph:
        return Subgraph(self.heads, (), self._program, self.modes)

    def result_types(self, types: Sequence[TensorType]) -> list[TensorType]:
        """Types of the outputs for inputs of these types. IRError when an operator does not accept them."""
        table: dict[Entry, TensorType] = {(v, 0): t for v, t in zip(self.inputs, types, strict=True)}
        for node in self.nodes:
            assert node.op is not None
            results = node.op.infer([table[e] for e in node.inputs], node.parsed)
            table.update({(node, k): t for k, t in enumerate(results)})
        return [table[e] for e in self.heads]

    def complete(self, shapes: Shapes) -> Shapes:
        """The inputs' shapes, with what follows from the operators."""
        table = solve_shapes(self.heads, dict(zip(self.inputs, shapes, strict=True)))
        return [table.get((v, 0), s) for v, s in zip(self.inputs, shapes)]

    def draws(self, training: bool) -> int:
        """How many random streams it takes."""
        return stream_numbers(self._program, training, self.modes)[1]

    def emit(self, b: Builder, values: Sequence[Value]) -> list[Value]:
        """Appends its operators to a graph of level `traced`, on these values for its inputs; gives the outputs."""
        env: dict[Entry, Value] = {(v, 0): x for v, x in zip(self.inputs, values, strict=True)}
        streams, _ = stream_numbers(self._program, b.training, self.modes)
        emit_nodes(b, env, self.nodes, self.heads, streams, self.modes)
        return [env[e] for e in self.heads]


Origin = int | Entry
"""The origin of a body's input: the number of one of the variables passed to the body, or a captured entry."""


def cut(
    outputs: Sequence[Entry],
    variables: Sequence[Node],
    inside: Callable[[Node], bool],
    program: Sequence[Node] | None = None,
    modes: Mapping[Node, bool] | None = None,
) -> tuple[Subgraph, list[Origin]]:
    """A copy of the part of a graph that is `inside` a body, and the origin of each of its inputs.

    `variables` are what the body is given. Outputs are always those of operators: copies, where they would be inputs.
    `program` are the body's operators in program order, if that is known.
    """
    number = {v: k for k, v in enumerate(variables)}
    names = {v.name for v in variables}
    origins: dict[Node, Origin] = {}
    table: dict[Entry, Entry] = {}
    copies: dict[Node, Node] = {}

    def known(entry: Entry) -> Entry:
        """The entry in the copied graph; entries from outside become inputs."""
        if entry not in table:
            node, k = entry
            name = node.output_names[k]
            if node not in number:
                while name in names:
                    name += "_"
                names.add(name)
            new = Node(None, name, node.attrs if node.op is None else {})
            origins[new] = number.get(node, entry)
            table[entry] = new, 0
        return table[entry]

    for node in _post_order_within(outputs, lambda n: n.op is not None and inside(n)):
        new = Node(node.op, node.name, node.attrs, list(map(known, node.inputs)), node.parsed, node.loc)
        copies[node] = new
        table.update({(node, k): (new, k) for k in range(len(node.output_names))})
    heads = []
    for entry in outputs:
        head = known(entry)
        if head[0].op is None:
            head = Node(registry.get("_copy"), f"{head[0].name}_copy", {}, [head]), 0
        heads.append(head)
    unread = [known((v, 0))[0] for v in variables if (v, 0) not in table]
    # Operators that nothing uses are no part of the graph, but random ones among them count their streams.
    ordered = None if program is None else [copies.get(n, n) for n in program]
    graph = Subgraph(heads, unread, ordered, {copies.get(n, n): mode for n, mode in (modes or {}).items()})
    return graph, [origins[v] for v in graph.inputs]


def _post_order_within(outputs: Sequence[Entry], inside: Callable[[Node], bool]) -> list[Node]:
    """The nodes inside that the outputs need, inputs before users."""
    order: list[Node] = []
    seen: set[Node] = set()
    for head, _ in outputs:
        if head in seen or not inside(head):
            continue
        seen.add(head)
        stack = [(head, 0)]
        while stack:
            node, k = stack.pop()
            if k == len(node.inputs):
                order.append(node)
                continue
            stack.append((node, k + 1))
            child = node.inputs[k][0]
            if child not in seen and inside(child):
                seen.add(child)
                stack.append((child, 0))
    return order


def control_node(
    op: Operator, graphs: Sequence[Subgraph], inputs: Sequence[Entry], attrs: Mapping[str, Any], loc: Loc | None = None
) -> Node:
    """The node of an operator that holds these graphs."""
    raw = {key: str(value) for key, value in attrs.items()} | {"num_args": len(inputs) + len(graphs)}
    node = make_node(op, inputs, raw, hint=op.name, loc=loc, fill=False)
    node.parsed = with_graphs(node.parsed, graphs)
    return node


def with_graphs(parsed: Mapping[str, Any], graphs: Sequence[Subgraph]) -> dict[str, Any]:
    return {**parsed, "subgraphs": tuple(graphs)}
