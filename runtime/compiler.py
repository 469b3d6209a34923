"""From a graph to an `Executable`, loaded from the object cache or built (`runtime/build.py`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from gluonjit.codegen.target import host as host_target
from gluonjit.codegen.text.llvm import load
from gluonjit.common.aside import aside
from gluonjit.common.stages import stage
from gluonjit.ir.graph import Graph
from gluonjit.ir.machine import Machine
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime import cache, graph_log, host, native
from gluonjit.runtime.artifact import Artifact
from gluonjit.runtime.executable import CodeSource, Executable
from gluonjit.runtime.kernel_library import KernelLibrary
from gluonjit.runtime.prepared_files import PreparedFiles
from gluonjit.runtime.threads import get_num_threads


def compile_graph(
    graph: Graph,
    *,
    target: Machine | None = None,
    after: Callable[..., None] | None = None,
    pipeline: str = PIPELINE,
    tune: bool = False,
    flush_denormals: bool = False,
) -> Executable:
    """Compiles a graph of any level before `planned` to native code, or finds it in the object cache.

    With `after` (see `run_passes`) the passes always run. `tune`: the best kernels and number of threads are measured
    instead of estimated; the cache keeps the result. `flush_denormals`: see `Executable`.
    """
    machine = target or host_target()
    return _executable(
        artifact_of(graph, machine, after, pipeline, tune),
        CodeSource(lambda: graph, pipeline, machine, tune),
        flush_denormals,
    )


def kept_code(
    key: str, graph: Callable[[], Graph], *, pipeline: str = PIPELINE, flush_denormals: bool = False
) -> Executable | None:
    """The code for this machine under this key of the object cache, which is that of `graph()`; None if it is not there
    any more."""
    with stage("cache, reading"):
        found = cache.load(key)
    if found is None or found.interface is None:
        return None
    graph_log.note(graph, pipeline)
    return _executable(Made(found, True, key), CodeSource(graph, pipeline, host_target()), flush_denormals)


def _executable(made: Made, source: CodeSource, flush_denormals: bool) -> Executable:
    artifact, machine = made.artifact, source.target
    assert artifact.interface is not None
    files = PreparedFiles((machine, flush_denormals)) if made.key is not None else None
    with stage("loading"):
        code = aside(lambda: load(artifact.objects, host.functions()))
    found = Executable(artifact.interface, code, flush_denormals, files, machine)
    found.was_cached, found.key, found.kernels = made.was_there, made.key, made.kernels
    for function in (found.main, *(p.function for p in found.prepared)):
        function.source = source
    return found


def gradient_key(graph: Graph, pipeline: str) -> str | None:
    """What stands for the gradient of the graph, made by `pipeline`, on this machine; None if code that is not part of
    this package has a part in it."""
    key = None if cache.why_off() else cache.graph_cache_key(graph, pipeline, host_target())
    return key and cache.digest(("gradient", key))


@functools.cache
def get_ready() -> None:
    """Does in advance what the process's first call of `compile_graph`, and its first run, need for any graph; part of
    it goes on afterwards, on another thread."""
    host_target()
    cache.compiler()
    native.begin()


class Made(NamedTuple):
    """Compiled code."""

    artifact: Artifact
    was_there: bool
    """Whether it was in the object cache."""
    key: str | None
    """Its key there; None for what is not kept."""
    kernels: tuple[int, int] = (0, 0)
    """How many of its kernels were in files, and how many it has, if that was found out."""


def artifact_of(
    graph: Graph,
    target: Machine,
    after: Callable[..., None] | None = None,
    pipeline: str = PIPELINE,
    tune: bool = False,
    keeps_all: bool = False,
) -> Made:
    """The graph compiled for `target`, which is in the object cache afterwards. `keeps_all`: so is each of its kernels
    by itself, for other graphs, which otherwise holds for those that take long to compile."""
    measured_on = get_num_threads() if tune else None
    key = cache.graph_cache_key(graph, pipeline, target, measured_on) if after is None else None
    if key is not None:
        graph_log.note(lambda: graph, pipeline)
    with stage("cache, reading"):
        found = cache.load(key) if not keeps_all else None
    there = found is not None and found.interface is not None
    library = None if there or tune or key is None else KernelLibrary(target, keeps_all)
    if found is None or found.interface is None:
        found = aside(lambda: _made(graph, target, after, pipeline, tune, library))
        with stage("cache, writing"):
            cache.store(key, found)
    return Made(found, there, key, (library.from_files, library.asked) if library is not None else (0, 0))


def _made(
    graph: Graph,
    target: Machine,
    after: Callable[..., None] | None,
    pipeline: str,
    tune: bool,
    library: KernelLibrary | None,
) -> Artifact:
    # Imported here: a process that finds its code in the cache needs neither passes nor code generation.
    from gluonjit.runtime import build

    return build.tuned(graph, pipeline, target) if tune else build.compiled(graph, pipeline, target, after, library)
