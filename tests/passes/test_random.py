"""Random programs: no pass changes what a graph computes, and every graph on the way prints and parses back."""

from collections import Counter

import numpy as np
import pytest

from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.passes import run_passes
from support.compare import assert_close
from support.programs import random_program

PIPELINES = [
    "simplify, fold, cse, dce, legalize-broadcast, simplify, fold, cse, dce",
    "dce, cse, fold, legalize-broadcast, cse, simplify, dce",
]
ROUNDS_ANEW = {"simplify": None}
"""Passes whose result may differ in the last digit (pow(x, 2) and x * x are both x² rounded); others change no bit."""


def run_checked(program, pipeline):
    """Runs the pipeline; after each pass, the graph must compute what it did before. Returns the passes that fired."""
    fired = []
    expected = [*program.outputs, *program.updates]

    def check(name, before, graph, seconds):
        nonlocal expected
        if graph is before:
            return
        fired.append(name)
        text = print_graph(graph, locs=True)
        back = parse_graph(text)
        assert print_graph(back, locs=True) == text
        outputs, updates = evaluate(back, program.inputs)
        for a, b in zip([*outputs, *updates], expected, strict=True):
            assert_close(a, b, f"{name}, seed {program.seed}:\n{before}\n{graph}", ROUNDS_ANEW.get(name, 0))
        expected = [*outputs, *updates]

    run_passes(program.graph, pipeline, after=check)
    return fired


@pytest.mark.parametrize("level", ["expanded", "legal", "fused"])
@pytest.mark.parametrize("block", range(2))
def test_passes_keep_meaning_and_text(level, block):
    fired = Counter()
    for seed in range(block * 50, block * 50 + 50):
        fired.update(run_checked(random_program(seed, level=level), PIPELINES[seed % 2]))
    assert set(fired) >= {"simplify", "fold", "cse", "dce"}


@pytest.mark.parametrize("level", ["expanded", "legal"])
def test_a_second_run_changes_nothing(level):
    """One run of `simplify` finds all there is; so do fold, cse and dce."""
    for seed in range(100):
        graph = random_program(seed, level=level).graph
        for name in ("simplify", "fold", "cse", "dce"):
            once = run_passes(graph, [name])
            twice = run_passes(once, [name, "dce"])
            assert print_graph(twice) == print_graph(run_passes(once, "dce")), (name, seed)


def test_long_graphs_do_not_recurse():
    lines = ["%v0 = neg(%x)"]
    for k in range(5000):
        lines.append(
            f"%v{k + 1} = "
            + ("neg", "transpose", "add", "reshape", "slice")[k % 5]
            + f"(%v{k}"
            + {
                0: ")",
                1: ") {perm = (0,)}",
                2: f", %v{max(k - 7, 0)})",
                3: ") {shape = (4,)}",
                4: ") {start = (0,), size = (4,)}",
            }[k % 5]
        )
    graph = parse_graph("graph(%x: f32[4]) {\n" + "\n".join(lines) + "\nreturn %v5000\n}")
    result = run_passes(graph, PIPELINES[0])
    assert len(result.ops) < 2500
    x = np.zeros(4, np.float32)
    np.testing.assert_array_equal(evaluate(result, [x])[0][0], evaluate(graph, [x])[0][0])
