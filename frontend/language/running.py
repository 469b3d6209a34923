"""Which trace is running in this thread. Importing this module costs nothing, so that anything may ask."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from gluonjit.runtime import mode

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
    mode.change(1)
    try:
        yield
    finally:
        mode.change(-1)
        running.trace = before


def recorded(method: Callable[..., Any]) -> Callable[..., Any]:
    """An NDArray method that belongs to the running trace, if there is one: the array is then an input of the graph."""
    name = method.__name__

    @wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        trace = running.trace
        if trace is None:
            return method(self, *args, **kwargs)
        return getattr(trace.capture(self), name)(*args, **kwargs)

    return wrapper
