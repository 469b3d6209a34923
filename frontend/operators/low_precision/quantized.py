"""Layers on 8-bit integers. Results are 8-bit integers or, for sums of products, int32.

See `quantization` for the values that integers represent. Inputs and results come with their minimum and maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, I8, I16, I32, U8, DType
from gluonjit.operators import gradients
from gluonjit.operators.attributes import counted, enum, integer
from gluonjit.operators.layers.convolution import convolution, convolve
from gluonjit.operators.layers.dense import dense, embedding, fully_connected
from gluonjit.operators.layers.pooling import pooling
from gluonjit.operators.low_precision.quantization import (
    CALIBRATION,
    SPANS,
    calibrated,
    range_of,
    require_range,
    require_type,
    to_integers,
)
from gluonjit.operators.movement.creation import filled
from gluonjit.operators.registry import Operator, OperatorError, operator
from gluonjit.operators.support import Shapes, axis_in, merge, require_same_shape, scalar, shape_text


def _results(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    return ("output", "min_output", "max_output")


# Sums of products


def _layer_inputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    parts = ("data", "weight") if attrs["no_bias"] else ("data", "weight", "bias")
    return (*parts, *(f"{end}_{part}" for part in parts for end in ("min", "max")))


def _layer_shapes(like: Operator) -> Any:
    """A `complete` rule: that of the float layer, and (1,) for each minimum and maximum."""

    def complete(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
        assert like.complete is not None
        count = 2 if attrs["no_bias"] else 3
        return [*like.complete(attrs, shapes[:count]), *(merge(s, (1,)) for s in shapes[count:])]

    return complete


Ends = list[tuple[Any, Any]]
"""The minimum and maximum of each input."""


def _sorted_inputs(given: tuple[Any, ...], no_bias: bool) -> tuple[list[Any], Ends]:
    """Data, weight and perhaps bias; and the minimum and maximum of each. Inputs that were left out are None."""
    count = 2 if no_bias else 3
    inputs = [x for x in given if x is not None]
    parts, ends = inputs[:count], inputs[count:]
    require_range(*ends)
    require_type(parts[0], "the data", I8, U8)
    for x in parts[1:]:
        require_type(x, "weight and bias", I8)
    return parts, list(zip(ends[::2], ends[1::2]))


def _sum_of_products(name: str, like: Operator) -> Callable[[Callable[..., Any]], Operator]:
    """Declares a layer on 8-bit integers, with the attributes of `like`. The function is called with
    `_sorted_inputs`."""

    def declare(compute: Callable[..., Any]) -> Operator:
        def expand(
            b: Emitter,
            data: Any,
            weight: Any,
            bias: Any = None,
            min_data: Any = None,
            max_data: Any = None,
            min_weight: Any = None,
            max_weight: Any = None,
            min_bias: Any = None,
            max_bias: Any = None,
            **attrs: Any,
        ) -> Any:
            given = (data, weight, bias, min_data, max_data, min_weight, max_weight, min_bias, max_bias)
            return compute(b, *_sorted_inputs(given, attrs["no_bias"]), **attrs)

        expand.__doc__, expand.__name__ = compute.__doc__, compute.__name__
        return operator(
            name,
            inputs=_layer_inputs,
            attrs=like.attrs,
            outputs=_results,
            complete=_layer_shapes(like),
            gradient=gradients.zero,
        )(expand)

    return declare


def _factors(b: Emitter, parts: list[Any]) -> tuple[Any, Any]:
    """Data and weight in the type in which kernels multiply them."""
    return b.cast(parts[0], dtype=I16), b.cast(parts[1], dtype=I16)


def _product_range(b: Emitter, ends: Ends, dtype: DType) -> tuple[Any, Any]:
    """Minimum and maximum of int32 sums of products. A factor's integer step is range / 127 (uint8: / 255)."""
    data, weight = (range_of(b, *pair) for pair in ends[:2])
    data = data / scalar(b, 255 if dtype is U8 else 127, F32)
    most = data * (weight / 127) * scalar(b, 2.0**31, F32)
    return -most, most


