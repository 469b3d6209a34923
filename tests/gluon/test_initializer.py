"""Initializers: values, names, printed forms."""

import json
import math

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import init


def filled(initializer, shape, name="x_weight", attrs=None, dtype="float32"):
    arr = mx.nd.full(shape, -7, dtype=dtype)
    initializer(init.InitDesc(name, attrs), arr)
    return arr.asnumpy()


def test_constants():
    assert not filled(init.Zero(), (2, 3)).any()
    assert (filled(init.One(), (2, 3)) == 1).all()
    assert (filled(init.Constant(0.5), (2, 3)) == 0.5).all()
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(filled(init.Constant(mx.nd.array(value)), (2, 3)), value)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_uniform_and_normal(dtype):
    mx.random.seed(3)
    uniform = filled(init.Uniform(0.2), (100, 100), dtype=dtype)
    assert uniform.dtype == dtype and abs(uniform).max() <= 0.2 and abs(uniform.mean()) < 0.01
    assert abs(uniform.std() - 0.2 / math.sqrt(3)) < 0.005
    normal = filled(init.Normal(0.3), (100, 100), dtype=dtype).astype(np.float64)
    assert abs(normal.std() - 0.3) < 0.01 and abs(normal.mean()) < 0.01


def test_the_seed_repeats_them():
    def draw():
        mx.random.seed(11)
        return [filled(i, (3, 4)) for i in (init.Uniform(), init.Normal(), init.Xavier(), init.Orthogonal())]

    for a, b in zip(draw(), draw()):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(filled(init.Uniform(), (3, 4)), filled(init.Uniform(), (3, 4)))


@pytest.mark.parametrize("factor_type, fan", [("in", 3 * 25), ("out", 8 * 25), ("avg", 11 * 25 / 2)])
def test_xavier(factor_type, fan):
    mx.random.seed(1)
    scale = math.sqrt(2.5 / fan)
    uniform = filled(init.Xavier("uniform", factor_type, 2.5), (8, 3, 5, 5))
    assert 0.9 * scale < abs(uniform).max() <= scale
    normal = filled(init.Xavier("gaussian", factor_type, 2.5), (8, 3, 5, 5))
    assert abs(normal.std() / scale - 1) < 0.15


def test_xavier_refuses():
    with pytest.raises(ValueError, match="Xavier initializer cannot be applied to vector x_weight"):
        filled(init.Xavier(), (3,))
    with pytest.raises(ValueError, match="Incorrect factor type"):
        filled(init.Xavier(factor_type="x"), (3, 3))
    with pytest.raises(ValueError, match="Unknown random type"):
        filled(init.Xavier(rnd_type="x"), (3, 3))


def test_msra_prelu():
    mx.random.seed(1)
    out = filled(init.MSRAPrelu("in", 0.5), (50, 40))
    assert abs(out.std() / math.sqrt(2 / 1.25 / 40) - 1) < 0.1


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (4, 2, 2)])
@pytest.mark.parametrize("rand_type", ["uniform", "normal"])
def test_orthogonal(shape, rand_type):
    flat = filled(init.Orthogonal(scale=2, rand_type=rand_type), shape).reshape(shape[0], -1)
    gram = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
    np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-5)


def test_bilinear():
    kernel = np.outer([0.25, 0.75, 0.75, 0.25], [0.25, 0.75, 0.75, 0.25])
    np.testing.assert_allclose(filled(init.Bilinear(), (2, 1, 4, 4)), np.broadcast_to(kernel, (2, 1, 4, 4)))


def test_lstm_bias():
    assert filled(init.LSTMBias(2.0), (8,)).tolist() == [0, 0, 2, 2, 0, 0, 0, 0]


@pytest.mark.parametrize("mode, gates", [("rnn_tanh", 1), ("gru", 3), ("lstm", 4)])
@pytest.mark.parametrize("directions", [1, 2])
def test_fused_rnn(mode, gates, directions):
    inputs, h, layers = 5, 3, 2
    weights = directions * gates * h * (inputs + h) + directions * gates * h * (directions * h + h)
    biases = layers * directions * gates * h * 2
    out = filled(init.FusedRNN(init.One(), h, layers, mode, directions == 2, 0.5), (weights + biases,))
    assert (out[:weights] == 1).all()
    forget = 0.5 if mode == "lstm" else 0
    assert set(out[weights:]) <= {0, forget} and out[weights:].sum() == forget * layers * directions * 2 * h
    with pytest.raises(ValueError, match="numbers, but an RNN of mode"):
        filled(init.FusedRNN(init.One(), h, layers, mode, directions == 2), (weights + biases + 1,))


@pytest.mark.parametrize(
    "name, value",
    [("a_weight", 9), ("a_bias", 0), ("a_gamma", 1), ("a_beta", 0), ("a_min", 0), ("a_max", 1)],
)
def test_names_decide(name, value):
    assert (filled(init.Constant(9), (2,), name) == value).all()


