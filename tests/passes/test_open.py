"""Graphs with open dimensions: what passes make of them means what it meant before."""

from __future__ import annotations

from collections import Counter

import pytest

from gluonjit.codegen.target import named
from gluonjit.ir.graph import evaluate
from gluonjit.ir.sizes import with_sizes
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.ir.verify import verify
from gluonjit.passes import run_passes
from gluonjit.runtime.compiler import PIPELINE
from support.open_programs import OPS, SIZES, open_program

PIPELINES = [
    "simplify, fold, cse, dce, legalize-broadcast, simplify, fold, cse, dce",
    "dce, cse, fold, legalize-broadcast, cse, simplify, dce",
]


LATE = PIPELINE[PIPELINE.index("fold-moves") : PIPELINE.index(", plan-memory")].split(", ")


def run_checked(program, pipeline, sizes=SIZES, target=None):
    """Runs the pipeline; the graph that it makes must compute the same for each of `sizes`. Returns the passes that
    changed something."""
    fired = []

    def check(name, before, graph, seconds):
        if graph is before:
            return
        fired.append(name)
        verify(graph)
        text = print_graph(graph, locs=True)
        assert print_graph(parse_graph(text), locs=True) == text

    result = run_passes(program.graph, pipeline, after=check, target=target)
    for given in sizes:
        static = with_sizes(result, given)
        verify(static)
        program.check(evaluate(static, program.inputs(given)), given, f"{pipeline}\n{program.graph}\n{result}")
    return fired


@pytest.mark.parametrize("level", ["expanded", "legal"])
def test_passes_keep_the_meaning_of_open_graphs(level):
    fired: Counter[str] = Counter()
    for seed in range(30):
        program = open_program(seed, level=level)
        fired.update(run_checked(program, PIPELINES[seed % 2], [SIZES[seed % 4], SIZES[-1]]))
    assert set(fired) >= {"simplify", "fold", "cse", "dce"}


def test_passes_from_level_legal_on_keep_the_meaning_of_open_graphs():
    fired: Counter[str] = Counter()
    for seed in range(40):
        target = named(("x86-64-v3", "x86-64-v4")[seed % 2])
        fired.update(run_checked(open_program(seed, level="legal"), LATE, [SIZES[seed % 4], SIZES[-1]], target))
    assert set(fired) >= {"layout", "sink-reshapes", "fuse", "select", "hoist", "views", "threads"}


def test_programs_hold_every_op_with_open_operands():
    found = {name for seed in range(2 * len(OPS)) for name in _open_ops(open_program(seed).graph)}
    assert found >= set(
        "add select cast iota extent broadcast reshape transpose slice update_slice reverse pad concat gather "
        "gather_nd sort random_bits reduce arg_reduce cumsum dot_general conv reduce_window loop".split()
    )


def _open_ops(graph):
    return {op.name for op in graph.ops if not all(r.type.is_static for r in op.results)} | {
        op.name for op in graph.ops if op.name == "extent"
    }