@_sum_of_products("_contrib_quantized_conv", convolution)
def quantized_convolution(b: Emitter, parts: list[Any], ends: Ends, **attrs: Any) -> Any:
    """`Convolution` of 8-bit data with int8 weights, as int32; an int8 bias is added without scaling

    Shapes: those of `Convolution`, and each range (1,) -> (batch, num_filter, *extents), (1,), (1,)

    The range of the result is that of int32: 2³¹ - 1 stands for the largest product of data and weight.

    >>> data, weight = mx.nd.array([[[[1, 2, 4]]]], dtype="int8"), mx.nd.array([[[[1, 1]]]], dtype="int8")
    >>> one, options = mx.nd.ones(1), {"kernel": (1, 2), "num_filter": 1, "no_bias": True}
    >>> mx.nd.contrib.quantized_conv(data, weight, None, -one, one, -one, one, **options)[0].asnumpy()
    array([[[[3, 6]]]], dtype=int32)
    """
    # As in MXNet, the result's range treats the data as int8, and the bias as if it had the scale of the products.
    data, weight = _factors(b, parts)
    bias = b.cast(parts[2], dtype=I32) if len(parts) > 2 else None
    return (convolve(b, data, weight, bias, dtype=I32, **attrs), *_product_range(b, ends, I8))


@_sum_of_products("_contrib_quantized_fully_connected", fully_connected)
def quantized_fully_connected(b: Emitter, parts: list[Any], ends: Ends, **attrs: Any) -> Any:
    """`FullyConnected` of 8-bit data with int8 weights, as int32; an int8 bias is scaled to match

    Shapes: those of `FullyConnected`, and each range (1,) -> (batch, num_hidden), (1,), (1,)

    >>> data, weight = mx.nd.array([[1, 2]], dtype="int8"), mx.nd.array([[3, 4]], dtype="int8")
    >>> one, options = mx.nd.ones(1), {"num_hidden": 1, "no_bias": True}
    >>> mx.nd.contrib.quantized_fully_connected(data, weight, None, -one, one, -one, one, **options)[0].asnumpy()
    array([[11]], dtype=int32)
    """
    own = require_type(parts[0], "the data", I8, U8)
    bias = None
    if len(parts) > 2:
        factors, offset = [range_of(b, *pair) for pair in ends[:2]], range_of(b, *ends[2])
        # The number of integer steps of a product in one integer step of the bias.
        data_units = scalar(b, SPANS[own], F32) / factors[0]
        weight_units = scalar(b, SPANS[I8], F32) / factors[1]
        scale = offset / scalar(b, SPANS[I8], F32) * data_units * weight_units
        bias = b.cast(b.cast(parts[2], dtype=F32) * scale, dtype=I32)
    data, weight = _factors(b, parts)
    return (dense(b, data, weight, bias, dtype=I32, **attrs), *_product_range(b, ends, own))


# Layers that keep the range


def _with_range(*first: str) -> tuple[str, ...]:
    return (*first, "min_data", "max_data")


@operator(
    "_contrib_quantized_pooling",
    inputs=_with_range("data"),
    attrs=pooling.attrs,
    outputs=_results,
    gradient=gradients.zero,
)
def quantized_pooling(b: Emitter, data: Any, min_data: Any, max_data: Any, **attrs: Any) -> Any:
    """`Pooling` of integers: maxima, or averages rounded to the nearest integer; the range is unchanged

    Shapes: data (batch, channels, *space), min_data and max_data (1,) -> (batch, channels, *extents), (1,), (1,)

    Averages divide by the size of the whole window, including padding, unless `count_include_pad=False`.

    >>> data, one = mx.nd.array([[[[1, 5, 2, 3]]]], dtype="int8"), mx.nd.ones(1)
    >>> mx.nd.contrib.quantized_pooling(data, -one, one, kernel=(1, 2), stride=(1, 2))[0].asnumpy()
    array([[[[5, 3]]]], dtype=int8)
    """
    own = require_type(data, "the data of quantized_pooling", I8, U8)
    require_range(min_data, max_data)
    if attrs["pool_type"] not in ("max", "avg"):
        raise OperatorError("QuantizedPoolingOp only supports pool_type=max/avg for now")
    x = b.cast(data, dtype=F32)
    fixed_divisor = attrs["pool_type"] == "avg" and attrs["count_include_pad"] is not False and not attrs["global_pool"]
    if fixed_divisor:
        attrs = {**attrs, "pool_type": "sum"}
    y = pooling.expand(b, x, **attrs)
    if fixed_divisor:
        y = y / scalar(b, math.prod(attrs["kernel"]), F32)
    return b.cast(b.rint(y), dtype=own), min_data, max_data


