"""This thread's modes: whether operators such as Dropout are in training mode, and whether gradients are recorded."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.ir.opdef import did_you_mean
from gluonjit.language.interrupts import Whole
from gluonjit.language.running import running
from gluonjit.runtime import mode
from gluonjit.runtime.mode import word as counter


class _Modes(threading.local):
    training = False
    recording = False
    anomalies = False
    """Whether the first nan or infinity is an error (`autograd.detect_anomaly`)."""


modes = _Modes()
"""This thread's modes; reading `modes.training` does not tell a running trace, unlike `is_training()`."""
mode.other_shares.append(lambda: modes.recording + modes.training)


def plain_calls() -> str:
    """`GLUONJIT_PLAIN`, which says what runs plain calls: 'numpy', 'native', or '' for the faster one.
    MXNetError for another word."""
    found = os.environ.get("GLUONJIT_PLAIN", "").strip()
    if found not in ("", "numpy", "native"):
        raise MXNetError(f"GLUONJIT_PLAIN is numpy or native, or not set; got {found!r}")
    return found


def logs_compiling() -> bool:
    """Whether what is compiled is printed as it happens: `GLUONJIT_LOG=compile`. MXNetError for another word there."""
    words = [word for word in map(str.strip, os.environ.get("GLUONJIT_LOG", "").split(",")) if word]
    for word in words:
        if word != "compile":
            raise MXNetError(f"GLUONJIT_LOG={word!r} is not known{did_you_mean(word, ['compile'])}")
    return bool(words)


def is_training() -> bool:
    _note()
    return modes.training


def _note() -> None:
    """Tells the running trace that its program asked for the training mode or set it: the mode becomes a guard."""
    if running.trace is not None:
        running.trace.mode_fact = True


def is_recording() -> bool:
    if running.trace is not None:
        running.trace.recording_fact = True
    return modes.recording


def set_training(train_mode: bool) -> bool:
    """Sets the training mode and returns the previous one."""
    _note()
    before = modes.training
    if before != bool(train_mode):
        modes.training, counter.value = bool(train_mode), counter.value + (1 if train_mode else -1)
    return before


def set_recording(is_recording: bool) -> bool:
    """Sets the recording mode and returns the previous one."""
    if running.trace is not None:
        running.trace.note_recording(bool(is_recording))
    before = modes.recording
    if before != bool(is_recording):
        modes.recording, counter.value = bool(is_recording), counter.value + (1 if is_recording else -1)
    return before


def _enter(recording: bool | None, training: bool | None) -> None:
    """Sets the modes that are not None."""
    if running.trace is not None:
        if recording is not None:
            set_recording(recording)
        if training is not None:
            set_training(training)
        return
    by = 0
    if recording is not None and modes.recording != recording:
        modes.recording = bool(recording)
        by += 1 if recording else -1
    if training is not None and modes.training != training:
        modes.training = bool(training)
        by += 1 if training else -1
    counter.value += by


class Scope(Whole):
    """A context that sets the modes that are not None, and restores all on exit.

    Restoring what has not changed would tell a running trace of a mode that its program has nothing to do with.
    """

    __slots__ = ("_before", "_inside", "_recording", "_training")

    def __init__(self, recording: bool | None, training: bool | None) -> None:
        self._guards = []
        self._inside = recording, training
        self._before: list[tuple[bool, bool]] = []
        self._recording: bool | None = None
        self._training: bool | None = None
        """What both modes were outside, if the native `__exit__` is to restore them."""

    def _set(self) -> None:
        self._before.append((modes.recording, modes.training))
        _enter(*self._inside)

    def _restore(self) -> None:
        before, now = self._before.pop(), (modes.recording, modes.training)
        if running.trace is None:
            _enter(*before)
        else:
            _enter(*[x if x != y or z is not None else None for x, y, z in zip(before, now, self._inside)])

    def _enter_before_native_exit(self) -> None:
        """`__enter__` from `leave_natively` on: sets up no guards, as there is no function to guard."""
        if self._recording is not None and self._training is not None:  # it is inside of itself
            self._before.append((self._recording, self._training))
            self._guards.append([])
            self._recording = self._training = None
            Whole.__enter__(self)
            return
        if running.trace is not None:
            Whole.__enter__(self)
            return
        recording, training = self._inside
        found = was_recording, was_training = modes.recording, modes.training
        recording = was_recording if recording is None else recording is True or bool(recording)
        training = was_training if training is None else training is True or bool(training)
        inside, by = (recording, training), recording - was_recording + training - was_training
        # One line without calls: Python does not look for signals before the body of the context.
        (self._recording, self._training), (modes.recording, modes.training), counter.value = (
            found,
            inside,
            counter.value + by,
        )


def leave_natively(native_exit: Callable[..., Any]) -> None:
    """Has scopes that are entered from now on restore the modes in native code, where no signal's handler runs. Until
    then they set up guards against these, which takes several times as long. `native_exit`: `runtime.native_exit`'s,
    which programs without compiled code need not import."""
    if Scope.__enter__ is Whole.__enter__:
        slots, names = ("_recording", "_training"), ("recording", "training")
        leave = native_exit(Scope, slots, modes, names, mode.MODE, (running, "trace"), Whole.__exit__)
        Scope.__exit__ = leave  # type: ignore[method-assign]
        Scope.__enter__ = Scope._enter_before_native_exit  # type: ignore[assignment, method-assign]


def record(train_mode: bool = True) -> Scope:
    """`with autograd.record():` sets recording, and training mode by default."""
    return Scope(True, train_mode)


def pause(train_mode: bool = False) -> Scope:
    """`with autograd.pause():` turns recording off, and sets prediction mode by default."""
    return Scope(False, train_mode)


def train_mode() -> Scope:
    return Scope(None, True)


def predict_mode() -> Scope:
    return Scope(None, False)
