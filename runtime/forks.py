"""Locks that are safe across a fork: the child has the forking thread alone, and must not wait for locks of others.

There are two kinds. A lock that is only held for short times is *held* by the forking thread during the fork, so that
the child finds the data that it guards in a consistent state. A lock that may be held for seconds (during compilation)
is *renewed*: it is free in the child, so the data that it guards must be consistent wherever a thread may stop.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakSet


def held(before: Callable[[], object] | None = None, in_child: Callable[[], object] | None = None) -> Any:
    """A lock that no other thread holds while the process forks. Reentrant, as a signal handler may fork.

    `before()` is called before the fork, and `in_child()` after it in the child; both while the lock is held.
    """
    lock = threading.RLock()
    here = threading.local()

    def acquire() -> None:
        lock.acquire()
        here.forks = True
        if before is not None:
            before()

    def release(run: Callable[[], object] | None = None) -> None:
        # If another thread made this lock after the fork had begun, this thread does not hold it.
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
        if not lock._is_owned():  # else a signal's handler has forked, and this thread goes on
            lock._at_fork_reinit()  # as the standard library does with its own locks


_IMPORTED = frozenset({"gluonjit", "llvmlite", "networkx", "platformdirs"})
"""Packages whose modules are imported on first use, and so perhaps by another thread during a fork."""
_PATIENCE = 10.0
"""Seconds that a fork waits for imports."""


def _are_importing() -> bool:
    locks = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})
    return any(name.partition(".")[0] in _IMPORTED for name in list(locks))


def _wait() -> None:
    """Waits until no other thread imports, or is in LLVM. Importing llvmlite takes its lock, which is thus held only
    while nobody imports."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        while _are_importing() and time.monotonic() < deadline:
            time.sleep(0.001)
        guard = sys.modules.get("gluonjit.codegen.text.fork_guard")
        if guard is None or getattr(guard.__spec__, "_initializing", False):
            return
        guard.hold()
        if not _are_importing() or time.monotonic() >= deadline:
            return
        guard.let_go()


if hasattr(os, "register_at_fork"):
    # Registered first, so called last: nothing else takes time between the end of imports and the fork.
    os.register_at_fork(before=_wait, after_in_child=_renew)
