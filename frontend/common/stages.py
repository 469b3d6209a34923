"""What compiling takes its time for: stages tell whoever listens when they begin, and how long they take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str, float, float], None]
"""`listener(name, begin, seconds)`, on any thread; `begin` as of `time.perf_counter`."""
_listeners: list[Listener] = []


class _Here(threading.local):
    muted = False


_here = _Here()


def note(name: str, begin: float, seconds: float) -> None:
    """Tells that a stage is over."""
    if _listeners and not _here.muted:
        for listener in _listeners:
            listener(name, begin, seconds)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A context whose time is that of a stage."""
    begin = time.perf_counter()
    try:
        yield
    finally:
        note(name, begin, time.perf_counter() - begin)


@contextmanager
def told_to(listener: Listener) -> Iterator[None]:
    """While it is open, the listener hears of all stages."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def muted() -> Iterator[None]:
    """Nobody hears of what this thread does meanwhile."""
    before, _here.muted = _here.muted, True
    try:
        yield
    finally:
        _here.muted = before
