"""Python's garbage collector, and work that it would only hold up."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from gluonjit.runtime import forks


@contextmanager
def without_collector(once: bool = False) -> Iterator[None]:
    """Turns off Python's cyclic garbage collector. Tracing and passes make many objects that stay, and no cycles: the
    collector would scan them repeatedly, for a quarter of the time of compiling, and may come upon all objects of the
    process (40 ms) while the first result is waited for. `once`: for what a process does once, such as an import."""
    global _without
    with _collecting:
        mine = gc.isenabled() or _without > 0
        _without += mine
        gc.disable()
    try:
        yield
    finally:
        with _collecting:
            _without = max(_without - mine, 0)  # already 0 in a child that this thread has forked meanwhile
            if mine and not _without:
                _make_old(once)
                gc.enable()


def _make_old(once: bool) -> None:
    """Counts all objects as old, as if the collector had just looked at them. Else it looks at what was made meanwhile
    as soon as it is on again, which takes some milliseconds of a first result.

    Old objects are looked at when many more have become old, which this puts off. So it is done `_MOST` times in a
    process, besides those that happen `once`: one that makes and drops nets in a loop must not keep them all."""
    global _made_old
    if once or _made_old < _MOST:
        _made_old += not once
        if not gc.get_freeze_count():  # what the program itself has frozen stays so, and takes a while to count
            gc.freeze()
            gc.unfreeze()


def _after_fork_in_child() -> None:
    global _without
    if _without:  # the compiling threads do not exist in the child
        _without = 0
        gc.enable()


_collecting = forks.held(in_child=_after_fork_in_child)
_MOST = 8
_made_old = 0
"""How often `_make_old` has done so, or would have."""
_without = 0
"""The number of threads in `without_collector` that found it enabled; it is enabled again after the last one."""
