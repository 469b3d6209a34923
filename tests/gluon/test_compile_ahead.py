"""Code that is ready before the first call (`net.compile`), and calls that do not wait for it (`wait=False`)."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.execution import session
from gluonjit.gluon import nn
from gluonjit.runtime.executable import Executable


def _net():
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu", in_units=5), nn.Dense(3, in_units=4))
    net.initialize()
    return net


def test_compile_makes_the_first_call_find_its_code(monkeypatch):
    net, x = _net(), mx.nd.ones((2, 5))
    with pytest.raises(RuntimeError, match=r"is not hybridized.*call hybridize\(\) first"):
        net.compile(x)
    wanted = net(x).asnumpy()
    net.hybridize()
    net.compile(x)
    monkeypatch.setattr(session.Session, "__init__", None)  # another signature would fail
    np.testing.assert_allclose(net(x).asnumpy(), wanted, rtol=1e-6)


@pytest.fixture
def held(monkeypatch):
    """An event without which no thread but this one gets code."""
    event, here = threading.Event(), threading.current_thread()
    callee = session.Session.callee.fget

    def waiting(self):
        if threading.current_thread() is not here:
            assert event.wait(60)
        return callee(self)

    monkeypatch.setattr(session.Session, "callee", property(waiting))
    yield event
    event.set()


def _join(net):
    for compiled in net._jit_cached.store.entries:
        if compiled.session._compiling is not None:
            compiled.session._compiling.join()


def test_calls_do_not_wait_for_code(held):
    net, x = _net(), mx.nd.ones((2, 5))
    wanted = net(x).asnumpy()
    net.hybridize(wait=False)
    for _ in range(2):
        np.testing.assert_array_equal(net(x).asnumpy(), wanted)  # operator by operator: the same bits
    (compiled,) = net._jit_cached.store.entries
    assert compiled.session.compiled_already is None
    held.set()
    _join(net)
    np.testing.assert_allclose(net(x).asnumpy(), wanted, rtol=1e-6)
    assert isinstance(compiled.session.compiled_already, Executable) and net._fast_call is not None


def test_what_fails_meanwhile_is_raised_by_a_call(monkeypatch):
    net, x = _net(), mx.nd.ones((2, 5))

    def fails(self):
        raise MemoryError("no room")

    monkeypatch.setattr(session.Session, "callee", property(fails))
    net.hybridize(wait=False)
    with pytest.raises(MemoryError, match="no room"):
        for _ in range(100):
            net(x)
            _join(net)
