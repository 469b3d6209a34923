"""Compiles a graph that is not in the object cache: passes, code generation and, on request, tuning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from gluonjit.codegen.program import lower_program
from gluonjit.codegen.target import of_code
from gluonjit.codegen.text.compile_parts import Parts
from gluonjit.codegen.text.llvm import Function, Module, load
from gluonjit.common.stages import stage
from gluonjit.ir.annotations import ANNOTATIONS
from gluonjit.ir.dims import LOWEST, relying
from gluonjit.ir.graph import LEVELS, Graph
from gluonjit.ir.machine import Machine
from gluonjit.ir.sizes import dimensions, with_some_sizes
from gluonjit.ir.structure import graph_key
from gluonjit.ir.types import IRError
from gluonjit.ir.verify import verify
from gluonjit.passes import parse_pipeline, run_passes
from gluonjit.passes.manager import Pipeline
from gluonjit.runtime import host, tuning
from gluonjit.runtime.arenas import give_back
from gluonjit.runtime.artifact import Artifact
from gluonjit.runtime.collector import without_collector
from gluonjit.runtime.executable import Executable
from gluonjit.runtime.kernel_library import KernelLibrary
from gluonjit.runtime.progress import Progress
from gluonjit.runtime.short_turns import short_turns
from gluonjit.runtime.threads import get_num_threads


def tuned(graph: Graph, pipeline: str, target: Machine) -> Artifact:
    """The fastest candidate as measured on this machine, which must be `target`."""
    steps = parse_pipeline(pipeline)
    names = [name for name, _ in steps]
    options = dict(steps).get("select")
    if options is not None:
        fused = run_passes(graph, steps[: names.index("select")], target=target)
        variants = tuning.measured_variants(fused, target, options.get("winograd", True))
        steps[names.index("select")] = ("select", {**options, "variants": variants})
    if dimensions(graph):  # how many threads are worth using depends on the sizes
        return compiled(graph, steps, target, None)
    # The same kernels on one thread.
    alone = [(name, {**given, "share": _ONE_THREAD} if name == "threads" else given) for name, given in steps]
    made = [compiled(graph, s, target, None) for s in (steps, alone)]
    interfaces = [m.interface for m in made if m.interface is not None]
    if interfaces[0].main.threads == 1 or interfaces[0].calls_host:  # timing must not run the user's Python code
        return made[0]
    loaded = [load(m.objects, host.functions()) for m in made]
    return made[tuning.fastest([tuning.timed_graph(Executable(i, code)) for i, code in zip(interfaces, loaded)])]


_ONE_THREAD = 10**15
"""A `share` (nanoseconds of work per thread) so large that the pass `threads` decides on one thread."""


def compiled(
    graph: Graph,
    pipeline: Pipeline,
    target: Machine,
    after: Callable[..., None] | None,
    library: KernelLibrary | None = None,
) -> Artifact:
    """The graph compiled by the passes of `pipeline` and code generation; `after` as in `run_passes`.

    `library`: kernels that need not be compiled again, and where new ones go.
    """
    names = [name for name, _ in parse_pipeline(pipeline)]
    if "select" in names:
        _check_undecided(graph)
    steps = [*names, *_KERNELS, *_CODE]
    with Progress(graph.name, steps) as progress, without_collector(), short_turns():
        expanded: list[Graph] = []

        def step(name: str, before: Graph, made: Graph, seconds: float) -> None:
            progress.done(name)
            if name == "expand":
                expanded.append(made)
            if after is not None:
                after(name, before, made, seconds)

        with relying() as relies:
            planned = run_passes(graph, pipeline, target=target, after=step)
        serves_1 = not relies.noted and expands_alike(graph, *expanded)
        machine = of_code(target)
        module = Module(machine)
        expected = _count_kernels(planned)
        keeps_all = library is not None and library.keeps_all
        with Parts(module, machine, get_num_threads(), keeps_all) as parts:

            def written(functions: Sequence[Function], kernel: str | None, is_for_any: bool) -> None:
                parts.add(functions, kernel, is_for_any)
                progress.part("kernels", len(module.functions) / expected)

            with stage("code generation"):
                program = lower_program(planned, machine, module, written, library)
            progress.part("kernels", 1)
            objects = parts.finish(lambda share: progress.part("machine code", share))
        if not serves_1:
            program.interface.lowest = LOWEST
        if library is not None:
            library.keep(parts.kernels())
            objects = sorted(objects + library.objects)  # the same, whichever were found
    give_back()
    return Artifact(graph.name, objects, program.interface)


def _check_undecided(graph: Graph) -> None:
    """IRError for a graph that says itself how it is computed. It may be from a text that nobody need trust, and
    kernels and memory that do not fit the ops would be native code that writes anywhere."""
    for op in graph.ops:
        for name in op.attrs:
            if name in ANNOTATIONS and LEVELS.index(ANNOTATIONS[name].level) >= LEVELS.index("fused"):
                raise IRError(f"@{graph.name}: {op.name} has {name}, which passes decide when a graph is compiled")
        for region in op.regions:
            _check_undecided(region)


_MOST_NAMES = 3
"""The most open dimensions for which all cases are looked at."""


def expands_alike(graph: Graph, expanded: Graph | None = None) -> bool:
    """Whether the operators of a graph with open dimensions mean the same where some of these are 1: whether a graph
    with this size expands to the `expanded` graph with this size.

    Operators may take a size of 1 for something else, as broadcasting or `squeeze` do. What they are expanded to does
    not: all that passes and code generation conclude from a size is that it is at least so large (`ir.dims.relying`).
    """
    names = dimensions(graph)
    if not 1 <= len(names) <= _MOST_NAMES:
        return False
    try:
        expanded = expanded or run_passes(graph, "expand")
        for count in range(1, len(names) + 1):
            for some in combinations(names, count):
                ones = dict.fromkeys(some, 1)
                alone = run_passes(with_some_sizes(graph, ones), "expand")
                verify(alone)
                if graph_key(alone) != graph_key(with_some_sizes(expanded, ones)):
                    return False
    except IRError:  # an operator that does not accept this size, or needs to know the others
        return False
    return True


_KERNELS, _CODE = ("kernels",) * 30, ("machine code",) * 8
"""Steps of the progress bar, as many as their share of the time in units of a pass. Most machine code is made while
kernels are being written."""


def _count_kernels(graph: Graph) -> int:
    """An upper bound of the functions that code generation will write: ops may share a function."""
    return 1 + sum(_count_kernels(r) for op in graph.ops for r in op.regions if op.name == "prepare") + len(graph.ops)
