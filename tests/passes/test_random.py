"""Random programs: no pass changes what a graph computes, and what they make prints and parses back."""

from collections import Counter

import numpy as np
import pytest

from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.passes import run_passes
from support.compare import assert_close
from support.programs import random_program
from support.soak import tries

PIPELINES = [
    "simplify, fold, cse, dce, legalize-broadcast, simplify, fold, cse, dce",
    "dce, cse, fold, legalize-broadcast, cse, simplify, dce",
]
ROUNDS_ANEW = {"simplify": None}
"""Passes whose result may differ in the last digit (pow(x, 2) and x * x are both x² rounded); others change no bit."""


def run_checked(program, pipeline):
    """Runs the pipeline; after each pass, the graph must compute what it did before, and so must the text of the last
    one. Returns the passes that fired."""
    fired = []
    expected = [*program.outputs, *program.updates]

    def check(name, before, graph, seconds):
        nonlocal expected
        if graph is before:
            return
        fired.append(name)
        outputs, updates = evaluate(graph, program.inputs)
        for a, b in zip([*outputs, *updates], expected, strict=True):
            where = lambda: f"{name}, seed {program.seed}:\n{before}\n{graph}"  # noqa: E731
            assert_close(a, b, where, ROUNDS_ANEW.get(name, 0))
        expected = [*outputs, *updates]

    graph = run_passes(program.graph, pipeline, after=check)
    text = print_graph(graph, locs=True)
    back = parse_graph(text)
    assert print_graph(back, locs=True) == text
    check("the printer", graph, back, 0)
    return fired


@pytest.mark.parametrize("level", ["expanded", "legal", "fused"])
def test_passes_keep_meaning_and_text(level):
    """And one run of `simplify` finds all there is; so do fold, cse and dce."""
    fired = Counter()
    for seed in range(tries(25)):
        program = random_program(seed, level=level)
        fired.update(run_checked(program, PIPELINES[seed % 2]))
        if level != "fused":
            for name in ("simplify", "fold", "cse", "dce"):
                once = run_passes(program.graph, [name])
                twice = run_passes(once, [name, "dce"])
                assert print_graph(twice) == print_graph(run_passes(once, "dce")), (name, seed)
    assert set(fired) >= {"simplify", "fold", "cse", "dce"}


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
