"""The multilayer perceptron of the Gluon hybridize tutorial: 512 → 256 → 128 → 2."""

import numpy as np

import gluonjit as mx
from gluonjit.gluon import nn


def net():
    """An initialized MLP: vectors (batch, 512) → (batch, 2)."""
    block = nn.HybridSequential()
    block.add(
        nn.Dense(256, activation="relu"),
        nn.Dense(128, activation="relu"),
        nn.Dense(2),
    )
    block.initialize(mx.init.Xavier())
    return block


def in_numpy(net):
    """The same computation as a function of ndarrays, written by hand, for `gluonjit bench --against`."""
    layers = [(layer.weight.data().asnumpy().T.copy(), layer.bias.data().asnumpy()) for layer in net]

    def run(x):
        *hidden, (weight, bias) = layers
        for w, b in hidden:
            x = np.maximum(x @ w + b, 0)
        return x @ weight + bias

    return run
