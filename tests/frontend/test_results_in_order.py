"""Arrays that programs get are row-major, whoever computed them, so that `reshape` gives a view of them."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, nd, sym
from gluonjit.gluon import nn

X = np.arange(6, dtype="f4").reshape(2, 3)


def is_seen(x):
    """Whether what is written to a flat view of `x` is in `x`."""
    x.reshape((-1,))[:] = 7
    return (x.asnumpy() == 7).all()


def test_of_the_interpreter():
    block = nn.HybridLambda(lambda F, x: F.transpose(x))
    block.hybridize(backend="numpy")
    assert is_seen(block(nd.array(X)))


def test_shown_to_monitors():
    seen = []
    executor = sym.transpose(sym.var("x")).bind(mx.cpu(), {"x": nd.array(X)})
    executor.set_monitor_callback(lambda name, x: seen.append(is_seen(x)))
    executor.forward()
    assert seen == [True]


def test_cotangents_that_functions_get():
    """They are read-only, too, as both calls get the same ones."""

    class Same(autograd.Function):
        def forward(self, x):
            return x * 1

        def backward(self, dy):
            assert np.shares_memory(dy.reshape((-1,))._array, dy._array)
            with pytest.raises(ValueError, match="readonly"):
                dy *= 2
            return dy

    x = nd.array(X)
    x.attach_grad()
    with autograd.record():
        y = nd.transpose(Same()(x) + Same()(x)).sum()
    y.backward()
    assert (x.grad.asnumpy() == 2).all()


@pytest.mark.parametrize("mode", ["numpy", "native"])
def test_that_own_operators_get(mode, monkeypatch):
    monkeypatch.setenv("GLUONJIT_PLAIN", mode)
    seen = []

    class Twice(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * 2)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], out_grad[0] * 2)
            seen.extend(map(is_seen, (*in_data, *out_data)))
            assert np.shares_memory(out_grad[0].reshape((-1,))._array, out_grad[0]._array)
            with pytest.raises(ValueError, match="readonly"):
                out_grad[0] *= 2

    @mx.operator.register("twice_in_order")
    class TwiceProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Twice()

    x = nd.array(X)
    x.attach_grad()
    with autograd.record():
        y = nd.transpose(nd.Custom(nd.transpose(x), op_type="twice_in_order"))
        loss = (y * y).sum()
    loss.backward()
    assert seen == [True] * 2
    np.testing.assert_array_equal(x.grad.asnumpy(), 8 * X)
