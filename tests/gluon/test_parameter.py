"""Parameters and their dictionaries."""

import copy

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon
from gluonjit.gluon import Constant, DeferredInitializationError, Parameter, ParameterDict


def initialized(shape=(2, 2), init="ones", **kwargs):
    param = Parameter("w", shape=shape, **kwargs)
    param.initialize(init=init)
    return param


def test_initialize():
    param = initialized()
    assert repr(param) == "Parameter w (shape=(2, 2), dtype=<class 'numpy.float32'>)"
    np.testing.assert_array_equal(param.data().asnumpy(), np.ones((2, 2)))
    assert param.list_ctx() == [mx.cpu(0)] and param.list_data() == [param.data()]
    np.testing.assert_array_equal(param.grad().asnumpy(), np.zeros((2, 2)))
    with pytest.warns(UserWarning, match="Parameter 'w' is already initialized, ignoring. Set force_reinit=True") as w:
        param.initialize(init="zeros")
    assert w[0].filename == __file__
    assert param.data().asnumpy().all()
    param.initialize(init="zeros", force_reinit=True)
    assert not param.data().asnumpy().any()


def test_which_initializer_wins():
    def first(value_of_param, given):
        param = Parameter("w", shape=1, init=value_of_param)
        param.initialize(given, default_init=mx.init.Constant(3))
        return param.data().asscalar()

    assert (first(None, None), first("ones", None), first("ones", mx.init.Constant(2))) == (3, 1, 2)


@pytest.mark.parametrize("shape", [None, (0, 2), ()])
def test_unknown_shapes(shape):
    with pytest.raises(ValueError, match="Cannot initialize Parameter 'w' because it has invalid shape"):
        Parameter("w", shape=shape).initialize()
    param = Parameter("w", shape=shape, allow_deferred_init=True)
    with pytest.raises(RuntimeError, match="Parameter 'w' has not been initialized. Note that you should"):
        param.data()
    param.initialize()
    with pytest.raises(DeferredInitializationError, match="initialization was deferred"):
        param.data()
    assert param.list_ctx() == [mx.cpu()]
    with pytest.raises(AssertionError, match="Please specify in_units, in_channels, etc"):
        param._finish_deferred_init()


def test_shape_may_only_be_completed():
    param = Parameter("w", shape=(0, 2))
    param.shape = (3, 2)
    with pytest.raises(AssertionError, match=r"Expected shape \(3, 3\) is incompatible with given shape \(3, 2\)\."):
        param.shape = (3, 3)
    with pytest.raises(AssertionError):
        param.shape = (3, 2, 1)


def test_set_data_writes_in_place_and_casts():
    param = initialized()
    view = param.data()[0]
    param.set_data(mx.nd.array([[1, 2], [3, 4]], dtype="int32"))
    assert view.asnumpy().tolist() == [1, 2] and param.data().dtype == np.float32
    param.set_data(np.zeros((2, 2)))
    assert view.asnumpy().tolist() == [0, 0]
    with pytest.raises(AssertionError, match=r"Expected shape \(5, 5\) is incompatible with given shape \(2, 2\)\."):
        param.set_data(mx.nd.ones((5, 5)))
    with pytest.raises(AssertionError, match="Parameter 'v' has not been initialized"):
        Parameter("v").set_data(mx.nd.ones((1,)))


def test_a_parameter_may_be_a_number():
    """With NumPy's shapes, where `()` is not an unknown one."""
    with mx.util.np_shape(True), mx.util.np_array(True):
        p = Parameter("w", shape=(), init="ones")
        p.initialize()
        p.set_data(mx.np.array(2.0))
        with mx.autograd.record():
            loss = p.data() ** 2
        loss.backward()
        assert p.data().item() == 2 and p.grad().item() == 4
        p.zero_grad()
        assert p.grad().item() == 0
    with pytest.raises(ValueError, match="invalid shape"):
        Parameter("w", shape=()).initialize()


def test_set_data_before_deferred_initialization():
    param = Parameter("w", shape=(0, 2), allow_deferred_init=True)
    param.initialize()
    value = mx.nd.ones((3, 2))
    param.set_data(value)
    assert param.shape == (3, 2)
    param._finish_deferred_init()
    value[:] = 5
    np.testing.assert_array_equal(param.data().asnumpy(), np.ones((3, 2)))


