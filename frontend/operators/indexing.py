"""Operators that read or write at positions given as tensors.

MXNet's indices are often float32: their fractions are dropped. What lies outside goes to the nearest end (`clip`) or
wraps around; nothing raises, for compiled code does not look at values either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.types import BOOL, F32, F64, I32, I64, DType, dtype_of
from gluonjit.operators.attributes import axes, boolean, dtype, enum, integer, number, optional, shape
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import (
    Shapes,
    axis_in,
    first_from_output,
    merge,
    require_numeric,
    require_same_dtype,
    require_shape,
    scalar,
    shape_text,
    type_name,
)


def as_index(b: Any, x: Any) -> Any:
    """`x` as integers: floats lose their fraction."""
    dtype = require_numeric("indexing", x)
    if dtype.is_integer:
        return x
    return b.cast(x, dtype=I64 if dtype is F64 else I32)


# Reading along one axis


@operator(
    "take",
    inputs=("a", "indices"),
    attrs={"axis": integer(0), "mode": enum(("clip", "raise", "wrap"), "clip", doc="what becomes of indices outside")},
)
def take(b: Any, a: Any, indices: Any, *, axis: int, mode: str) -> Any:
    """The slices of `a` at `indices` along the axis, which is replaced by the axes of `indices`"""
    rank = len(a.shape)
    if not -rank <= axis < rank:
        raise OperatorError("Axis should be in the range of [-r, r-1] where r is the rank of input tensor")
    axis %= rank
    index = as_index(b, indices)
    if mode == "raise":
        _require_inside(index, a.shape[axis])
        mode = "clip"
    return b.gather(a, index, axis=axis, mode=mode)


def _require_inside(index: Any, n: int) -> None:
    if not isinstance(index, np.ndarray):
        raise OperatorError(
            "take(mode='raise') must look at the values of its indices, which compiled code cannot do; "
            "write mode='clip' or mode='wrap'"
        )
    if index.size and not (0 <= index.min() and index.max() < n):
        raise OperatorError("take operator contains indices out of bound")


@operator("batch_take", inputs=("a", "indices"))
def batch_take(b: Any, a: Any, indices: Any) -> Any:
    """One element of each row: out[i] = a[i, indices[i]]; `indices` are int32"""
    if dtype_of(indices) is not I32:
        raise OperatorError(f"Type inconsistent, Provided = {type_name(dtype_of(indices))}, inferred type = int32")
    if len(a.shape) != 2:
        raise OperatorError(f"batch_take needs a matrix, got an array of shape {shape_text(a.shape)}")
    require_shape(indices, a.shape[:1], "indices")
    return along_axis(b, a, indices, 1)


def along_axis(b: Any, x: Any, index: Any, axis: int) -> Any:
    """One element of each line along `axis`, at `index`, which has the shape of `x` without that axis. Clips."""
    shape = tuple(x.shape)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    own = dtype_of(index)
    kind = own if own is I64 else I32
    index = index if own is kind else b.cast(index, dtype=kind)
    # Where the axis is the last one, two indices do.
    lines, blocks = ((outer, inner), (outer, shape[axis], inner)) if inner != 1 else ((outer,), (outer, shape[axis]))
    row = (1, *lines)
    where = [b.iota(shape=row, axis=1, dtype=kind), b.reshape(index, shape=row)]
    if inner != 1:
        where.append(b.iota(shape=row, axis=2, dtype=kind))
    picked = b.gather_nd(b.reshape(x, shape=blocks), b.concat(*where, axis=0))
    return b.reshape(picked, shape=shape[:axis] + shape[axis + 1 :])


def _pick_index(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
    """Known data says what the index must be, but whether it keeps the axis is the user's choice."""
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
    attrs={"axis": optional(integer(), -1), "keepdims": boolean(False), "mode": enum(("clip", "wrap"), "clip")},
    complete=_pick_index,
)
def pick(b: Any, data: Any, index: Any, *, axis: int | None, keepdims: bool, mode: str) -> Any:
    """One element of each line along the axis, at `index`, which has the data's shape without that axis"""
    if axis is None:
        raise OperatorError("axis=None is not supported by pick yet. Must specify an axis.")
    old = tuple(data.shape)
    axis = axis_in(axis, len(old))
    kept, dropped = (*old[:axis], 1, *old[axis + 1 :]), (*old[:axis], *old[axis + 1 :])
    require_shape(index, kept if len(index.shape) == len(old) else dropped, "index")
    index = as_index(b, index)
    if mode == "wrap":
        index = b.mod(index, b.constant(old[axis], dtype_of(index)))
    picked = along_axis(b, data, index, axis)
    return b.reshape(picked, shape=kept if keepdims else dropped or (1,))


