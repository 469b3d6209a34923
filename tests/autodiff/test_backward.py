"""What a gradient's graph takes and gives, argument by argument."""

import functools
import gc

import numpy as np

from gluonjit.autodiff.backward import Cotangent, Presence, Result, Value
from gluonjit.autodiff.computation import Computation
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import F32, TensorType
from gluonjit.operators import registry
from gluonjit.operators.registry import operator_graph


def test_values_and_cotangents():
    b = Builder("net")
    x, w = (b.input(name, TensorType(F32, (3,))) for name in "xw")
    backward = Computation(b.build([b.exp(b.mul(x, w)), b.add(x, x)])).backward((0,), (0, 1))
    assert set(backward.values) <= {Value(0, False), Value(1, False), Value(-1, False)} and backward.states == ()
    assert backward.cotangents == (Cotangent(0, True), Cotangent(1, True)) and not backward.has_rows
    assert backward.results == (Result(0, False),) and backward.presences == () and not backward.calls_python
    values = {0: np.full(3, 0.5), 1: np.full(3, 2.0), -1: np.full(3, np.e)}
    arguments = backward.arguments(
        lambda place: values[place].astype(np.float32),
        lambda cotangent: np.full(3, 1 + cotangent.head, np.float32),
        lambda head: np.ones((), np.float32),
    )
    outputs, _ = backward.computation.run(arguments)
    (gradient,) = backward.visited(backward.gradients(outputs, [None]), outputs)
    np.testing.assert_allclose(gradient.asnumpy(), np.full(3, 2 * np.e + 4), rtol=1e-6)


def test_states_are_read_as_they_are():
    op = registry.get("BatchNorm")
    types = [TensorType(F32, (2, 3)), *[TensorType(F32, (3,))] * 4]
    computation = Computation(operator_graph(op, op.parse({}), types, True))
    backward = computation.backward((0,), computation.differentiable((0,)))
    assert sorted(backward.states) == [3, 4]
    assert {v.place for v in backward.values if v.changes} == {3, 4} and str(Value(-2, False)) == "output 1"


def test_results_that_may_have_no_cotangent_are_told_apart():
    """An output layer gives its gradient where it is visited, be it with a cotangent of 0."""
    op = registry.get("SoftmaxOutput")
    types = [TensorType(F32, (2, 3)), TensorType(F32, (2,))]
    b = Builder("net", "traced", True)
    x, label = (b.input(name, t) for name, t in zip(("x", "label"), types))
    loss = b.emit("mx.SoftmaxOutput", [x, label], op.parse({}))[0]
    backward = Computation(b.build([loss, b.emit("mx.exp", [x])[0]])).backward((0,), (0, 1))
    assert backward.presences == (Presence(0),) and [c.head for c in backward.cotangents] == [0, 1]
    assert not backward.cotangents[0].is_read


def test_the_garbage_collector_rests_while_a_gradient_is_made():
    b = Builder("g", "expanded")
    x = b.input("x", TensorType(F32, (3,)))
    rests = []

    def compile(graph):
        rests.append(not gc.isenabled())
        return functools.partial(evaluate, graph)

    computation = Computation(b.build([b.exp(x)]), compile, after=lambda *_: rests.append(not gc.isenabled()))
    heads = computation.differentiable((0,))
    rests.clear()
    computation.forward((0,), heads)
    assert rests and all(rests) and gc.isenabled()
