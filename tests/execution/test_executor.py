"""`bind`, `simple_bind`, `eval`: symbols run forward over arrays."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import nd, sym
from gluonjit.execution import backends
from support.compare import assert_close


@pytest.fixture
def fc():
    return sym.FullyConnected(sym.var("x"), num_hidden=4, name="fc")


def test_eval():
    x, y = sym.var("x"), sym.var("y")
    ones = nd.ones((2, 3))
    (out,) = (x + y * 2).eval(x=ones, y=ones)
    assert out.asnumpy().tolist() == [[3.0] * 3] * 2
    a, b = sym.Group([x, sym.exp(x)]).eval(ctx=mx.cpu(), x=ones)
    np.testing.assert_allclose(b.asnumpy(), np.exp(a.asnumpy()), rtol=1e-6)


def test_simple_bind_makes_arrays_of_the_inferred_shapes(fc):
    executor = fc.simple_bind(mx.cpu(), x=(2, 3), type_dict={"x": "float64"})
    assert {k: (v.shape, v.dtype) for k, v in executor.arg_dict.items()} == {
        "x": ((2, 3), np.float64),
        "fc_weight": ((4, 3), np.float64),
        "fc_bias": ((4,), np.float64),
    }
    assert executor.outputs[0].shape == (2, 4)
    with pytest.raises(RuntimeError, match=r"simple_bind error[\s\S]*fc_bias: None"):
        fc.simple_bind(mx.cpu())


def test_forward_reads_the_arrays_each_time(fc):
    executor = fc.simple_bind(mx.cpu(), x=(2, 3))
    executor.copy_params_from({"fc_weight": nd.ones((4, 3)), "fc_bias": nd.ones((4,)) * 0.5})
    assert executor.forward(x=nd.ones((2, 3)))[0].asnumpy().tolist() == [[3.5] * 4] * 2
    executor.arg_dict["x"][:] = 2
    executor.arg_dict["fc_weight"][0] = 0
    assert executor.forward()[0].asnumpy().tolist() == [[0.5, 6.5, 6.5, 6.5]] * 2
    assert executor.output_dict["fc_output"] is executor.outputs[0]


def test_outputs_are_the_same_arrays_after_every_forward(fc):
    executor = sym.Group([fc, sym.relu(fc)]).simple_bind(mx.cpu(), x=(2, 3))
    before, named = executor.outputs, executor.output_dict
    executor.arg_dict["fc_weight"][:] = 1
    first = executor.forward(x=nd.ones((2, 3)))
    row = first[0][0]
    executor.forward(is_train=True, x=nd.ones((2, 3)) * 2)
    for x in (before[0], first[0], named["fc_output"], executor.outputs[1]):
        assert x.asnumpy().tolist() == [[6.0] * 4] * 2
    assert row.asnumpy().tolist() == [6.0] * 4
    assert executor.output_dict["fc_output"] is before[0]


def test_outputs_may_be_arguments_or_each_other():
    x = sym.var("x")
    double = x * 2
    executor = sym.Group([x, double, double]).bind(mx.cpu(1), {"x": nd.ones((2,), ctx=mx.cpu(1))})
    executor.forward()
    executor.outputs[0][:] = 5
    assert executor.arg_dict["x"].asnumpy().tolist() == [5, 5]
    executor.forward()
    assert executor.outputs[1].asnumpy().tolist() == [10, 10]
    executor.outputs[1][:] = 7
    assert executor.outputs[2].asnumpy().tolist() == [7, 7]
    assert [x.context for x in executor.outputs] == [mx.cpu(1)] * 3


def test_forward_with_numpy_and_wrong_arguments(fc):
    executor = fc.simple_bind(mx.cpu(), x=(2, 3))
    executor.forward(x=np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"Shape not match! Argument x, need: \(2, 3\), received: \(2, 4\)"):
        executor.forward(x=nd.ones((2, 4)))
    with pytest.raises(TypeError, match="Unknown argument z"):
        executor.forward(z=nd.ones((2, 4)))
    with pytest.raises(ValueError, match="only accept keyword argument of NDArrays"):
        executor.forward(x=3)
    with pytest.raises(ValueError, match='Find name "foo" that is not in the arguments'):
        executor.copy_params_from({"foo": nd.ones((1,))})


def test_bind_by_order_or_name():
    s = sym.var("x") + sym.var("y")
    ones = nd.ones((2, 3))
    assert s.bind(mx.cpu(), [ones, ones]).forward()[0].asnumpy().sum() == 12
    assert s.bind(mx.cpu(), {"y": ones, "x": ones}).forward()[0].asnumpy().sum() == 12
    with pytest.raises(ValueError, match="Length of args does not match"):
        s.bind(mx.cpu(), [ones])
    with pytest.raises(ValueError, match="key `y` is missing in `args`"):
        s.bind(mx.cpu(), {"x": ones})
    with pytest.raises(TypeError, match="Only accept list of NDArrays"):
        s.bind(mx.cpu(), [ones, 1])
    with pytest.raises(TypeError, match="Context type error"):
        s.bind(1, [ones, ones])
    with pytest.raises(mx.MXNetError, match=r"Error in operator .*elemwise_add\(f32\[2,3\], f32\[2,1\]\)"):
        s.bind(mx.cpu(), [ones, nd.ones((2, 1))])


def test_auxiliary_states_and_modes():
    bn = sym.BatchNorm(sym.var("x"), fix_gamma=False, eps=0, name="bn")
    x = nd.array([[1, 2], [3, 6]])
    args = {"x": x, "bn_gamma": nd.ones((2,)), "bn_beta": nd.zeros((2,))}
    states = {"bn_moving_mean": nd.array([1, 2]), "bn_moving_var": nd.array([4, 4])}
    executor = bn.bind(mx.cpu(), args, aux_states=states)
    assert list(executor.aux_dict) == ["bn_moving_mean", "bn_moving_var"]
    np.testing.assert_allclose(executor.forward()[0].asnumpy(), [[0, 0], [1, 2]], atol=1e-6)
    np.testing.assert_allclose(executor.forward(is_train=True)[0].asnumpy(), [[-1, -1], [1, 1]], rtol=1e-6)


def test_random_operators_go_on_from_call_to_call():
    executor = sym.random.uniform(shape=(3,)).bind(mx.cpu(), {})
    mx.random.seed(3)
    first, second = executor.forward()[0].asnumpy(), executor.forward()[0].asnumpy()
    assert (first != second).all()
    mx.random.seed(3)
    np.testing.assert_array_equal(nd.random.uniform(shape=(3,)).asnumpy(), first)


def test_reshape_shares_what_stays(fc):
    executor = fc.simple_bind(mx.cpu(), x=(2, 3))
    executor.arg_dict["fc_bias"][:] = 1
    smaller = executor.reshape(x=(1, 3))
    assert smaller.arg_dict["fc_weight"] is executor.arg_dict["fc_weight"]
    assert smaller.forward()[0].asnumpy().tolist() == [[1.0] * 4]
    with pytest.raises(mx.MXNetError, match="allow_up_sizing"):
        executor.reshape(x=(5, 3))
    assert executor.reshape(allow_up_sizing=True, x=(5, 3)).outputs[0].shape == (5, 4)
    with pytest.raises(mx.MXNetError, match="partial_shaping"):
        executor.reshape(x=(1, 2))
    assert executor.reshape(partial_shaping=True, x=(1, 2)).arg_dict["fc_weight"].shape == (4, 2)


@pytest.mark.parametrize("told", ["shapes", "keywords", "names"])
def test_parameters_are_watched(told):
    """Work on parameters alone is done once, and again after each write to one of them."""
    graph = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    x = np.array([[1, 2, 3]], "f4")
    weight, bias = np.ones((2, 3), "f4"), np.zeros(2, "f4")
    if told == "shapes":
        executor = graph.simple_bind(mx.cpu(), data=(1, 3))
        executor.copy_params_from({"fc_weight": mx.nd.array(weight), "fc_bias": mx.nd.array(bias)})
    else:
        executor = graph.bind(mx.cpu(), [mx.nd.zeros((1, 3)), mx.nd.array(weight), mx.nd.array(bias)])

    def run(x):
        if told == "names":
            executor.arg_dict["data"][:] = x
            return executor.forward()[0].asnumpy()
        return executor.forward(data=mx.nd.array(x))[0].asnumpy()

    for scale in (1, 2):
        assert_close(run(x * scale), np.full((1, 2), 6 * scale, "f4"))
    executor.arg_dict["fc_weight"][0] = 0
    assert_close(run(x), np.array([[0, 6]], "f4"))
    executor.arg_dict["fc_bias"][:] = 1
    assert_close(run(x), np.array([[1, 7]], "f4"))


def test_one_operator_on_few_elements_is_not_compiled(monkeypatch):
    """What the size says, and nothing else: such a symbol gives the bits of the plain call."""
    compiled = []
    real = backends._backends["llvm"]
    monkeypatch.setitem(backends._backends, "llvm", lambda g, o: compiled.append(g) or real(g, o))
    rng = np.random.default_rng(0)
    for n, m, count in ((3, 4, 0), (64, 32, 0), (64, 33, 1)):
        x = nd.array(rng.standard_normal((n, m)))
        got = sym.tanh(sym.var("x")).bind(mx.cpu(), {"x": x}).forward()[0]
        assert len(compiled) == count
        if not count:
            np.testing.assert_array_equal(got.asnumpy(), nd.tanh(x).asnumpy())
        assert_close(got, nd.tanh(x))
    executor = sym.relu(sym.var("x")).simple_bind(mx.cpu(), x=(4, 4))
    for shape in ((2, 3), (1, 1)):
        smaller = executor.reshape(x=shape)
        assert smaller.forward(x=nd.ones(shape) - 2)[0].asnumpy().tolist() == np.zeros(shape).tolist()
    sym.exp(sym.tanh(sym.var("x"))).bind(mx.cpu(), {"x": nd.ones((2, 2))}).forward()
    assert len(compiled) == 2  # two operators: compiled


def test_tiny_symbols_draw_and_update_as_compiled_ones_do(monkeypatch):
    x = nd.array(np.random.default_rng(0).standard_normal((4, 3)))
    parameters = {name: nd.ones((3,)) for name in ("bn_gamma", "bn_beta")}
    seen = []
    for tiny in (True, False):
        monkeypatch.setattr("gluonjit.execution.symbol_codes.is_tiny", (lambda g: True) if tiny else (lambda g: False))
        aux = {"bn_moving_mean": nd.zeros((3,)), "bn_moving_var": nd.ones((3,))}
        net = sym.BatchNorm(sym.var("x"), fix_gamma=False, name="bn")
        y = net.bind(mx.cpu(), {"x": x, **parameters}, aux_states=aux).forward(is_train=True)[0]
        mx.random.seed(3)
        dropped = sym.Dropout(sym.var("x"), p=0.5).bind(mx.cpu(), {"x": x})
        draws = [dropped.forward(is_train=True)[0].asnumpy() for _ in range(2)]
        seen.append([y.asnumpy(), *(a.asnumpy() for a in aux.values()), *draws])
    for a, b in zip(*seen):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_results_are_on_the_contexts_of_their_groups():
    with mx.AttrScope(ctx_group="one"):
        first = mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=2, name="first")
    between = first * 2
    with mx.AttrScope(ctx_group="two"):
        second = between + 1
    outputs = mx.sym.Group([first, between, second, mx.sym.var("y") + 1])
    groups = {"one": mx.cpu(1), "two": mx.cpu(2)}
    executor = outputs.simple_bind(mx.cpu(), group2ctx=groups, x=(1, 3), y=(1,))
    for found in (executor, executor.reshape(x=(1, 3), y=(1,))):
        assert [x.context.device_id for x in found.forward()] == [1, 1, 2, 0]
    assert {name: x.context.device_id for name, x in executor.grad_dict.items()} == {
        "x": 1,
        "first_weight": 1,
        "first_bias": 1,
        "y": 0,
    }
    module = mx.mod.Module(second, ["x"], None, group2ctxs=[groups])
    module.bind([("x", (1, 3))])
    module.init_params()
    module.forward(mx.io.DataBatch([mx.nd.ones((1, 3))]))
    assert module.get_outputs()[0].context == mx.cpu(2)


def test_a_monitor_stays_when_shapes_change():
    executor = (mx.sym.var("x") * 2).simple_bind(mx.cpu(), x=(np.int64(4), 3))  # NumPy's integers are sizes, too
    seen = []
    executor.set_monitor_callback(lambda name, array: seen.append(array.shape))
    executor.reshape(x=(2, 3)).forward()
    assert seen == [(2, 3)]


def test_binding_to_a_gpu_names_the_gpu():
    with pytest.raises(RuntimeError, match=r"^gpu\(0\) is not available(?s:.*)simple_bind error"):
        (mx.sym.var("x") * 2).simple_bind(mx.gpu(0), x=(4, 3))
