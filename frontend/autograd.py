"""`mx.autograd`: the modes (`language.modes`), and gradients, of which there are none yet: asking raises MXNetError."""

from __future__ import annotations

from typing import Any, NoReturn

from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language.modes import (
    Scope,
    is_recording,
    is_training,
    modes,
    no_gradients,
    pause,
    predict_mode,
    record,
    set_recording,
    set_training,
    train_mode,
)

__all__ = [
    "Function",
    "backward",
    "grad",
    "is_recording",
    "is_training",
    "mark_variables",
    "pause",
    "predict_mode",
    "record",
    "set_recording",
    "set_training",
    "train_mode",
]


def backward(heads: Any, head_grads: Any = None, retain_graph: bool = False, train_mode: bool = True) -> NoReturn:
    no_gradients("autograd.backward")


def grad(
    heads: Any,
    variables: Any,
    head_grads: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    train_mode: bool = True,
) -> NoReturn:
    no_gradients("autograd.grad")


def mark_variables(variables: Any, gradients: Any, grad_reqs: Any = "write") -> NoReturn:
    no_gradients("autograd.mark_variables")


class Function:
    """A computation with a gradient of its own: subclasses define `forward(*inputs)` and `backward(*gradients)`.

    While recording, an instance may be called only once, because `backward` needs what that call saved. `backward` is
    not used as long as there are no gradients.
    """

    def __init__(self) -> None:
        self._used = False
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *args: Any) -> None:
        """Notes what `backward` finds in `self.saved_tensors`."""
        self.saved_tensors = args

    def __call__(self, *inputs: Any) -> Any:
        if self._used:
            raise AssertionError("Each Function instance can only be called once. Please create another instance.")
        self._used = modes.recording
        with Scope(False, None):
            return self.forward(*inputs)

    def forward(self, *inputs: Any) -> Any:
        raise NotImplementedError

    def backward(self, *output_grads: Any) -> Any:
        raise NotImplementedError


_mxnet_names.explain(__name__)
