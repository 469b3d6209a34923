"""Errors that the handler of a signal raised, as a time limit does: at any instruction, whatever was done there."""

from __future__ import annotations

import functools
import signal
from types import CodeType
from typing import Any


def is_from_signal(error: BaseException) -> bool:
    """Whether a handler that is installed now raised the error. Such an error says nothing about the work that it
    interrupted: it is no failure of that work, and the work must not hide it."""
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    step = error.__traceback__
    while step is not None and step.tb_frame.f_code not in handlers:
        step = step.tb_next
    return step is not None


def _code(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if callable(handler) and not hasattr(handler, "__code__") and not hasattr(handler, "__func__"):
        handler = type(handler).__call__
    return getattr(getattr(handler, "__func__", handler), "__code__", None)
