"""Operators that have been called often run their primitives at once: with the same bits, in memory of their own."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, nd
from gluonjit.ndarray.settled_calls import SettledCalls
from gluonjit.operators import registry
from gluonjit.operators.reductions import reduction

from . import samples
from .answers import TRACEABLE
from .running import KEY, run_case


@pytest.mark.parametrize("operator", TRACEABLE)
def test_settled_calls_give_the_bits_of_the_expansion(operator):
    op = registry.get(operator)
    for case in samples.cases(operator):
        calls = SettledCalls.of(op, op.parse(case.attrs))
        if calls is None:
            continue
        types = (case.training, *[(x.shape, x.dtype) for x in case.inputs])
        found = None
        for _ in range(12):
            found = found or calls.find(types, case.inputs)
        if found is not None:
            for k, (a, b) in enumerate(zip(calls.compute(found, case.inputs, np.array(KEY)), run_case(case))):
                assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), f"{case}: result {k}"


def test_calls_settle(monkeypatch):
    """The expansion, which looks at axes, is not asked any more, and answers are the same."""
    x = nd.array(np.arange(6).reshape(2, 3))
    before = [nd.sum(x, axis=1).asnumpy().tolist() for _ in range(12)]
    monkeypatch.setattr(reduction, "reduced_axes", lambda *args: 1 / 0)
    assert before == [[3, 12]] * 12 and nd.sum(x, axis=1).asnumpy().tolist() == [3, 12]


@pytest.mark.parametrize("recording", [False, True])
def test_settled_calls_draw_what_others_draw(recording, monkeypatch):
    x = nd.ones((4, 5))
    x.attach_grad()

    def drawn():
        mx.random.seed(3)
        with autograd.record() if recording else autograd.train_mode():
            return [(nd.Dropout(x, p=0.5) + nd.random.normal(shape=(4, 5))).asnumpy().tolist() for _ in range(12)]

    found = drawn()
    monkeypatch.setattr(SettledCalls, "find", lambda *args: None)
    assert found == drawn() and found[10] != found[11]


def test_results_are_not_shared():
    """Neither with operands nor with constants of the graph."""
    x = nd.array([[1.0, 2.0]])
    for _ in range(12):
        for make in (nd.identity, lambda x: nd.reshape(x, shape=(2, 1)), nd.zeros_like, nd.ones_like, nd.shape_array):
            y = make(x)
            expected = y.asnumpy().tolist()
            y[:] = 7
            assert x.asnumpy().tolist() == [[1, 2]] and make(x).asnumpy().tolist() == expected
