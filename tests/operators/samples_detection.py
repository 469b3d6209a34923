"""Samples of the operators on boxes."""

import numpy as np

from .samples import floats, sample, uniform


def boxes(rng, *shape, dtype="float32", digits=7):
    """Boxes as corners, mostly inside of the unit square; with few digits, some coincide."""
    middle, half = uniform(rng, 0, 1, (*shape, 2)), uniform(rng, 0.05, 0.3, (*shape, 2))
    return np.round(np.concatenate([middle - half, middle + half], -1), digits).astype(dtype)


def scored(rng, *shape, dtype="float32", digits=7):
    """Rows (class, score, box)."""
    kinds = rng.randint(0, 3, (*shape, 1))
    scores = np.round(uniform(rng, 0, 1, (*shape, 1)), digits)
    return np.concatenate([kinds, scores, boxes(rng, *shape, digits=digits)], -1).astype(dtype)


# Overlaps


@sample("_contrib_box_iou")
def overlaps(rng):
    return [boxes(rng, 3), boxes(rng, 5)], {}


@sample("_contrib_box_iou")
def overlaps_of_batches(rng):
    return [boxes(rng, 2, 3, dtype="float64"), boxes(rng, 1, 4, dtype="float64")], {}


@sample("_contrib_box_iou")
def overlaps_of_centers(rng):
    return [floats(rng, 4, 4, low=0.2, high=1), floats(rng, 4, 4, low=0.2, high=1)], {"format": "center"}


@sample("_contrib_box_iou")
def overlaps_of_odd_boxes(rng):
    """Turned inside out, without area, infinite."""
    x = boxes(rng, 5)
    x[1] = x[1, [2, 3, 0, 1]]
    x[2, 2] = x[2, 0]
    x[3] = [-np.inf, 0, 1, 1]
    return [x, x], {}


@sample("_contrib_box_iou", oracle=False)  # MXNet keeps NaN or drops it, depending on the order of operands
def overlaps_of_nan(rng):
    x = boxes(rng, 3)
    x[1, 1] = np.nan
    return [x, x], {}


# Suppression


@sample("_contrib_box_nms")
def suppression(rng):
    return [scored(rng, 2, 12)], {"overlap_thresh": 0.3, "id_index": 0}


@sample("_contrib_box_nms")
def suppression_of_any_class(rng):
    attrs = {"overlap_thresh": 0.2, "id_index": 0, "force_suppress": True, "valid_thresh": 0.25, "topk": 7}
    return [scored(rng, 20, digits=1)], attrs


@sample("_contrib_box_nms")
def suppression_without_classes(rng):
    rows = scored(rng, 2, 1, 9)[..., [2, 3, 4, 5, 1]]
    return [rows], {"coord_start": 0, "score_index": 4, "overlap_thresh": 0.1}


@sample("_contrib_box_nms")
def suppression_with_background(rng):
    return [scored(rng, 3, 9, dtype="float64")], {"id_index": 0, "background_id": 1, "topk": 5}


@sample("_contrib_box_nms")
def suppression_to_centers(rng):
    return [scored(rng, 2, 9)], {"overlap_thresh": 0.2, "out_format": "center"}


@sample("_contrib_box_nms")
def suppression_from_centers(rng):
    rows = scored(rng, 2, 9)
    rows[..., 2:] = floats(rng, 2, 9, 4, low=-0.1, high=1)
    return [rows], {"overlap_thresh": 0.2, "in_format": "center"}


@sample("_contrib_box_nms")
def suppression_of_nan(rng):
    rows = scored(rng, 8)
    rows[2, 1] = np.nan
    rows[5, 1] = np.inf
    return [rows], {"valid_thresh": 0.01}


@sample("_contrib_box_nms")
def suppression_of_all(rng):
    return [scored(rng, 2, 4)], {"valid_thresh": 1.5}


@sample("_contrib_box_nms")
def suppression_of_none(rng):
    return [scored(rng, 4)], {"topk": 0}


@sample("_contrib_box_nms")
def suppression_float16(rng):
    return [scored(rng, 6, dtype="float16")], {"overlap_thresh": 0.3}


@sample("_contrib_box_nms", oracle=False)
def suppression_of_nothing(rng):
    return [scored(rng, 2, 0)], {}


# Matching


@sample("_contrib_bipartite_matching")
def matching(rng):
    return [floats(rng, 2, 4, 3, low=0, high=1)], {"threshold": 1e-12}


@sample("_contrib_bipartite_matching")
def matching_above_threshold(rng):
    return [np.round(floats(rng, 3, 5, low=0, high=1), 1)], {"threshold": 0.55}


@sample("_contrib_bipartite_matching")
def matching_ascending(rng):
    return [floats(rng, 2, 3, 3, dtype="float64", low=0, high=1)], {"threshold": 0.6, "is_ascend": True}


