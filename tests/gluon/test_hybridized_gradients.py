"""Layers in loops and branches, outputs that are inputs, states: hybridized blocks have the gradients of plain ones."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, nd
from gluonjit.autodiff.computation import Computation
from gluonjit.base import MXNetError
from gluonjit.execution.backends import get_backend
from gluonjit.gluon import HybridBlock, nn, rnn

ONES = (2, 4)
X = np.random.RandomState(0).uniform(0.3, 1.2, (3, *ONES)).astype("f4")


def foreach(body):
    return lambda block, F, x: F.contrib.foreach(lambda d, s: body(block, F, d, s[0]), x, [F.ones(ONES)])[0]


def count_to_3(block, F, x):
    def step(i, v):
        return F.Dropout(v, 0.5), (i + 1, v * 1.5)

    return F.contrib.while_loop(lambda i, v: i < 3, step, (F.zeros((1,)), x), max_iterations=5)[0]


def inner(F, d, s):
    rows, _ = F.contrib.foreach(lambda e, q: (e * q[0] * F.sum(s), [q[0] + e]), d, [F.ones((4,))])
    return rows, [d * s]


def norm():
    return nn.BatchNorm(in_channels=4)


class Sparse(HybridBlock):
    """A layer that keeps a mean, and whose gradient is not 0 where its cotangent is."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.activity = self.params.get("activity", shape=(4,), init=mx.init.Constant(0.5), grad_req="null")

    def hybrid_forward(self, F, x, activity):
        return F.IdentityAttachKLSparseReg(F.sigmoid(x), activity, penalty=0.1)


def twice(join):
    """A function that calls the layer `b.c0` twice on one value: each call changes its state, as in MXNet."""

    def function(b, F, x):
        v = F.reshape(x, shape=(6, 4))
        return join(F, b.c0(v), b.c0(v))

    return function


def two_loops(b, F, x):
    first, second = (F.contrib.foreach(lambda d, s: (b.c0(d), s), x, []) for _ in range(2))
    return first[0] + second[0]


CASES = {
    "a GELU behind a normalization": (
        lambda b, F, x: b.c1(F.LeakyReLU(b.c0(F.reshape(x, shape=(6, 4))), act_type="gelu")),
        [lambda: nn.LayerNorm(in_channels=4), lambda: nn.Dense(3, in_units=4)],
    ),
    "dropout in foreach": (foreach(lambda b, F, d, s: (F.Dropout(d, 0.5) * s, [F.Dropout(s, 0.3) + d])), []),
    "dropout in while_loop": (count_to_3, []),
    "dropout in cond": (lambda b, F, x: F.contrib.cond(F.sum(x) > 0, lambda: F.Dropout(x, 0.5) * x, lambda: x), []),
    "foreach in foreach": (foreach(lambda b, F, d, s: inner(F, d, s)), []),
    "a shared layer": (lambda b, F, x: b.c0(b.c0(F.reshape(x, shape=(6, 4)))), [norm]),
    # Of squares of what is normalized, terms of 49 would cancel to gradients of 0.04, off by up to 3e-5: so a sigmoid.
    "a layer twice on one value": (twice(lambda F, y, z: F.sigmoid(y + z)), [norm]),
    "a layer twice on one value, two results": (twice(lambda F, y, z: [F.sigmoid(y), F.sigmoid(z)]), [norm]),
    "a layer twice on one value, once constant": (twice(lambda F, y, z: F.BlockGrad(y) * z), [norm]),
    "a layer twice on one value, with a rule": (twice(lambda F, y, z: y * z), [Sparse]),
    "a layer in two equal loops": (two_loops, [norm]),
    "statistics in foreach": (
        foreach(lambda b, F, d, s: (b.c1(b.c0(d)), [b.c0(d) * s])),
        [norm, lambda: nn.Dense(3, in_units=4)],
    ),
    "statistics in cond": (lambda b, F, x: F.contrib.cond(F.sum(x) > 0, lambda: b.c0(x[0]), lambda: x[0]), [norm]),
    "through integers": (lambda b, F, x: (x * 3).astype("int32").astype("float32") * x, []),
    "outputs that are inputs": (lambda b, F, x: [x, x * 2, x], []),
    "outputs that are views": (lambda b, F, x: [x.reshape((6, 4)), x[1], x], []),
    "an lstm with dropout": (
        lambda b, F, x: b.c0(x),
        [lambda: rnn.LSTM(3, num_layers=2, dropout=0.5, input_size=4)],
    ),
}