# Reading and writing at tuples of indices


def _check_tuples(operator: str, indices: Any, rank: int) -> None:
    if len(indices.shape) < 2:
        raise OperatorError(f"{operator} requires index tensor to have at least 2 dimensions")
    if not 1 <= indices.shape[0] <= rank:
        raise OperatorError(f"Number of indices exceeds data dimension: {indices.shape[0]} for an array of {rank} axes")


def _per_row(b: Any, values: Sequence[int], index: Any) -> Any:
    """`values`, one for each row of `index`, in a shape that broadcasts against it."""
    return b.constant(np.reshape(values, (-1,) + (1,) * (len(index.shape) - 1)), dtype_of(index))


@operator("gather_nd", inputs=("data", "indices"))
def gather_nd(b: Any, data: Any, indices: Any) -> Any:
    """data[indices[0], indices[1], …]; negative indices count from the end"""
    _check_tuples("gather_nd", indices, len(data.shape))
    index = as_index(b, indices)
    if dtype_of(index).bits < 32:
        index = b.cast(index, dtype=I32)
    sizes = _per_row(b, data.shape[: indices.shape[0]], index)
    below = b.lt(index, b.constant(0, dtype_of(index)))
    return b.gather_nd(data, b.select(below, b.add(index, sizes), index))


def scattered(b: Any, x: Any, index: Any, new: Any) -> Any:
    """`x` with `new` written at the index tuples; where several meet, the last is kept. Tuples outside are dropped.

    `index` is [M, N…] of integers and `new` has the shape N… followed by x's axes after the first M. The primitive
    `scatter_add` adds, so all but the last of equal tuples are sent outside, and what was there is blanked out first.
    """
    depth, count = index.shape[0], math.prod(index.shape[1:])
    shape = tuple(x.shape)
    heads, rest = shape[:depth], shape[depth:]
    rows = math.prod(heads)
    if count == 0 or 0 in shape:
        return x
    outside = b.constant(-1, I64)

    index = b.cast(b.reshape(index, shape=(depth, count)), dtype=I64)
    inside = b.eq(index, b.maximum(b.constant(0, I64), b.minimum(index, _per_row(b, [n - 1 for n in heads], index))))
    strides = [math.prod(heads[k + 1 :]) for k in range(depth)]
    flat = b.reduce(b.mul(index, _per_row(b, strides, index)), op="sum", axes=(0,))
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
    _check_tuples(operator, indices, len(shape))
    if tuple(data.shape) != (*indices.shape[1:], *shape[indices.shape[0] :]):
        raise OperatorError(
            f"Invalid data, indices, and output shape combination for {operator}: "
            f"{shape_text(data.shape)}, {shape_text(indices.shape)}, {shape_text(shape)}"
        )


@operator("scatter_nd", inputs=("data", "indices"), attrs={"shape": shape(doc="of the result")})
def scatter_nd(b: Any, data: Any, indices: Any, *, shape: Shape) -> Any:
    """Zeros with `data` written at [indices[0], indices[1], …]; of several at one place the last is kept"""
    require_numeric("scatter_nd", data)
    _check_scatter("scatter_nd", data, indices, shape)
    zeros = b.broadcast(b.constant(0, dtype_of(data)), shape=tuple(shape))
    return scattered(b, zeros, as_index(b, indices), data)


@operator(
    "_scatter_set_nd",
    inputs=("lhs", "rhs", "indices"),
    attrs={"shape": shape(doc="of lhs and of the result")},
    backward=first_from_output,
)
def scatter_set_nd(b: Any, lhs: Any, rhs: Any, indices: Any, *, shape: Shape) -> Any:
    """lhs with rhs written at [indices[0], indices[1], …]"""
    require_same_dtype(lhs, rhs)
    require_shape(lhs, shape, "lhs")
    _check_scatter("_scatter_set_nd", rhs, indices, shape)
    return scattered(b, lhs, as_index(b, indices), rhs)


