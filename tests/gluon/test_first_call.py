"""The call that initializes the parameters of a large block is computed without compiling; all others compile."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, nd
from gluonjit.gluon import nn
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
    assert compilations(block) == 0 and "backward half" in str(block.explain())
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