class Layers(HybridBlock):
    def __init__(self, function, children, **kwargs):
        super().__init__(**kwargs)
        self.function = function
        for k, make in enumerate(children):
            setattr(self, f"c{k}", make())

    def hybrid_forward(self, F, x):
        return self.function(self, F, x)


def outcome(name, hybrid):
    """The losses of two steps, all gradients, and the parameters afterwards."""
    mx.random.seed(7)
    net = Layers(*CASES[name], prefix="layers_")
    net.initialize(mx.init.One())
    if hybrid:
        net.hybridize()
    x = nd.array(X)
    x.attach_grad()
    found = []
    parameters = net.collect_params().values()
    for _ in range(2):
        with autograd.record():
            out = net(x)
            loss = sum((y * y).sum() for y in (out if isinstance(out, (list, tuple)) else [out]))
        loss.backward()
        found += [loss, x.grad, *(p.grad() for p in parameters if p.grad_req != "null")]
        found = [nd.array(v) for v in found]
    return [v.asnumpy() for v in (*found, *(p.data() for p in parameters))]


@pytest.mark.parametrize("name", CASES)
def test_hybridized_is_plain(name):
    plain, compiled = outcome(name, False), outcome(name, True)
    assert any(v.any() for v in plain[1:])
    for a, b in zip(compiled, plain, strict=True):
        assert np.isfinite(b).all()
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * (1 + np.abs(b).max()))


def test_maxima_of_positive_parts():
    """Windows that overlap, read padding, have several largest elements, or none that is positive."""
    x = nd.array(np.random.RandomState(0).randint(-2, 3, (2, 3, 9, 8)))
    x[1, 2, 4, 4] = np.nan
    found = []
    for hybrid in (False, True):
        net = nn.HybridSequential()
        net.add(nn.Activation("relu"), nn.MaxPool2D(3, 2, padding=1), nn.Activation("relu"), nn.MaxPool2D(2, 2))
        if hybrid:
            net.hybridize()
        x.attach_grad()
        with autograd.record():
            y = net(x * 1)
        y.backward(nd.arange(y.size).reshape(y.shape) + 1)
        found.append((y.asnumpy(), x.grad.asnumpy()))
    for plain, hybridized in zip(*found, strict=True):
        np.testing.assert_array_equal(hybridized, plain)
    assert 0 < np.count_nonzero(found[0][1]) < x.size


