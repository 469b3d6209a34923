"""`ROIPooling`: maxima over the cells of a grid that divides each region of an image, whatever the region's size.

Regions are rows (image, left, top, right, bottom); `spatial_scale` converts their coordinates to those of the data.
"""

from __future__ import annotations

import math
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I64, DType, dtype_of
from gluonjit.operators.attributes import number, shape
from gluonjit.operators.movement.creation import filled
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import require_float, require_same_dtype, scalar, shape_text, widened
from gluonjit.operators.vision.boxes import columns
from gluonjit.operators.vision.interpolation import per_pixel


def check_regions(data: Any, rois: Any, pooled_size: tuple[int, ...], fields: int = 5) -> DType:
    """Checks the shapes and types of the data and the regions, (n, fields); returns the element type."""
    dtype = require_float(data)
    require_same_dtype(data, rois)
    if len(data.shape) != 4 or 0 in data.shape[2:]:
        raise OperatorError(f"data should be a 4D tensor (batch, channel, y, x), got {shape_text(data.shape)}")
    if len(rois.shape) != 2 or rois.shape[1] != fields:
        raise OperatorError(f"bbox should be a 2D tensor of shape [batch, {fields}], got {shape_text(rois.shape)}")
    if len(pooled_size) != 2 or min(pooled_size) < 1:
        raise OperatorError(f"pooled_size should be (height, width), got {shape_text(pooled_size)}")
    return dtype


def _cells(b: Emitter, count: int, dtype: DType) -> Any:
    """The numbers 0, 1, …, as (1, count)."""
    return b.iota(shape=(1, count), axis=1, dtype=dtype)


def _first_axis(b: Emitter, x: Any) -> Any:
    """Reshapes a vector to (n, 1)."""
    return b.reshape(x, shape=(x.shape[0], 1))


# Maxima


@operator(
    "ROIPooling",
    inputs=("data", "rois"),
    attrs={
        "pooled_size": shape(doc="height and width of the grid"),
        "spatial_scale": number(low=0, high=1, doc="pixels of the data per unit of the regions' coordinates"),
    },
    outputs=lambda attrs: ("output", "maxidx"),
    visible=lambda attrs: 1,
)
def roi_pooling(b: Emitter, data: Any, rois: Any, *, pooled_size: tuple[int, ...], spatial_scale: float) -> Any:
    """The maximum over each cell of regions, rounded to whole pixels

    Shapes: data (batch, channels, h, w), rois (n, 5) -> (n, channels, *pooled_size)

    From Fast R-CNN (Girshick, 2015). A region is a row (image, left, top, right, bottom). A cell outside of the image
    gives 0.

    >>> image, region = mx.nd.array([[[[1, 2], [3, 4]]]]), mx.nd.array([[0, 0, 0, 1, 1]])
    >>> mx.nd.ROIPooling(image, region, pooled_size=(2, 1), spatial_scale=1).asnumpy()
    array([[[[2.],
             [4.]]]], dtype=float32)
    """
    dtype = check_regions(data, rois, pooled_size)
    batch, channels, height, width = data.shape
    n = rois.shape[0]
    if n * batch == 0:
        return filled(b, 0, (n, channels, *pooled_size), dtype)
    image, *corners = columns(b, widened(b, rois), 0, 5)
    wide = dtype_of(image)
    left, top, right, bottom = (b.round(v * scalar(b, spatial_scale, wide)) for v in corners)
    y0, y1 = _ranges(b, top, bottom, pooled_size[0], height)
    x0, x1 = _ranges(b, left, right, pooled_size[1], width)
    y0, y1 = (b.reshape(v, shape=(n, pooled_size[0], 1)) for v in (y0, y1))
    x0, x1 = (b.reshape(v, shape=(n, 1, pooled_size[1])) for v in (x0, x1))
    image = b.reshape(b.cast(image, dtype=I64), shape=(n, 1, 1))
    y = _range_maximum(b, data, image, (y0, y1), (x0, x1))
    empty = (y1 <= y0) | (x1 <= x0)
    y = b.select(per_pixel(b, empty), scalar(b, 0, dtype), y)
    return b.transpose(y, perm=(0, 3, 1, 2))


