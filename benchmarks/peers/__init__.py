"""The engines that are measured: one module each, named after the package that it imports.

A module has `load(model, threads) -> Loaded`, which imports the engine and raises ImportError if that is missing. Each
engine is configured as its own documentation advises for the lowest latency of a single call, in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

OURS = "gluonjit"
PEERS = ("onnxruntime", "openvino", "litert", "ncnn", "jax", "torch_eager", "torch_compile", "mxnet")


@dataclass
class Loaded:
    """A model that is ready to be called."""

    call: Callable[..., Any]
    """Runs it once; returns when the result is there."""
    args: Sequence[Any]
    """What to call it with: inputs in the form in which the engine likes them best."""
    to_numpy: Callable[[Any], Sequence[np.ndarray]]
    """From what `call` returns to the outputs."""
    version: str
    work: float | None = None
    """What a call does, where the model does not say: flop, or bytes."""


LOSSES = 20
"""Steps of a training engine that note their loss."""


def losses_array(losses: Sequence[float]) -> list[np.ndarray]:
    """What a training engine answers for its outputs: the losses of its first steps, `LOSSES` at most."""
    return [np.array(losses, np.float64)]
