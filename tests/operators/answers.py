"""Results of the samples in each mode, and MXNet's recorded results, computed or loaded once for all tests.

| what | function |
|---|---|
| results of the imperative call | `running.run_case`, which caches them |
| the graphs of a case, traced and expanded | `graphs` |
| results of native code, also for inputs with NaN and infinities | `compiled` |
| MXNet's results | `recorded`, `recorded_variants` |

Operators with similar names are compiled in one graph: they often share kernels, and a graph compiles each kernel once.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gluonjit.ir.graph import Graph
from gluonjit.ir.opdef import lookup
from gluonjit.operators import registry
from gluonjit.passes import run_passes
from gluonjit.runtime.compiler import compile_graph
from support.soak import SOAK

from . import samples, variants
from .running import graph_of, run_case, with_key
from .samples import Case

DATA = Path(__file__).resolve().parents[1] / "data"

RAISING = {"gather_nd", "take", "_scatter_set_nd", "_linalg_inverse", "_linalg_potrf", "_linalg_potri"}
RAISING |= {"_npi_solve", "_npi_percentile", "_npi_insert_tensor", "_npi_tensorinv", "_npi_tensorsolve"}
RAISING |= {"_npx_constraint_check"}
"""Operators whose code calls Python for an error, when an index is out of bounds or a matrix singular, and for nothing
else."""

CALLING = RAISING | {"Custom"}
"""Operators whose code may call Python."""

REJECTING = ("gamma", "poisson", "negative_binomial", "generalized_negative_binomial")
DRAW_ALIKE = {f"_{kind}_{name}" for name in REJECTING for kind in ("random", "sample")}
DRAW_ALIKE |= {f"_random_{name}_like" for name in REJECTING} | {"_npi_gamma"}
DRAW_ALIKE -= {"_random_gamma", "_random_poisson", "_random_negative_binomial"}
DRAW_ALIKE -= {"_random_negative_binomial_like", "_sample_negative_binomial"}
"""Operators whose graphs, of 650 ops, hold nothing but what those of other operators hold."""

TOGETHER = 16
"""Operators of a group. More would make it slow to test one of them."""


def _stem(operator: str) -> str:
    """What similar operators have in common: of `_npi_add_scalar` and `broadcast_add`, `add`."""
    return re.sub(
        r"^(_contrib|_npi|_npx|_np|_image|_random|_sample|elemwise|broadcast|)_|(_scalar|_like)$", "", operator
    )


def _groups() -> list[tuple[str, ...]]:
    traceable = [name for name in samples.operators() if not registry.get(name).imperative_only]
    alike = sorted(set(traceable) - CALLING, key=lambda name: (_stem(name), name))
    groups = [tuple(alike[k : k + TOGETHER]) for k in range(0, len(alike), TOGETHER)]
    return groups + [(name,) for name in traceable if name in CALLING]


GROUPS = _groups()
TRACEABLE = [name for group in GROUPS for name in group]
"""In this order, tests of operators that are compiled together follow one another."""

_GROUP_OF = {name: group for group in GROUPS for name in group}


@dataclass(frozen=True)
class Program:
    """Cases as one graph. They are of one mode: training is a property of a graph."""

    cases: list[Case]
    expanded: Graph

    def inputs(self, kind: str | None = None) -> list[np.ndarray]:
        """Those of the cases, or of a variant of each; where there is none, of the case."""
        return with_key(self.expanded, [x for case in self.cases for x in variant(case, kind).inputs])

    def by_case(self, outputs: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
        rest = iter(outputs)
        found = [[np.asarray(next(rest)) for _ in run_case(case)] for case in self.cases]
        assert next(rest, None) is None
        return found


def variant(case: Case, kind: str | None) -> Case:
    return (kind and variants.vary(case, kind)) or case


@functools.cache
def graphs(case: Case) -> tuple[Graph, Graph]:
    """As it is traced, and as primitives."""
    traced, _ = graph_of([case])
    return traced, run_passes(traced, "expand")


def _programs(cases: Sequence[Case]) -> list[Program]:
    """One, or two where some of the cases are for training."""
    found = []
    for _, same_mode in itertools.groupby(sorted(cases, key=_mode), key=_mode):
        chosen = list(same_mode)
        traced, _ = graph_of(chosen)
        found.append(Program(chosen, run_passes(traced, "expand")))
    return found


def _mode(case: Case) -> bool:
    return case.training


@functools.cache
def compiled_cases() -> Mapping[str, list[Case]]:
    """By operator: its first case unless it is of `DRAW_ALIKE`, and each whose graph has a primitive, of element types,
    that no case has which is chosen already; all of them in `make soak`. As graphs, all are evaluated."""
    if SOAK > 1:
        return {name: samples.cases(name) for name in TRACEABLE}
    chosen = {name: [] if name in DRAW_ALIKE else samples.cases(name)[:1] for name in TRACEABLE}
    found = set().union(*(_primitives(graphs(case)[1]) for cases in chosen.values() for case in cases))
    for name in TRACEABLE:
        for case in samples.cases(name)[len(chosen[name]) :]:
            used = _primitives(graphs(case)[1])
            if not used <= found:
                chosen[name].append(case)
                found |= used
    return chosen


def _primitives(graph: Graph) -> set[object]:
    """Each with the element types of operands and results."""
    found: set[object] = {(op.name, *(v.dtype for v in (*op.operands, *op.results))) for op in graph.ops}
    return found.union(*(_primitives(region) for op in graph.ops for region in op.regions))


KINDS = (None, "nan", "infinite")
"""How native code is run: with the inputs as they are, and with some of them poisoned."""


def compiled(operator: str) -> list[tuple[Case, list[np.ndarray]]]:
    """The operator's cases that are compiled, each of `KINDS`, and what native code gives."""
    return _compiled(_GROUP_OF[operator])[operator]


@functools.lru_cache(maxsize=2)
def _compiled(group: tuple[str, ...]) -> dict[str, list[tuple[Case, list[np.ndarray]]]]:
    found = defaultdict(list)
    for program in _programs([case for name in group for case in compiled_cases()[name]]):
        executable = compile_graph(program.expanded)
        assert executable.calls_host == any(lookup(name).level == "host" for name, *_ in _primitives(program.expanded))
        for kind in KINDS:
            outputs, _ = executable.run(program.inputs(kind))
            for case, results in zip(program.cases, program.by_case(outputs)):
                found[case.operator].append((variant(case, kind), results))
    return found


# What MXNet answered


@functools.cache
def recorded() -> Mapping[str, Mapping[str, np.lib.npyio.NpzFile]]:
    """Of `<operator>/<number>`: `inputs` and results `0`, `1`, …, each with the archive that holds it."""
    found = defaultdict(dict)
    for path in sorted(DATA.glob("operators-*.npz")):
        archive = np.load(path)
        for name in archive.files:
            where, _, last = name.rpartition("/")
            found[where][last] = archive
    return found


@functools.cache
def recorded_variants() -> Mapping[str, Mapping[str, np.ndarray]]:
    """Of `<operator>/<kind>`: `number`, `inputs`, `refused` and results."""
    found = defaultdict(dict)
    for name, array in variants.unpack(np.load(DATA / "operators-variants.npz")).items():
        where, _, last = name.rpartition("/")
        found[where][last] = array
    return found
