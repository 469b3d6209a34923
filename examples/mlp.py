"""The multilayer perceptron of the Gluon hybridize tutorial: 512 → 256 → 128 → 2."""

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
