"""Work that Ctrl-C must not tear apart: another thread does it, and what Ctrl-C ends is the wait for it.

Python raises KeyboardInterrupt, or whatever else the handler of a signal raises, in the main thread, between any two
instructions there. Half an import stays behind as a module without some of its functions, half a call of LLVM as an
object that is freed twice, and what is raised in a finalizer is lost. Other threads are never interrupted.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


class Stopped(BaseException):
    """Nobody waits any more for what this thread computes."""


class _Here(threading.local):
    is_unwanted: Callable[[], bool] | None = None


_here = _Here()
_waiting: list[queue.SimpleQueue[Any]] = []
"""Where the main thread waits; several if the handler of a signal computes something, too."""


def aside(compute: Callable[[], T]) -> T:
    """`compute()`, on another thread if this is the main one. If the handler of a signal raises meanwhile, this
    function does so at once, and the other thread ends at its next `check()`."""
    if threading.current_thread() is not threading.main_thread():
        return compute()
    answer: queue.SimpleQueue[tuple[Any, BaseException | None] | None] = queue.SimpleQueue()
    left = threading.Event()

    def work() -> None:
        _here.is_unwanted = left.is_set
        try:
            answer.put((compute(), None))
        except BaseException as e:
            answer.put((None, e))

    _waiting.append(answer)
    try:
        try:
            threading.Thread(target=work, name="gluonjit compiler").start()
        except RuntimeError:  # the system refuses, or the interpreter is about to end
            return compute()
        except KeyError as e:  # what the handler raised came into `start`, which did not find its thread any more
            raise (e.__context__ or e) from None
        found = _taken(answer)
    except BaseException:
        left.set()
        raise
    finally:
        _waiting.remove(answer)
    if found is None:
        return compute()
    result, error = found
    if error is not None:
        try:
            raise error
        finally:
            del error, found  # the traceback refers to this frame
    return result


_LATE = 0.1
"""Seconds until a signal is noticed that came just before the main thread fell asleep, and so does not wake it."""


def _taken(answer: queue.SimpleQueue[Any]) -> Any:
    """The next item, once there is one."""
    while True:
        try:
            return answer.get(timeout=_LATE)
        except queue.Empty:
            continue  # between two instructions Python looks for signals


def imported(name: str) -> Any:
    """The module of this name, which it takes a while to import."""
    module = sys.modules.get(name)
    is_there = module is not None and not getattr(module.__spec__, "_initializing", False)
    return module if is_there else aside(lambda: import_module(name))


def while_process_lives(compute: Callable[[], None]) -> None:
    """`compute()`, on this thread, which is not the main one. When that has ended, this one does so at its next
    `check()`."""
    main = threading.main_thread()
    if main.is_alive():  # not in a program that has started Python on another thread of its own
        _here.is_unwanted = lambda: not main.is_alive()
    compute()


def check() -> None:
    """Raises Stopped if nobody waits any more for what this thread computes."""
    if _here.is_unwanted is not None and _here.is_unwanted():
        raise Stopped


def _again() -> None:
    """In a forked child: the thread that was to answer does not exist there, so the one that waits computes itself."""
    for answer in _waiting:
        answer.put(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_again)
