"""Operators that read elements at positions given by index tensors.

MXNet's indices are often float32; they are truncated. Indices out of bounds are clipped (`clip`) or wrap around
(`wrap`); for `gather_nd`, and `take` with mode `raise`, they are an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.dims import is_static
from gluonjit.ir.graph import Emitter
from gluonjit.ir.primitives.host_call import ERRORS
from gluonjit.ir.types import F64, I32, I64, dtype_of
from gluonjit.operators.attributes import boolean, enum, integer, optional
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import (
    Shapes,
    axis_in,
    merge,
    require_numeric,
    require_shape,
    shape_text,
    type_name,
)


def as_index(b: Emitter, x: Any) -> Any:
    """`x` as integers; floats are truncated."""
    dtype = require_numeric("indexing", x)
    if dtype.is_integer:
        return x
    return b.cast(x, dtype=I64 if dtype is F64 else I32)


def inside(b: Emitter, indices: Any, shape: Shape) -> Any:
    """Index tuples (along the first axis of `indices`) as nonnegative integers; IndexError if one is out of bounds."""
    index = as_index(b, indices)
    if dtype_of(index).bits < 32:
        index = b.cast(index, dtype=I32)
    return b.check_index(index, sizes=tuple(shape[: indices.shape[0]]))


# Reading along one axis


@operator(
    "take",
    inputs=("a", "indices"),
    attrs={
        "axis": integer(0, doc="the axis that is indexed"),
        "mode": enum(("clip", "raise", "wrap"), "clip", doc="treatment of indices out of bounds"),
    },
)
def take(b: Emitter, a: Any, indices: Any, *, axis: int, mode: str) -> Any:
    """The slices of `a` at `indices` along the axis; the axes of `indices` replace it

    Shapes: a (any), indices (any) -> a's shape, with that of `indices` in place of `axis`

    `clip` takes the nearest valid index, `wrap` counts modulo the length, `raise` is an MXNetError.

    >>> mx.nd.take(mx.nd.array([[1, 2], [3, 4], [5, 6]]), mx.nd.array([2, 0])).asnumpy()
    array([[5., 6.],
           [1., 2.]], dtype=float32)
    """
    rank = len(a.shape)
    if not -rank <= axis < rank:
        raise OperatorError("Axis should be in the range of [-r, r-1] where r is the rank of input tensor")
    axis %= rank
    index = as_index(b, indices)
    if mode == "raise":
        row = b.reshape(index, shape=(1, *index.shape))
        index = b.reshape(
            b.check_index(row, sizes=(a.shape[axis],), negative=False, error="take"), shape=tuple(index.shape)
        )
        mode = "clip"
    return b.gather(a, index, axis=axis, mode=mode)


ERRORS["take"] = lambda *_: OperatorError("take operator contains indices out of bound")


@operator("batch_take", inputs=("a", "indices"))
def batch_take(b: Emitter, a: Any, indices: Any) -> Any:
    """One element of each row: out[i] = a[i, indices[i]]; `indices` are int32

    Shapes: a (n, m), indices (n,) -> (n,)

    MXNetError for indices of another type.

    >>> mx.nd.batch_take(mx.nd.array([[1, 2], [3, 4]]), mx.nd.array([1, 0], dtype="int32")).asnumpy()
    array([2., 3.], dtype=float32)
    """
    if dtype_of(indices) is not I32:
        raise OperatorError(f"Type inconsistent, Provided = {type_name(dtype_of(indices))}, inferred type = int32")
    if len(a.shape) != 2:
        raise OperatorError(f"batch_take needs a matrix, got an array of shape {shape_text(a.shape)}")
    require_shape(indices, a.shape[:1], "indices")
    return along_axis(b, a, indices, 1)


@operator(
    "_contrib_boolean_mask",
    inputs=("data", "index"),
    attrs={"axis": integer(0, doc="the axis that is masked")},
    imperative_only="the length of its result depends on the values of the mask; write where(mask, data, 0), "
    "which keeps the shape",
)
def boolean_mask(b: Emitter, data: Any, index: Any, *, axis: int) -> Any:
    """The slices of the data along the axis at which the vector `index` is nonzero

    Shapes: data (any), index (data.shape[axis],) -> data's shape, with fewer elements along `axis`

    MXNetError in a trace, as the length depends on values.

    >>> mx.nd.contrib.boolean_mask(mx.nd.array([[1, 2], [3, 4], [5, 6]]), mx.nd.array([1, 0, 1])).asnumpy()
    array([[1., 2.],
           [5., 6.]], dtype=float32)
    """
    axis = axis_in(axis, len(data.shape))
    require_shape(index, data.shape[axis : axis + 1], "index")
    if not isinstance(index, np.ndarray):
        raise OperatorError(f"boolean_mask cannot be compiled: {boolean_mask.imperative_only}")
    return b.gather(data, b.constant(np.flatnonzero(index), I64), axis=axis)


def along_axis(b: Emitter, x: Any, index: Any, axis: int) -> Any:
    """One element of each line along `axis`, at `index` (clipped), whose shape is that of `x` without the axis."""
    shape = tuple(x.shape)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    own = dtype_of(index)
    kind = own if own is I64 else I32
    index = index if own is kind else b.cast(index, dtype=kind)
    # If the axis is the last one, two index tensors suffice.
    lines, blocks = ((outer, inner), (outer, shape[axis], inner)) if inner != 1 else ((outer,), (outer, shape[axis]))
    row = (1, *lines)
    where = [b.iota(shape=row, axis=1, dtype=kind), b.reshape(index, shape=row)]
    if inner != 1:
        where.append(b.iota(shape=row, axis=2, dtype=kind))
    picked = b.gather_nd(b.reshape(x, shape=blocks), b.concat(*where, axis=0))
    return b.reshape(picked, shape=shape[:axis] + shape[axis + 1 :])


def _pick_index(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
    """Infers the shape of the index from that of the data, unless the index is known to keep the axis."""
    data, index = shapes
    if data is None or attrs["axis"] is None:
        return shapes
    axis = axis_in(attrs["axis"], len(data))
    kept, dropped = (*data[:axis], 1, *data[axis + 1 :]), (*data[:axis], *data[axis + 1 :])
    if index is None:
        return [data, kept if attrs["keepdims"] else dropped]
    return [data, merge(index, kept if len(index) == len(data) else dropped)]


@operator(
    "pick",
    aliases=("choose_element_0index",),
    inputs=("data", "index"),
    attrs={
        "axis": optional(integer(doc="the axis along which to pick"), -1),
        "keepdims": boolean(False, doc="whether reduced axes stay, with length 1"),
        "mode": enum(("clip", "wrap"), "clip", doc="treatment of indices out of bounds"),
    },
    complete=_pick_index,
)
def pick(b: Emitter, data: Any, index: Any, *, axis: int | None, keepdims: bool, mode: str) -> Any:
    """One element of each line along the axis, at `index`

    Shapes: data (any), index (data's without `axis`, or with 1 there) -> data's without `axis`, or with `keepdims` 1
    there

    >>> mx.nd.pick(mx.nd.array([[1, 2, 3], [4, 5, 6]]), mx.nd.array([2, 0])).asnumpy()
    array([3., 4.], dtype=float32)
    """
    if axis is None:
        raise OperatorError("axis=None is not supported by pick yet. Must specify an axis.")
    old = tuple(data.shape)
    axis = axis_in(axis, len(old))
    kept, dropped = (*old[:axis], 1, *old[axis + 1 :]), (*old[:axis], *old[axis + 1 :])
    require_shape(index, kept if len(index.shape) == len(old) else dropped, "index")
    index = as_index(b, index)
    if dtype_of(index).bits < 32:  # the axis may be longer than 8-bit integers can represent
        index = b.cast(index, dtype=I32)
    if mode == "wrap":
        index = b.mod(index, b.constant(old[axis], dtype_of(index)))
    picked = along_axis(b, data, index, axis)
    return b.reshape(picked, shape=kept if keepdims else dropped or (1,))


# Reading at tuples of indices


def check_tuples(operator: str, indices: Any, rank: int) -> None:
    if len(indices.shape) < 2:
        raise OperatorError(f"{operator} requires index tensor to have at least 2 dimensions")
    if not 1 <= indices.shape[0] <= rank:
        raise OperatorError(f"Number of indices exceeds data dimension: {indices.shape[0]} for an array of {rank} axes")


def per_row(b: Emitter, values: Sequence[int], index: Any) -> Any:
    """`values`, one for each row of `index`, in a shape that broadcasts against it."""
    shape = (len(values), *(1,) * (len(index.shape) - 1))
    if is_static(values):
        return b.constant(np.reshape(values, shape), dtype_of(index))
    return b.reshape(b.constant(tuple(values), dtype_of(index)), shape=shape)


@operator("gather_nd", inputs=("data", "indices"))
def gather_nd(b: Emitter, data: Any, indices: Any) -> Any:
    """data[indices[0], indices[1], …]; negative indices count from the end, and an index out of bounds is an error

    Shapes: data (any), indices (m, *where) -> (*where, *data.shape[m:])

    >>> data, indices = mx.nd.array([[1, 2], [3, 4]]), mx.nd.array([[0, 1], [1, 0]])
    >>> mx.nd.gather_nd(data, indices).asnumpy()
    array([2., 3.], dtype=float32)
    """
    check_tuples("gather_nd", indices, len(data.shape))
    return b.gather_nd(data, inside(b, indices, data.shape))
