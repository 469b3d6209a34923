"""The call that initializes the parameters of a block. A plain one is computed when somebody looks at its results; that
of a large hybridized block is computed without compiling; all others compile."""

import gc

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon, nd
from gluonjit.gluon import nn
from gluonjit.ndarray import deferred, first_call
from support.compare import assert_close

X = nd.array(np.random.default_rng(0).standard_normal((4, 12)).astype("f4"))


def net(layers=12, in_units=0, dropout=0.0):
    found = nn.HybridSequential(prefix="net_")
    with found.name_scope():
        for k in range(layers):
            found.add(nn.Dense(8 + k, activation="tanh", in_units=in_units and (in_units if k == 0 else 7 + k)))
            found.add(nn.BatchNorm(in_channels=in_units and 8 + k), nn.Dropout(dropout))
    found.initialize()
    found.hybridize()
    return found


def compilations(block):
    return str(block.explain()).count("- compiled for")


def plain(block, x=X):
    block.hybridize(False)
    return block(x).asnumpy()


def test_it_is_computed_and_the_second_call_compiles():
    block = net()
    first = block(X).asnumpy()
    assert compilations(block) == 0
    second = block(X).asnumpy()
    assert compilations(block) == 1
    third = block(X).asnumpy()  # directly in native code
    assert compilations(block) == 1
    np.testing.assert_array_equal(second, third)
    want = plain(block)
    np.testing.assert_array_equal(first, want)
    assert_close(second, want, "compiled")


def test_states_are_written():
    block, same = net(), net()
    same.hybridize(False)
    mx.random.seed(1)
    with autograd.train_mode():
        got = block(X)
    assert compilations(block) == 0
    for p, q in zip(block.collect_params().values(), same.collect_params().values()):
        if p.name.endswith(("weight", "bias")):
            q.shape = p.shape
            q.set_data(p.data())
    with autograd.train_mode():
        want = same(X)
    np.testing.assert_array_equal(got.asnumpy(), want.asnumpy())
    for p, q in zip(block.collect_params().values(), same.collect_params().values()):
        np.testing.assert_array_equal(p.data().asnumpy(), q.data().asnumpy(), p.name)


def test_numbers_are_those_of_a_compiled_call():
    block = net(dropout=0.4)
    with autograd.train_mode():
        mx.random.seed(5)
        first = block(X).asnumpy()
        for p in block.collect_params(".*running.*").values():
            p.set_data(nd.ones(p.shape) if p.name.endswith("var") else nd.zeros(p.shape))
        mx.random.seed(5)
        second = block(X).asnumpy()
    assert compilations(block) == 1
    np.testing.assert_array_equal(first == 0, second == 0)
    assert (first == 0).any()


@pytest.mark.parametrize("block", [net(in_units=12), net(layers=2)], ids=["initialized before", "small"])
def test_others_compile_at_once(block):
    block(X)
    assert compilations(block) == 1


def test_results_have_memory_of_their_own():
    class Views(nn.HybridSequential):
        def hybrid_forward(self, F, x):
            y = super().hybrid_forward(F, x)
            return y, x, F.reshape(x, (-1,)), F.transpose(y)

    block = Views(prefix="views_")
    with block.name_scope():
        block.add(*(nn.Dense(8 + k, activation="tanh") for k in range(24)))
    block.initialize()
    block.hybridize()
    x = X.copy()
    _, same, flat, turned = block(x)
    assert compilations(block) == 0
    turned.reshape((-1,))[:] = 3
    np.testing.assert_array_equal(turned.asnumpy(), 3)
    flat[:] = 7
    np.testing.assert_array_equal(x.asnumpy(), X.asnumpy())
    assert same is x or not np.shares_memory(same.asnumpy(), x.asnumpy())


def test_a_recorded_call_compiles_its_gradient_alone():
    block = net()
    with autograd.record():
        y = block(X).sum()
    y.backward()
    assert compilations(block) == 0 and "gradient" in str(block.explain())
    block(X)  # by the same trace, in another mode; it initializes nothing
    assert compilations(block) == 1


def test_asked_for_code_is_made():
    block = net()
    block.compile(X)
    assert compilations(block) == 1


def test_the_graph_is_exported_after_it(tmp_path):
    block = net()
    want = block(X).asnumpy()
    assert compilations(block) == 0
    block.export(str(tmp_path / "net"))
    symbol, params = (str(tmp_path / name) for name in ("net-symbol.json", "net-0000.params"))
    loaded = mx.gluon.SymbolBlock.imports(symbol, ["data"], params)
    assert_close(loaded(X).asnumpy(), want, "exported")


def test_it_compiles_where_plain_calls_do(monkeypatch):
    monkeypatch.setenv("GLUONJIT_PLAIN", "native")
    block = net()
    block(X)
    assert compilations(block) == 1


# Plain calls


