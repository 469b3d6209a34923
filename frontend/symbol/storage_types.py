"""The storage types of a symbol's values and gradients, by those of its variables, as MXNet infers them.

They decide which arrays `simple_bind` and `Module.bind` make. What an operator then computes is decided in
`ndarray/sparse_operators.py`, whose rules make arrays of these types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gluonjit.ndarray import sparse_operators
from gluonjit.operators.registry import Operator
from gluonjit.symbol.graph import STORAGE_TYPES, Entry, Node, post_order

DEFAULT, ROWS, CSR = "default", "row_sparse", "csr"
Types = Sequence[str]

_NAMES = {str(number): name for name, number in STORAGE_TYPES.items()}


def declared_storage(node: Node, given: Mapping[str, str]) -> str:
    """The storage type of a variable's array: as given by name, or as `Variable(stype=…)` says."""
    found = given.get(node.name) or _NAMES.get(node.attrs.get("__storage_type__", ""), DEFAULT)
    return DEFAULT if found == "undefined" else found


def storage_types(heads: Sequence[Entry], given: Mapping[Node, str]) -> dict[Entry, str]:
    """The storage type of every entry; `given`: those of the variables that are not dense."""
    table: dict[Entry, str] = {}
    for node in post_order(heads):
        if node.op is None:
            table[node, 0] = given.get(node, DEFAULT)
            continue
        count = len(node.op.outputs(node.parsed))
        first = _result(node.op, node.parsed, [table[e] for e in node.inputs]) if count == 1 else DEFAULT
        table.update({(node, k): first for k in range(count)})
    return table


def gradient_storage(heads: Sequence[Entry], table: Mapping[Entry, str], wanted: Iterable[Node]) -> dict[Node, str]:
    """The storage types of the gradients by variables, where they are not dense. The cotangent of a head has its
    storage type; a sum is sparse if all its terms are, in the same way."""
    if not any(table[e] != DEFAULT or _looks_up(e[0]) for e in table):
        return {}
    terms: dict[Entry, set[str]] = {}
    for head in heads:
        terms.setdefault(head, set()).add(table[head])
    for node in reversed(post_order(heads)):
        found = [
            terms.get((node, k), set()) for k in range(1 if node.op is None else len(node.op.outputs(node.parsed)))
        ]
        if node.op is None or not any(found):
            continue
        ins = [table[e] for e in node.inputs]
        gradients = (
            _gradients(node.op, node.parsed, ins, _common(found[0])) if len(found) == 1 else [DEFAULT] * len(ins)
        )
        for e, stype in zip(node.inputs, gradients):
            terms.setdefault(e, set()).add(stype)
    return {n: _common(terms[n, 0]) for n in wanted if (n, 0) in terms and _common(terms[n, 0]) != DEFAULT}


def _looks_up(node: Node) -> bool:
    return node.op is not None and (node.op.name == "_contrib_SparseEmbedding" or bool(node.parsed.get("sparse_grad")))


def _common(stypes: set[str]) -> str:
    return next(iter(stypes)) if len(stypes) == 1 else DEFAULT


# Results --------------------------------------------------------------------------------------------------------------


def _product(attrs: Mapping[str, Any], ins: Types) -> str:
    sparse = [s for s in ins if s != DEFAULT]
    return sparse[0] if len({*sparse}) == 1 else DEFAULT


def _slice(attrs: Mapping[str, Any], ins: Types) -> str:
    return CSR if ins[0] == CSR and all(s in (None, 1) for s in attrs["step"] or ()) else DEFAULT


def _square_sum(attrs: Mapping[str, Any], ins: Types) -> str:
    along_rows = attrs["axis"] in (1, (1,), -1, (-1,)) and not attrs["exclude"]
    return ROWS if ins[0] == ROWS and along_rows and attrs["keepdims"] else DEFAULT


_RESULTS: dict[str, Callable[[Mapping[str, Any], Types], str]] = {
    "zeros_like": lambda attrs, ins: ins[0],
    "_scatter_plus_scalar": lambda attrs, ins: ins[0],
    "_scatter_minus_scalar": lambda attrs, ins: ins[0],
    "_scatter_elemwise_div": lambda attrs, ins: ROWS if ins[0] == ROWS else DEFAULT,
    "_contrib_quadratic": lambda attrs, ins: CSR if ins[0] == CSR and attrs["c"] == 0 else DEFAULT,
    "add_n": lambda attrs, ins: ROWS if {*ins} == {ROWS} else DEFAULT,
    "elemwise_mul": _product,
    "broadcast_mul": lambda attrs, ins: CSR if [*ins] == [CSR, DEFAULT] else DEFAULT,
    "broadcast_div": lambda attrs, ins: CSR if [*ins] == [CSR, DEFAULT] else DEFAULT,
    "_square_sum": _square_sum,
    "_sparse_retain": lambda attrs, ins: ROWS,
    "slice": _slice,
    "take": lambda attrs, ins: CSR if [*ins] == [CSR, DEFAULT] and attrs["axis"] == 0 else DEFAULT,
    "Concat": lambda attrs, ins: CSR if {*ins} == {CSR} and attrs["dim"] == 0 else DEFAULT,
    "_identity_with_attr_like_rhs": lambda attrs, ins: ins[1],
    "cast_storage": lambda attrs, ins: attrs["stype"],
    "dot": lambda attrs, ins: attrs["forward_stype"] or sparse_operators.dot_storage(attrs, *ins),
}


def _result(op: Operator, attrs: Mapping[str, Any], ins: Types) -> str:
    rule = _RESULTS.get(op.name)
    if rule is not None:
        return rule(attrs, ins)
    if all(s == DEFAULT for s in ins):
        return DEFAULT
    if op.name in sparse_operators.OF_ONE_LAYOUT:
        return ins[0] if ins[0] == ins[1] else DEFAULT
    return ins[0] if sparse_operators.keeps_zeros(op, attrs) else DEFAULT


# Gradients ------------------------------------------------------------------------------------------------------------

_CONSTANT = "BlockGrad ceil fix floor rint round sign trunc zeros_like".split()
_OF_STORED = "abs relu square".split()


def _gradients(op: Operator, attrs: Mapping[str, Any], ins: Types, g: str) -> Types:
    """The storage types of the gradients by an operator's inputs, given that of its result's cotangent."""
    if op.name in sparse_operators.LINEAR or op.name == "cast_storage":
        return [g] * len(ins)
    if op.name in _CONSTANT:
        return ins
    if op.name in _OF_STORED:
        return [g if g == ins[0] else DEFAULT]
    if op.name == "dot" and ins[0] == CSR and not attrs["transpose_a"] and not attrs["transpose_b"] and g != CSR:
        return [DEFAULT, ROWS]
    if op.name == "_contrib_SparseEmbedding" or op.name == "Embedding" and attrs["sparse_grad"]:
        return [DEFAULT, ROWS]
    if op.name in ("_square_sum", "_sparse_retain"):
        return [ROWS, DEFAULT][: len(ins)]
    return [DEFAULT] * len(ins)
