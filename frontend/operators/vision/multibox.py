"""`MultiBoxPrior` and `MultiBoxDetection`: the anchors of single-shot detectors, and the detections decoded from them.

Boxes are corners (left, top, right, bottom) relative to the image; class 0 is the background.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gluonjit.ir.dims import Extent, is_at_most
from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, I64, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.attributes import boolean, integer, number, numbers
from gluonjit.operators.movement.creation import filled
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import require_float, require_same_dtype, require_shape, scalar, shape_text
from gluonjit.operators.vision.boxes import (
    both,
    columns,
    front,
    joined,
    moved,
    rows,
    suppressed,
)

VARIANCES = numbers((0.1, 0.1, 0.2, 0.2), doc="factors of the regressed offsets: x, y, width, height")


def check_variances(variances: tuple[float, ...]) -> None:
    if len(variances) != 4:
        raise OperatorError(f"Variance size must be 4, got {variances}")


def _cell(b: Emitter, n: Extent) -> Any:
    """The size of one of `n` cells of a whole."""
    if isinstance(n, int):
        return b.constant(1 / max(n, 1), F32)
    return b.constant(1, F32) / b.constant(n, F32)


@operator(
    "_contrib_MultiBoxPrior",
    attrs={
        "sizes": numbers((1.0,), doc="the sizes of anchors, relative to the image's height"),
        "ratios": numbers((1.0,), doc="the shapes of anchors: width / height"),
        "clip": boolean(False, doc="whether boxes are clipped to the image"),
        "steps": numbers((-1.0, -1.0), doc="distances between centers (y, x); -1: one cell of the feature map"),
        "offsets": numbers((0.5, 0.5), doc="position of the center in its cell (y, x)"),
    },
    gradient=gradients.zero,
)
def multi_box_prior(
    b: Emitter,
    data: Any,
    *,
    sizes: tuple[float, ...],
    ratios: tuple[float, ...],
    clip: bool,
    steps: tuple[float, ...],
    offsets: tuple[float, ...],
) -> Any:
    """Anchors around the center of every cell of a feature map

    Shapes: data (batch, channels, height, width) -> (1, height * width * (sizes + ratios - 1), 4)

    From SSD (Liu et al., 2016). Each cell has one anchor for each size with the first ratio, then one for each other
    ratio with the first size. Anchors are corners, relative to the image.

    >>> mx.nd.contrib.MultiBoxPrior(mx.nd.zeros((1, 1, 1, 1)), sizes=(0.5,)).asnumpy()
    array([[[0.25, 0.25, 0.75, 0.75]]], dtype=float32)
    """
    require_float(data)
    if len(data.shape) != 4:
        raise OperatorError(f"Input data should be 4D: batch-channel-y-x, got {shape_text(data.shape)}")
    for name, values, count in (("steps", steps, 2), ("offsets", offsets, 2)):
        if len(values) != count:
            raise OperatorError(f"{name} needs {count} numbers (y, x), got {values}")
    if not sizes or not ratios or min(*sizes, *ratios) <= 0:
        raise OperatorError(f"sizes {sizes} and ratios {ratios} must be positive")
    height, width = data.shape[2:]
    if steps[0] * steps[1] < 0 or 0 in steps:
        raise OperatorError(f"Must specify both step_y and step_x, got {steps}")
    step_y, step_x = (
        b.constant(step, F32) if step > 0 else _cell(b, n) for step, n in zip(steps, (height, width), strict=True)
    )

    # Half the widths and heights of the anchors of one cell, in float32 as MXNet computes them.
    root, size = np.sqrt(np.array(ratios, np.float32)), np.array(sizes, np.float32)
    tall = np.concatenate([size / root[0], size[0] / root[1:]])
    wide = np.concatenate([size * root[0], size[0] * root[1:]])
    none = np.zeros_like(wide)
    across, down = (
        b.constant((np.stack(sides, 1) / 2).reshape(1, 1, len(wide), 4), F32)
        for sides in ([-wide, none, wide, none], [none, -tall, none, tall])
    )
    across = across * height / max(width, 1)
    half = across + down

    def line(n: Extent, axis: int, offset: float, step: Any) -> Any:
        shape = tuple(n if k == axis else 1 for k in range(4))
        places = b.iota(shape=shape, axis=axis, dtype=F32) + offset
        return places * step

    is_x = b.constant(np.array([True, False, True, False]).reshape(1, 1, 1, 4))
    middle = b.select(is_x, line(width, 1, offsets[1], step_x), line(height, 0, offsets[0], step_y))
    boxes = b.reshape(middle + half, shape=(1, height * width * len(wide), 4))
    if clip:
        boxes = b.minimum(b.maximum(boxes, b.constant(0, F32)), b.constant(1, F32))
    return boxes


@operator(
    "_contrib_MultiBoxDetection",
    inputs=("cls_prob", "loc_pred", "anchor"),
    attrs={
        "clip": boolean(True, doc="whether boxes are clipped to the image"),
        "threshold": number(0.01, doc="detections of lower probability are dropped"),
        "background_id": integer(0, doc="has no effect, as in MXNet: the background is class 0"),
        "nms_threshold": number(0.5, doc="a box is suppressed if its overlap with a better one reaches this"),
        "force_suppress": boolean(False, doc="whether boxes of different classes suppress each other, too"),
        "variances": VARIANCES,
        "nms_topk": integer(-1, doc="only the best `nms_topk` boxes are kept for suppression; -1: all"),
    },
    gradient=gradients.zero,
)
def multi_box_detection(
    b: Emitter,
    cls_prob: Any,
    loc_pred: Any,
    anchor: Any,
    *,
    clip: bool,
    threshold: float,
    background_id: int,
    nms_threshold: float,
    force_suppress: bool,
    variances: tuple[float, ...],
    nms_topk: int,
) -> Any:
    """Decodes detections as rows (class, probability, left, top, right, bottom), sorted by descending probability

    Shapes: cls_prob (batch, classes, n), loc_pred (batch, 4 * n), anchor (1, n, 4) -> (batch, n, 6)

    From SSD (Liu et al., 2016). Suppressed boxes and the rows after the last detection have class -1. Class numbers do
    not count the background.

    >>> probabilities, anchor = mx.nd.array([[[0.25], [0.75]]]), mx.nd.array([[[0.25, 0.25, 0.75, 0.75]]])
    >>> mx.nd.contrib.MultiBoxDetection(probabilities, mx.nd.zeros((1, 4)), anchor).asnumpy()
    array([[[0.  , 0.75, 0.25, 0.25, 0.75, 0.75]]], dtype=float32)
    """
    dtype = require_float(cls_prob)
    require_same_dtype(cls_prob, loc_pred, anchor)
    if len(cls_prob.shape) != 3:
        raise OperatorError(f"Provided: {shape_text(cls_prob.shape)}; cls_prob must be (batch, classes, n)")
    batch, classes, n = cls_prob.shape
    require_shape(loc_pred, (batch, 4 * n), "loc_pred")
    require_shape(anchor, (1, n, 4), "anchor")
    check_variances(variances)
    if classes < 2 or n == 0 or batch == 0:
        return filled(b, -1, (batch, n, 6), dtype)
    found, score, valid = _detections(b, cls_prob, loc_pred, anchor, clip, threshold, variances)
    unsorted = rows(b, found, front(b, valid))
    if not 0 < nms_threshold <= 1:
        return unsorted
    return _without_suppressed(b, found, score, valid, unsorted, nms_threshold, force_suppress, nms_topk)


def _detections(
    b: Emitter,
    cls_prob: Any,
    loc_pred: Any,
    anchor: Any,
    clip: bool,
    threshold: float,
    variances: tuple[float, ...],
) -> tuple[Any, Any, Any]:
    """The rows of all anchors, -1 for those that detect nothing; their scores; which of them detect something."""
    batch, classes, n = cls_prob.shape
    dtype = dtype_of(cls_prob)
    foreground = b.slice(cls_prob, start=(0, 1, 0), size=(batch, classes - 1, n))
    score = b.reduce(foreground, op="max", axes=(1,))
    kind = b.cast(b.arg_reduce(foreground, op="argmax", axis=1), dtype=dtype)
    valid = both(b, score > -1, score >= scalar(b, threshold, dtype))
    offset = columns(b, b.reshape(loc_pred, shape=(batch, n, 4)), 0)
    boxes = moved(b, columns(b, anchor, 0), "corner", offset, variances)
    if clip:
        boxes = [b.maximum(b.minimum(v, scalar(b, 1, dtype)), scalar(b, 0, dtype)) for v in boxes]
    empty = filled(b, -1, (batch, n, 6), dtype)
    return b.select(b.reshape(valid, shape=(batch, n, 1)), joined(b, [kind, score, *boxes]), empty), score, valid


def _without_suppressed(
    b: Emitter,
    found: Any,
    score: Any,
    valid: Any,
    unsorted: Any,
    nms_threshold: float,
    force_suppress: bool,
    nms_topk: int,
) -> Any:
    """The detections by descending score, those that better ones overlap too much with class -1. Boxes beyond
    `nms_topk` are suppressed, too; MXNet leaves their rows in the order of the anchors, as they are in `unsorted`."""
    batch, n, _ = found.shape
    dtype = dtype_of(found)
    count = nms_topk if nms_topk > 0 and is_at_most(nms_topk, n) else n
    least = scalar(b, -math.inf, dtype)
    ranked, order = b.sort(b.select(valid, score, least), axis=1, descending=True, count=count if count != n else 0)
    y = rows(b, found, order)
    candidates = ranked > least
    if nms_topk > 0 and not is_at_most(count, nms_topk):  # it is not known which is less
        position = b.iota(shape=(1, n), axis=1, dtype=I64)
        candidates = both(b, candidates, position < nms_topk)
    if nms_topk > 0 and not is_at_most(n, nms_topk):
        left = b.slice(unsorted, start=(0, 0, 0), size=(batch, count, 6))
        y = b.select(b.reshape(candidates, shape=(batch, count, 1)), y, left)
    kind, _, *boxes = columns(b, y, 0, 6)
    kept = suppressed(
        b,
        boxes,
        (boxes[2] - boxes[0]) * (boxes[3] - boxes[1]),
        None if force_suppress else kind,
        candidates,
        lambda b, shared, union: both(
            b,
            union > 0,
            shared / union >= scalar(b, nms_threshold, dtype),
        ),
    )
    kind = b.reshape(b.select(kept, kind, scalar(b, -1, dtype)), shape=(batch, count, 1))
    y = b.update_slice(y, kind, start=(0, 0, 0))
    if count == n:
        return y
    rest = b.update_slice(unsorted, filled(b, -1, (batch, n, 1), dtype), start=(0, 0, 0))
    return b.update_slice(rest, y, start=(0, 0, 0))
