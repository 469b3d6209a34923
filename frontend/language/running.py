"""The trace that runs in this thread, and the interface through which lower layers use it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NoReturn, Protocol, TypeVar, cast

from gluonjit.language import late
from gluonjit.language.interrupts import Whole
from gluonjit.runtime import mode

Method = TypeVar("Method", bound=Callable[..., Any])


class Tracer(Protocol):
    """The interface of a running trace; `trace.recorder.Recorder` implements it."""

    mode_fact: bool
    """Whether the program asked for the training mode, or set it."""
    recording_fact: bool
    """Whether the program asked for the recording mode, or set it."""

    @property
    def paused(self) -> bool:
        """Whether the program has paused recording: what it computes now is constant for gradients."""

    def note_recording(self, recording: bool) -> None:
        """Notes that the program sets the recording mode."""

    def capture(self, x: Any) -> Any:
        """The symbol of an NDArray from outside the trace, which becomes an input of the graph, by reference."""

    def adopt(self, value: Any) -> Any:
        """The symbol of the trace for an NDArray or a parameter's variable; any other value unchanged."""

    def lift(self, value: Any) -> Any:
        """`value` as a symbol of the trace; MXNetError for a symbol of another graph."""

    def constant(self, value: Any) -> Any:
        """The symbol of a new array in each call, always with this value."""

    def concerns(self, operands: Sequence[Any]) -> bool:
        """Whether an operator on these operands is part of the trace."""

    def invoke(
        self,
        op: Any,
        operands: Sequence[Any],
        attrs: Mapping[str, Any],
        out: Any = None,
        name: str | None = None,
        attr: Any = None,
        hint: str | None = None,
    ) -> Any:
        """Records an operator with the semantics of `mx.nd`."""

    def record_body(
        self, variables: Sequence[Any], alike: Sequence[Any], scanned: int, function: Callable[..., Any]
    ) -> Any:
        """Records the body of a loop or branch."""

    def append_control(
        self, op: Any, graphs: Sequence[Any], given: Any, captured: Any, attrs: Mapping[str, Any], sensitive: bool
    ) -> Any:
        """Records a loop or branch whose bodies are graphs."""

    def foreach(self, body: Any, data: Any, init_states: Any, name: str) -> Any:
        """Records `contrib.foreach`."""

    def while_loop(self, cond: Any, func: Any, loop_vars: Any, max_iterations: Any, name: str) -> Any:
        """Records `contrib.while_loop`."""

    def cond(self, pred: Any, then_func: Any, else_func: Any, name: str) -> Any:
        """Records `contrib.cond`."""

    def array_function(self, name: str) -> Any:
        """The function `name` of `mx.nd`, which records its operators in the trace; None if there is none."""

    def refuse(self, what: str, instead: str = "", for_value: bool = False) -> NoReturn:
        """Raises a TraceError about something that cannot be compiled."""


class _Running(threading.local):
    trace: Any = None
    postponed: Any = None
    """What notes this thread's plain operators instead of computing them (`ndarray/postponed_calls.py`), or None."""


running = _Running()
"""`running.trace` is this thread's running `Tracer`, or None."""


def current_trace() -> Tracer | None:
    """This thread's running trace, or None."""
    return running.trace


class _Setting(Whole):
    """Sets this thread's running trace, and what it postpones: nothing."""

    __slots__ = ("_before", "_trace")

    def __init__(self, trace: Tracer | None) -> None:
        super().__init__()
        self._trace = trace

    def _set(self) -> None:
        self._before = running.trace, running.postponed
        running.trace, running.postponed = self._trace, None
        if self._trace is not None:
            mode.change(1)

    def _restore(self) -> None:
        if self._trace is not None:
            mode.change(-1)
        running.trace, running.postponed = self._before


def tracing(trace: Tracer) -> Whole:
    """A context in which `trace` is this thread's running trace."""
    return _Setting(trace)


def no_trace() -> Whole:
    """A context in which functions compute at once, though a trace runs in this thread."""
    return _Setting(None)


def recorded(method: Method) -> Method:
    """Decorates an NDArray method: while a trace runs, the array is captured and the call is recorded.

    Outside of traces, calls on an array that gradients flow to are noted on the tape; others may be postponed.
    """
    name = method.__name__

    @wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        trace = running.trace
        if trace is None:
            if running.postponed is not None:
                found = running.postponed.invoke_method(name, self, args, kwargs)
                if found is not None:
                    return found
            if self._grad_state is not None:
                return late.record_method(method, self, args, kwargs)
            return method(self, *args, **kwargs)
        return getattr(trace.capture(self), name)(*args, **kwargs)

    return cast(Method, wrapper)
