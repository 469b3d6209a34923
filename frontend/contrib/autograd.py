"""`mx.contrib.autograd`: the interface of `mx.autograd` before MXNet 1.0."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from gluonjit import autograd
from gluonjit.autograd import mark_variables
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.ndarray import NDArray, zeros_like

__all__ = [
    "TrainingStateScope",
    "backward",
    "compute_gradient",
    "grad",
    "grad_and_loss",
    "mark_variables",
    "set_is_training",
    "test_section",
    "train_section",
]


def set_is_training(is_train: bool) -> bool:
    """Turns recording and training mode on or off, both. Returns whether it recorded before."""
    autograd.set_training(is_train)
    return autograd.set_recording(is_train)


class TrainingStateScope:
    """`set_is_training` for a `with`."""

    def __init__(self, enter_state: bool) -> None:
        self._enter_state = enter_state
        self._before = enter_state

    def __enter__(self) -> None:
        self._before = set_is_training(self._enter_state)

    def __exit__(self, *error: Any) -> None:
        if self._before != self._enter_state:
            set_is_training(self._before)


def train_section() -> TrainingStateScope:
    """`with train_section():` records."""
    return TrainingStateScope(True)


def test_section() -> TrainingStateScope:
    """`with test_section():` does not record."""
    return TrainingStateScope(False)


def backward(outputs: Sequence[NDArray], out_grads: Any = None, retain_graph: bool = False) -> None:
    """`autograd.backward` in the mode of the caller."""
    if not isinstance(outputs, (list, tuple)):
        raise AssertionError("outputs must be a list or tuple of NDArrays")
    autograd.backward(outputs, out_grads, retain_graph)


def compute_gradient(outputs: Sequence[NDArray]) -> None:
    """The former name of `backward`."""
    backward(outputs)


def grad_and_loss(func: Callable[..., Any], argnum: int | list[int] | None = None) -> Callable[..., Any]:
    """A function that returns the gradients by the arguments, or those numbered `argnum`, and the result of `func`.

    >>> square = mx.contrib.autograd.grad_and_loss(lambda x: x * x)
    >>> (gradient,), loss = square(mx.nd.array([3]))
    >>> gradient.asscalar(), loss.asscalar()
    (6.0, 9.0)
    """

    @functools.wraps(func)
    def wrapped(*args: Any) -> Any:
        numbers = range(len(args)) if argnum is None else argnum if isinstance(argnum, list) else [argnum]
        variables = [args[k] for k in numbers]
        if not all(isinstance(x, NDArray) for x in variables):
            raise AssertionError("type of autograd input should NDArray.")
        grads = [zeros_like(x) for x in variables]
        mark_variables(variables, grads)
        with train_section():
            outputs = func(*args)
        backward([outputs] if isinstance(outputs, NDArray) else outputs)
        return grads, outputs

    return wrapped


def grad(func: Callable[..., Any], argnum: int | list[int] | None = None) -> Callable[..., Any]:
    """A function that returns the gradients alone, see `grad_and_loss`."""
    both = grad_and_loss(func, argnum)
    return functools.wraps(both)(lambda *args: both(*args)[0])


_mxnet_names.explain(__name__)
