"""Gradients are announced before backward ends: what sums over processes begin with."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, nd
from gluonjit.gluon import nn
from gluonjit.ndarray.gradient_listeners import listeners

noted = []


@mx.operator.register("early_look")
class Look(mx.operator.CustomOpProp):
    """The identity, whose gradient, in the middle of backward, looks at what is there."""

    def __init__(self):
        super().__init__(need_top_grad=True)

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return LookOp()


class LookOp(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        noted.append("middle")
        for listener in {id(x): x for x in listeners.values()}.values():
            listener.look()
        self.assign(in_grad[0], req[0], out_grad[0])


class Listener:
    def __init__(self, names):
        self.names = names
        self.announced, self.early, self.stored_arrays = {}, {}, {}

    def computing(self, storage, gradient, progress, ready):
        self.announced.setdefault(self.names[storage], (gradient, progress, ready))

    def stored(self, storage, gradient):
        self.stored_arrays[self.names[storage]] = gradient

    def look(self):
        for name, (gradient, progress, ready) in self.announced.items():
            if progress is None or progress.steps() >= ready:
                self.early[name] = gradient.copy()


def network(width=3):
    mx.random.seed(1)
    net = nn.HybridSequential()
    net.add(nn.Dense(width, in_units=4), nn.HybridLambda(lambda F, x: F.Custom(x, op_type="early_look")))
    net.add(nn.Dense(width, in_units=width))
    net.initialize()
    return net


def listening(arrays):
    """A listener to the gradients of arrays, given by their names."""
    listener = Listener({x.storage(): name for name, x in arrays.items()})
    for storage in listener.names:
        listeners[storage] = listener
    return listener


@pytest.fixture(autouse=True)
def nobody_listens():
    mx.set_num_threads(2)  # the wide net has barriers
    yield
    mx.set_num_threads(None)
    listeners.clear()
    noted.clear()


@pytest.mark.parametrize(("hybrid", "width"), [(False, 3), (True, 3), (True, 256)])
def test_gradients_are_complete_when_their_number_is_reached(hybrid, width):
    net = network(width)
    if hybrid:
        net.hybridize()
    gradients = {f"{k}.{what}": getattr(net[k], what).grad() for k in (0, 2) for what in ("weight", "bias")}
    listener = listening(gradients)
    with autograd.record():
        out = net(nd.array(np.arange(256).reshape(64, 4)))
    out.backward()
    assert noted == ["middle"]
    assert set(listener.early) == {"2.weight", "2.bias"}
    for name, early in listener.early.items():
        np.testing.assert_array_equal(early, gradients[name].asnumpy())
    assert set(listener.stored_arrays) == set(gradients) == set(listener.announced)
    for name, (gradient, progress, ready) in listener.announced.items():
        assert (progress is not None) == hybrid and gradient is listener.stored_arrays[name]
        assert progress is None or progress.steps() >= ready


def test_gradients_that_are_returned_or_added_are_not_announced():
    net = network()
    net.hybridize()
    net[2].weight.grad_req = "add"
    listener = listening({"weight": net[2].weight.grad(), "first": net[0].weight.grad()})
    with autograd.record():
        out = net(nd.ones((2, 4)))
    autograd.grad(out, [net[0].weight.data()], retain_graph=True)
    assert not listener.announced
    out.backward()
    assert set(listener.announced) == {"first"} and set(listener.stored_arrays) == {"first", "weight"}


def test_an_executor_announces_gradients():
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=64, name="first")
    x = mx.sym.Custom(x, op_type="early_look", name="look")
    x = mx.sym.FullyConnected(x, num_hidden=64, name="second")
    executor = x.simple_bind(mx.cpu(), data=(64, 64), grad_req={"first_weight": "write", "second_weight": "write"})
    gradients = {name: executor.grad_dict[name] for name in ("first_weight", "second_weight")}
    listener = listening(gradients)
    executor.forward(is_train=True, data=nd.ones((64, 64)))
    executor.backward(nd.ones((64, 64)))
    assert set(listener.early) == {"second_weight"} and set(listener.stored_arrays) == set(gradients)
