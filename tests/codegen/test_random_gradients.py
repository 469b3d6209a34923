"""Random programs with gradients: differences, NumPy and native code agree, and the halves of a joint graph with it."""

import functools
from itertools import islice

import numpy as np
import pytest

from gluonjit.ir.graph import Graph
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.passes import run_passes
from gluonjit.passes.partition import divide, sources
from gluonjit.passes.pipelines import JOINT_PIPELINE
from gluonjit.runtime.compiler import compile_graph
from support.compare import assert_close
from support.gradients import assert_halves_agree, assert_is_gradient, joint, random_like
from support.smooth_programs import NAMES, REGIONS, smooth_program
from support.soak import tries

PROGRAMS = tries(40)
COMPILED = tries(20)
"""Programs whose halves are compiled; each primitive is by itself in test_loops.py."""
BATCH = 20
TOGETHER = 10
"""Programs in a graph: what a compilation costs besides its kernels is paid once for all of them."""


def batches(count):
    return pytest.mark.parametrize("first", range(0, count, BATCH))


@functools.cache
def programs(first):
    return [p for p in map(smooth_program, range(first, first + BATCH)) if p.graph.outputs]


@batches(PROGRAMS)
def test_gradients_are_those_of_differences(first):
    every = programs(first)
    compared = 0
    for p in every:
        order = 2 if p.seed % 4 == 0 else 1
        compared += assert_is_gradient(p.graph, p.inputs, f"seed {p.seed}", order, tolerance=2e-5, smooth=False)
    assert compared > len(every) * 0.8


@batches(PROGRAMS)
def test_halves_agree(first):
    for program in programs(first):
        assert_halves_agree(program.graph, program.inputs, f"seed {program.seed}")


def side_by_side(graphs):
    def all_of(name):
        return tuple(item for graph in graphs for item in getattr(graph, name))

    return Graph("programs", all_of("inputs"), all_of("ops"), all_of("outputs"), (), graphs[0].level)


def run_compiled(graphs, inputs):
    executable = compile_graph(side_by_side(graphs))
    outputs = iter(executable.run([np.asarray(x, order="C") for part in inputs for x in part])[0])
    return [list(islice(outputs, len(graph.outputs))) for graph in graphs]


@batches(COMPILED)
def test_native_equals_numpy(first):
    """Forward with what it saves, and backward from that."""
    every = programs(first)
    for start in range(0, len(every), TOGETHER):
        some = every[start : start + TOGETHER]
        halves = [divide(run_passes(joint(p.graph), JOINT_PIPELINE)) for p in some]
        inputs = [p.inputs for p in some]
        native = run_compiled([h.forward for h in halves], inputs)
        given, wanted = [], []
        for p, h, outputs in zip(some, halves, native, strict=True):
            expected, _ = evaluate(h.forward, p.inputs)
            for k, (a, b) in enumerate(zip(outputs, expected, strict=True)):
                assert_close(a, b, f"seed {p.seed}, output {k}")
            saved = [p.inputs[k] if k >= 0 else expected[-1 - k] for k in sources(h)]
            heads = h.backward.inputs[len(saved) :]
            cotangents = random_like(np.random.default_rng(p.seed), [np.empty(v.shape) for v in heads])
            given.append([*saved, *cotangents])
            wanted.append(evaluate(h.backward, given[-1])[0])
        for p, got, want in zip(some, run_compiled([h.backward for h in halves], given), wanted, strict=True):
            for k, (a, b) in enumerate(zip(got, want, strict=True)):
                assert_close(a, b, f"seed {p.seed}, gradient {k}")


def test_joint_graphs_are_text():
    for program in programs(0):
        both = joint(program.graph)
        for graph in (both, divide(both).forward, divide(both).backward):
            text = print_graph(graph)
            assert print_graph(parse_graph(text)) == text, f"seed {program.seed}"


def test_the_programs_draw_on_everything():
    drawn = sum((smooth_program(seed).drawn for seed in range(100)), start=smooth_program(100).drawn)
    missing = {*NAMES, *REGIONS} - {"noise"} - set(drawn)
    assert missing <= {"and", "or", "xor", "shift_left", "shift_right"}