def _ranges(b: Emitter, low: Any, high: Any, cells: int, extent: int) -> tuple[Any, Any]:
    """The first pixel and the end of each cell along one axis, clipped to the image: i64 (n, cells)."""
    dtype = dtype_of(low)
    one, size = scalar(b, 1, dtype), b.constant(cells, dtype)
    low = _first_axis(b, low)
    step = b.maximum(_first_axis(b, high) - low + one, one) / size
    cell = _cells(b, cells, dtype)
    start = b.floor(cell * step) + low
    end = b.ceil((cell + one) * step) + low
    zero, last = scalar(b, 0, dtype), scalar(b, extent, dtype)
    return tuple(b.cast(b.minimum(b.maximum(v, zero), last), dtype=I64) for v in (start, end))


def _range_maximum(b: Emitter, data: Any, image: Any, ys: tuple[Any, Any], xs: tuple[Any, Any]) -> Any:
    """Maxima over rectangles of pixels of any size: (n, rows, columns, channels).

    A sparse table holds the maxima over all blocks of 2**i times 2**j pixels, at each position; four overlapping blocks
    cover any rectangle. The result for empty rectangles is unspecified.
    """
    batch, channels, height, width = data.shape
    levels = [max(height.bit_length(), 1), max(width.bit_length(), 1)]
    grown = b.transpose(data, perm=(0, 2, 3, 1))
    for axis, count in ((2, levels[1]), (1, levels[0])):
        # Each round adds a leading axis of levels: (…, batch, height, width, channels).
        rank = len(grown.shape) - 4
        parts = [grown]
        for k in range(count - 1):
            parts.append(_doubled(b, parts[-1], rank + axis, 1 << k))
        parts = [b.reshape(p, shape=(1, *p.shape)) for p in parts]
        grown = b.concat(*parts, axis=0) if count > 1 else parts[0]
    table = b.reshape(grown, shape=(levels[0] * levels[1] * batch * height * width, channels))
    row_level, rows = _covering(b, ys, levels[0])
    column_level, columns_ = _covering(b, xs, levels[1])
    level = row_level * levels[1] + column_level
    page = level * batch + image
    best = None
    for y in rows:
        for x in columns_:
            row = page * height + y
            value = b.gather(table, row * width + x, axis=0)
            best = value if best is None else b.maximum(best, value)
    return best


def _doubled(b: Emitter, x: Any, axis: int, step: int) -> Any:
    """The maximum of x and x shifted by `step` along the axis; x alone where the shift leaves the axis."""
    n = x.shape[axis]
    if step >= n:
        return x
    start, low, high, size = [0] * len(x.shape), [0] * len(x.shape), [0] * len(x.shape), list(x.shape)
    start[axis], size[axis], high[axis] = step, n - step, step
    moved = b.slice(x, start=tuple(start), size=tuple(size))
    least = scalar(b, -math.inf, dtype_of(x))
    return b.maximum(x, b.pad(moved, least, low=tuple(low), high=tuple(high)))


def _covering(b: Emitter, ends: tuple[Any, Any], levels: int) -> tuple[Any, tuple[Any, Any]]:
    """The level of the largest power of two within a range, and the starts of two blocks of that length covering it."""
    start, end = ends
    zero, one = b.constant(0, I64), b.constant(1, I64)
    length = b.maximum(end - start, one)
    level, power = zero, one
    for k in range(1, levels):
        fits = length >= (1 << k)
        level = b.select(fits, b.constant(k, I64), level)
        power = b.select(fits, b.constant(1 << k, I64), power)
    return level, (start, b.maximum(end - power, zero))
