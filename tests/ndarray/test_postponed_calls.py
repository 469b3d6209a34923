"""The first call of a net, if its result is dropped: nothing is computed that nobody looks at."""

import copy
import functools
import random
import sys
import threading
import weakref

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon
from gluonjit.gluon import nn
from gluonjit.ndarray import deferred
from gluonjit.ndarray.deferred import Deferred
from gluonjit.ndarray.postponed_calls import PostponedCalls


@pytest.fixture(autouse=True)
def nothing_waits():
    """No step of training of another test."""
    mx.nd.waitall()


def made_net():
    """Layers of unknown input sizes, with a fixed value in every parameter once these are known."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.MaxPool2D(2), nn.Dropout(0.5), nn.Dense(5))
    net.initialize(mx.init.Constant(0.1))
    return net


class Program(gluon.Block):
    """Runs a function."""

    def __init__(self, function, *args, **kwargs):
        super().__init__()
        # A partial function is not looked into for who asks for classes, as `assert` does.
        self.function = functools.partial(function, *args, **kwargs)

    def forward(self, x):
        self.function()


def within_a_call(test):
    """A test whose body runs within a call of a block whose result is dropped, so that first calls of nets wait."""

    @functools.wraps(test)
    def wrapper(*args, **kwargs):
        program = Program(test, *args, **kwargs)
        program(mx.nd.ones(1))
        assert deferred.now.step is None

    return wrapper


def images(seed=0):
    return mx.nd.array(np.random.RandomState(seed).randn(2, 3, 8, 8))


def waits(*arrays):
    """Whether these, and nothing else that `deferred` knows of, wait."""
    return deferred.now.step is not None and all(isinstance(x, Deferred) for x in arrays)


@pytest.fixture
def expected(monkeypatch):
    """The result of `made_net` for `images()`."""
    with monkeypatch.context() as m:
        m.setenv("MXNET_ENGINE_TYPE", "NaiveEngine")
        y = made_net()(images())
        assert not isinstance(y, Deferred)
    return y.asnumpy()


@within_a_call
def test_a_result_is_computed_when_it_is_read(expected):
    net, x = made_net(), images()
    y = net(x)
    assert waits(y, x)
    assert (y.shape, y.dtype, y.context, y.stype) == ((2, 5), np.float32, mx.cpu(), "default")
    assert waits(y, x)
    np.testing.assert_array_equal(y.asnumpy(), expected)
    assert deferred.now.step is None and not isinstance(y, Deferred) and not isinstance(x, Deferred)


def test_a_result_that_is_dropped_is_not_computed(monkeypatch):
    net, x = made_net(), images()
    monkeypatch.setattr("gluonjit.ndarray.postponed_calls.invoke", lambda *_: pytest.fail("something is computed"))
    net(x)
    assert deferred.now.step is None and type(x) is type(net[0].weight.data()) is mx.nd.NDArray


class Keeps(nn.HybridBlock):
    """Keeps what it computes."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def hybrid_forward(self, F, x):
        self.first = self.net(x)
        self.second = self.first * 2
        self.waited = isinstance(self.second, Deferred)
        return self.second + 1


def test_what_is_kept_is_computed_when_the_call_ends(expected):
    net, x = Keeps(made_net()), images()
    net(x)
    assert net.waited and deferred.now.step is None
    assert type(x) is type(net.first) is type(net.second) is mx.nd.NDArray
    np.testing.assert_array_equal(net.first.asnumpy(), expected)
    np.testing.assert_array_equal(net.second.asnumpy(), 2 * expected)


def test_a_program_that_leaves_by_an_error(expected):
    class Leaves(Keeps):
        def hybrid_forward(self, F, x):
            super().hybrid_forward(F, x)
            raise StopIteration

    net, x = Leaves(made_net()), images()
    with pytest.raises(StopIteration):
        net(x)
    assert net.waited and type(x) is type(net.first) is mx.nd.NDArray
    np.testing.assert_array_equal(net.first.asnumpy(), expected)


