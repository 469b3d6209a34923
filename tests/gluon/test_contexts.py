"""Data parallelism: parameters with a copy for each context. Expectations are what MXNet answers."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd
from gluonjit.gluon import nn

BOTH = [mx.cpu(0), mx.cpu(1)]
X = nd.ones((2, 3))
X1 = nd.ones((2, 3), ctx=mx.cpu(1))


@pytest.fixture
def dense():
    net = nn.Dense(2, in_units=3)
    net.initialize(mx.init.One(), ctx=BOTH)
    net.weight.data(mx.cpu(1))[:] = 2
    return net


def answer(y):
    return y.asnumpy()[0].tolist(), y.context


@pytest.mark.parametrize("hybridized", [False, True])
def test_a_call_computes_with_the_copy_of_its_context(dense, hybridized):
    net = nn.HybridSequential()
    net.add(dense)
    if hybridized:
        net.hybridize()
    for _ in range(3):  # the second time, compiled code that is there already; the third, what came of both
        assert answer(net(X)) == ([3, 3], mx.cpu(0))
        assert answer(net(X1)) == ([6, 6], mx.cpu(1))
        assert answer(net(X)) == ([3, 3], mx.cpu(0))
    dense.weight.data(mx.cpu(1))[:] = 4
    assert answer(net(X1)) == ([12, 12], mx.cpu(1))
    assert answer(net(X)) == ([3, 3], mx.cpu(0))
    with pytest.raises(RuntimeError, match=r"was not initialized on context cpu\(2\)"):
        net(nd.ones((2, 3), ctx=mx.cpu(2)))


@pytest.mark.parametrize("hybridized", [False, True])
def test_parameters_elsewhere_are_not_taken(hybridized):
    net = nn.Dense(2, in_units=3)
    net.initialize(mx.init.One())
    if hybridized:
        net.hybridize()
        for _ in range(2):
            net(X)
    with pytest.raises(RuntimeError, match=r"not initialized on context cpu\(1\). It was only initialized on \[cpu\(0"):
        net(X1)
    net.collect_params().reset_ctx(mx.cpu(1))
    assert answer(net(X1)) == ([3, 3], mx.cpu(1))
    with pytest.raises(RuntimeError, match=r"not initialized on context cpu\(0\)"):
        net(X)


def test_copies_share_compiled_code(dense):
    graphs = []

    def counted(graph, options):
        graphs.append(graph)
        return mx.execution.backends.get_backend(None)(graph, options)

    mx.register_backend("counted", counted)
    dense.hybridize(backend="counted")
    dense(X), dense(X1)
    calls = list(dense._jit_cached.store.entries)
    assert len(graphs) == 1 and len(dense._jit_cached.traces) == 1
    assert calls[0].session.callee.main is calls[1].session.callee.main
    # Each has the values prepared from its own copy, so that calls in turn do not prepare them again.
    before = [[p.results for p in call.session.callee.prepared] for call in calls]
    dense(X), dense(X1)
    after = [[p.results for p in call.session.callee.prepared] for call in calls]
    assert all(a is b for x, y in zip(before, after) for a, b in zip(x, y))


@pytest.mark.parametrize("hybridized", [False, True])
def test_the_first_argument_tells_the_context(hybridized):
    class Net(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(2, in_units=3)

        def hybrid_forward(self, F, pair, b):
            return self.dense(pair[0]) * b.sum()

    net = Net()
    net.initialize(mx.init.One(), ctx=BOTH)
    net.dense.weight.data(mx.cpu(1))[:] = 2
    if hybridized:
        net.hybridize()
    assert answer(net([X1, X], X)) == ([36, 36], mx.cpu(1))
    assert answer(net([X, X1], X1)) == ([18, 18], mx.cpu(0))


def test_a_program_that_asks_for_the_context_is_traced_for_each():
    class Net(nn.HybridBlock):
        def hybrid_forward(self, F, x):
            return x + 1 if x.context == mx.cpu(1) else x * 5

    net = Net()
    net.hybridize()
    for _ in range(2):
        assert answer(net(X)) == ([5, 5, 5], mx.cpu(0))
        assert answer(net(X1)) == ([2, 2, 2], mx.cpu(1))


@pytest.mark.parametrize("hybridized", [False, True])
def test_writes_go_to_the_copy_of_the_context(hybridized):
    class Counter(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.count = self.params.get("count", shape=(1,), init="zeros")

        def hybrid_forward(self, F, x, count):
            count += x.sum()
            return x + count

    net = Counter()
    net.initialize(ctx=BOTH)
    if hybridized:
        net.hybridize()
    for _ in range(2):
        net(X1)
    net(X)
    assert [x.asscalar() for x in net.count.list_data()] == [6, 12]


def test_files_hold_the_mean_of_the_copies(dense, tmp_path):
    file = str(tmp_path / "a.params")
    dense.save_parameters(file)
    assert (nd.load(file)["weight"].asnumpy() == 1.5).all()
    dense.collect_params().save(file, strip_prefix=dense.prefix)
    assert (nd.load(file)["weight"].asnumpy() == 1.5).all()
    dense.hybridize()
    dense(X)
    dense.export(str(tmp_path / "net"))
    exported = nd.load(str(tmp_path / "net-0000.params"))
    assert (exported[f"arg:{dense.weight.name}"].asnumpy() == 1.5).all()


def test_loading_puts_a_copy_on_each_context(dense, tmp_path):
    file = str(tmp_path / "a.params")
    dense.save_parameters(file)
    net = nn.Dense(2, in_units=3)
    net.load_parameters(file, ctx=[mx.cpu(1), mx.cpu(2)])
    assert [x.context for x in net.weight.list_data()] == net.weight.list_ctx() == [mx.cpu(1), mx.cpu(2)]
    assert all((x.asnumpy() == 1.5).all() for x in net.weight.list_data())
    net.load_parameters(file, ctx=[mx.cpu(2), mx.cpu(1)])
    assert net.weight.list_ctx() == [mx.cpu(1), mx.cpu(2)]
    for ctx in (mx.cpu(0), mx.cpu(1)):
        with pytest.raises(AssertionError, match=r"because it was previous initialized on \[cpu\(1\), cpu\(2\)\]"):
            net.load_parameters(file, ctx=ctx)
    dense.load_parameters(file)
    assert [(x.asnumpy()[0, 0], x.context) for x in dense.weight.list_data()] == [(1.5, c) for c in BOTH]


def test_parts_of_a_batch(dense):
    parts = gluon.utils.split_and_load(np.arange(12).reshape(4, 3), BOTH)
    assert [x.context for x in parts] == BOTH
    dense.hybridize()
    assert [y.asnumpy()[:, 0].tolist() for y in map(dense, parts)] == [[3, 12], [42, 60]]


def test_a_trainer_has_an_updater_for_each_context(dense):
    trainer = gluon.Trainer(dense.collect_params(), "sgd")
    assert trainer._contexts == BOTH and len(trainer._updaters) == 2