def test_writes_reach_the_storage_counter():
    param = initialized()
    storage = param.data().storage()
    before = storage.version
    param.set_data(mx.nd.zeros((2, 2)))
    assert storage.version > before
    for rebind in (lambda: param.cast("float16"), lambda: param.initialize(force_reinit=True)):
        storage = param.data().storage()
        before = storage.version
        rebind()
        assert storage.version > before  # the old array is no longer the parameter's: whoever watched it is told
        assert param.data().storage() is not storage


def test_cast():
    param = initialized()
    param.dtype = "float16"
    assert param.data().dtype == param.grad().dtype == np.float16
    assert repr(param) == "Parameter w (shape=(2, 2), dtype=float16)"


def test_gradients():
    param = initialized()
    param.grad()[:] = 3
    param.zero_grad()
    assert not param.grad().asnumpy().any()
    param.grad_req = "null"
    assert param.data().grad is None
    for read in (param.grad, param.list_grad):
        with pytest.raises(RuntimeError, match="because grad_req='null'"):
            read()
    with pytest.raises(AssertionError, match="grad_req must be one of 'write', 'add', or 'null', but got 'x'"):
        param.grad_req = "x"
    assert Parameter("w", differentiable=False).grad_req == "null"


def values(arrays):
    return [(x.asnumpy().tolist(), x.context) for x in arrays]


def test_contexts():
    """What MXNet answers to the same calls."""
    one, two, three = mx.cpu(0), mx.cpu(1), mx.cpu(2)
    param = Parameter("w", shape=(2,))
    param.initialize(mx.init.One(), ctx=[one, two])
    assert param.list_ctx() == [one, two]
    assert values(param.list_data()) == [([1, 1], one), ([1, 1], two)]
    assert param.data(one) is param.list_data()[0] is param.data()
    with two:
        assert param.data() is param.data(two)
    assert param.data(mx.cpu_pinned(1)) is param.data(two)
    missing = r"was not initialized on context cpu\(2\). It was only initialized on \[cpu\(0\), cpu\(1\)\]"
    for read in (param.data, param.grad):
        with pytest.raises(RuntimeError, match=missing):
            read(three)
    param.data(two)[:] = 5
    assert values(param.list_data()) == [([1, 1], one), ([5, 5], two)]
    param.set_data(mx.nd.array([3, 4]))
    assert values(param.list_data()) == [([3, 4], one), ([3, 4], two)]
    param.data(two)[:] = 7
    param.cast("float64")
    assert values(param.list_data()) == [([3, 4], one), ([7, 7], two)] and param.data(two).dtype == np.float64
    param.reset_ctx(two)
    assert values(param.list_data()) == [([5, 5.5], two)] and param.data() is param.data(two)
    with pytest.raises(RuntimeError, match=r"not initialized on context cpu\(0\)"):
        param.data(one)
    param.reset_ctx([one, three])
    assert values(param.list_data()) == [([5, 5.5], one), ([5, 5.5], three)]
    other = Parameter("q", shape=(2,))
    other.initialize(ctx=[two, three])
    with pytest.raises(RuntimeError, match=r"not initialized on context cpu\(0\)"):
        other.data()
    with pytest.raises(ValueError, match="Cannot reset context for Parameter 'v' because it has not been initialized"):
        Parameter("v").reset_ctx(mx.cpu())
    with pytest.raises(mx.MXNetError):
        Parameter("w", shape=(0,), allow_deferred_init=True).initialize(ctx=mx.gpu())


def test_each_context_has_a_gradient_buffer():
    param = Parameter("w", shape=(2,))
    param.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    param.grad(mx.cpu(1))[:] = 3
    assert values(param.list_grad()) == [([0, 0], mx.cpu(0)), ([3, 3], mx.cpu(1))]
    assert param.grad() is param.list_grad()[0]
    param.zero_grad()
    assert values(param.list_grad()) == [([0, 0], mx.cpu(0)), ([0, 0], mx.cpu(1))]


