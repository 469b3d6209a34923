"""`mx.profiler`: how long operators and compiled calls take, as a table and as a trace for `chrome://tracing`.

While the profiler runs, timed functions stand in the place of those that compute (`_places`); otherwise nothing is
changed, and nothing is slower. An operator of a plain call is one event, and so are each call of a hybridized block or
an executor, the gradient of either, and a step of an optimizer. The kernels of compiled code, which are operators of a
layer or several, are measured by `gluonjit.profiling`, and stand in the category `kernel`.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from gluonjit.autodiff import graph_nodes, tape
from gluonjit.autodiff.tiering import TieredOperator
from gluonjit.base import MXNetError
from gluonjit.execution.session import Session
from gluonjit.files import atomic
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import IRError
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.ndarray import custom_calls, postponed_calls
from gluonjit.ndarray.settled_calls import SettledCalls
from gluonjit.operators.registry import OPERATORS
from gluonjit.optimizer.step import BoundStep
from gluonjit.profiling import Kernel, record
from gluonjit.profiling.recording import Recording
from gluonjit.runtime import forks, mode
from gluonjit.runtime.eager import Eager

__all__ = [
    "Counter",
    "Domain",
    "Event",
    "Frame",
    "Marker",
    "Scope",
    "Task",
    "dump",
    "dump_profile",
    "dumps",
    "pause",
    "profiler_set_config",
    "profiler_set_state",
    "record",
    "resume",
    "scope",
    "set_config",
    "set_state",
]


class _Record(NamedTuple):
    """What happened. `phase` is Chrome's: X is a duration, C a counter's new value, i an instant."""

    name: str
    category: str
    phase: str
    start: int
    """Nanoseconds of the clock `perf_counter_ns`."""
    value: int
    """A duration in nanoseconds, or a counter's value."""
    thread: int


class _Profiler:
    """The state of this process's profiler."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {
            "filename": "profile.json",
            "profile_all": False,
            "profile_symbolic": True,
            "profile_imperative": True,
            "profile_memory": False,
            "profile_api": False,
            "continuous_dump": False,
            "dump_period": 1.0,
            "aggregate_stats": False,
            "profile_process": "worker",
        }
        self.running = False
        self.paused = False
        self.records: list[_Record] = []
        self.profiles: list[Recording] = []
        """Complete profiles of compiled code."""
        self._recording: AbstractContextManager[Recording] | None = None
        self._replaced: list[tuple[Any, str, Any]] = []
        self._lock = forks.renewed()
        self._changing = False
        """Whether a thread changes places; in a forked child, also whether one of the parent's did."""
        self.scopes = threading.local()
        """Its attribute `name` is what this thread's `Scope`s put in front of names."""

    @property
    def active(self) -> bool:
        return self.running and not self.paused

    def note(self, name: str, category: str, phase: str, start: int, value: int) -> None:
        self.records.append(_Record(name, category, phase, start, value, threading.get_ident()))

    def apply(self) -> None:
        """Puts timed functions in place, or the original ones back, as the state asks for."""
        with self._lock:
            if self._changing:  # by a thread that does not exist in this forked child
                self._put_back()
            if self.active == bool(self._replaced):
                return
            self._changing = True
            if self.active:
                for owner, attribute, timed in _places(self):
                    self._replaced.append((owner, attribute, owner.__dict__[attribute]))
                    setattr(owner, attribute, timed)
                mode.keep_off(True)  # compiled calls go through Python, where they are timed
                self._record(self.wants("symbolic"))
            else:
                self._put_back()
            self._changing = False

    def _put_back(self) -> None:
        for owner, attribute, original in self._replaced:
            setattr(owner, attribute, original)
        self._replaced.clear()
        mode.keep_off(False)
        self._record(False)

    def _record(self, on: bool) -> None:
        """Ends the recording of compiled code, if there is one, and begins another."""
        ended, self._recording = self._recording, None  # first, as a child cannot end what the parent is about to end
        if ended is not None:
            ended.__exit__(None, None, None)
        if on:
            recording = record(timeline=_CALLS, peaks=False)
            try:
                self.profiles.append(recording.__enter__())
            except IRError:  # the program itself records a profile
                return
            self._recording = recording

    def complete(self) -> list[Recording]:
        """What was measured of compiled code until now."""
        with self._lock:
            if self._recording is not None:
                self._record(True)
            return self.profiles[: -1 if self._recording is not None else None]

    def forget(self) -> None:
        """Drops everything that was recorded."""
        with self._lock:
            self.records.clear()
            self.profiles = self.profiles[-1:] if self._recording is not None else []

    def wants(self, kind: str) -> bool:
        return bool(self.options["profile_all"] or self.options[f"profile_{kind}"])


