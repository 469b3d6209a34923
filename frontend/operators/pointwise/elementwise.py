"""Other elementwise operators: casts, clipping, selection, and identities that differ only in their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import BOOL, F32, DType, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.attributes import boolean, counted, dtype, enum, number
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import (
    Shapes,
    convert,
    merge,
    require_numeric,
    require_same_dtype,
    require_same_shape,
    scalar,
    shape_text,
)


@operator("Cast", aliases=("cast",), attrs={"dtype": dtype(doc="the element type of the result")}, same_shape=True)
def cast(b: Emitter, data: Any, *, dtype: DType) -> Any:
    """The input converted to another element type

    Shapes: data (any) -> the same

    Floats become integers by truncation toward 0.

    >>> mx.nd.cast(mx.nd.array([-1.7, 0, 2.9]), dtype="int32").asnumpy()
    array([-1,  0,  2], dtype=int32)
    """
    return convert(b, data, dtype)


@operator("amp_cast", attrs={"dtype": dtype(doc="the element type of the result")}, same_shape=True)
def amp_cast(b: Emitter, data: Any, *, dtype: DType) -> Any:
    """`Cast` for float inputs, as automatic mixed precision inserts it; other inputs are returned unchanged

    Shapes: data (any) -> the same

    >>> mx.nd.amp_cast(mx.nd.array([1, 2]), dtype="float16").asnumpy()
    array([1., 2.], dtype=float16)
    """
    return convert(b, data, dtype) if dtype_of(data).is_float else data


@operator(
    "amp_multicast",
    variadic=True,
    inputs=lambda attrs: tuple(f"data_{k}" for k in range(attrs["num_outputs"])),
    attrs={
        "num_outputs": counted(doc="how many inputs there are"),
        "cast_narrow": boolean(False, doc="whether to convert to the narrowest type, not the widest"),
    },
    outputs=lambda attrs: tuple(f"output{k}" for k in range(attrs["num_outputs"])),
)
def amp_multicast(b: Emitter, *data: Any, num_outputs: int, cast_narrow: bool) -> tuple[Any, ...]:
    """Float inputs converted to the widest of their types; other inputs are returned unchanged

    Shapes: num_outputs arrays (any) -> their shapes

    >>> half, single = mx.nd.ones(2, dtype="float16"), mx.nd.ones(2)
    >>> [str(y.asnumpy().dtype) for y in mx.nd.amp_multicast(half, single, num_outputs=2)]
    ['float32', 'float32']
    """
    floats = [dtype_of(x) for x in data if dtype_of(x).is_float]
    if not floats:
        return data
    chosen = (min if cast_narrow else max)(floats, key=lambda t: t.bits)
    return tuple(convert(b, x, chosen) if dtype_of(x).is_float else x for x in data)


def _integer_bound(bound: float, own: DType, none: int) -> int:
    """The float `bound` for clipping integers of type `own`: truncated, and within their range; `none` for NaN."""
    if math.isnan(bound):
        return none
    info = np.iinfo(own.numpy)
    return info.max if bound >= info.max else info.min if bound <= info.min else int(bound)


def _clip_gradient(b: Emitter, g: Any, y: Any, x: Any, *, a_min: float, a_max: float) -> tuple[Any] | None:
    """1 at the bounds, and of NaN."""
    dtype = dtype_of(x[0])
    if not dtype.is_float:
        return None
    outside = (x[0] > scalar(b, a_max, dtype)) | (x[0] < scalar(b, a_min, dtype))
    return (b.select(outside, b.constant(0, dtype), g[0]),)


@operator(
    "clip",
    attrs={"a_min": number(doc="the lower bound"), "a_max": number(doc="the upper bound")},
    same_shape=True,
    gradient=_clip_gradient,
)
def clip(b: Emitter, data: Any, *, a_min: float, a_max: float) -> Any:
    """The elements limited to [a_min, a_max]; NaN is kept

    Shapes: data (any) -> the same

    >>> mx.nd.clip(mx.nd.array([-2, 0.5, 7]), 0, 1).asnumpy()
    array([0. , 0.5, 1. ], dtype=float32)
    """
    own = require_numeric("clip", data)
    if own.is_integer:
        info = np.iinfo(own.numpy)
        low = b.constant(_integer_bound(a_min, own, info.min), own)
        high = b.constant(_integer_bound(a_max, own, info.max), own)
    else:
        low, high = scalar(b, a_min, own), scalar(b, a_max, own)
    if a_min <= a_max:
        return b.minimum(b.maximum(data, low), high)
    # If a_min > a_max, the upper bound is checked first, as in MXNet; a bound of NaN has no effect.
    return b.select(data > high, high, b.select(data < low, low, data))


def _where_shapes(attrs: Mapping[str, Any], inputs: Shapes) -> Shapes:
    condition, x, y = inputs
    branch = merge(x, y)
    if condition is not None and branch is not None and len(condition) in (1, len(branch)):
        # A condition has the branches' shape or that of their first axis; other shapes are refused by the expansion.
        branch = tuple(n or m for n, m in zip(branch, (*condition, *branch[len(condition) :])))
    return [condition, branch, branch]


def _infer_where_inputs(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    return [inputs[0], merge(inputs[1], outputs[0]), merge(inputs[2], outputs[0])]


@operator("where", inputs=("condition", "x", "y"), complete=_where_shapes, infer_inputs=_infer_where_inputs)
def where(b: Emitter, condition: Any, x: Any, y: Any) -> Any:
    """x where the condition is nonzero, else y; a condition with one axis selects whole rows

    Shapes: condition (any) or (n,), x and y (n, …) -> the shape of x

    MXNetError if x and y differ in shape or element type.

    >>> mx.nd.where(mx.nd.array([1, 0]), mx.nd.array([1, 2]), mx.nd.array([10, 20])).asnumpy()
    array([ 1., 20.], dtype=float32)
    """
    require_same_dtype(x, y)
    require_same_shape(x, y)
    if condition.shape != x.shape:
        if len(condition.shape) != 1 or not x.shape or condition.shape[0] != x.shape[0]:
            raise OperatorError(
                f"the condition of where must have the shape {shape_text(x.shape)} of x and y, or be a vector as long "
                f"as their first axis, got {shape_text(condition.shape)}"
            )
        condition = b.reshape(condition, shape=(*condition.shape, *(1,) * (len(x.shape) - 1)))
    chosen = condition if dtype_of(condition) is BOOL else b.cast(condition, dtype=BOOL)
    return b.select(chosen, x, y)


@operator("_copy", aliases=("identity",), same_shape=True)
def copy(b: Emitter, data: Any) -> Any:
    """The input itself

    Shapes: data (any) -> the same

    >>> mx.nd.identity(mx.nd.array([1, 2])).asnumpy()
    array([1., 2.], dtype=float32)
    """
    return data


@operator("BlockGrad", aliases=("stop_gradient",), same_shape=True, gradient=gradients.zero)
def block_grad(b: Emitter, data: Any) -> Any:
    """The input, with a gradient of zero

    Shapes: data (any) -> the same

    >>> x = mx.nd.array([3])
    >>> x.attach_grad()
    >>> with mx.autograd.record():
    ...     y = x * mx.nd.BlockGrad(x)
    >>> y.backward()
    >>> y.asnumpy(), x.grad.asnumpy()
    (array([9.], dtype=float32), array([3.], dtype=float32))
    """
    return data


@operator("make_loss", same_shape=True, outputs=lambda attrs: ("loss",), gradient=gradients.one)
def make_loss(b: Emitter, data: Any) -> Any:
    """The input, marked as a loss: its gradient is 1

    Shapes: data (any) -> the same

    The gradient that arrives from later operators is ignored.

    >>> mx.nd.make_loss(mx.nd.array([1, 2])).asnumpy()
    array([1., 2.], dtype=float32)
    """
    return data


def _loss_gradient(
    b: Emitter, g: Any, y: Any, x: Any, *, grad_scale: float, valid_thresh: float, normalization: str
) -> Any:
    (data,) = x
    dtype = dtype_of(data)
    if not dtype.is_float and (normalization != "null" or grad_scale % 1):
        return gradients.refused
    scale = b.constant(grad_scale, dtype)
    if normalization == "batch":
        scale = b.constant(grad_scale / max(math.prod(data.shape[:-1]), 1), dtype)
    elif normalization == "valid":
        valid = b.cast(data > valid_thresh, dtype=F32)
        count = b.reduce(valid, op="sum", axes=tuple(range(len(data.shape))))
        scale = scale / b.cast(b.maximum(count, b.constant(1, F32)), dtype=dtype)
    return (scale,)


@operator(
    "MakeLoss",
    gradient=_loss_gradient,
    attrs={
        "grad_scale": number(1.0, doc="what the gradient is multiplied by"),
        "valid_thresh": number(0.0, doc="what elements that count exceed, for `valid`"),
        "normalization": enum(("batch", "null", "valid"), "null", doc="what the gradient is divided by"),
    },
    same_shape=True,
)
def make_scaled_loss(b: Emitter, data: Any, **gradient: Any) -> Any:
    """The input, marked as a loss: its gradient is `grad_scale`, normalized by `normalization`

    Shapes: data (any) -> the same

    `batch` divides the gradient by the product of all extents but the last, `valid` by the number of elements above
    `valid_thresh`.

    >>> x = mx.nd.array([[3], [4]])
    >>> x.attach_grad()
    >>> with mx.autograd.record():
    ...     loss = mx.nd.MakeLoss(x * x, grad_scale=10, normalization="batch")
    >>> loss.backward()
    >>> x.grad.asnumpy()
    array([[30.],
           [40.]], dtype=float32)
    """
    require_numeric("MakeLoss", data)
    return data
