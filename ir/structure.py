"""When two ops, or two graphs, say the same: keys that ignore names, locations and arena offsets."""

from __future__ import annotations

from collections.abc import Hashable
from weakref import WeakKeyDictionary

from gluonjit.ir.annotations import WORKSPACE_OFFSET
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.opdef import attr_key

_OFFSET = WORKSPACE_OFFSET.name


def op_key(op: Op) -> Hashable:
    """Equal for ops that compute the same function of their operands in the same way (annotations included, but for
    where in the arena their workspace lies)."""
    return tuple([v.type for v in op.operands]), _what(op)


def _what(op: Op) -> Hashable:
    """`op_key` of an op whose operands' types are known."""
    return (
        op.name,
        tuple([v.type for v in op.results]),
        tuple([(k, attr_key(v)) for k, v in sorted(op.attrs.items()) if k != _OFFSET]) if op.attrs else (),
        tuple([region_key(region) for region in op.regions]) if op.regions else (),
    )


def region_key(region: Graph) -> Hashable:
    """`graph_key`, which is asked for at each call of a function."""
    found = _keys.get(region)
    if found is None:
        found = _keys[region] = graph_key(region)
    return found


_keys: WeakKeyDictionary[Graph, Hashable] = WeakKeyDictionary()


def graph_key(graph: Graph) -> Hashable:
    """Equal for graphs that are the same up to names, locations and offsets."""
    number: dict[Value, int] = {}
    for v in graph.inputs:
        number[v] = len(number)
    ops = []
    for op in graph.ops:
        ops.append((_what(op), tuple([number[v] for v in op.operands])))
        for r in op.results:
            number[r] = len(number)
    return (
        tuple([v.type for v in graph.inputs]),
        tuple(ops),
        tuple(number[v] for v in graph.outputs),
        tuple((number[s], number[v]) for s, v in graph.updates),
        graph.level,
    )
