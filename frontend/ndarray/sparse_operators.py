"""Operators whose results on sparse arrays are sparse, or that need not make them dense.

A rule computes `op(*operands)` from the parts, or returns None: then the operator runs on the dense arrays. It is
looked up by the operator's name (`RULES`), with the operator's parsed attributes.

    @_rule("square sqrt …")
    def _each(op, attrs, x): ...

A rule whose operands are tracked also has a gradient: that of the dense operator, unless `GRADIENTS` has one that works
on parts: `gradient(attrs, operands, g)`, the cotangent of each operand (None: none).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.ir.quiet import quiet
from gluonjit.language.modes import modes
from gluonjit.ndarray.ndarray import EAGER, EXACT, NDArray
from gluonjit.ndarray.sparse_arrays import (
    BaseSparseNDArray,
    CSRNDArray,
    RowSparseNDArray,
    ascending,
    cast_dense,
    from_additions,
    from_elements,
    sum_rows,
    zeros,
)
from gluonjit.operators.registry import Operator
from gluonjit.runtime.eager import needs_exact

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
    if rule is None or rule is not _lazy_step and (op.visible or len(op.outputs(attrs)) != 1):
        return None
    with quiet():
        return rule(op, attrs, *[x.canonical() if isinstance(x, BaseSparseNDArray) else x for x in operands])


def makes_sparse(op: Operator, attrs: dict[str, Any]) -> bool:
    """Whether there is a rule for dense operands."""
    return attrs.get("stype" if op.name == "cast_storage" else "forward_stype", "default") not in (None, "default")


def _results(op: Operator, attrs: dict[str, Any], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    b = (EXACT if needs_exact(*arrays, *attrs.values()) else EAGER)[modes.training]
    found = op.expand(b, *b.operands(arrays), **attrs)
    return [np.asarray(x) for x in (found if isinstance(found, (tuple, list)) else [found])]


def _expanded(op: Operator, attrs: dict[str, Any], *arrays: np.ndarray) -> np.ndarray:
    result = _results(op, attrs, arrays)[0]
    return np.array(result, order="C") if any(result is x for x in arrays) else np.ascontiguousarray(result)


def _dense(values: np.ndarray, like: NDArray) -> NDArray:
    return like._copied(values)


# Element by element ---------------------------------------------------------------------------------------------------


_EACH = (
    "abs arcsin arcsinh arctan arctanh cbrt ceil clip degrees expm1 fix floor log1p negative radians relu rint round "
    "sign sin sinh sqrt square tan tanh trunc _copy BlockGrad make_loss _contrib_round_ste _contrib_sign_ste "
    "_plus_scalar _minus_scalar _mul_scalar _div_scalar _greater_scalar _greater_equal_scalar _lesser_scalar "
    "_lesser_equal_scalar _equal_scalar _not_equal_scalar"
)


def keeps_zeros(op: Operator, attrs: Any, dtype: Any = np.float32) -> bool:
    """Whether an operator on one array makes 0 of 0, so that it may be applied to what is stored: not `x > -1`."""
    if op.name not in _EACH.split():
        return False
    with quiet():
        return op.name == "_div_scalar" or not np.any(_expanded(op, attrs, np.zeros(1, dtype)))


@_rule(_EACH)
def _each(op: Operator, attrs: dict[str, Any], x: BaseSparseNDArray) -> NDArray | None:
    return x._with(_expanded(op, attrs, x._values)) if keeps_zeros(op, attrs, x._values.dtype) else None


@_rule("zeros_like")
def _zeros_like(op: Operator, attrs: dict[str, Any], x: BaseSparseNDArray) -> NDArray:
    return zeros(x.stype, x.shape, x._values.dtype, x._device)


@_rule("_contrib_quadratic")
def _quadratic(op: Operator, attrs: dict[str, Any], x: NDArray) -> NDArray | None:
    if not isinstance(x, CSRNDArray) or attrs["c"] != 0:
        return None
    values = _expanded(op, attrs, x._values)
    kept = values != 0
    return from_elements(x.shape, x._row_of_each[kept], x._columns[kept], values[kept], x._device)


@_rule("_scatter_plus_scalar _scatter_minus_scalar")
def _on_stored(op: Operator, attrs: dict[str, Any], x: BaseSparseNDArray) -> NDArray:
    return x._with(_expanded(op, attrs, x._values))


@_rule("add_n")
def _sum(op: Operator, attrs: dict[str, Any], *operands: NDArray) -> NDArray | None:
    first = operands[0]
    if not all(isinstance(x, RowSparseNDArray) for x in operands) or len({(x.shape, x.dtype) for x in operands}) > 1:
        return None
    return from_additions(first.shape, [(x._rows, x._values) for x in operands], first._device)  # type: ignore[attr-defined]


OF_ONE_LAYOUT = "elemwise_add elemwise_sub _maximum _minimum _hypot".split()


@_rule(" ".join(OF_ONE_LAYOUT))
def _of_one_layout(op: Operator, attrs: dict[str, Any], x: NDArray, y: NDArray) -> NDArray | None:
    """Operators that make 0 of two zeros."""
    if (x.shape, x.dtype) != (y.shape, y.dtype):
        return None
    if isinstance(x, RowSparseNDArray) and isinstance(y, RowSparseNDArray):
        every = ascending(x._rows, y._rows)
        return x._with(_expanded(op, attrs, x.rows(every), y.rows(every)), (every,))
    if not isinstance(x, CSRNDArray) or not isinstance(y, CSRNDArray):
        return None
    columns = max(x.shape[1], 1)
    places = [m._row_of_each * columns + m._columns for m in (x, y)]
    every = ascending(*places)
    values = np.zeros((2, len(every)), x._values.dtype)
    for at, m, row in zip(places, (x, y), values):
        row[np.searchsorted(every, at)] = m._values
    result = _expanded(op, attrs, *values)
    kept = result != 0
    every = every[kept]
    return from_elements(x.shape, every // columns, every % columns, result[kept], x._device)


@_rule("elemwise_mul")
def _product(op: Operator, attrs: dict[str, Any], x: NDArray, y: NDArray) -> NDArray | None:
    if x.shape != y.shape:
        return None
    if x.stype == y.stype:
        return _of_one_layout(op, attrs, x, y)
    if x.stype == "default":
        x, y = y, x
    if y.stype != "default":
        return None
    if isinstance(x, RowSparseNDArray):
        return x._with(_expanded(op, attrs, x._values, y._array[x._rows]))
    return _at_elements(op, attrs, x, y)


@_rule("_scatter_elemwise_div")
def _scattered_quotient(op: Operator, attrs: dict[str, Any], x: NDArray, y: NDArray) -> NDArray | None:
    if not isinstance(x, RowSparseNDArray) or (x.shape, x.dtype) != (y.shape, y.dtype):
        return None
    others = y.rows(x._rows) if isinstance(y, RowSparseNDArray) else y._array[x._rows]
    return x._with(_expanded(op, attrs, x._values, others))


@_rule("broadcast_mul broadcast_div")
def _scaled(op: Operator, attrs: dict[str, Any], x: NDArray, y: NDArray) -> NDArray | None:
    """A matrix and something that may be broadcast; a quotient is of what is stored, as 0 / 0 is not 0."""
    if not isinstance(x, CSRNDArray) or op.name == "broadcast_div" and x.shape == y.shape:
        return None
    return None if isinstance(y, BaseSparseNDArray) else _at_elements(op, attrs, x, y)


def _at_elements(op: Operator, attrs: dict[str, Any], x: Any, y: NDArray) -> NDArray | None:
    """The operator on the elements of the matrix x that are stored, and on those of y in their places."""
    if y.ndim > 2 or x.dtype != y.dtype:
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
    total = _expanded(op, {**attrs, "keepdims": False}, x._values.reshape(-1))
    return _dense(total.reshape((1,) * x.ndim) if attrs["keepdims"] else total, x)


@_rule("_square_sum")
def _square_sum(op: Operator, attrs: dict[str, Any], x: NDArray) -> NDArray | None:
    """A sum along the rows is row_sparse if it keeps their axis."""
    axes, keep = attrs["axis"], attrs["keepdims"]
    axes = (axes,) if isinstance(axes, int) else axes
    if not isinstance(x, RowSparseNDArray) or x.ndim != 2 or not axes or len(axes) != 1 or attrs["exclude"]:
        return None
    axis = axes[0] % 2
    total = _expanded(op, {**attrs, "axis": (axis,)}, x._values)
    if axis == 0:
        return _dense(total, x)
    result = x._with(total, shape=(len(x), 1)) if keep else None
    if result is not None:
        return result
    every = np.zeros(len(x), x._values.dtype)
    every[x._rows] = total
    return _dense(every, x)


@_rule("_sparse_retain")
def _retain(op: Operator, attrs: dict[str, Any], x: NDArray, indices: NDArray) -> NDArray:
    if not isinstance(x, RowSparseNDArray):
        raise MXNetError(f"retain takes a row_sparse array, not one of storage type {x.stype!r}: use .tostype first")
    wanted = ascending(indices._array.astype(np.int64))
    if wanted.size and not 0 <= wanted[0] <= wanted[-1] < x.shape[0]:
        raise MXNetError(f"retain: rows {wanted[0]} to {wanted[-1]} of an array that has {x.shape[0]}")
    return x._with(x.rows(wanted), (wanted,))


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


@_rule("_identity_with_attr_like_rhs")
def _like(op: Operator, attrs: dict[str, Any], x: NDArray, y: NDArray) -> NDArray | None:
    if x.shape != y.shape:
        return None
    return (
        x.copy() if x.stype == y.stype else cast_dense(x._array, y.stype, x._device) if y.stype != "default" else None
    )


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


@_rule("sgd_update sgd_mom_update adam_update")
def _lazy_step(op: Operator, attrs: dict[str, Any], weight: NDArray, grad: NDArray, *states: NDArray) -> NDArray | None:
    """A step of the rows that the gradient stores."""
    if not attrs["lazy_update"] or not isinstance(grad, RowSparseNDArray) or grad.shape != weight.shape:
        return None
    if weight.stype == "csr" or weight.stype == "default" and any(x.stype != "default" for x in states):
        return None
    where = grad._rows
    own = [x.rows(where) if isinstance(x, RowSparseNDArray) else x._array[where] for x in (weight, *states)]
    results = _results(op, attrs, [own[0], grad._values, *own[1:]])
    new = weight.copy()
    written = {x: results[op.updates(attrs)[k]] for k, x in enumerate(states, 2)} if op.updates is not None else {}
    for target, rows in {new: results[0], **written}.items():
        if isinstance(target, RowSparseNDArray):
            target.update_rows(where, rows)
        else:
            target._array[where] = rows
            target._wrote()
    return new


# dot ------------------------------------------------------------------------------------------------------------------


@_rule("dot")
def _dot(op: Operator, attrs: dict[str, Any], x: NDArray, y: NDArray) -> NDArray | None:
    """csr · dense is dense, csrᵀ · dense is row_sparse, dense · csr is csr, unless `forward_stype` says otherwise."""
    wanted = attrs["forward_stype"] or dot_storage(attrs, x.stype, y.stype)
    result: Any = _csr_dot(attrs, x, y) if x.dtype == y.dtype else None
    if result is None:
        if wanted == "default":
            return None
        result = _dense(_expanded(op, attrs, x._array, y._array), x)
    if result.stype == wanted:
        return result
    dense: Any = result if result.stype == "default" else cast_storage(op, {"stype": "default"}, result)
    return dense if wanted == "default" else cast_dense(dense._array, wanted, x._device)


def dot_storage(attrs: Mapping[str, Any], x: str, y: str) -> str:
    """The storage type of a product, by those of its operands."""
    if x == "csr" and y != "csr" and not attrs["transpose_b"]:
        return "row_sparse" if attrs["transpose_a"] else "default"
    return "csr" if (x, y) == ("default", "csr") and not attrs["transpose_a"] else "default"


def _csr_dot(attrs: dict[str, Any], x: NDArray, y: NDArray) -> Any:
    """A product with a csr matrix, computed from its parts; None if that cannot be done."""
    flip_x, flip_y = attrs["transpose_a"], attrs["transpose_b"]
    if isinstance(x, CSRNDArray) and not isinstance(y, CSRNDArray) and not flip_y and 1 <= y.ndim <= 2:
        if x.shape[0 if flip_x else 1] != y.shape[0]:
            return None  # the dense operator says what does not fit
        if not flip_x:
            return _dense(_times_rows(x, y), x)
        where, values = _sums_by_column(x, y)
        return RowSparseNDArray((x.shape[1], *y.shape[1:]), values, (where,), x._device, True)
    if isinstance(y, CSRNDArray) and not isinstance(x, BaseSparseNDArray) and x.ndim == 2 and not flip_x and not flip_y:
        if x.shape[1] != y.shape[0]:
            return None
        total = np.zeros((y.shape[1], x.shape[0]), y._values.dtype)
        where, values = sum_rows(y._columns, x._array.T[y._row_of_each] * y._values[:, None])
        total[where] = values
        # Which elements are stored depends on where the factors have some, not on what they are.
        stored = np.repeat(np.isin(np.arange(y.shape[1]), where)[None], x.shape[0], 0)
        at = np.nonzero(stored)
        return from_elements(stored.shape, at[0], at[1], np.ascontiguousarray(total.T)[at], y._device)
    return None


STEP = 1 << 16
"""Stored elements whose products are held in memory at once, for a dense operand with one column."""


def _times_rows(x: CSRNDArray, y: Any) -> np.ndarray:
    """x · y: sums, row by row, of the rows of y that x's columns name."""
    total = np.zeros((x.shape[0], *y.shape[1:]), x._values.dtype)
    wide = math.prod(y.shape[1:])
    step = max(1, STEP // max(1, wide))
    indptr, rows = x._indptr, y._array if y.stype == "default" else None
    begin = 0
    while begin < x.shape[0] and wide:
        # As many whole rows as fit; one if it is longer than that.
        end = max(begin + 1, int(np.searchsorted(indptr, indptr[begin] + step, "right")) - 1)
        part = slice(int(indptr[begin]), int(indptr[end]))
        columns = x._columns[part]
        picked = y.rows(columns) if rows is None else rows[columns]
        terms = picked * x._values[part].reshape(-1, *(1,) * (y.ndim - 1))
        starts = indptr[begin:end] - indptr[begin]
        filled = np.flatnonzero(indptr[begin + 1 : end + 1] > indptr[begin:end])
        if len(filled):
            total[begin + filled] = np.add.reduceat(terms, starts[filled])
        begin = end
    return total


def _sums_by_column(x: CSRNDArray, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """xᵀ · y, of the columns in which x has elements: these, ascending, and their rows."""
    order = np.argsort(x._columns, kind="stable")
    ordered = x._columns[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else order
    where, indptr = ordered[starts], np.append(starts, len(ordered))
    turned = CSRNDArray((len(where), x.shape[0]), x._values[order], (indptr, x._row_of_each[order]), None, True)
    return where, _times_rows(turned, y)


# Gradients on parts ---------------------------------------------------------------------------------------------------


def _dot_gradient(attrs: dict[str, Any], operands: Sequence[Any], g: NDArray) -> Sequence[NDArray | None]:
    """The gradient of csr · w by w: csrᵀ · g, which has rows only where the matrix has columns."""
    x, _ = operands
    flip = not attrs["transpose_a"]
    parts = g.tostype("default") if isinstance(g, BaseSparseNDArray) else g
    turned = NDArray._functions.dot(x, parts, transpose_a=flip, forward_stype="row_sparse" if flip else "default")
    return None, turned


def _square_sum_gradient(attrs: dict[str, Any], operands: Sequence[Any], g: NDArray) -> Sequence[NDArray | None]:
    """2 · x · g in the rows that g has."""
    (x,) = operands
    axis = (attrs["axis"] if isinstance(attrs["axis"], int) else attrs["axis"][0]) % 2
    if axis == 0:
        return [x._with(x._values * (2 * g._array.reshape(1, -1)))]
    rows, factors = (g._rows, g._values) if isinstance(g, RowSparseNDArray) else (x._rows, g._array[x._rows])
    return [x._with(x.rows(rows) * (2 * factors.reshape(-1, 1)), (rows,))]


def _retain_gradient(attrs: dict[str, Any], operands: Sequence[Any], g: NDArray) -> Sequence[NDArray | None]:
    wanted = ascending(operands[1]._array.astype(np.int64))
    rows = g.rows(wanted) if isinstance(g, RowSparseNDArray) else g._array[wanted]
    return [RowSparseNDArray(g.shape, rows, (wanted,), g._device, True), None]


GRADIENTS.update(
    {
        "dot": _dot_gradient,
        "_square_sum": _square_sum_gradient,
        "_sparse_retain": _retain_gradient,
        "cast_storage": lambda attrs, operands, g: (g,),
    }
)

LINEAR: dict[str, Callable[..., Sequence[NDArray | None]]] = {
    "_copy": lambda attrs, operands, g: (g,),
    "negative": lambda attrs, operands, g: (-g,),
    "_mul_scalar": lambda attrs, operands, g: (g * attrs["scalar"],),
    "_div_scalar": lambda attrs, operands, g: (g / attrs["scalar"],),
    "elemwise_add": lambda attrs, operands, g: (g, g),
    "elemwise_sub": lambda attrs, operands, g: (g, -g),
    "add_n": lambda attrs, operands, g: (g,) * len(operands),
}
"""Gradients of the same kind that read no operand: they can be differentiated again."""
GRADIENTS.update(LINEAR)


def gradient_of(op: Operator, attrs: dict[str, Any], operands: Sequence[NDArray], tracked: Sequence[bool]) -> Any:
    """The gradient on parts, as a function of the result's cotangent; None if that of the dense operator serves."""
    rule = GRADIENTS.get(op.name)
    if rule is None or (op.name == "dot" and not _dot_has_parts(attrs, operands, tracked)):
        return None
    kept: list[Any] = [None] * len(operands)
    if op.name not in LINEAR:  # the parts of a sparse array are replaced, not written to
        kept = [x.canonical().detach() if isinstance(x, BaseSparseNDArray) else x.copy() for x in operands[:1]]
        kept += [x.copy() if op.name == "_sparse_retain" else None for x in operands[1:]]
    return lambda g: rule(attrs, kept, g)


def _dot_has_parts(attrs: dict[str, Any], operands: Sequence[NDArray], tracked: Sequence[bool]) -> bool:
    x, y = operands
    return not tracked[0] and isinstance(x, CSRNDArray) and not attrs["transpose_b"] and y.ndim <= 2
