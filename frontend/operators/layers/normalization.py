"""Normalization layers: BatchNorm and its relatives, LayerNorm, GroupNorm, InstanceNorm, L2Normalization, LRN.

All compute in at least float32; float16 data are rounded once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import BF16, F16, F32, DType, dtype_of
from gluonjit.operators.attributes import boolean, enum, integer, number, optional, string
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import (
    along,
    axis_in,
    first_from_output,
    moments,
    narrowed,
    parameters,
    require_float,
    require_same_dtype,
    require_shape,
    type_name,
    widened,
)

_STATISTICS = ("output", "mean", "var")


def _visible_statistics(attrs: Mapping[str, Any]) -> int:
    return 3 if attrs["output_mean_var"] else 1


def _parameter_dtype(data: Any) -> DType:
    """The element type of scales and statistics: float32 for float16 and bfloat16 data, else that of the data."""
    dtype = require_float(data)
    return F32 if dtype in (F16, BF16) else dtype


def _check_parameters(data: Any, length: int, dtype: DType, **named: Any) -> None:
    for name, x in named.items():
        if dtype_of(x) is not dtype:
            raise OperatorError(
                f"This layer requires uniform type. Expected '{type_name(dtype)}' v.s. given "
                f"'{type_name(dtype_of(x))}' at '{name}'"
            )
        require_shape(x, (length,), name)


BATCH_NORM_ATTRS = {
    "eps": number(1e-3, doc="what keeps the divisor from 0"),
    "momentum": number(0.9, doc="the share of the old moving statistics in the new ones"),
    "fix_gamma": boolean(True, doc="whether gamma counts as 1"),
    "use_global_stats": boolean(False, doc="whether the moving statistics are used in training, too"),
    "output_mean_var": boolean(False, doc="whether mean and deviation are results, too"),
    "axis": integer(1, doc="the axis of the channels"),
    "cudnn_off": boolean(False, doc="has no effect"),
    "min_calib_range": optional(number(doc="has no effect")),
    "max_calib_range": optional(number(doc="has no effect")),
}

_BATCH_NORM_INPUTS = ("data", "gamma", "beta", "moving_mean", "moving_var")


def _per_channel(attrs: Mapping[str, Any], data: Shape) -> Sequence[Shape | None]:
    return [(data[axis_in(attrs.get("axis", 1), len(data), "Channel axis out of range: axis")],)] * 4


def _batch_norm(
    b: Emitter,
    data: Any,
    gamma: Any,
    beta: Any,
    moving_mean: Any,
    moving_var: Any,
    *,
    eps: float,
    fix_gamma: bool,
    use_global_stats: bool,
    axis: int,
) -> tuple[Any, Any, Any, Any]:
    """(x - mean) / sqrt(var + eps) · gamma + beta, the mean, 1 / sqrt(var + eps), and the variance."""
    rank = len(data.shape)
    axis = axis_in(axis, rank, "Channel axis out of range: axis")
    channels, dtype = data.shape[axis], _parameter_dtype(data)
    _check_parameters(data, channels, dtype, gamma=gamma, beta=beta, moving_mean=moving_mean, moving_var=moving_var)
    x = widened(b, data)
    by_batch = b.training and not use_global_stats
    if by_batch:
        mean, var, centred = moments(b, x, tuple(k for k in range(rank) if k != axis))
        mean, var = b.reshape(mean, shape=(channels,)), b.reshape(var, shape=(channels,))
    else:
        mean, var = moving_mean, moving_var
    inverse = b.rsqrt(var + eps)
    scale = inverse if fix_gamma else gamma * inverse
    if not by_batch:  # fold everything that depends on parameters alone into one scale and one shift
        centred, beta = x, beta - mean * scale
    shape = along(axis, rank, channels)
    y = centred * b.reshape(scale, shape=shape) + b.reshape(beta, shape=shape)
    return narrowed(b, y, dtype_of(data)), mean, inverse, var


def _batch_norm_gradient(
    b: Emitter,
    g: Sequence[Any],
    y: Sequence[Any],
    x: Sequence[Any],
    *,
    eps: float,
    fix_gamma: bool,
    use_global_stats: bool,
    output_mean_var: bool,
    axis: int = 1,
    **_other: Any,
) -> tuple[Any, ...] | None:
    """The gradient by data, gamma and beta, from the sums of g and of g · (x - mean).

    That of the expansion has a third sum, by the mean, most of whose terms cancel: another pass over data and g.
    """
    if use_global_stats or output_mean_var or not b.training:
        return None
    data, gamma, _beta, moving_mean, moving_var = x
    rank, dtype = len(data.shape), dtype_of(moving_mean)
    axis = axis_in(axis, rank, "Channel axis out of range: axis")
    channels, others = data.shape[axis], tuple(k for k in range(rank) if k != axis)
    shape = along(axis, rank, channels)
    # As in the forward graph, with which these ops are merged; its results have gradients of their own.
    _mean, var, centred = moments(b, widened(b, data), others)
    inverse = b.rsqrt(b.reshape(var, shape=(channels,)) + eps)
    g = widened(b, g[0])
    total = b.reduce(g, op="sum", axes=others)
    along_x = b.reduce(g * centred, op="sum", axes=others) * inverse
    scale = inverse if fix_gamma else gamma * inverse
    count = b.constant(max(math.prod(data.shape[k] for k in others), 1), dtype)
    slope = -(along_x * inverse * scale / count)
    shift = -(total * scale / count)
    scale, slope, shift = (b.reshape(v, shape=shape) for v in (scale, slope, shift))
    by_data = g * scale + centred * slope + shift
    return narrowed(b, by_data, dtype_of(data)), None if fix_gamma else along_x, total, None, None


def _moving_statistics(
    b: Emitter, y: Sequence[Any], x: Sequence[Any], *, eps: float, momentum: float, **attrs: Any
) -> Any:
    """The moving mean and variance after a batch, of which `y` has the mean and 1 / sqrt(var + eps)."""
    inverse = y[2]
    var = 1 / (inverse * inverse) - eps
    return _moved_statistics(b, (y[0], y[1], var), x, momentum=momentum, **attrs)


def _moved_statistics(
    b: Emitter, y: Sequence[Any], x: Sequence[Any], *, momentum: float, use_global_stats: bool, **_attrs: Any
) -> Any:
    """The moving mean and variance after a batch, of which `y` has the mean and the variance."""
    if use_global_stats:
        return {}
    *_, moving_mean, moving_var = x
    _, mean, var = y
    dtype = dtype_of(mean)
    old, new = b.constant(momentum, dtype), b.constant(1 - momentum, dtype)
    return {
        len(x) - 2: moving_mean * old + mean * new,
        len(x) - 1: moving_var * old + var * new,
    }


BATCH_NORM: dict[str, Any] = {
    "gradient": _batch_norm_gradient,
    "late": _moving_statistics,
    "inputs": _BATCH_NORM_INPUTS,
    "aux": ("moving_mean", "moving_var"),
    "outputs": lambda attrs: _STATISTICS,
    "visible": _visible_statistics,
    "complete": parameters(_per_channel),
    "infer_inputs": first_from_output,
    "initializers": {"moving_mean": '["zero", {}]', "moving_var": '["one", {}]'},
}


@operator("BatchNorm", attrs=BATCH_NORM_ATTRS, **BATCH_NORM)
def batch_norm(
    b: Emitter,
    *inputs: Any,
    eps: float,
    fix_gamma: bool,
    use_global_stats: bool,
    axis: int,
    **_other: Any,
) -> Any:
    """Normalizes each channel to mean 0 and variance 1, then scales it by gamma and shifts it by beta

    Shapes: data (batch, …), gamma, beta, moving_mean and moving_var (data.shape[axis],) -> data's shape

    gamma (x - mean) / sqrt(var + eps) + beta (Ioffe and Szegedy, 2015). Training uses the mean and variance of the
    batch; inference and `use_global_stats` use moving_mean and moving_var. `fix_gamma` treats gamma as 1. With
    `output_mean_var`, outputs 2 and 3 are the mean and 1 / sqrt(var + eps).

    >>> one, zero = mx.nd.ones(1), mx.nd.zeros(1)
    >>> mx.nd.BatchNorm(mx.nd.array([[3], [5]]), one, zero, one, one * 4, eps=0).asnumpy()
    array([[1.],
           [2.]], dtype=float32)
    """
    return _batch_norm(b, *inputs, eps=eps, fix_gamma=fix_gamma, use_global_stats=use_global_stats, axis=axis)[:3]


def _gradient_after_relu(b: Emitter, g: Any, y: Any, x: Any, **attrs: Any) -> Any:
    """The gradient of ReLU after BatchNorm; where the result is NaN, that of BatchNorm alone, as in MXNet."""
    none = b.constant(0, dtype_of(y[0]))
    return _batch_norm_gradient(b, (b.select(y[0] <= none, none, g[0]), *g[1:]), y, x, **attrs)


@operator("_contrib_BatchNormWithReLU", attrs=BATCH_NORM_ATTRS, **{**BATCH_NORM, "gradient": _gradient_after_relu})
def batch_norm_with_relu(
    b: Emitter,
    *inputs: Any,
    eps: float,
    fix_gamma: bool,
    use_global_stats: bool,
    axis: int,
    **_other: Any,
) -> Any:
    """relu(BatchNorm(x))

    Shapes: data (batch, …), gamma, beta, moving_mean and moving_var (data.shape[axis],) -> data's shape

    >>> one, zero = mx.nd.ones(1), mx.nd.zeros(1)
    >>> mx.nd.contrib.BatchNormWithReLU(mx.nd.array([[-3], [5]]), one, zero, one, one * 4, eps=0).asnumpy()
    array([[0.],
           [2.]], dtype=float32)
    """
    y, mean, inverse, _ = _batch_norm(
        b, *inputs, eps=eps, fix_gamma=fix_gamma, use_global_stats=use_global_stats, axis=axis
    )
    # In this order the gradient at 0 is 0, as in MXNet.
    return b.maximum(b.constant(0, dtype_of(y)), y), mean, inverse


@operator(
    "_contrib_SyncBatchNorm",
    attrs={
        **{k: BATCH_NORM_ATTRS[k] for k in ("eps", "momentum", "fix_gamma", "use_global_stats", "output_mean_var")},
        "ndev": integer(1, doc="number of devices that share statistics; has no effect, there is only one"),
        "key": string(doc="name of the shared statistics; has no effect"),
    },
    **{**BATCH_NORM, "late": _moved_statistics},
)
def sync_batch_norm(
    b: Emitter, *inputs: Any, eps: float, fix_gamma: bool, use_global_stats: bool, **_other: Any
) -> Any:
    """`BatchNorm` over axis 1 with statistics shared by all devices

    Shapes: data (batch, channels, …), gamma, beta, moving_mean and moving_var (channels,) -> data's shape

    There is one device, so it is `BatchNorm`; but outputs 2 and 3, with `output_mean_var`, are the mean and variance.

    >>> one, zero = mx.nd.ones(1), mx.nd.zeros(1)
    >>> mx.nd.contrib.SyncBatchNorm(mx.nd.array([[3], [5]]), one, zero, one, one * 4, eps=0, key="bn").asnumpy()
    array([[1.],
           [2.]], dtype=float32)
    """
    y, mean, _, var = _batch_norm(b, *inputs, eps=eps, fix_gamma=fix_gamma, use_global_stats=use_global_stats, axis=1)
    return y, mean, var


def _layer_parameters(attrs: Mapping[str, Any], data: Shape) -> Sequence[Shape | None]:
    return [(data[axis_in(attrs["axis"], len(data), "Channel axis out of range: axis")],)] * 2


@operator(
    "LayerNorm",
    inputs=("data", "gamma", "beta"),
    attrs={
        "axis": integer(-1, doc="the axis that is normalized"),
        "eps": number(1e-5, doc="what keeps the divisor from 0"),
        "output_mean_var": boolean(False, doc="whether mean and deviation are results, too"),
    },
    outputs=lambda attrs: ("output", "mean", "std"),
    visible=_visible_statistics,
    complete=parameters(_layer_parameters),
    infer_inputs=first_from_output,
)
def layer_norm(b: Emitter, data: Any, gamma: Any, beta: Any, *, axis: int, eps: float, output_mean_var: bool) -> Any:
    """Normalizes the data to mean 0 and variance 1 along one axis, then scales by gamma and shifts by beta

    Shapes: data (any), gamma and beta (data.shape[axis],) -> data's shape

    gamma (x - mean) / sqrt(var + eps) + beta (Ba et al., 2016). With `output_mean_var`, outputs 2 and 3 are the mean
    and sqrt(var + eps), where the axis has length 1.

    >>> mx.nd.LayerNorm(mx.nd.array([[1, 3]]), mx.nd.ones(2), mx.nd.zeros(2), eps=0).asnumpy()
    array([[-1.,  1.]], dtype=float32)
    """
    dtype, rank = require_float(data), len(data.shape)
    axis = axis_in(axis, rank, "Channel axis out of range: axis")
    require_same_dtype(data, gamma, beta)
    n = data.shape[axis]
    require_shape(gamma, (n,), "gamma")
    require_shape(beta, (n,), "beta")
    shape = along(axis, rank, n)
    x = widened(b, data)
    mean, var, centred = moments(b, x, (axis,))
    std = b.sqrt(var + eps)
    scale, shift = (b.reshape(widened(b, v), shape=shape) for v in (gamma, beta))
    y = centred / std * scale + shift
    return narrowed(b, y, dtype), narrowed(b, mean, dtype), narrowed(b, std, dtype)


def _group_parameters(attrs: Mapping[str, Any], data: Shape) -> Sequence[Shape | None]:
    return [(attrs["num_groups"],)] * 2


@operator(
    "GroupNorm",
    inputs=("data", "gamma", "beta"),
    attrs={
        "num_groups": integer(1, low=1, doc="groups of channels"),
        "eps": number(1e-5, doc="what keeps the divisor from 0"),
        "output_mean_var": boolean(False, doc="whether mean and deviation are results, too"),
    },
    outputs=lambda attrs: ("output", "mean", "std"),
    visible=_visible_statistics,
    complete=parameters(_group_parameters),
    infer_inputs=first_from_output,
)
def group_norm(
    b: Emitter, data: Any, gamma: Any, beta: Any, *, num_groups: int, eps: float, output_mean_var: bool
) -> Any:
    """Normalizes each group of channels of each sample, then scales it by the group's gamma and shifts it by its beta

    Shapes: data (batch, channels, …), gamma and beta (num_groups,) -> data's shape

    gamma (x - mean) / sqrt(var + eps) + beta (Wu and He, 2018). With `output_mean_var`, outputs 2 and 3 are the mean
    and sqrt(var + eps), of shape (batch, num_groups). MXNetError if `num_groups` does not divide the channels.

    >>> data = mx.nd.array([[[1], [3], [10], [30]]])
    >>> mx.nd.GroupNorm(data, mx.nd.ones(2), mx.nd.zeros(2), num_groups=2, eps=0).asnumpy().ravel()
    array([-1.,  1., -1.,  1.], dtype=float32)
    """
    dtype, rank = require_float(data), len(data.shape)
    require_same_dtype(data, gamma, beta)
    if rank < 3:
        raise OperatorError(f"GroupNorm needs data of at least 3 dimensions, got {rank}")
    batch, channels = data.shape[:2]
    if channels % num_groups:
        raise OperatorError(f"# of channels must be divisible by # of groups: {channels} and {num_groups}")
    require_shape(gamma, (num_groups,), "gamma")
    require_shape(beta, (num_groups,), "beta")
    size = channels // num_groups * math.prod(data.shape[2:])
    x = b.reshape(widened(b, data), shape=(batch, num_groups, size))
    mean, var, centred = moments(b, x, (2,))
    std = b.sqrt(var + eps)
    scale, shift = (b.reshape(widened(b, v), shape=(1, num_groups, 1)) for v in (gamma, beta))
    y = centred / std * scale + shift
    mean, std = (narrowed(b, b.reshape(v, shape=(batch, num_groups)), dtype) for v in (mean, std))
    return narrowed(b, b.reshape(y, shape=data.shape), dtype), mean, std


@operator(
    "InstanceNorm",
    inputs=("data", "gamma", "beta"),
    attrs={"eps": number(1e-3, doc="what keeps the divisor from 0")},
    outputs=lambda attrs: _STATISTICS,
    visible=lambda attrs: 1,
    complete=parameters(_per_channel),
    infer_inputs=first_from_output,
)
def instance_norm(b: Emitter, data: Any, gamma: Any, beta: Any, *, eps: float) -> Any:
    """Normalizes each channel of each sample, then scales it by the channel's gamma and shifts it by its beta

    Shapes: data (batch, channels, …), gamma and beta (channels,) -> data's shape

    gamma (x - mean) / sqrt(var + eps) + beta (Ulyanov et al., 2016).

    >>> mx.nd.InstanceNorm(mx.nd.array([[[1, 3]]]), mx.nd.ones(1), mx.nd.zeros(1), eps=0).asnumpy()
    array([[[-1.,  1.]]], dtype=float32)
    """
    dtype, rank = require_float(data), len(data.shape)
    require_same_dtype(data, gamma, beta)
    if rank < 3:
        raise OperatorError(f"InstanceNorm only supports input tensors of rank >= 3, got {rank}")
    channels = data.shape[1]
    require_shape(gamma, (channels,), "gamma")
    require_shape(beta, (channels,), "beta")
    x = widened(b, data)
    _, var, centred = moments(b, x, tuple(range(2, rank)))
    inverse = b.rsqrt(var + eps)
    scale, shift = (b.reshape(widened(b, v), shape=along(1, rank, channels)) for v in (gamma, beta))
    return narrowed(b, centred * (inverse * scale) + shift, dtype)


@operator(
    "L2Normalization",
    attrs={
        "eps": number(1e-10, doc="what keeps the divisor from 0"),
        "mode": enum(("channel", "instance", "spatial"), "instance", doc="what is summed"),
    },
    outputs=lambda attrs: ("output", "norm"),
    visible=lambda attrs: 1,
    same_shape=True,
)
def l2_normalization(b: Emitter, data: Any, *, eps: float, mode: str) -> Any:
    """x / sqrt(sum x**2 + eps), summed per sample over all axes (`instance`), channels, or spatial axes (`spatial`)

    Shapes: data (batch, channels, …) -> the same

    >>> mx.nd.L2Normalization(mx.nd.array([[3, 4]])).asnumpy().round(3)
    array([[0.6, 0.8]], dtype=float32)
    """
    dtype, rank = require_float(data), len(data.shape)
    if mode != "instance" and rank < 3:
        raise OperatorError(f"At least 3 dimensions required in {mode} mode, got {rank}")
    axes = {"instance": tuple(range(1, rank)), "channel": (1,), "spatial": tuple(range(2, rank))}[mode]
    x = widened(b, data)
    total = b.reduce(x * x, op="sum", axes=axes)
    norm = b.sqrt(total + eps)
    kept = tuple(1 if k in axes else n for k, n in enumerate(data.shape))
    return narrowed(b, x / b.reshape(norm, shape=kept), dtype)


@operator(
    "LRN",
    attrs={
        "alpha": number(1e-4, doc="what the squares are multiplied by"),
        "beta": number(0.75, doc="the exponent"),
        "knorm": number(2.0, doc="what is added"),
        "nsize": integer(low=1, doc="how many channels are summed, odd"),
    },
    outputs=lambda attrs: ("output", "tmp_norm"),
    visible=lambda attrs: 1,
    same_shape=True,
)
def lrn(b: Emitter, data: Any, *, alpha: float, beta: float, knorm: float, nsize: int) -> Any:
    """x (knorm + alpha / nsize · sum of x**2 over nsize neighbouring channels)**-beta

    Shapes: data (batch, channels, height, width) -> the same

    Local response normalization (Krizhevsky et al., 2012).

    >>> mx.nd.LRN(mx.nd.ones((1, 3, 1, 1)), nsize=3, alpha=3, beta=1, knorm=1).asnumpy().ravel().round(3)
    array([0.333, 0.25 , 0.333], dtype=float32)
    """
    dtype = require_float(data)
    if len(data.shape) != 4:
        raise OperatorError(f"LRN needs data of 4 dimensions (batch, channel, y, x), got {len(data.shape)}")
    x = widened(b, data)
    wide = dtype_of(x)
    channels = data.shape[1]
    before, after = min(nsize // 2, channels), min((nsize - 1) // 2, channels)  # at most `channels` neighbours
    total = b.reduce_window(
        x * x,
        op="sum",
        window=(1, before + 1 + after, 1, 1),
        stride=(1, 1, 1, 1),
        low=(0, before, 0, 0),
        high=(0, after, 0, 0),
    )
    base = total * (alpha / nsize) + knorm
    return narrowed(b, x * b.pow(base, b.constant(-beta, wide)), dtype)
