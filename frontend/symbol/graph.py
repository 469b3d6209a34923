"""The user's graph: nodes, the entries (outputs of nodes) that symbols refer to, and walks over them.

Nodes are untyped: operator, attributes as they were passed, inputs. Types come from `infer` or from tracing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.ir.graph import Loc
from gluonjit.ir.opdef import attr_key
from gluonjit.operators.registry import Operator

HIDDEN_KEYS = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage", "profiler_scope")
"""Attributes for which MXNet accepts both `key` and `__key__`; they are stored as the latter."""

DETACHED = "__detached__"
"""The attribute of a `BlockGrad` that stands for `x.detach()`: its result counts as one that was never recorded, and
the variables before it as unreachable. MXNet, which ignores the attribute, takes their gradient for 0."""

STORAGE_TYPES = {"undefined": -1, "default": 0, "row_sparse": 1, "csr": 2}
"""How a variable's attribute `__storage_type__` numbers the layouts."""


class Node:
    """A variable (`op` is None) or the application of an operator.

    * `attrs`: what was passed, as MXNet would write it: strings; no defaults. User attributes are `__like_this__`.
    * `parsed`: the operator's attributes with defaults, in canonical Python form; {} for a variable.
    * `inputs`: entries, in the operator's order.
    * `versions`: the version that a file gives each input (see `symbol.json_writer`); () for a node from no file.
    * `loc`: where in the user's program it was made, while tracing.
    """

    __slots__ = ("_key", "attrs", "inputs", "loc", "name", "op", "parsed", "versions")

    def __init__(
        self,
        op: Operator | None,
        name: str,
        attrs: Mapping[str, str],
        inputs: Iterable[Entry] = (),
        parsed: Mapping[str, Any] | None = None,
        loc: Loc | None = None,
        versions: tuple[int, ...] = (),
    ) -> None:
        self.op = op
        self.name = name
        self.attrs = dict(attrs)
        self.inputs = list(inputs)
        self.parsed: Mapping[str, Any] = parsed if parsed is not None else op.parse(attrs, name) if op else {}
        self.loc = loc
        self.versions = versions
        self._key: Any = None

    @property
    def key(self) -> Any:
        """Hashable; equal for applications of the same operator with the same attributes."""
        if self._key is None:
            self._key = (self.op, attr_key(tuple(sorted(self.parsed.items()))))
        return self._key

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of all outputs, hidden ones last."""
        if self.op is None:
            return (self.name,)
        prefix = f"{self.name}_" if self.name else ""
        return tuple(prefix + name for name in self.op.outputs(self.parsed))

    @property
    def visible(self) -> int:
        """The number of outputs that users see."""
        if self.op is None:
            return 1
        return self.op.visible(self.parsed) if self.op.visible else len(self.op.outputs(self.parsed))

    @property
    def graphs(self) -> Sequence[Any]:
        """The operator's subgraphs (`symbol.subgraph.Subgraph`)."""
        return self.parsed.get("subgraphs", ())

    @property
    def aux_inputs(self) -> tuple[int, ...]:
        """Positions of the inputs that are auxiliary states."""
        names = self.op.aux_names(self.parsed) if self.op else ()
        if not self.op or not names:
            return ()
        return tuple(k for k, name in enumerate(self.op.input_names(self.parsed)) if name in names)

    def __repr__(self) -> str:
        return f"<Node {self.op.name if self.op else 'null'} {self.name}>"


Entry = tuple[Node, int]
"""Output `index` of a node."""


def post_order(heads: Iterable[Entry]) -> list[Node]:
    """Every node that `heads` need, inputs before users, in the order in which MXNet lists and saves them."""
    order: list[Node] = []
    seen: set[Node] = set()
    for head, _ in heads:
        stack: list[tuple[Node, int]] = [(head, 0)] if head not in seen else []
        seen.add(head)
        while stack:  # an explicit stack: chains are longer than Python's recursion limit
            node, k = stack.pop()
            if k < len(node.inputs):
                stack.append((node, k + 1))
                child = node.inputs[k][0]
                if child not in seen:
                    seen.add(child)
                    stack.append((child, 0))
            else:
                order.append(node)
    return order


def variables(heads: Iterable[Entry]) -> tuple[list[Node], list[Node]]:
    """(arguments, auxiliary states) among the variables that `heads` need, each in order."""
    order = post_order(heads)
    aux = {node.inputs[k][0] for node in order for k in node.aux_inputs}
    leaves = [node for node in order if node.op is None]
    return [n for n in leaves if n not in aux], [n for n in leaves if n in aux]


def devices_of(heads: Iterable[Entry], groups: Mapping[str, Any], default: Any) -> dict[Node, Any]:
    """The context of each node, by its `ctx_group`. An operator without a group follows its first input that has a
    context, or else what uses it."""
    order = post_order(heads)
    found = {n: groups[g] for n in order if (g := str(n.attrs.get("__ctx_group__"))) in groups}
    for node in order:
        given = next((found[n] for n, _ in node.inputs if n in found), None)
        if given is not None:
            found.setdefault(node, given)
    for node in reversed(order):
        if node in found:
            for n, _ in node.inputs:
                if n.op is not None:
                    found.setdefault(n, found[node])
    return {n: found.get(n, default) for n in order}


def copy_graph(heads: Sequence[Entry], replace: Mapping[Node, Entry] | None = None) -> list[Entry]:
    """`heads` over copies of their nodes, with variables replaced as `replace` says."""
    table: dict[Node, Node] = {}
    replace = replace or {}

    def entry(e: Entry) -> Entry:
        return replace[e[0]] if e[0] in replace else (table[e[0]], e[1])

    for node in post_order(heads):
        inputs = map(entry, node.inputs)
        table[node] = Node(node.op, node.name, node.attrs, inputs, node.parsed, node.loc, node.versions)
    return [entry(e) for e in heads]


def hidden_keys(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """`attrs` with `lr_mult` and its like spelled `__lr_mult__`; MXNetError for the old `weight_lr_mult`."""
    out = {}
    for key, value in attrs.items():
        if key.endswith(HIDDEN_KEYS) and not key.startswith("__"):
            hidden = next(hidden for hidden in HIDDEN_KEYS if key.endswith(hidden))
            if key == hidden:
                key = f"__{key}__"
            elif key.endswith("_" + hidden):
                argument = key[: -len(hidden) - 1]
                raise MXNetError(
                    f"setting variable attributes with {key} is deprecated. please instead use\n"
                    f"w = Variable({hidden}={value})\nsym = YourSymbolName({argument}=w)"
                )
        out[key] = value
    return out


def shown_attrs(node: Node) -> dict[str, str]:
    """A node's attributes as `list_attr` shows them: hidden keys under both spellings."""
    out = dict(node.attrs)
    for hidden in HIDDEN_KEYS:
        if f"__{hidden}__" in out:
            out[hidden] = out[f"__{hidden}__"]
    return out