def test_unknown_names():
    with pytest.raises(ValueError, match="Unknown initialization pattern for a_alpha"):
        filled(init.Constant(9), (2,), "a_alpha")
    assert (filled(init.Constant(9), (2,), "a_alpha", {"__init__": "ones"}) == 1).all()
    assert (filled(init.Zero(), (2,), "a_bias", {"__init__": '["constant", {"value": 4}]'}) == 4).all()


@pytest.mark.parametrize("name, value", [("a_moving_var", 1), ("a_moving_mean", 0), ("stn_loc_weight", 0)])
def test_plain_strings_are_deprecated(name, value):
    arr = mx.nd.full((2,), -7)
    with pytest.warns(DeprecationWarning):
        init.Constant(9)(name, arr)
    assert (arr.asnumpy() == value).all()


def test_mixed():
    mixed = init.Mixed([".*bias", ".*"], [init.Constant(3), init.One()])
    with pytest.warns(DeprecationWarning):
        arr = mx.nd.zeros((2,))
        mixed("a_weight", arr)
    assert (arr.asnumpy() == 1).all()
    with pytest.raises(ValueError, match="did not match any pattern"):
        init.Mixed(["b"], [init.One()])("a", arr)
    with pytest.raises(AssertionError):
        init.Mixed(["a", "b"], [init.One()])


def test_load():
    load = init.Load({"arg:a_weight": mx.nd.ones((2,)), "b": mx.nd.ones((2,))}, default_init=init.Zero())
    arr = mx.nd.full((2,), -7)
    load(init.InitDesc("a_weight"), arr)
    assert arr.asnumpy().tolist() == [1, 1]
    load(init.InitDesc("c_weight"), arr)
    assert arr.asnumpy().tolist() == [0, 0]
    with pytest.raises(AssertionError, match="Shape mismatch"):
        load("b", mx.nd.ones((3,)))
    with pytest.raises(AssertionError, match="Cannot Initialize c. Not found in loaded param"):
        init.Load({})("c", arr)


def test_dumps_and_create():
    assert init.Normal(0.5).dumps() == '["normal", {"sigma": 0.5}]'
    assert json.loads(init.Xavier(magnitude=2.34).dumps()) == [
        "xavier",
        {"rnd_type": "uniform", "factor_type": "avg", "magnitude": 2.34},
    ]
    assert init.Constant(mx.nd.array([1, 2])).dumps() == '["constant", {"value": [1.0, 2.0]}]'
    for original in (
        init.Zero(),
        init.Constant(2),
        init.Uniform(0.1),
        init.Orthogonal(1.0, "normal"),
        init.MSRAPrelu("in", 0.1),
        init.LSTMBias(3.0),
        init.FusedRNN(init.Normal(1.0), 3, 1, "lstm"),
    ):
        assert init.create(original.dumps()) == original
        assert init.create(original) is original
    assert init.create("zeros") == init.Zero() and init.create("Ones") == init.One()
    assert init.create("uniform", 0.3) == init.Uniform(0.3)
    assert init.Uniform(0.1) != init.Uniform(0.2) and init.Uniform(1) != init.Normal(1)


def test_create_refuses():
    with pytest.raises(AssertionError, match="foo is not registered. Please register with initializer.register first"):
        init.create("foo")
    with pytest.raises(AssertionError, match="initializer must be of string type"):
        init.create(3)


def test_register():
    @init.register
    @init.alias("another_name")
    class OnlyForThisTest(init.Initializer):
        def _init_weight(self, name, arr):
            arr[:] = 0.25

    try:
        assert (filled(init.create("onlyforthistest"), (2,)) == 0.25).all()
        assert type(init.create("another_name")) is OnlyForThisTest
        with pytest.warns(UserWarning, match="overriding existing initializer"):
            init.register(OnlyForThisTest)
        with pytest.raises(AssertionError, match="Can only register subclass of Initializer"):
            init.register(int)
    finally:
        for name in ("onlyforthistest", "another_name"):
            del init._CLASSES[name]


def test_what_is_printed():
    """As the call that makes it: `help` shows initializers as defaults of parameters."""
    made = [mx.init.Uniform(), mx.init.Zero(), mx.init.Xavier(magnitude=2)]
    assert list(map(repr, made)) == [
        "Uniform(scale=0.07)",
        "Zero()",
        "Xavier(rnd_type='uniform', factor_type='avg', magnitude=2)",
    ]


def test_arrays_as_constants_are_written_while_a_block_is_traced():
    class Shifted(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.shift = self.params.get("shift", shape=(2,), init=mx.init.Constant(mx.nd.array([3, 4])))

        def hybrid_forward(self, F, x, shift):
            return x + shift

    net = Shifted()
    net.initialize()
    net.hybridize()
    assert net(mx.nd.ones(2)).asnumpy().tolist() == [4, 5]
