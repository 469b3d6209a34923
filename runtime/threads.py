"""The process's team of threads (`codegen.threads.team`): how many there are, when they start, and when they end.

Workers are native threads that run no Python. They start when a graph first needs them, sleep when there is nothing to
do, and end when the interpreter exits, when their number changes, and before a fork (the child starts its own). They
block all signals, so that Ctrl-C reaches the main thread.

The number of threads is set by `set_num_threads`, else by the environment variable GLUONJIT_NUM_THREADS; else it is the
number of cores that the process may use.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from gluonjit.codegen.threads.team import MAX_THREADS, Block, Line
from gluonjit.ir.types import IRError
from gluonjit.runtime import forks, native
from gluonjit.runtime.arenas import aligned_empty
from gluonjit.runtime.cores import available_cores
from gluonjit.runtime.storage import EPOCH

_SPIN_SECONDS = 50e-6
"""How long a thread spins before it yields its core: longer than threads usually wait for the end of a kernel."""
_YIELDS = 1000
"""How often it yields before it sleeps: some 300 µs on an idle machine, like the Python code between two calls."""
_WAKING = 150_000
"""Nanoseconds that a call must take to be worth waking sleeping workers for, which takes 30 to 60 thousand."""
_AT_EXIT = 10.0
"""Seconds to wait at exit for a call that is running on another thread."""
_AT_FORK = 0.1

block = aligned_empty(Block.SIZE + 256)
block = block[-block.ctypes.data % 256 :][: Block.SIZE]
"""The team's memory. Its address is baked into records of the native entry, so it is never replaced."""
block[:] = 0

_wanted: int | None = None
_workers: list[int] = []
"""The workers' pthread_t."""
usable = 0
"""How many threads a call can use, its own included; 0 until `start` has found out."""
_closed = False
"""Whether the interpreter is exiting, so that no more workers may start."""


def get_num_threads() -> int:
    """How many threads a call may run on, the caller's included."""
    global _wanted
    if _wanted is None:
        _wanted = _from_environment() or min(available_cores(), MAX_THREADS)
    return _wanted


def set_num_threads(n: int | None) -> None:
    """Lets calls run on up to `n` threads; None restores the initial number. Waits for a call that is running.

    Results have the same bits for every `n`. Small models always run on one thread.
    """
    global _wanted
    if n is not None and (not isinstance(n, (int, np.integer)) or not 1 <= n <= MAX_THREADS):
        raise ValueError(f"the number of threads is 1 to {MAX_THREADS}, got {n!r}")
    with _lock:
        _wanted = None if n is None else int(n)
        _stop(math.inf)
        renew()  # fast calls hold the old number


SETTING = np.zeros(1, np.int64)
"""Moves with the number of threads, and with who measures calls. Its address is baked into the native entry, so it is
never replaced."""


def renew() -> None:
    """Has the next call of all code take the slow path, which sees what has changed."""
    EPOCH[0] += 1
    SETTING[0] += 1


def _from_environment() -> int | None:
    text = os.environ.get("GLUONJIT_NUM_THREADS", "").strip()
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= MAX_THREADS:
        raise IRError(f"GLUONJIT_NUM_THREADS is a number from 1 to {MAX_THREADS}, got {text!r}")
    return int(text)


# ---- starting and ending workers


def start(nthreads: int) -> int:
    """Starts workers for a call on `nthreads` threads if need be; returns how many threads the call can use."""
    global usable
    if nthreads == 1:
        return 1
    with _lock:
        if not _workers and not _closed and get_num_threads() > 1:
            _start(get_num_threads() - 1)
        if _workers or get_num_threads() == 1:  # else they could not start, and may at the next call
            usable = len(_workers) + 1
        return min(nthreads, len(_workers) + 1)


def is_short(cost: int) -> bool:
    """Whether a call that takes `cost` nanoseconds on one thread is over before sleeping workers have woken up."""
    return cost < _WAKING