@operator(
    "_contrib_quantized_act",
    inputs=_with_range("data"),
    attrs={"act_type": enum(("relu", "sigmoid", "softrelu", "softsign", "tanh"), doc="only relu is supported")},
    outputs=_results,
    gradient=gradients.refused,
)
def quantized_activation(b: Emitter, data: Any, min_data: Any, max_data: Any, *, act_type: str) -> Any:
    """`Activation` of integers, as int8; the range is unchanged

    Shapes: data (any), min_data and max_data (1,) -> data's shape, (1,), (1,)

    >>> data, one = mx.nd.array([-1, 2], dtype="int8"), mx.nd.ones(1)
    >>> mx.nd.contrib.quantized_act(data, -one, one, act_type="relu")[0].asnumpy()
    array([0, 2], dtype=int8)
    """
    own = require_type(data, "the data of quantized_act", I8, U8)
    require_range(min_data, max_data)
    if act_type != "relu":
        raise OperatorError("_contrib_quantized_act only supports act_type=relu for now")
    y = data if own is U8 else b.maximum(data, scalar(b, 0, own))
    return y if own is I8 else b.cast(b.cast(y, dtype=I32), dtype=I8), min_data, max_data


@operator("_contrib_quantized_flatten", inputs=_with_range("data"), outputs=_results, gradient=gradients.zero)
def quantized_flatten(b: Emitter, data: Any, min_data: Any, max_data: Any) -> Any:
    """`Flatten` of integers; the range is unchanged

    Shapes: data (n, …), min_data and max_data (1,) -> (n, product of the others), (1,), (1,)

    >>> data, one = mx.nd.zeros((2, 3, 4), dtype="int8"), mx.nd.ones(1)
    >>> mx.nd.contrib.quantized_flatten(data, -one, one)[0].shape
    (2, 12)
    """
    require_type(data, "the data of quantized_flatten", I8, U8)
    require_range(min_data, max_data)
    return b.reshape(data, shape=(data.shape[0], math.prod(data.shape[1:]))), min_data, max_data


@operator(
    "_contrib_quantized_embedding",
    inputs=("data", "weight", "min_weight", "max_weight"),
    attrs=embedding.attrs,
    outputs=_results,
    complete=lambda attrs, shapes: [
        shapes[0],
        merge(shapes[1], (attrs["input_dim"], attrs["output_dim"])),
        *(merge(s, (1,)) for s in shapes[2:]),
    ],
    gradient=gradients.zero,
)
def quantized_embedding(b: Emitter, data: Any, weight: Any, min_weight: Any, max_weight: Any, **attrs: Any) -> Any:
    """`Embedding` with int8 weights; the result has the range of the weights

    Shapes: data (any), weight (input_dim, output_dim), min_weight and max_weight (1,) -> (*data.shape, output_dim),
    (1,), (1,)

    >>> weight, one = mx.nd.array([[1, 2], [3, 4]], dtype="int8"), mx.nd.ones(1)
    >>> mx.nd.contrib.quantized_embedding(mx.nd.array([1]), weight, -one, one, input_dim=2, output_dim=2)[0].asnumpy()
    array([[3, 4]], dtype=int8)
    """
    require_type(weight, "the weight of quantized_embedding", I8)
    require_range(min_weight, max_weight)
    return embedding.expand(b, data, weight, **attrs), min_weight, max_weight


# Layers that rescale inputs of different ranges to one


def _step(b: Emitter, least: Any, most: Any, dtype: DType) -> Any:
    """The real value of one integer step."""
    return range_of(b, least, most) / scalar(b, SPANS[dtype], F32)


def _common(*inputs: Any) -> DType:
    """uint8 if all of the inputs are, else int8."""
    return U8 if all(require_type(x, "the data", I8, U8) is U8 for x in inputs) else I8


