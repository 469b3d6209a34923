"""What a report shows, as plain data: the profile, what each pass did, and each kernel's op, LLVM IR and assembly."""

from __future__ import annotations

import linecache
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gluonjit.codegen import llvm
from gluonjit.codegen.program import lower_program
from gluonjit.codegen.target import host
from gluonjit.ir.buffers import runs_kernel
from gluonjit.ir.graph import Graph
from gluonjit.ir.machine import Machine
from gluonjit.ir.text import print_graph
from gluonjit.passes import report as reports
from gluonjit.passes import run_passes
from gluonjit.passes.simplifier import counting
from gluonjit.profiling.measured import Profile, Program
from gluonjit.tools.reporting.drawings import Computed, kernels, operators

LINES = 400
"""So many lines of a diff, of a kernel's LLVM IR and of its assembly are shown."""
EVENTS = 4000
"""So many stretches of the last call are in the timeline."""


def gathered(model: str, profile: Profile) -> dict[str, Any]:
    """The data of a page."""
    target = host()
    data = profile.to_json()
    functions: dict[str, list[list[str]]] = {}
    pipelines, stages = [], []
    computed = Computed(profile.programs)
    for number, (words, program) in enumerate(zip(data["programs"], profile.programs)):
        words["calls"] = [end - begin for begin, end in program.calls]
        words["percentiles"] = {str(p): program.percentile(p) for p in (0.5, 0.9, 0.99)}
        words["timeline"] = _timeline(program)
        for kernel in words["kernels"]:
            kernel["source"] = linecache.getline(kernel["file"], kernel["line"]).strip() if kernel["file"] else ""
        if program.compiled is None:
            continue
        source = program.compiled.source
        passes, planned = passed(source.graph, source.pipeline, source.target)
        pipelines.append({"title": program.part, "program": number, "passes": passes})
        functions |= _add_code(words["kernels"], program, planned, source.target, f"{number}:")
        stages.append({"title": "operators", **operators(source.graph, computed)})
        stages.append(
            {
                "title": "kernels",
                "program": number,
                **kernels(number, program, ()),
                "text": _cut(print_graph(planned, elide=16).splitlines(), 20 * LINES),
            }
        )
    return {
        "model": model,
        "machine": profile.processor or target.cpu,
        "target": f"{target.cpu}, vectors of {target.vector_bits} bits",
        "profile": data,
        "pipelines": pipelines,
        "stages": stages,
        "functions": functions,
        "compiling": profile.compile_seconds(),
    }


def passed(graph: Graph, pipeline: str, target: Machine) -> tuple[list[dict[str, Any]], Graph]:
    """(what each pass does to the graph, the graph behind all of them)."""
    found: list[dict[str, Any]] = []
    with counting() as fired:
        before = fired.copy()

        def after(name: str, old: Graph, new: Graph, seconds: float) -> None:
            nonlocal before
            applied, before = fired - before, fired.copy()
            found.append(_pass(name, old, new, seconds, applied))

        planned = run_passes(graph, pipeline, target=target, after=after)
    return found, planned


def _pass(name: str, old: Graph, new: Graph, seconds: float, applied: Counter[Any]) -> dict[str, Any]:
    counts = [Counter(op.name for op in g.ops) for g in (old, new)]
    changes = {kind: [counts[0][kind], counts[1][kind]] for kind in sorted({*counts[0], *counts[1]})}
    return {
        "name": name,
        "seconds": seconds,
        "ops": [len(old.ops), len(new.ops)],
        "changes": {kind: pair for kind, pair in changes.items() if pair[0] != pair[1]},
        "rules": [
            [rule.__name__, n, (rule.__doc__ or "").strip().partition("\n")[0]] for rule, n in applied.most_common()
        ],
        "diff": [] if new is old else _cut(list(reports.diff(old, new, context=0)), LINES),
    }


def _cut(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most], f"… {len(lines) - most} lines more"]


def _timeline(program: Program) -> list[list[Any]]:
    """[thread, kernel or None, begin, seconds] of the last call that was recorded, from its own beginning."""
    if not program.timeline:
        return []
    events = sorted(program.timeline[-1], key=lambda e: e.begin)[:EVENTS]
    start = events[0].begin if events else 0.0
    return [[e.thread, e.kernel, e.begin - start, e.end - e.begin] for e in events]


def _add_code(
    kernels: list[dict[str, Any]], program: Program, planned: Graph, target: Machine, prefix: str
) -> dict[str, list[list[str]]]:
    """Adds op and function to each kernel that is in no loop. Returns the LLVM IR and the assembly of these functions,
    by their names with the prefix. `planned` is the program's graph behind the passes, open dimensions included."""
    functions: dict[str, list[list[str]]] = {}
    text = lower_program(planned, target).text
    ir, asm = dict(_functions(text)), dict(_labels(llvm.assembly(text, target)))
    outer = [k for k, kernel in enumerate(program.kernels) if kernel.inside is None]
    called = re.findall(r"call void @(k\d+_[\w.]+)\(", ir.get("main", ""))
    for place, (k, op) in enumerate(zip(outer, filter(runs_kernel, planned.ops), strict=True)):
        alone = replace(planned, inputs=tuple(dict.fromkeys(op.operands)), ops=(op,), outputs=op.results, updates=())
        kernels[k]["op"] = _cut(print_graph(replace(alone, attrs={}), elide=16).splitlines(), LINES)
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
