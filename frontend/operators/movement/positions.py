"""Operators on indices: one-hot encoding, index arrays, and conversion between flat and multi-dimensional indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, I32, I64, DType, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.attributes import dtype, integer, number, optional, shape
from gluonjit.operators.movement.creation import FLOATS_AND_INTEGERS
from gluonjit.operators.movement.indexing import as_index, per_row
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import axis_in, scalar, shape_text


@operator(
    "one_hot",
    inputs=("indices",),
    attrs={
        "depth": integer(doc="length of the new last axis"),
        "on_value": number(1.0, doc="the value at the index"),
        "off_value": number(0.0, doc="elsewhere"),
        "dtype": dtype(F32, among=FLOATS_AND_INTEGERS, doc="the element type of the result"),
    },
)
def one_hot(b: Emitter, indices: Any, *, depth: int, on_value: float, off_value: float, dtype: DType) -> Any:
    """`on_value` where the position along a new last axis is the index, `off_value` elsewhere

    Shapes: indices (any) -> (*indices.shape, depth)

    >>> mx.nd.one_hot(mx.nd.array([1, 0]), depth=3).asnumpy()
    array([[0., 1., 0.],
           [1., 0., 0.]], dtype=float32)
    """
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


@operator(
    "_contrib_index_array",
    attrs={"axes": optional(shape(doc="coordinates to give; None: all"), None)},
    gradient=gradients.zero,
)
def index_array(b: Emitter, data: Any, *, axes: Shape | None) -> Any:
    """The position of each element as int64 along a new last axis; `axes` selects its coordinates

    Shapes: data (any) -> (*data.shape, axes)

    >>> mx.nd.contrib.index_array(mx.nd.zeros((1, 2))).asnumpy().tolist()
    [[[0, 0], [0, 1]]]
    """
    old = tuple(data.shape)
    rank = len(old)
    chosen = range(rank) if axes is None else [axis_in(a, rank) for a in axes]
    if not chosen:
        return b.constant(np.empty((*old, 0), np.int64))
    parts = [b.iota(shape=(*old, 1), axis=a, dtype=I64) for a in chosen]
    return b.concat(*parts, axis=rank)


def _checked_sizes(shape: Shape | None, what: str) -> Shape:
    if not shape:
        raise OperatorError(f"{what} needs the attribute shape")
    if any(n <= 0 for n in shape[1:]):
        raise OperatorError(f"the dimensions of shape={tuple(shape)} after the first must be positive in {what}")
    return shape


@operator(
    "_ravel_multi_index",
    aliases=("ravel_multi_index",),
    attrs={"shape": optional(shape(doc="the shape of the array that the positions are in"), None)},
    gradient=gradients.zero,
)
def ravel_multi_index(b: Emitter, data: Any, *, shape: Shape | None) -> Any:
    """Converts the index tuples data[:, i] to flat positions; the first dimension of `shape` has no effect

    Shapes: data (axes, …) -> (…)

    >>> mx.nd.ravel_multi_index(mx.nd.array([[0, 1], [2, 1]]), shape=(2, 3)).asnumpy()
    array([2., 4.], dtype=float32)
    """
    sizes = _checked_sizes(shape, "ravel_multi_index")
    own = dtype_of(data)
    if len(data.shape) < 1 or data.shape[0] != len(sizes):
        raise OperatorError(f"data of shape {shape_text(data.shape)} must have {len(sizes)} rows, one per dimension")
    index = b.cast(as_index(b, data), dtype=I64)
    strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
    flat = b.reduce(index * per_row(b, strides, index), op="sum", axes=(0,))
    return b.cast(b.reshape(flat, shape=tuple(data.shape[1:]) or (1,)), dtype=own)


@operator(
    "_unravel_index",
    aliases=("unravel_index",),
    attrs={"shape": optional(shape(doc="the shape of the array that the positions are in"), None)},
    gradient=gradients.zero,
)
def unravel_index(b: Emitter, data: Any, *, shape: Shape | None) -> Any:
    """Converts flat positions to index tuples along a new first axis; the first dimension of `shape` has no effect

    Shapes: data (any) -> (axes, *data.shape)

    >>> mx.nd.unravel_index(mx.nd.array([2, 4]), shape=(2, 3)).asnumpy()
    array([[0., 1.],
           [2., 1.]], dtype=float32)
    """
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
