"""Applying an operator to symbols: attribute strings, automatic names and automatic variables, as MXNet makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit import attribute
from gluonjit import name as naming
from gluonjit.base import MXNetError, dtype_name
from gluonjit.ir.graph import Loc
from gluonjit.ir.types import DType
from gluonjit.operators.registry import Operator, cache_key
from gluonjit.symbol.graph import Entry, Node, hidden_keys


def attr_string(key: str, value: Any) -> str:
    """Attribute `key` as MXNet writes it: `str` of the Python value; for a dtype, NumPy's name."""
    if isinstance(value, DType):
        return value.numpy.name
    if key == "dtype" and value is not None and not isinstance(value, str):
        return dtype_name(value)
    return str(without_numpy(value))


def without_numpy(value: Any) -> Any:
    """NumPy scalars, also in tuples and lists, as Python's: MXNet cannot parse their `repr`."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([v if type(v) is int else without_numpy(v) for v in value])
    return value.item() if isinstance(value, np.generic) else value


def make_node(
    op: Operator,
    inputs: Sequence[Entry] | Mapping[str, Entry],
    raw: Mapping[str, Any],
    *,
    name: str | None = None,
    attr: Mapping[str, str] | None = None,
    hint: str | None = None,
    loc: Loc | None = None,
    fill: bool = True,
) -> Node:
    """The node `op(inputs)`; missing inputs become variables `<name>_<input>` that carry a copy of its attributes.

    `inputs` are in the operator's order, or by name. `hint` is the Python function's name, from which an automatic
    name is made. Without `fill`, missing inputs are an error. Raises MXNetError for attributes and input names that
    the operator does not have.
    """
    raw = hidden_keys({**raw, **attribute.current().get(attr)})
    if op.variadic and "num_args" in op.attrs and "num_args" not in raw:
        raw["num_args"] = len(inputs)
    attrs, parsed = _attributes(op, raw)
    names = op.input_names(parsed)
    if not fill:
        op.check_arity(len(inputs), parsed)
    if name is not None and not isinstance(name, str):  # a positional argument after the inputs
        raise MXNetError(f"{op.name} takes {', '.join(names)}; its name is a string, not a {type(name).__name__}")
    name = naming.current().get(name, (hint or op.name).lower())
    given = dict(inputs) if isinstance(inputs, Mapping) else _by_name(op, names, inputs)
    for key in given:
        if key not in names:
            raise MXNetError(not_found(key, names))
    entries = [
        given[key] if key in given else (Node(None, f"{name}_{key}" if name else key, attrs, loc=loc), 0)
        for key in names
    ]
    node = Node(op, name, attrs, entries, parsed, loc)
    initialize_variables(node)
    return node


_known: dict[Any, tuple[dict[str, str], dict[str, Any]]] = {}
"""Results of `_attributes`: nets repeat operators."""
_MOST = 4096


def _attributes(op: Operator, raw: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """An operator's attributes as strings, and parsed; not to be changed."""
    given = cache_key(raw)
    key = (op, given)
    found = _known.get(key) if given is not None else None
    if found is None:
        attrs = {k: attr_string(k, v) for k, v in raw.items()}
        # Parsed from the values, not from their strings: a float32 scalar keeps its exact value, as imperatively.
        found = attrs, op.parse({k: attrs[k] if k == "dtype" else v for k, v in raw.items()})
        if given is not None:
            if len(_known) >= _MOST:
                _known.clear()
            _known[key] = found
    return found


def initialize_variables(node: Node) -> None:
    """Sets the operator's initializers on those of a node's variables that have none."""
    if node.op is None or not node.op.initializers:
        return
    for name, (source, _) in zip(node.op.input_names(node.parsed), node.inputs):
        if source.op is None and name in node.op.initializers:
            source.attrs.setdefault("__init__", node.op.initializers[name])


def _by_name(op: Operator, names: Sequence[str], inputs: Sequence[Entry]) -> dict[str, Entry]:
    if len(inputs) > len(names):
        raise MXNetError(f"{op.name} takes {len(names)} inputs ({', '.join(names)}), got {len(inputs)}")
    return dict(zip(names, inputs))


def not_found(key: str, candidates: Sequence[str]) -> str:
    """MXNet's message for a keyword that names no input."""
    listed = "".join(f"\t[{k}]{c}\n" for k, c in enumerate(candidates))
    return f"Keyword argument name {key} not found.\nCandidate arguments:\n{listed}"
