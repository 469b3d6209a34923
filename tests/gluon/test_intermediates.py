"""`hybridize(debug=True)`: what every operator computed, under MXNet's names."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd
from gluonjit.gluon import nn


def make():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(4, activation="relu", in_units=5), nn.Dropout(0.5), nn.Dense(2, in_units=4))
    net.initialize()
    return net


def names_of_results(net):
    """As in the exported graph, without variables."""
    internals = net(mx.sym.var("data")).get_internals()
    return [name for name in internals.list_outputs() if name not in internals.list_inputs()]


def test_every_result_is_kept_and_the_answer_is_the_same():
    net, x = make(), mx.nd.random.uniform(shape=(3, 5))
    net.hybridize()
    expected = net(x).asnumpy()
    net.hybridize(debug=True)
    for _ in range(2):  # the second call could go straight to native code
        assert np.array_equal(net(x).asnumpy(), expected)
        kept = net.intermediates()
        assert list(kept) == names_of_results(net)
        np.testing.assert_allclose(kept["net_dense1_fwd_output"].asnumpy(), expected, rtol=1e-5, atol=1e-6)
        assert (kept["net_dense0_relu_fwd_output"].asnumpy() >= 0).all()
        x, expected = x * 0, np.zeros_like(expected)


def test_a_recorded_call_keeps_what_it_used():
    net, x = make(), mx.nd.ones((50, 5))
    net.hybridize(debug=True)
    with autograd.record():
        y = net(x)
    y.backward()
    dropped = net.intermediates()["net_dropout0_fwd_output"].asnumpy()
    weight, bias = net[2].weight.data().asnumpy(), net[2].bias.data().asnumpy()
    np.testing.assert_allclose(dropped @ weight.T + bias, y.asnumpy(), rtol=1e-5, atol=1e-6)


def test_a_layer_that_is_called_twice():
    class Twice(mx.gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.layer = nn.Dense(3, in_units=3)

        def hybrid_forward(self, F, x):
            return self.layer(self.layer(x))

    net = Twice(prefix="twice_")
    net.initialize()
    net.hybridize(debug=True)
    y = net(mx.nd.ones((1, 3)))
    kept = net.intermediates()
    assert len(kept) == 2
    np.testing.assert_allclose(list(kept.values())[-1].asnumpy(), y.asnumpy(), rtol=1e-6)


def test_beside_a_hook():
    net, seen = make(), []
    net.hybridize(debug=True)
    net.register_op_hook(lambda name, operator, x: seen.append(name))
    net(mx.nd.ones((3, 5)))
    assert len(seen) == len(net.intermediates()) == 4


def test_children_of_a_plain_block_keep_their_own():
    outer = nn.Sequential()
    outer.add(make(), make())
    with pytest.warns(UserWarning, match="All children of this Sequential layer"):
        outer.hybridize(debug=True)
    outer[0](mx.nd.ones((3, 5)))
    assert list(outer[0].intermediates()) and not outer[1].intermediates()


def test_only_when_asked():
    net = make()
    with pytest.raises(RuntimeError, match=r"net keeps no intermediate results: call hybridize\(debug=True\)"):
        net.intermediates()
    net.hybridize(debug=True)
    assert net.intermediates() == {}
    net.hybridize()
    with pytest.raises(RuntimeError):
        net.intermediates()


def test_of_files(tmp_path):
    net, x = make(), mx.nd.ones((3, 5))
    net.hybridize()
    net(x)
    net.export(str(tmp_path / "net"))
    loaded = mx.gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    )
    loaded.hybridize(debug=True)
    loaded(x)
    assert list(loaded.intermediates()) == names_of_results(net)
