"""What a profile is: plain data, in seconds and bytes.

A `Profile` has a `Program` for each compiled graph that ran (a call, or the forward or backward half of a recorded
one), a program has a `Kernel` for each of its kernels in the order of the call, and `layers` adds these up by block
path. At any moment of a call, a thread is in a kernel, waiting for the others at a barrier, or on its way in or out. So
the mean over the threads of a kernel's time and of the waiting after it is its share of the call.

Every time is a median over the latest calls: the call's, each kernel's and each layer's. What else the machine does
makes some calls slower, one kernel in this call and another in that; a mean would count all of it. The price is that
medians need not add up: what is missing from the call's is what its kernels lost now and then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gluonjit.common.lazy import cached_property
from gluonjit.profiling.advice import advice
from gluonjit.runtime.machine_use import MachineUse

if TYPE_CHECKING:
    from gluonjit.ir.graph import Graph, Op
    from gluonjit.runtime.executable import CodeSource


def percentile(times: Sequence[float], part: float) -> float:
    """What this part of the times, 0 to 1, does not exceed."""
    return sorted(times)[min(len(times) - 1, int(part * len(times)))]


@dataclass
class Kernel:
    """One kernel's place in a program."""

    number: int
    """Its position in `Program.kernels`."""
    symbol: str
    """The name of its function in LLVM IR and assembly."""
    kind: str
    """Which kernel: conv, matmul, loops …"""
    what: str
    """What it computes: `3×3, 64 -> 64 @56×56`."""
    why: str
    """Why this kernel was chosen."""
    layer: str
    """The block path of its main part, `net/features/stage1/0/conv2`; the graph's name if it has none."""
    layers: tuple[str, ...]
    """The block paths of all its parts, the main one first."""
    file: str
    line: int
    """The user's line of its main part; '' and 0 if unknown."""
    seconds: Sequence[float]
    """Seconds of a call at work, by thread, in the calls in which it had a part."""
    waits: Sequence[float]
    """Seconds of a call in which the thread then waits for the others."""
    samples: np.ndarray = field(repr=False)
    """[2, calls]: seconds at work and seconds of waiting in each of the latest calls, as means over its threads."""
    times: float
    """How often it runs in a call: more than once in a loop."""
    flops: float
    """Floating-point operations in a call, by definition; 2 for a multiply-add."""
    nbytes: float
    """Operands and results in a call, each counted once."""
    estimate: float
    """Seconds that the cost model expects in a call, on one thread."""
    inside: int | None = None
    """The number of the loop or branch that it is a part of. Those times are within the loop's."""
    weights: float = 0.0
    """Bytes of those operands that are parameters, or were prepared from them: all samples of a batch share them."""
    rival: float = 0.0
    """Seconds that the fastest other way to compute it is expected to take, like `estimate`; 0: there is none."""

    @cached_property
    def busy(self) -> float:
        """Seconds of a call at work."""
        return float(np.median(self.samples[0]))

    @cached_property
    def wait(self) -> float:
        """Seconds of a call that a thread waits for the others after it."""
        return float(np.median(self.samples[1]))

    @cached_property
    def share(self) -> float:
        """Seconds of a call, waiting included."""
        return float(np.median(self.samples.sum(axis=0)))

    @property
    def where(self) -> str:
        """`file:line`, or ''."""
        return f"{self.file}:{self.line}" if self.file else ""


@dataclass
class Layer:
    """The kernels of one layer, added up."""

    path: str
    file: str
    line: int
    kernels: tuple[int, ...]
    """The numbers of the layer's kernels."""
    share: float
    wait: float
    flops: float
    nbytes: float
    estimate: float
    weights: float

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.file else ""


@dataclass
class Tensor:
    """A piece of a program's arena."""

    name: str
    layer: str
    offset: int
    nbytes: int
    first: int
    last: int
    """The numbers of the kernels that write it first and use it last. (A view may be between them.)"""


@dataclass
class Memory:
    """Bytes that a program needs."""

    parameters: int
    """Arrays that change rarely, which the program is given."""
    unread: int
    """The ones among them of which only packed copies are read (`hybridize(static_alloc=True)` can free them)."""
    packed: int
    """What is prepared from parameters."""
    constants: int
    inputs: int
    """Other arrays that it is given, such as arguments."""
    results: int
    arena: int
    scratch: int
    """The workspaces of all threads."""
    tensors: list[Tensor] = field(default_factory=list)
    """What lies in the arena, in the order in which it gets there."""


