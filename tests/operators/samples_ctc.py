"""Samples of connectionist temporal classification."""

import numpy as np

from .samples import floats, sample


def labels(rng, lengths, width, alphabet, first=True):
    """Rows of labels, padded behind their lengths; label 0, or else the last one, is the blank."""
    low, high = (1, alphabet) if first else (0, alphabet - 1)
    out = rng.randint(low, high, (len(lengths), width))
    for row, n in zip(out, lengths):
        row[n:] = 0 if first else -1
    return out.astype("float32")


@sample("CTCLoss")
def blank_first(rng):
    return [floats(rng, 7, 3, 5), labels(rng, [3, 2, 1], 3, 5)], {}


@sample("CTCLoss")
def blank_last(rng):
    return [floats(rng, 6, 2, 4), labels(rng, [2, 4], 4, 4, first=False)], {"blank_label": "last"}


@sample("CTCLoss")
def with_lengths(rng):
    inputs = [floats(rng, 8, 3, 4), labels(rng, [3, 3, 3], 3, 4)]
    lengths = [np.array([8, 5, 6], "float32"), np.array([1, 3, 2], "float32")]
    return [*inputs, *lengths], {"use_data_lengths": True, "use_label_lengths": True}


@sample("CTCLoss")
def with_label_lengths(rng):
    inputs = [floats(rng, 5, 2, 3), labels(rng, [2, 2], 2, 3, first=False), np.array([0, 2], "float32")]
    return inputs, {"use_label_lengths": True, "blank_label": "last"}


@sample("CTCLoss")
def too_short(rng):
    """Equal labels need a blank between them."""
    return [floats(rng, 3, 2, 3), np.array([[1, 1, 2], [1, 2, 1]], "float32")], {}


@sample("CTCLoss")
def far_apart(rng):
    return [floats(rng, 6, 2, 3, low=-300, high=300), labels(rng, [1, 2], 2, 3)], {}


@sample("CTCLoss", oracle=False)  # float32 only
def loss_float64(rng):
    return [floats(rng, 6, 2, 4, dtype="float64"), labels(rng, [2, 3], 3, 4)], {}


@sample("WarpCTC", oracle=False)  # a plugin that is not there
def warp(rng):
    return [floats(rng, 6, 4), floats(rng, 4)], {"input_length": 3, "label_length": 2}
