"""The engines that are measured, one module each, named after what it imports.

A module has `load(model, threads) -> Loaded`; it imports its engine in there, so that a missing one is an ImportError
of that call. Each engine is set up as its own documentation advises for the shortest time of a single call, in float32.
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
    to_numpy: Callable[[Any], np.ndarray]
    """From what `call` returns to the output."""
    version: str
    work: float | None = None
    """What a call does, where the model does not say: flop, or bytes."""
