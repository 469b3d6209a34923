"""What is recorded, what is kept for the gradient, and what happens to it."""

import gc
import os
import re
import threading
import weakref

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon, nd
from gluonjit.autodiff import operator_computations
from gluonjit.codes.store import Store
from gluonjit.gluon import nn
from gluonjit.ir import opdef


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


# What is recorded

M = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def variable(value=M, kind=nd):
    x = kind.array(value)
    x.attach_grad()
    return x


def gradient(function, kind=nd):
    """The gradient of the sum of `function(x)` by x."""
    x = variable(kind=kind)
    with autograd.record():
        y = function(x)
    y.backward()
    return x.grad.asnumpy().tolist()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: nd.array(x * 2),
        lambda x: nd.array(x * 2, ctx=mx.cpu(1)),
        lambda x: nd.array(x, dtype="float64") * 2,
        lambda x: mx.np.array(x * 2),
        lambda x: (x * 2).copyto(nd.zeros((2, 3))),
        lambda x: x.copyto(mx.cpu(1)) * 2,
        lambda x: (x * 2).as_in_context(mx.cpu(1)),
        lambda x: x.expand_dims(0, inplace=True) * 2,
        lambda x: x.expand_dims(0).squeeze(0, inplace=True) * 2,
        lambda x: x.flatten(inplace=True) * 2,
        lambda x: x.astype("float32", copy=False) * 2,
        lambda x: x.as_np_ndarray().reshape_view(3, 2) * 2,
        lambda x: nd.concatenate([x * 2]),
        lambda x: sum(row * 2 for row in x),
        lambda x: gluon.utils.split_and_load(x, [mx.cpu(0), mx.cpu(1)])[0] * 2 + x[1] * 2,
    ],
)
def test_copies_and_views_are_recorded(function):
    assert gradient(function) == [[2, 2, 2], [2, 2, 2]]


def test_masks_select_what_gets_a_gradient():
    expected = [[0, 0, 2], [2, 2, 2]]
    assert gradient(lambda x: x[x > 2] * 2, mx.np) == expected
    assert gradient(lambda x: mx.np.where(x > 2, x * 2, x * 0), mx.np) == expected
    assert gradient(lambda x: nd.contrib.boolean_mask(x, nd.array([0, 1])) * 2) == [[0, 0, 0], [2, 2, 2]]

    def assigned(x):
        y = mx.np.zeros((2, 3))
        y[mx.np.array(M) > 2] = x[x > 2] * 2
        return y

    assert gradient(assigned, mx.np) == expected


@pytest.mark.parametrize(
    "function",
    [nd.sign, lambda x: x > 2, lambda x: (x > 2).sum(), lambda x: x.argmax(axis=1), lambda x: x[0].one_hot(7)],
)
@pytest.mark.parametrize("hybridize", [False, True])
def test_what_is_constant_almost_everywhere_has_the_gradient_0(function, hybridize):
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return function(x)

    net = Net()
    net.hybridize(hybridize)
    x = variable()
    x.grad[:] = 7
    with autograd.record():
        y = net(x)
    y.backward()
    assert x.grad.asnumpy().tolist() == [[0] * 3] * 2


def test_a_mask_alone_gives_0():
    x = variable(kind=mx.np)
    x.grad[:] = 7
    with autograd.record():
        y = mx.np.where(x > 2, mx.np.ones((2, 3)), mx.np.zeros((2, 3)))
        z = mx.np.where(x > 2, y, y * 2)
    z.backward()
    assert x.grad.asnumpy().tolist() == [[0] * 3] * 2


@pytest.mark.parametrize("name", ["float_power", "nanmax", "unique"])
def test_functions_of_numpy_have_no_gradient(name):
    x = variable(kind=mx.np)
    arguments = (x, 2) if name == "float_power" else (x,)
    with autograd.record(), pytest.raises(mx.MXNetError, match=f"np.{name} is computed by NumPy.*\n.*test_tape.py"):
        getattr(mx.np, name)(*arguments)
    with autograd.record():
        assert mx.np.argwhere(x > 2).shape == (4, 2)


