"""Gradients of a model, as gluonjit and the real MXNet compute them: the same loss, parameters and inputs.

The loss is the sum of every output times fixed noise, so that each number of each output has a gradient of its own.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np

Gradients = dict[str, np.ndarray]
"""By structured names of parameters, `input 0`, … for the inputs, and `after …` for moving statistics after it."""

SAMPLE = 4096
"""How many numbers of each gradient are recorded."""

TOLERANCE = 1e-4
"""Of a parameter's largest gradient, between float32 and float64."""

IN_FLOAT64 = 1e-5
"""The same between two computations in float64: far above rounding, far below what another meaning makes. MXNet keeps
some attributes, such as the momentum of a BatchNorm, in float32."""


def without_dropout(net: Any) -> None:
    """Turns off what would draw at random, and so differ from MXNet."""
    if type(net).__name__ == "Dropout":
        net._rate = 0
    for child in net._children.values():
        without_dropout(child)


def arrays_in(value: Any) -> list[Any]:
    """The arrays in nested lists."""
    if isinstance(value, (list, tuple)):
        return [x for part in value for x in arrays_in(part)]
    return [] if value is None else [value]


def gradients(net: Any, arguments: list[Any]) -> Gradients:
    """One recorded call of `net` in training mode, and what `backward` makes of it. `arguments` get gradients, too."""
    import mxnet as mx

    parameters = net._collect_params_with_prefix()
    given = arrays_in(arguments)
    for x in given:
        x.attach_grad()
    with mx.autograd.record():
        loss = sum(
            (y * mx.nd.array(noise(k, y.shape), dtype=y.dtype)).sum()
            for k, y in enumerate(arrays_in(net(*arguments)))
            if np.issubdtype(y.dtype, np.floating)
        )
    loss.backward()
    found = {f"input {k}": x.grad.asnumpy() for k, x in enumerate(given)}
    for name, parameter in parameters.items():
        if parameter.grad_req != "null":
            found[name] = parameter.grad().asnumpy()
        elif name.endswith(("_mean", "_var")):
            found[f"after {name}"] = parameter.data().asnumpy()
    return found


def noise(k: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.RandomState(k).standard_normal(shape)


def sampled(name: str, gradient: np.ndarray) -> np.ndarray:
    """At most `SAMPLE` numbers of a gradient, in float64, from places that its name determines."""
    flat = gradient.reshape(-1).astype(np.float64)
    if flat.size <= SAMPLE:
        return flat
    return flat[np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF).randint(0, flat.size, SAMPLE)]


def differences(got: Gradients, want: Gradients, nothing: float = 1e-9) -> dict[str, float]:
    """For each name max|a − b| / max|b|; inf for other shapes or other nans.

    A gradient smaller than `nothing` of the largest would be 0 without rounding, such as that of a bias in front of a
    BatchNorm: there the largest one stands for max|b|.
    """
    sizes = {name: float(np.abs(b).max(initial=0)) for name, b in want.items()}
    largest = max((size for name, size in sizes.items() if not name.startswith("after ")), default=0.0)
    found = {}
    for name, b in want.items():
        a = got.get(name)
        if a is None or a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            found[name] = float("inf")
            continue
        finite = np.isfinite(b)
        error = float(np.abs(a[finite].astype(np.float64) - b[finite]).max(initial=0))
        scale = sizes[name] if sizes[name] > nothing * largest or name.startswith("after ") else largest
        found[name] = error / scale if scale else error
    return found


def recorded(file: Path) -> tuple[Gradients, Gradients]:
    """MXNet's gradients in float32, and in float64 if it can; as `sampled`."""
    with np.load(file) as arrays:
        single, double = (
            {key[len(kind) :]: arrays[key] for key in arrays.files if key.startswith(kind)} for kind in ("32 ", "64 ")
        )
    return single, double
