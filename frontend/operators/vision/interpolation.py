"""Reads images at fractional coordinates.

The pixels of a batch of images form a *table* with a row of channels per pixel. Coordinates are arrays of any shape;
the values read have that shape, with the channels as an additional last axis.
"""

from __future__ import annotations

from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I64, dtype_of
from gluonjit.operators.support import scalar
from gluonjit.operators.vision.boxes import both


def pixel_table(b: Emitter, images: Any) -> Any:
    """The pixel table (batch * height * width, channels) of images (batch, channels, height, width)."""
    batch, channels, height, width = images.shape
    return b.reshape(b.transpose(images, perm=(0, 2, 3, 1)), shape=(batch * height * width, channels))


def pixel(b: Emitter, table: Any, image: Any, y: Any, x: Any, size: tuple[int, int]) -> Any:
    """The table's rows of the pixels at y, x (integers as floats) of images number `image` (i64), clipped to `size`."""
    height, width = size
    dtype = dtype_of(y)
    y, x = (
        b.cast(b.minimum(b.maximum(v, scalar(b, 0, dtype)), scalar(b, n - 1, dtype)), dtype=I64)
        for v, n in ((y, height), (x, width))
    )
    row = image * height + y
    return b.gather(table, row * width + x, axis=0)


def inside(b: Emitter, y: Any, x: Any, size: tuple[int, int]) -> Any:
    """Whether the coordinates y, x are inside an image of this size."""
    dtype = dtype_of(y)
    zero = scalar(b, 0, dtype)
    checks = ((v, scalar(b, n - 1, dtype)) for v, n in zip((y, x), size))
    return both(b, *(c for v, last in checks for c in (v >= zero, v <= last)))


def per_pixel(b: Emitter, x: Any) -> Any:
    """`x` with a last axis of length 1, to broadcast over the channels."""
    return b.reshape(x, shape=(*x.shape, 1))


def bilinear(b: Emitter, table: Any, image: Any, y: Any, x: Any, size: tuple[int, int], *, reach: bool = True) -> Any:
    """Bilinear interpolation of images at y, x, from four neighbouring pixels; 0 outside the image.

    `reach`: the image fades linearly to 0 over one pixel around it. Otherwise it covers coordinates from 0 up to its
    extents, and beyond the centre of its last row or column has the value there.
    """
    dtype = dtype_of(y)
    one, zero = scalar(b, 1, dtype), scalar(b, 0, dtype)
    top, left = b.floor(y), b.floor(x)
    below, right = y - top, x - left
    total = None
    for down, vertical in ((0, one - below), (1, below)):
        for across, horizontal in ((0, one - right), (1, right)):
            at_y = top + one if down else top
            at_x = left + one if across else left
            value = pixel(b, table, image, at_y, at_x, size)
            if reach:
                value = b.select(per_pixel(b, inside(b, at_y, at_x, size)), value, zero)
            value = value * per_pixel(b, vertical * horizontal)  # NaN where the coordinates are
            total = value if total is None else total + value
    if reach:
        return total
    ends = (v < scalar(b, n, dtype) for v, n in zip((y, x), size))
    return b.select(per_pixel(b, both(b, y >= zero, x >= zero, *ends)), total, zero)
