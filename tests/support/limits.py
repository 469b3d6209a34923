"""Protection of later tests: a test must end, and must leave the process as it found it."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import math
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

if hasattr(os, "register_at_fork"):  # a child's alarms are its own
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGALRM, signal.SIG_DFL))


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Fails a test that runs longer (wall time), at the line that waits. See `end_when_stuck` for native code."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def fail(*_: object) -> None:
        pytest.fail(f"hangs: {seconds:g} s have passed")

    handler = signal.signal(signal.SIGALRM, fail)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, handler)


_REARMED = 60.0
"""Seconds between two arms of the watchdog, each of which starts a thread and waits for the end of the last one."""
_armed = -math.inf


def end_when_stuck(seconds: float) -> None:
    """Ends the process, with all tracebacks, if this is not called again within `seconds`, or a minute more: native
    code that does not return lets no signal handler run."""
    global _armed
    now = time.monotonic()
    if now - _armed >= _REARMED:
        faulthandler.dump_traceback_later(seconds + _REARMED, exit=True, file=sys.__stderr__)
        _armed = now


def state() -> dict[str, Any]:
    """What all tests of a process share, apart from the states of random numbers."""
    # The dictionary behind the mapping, which would decode every name and value, twice for each test.
    environment = os.environ._data.copy()
    environment.pop(os.environ.encodekey("PYTEST_CURRENT_TEST"), None)
    shared: dict[str, Any] = {
        "environment": environment,
        "folder": os.getcwd(),
        "logging": (logging.root.level, list(logging.root.handlers)),
        "floating point errors": np.geterr(),
        "interrupt": signal.getsignal(signal.SIGINT),
    }
    threads = sys.modules.get("gluonjit.runtime.threads")
    if threads is not None:
        shared["number of threads"] = threads.get_num_threads()
    return shared


@contextlib.contextmanager
def leaving_no_trace() -> Iterator[None]:
    """Fails a test that changes `state` permanently, and restores the states of random number generators."""
    before, python, numpy = state(), random.getstate(), np.random.get_state()
    yield
    random.setstate(python)
    np.random.set_state(numpy)
    after = state()
    changed = [what for what in before if before[what] != after[what]]
    assert not changed, f"left otherwise than found: {', '.join(changed)}"
