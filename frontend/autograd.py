"""Modes: whether operators such as Dropout are in training mode, and whether operations are being recorded.

The two are thread-local, as in MXNet. Recording is remembered for `is_recording`, but nothing is differentiated yet:
asking for a gradient raises MXNetError.
"""

from __future__ import annotations

import threading
from typing import Any, NoReturn

from gluonjit.base import MXNetError
from gluonjit.language.running import running
from gluonjit.runtime import mode


class _Modes(threading.local):
    training = False
    recording = False


modes = _Modes()
"""This thread's modes; `modes.training` is the fastest way to read one."""


def is_training() -> bool:
    _note()
    return modes.training


def _note() -> None:
    """A program that asks for a mode or sets one may do otherwise in another mode: a running trace must know."""
    if running.trace is not None:
        running.trace.mode_fact = True


def is_recording() -> bool:
    return modes.recording


def set_training(train_mode: bool) -> bool:
    """Sets the mode and returns the one before."""
    _note()
    before = modes.training
    if before != bool(train_mode):
        modes.training = bool(train_mode)
        mode.change(1 if train_mode else -1)
    return before


def set_recording(is_recording: bool) -> bool:
    """Sets the mode and returns the one before."""
    before, modes.recording = modes.recording, bool(is_recording)
    return before


class _Scope:
    """Sets the modes that are not None, and restores them."""

    def __init__(self, recording: bool | None, training: bool | None) -> None:
        self._inside = recording, training
        self._before: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        self._before.append((modes.recording, modes.training))
        recording, training = self._inside
        if recording is not None:
            modes.recording = bool(recording)
        if training is not None:
            set_training(training)

    def __exit__(self, *exception: Any) -> None:
        modes.recording, training = self._before.pop()
        set_training(training)


def record(train_mode: bool = True) -> _Scope:
    """`with autograd.record():` records, in training mode."""
    return _Scope(True, train_mode)


def pause(train_mode: bool = False) -> _Scope:
    """`with autograd.pause():` does not record, in prediction mode."""
    return _Scope(False, train_mode)


def train_mode() -> _Scope:
    return _Scope(None, True)


def predict_mode() -> _Scope:
    return _Scope(None, False)


def no_gradients(what: str) -> NoReturn:
    raise MXNetError(
        f"{what}: gradients are not available yet, gluonjit runs models forward only; "
        "autograd.record() and train_mode() do switch Dropout and BatchNorm to training"
    )


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

    An instance is called once while recording, for `backward` will want what that call saved; else as often as one
    likes. `backward` is kept for the time when there are gradients.
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
        with _Scope(False, None):
            return self.forward(*inputs)

    def forward(self, *inputs: Any) -> Any:
        raise NotImplementedError

    def backward(self, *output_grads: Any) -> Any:
        raise NotImplementedError