@sample("_contrib_bipartite_matching")
def matching_of_few(rng):
    return [floats(rng, 2, 2, 4, 5, low=0, high=1)], {"threshold": 0.0, "topk": 1}


# Encoding and decoding


@sample("_contrib_box_encode")
def encode(rng):
    means, stds = np.array([0.1, 0, -0.1, 0.2], "float32"), np.array([0.1, 0.1, 0.2, 0.2], "float32")
    samples = rng.choice([-1.0, 0, 1], (2, 5)).astype("float32")
    return [samples, rng.randint(0, 3, (2, 5)).astype("float32"), boxes(rng, 2, 5), boxes(rng, 2, 3), means, stds], {}


@sample("_contrib_box_encode")
def encode_boxes_without_extent(rng):
    inputs, attrs = encode(rng)
    inputs[3][:, 0, 2:] = inputs[3][:, 0, :2]
    inputs[3][:, 1, 2:] = inputs[3][:, 1, :2] - 1
    return inputs, attrs


@sample("_contrib_box_encode")
def encode_float64(rng):
    inputs, attrs = encode(rng)
    return [x.astype("float64") for x in inputs], attrs


STDS = {"std0": 0.1, "std1": 0.1, "std2": 0.2, "std3": 0.2}


@sample("_contrib_box_decode")
def decode(rng):
    return [floats(rng, 2, 4, 4), boxes(rng, 1, 4)], STDS


@sample("_contrib_box_decode")
def decode_clipped(rng):
    return [floats(rng, 2, 4, 4, low=-9, high=9), boxes(rng, 1, 4)], {**STDS, "clip": 0.4, "format": "corner"}


@sample("_contrib_box_decode")
def decode_special(rng):
    data = floats(rng, 1, 4, 4)
    data[0, [0, 1, 2], [0, 2, 3]] = [np.nan, np.inf, -np.inf]
    return [data, boxes(rng, 1, 4)], STDS


@sample("_contrib_box_decode")
def decode_float64(rng):
    return [floats(rng, 1, 3, 4, dtype="float64"), boxes(rng, 1, 3, dtype="float64")], {"format": "corner"}


# Single-shot detectors


@sample("_contrib_MultiBoxPrior")
def prior(rng):
    return [floats(rng, 1, 2, 3, 4)], {"sizes": (0.2, 0.3), "ratios": (1, 2, 0.5)}


@sample("_contrib_MultiBoxPrior")
def prior_clipped(rng):
    return [floats(rng, 2, 1, 2, 5)], {"sizes": (0.7,), "ratios": (2, 3), "clip": True}


@sample("_contrib_MultiBoxPrior")
def prior_with_steps(rng):
    return [floats(rng, 1, 1, 2, 2)], {"sizes": (0.7, 0.1), "steps": (0.1, 0.3), "offsets": (0.2, 0.6)}


@sample("_contrib_MultiBoxPrior", oracle=False)
def prior_of_nothing(rng):
    return [floats(rng, 1, 1, 0, 2)], {}


def labelled(rng, batch, anchors, labels, digits=7):
    """Anchors, labels of which some are missing, and predictions of three classes."""
    label = np.concatenate([rng.randint(0, 2, (batch, labels, 1)), boxes(rng, batch, labels, digits=digits)], -1)
    for k in range(batch):
        label[k, k + 1 :] = -1
    around = boxes(rng, 1, anchors, digits=digits)
    return [around, label.astype("float32"), floats(rng, batch, 3, anchors)]


@sample("_contrib_MultiBoxTarget")
def target(rng):
    return labelled(rng, 3, 14, 3), {"overlap_threshold": 0.4}


@sample("_contrib_MultiBoxTarget")
def target_with_equal_overlaps(rng):
    return labelled(rng, 2, 20, 4, digits=1), {"overlap_threshold": 0.2, "variances": (0.1, 0.2, 0.3, 0.4)}


@sample("_contrib_MultiBoxTarget")
def target_by_mining(rng):
    attrs = {"negative_mining_ratio": 1.5, "negative_mining_thresh": 0.5, "overlap_threshold": 0.4}
    return labelled(rng, 3, 25, 3), {**attrs, "ignore_label": 7, "minimum_negative_samples": 9}


@sample("_contrib_MultiBoxTarget")
def target_of_best_only(rng):
    return labelled(rng, 3, 10, 3), {"overlap_threshold": -1}


@sample("_contrib_MultiBoxTarget")
def target_without_labels(rng):
    inputs = labelled(rng, 2, 6, 2)
    inputs[1][0] = -1
    return inputs, {"negative_mining_ratio": 3}