def _places(profiler: _Profiler) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Each function to be timed, or to be another one meanwhile: its owner, its name there, and what replaces it."""

    def timed(
        function: Callable[..., Any], name: Callable[..., str | None], category: str = "operator"
    ) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            called = name(*args)
            if called is None:
                return function(*args, **kwargs)
            start = time.perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                scope = getattr(profiler.scopes, "name", "")
                profiler.note(scope + called, category, "X", start, time.perf_counter_ns() - start)

        return call

    if profiler.wants("imperative"):
        yield postponed_calls, "may_postpone", lambda: False
        for op in set(OPERATORS.values()):
            # The same function makes graphs, which is no computation.
            yield op, "expand", timed(op.expand, lambda b, *_, n=op.name: n if isinstance(b, Eager) else None)
        for calls in (TieredOperator, SettledCalls):
            yield calls, "compute", timed(calls.compute, lambda calls, *_: calls.name)
    for name, form in (("compute", "{}::pure_python"), ("backward", "_backward_{}::pure_python")):
        function = getattr(custom_calls, name)
        yield custom_calls, name, timed(function, lambda op_type, *_, form=form: form.format(op_type), CUSTOM)
    if profiler.wants("symbolic"):
        for method in ("run", "run_forward"):
            yield Session, method, timed(Session.__dict__[method], lambda session, *_: session.graph.name)
        yield BoundStep, "take", timed(BoundStep.take, lambda *_: "optimizer step")
    for node in (graph_nodes.GraphNode, tape.RuleNode):
        yield node, "pull", timed(node.pull, lambda node, *_: f"_backward_{node.name}")


CUSTOM = "Custom Operator"
"""The category of operators that users wrote in Python."""
_CALLS = 100
"""The last calls of each program of which the trace has all kernels."""
_profiler = _Profiler()


def set_config(**kwargs: Any) -> None:
    """Sets options: `filename` of the trace; `profile_imperative` for operators of plain calls, `profile_symbolic` for
    compiled calls (both by default), `profile_all`; `continuous_dump`, to write the trace at each stop.

    `profile_memory` adds the memory of compiled code to `dumps`; that of arrays is not watched. `profile_api`,
    `aggregate_stats`, `dump_period` and `profile_process` have no effect: statistics are there in any case.
    """
    for key, value in kwargs.items():
        if key not in _profiler.options:
            raise MXNetError(f"Cannot find argument '{key}'{did_you_mean(key, _profiler.options)}")
        _profiler.options[key] = value


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """Starts ('run') or stops ('stop') the profiler."""
    running = {"stop": False, "run": True}[state]
    stopped = _profiler.running and not running
    _profiler.running = running
    _profiler.apply()
    if stopped and _profiler.options["continuous_dump"]:
        dump(False)


def pause(profile_process: str = "worker") -> None:
    """Records nothing until `resume`."""
    _profiler.paused = True
    _profiler.apply()


def resume(profile_process: str = "worker") -> None:
    """Ends a pause."""
    _profiler.paused = False
    _profiler.apply()


def start() -> None:
    """The same as `set_state('run')`."""
    set_state("run")


def stop() -> None:
    """The same as `set_state('stop')`."""
    set_state("stop")


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Writes all that was recorded to the file of the options, in Chrome's trace format; `finished` also stops."""
    if finished:
        _profiler.running = False
        _profiler.apply()
    records = [*_profiler.records, *(r for p in _profiler.complete() for r in _kernel_records(p))]
    domains = sorted({r.category for r in records})
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": domain}} for pid, domain in enumerate(domains)
    ]
    for r in records:
        event = {"name": r.name, "cat": r.category, "ph": r.phase, "ts": r.start / 1000}
        event |= {"pid": domains.index(r.category), "tid": r.thread}
        if r.phase == "X":
            event["dur"] = r.value / 1000
        elif r.phase == "C":
            event["args"] = {r.name: r.value}
        else:
            event["s"] = "p"
        events.append(event)
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
    atomic.write(os.fspath(_profiler.options["filename"]), [text.encode()])


_ORDERS = ("total", "avg", "min", "max", "count")


