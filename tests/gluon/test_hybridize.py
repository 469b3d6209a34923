"""`hybridize` and its options, as far as blocks are concerned: the answers stay those of imperative calls."""

import copy
import ctypes
import warnings

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon
from gluonjit.codegen.target import host
from gluonjit.codegen.text.intrinsics import flush_bits
from gluonjit.execution import backends
from gluonjit.gluon import nn

pytestmark = pytest.mark.usefixtures("fresh_names")

TOLERANCE = 1e-5


def mlp():
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu"), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    return net


def close(a, b):
    a, b = a.asnumpy(), b.asnumpy()
    assert a.shape == b.shape and a.dtype == b.dtype
    assert np.abs(a - b).max() <= TOLERANCE * max(np.abs(b).max(), 1e-30)


class Counting(gluon.HybridBlock):
    """Counts how often Python runs `hybrid_forward`."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.calls: list[str] = []  # a list: changes of a number would have the block run as Python
        self.dense = nn.Dense(3, in_units=4)

    def hybrid_forward(self, F, x, y=None):
        self.calls.append("run")
        return self.dense(x) if y is None else [self.dense(x), (y * 2, None)]


@pytest.fixture
def x():
    mx.random.seed(5)
    return mx.nd.random.uniform(-1, 1, shape=(2, 4))


def test_the_answer_stays_and_python_runs_once(x):
    net = Counting()
    net.initialize()
    expected = net(x)
    net.hybridize()
    for _ in range(3):
        close(net(x), expected)
    assert len(net.calls) == 2
    net.hybridize(False)
    close(net(x), expected)
    assert len(net.calls) == 3


def test_deferred_initialization_in_a_hybridized_block(x):
    net = mlp()
    net.hybridize()
    out = net(x)
    assert net[0].weight.shape == (8, 4)
    net.hybridize(False)
    close(out, net(x))


@pytest.mark.parametrize("seeded", ["before initialize", "after initialize"])
def test_postponed_initializations_beside_dropout(x, seeded):
    """A plain call initializes the last layer behind the draws of Dropout, a compiled one in front of them."""
    results = []
    for active in (False, True):
        net = nn.HybridSequential()
        net.add(nn.Dense(8), nn.Dropout(0.5), nn.Dense(3))
        mx.random.seed(11)
        net.initialize()
        if seeded == "after initialize":
            mx.random.seed(12)
        net.hybridize(active)
        state = mx.random.get_state()
        with mx.autograd.record():
            out = net(x)
        results.append((out.asnumpy(), net[2].weight.data().asnumpy(), mx.random.get_state()))
        assert results[-1][2] != state
    (plain, weight, after), (compiled, same_weight, same_after) = results
    close(mx.nd.array(compiled), mx.nd.array(plain))
    np.testing.assert_array_equal(weight, same_weight)
    assert after == same_after


def test_postponed_initializations_go_on_from_a_state(x):
    def weights():
        net = nn.Dense(3)
        net.initialize()
        net(x)
        return net.weight.data().asnumpy()

    mx.random.seed(5)
    first = weights()
    state = mx.random.get_state()
    second = weights()
    assert (first != second).any()
    mx.random.set_state(state)
    np.testing.assert_array_equal(weights(), second)


def test_nested_inputs_and_results(x):
    net = Counting()
    net.initialize()
    expected = net(x, x)
    net.hybridize()
    out = net(x, x)
    assert type(out) is type(expected) and type(out[1]) is type(expected[1]) and out[1][1] is None
    close(out[0], expected[0])
    close(out[1][0], expected[1][0])
    close(net(x), expected[0])  # another structure is another trace
    close(net(x, None), expected[0])


def test_inside_record_nothing_changes(x):
    net = mlp()
    expected = net(x)
    net.hybridize()
    with autograd.record(train_mode=False):
        close(net(x), expected)
    with autograd.record():
        close(net(x), expected)


def test_set_data_and_views_are_seen(x):
    net = mlp()
    net(x)
    plain = copy.deepcopy(net)
    net.hybridize()
    net(x)
    for one in (net, plain):
        one[1].weight.set_data(mx.nd.ones((3, 8)))
        one[0].bias.data()[2:4] = 5
    close(net(x), plain(x))
    for one in (net, plain):
        one.initialize("ones", force_reinit=True)
    close(net(x), plain(x))


def test_structure_changes_are_seen(x):
    net = nn.HybridSequential()
    inner = mlp()
    net.add(inner)
    net.hybridize()
    net(x)
    inner.add(nn.Dense(2, in_units=3))
    inner[2].initialize()
    assert net(x).shape == (2, 2)
    net.cast("float64")
    assert net(x.astype("float64")).dtype == np.float64


def test_plain_blocks_pass_it_on(x):
    net = nn.Sequential()
    net.add(mlp(), nn.Lambda("relu"))
    expected = net(x)
    net.hybridize(static_alloc=True, static_shape=True, inline_limit=4, forward_bulk_size=2, backward_bulk_size=2)
    assert net[0]._active and net[0][0]._active
    close(net(x), expected)


@pytest.mark.parametrize("flag", ["static_alloc", "static_shape"])
def test_flags_are_booleans_as_mxnet_reads_them(flag):
    net = mlp()
    for value in (True, 1, "True", "false", "0"):
        net.hybridize(**{flag: value})
    for value in ("maybe", 2, None, []):
        with pytest.raises(mx.MXNetError, match=f"Invalid Parameter format for {flag} expect boolean but value='"):
            net.hybridize(**{flag: value})
    with pytest.raises(mx.MXNetError, match=f"Invalid Parameter format for {flag} expect boolean"):
        mx.nd.CachedOp(mx.sym.var("x") + 1, [(flag, "maybe")])


@pytest.mark.parametrize("flag", ["inline_limit", "forward_bulk_size", "backward_bulk_size"])
def test_sizes_are_not_negative(flag, x):
    net = mlp()
    net.hybridize(**{flag: "3"})
    assert net(x).shape == mlp()(x).shape
    for value in ("maybe", -1):
        with pytest.raises(mx.MXNetError, match=rf"Invalid Parameter format for {flag} expect int \(non-negative\)"):
            net.hybridize(**{flag: value})


def test_a_block_that_overrides_forward_runs_in_python(x):
    class Own(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.dense = Counting()

        def forward(self, x):
            self.calls += 1
            return self.dense(x * float(x.asnumpy().max()))

    net = Own()
    net.initialize()
    expected = net(x)
    net.hybridize()
    for _ in range(2):
        close(net(x), expected)
    assert (net.calls, len(net.dense.calls)) == (3, 2)


def test_forward_that_ends_in_the_base_class_keeps_running(x):
    class Doubling(Counting):
        def forward(self, x):
            return super().forward(x * 2)

    net = Doubling()
    net.initialize()
    expected = net(x)
    net.hybridize()
    for _ in range(3):
        close(net(x), expected)


def test_hooks_run_on_hybridized_blocks(x):
    net = mlp()
    net(x)
    net.hybridize()
    net(x)
    shapes = []
    handle = net.register_forward_hook(lambda block, inputs, out: shapes.append(out.shape))
    net(x)
    net(x)
    handle.detach()
    net(x)
    assert shapes == [(2, 3), (2, 3)]
    net.register_forward_pre_hook(lambda *_: None)
    with pytest.warns(UserWarning, match="is being hybridized while still having forward hook/pre-hook"):
        net.hybridize()


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_inside_of_a_traced_block_are_warned_of(x, kind, tmp_path):
    net, calls = mlp(), []
    expected, replaced = net(x), nn.Dense(4)
    net.hybridize()
    net(x)
    with pytest.warns(UserWarning, match="contains dense0: this hook is not called in every call"):
        getattr(net[0], kind)(lambda block, *arrays: calls.append(block))
    close(net(x), expected)
    assert not calls  # as in MXNet, and nothing is traced again: the trace can be exported
    net.export(str(tmp_path / "net"))
    holder = nn.HybridBlock()
    holder.part = replaced
    holder.part = nn.Dense(3)
    holder.hybridize()
    net.hybridize(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(net[0], kind)(lambda block, *arrays: calls.append(block))
        getattr(replaced, kind)(print)
    net(x), net(x)
    assert len(calls) == 4


def test_op_hooks(x):
    net = mlp()
    expected = net(x)
    seen = []
    net.hybridize()
    net(x)
    net.register_op_hook(lambda name, op, arr: seen.append((name, op, arr.shape)))
    close(net(x), expected)
    assert seen == [
        (b"dense0_fwd_output", b"FullyConnected", (2, 8)),
        (b"dense0_relu_fwd_output", b"Activation", (2, 8)),
        (b"dense1_fwd_output", b"FullyConnected", (2, 3)),
    ]
    seen.clear()
    net.register_op_hook(lambda name, op, arr: seen.append((name, op, arr.shape)), monitor_all=True)
    net(x)
    assert seen[:6] == [
        (b"dense0_fwd_data", b"FullyConnected", (2, 4)),
        (b"dense0_fwd_weight", b"FullyConnected", (8, 4)),
        (b"dense0_fwd_bias", b"FullyConnected", (8,)),
        (b"dense0_fwd_output", b"FullyConnected", (2, 8)),
        (b"dense0_relu_fwd_input0", b"Activation", (2, 8)),
        (b"dense0_relu_fwd_output", b"Activation", (2, 8)),
    ]


class Named(nn.HybridBlock):
    def hybrid_forward(self, F, x):
        parts = F.split(F.concat(F.expand_dims(x, 0) + 1, F.expand_dims(x, 0), dim=0), num_outputs=2)
        return F.broadcast_add(parts[0], parts[1], name="sum")


def test_op_hooks_name_what_has_no_name_as_mxnet_does(x):
    net = Named(prefix="n_")
    net.hybridize()
    names = []
    net.register_op_hook(lambda name, op, arr: names.append(name.decode()), monitor_all=True)
    net(x)
    assert names == [
        *("n_expand_dims0_input0", "n_expand_dims0_0"),
        *("n__plusscalar0_input0", "n__plusscalar0_0"),
        *("n_expand_dims1_input0", "n_expand_dims1_0"),
        *("n_concat0_arg0", "n_concat0_arg1", "n_concat0_output"),
        *("n_split0_data", "n_split0_output0", "n_split0_output1"),
        *("n_sum_lhs", "n_sum_rhs", "n_sum_0"),
    ]


def test_hooks_written_for_mxnet_make_arrays_of_handles(x):
    net = mlp()
    net.hybridize()
    seen = []

    def hook(name, op, handle):
        seen.append(mx.nd.NDArray(ctypes.cast(handle, mx.base.NDArrayHandle), writable=False))

    net.register_op_hook(hook)
    close(net(x), seen[-1])
    with pytest.raises(ValueError, match="read-only"):
        seen[-1][:] = 0
    with pytest.raises(ValueError, match="not the handle of an existing array"):
        mx.nd.NDArray(mx.base.NDArrayHandle(8))


def test_backends(x):
    net = mlp()
    expected = net(x)
    graphs = []

    def spy(graph, options):
        graphs.append((graph, options))
        return backends.get_backend("numpy")(graph, options)

    mx.register_backend("spy", spy)
    for backend in ("numpy", "llvm", "MKLDNN", None):
        net.hybridize(backend=backend)
        close(net(x), expected)
    net.hybridize(backend="spy", backend_opts={"level": 3}, verbose=True)
    close(net(x), expected)
    assert [options for _, options in graphs] == [{"level": 3, "verbose": True}]
    with pytest.raises(mx.MXNetError, match="Backend 'nump' is not registered; did you mean 'numpy'.*llvm"):
        net.hybridize(backend="nump")


def test_optimize_for_compiles_without_running(x):
    built = []

    def spy(graph, options):
        built.append(options)
        return backends.get_backend("numpy")(graph, options)

    mx.register_backend("spy", spy)
    net = Counting()
    net.initialize()
    net.optimize_for(x, backend="spy", flag=1)
    assert (len(net.calls), built) == (1, [{"flag": 1}])
    net(x)
    assert (len(net.calls), len(built)) == (1, 1)
    with pytest.raises(ValueError, match='Must specify "backend" to optimize_for'):
        net.optimize_for(x)
    with pytest.raises(ValueError, match="there must be one NDArray or one Symbol"):
        net.optimize_for(3, backend="numpy")
    with pytest.raises(TypeError, match="optimize_for takes no argument 'active'"):
        net.optimize_for(x, backend="numpy", active=False)
    with pytest.raises(mx.MXNetError, match="backend is a name, one of MKLDNN, .*llvm.*; got NDArray"):
        net.optimize_for(x, backend=mx.nd.ones(2))


def test_symbols_go_through_a_compiled_block(x):
    net = mlp()
    net.hybridize()
    net(x)
    out = net(mx.sym.var("data"))
    assert out.list_outputs() == ["dense1_fwd_output"]
    with pytest.raises(ValueError, match="there must be one NDArray or one Symbol"):
        net(np.ones((2, 4), np.float32))


def test_a_compiled_block_inside_another(x):
    inner = mlp()
    inner.hybridize()
    expected = inner(x)
    net = nn.HybridSequential()
    net.add(inner)
    net.hybridize()
    close(net(x), expected)


def test_copies_of_compiled_blocks(x):
    net = mlp()
    net.hybridize()
    expected = net(x)
    other = copy.deepcopy(net)
    close(other(x), expected)
    net[0].weight.set_data(net[0].weight.data() * 2)
    close(other(x), expected)


def test_no_warnings(x):
    net = mlp()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.hybridize()
        net(x)


def test_winograd_can_be_turned_off():
    """Other multiplications round differently: the same answer and gradient, in other bits."""
    net = nn.Conv2D(32, 3, padding=1, in_channels=32)
    net.initialize(mx.init.Xavier())
    x = mx.nd.random.uniform(-1, 1, shape=(1, 32, 30, 30))

    def called():
        with mx.autograd.record():
            y = net(x)
        y.backward()
        return y, net.weight.grad().copy()

    expected = called()
    net.hybridize()
    transformed = called()
    net.hybridize(winograd=False)
    direct = called()
    net.hybridize(winograd=True)
    for of_plain, of_transformed, of_direct, again in zip(expected, transformed, direct, called(), strict=True):
        close(of_transformed, of_plain)
        close(of_direct, of_plain)
        assert (again.asnumpy() == of_transformed.asnumpy()).all()
        assert (of_direct.asnumpy() != of_transformed.asnumpy()).any()


VIEWS = {
    "itself": lambda F, x: x,
    "a row": lambda F, x: x[1],
    "rows": lambda F, x: x[1:],
    "one element": lambda F, x: x[1, 0],
    "another shape": lambda F, x: x.reshape((3, 2)),
    "after a write": lambda F, x: written(x),
    "beside a copy": lambda F, x: [x * 1, x[1]],
    "twice": lambda F, x: [x, x[1]],
    "a copy": lambda F, x: x[:, 1:],
    "an operator": lambda F, x: F.reshape(x, (3, 2)),
}


def written(x):
    x[1] = 7
    return x[1]


@pytest.mark.parametrize("what", VIEWS)
@pytest.mark.parametrize("numpy", [False, True], ids=["nd", "np"])
def test_results_share_memory_where_they_do_plainly(what, numpy):
    def seen(net):
        x = mx.nd.arange(6).reshape((2, 3)).copy()
        x = x.as_np_ndarray() if numpy else x
        for _ in range(2):
            out = net(x)
            outs = out if isinstance(out, list) else [out]
        for k, y in enumerate(outs):
            y *= 0
            y += 10 + k
        return x.asnumpy().tolist(), [y.asnumpy().tolist() for y in outs], [type(y) for y in outs]

    plain, hybridized = nn.HybridLambda(VIEWS[what]), nn.HybridLambda(VIEWS[what])
    hybridized.hybridize()
    if numpy and what == "an operator":
        pytest.skip("of mx.nd")
    assert seen(hybridized) == seen(plain)


def test_results_that_are_views_in_another_signature():
    net = nn.HybridLambda(lambda F, x: x.reshape((-1,)))
    net.hybridize()
    for shape in ((2, 3), (4, 5), (1, 1)):
        x = mx.nd.zeros(shape)
        net(x)[:] = 3
        assert x.asnumpy().min() == 3


def test_empty_views_of_what_the_graph_needs_not():
    class Empty(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.table = mx.nd.ones((2, 3))
            self.weight = self.params.get("weight", shape=(2, 3), init="ones")

        def hybrid_forward(self, F, x, weight):
            return self.table[1:1], weight[1:1].T, x

    net = Empty()
    net.initialize()
    net.hybridize()
    for _ in range(2):
        assert [y.shape for y in net(mx.nd.ones((1,)))] == [(0, 3), (3, 0), (1,)]


def test_shapes_of_what_the_graph_needs_not():
    class Asking(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.table = mx.nd.ones((2, 3))

        def hybrid_forward(self, F, x):
            return x * (self.table.T + 1).shape[0]

    net = Asking()
    net.hybridize()
    for n in (1, 2, 1):
        assert net(mx.nd.ones((n,))).asnumpy().tolist() == [3] * n


def test_a_parameter_that_is_the_result():
    class Table(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.weight = self.params.get("weight", shape=(2, 3), init="ones")

        def hybrid_forward(self, F, x, weight):
            return weight, x + weight

    net = Table()
    net.initialize()
    net.hybridize(static_alloc=True)
    for k in range(3):
        weight, total = net(mx.nd.ones((1, 3)))
        assert total.asnumpy().tolist() == [[k + 2] * 3] * 2
        weight += 1


DENORMAL_CASES = {
    "log(softmax)": (lambda F, x: F.log(F.softmax(x)), [[0, -95]], [[0, -720]]),
    "exp": (lambda F, x: F.exp(x), [-90, -103, -103.9, -104], [-710, -744, -746]),
    "x != 0": (lambda F, x: x != 0, [1e-40, 0, 1e-45], [1e-310, 0, 5e-324]),
    "argmax": (lambda F, x: F.argmax(x, axis=0), [1e-40, 3e-40], [1e-310, 3e-310]),
    "x * 2": (lambda F, x: x * 2, [1e-40, 3e-45], [1e-310, 1e-323]),
    "log": (lambda F, x: F.log(x), [1e-40, 1e-45], [1e-310, 5e-324]),
    "tanh": (lambda F, x: F.tanh(x), [1e-40, -1e-45], [1e-310, -5e-324]),
    "erf": (lambda F, x: F.erf(x), [1e-40, -1e-45], [1e-310, -5e-324]),
    "expm1": (lambda F, x: F.expm1(x), [1e-40, -1e-45], [1e-310, -5e-324]),
    "cbrt": (lambda F, x: F.cbrt(x), [1e-40, -1e-45], [1e-310, -5e-324]),
    "pow": (lambda F, x: x**0.5, [1e-40, 1e-45], [1e-310, 5e-324]),
    "dot": (lambda F, x: F.dot(x, x.T * 0.25), [[1e-20, 3e-20], [1e-21, 1e-22]], [[1e-157, 3e-160]]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", DENORMAL_CASES)
def test_denormals_are_numbers(name, dtype):
    """As in the plain call, and in MXNet."""
    program, *values = DENORMAL_CASES[name]
    x = mx.nd.array(values[dtype == "float64"], dtype=dtype)
    wanted = program(mx.nd, x).asnumpy()
    net = nn.HybridLambda(program)
    net.hybridize()
    for _ in range(2):  # through the slow and the fast way
        got = net(x).asnumpy()
        np.testing.assert_allclose(got, wanted, 4e-6, 2 * float(np.finfo(dtype).smallest_subnormal))


def test_denormals_can_be_flushed():
    """Wherever options go; nowhere but there, and no longer."""
    if not flush_bits(host()):
        pytest.skip("no control register known for this architecture")
    x = mx.nd.array([1e-40, 1])
    data = mx.sym.var("data")
    for net in (nn.HybridLambda(lambda F, x: x * 2), gluon.SymbolBlock(data * 2, data)):
        for options in ({"flush_denormals": True}, {"backend_opts": {"flush_denormals": True}}):
            net.hybridize(**options)
            assert net(x).asnumpy().tolist() == [0, 2] == net(x).asnumpy().tolist()
            assert (x * 2).asnumpy()[0] > 0
            net.hybridize()
            assert net(x).asnumpy()[0] > 0 < net(x).asnumpy()[0]


def test_python_in_a_compiled_call_finds_denormals():
    class Halved(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], mx.nd.array(in_data[0].asnumpy() * np.float32(0.5) * 2e10))

    @mx.operator.register("halved")
    class Halve(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Halved()

    net = nn.HybridLambda(lambda F, x: F.Custom(x, op_type="halved") + 1e-40)
    net.hybridize(flush_denormals=True)
    # Half of the argument is a denormal, too.
    np.testing.assert_allclose(net(mx.nd.array([1e-40])).asnumpy(), [1e-30], rtol=1e-4)


def test_options_that_a_backend_does_not_take():
    net = nn.Dense(2)
    with pytest.raises(mx.MXNetError, match="Cannot find argument 'statc_alloc'.*; did you mean 'static_alloc'"):
        net.hybridize(statc_alloc=True)
    with pytest.raises(mx.MXNetError, match="Possible Arguments: .*winograd"):
        net.hybridize(backend="numpy", backend_opts={"level": 3})
    mx.register_backend("strict", lambda graph, options: None, options=["level"])
    net.hybridize(backend="strict", level=3)
    with pytest.raises(mx.MXNetError, match="Cannot find argument 'winograd'"):
        net.hybridize(backend="strict", winograd=False)
