"""`Proposal` and `MultiProposal`: the boxes that a region proposal network (Faster R-CNN) predicts to hold objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import BOOL, I64, DType, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.attributes import boolean, integer, number, numbers
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import (
    Shapes,
    merge,
    narrowed,
    require_float,
    require_same_dtype,
    require_shape,
    scalar,
    shape_text,
    widened,
)
from gluonjit.operators.vision.boxes import columns, front, joined, rows, suppressed

_ATTRS = {
    "rpn_pre_nms_top_n": integer(6000, doc="number of boxes of the highest scores to consider; 0 or less: all"),
    "rpn_post_nms_top_n": integer(300, doc="number of boxes of each image in the result"),
    "threshold": number(0.7, doc="boxes whose overlap with a better one is larger are removed"),
    "rpn_min_size": integer(16, doc="the least side in pixels of the unscaled image; smaller boxes come last"),
    "scales": numbers((4.0, 8.0, 16.0, 32.0), doc="the scales of the anchors"),
    "ratios": numbers((0.5, 1.0, 2.0), doc="the shapes of the anchors: height / width"),
    "feature_stride": integer(16, low=1, doc="pixels of the image per pixel of the feature map"),
    "output_score": boolean(False, doc="whether the scores are a result, too"),
    "iou_loss": boolean(False, doc="whether bbox_pred shifts corners, not centers and sizes"),
}


def _complete(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
    scores, deltas, info = shapes
    if scores is None or len(scores) != 4:
        return shapes
    batch, channels, *size = scores
    return [scores, merge(deltas, (batch, 2 * channels, *size)), merge(info, (batch, 3))]


_DECLARED: dict[str, Any] = {
    "inputs": ("cls_prob", "bbox_pred", "im_info"),
    "attrs": _ATTRS,
    "outputs": lambda attrs: ("output", "score"),
    "visible": lambda attrs: 2 if attrs["output_score"] else 1,
    "complete": _complete,
    "gradient": gradients.zero,
}


@operator("_contrib_MultiProposal", **_DECLARED)
def multi_proposal(b: Emitter, cls_prob: Any, bbox_pred: Any, im_info: Any, **attrs: Any) -> Any:
    """The best boxes of region proposals, and their scores

    Shapes: cls_prob (batch, 2 * anchors, height, width), bbox_pred (batch, 4 * anchors, height, width), im_info (batch,
    3) -> (batch * rpn_post_nms_top_n, 5), and with `output_score` (batch * rpn_post_nms_top_n, 1)

    From Faster R-CNN (Ren et al., 2015). A box is a row (image, left, top, right, bottom), in pixels.

    * `cls_prob`: the second half is the probability that an anchor holds an object;
    * `bbox_pred`: the shift and scale that fit an anchor to the object;
    * `im_info`: the height and width of the images, and the factor by which they were scaled.

    Boxes are clipped to the image. If there are too few, they are repeated from the first one on.

    >>> probability, none = mx.nd.ones((1, 2, 1, 1)), mx.nd.zeros((1, 4, 1, 1))
    >>> size, one = mx.nd.array([[16, 16, 1]]), {"scales": (1,), "ratios": (1,), "rpn_post_nms_top_n": 1}
    >>> mx.nd.contrib.MultiProposal(probability, none, size, **one).asnumpy()
    array([[ 0.,  0.,  0., 15., 15.]], dtype=float32)
    """
    return _proposals(b, cls_prob, bbox_pred, im_info, attrs)


def _proposals(b: Emitter, cls_prob: Any, bbox_pred: Any, im_info: Any, attrs: Mapping[str, Any]) -> tuple[Any, Any]:
    dtype = require_float(cls_prob)
    require_same_dtype(cls_prob, bbox_pred, im_info)
    if len(cls_prob.shape) != 4 or 0 in cls_prob.shape or cls_prob.shape[1] % 2:
        raise OperatorError(f"cls_prob must be (batch, 2 * anchors, height, width), got {shape_text(cls_prob.shape)}")
    batch, channels, height, width = cls_prob.shape
    anchors = _anchors(attrs["feature_stride"], attrs["ratios"], attrs["scales"])
    if len(anchors) != channels // 2:
        raise OperatorError(
            f"{len(attrs['ratios'])} ratios and {len(attrs['scales'])} scales make {len(anchors)} "
            f"anchors, cls_prob has channels for {channels // 2}"
        )
    require_shape(bbox_pred, (batch, 2 * channels, height, width), "bbox_pred")
    require_shape(im_info, (batch, 3), "im_info")
    wanted = attrs["rpn_post_nms_top_n"]
    if wanted < 1:
        raise OperatorError(f"rpn_post_nms_top_n must be positive, got {wanted}")
    count = len(anchors) * height * width
    looked_at = min(attrs["rpn_pre_nms_top_n"], count) if attrs["rpn_pre_nms_top_n"] > 0 else count

    scores, deltas, info = (widened(b, x) for x in (cls_prob, bbox_pred, im_info))
    found, scores = _boxes(b, scores, deltas, info, anchors, attrs)
    _, order = b.sort(-scores, axis=1)
    order = b.slice(order, start=(0, 0), size=(batch, looked_at))
    best = rows(b, joined(b, [*found, scores]), order)
    left = _not_suppressed(b, best, attrs["threshold"])
    wide = dtype_of(best)
    kept = b.reduce(b.select(left, b.constant(1, I64), b.constant(0, I64)), op="sum", axes=(1,))
    kept = b.minimum(b.reshape(kept, shape=(batch, 1)), b.constant(min(wanted, looked_at), I64))
    index = b.mod(b.broadcast(b.iota(shape=(1, wanted), axis=1, dtype=I64), shape=(batch, wanted)), kept)
    chosen = rows(b, rows(b, best, front(b, left)), index)
    chosen = b.reshape(chosen, shape=(batch * wanted, 5))
    image = b.broadcast(b.iota(shape=(batch, 1, 1), axis=0, dtype=wide), shape=(batch, wanted, 1))
    corners = b.slice(chosen, start=(0, 0), size=(batch * wanted, 4))
    boxes = b.concat(b.reshape(image, shape=(batch * wanted, 1)), corners, axis=1)
    score = b.slice(chosen, start=(0, 4), size=(batch * wanted, 1))
    return narrowed(b, boxes, dtype), narrowed(b, score, dtype)


@operator("_contrib_Proposal", **_DECLARED)
def proposal(b: Emitter, cls_prob: Any, bbox_pred: Any, im_info: Any, **attrs: Any) -> Any:
    """`MultiProposal` of one image

    Shapes: cls_prob (1, 2 * anchors, height, width), bbox_pred (1, 4 * anchors, height, width), im_info (1, 3) ->
    (rpn_post_nms_top_n, 5), and with `output_score` (rpn_post_nms_top_n, 1)

    >>> probability, none = mx.nd.ones((1, 2, 1, 1)), mx.nd.zeros((1, 4, 1, 1))
    >>> size, one = mx.nd.array([[16, 16, 1]]), {"scales": (1,), "ratios": (1,), "rpn_post_nms_top_n": 1}
    >>> mx.nd.contrib.Proposal(probability, none, size, **one).asnumpy()
    array([[ 0.,  0.,  0., 15., 15.]], dtype=float32)
    """
    if len(cls_prob.shape) == 4 and cls_prob.shape[0] != 1:
        raise OperatorError(
            f"Sorry, multiple images each device is not implemented: got {cls_prob.shape[0]}; "
            "contrib.MultiProposal takes them"
        )
    return _proposals(b, cls_prob, bbox_pred, im_info, attrs)


def _anchors(stride: int, ratios: tuple[float, ...], scales: tuple[float, ...]) -> np.ndarray:
    """The anchors of a feature map's first pixel, (n, 4), in float32 and rounded as in MXNet."""
    f32 = np.float32
    size, middle = f32(stride) * f32(stride), f32(0.5) * (f32(stride) - f32(1))
    if min((*ratios, *scales), default=1) <= 0:
        raise OperatorError(f"scales {scales} and ratios {ratios} must be positive")
    found = []
    for ratio in map(f32, ratios):
        wide = np.floor(np.sqrt(np.floor(size / ratio)) + f32(0.5))
        for scale in map(f32, scales):
            extents = wide * scale, np.floor(wide * scale / scale * ratio + f32(0.5)) * scale
            half = np.array([(v - f32(1)) * f32(0.5) for v in extents], f32)
            found.append(np.concatenate([middle - half, middle + half]))
    return np.array(found, f32).reshape(-1, 4)


