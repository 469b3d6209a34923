"""A counter that keeps calls off the native fast path.

It counts the threads that are in training mode, those that record gradients, and the traces that are running: what a
call means then depends on more than its arguments, which the native entry alone looks at. A profiler that times calls
in Python counts, too.
"""

from __future__ import annotations

import ctypes
import threading

import numpy as np

from gluonjit.runtime import forks

MODE = np.zeros(1, np.int64)
"""Nonzero: no fast path. Its address is baked into the native entry, so it is never replaced."""
_word = ctypes.c_int64.from_address(MODE.ctypes.data)
"""The same memory: NumPy takes three times as long to count."""


class _Own(threading.local):
    count = 0


_own = _Own()
"""This thread's share of the counter."""


def change(by: int) -> None:
    """Adds `by` (1 or -1) to the counter."""
    with _lock:
        _own.count += by
        _word.value += by


_everyone = 0
"""The share of the whole process."""


def keep_off(on: bool) -> None:
    """Keeps the calls of all threads off the fast path, also in forked children, or ends that."""
    global _everyone
    with _lock:
        MODE[0] += on - _everyone
        _everyone = int(on)


def is_kept_off() -> bool:
    """Whether `keep_off` holds."""
    return bool(_everyone)


def _after_fork_in_child() -> None:
    MODE[0] = _own.count + _everyone


_lock = forks.held(in_child=_after_fork_in_child)
