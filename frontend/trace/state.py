"""Which trace is running in this thread. Importing this module costs nothing, so that anything may ask."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gluonjit.trace.recorder import Recorder


class _Running(threading.local):
    trace: Recorder | None = None


running = _Running()
"""`running.trace` is the trace that this thread is in, or None: the fastest way to ask."""


def current_trace() -> Recorder | None:
    """The trace that this thread is in, or None."""
    return running.trace


@contextmanager
def tracing(trace: Recorder) -> Iterator[None]:
    """Makes `trace` the running one."""
    before, running.trace = running.trace, trace
    try:
        yield
    finally:
        running.trace = before


@contextmanager
def inside(block: Any) -> Iterator[None]:
    """Notes, while tracing, that what follows belongs to `block` (it appears in `loc`)."""
    trace = running.trace
    if trace is None:
        yield
        return
    trace.blocks.append(block.name)
    try:
        yield
    finally:
        trace.blocks.pop()
