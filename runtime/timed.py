"""Calls of compiled code, measured from inside: how long each kernel takes on each thread, and how long threads wait.

While a `Timer` is on, what a call runs is another entry into the same kernels, compiled when the first call comes by:
one that takes time stamps between them (`codegen/threads/stamps.py`). Otherwise there is no trace of this.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gluonjit.codegen.interface import Layout
from gluonjit.codegen.program import lower_program
from gluonjit.codegen.target import host as host_target
from gluonjit.codegen.text import llvm
from gluonjit.codegen.text.intrinsics import time_stamp
from gluonjit.codegen.text.llvm import Loaded, Module
from gluonjit.codegen.threads.stamps import Site, Stamps
from gluonjit.common.aside import aside
from gluonjit.common.lazy import cached_property
from gluonjit.common.stages import muted
from gluonjit.ir.graph import Graph
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import IRError
from gluonjit.passes import run_passes
from gluonjit.runtime import executable, forks, host, threads
from gluonjit.runtime.arenas import aligned_empty
from gluonjit.runtime.collector import without_collector
from gluonjit.runtime.executable import MEASURING, CodeSource, NativeFunction
from gluonjit.runtime.kernel_library import KernelLibrary

_KEPT = 1 << 25
"""Bytes of time stamps that a program's record keeps, those of the latest calls."""


