"""How long one thread may run Python while others wait for their turn."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gluonjit.runtime import forks

_TURN = 0.0005
"""Seconds. Python's own are 0.005, and LLVM's thread waits so long up to eight times for each module, as llvmlite gives
the interpreter back and asks for it again in every call: 40 ms for a module that takes 20."""


@contextmanager
def short_turns() -> Iterator[None]:
    """While it is open, a thread that waits for the interpreter has it after half a millisecond at most, so that LLVM
    compiles on one thread what another one writes in Python. Less, if the program itself has asked for less."""
    global _open, _usual
    with _changing:
        if not _open:
            _usual = sys.getswitchinterval()
        _open += 1
        if _usual > _TURN:
            sys.setswitchinterval(_TURN)
    try:
        yield
    finally:
        with _changing:
            _open = max(_open - 1, 0)  # already 0 in a child that this thread has forked meanwhile
            if not _open:
                _restore()


def _restore() -> None:
    """Unless the program has chosen another time meanwhile."""
    if abs(sys.getswitchinterval() - _TURN) < 2e-6:  # Python keeps whole microseconds
        sys.setswitchinterval(_usual)


def _after_fork_in_child() -> None:
    global _open
    if _open:  # the compiling threads do not exist in the child
        _open = 0
        _restore()


_changing = forks.held(in_child=_after_fork_in_child)
_open = 0
"""The number of threads that are in `short_turns`."""
_usual = 0.0
"""Seconds of a turn before the first of them."""
