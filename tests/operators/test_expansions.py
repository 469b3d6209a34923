"""Expansions are made once for equal attributes and types, and do not fill the memory."""

import pytest

import gluonjit as mx
from gluonjit.execution.block_compiler import trace_call
from gluonjit.gluon import HybridBlock
from gluonjit.ir.types import tensor
from gluonjit.operators import expansions, registry
from gluonjit.passes import run_passes


@pytest.fixture
def nothing_known(monkeypatch):
    monkeypatch.setattr(expansions, "_known", {})
    monkeypatch.setattr(expansions, "_size", 0)


@pytest.fixture
def expanded(monkeypatch, nothing_known):
    """Shapes and attributes with which `clip` was expanded."""
    op, calls = registry.get("clip"), []
    real = op.expand
    monkeypatch.setattr(op, "expand", lambda b, x, **attrs: calls.append((x.shape, attrs)) or real(b, x, **attrs))
    return calls


class Clips(HybridBlock):
    def hybrid_forward(self, F, x):
        y = F.clip(F.clip(x, 0, 1), 0, 1)
        return y + F.clip(x, -0.0, 1) + F.clip(F.sum(y, axis=0), 0, 1)


def test_each_signature_is_expanded_once(expanded):
    net = Clips()
    net.initialize()
    graph = run_passes(trace_call(net, [mx.nd.ones((2, 3))]), "expand")
    assert [shape for shape, _ in expanded] == [(2, 3), (2, 3), (3,)]  # 0.0 and -0.0 are two
    assert sum(op.name == "maximum" for op in graph.ops) == 4


def test_repeated_draws_take_streams_of_their_own(nothing_known):
    class Draws(HybridBlock):
        def hybrid_forward(self, F, x):
            return x + F.random.uniform(shape=(2, 3)) + F.random.uniform(shape=(2, 3))

    net = Draws()
    net.initialize()
    graph = run_passes(trace_call(net, [mx.nd.ones((2, 3))]), "expand")
    streams = [op.attrs["stream"] for op in graph.ops if op.name == "random_bits"]
    assert streams == list(range(len(streams))) and len(streams) == 2


def test_training_is_another_expansion(nothing_known):
    op, x = registry.get("Dropout"), tensor("f32", 2, 3)
    attrs = op.parse({"p": 0.5})
    assert not op.expansion([x], attrs).ops
    assert op.expansion([x], attrs, training=True).ops


def test_memory_is_bounded(nothing_known, monkeypatch):
    monkeypatch.setattr(expansions, "LIMIT", 100 * expansions._OP)
    op = registry.get("clip")
    attrs = op.parse({"a_min": 0, "a_max": 1})
    for n in range(1, 200):
        op.infer([tensor("f32", n)], attrs)
        assert expansions._size <= expansions.LIMIT
        assert expansions._size >= len(expansions._known) * expansions._OP


def test_equal_operators_share_the_graphs_of_their_gradient(nothing_known):
    """So passes go through them once, however many layers a net has."""
    op, x = registry.get("BatchNorm"), [tensor("f32", 2, 3, 4), *[tensor("f32", 3)] * 4]
    attrs = op.parse({})
    found = op.with_gradient(x, attrs, training=True)
    assert op.with_gradient(x, op.parse({}), training=True).regions == found.regions
    assert op.with_gradient(x, attrs).regions != found.regions