def test_hooks(expected):
    net, inner = made_net(), []
    net[0].register_forward_hook(lambda block, inputs, y: inner.append((isinstance(y, Deferred), y)))
    outer = []
    net.register_forward_hook(lambda block, inputs, y: outer.append((isinstance(y, Deferred), y)))
    net(images())
    assert inner[0][0] and not outer[0][0]  # the outermost call's hooks are called after it
    np.testing.assert_array_equal(outer[0][1].asnumpy(), expected)
    assert type(inner[0][1]) is mx.nd.NDArray


def test_calls_within_a_call_whose_result_is_used():
    """Who calls a net from code that is not Python, or by another name, sees ordinary arrays."""
    found = []
    found.extend(map(made_net(), [images()]))
    nets = [made_net()]
    nets[0](images())
    x = images()
    assert made_net()(x) is not None
    assert type(found[0]) is type(x) is mx.nd.NDArray and deferred.now.step is None


@pytest.mark.parametrize(
    "write",
    [
        lambda net, x: x.__setitem__(0, 7),
        lambda net, x: net[0].weight.set_data(mx.nd.ones((4, 3, 3, 3))),
        lambda net, x: net[4].bias.data().__iadd__(1),
        lambda net, x: mx.nd.sgd_update(net[4].bias.data(), mx.nd.ones(5), lr=1, out=net[4].bias.data()),
        lambda net, x: net.cast("float64"),
        lambda net, x: net.initialize(force_reinit=True),
        lambda net, x: mx.nd.waitall(),
    ],
    ids=["argument", "set_data", "in place", "update", "cast", "initialize", "waitall"],
)
@within_a_call
def test_results_are_of_what_was_there(expected, write):
    net, x = made_net(), images()
    y = net(x)
    write(net, x)
    np.testing.assert_array_equal(y.asnumpy(), expected)