@operator(
    "_contrib_quantized_concat",
    inputs=lambda attrs: (
        *(f"arg{k}" for k in range(attrs["num_args"])),
        *(f"arg{k}_{end}" for k in range(attrs["num_args"]) for end in ("min", "max")),
    ),
    variadic=True,
    attrs={"num_args": counted(doc="number of tensors to join"), "dim": integer(1, doc="the axis to join along")},
    outputs=_results,
    gradient=gradients.zero,
)
def quantized_concat(b: Emitter, *data: Any, num_args: int, dim: int) -> Any:
    """`Concat` of integers, rescaled to the range of all inputs; the minima and maxima follow the tensors

    Shapes: num_args tensors alike but along `dim`, then a minimum and a maximum (1,) of each -> the joined tensor,
    (1,), (1,)

    >>> x, one = mx.nd.array([[127]], dtype="int8"), mx.nd.ones(1)
    >>> mx.nd.contrib.quantized_concat(x, x, -one, one, -2 * one, 2 * one, num_args=2, dim=1)[0].asnumpy()
    array([[ 64, 127]], dtype=int8)
    """
    parts, ends = data[:num_args], data[num_args:]
    require_range(*ends)
    dtype = _common(*parts)
    least, most = ends[0], ends[1]
    for low, high in zip(ends[2::2], ends[3::2]):
        least, most = b.minimum(least, low), b.maximum(most, high)
    step = _step(b, least, most, dtype)
    scaled = []
    for x, low, high in zip(parts, ends[::2], ends[1::2]):
        own = require_type(x, "the data", I8, U8)
        factor = _step(b, low, high, own) / step
        scaled.append(to_integers(b, b.cast(x, dtype=F32), factor, dtype))
    rank = len(parts[0].shape)
    axis = axis_in(dim, rank)
    for x in parts:
        if len(x.shape) != rank or any(n != m for k, (n, m) in enumerate(zip(x.shape, parts[0].shape)) if k != axis):
            raise OperatorError(
                f"Incompatible input shape: {shape_text(parts[0].shape)} and {shape_text(x.shape)} along axis {dim}"
            )
    return b.concat(*scaled, axis=axis) if num_args > 1 else scaled[0], least, most


@operator(
    "_contrib_quantized_elemwise_add",
    inputs=("lhs", "rhs", "lhs_min", "lhs_max", "rhs_min", "rhs_max"),
    attrs=CALIBRATION,
    outputs=_results,
    gradient=gradients.refused,
)
def quantized_add(
    b: Emitter, lhs: Any, rhs: Any, lhs_min: Any, lhs_max: Any, rhs_min: Any, rhs_max: Any, **calibration: Any
) -> Any:
    """The elementwise sum of integers: 8-bit if calibration found a range, else int32

    Shapes: lhs and rhs of one shape, each range (1,) -> that shape, (1,), (1,)

    >>> x, one = mx.nd.array([127, 0], dtype="int8"), mx.nd.ones(1)
    >>> options = {"min_calib_range": -2, "max_calib_range": 2}
    >>> mx.nd.contrib.quantized_elemwise_add(x, x, -one, one, -one, one, **options)[0].asnumpy()
    array([127,   0], dtype=int8)
    """
    require_same_shape(lhs, rhs)
    require_range(lhs_min, lhs_max, rhs_min, rhs_max)
    dtype = _common(lhs, rhs)
    known = calibrated(calibration)
    if known is not None:
        least, most = (filled(b, v, (1,), F32) for v in known)
    else:
        dtype = I32
        most = range_of(b, lhs_min, lhs_max) + range_of(b, rhs_min, rhs_max)
        least = -most
    step = _step(b, least, most, dtype)
    total = None
    for x, ends in ((lhs, (lhs_min, lhs_max)), (rhs, (rhs_min, rhs_max))):
        own = require_type(x, "the data", I8, U8)
        factor = _step(b, *ends, own) / step
        value = b.cast(x, dtype=F32) * factor
        if own is U8 and dtype is I8:  # MXNet converts it to int8 first
            value = b.cast(b.cast(b.rint(value), dtype=I8), dtype=F32)
        total = value if total is None else total + value
    return b.cast(b.rint(total), dtype=dtype), least, most
