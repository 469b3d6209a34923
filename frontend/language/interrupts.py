"""Ctrl-C between steps: what has to change as a whole is not left half done."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps in functions that look for enums, 10 µs each
import os
import sys
import threading
from threading import get_ident
from types import FrameType
from typing import Any


class _Main:
    """The thread that Python handles signals in: `get_ident() == _Main.ident`. Steps of training ask often, and
    `threading.main_thread` is slow."""

    ident = threading.main_thread().ident


def _after_fork_in_child() -> None:
    _Main.ident = get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _handler(number: int = _signal.SIGINT) -> Any:
    """The handler of a signal, of Ctrl-C if none is given, if it may run in this thread."""
    if get_ident() != _Main.ident:
        return None
    handler = _signal.getsignal(number)
    return handler if callable(handler) else None


class Uninterrupted:
    """A context in which Ctrl-C (SIGINT) waits: its handler runs at the end. May be nested.

    Does nothing in threads other than the main one, and where SIGINT has no handler in Python. Other signals are
    handled at once. If a handler of theirs raises an error just while the context is entered or left, it may stay
    behind; the next Ctrl-C notices that the caller is gone, and does not wait.
    """

    __slots__ = ("_arrived", "_caller", "_handler")

    def __enter__(self) -> None:
        self._arrived: list[int] = []
        self._caller: FrameType | None = None
        # As `_handler` does: a small step of training has no time for calls.
        handler: Any = _signal.getsignal(_signal.SIGINT) if get_ident() == _Main.ident else None
        self._handler: Any = handler if callable(handler) else None
        if self._handler is not None:
            self._caller = sys._getframe(1)
            _signal.signal(_signal.SIGINT, self._wait)

    def __exit__(self, *error: object) -> None:
        if self._handler is not None:
            _signal.signal(_signal.SIGINT, self._handler)
            self._caller = None
            if self._arrived:
                # Not the frame where it arrived: that may have ended, and then it no longer tells who called it.
                self._handler(self._arrived[0], sys._getframe(1))

    def _wait(self, number: int, frame: FrameType | None) -> None:
        running = frame
        while running is not None and running is not self._caller:
            running = running.f_back
        if running is not None:
            self._arrived.append(number)
        else:
            _signal.signal(_signal.SIGINT, self._handler)
            self._caller = None
            self._handler(number, frame)


class Whole:
    """A context whose `_set` and `_restore` are always called, and run as a whole: a signal whose handler may raise
    (Ctrl-C, or the alarm of a time limit) does not get through while they run. It may come in between, as anywhere.

    Python looks for signals at the first instruction of `__exit__`, too, where no `try` could undo anything. So from
    `__enter__` on the handler is a `_Guard`, which makes a signal that comes there wait.
    """

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: list[list[_Guard]] = []

    def _set(self) -> None:
        raise NotImplementedError

    def _restore(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> None:
        while True:
            guards: list[_Guard] = []
            self._guards.append(guards)
            try:
                if get_ident() == _Main.ident:
                    _Guard.put_up(guards)
                self._set()
            except BaseException:
                self._leave(False)
                raise
            if not _waiting or get_ident() != _Main.ident:
                return
            self._leave(True)
            _deliver()

    def __exit__(self, *error: object) -> None:
        self._leave(True)
        if _waiting and get_ident() == _Main.ident:
            _deliver()

    def _leave(self, restore: bool) -> None:
        if restore:
            self._restore()
        guards = self._guards.pop()
        try:
            for guard in guards:
                guard.take_down()
        except BaseException:  # the handler of a signal whose guard is gone may raise while others are up
            for guard in guards:
                guard.take_down()
            raise


_waiting: list[int] = []
"""The signals that came while a `Whole` was entered or left."""
_GUARDED = tuple(
    getattr(_signal, name) for name in ("SIGINT", "SIGALRM", "SIGTERM", "SIGUSR1", "SIGUSR2") if hasattr(_signal, name)
)
_DEEP = 12
"""The most nested calls that `_set` and `_restore` make."""
_WHOLE = (Whole.__enter__.__code__, Whole.__exit__.__code__)


class _Guard:
    """A handler of a signal, put before the program's own."""

    __slots__ = ("handler", "number")

    def __init__(self, number: int, handler: Any) -> None:
        self.number, self.handler = number, handler

    @staticmethod
    def put_up(guards: list[_Guard]) -> None:
        """Appends new ones, for the signals that have handlers, but no guards."""
        for number in _GUARDED:
            handler = _signal.getsignal(number)
            if callable(handler) and getattr(handler, "__self__", None).__class__ is not _Guard:
                guard = _Guard(number, handler)
                guards.append(guard)
                _signal.signal(number, guard.judge)

    def take_down(self) -> None:
        handler = _signal.getsignal(self.number)
        if getattr(handler, "__self__", None) is self and get_ident() == _Main.ident:
            _signal.signal(self.number, self.handler)

    def judge(self, number: int, frame: FrameType | None) -> None:
        running = frame
        for _ in range(_DEEP):
            if running is None:
                break
            if running.f_code in _WHOLE:
                _waiting.append(number)
                return
            running = running.f_back
        self.handler(number, frame)


def _guard_of(handler: Any) -> _Guard | None:
    guard = getattr(handler, "__self__", None)
    return guard if guard.__class__ is _Guard else None


def _deliver() -> None:
    """Has the signals handled that waited, as if they came where the context is."""
    frame = sys._getframe(2)
    try:
        while _waiting:
            number = _waiting[0]
            _waiting[:] = [other for other in _waiting if other != number]
            handler = _handler(number)
            guard = _guard_of(handler)
            if handler is not None:
                (handler if guard is None else guard.handler)(number, frame)
    finally:  # after an error of a handler, the others come again, as soon as Python looks for signals
        others = [*dict.fromkeys(_waiting)]
        _waiting.clear()
        for number in others:
            _signal.raise_signal(number)


def arrived() -> bool:
    """Whether Ctrl-C waits for the end of an `Uninterrupted`: for what may last forever."""
    handler = _signal.getsignal(_signal.SIGINT)
    guard = _guard_of(handler)
    context = getattr(handler if guard is None else guard.handler, "__self__", None)
    return isinstance(context, Uninterrupted) and bool(context._arrived)
