"""`MultiBoxTarget`: the training targets of single-shot detectors."""

from __future__ import annotations

import math
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, I64, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.attributes import integer, number
from gluonjit.operators.movement.creation import filled
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import require_float, require_same_dtype, require_shape, scalar, shape_text
from gluonjit.operators.vision.boxes import (
    area,
    both,
    columns,
    greedy_match,
    intersection,
    joined,
    negated,
    offsets,
    rows,
)
from gluonjit.operators.vision.multibox import VARIANCES, check_variances


@operator(
    "_contrib_MultiBoxTarget",
    inputs=("anchor", "label", "cls_pred"),
    attrs={
        "overlap_threshold": number(0.5, doc="anchors that overlap a box more than this are positive"),
        "ignore_label": number(-1.0, doc="class target of anchors that are neither positive nor negative"),
        "negative_mining_ratio": number(-1.0, doc="negatives per positive anchor; 0 or less: all others are negative"),
        "negative_mining_thresh": number(0.5, doc="anchors that overlap a box this much are not negative"),
        "minimum_negative_samples": integer(0, doc="has no effect, as in MXNet"),
        "variances": VARIANCES,
    },
    outputs=lambda attrs: ("loc_target", "loc_mask", "cls_target"),
    gradient=gradients.zero,
)
def multi_box_target(
    b: Emitter,
    anchor: Any,
    label: Any,
    cls_pred: Any,
    *,
    overlap_threshold: float,
    ignore_label: float,
    negative_mining_ratio: float,
    negative_mining_thresh: float,
    minimum_negative_samples: int,
    variances: tuple[float, ...],
) -> Any:
    """Computes each anchor's training targets: offsets to its box, a mask of them, and its class

    Shapes: anchor (1, n, 4), label (batch, m, 5 or more), cls_pred (batch, classes, n) -> (batch, 4 * n), (batch, 4 *
    n), (batch, n)

    From SSD (Liu et al., 2016). A row of the label is class and box; rows of -1 end it. Each labelled box is matched
    with the anchor that overlaps it most; then each other anchor is matched with the box that it overlaps most, if by
    more than the threshold. Mining keeps as negatives the anchors whose predicted probability of background is the
    lowest.

    >>> anchor = mx.nd.array([[[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]]])
    >>> label = mx.nd.array([[[2, 0.5, 0.5, 1, 1]]])
    >>> offsets, mask, classes = mx.nd.contrib.MultiBoxTarget(anchor, label, mx.nd.zeros((1, 4, 2)))
    >>> classes.asnumpy(), mask.asnumpy().tolist()
    (array([[0., 3.]], dtype=float32), [[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]])
    """
    dtype = require_float(anchor)
    _check(anchor, label, cls_pred)
    check_variances(variances)
    n, (batch, m, _) = anchor.shape[1], label.shape
    if m * n == 0:
        nothing = filled(b, 0, (batch, 4 * n), dtype)
        return nothing, nothing, filled(b, ignore_label, (batch, n), dtype)
    kinds, *boxes = columns(b, label, 0, 5)
    # The first class of -1 ends the labels.
    ended = b.cast(b.eq(kinds, scalar(b, -1, dtype)), dtype=I64)
    real = b.eq(b.cumsum(ended, axis=1), b.constant(0, I64))
    overlap = _overlaps(b, columns(b, anchor, 0), boxes)  # (batch, anchors, labels)
    overlap = b.select(b.reshape(real, shape=(batch, 1, m)), overlap, scalar(b, -1, dtype))

    matched, _ = greedy_match(b, overlap, lambda b, score: score > 1e-6, n * m)
    chosen = matched >= 0
    nearest = b.arg_reduce(overlap, op="argmax", axis=2)
    best = b.reduce(overlap, op="max", axes=(2,))
    positive = chosen
    if overlap_threshold > 0:
        near = both(b, negated(b, chosen), best > scalar(b, overlap_threshold, dtype))
        positive = chosen | near
        matched = b.select(near, nearest, matched)
    if negative_mining_ratio > 0:
        candidates = both(b, negated(b, positive), best < scalar(b, negative_mining_thresh, dtype))
        negative = _mined(b, positive, candidates, cls_pred, negative_mining_ratio)
    else:
        negative = negated(b, positive)
    # An image without labels has no negatives either: it does not contribute to training.
    labelled = b.reduce(real, op="any", axes=(1,))
    negative = both(b, negative, b.reshape(labelled, shape=(batch, 1)))

    zero = scalar(b, 0, dtype)
    partner = rows(b, label, b.maximum(matched, b.constant(0, I64)))
    kind = columns(b, partner, 0, 1)[0] + 1
    class_target = b.select(positive, kind, b.select(negative, zero, scalar(b, ignore_label, dtype)))
    shifts = offsets(b, columns(b, partner, 1), columns(b, anchor, 0))
    location = joined(b, [v / scalar(b, f, dtype) for v, f in zip(shifts, variances)])
    wide = b.broadcast(b.reshape(positive, shape=(batch, n, 1)), shape=(batch, n, 4))
    return (
        b.reshape(b.select(wide, location, zero), shape=(batch, 4 * n)),
        b.reshape(b.cast(wide, dtype=dtype), shape=(batch, 4 * n)),
        class_target,
    )


