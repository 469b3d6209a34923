"""Warping of images: grids of sampling positions, and sampling.

A grid (batch, 2, height, width) holds x and y, from -1 at the left or top pixel to 1 at the right or bottom pixel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I64, dtype_of
from gluonjit.operators.attributes import boolean, enum, optional, shape
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import (
    check_table,
    narrowed,
    require_float,
    require_same_dtype,
    require_shape,
    scalar,
    shape_text,
    widened,
)
from gluonjit.operators.vision.interpolation import bilinear, pixel_table

_CUDNN_OFF = optional(boolean(doc="has no effect"), None)


def _images(x: Any, what: str = "Input data") -> tuple[int, int, int, int]:
    if len(x.shape) != 4:
        raise OperatorError(f"{what} should be 4D (batch, channel, y, x), got {shape_text(x.shape)}")
    return tuple(x.shape)


def _sampled(b: Emitter, data: Any, grid: Any) -> Any:
    """Samples the data at the positions of the grid."""
    batch, _, height, width = _images(data)
    require_shape(grid, (batch, 2, *grid.shape[2:]), "grid")
    dtype = dtype_of(grid)
    places = []
    for k, n in ((1, height), (0, width)):
        v = b.slice(grid, start=(0, k, 0, 0), size=(batch, 1, *grid.shape[2:]))
        v = b.reshape(v, shape=(batch, *grid.shape[2:]))
        v = (v + 1) * scalar(b, n - 1, dtype)
        places.append(v / 2)
    image = b.iota(shape=(batch, 1, 1), axis=0, dtype=I64)
    y_at, x_at = places
    y = bilinear(b, pixel_table(b, data), image, y_at, x_at, (height, width))
    return b.transpose(y, perm=(0, 3, 1, 2))


@operator("BilinearSampler", inputs=("data", "grid"), attrs={"cudnn_off": _CUDNN_OFF})
def bilinear_sampler(b: Emitter, data: Any, grid: Any, *, cudnn_off: bool | None) -> Any:
    """Samples images at the positions of a grid by bilinear interpolation; 0 outside of the image

    Shapes: data (batch, channels, h, w), grid (batch, 2, height, width) -> (batch, channels, height, width)

    The grid holds x, then y, from -1, the center of the first pixel, to 1, the center of the last (Jaderberg et al.,
    2015).

    >>> image = mx.nd.array([[[[1, 2, 3]]]])
    >>> grid = mx.nd.array([[[[-1, 0.5, 1]], [[0, 0, 0]]]])
    >>> mx.nd.BilinearSampler(image, grid).asnumpy()
    array([[[[1. , 2.5, 3. ]]]], dtype=float32)
    """
    dtype = require_float(data)
    require_same_dtype(data, grid)
    _images(grid, "Sampling grid")
    return narrowed(b, _sampled(b, widened(b, data), widened(b, grid)), dtype)


def _check_target(target: tuple[int, ...]) -> None:
    if len(target) != 2 or min(target) < 1:
        raise OperatorError(f"incorrect target_shape: {shape_text(target)}; it must be (height, width)")
    check_table(3, *target)


def _affine_grid(b: Emitter, matrices: Any, target: tuple[int, ...]) -> Any:
    """Applies affine maps (batch, 6) to the pixel positions of an image of height and width `target`."""
    dtype = dtype_of(matrices)
    batch = matrices.shape[0]
    height, width = target
    # For an image of one row or column, MXNet divides by 0, so the grid holds NaN.
    with np.errstate(all="ignore"):
        xs, ys = (-1 + np.arange(n) * np.float64(2) / (n - 1) for n in (width, height))
    grid = np.ones((3, height, width))
    grid[0], grid[1] = xs[None, :], ys[:, None]
    grid = b.constant(grid.reshape(3, -1).astype(dtype.numpy))
    out = b.dot_general(b.reshape(matrices, shape=(batch * 2, 3)), grid, contract=((1,), (0,)))
    return b.reshape(out, shape=(batch, 2, height, width))


@operator(
    "GridGenerator",
    attrs={
        "transform_type": enum(("affine", "warp"), doc="affine maps, or optical flow"),
        "target_shape": shape((0, 0), doc="height and width, for affine transformations"),
    },
    outputs=lambda attrs: ("output", "grid_dst"),
    visible=lambda attrs: 1,
)
def grid_generator(b: Emitter, data: Any, *, transform_type: str, target_shape: tuple[int, ...]) -> Any:
    """The sampling grid of affine maps, or of an optical flow in pixels

    Shapes: data (batch, 6) -> (batch, 2, *target_shape), or for `warp` data (batch, 2, height, width) -> the same

    The grid holds x, then y, from -1 to 1, for `BilinearSampler` (Jaderberg et al., 2015).

    >>> identity = mx.nd.array([[1, 0, 0, 0, 1, 0]])
    >>> mx.nd.GridGenerator(identity, transform_type="affine", target_shape=(2, 2)).asnumpy()[0, 0]
    array([[-1.,  1.],
           [-1.,  1.]], dtype=float32)
    """
    dtype = require_float(data)
    x = widened(b, data)
    if transform_type == "affine":
        if len(data.shape) != 2 or data.shape[1] != 6:
            raise OperatorError(f"incorrect data shape[1], should be 6: (batch, 6), got {shape_text(data.shape)}")
        _check_target(target_shape)
        return narrowed(b, _affine_grid(b, x, target_shape), dtype)
    batch, _, height, width = _images(data, "optical flow")
    require_shape(data, (batch, 2, height, width), "optical flow")
    wide = dtype_of(x)
    parts = []
    for k, n in ((0, width), (1, height)):
        flow = b.slice(x, start=(0, k, 0, 0), size=(batch, 1, height, width))
        place = b.iota(shape=(1, 1, *((1, n) if k == 0 else (n, 1))), axis=3 - k, dtype=wide)
        half = scalar(b, (n - 1) / 2, wide)
        parts.append((flow + place) / half - 1)
    return narrowed(b, b.concat(*parts, axis=1), dtype)


@operator(
    "SpatialTransformer",
    inputs=("data", "loc"),
    attrs={
        "target_shape": shape((0, 0), doc="height and width of the result"),
        "transform_type": enum(("affine",), doc="kind of map"),
        "sampler_type": enum(("bilinear",), doc="interpolation between pixels"),
        "cudnn_off": _CUDNN_OFF,
    },
    outputs=lambda attrs: ("output", "grid_dst", "grid_src"),
    visible=lambda attrs: 1,
    complete=lambda attrs, shapes: [shapes[0], (shapes[0][0], 6) if shapes[0] and shapes[1] is None else shapes[1]],
)
def spatial_transformer(
    b: Emitter,
    data: Any,
    loc: Any,
    *,
    target_shape: tuple[int, ...],
    transform_type: str,
    sampler_type: str,
    cudnn_off: bool | None,
) -> Any:
    """Warps images by affine maps: `BilinearSampler` of `GridGenerator`

    Shapes: data (batch, channels, h, w), loc (batch, 6) -> (batch, channels, *target_shape)

    By Jaderberg et al., 2015.

    >>> image, mirrored = mx.nd.array([[[[1, 2], [3, 4]]]]), mx.nd.array([[-1, 0, 0, 0, 1, 0]])
    >>> options = {"transform_type": "affine", "sampler_type": "bilinear"}
    >>> mx.nd.SpatialTransformer(image, mirrored, target_shape=(2, 2), **options).asnumpy()
    array([[[[2., 1.],
             [4., 3.]]]], dtype=float32)
    """
    dtype = require_float(data)
    require_same_dtype(data, loc)
    batch = _images(data)[0]
    require_shape(loc, (batch, 6), "loc")
    _check_target(target_shape)
    return narrowed(b, _sampled(b, widened(b, data), _affine_grid(b, widened(b, loc), target_shape)), dtype)
