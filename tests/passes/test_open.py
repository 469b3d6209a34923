"""Graphs with open dimensions: what passes make of them means what it meant before."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from gluonjit.codegen.target import named
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.sizes import with_sizes
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.ir.verify import verify
from gluonjit.passes import run_passes
from gluonjit.passes.pipelines import PIPELINE
from support.compare import assert_close
from support.open_programs import OPS, SIZES, open_program
from support.soak import tries

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
        if graph is not before:
            fired.append(name)

    result = run_passes(program.graph, pipeline, after=check, target=target)
    text = print_graph(result, locs=True)
    assert print_graph(parse_graph(text), locs=True) == text
    for given in sizes:
        static = with_sizes(result, given)
        verify(static)
        program.check(evaluate(static, program.inputs(given)), given, (pipeline, program.graph, result))
    return fired


@pytest.mark.parametrize("level", ["expanded", "legal"])
def test_passes_keep_the_meaning_of_open_graphs(level):
    fired: Counter[str] = Counter()
    for seed in range(tries(16)):
        program = open_program(seed, level=level)
        fired.update(run_checked(program, PIPELINES[seed % 2], [SIZES[seed % 4], SIZES[-1]]))
    assert set(fired) >= {"simplify", "fold", "cse", "dce"}


def test_passes_from_level_legal_on_keep_the_meaning_of_open_graphs():
    fired: Counter[str] = Counter()
    for seed in range(tries(20)):
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


def test_gradients_of_open_graphs_are_those_of_their_sizes():
    """`differentiate` takes open graphs, and so does `partition`."""
    joint = "differentiate, legalize-broadcast, simplify, fold, cse, dce"
    for seed in range(tries(12)):
        program = open_program(seed)
        legal = run_passes(program.graph, "legalize-broadcast, simplify, fold, cse, dce")
        found = run_passes(legal, joint)
        halves = [run_passes(found, [("partition", {"half": half})]) for half in ("forward", "backward")]
        for sizes in (SIZES[seed % 4], SIZES[-1]):
            inputs = program.inputs(sizes)
            expected = run_passes(with_sizes(legal, sizes), joint)
            rng = np.random.default_rng(seed)
            heads = [rng.normal(size=v.shape).astype(v.dtype.numpy) for v in expected.inputs[len(inputs) :]]
            wanted = evaluate(expected, [*inputs, *heads])
            where = f"seed {seed}, {sizes}"
            _assert_close(evaluate(with_sizes(found, sizes), [*inputs, *heads]), wanted, where, found)

            forward, backward = (with_sizes(half, sizes) for half in halves)
            outputs, updates = evaluate(forward, inputs)
            saved = [inputs[k] if k >= 0 else outputs[-1 - k] for k in backward.attrs["saved"]]
            gradients, late = evaluate(backward, [*saved, *heads])
            count = found.attrs["primals"]
            parts = [*outputs[:count], *gradients], [*updates, *late]
            _assert_close(parts, wanted, f"{where}, divided", found)


def _assert_close(actual, expected, where, graph):
    """Within what the order of sums changes; gradients have no bounds, as values of the programs have."""
    for a, b in zip([x for part in actual for x in part], [x for part in expected for x in part], strict=True):
        assert_close(a, b, lambda: f"{where}\n{graph}", 1e-4 if b.dtype.kind == "f" else None)
