"""Operators that resize NCHW feature maps: bilinear interpolation and adaptive average pooling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gluonjit.ir.dims import Dim, Extent
from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F64, I32, I64, dtype_of
from gluonjit.operators.attributes import boolean, enum, integer, number, optional, shape
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import along, check_table, narrowed, require_float, shape_text, widened


def _spatial(x: Any, what: str) -> tuple[int, int]:
    if len(x.shape) != 4:
        raise OperatorError(f"{what} should be 4D in (batch, channel, y, x), got {shape_text(x.shape)}")
    return x.shape[2], x.shape[3]


# Bilinear interpolation

_ROUNDED: dict[str, Callable[[int], int]] = {
    "to_even_down": lambda n: n - n % 2,
    "to_even_up": lambda n: n + n % 2,
    "to_odd_down": lambda n: n - 1 + n % 2,
    "to_odd_up": lambda n: n + 1 - n % 2,
}


def _extent(mode: str, n: int, size: int, scale: float | None, like: int | None) -> int:
    """The new length of an axis of `n`."""
    if like is not None:
        return like
    if mode == "odd_scale":
        if scale is None:
            raise OperatorError("mode='odd_scale' of BilinearResize2D needs scale_height and scale_width")
        return _times(n, scale) if n % 2 == 0 else _times(n - 1, scale) + 1
    if mode == "size":
        return size if scale is None else _times(n, scale)
    return _ROUNDED[mode](n)


def _times(n: int, scale: float) -> int:
    """The product computed in float32 as in MXNet, then truncated: 100 times 0.29 is 29."""
    if isinstance(n, Dim) and float(scale).is_integer():
        return n * int(scale)
    product = np.float32(n) * np.float32(scale)
    if not np.isfinite(product):
        raise OperatorError(f"{n} pixels times {scale} are not finitely many")
    return int(product)


def _interpolated(b: Emitter, x: Any, axis: int, size: int, align_corners: bool) -> Any:
    """`x` with one axis resampled to `size` points.

    With aligned corners the first and last points of both grids coincide; without, their outer edges do.
    """
    n = x.shape[axis]
    if n == size:
        return x
    if not (isinstance(n, int) and isinstance(size, int)):
        return _interpolated_at_run_time(b, x, axis, size, align_corners)
    check_table(size)
    points = np.arange(size, dtype=np.float64)
    if align_corners:
        place = points * ((n - 1) / (size - 1) if size > 1 else 0.0)
    else:
        # A single point samples the first one, as in MXNet.
        place = np.maximum((points + 0.5) * (n / size if size > 1 else 0.0) - 0.5, 0)
    left = np.minimum(place.astype(np.int64), n - 1)
    right = np.minimum(left + 1, n - 1)
    dtype = dtype_of(x)
    weight = (place - left).reshape(along(axis, len(x.shape), size))
    low = b.gather(x, b.constant(left, I32), axis=axis) * b.constant(1 - weight, dtype)
    return low + b.gather(x, b.constant(right, I32), axis=axis) * b.constant(weight, dtype)


def _interpolated_at_run_time(b: Emitter, x: Any, axis: int, size: Extent, align_corners: bool) -> Any:
    """`_interpolated` between open lengths."""
    n, rank, dtype = x.shape[axis], len(x.shape), dtype_of(x)

    def number(value: Extent | float) -> Any:
        return b.constant(value, F64)

    points = b.iota(shape=(size,), axis=0, dtype=F64)
    if size == 1:
        place = points * number(0.0)
    elif align_corners:
        place = points * (number(n - 1) / number(size - 1))
    else:
        middle = (points + number(0.5)) * (number(n) / number(size))
        place = b.maximum(middle - number(0.5), number(0.0))
    last = b.constant(n - 1, I64)
    left = b.minimum(b.cast(place, dtype=I64), last)
    right = b.minimum(left + 1, last)
    weight = b.cast(place - b.cast(left, dtype=F64), dtype=dtype)
    weight = b.reshape(weight, shape=tuple(size if k == axis else 1 for k in range(rank)))
    low = b.gather(x, left, axis=axis) * (1 - weight)
    return low + b.gather(x, right, axis=axis) * weight


@operator(
    "_contrib_BilinearResize2D",
    inputs=lambda attrs: ("data", "like") if attrs["mode"] == "like" else ("data",),
    attrs={
        "height": integer(1, low=1, doc="the height of the result, in pixels"),
        "width": integer(1, low=1, doc="the width of the result, in pixels"),
        "scale_height": optional(number(doc="replaces height, as factor")),
        "scale_width": optional(number(doc="replaces width, as factor")),
        "mode": enum(("size", "odd_scale", "like", *_ROUNDED), "size", doc="how the new size is computed"),
        "align_corners": boolean(True, doc="whether the centers of the corner pixels map to each other"),
    },
)
def bilinear_resize(
    b: Emitter,
    data: Any,
    like: Any = None,
    *,
    height: int,
    width: int,
    scale_height: float | None,
    scale_width: float | None,
    mode: str,
    align_corners: bool,
) -> Any:
    """Resizes images by bilinear interpolation

    Shapes: data (batch, channels, h, w), like (any, any, height, width), only for mode='like' -> (batch, channels,
    height, width)

    `align_corners` maps the centers of the corner pixels to each other.

    >>> mx.nd.contrib.BilinearResize2D(mx.nd.array([[[[1, 3]]]]), height=1, width=3).asnumpy()
    array([[[[1., 2., 3.]]]], dtype=float32)
    """
    own = require_float(data)
    old = _spatial(data, "Input data of BilinearResize2D")
    other = (None, None) if like is None else _spatial(like, "like of BilinearResize2D")
    new = [_extent(mode, *given) for given in zip(old, (height, width), (scale_height, scale_width), other)]
    if any(n < 1 for n in (*new, *old)):
        raise OperatorError(f"BilinearResize2D cannot make {new[0]} x {new[1]} pixels of {old[0]} x {old[1]}")
    x = widened(b, data)
    for axis in (3, 2):
        x = _interpolated(b, x, axis, new[axis - 2], align_corners)
    return narrowed(b, x, own)


# Adaptive average pooling


def _summed(b: Emitter, x: Any, axis: int, size: int) -> tuple[Any, np.ndarray]:
    """Replaces an axis by the sums over `size` windows that cover it; also returns each window's number of elements.

    Window k reaches from floor(k n / size) to ceil((k + 1) n / size); windows overlap where size does not divide n.
    """
    shape, n = tuple(x.shape), x.shape[axis]
    check_table(size)
    k = np.arange(size)
    start, stop = k * n // size, -(-(k + 1) * n // size)
    count = stop - start
    longest = int(count.max())
    if size == n:
        return x, count
    if n % size == 0:
        windows = b.reshape(x, shape=(*shape[:axis], size, longest, *shape[axis + 1 :]))
        return b.reduce(windows, op="sum", axes=(axis + 1,)), count
    offset = np.arange(longest)
    windows = b.gather(x, b.constant(start[:, None] + offset, I32), axis=axis)
    inside = (offset < count[:, None]).reshape(size, longest, *(1,) * (len(shape) - 1 - axis))
    windows = b.select(b.constant(inside), windows, b.constant(0, dtype_of(x)))
    return b.reduce(windows, op="sum", axes=(axis + 1,)), count


@operator(
    "_contrib_AdaptiveAvgPooling2D",
    attrs={"output_size": shape((), doc="height and width, or one number for both; () is 1")},
)
def adaptive_average_pooling(b: Emitter, data: Any, *, output_size: Shape) -> Any:
    """Averages over windows that cover the image, one for each pixel of the output

    Shapes: data (batch, channels, h, w) -> (batch, channels, *output_size)

    Window i of n covers the pixels from floor(i h / n) up to ceil((i + 1) h / n).

    >>> mx.nd.contrib.AdaptiveAvgPooling2D(mx.nd.array([[[[1, 3], [5, 7]]]]), output_size=(1, 2)).asnumpy()
    array([[[[3., 5.]]]], dtype=float32)
    """
    own = require_float(data)
    old = _spatial(data, "Input data of AdaptiveAvgPooling2D")
    sizes = tuple(output_size) * 2 if len(output_size) == 1 else tuple(output_size) if len(output_size) == 2 else (1, 1)
    if min(sizes) < 1 or min(old) < 1:
        raise OperatorError(f"AdaptiveAvgPooling2D cannot make {sizes[0]} x {sizes[1]} pixels of {old[0]} x {old[1]}")
    x = widened(b, data)
    dtype = dtype_of(x)
    if sizes == (1, 1):
        mean = b.reduce(x, op="sum", axes=(2, 3)) / math.prod(old)
        return narrowed(b, b.reshape(mean, shape=(*data.shape[:2], 1, 1)), own)
    x, columns = _summed(b, x, 3, sizes[1])
    x, rows = _summed(b, x, 2, sizes[0])
    return narrowed(b, x / b.constant(rows[:, None] * columns, dtype), own)