def dumps(reset: bool = False, format: str = "table", sort_by: str = "total", ascending: bool = False) -> str:
    """Statistics of durations in milliseconds, for each category and name, as a table or as JSON; then of counters, and
    with `profile_memory` of the kilobytes that compiled code keeps (parameters, copies of them in another layout) or
    takes for a call (arena).

    `sort_by` is 'total', 'avg', 'min', 'max' or 'count'; `reset` forgets what was recorded.
    """
    if format not in ("table", "json"):
        raise AssertionError(f"Invalid value provided for format: {format}. Support: 'table', 'json'")
    if sort_by not in _ORDERS:
        raise AssertionError(f"Invalid value provided for sort_by: {sort_by}. Support: {', '.join(_ORDERS)}")
    profiles = _profiler.complete()
    sections: dict[str, _Tables] = {"Time": _of_values(_profiler.records, "X", 1e-6)}
    if kernels := _kernel_rows(profiles):
        sections["Time"]["kernel"] = kernels
    if counters := _of_values(_profiler.records, "C", 1):
        sections["Counter"] = counters
    if _profiler.wants("memory") and (memory := _memory_rows(profiles)):
        sections["Memory"] = {"compiled code": memory}
    if reset:
        _profiler.forget()
    for tables in sections.values():
        for category, rows in tables.items():
            by = sort_by.capitalize()
            tables[category] = dict(sorted(rows.items(), key=lambda row: row[1][by], reverse=not ascending))
    if format == "json":
        return json.dumps({**sections, "Unit": {name: _UNITS[name] for name in sections}}, indent=4)
    lines = ["", "Profile Statistics:"]
    for section, tables in sections.items():
        titles = ("Total Count", *(title.format(_UNITS[section]) for title in _TITLES[section].values()))
        for category, table in tables.items():
            lines += [category, "================="]
            lines.append(f"{'Name':<32}" + "".join(f"{title:>17}" for title in titles))
            lines.append(f"{'----':<32}" + "".join(f"{'-' * len(title):>17}" for title in titles))
            for name, row in table.items():
                values = (row[key] for key in _TITLES[section])
                lines.append(f"{name:<32}{int(row['Count']):>17}" + "".join(f"{v:>17.4f}" for v in values))
            lines.append("")
    return "\n".join(lines) + "\n"


_Tables = dict[str, dict[str, dict[str, float]]]
"""Category: name: {"Count": …, "Total": …, "Min": …, "Max": …, "Avg": …}."""
_UNITS = {"Time": "ms", "Counter": "", "Memory": "kB"}
_TITLES = {
    "Time": {"Total": "Time ({})", "Min": "Min Time ({})", "Max": "Max Time ({})", "Avg": "Avg Time ({})"},
    "Counter": {"Min": "Min", "Max": "Max", "Avg": "Avg"},
    "Memory": {"Min": "Min Use ({})", "Max": "Max Use ({})", "Avg": "Avg Use ({})"},
}
"""The columns of each section."""


def _of_values(records: Sequence[_Record], phase: str, scale: float) -> _Tables:
    """Statistics of the values of a phase's records, each times `scale`."""
    values: dict[str, dict[str, list[float]]] = {}
    for r in records:
        if r.phase == phase:
            values.setdefault(r.category, {}).setdefault(r.name, []).append(r.value * scale)
    return {
        category: {
            name: {"Count": len(v), "Total": sum(v), "Min": min(v), "Max": max(v), "Avg": sum(v) / len(v)}
            for name, v in names.items()
        }
        for category, names in sorted(values.items())
    }


def _memory_rows(profiles: Sequence[Recording]) -> dict[str, dict[str, float]]:
    """What the programs that were called need, in kB."""
    rows: dict[str, dict[str, float]] = {}
    for program in (p for profile in profiles for p in profile.programs if p.part != "packing"):
        for what in ("parameters", "packed", "arena"):
            kilobytes = getattr(program.memory, what) / 1000
            row = rows.setdefault(
                f"{program.name}: {what}",
                {"Count": 0, "Total": 0, "Min": kilobytes, "Max": kilobytes},
            )
            row["Count"] += len(program.calls)
            row["Total"] += len(program.calls) * kilobytes
            row["Min"], row["Max"] = min(row["Min"], kilobytes), max(row["Max"], kilobytes)
    for row in rows.values():
        row["Avg"] = row["Total"] / max(row["Count"], 1)
    return rows


def _kernel_records(profile: Recording) -> Iterator[_Record]:
    """The kernels of those calls whose events were kept."""
    for program in profile.programs:
        for line in program.timeline:
            for e in line:
                name = "wait" if e.kernel is None else _kernel_name(program.kernels[e.kernel])
                start = int((profile._begin + e.begin) * 1e9)
                yield _Record(name, "kernel", "X", start, int((e.end - e.begin) * 1e9), e.thread)


