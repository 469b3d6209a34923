"""From time stamps to a `Program`: kernels with their layers and times, memory, timelines."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from gluonjit.codegen.target import host
from gluonjit.codegen.threads.stamps import Site
from gluonjit.ir.arena import tenants
from gluonjit.ir.cost import graph_nanoseconds
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.machine import Machine
from gluonjit.ir.sizes import with_sizes
from gluonjit.ir.work import bytes_moved, flops, origin, origins
from gluonjit.passes.choices import choice
from gluonjit.passes.explain import row
from gluonjit.profiling.measured import Compilation, Event, Kernel, Memory, Profile, Program, Tensor
from gluonjit.runtime.peaks import as_measured
from gluonjit.runtime.peaks import peaks as peaks_of
from gluonjit.runtime.timed import Clock, Record, Timer

__all__ = ["Timer", "complete"]


def complete(profile: Profile, timer: Timer, begin: float, timeline: int, peaks: bool) -> None:
    """Adds what the timer has measured since `begin`, in seconds of `perf_counter`."""
    profile.processor = host().cpu
    profile.programs = [_program(r, timer.clock, begin, timeline, peaks) for r in timer.records if r.latest]
    profile.programs += _packing(timer, begin, as_measured(host(), 1) if peaks else host())
    for n in sorted({p.usual_threads for p in profile.programs} if peaks else ()):
        found = peaks_of(n)
        profile.peaks[n] = found.flops, found.bandwidth


def _program(record: Record, clock: Clock, begin: float, timeline: int, peaks: bool) -> Program:
    """`peaks`: what is expected of its kernels is what they could reach at the rates of this machine."""
    function, program = record.function, record.program
    layout = function.layout
    sizes = {name: int(function.template[k]) for name, k in zip(layout.dims, layout.size_slots, strict=True)}
    graph = with_sizes(program.graph, sizes, 1) if sizes else program.graph
    twins = dict(_pairs(program.graph, graph))
    unit = clock.rate / 1e9
    spent = record.spent() * unit
    times = np.concatenate([spent, np.nanmean(spent, axis=1, keepdims=True)], axis=1)
    often = np.nanmean(record.often(), axis=0).max(axis=0)
    threads = round(sum(span.threads for span in record.spans) / max(len(record.spans), 1))
    machine = as_measured(host(), threads) if peaks else host()
    kernels, numbers = _kernels(program.sites, times.swapaxes(0, 1), often, twins, graph.name, machine)
    pairs = [(twins[s.op], n) for s, n in zip(program.sites, numbers) if s.op is not None and n is not None]
    order, ops = dict(pairs), {n: op for op, n in pairs}  # an op of a function is a kernel for each call of it
    part = next((half for half in ("forward", "backward") if graph.name.endswith(f"_{half}")), "call")
    params = {graph.inputs[k] for k in graph.attrs.get("params", ())}
    lasting = params.union(*[op.results for op in graph.ops if op.name == "prepare"])
    for n, op in ops.items():
        kernels[n].weights = float(sum(v.type.nbytes for v in op.operands if v in lasting))
    had_part = [sum(span.threads > t for span in record.spans) for t in range(max(s.threads for s in record.spans))]
    events = functools.partial(_events, sites=program.sites, numbers=numbers, clock=clock, begin=begin)
    return Program(
        graph.name,
        part,
        tuple(str(v.type) for v in graph.inputs if v not in params),
        tuple(had_part),
        [(span.begin / 1e9 - begin, span.end / 1e9 - begin) for span in record.spans],
        tuple(map(float, np.nanmedian(record.shares(), axis=0) * unit)),
        kernels,
        _memory(graph, layout.scratch * len(had_part), order),
        [events(areas) for areas in (list(record.latest)[-timeline:] if timeline > 0 else [])],
        events(_typical(record)),
        Compilation(function.source, graph, tuple(ops[n] for n in range(len(kernels)))) if function.source else None,
    )


def _typical(record: Record) -> np.ndarray:
    """The areas of the call that took the median time, among the latest ones with as many threads as most."""
    pairs = list(zip(record.spans[-len(record.latest) :], record.latest, strict=True))
    ((most, _),) = Counter(span.threads for span, _ in pairs).most_common(1)
    like = sorted((pair for pair in pairs if pair[0].threads == most), key=lambda pair: pair[0].end - pair[0].begin)
    return like[len(like) // 2][1]


def _packing(timer: Timer, begin: float, machine: Machine) -> list[Program]:
    """What was prepared from parameters meanwhile: a program for each graph, with a kernel for each component.
    `machine`: what they are expected to run on."""
    graphs = {id(r.function.source): r.program.graph for r in timer.records}
    calls: dict[int, dict[int, list[tuple[float, float]]]] = {}
    for function, start, end in timer.untimed:
        if function.prepare is not None and id(function.source) in graphs:
            spans = calls.setdefault(id(function.source), {}).setdefault(function.prepare, [])
            spans.append((start / 1e9 - begin, end / 1e9 - begin))
    found = []
    for key, of in calls.items():
        graph = graphs[key]
        prepares = [op for op in graph.ops if op.name == "prepare"]
        every = sorted(call for spans in of.values() for call in spans)
        kernels = []
        for number, (k, spans) in enumerate(sorted(of.items())):
            region, loc = prepares[k].regions[0], origin(prepares[k])
            layers = tuple(dict.fromkeys(place.block for place in origins(prepares[k]) if place.block)) or (graph.name,)
            seconds = np.array([end - start for start, end in spans])
            each = float(np.median(seconds))
            kernels.append(
                Kernel(
                    number,
                    f"prepare_{k}",
                    "prepare",
                    "packed: " + ", ".join(str(v.type) for v in prepares[k].results),
                    "it depends on parameters alone",
                    loc.block if loc is not None and loc.block else layers[0],
                    layers,
                    loc.file if loc is not None else "",
                    loc.line if loc is not None else 0,
                    (each,),
                    (0.0,),
                    np.array([[each], [0.0]]),
                    1.0,
                    float(sum(flops(op) for op in region.ops)),
                    float(sum(v.type.nbytes for v in (*region.inputs, *region.outputs))),
                    graph_nanoseconds(region, machine) / 1e9,
                )
            )
        memory = Memory(0, 0, sum(v.type.nbytes for op in prepares for v in op.results), 0, 0, 0, 0, 0)
        program = Program(graph.name, "packing", (), (len(every),), every, (), kernels, memory)
        found.append(dataclasses.replace(program, shares=(program.seconds,)))
    return found


def _pairs(graph: Graph, sized: Graph) -> Iterator[tuple[Op, Op]]:
    """The ops of a graph, each with its twin in the same graph with sizes; those of loops included."""
    for op, twin in zip(graph.ops, sized.ops, strict=True):
        yield op, twin
        if op.definition.level == "control":
            for region, other in zip(op.regions, twin.regions, strict=True):
                yield from _pairs(region, other)


def _kernels(
    sites: Sequence[Site],
    times: np.ndarray,
    often: np.ndarray,
    twins: Mapping[Op, Op],
    name: str,
    machine: Machine,
) -> tuple[list[Kernel], list[int | None]]:
    """(the kernels, and for each site the number of its kernel; None for barriers). `times` are the seconds of a call
    on each thread and, last, as a mean over the threads, [threads + 1, calls, sites], nan where a thread had no part in
    the call; `often`: how often a thread comes by in a call; `name` is the graph's; `machine`: what the kernels are
    expected to run on."""

    kernels: list[Kernel] = []
    numbers: list[int | None] = []
    known: dict[tuple[Op, int | None], int] = {}
    seconds: list[np.ndarray] = []
    waits: list[np.ndarray] = []
    for k, site in enumerate(sites):
        if site.op is None:
            numbers.append(None)
            continue
        inside = None if site.inside is None else numbers[site.inside]
        number = known.setdefault((site.op, inside), len(kernels))
        numbers.append(number)
        if number < len(kernels):  # the body of a loop that alternates between two functions
            seconds[number] += times[..., k]
            kernels[number].times += float(often[k])
            continue
        op = twins[site.op]
        text, loc, places = row(op, op, host()), origin(op), origins(op)
        if loc is None and site.inside is not None and (loop := sites[site.inside].op) is not None:
            loc, places = origin(loop), origins(loop)  # a step of an operator that is a loop as a whole
        layers = tuple(dict.fromkeys(place.block for place in places if place.block)) or (name,)
        main = loc.block if loc is not None and loc.block else layers[0]
        kernel = Kernel(
            number,
            site.kernel,
            text.kernel,
            text.what,
            text.why,
            main,
            layers,
            loc.file if loc is not None else "",
            loc.line if loc is not None else 0,
            (),
            (),
            np.zeros((2, times.shape[1])),
            float(often[k]),
            float(flops(op)),
            float(bytes_moved(op)),
            choice(op).nanoseconds(op, machine) / 1e9,
            inside,
            rival=min((a.microseconds for a in text.alternatives if not a.chosen), default=0.0) / 1e6,
        )
        kernels.append(kernel)
        seconds.append(times[..., k].copy())
        waits.append(np.zeros(times.shape[:2]))
    _add_waits(sites, times, numbers, kernels, seconds, waits)
    for kernel, spent, waited in zip(kernels, seconds, waits, strict=True):
        had_part = ~np.isnan(spent)
        kernel.seconds = tuple(float(np.median(s[part])) for s, part in zip(spent[:-1], had_part))
        kernel.waits = tuple(float(np.median(w[part])) for w, part in zip(waited[:-1], had_part))
        kernel.samples = np.stack([spent[-1], waited[-1]])
    _count_work(kernels)
    return kernels, numbers


def _add_waits(
    sites: Sequence[Site],
    times: np.ndarray,
    numbers: Sequence[int | None],
    kernels: Sequence[Kernel],
    seconds: Sequence[np.ndarray],
    waits: Sequence[np.ndarray],
) -> None:
    """Adds the time at each barrier to the waits of the kernel before it, and of the loops around it, whose own time it
    is not."""
    for k, site in enumerate(sites):
        if site.op is not None or site.after is None:
            continue
        before = numbers[site.after]
        assert before is not None
        waits[before] += times[..., k]
        outer = None if site.inside is None else numbers[site.inside]
        while outer is not None:  # the loop's time is also that of what is in it
            seconds[outer] -= times[..., k]
            if outer != before:
                waits[outer] += times[..., k]
            outer = kernels[outer].inside


def _count_work(kernels: Sequence[Kernel]) -> None:
    """The work of kernels in loops, by how often they ran, and of the loops as that of their kernels."""
    for kernel in kernels:
        if kernel.inside is not None:
            kernel.flops, kernel.nbytes, kernel.estimate = (
                kernel.times * n for n in (kernel.flops, kernel.nbytes, kernel.estimate)
            )
    for kernel in reversed(kernels):  # what is inside of others comes after them
        if parts := [k for k in kernels if k.inside == kernel.number]:
            # By the steps that were taken: a loop may end before its last one.
            kernel.flops, kernel.nbytes, kernel.estimate = (
                sum(getattr(k, name) for k in parts) for name in ("flops", "nbytes", "estimate")
            )


def _memory(graph: Graph, scratch: int, numbers: Mapping[Op, int]) -> Memory:

    params = [graph.inputs[k] for k in graph.attrs.get("params", ())]
    others = [v for v in graph.inputs if v not in set(params)]
    read = {v for op in graph.ops if op.name != "prepare" for v in op.operands} | set(graph.results)
    packed = [r for op in graph.ops if op.name == "prepare" for r in op.results]
    constants = [r for op in graph.ops if op.name == "constant" for r in op.results]

    def nbytes(values: Iterable[Value]) -> int:
        return sum(v.type.nbytes for v in values)

    order = [numbers.get(op) for op in graph.ops]

    def number(t: int) -> int:
        """The number of the last kernel up to op t."""
        return next((n for n in reversed(order[: t + 1]) if n is not None), 0)

    tensors = []
    for tenant in tenants(graph):
        loc = origin(tenant.op)
        name = tenant.value.name if tenant.value is not None else f"{tenant.op.results[0].name} (workspace)"
        first, last = number(tenant.first), number(tenant.last)
        layer = loc.block if loc is not None else ""
        tensors.append(Tensor(name, layer, int(tenant.offset), int(tenant.nbytes), first, last))
    return Memory(
        nbytes(params),
        nbytes(v for v in params if v not in read),
        nbytes(packed),
        nbytes(constants),
        nbytes(others),
        nbytes(graph.results),
        int(graph.attrs.get("arena", 0)),
        int(scratch),
        tensors,
    )


def _events(
    areas: np.ndarray, sites: Sequence[Site], numbers: Sequence[int | None], clock: Clock, begin: float
) -> list[Event]:
    """The events of one call, thread by thread, in the order of time."""
    found = []
    for thread, area in enumerate(areas):
        stamps = area[2 : 2 + 2 * len(sites)].reshape(len(sites), 2)
        seconds = clock.nanoseconds(stamps) / 1e9 - begin
        for k, site in enumerate(sites):
            if site.inside is None and stamps[k, 1]:
                found.append(Event(thread, numbers[k], float(seconds[k, 0]), float(seconds[k, 1])))
    return sorted(found, key=lambda event: (event.thread, event.begin))
