"""Whether a graph treats the rows of an open dimension, such as the samples of a batch, independently of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.ir.dims import Dim, named
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.primitives.movement import broadcast_dims
from gluonjit.ir.types import TensorType


def has_rows(t: TensorType, name: str) -> bool:
    """Whether `name` is the type's first extent, and appears in no other one."""
    return bool(t.shape) and t.shape[0] == named(name) and not any(_mentions(n, name) for n in t.shape[1:])


def is_free_of(t: TensorType, name: str) -> bool:
    """Whether no extent depends on `name`."""
    return not any(_mentions(n, name) for n in t.shape)


def keeps_rows(graph: Graph, name: str) -> bool:
    """Whether row r of each result, along the first axis, whose extent is `name`, depends on nothing but row r of the
    inputs that have such an axis, and on inputs whose types are free of `name`.

    False for what is not known to be so: only some primitives are looked into.
    """
    known = {v: has_rows(v.type, name) for v in graph.inputs}
    if not all(rows or is_free_of(v.type, name) for v, rows in known.items()):
        return False
    for op in graph.ops:
        if not _keeps(op, [known[v] for v in op.operands], name):
            return False
        known.update((r, has_rows(r.type, name)) for r in op.results)
    return not graph.updates and all(known[v] for v in graph.outputs)


def _keeps(op: Op, rows: Sequence[bool], name: str) -> bool:
    """Whether each result either has rows, each of which depends on the same row of the operands in `rows`, or does not
    depend on `name` at all."""
    if not all(has_rows(r.type, name) or is_free_of(r.type, name) for r in op.results):
        return False
    made = [has_rows(r.type, name) for r in op.results]
    if op.name == "fused":
        return all(made) and keeps_rows(op.regions[0], name)
    if op.regions or not op.definition.pure:
        return False
    if not any(rows) and not any(made):
        return not _mentions(op.attrs, name)
    if not all(made):
        return False
    rule = _RULES.get(op.name)
    if rule is None:
        return op.definition.elementwise and all(rows)
    return rule(op.operands, rows, op.attrs)


def _dot_general(operands: Sequence[Value], rows: Sequence[bool], attrs: Mapping[str, Any]) -> bool:
    contract, batch = attrs["contract"], attrs.get("batch") or ((), ())
    return list(rows) == [True, False] and 0 not in contract[0] and not batch[0]


def _broadcast(operands: Sequence[Value], rows: Sequence[bool], attrs: Mapping[str, Any]) -> bool:
    (x,) = operands
    axes = broadcast_dims(x.type.rank, attrs["shape"], attrs.get("dims"))
    return (0 in axes) == rows[0]


_RULES = {
    "broadcast": _broadcast,
    "concat": lambda operands, rows, attrs: all(rows) and attrs["axis"] != 0,
    "dot_general": _dot_general,
    "reduce": lambda operands, rows, attrs: all(rows) and 0 not in attrs["axes"],
    "reshape": lambda operands, rows, attrs: all(rows),
    "slice": lambda operands, rows, attrs: all(rows),  # both have all rows
    "transpose": lambda operands, rows, attrs: all(rows) and attrs["perm"][0] == 0,
}
"""When primitives that give rows keep them, by the operands, which of them have rows, and the attributes."""


def _mentions(x: Any, name: str) -> bool:
    if isinstance(x, Dim):
        return name in x.names
    if isinstance(x, Mapping):
        return any(_mentions(v, name) for v in x.values())
    return isinstance(x, (list, tuple)) and any(_mentions(v, name) for v in x)
