"""Inference of element types on untyped symbols, with no shapes known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.files.type_flags import TYPE_FLAGS
from gluonjit.ir import types
from gluonjit.ir.types import F16, F32, I8, DType, IRError, TensorType
from gluonjit.operators.low_precision.mkldnn import FusedNode
from gluonjit.operators.support import Shapes, to_one_dtype
from gluonjit.symbol.graph import Entry, Node, post_order
from gluonjit.symbol.shapes import PROBES

FREE_INPUTS = set("indices index index_vector condition shape_like length sequence_length".split())
"""Names of inputs whose element type is independent of the others': indices and lengths."""
SHAPE_ALONE = {"reshape_like": "rhs"}
"""Inputs from which operators take nothing but the shape, whatever their type."""

RANGE = re.compile("(^|_)(min|max)(_|$)")
"""Finds the inputs that are the least and the largest value of a quantized one: single numbers."""


def refine_types(node: Node, ins: list[DType | None], outs: list[DType | None]) -> tuple[list, list]:
    """Element types of a node's inputs and outputs, with no shapes known.

    Inputs and results of MXNet's operators have one common type, except for inputs that select elements, and results
    whose type is given by an attribute `dtype`. If all inputs are known, inference with probe shapes decides.
    """
    op, attrs = node.op, node.parsed
    assert op is not None
    names = op.input_names(attrs)
    if any(map(RANGE.search, names)) or isinstance(op, FusedNode):
        ins = op.operand_types(attrs, ins) if isinstance(op, FusedNode) else _quantized(names, ins)
        results = () if None in ins else _trial(node, ins)  # type: ignore[arg-type]
        return ins, [t or f for t, f in zip(outs, (*results, *[None] * len(outs)))]
    stated = _stated(attrs)
    if op.aux and ins[0] is F16:  # BatchNorm computes its statistics and parameters in float32
        ins = [ins[0], *(t or F32 for t in ins[1:])]
    # Embedding's `data` are indices, despite the name; the looked-up rows have the stated type.
    looked_up = stated is not None and "weight" in names
    free = {*FREE_INPUTS, SHAPE_ALONE.get(op.name, ""), "data" if looked_up else ""}
    tied = [k for k, name in enumerate(names) if name not in free]
    one = next((ins[k] for k in tied if ins[k] is not None), None)
    if looked_up:
        one = one or stated
    elif stated is None:
        one = one or next((t for t in outs if t is not None), None)
    ins = [(t or one) if k in tied else t for k, t in enumerate(ins)]
    if any(t is None for t in ins):
        found: Sequence[DType | None] = (stated or one,) * len(outs)
    else:
        found = _trial(node, ins)  # type: ignore[arg-type]
        for k in tied:
            if not found and ins[k] is not one:
                expected, got = one.numpy.name, ins[k].numpy.name  # type: ignore[union-attr]
                raise MXNetError(
                    f"Error in operator {node.name}: {op.name}: Incompatible attr in node {node.name} at {k}-th "
                    f"input: expected {expected}, got {got}{to_one_dtype(expected, got)}"
                )
        found = found or (stated or one,) * len(outs)
    return ins, [t or f for t, f in zip(outs, (*found, *[None] * len(outs)))]


def _quantized(names: Sequence[str], ins: Sequence[DType | None]) -> list[DType | None]:
    """Element types of the inputs of an operator on 8-bit integers: weights are int8, minima and maxima float32."""
    return [
        t or (F32 if RANGE.search(name) else I8 if name in ("weight", "bias") else None) for name, t in zip(names, ins)
    ]


def _stated(attrs: Mapping[str, Any]) -> DType | None:
    """The attribute `dtype` as a type; None if the operator has none, or it is not set."""
    value = attrs.get("dtype")
    return None if value is None else types.dtype(value)


_types: dict[Any, tuple[DType, ...]] = {}


def _trial(node: Node, ins: list[DType]) -> tuple[DType, ...]:
    """Result types of the operator, inferred with probe shapes; () if it accepts none of them, or not the types."""
    op, attrs = node.op, node.parsed
    assert op is not None
    key = (node.key, tuple(ins))
    if key not in _types:
        _types[key] = ()
        for rank in (2, 4, 3, 5, 1):
            shape = (PROBES[2],) * rank
            shapes: Shapes = [(1,) if RANGE.search(name) else shape for name in op.input_names(attrs)]
            try:
                if op.complete is not None:
                    shapes = op.complete(attrs, [shape, *[None] * (len(ins) - 1)])
                given = [TensorType(t, shape if s is None else s) for t, s in zip(ins, shapes)]
                _types[key] = tuple(t.dtype for t in op.infer(given, attrs))
                break
            except (IRError, MXNetError):
                continue  # not an operator of this rank
    return _types[key]


def solve_types(heads: Sequence[Entry], known: Mapping[Node, DType | None]) -> dict[Entry, DType | None]:
    """The element type of every entry, as far as it follows from those of the variables."""
    order = post_order(heads)
    table: dict[Entry, DType | None] = {}
    for node in order:
        if node.op is None:
            table[node, 0] = known.get(node) or declared_type(node)
        else:
            table.update({(node, k): None for k in range(len(node.output_names))})
    operators = [node for node in order if node.op is not None]
    changed = True
    while changed:
        changed = False
        for node in [*operators, *reversed(operators)]:
            outs = [(node, k) for k in range(len(node.output_names))]
            before = [table[e] for e in node.inputs], [table[e] for e in outs]
            after = refine_types(node, *before)
            if after != before:
                changed = True
                table.update(zip([*node.inputs, *outs], [*after[0], *after[1]]))
    return table


def declared_type(variable: Node) -> DType | None:
    """The `__dtype__` of a variable (MXNet's type flag); None when it has none."""
    flag = variable.attrs.get("__dtype__")
    names = {str(number): name for name, number in TYPE_FLAGS.items()}
    return types.dtype(names[flag]) if flag in names else None
