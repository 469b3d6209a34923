"""The random programs that other tests give to printer, passes and code generator are valid and cover everything."""

import functools

import numpy as np
import pytest

from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import DTYPES, dtype_of
from gluonjit.ir.verify import verify
from support.compare import close, difference, tolerance
from support.draw import DRAWERS
from support.programs import coverage, random_program
from support.scalar_handler import interpret_graph
from support.soak import tries

SEEDS = range(len(DRAWERS) * tries(1))


@functools.cache
def made(level):
    return [random_program(seed, level=level) for seed in SEEDS]


@pytest.mark.parametrize("level", ["expanded", "legal", "fused"])
def test_programs(level):
    programs = made(level)
    for program in programs:
        verify(program.graph)
        outputs, updates = evaluate(program.graph, program.inputs)
        assert all(close(a, b, 0) for a, b in zip(outputs, program.outputs))
        assert all(close(a, b, 0) for a, b in zip(updates, program.updates))
    names, types, empty = coverage(programs)
    assert set(names) == set(DRAWERS) | ({"fused"} if level == "fused" else set())
    assert {dtype for _, dtype in types} == set(DTYPES)
    assert empty > len(programs) / 2
    assert any(program.updates for program in programs)
    assert any(len(op.results) > 1 for program in programs for op in program.graph.ops)
    broadcasts = any(
        len({v.shape for v in op.operands}) > 1
        for program in programs
        for op in program.graph.ops
        if op.name in ("add", "mul", "select", "eq")
    )
    assert broadcasts == (level == "expanded")


@pytest.mark.parametrize("level", ["expanded", "fused"])
def test_results_can_be_compared(level):
    """An implementation that rounds elsewhere and sums in another order stays well within the tolerance."""
    for program in made(level):
        got = interpret_graph(program.graph, program.inputs)
        for a, b in zip(got, program.outputs + program.updates):
            assert close(a, b, tolerance(dtype_of(b)) / 2), program.graph


def test_a_seed_names_one_program():
    first, second = random_program(7), random_program(7)
    assert str(first.graph) == str(second.graph)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first.inputs, second.inputs))


def test_only_some_primitives():
    program = random_program(3, only=["add", "tanh"])
    assert set(program.drawn) <= {"add", "tanh", "constant"}


def test_close():
    x = np.array([1.0, -2.0, np.nan, np.inf], np.float32)
    assert close(x, x.copy())
    assert close(x * np.float32(1 + 5e-6), x)
    assert not close(x * np.float32(1 + 5e-5), x)
    assert not close(-x, x)
    assert not close(x.astype(np.float64), x)
    assert not close(x[:3], x)
    assert not close(np.array([1.0, -2.0, np.inf, np.nan], np.float32), x)
    # Relative to the largest element: a small one may be far off in its own terms.
    assert close(np.array([1.0, 1e-6], np.float32), np.array([1.0, 0.0], np.float32))
    assert not close(np.array([1e-6], np.float32), np.array([0.0], np.float32))
    assert difference(np.array([1, 2]), np.array([1, 3])) == np.inf
    assert close(np.zeros((0, 3)), np.zeros((0, 3)))