@within_a_call
def test_only_what_is_read_is_computed(expected, monkeypatch):
    class Two(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.first, self.second = made_net(), nn.Dense(3)
            self.second.initialize()

        def hybrid_forward(self, F, x):
            y = self.first(x)
            return y, self.second(y).exp()

    y, z = Two()(images())
    computed = []
    original = deferred.now.step.settle.__globals__["invoke"]
    monkeypatch.setattr(
        "gluonjit.ndarray.postponed_calls.invoke", lambda op, *a: computed.append(op.name) or original(op, *a)
    )
    del z
    np.testing.assert_array_equal(y.asnumpy(), expected)
    assert computed == ["Convolution", "Activation", "BatchNorm", "Pooling", "Dropout", "FullyConnected"]


@within_a_call
def test_a_program_that_looks_in_between(expected):
    class Looking(nn.HybridSequential):
        def hybrid_forward(self, F, x):
            y = self[0](x)
            self.found = y.asnumpy()
            for layer in list(self._children.values())[1:]:
                y = layer(y)
            return y

    net = Looking()
    net.add(*made_net()._children.values())
    y = net(images())
    assert net.found.shape == (2, 4, 6, 6)
    np.testing.assert_array_equal(y.asnumpy(), expected)


def test_only_the_call_that_completes_shapes():
    net = made_net()
    net(images()).wait_to_read()
    block = Keeps(net)
    block._jit_has_run = True
    block(images())
    assert not block.waited


@pytest.mark.parametrize("scope", [mx.autograd.record, mx.autograd.train_mode])
@within_a_call
def test_training_is_at_once(scope):
    net = made_net()
    with scope():
        y = net(images())
    assert not isinstance(y, Deferred)


@within_a_call
def test_arrays_that_share_memory_are_computed_at_once(expected):
    net, x = made_net(), images()
    part = x[0]
    y = net(x)
    part[:] = 0
    np.testing.assert_array_equal(y.asnumpy(), expected)


@within_a_call
def test_a_second_net_waits_as_well(expected):
    head = nn.Dense(2)
    head.initialize(mx.init.Constant(2))
    y = made_net()(images())
    z = head(y)
    assert waits(y, z)
    np.testing.assert_allclose(z.asnumpy(), 2 * expected.sum(axis=1, keepdims=True).repeat(2, 1), rtol=1e-6)
    assert deferred.now.step is None
    np.testing.assert_array_equal(y.asnumpy(), expected)


@within_a_call
def test_another_thread_meanwhile(expected):
    y, found = made_net()(images()), []
    thread = threading.Thread(target=lambda: found.append(made_net()(images())))
    thread.start()
    thread.join()
    assert waits(y) and not isinstance(found[0], Deferred)
    np.testing.assert_array_equal(found[0].asnumpy(), expected)
    np.testing.assert_array_equal(y.asnumpy(), expected)


@within_a_call
def test_numpy_arrays():
    with mx.util.np_shape(True), mx.util.np_array(True):
        net = nn.Dense(3)
        net.initialize(mx.init.Constant(0.5))
        y = net(mx.np.ones((2, 4)))
        assert waits(y) and isinstance(y, mx.np.ndarray)
        np.testing.assert_array_equal(y.asnumpy(), np.full((2, 3), 2))
        assert not isinstance(y, Deferred) and isinstance(y, mx.np.ndarray)


@within_a_call
def test_a_step_of_training_follows(monkeypatch):
    values = []
    for how in ("", "NaiveEngine"):
        with monkeypatch.context() as m:
            m.setenv("MXNET_ENGINE_TYPE", how)
            net, x = made_net(), images()
            y = net(x)
        mx.random.seed(1)
        net.hybridize()
        trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
        with mx.autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        trainer.step(2)
        values.append([y.asnumpy(), *(p.data().asnumpy() for p in net.collect_params().values())])
    for lazy, at_once in zip(*values, strict=True):
        np.testing.assert_array_equal(lazy, at_once)


class Views(nn.HybridBlock):
    """Returns an array and views of it, and of the argument."""

    def hybrid_forward(self, F, x):
        y = x * 2 - 1
        return y, y.reshape((0, -1)), y[1:], y.detach(), x.reshape((-1,)), y[:, 1]


@within_a_call
def test_views():
    x = images()
    y, reshaped, part, detached, ravelled, column = outputs = Views()(x)
    assert waits(*outputs)
    assert [z.shape for z in outputs] == [(2, 3, 8, 8), (2, 192), (1, 3, 8, 8), (2, 3, 8, 8), (384,), (2, 8, 8)]
    reshaped[1] = 7  # as in MXNet, these share memory, and a column is a copy
    assert (y[1].asnumpy() == 7).all() and (part.asnumpy() == 7).all() and (detached[1].asnumpy() == 7).all()
    np.testing.assert_array_equal(column.asnumpy(), (images() * 2 - 1).asnumpy()[:, 1])
    x[0] = 5
    assert (ravelled.asnumpy()[:192] == 5).all()


@within_a_call
def test_a_view_that_is_the_array_itself():
    class Whole(nn.HybridBlock):
        def hybrid_forward(self, F, x):
            y = x * 2
            return x[:] is x and y[:] is y

    assert Whole()(images())


@pytest.mark.parametrize("reshape", [lambda F, x, s: x.reshape(s), lambda F, x, s: F.reshape(x, shape=s)])
@within_a_call
def test_arguments_are_kept(reshape):
    class Reshaping(nn.HybridBlock):
        def hybrid_forward(self, F, x):
            shape = [2, -1]
            y = reshape(F, x, shape)
            shape[0] = 3
            return y

    y = Reshaping()(images())
    assert waits(y) and y.shape == y.asnumpy().shape == (2, 192)


def is_array(x):
    return type(x) is mx.nd.NDArray


def calling(function):
    def called(x):
        return function(x)

    return called


class Config(dict):
    """Has each attribute, or raises KeyError."""

    __getattr__ = dict.__getitem__


def test_objects_that_run_code_when_asked_for_attributes():
    net = nn.Dense(3)
    net.initialize(mx.init.One())
    net.config = Config(net=net)
    net(mx.nd.ones((1, 2)))
    owner = net.config
    owner.net(mx.nd.ones((1, 2)))
    assert net.weight.shape == (3, 2)


def test_nothing_is_kept_while_the_caller_runs():
    net, x = made_net(), images()
    net(x)
    kept = weakref.ref(x)
    del x
    assert kept() is None


def test_names_that_a_program_has_taken():
    def setting(width=3):
        given = locals()
        net = made_net()
        net(images())
        return given

    def taken_by_another(width=3):
        given, net = sys._getframe().f_locals, made_net()
        net(images())
        return given

    assert setting() == {"width": 3} and taken_by_another()["width"] == 3


def test_a_program_that_keeps_results_of_calls():
    kept = functools.lru_cache(None)(nn.Dense.__call__)
    net, x = type("Net", (nn.Dense,), {"__call__": kept})(3), mx.nd.ones((1, 2))
    net.initialize(mx.init.One())
    net(x)
    assert net(x).asnumpy().tolist() == [[2, 2, 2]]


class Asking(nn.HybridBlock):
    """Finds out whether what it computes has the class of arrays."""

    def hybrid_forward(self, F, x):
        self.found = self.asks(x * 2)
        return x


@pytest.mark.parametrize(
    "asks",
    [lambda self, x: type(x) is mx.nd.NDArray, lambda self, x: is_array(x), lambda self, x: calling(is_array)(x)],
    ids=["itself", "function", "closure"],
)
def test_a_program_that_asks_for_classes(asks):
    net = type("Net", (Asking,), {"asks": asks})()
    net(images())
    assert net.found
    net = nn.HybridSequential()
    net.add(nn.HybridLambda(lambda F, x: x * 2 if is_array(x * 2) else later(x)))
    net(images())
    later = images


def test_the_profiler_sees_operators():
    mx.profiler.set_config(profile_all=True, aggregate_stats=True)
    mx.profiler.set_state("run")
    try:
        made_net()(images())
    finally:
        mx.profiler.set_state("stop")
    assert "FullyConnected" in mx.profiler.dumps(reset=True)


@pytest.mark.parametrize("place", ["_hold", "_note"])
def test_an_interrupt(monkeypatch, place):
    """While a call is noted: operands are ordinary arrays for whoever looks at them."""
    original = getattr(PostponedCalls, place)

    def interrupted(*args):
        original(*args)
        raise KeyboardInterrupt

    net, x = made_net(), images()
    with monkeypatch.context() as m:
        m.setattr(PostponedCalls, place, interrupted)
        with pytest.raises(KeyboardInterrupt):
            net(x)
    assert x.asnumpy().shape == (2, 3, 8, 8) and net[0].weight.data().asnumpy().shape == (4, 3, 3, 3)
    assert type(x) is mx.nd.NDArray and deferred.now.step is None


def test_calls_that_are_computed_at_once():
    """One whose result is used, and one that fails."""
    net = nn.Dense(3, in_units=4)
    net.initialize()
    x = mx.nd.ones((2, 4))
    assert type(net(x)) is mx.nd.NDArray
    with pytest.raises(mx.MXNetError):
        nn.HybridLambda(lambda F, x: F.reshape(x, shape=(3, 3)))(x)
    assert not isinstance(x + 1, Deferred)


LAYERS = [
    lambda r: nn.Conv2D(r.choice([3, 4]), 3, padding=1, activation=r.choice([None, "relu"])),
    lambda r: nn.BatchNorm(),
    lambda r: nn.MaxPool2D(2, 1),
    lambda r: nn.Dropout(0.5),
    lambda r: nn.Dense(4, flatten=False),
    lambda r: nn.LayerNorm(),
    lambda r: nn.HybridLambda(lambda F, x: x[:, 1:]),
    lambda r: nn.HybridLambda(lambda F, x: x.reshape((0, 0, -1, 2))),
    lambda r: nn.HybridLambda(lambda F, x: x.detach() * 0.5 + x),
    lambda r: nn.HybridLambda(lambda F, x: (2 - x) ** 2 / 3),
    lambda r: nn.Lambda(lambda x: x * float(x.asnumpy().flat[0] > 0)),
]


def seen_by_random_program(seed):
    """What a program sees that calls nets for the first time, and reads and writes arrays, in random order, within a
    call whose result is dropped; and how often something waits."""
    found = []
    program = Program(lambda: found.extend(random_program(seed)))
    program(mx.nd.ones(1))
    return found


def random_program(seed):
    mx.nd.waitall()
    r = random.Random(seed)
    mx.random.seed(seed)
    nets, x, arrays, seen, waiting = [], images(seed), [], [], 0

    def looks():
        seen.extend(y.asnumpy() for y in r.sample(arrays, min(len(arrays), 2)))

    def writes():
        for y in r.sample([x, *arrays], 1):
            y[:] = y * 0.5 if r.random() < 0.5 else 1

    def changes_parameters():
        for p in r.choice(nets).collect_params().values():
            if p._first is not None:
                p.set_data(p.data() * 0.5 + 0.1)

    def calls():
        net = nn.Sequential()
        net.add(*(r.choice(LAYERS)(r) for _ in range(r.randrange(1, 6))))
        net.initialize(mx.init.Normal(0.3))
        nets.append(net)
        arrays.append(net(r.choice([x, *arrays])))

    actions = [
        calls,
        calls,
        lambda: arrays.append(r.choice(nets)(x)),
        lambda: arrays and arrays.pop(r.randrange(len(arrays))),
        lambda: arrays and arrays.append(r.choice(arrays).reshape((-1,))),
        lambda: arrays and arrays.append(copy.deepcopy(r.choice(arrays))),
        looks,
        writes,
        changes_parameters,
        mx.nd.waitall,
    ]
    for action in [calls, *r.choices(actions, k=6)]:
        try:
            action()
        except (mx.MXNetError, ValueError) as e:
            seen.append(str(e)[:9])
        waiting += deferred.now.step is not None
    seen.extend(y.asnumpy() for y in [*arrays, x])
    return seen, waiting


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_random_programs(first, monkeypatch):
    monkeypatch.setenv("GLUONJIT_PLAIN", "numpy")
    found = 0
    for seed in range(first, first + 10):
        lazy, waiting = seen_by_random_program(seed)
        with monkeypatch.context() as m:
            m.setenv("MXNET_ENGINE_TYPE", "NaiveEngine")
            at_once, none = seen_by_random_program(seed)
        found += waiting
        assert not none and len(lazy) == len(at_once)
        for a, b in zip(lazy, at_once, strict=True):
            np.testing.assert_array_equal(a, b)
    assert found > 10


@within_a_call
def test_another_thread_reads(expected):
    y, found = made_net()(images()), []
    thread = threading.Thread(target=lambda: found.append(y.asnumpy()))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0], expected)
    assert not isinstance(y, Deferred)


def test_an_error_is_told_at_once():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3), nn.MaxPool2D(9))
    net.initialize()
    with pytest.raises(mx.MXNetError, match="exceeds input"):
        net(images())
    assert net[0].weight.data().shape == (4, 3, 3, 3)


def test_results_that_cannot_be_computed(monkeypatch):
    """The error comes within the call, not at somebody who reads later."""

    def fails(*_):
        raise MemoryError("no room")

    net, x = Keeps(made_net()), images()
    with monkeypatch.context() as m:
        m.setattr("gluonjit.ndarray.postponed_calls.invoke", fails)
        with pytest.raises(MemoryError):
            net(x)
    assert type(x) is mx.nd.NDArray and deferred.now.step is None
    with pytest.raises(mx.MXNetError, match="what computes it has failed"):
        net.first.asnumpy()
