"""Sums of padded values, and what they cost as the gradient of slices."""

import random

import numpy as np
import pytest

from gluonjit.codegen.target import host
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import F32, I32, TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.partition import divide
from gluonjit.passes.pipelines import JOINT_PIPELINE


@pytest.mark.parametrize("seed", range(10))
def test_the_sum_stays(seed):
    rng = random.Random(seed)
    axis, n = rng.randrange(2), rng.randrange(4, 10)
    b = Builder(level="legal")
    terms, inputs = [], []
    for _ in range(20):
        size = rng.randrange(3)
        low = rng.randrange(n - size + 1)
        shape = (2, size) if axis else (size, 2)
        inputs.append(np.asarray([rng.randrange(9) for _ in range(2 * size)], np.int32).reshape(shape))
        x = b.input("", TensorType(I32, shape))
        around = [(0, 0), (0, 0)]
        around[axis] = (low, n - size - low)
        low, high = zip(*around)
        terms.append(b.pad(x, b.constant(0, I32), low=low, high=high))
    while len(terms) > 1:  # in any order and nesting
        terms.append(b.add(*(terms.pop(rng.randrange(len(terms))) for _ in range(2))))
    graph = b.build(terms)
    joined = run_passes(graph, "join-pads {least = 2}, dce")
    assert sum(op.name == "concat" for op in joined.ops) >= 2
    np.testing.assert_array_equal(evaluate(joined, inputs)[0][0], evaluate(graph, inputs)[0][0])


@pytest.mark.parametrize("steps", [12, 60])
def test_the_gradient_of_slices_is_written_once(steps):
    """However many there are, kernels evaluate so many elements for each of the array."""
    b = Builder(level="legal")
    x = b.input("x", TensorType(F32, (4, steps, 16)))
    state = b.input("state", TensorType(F32, (4, 1, 16)))
    for t in range(steps):
        state = b.tanh(b.mul(state, b.slice(x, start=(0, t, 0), size=(4, 1, 16))))
    joint = run_passes(b.build([state]), "differentiate")
    graph = run_passes(divide(run_passes(joint, JOINT_PIPELINE)).backward, "fuse, select, views", target=host())
    inner = [op for outer in graph.ops if outer.regions for op in outer.regions[0].ops]
    assert not [op for op in inner if op.name == "pad"]
    assert sum(op.results[0].size for op in inner) < 12 * x.size


def test_a_doubling_chain_is_no_sum_of_many_terms():
    b = Builder(level="legal")
    x = b.pad(b.input("x", TensorType(F32, (1,))), b.constant(0.0, F32), low=(1,), high=(0,))
    for _ in range(60):
        x = b.add(x, x)
    graph = b.build([x])
    assert run_passes(graph, "join-pads") is graph


@pytest.mark.parametrize(("levels", "twice"), [(1500, False), (20, True)])
def test_concats_deep_in_each_other_are_not_added_by_parts(levels, twice):
    """Neither by a recursion that is too deep nor by as many sums as there are ways to the innermost part."""
    b = Builder("g")
    sides = []
    for name in "xy":
        x = b.input(name, TensorType(F32, (1, 2)))
        for _ in range(levels):
            x = b.concat(x, x if twice else b.broadcast(b.constant(0, F32), shape=(1, 2)), axis=0)
        sides.append(b.concat(x, b.broadcast(b.constant(0, F32), shape=(1, 2)), axis=0))
    graph = b.build([b.add(*sides)])
    assert len(run_passes(graph, "simplify, dce").ops) == len(graph.ops)
