"""`ROIAlign`: averages over regions of images, from bilinear samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I64, dtype_of
from gluonjit.operators.attributes import boolean, integer, number, shape
from gluonjit.operators.control.looping import loop
from gluonjit.operators.movement.creation import filled
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import narrowed, scalar, widened
from gluonjit.operators.vision.boxes import both, columns
from gluonjit.operators.vision.interpolation import per_pixel, pixel, pixel_table
from gluonjit.operators.vision.roi_pooling import check_regions

MOST_ASKED = 256
"""Limit on the samples along an axis set by attributes; a loop runs over their square."""
MOST_SAMPLES = 4096
"""The most samples per cell and axis; only regions far larger than their image would have more."""


@operator(
    "_contrib_ROIAlign",
    inputs=("data", "rois"),
    attrs={
        "pooled_size": shape(doc="height and width of the grid"),
        "spatial_scale": number(doc="pixels of the data per unit of the regions' coordinates"),
        "sample_ratio": integer(
            -1, high=MOST_ASKED, doc="samples per cell along each axis; not positive: one per pixel or more"
        ),
        "position_sensitive": boolean(False, doc="whether each cell reads its own channels"),
        "aligned": boolean(False, doc="whether coordinates are those of pixel centers, not of their corners"),
    },
    constants=("rois",),
)
def roi_align(
    b: Emitter,
    data: Any,
    rois: Any,
    *,
    pooled_size: tuple[int, ...],
    spatial_scale: float,
    sample_ratio: int,
    position_sensitive: bool,
    aligned: bool,
) -> Any:
    """Averages bilinear samples over each cell of regions

    Shapes: data (batch, channels, h, w), rois (n, 5) -> (n, channels, *pooled_size)

    From Mask R-CNN (He et al., 2017). A region is a row (image, left, top, right, bottom); one with a negative image
    number gives 0. With `position_sensitive`, cell k of the grid reads every (height * width)-th channel, starting with
    the k-th, where height and width are those of the grid.

    >>> image, region = mx.nd.array([[[[1, 1], [3, 3]]]]), mx.nd.array([[0, 0, 0, 1, 1]])
    >>> mx.nd.contrib.ROIAlign(image, region, pooled_size=(1, 1), spatial_scale=1, sample_ratio=1).asnumpy()
    array([[[[2.]]]], dtype=float32)
    """
    dtype = check_regions(data, rois, pooled_size)
    batch, channels, height, width = data.shape
    n = rois.shape[0]
    cells = pooled_size[0] * pooled_size[1]
    if position_sensitive:
        if channels % cells:
            raise OperatorError(f"{channels} channels cannot be divided among {cells} cells")
        channels //= cells
    if n * batch == 0:
        return filled(b, 0, (n, channels, *pooled_size), dtype)
    x = widened(b, data)
    wide = dtype_of(x)
    image, *corners = columns(b, widened(b, rois), 0, 5)
    moved = (v * scalar(b, spatial_scale, wide) for v in corners)
    left, top, right, bottom = (v - 0.5 for v in moved) if aligned else moved
    known = image >= 0
    image = b.reshape(b.cast(image, dtype=I64), shape=(n, 1, 1))
    if position_sensitive:
        # One image per cell, which holds the cell's channels.
        x = b.reshape(x, shape=(batch, channels, cells, height, width))
        x = b.reshape(b.transpose(x, perm=(0, 2, 1, 3, 4)), shape=(batch * cells, channels, height, width))
        cell = b.reshape(b.iota(shape=(cells,), axis=0, dtype=I64), shape=(1, *pooled_size))
        image = image * cells + cell
    rows = _Samples.along(b, top, bottom, pooled_size[0], sample_ratio, aligned)
    cols = _Samples.along(b, left, right, pooled_size[1], sample_ratio, aligned)
    total = _sum_of_samples(b, pixel_table(b, x), image, rows, cols, (height, width), sample_ratio)
    y = total / b.reshape(rows.count * cols.count, shape=(n, 1, 1, 1))
    y = b.select(b.reshape(known, shape=(n, 1, 1, 1)), y, scalar(b, 0, wide))
    return narrowed(b, b.transpose(y, perm=(0, 3, 1, 2)), dtype)


def sample_counts(b: Emitter, step: Any, ratio: int) -> Any:
    """The number of samples along an axis in cells of length `step`: `ratio`, or if not positive, one per pixel."""
    dtype = dtype_of(step)
    if ratio > 0:
        return filled(b, ratio, step.shape, dtype)
    one = scalar(b, 1, dtype)
    count = b.minimum(b.maximum(b.ceil(step), one), scalar(b, MOST_SAMPLES, dtype))
    return b.select(b.isfinite(step), count, one)


@dataclass(eq=False, repr=False)
class _Samples:
    """The positions of samples along one axis.

    For each region, (n, 1): the `start` of its first cell, the `step` from one cell to the next, and the `count` of
    samples in a cell. `cells` is the number of cells.
    """

    start: Any
    step: Any
    count: Any
    cells: int

    @staticmethod
    def along(b: Emitter, low: Any, high: Any, cells: int, sample_ratio: int, aligned: bool) -> _Samples:
        dtype = dtype_of(low)
        one = scalar(b, 1, dtype)
        extent = high - low
        if not aligned:
            extent = b.maximum(extent, one)
        step = extent / scalar(b, cells, dtype)
        count = sample_counts(b, step, sample_ratio)
        start, step, count = (b.reshape(v, shape=(v.shape[0], 1)) for v in (low, step, count))
        return _Samples(start, step, count, cells)

    def place(self, b: Emitter, k: Any) -> Any:
        """Coordinates of sample number `k` (a float) of each cell: (n, cells)."""
        dtype = dtype_of(self.start)
        cell = b.iota(shape=(1, self.cells), axis=1, dtype=dtype)
        within = (k + 0.5) * self.step / self.count
        return self.start + cell * self.step + within


def _sum_of_samples(
    b: Emitter, table: Any, image: Any, rows: _Samples, cols: _Samples, size: tuple[int, int], sample_ratio: int
) -> Any:
    """The sum of each cell's samples: (n, rows, columns, channels)."""
    dtype = dtype_of(table)
    if 0 < sample_ratio <= 3:
        total = None
        for k in range(sample_ratio**2):
            y, x = (scalar(b, v, dtype) for v in divmod(k, sample_ratio))
            value = _sample(b, table, image, rows.place(b, y), cols.place(b, x), size)
            total = value if total is None else total + value
        return total
    n = rows.start.shape[0]
    most = [b.cast(b.reduce(v.count, op="max", axes=(0, 1)), dtype=I64) for v in (rows, cols)]
    captured = [*most, table, image, rows.start, rows.step, rows.count, cols.start, cols.step, cols.count]

    def body(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        _, most, table, image, *parts = captured
        down = _Samples(parts[0], parts[1], parts[2], rows.cells)
        across = _Samples(parts[3], parts[4], parts[5], cols.cells)
        y, x = (b.cast(v, dtype=dtype) for v in (b.div(index, most), b.mod(index, most)))
        value = _sample(b, table, image, down.place(b, y), across.place(b, x), size)
        there = b.reshape(both(b, y < down.count, x < across.count), shape=(n, 1, 1, 1))
        return [state[0] + b.select(there, value, scalar(b, 0, dtype))], []

    def more(b: Emitter, index: Any, state: Any, captured: Any) -> Any:
        return index < captured[0] * captured[1]

    nothing = filled(b, 0, (n, rows.cells, cols.cells, table.shape[1]), dtype)
    trip = sample_ratio**2 if sample_ratio > 0 else MOST_SAMPLES**2
    (total,), _ = loop(b, body, [nothing], (), captured, trip=trip, condition=more)
    return total


def _sample(b: Emitter, table: Any, image: Any, y: Any, x: Any, size: tuple[int, int]) -> Any:
    """Samples images at rows y (n, rows) and columns x (n, columns): (n, rows, columns, channels)."""
    y, x = b.reshape(y, shape=(*y.shape, 1)), b.reshape(x, shape=(x.shape[0], 1, x.shape[1]))
    return sample(b, table, image, y, x, size)


def sample(b: Emitter, table: Any, image: Any, y: Any, x: Any, size: tuple[int, int]) -> Any:
    """Samples images at positions (y, x) by bilinear interpolation; channels are the last axis.

    Positions up to one pixel outside of the image have the value at its border; beyond, the value is 0.
    """
    dtype = dtype_of(y)
    zero, one = scalar(b, 0, dtype), scalar(b, 1, dtype)
    known = []
    parts = []
    for v, extent in zip((y, x), size):
        known += [v >= -1, v <= scalar(b, extent, dtype)]
        v = b.minimum(b.maximum(v, zero), scalar(b, extent - 1, dtype))
        low = b.floor(v)
        far = v - low
        parts.append(((low, one - far), (low + one, far)))
    total = None
    for at_y, vertical in parts[0]:
        for at_x, horizontal in parts[1]:
            value = pixel(b, table, image, at_y, at_x, size) * per_pixel(b, vertical * horizontal)
            total = value if total is None else total + value
    return b.select(per_pixel(b, both(b, *known)), total, zero)
