"""Operators that write at positions given as tensors."""

from __future__ import annotations

import math
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import BOOL, I32, I64, dtype_of
from gluonjit.operators.attributes import shape
from gluonjit.operators.movement.indexing import as_index, check_tuples, inside, per_row
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import (
    first_from_output,
    require_numeric,
    require_same_dtype,
    require_shape,
    shape_text,
)


def scattered(b: Emitter, x: Any, index: Any, new: Any) -> Any:
    """Writes `new` to `x` at the index tuples. The last of equal tuples wins; tuples out of bounds are dropped.

    `index` is [M, N…] of integers and `new` has the shape N… followed by x's axes after the first M. The primitive
    `scatter_add` adds, so all but the last of equal tuples are moved out of bounds, and `new` is added to zeros that
    then replace the elements of `x`.
    """
    depth, count = index.shape[0], math.prod(index.shape[1:])
    shape = tuple(x.shape)
    heads, rest = shape[:depth], shape[depth:]
    rows = math.prod(heads)
    if count == 0 or 0 in shape:
        return x
    outside = b.constant(-1, I64)

    index = b.cast(b.reshape(index, shape=(depth, count)), dtype=I64)
    inside = b.eq(index, b.maximum(b.constant(0, I64), b.minimum(index, per_row(b, [n - 1 for n in heads], index))))
    strides = [math.prod(heads[k + 1 :]) for k in range(depth)]
    flat = b.reduce(index * per_row(b, strides, index), op="sum", axes=(0,))
    flat = b.select(b.reduce(inside, op="all", axes=(0,)), flat, outside)

    # Sorting puts equal tuples side by side and, being stable, leaves them in order.
    ordered, order = b.sort(flat, axis=0, descending=False)
    following = b.concat(b.slice(ordered, start=(1,), size=(count - 1,)), b.constant([-2], I64), axis=0)
    last = b.select(b.ne(ordered, following), ordered, outside)
    place = b.reshape(last, shape=(1, count))

    own = dtype_of(x)
    kind = I32 if own is BOOL else own  # bools are added as integers
    parts = b.gather(b.cast(b.reshape(new, shape=(count, *rest)), dtype=kind), order, axis=0)
    zero = b.constant(0, kind)
    written = b.scatter_add(b.broadcast(zero, shape=(rows, *rest)), place, parts)
    ones = b.broadcast(b.constant(1, I32), shape=(count,))
    hit = b.cast(b.scatter_add(b.broadcast(b.constant(0, I32), shape=(rows,)), place, ones), dtype=BOOL)
    hit = b.reshape(hit, shape=(rows, *(1,) * len(rest)))
    return b.reshape(b.select(hit, b.cast(written, dtype=own), b.reshape(x, shape=(rows, *rest))), shape=shape)


def _check_scatter(operator: str, data: Any, indices: Any, shape: Shape) -> None:
    check_tuples(operator, indices, len(shape))
    if tuple(data.shape) != (*indices.shape[1:], *shape[indices.shape[0] :]):
        raise OperatorError(
            f"Invalid data, indices, and output shape combination for {operator}: "
            f"{shape_text(data.shape)}, {shape_text(indices.shape)}, {shape_text(shape)}"
        )


@operator("scatter_nd", inputs=("data", "indices"), attrs={"shape": shape(doc="the shape of the result")})
def scatter_nd(b: Emitter, data: Any, indices: Any, *, shape: Shape) -> Any:
    """Writes `data` to zeros at [indices[0], indices[1], …]; the last of several writes to one position is kept

    Shapes: data (*where, *shape[m:]), indices (m, *where) -> `shape`

    >>> indices = mx.nd.array([[0, 1], [1, 0]])
    >>> mx.nd.scatter_nd(mx.nd.array([5, 6]), indices, shape=(2, 2)).asnumpy()
    array([[0., 5.],
           [6., 0.]], dtype=float32)
    """
    require_numeric("scatter_nd", data)
    _check_scatter("scatter_nd", data, indices, shape)
    zeros = b.broadcast(b.constant(0, dtype_of(data)), shape=tuple(shape))
    return scattered(b, zeros, as_index(b, indices), data)


