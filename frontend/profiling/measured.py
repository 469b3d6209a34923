"""What a profile is: plain data, in seconds and bytes.

A `Profile` has a `Program` for each compiled graph that ran (a call, or the forward or backward half of a recorded
one), a program has a `Kernel` for each of its kernels in the order of the call, and `layers` adds these up by block
path. Times are means over a program's calls. A thread is, at any moment of a call, in a kernel, waiting for the others
at a barrier, or on its way in or out; so the mean over the threads of a kernel's time and of the waiting behind it is
its share of the call, and the shares add up to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gluonjit.ir.graph import Graph, Op
    from gluonjit.runtime.executable import Source


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
    busy: float
    """Seconds of a call, as a mean over its threads."""
    wait: float
    """Seconds of a call that a thread then waits for the others, as a mean over its threads."""
    seconds: Sequence[float]
    """`busy` of each thread, in the calls in which it had a part."""
    waits: Sequence[float]
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

    @property
    def share(self) -> float:
        """Seconds of a call, waiting included."""
        return self.busy + self.wait

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
    """Their numbers."""
    share: float
    wait: float
    flops: float
    nbytes: float
    estimate: float

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
    """Those among them of which only packed copies are read (`hybridize(static_alloc=True)` can free them)."""
    packed: int
    """What is prepared from parameters."""
    constants: int
    inputs: int
    """Other arrays that it is given, such as arguments."""
    results: int
    arena: int
    scratch: int
    """Of all threads."""
    tensors: list[Tensor] = field(default_factory=list)
    """What lies in the arena, in the order in which it gets there."""


class Event(NamedTuple):
    """A stretch of a thread's time in one call."""

    thread: int
    kernel: int | None
    """None: waiting for the other threads."""
    begin: float
    end: float
    """Seconds since the profile began."""


class Compiled(NamedTuple):
    """What a program was compiled from, and to."""

    source: Source
    graph: Graph
    """Behind the passes, with the sizes of the calls in place of open dimensions."""
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
    """In how many of the calls each thread had a part. A call that finds the machine busy runs on one thread."""
    calls: list[tuple[float, float]]
    """When native code was entered and left, in seconds since the profile began."""
    shares: tuple[float, ...]
    """How long each thread was at work in those calls, waiting at barriers included; the rest it spent on its way."""
    kernels: list[Kernel]
    memory: Memory
    timeline: list[list[Event]] = field(default_factory=list, repr=False)
    """Of the last calls; kernels inside of loops have no events of their own."""
    compiled: Compiled | None = field(default=None, repr=False)
    """None for 'packing'."""

    @property
    def threads(self) -> int:
        """The most that a call had."""
        return len(self.thread_calls)

    @property
    def usual_threads(self) -> int:
        """How many a call has, as a mean."""
        return round(sum(self.thread_calls) / max(len(self.calls), 1))

    @property
    def seconds(self) -> float:
        """Of a call, as a mean."""
        return sum(end - begin for begin, end in self.calls) / len(self.calls)

    @property
    def total(self) -> float:
        """Seconds of all calls."""
        return sum(end - begin for begin, end in self.calls)

    def percentile(self, part: float) -> float:
        """The seconds that this part of the calls, 0 to 1, do not exceed."""
        times = sorted(end - begin for begin, end in self.calls)
        return times[min(len(times) - 1, int(part * len(times)))]

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
            sums = (sum(getattr(k, name) for k in of) for name in ("share", "wait", "flops", "nbytes", "estimate"))
            found.append(Layer(path, main.file, main.line, tuple(k.number for k in of), *sums))
        return sorted(found, key=lambda layer: -layer.share)

    @property
    def kernel_seconds(self) -> float:
        """Of a call, in kernels, as a mean over the threads."""
        return sum(k.busy for k in self.outer)

    @property
    def wait_seconds(self) -> float:
        """Of a call, waiting at barriers, as a mean over the threads."""
        return sum(k.wait for k in self.outer)


class Stage(NamedTuple):
    """A part of compiling."""

    name: str
    """`tracing`, `pass fuse`, `code generation`, `LLVM`, `loading`, `cache, reading`, `packing parameters` …"""
    begin: float
    """Seconds since the profile began."""
    seconds: float
    thread: int
    """Which of the threads that compile, by number."""


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
    laps: list[tuple[float, float]] = field(default_factory=list)
    """What the program has marked with `lap()`: begin and end."""
    processor: str = ""

    def compile_seconds(self) -> dict[str, float]:
        """Seconds by the name of the stage."""
        sums: dict[str, float] = {}
        for stage in self.compiling:
            sums[stage.name] = sums.get(stage.name, 0.0) + stage.seconds
        return sums

    def to_json(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts; `layers` and mean times included, timelines and graphs left out."""
        programs, left_out = [], ("timeline", "compiled")
        for p in self.programs:
            words = {f.name: getattr(p, f.name) for f in dataclasses.fields(p) if f.name not in left_out}
            words["memory"] = dataclasses.asdict(p.memory)
            words["kernels"] = [{**dataclasses.asdict(k), "share": k.share} for k in p.kernels]
            words["layers"] = [dataclasses.asdict(layer) for layer in p.layers]
            words |= {"seconds": p.seconds, "kernel_seconds": p.kernel_seconds, "wait_seconds": p.wait_seconds}
            words["percentiles"] = {str(n): p.percentile(n / 100) for n in (50, 90, 99)}
            programs.append(words)
        return {
            "seconds": self.seconds,
            "processor": self.processor,
            "peaks": {str(n): {"flops": f, "bandwidth": b} for n, (f, b) in self.peaks.items()},
            "laps": self.laps,
            "compiling": [stage._asdict() for stage in self.compiling],
            "programs": programs,
        }