RECORDED = {
    "exp": (np.exp, np.exp(M)),
    "a number on the left": (lambda x: np.float32(3) * x, np.full((2, 3), 3)),
    "divide": (lambda x: np.divide(1, x), -1 / np.square(M)),
    "mean": (np.mean, np.full((2, 3), 1 / 6)),
    "concatenate": (lambda x: np.concatenate([x, x]), np.full((2, 3), 2)),
    "amax": (np.amax, np.array(M) == np.max(M)),
    "linalg.norm": (np.linalg.norm, np.array(M) / np.linalg.norm(M)),
}


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("name", RECORDED)
def test_numpys_own_functions_are_recorded(name, hybridize):
    function, wanted = RECORDED[name]
    net = nn.HybridLambda(lambda F, x: function(x))
    net.hybridize(hybridize)
    x = variable(kind=mx.np)
    with autograd.record():
        y = net(x)
    assert type(y) is mx.np.ndarray
    y.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("kind", [nd, mx.np])
@pytest.mark.parametrize(
    "function",
    [np.sinc, np.add.reduce, lambda x: np.multiply.outer(x, x), lambda x: np.where(np.ones((2, 3)), x, 0)],
)
def test_what_numpy_computes_itself_is_refused_while_recording(function, kind):
    x = variable(kind=kind)
    values = function(x.asnumpy())
    assert (np.asarray(function(x)) == values).all()
    with autograd.record():
        with pytest.raises(mx.MXNetError, match=r"is computed by NumPy, so it has no gradient.*\n  at .*test_tape.py"):
            function(x)
        assert (np.asarray(function(x.detach())) == values).all()
        assert np.argmax(x) == 5 and np.shape(x) == (2, 3)


def test_functions_of_numpy_that_compute_on_ndarrays():
    x = variable()
    assert type(np.exp(x)) is np.ndarray
    with autograd.record():
        for function in (np.exp, np.linalg.norm, lambda x: np.concatenate([x, x]), lambda x: np.add(x, 1)):
            with pytest.raises(mx.MXNetError, match="is computed by NumPy"):
                function(x)
        y = np.sum(np.float32(2) * x)  # the method of x
        np.ones_like(x)
    y.backward()
    assert x.grad.asnumpy().tolist() == [[2] * 3] * 2
    total = np.zeros((2, 3), np.float32)
    total += x
    assert (total == x.asnumpy()).all() and (np.less(1, x).asnumpy() == (x.asnumpy() > 1)).all()
    with pytest.raises(TypeError, match="numpy.ndarray.*not supported"):
        total + x


# Blocks


class Writes(gluon.HybridBlock):
    def hybrid_forward(self, F, x, z):
        z[:] = x * 2
        return z * x


@pytest.mark.parametrize("hybridize", [False, True])
def test_what_a_block_writes_to_an_argument_is_recorded(hybridize):
    net, x, z = Writes(), variable(), nd.ones((2, 3))
    net.hybridize(hybridize)
    with autograd.record():
        y = net(x, z)
        w = z * 3 + y
    w.backward()
    assert x.grad.asnumpy().tolist() == [[10, 14, 18], [22, 26, 30]]
    with autograd.record(), pytest.raises(mx.MXNetError, match="Assigning to NDArrays that are already"):
        net(nd.ones((2, 3)), x)


def test_a_block_that_changes_its_state_is_recorded():
    class Counts(gluon.HybridBlock):
        n = 0

        def hybrid_forward(self, F, x):
            self.n += 1
            return x * self.n

    net, x = Counts(), variable()
    net.hybridize()
    found = []
    for _ in range(3):
        with autograd.record():
            y = net(x)
        y.backward()
        found.append(x.grad[0, 0].asscalar())
    assert found == [1, 2, 3]


# Memory


def test_deep_tapes():
    x = variable([1.0])
    with autograd.record():
        y = x
        for _ in range(5_000):
            y = y + 1
    y.backward(retain_graph=True)
    del y  # frees all nodes, without recursion
    assert x.grad.asscalar() == 1


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("finish", [lambda y: y.backward(), lambda y: y.backward(retain_graph=True), lambda y: None])
def test_the_tape_gives_its_memory_back(hybridize, finish):
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.BatchNorm(), nn.Dropout(0.5), nn.Dense(2))
    net.initialize()
    net.hybridize(hybridize)
    x = variable()
    gc.disable()
    try:
        for _ in range(2):
            with autograd.record():
                middle = x * 2
                y = (net(middle)[0] * nd.ones(2)).reshape((-1,)) + nd.sign(middle).sum()
            alive = [weakref.ref(y._array), weakref.ref(middle._array)]
            finish(y)
            del y, middle
            assert [ref() for ref in alive] == [None, None]
    finally:
        gc.enable()


# Threads and interruptions


