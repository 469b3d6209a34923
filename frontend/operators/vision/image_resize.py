"""Resizing of images (height, width, channels), or batches of them, with OpenCV's interpolation methods.

Interpolation is separable: each pixel of a new row or column is a weighted sum of a few old ones, its *taps*. Taps
outside the image read the nearest border pixel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, F64, I32, dtype_of
from gluonjit.operators.attributes import boolean, integer, shape
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import along, check_table, require_numeric, shape_text

NEAREST, LINEAR, CUBIC, AREA, LANCZOS = range(5)

Taps = tuple[np.ndarray, np.ndarray]
"""Old positions and their weights, each of shape (new length, number of taps)."""


def taps(n: int, size: int, method: int, shrinking: bool) -> Taps:
    """The taps that resize an axis from `n` to `size` pixels; `shrinking`: both axes shrink, which AREA depends on."""
    scale = n / size
    check_table(size)
    points = np.arange(size)
    if method == NEAREST:
        return np.minimum((points * scale).astype(np.int64), n - 1)[:, None], np.ones((size, 1))
    if method == AREA:
        if shrinking:
            return _coverage(n, size)
        left = np.floor(points * scale).astype(np.int64)
        rest = (points + 1) - (left + 1) / scale
        return _inside(left, np.where(rest <= 0, 0.0, rest - np.floor(rest)), n)
    place = (points + 0.5) * scale - 0.5
    left = np.floor(place).astype(np.int64)
    rest = place - left
    if method == LINEAR:
        return _inside(left, rest, n)
    offsets, weights = kernel_taps(rest, method)
    return (left[:, None] + offsets).clip(0, n - 1), weights


def kernel_taps(rest: np.ndarray, method: int) -> Taps:
    """(offsets of the pixels that one reads, their weights (number of places, offsets)), for places that are `rest`
    (0 to 1) after pixel 0."""
    reach, weigh = {LINEAR: (1, _linear), CUBIC: (2, _cubic), LANCZOS: (4, _lanczos)}[method]
    offsets = np.arange(1 - reach, reach + 1)
    weights = weigh(rest[:, None] - offsets)
    return offsets, weights / weights.sum(1, keepdims=True)


def _inside(left: np.ndarray, rest: np.ndarray, n: int) -> Taps:
    """Two taps, at `left` and its right neighbour, with weights 1 - `rest` and `rest`; clipped to the border."""
    rest = np.where((left < 0) | (left >= n - 1), 0.0, rest)
    left = left.clip(0, n - 1)
    return np.stack([left, np.minimum(left + 1, n - 1)], 1), np.stack([1 - rest, rest], 1)


def _coverage(n: int, size: int) -> Taps:
    """The taps of the mean of the area that a new pixel covers, with fractional weights for its border pixels."""
    edges = np.arange(size + 1) * (n / size)
    first = np.floor(edges[:-1] + 1e-9).astype(np.int64)
    count = int(max(np.ceil(edges[1:] - 1e-9).astype(np.int64) - first))
    positions = first[:, None] + np.arange(count)
    covered = np.minimum(positions + 1, edges[1:, None]) - np.maximum(positions, edges[:-1, None])
    weights = covered.clip(0)
    return positions.clip(0, n - 1), weights / weights.sum(1, keepdims=True)


def _linear(x: np.ndarray) -> np.ndarray:
    return (1 - np.abs(x)).clip(0)


def _cubic(x: np.ndarray) -> np.ndarray:
    """Keys' kernel with a = −3/4."""
    a, x = -0.75, np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 4, np.sinc(x) * np.sinc(x / 4), 0)


def resampled(b: Emitter, image: Any, height: int, width: int, method: int) -> Any:
    """The image with its axes -3 and -2 resized. Results of integer types are rounded and saturate."""
    own = require_numeric("image resize", image)
    rank = len(image.shape)
    old_height, old_width = image.shape[-3], image.shape[-2]
    if min(height, width, old_height, old_width) < 1:
        raise OperatorError(f"cannot resize an image of {old_height} x {old_width} to {height} x {width}")
    if (height, width) == (old_height, old_width):
        return image
    if method not in range(5):
        raise OperatorError(f"interp must be 0 to 4, not {method}")
    shrinking = height <= old_height and width <= old_width
    work = F64 if own is F64 else F32
    x = image if own is work or method == NEAREST else b.cast(image, dtype=work)
    for axis, size in ((rank - 3, height), (rank - 2, width)):
        positions, weights = taps(x.shape[axis], size, method, shrinking)
        picked = [b.gather(x, b.constant(column, I32), axis=axis) for column in positions.T]
        if method != NEAREST:
            shape = along(axis, rank, size)
            picked = [p * b.constant(w.reshape(shape), work) for p, w in zip(picked, weights.T)]
        x = picked[0]
        for p in picked[1:]:
            x = x + p
    if dtype_of(x) is own:
        return x
    if own.is_float:
        return b.cast(x, dtype=own)
    limits = np.iinfo(own.numpy)
    x = b.minimum(b.maximum(b.rint(x), b.constant(limits.min, work)), b.constant(limits.max, work))
    return b.cast(x, dtype=own)


_INTERP = "0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos"


@operator(
    "_cvimresize",
    inputs=("src",),
    attrs={
        "w": integer(doc="width in pixels"),
        "h": integer(doc="height in pixels"),
        "interp": integer(1, doc=_INTERP),
    },
)
def cv_resize(b: Emitter, src: Any, *, w: int, h: int, interp: int) -> Any:
    """Resizes an image (height, width, channels)

    Shapes: src (height, width, channels) -> (h, w, channels)

    >>> mx.image.imresize(mx.nd.array([[[1], [2]]], dtype="uint8"), w=4, h=1, interp=0).asnumpy().ravel()
    array([1, 1, 2, 2], dtype=uint8)
    """
    if len(src.shape) != 3:
        raise OperatorError(f"Input image must have shape (height, width, channels), got {shape_text(src.shape)}")
    return resampled(b, src, h, w, interp)


@operator(
    "_image_resize",
    attrs={
        "size": shape((), doc="(width, height), or one number: both, or with keep_ratio the shorter edge"),
        "keep_ratio": boolean(False, doc="whether one number is the shorter edge"),
        "interp": integer(1, doc=_INTERP),
    },
)
def resize(b: Emitter, data: Any, *, size: Shape, keep_ratio: bool, interp: int) -> Any:
    """Resizes an image (height, width, channels), or a batch of them

    Shapes: data (…, height, width, channels) -> (…, size[1], size[0], channels)

    >>> mx.nd.image.resize(mx.nd.ones((4, 6, 3)), size=(3, 2)).shape
    (2, 3, 3)
    """
    if len(data.shape) not in (3, 4):
        raise OperatorError(f"Input image must have 3 or 4 axes, got {shape_text(data.shape)}")
    if len(size) not in (1, 2) or min(size) < 1:
        raise OperatorError(f"size must be one or two positive numbers, not {tuple(size)}")
    width, height = size if len(size) == 2 else size * 2
    if len(size) == 1 and keep_ratio:
        old_height, old_width = data.shape[-3], data.shape[-2]
        longer = size[0] * max(old_height, old_width) / min(old_height, old_width)
        height, width = (math.floor(longer), size[0]) if old_height > old_width else (size[0], math.floor(longer))
    return resampled(b, data, height, width, interp)
