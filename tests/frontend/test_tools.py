"""`mx.viz`, `runtime`, `operator`, `registry`, `util`, `contrib`, and `autograd.Function`."""

import builtins

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon, nd, sym

# Drawings


def network():
    y = sym.Convolution(sym.var("data"), kernel=(3, 3), stride=(2, 2), num_filter=8, name="conv")
    y = sym.Pooling(sym.Activation(y, act_type="relu", name="act"), kernel=(2, 2), pool_type="max", name="pool")
    return sym.split(sym.FullyConnected(y, num_hidden=4, name="fc"), num_outputs=2, name="parts")


def test_plot_network(monkeypatch):
    class Digraph:
        def __init__(self, **settings):
            self.settings, self.nodes, self.edges = settings, {}, []

        def node(self, name, **look):
            self.nodes[name] = look

        def edge(self, tail_name, head_name, label, **look):
            self.edges.append((tail_name, head_name, label))

    import sys
    import types

    monkeypatch.setitem(sys.modules, "graphviz", types.SimpleNamespace(Digraph=Digraph))
    dot = mx.viz.plot_network(network(), "net", shape={"data": (1, 3, 9, 9)}, dtype={"data": np.float32})
    assert dot.settings == {"name": "net", "format": "pdf"}
    assert set(dot.nodes) == {"data", "conv", "act", "pool", "fc", "parts"}
    assert dot.nodes["conv"]["label"] == "Convolution\n3x3/2x2, 8" and dot.nodes["fc"]["label"] == "FullyConnected\n4"
    assert dot.nodes["pool"]["label"] == "Pooling\nmax, 2x2/1" and dot.nodes["data"]["shape"] == "oval"
    assert ("conv", "data", "3x9x9(float32)") in dot.edges and ("parts", "fc", "4(float32)") in dot.edges
    shown = mx.viz.plot_network(network(), hide_weights=False, node_attrs={"width": "9"})
    assert "conv_weight" in shown.nodes and shown.nodes["conv"]["width"] == "9"
    assert ("conv", "conv_weight", "") in shown.edges
    with pytest.warns(RuntimeWarning, match="Repeated names: x"):
        mx.viz.plot_network(sym.var("x") + sym.var("x"))


def test_drawings_refuse(monkeypatch):
    with pytest.raises(TypeError, match="must be Symbol"):
        mx.viz.print_summary(nd.ones(1))
    with pytest.raises(ValueError, match="Input shape is incomplete"):
        mx.viz.print_summary(network(), shape={})
    found = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "graphviz":
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install graphviz"):
        mx.viz.plot_network(network())


def test_summary_without_shapes(capsys):
    mx.viz.print_summary(network(), line_length=60)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 60 for line in lines) and "Total params: 0" in lines


def test_summaries_count_no_labels(capsys):
    y = sym.FullyConnected(sym.var("data"), num_hidden=10, name="hidden")
    y = sym.FullyConnected(y, num_hidden=7, no_bias=True, name="fc")
    mx.viz.print_summary(sym.SoftmaxOutput(y, name="softmax"), shape={"data": (2, 5)})
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if ")" in line]
    assert [(row[0], row[2]) for row in rows[2:]] == [
        ("hidden(FullyConnected)", "60"),
        ("fc(FullyConnected)", "70"),
        ("softmax(SoftmaxOutput)", "0"),
    ]


# Features


def test_features():
    features = mx.runtime.Features()
    assert features.is_enabled("lapack") and not features.is_enabled("CUDA")
    assert len(features) == len(mx.runtime.feature_list()) == 32 and "✖ CUDA" in repr(features)
    with pytest.raises(RuntimeError, match="Feature 'magic' is unknown"):
        features.is_enabled("magic")


# Functions in Python


class Halves(autograd.Function):
    def forward(self, x):
        self.save_for_backward(x)
        assert not autograd.is_recording()
        return x / 2, autograd.is_training()


def test_functions_with_gradients_of_their_own():
    halves = Halves()
    assert halves(nd.ones(2))[1] is False
    with autograd.record():
        y, training = halves(nd.ones(2))
        assert autograd.is_recording()
    assert y.asnumpy().tolist() == [0.5, 0.5] and training and halves.saved_tensors[0].shape == (2,)
    with pytest.raises(AssertionError, match="only be called once"):
        halves(nd.ones(2))


def test_functions_are_compiled_with_their_block():
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.function = Halves()

        def hybrid_forward(self, F, x):
            return self.function(x * x)[0] + 1

    net = Net()
    x = nd.array([[2, 4]])
    expected = net(x).asnumpy()
    net.hybridize()
    assert np.array_equal(net(x).asnumpy(), expected) and expected.tolist() == [[3, 9]]


# The rest


def test_factories():
    class Base:
        def __init__(self, value=0):
            self.value = value

    register = mx.registry.get_register_func(Base, "thing")
    create = mx.registry.get_create_func(Base, "thing")

    @mx.registry.get_alias_func(Base, "thing")("second", "third")
    @register
    class First(Base):
        pass

    assert set(mx.registry.get_registry(Base)) == {"first", "second", "third"}
    assert (
        create("FIRST", 3).value
        == create(thing="second", value=3).value
        == create('["third", {"value": 3}]').value
        == 3
    )
    one = First()
    assert create(one) is one and create({"thing": "first", "value": 4}).value == 4
    assert create('{"thing": "first"}').value == 0
    for wrong, words in (
        ((one, 1), "already an instance"),
        ((5,), "of string type"),
        (("fist",), "did you mean 'first'"),
    ):
        with pytest.raises(AssertionError, match=words):
            create(*wrong)
    with pytest.raises(AssertionError, match="Can only register subclass of Base"):
        register(int)
    with pytest.warns(UserWarning, match="is overriding existing thing"):
        register(First)


def test_finite_or_not():
    x = nd.array([1, np.inf, -np.inf, np.nan])
    assert nd.contrib.isinf(x).asnumpy().tolist() == [0, 1, 1, 0]
    assert nd.contrib.isnan(x).asnumpy().tolist() == [0, 0, 0, 1]
    assert nd.contrib.isfinite(x).asnumpy().tolist() == [1, 0, 0, 0]
    y = sym.contrib.isfinite(sym.var("x"))
    assert y.eval(x=x)[0].asnumpy().tolist() == [1, 0, 0, 0]


def test_numpy_semantics():
    assert not mx.is_np_shape() and not mx.is_np_array()
    with mx.np_shape(), mx.np_array(active=True):
        assert mx.is_np_shape() and mx.is_np_array()
        with mx.np_array(False):
            assert mx.is_np_shape() and not mx.is_np_array()
        with pytest.raises(ValueError, match="Deactivating NumPy shape semantics"):
            mx.set_np_shape(False)
    assert mx.set_np_shape(True) is False and mx.set_np_shape(False) is True
    with pytest.raises(ValueError, match="Please set `shape=True`"):
        mx.util.set_np(shape=False)
    assert not mx.is_np_shape() and not mx.is_np_array()


def test_mixed_precision_is_off():
    assert mx.contrib.amp.amp._amp_initialized is False
    assert mx.contrib.nd is nd.contrib and mx.contrib.sym is sym.contrib
