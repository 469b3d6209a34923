"""Deformable convolutions: at every position, each tap of the kernel is displaced by an offset of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I64, dtype_of
from gluonjit.operators.attributes import boolean, enum, integer, optional, shape
from gluonjit.operators.layers.convolution import Geometry
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import (
    Shapes,
    along,
    merge,
    narrowed,
    require_float,
    require_same_dtype,
    require_shape,
    scalar,
    widened,
)
from gluonjit.operators.vision.interpolation import bilinear, per_pixel

_ATTRS = {
    "kernel": shape(doc="height and width"),
    "stride": shape((), doc="default 1 along each axis"),
    "dilate": shape((), doc="default 1 along each axis"),
    "pad": shape((), doc="default 0 along each axis"),
    "num_filter": integer(low=1, doc="how many kernels there are, and channels of the result"),
    "num_group": integer(1, low=1, doc="groups of channels, each with its own kernels"),
    "num_deformable_group": integer(1, low=1, doc="groups of channels with offsets of their own"),
    "workspace": integer(1024, low=0, doc="has no meaning here"),
    "no_bias": boolean(False, doc="whether there is no input `bias`"),
    "layout": optional(
        enum(("NCDHW", "NCHW", "NCW"), doc="order of the axes of data and result; None: channels after the batch"), None
    ),
}


def _inputs(*first: str) -> Any:
    def inputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
        return (*first, "weight") if attrs["no_bias"] else (*first, "weight", "bias")

    return inputs


def _geometry(attrs: Mapping[str, Any], rank: int) -> Geometry:
    if len(attrs["kernel"]) != 2:
        raise OperatorError("not implemented: deformable convolutions are 2-dimensional")
    return Geometry(attrs, rank)


def _complete(others: Sequence[int]) -> Any:
    """A `complete` rule: inputs with `others[k]` channels per tap and deformable group, then weight and bias."""

    def complete(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
        data = shapes[0]
        if data is None or len(data) != 4 or not data[1]:
            return shapes
        g = _geometry(attrs, 4)
        taps = g.kernel[0] * g.kernel[1] * attrs["num_deformable_group"]
        extents = [_extent(g, k, n) if n else 0 for k, n in enumerate(data[2:])]
        wanted: list[Shape] = [(data[0], count * taps, *extents) for count in others]
        wanted += [g.weight_shape(attrs["num_filter"], g.group_channels(data[1])), (attrs["num_filter"],)]
        return [data, *(merge(s, w) for s, w in zip(shapes[1:], wanted))]

    return complete


def _extent(g: Geometry, k: int, n: int) -> int:
    room = n + 2 * g.pad[k] - g.span(k)
    if room < 0:
        raise OperatorError(f"kernel size exceed input: it spans {g.span(k)} of {n + 2 * g.pad[k]} padded elements")
    return room // g.stride[k] + 1


def _convolve(
    b: Emitter, data: Any, offset: Any, mask: Any, weight: Any, bias: Any, attrs: Mapping[str, Any], reach: bool
) -> Any:
    """The convolution; `reach` tells how taps read the border of an image, see `bilinear`."""
    own = require_float(data)
    given = [x for x in (data, offset, mask, weight, bias) if x is not None]
    require_same_dtype(*given)
    g = _geometry(attrs, len(data.shape))
    batch, channels, *size = data.shape
    filters, parts = attrs["num_filter"], attrs["num_deformable_group"]
    if channels % parts:
        raise OperatorError(f"input num_filter({channels}) must divide deformable group size({parts})")
    require_shape(weight, g.weight_shape(filters, g.group_channels(channels)), "weight")
    taps = g.kernel[0] * g.kernel[1]
    extents = tuple(_extent(g, k, n) for k, n in enumerate(size))
    require_shape(offset, (batch, 2 * parts * taps, *extents), "offset")
    data, offset, weight = (widened(b, x) for x in (data, offset, weight))

    # The coordinates of all taps, (batch, *extents, parts, taps), and what the images have there.
    places = b.transpose(b.reshape(offset, shape=(batch, parts, taps, 2, *extents)), perm=(0, 4, 5, 1, 2, 3))
    y, x = (_places(b, places, g, k) for k in (0, 1))
    if reach:  # images are 0 from one pixel outside on, so clipping to that keeps results, also for infinite offsets
        y, x = (
            b.minimum(b.maximum(v, scalar(b, -1, dtype_of(v))), scalar(b, n, dtype_of(v))) for v, n in zip((y, x), size)
        )
    table = _grouped_table(b, data, parts)
    image = b.iota(shape=(batch, 1, 1, 1, 1), axis=0, dtype=I64) * parts + b.iota(
        shape=(1, 1, 1, parts, 1), axis=3, dtype=I64
    )
    values = bilinear(b, table, image, y, x, tuple(size), reach=reach)
    if mask is not None:
        require_shape(mask, (batch, parts * taps, *extents), "mask")
        mask = b.reshape(widened(b, mask), shape=(batch, parts, taps, *extents))
        values = values * per_pixel(b, b.transpose(mask, perm=(0, 3, 4, 1, 2)))
    y = _product(b, values, weight, g)
    if bias is not None:
        require_shape(bias, (filters,), "bias")
        y = y + b.reshape(widened(b, bias), shape=along(1, 4, filters))
    return narrowed(b, y, own)


def _places(b: Emitter, offsets: Any, g: Geometry, k: int) -> Any:
    """Coordinates along spatial axis `k` of every tap: (batch, *extents, parts, taps)."""
    batch, rows, columns, parts, taps, _ = offsets.shape
    dtype = dtype_of(offsets)
    moved = b.slice(offsets, start=(0, 0, 0, 0, 0, k), size=(batch, rows, columns, parts, taps, 1))
    moved = b.reshape(moved, shape=(batch, rows, columns, parts, taps))
    tap = np.indices(g.kernel)[k].reshape(-1) * g.dilate[k] - g.pad[k]
    window = np.arange((rows, columns)[k]) * g.stride[k]
    window = window.reshape((-1, 1, 1, 1) if k == 0 else (-1, 1, 1))
    return moved + b.constant((window + tap).astype(dtype.numpy))


def _grouped_table(b: Emitter, data: Any, parts: int) -> Any:
    """The pixel table of images with the channels of one part each: (batch * parts * pixels, channels / parts)."""
    batch, channels, height, width = data.shape
    x = b.reshape(data, shape=(batch * parts, channels // parts, height * width))
    return b.reshape(b.transpose(x, perm=(0, 2, 1)), shape=(batch * parts * height * width, channels // parts))


def _product(b: Emitter, values: Any, weight: Any, g: Geometry) -> Any:
    """The taps' values (batch, rows, columns, parts, taps, channels of a part) times the kernels."""
    batch, rows, columns, parts, taps, each = values.shape
    channels, filters = parts * each, weight.shape[0]
    values = b.reshape(b.transpose(values, perm=(0, 1, 2, 4, 3, 5)), shape=(batch, rows, columns, taps, channels))
    if g.groups == 1:
        weight = b.reshape(weight, shape=(filters, channels, taps))
        y = b.dot_general(values, weight, contract=((3, 4), (2, 1)))
        return b.transpose(y, perm=(0, 3, 1, 2))
    inner, outer = channels // g.groups, filters // g.groups
    values = b.reshape(values, shape=(batch, rows, columns, taps, g.groups, inner))
    weight = b.reshape(weight, shape=(g.groups, outer, inner, taps))
    y = b.dot_general(values, weight, contract=((3, 5), (3, 2)), batch=((4,), (0,)))
    return b.reshape(b.transpose(y, perm=(1, 0, 4, 2, 3)), shape=(batch, filters, rows, columns))


