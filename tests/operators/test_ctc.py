"""The loss of connectionist temporal classification against the sum over all alignments, one by one."""

import itertools
import math

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.base import MXNetError

from .running import run_eager
from .samples import floats


def collapsed(path, blank):
    """Without repetitions, then without blanks."""
    return [k for k, _ in itertools.groupby(path) if k != blank]


def by_enumeration(scores, labels, blank):
    """scores (time, alphabet)"""
    p = np.exp(scores.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    total = sum(
        math.prod(p[t, k] for t, k in enumerate(path))
        for path in itertools.product(range(scores.shape[1]), repeat=len(scores))
        if collapsed(path, blank) == list(labels)
    )
    return -math.log(total) if total else 0.0  # what no alignment fits costs nothing


@pytest.mark.parametrize("blank_label", ["first", "last"])
@pytest.mark.parametrize("labels", [[], [1], [1, 1], [1, 2], [1, 2, 1], [1, 1, 1]])
def test_all_alignments(blank_label, labels):
    blank, padding = (0, 0) if blank_label == "first" else (2, -1)
    labels = [k if blank_label == "first" else k - 1 for k in labels]
    data = floats(np.random.RandomState(len(labels)), 5, 1, 3)
    padded = np.array([labels + [padding] * (3 - len(labels))], np.float32)
    (loss, *_) = run_eager("CTCLoss", [data, padded], {"blank_label": blank_label})
    np.testing.assert_allclose(loss, [by_enumeration(data[:, 0], labels, blank)], rtol=1e-5)


def test_lengths_of_data():
    rng = np.random.RandomState(0)
    data, labels = floats(rng, 6, 3, 4), np.array([[1, 2], [2, 2], [3, 1]], np.float32)
    lengths = [6, 3, 2]
    (loss, *_) = run_eager("CTCLoss", [data, labels, np.array(lengths, np.float32)], {"use_data_lengths": True})
    alone = [run_eager("CTCLoss", [data[:n, k : k + 1], labels[k : k + 1]], {})[0][0] for k, n in enumerate(lengths)]
    np.testing.assert_allclose(loss, alone, rtol=1e-6)


def test_refused():
    with pytest.raises(MXNetError, match="The max number of labels cannot exceed the maximum sequence length"):
        run_eager("CTCLoss", [np.zeros((2, 1, 3), np.float32), np.ones((1, 3), np.float32)], {})
    with pytest.raises(MXNetError, match="CTCLoss takes data"):
        run_eager("CTCLoss", [np.zeros((2, 3), np.float32), np.ones((1, 3), np.float32)], {})


@pytest.mark.parametrize("labels", [[1, 2, 1], [1, 2, 0], [1, 1, 1], [0, 0, 0]])
def test_gradient(labels):
    """Against differences; states that no path reaches, and labels that do not fit, add nothing."""
    data = floats(np.random.RandomState(len(labels)), 4, 1, 3).astype(np.float64)
    scores = mx.nd.array(data, dtype="float64")
    scores.attach_grad()
    with mx.autograd.record():
        loss = mx.nd.CTCLoss(scores, mx.nd.array([labels]))
    loss.backward()
    expected, step = np.zeros_like(data), 1e-5
    for place in np.ndindex(data.shape):
        near = [data.copy(), data.copy()]
        for x, side in zip(near, (1, -1)):
            x[place] += side * step
        after, before = (by_enumeration(x[:, 0], [k for k in labels if k], 0) for x in near)
        expected[place] = (after - before) / (2 * step)
    np.testing.assert_allclose(scores.grad.asnumpy(), expected, atol=1e-8)


def test_what_lies_behind_the_data_is_not_read():
    """The gradient is that of MXNet: 0 in the padding, whatever is in it."""
    data = floats(np.random.RandomState(0), 5, 2, 4)
    found = []
    for padding in (0, np.nan):
        data[3:, 0] = padding
        x = mx.nd.array(data)
        x.attach_grad()
        with mx.autograd.record():
            loss = mx.nd.ctc_loss(x, mx.nd.array([[1, 2], [2, 0]]), mx.nd.array([3, 5]), use_data_lengths=True)
        loss.backward()
        found.append(x.grad.asnumpy())
    assert not found[1][3:, 0].any() and found[0][:3].all()
    np.testing.assert_array_equal(*found)