class Clock:
    """Converts time stamps to nanoseconds of `time.perf_counter_ns`."""

    _LEAST = 20_000_000
    """Nanoseconds between two looks at both clocks, for a rate that is right to one in 50,000."""

    def __init__(self) -> None:
        module = Module(host_target())
        f = module.function("stamp", (), "i64")
        f.ret(time_stamp(f))
        self._code = llvm.load(llvm.compile_module(module.text(), module.target))
        self._stamp = ctypes.CFUNCTYPE(ctypes.c_int64)(self._code.address("stamp"))
        self._first = self._both()
        self._rate: float | None = None

    def _both(self) -> tuple[int, int]:
        """(a time stamp, the nanoseconds then), as near to each other as they come."""
        looks = []
        for _ in range(9):
            begin = time.perf_counter_ns()
            stamp = self._stamp()
            end = time.perf_counter_ns()
            looks.append((end - begin, stamp, (begin + end) // 2))
        _, stamp, then = min(looks)
        return stamp, then

    @property
    def rate(self) -> float:
        """Nanoseconds per unit of time stamps."""
        if self._rate is None:
            wait = self._LEAST - (time.perf_counter_ns() - self._first[1])
            if wait > 0:
                time.sleep(wait / 1e9)
            stamp, then = self._both()
            self._rate = (then - self._first[1]) / max(stamp - self._first[0], 1)
        return self._rate

    def nanoseconds(self, stamps: np.ndarray) -> np.ndarray:
        """The times of time stamps."""
        return (stamps - self._first[0]) * self.rate + self._first[1]


class _Kernels:
    """The kernels of loaded code (`codegen.program.Library`)."""

    def __init__(self, code: Loaded, target: Machine) -> None:
        self._code = code
        self._names = KernelLibrary(target)
        self.addresses: dict[str, int] = {}

    def name(self, kind: str, key: Hashable) -> str:
        return self._names.name(kind, key)

    def find(self, name: str) -> bool:
        try:
            self.addresses[name] = self._code.address(name)
        except IRError:  # tuned, or compiled without the cache: the same text is compiled again
            return False
        return True

    def relies(self, name: str) -> bool:
        return False

    def note(self, name: str, relies: bool) -> None: ...


class TimedProgram:
    """The measured variant of a program, whose code must outlive it. Its table is the program's."""

    def __init__(self, function: NativeFunction, source: CodeSource) -> None:
        self.graph: Graph
        """The planned graph, to whose ops the sites refer."""
        self.sites: Sequence[Site]
        self.reused: int
        """How many kernels are the program's own; others were compiled again, from the same text."""
        aside(lambda: self._compile(function, source))

    def _compile(self, function: NativeFunction, source: CodeSource) -> None:
        with without_collector(), muted():
            planned = run_passes(source.graph, source.pipeline, target=source.target)
            stamps, kernels = Stamps(), _Kernels(function.code, source.target)
            program = lower_program(planned, source.target, Module(source.target), None, kernels, stamps)
        self.graph = program.graph or planned
        with _loading:
            symbols = {**host.functions(), **kernels.addresses}
            self.code = llvm.load(llvm.compile_module(program.text, source.target), symbols)
            self.address = self.code.address("main")
        self.sites = tuple(stamps.sites)
        self.outer = np.array([s.inside is None for s in self.sites], bool)
        self._words = stamps.words
        self.reused = len(kernels.addresses)
        mine, given = program.interface.main, function.layout
        if mine.size != given.size or _known(mine) != _known(given):
            raise IRError(
                f"the passes have made another program of @{planned.name} this time; please report this fault"
            )

    def areas(self, nthreads: int) -> np.ndarray:
        """Memory for the time stamps of a call: [threads, words]."""
        areas = aligned_empty(8 * self._words * nthreads).view(np.int64).reshape(nthreads, self._words)
        areas[:] = 0
        return areas


def _known(layout: Layout) -> list[Any]:
    """The types of inputs and results; of open ones, whose dimensions may have other names, all but the sizes."""
    return [(t.dtype, t.rank if layout.dims else t.shape) for t in (*layout.input_types, *layout.result_types)]


_loading = forks.renewed()
"""Held while names stand for the kernels of one program."""


class Span(NamedTuple):
    """A call of native code."""

    begin: int
    end: int
    """Begin and end in nanoseconds of `perf_counter_ns`."""
    threads: int
    """How many threads had a part in it: the first ones of the team, which may run a call on one thread."""


@dataclass
class Record:
    """The measured calls of one program with arrays of the same sizes, in time stamps."""

    function: NativeFunction
    program: TimedProgram
    spans: list[Span] = field(default_factory=list)
    latest: deque[np.ndarray] = field(default_factory=deque)
    """The areas [threads, words], in the last calls, of the threads that had a part."""

    def add(self, begin: int, end: int, areas: np.ndarray) -> None:
        """Notes a call; `areas` is [threads, words], 0 for threads that had no part in it."""
        threads = int(np.count_nonzero(areas[:, 0]))
        self.spans.append(Span(begin, end, threads))
        self.latest.append(areas[:threads])
        if len(self.latest) > max(1, _KEPT // areas.nbytes):
            self.latest.popleft()

    def spent(self) -> np.ndarray:
        """How long each thread was at each site in the latest calls, [calls, threads, sites]; nan where it had no part
        in the call."""
        outer = self.program.outer
        return self._gathered(lambda pairs: np.where(outer, pairs[..., 1] - pairs[..., 0], pairs[..., 0]))

    def often(self) -> np.ndarray:
        """How often each thread came by at each site, like `spent`."""
        outer = self.program.outer
        return self._gathered(lambda pairs: np.where(outer, pairs[..., 1] != 0, pairs[..., 1]))

    def shares(self) -> np.ndarray:
        """How long each thread was in the latest calls, [calls, threads]; nan where it had no part."""
        found = np.full((len(self.latest), max(map(len, self.latest))), np.nan)
        for row, areas in zip(found, self.latest, strict=True):
            row[: len(areas)] = areas[:, 1] - areas[:, 0]
        return found

    def _gathered(self, what: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """`what` of the two words of each site, for every thread of the latest calls."""
        sites = len(self.program.sites)
        found = np.full((len(self.latest), max(map(len, self.latest)), sites), np.nan)
        for call, areas in zip(found, self.latest, strict=True):
            call[: len(areas)] = what(areas[:, 2 : 2 + 2 * sites].reshape(len(areas), sites, 2))
        return found


class Timer:
    """Measures all calls of compiled code while it is on. One at a time in a process; IRError for a second one."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.untimed: list[tuple[NativeFunction, int, int]] = []
        """Calls of what is not measured inside, such as the packing of weights: when they began and ended, in
        nanoseconds of `perf_counter_ns`."""
        self._known: dict[tuple[int, ...], Record] = {}
        self._lock = forks.renewed()
        self.thread = threading.get_ident()
        """The thread that measures."""

    @cached_property
    def clock(self) -> Clock:
        return Clock()

    def __enter__(self) -> Timer:
        if executable.watcher is not None:
            raise IRError("calls are being measured already; one profile can be recorded at a time")
        executable.watcher = self
        threads.renew()
        return self

    def __exit__(self, *error: object) -> None:
        if executable.watcher is self:
            executable.watcher = None
            threads.renew()

    def forget(self) -> None:
        """Drops what was measured so far."""
        with self._lock:
            self.records, self.untimed, self._known = [], [], {}

    def run(self, function: NativeFunction, table: np.ndarray, nthreads: int) -> None:
        if not _is_measured(function):
            begin = time.perf_counter_ns()
            function.enter(function.address, table, nthreads)
            self.untimed.append((function, begin, time.perf_counter_ns()))
            return
        record = self._record(function, table)
        areas = record.program.areas(nthreads)
        table[-MEASURING:] = areas.ctypes.data, areas.shape[1]
        begin = time.perf_counter_ns()
        function.enter(record.program.address, table, nthreads)
        self.note(record, begin, time.perf_counter_ns(), areas)

    def entry(
        self, function: NativeFunction, table: np.ndarray, nthreads: int, fallback: Callable[..., Any]
    ) -> tuple[int, Callable[[Any], Any]] | None:
        if not _is_measured(function):
            return None
        record = self._record(function, table)
        areas = record.program.areas(nthreads)
        table[-MEASURING:] = areas.ctypes.data, areas.shape[1]
        record_of = functools.partial(self._record, function, table)
        return record.program.address, lambda fast: _Noted(fast, fallback, self, record_of, areas)

    def note(self, record: Record, begin: int, end: int, areas: np.ndarray) -> None:
        with self._lock:
            record.add(begin, end, areas)

    def _record(self, function: NativeFunction, table: np.ndarray) -> Record:
        assert function.source is not None
        sizes = table[function.layout.size_slots.start : function.layout.size_slots.stop]
        key = (id(function.source), *map(int, sizes))
        record = self._known.get(key)
        if record is None:
            program = timed_program(function)
            _ = self.clock  # which starts now
            with self._lock:
                record = self._known.get(key)
                if record is None:
                    record = Record(function, program)
                    self.records.append(record)  # first: a forked child may have nothing of what follows
                    self._known[key] = record
        return record


def _forget_others() -> None:
    """In a forked child: the thread that would stop measuring may not exist there."""
    watcher = executable.watcher
    if isinstance(watcher, Timer) and watcher.thread != threading.get_ident():
        executable.watcher = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_others)


def _is_measured(function: NativeFunction) -> bool:
    """Not if it only packs parameters, or its kernels were chosen by measuring them, so that passes choose others."""
    return function.source is not None and not function.source.tuned and function.prepare is None


class _Noted:
    """A callable that goes straight to native code, and notes the calls that do."""

    def __init__(
        self,
        fast: Any,
        fallback: Callable[..., Any],
        timer: Timer,
        record: Callable[[], Record],
        areas: np.ndarray,
    ) -> None:
        self.__self__ = fast.__self__
        self._fast, self._fallback, self._timer, self._record = fast, fallback, timer, record
        self._areas = areas
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        if executable.watcher is not self._timer:
            return self._fast(*args)
        if not self._lock.acquire(blocking=False):  # the areas are those of one call at a time
            return self._fallback(*args)
        try:
            self._areas[:] = 0
            begin = time.perf_counter_ns()
            result = self._fast(*args)
            end = time.perf_counter_ns()
            if self._areas[0, 0]:  # else the call took the other way, which has noted it
                self._timer.note(self._record(), begin, end, self._areas.copy())
            return result
        finally:
            self._lock.release()


_programs: weakref.WeakKeyDictionary[Loaded, TimedProgram] = weakref.WeakKeyDictionary()


def timed_program(function: NativeFunction) -> TimedProgram:
    """The measured variant of a function that has a source."""
    assert function.source is not None
    found = _programs.get(function.code)
    if found is None:
        found = TimedProgram(function, function.source)
        _programs[function.code] = found
    return found
