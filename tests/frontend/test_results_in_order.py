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


class Twice(autograd.Function):
    """Doubles its gradient in place."""

    def forward(self, x):
        return x * 1

    def backward(self, dy):
        dy.reshape((-1,))[:] *= 2
        return dy


class TwiceOperator(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        assert all(map(is_seen, (*in_data, *out_data)))
        out_grad[0].reshape((-1,))[:] *= 2
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("twice_in_place")
class TwiceProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return TwiceOperator()


def by_operator(F, x):
    return F.Custom(F.identity(x), op_type="twice_in_place")


@pytest.mark.parametrize(
    "own, hybridize", [(lambda F, x: Twice()(x), False), (by_operator, False), (by_operator, True)]
)
def test_that_own_gradients_get(own, hybridize):
    """They may write to their cotangents: whoever else gets the same ones does not see it."""
    block = nn.HybridLambda(lambda F, x: F.transpose(own(F, x) + own(F, x)))
    block.hybridize(hybridize)
    x, head = nd.array(X), nd.array(X.T)
    x.attach_grad()
    for heads, wanted in (((), np.full_like(X, 4)), ((head,), 4 * X)):
        with autograd.record():
            y = block(x) if heads else block(x).sum()
        y.backward(*heads)
        np.testing.assert_array_equal(x.grad.asnumpy(), wanted)
    np.testing.assert_array_equal(head.asnumpy(), X.T)
