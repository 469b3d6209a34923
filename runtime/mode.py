"""A counter that keeps calls off the native fast path.

It counts the threads that are in training mode, those that record gradients, and the traces that are running: what a
call means then depends on more than its arguments, which the native entry alone looks at. A profiler that times calls
in Python counts, too.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import numpy as np

from gluonjit.runtime import forks

MODE = np.zeros(1, np.int64)
"""Nonzero: no fast path. Its address is baked into the native entry, so it is never replaced."""
word = ctypes.c_int64.from_address(MODE.ctypes.data)
"""The same memory, whose `value` is the counter: NumPy takes three times as long to count. `word.value += by` is done
as a whole, as Python changes threads and looks for signals after calls and at the beginning of functions and loops."""


class _Own(threading.local):
    count = 0


_own = _Own()
"""This thread's share of the counter that `change` has counted."""
other_shares: list[Callable[[], int]] = []
"""What tells the rest of its share, which others have added to `word`."""


def change(by: int) -> None:
    """Adds `by` (1 or -1) to the counter."""
    with _lock:
        _own.count += by
        word.value += by


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
    MODE[0] = _own.count + _everyone + sum(share() for share in other_shares)


_lock = forks.held(in_child=_after_fork_in_child)
