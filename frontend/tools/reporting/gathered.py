"""What a report shows, as plain data: the profile, what each pass did, and each kernel's op, LLVM IR and assembly."""

from __future__ import annotations

import linecache
import os
import platform
import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from importlib import metadata
from typing import Any, NamedTuple

from gluonjit._version import version
from gluonjit.codegen.program import lower_program
from gluonjit.codegen.target import host
from gluonjit.codegen.text import llvm
from gluonjit.execution.inspecting import joint_graph
from gluonjit.ir.buffers import runs_kernel
from gluonjit.ir.graph import Graph
from gluonjit.ir.machine import Machine
from gluonjit.ir.sizes import with_hints
from gluonjit.ir.text import print_graph
from gluonjit.passes import report as reports
from gluonjit.passes import run_passes
from gluonjit.passes.choices import choice
from gluonjit.passes.manager import After
from gluonjit.passes.remarks import Remark
from gluonjit.profiling.measured import Profile, Program
from gluonjit.tools.reporting.drawings import Computed, kernels, operators, parameters, primitives

LINES = 400
"""Lines of a diff, of a kernel's LLVM IR and of its assembly that are shown."""
EVENTS = 4000
"""Stretches of the median call that are in the timeline."""


class Recorded(NamedTuple):
    """A recorded call, as it was traced, and on the way to the graph that has its gradient."""

    traced: Graph
    joint: Graph
    passes: list[dict[str, Any]]


def recorded(traced: Graph, fixed: Collection[str]) -> Recorded:
    """`traced` is the call in training mode; `fixed` are the names of parameters that get no gradient."""
    with _watched() as (passes, after):
        return Recorded(traced, joint_graph(traced, fixed, after), passes)


def gathered(model: str, profile: Profile, training: Recorded | None = None) -> dict[str, Any]:
    """The data of a page. `training`: the call whose halves were measured."""
    target = host()
    linecache.checkcache()  # programs may have been edited since this process read them
    data = {name: value for name, value in profile.to_json().items() if name != "laps"}
    functions: dict[str, list[list[str]]] = {}
    pipelines, stages = [], []
    computed = Computed(profile.programs)
    params: set[str] = set()
    if training is not None:
        params = parameters(training.traced)
        pipelines.append({"title": "gradient", "passes": training.passes})
        stages.append({"title": "operators", **operators(training.traced, computed)})
        stages.append({"title": "joint", **primitives(training.joint, computed, params)})
    parts = Counter(p.part for p in profile.programs if p.compiled is not None)
    for number, (words, program) in enumerate(zip(data["programs"], profile.programs)):
        words["calls"] = len(program.calls)  # of a small model there are many thousands
        words["percentiles"] = {str(p): program.percentile(p) for p in (0.5, 0.9, 0.99)}
        words["timeline"] = _timeline(program)
        for kernel in words["kernels"]:
            kernel["source"] = linecache.getline(kernel["file"], kernel["line"]).strip() if kernel["file"] else ""
        if program.compiled is None:
            continue
        source = program.compiled.source
        with _watched() as (passes, after):
            planned = run_passes(source.graph, source.pipeline, target=source.target, after=after)
        functions |= _add_code(words["kernels"], program, planned, source.target, f"{number}:")
        name = program.part if parts[program.part] == 1 else f"{program.part} {program.name}"
        pipelines.append({"title": name, "passes": passes})
        if source.graph.level == "traced":
            stages.append({"title": _titled("operators", name), **operators(source.graph, computed)})
        else:
            stages.append({"title": name, **primitives(source.graph, computed, params, number)})
        text = _cut(_lines(planned), 20 * LINES)
        drawn = kernels(number, program, params)
        stages.append({"title": _titled("kernels", name), "program": number, **drawn, "text": text})
    return {
        "model": model,
        "machine": f"{profile.processor or target.cpu}, {os.cpu_count()} cores, {platform.system()}",
        "target": f"{target.cpu}, vectors of {target.vector_bits} bits",
        "made": made_by(),
        "profile": data,
        "pipelines": pipelines,
        "stages": stages,
        "functions": functions,
        "compiling": profile.compile_seconds(),
    }


def made_by() -> str:
    """What and when a report is from: the versions of what its numbers depend on, and the local time."""
    versions = {"Python": platform.python_version(), **{name: metadata.version(name) for name in ("numpy", "llvmlite")}}
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z")
    return f"gluonjit {version}, " + ", ".join(f"{name} {n}" for name, n in versions.items()) + f"; {now}"


