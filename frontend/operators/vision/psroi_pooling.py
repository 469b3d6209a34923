"""Position-sensitive pooling (R-FCN, and its deformable variant): each cell of a region's grid reads its own channels.

A group x group grid is laid over the cells. Output channel d of a cell in row r and column c of that grid reads channel
(d * group + r) * group + c of the data. Regions are rows (image, left, top, right, bottom), whose borders are rounded
to pixels of the input image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import BOOL, I64, DType, dtype_of
from gluonjit.operators.attributes import boolean, integer, number
from gluonjit.operators.control.looping import loop
from gluonjit.operators.movement.creation import filled
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import narrowed, require_same_dtype, require_shape, scalar, widened
from gluonjit.operators.vision.boxes import both, columns
from gluonjit.operators.vision.interpolation import per_pixel, pixel
from gluonjit.operators.vision.roi_align import MOST_ASKED
from gluonjit.operators.vision.roi_pooling import check_regions


def _pages(
    b: Emitter, data: Any, image: Any, outputs: int, group: int, cells: int, classes: int = 1
) -> tuple[Any, Any]:
    """The pixels as a table (pages * height * width, outputs / classes), and the page that each cell reads.

    A page holds the pixels of one image for one class and one cell of the group grid. `image` is (n, 1, 1, 1); the
    pages are i64 (n, classes, cells, cells).
    """
    batch, channels, height, width = data.shape
    if channels < outputs * group**2:
        raise OperatorError(
            f"output_dim {outputs} and group_size {group} need {outputs * group**2} channels of data, got {channels}"
        )
    x = b.slice(data, start=(0, 0, 0, 0), size=(batch, outputs * group**2, height, width))
    x = b.reshape(x, shape=(batch, classes, outputs // classes, group, group, height, width))
    x = b.transpose(x, perm=(0, 1, 3, 4, 5, 6, 2))
    table = b.reshape(x, shape=(batch * classes * group**2 * height * width, outputs // classes))
    place = np.arange(cells) * group // cells
    within = (place[:, None] * group + place).reshape(1, 1, cells, cells) + (np.arange(classes) * group**2).reshape(
        1, classes, 1, 1
    )
    return table, image * (classes * group**2) + b.constant(within)


def _positive(**sizes: int) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise OperatorError(f"{name} must be positive, got {value}")


def _extent(b: Emitter, low: Any, high: Any, scale: float) -> tuple[Any, Any]:
    """The start and length of regions along an axis, in pixels of the data."""
    dtype = dtype_of(low)
    start = b.round(low) * scalar(b, scale, dtype)
    end = (b.round(high) + 1) * scalar(b, scale, dtype)
    return start, b.maximum(end - start, scalar(b, 0.1, dtype))


@operator(
    "_contrib_PSROIPooling",
    inputs=("data", "rois"),
    attrs={
        "spatial_scale": number(low=0, high=1, doc="pixels of the data per unit of the regions' coordinates"),
        "output_dim": integer(doc="channels of the result"),
        "pooled_size": integer(doc="cells along each axis"),
        "group_size": integer(0, doc="cells of the group grid along each axis; 0: pooled_size"),
    },
)
def psroi_pooling(
    b: Emitter, data: Any, rois: Any, *, spatial_scale: float, output_dim: int, pooled_size: int, group_size: int
) -> Any:
    """Averages the pixels of each cell in that cell's own channels

    Shapes: data (batch, output_dim * group_size², h, w), rois (n, 5) -> (n, output_dim, pooled_size, pooled_size)

    From R-FCN (Dai et al., 2016). A region is a row (image, left, top, right, bottom). A cell outside of the image
    gives 0.

    >>> image, region = mx.nd.array([[[[1, 3], [5, 7]]]]), mx.nd.array([[0, 0, 0, 1, 1]])
    >>> mx.nd.contrib.PSROIPooling(image, region, spatial_scale=1, output_dim=1, pooled_size=1).asnumpy()
    array([[[[4.]]]], dtype=float32)
    """
    group = group_size or pooled_size
    _positive(output_dim=output_dim, pooled_size=pooled_size, group_size=group)
    dtype = check_regions(data, rois, (pooled_size, pooled_size))
    batch, _, *size = data.shape
    n = rois.shape[0]
    if n * batch == 0:
        return filled(b, 0, (n, output_dim, pooled_size, pooled_size), dtype)
    image, left, top, right, bottom = (b.reshape(v, shape=(n, 1, 1, 1)) for v in columns(b, widened(b, rois), 0, 5))
    table, page = _pages(b, widened(b, data), b.cast(image, dtype=I64), output_dim, group, pooled_size)
    y0, y1 = _pixels(b, *_extent(b, top, bottom, spatial_scale), pooled_size, size[0], 2)
    x0, x1 = _pixels(b, *_extent(b, left, right, spatial_scale), pooled_size, size[1], 3)
    wide = dtype_of(table)
    zero, one = scalar(b, 0, wide), scalar(b, 1, wide)
    rows, cols = (b.maximum(end - start, zero) for start, end in ((y0, y1), (x0, x1)))
    most = [
        b.maximum(b.cast(b.reduce(v, op="max", axes=(0, 1, 2, 3)), dtype=I64), b.constant(1, I64)) for v in (rows, cols)
    ]

    def body(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        _, most_x, table, page, y0, x0, rows, cols = captured
        y, x = (b.cast(v, dtype=wide) for v in (b.div(index, most_x), b.mod(index, most_x)))
        value = pixel(b, table, page, y0 + y, x0 + x, (size[0], size[1]))
        there = per_pixel(b, both(b, y < rows, x < cols))
        return [state[0] + b.select(there, value, scalar(b, 0, wide))], []

    def more(b: Emitter, index: Any, state: Any, captured: Any) -> Any:
        return index < captured[0] * captured[1]

    nothing = filled(b, 0, (n, 1, pooled_size, pooled_size, output_dim), wide)
    captured = [*most, table, page, y0, x0, rows, cols]
    (total,), _ = loop(b, body, [nothing], (), captured, trip=size[0] * size[1], condition=more)
    y = total / per_pixel(b, b.maximum(rows * cols, one))
    y = b.reshape(y, shape=(n, pooled_size, pooled_size, output_dim))
    return narrowed(b, b.transpose(y, perm=(0, 3, 1, 2)), dtype)


def _pixels(b: Emitter, start: Any, extent: Any, cells: int, size: int, axis: int) -> tuple[Any, Any]:
    """The first pixel and the end of each cell along an axis, clipped to the image, as integral floats."""
    dtype = dtype_of(start)
    shape = tuple(cells if k == axis else 1 for k in range(4))
    step, cell = extent / scalar(b, cells, dtype), b.iota(shape=shape, axis=axis, dtype=dtype)
    low = b.floor(cell * step + start)
    high = b.ceil((cell + 1) * step + start)
    zero, most = scalar(b, 0, dtype), scalar(b, size, dtype)
    return tuple(b.minimum(b.maximum(v, zero), most) for v in (low, high))


def _inputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    return ("data", "rois") if attrs["no_trans"] else ("data", "rois", "trans")


@operator(
    "_contrib_DeformablePSROIPooling",
    inputs=_inputs,
    attrs={
        "spatial_scale": number(low=0, high=1, doc="pixels of the data per unit of the regions' coordinates"),
        "output_dim": integer(doc="channels of the result"),
        "group_size": integer(doc="cells of the group grid along each axis"),
        "pooled_size": integer(doc="cells along each axis"),
        "part_size": integer(0, doc="parts that are shifted, along each axis; 0: pooled_size"),
        "sample_per_part": integer(1, high=MOST_ASKED, doc="samples per cell along each axis"),
        "trans_std": number(0.0, low=0, high=1, doc="factor of the shifts"),
        "no_trans": boolean(False, doc="whether there is no input `trans`, and no part is shifted"),
    },
    outputs=lambda attrs: ("output", "top_count"),
    visible=lambda attrs: 1,
)
def deformable_psroi_pooling(
    b: Emitter,
    data: Any,
    rois: Any,
    trans: Any = None,
    *,
    spatial_scale: float,
    output_dim: int,
    group_size: int,
    pooled_size: int,
    part_size: int,
    sample_per_part: int,
    trans_std: float,
    no_trans: bool,
) -> Any:
    """Averages samples of each cell in that cell's own channels

    Shapes: data (batch, output_dim * group_size², h, w), rois (n, 5), trans (n, 2 * classes, part_size, part_size) ->
    (n, output_dim, pooled_size, pooled_size)

    From deformable convolutional networks (Dai et al., 2017). `trans` shifts the parts of a region by (x, y) in units
    of its size. Samples outside of the image do not count; a cell without samples gives 0.

    >>> image, region = mx.nd.ones((1, 1, 2, 2)), mx.nd.array([[0, 0, 0, 1, 1]])
    >>> one = {"output_dim": 1, "group_size": 1, "pooled_size": 1}
    >>> mx.nd.contrib.DeformablePSROIPooling(image, region, spatial_scale=1, no_trans=True, **one).asnumpy()
    array([[[[1.]]]], dtype=float32)
    """
    cells, part, samples = pooled_size, part_size or pooled_size, sample_per_part
    _positive(output_dim=output_dim, group_size=group_size, pooled_size=cells, part_size=part, sample_per_part=samples)
    dtype = check_regions(data, rois, (cells, cells))
    batch, _, *size = data.shape
    n = rois.shape[0]
    classes = 1 if trans is None else _classes_of_shifts(data, trans, n, part, output_dim)
    if n * batch == 0:
        nothing = filled(b, 0, (n, output_dim, cells, cells), dtype)
        return nothing, nothing
    image, left, top, right, bottom = (b.reshape(v, shape=(n, 1, 1, 1)) for v in columns(b, widened(b, rois), 0, 5))
    table, page = _pages(b, widened(b, data), b.cast(image, dtype=I64), output_dim, group_size, cells, classes)
    wide = dtype_of(table)
    places: list[tuple[Any, Any]] = []
    for axis, low, high in ((2, top, bottom), (3, left, right)):
        begin, extent = _extent(b, low, high, spatial_scale)
        cell = extent / scalar(b, cells, wide)
        grid = b.iota(shape=tuple(cells if k == axis else 1 for k in range(4)), axis=axis, dtype=wide)
        start = grid * cell + (begin - scalar(b, 0.5, wide))
        if trans is not None:
            start = start + _shift(b, widened(b, trans), 3 - axis, cells, trans_std, wide) * extent
        places.append((start, cell / scalar(b, samples, wide)))
    (first_y, by_y), (first_x, by_x) = places

    def body(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        table, page, start_y, start_x, step_y, step_x = captured
        count = b.constant(samples, I64)
        k_y, k_x = (b.cast(v, dtype=wide) for v in (b.div(index, count), b.mod(index, count)))
        y, x = start_y + k_y * step_y, start_x + k_x * step_x
        value, there = _between(b, table, page, y, x, (size[0], size[1]))
        one, zero = scalar(b, 1, wide), scalar(b, 0, wide)
        there = there & b.broadcast(b.constant(True, BOOL), shape=(n, classes, cells, cells))
        total = state[0] + b.select(per_pixel(b, there), value, zero)
        return [total, state[1] + b.select(there, one, zero)], []

    state = [
        filled(b, 0, (n, classes, cells, cells, output_dim // classes), wide),
        filled(b, 0, (n, classes, cells, cells), wide),
    ]
    captured = [table, page, first_y, first_x, by_y, by_x]
    (total, count), _ = loop(b, body, state, (), captured, trip=samples**2)
    y = total / per_pixel(b, b.maximum(count, scalar(b, 1, wide)))
    count = b.broadcast(per_pixel(b, count), shape=total.shape)
    return tuple(
        narrowed(b, b.reshape(b.transpose(v, perm=(0, 1, 4, 2, 3)), shape=(n, output_dim, cells, cells)), dtype)
        for v in (y, count)
    )


def _classes_of_shifts(data: Any, trans: Any, n: int, part: int, output_dim: int) -> int:
    """How many classes of channels `trans` shifts apart. OperatorError if it does not fit."""
    require_same_dtype(data, trans)
    classes: int = trans.shape[1] // 2 if len(trans.shape) == 4 else 1
    require_shape(trans, (n, 2 * classes, part, part), "trans")
    if not classes or output_dim % classes:
        raise OperatorError(f"trans is for {classes} classes, which do not divide output_dim {output_dim}")
    return classes


def _shift(b: Emitter, trans: Any, which: int, cells: int, factor: float, dtype: DType) -> Any:
    """The shift of each cell along x (`which` 0) or y (1), in region sizes: (n, classes, cells, cells)."""
    n, both_axes, part, _ = trans.shape
    x = b.reshape(trans, shape=(n, both_axes // 2, 2, part, part))
    x = b.slice(x, start=(0, 0, which, 0, 0), size=(n, both_axes // 2, 1, part, part))
    x = b.reshape(x, shape=(n, both_axes // 2, part, part))
    part_of = np.floor(np.arange(cells, dtype=np.float32) / np.float32(cells) * np.float32(part)).astype(np.int64)
    for axis in (2, 3):
        x = b.gather(x, b.constant(part_of), axis=axis)
    return x * scalar(b, factor, dtype)


def _between(b: Emitter, table: Any, page: Any, y: Any, x: Any, size: tuple[int, int]) -> tuple[Any, Any]:
    """Bilinear samples of the pages at (y, x), and which of them lie in the image.

    A pixel is a square around its integer coordinates, so the image reaches from -0.5 to size - 0.5.
    """
    dtype = dtype_of(y)
    zero, one, half = (scalar(b, v, dtype) for v in (0, 1, 0.5))
    checks, parts = [], []
    for v, extent in ((y, size[0]), (x, size[1])):
        checks += [v >= -half, v <= scalar(b, extent - 0.5, dtype)]
        v = b.minimum(b.maximum(v, zero), scalar(b, extent - 1, dtype))
        far = v - b.floor(v)
        parts.append(((b.floor(v), one - far), (b.ceil(v), far)))
    total = None
    for at_y, vertical in parts[0]:
        for at_x, horizontal in parts[1]:
            value = pixel(b, table, page, at_y, at_x, size) * per_pixel(b, vertical * horizontal)
            total = value if total is None else total + value
    return total, both(b, *checks)
