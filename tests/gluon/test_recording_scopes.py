"""`autograd.pause`, `record`, `train_mode` and `predict_mode` inside of `hybrid_forward`: as in the plain call."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, nd
from gluonjit.gluon import HybridBlock, nn
from gluonjit.ndarray.variable import tracked


class Net(HybridBlock):
    """`function(F, x, w)` of an argument, a parameter, and layers that it may ask for."""

    def __init__(self, function, layers=None, **kwargs):
        super().__init__(**kwargs)
        self.function = function
        with self.name_scope():
            self.w = self.params.get("w", shape=(2, 3), init=mx.init.Constant(0.5))
            self.state = self.params.get("state", shape=(2, 3), init="zeros", grad_req="null")
            if layers is not None:
                self.layer = layers()

    def hybrid_forward(self, F, x, w, state):
        return self.function(self, F, x, w, state)


def outcome(function, hybrid, layers=None, record=True, order=1):
    """Outputs, which of them have a gradient, gradients, and the state after two calls of a block."""
    mx.random.seed(3)
    net = Net(function, layers)
    net.initialize()
    if hybrid:
        net.hybridize()
    found = []
    for _calls in range(2):
        x = nd.array(np.linspace(0.2, 1.7, 6).reshape(2, 3))
        x.attach_grad()
        params = [p for p in net.collect_params().values() if p.grad_req != "null"]
        for g in [x.grad, *(p.grad() for p in params if p._data is not None)]:
            g[:] = 7
        if record:
            with autograd.record():
                y = net(x)
        else:
            y = net(x)
        y = y if isinstance(y, list) else [y]
        found += [a.asnumpy() for a in y] + [tracked(a) for a in y]
        heads = [a for a in y if tracked(a)]
        if heads and order == 2:
            with autograd.record():
                heads = [autograd.grad([*heads, (x * 0).sum()], [x], create_graph=True)[0] ** 2]
            found.append(tracked(heads[0]))
            heads = [y for y in heads if tracked(y)]
        if heads:
            autograd.backward(heads)
        found += [x.grad.asnumpy(), *(p.grad().asnumpy() for p in params)]
        found.append(net.state.data().asnumpy())
        found += [p.data().asnumpy() for name, p in net.collect_params().items() if "running" in name]
    return found


def assert_same(function, layers=None, record=True, order=1):
    plain, compiled = (outcome(function, hybrid, layers, record, order) for hybrid in (False, True))
    for k, (a, b) in enumerate(zip(compiled, plain, strict=True)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=f"value {k}")
    return plain


def scaled(net, F, x, w, state):
    with autograd.pause():
        norm = F.sum(x * w)
    return x * w / norm


def paused_first(net, F, x, w, state):
    with autograd.pause():
        y = x * w
    return [y, y * x, y.reshape((3, 2)), F.sin(y)]


def all_paused(net, F, x, w, state):
    with autograd.pause():
        return [x * w, x, x[0:1], x.copy()]


def views(net, F, x, w, state):
    y = x * w
    first = y[0:1]
    with autograd.pause():
        row, copy = y[1:2], y.copy()
        total = first.sum() + row.sum()
    return [first * total, row * w[0:1], copy * x, total]


def averaged(net, F, x, w, state):
    y = x * w
    with autograd.pause():
        state[:] = 0.9 * state + 0.1 * y
    return y * state


def normalized_weight(net, F, x, w, state):
    with autograd.pause():
        w[:] = w / w.norm()
    return x * w


def written(net, F, x, w, state):
    y = x * 2
    with autograd.pause():
        y[0:1] = w[0:1] * 3
        y += 1
    return y * y * w


def written_afterwards(net, F, x, w, state):
    with autograd.pause():
        buffer = F.zeros((2, 3)) + x
    buffer[0:1] = w[1:2] * 2
    return buffer * x


def nested(net, F, x, w, state):
    with autograd.pause():
        a = x * w
        with autograd.record():
            b = F.sin(x) * a
        c = b * w
    return [b, c * x]


def asked(net, F, x, w, state):
    return x * w if autograd.is_recording() else x - w


def in_a_loop(net, F, x, w, state):
    def body(row, total):
        with autograd.pause():
            factor = F.sum(row * total)
        return row * factor, total + row * factor

    rows, total = F.contrib.foreach(body, x, w[0])
    return [rows, total]


def around_a_loop(net, F, x, w, state):
    with autograd.pause():
        rows, total = F.contrib.foreach(lambda row, s: (row * s, s + row), x, w[0])
    return [rows * x, total * w[1]]


def in_a_branch(net, F, x, w, state):
    def chosen():
        with autograd.pause():
            y = F.exp(x)
        return y * w * x

    return F.contrib.cond(F.sum(x) > 0, chosen, lambda: x - w)


def until(net, F, x, w, state):
    def step(k, v):
        with autograd.pause():
            s = F.sum(v)
        return v * s, [k + 1, v * s * 0.1]

    rows, last = F.contrib.while_loop(lambda k, v: k < 2, step, [F.zeros((1,)), x * w], max_iterations=3)
    return [rows, last[1]]


def functions_set(net, F, x, w, state):
    before = autograd.set_recording(False)
    y = F.exp(x)
    autograd.set_recording(before)
    return y * w


class Doubled(autograd.Function):
    def forward(self, x):
        return x * x

    def backward(self, g):
        return g * 5


def own_gradient(net, F, x, w, state):
    with autograd.pause():
        stopped = Doubled()(x)
    return Doubled()(x * w) * stopped


def grows_in_numpy(net, F, x, w, state):
    a = x.as_np_ndarray()
    with autograd.pause():
        b = F.np.exp(a)
        c = a.T
    return ((b * a) * w.as_np_ndarray() + c.T * w.as_np_ndarray()).as_nd_ndarray()


PROGRAMS = [scaled, paused_first, all_paused, views, averaged, normalized_weight, written, written_afterwards, nested]
PROGRAMS += [asked, in_a_loop, around_a_loop, in_a_branch, until, functions_set, own_gradient, grows_in_numpy]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_pauses_stop_gradients_as_in_plain_calls(function):
    assert_same(function)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_second_gradients_reach_what_those_of_plain_calls_reach(function):
    assert_same(function, order=2)


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_second_gradient_that_is_0_is_not_computed_from_an_infinite_derivative(hybrid):
    """The gradient by the weight depends on the square root beside it by a derivative of 0, which is not 0 · inf."""
    net = Net(lambda net, F, x, w, state: [F.sqrt(x) + w * w, F.exp(x) * 2])
    net.initialize()
    net.hybridize(hybrid)
    x, other = nd.zeros((2, 3)), nd.ones((1,))
    x.attach_grad()
    other.attach_grad()
    x.grad[:] = other.grad[:] = 7
    with autograd.record():
        y, z = net(x)
        (slope,) = autograd.grad([y, z * other], [net.w.data()], create_graph=True)
        penalty = slope * slope
    penalty.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), np.zeros((2, 3)))
    np.testing.assert_allclose(net.w.grad().asnumpy(), np.full((2, 3), 4.0))  # 8 w
    assert other.grad.asscalar() == 7


def recorded_part(net, F, x, w, state):
    y = F.exp(x)
    with autograd.record():
        z = y * x * w
    return [y, z, z * x]


def recorded_part_paused(net, F, x, w, state):
    with autograd.record():
        with autograd.pause():
            y = x * w
        return y * w, y * 2


@pytest.mark.parametrize("function", [recorded_part, recorded_part_paused, nested], ids=lambda f: f.__name__)
@pytest.mark.parametrize("record", [True, False])
def test_a_block_may_set_recording_on(function, record):
    def listed(*args):
        return list(function(*args))

    plain = assert_same(listed, record=record)
    assert record or True in [value for value in plain if isinstance(value, bool)]


def test_unrecorded_and_recorded_calls_of_a_block_that_pauses():
    net = Net(scaled)
    net.initialize()
    net.hybridize()
    x = nd.ones((2, 3))
    for _ in range(2):
        assert not tracked(net(x))
        with autograd.record():
            y = net(x)
        y.backward()
        np.testing.assert_allclose(net.w.grad().asnumpy(), np.full((2, 3), 1 / 3), rtol=1e-6)
        np.testing.assert_allclose(net(x).asnumpy(), y.asnumpy())


def normalized(train, pause_trains):
    """With statistics of the batch or kept ones, once recorded and once in a pause."""

    def function(net, F, x, w, state):
        with autograd.train_mode() if train else autograd.predict_mode():
            a = net.layer(x * w)
        with autograd.pause(train_mode=pause_trains):
            b = net.layer(x * x)
        return [a * b * x, b]

    return function


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("pause_trains", [True, False])
def test_modes_inside_of_a_block_are_those_of_the_plain_call(record, train, pause_trains):
    assert_same(normalized(train, pause_trains), nn.BatchNorm, record=record)


@pytest.mark.parametrize("train", [True, False])
def test_dropout_follows_the_modes_inside_of_a_block(train):
    def drops(net, F, x, w, state):
        ones = F.ones_like(x).tile((50, 50))
        with autograd.train_mode():
            a = F.Dropout(ones, p=0.5)
        with autograd.predict_mode():
            b = F.Dropout(ones, p=0.5)
        with autograd.pause(train_mode=True):
            c = F.Dropout(ones, p=0.5)
        return [a, b, c, F.Dropout(ones, p=0.5), a * x.sum()]

    found = []
    for hybrid in (False, True):
        mx.random.seed(1)
        net = Net(drops)
        net.initialize()
        net.hybridize(hybrid)
        with autograd.record(train_mode=train):
            found.append([y.asnumpy() for y in net(nd.ones((2, 3)))])
    for a, b in zip(*found):
        np.testing.assert_array_equal(a, b)
    assert [0 in y for y in found[0]] == [True, False, True, train, True]


def test_dropout_follows_the_modes_inside_of_a_loop():
    def drops(net, F, x, w, state):
        def body(row, count):
            with autograd.train_mode():
                a = F.Dropout(row, p=0.5)
            with autograd.predict_mode():
                b = F.Dropout(row, p=0.5)
            return [a, b], count

        return F.contrib.foreach(body, F.ones((4, 300)), x)[0]

    for hybrid in (False, True):
        net = Net(drops)
        net.initialize()
        net.hybridize(hybrid)
        a, b = net(nd.ones((2, 3)))
        assert 0 in a.asnumpy() and 0 not in b.asnumpy()


def test_detached_memory_stays_detached_when_it_is_written_to():
    def function(net, F, x, w, state):
        y = x * 1
        d = y.detach()
        with autograd.pause():
            y *= w
        return d * w

    assert_same(function)


@pytest.mark.filterwarnings("ignore:.*sets the training mode")
def test_an_exported_block_stops_the_same_gradients(tmp_path):
    net = Net(scaled)
    net.initialize()
    net.hybridize()
    x = nd.ones((2, 3))
    with autograd.record():
        net(x)
    net.export(str(tmp_path / "net"))
    again = mx.gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params"))
    with autograd.record():
        y = again(x)
    y.backward()
    np.testing.assert_allclose(next(iter(again.params.values())).grad().asnumpy(), np.full((2, 3), 1 / 3), rtol=1e-6)