def _boxes(
    b: Emitter, cls_prob: Any, bbox_pred: Any, im_info: Any, anchors: np.ndarray, attrs: Mapping[str, Any]
) -> tuple[list[Any], Any]:
    """Corners and scores of all boxes, each (batch, height * width * anchors)."""
    batch, channels, height, width = cls_prob.shape
    dtype = dtype_of(cls_prob)
    n, stride = len(anchors), attrs["feature_stride"]
    shape = (batch, height, width, n)
    scores = b.slice(cls_prob, start=(0, n, 0, 0), size=(batch, n, height, width))
    scores = b.transpose(scores, perm=(0, 2, 3, 1))
    deltas = b.reshape(bbox_pred, shape=(batch, n, 4, height, width))
    deltas = columns(b, b.transpose(deltas, perm=(0, 3, 4, 1, 2)), 0)
    row = b.iota(shape=(1, height, 1, 1), axis=1, dtype=dtype)
    column = b.iota(shape=(1, 1, width, 1), axis=2, dtype=dtype)
    shift = [v * scalar(b, stride, dtype) for v in (column, row)]
    corners = [b.constant(anchors[:, k].astype(dtype.numpy).reshape(1, 1, 1, n)) + shift[k % 2] for k in range(4)]
    info_height, info_width, scale = (b.reshape(v, shape=(batch, 1, 1, 1)) for v in columns(b, im_info, 0, 3))
    moved = _shifted(b, corners, deltas, attrs["iou_loss"], dtype)
    zero, one = scalar(b, 0, dtype), scalar(b, 1, dtype)
    ends = [v - one for v in (info_width, info_height)]
    moved = [b.maximum(b.minimum(v, ends[k % 2]), zero) for k, v in enumerate(moved)]
    # Boxes in the padding outside of the image, and boxes that are too small, come last.
    sides = [moved[k + 2] - moved[k] + one for k in (0, 1)]
    least = scale * scalar(b, attrs["rpn_min_size"], dtype)
    small = (sides[0] < least) | (sides[1] < least)
    grow = b.select(small, least * 0.5, zero)
    moved = [v - grow if k < 2 else v + grow for k, v in enumerate(moved)]
    real = [b.floor(v / scalar(b, stride, dtype)) for v in (info_height, info_width)]
    beside = (row >= real[0]) | (column >= real[1])
    scores = b.select(small | beside, scalar(b, -1, dtype), scores)
    flat = (batch, height * width * n)
    return [b.reshape(b.broadcast(v, shape=shape), shape=flat) for v in moved], b.reshape(scores, shape=flat)