def run(function: int, table: int, nthreads: int, cost: int, flush: bool = False) -> None:
    """Calls a graph's native function at address `function`; the GIL is released meanwhile.

    `nthreads` is what `start` has returned; if the team is busy, the call runs on this thread alone. All its threads
    compute in the floating-point mode of this thread; with `flush`, denormals count as zero until the call returns."""
    entry = native.entry()
    if nthreads == 1:
        entry.run(function, table, 0, 1, flush)
    else:
        entry.dispatch(block.ctypes.data, function, table, nthreads, is_short(cost), flush)


def _start(count: int) -> None:
    if native.libc() is None:
        return
    entry = native.entry()
    words = block.view(np.int64)
    # A call that found no workers may be running alone, and it holds the team's mutex until it ends.
    if words[Block.BARRIER // 8] and not entry.try_lock(block.ctypes.data):
        return
    _reset()
    words[Block.BARRIER // 8] = entry.barrier
    words[Block.SPINS // 8] = _spins()
    words[Block.YIELDS // 8] = _YIELDS
    with _signals_blocked():  # a thread inherits its creator's mask
        for index in range(1, count + 1):
            at = Block.LINES + index * Block.LINE_SIZE
            words[(at + Line.TEAM) // 8] = block.ctypes.data
            words[(at + Line.INDEX) // 8] = index
            handle = _new_thread(entry.work, block.ctypes.data + at)
            if handle is None:
                break  # the system allows no more threads: use those that exist
            _workers.append(handle)
    words[Block.WORKERS // 8] = len(_workers)


def _new_thread(function: int, argument: int) -> int | None:
    handle = ctypes.c_void_p()
    failed = native.libc().pthread_create(
        ctypes.byref(handle), None, ctypes.c_void_p(function), ctypes.c_void_p(argument)
    )
    return None if failed else handle.value or 0


def _reset() -> None:
    """Resets the team's memory to that of a team without workers."""
    block[:] = 0
    libc = native.libc()
    if libc is not None:
        libc.pthread_mutex_init(ctypes.c_void_p(block.ctypes.data + Block.MUTEX), None)
        libc.pthread_cond_init(ctypes.c_void_p(block.ctypes.data + Block.CONDITION), None)


def _spins() -> int:
    """How many times a thread can poll in _SPIN_SECONDS; measured, as a `pause` takes from 5 to 150 cycles."""
    looks = 1000
    seconds = min(_timed_pauses(looks) for _ in range(5))
    return max(1, int(looks * _SPIN_SECONDS / seconds))


def _timed_pauses(looks: int) -> float:
    begin = time.perf_counter()
    native.entry().pauses(looks)
    return max(time.perf_counter() - begin, 1e-7)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(timeout: float) -> bool:
    """Ends the workers, unless a call keeps them busy for more than `timeout` seconds. Returns whether they ended."""
    global usable
    usable = 0
    if not _workers:
        return True
    entry, team = native.entry(), block.ctypes.data
    deadline = time.monotonic() + timeout
    while not entry.try_lock(team):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    block.view(np.int64)[Block.WORKERS // 8] = 0
    entry.post(team, None, None, len(_workers) + 1)
    entry.unlock(team)
    for handle in _workers:
        native.libc().pthread_join(ctypes.c_void_p(handle), None)
    _workers.clear()
    return True


def _at_exit() -> None:
    global _closed
    with _lock:
        _closed = True
        if not _stop(_AT_EXIT):
            # A daemon thread is still computing: its code must stay in memory until the process ends.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(native.entry()))


def _before_fork() -> None:
    if _workers:
        _stop(_AT_FORK)
        renew()  # the slow path starts new workers


def _after_fork_in_child() -> None:
    global usable
    usable = 0
    if block.view(np.int64)[Block.BARRIER // 8]:  # workers, and calls that hold the mutex, exist in the parent alone
        _workers.clear()
        _reset()


_lock = forks.held(_before_fork, _after_fork_in_child)
"""Held while workers start or end. Reentrant, because a signal handler may start or end workers as well."""
atexit.register(_at_exit)
