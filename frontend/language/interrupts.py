"""Ctrl-C between steps: what has to change as a whole is not left half done."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any


class Uninterrupted:
    """A context in which Ctrl-C (SIGINT) waits: its handler runs at the end. May be nested.

    Does nothing in threads other than the main one, as Python handles signals in that alone, and where SIGINT has no
    handler in Python. Other signals are handled at once. If a handler of theirs raises an error just while the context
    is entered or left, it may stay behind; the next Ctrl-C notices that the caller is gone, and does not wait.
    """

    __slots__ = ("_arrived", "_caller", "_handler")

    def __enter__(self) -> None:
        self._arrived: list[tuple[int, FrameType | None]] = []
        self._handler: Any = None
        self._caller: FrameType | None = None
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            self._handler, self._caller = handler, sys._getframe(1)
            signal.signal(signal.SIGINT, self._wait)

    def __exit__(self, *error: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self._caller = None
            if self._arrived:
                self._handler(*self._arrived[0])

    def _wait(self, number: int, frame: FrameType | None) -> None:
        running = frame
        while running is not None and running is not self._caller:
            running = running.f_back
        if running is not None:
            self._arrived.append((number, frame))
        else:
            signal.signal(signal.SIGINT, self._handler)
            self._caller = None
            self._handler(number, frame)


def arrived() -> bool:
    """Whether Ctrl-C waits for the end of an `Uninterrupted`: for what may last forever."""
    context = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return isinstance(context, Uninterrupted) and bool(context._arrived)
