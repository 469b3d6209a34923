"""LLVM and fork: a child must not find LLVM in the middle of what another thread was doing with it.

llvmlite lets one thread at a time into LLVM, and here machine code is made past its lock
(`codegen.text.compile_parts`). A fork waits until all of them have come out: for some 50 ms, as long as one part takes.
Should that not help (another user of llvmlite may be at it for minutes), the child cannot compile, and says so; what is
compiled runs without LLVM.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gluonjit.ir.types import IRError

_PATIENCE = 20.0
"""Seconds that a fork waits."""

_changed = threading.Condition()
"""Guards the following; held while the process forks."""
_inside: dict[object, int] = {}
"""The identity of each thread that is in LLVM without llvmlite's lock."""
_forking = 0
"""How many threads want to fork."""
_lock: Any = None
"""llvmlite's, while the process forks."""
_quiet = True
"""Whether nobody was in LLVM when the process forked."""
_here = threading.local()
"""Its `forks` is set in the thread that forks."""
_lost = False
"""Whether this process is a child of a fork during which a thread may have been in LLVM."""


@contextmanager
def inside_llvm() -> Iterator[None]:
    """Around what calls LLVM without llvmlite's lock."""
    me = object()
    try:
        with _changed:
            _changed.wait_for(lambda: not _forking)
            _inside[me] = threading.get_ident()
        yield
    finally:
        with _changed:
            _inside.pop(me, None)
            _changed.notify_all()


def check() -> None:
    """IRError if LLVM cannot be used in this process."""
    if _lost:
        raise IRError(
            "this process cannot compile: it was forked while another thread was compiling, which did not end within "
            f"the {_PATIENCE:g} seconds that a fork waits. What was compiled before runs. Fork before that thread "
            "starts, or start processes with multiprocessing's method 'spawn'"
        )


def hold() -> None:
    """Before a fork: waits until nobody is in LLVM, and keeps others out."""
    global _forking, _lock, _quiet
    if getattr(_here, "forks", False):  # a signal's handler forks while this thread is about to
        return
    deadline = time.monotonic() + _PATIENCE
    me = threading.get_ident()
    _changed.acquire()
    _here.forks = True
    _forking += 1
    _quiet = _changed.wait_for(lambda: all(other == me for other in _inside.values()), _PATIENCE)
    lock = _llvmlite_lock() if _quiet else None
    if lock is not None:
        _quiet = lock.acquire(timeout=max(deadline - time.monotonic(), 0))
        _lock = lock if _quiet else None


def let_go() -> None:
    """The end of what `hold` began."""
    global _forking, _lock
    _here.forks = False
    _forking -= 1
    if _lock is not None:
        _lock.release()
        _lock = None
    _changed.notify_all()
    _changed.release()


def _after(in_child: bool) -> None:
    global _forking, _lost
    if not getattr(_here, "forks", False):  # another thread imported this module when the fork had begun
        return
    if in_child:
        _forking = 1
        _lost = _lost or not _quiet
        _inside.clear()
        if not _quiet and (lock := _llvmlite_lock()) is not None:
            lock._at_fork_reinit()  # dropping what is compiled takes it, too
    let_go()


def _llvmlite_lock() -> Any:
    """The lock around every call of llvmlite; None when there is none."""
    ffi = sys.modules.get("llvmlite.binding.ffi")
    return getattr(getattr(getattr(ffi, "lib", None), "_lock", None), "_lock", None)


if hasattr(os, "register_at_fork"):  # `runtime.forks` calls `hold`
    os.register_at_fork(after_in_parent=lambda: _after(False), after_in_child=lambda: _after(True))
