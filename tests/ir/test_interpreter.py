"""The interpreter runs graphs of every level, operators and regions included, and shows each result."""

import numpy as np
import pytest

from gluonjit.ir.annotations import STREAM, TRAINING
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import Interpreter, evaluate
from gluonjit.ir.opdef import RNG_KEY
from gluonjit.ir.types import F32, I64, IRError, TensorType
from gluonjit.operators import registry  # noqa: F401 (declares the operators)
from gluonjit.passes import run_passes

X, KEY = TensorType(F32, (3, 4)), TensorType(I64, (2,))


def _dropout(b, x, stream, **annotations):
    return b.emit("mx.Dropout", [x], {"p": 0.5, "mode": "training", **STREAM(stream), **annotations})[0]


def _same(graph, inputs):
    """The graph gives what its primitives give, with the same bits."""
    found, wanted = evaluate(graph, inputs)[0], evaluate(run_passes(graph, "expand"), inputs)[0]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    return found


def test_operators_draw_from_the_graphs_key_in_their_mode():
    b = Builder("net", "traced", True)
    x, b.key = b.input("x", X), b.input(RNG_KEY, KEY)
    kept = _dropout(b, x, 2, **TRAINING(False))
    graph = b.build([_dropout(b, x, 0), _dropout(b, x, 1), kept], {"training": True})
    first, second, third = _same(graph, [np.ones(X.shape, np.float32), np.array((7, 3))])
    assert not np.array_equal(first, second) and (first == 0).any() and (third == 1).all()


def test_an_operator_that_draws_needs_a_key():
    b = Builder("net", "traced", True)
    graph = b.build([_dropout(b, b.input("x", X), 0)], {"training": True})
    with pytest.raises(IRError, match="@net draws random numbers, and has no input rng_key"):
        Interpreter(graph)


def test_operators_in_regions():
    body = Builder("body", "traced", True)
    _, state, key = (body.input(name, t) for name, t in (("i", TensorType(I64)), ("s", X), (RNG_KEY, KEY)))
    body.key = key
    step = body.build([_dropout(body, state, 0)], {"training": True})
    b = Builder("net", "traced", True)
    x, key = b.input("x", X), b.input(RNG_KEY, KEY)
    b.key = key
    (after,) = b.emit("loop", [x, key], {"carried": 1, "trip": 2}, [step])
    (found,) = _same(b.build([after], {"training": True}), [np.ones(X.shape, np.float32), np.array((7, 3))])
    assert set(np.unique(found)) <= {0, 4} and (found == 4).any()


def test_a_watch_sees_each_result_in_order():
    b = Builder("net")
    x = b.input("x", X)
    graph = b.build([b.exp(b.neg(x))])
    seen = []
    given = np.full(X.shape, 2, np.float32)
    evaluate(graph, [given], lambda op, operands, results: seen.append((op.name, operands[0][0, 0], results[0][0, 0])))
    assert seen == [("neg", 2, -2), ("exp", -2, np.exp(np.float32(-2)))]
    steps = graph.steps(given)
    assert [next(steps)[0].name, *(op.name for op, _ in steps)] == ["neg", "exp"]


def test_constants_and_broadcasts_without_a_watch():
    b = Builder("net")
    x, row, one = b.input("x", X), b.input("row", TensorType(F32, (4,))), b.input("one", TensorType(F32))
    two = b.broadcast(b.constant(2.0, F32), shape=X.shape)
    rows, ones = b.broadcast(row, shape=X.shape), b.broadcast(one, shape=X.shape)
    columns = b.broadcast(b.input("column", TensorType(F32, (3,))), shape=X.shape, dims=(0,))
    results = [x * two + rows, rows - ones, columns * x, b.reduce(ones, op="sum", axes=(0, 1)), two, b.exp(rows)]
    graph = b.build(results)
    inputs = [np.arange(n, dtype=np.float32).reshape(v.shape) for v in graph.inputs for n in (v.type.size,)]
    interpreter, shown = Interpreter(graph), {}
    wanted, _ = interpreter.run(inputs, lambda op, operands, results: shown.update(zip(op.results, results)))
    for _ in range(2):
        found, _ = interpreter.run(inputs)
        for a, c, v in zip(found, wanted, graph.results, strict=True):
            assert a.dtype == c.dtype and a.shape == c.shape == shown[v].shape
            np.testing.assert_array_equal(a, c)
