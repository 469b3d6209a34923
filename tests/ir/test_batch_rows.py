"""`ir/batch_rows.py`: which models compute every row of a batch alone."""

import re

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon
from gluonjit.codes.open_shapes import declared_open
from gluonjit.gluon import nn, rnn
from gluonjit.ir.batch_rows import why_rows_mix
from gluonjit.ir.types import type_of
from gluonjit.passes import run_passes
from gluonjit.trace import trace


class Of(gluon.HybridBlock):
    """The block of a function of F and x."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, x):
        return self.function(F, x)


def verdict(net, shape):
    net.initialize()
    x = mx.nd.ones(shape)
    known = trace(net, [x])
    types = declared_open({"data": {0: "batch"}}, ["data"], [type_of(x._array)])
    assert types is not None and not known.broken(types, False)
    return why_rows_mix(run_passes(known.graph(types, False), "expand"), "batch")


def sequential(*blocks):
    net = nn.HybridSequential()
    net.add(*blocks)
    return net


def attention(F, x):
    """Two heads, joined with the batch and parted again."""
    x = F.reshape(F.transpose(F.reshape(x, (0, 0, 2, -1)), (0, 2, 1, 3)), (-3, 0, 0))
    y = F.batch_dot(F.softmax(F.batch_dot(x, x, transpose_b=True)), x)
    return F.transpose(F.reshape(y, (-4, -1, 2, 0, 0)), (0, 2, 1, 3))


INDEPENDENT = {
    "dense": (lambda: sequential(nn.Dense(3, activation="relu"), nn.Dense(2)), (2, 4)),
    "images": (
        lambda: sequential(
            nn.Conv2D(4, 3, padding=1), nn.BatchNorm(), nn.MaxPool2D(2), nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(3)
        ),
        (2, 3, 8, 8),
    ),
    "LSTM": (lambda: sequential(nn.Embedding(5, 4), rnn.LSTM(3, layout="NTC")), (2, 6)),
    "LayerNorm": (lambda: sequential(nn.LayerNorm(), nn.Dense(3, flatten=False)), (2, 6, 4)),
    "attention": (lambda: Of(attention), (2, 5, 6)),
    "cumsum": (lambda: Of(lambda F, x: F.cumsum(x, axis=1)), (2, 4)),
    "largest": (lambda: Of(lambda F, x: F.argmax(x, axis=1)), (2, 4)),
    "joined": (lambda: Of(lambda F, x: F.concat(x, F.zeros_like(x), F.flip(x, axis=1), dim=1)), (2, 4)),
}
MIXED = {
    "sum": (lambda F, x: F.broadcast_add(x, F.sum(x, axis=0, keepdims=True)), "reduce runs along the batch"),
    "softmax": (lambda F, x: F.softmax(x, axis=0), "runs along the batch"),
    "cumsum": (lambda F, x: F.cumsum(x, axis=0), "cumsum runs along"),
    "flip": (lambda F, x: F.flip(x, axis=0), "reverse runs along"),
    "product": (lambda F, x: F.dot(x, F.transpose(x)), "different axes|depends on batch"),
    "gram": (lambda F, x: F.broadcast_add(x, F.sum(F.dot(F.transpose(x), x), axis=1)), "sums over the batch"),
    "reshaped": (lambda F, x: F.reshape(F.transpose(x), (-1, 4)), "in front of it"),
    "no rows": (lambda F, x: F.sum(x), "runs along the batch"),
    "no rows in front": (lambda F, x: F.transpose(x), "no row for each"),
    "positions": (
        lambda F, x: F.broadcast_add(x, F.contrib.arange_like(x, axis=0).reshape((-1, 1))),
        "numbers the rows",
    ),
    "shuffled": (lambda F, x: F.take(x, F.argmax(x, axis=1)), "gather takes rows"),
    "how many": (lambda F, x: F.broadcast_div(x, F.sum(F.ones_like(x))), "runs along the batch"),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent(name):
    make, shape = INDEPENDENT[name]
    net = make()
    assert verdict(net, shape) is None
    x = mx.nd.array(np.random.default_rng(0).integers(0, 5, (3, *shape[1:])))
    parts = mx.nd.concat(*(net(x[k : k + 1]) for k in range(3)), dim=0)
    np.testing.assert_allclose(net(x).asnumpy(), parts.asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MIXED)
def test_mixed(name):
    function, message = MIXED[name]
    found = verdict(Of(function), (2, 4))
    assert found is not None and re.search(message, found), found