class Heads(gluon.HybridBlock):
    """Two results of layers whose shapes are not known, with views and numbers in between."""

    def __init__(self):
        super().__init__(prefix="heads_")
        with self.name_scope():
            self.conv, self.norm = nn.Conv2D(4, 3), nn.BatchNorm()
            self.one, self.two = nn.Dense(6, flatten=False), nn.Dense(2)
            self.drop = nn.Dropout(0.5)

    def hybrid_forward(self, F, x):
        y = self.norm(self.conv(x)) * 2
        first, second = F.split(self.one(y), 2, axis=-1)
        return self.drop(first.reshape((0, -1))), self.two(second + 1)


PICTURES = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype("f4")


@pytest.fixture
def computed(monkeypatch):
    """The operators that were computed after they had waited."""
    found = []

    def noted(op, *args, **kwargs):
        found.append(op.name)
        return invoke(op, *args, **kwargs)

    invoke = first_call.invoke
    monkeypatch.setattr(first_call, "invoke", noted)
    return found


def heads():
    mx.random.seed(3)
    block = Heads()
    block.initialize()
    return block, nd.array(PICTURES)


@pytest.fixture(scope="module")
def truth():
    """The results of a call that is computed at once, and the parameters after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXNET_ENGINE_TYPE", "NaiveEngine")
        block, x = heads()
        results = block(x)
        assert deferred.now.step is None
    return [y.asnumpy() for y in results], [p.data().asnumpy() for p in block.collect_params().values()]


def test_a_plain_call_that_nobody_looks_at_is_not_computed(computed, truth):
    block, x = heads()
    block(x)
    assert computed == [] and deferred.now.step is None and type(x) is nd.NDArray
    for p, want in zip(block.collect_params().values(), truth[1], strict=True):
        assert type(p.data()) is nd.NDArray
        np.testing.assert_array_equal(p.data().asnumpy(), want)


def test_its_results_have_the_bits_of_a_call_at_once(computed, truth):
    block, x = heads()
    results = block(x)
    assert computed == [] and [y.shape for y in results] == [(2, 24), (2, 2)]
    assert results[0].dtype is np.float32 and results[0].context == mx.cpu()
    for y, want in zip(results, truth[0], strict=True):
        np.testing.assert_array_equal(y.asnumpy(), want)
        assert type(y) is nd.NDArray
    assert computed.count("Convolution") == 1 and deferred.now.step is None
    for y, want in zip(block(x), truth[0], strict=True):  # a later call computes at once
        assert deferred.now.step is None
        np.testing.assert_allclose(y.asnumpy(), want, rtol=1e-5)


def test_only_what_somebody_holds_is_computed(computed, truth):
    block, x = heads()
    first, second = block(x)
    del second
    np.testing.assert_array_equal(first.asnumpy(), truth[0][0])
    assert computed.count("FullyConnected") == 1


@pytest.mark.parametrize("written", ["argument", "parameter", "other thread"])
def test_what_it_reads_is_written_afterwards(written, computed, truth):
    block, x = heads()
    results = block(x)
    if written == "argument":
        x[:] = 0
    elif written == "parameter":
        block.conv.weight.set_data(nd.zeros(block.conv.weight.shape))
    else:
        first_call.threading.Thread(target=lambda: x.__setitem__(slice(None), 0)).start()
        nd.waitall()
    assert computed
    for y, want in zip(results, truth[0], strict=True):
        np.testing.assert_array_equal(y.asnumpy(), want)


def test_views_of_what_waits_share_its_memory():
    class Flat(nn.Dense):
        def hybrid_forward(self, F, x, weight, bias):
            y = super().hybrid_forward(F, x, weight, bias)
            return y, y.reshape((-1,))

    block = Flat(3)
    block.initialize()
    y, flat = block(X)
    assert deferred.now.step is not None and flat.shape == (12,)
    flat[:] = 7
    np.testing.assert_array_equal(y.asnumpy(), 7)


def test_a_layer_that_looks_at_elements_has_them_computed(computed):
    class Looks(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x / float(x.max().asscalar())

    mx.random.seed(1)
    block = nn.HybridSequential()
    block.add(nn.Dense(3), Looks(), nn.Dense(3))
    block.initialize()
    y = block(X)
    assert computed == ["FullyConnected", "max"] and deferred.now.step is None
    assert y.shape == (4, 3)


def test_shared_memory_is_not_waited_for(computed):
    block = nn.Dense(3)
    block.initialize()
    both = nd.array(np.ones((2, 4, 5), "f4"))
    y = block(both[0])
    assert deferred.now.step is None
    both[:] = 0
    assert y.asnumpy().any() and computed == []


def test_errors_of_shapes_come_at_once():
    block = nn.HybridSequential()
    block.add(nn.Dense(3), nn.Dense(4, in_units=7))
    block.initialize()
    with pytest.raises(mx.MXNetError, match="FullyConnected"):
        block(X)
    assert deferred.now.step is None


def test_a_first_call_keeps_nothing_alive():
    block, x = heads()
    y = block(x)
    ends = first_call.weakref.ref(x)
    del block, x, y
    gc.collect()
    assert ends() is None and deferred.now.step is None