@pytest.mark.parametrize("hybrid", [False, True])
def test_two_calls_on_one_value_change_statistics_twice(hybrid):
    """The numbers are MXNet's."""
    net = Layers(lambda b, F, x: b.c0(x) + b.c0(x), [lambda: nn.BatchNorm(in_channels=3)])
    net.initialize()
    if hybrid:
        net.hybridize()
    x = nd.array(np.arange(12).reshape(4, 3) ** 1.5)
    x.attach_grad()
    with autograd.record():
        y = net(x)
    y.backward()
    np.testing.assert_allclose(net.c0.running_mean.data().asnumpy(), [2.2274222, 2.809295, 3.473156], rtol=1e-6)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(
    ("function", "moved"),
    [
        (lambda b, F, x: [F.sin(x), b.c0(x)], 0),
        (lambda b, F, x: [b.c0(x), b.c0(x)], 1),
        (lambda b, F, x: [F.sin(x) * b.c0(x), b.c0(x)], 1),
        (lambda b, F, x: [F.sign(b.c0(x))], 1),
        (lambda b, F, x: [F.ones_like(b.c0(x)) + x], 1),
        (lambda b, F, x: [(b.c0(x) > 0) * x], 1),
        (lambda b, F, x: [F.stop_gradient(b.c0(x)) * b.c0(x)], 2),
    ],
    ids=["another result", "another call", "on the way, and not", "sign", "ones_like", "greater", "stop_gradient"],
)
def test_statistics_move_where_a_gradient_passes_be_it_0(function, moved, hybrid):
    """By the first result alone. So it is in MXNet, too, but for "on the way, and not" hybridized."""
    net = Layers(function, [lambda: nn.BatchNorm(in_channels=4)])
    net.initialize()
    net.hybridize(hybrid)
    x = nd.array(X[0])
    x.attach_grad()
    with autograd.record():
        y = net(x)
    (y[0] if isinstance(y, list) else y).backward()
    mean = X[0].mean(axis=0)
    expected = mean * (0, 0.1, 0.19)[moved]
    np.testing.assert_allclose(net.c0.running_mean.data().asnumpy(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (lambda b, F, x: F.broadcast_minimum(x, x), 1),
        (lambda b, F, x: F.broadcast_maximum(x, x), 1),
        (lambda b, F, x: F.where(x > 0.5, x, x), 1),
        (lambda b, F, x: x * F.ones_like(x), 1),
        (lambda b, F, x: F.contrib.cond(F.sum(x) > 0, lambda: x * 3, lambda: x * x), 3),
        (lambda b, F, x: F.sign(x) * x, 1),
    ],
    ids=["minimum", "maximum", "where", "ones_like", "cond", "sign"],
)
def test_slopes_that_are_constant_have_a_gradient_of_0(function, slope, hybrid):
    """The slopes are MXNet's, in both modes; their gradient is an error there, which says that it has none."""
    net = Layers(function, [])
    net.hybridize(hybrid)
    x = nd.array(X[0])
    x.attach_grad()
    x.grad[:] = 7
    with autograd.record():
        (first,) = autograd.grad(net(x), [x], create_graph=True)
        penalty = (first * first).sum()
    np.testing.assert_array_equal(first.asnumpy(), np.full(ONES, slope, "f4"))
    penalty.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), np.zeros(ONES))


@pytest.mark.parametrize("hybrid", [None, False, True])
def test_rows_of_an_empty_array(hybrid):
    """No rows of no rows have a gradient of no rows; another number of rows is refused, hybridized or not."""
    net = Layers(lambda b, F, x: F.take(x, F.slice_axis(F.arange(0, 2), axis=0, begin=0, end=1)), [])
    net.hybridize(bool(hybrid))
    with mx.util.np_shape(True):
        x, nothing = nd.zeros((0, 3)), nd.array(np.zeros((0,), "f4"))
        x.attach_grad()
        with autograd.record(hybrid is not None):
            y = nd.take(x, nothing)
            with pytest.raises(MXNetError, match="cannot take 1 element"):
                net(x)
        assert y.shape == (0, 3)
        if hybrid is not None:
            y.backward()
            assert x.grad.shape == (0, 3)


class Counting(HybridBlock):
    """Multiplies by a state, which it counts up before or after that."""

    def __init__(self, before, **kwargs):
        super().__init__(**kwargs)
        self.before = before
        self.state = nd.array([1.0, 2.0])

    def hybrid_forward(self, F, x):
        if self.before:
            self.state[:] = self.state + 1
        y = x * x * self.state
        if not self.before:
            self.state[:] = self.state + 1
        return y


@pytest.mark.parametrize(("before", "hybrid"), [(True, False), (True, True), (False, True)])
def test_a_state_that_the_call_writes(before, hybrid):
    net = Counting(before, prefix="counting_")
    if hybrid:
        net.hybridize()
    x = nd.array([3.0, 4.0])
    x.attach_grad()
    for step in range(2):
        with autograd.record():
            y = net(x)
        y.backward()
        state = np.array([1.0, 2.0]) + step + before
        np.testing.assert_allclose(x.grad.asnumpy(), 2 * x.asnumpy() * state)
    np.testing.assert_allclose(net.state.asnumpy(), [3.0, 4.0])


def test_a_recorded_call_compiles_nothing_for_plain_ones():
    names = []

    def counted(graph, options):
        names.append(graph.name)
        return get_backend(None)(graph, options)

    mx.register_backend("counted gradients", counted)
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize(backend="counted gradients")
    x = nd.ones((4, 3))
    with autograd.record():
        y = net(x)
    assert len(names) == 1  # the forward computation that saves what the gradient needs
    y.backward()
    assert len(names) == 2
    assert (net(x).asnumpy() == y.asnumpy()).all()
    with autograd.record(), autograd.pause(train_mode=True):
        net(x)
    assert len(names) == 4, "plain calls, in each mode"