def _shifted(b: Emitter, corners: list[Any], deltas: list[Any], by_corners: bool, dtype: DType) -> list[Any]:
    """Shifts boxes by `deltas` of their corners, or of their centers and sizes. Boxes include their last pixels."""
    if by_corners:
        return [v + d for v, d in zip(corners, deltas)]
    one, half = scalar(b, 1, dtype), scalar(b, 0.5, dtype)
    low, high = [], []
    for k in (0, 1):
        extent = corners[k + 2] - corners[k] + one
        middle = corners[k] + half * (extent - one)
        at, reach = deltas[k] * extent + middle, b.exp(deltas[k + 2]) * extent
        reach = half * (reach - one)
        low.append(at - reach)
        high.append(at + reach)
    return [*low, *high]


def _not_suppressed(b: Emitter, best: Any, threshold: float) -> Any:
    """Non-maximum suppression of boxes (batch, n, 5), best first: which of them are kept."""
    dtype = dtype_of(best)
    x0, y0, x1, y1 = columns(b, best, 0)
    one = scalar(b, 1, dtype)
    x1, y1 = x1 + one, y1 + one
    areas = (x1 - x0) * (y1 - y0)
    everything = b.broadcast(b.constant(True, BOOL), shape=areas.shape)

    def overlaps(b: Emitter, shared: Any, union: Any) -> Any:
        return shared / union > scalar(b, threshold, dtype)

    return suppressed(b, [x0, y0, x1, y1], areas, None, everything, overlaps)
