"""What is recorded, what is kept for the gradient, and what happens to it."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, nd
from gluonjit.gluon import nn


def normalized(hybridize):
    """BatchNorm and a dense layer of ones, whose shapes are known."""
    net = nn.HybridSequential()
    net.add(nn.BatchNorm(), nn.Dense(1))
    net.initialize(mx.init.One())
    x = nd.array([[1.0, 2.0], [3.0, 5.0]])
    net(x)
    if hybridize:
        net.hybridize()
    return net, x


def mean_of(net):
    return net[0].running_mean.data().asnumpy()


@pytest.mark.parametrize("hybridize", [False, True])
def test_each_of_two_recorded_calls_changes_the_moving_statistics(hybridize):
    net, x = normalized(hybridize)
    with autograd.record():
        y = net(x) + net(x * 2)
    assert mean_of(net).tolist() == [0, 0]
    y.backward()
    np.testing.assert_allclose(mean_of(net), [0.56, 0.98], rtol=1e-6)  # MXNet's numbers: the later call's first


@pytest.mark.parametrize("hybridize", [False, True])
def test_a_retained_graph_changes_them_again(hybridize):
    net, x = normalized(hybridize)
    with autograd.record():
        y = net(x)
    y.backward(retain_graph=True)
    np.testing.assert_allclose(mean_of(net), [0.2, 0.35], rtol=1e-6)
    y.backward()
    np.testing.assert_allclose(mean_of(net), [0.38, 0.665], rtol=1e-6)


@pytest.mark.parametrize("hybridize", [False, True])
def test_statistics_of_a_frozen_layer_stay(hybridize):
    net, x = normalized(hybridize)
    net[0].collect_params().setattr("grad_req", "null")
    with autograd.record():
        y = net(x)
    y.backward()
    assert mean_of(net).tolist() == [0, 0]
    net[0].collect_params().setattr("grad_req", "write")
    with autograd.record():
        y = net(x)
    y.backward(train_mode=False)
    assert mean_of(net).tolist() == [0, 0]


def test_hooks_see_recorded_calls():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize()
    seen = []
    net.register_op_hook(lambda name, op, x: seen.append(name))
    with autograd.record():
        net(nd.ones((1, 3)))
    assert len(seen) == 1 and seen[0].endswith(b"fwd_output")
