"""Operators on boxes: overlaps, suppression, matching, and encoding boxes relative to anchors."""

from __future__ import annotations

import math
from typing import Any

from gluonjit.ir.dims import is_at_most
from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I64, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.attributes import boolean, enum, integer, number
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import require_float, require_same_dtype, require_shape, scalar, shape_text, widened
from gluonjit.operators.vision.boxes import (
    area,
    both,
    columns,
    corners,
    front,
    greedy_match,
    intersection,
    joined,
    moved,
    offsets,
    rows,
    suppressed,
)

_FORMATS = ("center", "corner")


@operator(
    "_contrib_box_iou",
    inputs=("lhs", "rhs"),
    attrs={"format": enum(_FORMATS, "corner", doc="what the four numbers are")},
    gradient=gradients.zero,
)
def box_iou(b: Emitter, lhs: Any, rhs: Any, *, format: str) -> Any:
    """Intersection over union of every box of lhs with every box of rhs

    Shapes: lhs (…, 4), rhs (…, 4) -> the other axes of lhs, then those of rhs

    The last axis holds left, top, right, bottom (`corner`), or center x, center y, width, height (`center`).

    >>> boxes = mx.nd.array([[0, 0, 2, 2], [0, 0, 2, 1]])
    >>> mx.nd.contrib.box_iou(boxes, mx.nd.array([[0, 0, 2, 2]])).asnumpy()
    array([[1. ],
           [0.5]], dtype=float32)
    """
    require_float(lhs)
    require_same_dtype(lhs, rhs)
    for name, x in (("lhs", lhs), ("rhs", rhs)):
        if len(x.shape) < 2 or x.shape[-1] != 4:
            raise OperatorError(f"last dimension of {name} must be 4, {shape_text(x.shape)} provided")
    m, n = math.prod(lhs.shape[:-1]), math.prod(rhs.shape[:-1])
    left, right = columns(b, lhs, 0), columns(b, rhs, 0)
    left, right = [b.reshape(x, shape=(m, 1)) for x in left], [b.reshape(x, shape=(1, n)) for x in right]
    shared = intersection(b, corners(b, left, format), corners(b, right, format))
    union = area(b, left, format) + area(b, right, format) - shared
    zero = scalar(b, 0, dtype_of(lhs))
    ratio = b.select(shared <= zero, zero, shared / union)
    return b.reshape(ratio, shape=(*lhs.shape[:-1], *rhs.shape[:-1]))


@operator(
    "_contrib_box_nms",
    aliases=("_contrib_box_non_maximum_suppression",),
    attrs={
        "overlap_thresh": number(0.5, doc="boxes that overlap more than this suppress each other"),
        "valid_thresh": number(0.0, doc="boxes with a score up to this are dropped"),
        "topk": integer(-1, doc="how many of the best boxes are considered; -1: all, 0: the data is returned as it is"),
        "coord_start": integer(2, doc="the column of the first of the four coordinates"),
        "score_index": integer(1, doc="the column of the score"),
        "id_index": integer(-1, doc="the column of the class; -1: none"),
        "background_id": integer(-1, doc="boxes of this class are dropped, if `id_index` is given"),
        "force_suppress": boolean(False, doc="whether boxes of different classes suppress each other, too"),
        "in_format": enum(_FORMATS, "corner", doc="the format of the data's boxes"),
        "out_format": enum(_FORMATS, "corner", doc="the format of the result's boxes"),
    },
    outputs=lambda attrs: ("output0", "output1"),
    visible=lambda attrs: 1,
)
def box_nms(
    b: Emitter,
    data: Any,
    *,
    overlap_thresh: float,
    valid_thresh: float,
    topk: int,
    coord_start: int,
    score_index: int,
    id_index: int,
    background_id: int,
    force_suppress: bool,
    in_format: str,
    out_format: str,
) -> Any:
    """Non-maximum suppression: of overlapping boxes, keeps the one with the highest score

    Shapes: data (…, boxes, width) -> the same

    A row holds a score, four coordinates, optionally a class, and any other columns. The result has the kept rows by
    descending score, then rows of -1.

    >>> rows = mx.nd.array([[0, 0.9, 0, 0, 2, 2], [0, 0.8, 0, 0, 2, 2], [0, 0.7, 5, 5, 6, 6]])
    >>> mx.nd.contrib.box_nms(rows).asnumpy().round(3)
    array([[ 0. ,  0.9,  0. ,  0. ,  2. ,  2. ],
           [ 0. ,  0.7,  5. ,  5. ,  6. ,  6. ],
           [-1. , -1. , -1. , -1. , -1. , -1. ]], dtype=float32)
    """
    dtype = require_float(data)
    _check_columns(data, coord_start, score_index, id_index)
    shape = tuple(data.shape)
    boxes, width = shape[-2:]
    batch = math.prod(shape[:-2])
    count = topk if topk >= 0 and is_at_most(topk, boxes) else boxes
    if count == 0 or batch == 0:
        return data
    x = b.reshape(data, shape=(batch, boxes, width))
    (scores,) = (widened(b, v) for v in columns(b, x, score_index, 1))
    valid = scores > scalar(b, valid_thresh, dtype_of(scores))
    if id_index >= 0:  # a class of -1 is that of the background, if it has not been given another
        (kinds,) = columns(b, x, id_index, 1)
        valid = both(b, valid, b.ne(kinds, scalar(b, background_id, dtype)))
    least = scalar(b, -math.inf, dtype_of(scores))
    scores, order = b.sort(
        b.select(valid, scores, least), axis=1, descending=True, count=count if count is not boxes else 0
    )
    candidates = scores > least
    if topk >= 0 and not is_at_most(count, topk):  # it is not known which is less
        position = b.iota(shape=(1, count), axis=1, dtype=I64)
        candidates = both(b, candidates, position < topk)
    x = rows(b, x, order)
    raw = [widened(b, v) for v in columns(b, x, coord_start)]
    kept = suppressed(
        b,
        corners(b, raw, in_format),
        area(b, raw, in_format),
        None if id_index < 0 or force_suppress else columns(b, x, id_index, 1)[0],
        candidates,
        lambda b, shared, union: shared / union > scalar(b, overlap_thresh, dtype_of(union)),
    )
    last = front(b, kept)
    filler = scalar(b, -1, dtype)
    y = b.select(b.reshape(rows(b, kept, last), shape=(batch, count, 1)), rows(b, x, last), filler)
    if in_format != out_format:
        y = _converted(b, y, coord_start, out_format)
    if count < boxes:
        y = b.pad(y, filler, low=(0, 0, 0), high=(0, boxes - count, 0))
    return b.reshape(y, shape=shape)