def test_deferred_initialization_on_several_contexts():
    param = Parameter("d", shape=(0,), allow_deferred_init=True)
    param.initialize("ones", ctx=[mx.cpu(0), mx.cpu(1)])
    assert param.list_ctx() == [mx.cpu(0), mx.cpu(1)]
    param.set_data(mx.nd.ones((3,)) * 2)
    with pytest.raises(gluon.DeferredInitializationError):
        param.list_data()
    param.reset_ctx([mx.cpu(1), mx.cpu(2)])
    param._finish_deferred_init()
    assert values(param.list_data()) == [([2, 2, 2], mx.cpu(1)), ([2, 2, 2], mx.cpu(2))]
    drawn = Parameter("r", shape=(3,))
    drawn.initialize(mx.init.Normal(), ctx=[mx.cpu(0), mx.cpu(1)])
    np.testing.assert_array_equal(*(x.asnumpy() for x in drawn.list_data()))
    drawn.initialize(ctx=[mx.cpu(2)], force_reinit=True)
    assert drawn.list_ctx() == [mx.cpu(2)]
    constant = gluon.Constant("k", mx.nd.array([1, 2]))
    constant.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    assert values(constant.list_data()) == [([1, 2], mx.cpu(0)), ([1, 2], mx.cpu(1))]


def test_storage_types():
    with pytest.raises(AssertionError, match="stype for Parameter 'w' must be one of"):
        Parameter("w", stype="x")
    with pytest.raises(RuntimeError, match="because its storage type is row_sparse. Please use row_sparse_data"):
        Parameter("w", stype="row_sparse").data()
    with pytest.raises(RuntimeError, match="because its storage type is default. Please use data"):
        initialized().row_sparse_data(mx.nd.ones((1,)))


def test_var():
    param = Parameter("w", shape=(0, 2), init=mx.init.Normal(0.5), lr_mult=2.0)
    assert param.var() is param.var()
    assert param.var().list_attr()["__shape__"] == "(0, 2)"
    assert param.var().list_attr()["__init__"] == '["normal", {"sigma": 0.5}]'
    assert param.var().list_attr()["__lr_mult__"] == "2.0"
    assert copy.deepcopy(param).var() is not param.var()


