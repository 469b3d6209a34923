"""The weights and the input that the logits of vision models were recorded with."""

import zlib

import numpy as np


def weights(name, shape):
    """A function of the parameter's structured name."""
    rng = np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)
    kind = name.rpartition(".")[2]
    if kind in ("gamma", "running_var"):
        return rng.uniform(0.8, 1.2, shape)
    if kind in ("beta", "bias", "running_mean"):
        return rng.uniform(-0.1, 0.1, shape)
    return rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))


def image(shape):
    return np.random.RandomState(0).uniform(0, 1, shape)
