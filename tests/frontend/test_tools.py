"""`mx.test_utils`, `viz`, `runtime`, `operator`, `registry`, `util`, `contrib`, and `autograd.Function`."""

import builtins
import os

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon, nd, sym, test_utils
from gluonjit.base import MXNetError

# test_utils


def test_comparisons():
    a = nd.array([1, 2, np.nan])
    assert test_utils.same(a, a.asnumpy()) is False and test_utils.same(a[:2], [1, 2])
    assert test_utils.almost_equal(nd.ones(2), np.ones(2) + 1e-7) and not test_utils.almost_equal([1.0], [1.1])
    test_utils.assert_almost_equal(a, a, equal_nan=True)
    test_utils.assert_almost_equal(nd.ones(2), nd.ones(2) * 1.0001)
    test_utils.assert_almost_equal(np.array([True]), np.array([True]))
    test_utils.assert_almost_equal_ignore_nan(a, nd.array([1, np.nan, 5]))
    test_utils.assert_allclose(np.ones(2), np.ones(2))
    test_utils.compare_ndarray_tuple((a[:1], (None, a[1:2])), (a[:1], (a, a[1:2])))
    with pytest.raises(AssertionError, match=r"rtol=1.0+e-04.*mismatch 50.0%.*\n.*\(1,\), x=2.0+, y=3.0+"):
        test_utils.assert_almost_equal(nd.array([1, 2]), nd.array([1, 3]), names=("x", "y"))
    with pytest.raises(AssertionError, match="Error nan"):
        test_utils.assert_almost_equal(a, nd.array([1, 2, 3]))
    with pytest.raises(AssertionError, match="are not equal"):
        test_utils.assert_almost_equal(nd.ones((2, 1)), nd.ones(2), use_broadcast=False)
    with pytest.raises(AssertionError):
        test_utils.assert_almost_equal(np.array([1, 2]), np.array([1, 3]))


def test_tolerances_follow_types():
    narrow, wide = nd.ones(1, dtype="float16"), nd.ones(1, dtype="float64")
    assert test_utils.get_tols(narrow, wide, None, None) == (1e-2, 1e-1)
    assert test_utils.get_tols(wide, 1.0, 0.5, {np.dtype("float64"): 3}) == (0.5, 3)
    assert (test_utils.get_rtol(), test_utils.get_atol(None, "float16")) == (1e-5, 1e-1)


def test_random_arrays():
    assert test_utils.rand_ndarray((2, 3)).shape == (2, 3)
    one, two = test_utils.random_arrays((), (2,))
    assert one.shape == () and two.dtype == np.float32
    assert test_utils.random_uniform_arrays((4,), low=3, high=4, dtype="int32")[0].tolist() == [3] * 4
    assert all(1 <= n <= 3 for n in test_utils.rand_shape_nd(5, 3)) and len(test_utils.rand_shape_3d()) == 3
    assert test_utils.random_sample("abc", 3) == ["a", "b", "c"]
    assert test_utils.rand_coord_2d(1, 2, 5, 6) == (1, 5)
    with pytest.raises(MXNetError, match="dense"):
        test_utils.rand_ndarray((2,), "csr")
    x = np.arange(24.0).reshape(2, 3, 4)
    assert np.array_equal(test_utils.np_reduce(x, (0, 2), True, np.sum), x.sum((0, 2), keepdims=True))


def test_symbols_and_blocks():
    y = sym.exp(sym.var("a")) * sym.var("b")
    assert test_utils.simple_forward(y, a=np.zeros(2), b=np.ones(2) * 3).tolist() == [3, 3]
    test_utils.check_symbolic_forward(y, [np.zeros(2), np.ones(2)], [np.ones(2)])
    test_utils.check_symbolic_forward(y, {"a": np.zeros(2), "b": np.ones(2)}, {y.list_outputs()[0]: np.ones(2)})
    with pytest.raises(AssertionError, match="EXPECTED_"):
        test_utils.check_symbolic_forward(y, [np.zeros(2), np.ones(2)], [np.ones(2) * 2])
    with pytest.raises(ValueError, match="do not match"):
        test_utils.check_symbolic_forward(y, {"a": np.zeros(2)}, [np.ones(2)])
    assert test_utils.same_symbol_structure(y, sym.exp(sym.var("c")) * sym.var("d"))

    def net(prefix):
        return gluon.nn.Dense(3, activation="tanh", prefix=prefix)

    test_utils.check_gluon_hybridize_consistency(net, [nd.ones((2, 4))], test_grad=False)
    for check in (test_utils.check_numeric_gradient, test_utils.check_symbolic_backward):
        with pytest.raises(MXNetError, match="gradients are not available"):
            check(y, [])


def test_other_helpers():
    x = nd.ones(4)
    assert test_utils.same_array(x, x[:]) and not test_utils.same_array(x, x.copy())
    test_utils.assert_exception(nd.dot, MXNetError, nd.ones((2, 2)), nd.ones((3, 3)))
    with pytest.raises(AssertionError, match="was not raised"):
        test_utils.assert_exception(len, ValueError, "abc")
    tries = []

    @test_utils.retry(3)
    def flaky():
        tries.append(1)
        assert len(tries) == 3

    flaky()
    assert len(tries) == 3 and list(test_utils.list_gpus()) == []
    with test_utils.environment({"GLUONJIT_A": "1", "PATH": None}):
        assert os.environ["GLUONJIT_A"] == mx.util.getenv("GLUONJIT_A") == "1" and "PATH" not in os.environ
    assert "GLUONJIT_A" not in os.environ and "PATH" in os.environ
    dummy = test_utils.DummyIter(mx.io.NDArrayIter(np.arange(6), batch_size=2))
    assert next(dummy) is next(dummy)


def test_default_context():
    before = test_utils.default_context()
    test_utils.set_default_context(mx.cpu(2))
    try:
        assert nd.ones(1).context == test_utils.default_context() == mx.cpu(2)
    finally:
        test_utils.set_default_context(before)


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
    amp = mx.contrib.amp
    assert amp.amp._amp_initialized is False
    with pytest.raises(MXNetError, match=r"net.cast\('float16'\)"):
        amp.init()
    with pytest.raises(MXNetError, match="gradients"):
        amp.scale_loss(nd.ones(1), None)
    assert mx.contrib.nd is nd.contrib and mx.contrib.sym is sym.contrib
