"""Mean and variance in one pass: as accurate as in two, whatever the data are."""

from dataclasses import replace

import numpy as np
import pytest

from gluonjit.codegen.target import named
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import F32, TensorType
from gluonjit.passes import run_passes

N, C = 1000, 8
TARGET = replace(named("x86-64-v3"), l2=0)


def moments():
    b = Builder(level="legal")
    x = b.input("x", TensorType(F32, (N, C)))
    mean = b.reduce(x, op="mean", axes=(0,))
    apart = b.sub(x, b.broadcast(mean, shape=(N, C), dims=(1,)))
    return b.build([mean, b.reduce(b.mul(apart, apart), op="sum", axes=(0,))])


def normal(mean, deviation):
    return np.random.default_rng(0).normal(mean, deviation, (N, C))


def steps(first):
    """The terms from which the first guess is made are unlike all others."""
    x = normal(0, 1)
    x[:first] += 1e4
    return x


DATA = {
    "far from 0": normal(1000, 0.1),
    "near 0": normal(0, 1),
    "the first one far away": steps(1),
    "the first guess far away": steps(-(-N // 8)),
    "the first guess nearly far away": steps(N // 8 - 3),
    "all alike": np.full((N, C), 0.1),
    "large": normal(0, 1e17),
}


@pytest.mark.parametrize("x", DATA.values(), ids=DATA)
def test_moments(x):
    x = x.astype(np.float32)
    graph = run_passes(moments(), "join-moments", target=TARGET)
    assert sum(op.name == "slice" for op in graph.ops) == 1
    mean, squares = evaluate(graph, [x])[0]
    x = x.astype(np.float64)
    assert np.all(np.abs(mean - x.mean(0)) <= 1e-6 * np.maximum(np.abs(x.mean(0)), x.std(0)))
    np.testing.assert_allclose(squares / N, x.var(0), rtol=1e-5, atol=1e-13)


def test_squares_that_overflow():
    """The variance is infinite then, as in two passes, and what is divided by it 0."""
    x = normal(0, 1e30).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, squares = evaluate(run_passes(moments(), "join-moments", target=TARGET), [x])[0]
    np.testing.assert_allclose(mean, x.astype(np.float64).mean(0), rtol=1e-5)
    assert np.isposinf(squares).all()


@pytest.mark.parametrize("place", [0, N - 1])
def test_infinities(place):
    x = normal(0, 1).astype(np.float32)
    x[place, 0], x[place, 1] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        mean, squares = evaluate(run_passes(moments(), "join-moments", target=TARGET), [x])[0]
        expected, _ = evaluate(moments(), [x])[0]
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    assert np.isnan(squares[:2]).all() and np.isfinite(squares[2:]).all()
