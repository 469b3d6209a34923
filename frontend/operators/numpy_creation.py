"""Operators of `mx.np` that create tensors from attributes or in another tensor's shape. Axes may have length 0."""

from __future__ import annotations

from typing import Any

from gluonjit.ir.types import F32, DType, dtype_of
from gluonjit.operators.attributes import dtype, integer, number, optional, shape
from gluonjit.operators.creation import CTX, FLOATS_AND_INTEGERS, arange, eye, filled, ones, range_length, zeros
from gluonjit.operators.registry import OperatorError, Shape, operator

_ANY = (*FLOATS_AND_INTEGERS, "bool")
_PLACED = {"shape": shape((), doc="of the result"), "ctx": CTX, "dtype": dtype(F32, among=_ANY, doc="of the result")}

operator("_npi_zeros", inputs=(), attrs=_PLACED)(zeros.expand)
operator("_npi_ones", inputs=(), attrs=_PLACED)(ones.expand)


@operator("_npi_identity", inputs=(), attrs=_PLACED)
def identity(b: Any, *, shape: Shape, ctx: str, dtype: DType) -> Any:
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
        "fill_value": number(doc="of all elements"),
        "ctx": CTX,
        "dtype": optional(dtype(among=_ANY, doc="of the result")),
    },
    same_shape=True,
)
def full_like(b: Any, a: Any, *, fill_value: float, ctx: str, dtype: DType | None) -> Any:
    """A tensor of the shape of `a`, filled with a number

    Shapes: a (any) -> the same

    >>> mx.np.full_like(mx.np.array([1, 2]), 7).asnumpy()
    array([7., 7.], dtype=float32)
    """
    return filled(b, fill_value, a.shape, dtype or dtype_of(a))


@operator("_npi_arange", inputs=(), attrs=arange.attrs)
def np_arange(b: Any, *, start: float, stop: float | None, step: float, dtype: DType, **more: Any) -> Any:
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
def np_eye(b: Any, *, N: int, M: int | None, k: int, ctx: str, dtype: DType) -> Any:
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
