"""Locks and fork: the child has the forking thread alone, and must not wait for what another one was doing.

Two ways. A lock that is held for moments is *held* by the forking thread meanwhile, so that the child finds what it
guards whole. One that may be held for seconds (while something compiles) is *renewed*: the child gets it free, and what
it guards must be right whenever a thread stops there for ever.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakSet


def held(before: Callable[[], object] | None = None, in_child: Callable[[], object] | None = None) -> Any:
    """A reentrant lock (a handler of signals may fork, too) that no other thread has while the process forks.

    `before()` is called with the lock held, in front of the fork, and `in_child()` behind it.
    """
    lock = threading.RLock()
    here = threading.local()

    def acquire() -> None:
        lock.acquire()
        here.forks = True
        if before is not None:
            before()

    def release(run: Callable[[], object] | None = None) -> None:
        # Not so if another thread has just made this lock, when the fork had begun.
        if getattr(here, "forks", False):
            here.forks = False
            if run is not None:
                run()
            lock.release()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=acquire, after_in_parent=release, after_in_child=lambda: release(in_child))
    return lock


def renewed() -> Any:
    """A reentrant lock that is free in a forked child."""
    lock = threading.RLock()
    _renewed.add(lock)
    return lock


_renewed: WeakSet[Any] = WeakSet()


def _renew() -> None:
    for lock in list(_renewed):
        lock._at_fork_reinit()  # what the standard library's own locks do


_IMPORTED = frozenset({"gluonjit", "llvmlite", "networkx", "platformdirs"})
"""What is imported when it is first needed, so perhaps on another thread."""
_PATIENCE = 10.0
"""Seconds that a fork waits for imports."""


def _wait_for_imports() -> None:
    locks = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})
    deadline = time.monotonic() + _PATIENCE
    while any(name.partition(".")[0] in _IMPORTED for name in list(locks)) and time.monotonic() < deadline:
        time.sleep(0.001)


if hasattr(os, "register_at_fork"):
    # What is registered first is called last: nothing else takes time between the end of imports and the fork.
    os.register_at_fork(before=_wait_for_imports, after_in_child=_renew)