def _check_columns(data: Any, coord_start: int, score_index: int, id_index: int) -> None:
    if len(data.shape) < 2:
        raise OperatorError(
            f"input must have dim >= 2 the last two dimensions are num_box and box_width, got {shape_text(data.shape)}"
        )
    width = data.shape[-1]
    expected = 6 if id_index > 0 else 5
    if width < expected:
        raise OperatorError(
            "the last dimension must have at least 5 elements namely (score, coordinates x 4) "
            f"{width} provided, {expected} expected."
        )
    if not 0 <= coord_start <= width - 4:
        raise OperatorError(f"coordinates: ({coord_start}, {coord_start + 3}) out of range:: (0, {width})")
    for name, index in (("score_index", score_index), ("id_index", id_index)):
        if name == "id_index" and index < 0:
            continue
        if not 0 <= index < width:
            raise OperatorError(f"{name}: {index} out of range: (0, {width})")
        if coord_start <= index <= coord_start + 3:
            raise OperatorError(f"{name}: {index} conflict with coordinates: ({coord_start}, {coord_start + 3}).")
    if id_index == score_index:
        raise OperatorError(f"id_index: {id_index} conflict with score_index: {score_index}")


def _converted(b: Emitter, x: Any, start: int, form: str) -> Any:
    """Rows with their boxes converted to `form`, except for rows whose first element is negative, like rows of -1."""
    box = columns(b, x, start)
    there = box[0] >= 0
    if form == "corner":
        new = corners(b, box, "center")
    else:
        left, top, right, bottom = box
        two = scalar(b, 2, dtype_of(x))
        new = [(left + right) / two, (top + bottom) / two, right - left, bottom - top]
    box = joined(b, [b.select(there, after, before) for after, before in zip(new, box)])
    return b.update_slice(x, box, start=(0, 0, start))


@operator(
    "_contrib_bipartite_matching",
    attrs={
        "is_ascend": boolean(False, doc="whether lower scores are better"),
        "threshold": number(doc="pairs whose score is not better than this do not match"),
        "topk": integer(-1, doc="the most pairs; -1: no limit"),
    },
    outputs=lambda attrs: ("output0", "output1"),
    gradient=gradients.zero,
)
def bipartite_matching(b: Emitter, data: Any, *, is_ascend: bool, threshold: float, topk: int) -> Any:
    """Greedy matching of rows with columns, by descending score

    Shapes: data (…, rows, columns) -> (…, rows) and (…, columns)

    The column of each row and the row of each column; -1 for those without a partner.

    >>> scores = mx.nd.array([[0.5, 0.6], [0.1, 0.2], [0.3, 0.4]])
    >>> [y.asnumpy().tolist() for y in mx.nd.contrib.bipartite_matching(scores, threshold=0.1)]
    [[1.0, -1.0, 0.0], [2.0, 0.0]]
    """
    dtype = require_float(data)
    if len(data.shape) < 2:
        raise OperatorError(f"score matrix must have dim >= 2, {shape_text(data.shape)} provided")
    *lead, m, n = data.shape
    scores = b.reshape(data, shape=(math.prod(lead), m, n))
    # Ascending order is descending order of the negatives.
    scores, limit = (-scores, -threshold) if is_ascend else (scores, threshold)
    # As in MXNet, one pair more than topk is matched.
    most = topk + 1 if topk > 0 else m * n
    column_of, row_of = greedy_match(b, scores, lambda b, score: score > scalar(b, limit, dtype), most)
    return (
        b.reshape(b.cast(column_of, dtype=dtype), shape=(*lead, m)),
        b.reshape(b.cast(row_of, dtype=dtype), shape=(*lead, n)),
    )