@operator(
    "_contrib_DeformableConvolution",
    inputs=_inputs("data", "offset"),
    attrs=_ATTRS,
    complete=_complete((2,)),
)
def deformable_convolution(b: Emitter, data: Any, offset: Any, weight: Any, bias: Any = None, **attrs: Any) -> Any:
    """Convolution whose taps are displaced by offsets

    Shapes: data (batch, channels, h, w), offset (batch, 2 * groups * taps, *extents), weight (num_filter, channels /
    num_group, *kernel), bias (num_filter,) -> (batch, num_filter, *extents)

    By Dai et al., 2017. The offsets are y and x of each tap, in pixels; samples between pixels are bilinear. Extents
    are those of `Convolution`.

    >>> data, weight = mx.nd.array([[[[1, 3, 5]]]]), mx.nd.ones((1, 1, 1, 1))
    >>> right = mx.nd.array([[[[0, 0, 0]], [[0.5, 0.5, 0]]]])
    >>> mx.nd.contrib.DeformableConvolution(data, right, weight, no_bias=True, kernel=(1, 1), num_filter=1).asnumpy()
    array([[[[2., 4., 5.]]]], dtype=float32)
    """
    return _convolve(b, data, offset, None, weight, bias, attrs, reach=False)


@operator(
    "_contrib_ModulatedDeformableConvolution",
    inputs=_inputs("data", "offset", "mask"),
    attrs={**_ATTRS, "im2col_step": integer(64, low=1, doc="has no meaning here")},
    complete=_complete((2, 1)),
)
def modulated_deformable_convolution(
    b: Emitter, data: Any, offset: Any, mask: Any, weight: Any, bias: Any = None, **attrs: Any
) -> Any:
    """Convolution whose taps are displaced by offsets and multiplied by a mask

    Shapes: data (batch, channels, h, w), offset (batch, 2 * groups * taps, *extents), mask (batch, groups * taps,
    *extents), weight (num_filter, channels / num_group, *kernel), bias (num_filter,) -> (batch, num_filter, *extents)

    By Zhu et al., 2019. The offsets are y and x of each tap, in pixels; samples between pixels are bilinear.

    >>> data, weight = mx.nd.array([[[[1, 3, 5]]]]), mx.nd.ones((1, 1, 1, 1))
    >>> right, mask = mx.nd.array([[[[0, 0, 0]], [[0.5, 0.5, 0]]]]), mx.nd.array([[[[1, 1, 0]]]])
    >>> one = {"no_bias": True, "kernel": (1, 1), "num_filter": 1}
    >>> mx.nd.contrib.ModulatedDeformableConvolution(data, right, mask, weight, **one).asnumpy()
    array([[[[2., 4., 0.]]]], dtype=float32)
    """
    return _convolve(b, data, offset, mask, weight, bias, attrs, reach=True)
