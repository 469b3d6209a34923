"""`nd.contrib.adamw_update` and its like: one step of Adam with decoupled weight decay (arXiv:1711.05101), in place.

    g = clip(grad · rescale_grad)
    mean = β1 · mean + (1 − β1) · g
    var = β2 · var + (1 − β2) · g²
    weight = weight − eta · (lr · mean / (√var + ε) + wd · weight)

A step whose `rescale_grad` is 0, infinite or NaN (a loss that overflowed) is skipped. `mp_` forms keep a float32 copy
of a float16 weight; `multi_` forms take lists. Gradients come from the caller: nothing here computes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gluonjit.ndarray.ndarray import NDArray


def adamw_update(
    weight: Any,
    grad: Any,
    mean: Any,
    var: Any,
    rescale_grad: Any,
    lr: float,
    eta: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    wd: float = 0.0,
    clip_gradient: float = -1.0,
    out: Any = None,
    name: str | None = None,
) -> Any:
    """Steps `mean` and `var` in place; the new weight goes to `out` and is returned."""
    scale = float(rescale_grad.asscalar() if isinstance(rescale_grad, NDArray) else rescale_grad)
    target = weight.copy() if out is None else out
    if not math.isfinite(scale) or scale == 0:
        target[:] = weight
        return target
    g = grad.asnumpy().astype(mean.dtype) * np.asarray(scale, mean.dtype)
    if clip_gradient >= 0:
        g = g.clip(-clip_gradient, clip_gradient)
    mean[:] = beta1 * mean.asnumpy() + (1 - beta1) * g
    var[:] = beta2 * var.asnumpy() + (1 - beta2) * g * g
    w = weight.asnumpy()
    target[:] = w - eta * (lr * mean.asnumpy() / (np.sqrt(var.asnumpy()) + epsilon) + wd * w)
    return target


def mp_adamw_update(
    weight: Any, grad: Any, mean: Any, var: Any, weight32: Any, rescale_grad: Any, *args: Any, **kwargs: Any
) -> Any:
    """`adamw_update` of `weight32`, in place; `out`, or a copy of `weight`, gets it rounded."""
    out = kwargs.pop("out", None)
    adamw_update(weight32, grad, mean, var, rescale_grad, *args, **{**kwargs, "out": weight32})
    target = weight.copy() if out is None else out
    target[:] = weight32
    return target


def multi_adamw_update(
    weights: Sequence[Any],
    grads: Sequence[Any],
    mean: Sequence[Any],
    var: Sequence[Any],
    rescale_grad: Any,
    lrs: Sequence[float],
    wds: Sequence[float],
    etas: Sequence[float],
    out: Sequence[Any] | None = None,
    name: str | None = None,
    size: int = 0,
    **kwargs: Any,
) -> list[Any]:
    """`adamw_update` of each weight."""
    return [
        adamw_update(w, g, m, v, rescale_grad, lr, eta, wd=wd, out=out[k] if out else None, **kwargs)
        for k, (w, g, m, v, lr, wd, eta) in enumerate(zip(weights, grads, mean, var, lrs, wds, etas))
    ]


def multi_mp_adamw_update(
    weights: Sequence[Any],
    grads: Sequence[Any],
    mean: Sequence[Any],
    var: Sequence[Any],
    weights32: Sequence[Any],
    rescale_grad: Any,
    lrs: Sequence[float],
    wds: Sequence[float],
    etas: Sequence[float],
    out: Sequence[Any] | None = None,
    name: str | None = None,
    size: int = 0,
    **kwargs: Any,
) -> list[Any]:
    """`mp_adamw_update` of each weight."""
    return [
        mp_adamw_update(w, g, m, v, w32, rescale_grad, lr, eta, wd=wd, out=out[k] if out else None, **kwargs)
        for k, (w, g, m, v, w32, lr, wd, eta) in enumerate(zip(weights, grads, mean, var, weights32, lrs, wds, etas))
    ]


def functions() -> dict[str, Callable[..., Any]]:
    """The functions of this module, by name."""
    return {f.__name__: f for f in (adamw_update, mp_adamw_update, multi_adamw_update, multi_mp_adamw_update)}