def _kernel_name(kernel: Kernel) -> str:
    return f"{kernel.layer} ({kernel.kind})"


def _kernel_rows(profiles: Sequence[Recording]) -> dict[str, dict[str, float]]:
    """Statistics of kernels, in milliseconds, as means over the threads of a call; of the latest calls."""
    rows: dict[str, dict[str, float]] = {}
    for program in (p for profile in profiles for p in profile.programs):
        calls = len(program.calls)
        for k in program.outer:
            times = 1e3 * k.samples[0]
            mean = float(times.mean())
            new = {
                "Count": calls * k.times,
                "Total": calls * mean,
                "Min": float(times.min()),
                "Max": float(times.max()),
                "Avg": mean,
            }
            row = rows.setdefault(_kernel_name(k), new)
            if row is not new:
                row["Count"] += new["Count"]
                row["Total"] += new["Total"]
                row["Min"], row["Max"] = min(row["Min"], new["Min"]), max(row["Max"], new["Max"])
                row["Avg"] = row["Total"] / row["Count"]
    return rows


class Domain:
    """A category of events."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def new_task(self, name: str) -> Task:
        return Task(self, name)

    def new_frame(self, name: str) -> Frame:
        return Frame(self, name)

    def new_counter(self, name: str, value: int | None = None) -> Counter:
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        return Marker(self, name)


class _Duration:
    """What a program times itself, between `start` and `stop`."""

    def __init__(self, category: str, name: str) -> None:
        self.name = name
        self._category = category
        self._start: int | None = None

    def __str__(self) -> str:
        return self.name

    def start(self) -> None:
        self._start = time.perf_counter_ns()

    def stop(self) -> None:
        if self._start is not None and _profiler.active:
            _profiler.note(self.name, self._category, "X", self._start, time.perf_counter_ns() - self._start)
        self._start = None


class Task(_Duration):
    """A part of the program that may run often; its times are added up."""

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(domain.name, name)


class Frame(_Duration):
    """One of many equal rounds of a program."""

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(f"{domain.name},frame", name)


class Scope:
    """In a `with`, puts `name` in front of the names of this thread's operators and compiled calls, after what the
    scopes around it put there. Kernels keep the names of their layers.

    >>> with mx.profiler.Scope("encoder:"):
    ...     y = mx.nd.exp(mx.nd.ones(2))
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Scope:
        self._outer = getattr(_profiler.scopes, "name", "")
        _profiler.scopes.name = self._outer + self.name
        return self

    def __exit__(self, *exception: Any) -> None:
        _profiler.scopes.name = self._outer


scope = Scope


class Event(_Duration):
    """A duration of no domain."""

    def __init__(self, name: str) -> None:
        super().__init__("event", name)


class Counter:
    """A whole number that changes."""

    def __init__(self, domain: Domain, name: str, value: int | None = None) -> None:
        self.name = name
        self._category = domain.name
        self._value = 0
        if value is not None:
            self.set_value(value)

    def __str__(self) -> str:
        return self.name

    def set_value(self, value: int) -> None:
        self._value = int(value)
        if _profiler.active:
            _profiler.note(self.name, self._category, "C", time.perf_counter_ns(), self._value)

    def increment(self, delta: int = 1) -> None:
        self.set_value(self._value + int(delta))

    def decrement(self, delta: int = 1) -> None:
        self.set_value(self._value - int(delta))

    def __iadd__(self, delta: int) -> Counter:
        self.increment(delta)
        return self

    def __isub__(self, delta: int) -> Counter:
        self.decrement(delta)
        return self


class Marker:
    """An instant."""

    def __init__(self, domain: Domain, name: str) -> None:
        self.name = name
        self.domain = domain

    def mark(self, scope: str = "process") -> None:
        if _profiler.active:
            _profiler.note(self.name, f"{self.domain},instant_marker", "i", time.perf_counter_ns(), 0)


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"profiler.{old}() is deprecated. Please use profiler.{new}() instead", stacklevel=3)


def profiler_set_config(mode: str = "symbolic", filename: str = "profile.json") -> None:
    """Deprecated: `set_config`."""
    _deprecated("profiler_set_config", "set_config")
    set_config(**{f"profile_{mode}": True, "filename": filename})


def profiler_set_state(state: str = "stop") -> None:
    """Deprecated: `set_state`."""
    _deprecated("profiler_set_state", "set_state")
    set_state(state)


def dump_profile() -> None:
    """Deprecated: `dump`."""
    _deprecated("dump_profile", "dump")
    dump(True)


_mxnet_names.explain(__name__)
