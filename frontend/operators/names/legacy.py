"""Early versions of MXNet operators (`…_v1`), which old graphs refer to."""

from __future__ import annotations

import math
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.operators.attributes import boolean, enum, shape
from gluonjit.operators.layers.convolution import CONVOLUTION, convolution
from gluonjit.operators.layers.normalization import BATCH_NORM, BATCH_NORM_ATTRS, batch_norm
from gluonjit.operators.layers.pooling import pooling, pooling_gradient
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import require_float


@operator("Convolution_v1", **CONVOLUTION)
def convolution_v1(b: Emitter, data: Any, weight: Any, bias: Any = None, **attrs: Any) -> Any:
    """`Convolution` as of MXNet before 0.9

    Shapes: data (batch, channels, *space), weight (num_filter, channels / num_group, *kernel), bias (num_filter,) ->
    (batch, num_filter, *extents)

    >>> data = mx.nd.array([[[[1, 2, 4, 8]]]])
    >>> mx.nd.Convolution_v1(data, mx.nd.array([[[[-1, 1]]]]), no_bias=True, kernel=(1, 2), num_filter=1).asnumpy()
    array([[[[1., 2., 4.]]]], dtype=float32)
    """
    return convolution.expand(b, data, weight, bias, **attrs)


_KEPT = ("eps", "momentum", "fix_gamma", "use_global_stats", "output_mean_var")


@operator("BatchNorm_v1", attrs={name: BATCH_NORM_ATTRS[name] for name in _KEPT}, **BATCH_NORM)
def batch_norm_v1(b: Emitter, *inputs: Any, **attrs: Any) -> Any:
    """`BatchNorm` over axis 1 as of MXNet before 0.9

    Shapes: data (batch, channels, …), gamma, beta, moving_mean and moving_var (channels,) -> data's shape

    >>> one, zero = mx.nd.ones(1), mx.nd.zeros(1)
    >>> mx.nd.BatchNorm_v1(mx.nd.array([[3], [5]]), one, zero, one, one * 4, eps=0).asnumpy()
    array([[1.],
           [2.]], dtype=float32)
    """
    return batch_norm.expand(b, *inputs, axis=1, **attrs)


@operator(
    "Pooling_v1",
    attrs={
        "kernel": shape((), doc="extents of the window; not needed for global pooling"),
        "pool_type": enum(("avg", "max", "sum"), "max", doc="what is made of a window"),
        "global_pool": boolean(False, doc="whether one window covers all spatial axes"),
        "pooling_convention": enum(("full", "valid"), "valid", doc="where the last window ends"),
        "stride": shape((), doc="default 1 along each axis"),
        "pad": shape((), doc="default 0 along each axis"),
    },
    gradient=lambda b, g, y, x, **attrs: (
        None if any(attrs["pad"]) else pooling_gradient(b, g, y, x, layout=None, **attrs)
    ),
)
def pooling_v1(
    b: Emitter, data: Any, *, kernel: Shape, pool_type: str, pad: Shape, global_pool: bool, **attrs: Any
) -> Any:
    """`Pooling` as of MXNet before 0.9: pads with 0 for max pooling too, and always averages over the full window

    Shapes: data (batch, channels, *space) -> (batch, channels, *extents)

    >>> mx.nd.Pooling_v1(mx.nd.array([[[[1, 5, 2, 3]]]]), kernel=(1, 2), stride=(1, 2), pool_type="max").asnumpy()
    array([[[[5., 3.]]]], dtype=float32)
    """
    own = require_float(data)
    if any(pad) and not global_pool:
        if len(pad) != len(data.shape) - 2:
            raise OperatorError(f"pad must have {len(data.shape) - 2} dimensions, as the space has, got {pad}")
        data = b.pad(data, b.constant(0, own), low=(0, 0, *pad), high=(0, 0, *pad))
    attrs |= {"cudnn_off": False, "p_value": None, "count_include_pad": None, "layout": None, "pad": ()}
    if pool_type != "avg" or global_pool:
        return pooling.expand(b, data, kernel=kernel, pool_type=pool_type, global_pool=global_pool, **attrs)
    y = pooling.expand(b, data, kernel=kernel, pool_type="sum", global_pool=False, **attrs)
    return y / math.prod(kernel)
