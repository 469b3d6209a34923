"""Reading images at places between their pixels.

The pixels of a batch of images lie in a *table* of one row of channels per pixel, so that reading one is reading a
row. Places are arrays of coordinates, of any shape: the values read have that shape, and the channels as last axis.
"""

from __future__ import annotations

from typing import Any

from gluonjit.ir.types import I64, dtype_of
from gluonjit.operators.boxes import both
from gluonjit.operators.support import scalar


def pixel_table(b: Any, images: Any) -> Any:
    """The pixels of images (batch, channels, height, width), in row-major order: (batch * height * width, channels)."""
    batch, channels, height, width = images.shape
    return b.reshape(b.transpose(images, perm=(0, 2, 3, 1)), shape=(batch * height * width, channels))


def pixel(b: Any, table: Any, image: Any, y: Any, x: Any, size: tuple[int, int]) -> Any:
    """The rows of pixels y, x (whole numbers as floats) of images number `image` (i64) of this size.

    Coordinates beyond the border mean the pixel at the border.
    """
    height, width = size
    dtype = dtype_of(y)
    y, x = (
        b.cast(b.minimum(b.maximum(v, scalar(b, 0, dtype)), scalar(b, n - 1, dtype)), dtype=I64)
        for v, n in ((y, height), (x, width))
    )
    row = b.add(b.mul(image, b.constant(height, I64)), y)
    return b.gather(table, b.add(b.mul(row, b.constant(width, I64)), x), axis=0)


def inside(b: Any, y: Any, x: Any, size: tuple[int, int]) -> Any:
    """Whether pixels y, x exist in an image of this size."""
    dtype = dtype_of(y)
    zero = scalar(b, 0, dtype)
    checks = ((v, scalar(b, n - 1, dtype)) for v, n in zip((y, x), size))
    return both(b, *(c for v, last in checks for c in (b.ge(v, zero), b.le(v, last))))


def per_pixel(b: Any, x: Any) -> Any:
    """`x` with an axis for the channels."""
    return b.reshape(x, shape=(*x.shape, 1))


def bilinear(b: Any, table: Any, image: Any, y: Any, x: Any, size: tuple[int, int], *, reach: bool = True) -> Any:
    """Images between their pixels, by their four neighbours; 0 outside.

    `reach`: around an image lies a border of one pixel in which it fades to 0. Otherwise it covers coordinates from 0
    up to its extents, and has the value of its last row or column behind that.
    """
    dtype = dtype_of(y)
    one, zero = scalar(b, 1, dtype), scalar(b, 0, dtype)
    top, left = b.floor(y), b.floor(x)
    below, right = b.sub(y, top), b.sub(x, left)
    total = None
    for down, vertical in ((0, b.sub(one, below)), (1, below)):
        for across, horizontal in ((0, b.sub(one, right)), (1, right)):
            at_y = b.add(top, one) if down else top
            at_x = b.add(left, one) if across else left
            value = pixel(b, table, image, at_y, at_x, size)
            if reach:
                value = b.select(per_pixel(b, inside(b, at_y, at_x, size)), value, zero)
            value = b.mul(value, per_pixel(b, b.mul(vertical, horizontal)))  # NaN where the coordinates are
            total = value if total is None else b.add(total, value)
    if reach:
        return total
    ends = (b.lt(v, scalar(b, n, dtype)) for v, n in zip((y, x), size))
    return b.select(per_pixel(b, both(b, b.ge(y, zero), b.ge(x, zero), *ends)), total, zero)
