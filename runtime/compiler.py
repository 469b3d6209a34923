"""From a graph to something that can be called: run the pipeline, generate code, load it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gluonjit.ir.graph import Graph, evaluate

if TYPE_CHECKING:
    from gluonjit.codegen.llvm import Function
    from gluonjit.codegen.target import Target
    from gluonjit.passes.manager import Pipeline
    from gluonjit.runtime.artifact import Artifact
    from gluonjit.runtime.executable import Executable

PIPELINE = (
    "expand, legalize-broadcast, simplify, fold, cse, dce, fold-moves, reorder-pooling, fold-affine, hoist-strides, "
    "layout, sink-reshapes, simplify, cse, dce, fuse, select, fuse-depthwise, hoist, alternate, views, threads, "
    "plan-memory"
)
"""The passes of the backend `llvm`, in order. `docs/passes.md` says why in this one."""


def pipeline(winograd: bool = True) -> str:
    """`PIPELINE` with options of `hybridize`. `winograd`: whether convolutions may be computed by fewer multiplications
    (`passes/select_winograd.py`)."""
    steps = {"select": "select" if winograd else "select {winograd = False}"}
    return ", ".join(steps.get(name, name) for name in PIPELINE.split(", "))


REFERENCE_PIPELINE = "expand"
"""The passes of the backend `numpy`."""


class Callee(Protocol):
    """What a backend makes of a graph."""

    def run(
        self, inputs: Sequence[np.ndarray], versions: Sequence[Hashable] | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """(outputs, updated states) for inputs of the graph's types; see `Executable.run`."""


def compile_graph(
    graph: Graph,
    *,
    target: Target | None = None,
    after: Callable[..., None] | None = None,
    pipeline: str = PIPELINE,
    tune: bool = False,
) -> Executable:
    """Compiles a graph of any level before `planned` to native code, or finds it in the object cache.

    With `after` (see `run_passes`) the passes run in any case. `tune`: kernels, and whether several threads pay, are
    measured instead of estimated; the cache remembers what was found.
    """
    from gluonjit.codegen import llvm
    from gluonjit.codegen.target import host
    from gluonjit.runtime import cache
    from gluonjit.runtime.executable import Executable
    from gluonjit.runtime.host import functions as host_functions
    from gluonjit.runtime.threads import get_num_threads

    target = target or host()
    name = f"{pipeline}, measured on {get_num_threads()} threads" if tune else pipeline
    key = cache.graph_cache_key(graph, name, target) if after is None else None
    found = cache.load(key)
    if found is None or found.interface is None:
        found = _tuned(graph, pipeline, target) if tune else _compile(graph, pipeline, target, after)
        cache.store(key, found)
    assert found.interface is not None
    return Executable(found.interface, llvm.load(found.objects, host_functions()))


def _tuned(graph: Graph, pipeline: str, target: Target) -> Artifact:
    """The fastest of what the candidates give on this machine, which `target` has to be."""
    from gluonjit.codegen import llvm
    from gluonjit.passes import parse_pipeline, run_passes
    from gluonjit.runtime import tuning
    from gluonjit.runtime.executable import Executable
    from gluonjit.runtime.host import functions as host_functions

    steps = parse_pipeline(pipeline)
    names = [name for name, _ in steps]
    options = dict(steps).get("select")
    if options is not None:
        fused = run_passes(graph, steps[: names.index("select")], target=target)
        variants = tuning.measured_variants(fused, target, options.get("winograd", True))
        steps[names.index("select")] = ("select", {**options, "variants": variants})
    # The same code, without the others.
    alone = [(name, {**given, "share": _NOTHING_IS_WORTH_IT} if name == "threads" else given) for name, given in steps]
    made = [_compile(graph, s, target, None) for s in (steps, alone)]
    interfaces = [m.interface for m in made if m.interface is not None]
    if interfaces[0].main.threads == 1 or interfaces[0].calls_host:  # what Python code does is not to be done for this
        return made[0]
    loaded = [llvm.load(m.objects, host_functions()) for m in made]
    return made[tuning.fastest([tuning.timed_graph(Executable(i, code)) for i, code in zip(interfaces, loaded)])]


_NOTHING_IS_WORTH_IT = 10**15
"""Nanoseconds that a thread would have to find."""


def _compile(graph: Graph, pipeline: Pipeline, target: Target, after: Callable[..., None] | None) -> Artifact:
    from gluonjit.codegen.llvm import Module
    from gluonjit.codegen.parts import Parts
    from gluonjit.codegen.program import lower_program
    from gluonjit.passes import parse_pipeline, run_passes
    from gluonjit.runtime.artifact import Artifact
    from gluonjit.runtime.memory import give_back
    from gluonjit.runtime.progress import Progress
    from gluonjit.runtime.threads import get_num_threads

    steps = [*(name for name, _ in parse_pipeline(pipeline)), *_KERNELS, *_CODE]
    with Progress(graph.name, steps) as progress, _uncollected():

        def step(name: str, before: Graph, made: Graph, seconds: float) -> None:
            progress.done(name)
            if after is not None:
                after(name, before, made, seconds)

        planned = run_passes(graph, pipeline, target=target, after=step)
        module = Module(target)
        expected = _count_kernels(planned)
        with Parts(module, target, get_num_threads()) as parts:

            def written(function: Function) -> None:
                parts.add(function)
                progress.part("kernels", len(module.functions) / expected)

            program = lower_program(planned, target, module, written)
            progress.part("kernels", 1)
            objects = parts.finish(lambda share: progress.part("machine code", share))
    give_back()
    return Artifact(graph.name, objects, program.interface)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's collector of cycles: passes make many objects and no cycles, and it would look at all of them
    again and again, for a quarter of their time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_KERNELS, _CODE = ("kernels",) * 30, ("machine code",) * 8
"""Count as much as so many passes. Most code is made while kernels are being written."""


def _count_kernels(graph: Graph) -> int:
    """About as many functions as code generation will write; more, if different ops have the same."""
    return 1 + sum(_count_kernels(r) for op in graph.ops for r in op.regions if op.name == "prepare") + len(graph.ops)


class Reference:
    """The backend `numpy`: evaluates the expanded graph op by op."""

    def __init__(self, graph: Graph, after: Callable[..., None] | None = None) -> None:
        from gluonjit.passes import run_passes

        self.graph = run_passes(graph, REFERENCE_PIPELINE, after=after)

    def run(
        self, inputs: Sequence[np.ndarray], versions: Sequence[Hashable] | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        outputs, updates = evaluate(self.graph, inputs)
        # Hybridized outputs never alias inputs, nor each other.
        return [np.array(x) for x in outputs], [np.array(x) for x in updates]


Backend = Callable[[Graph, dict[str, Any]], Callee]
"""`backend(graph, options)` compiles a traced graph."""
