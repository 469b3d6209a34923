"""`autograd.detect_anomaly()` names the operator and the line that made the first nan or infinity."""

import re

import pytest

import gluonjit as mx
from gluonjit import autograd, gluon, nd


class Net(gluon.HybridBlock):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, x):
        return self.function(F, x)


def fails(text, line):
    """An error that says `text`, then this source line."""
    return pytest.raises(mx.MXNetError, match=f"(?s)detect_anomaly: {text}.*test_anomalies.py.*{re.escape(line)}")


def variable(values):
    x = nd.array(values)
    x.attach_grad()
    return x


def wrong_forward(F, x):
    y = F.exp(x)
    z = F.log(y - 1)  # of 0
    return z * 2


def wrong_backward(F, x):
    y = F.sqrt(x)  # at 0
    return y * 3


@pytest.mark.parametrize("hybridize", [False, True])
def test_forward(hybridize):
    net, x = Net(wrong_forward), variable([1, 0])
    net.hybridize(hybridize)
    with autograd.detect_anomaly(), autograd.record(), fails("log.* gives inf", "F.log(y - 1)"):
        net(x)
    with autograd.record():
        net(x)  # outside, it is no error


@pytest.mark.parametrize("hybridize", [False, True])
def test_backward(hybridize):
    net, x = Net(wrong_backward), variable([1, 0])
    net.hybridize(hybridize)
    with autograd.detect_anomaly():
        with autograd.record():
            y = net(x)
        with fails("the gradient of .* has inf", "F.sqrt(x)"):
            y.backward()
    assert not autograd.is_recording()


def test_what_came_in():
    x = variable([float("nan")])
    with (
        autograd.detect_anomaly(),
        autograd.record(),
        fails("_mul_scalar gives nan; its inputs have nan already", "x * 2"),
    ):
        x * 2
    x[:] = 1
    with autograd.record():
        y = x * 2
    with autograd.detect_anomaly(), fails("the gradient of _mul_scalar has inf; the one that it gets has inf", "x * 2"):
        y.backward(nd.array([float("inf")]))
