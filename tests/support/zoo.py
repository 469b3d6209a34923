"""The weights and the input that the logits of vision models were recorded with."""

import zlib

import numpy as np

PIECE = 1 << 20
"""Numbers that are drawn at a time. Fresh memory for all float64 weights of a VGG costs as much as drawing them."""


def weights(name, shape):
    """float32, a function of the parameter's structured name."""
    rng = np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)
    kind = name.rpartition(".")[2]
    if kind in ("gamma", "running_var"):
        return rng.uniform(0.8, 1.2, shape).astype(np.float32)
    if kind in ("beta", "bias", "running_mean"):
        return rng.uniform(-0.1, 0.1, shape).astype(np.float32)
    drawn = np.empty(shape, np.float32)
    flat, scale = drawn.reshape(-1), np.sqrt(2 / np.prod(shape[1:]))
    for start in range(0, flat.size, PIECE):
        piece = flat[start : start + PIECE]
        np.multiply(rng.standard_normal(piece.size), scale, out=piece, casting="same_kind")
    return drawn


def image(shape):
    return np.random.RandomState(0).uniform(0, 1, shape)