@sample("_contrib_MultiBoxTarget", oracle=False)
def target_of_no_rows(rng):
    return labelled(rng, 2, 6, 0), {}


def predicted(rng, batch, anchors, classes=4, digits=7):
    weights = rng.randint(1, 100, (batch, classes, anchors)) ** 2
    probabilities = weights / weights.sum(1, keepdims=True)
    located = floats(rng, batch, 4 * anchors, low=-1, high=1)
    return [np.round(probabilities, digits).astype("float32"), located, boxes(rng, 1, anchors)]


@sample("_contrib_MultiBoxDetection")
def detection(rng):
    return predicted(rng, 2, 15), {"nms_threshold": 0.45}


@sample("_contrib_MultiBoxDetection")
def detection_of_any_class(rng):
    return predicted(rng, 2, 15, digits=1), {"force_suppress": True, "threshold": 0.3, "clip": False}


@sample("_contrib_MultiBoxDetection")
def detection_of_few(rng):
    return predicted(rng, 2, 12), {"nms_topk": 5, "nms_threshold": 0.3, "threshold": 0.2}


@sample("_contrib_MultiBoxDetection")
def detection_without_suppression(rng):
    return predicted(rng, 2, 8), {"nms_threshold": 0, "threshold": 0.4, "variances": (0.1, 0.2, 0.3, 0.4)}


@sample("_contrib_MultiBoxDetection")
def detection_of_nothing(rng):
    return predicted(rng, 2, 5), {"threshold": 1.5}


@sample("_contrib_MultiBoxDetection")
def detection_of_one_class(rng):
    return predicted(rng, 1, 5, classes=1), {}


@sample("_contrib_MultiBoxDetection")
def detection_of_nan(rng):
    inputs = predicted(rng, 1, 6)
    inputs[1][0, 4] = np.nan
    return inputs, {"nms_threshold": 0.2, "clip": False}  # clipped, MXNet's NaN would be 1


# Proposals


def proposals(rng, batch, size, anchors, scale=1.0, image=None, dtype="float32"):
    """Scores, no two of them equal, shifts, and the images' sizes."""
    scores = rng.permutation(batch * 2 * anchors * size[0] * size[1]).reshape(batch, 2 * anchors, *size)
    shifts = uniform(rng, -0.4, 0.4, (batch, 4 * anchors, *size))
    image = image or (size[0] * 16, size[1] * 16)
    return [scores.astype(dtype) / scores.size, shifts.astype(dtype), np.array([[*image, scale]] * batch, dtype)]


@sample("_contrib_Proposal", "_contrib_MultiProposal")
def proposed(rng):
    return proposals(rng, 1, (4, 5), 12), {"rpn_pre_nms_top_n": 60, "rpn_post_nms_top_n": 10, "output_score": True}


@sample("_contrib_Proposal", "_contrib_MultiProposal")
def proposed_fewer_than_wanted(rng):
    attrs = {"scales": (2, 4), "ratios": (1,), "threshold": 0.2, "rpn_post_nms_top_n": 20, "output_score": True}
    return proposals(rng, 1, (3, 3), 2), attrs


@sample("_contrib_Proposal", "_contrib_MultiProposal")
def proposed_by_corners(rng):
    scores, shifts, info = proposals(rng, 1, (3, 4), 6, image=(24, 32))
    attrs = {"scales": (2.0, 3.0), "feature_stride": 8, "iou_loss": True, "rpn_post_nms_top_n": 6, "rpn_min_size": 2}
    return [scores, 10 * shifts, info], attrs


@sample("_contrib_Proposal", "_contrib_MultiProposal")
def proposed_beside_the_image(rng):
    """The picture fills a part of the map; small boxes and those in the padding come last, all with the score -1."""
    attrs = {"scales": (1, 2), "ratios": (0.5, 2), "rpn_min_size": 15, "rpn_pre_nms_top_n": 12, "rpn_post_nms_top_n": 5}
    return proposals(rng, 1, (4, 4), 4, scale=1.25, image=(40, 52)), {**attrs, "output_score": True}


@sample("_contrib_MultiProposal")
def proposed_for_each_image(rng):
    scores, shifts, info = proposals(rng, 2, (3, 4), 3)
    info[1] = [30, 64, 1]
    attrs = {"scales": (2,), "rpn_pre_nms_top_n": 15, "rpn_post_nms_top_n": 4, "rpn_min_size": 1, "output_score": True}
    return [scores, shifts, info], attrs


@sample("_contrib_Proposal", "_contrib_MultiProposal", oracle=False)  # MXNet computes in float32 alone
def proposed_in_float64(rng):
    return proposals(rng, 1, (3, 3), 12, dtype="float64"), {"rpn_post_nms_top_n": 7, "rpn_min_size": 0}
