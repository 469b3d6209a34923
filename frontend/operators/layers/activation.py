"""`Activation` and `LeakyReLU`: the nonlinearities that a layer names by a string."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gluonjit.ir.dims import is_equal
from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, I32, DType, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.attributes import enum, number
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import (
    Shapes,
    first_from_output,
    narrowed,
    require_float,
    require_same_dtype,
    shape_text,
    widened,
)

_SELU_SCALE, _SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


def softrelu(b: Emitter, x: Any) -> Any:
    """log(1 + exp(x)) without overflow: max(x, 0) + log1p(exp(-|x|))."""
    return b.maximum(x, b.constant(0, dtype_of(x))) + b.log1p(b.exp(-abs(x)))


def _activation_gradient(b: Emitter, g: Any, y: Any, x: Any, *, act_type: str) -> tuple[Any] | None:
    if act_type == "relu":
        return gradients.relu(b, g, y, x)
    if act_type == "softrelu":
        return (g[0] * b.sigmoid(x[0]),)
    return gradients.softsign(b, g, y, x) if act_type == "softsign" else None


@operator(
    "Activation",
    attrs={"act_type": enum(("relu", "sigmoid", "softrelu", "softsign", "tanh"), doc="the function")},
    same_shape=True,
    gradient=_activation_gradient,
)
def activation(b: Emitter, data: Any, *, act_type: str) -> Any:
    """The activation `act_type`, element by element

    Shapes: data (any) -> the same

    relu is max(x, 0), sigmoid 1 / (1 + exp(-x)), tanh the hyperbolic tangent, softrelu log(1 + exp(x)) (Dugas et al.,
    2001, known as softplus), softsign x / (1 + |x|). MXNetError for data that are not floats.

    >>> mx.nd.Activation(mx.nd.array([-1, 0, 3]), act_type="softsign").asnumpy()
    array([-0.5 ,  0.  ,  0.75], dtype=float32)
    """
    dtype = require_float(data)
    if act_type == "relu":
        return b.maximum(data, b.constant(0, dtype))
    if act_type == "sigmoid":
        return b.sigmoid(data)
    if act_type == "tanh":
        return b.tanh(data)
    if act_type == "softrelu":
        return narrowed(b, softrelu(b, widened(b, data)), dtype)
    return data / (1 + abs(data))


def gelu(b: Emitter, x: Any) -> Any:
    """x times the standard normal distribution function: x (1 + erf(x / sqrt 2)) / 2."""
    return x * 0.5 * _twice_normal(b, x)


def _twice_normal(b: Emitter, x: Any) -> Any:
    """Twice the standard normal distribution function."""
    return b.erf(x * math.sqrt(0.5)) + 1


def _gelu_gradient(b: Emitter, head: Any, data: Any) -> Any:
    """The cotangent times one slope: Φ(x) + x φ(x), the normal distribution function and x times its density.

    By the rules of the primitives the cotangent would be a factor of both terms, so that nothing could compute the
    slope before there is a cotangent. What computes `gelu` again for another gradient has most of it already."""
    x = widened(b, data)
    density = b.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    slope = _twice_normal(b, x) * 0.5 + x * density
    return narrowed(b, widened(b, head) * slope, dtype_of(data))


def _scaled_below_zero(b: Emitter, x: Any, slope: float, dtype: DType) -> Any:
    if slope == 0:  # infinity times 0 would be NaN
        return b.maximum(x, b.constant(0, dtype))
    scaled = x * slope
    if 0 < slope <= 1:  # then the result is max(x, slope x) on both sides of 0
        return b.maximum(x, scaled)
    return b.select(x > 0, x, scaled)


def _exponential_below_zero(b: Emitter, x: Any, alpha: float, dtype: DType) -> Any:
    return b.select(x > 0, x, b.expm1(x) * alpha)


def _prelu(b: Emitter, data: Any, gamma: Any, dtype: DType) -> Any:
    # As in MXNet, the last dimension of gamma goes with axis 1 of the data if it broadcasts there, else with axis 0.
    shape, left = [1] * len(data.shape), list(gamma.shape)
    for axis in reversed(range(min(2, len(shape)))):
        if left and (left[-1] == 1 or is_equal(left[-1], data.shape[axis])):
            shape[axis] = left.pop()
    if left:
        raise OperatorError(
            f"Cannot broadcast gamma to data. gamma: {shape_text(gamma.shape)}, data: {shape_text(data.shape)}; "
            f"gamma holds one slope, or one per channel (axis 1)"
        )
    return b.select(data > 0, data, data * b.reshape(gamma, shape=tuple(shape)))


def _rrelu(b: Emitter, data: Any, low: float, high: float, dtype: DType) -> tuple[Any, Any]:
    """Output and slopes. When training, a slope per element is drawn from [low, high); otherwise all are the mean."""
    if b.training:
        bits = b.shift_right(b.random_bits(data.shape, I32), b.constant(8, I32))
        share = b.cast(bits, dtype=F32) * 2.0**-24
        slope = b.cast(share * (high - low) + low, dtype=dtype)
    else:
        slope = b.broadcast(b.constant((low + high) / 2, dtype), shape=data.shape)
    mask = b.select(data > 0, b.constant(1, dtype), slope)
    return data * mask, mask


def _leaky_shapes(attrs: Mapping[str, Any], inputs: Shapes) -> Shapes:
    """Infers one slope per channel for gamma, unless its shape or rank is already known."""
    if attrs["act_type"] != "prelu" or not inputs[0] or inputs[1] and (0 not in inputs[1] or len(inputs[1]) > 1):
        return inputs
    return [inputs[0], (inputs[0][min(1, len(inputs[0]) - 1)],)]


def _leaky_gradient(b: Emitter, g: Any, y: Any, x: Any, *, act_type: str, slope: float, **_attrs: Any) -> Any:
    """At 0 it is the gradient of the side below, as in MXNet. What the other side would overflow to is not multiplied
    by 0."""
    (head, *_), (out, *_), (data, *_) = g, y, x
    if act_type == "gelu":
        return (_gelu_gradient(b, head, data),)
    dtype = dtype_of(data)
    scale = b.constant(_SELU_SCALE if act_type == "selu" else 1, dtype)
    if act_type == "leaky":
        below = b.constant(slope, dtype)
    elif act_type in ("elu", "selu"):
        below = out + b.constant(slope if act_type == "elu" else _SELU_SCALE * _SELU_ALPHA, dtype)
    else:
        return None
    zero = b.constant(0, dtype)
    if act_type == "leaky":
        return (head * b.select(data > zero, scale, below),)
    return (head * b.select(data <= zero, below, scale),)


def _leaky_outputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    return ("output", "mask") if attrs["act_type"] == "rrelu" else ("output",)


@operator(
    "LeakyReLU",
    inputs=lambda attrs: ("data", "gamma") if attrs["act_type"] == "prelu" else ("data",),
    attrs={
        "act_type": enum(("elu", "gelu", "leaky", "prelu", "rrelu", "selu"), "leaky", doc="the function"),
        "slope": number(0.25, doc="the slope below 0, of leaky and elu"),
        "lower_bound": number(0.125, doc="the least slope of rrelu"),
        "upper_bound": number(0.334, doc="the largest slope of rrelu"),
    },
    outputs=_leaky_outputs,
    complete=_leaky_shapes,
    initializers={"gamma": '["Constant", {"value": 0.25}]'},
    infer_inputs=first_from_output,
    streams=lambda attrs, training: int(training and attrs["act_type"] == "rrelu"),
    gradient=_leaky_gradient,
)
def leaky_relu(
    b: Emitter, data: Any, gamma: Any = None, *, act_type: str, slope: float, lower_bound: float, upper_bound: float
) -> Any:
    """A variant of relu, named by `act_type`, that is not constant below 0

    Shapes: data (batch, channels, …), gamma (channels,) or (1,), only for prelu -> data's shape

    Below 0, the result is slope x for leaky, gamma x for prelu, slope (exp(x) - 1) for elu, and for rrelu a random
    slope times x when training, else the mean slope times x (its second output holds the slopes). selu is a scaled elu
    with fixed constants; gelu is x (1 + erf(x / sqrt 2)) / 2 everywhere.

    Sources: elu, Clevert et al. 2015; prelu, He et al. 2015; rrelu, Xu et al. 2015; selu, Klambauer et al. 2017; gelu,
    Hendrycks and Gimpel 2016. MXNetError for data that are not floats.

    >>> mx.nd.LeakyReLU(mx.nd.array([-2, 0, 2]), act_type="leaky", slope=0.5).asnumpy()
    array([-1.,  0.,  2.], dtype=float32)
    """
    dtype = require_float(data)
    if act_type == "prelu":
        require_same_dtype(data, gamma)
        return _prelu(b, data, gamma, dtype)
    if act_type == "leaky":
        return _scaled_below_zero(b, data, slope, dtype)
    if act_type == "rrelu":
        return _rrelu(b, data, lower_bound, upper_bound, dtype)
    if act_type == "elu":
        return _exponential_below_zero(b, data, slope, dtype)
    if act_type == "selu":
        return _exponential_below_zero(b, data, _SELU_ALPHA, dtype) * _SELU_SCALE
    return narrowed(b, gelu(b, widened(b, data)), dtype)