class StepMemory(NamedTuple):
    """Bytes that a step of training needs at its peak, by what they are for."""

    given: int
    """Parameters, data and labels."""
    saved: int
    """Results of the forward halves: what is saved for the gradient is among them."""
    arena: int
    """The largest arena, with the threads' workspaces: all programs use one in turn."""
    gradients: int
    states: int | None
    """Of the optimizer; None if no step of one was measured."""

    @property
    def peak(self) -> int:
        return sum(filter(None, self))


class Event(NamedTuple):
    """A stretch of a thread's time in one call."""

    thread: int
    kernel: int | None
    """None: waiting for the other threads."""
    begin: float
    end: float
    """Seconds since the profile began."""


class Compilation(NamedTuple):
    """What a program was compiled from, and to."""

    source: CodeSource
    graph: Graph
    """The graph after the passes, with the sizes of the calls in place of open dimensions."""
    ops: tuple[Op, ...]
    """The op in `graph` of each of the program's kernels; that of a loop's kernel is in the loop's regions."""


@dataclass
class Program:
    """One compiled graph and its measured calls, with arrays of the same sizes."""

    name: str
    part: str
    """'call', or which half of a recorded call: 'forward', 'backward'. 'packing': of what is prepared from parameters,
    each time that they change; its kernels are the components, and each of its calls is of one of them."""
    inputs: tuple[str, ...]
    """The types of what it is given, parameters left out."""
    thread_calls: tuple[int, ...]
    """The number of calls in which each thread had a part. A call that finds the machine busy runs on one thread."""
    calls: list[tuple[float, float]]
    """When native code was entered and left, in seconds since the profile began."""
    shares: tuple[float, ...]
    """How long each thread was at work in a call, waiting at barriers included; the rest it spent on its way."""
    kernels: list[Kernel]
    memory: Memory
    timeline: list[list[Event]] = field(default_factory=list, repr=False)
    """The events of the last calls; kernels inside of loops have no events of their own."""
    typical: list[Event] = field(default_factory=list, repr=False)
    """The events of the call that took the median time, among the latest ones with as many threads as most."""
    compiled: Compilation | None = field(default=None, repr=False)
    """None for 'packing'."""

    @property
    def threads(self) -> int:
        """The most threads that a call had."""
        return len(self.thread_calls)

    @property
    def usual_threads(self) -> int:
        """How many threads a call has, on average."""
        return round(sum(self.thread_calls) / max(len(self.calls), 1))

    @property
    def seconds(self) -> float:
        """Time of a call. For packing, of all components together."""
        return self.kernel_seconds if self.part == "packing" else self.percentile(0.5)

    @property
    def total(self) -> float:
        """Seconds of all calls."""
        return sum(end - begin for begin, end in self.calls)

    def percentile(self, part: float) -> float:
        """The seconds that this part of the calls, 0 to 1, do not exceed."""
        return percentile([end - begin for begin, end in self.calls], part)

    @property
    def outer(self) -> Iterator[Kernel]:
        """The kernels that are not inside of others."""
        return (k for k in self.kernels if k.inside is None)

    @property
    def layers(self) -> list[Layer]:
        """The kernels by block path, the slowest layer first. What is in a loop counts as the loop."""
        groups: dict[str, list[Kernel]] = {}
        for k in self.outer:
            groups.setdefault(k.layer, []).append(k)
        found = []
        for path, of in groups.items():
            main = max(of, key=lambda k: k.share)
            work, wait = np.sum([k.samples for k in of], axis=0)
            times = float(np.median(work + wait)), float(np.median(wait))
            sums = (sum(getattr(k, name) for k in of) for name in ("flops", "nbytes", "estimate", "weights"))
            found.append(Layer(path, main.file, main.line, tuple(k.number for k in of), *times, *sums))
        return sorted(found, key=lambda layer: -layer.share)

    @property
    def kernel_seconds(self) -> float:
        """Time of a call in kernels, as a mean over the threads."""
        return self._median(0)

    @property
    def wait_seconds(self) -> float:
        """Time of a call waiting at barriers, as a mean over the threads."""
        return self._median(1)

    def _median(self, what: int) -> float:
        """The median of the sums over all kernels of these samples."""
        return float(np.median(sum(k.samples[what] for k in self.outer))) if self.kernels else 0.0


class Stage(NamedTuple):
    """A part of compiling."""

    name: str
    """`tracing`, `pass fuse`, `code generation`, `LLVM`, `loading`, `cache, reading`, `packing parameters` …"""
    begin: float
    """Seconds since the profile began."""
    seconds: float
    thread: int
    """Which of the threads that compile, by number."""


class Lap(NamedTuple):
    """What the program has marked with `lap()`."""

    begin: float
    end: float
    cpu: float
    """Seconds of CPU time, of all threads of the process."""


