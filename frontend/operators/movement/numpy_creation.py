"""Operators of `mx.np` that create tensors from attributes or in another tensor's shape. Axes may have length 0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, F64, I32, DType, dtype_of
from gluonjit.operators.attributes import dtype, integer, number, optional, shape
from gluonjit.operators.documentation import documented
from gluonjit.operators.movement.creation import (
    CTX,
    FLOATS_AND_INTEGERS,
    arange,
    eye,
    filled,
    linspace,
    ones,
    range_length,
    zeros,
)
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import check_table, convert

_ANY = (*FLOATS_AND_INTEGERS, "bool")
_PLACED = {
    "shape": shape((), doc="the shape of the result"),
    "ctx": CTX,
    "dtype": dtype(F32, among=_ANY, doc="the element type of the result"),
}

operator("_npi_zeros", inputs=(), attrs=_PLACED)(zeros.expand)
operator("_npi_ones", inputs=(), attrs=_PLACED)(ones.expand)


@operator("_npi_identity", inputs=(), attrs=_PLACED)
def identity(b: Emitter, *, shape: Shape, ctx: str, dtype: DType) -> Any:
    """The identity matrix

    Shapes: no inputs -> `shape`, which is square

    >>> mx.np.identity(2).asnumpy()
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    if len(shape) != 2 or shape[0] != shape[1]:
        raise OperatorError(f"identity makes square matrices, not {tuple(shape)}")
    return eye.expand(b, N=shape[0], M=shape[0], k=0, ctx=ctx, dtype=dtype)


@operator(
    "_npi_full_like",
    inputs=("a",),
    attrs={
        "fill_value": number(doc="the value of all elements"),
        "ctx": CTX,
        "dtype": optional(dtype(among=_ANY, doc="the element type of the result")),
    },
    same_shape=True,
)
def full_like(b: Emitter, a: Any, *, fill_value: float, ctx: str, dtype: DType | None) -> Any:
    """A tensor of the shape of `a`, filled with a number

    Shapes: a (any) -> the same

    >>> mx.np.full_like(mx.np.array([1, 2]), 7).asnumpy()
    array([7., 7.], dtype=float32)
    """
    return filled(b, fill_value, a.shape, dtype or dtype_of(a))


@operator("_npi_arange", inputs=(), attrs=arange.attrs)
def np_arange(b: Emitter, *, start: float, stop: float | None, step: float, dtype: DType, **more: Any) -> Any:
    """start, start + step, … below stop, possibly empty; a single number is the stop, and the start is 0

    Shapes: no inputs -> (max(ceil((stop - start) / step), 0),)

    >>> mx.np.arange(2, 5).asnumpy()
    array([2., 3., 4.], dtype=float32)
    """
    first, last = (0.0, start) if stop is None else (start, stop)
    if step and range_length(first, last, step) <= 0:
        return filled(b, 0, (0,), dtype)
    return arange.expand(b, start=first, stop=last, step=step, dtype=dtype, **more)


@operator(
    "_npi_eye",
    inputs=(),
    attrs={
        **eye.attrs,
        "M": optional(integer(doc="number of columns; None means N"), None),
        "k": integer(0, doc="which diagonal; positive ones are above the main one"),
    },
)
def np_eye(b: Emitter, *, N: int, M: int | None, k: int, ctx: str, dtype: DType) -> Any:
    """Ones on a diagonal, zeros elsewhere

    Shapes: no inputs -> (N, M)

    >>> mx.np.eye(2, 3, k=1).asnumpy()
    array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    columns = N if M is None else M
    if not columns:
        return filled(b, 0, (N, 0), dtype)
    return eye.expand(b, N=N, M=columns, k=k, ctx=ctx, dtype=dtype)


# Windows, grids and scales


def _declare_window(name: str, doc: str, y: str, weights: tuple[float, ...]) -> None:
    """`weights`: of 1, cos(t), cos(2 t), where t goes once around."""

    def expand(b: Emitter, *, M: int | None, ctx: str, dtype: DType) -> Any:
        count = max(M or 0, 0)
        check_table(count)
        if count < 2:
            return filled(b, 1, (count,), dtype)
        angle = np.arange(count) * (2 * math.pi / (count - 1))
        table = sum(w * np.cos(k * angle) for k, w in enumerate(weights))
        return b.constant(np.asarray(table).astype(dtype.numpy))

    call = f">>> mx.np.{name}(5).asnumpy().round(2)\narray({y}, dtype=float32)"
    expand.__doc__ = documented(f"{doc} window", "no inputs -> (M,)", call)
    attrs = {
        "M": optional(integer(doc="the number of points"), None),
        "ctx": CTX,
        "dtype": dtype(F32, among=FLOATS_AND_INTEGERS, doc="the element type of the result"),
    }
    operator(f"_npi_{name}", inputs=(), attrs=attrs)(expand)


_declare_window("hanning", "The Hann", "[0. , 0.5, 1. , 0.5, 0. ]", (0.5, -0.5))
_declare_window("hamming", "The Hamming", "[0.08, 0.54, 1.  , 0.54, 0.08]", (0.54, -0.46))
_declare_window("blackman", "The Blackman", "[-0.  ,  0.34,  1.  ,  0.34, -0.  ]", (0.42, -0.5, 0.08))


@operator(
    "_npi_indices",
    inputs=(),
    attrs={
        "dimensions": shape(doc="the shape of the grid"),
        "dtype": dtype(I32, among=FLOATS_AND_INTEGERS, doc="the element type of the result"),
        "ctx": CTX,
    },
)
def indices(b: Emitter, *, dimensions: Shape, dtype: DType, ctx: str) -> Any:
    """The indices of each element of a grid, along a new first axis

    Shapes: no inputs -> (axes, *dimensions)

    >>> mx.np.indices((2, 2)).asnumpy().tolist()
    [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]
    """
    rank = len(dimensions)
    if not rank:
        return filled(b, 0, (0,), dtype)
    whole = (1, *dimensions)
    rows = [b.iota(shape=whole, axis=k + 1, dtype=dtype) for k in range(rank)]
    return b.concat(*rows, axis=0) if rank > 1 else rows[0]


@operator("_npi_logspace", inputs=(), attrs={**linspace.attrs, "base": number(10.0, doc="the base of the powers")})
def logspace(b: Emitter, *, base: float, dtype: DType, **even: Any) -> Any:
    """Powers of `base`, whose exponents go from start to stop in equal steps

    Shapes: no inputs -> (num,)

    >>> mx.np.logspace(0, 2, 3).asnumpy()
    array([  1.,  10., 100.], dtype=float32)
    """
    exponents = linspace.expand(b, **even, dtype=F64)
    return convert(b, b.pow(b.constant(base, F64), exponents), dtype)