@operator(
    "_contrib_index_copy",
    inputs=("old_tensor", "index_vector", "new_tensor"),
    backward=first_from_output,
)
def index_copy(b: Any, old_tensor: Any, index_vector: Any, new_tensor: Any) -> Any:
    """`old_tensor` with its rows at `index_vector` replaced by those of `new_tensor`"""
    require_same_dtype(old_tensor, new_tensor)
    if len(index_vector.shape) != 1:
        raise OperatorError(f"index_vector must be a vector, got an array of shape {shape_text(index_vector.shape)}")
    count = index_vector.shape[0]
    require_shape(new_tensor, (count, *old_tensor.shape[1:]), "new_tensor")
    return scattered(b, old_tensor, b.reshape(as_index(b, index_vector), shape=(1, count)), new_tensor)


# Indices made from shapes, and converted


@operator(
    "one_hot",
    inputs=("indices",),
    attrs={
        "depth": integer(doc="length of the new last axis"),
        "on_value": number(1.0),
        "off_value": number(0.0),
        "dtype": dtype(F32, among=("bfloat16", "float16", "float32", "float64", "int32", "int64", "int8", "uint8")),
    },
)
def one_hot(b: Any, indices: Any, *, depth: int, on_value: float, off_value: float, dtype: DType) -> Any:
    """`on_value` where the position along a new last axis is the index, `off_value` elsewhere"""
    if depth < 0:
        raise OperatorError(f"depth must not be negative, got {depth}")
    index = as_index(b, indices)
    wide = dtype_of(index)
    if wide.bits < 32:  # depth may exceed what 8 bits hold
        wide = I32
        index = b.cast(index, dtype=wide)
    rank = len(indices.shape)
    position = b.iota(shape=(1,) * rank + (depth,), axis=rank, dtype=wide)
    hit = b.eq(b.reshape(index, shape=(*indices.shape, 1)), position)
    return b.select(hit, scalar(b, on_value, dtype), scalar(b, off_value, dtype))


@operator("_contrib_index_array", attrs={"axes": axes(None)})
def index_array(b: Any, data: Any, *, axes: Shape | None) -> Any:
    """For each element its position, along a new last axis, as int64; along the given axes alone if any"""
    old = tuple(data.shape)
    rank = len(old)
    chosen = range(rank) if axes is None else [axis_in(a, rank) for a in axes]
    if not chosen:
        raise OperatorError("index_array needs data with at least one axis")
    parts = [b.iota(shape=(*old, 1), axis=a, dtype=I64) for a in chosen]
    return b.concat(*parts, axis=rank)


def _checked_sizes(shape: Shape | None, what: str) -> Shape:
    if not shape:
        raise OperatorError(f"{what} needs the attribute shape")
    if any(n <= 0 for n in shape[1:]):
        raise OperatorError(f"the dimensions of shape={tuple(shape)} after the first must be positive in {what}")
    return shape


@operator("_ravel_multi_index", aliases=("ravel_multi_index",), attrs={"shape": optional(shape(), None)})
def ravel_multi_index(b: Any, data: Any, *, shape: Shape | None) -> Any:
    """The flat positions of the index tuples data[:, i]; the first dimension of `shape` does not matter"""
    sizes = _checked_sizes(shape, "ravel_multi_index")
    own = dtype_of(data)
    if len(data.shape) < 1 or data.shape[0] != len(sizes):
        raise OperatorError(f"data of shape {shape_text(data.shape)} must have {len(sizes)} rows, one per dimension")
    index = b.cast(as_index(b, data), dtype=I64)
    strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
    flat = b.reduce(b.mul(index, _per_row(b, strides, index)), op="sum", axes=(0,))
    return b.cast(b.reshape(flat, shape=tuple(data.shape[1:]) or (1,)), dtype=own)


@operator("_unravel_index", aliases=("unravel_index",), attrs={"shape": optional(shape(), None)})
def unravel_index(b: Any, data: Any, *, shape: Shape | None) -> Any:
    """The index tuples, along a new first axis, of flat positions; the first dimension of `shape` does not matter"""
    sizes = _checked_sizes(shape, "unravel_index")
    own = dtype_of(data)
    rest = b.cast(as_index(b, data), dtype=I64)
    rows = []
    for n in reversed(sizes[1:]):
        length = b.constant(n, I64)
        rows.append(b.mod(rest, length))
        rest = b.div(rest, length)
    rows.append(rest)
    new = (1, *data.shape)
    return b.cast(b.concat(*(b.reshape(r, shape=new) for r in reversed(rows)), axis=0), dtype=own)