VIEWS = {
    "the argument": lambda F, x: x,
    "a row": lambda F, x: x[0],
    "a part of a view": lambda F, x: x.reshape((4,))[1:3],
    "columns": lambda F, x: x[:, 0:1],
    "detached": lambda F, x: x.detach(),
    "a detached row": lambda F, x: x[0].detach(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_results_of_recorded_calls_are_the_views_that_plain_calls_return(name):
    def run(hybridize):
        net = nn.HybridLambda(VIEWS[name])
        net.hybridize(hybridize)
        x = nd.array([[1.0, 2.0], [3.0, 4.0]])
        x.attach_grad()
        with autograd.record():
            y = net(x)
            z = (x * y).sum()
        z.backward()
        gradient = x.grad.asnumpy().tolist()
        x[:] = x * 10
        after = y.asnumpy().tolist()
        y[:] = -1
        return y is x, gradient, after, x.asnumpy().tolist()

    assert run(True) == run(False)


@pytest.mark.parametrize("hybridize", [False, True])
def test_what_no_head_depends_on_keeps_its_gradient(hybridize):
    net = nn.HybridLambda(lambda F, a, b: (a * 2, b * 3, F.BlockGrad(b)))
    net.hybridize(hybridize)
    a, b = nd.array([1.0, 2.0]), nd.array([3.0, 4.0])
    for x in (a, b):
        x.attach_grad()
        x.grad[:] = 7
    with autograd.record():
        y, z, constant = net(a, b)
    y.backward(retain_graph=True)
    assert (a.grad.asnumpy().tolist(), b.grad.asnumpy().tolist()) == ([2, 2], [7, 7])
    with pytest.raises(MXNetError, match="2-th variable because it is unreachable"):
        autograd.grad(y, [a, b], retain_graph=True)
    with pytest.raises(MXNetError, match="1-th variable because it is unreachable"):
        autograd.grad(constant, [a], retain_graph=True)
    assert autograd.grad(constant, [b], retain_graph=True)[0].asnumpy().tolist() == [0, 0]
    autograd.backward([y, z], retain_graph=True)
    assert (a.grad.asnumpy().tolist(), b.grad.asnumpy().tolist()) == ([2, 2], [3, 3])
    a.attach_grad("null")
    with pytest.raises(MXNetError, match="1-th variable because it does not require gradient"):
        autograd.grad(y, [a])


class WithDeviation(HybridBlock):
    """A loss, and a number that is only looked at: the root of 0 has an infinite slope."""

    def hybrid_forward(self, F, x):
        return F.sum(x * x), F.sqrt(F.sum(x - x))


@pytest.mark.parametrize("hybridize", [False, True])
def test_results_that_are_not_used_have_no_part_in_gradients(hybridize):
    block = WithDeviation()
    block.hybridize(hybridize)
    x = nd.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        loss, deviation = block(x)
    loss.backward(retain_graph=True)
    np.testing.assert_array_equal(x.grad.asnumpy(), [2, 4])
    np.testing.assert_array_equal(autograd.grad(loss, [x], create_graph=True)[0].asnumpy(), [2, 4])
    deviation.backward()
    assert np.isnan(x.grad.asnumpy()).all()


def test_a_gradient_to_be_differentiated_is_computed_once(monkeypatch):
    block = WithDeviation()
    block.hybridize()
    x = nd.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        loss, _ = block(x)
    ran = []
    run = Computation.run
    monkeypatch.setattr(Computation, "run", lambda self, *args: ran.append(self) or run(self, *args))
    autograd.grad(loss, [x], create_graph=True)
    assert len(ran) == 1


def test_a_gradient_to_be_differentiated_changes_the_states_on_its_way_alone():
    net = Layers(lambda b, F, x: (x * x, b.c0(x)), [norm])
    net.initialize()
    net.hybridize()
    x = nd.array(X[0])
    x.attach_grad()
    for head, moves in ((0, False), (1, True)):
        with autograd.record():
            (g,) = autograd.grad(net(x)[head], [x], create_graph=True)
        g.backward()
        np.testing.assert_allclose(x.grad.asnumpy(), np.zeros(ONES) if moves else np.full(ONES, 2), atol=1e-5)
        assert net.c0.running_mean.data().asnumpy().any() == moves


def scan(F, x, function):
    return F.contrib.foreach(lambda row, state: (function(row) * state, state + row), x, F.zeros_like(F.sum(x, axis=0)))


OWN_RULES = {
    "BlockGrad": lambda F, x: F.BlockGrad(x * x) * x,
    "detach": lambda F, x: F.sin((x * x).detach()) * x,
    "BlockGrad twice": lambda F, x: F.BlockGrad(F.BlockGrad(x * x) * x) * x * x,
    "straight-through": lambda F, x: F.contrib.round_ste(x * x * 3) * x * x,
    "gradientmultiplier": lambda F, x: F.contrib.gradientmultiplier(x * x, scalar=0.5) * x * x,
    "in foreach": lambda F, x: scan(F, x, lambda row: F.BlockGrad(row * row) * row)[0],
    "rule in foreach": lambda F, x: scan(F, x, lambda row: F.contrib.round_ste(row * row * 3) * row)[0],
    "in cond": lambda F, x: F.contrib.cond(F.sum(x) > 0, lambda: F.BlockGrad(x * x) * x * x, lambda: x * 1),
    "foreach behind": lambda F, x: scan(F, F.BlockGrad(x * x) * x, lambda row: row * row)[0],
}


@pytest.mark.parametrize("name", OWN_RULES)
def test_gradients_of_gradients_follow_the_rules_of_operators(name):
    def run(hybridize):
        net = nn.HybridLambda(OWN_RULES[name])
        net.hybridize(hybridize)
        x = nd.array([[0.4, 0.7], [1.1, -0.9]])
        x.attach_grad()
        with autograd.record():
            y = net(x)
            (first,) = autograd.grad(y, [x], create_graph=True)
            (second,) = autograd.grad(first * first * x, [x], create_graph=True)
            z = (first * first + second * x).sum()
        z.backward()
        return [v.asnumpy() for v in (y, first, second, x.grad)]

    for got, want in zip(run(True), run(False), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


DETACHED = {
    "behind": lambda F, x, y: F.sin((x * 2).detach()) * y,
    "view": lambda F, x, y: x.detach()[0:1].reshape((1,)) * y,
    "one of two ways": lambda F, x, y: (x.detach() * y, x.detach() + 1),
    "in foreach": lambda F, x, y: F.contrib.foreach(lambda r, s: (r.detach() * s, s + y), x, y)[0],
    "state": lambda F, x, y: F.contrib.foreach(lambda r, s: (s[0] * r, [s[0] + y[1], s[1] + r]), y, [y[0], x[0]])[0],
    "in cond": lambda F, x, y: F.contrib.cond(F.sum(x) > 0, lambda: x.detach() * y, lambda: y * 1),
}


@pytest.mark.parametrize("numpy", [False, True], ids=["nd", "np"])
@pytest.mark.parametrize("name", DETACHED)
def test_what_is_detached_is_unreachable(name, numpy):
    def run(hybridize):
        net = nn.HybridLambda(DETACHED[name])
        net.hybridize(hybridize)
        x, y = nd.array([0.4, 0.7]), nd.array([1.5, -2.0])
        if numpy:
            x, y = x.as_np_ndarray(), y.as_np_ndarray()
        for v in (x, y):
            v.attach_grad()
            v.grad[:] = 7
        with autograd.record():
            found = net(x, y)
        found = found if isinstance(found, (list, tuple)) else [found]
        heads = [v for v in found if v._grad_state is not None]
        autograd.backward(heads)
        return len(heads), x.grad.asnumpy().tolist(), x._grad_state.fresh, y.grad.asnumpy()

    *got, gradient = run(True)
    *want, wanted = run(False)
    assert got == want
    assert got[1:] == [[7, 7], False]
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5)