@pytest.mark.parametrize("hybridized", (False, True))
def test_a_parameter_that_its_block_does_not_list(hybridized):
    class Scaled(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.w = Parameter("w", shape=(4,))

        def hybrid_forward(self, F, x, w):
            return x * w

    net = Scaled(prefix="net_")
    net.initialize()
    net.hybridize(hybridized)
    x = mx.nd.ones((2, 4))
    with pytest.raises(RuntimeError, match=r"it is self.w of net, but .* do not find it.*self.params.get\('w', shape"):
        net(x)
    net.params.update({"w": net.w})
    with pytest.raises(RuntimeError, match="Note that you should"):
        net(x)
    net.initialize()
    assert net(x).shape == (2, 4)


def test_constant():
    constant = Constant("c", [[1, 2], [3, 4]])
    assert repr(constant) == "Constant c (shape=(2, 2), dtype=<class 'numpy.float32'>)"
    with pytest.raises(RuntimeError, match="has not been initialized"):
        constant.data()
    constant.initialize()
    assert constant.data().asnumpy().tolist() == [[1, 2], [3, 4]]
    assert constant.init.startswith("Constant_c_") and mx.init.create(constant.init) is constant._filler
    with pytest.warns(UserWarning, match='Constant parameter "c" does not support grad_req other than "null"'):
        constant.grad_req = "write"
    assert constant.grad_req == "null"


def test_get_fills_in_unknown_dimensions():
    params = ParameterDict("net_")
    param = params.get("w", shape=(2, 0))
    assert params.get("w", shape=(0, 5), dtype="float32") is param and param.shape == (2, 5)
    assert params.get("w", init="ones") is param and param.init == "ones"
    assert "net_w" in params and list(params) == ["net_w"] and params["net_w"] is param


@pytest.mark.parametrize(
    "kwargs, complaint",
    [
        ({"shape": (2, 4)}, r"attribute 'shape': desired '\(2, 4\)' vs stored '\(2, 3\)'"),
        ({"shape": (2, 3, 1)}, "attribute 'shape'"),
        ({"dtype": "float64"}, "attribute 'dtype': desired 'float64' vs stored '<class 'numpy.float32'>'"),
        ({"init": "zeros"}, "attribute 'init': desired 'zeros' vs stored 'ones'"),
        ({"lr_mult": 2.0}, "attribute 'lr_mult': desired '2.0' vs stored '1.0'"),
    ],
)
def test_get_refuses_what_does_not_agree(kwargs, complaint):
    params = ParameterDict("net_")
    params.get("w", shape=(2, 3), init="ones")
    with pytest.raises(AssertionError, match=f"Cannot retrieve Parameter 'net_w' because desired.*{complaint}"):
        params.get("w", **kwargs)


def test_get_constant():
    params = ParameterDict("net_")
    with pytest.raises(KeyError, match="No constant named 'net_k'"):
        params.get_constant("k")
    constant = params.get_constant("k", [1, 2])
    for same in (None, [1, 2], np.array([1, 2]), mx.nd.array([1, 2])):
        assert params.get_constant("k", same) is constant
    with pytest.raises(AssertionError, match="Constant 'net_k' already exists but it's value doesn't match"):
        params.get_constant("k", [1, 3])
    params.get("w")
    with pytest.raises(AssertionError, match="already exists but it is not a constant"):
        params.get_constant("w", [1])


def test_update():
    params, other = ParameterDict("net_"), ParameterDict("net_")
    params.get("w")
    other.get("v")
    params.update(other)
    assert list(params) == ["net_w", "net_v"]
    other.get("w")
    with pytest.raises(AssertionError, match="different Parameters with the same name 'net_w'"):
        params.update(other)


def test_dictionary_wide_operations():
    params = ParameterDict()
    params.get("a_weight", shape=(2,))
    params.get("b_bias", shape=(2,), init="zeros")
    params.initialize(mx.init.One(), ctx=[mx.cpu(1)])
    assert [p.data().asnumpy()[0] for p in params.values()] == [1, 0]
    assert params.list_ctx() == [mx.cpu(1)]
    params.reset_ctx(mx.cpu(0))
    assert params.list_ctx() == [mx.cpu(0)]
    params["a_weight"].grad()[:] = 1
    params.zero_grad()
    assert not params["a_weight"].grad().asnumpy().any()
    params.setattr("grad_req", "null")
    assert {p.grad_req for p in params.values()} == {"null"}
    assert repr(ParameterDict()) == "(\n\n)"


def test_verbose_initialization_logs(caplog):
    net = gluon.nn.Dense(2, in_units=2, prefix="fc_")
    with caplog.at_level("INFO"):
        net.initialize("ones", verbose=True)
    assert any(r.getMessage().startswith("Initialized fc_weight as ") for r in caplog.records)
    assert any(r.getMessage().endswith(": 1.0") for r in caplog.records)


@pytest.mark.parametrize("hybridize", [False, True])
def test_an_array_may_be_replaced_by_one_that_was_computed(hybridize):
    """By MXNet's private name, as libraries of probabilistic programs do; the numbers are MXNet's."""
    nd, autograd = mx.nd, mx.autograd
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize(init="ones")
    net.hybridize(hybridize)
    x, weight = nd.array([[1, 2, 3]]), net.weight
    with autograd.record():
        net(x).sum().backward()
    w = nd.array([[1, 0, 0], [0, 1, 0]])
    w.attach_grad()
    with autograd.record():
        own = w * 2
        weight._data[weight._ctx_map[1][0]] = own
        y = net(x)
        (y * y).sum().backward()
    assert y.asnumpy().tolist() == [[2, 4]] and w.grad.asnumpy().tolist() == [[8, 16, 24], [16, 32, 48]]
    assert weight.data() is own and weight.grad().asnumpy().tolist() == [[1, 2, 3]] * 2
    assert net(x).asnumpy().tolist() == [[2, 4]]
    weight._data[0] = nd.ones((2, 3)) * 3
    assert net(x).asnumpy().tolist() == [[18, 18]]
