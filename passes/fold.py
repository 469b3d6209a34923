"""`fold`: constant folding, by the primitives' own NumPy reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gluonjit.ir.dims import Dim
from gluonjit.ir.graph import Builder, Graph, Op, Value, rewrite
from gluonjit.ir.interpreter import evaluate_op
from gluonjit.ir.opdef import Primitive
from gluonjit.passes.dce import is_pure
from gluonjit.passes.manager import register_pass


@register_pass("fold")
def fold(graph: Graph, *, limit: int = 2**20) -> Graph:
    """Computes ops whose operands are all known, into constants of at most `limit` bytes or their operands' size.

    `iota`, `broadcast` and movement of these are known, too, but stay as they are: a constant in their place would
    have to be loaded. What is computed from them is folded. Random numbers are never known.
    """
    known: dict[Value, np.ndarray] = {}
    cheap: set[Value] = set()
    """Known values that a kernel finds by index arithmetic."""

    folded: dict[Op, Sequence[np.ndarray]] = {}
    for op in graph.ops:
        if op.name == "constant":
            known[op.result] = op.attrs["value"]
            continue
        if not all(v in known for v in op.operands):
            continue
        if not isinstance(op.definition, Primitive) or not is_pure(op) or not _is_static(op):
            continue
        stored = sum(v.type.nbytes for v in op.operands if v not in cheap)
        if sum(r.type.nbytes for r in op.results) > max(limit, stored):
            continue
        values = evaluate_op(op, [known[v] for v in op.operands])
        known.update(zip(op.results, values))
        if op.definition.moves == "affine" and (stored == 0 or op.name == "broadcast"):
            cheap.update(op.results)
        else:
            folded[op] = values

    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        return [b.constant(value) for value in folded[op]] if op in folded else None

    return rewrite(graph, rule) if folded else graph


def _is_static(op: Op) -> bool:
    """Whether no result depends on an open extent."""
    return all(r.type.is_static for r in op.results) and not isinstance(op.attrs.get("of"), Dim)