def _titled(what: str, part: str) -> str:
    return what if part == "call" else f"{what}, {part}"


@contextmanager
def _watched() -> Iterator[tuple[list[dict[str, Any]], After]]:
    """(what each pass that runs meanwhile does to its graph, the callback that notes it)."""
    found: list[dict[str, Any]] = []
    latest: tuple[Graph | None, list[str]] = None, []  # a graph is printed once, though two passes have to do with it
    with reports.watching() as told:

        def after(name: str, old: Graph, new: Graph, seconds: float) -> None:
            nonlocal latest
            diff: list[str] = []
            if new is not old:
                was, now = (latest[1] if g is latest[0] else _lines(g, reports.ELIDE) for g in (old, new))
                diff, latest = _cut(list(reports.diff_of_texts(was, now, context=0)), LINES), (new, now)
            found.append(_pass(name, old, new, seconds, told(name, old), diff))

        yield found, after


def _pass(name: str, old: Graph, new: Graph, seconds: float, told: reports.Told, diff: list[str]) -> dict[str, Any]:
    counts = [Counter(op.name for op in g.ops) for g in (old, new)]
    changes = {kind: [counts[0][kind], counts[1][kind]] for kind in sorted({*counts[0], *counts[1]})}
    return {
        "name": name,
        "seconds": seconds,
        "ops": [len(old.ops), len(new.ops)],
        "changes": {kind: pair for kind, pair in changes.items() if pair[0] != pair[1]},
        "rules": [[rule.__name__, n, reports.first_line(rule)] for rule, n in told.applied.most_common()],
        "idle": [[rule.__name__, n, reports.first_line(rule)] for rule, n in told.idle.most_common()],
        "missed": [_missed(remark) for remark in told.missed],
        "diff": diff,
    }


def _missed(remark: Remark) -> dict[str, str]:
    loc = remark.op.loc
    return {"op": remark.what, "layer": loc.block if loc else "", "why": remark.why}


def _lines(graph: Graph, elide: int = 16) -> list[str]:
    return print_graph(graph, elide=elide).splitlines()


def _cut(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"… {len(lines) - most} lines more"]


def _timeline(program: Program) -> list[list[Any]]:
    """[thread, kernel or None, begin, seconds] of the median call, from its own beginning."""
    events = sorted(program.typical, key=lambda e: e.begin)[:EVENTS]
    start = events[0].begin if events else 0.0
    return [[e.thread, e.kernel, e.begin - start, e.end - e.begin] for e in events]


def _add_code(
    kernels: list[dict[str, Any]], program: Program, planned: Graph, target: Machine, prefix: str
) -> dict[str, list[list[str]]]:
    """Adds op and function to each kernel that is in no loop. Returns the LLVM IR and the assembly of these functions,
    by their names with the prefix. `planned` is the program's graph after the passes, open dimensions included."""
    functions: dict[str, list[list[str]]] = {}
    text = lower_program(planned, target).text
    ir, asm = dict(_functions(text)), dict(_labels(llvm.assembly(text, target)))
    outer = [k for k, kernel in enumerate(program.kernels) if kernel.inside is None]
    sized = filter(runs_kernel, with_hints(planned).ops)
    called = re.findall(r"call void @(k\d+_[\w.]+)\(", ir.get("main", ""))
    for place, (k, op, hinted) in enumerate(zip(outer, filter(runs_kernel, planned.ops), sized, strict=True)):
        alone = replace(planned, inputs=tuple(dict.fromkeys(op.operands)), ops=(op,), outputs=op.results, updates=())
        kernels[k]["alternatives"] = [list(a) for a in choice(hinted).alternatives(hinted, target)]
        kernels[k]["op"] = _cut(_lines(replace(alone, attrs={})), LINES)
        if len(called) == len(outer) and called[place] in ir:
            name = prefix + called[place]
            kernels[k]["function"] = name  # kernels that are alike share it
            pair = ir[called[place]], asm.get(called[place], "")
            functions[name] = [_cut(lines.splitlines(), LINES) for lines in pair]
    return functions


def _functions(text: str) -> Iterator[tuple[str, str]]:
    """The functions of a module's text, by name."""
    for m in re.finditer(r"^define [^\n]*@([\w.]+)\(.*?^}", text, re.M | re.S):
        yield m[1], m[0]


def _labels(text: str) -> Iterator[tuple[str, str]]:
    """The functions of an assembly text, by name."""
    for m in re.finditer(r"^([A-Za-z_][\w.]*):.*?^\.Lfunc_end\d+:", text, re.M | re.S):
        yield m[1], m[0]
