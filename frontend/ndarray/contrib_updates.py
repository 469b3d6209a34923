"""`nd.contrib.adamw_update` and its like: update operators whose arrays are passed as lists, one per kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import cleandoc
from typing import Any

from gluonjit.language.array import Array
from gluonjit.ndarray.constructors import full
from gluonjit.ndarray.imperative import invoke
from gluonjit.operators.registry import get


def _scale(rescale_grad: Any, weight: Any) -> Any:
    """`rescale_grad` as an array."""
    return rescale_grad if isinstance(rescale_grad, Array) else full((1,), rescale_grad, ctx=weight.context)


def adamw_update(
    weight: Any, grad: Any, mean: Any, var: Any, rescale_grad: Any, lr: float, eta: float, *more: Any, **kwargs: Any
) -> Any:
    """One step of Adam with decoupled weight decay (arXiv:1711.05101); `mean` and `var` are overwritten.

    `rescale_grad` is a number or an array; if it is 0 or not finite, because the loss overflowed, there is no step.
    """
    return _single("_adamw_update", (weight, grad, mean, var), rescale_grad, lr, eta, more, kwargs)


def mp_adamw_update(
    weight: Any,
    grad: Any,
    mean: Any,
    var: Any,
    weight32: Any,
    rescale_grad: Any,
    lr: float,
    eta: float,
    *more: Any,
    **kwargs: Any,
) -> Any:
    """`adamw_update` with a float32 copy of the weight, which is overwritten."""
    return _single("_mp_adamw_update", (weight, grad, mean, var, weight32), rescale_grad, lr, eta, more, kwargs)


def _single(
    operator: str, arrays: tuple[Any, ...], rescale_grad: Any, lr: float, eta: float, more: Any, kwargs: dict[str, Any]
) -> Any:
    order = ("beta1", "beta2", "epsilon", "wd", "clip_gradient", "out", "name")
    kwargs = {"lr": lr, "eta": eta, **dict(zip(order, more)), **kwargs}
    out, _ = kwargs.pop("out", None), kwargs.pop("name", None)
    return invoke(get(operator), [*arrays, _scale(rescale_grad, arrays[0])], kwargs, out)


def multi_adamw_update(
    weights: Sequence[Any],
    grads: Sequence[Any],
    mean: Sequence[Any],
    var: Sequence[Any],
    rescale_grad: Any,
    lrs: Sequence[float],
    wds: Sequence[float],
    etas: Sequence[float],
    out: Any = None,
    name: str | None = None,
    size: int = 0,
    **kwargs: Any,
) -> Any:
    """`adamw_update` of several weights."""
    attrs = {"num_weights": size or len(weights), "lrs": lrs, "wds": wds, "etas": etas, **kwargs}
    return _multi("_multi_adamw_update", (weights, grads, mean, var), attrs, out, [_scale(rescale_grad, weights[0])])


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
    out: Any = None,
    name: str | None = None,
    size: int = 0,
    **kwargs: Any,
) -> Any:
    """`mp_adamw_update` of several weights."""
    attrs = {"num_weights": size or len(weights), "lrs": lrs, "wds": wds, "etas": etas, **kwargs}
    arrays = (weights, grads, mean, var, weights32)
    return _multi("_multi_mp_adamw_update", arrays, attrs, out, [_scale(rescale_grad, weights[0])])


def multi_lamb_update(
    weights: Sequence[Any],
    grads: Sequence[Any],
    mean: Sequence[Any],
    var: Sequence[Any],
    step_count: Sequence[int],
    lrs: Sequence[float],
    wds: Sequence[float],
    out: Any = None,
    num_tensors: int = 0,
    **kwargs: Any,
) -> Any:
    """One step of LAMB (arXiv:1904.00962) for several weights; `mean` and `var` are overwritten."""
    attrs = {"num_tensors": num_tensors or len(weights), "step_count": step_count, "learning_rates": lrs, "wds": wds}
    return _multi("_multi_lamb_update", (weights, grads, mean, var), {**attrs, **kwargs}, out)


def multi_mp_lamb_update(
    weights: Sequence[Any],
    grads: Sequence[Any],
    mean: Sequence[Any],
    var: Sequence[Any],
    weights32: Sequence[Any],
    step_count: Sequence[int],
    lrs: Sequence[float],
    wds: Sequence[float],
    out: Any = None,
    num_tensors: int = 0,
    **kwargs: Any,
) -> Any:
    """`multi_lamb_update` with float32 copies of the weights, which are overwritten."""
    attrs = {"num_tensors": num_tensors or len(weights), "step_count": step_count, "learning_rates": lrs, "wds": wds}
    return _multi("_multi_mp_lamb_update", (weights, grads, mean, var, weights32), {**attrs, **kwargs}, out)


def _multi(
    operator: str, lists: Sequence[Sequence[Any]], attrs: dict[str, Any], out: Any, tail: Sequence[Any] = ()
) -> Any:
    arrays = [x for group in zip(*lists) for x in group]
    return invoke(get(operator), [*arrays, *tail], attrs, out)


def functions() -> dict[str, Callable[..., Any]]:
    """The functions of this module, by name."""
    single = (adamw_update, mp_adamw_update, multi_adamw_update, multi_mp_adamw_update)
    found = {f.__name__: f for f in (*single, multi_lamb_update, multi_mp_lamb_update)}
    for name, function in found.items():  # the operators have the examples
        function.__doc__ = f"{cleandoc(function.__doc__ or '')}\n\n{get(f'_{name}').doc.rpartition(_PARAGRAPH)[2]}"
    return found


_PARAGRAPH = "\n\n"