@operator(
    "_contrib_box_encode",
    inputs=("samples", "matches", "anchors", "refs", "means", "stds"),
    outputs=lambda attrs: ("output0", "output1"),
    gradient=gradients.zero,
)
def box_encode(b: Emitter, samples: Any, matches: Any, anchors: Any, refs: Any, means: Any, stds: Any) -> Any:
    """Regression targets of anchors for the boxes that they are matched with, and a mask

    Shapes: samples (batch, n), matches (batch, n), anchors (batch, n, 4), refs (batch, m, 4), means (4,), stds (4,) ->
    (batch, n, 4), twice

    An anchor is used if its sample is above 0.5; `matches` are indices into `refs`; boxes are corners. Targets, as in
    Faster R-CNN (Ren et al., 2015): shifts of the center in units of the anchor, and logarithms of the ratios of width
    and height, less `means`, divided by `stds`. Both results are 0 for anchors that are not used.

    >>> anchors, refs = mx.nd.array([[[0, 0, 2, 2]]]), mx.nd.array([[[1, 0, 3, 2]]])
    >>> used, first = mx.nd.ones((1, 1)), mx.nd.zeros((1, 1))
    >>> targets, mask = mx.nd.contrib.box_encode(used, first, anchors, refs, mx.nd.zeros(4), mx.nd.ones(4))
    >>> targets.asnumpy(), mask.asnumpy()
    (array([[[0.5, 0. , 0. , 0. ]]], dtype=float32), array([[[1., 1., 1., 1.]]], dtype=float32))
    """
    dtype = require_float(samples)
    require_same_dtype(samples, matches, anchors, refs, means, stds)
    if len(samples.shape) != 2:
        raise OperatorError(f"samples must be of 2 dimensions, got {shape_text(samples.shape)}")
    batch, n = samples.shape
    require_shape(matches, (batch, n), "matches")
    require_shape(anchors, (batch, n, 4), "anchors")
    require_shape(refs, (batch, *refs.shape[1:2], 4), "refs")
    for name, x in (("means", means), ("stds", stds)):
        require_shape(x, (4,), name)
    box = rows(b, refs, b.cast(matches, dtype=I64))
    target = joined(b, offsets(b, columns(b, box, 0), columns(b, anchors, 0)))
    target = (target - means) / stds
    taken = b.broadcast(b.reshape(samples > 0.5, shape=(batch, n, 1)), shape=(batch, n, 4))
    return b.select(taken, target, scalar(b, 0, dtype)), b.cast(taken, dtype=dtype)


@operator(
    "_contrib_box_decode",
    inputs=("data", "anchors"),
    attrs={
        **{f"std{k}": number(1.0, doc="factor of the predicted value") for k in range(4)},
        "clip": number(-1.0, doc="if positive, the upper bound of the predicted logarithms of the extents"),
        "format": enum(_FORMATS, "center", doc="the format of the anchors"),
    },
    gradient=gradients.zero,
)
def box_decode(
    b: Emitter, data: Any, anchors: Any, *, std0: float, std1: float, std2: float, std3: float, clip: float, format: str
) -> Any:
    """Decodes boxes that are predicted relative to anchors into corners

    Shapes: data (batch, n, 4), anchors (1, n, 4) -> (batch, n, 4)

    The inverse of `box_encode` with means 0 and the deviations `std0` … `std3`.

    >>> shift, anchor = mx.nd.array([[[0.5, 0, 0, 0]]]), mx.nd.array([[[1, 1, 2, 2]]])
    >>> mx.nd.contrib.box_decode(shift, anchor).asnumpy()
    array([[[1., 0., 3., 2.]]], dtype=float32)
    """
    require_float(data)
    require_same_dtype(data, anchors)
    if len(data.shape) != 3 or data.shape[2] != 4:
        raise OperatorError(f"data must have shape (batch, n, 4), got {shape_text(data.shape)}")
    require_shape(anchors, (1, data.shape[1], 4), "anchors")
    return joined(b, moved(b, columns(b, anchors, 0), format, columns(b, data, 0), (std0, std1, std2, std3), clip))
