"""Calls of compiled code, measured from inside: how long each kernel takes on each thread, and how long threads wait.

While a `Timer` is on, what a call runs is another entry into the same kernels, compiled when the first call comes by:
one that takes time stamps between them (`codegen/stamps.py`). Otherwise there is no trace of this.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
import weakref
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gluonjit.codegen import llvm
from gluonjit.codegen.intrinsics import time_stamp
from gluonjit.codegen.llvm import Loaded, Module
from gluonjit.codegen.program import lower_program
from gluonjit.codegen.stamps import Site, Stamps
from gluonjit.codegen.target import host as host_target
from gluonjit.ir.aside import aside
from gluonjit.ir.graph import Graph
from gluonjit.ir.machine import Machine
from gluonjit.ir.stages import muted
from gluonjit.ir.types import IRError
from gluonjit.passes import run_passes
from gluonjit.runtime import executable, host, mode
from gluonjit.runtime.arenas import aligned_empty
from gluonjit.runtime.collector import without_collector
from gluonjit.runtime.executable import MEASURING, NativeFunction, Source
from gluonjit.runtime.kernel_library import KernelLibrary

_KEPT = 1 << 25
"""Bytes of time stamps of single calls that a program's record keeps, those of the latest ones."""


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

    def __init__(self, function: NativeFunction, source: Source) -> None:
        self.graph: Graph
        """The planned graph, to whose ops the sites refer."""
        self.sites: Sequence[Site]
        self.reused: int
        """How many kernels are the program's own; others were compiled again, from the same text."""
        aside(lambda: self._compile(function, source))

    def _compile(self, function: NativeFunction, source: Source) -> None:
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
        self.words = stamps.words
        self.reused = len(kernels.addresses)
        if program.interface.main.size != function.layout.size:
            raise IRError(
                f"the passes have made another program of @{planned.name} this time; please report this fault"
            )


_loading = threading.Lock()
"""Held while names stand for the kernels of one program."""


@dataclass
class Record:
    """The measured calls of one program with arrays of the same sizes, in time stamps."""

    function: NativeFunction
    program: TimedProgram
    spans: list[tuple[int, int]] = field(default_factory=list)
    """When each call of native code began and ended, in nanoseconds of `perf_counter_ns`."""
    calls: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """[threads]: in how many calls each thread had a part. The team may run some on one thread."""
    sums: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 2), np.int64))
    """Of all calls, [threads, sites, 2]: how long, and how often."""
    shares: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """[threads]: how long the threads were in it."""
    means: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """[sites]: how long, as a mean over the threads of each call, of all calls."""
    latest: deque[tuple[int, int, np.ndarray]] = field(default_factory=deque)
    """Of the last calls: begin, end, and the areas [threads, words]."""

    def add(self, begin: int, end: int, areas: np.ndarray) -> None:
        """Notes a call; `areas` is [threads, words], 0 for threads that had no part in it."""
        areas = areas[areas[:, 0] != 0]
        self.spans.append((begin, end))
        self.latest.append((begin, end, areas))
        if len(self.latest) > max(1, _KEPT // areas.nbytes):
            self.latest.popleft()
        sites = self.program.sites
        pairs = areas[:, 2 : 2 + 2 * len(sites)].reshape(len(areas), len(sites), 2)
        spent = pairs.copy()
        outer = np.array([s.inside is None for s in sites], bool)
        spent[:, outer, 0] = pairs[:, outer, 1] - pairs[:, outer, 0]
        spent[:, outer, 1] = pairs[:, outer, 1] != 0
        shares = areas[:, 1] - areas[:, 0]
        count = len(spent)
        if len(self.sums) < count:
            more = count - len(self.sums)
            fresh = np.zeros((more, len(sites), 2), np.int64)
            self.sums = np.concatenate([self.sums, fresh]) if len(self.sums) else fresh
            self.shares = np.concatenate([self.shares, np.zeros(more, np.int64)])
            self.calls = np.concatenate([self.calls, np.zeros(more, np.int64)])
            self.means = self.means if len(self.means) else np.zeros(len(sites))
        self.sums[:count] += spent
        self.shares[:count] += shares
        self.calls[:count] += 1
        self.means += spent[:, :, 0].mean(axis=0)


class Timer:
    """Measures all calls of compiled code while it is on. One at a time in a process; IRError for a second one."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.untimed: list[tuple[NativeFunction, int, int]] = []
        """Calls of what is not measured inside, such as the packing of weights: when they began and ended."""
        self._known: dict[tuple[int, ...], Record] = {}
        self._lock = threading.Lock()

    @functools.cached_property
    def clock(self) -> Clock:
        return Clock()

    def __enter__(self) -> Timer:
        if executable.watcher is not None:
            raise IRError("calls are being measured already; one profile can be recorded at a time")
        executable.watcher = self._run
        mode.change(1)  # so that calls do not go from Python straight to native code
        return self

    def __exit__(self, *error: object) -> None:
        mode.change(-1)
        executable.watcher = None

    def forget(self) -> None:
        """Drops what was measured so far."""
        with self._lock:
            self.records, self.untimed, self._known = [], [], {}

    def _run(self, function: NativeFunction, table: np.ndarray, nthreads: int) -> bool:
        if function.source is None or function.source.tuned:  # those kernels were chosen by measuring them
            begin = time.perf_counter_ns()
            function.enter(function.address, table, nthreads)
            self.untimed.append((function, begin, time.perf_counter_ns()))
            return True
        record = self._record(function, table)
        program = record.program
        areas = aligned_empty(8 * program.words * nthreads).view(np.int64).reshape(nthreads, program.words)
        areas[:] = 0
        table[-MEASURING:] = areas.ctypes.data, program.words
        begin = time.perf_counter_ns()
        function.enter(program.address, table, nthreads)
        end = time.perf_counter_ns()
        with self._lock:
            record.add(begin, end, areas)
        return True

    def _record(self, function: NativeFunction, table: np.ndarray) -> Record:
        assert function.source is not None
        sizes = table[function.layout.size_slots.start : function.layout.size_slots.stop]
        key = (id(function.source), *map(int, sizes))
        record = self._known.get(key)
        if record is None:
            program = timed_program(function)
            _ = self.clock  # which starts now
            with self._lock:
                record = self._known.setdefault(key, Record(function, program))
                if record not in self.records:
                    self.records.append(record)
        return record


_programs: weakref.WeakKeyDictionary[Loaded, TimedProgram] = weakref.WeakKeyDictionary()


def timed_program(function: NativeFunction) -> TimedProgram:
    """The measured variant of a function that has a source."""
    assert function.source is not None
    found = _programs.get(function.code)
    if found is None:
        found = TimedProgram(function, function.source)
        _programs[function.code] = found
    return found