class Rounds(NamedTuple):
    """The laps of a profile, in seconds."""

    number: int
    seconds: float
    """The median."""
    cpu: float
    """The median of their CPU time, of all threads."""
    ninety: float
    """What 90 % of them do not exceed."""
    ninety_nine: float


@dataclass
class Profile:
    """All that was measured between two moments."""

    seconds: float = 0.0
    """How long it was recorded."""
    programs: list[Program] = field(default_factory=list)
    compiling: list[Stage] = field(default_factory=list)
    """Stages may overlap: LLVM works on several threads, while code is still being generated."""
    peaks: dict[int, tuple[float, float]] = field(default_factory=dict)
    """(FLOP/s, bytes/s) that this machine reaches at most, by number of threads."""
    laps: list[Lap] = field(default_factory=list)
    processor: str = ""
    use: MachineUse | None = None
    """What the machine did meanwhile; None where it does not tell."""

    @property
    def threads(self) -> int:
        """The most threads that a call had."""
        return max((p.threads for p in self.programs), default=1)

    @property
    def busy(self) -> bool:
        """Whether other programs took cores that the calls would have used, so that times are too long."""
        return self.use is not None and self.use.crowded(self.threads)

    @property
    def rounds(self) -> Rounds | None:
        """None without laps."""
        if not self.laps:
            return None
        times = [lap.end - lap.begin for lap in self.laps]
        median, ninety, ninety_nine = (percentile(times, part) for part in (0.5, 0.9, 0.99))
        return Rounds(len(times), median, percentile([lap.cpu for lap in self.laps], 0.5), ninety, ninety_nine)

    @property
    def step_memory(self) -> StepMemory | None:
        """What a step of training needs at its peak; None if none was measured. Of programs for several sizes, the
        largest one counts."""
        largest: dict[tuple[str, str], Memory] = {}
        for p in self.programs:
            m = largest.setdefault((p.part, p.name), p.memory)
            if p.memory.arena + p.memory.results > m.arena + m.results:
                largest[p.part, p.name] = p.memory
        halves = {half: [m for (part, _), m in largest.items() if part == half] for half in ("forward", "backward")}
        if not all(halves.values()):
            return None
        # An update is given weights, gradients and states, and writes weights and states over the old ones.
        updates = [p.memory for p in self.programs if p.compiled and p.compiled.graph.attrs.get("in_place")]
        states = [max(2 * m.results - m.inputs, 0) for m in updates]
        return StepMemory(
            sum(m.parameters + m.inputs for m in halves["forward"]),
            sum(m.results for m in halves["forward"]),
            max(m.arena + m.scratch for m in largest.values()),
            sum(m.results for m in halves["backward"]),
            max(states) if states else None,
        )

    def compile_seconds(self) -> dict[str, float]:
        """Seconds by the name of the stage."""
        sums: dict[str, float] = {}
        for stage in self.compiling:
            sums[stage.name] = sums.get(stage.name, 0.0) + stage.seconds
        return sums

    def to_json(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts; `layers` and mean times included, timelines and graphs left out."""
        programs, left_out = [], ("timeline", "typical", "compiled")
        for p in self.programs:
            words = {f.name: getattr(p, f.name) for f in dataclasses.fields(p) if f.name not in left_out}
            words["memory"] = dataclasses.asdict(p.memory)
            words["kernels"] = [_kernel(k) for k in p.kernels]
            peaks = self.peaks.get(p.usual_threads, (0.0, 0.0))
            words["layers"] = [
                {**dataclasses.asdict(layer), "advice": advice(layer, p, peaks, self.busy)} for layer in p.layers
            ]
            words |= {
                "seconds": p.seconds,
                "total": p.total,
                "kernel_seconds": p.kernel_seconds,
                "wait_seconds": p.wait_seconds,
            }
            words["percentiles"] = {str(n): p.percentile(n / 100) for n in (50, 90, 99)}
            programs.append(words)
        return {
            "seconds": self.seconds,
            "processor": self.processor,
            "peaks": {str(n): {"flops": f, "bandwidth": b} for n, (f, b) in self.peaks.items()},
            "laps": self.laps,
            "rounds": None if self.rounds is None else self.rounds._asdict(),
            "use": None if self.use is None else self.use._asdict(),
            "busy": self.busy,
            "step_memory": None if (m := self.step_memory) is None else {**m._asdict(), "peak": m.peak},
            "compiling": [stage._asdict() for stage in self.compiling],
            "programs": programs,
        }


def _kernel(k: Kernel) -> dict[str, Any]:
    words = {f.name: getattr(k, f.name) for f in dataclasses.fields(k) if f.name != "samples"}
    return words | {name: getattr(k, name) for name in ("busy", "wait", "share")}