def _check(anchor: Any, label: Any, cls_pred: Any) -> None:
    require_same_dtype(anchor, label, cls_pred)
    if len(anchor.shape) != 3 or anchor.shape[0] != 1 or anchor.shape[2] != 4:
        raise OperatorError(
            f"Anchors are shared across batches; their shape must be (1, n, 4), got {shape_text(anchor.shape)}"
        )
    if len(label.shape) != 3 or label.shape[2] < 5:
        raise OperatorError(
            f"Label should be [batch, num_labels, label_width >= 5] tensor, got {shape_text(label.shape)}"
        )
    if len(cls_pred.shape) != 3:
        raise OperatorError(
            f"Prediction should be [batch, num_classes, num_anchors] tensor, got {shape_text(cls_pred.shape)}"
        )
    require_shape(cls_pred, (label.shape[0], cls_pred.shape[1], anchor.shape[1]), "cls_pred")


def _overlaps(b: Emitter, anchors: Any, boxes: Any) -> Any:
    """Intersection over union of anchors (1, n) with boxes (batch, m): (batch, n, m). 0 instead of NaN."""
    n, (batch, m) = anchors[0].shape[1], boxes[0].shape
    anchors = [b.reshape(x, shape=(1, n, 1)) for x in anchors]
    boxes = [b.reshape(x, shape=(batch, 1, m)) for x in boxes]
    shared = intersection(b, anchors, boxes)
    union = area(b, anchors, "corner") + area(b, boxes, "corner") - shared
    zero = scalar(b, 0, dtype_of(shared))
    return b.select(shared > zero, shared / union, zero)


def _mined(b: Emitter, positive: Any, candidates: Any, cls_pred: Any, ratio: float) -> Any:
    """Selects the candidates with the lowest probability of background, `ratio` times as many as positives."""
    batch, n = positive.shape
    dtype = dtype_of(cls_pred)
    peak = b.reduce(cls_pred, op="max", axes=(1,))
    powers = b.exp(cls_pred - b.reshape(peak, shape=(batch, 1, n)))
    background = b.reshape(b.slice(powers, start=(0, 0, 0), size=(batch, 1, n)), shape=(batch, n))
    background = background / b.reduce(powers, op="sum", axes=(1,))
    _, order = b.sort(b.select(candidates, background, scalar(b, math.inf, dtype)), axis=1)
    rank = b.sort(order, axis=1)[1]  # sorting a permutation gives its inverse
    positives = b.reduce(b.cast(positive, dtype=F32), op="sum", axes=(1,))
    wanted = b.cast(positives * ratio, dtype=I64)
    return both(b, candidates, rank < b.reshape(wanted, shape=(batch, 1)))