def test_two_threads_record_at_once():
    found = {}

    def run(k):
        net = nn.Dense(2, in_units=3)
        net.initialize(mx.init.One())
        net.hybridize()
        for _ in range(10):
            with autograd.record():
                y = (net(nd.array(M) * k) ** 2).sum()
            y.backward()
        found[k] = net.weight.grad().asnumpy()

    threads = [threading.Thread(target=run, args=(k,)) for k in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(found[2], found[1] * 4, rtol=1e-6)
    np.testing.assert_allclose(
        found[1][0], [2 * (6 * 1 + 15 * 4), 2 * (6 * 2 + 15 * 5), 2 * (6 * 3 + 15 * 6)], rtol=1e-6
    )


def test_an_interrupted_backward_writes_no_gradient():
    class Interrupted(autograd.Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            raise KeyboardInterrupt

    x, w = variable(), variable()
    with autograd.record():
        y = Interrupted()(x) * w
    with pytest.raises(KeyboardInterrupt):
        y.backward()
    assert not x.grad.asnumpy().any() and not w.grad.asnumpy().any()
    assert not autograd.is_recording() and not autograd.is_training()


def test_children_of_a_fork_go_on():
    net, x = nn.Dense(1, in_units=3), variable()
    net.initialize(mx.init.One())
    net.hybridize()
    with autograd.record():
        y = net(x)
    child = os.fork()
    if not child:
        status = 1
        try:
            y.backward()
            with autograd.record():
                z = net(x) * 2
            z.backward()
            status = int(x.grad.asnumpy().tolist() != [[2] * 3] * 2)
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    y.backward()
    assert x.grad.asnumpy().tolist() == [[1] * 3] * 2


@pytest.mark.parametrize("hybridize", [False, True])
def test_an_operator_without_gradient_is_an_error_in_backward(hybridize, monkeypatch):
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.degrees(F.arctanh(x))

    monkeypatch.setattr(opdef.lookup("atanh"), "vjp", None)
    net, x = Net(), variable([[[0.5, 0.25]]])
    net.hybridize(hybridize)
    with autograd.record():
        y = net(x) * 2
    assert y.shape == (1, 1, 2)
    with pytest.raises(mx.MXNetError) as error:
        y.backward()
    assert re.search(
        r"^atanh has no gradient\n  at .*test_tape.py:\d+.*\n    return F.degrees\(F.arctanh\(x\)\)$", str(error.value)
    )


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
def test_the_mode_of_backward_does_not_change_what_was_recorded(recorded, hybridize):
    """MXNet takes BatchNorm's formula of the mode of backward, which is not the gradient of the result."""
    net = nn.BatchNorm(epsilon=0, in_channels=2)
    net.initialize()
    net.running_var.set_data(nd.array([4.0, 4.0]))
    net.hybridize(hybridize)
    x, head = variable([[1.0, 2.0], [3.0, 5.0]]), nd.array([[1.0, 0.0], [0.0, 2.0]])
    found = []
    for mode in (True, False):
        with autograd.record(train_mode=recorded):
            y = net(x)
        y.backward(head, train_mode=mode)
        found.append(x.grad.asnumpy().tolist())
    np.testing.assert_allclose(*found, rtol=1e-6)
    np.testing.assert_allclose(found[0], head.asnumpy() / 2 if not recorded else [[0, 0], [0, 0]], atol=1e-6)


@pytest.mark.parametrize(
    ("program", "slope"),
    [
        (lambda x, s: x + s, lambda x, s: 1),
        (lambda x, s: s - x, lambda x, s: -1),
        (lambda x, s: x * s, lambda x, s: s),
        (lambda x, s: s / x, lambda x, s: -s / x**2),
        (lambda x, s: x / s, lambda x, s: 1 / s),
        (lambda x, s: nd.maximum(x, s), lambda x, s: float(x >= s)),
    ],
)
@pytest.mark.parametrize("kind", ["nd", "np"])
def test_numbers_that_change_with_every_call_make_no_new_gradient(program, slope, kind, monkeypatch):
    known: Store = Store()
    monkeypatch.setattr(operator_computations, "_computations", known)
    x = (mx.np.array if kind == "np" else nd.array)([2.0])
    x.attach_grad()
    counts = []
    for s in (0.5, 3.0, 7.0):
        with autograd.record():
            y = program(x, s)
        y.backward()
        assert x.grad.asnumpy()[0] == pytest.approx(slope(2.0, s))
        counts.append(len(known))
    # None if a call before this test had the same types: the function itself keeps what recording needs.
    assert counts in ([1, 1, 1], [0, 0, 0])
