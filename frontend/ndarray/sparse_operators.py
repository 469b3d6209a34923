"""Operators whose results on sparse arrays are sparse, or that need not make them dense.

A rule computes `op(*operands)` from the parts, or returns None: then the operator runs on the dense arrays. It is
looked up by the operator's name (`RULES`), with the operator's parsed attributes.

    @_rule("square sqrt …")
    def _each(op, attrs, x): ...

A rule whose operands are tracked also has a gradient: that of the dense operator, unless `GRADIENTS` has one that works
on parts: `gradient(attrs, operands, g)`, the cotangent of each operand (None: none).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.language.modes import modes
from gluonjit.ndarray.ndarray import EAGER, NDArray
from gluonjit.ndarray.sparse_arrays import (
    BaseSparseNDArray,
    CSRNDArray,
    RowSparseNDArray,
    cast_dense,
    from_additions,
    from_elements,
    sum_rows,
    zeros,
)
from gluonjit.operators.registry import Operator
from gluonjit.runtime.eager import quiet

Rule = Callable[..., "NDArray | None"]
RULES: dict[str, Rule] = {}
GRADIENTS: dict[str, Callable[..., Sequence[NDArray | None]]] = {}


def _rule(names: str) -> Callable[[Rule], Rule]:
    def declare(function: Rule) -> Rule:
        RULES.update((name, function) for name in names.split())
        return function

    return declare


def evaluate(op: Operator, attrs: dict[str, Any], operands: Sequence[Any]) -> NDArray | None:
    """What the operator makes of operands among which there are sparse ones; None if no rule applies."""
    rule = RULES.get(op.name)
    if rule is None or op.visible or len(op.outputs(attrs)) != 1:
        return None
    with quiet():
        return rule(op, attrs, *operands)


def _expanded(op: Operator, attrs: dict[str, Any], *arrays: np.ndarray) -> np.ndarray:
    result = op.expand(EAGER[modes.training], *arrays, **attrs)
    result = result[0] if isinstance(result, (tuple, list)) else result
    return np.array(result, order="C") if any(result is x for x in arrays) else np.ascontiguousarray(result)


def _dense(values: np.ndarray, like: NDArray) -> NDArray:
    return like._copied(values)


# Element by element ---------------------------------------------------------------------------------------------------


@_rule(
    "abs arcsin arcsinh arctan arctanh cbrt ceil clip degrees expm1 fix floor log1p negative radians relu rint round "
    "sign sin sinh sqrt square tan tanh trunc _copy Cast BlockGrad make_loss _contrib_round_ste _contrib_sign_ste "
    "_mul_scalar _div_scalar _greater_scalar _greater_equal_scalar _lesser_scalar _lesser_equal_scalar _equal_scalar "
    "_not_equal_scalar"
)
def _each(op: Operator, attrs: dict[str, Any], x: BaseSparseNDArray) -> NDArray | None:
    """Operators that mostly make 0 of 0, such as not `x > -1`."""
    if np.any(_expanded(op, attrs, np.zeros(1, x._values.dtype))) and op.name != "_div_scalar":
        return None
    return x._with(_expanded(op, attrs, x._values))


@_rule("zeros_like")
def _zeros_like(op: Operator, attrs: dict[str, Any], x: BaseSparseNDArray) -> NDArray:
    return zeros(x.stype, x.shape, x._values.dtype, x._device)


def _negated(x: NDArray) -> Any:
    assert isinstance(x, BaseSparseNDArray)
    return x._with(-x._values)


@_rule("elemwise_add broadcast_add elemwise_sub broadcast_sub add_n")
def _sum(op: Operator, attrs: dict[str, Any], *operands: NDArray) -> NDArray | None:
    first = operands[0]
    kinds = {x.__class__ for x in operands}
    if len(kinds) > 1 or len({(x.shape, x.dtype) for x in operands}) > 1:
        return None
    if op.name.endswith("_sub"):
        operands = (first, _negated(operands[1]))
    if isinstance(first, RowSparseNDArray):
        return from_additions(first.shape, [(x._rows, x._values) for x in operands], first._device)  # type: ignore[attr-defined]
    if not isinstance(first, CSRNDArray) or op.name == "add_n":
        return None
    columns = first.shape[1]
    places = [x._row_of_each * columns + x._columns for x in operands]  # type: ignore[attr-defined]
    where, values = sum_rows(np.concatenate(places), np.concatenate([x._values for x in operands]))  # type: ignore[attr-defined]
    kept = values != 0
    where, values = where[kept], values[kept]
    return from_elements(first.shape, where // max(columns, 1), where % max(columns, 1), values, first._device)


@_rule("elemwise_mul broadcast_mul")
def _product(op: Operator, attrs: dict[str, Any], x: NDArray, y: NDArray) -> NDArray | None:
    if not isinstance(x, BaseSparseNDArray) or (isinstance(x, RowSparseNDArray) and x.shape != y.shape):
        x, y = y, x
    if isinstance(x, RowSparseNDArray):
        if x.shape != y.shape:
            return None
        if not isinstance(y, RowSparseNDArray):
            return x._with(_expanded(op, attrs, x._values, y._array[x._rows]))
        every = np.union1d(x._rows, y._rows)
        return x._with(_expanded(op, attrs, x.rows(every), y.rows(every)), (every,))
    return _at_elements(op, attrs, x, y)


@_rule("elemwise_div broadcast_div")
def _quotient(op: Operator, attrs: dict[str, Any], x: NDArray, y: NDArray) -> NDArray | None:
    if not isinstance(x, CSRNDArray) or op.name == "elemwise_div":
        return None  # 0 / 0 is not 0; of a matrix by a vector, MXNet divides what is stored
    return None if x.shape == y.shape else _at_elements(op, attrs, x, y)


def _at_elements(op: Operator, attrs: dict[str, Any], x: Any, y: NDArray) -> NDArray | None:
    """The operator on the elements of the matrix x that are stored, and on those of y in their places."""
    if isinstance(y, BaseSparseNDArray) or y.ndim > 2:
        if not isinstance(y, CSRNDArray) or x.shape != y.shape:
            return None
    try:
        others = np.broadcast_to(y._array, x.shape)[x._row_of_each, x._columns]
    except ValueError:
        return None
    return x._with(_expanded(op, attrs, x._values, others))


# Sums -----------------------------------------------------------------------------------------------------------------


@_rule("norm")
def _norm(op: Operator, attrs: dict[str, Any], x: BaseSparseNDArray) -> NDArray | None:
    if attrs["axis"] is not None:
        return None
    return _dense(_expanded(op, {**attrs, "keepdims": False}, x._values.reshape(-1)), x)


@_rule("sum")
def _total(op: Operator, attrs: dict[str, Any], x: BaseSparseNDArray) -> NDArray | None:
    axes, keep = attrs["axis"], attrs["keepdims"]
    axes = (axes,) if isinstance(axes, int) else axes
    if attrs["exclude"] or keep:
        return None
    if axes in (None, ()):
        return _dense(_expanded(op, {**attrs, "axis": None}, x._values.reshape(-1)), x)
    if not isinstance(x, CSRNDArray) or len(axes) != 1:
        return None
    axis = axes[0] % 2
    total = np.zeros(x.shape[1 - axis], x._values.dtype)
    where, values = sum_rows(x._columns if axis == 0 else x._row_of_each, x._values)
    total[where] = values
    return _dense(total, x)


# Parts ----------------------------------------------------------------------------------------------------------------


@_rule("slice")
def _slice(op: Operator, attrs: dict[str, Any], x: NDArray) -> NDArray | None:
    if not isinstance(x, CSRNDArray) or any(s not in (None, 1) for s in attrs["step"] or ()):
        return None
    bounds = [slice(b, e).indices(n)[:2] for b, e, n in zip(attrs["begin"], attrs["end"], x.shape)]
    rows = x.row_range(bounds[0][0], max(bounds[0]))
    if len(bounds) == 1:
        return rows
    first, last = bounds[1][0], max(bounds[1])
    inside = (rows._columns >= first) & (rows._columns < last)
    shape = (rows.shape[0], last - first)
    return from_elements(
        shape, rows._row_of_each[inside], rows._columns[inside] - first, rows._values[inside], x._device
    )


@_rule("take")
def _take(op: Operator, attrs: dict[str, Any], x: NDArray, indices: NDArray) -> NDArray | None:
    if not isinstance(x, CSRNDArray) or attrs["axis"] != 0 or indices.ndim != 1 or attrs["mode"] == "raise":
        return None
    n = x.shape[0]
    if not n:
        return None
    wanted = indices._array.astype(np.int64)
    return x.take_rows(wanted % n if attrs["mode"] == "wrap" else wanted.clip(0, n - 1))


@_rule("Concat")
def _concat(op: Operator, attrs: dict[str, Any], *parts: NDArray) -> NDArray | None:
    if attrs["dim"] != 0 or not all(isinstance(x, CSRNDArray) for x in parts):
        return None
    if len({(x.shape[1], x.dtype) for x in parts}) > 1:
        return None
    matrices: Any = parts
    counts = np.concatenate([np.diff(x._indptr) for x in matrices])
    aux = np.append(0, np.cumsum(counts)), np.concatenate([x._columns for x in matrices])
    return matrices[0]._with(np.concatenate([x._values for x in matrices]), aux, (len(counts), parts[0].shape[1]))


@_rule("Embedding _contrib_SparseEmbedding")
def _embedding(op: Operator, attrs: dict[str, Any], data: NDArray, weight: NDArray) -> NDArray | None:
    """A lookup in a table of which only some rows are stored."""
    shape = (attrs["input_dim"], attrs["output_dim"])
    if not isinstance(weight, RowSparseNDArray) or weight.shape != shape or isinstance(data, BaseSparseNDArray):
        return None
    wanted = np.clip(data._array.astype(np.int64), 0, shape[0] - 1)
    return _dense(weight.rows(wanted.reshape(-1)).reshape(*data.shape, shape[1]), weight)


@_rule("cast_storage")
def cast_storage(op: Operator, attrs: dict[str, Any], x: NDArray) -> NDArray:
    """The same elements in another storage."""
    stype = attrs["stype"]
    if stype == x.stype:
        return x.copy()
    if stype == "default":
        dense = x._array
        dense.flags.writeable = True
        return _dense(dense, x)
    if isinstance(x, BaseSparseNDArray):
        raise MXNetError(f"cast_storage from {x.stype} to {stype} is not supported: use .tostype('default') between")
    try:
        return cast_dense(x._array, stype, x._device)
    except ValueError as e:
        raise MXNetError(str(e)) from None


# dot ------------------------------------------------------------------------------------------------------------------


@_rule("dot")
def _dot(op: Operator, attrs: dict[str, Any], x: NDArray, y: NDArray) -> NDArray | None:
    """csr · dense is dense, csrᵀ · dense is row_sparse, dense · csr is csr."""
    flip_x, flip_y, wanted = attrs["transpose_a"], attrs["transpose_b"], attrs["forward_stype"]
    if x.dtype != y.dtype:
        return None
    result: Any = None
    if isinstance(x, CSRNDArray) and not isinstance(y, CSRNDArray) and not flip_y and 1 <= y.ndim <= 2:
        rows, columns, n = x._row_of_each, x._columns, x.shape[0]
        if flip_x:
            rows, columns, n = columns, rows, x.shape[1]
        if x.shape[0 if flip_x else 1] != y.shape[0]:
            return None  # the dense operator says what does not fit
        picked = y.rows(columns) if isinstance(y, RowSparseNDArray) else y._array[columns]
        where, values = sum_rows(rows, picked * x._values.reshape(-1, *(1,) * (y.ndim - 1)))
        result = RowSparseNDArray((n, *y.shape[1:]), np.ascontiguousarray(values), (where,), x._device)
        wanted = wanted or ("row_sparse" if flip_x else "default")
    elif isinstance(y, CSRNDArray) and not isinstance(x, BaseSparseNDArray) and x.ndim == 2:
        left = x._array.T if flip_x else x._array
        rows, columns, n = y._row_of_each, y._columns, y.shape[1]
        if flip_y:
            rows, columns, n = columns, rows, y.shape[0]
        if left.shape[1] != y.shape[1 if flip_y else 0]:
            return None
        total = np.zeros((n, left.shape[0]), y._values.dtype)
        where, values = sum_rows(columns, left.T[rows] * y._values[:, None])
        total[where] = values
        # Which elements are stored depends on where the factors have some, not on what they are.
        stored = np.repeat(np.isin(np.arange(n), where)[None], left.shape[0], 0)
        at = np.nonzero(stored)
        result = from_elements(stored.shape, at[0], at[1], np.ascontiguousarray(total.T)[at], y._device)
        wanted = wanted or "csr"
    if result is None or result.stype == wanted:
        return result
    return cast_storage(op, {"stype": "default"}, result) if wanted == "default" else None


def _dot_gradient(attrs: dict[str, Any], operands: Sequence[Any], g: NDArray) -> Sequence[NDArray | None]:
    """That of csr · w by w: csrᵀ · g, which has rows only where the matrix has columns."""
    x, y = operands
    flip = not attrs["transpose_a"]
    parts = g.tostype("default") if isinstance(g, BaseSparseNDArray) else g
    turned = NDArray._functions.dot(x, parts, transpose_a=flip, forward_stype="row_sparse" if flip else "default")
    return None, turned


GRADIENTS["dot"] = _dot_gradient
GRADIENTS["cast_storage"] = lambda attrs, operands, g: (g,)


def gradient_of(op: Operator, attrs: dict[str, Any], operands: Sequence[NDArray], tracked: Sequence[bool]) -> Any:
    """The gradient on parts, as a function of the result's cotangent; None if that of the dense operator serves."""
    rule = GRADIENTS.get(op.name)
    if rule is None or op.name == "dot" and (tracked[0] or not isinstance(operands[0], CSRNDArray)):
        return None
    kept = [x.detach() if isinstance(x, BaseSparseNDArray) else None for x in operands]
    return lambda g: rule(attrs, kept, g)
