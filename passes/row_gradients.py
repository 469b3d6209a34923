"""`row_gradients`: gradients of tables as the rows that were touched.

The gradient of a lookup adds rows to a table of zeros. Where a gradient of the joint graph is nothing but such
additions, its indices and rows are all that has to be computed; the table itself never exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gluonjit.ir.graph import Builder, Graph, Value, copy_ops


def row_gradients(graph: Graph, wanted: Sequence[int]) -> tuple[Graph, dict[int, int]]:
    """The joint graph with the gradients `wanted` (by number) as rows, and how many additions each of them is.

    Such a gradient becomes two outputs per addition: the indices (1, …) and the rows (…, the table's other axes).
    A gradient that is more than additions to zeros is left as it is.
    """
    primals = graph.attrs["primals"]
    terms = {k: found for k in wanted if (found := _additions(graph, graph.outputs[primals + k])) is not None}
    if not terms:
        return graph, {}
    b = Builder(graph.name, graph.level)
    env = {v: b.input(v.name, v.type) for v in graph.inputs}
    copy_ops(b, graph.ops, env)
    for state, new in graph.updates:
        b.update(env[state], env[new])
    outputs = [env[v] for v in graph.outputs[:primals]]
    for k, v in enumerate(graph.outputs[primals:]):
        for indices, rows in terms.get(k, ()):
            new = env[rows]
            outputs += [env[indices], new if new.dtype is v.dtype else b.cast(new, dtype=v.dtype)]
        if k not in terms:
            outputs.append(env[v])
    return replace(b.build(outputs), attrs=graph.attrs), {k: len(found) for k, found in terms.items()}


def _additions(graph: Graph, v: Value) -> list[tuple[Value, Value]] | None:
    """The (indices, rows) whose additions to zeros make `v`; None if it is made otherwise."""
    op = graph.producers.get(v)
    if op is None:
        return None
    if op.name == "scatter_add":
        table, indices, rows = op.operands
        before = _additions(graph, table)
        return None if before is None or indices.type.shape[0] != 1 else [*before, (indices, rows)]
    if op.name == "add":
        first, second = (_additions(graph, x) if x.type.shape == v.type.shape else None for x in op.operands)
        return None if first is None or second is None else [*first, *second]
    if op.name in ("broadcast", "reshape", "cast") and _is_zero(graph, op.operands[0]):
        return []
    if op.name == "cast" and op.operands[0].dtype.is_float:
        return _additions(graph, op.operands[0])
    return [] if _is_zero(graph, v) else None


def _is_zero(graph: Graph, v: Value) -> bool:
    op = graph.producers.get(v)
    if op is None:
        return False
    if op.name == "broadcast":
        return _is_zero(graph, op.operands[0])
    return op.name == "constant" and not np.any(np.asarray(op.attrs["value"]))
