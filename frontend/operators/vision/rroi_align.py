"""`RROIAlign`: averages over rotated rectangles in images, from bilinear samples."""

from __future__ import annotations

import math
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I64, dtype_of
from gluonjit.operators.attributes import integer, number, shape
from gluonjit.operators.control.looping import loop
from gluonjit.operators.movement.creation import filled
from gluonjit.operators.registry import operator
from gluonjit.operators.support import narrowed, scalar, widened
from gluonjit.operators.vision.boxes import both, columns
from gluonjit.operators.vision.interpolation import pixel_table
from gluonjit.operators.vision.roi_align import MOST_ASKED, MOST_SAMPLES, sample, sample_counts
from gluonjit.operators.vision.roi_pooling import check_regions


@operator(
    "_contrib_RROIAlign",
    inputs=("data", "rois"),
    attrs={
        "pooled_size": shape(doc="height and width of the grid"),
        "spatial_scale": number(doc="pixels of the data per unit of the regions' coordinates"),
        "sampling_ratio": integer(
            -1, high=MOST_ASKED, doc="samples per cell along each axis; not positive: one per pixel or more"
        ),
    },
    constants=("rois",),
)
def rroi_align(
    b: Emitter, data: Any, rois: Any, *, pooled_size: tuple[int, ...], spatial_scale: float, sampling_ratio: int
) -> Any:
    """Averages bilinear samples over each cell of rotated regions

    Shapes: data (batch, channels, h, w), rois (n, 6) -> (n, channels, *pooled_size)

    A region is a row (image, center x, center y, width, height, counterclockwise angle in degrees).

    >>> image, region = mx.nd.ones((1, 1, 4, 4)), mx.nd.array([[0, 1.5, 1.5, 2, 2, 90]])
    >>> mx.nd.contrib.RROIAlign(image, region, pooled_size=(1, 1), spatial_scale=1).asnumpy().round(3)
    array([[[[1.]]]], dtype=float32)
    """
    dtype = check_regions(data, rois, pooled_size, fields=6)
    batch, channels, *size = data.shape
    rows, cols = pooled_size
    n = rois.shape[0]
    if n * batch == 0:
        return filled(b, 0, (n, channels, rows, cols), dtype)
    table = pixel_table(b, widened(b, data))
    wide = dtype_of(table)
    fields = [b.reshape(v, shape=(n, 1, 1)) for v in columns(b, widened(b, rois), 0, 6)]
    image, angle = b.cast(fields[0], dtype=I64), fields[5] * scalar(b, math.pi / 180, wide)
    middle_x, middle_y, width, height = (v * scalar(b, spatial_scale, wide) for v in fields[1:5])
    height, width = (b.maximum(v, scalar(b, 1, wide)) for v in (height, width))
    step_y, step_x = (v / scalar(b, k, wide) for v, k in ((height, rows), (width, cols)))
    count_y, count_x = (sample_counts(b, v, sampling_ratio) for v in (step_y, step_x))
    # Corners of the cells relative to the region's center, before the rotation.
    grid_y = b.iota(shape=(1, rows, 1), axis=1, dtype=wide)
    grid_x = b.iota(shape=(1, 1, cols), axis=2, dtype=wide)
    half = scalar(b, 0.5, wide)
    low_y = grid_y * step_y - height * half
    low_x = grid_x * step_x - width * half
    most = [b.cast(b.reduce(v, op="max", axes=(0, 1, 2)), dtype=I64) for v in (count_y, count_x)]
    turned = [b.cos(angle), b.sin(angle), middle_y, middle_x]
    captured = [*most, table, image, low_y, low_x, step_y, step_x, count_y, count_x, *turned]

    def body(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        most_x, table, image, low_y, low_x, step_y, step_x, count_y, count_x, cos, sin, middle_y, middle_x = captured[
            1:
        ]
        k_y, k_x = (b.cast(v, dtype=wide) for v in (b.div(index, most_x), b.mod(index, most_x)))
        half = scalar(b, 0.5, wide)
        y = low_y + (k_y + half) * step_y / count_y
        x = low_x + (k_x + half) * step_x / count_x
        at_x = x * cos + y * sin + middle_x
        at_y = y * cos - x * sin + middle_y
        value = sample(b, table, image, at_y, at_x, (size[0], size[1]))
        there = b.reshape(both(b, k_y < count_y, k_x < count_x), shape=(n, 1, 1, 1))
        return [state[0] + b.select(there, value, scalar(b, 0, wide))], []

    def more(b: Emitter, index: Any, state: Any, captured: Any) -> Any:
        return index < captured[0] * captured[1]

    trip = sampling_ratio**2 if sampling_ratio > 0 else MOST_SAMPLES**2
    nothing = filled(b, 0, (n, rows, cols, channels), wide)
    (total,), _ = loop(b, body, [nothing], (), captured, trip=trip, condition=more)
    y = total / b.reshape(count_y * count_x, shape=(n, 1, 1, 1))
    return narrowed(b, b.transpose(y, perm=(0, 3, 1, 2)), dtype)