@operator(
    "_scatter_set_nd",
    inputs=("lhs", "rhs", "indices"),
    attrs={"shape": shape(doc="the shape of lhs and of the result")},
    infer_inputs=first_from_output,
)
def scatter_set_nd(b: Emitter, lhs: Any, rhs: Any, indices: Any, *, shape: Shape) -> Any:
    """Replaces lhs[indices[0], indices[1], …] by rhs; negative indices count from the end

    Shapes: lhs (any), rhs (*where, *lhs.shape[m:]), indices (m, *where) -> lhs's shape

    >>> x = mx.nd.zeros((2, 2))
    >>> x[mx.nd.array([0, 1]), mx.nd.array([1, 0])] = mx.nd.array([5, 6])
    >>> x.asnumpy()
    array([[0., 5.],
           [6., 0.]], dtype=float32)
    """
    require_same_dtype(lhs, rhs)
    require_shape(lhs, shape, "lhs")
    _check_scatter("_scatter_set_nd", rhs, indices, shape)
    return scattered(b, lhs, inside(b, indices, shape), rhs)


@operator(
    "_contrib_index_copy",
    inputs=("old_tensor", "index_vector", "new_tensor"),
    infer_inputs=first_from_output,
)
def index_copy(b: Emitter, old_tensor: Any, index_vector: Any, new_tensor: Any) -> Any:
    """Replaces the rows `index_vector` of `old_tensor` by the rows of `new_tensor`

    Shapes: old_tensor (n, …), index_vector (m,), new_tensor (m, …) -> (n, …)

    >>> old, new = mx.nd.zeros((3, 2)), mx.nd.array([[1, 2], [3, 4]])
    >>> mx.nd.contrib.index_copy(old, mx.nd.array([2, 0]), new).asnumpy()
    array([[3., 4.],
           [0., 0.],
           [1., 2.]], dtype=float32)
    """
    require_same_dtype(old_tensor, new_tensor)
    if len(index_vector.shape) != 1:
        raise OperatorError(f"index_vector must be a vector, got an array of shape {shape_text(index_vector.shape)}")
    count = index_vector.shape[0]
    require_shape(new_tensor, (count, *old_tensor.shape[1:]), "new_tensor")
    return scattered(b, old_tensor, b.reshape(as_index(b, index_vector), shape=(1, count)), new_tensor)


@operator("_sparse_retain", inputs=("data", "indices"))
def sparse_retain(b: Emitter, data: Any, indices: Any) -> Any:
    """The rows of `data` that `indices` lists; others are 0, and indices out of bounds are passed over

    Shapes: data (n, …), indices (m,) -> data's shape

    >>> rows = mx.nd.array([[1], [2], [3]]).tostype("row_sparse")
    >>> mx.nd.sparse.retain(rows, mx.nd.array([0, 2])).asnumpy()
    array([[1.],
           [0.],
           [3.]], dtype=float32)
    """
    require_numeric("_sparse_retain", data)
    if len(indices.shape) != 1 or not data.shape:
        raise OperatorError(
            f"retain takes an array with rows and a vector of their numbers, got arrays of shape "
            f"{shape_text(data.shape)} and {shape_text(indices.shape)}"
        )
    rows, zero = data.shape[0], b.constant(0, dtype_of(data))
    if indices.shape[0] == 0 or 0 in data.shape:
        return b.broadcast(zero, shape=tuple(data.shape))
    places = b.reshape(as_index(b, indices), shape=(1, indices.shape[0]))
    ones = b.broadcast(b.constant(1, I32), shape=indices.shape)
    hit = b.cast(b.scatter_add(b.broadcast(b.constant(0, I32), shape=(rows,)), places, ones), dtype=BOOL)
    return b.select(b.reshape(hit, shape=(rows, *(1,) * (len(data.shape) - 1))), data, zero)
