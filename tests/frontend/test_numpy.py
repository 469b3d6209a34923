"""`mx.np` and `mx.npx`: arrays with NumPy's semantics, in both modes, beside the old ones."""

import pickle

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd, npx, sym
from gluonjit import np as mnp
from gluonjit.base import MXNetError, ValueNeeded
from gluonjit.gluon import nn, rnn
from gluonjit.util import is_np_array, is_np_shape


@pytest.fixture
def with_np():
    npx.set_np()
    yield
    npx.reset_np()


@pytest.fixture
def x():
    return mnp.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])


class Program(gluon.HybridBlock):
    """`function(F, *args)` as a block."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, *args):
        return self.function(F, *args)


def flat(value):
    return [y for v in value for y in flat(v)] if isinstance(value, (list, tuple)) else [value]


def same(got, expected):
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        assert type(a) is type(b) and a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5, atol=1e-6)


def both(block, *args):
    """What the block gives, which must be the same imperatively, hybridized, and straight from native code."""
    expected = flat(block(*args))
    block.hybridize()
    for _ in range(3):
        same(flat(block(*args)), expected)
    return expected


# Arrays


def test_what_makes_arrays():
    assert mnp.array([1, 2]).dtype == np.float32 and mnp.array(np.arange(3)).dtype == np.int64
    assert mnp.array(3).shape == () and mnp.zeros(()).shape == () and mnp.zeros((0, 2)).shape == (0, 2)
    assert mnp.ones(2, dtype=bool).dtype == np.bool_ and mnp.full((2,), True).dtype == np.bool_
    assert mnp.arange(0).shape == (0,)
    for made in (
        mnp.empty((2, 3)),
        mnp.eye(2),
        mnp.linspace(0, 1, 5),
        mnp.random.uniform(size=(2,)),
        mnp.ndarray((2,)),
    ):
        assert type(made) is mnp.ndarray and made.dtype == np.float32
    assert mnp.random.randint(3, size=(4,)).dtype == np.int64 and mnp.random.rand().shape == ()


def test_printing():
    assert repr(mnp.array([1.0, 2.5])) == "array([1. , 2.5])"
    assert repr(mnp.arange(12)).endswith(" 11.])"), "not even where NumPy breaks the line before dtype"
    assert repr(mnp.ones(2, dtype="int32")) == "array([1, 1], dtype=int32)"
    assert str(mnp.array(1)) == "1.0"


def test_conversions(x):
    old = x.as_nd_ndarray()
    assert type(old) is nd.NDArray and type(old.as_np_ndarray()) is mnp.ndarray and x.as_np_ndarray() is x
    old[:] = 7
    assert x[0, 0].item() == 7, "the memory is one"
    assert x.tolist() == [[7.0] * 3] * 2 and float(x[0, 0]) == 7 and bool(x[0, 0])
    assert type(x.astype("int32")) is type(x.copy()) is type(x.copyto(mx.cpu())) is mnp.ndarray
    same([pickle.loads(pickle.dumps(x))], [x])
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x)
    with pytest.raises(TypeError, match="unsized"):
        len(mnp.array(1))


def test_indexing(x):
    plain = x.asnumpy()
    index = mnp.array([1, 0], dtype="int64")
    keys = [
        0,
        (0, 1),
        (slice(None), 1),
        (slice(None), slice(None, None, -2)),
        None,
        (..., None),
        [1, 0],
        ([0, 1], [1, 2]),
    ]
    for key in keys:
        got, expected = x[key], plain[key]
        assert type(got) is mnp.ndarray and got.shape == expected.shape
        np.testing.assert_array_equal(got.asnumpy(), expected)
    np.testing.assert_array_equal(x[index].asnumpy(), plain[[1, 0]])
    np.testing.assert_array_equal(x[x > 1].asnumpy(), plain[plain > 1])
    assert [row.shape for row in x] == [(3,), (3,)]
    x[0][1] = 9  # a row is a view
    x[x > 8] = mnp.array(0)
    x[1, 2] = 5.0
    assert x.tolist() == [[1, 0, 3], [4, 5, 5]]
    with pytest.raises(IndexError):
        x[2]


def test_operators(x):
    plain = x.asnumpy()
    whole = mnp.array([1, 2, 3], dtype="int32")
    for got, expected in [
        (x + whole, plain + np.array([1, 2, 3], np.float32)),
        (2 - x, 2 - plain),
        (x @ x.T, plain @ plain.T),
        (whole / 2, np.array([0.5, 1, 1.5], np.float32)),
        (whole / whole, np.ones(3, np.float32)),
        (x > 0, plain > 0),
        (x != x, plain != plain),
        (2 < x, plain > 2),
        (-x, -plain),
        (abs(x), abs(plain)),
        (whole & 1, np.array([1, 0, 1], np.int32)),
        (~(x > 0), plain <= 0),
        (whole**2, np.array([1, 4, 9], np.int32)),
        (whole + 2.5, np.array([3, 4, 5], np.int32)),  # MXNet: the array's type counts
    ]:
        assert type(got) is mnp.ndarray and got.dtype == expected.dtype
        np.testing.assert_allclose(got.asnumpy(), expected, rtol=1e-6)
    y = x
    y += 1
    assert y is x and x[0, 0].item() == 2
    with pytest.raises(TypeError, match="not supported"):
        x + "1"


def test_numbers_are_numpys_business():
    assert mnp.add(1, 2) == 3 and isinstance(mnp.exp(0.0), float)
    assert mnp.pi == np.pi and mnp.newaxis is None


def test_reductions_have_rank_0(x):
    for y in (x.sum(), x.mean(), mnp.max(x), mnp.argmax(x), mnp.std(x), mnp.any(x), mnp.linalg.norm(x), x.prod()):
        assert y.shape == () and type(y) is mnp.ndarray
    assert mnp.argmax(x).dtype == np.int64 and mnp.all(x).dtype == np.bool_


def test_functions_of_values(x):
    assert [list(i.asnumpy()) for i in mnp.nonzero(x > 3)] == [[1, 1], [0, 1]]
    assert npx.nonzero(x > 3).tolist() == [[1, 0], [1, 1]]
    assert mnp.unique(mnp.array([3, 1, 3])).tolist() == [1, 3]
    assert mnp.allclose(x, x) and mnp.ptp(x) == 11
    with pytest.raises(ValueNeeded, match="depends on values"):
        block = Program(lambda F, x: F.np.unique(x))
        block.hybridize()
        block(x)


def test_old_operators_take_new_arrays(x):
    assert type(nd.relu(x)) is mnp.ndarray and type(nd.relu(x.as_nd_ndarray())) is nd.NDArray
    assert type(nd.np.mean(x.as_nd_ndarray())) is mnp.ndarray
    assert all(type(y) is mnp.ndarray for y in nd.split(x, 3, axis=1))


def test_names():
    import gluonjit.numpy
    import gluonjit.numpy.random
    import gluonjit.numpy_extension

    assert mx.np is gluonjit.numpy and mx.npx is gluonjit.numpy_extension
    assert nd.numpy is nd.np and sym.numpy_extension is sym.npx
    with pytest.raises(AttributeError, match="did you mean 'concatenate'"):
        sym.np.concatenat  # noqa: B018
    for names, name in ((mnp, "kron"), (nd.np, "median"), (mnp.linalg, "LinAlgError"), (sym.np.random, "poisson")):
        with pytest.raises(AttributeError, match=f"{name}': NumPy has it, MXNet 1.9.1 does not"):
            getattr(names, name)
    with pytest.raises(ImportError, match="no 'kron' in 'gluonjit.numpy': NumPy has it"):
        from gluonjit.numpy import kron  # noqa: F401


# Both modes

PROGRAMS = {
    "activations": lambda F, x: [F.npx.relu(x), F.npx.sigmoid(x), F.npx.leaky_relu(x, slope=0.1), F.npx.erf(x)],
    "softmax": lambda F, x: [F.npx.softmax(x), F.npx.log_softmax(x, axis=0), F.npx.topk(x, k=2, ret_typ="value")],
    "picking": lambda F, x: [F.npx.pick(x, F.np.ones((2,))), F.npx.one_hot(F.np.argmax(x, axis=1), 3)],
    "flatten": lambda F, x: [F.npx.batch_flatten(x), F.npx.reshape(x, (-2, 3, 1)), x.reshape(-1), x.flatten()],
    "mean": lambda F, x: [F.np.mean(x), F.np.mean(x, axis=-1, keepdims=True), x.mean(axis=0), x.std(ddof=1)],
    "joining": lambda F, x: [F.np.concatenate([x, x], axis=-1), F.np.stack([x, x]), F.np.vstack([x, x[0]])],
    "splitting": lambda F, x: [*F.np.split(x, 3, axis=1), *F.np.split(x, [1], axis=1), *F.np.array_split(x, 2, 1)],
    "arithmetic": lambda F, x: [x + x[0], 1 / x, x**2, x % 2, -x, abs(x), x > 0, x == x[0, 0], ~(x > 0)],
    "numbers": lambda F, x: [F.np.add(x, 1), F.np.multiply(2, x), F.np.maximum(x, 0), F.np.power(2, x)],
    "functions": lambda F, x: [F.np.abs(x), F.np.square(x), F.np.exp(x), F.np.sign(x), F.np.isnan(x), F.np.copy(x)],
    "products": lambda F, x: [x @ x.T, F.np.dot(x, x[0]), F.np.einsum("ij,kj->ik", x, x), F.np.tensordot(x, x, 2)],
    "choices": lambda F, x: [F.np.where(x > 0, x, 0), F.np.where(x > 0, 1, -1), F.np.clip(x, None, 2)],
    "moving": lambda F, x: [x.T, F.np.swapaxes(x, 0, 1), F.np.roll(x, 1), F.np.flip(x, 0), F.np.expand_dims(x, 0)],
    "indexing": lambda F, x: [x[0], x[0, 1], x[:, ::2], x[None], x[..., 1], x[[1, 0]], x[-1][1:], x[1:1], x[()]],
    "index arrays": lambda F, x: [x[F.np.argmax(x, axis=0)], F.np.take(x, F.np.argmax(x, axis=0), axis=0, mode="clip")],
    "positions of rank 0": lambda F, x: [
        x.reshape(-1)[F.np.argmax(x)],
        x[:, F.np.argmax(x[0])],
        x[F.np.argmin(x[:, 0]), 1],
        x[F.np.argmax(x, axis=0)[0]],
    ],
    "types": lambda F, x: [x.astype("int32") / 2, x.astype("int32") + 1, (x > 0).sum(), F.np.sum(x, dtype="float64")],
    "making": lambda F, x: [F.np.zeros_like(x), F.np.ones((2, 0)), F.np.arange(3), F.np.eye(2), mnp.array([1, 2])],
    "rank 0": lambda F, x: [x.sum() + x, F.np.zeros(()) + 1, x.max().reshape(1), F.np.broadcast_to(x[0, 0], (2, 2))],
    "shapes": lambda F, x: [x.reshape(x.shape[1], -1), F.np.tile(x, (2, 1)), F.np.repeat(x, 2, axis=1), x.squeeze()],
    "of both kinds": lambda F, x: [F.relu(x), F.np.relu(x) if hasattr(F.np, "relu") else F.npx.relu(x), F.sum(x)],
    "loops": lambda F, x: [
        *F.contrib.foreach(lambda row, state: ((row + state).sum(), row * 2 - state[0]), x, x[0]),
        F.contrib.cond(x.sum() > 1, lambda: x + 1, lambda: x - 1),
        *F.contrib.while_loop(
            lambda i, s: i < 2, lambda i, s: (s.sum(), [i + 1, s * 2]), [F.np.zeros((1,)), x], max_iterations=3
        ),
    ],
    "back": lambda F, x: [x.as_nd_ndarray() * 2, F.np.add(x, x).as_nd_ndarray()[0]],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_modes(name, x):
    both(Program(PROGRAMS[name]), x)


@pytest.mark.parametrize("name", ["activations", "softmax", "joining", "functions"])
def test_old_arrays_in_both_modes(name, x):
    old = x.as_nd_ndarray()
    for result in both(Program(lambda F, x: flat(PROGRAMS[name](F, x))[0]), old):
        assert type(result) is mnp.ndarray


def test_writes(x):
    def program(F, x):
        y = F.np.zeros((2, 3))
        y[0] = x[1]
        y[1, 2] = 7
        y[y < -3] = -3
        y[y == 5] = x[1, 1:2]
        y += 1
        y[:, 0] = mnp.array([3, 4])
        return y

    (y,) = both(Program(program), x)
    assert y.tolist() == [[3, 6, -2], [4, 1, 8]]


def test_one_block_for_arrays_of_both_kinds(x):
    block = Program(lambda F, x: x.sum(axis=0) if x.shape else x)
    block.hybridize()
    for _ in range(3):
        assert type(block(x)) is mnp.ndarray and type(block(x.as_nd_ndarray())) is nd.NDArray


def test_random_numbers_are_the_same():
    block = Program(lambda F, x: x + F.np.random.normal(0, 1, x.shape) + F.npx.random.bernoulli(0.5, size=(2,)))
    mx.random.seed(3)
    expected = block(mnp.zeros((3, 2)))
    block.hybridize()
    mx.random.seed(3)
    same([block(mnp.zeros((3, 2)))], [expected])


# Gluon


@mx.util.use_np
class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        assert is_np_array() and is_np_shape()
        with self.name_scope():
            self.dense = nn.Dense(4)
            self.norm = nn.LayerNorm()
            self.scale = self.params.get("scale", shape=(4,), init="ones")

    def hybrid_forward(self, F, x, scale):
        assert is_np_array()
        return F.npx.relu(self.norm(self.dense(x))) * scale + F.np.ones((1,))


def test_use_np(x):
    net = Net()
    assert not is_np_array()
    net.initialize()
    (y,) = both(net, x)
    assert type(y) is mnp.ndarray and type(net.scale.data()) is mnp.ndarray
    assert net._fast_call is not None, "arrays of the new kind go straight to native code"


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Dense(3, activation="relu"), (2, 5)),
        (lambda: nn.Conv2D(2, 3), (1, 3, 6, 6)),
        (lambda: nn.BatchNorm(), (2, 3, 4, 4)),
        (lambda: nn.MaxPool2D(), (1, 2, 4, 4)),
        (lambda: nn.GlobalAvgPool2D(), (1, 2, 4, 4)),
        (lambda: nn.Dropout(0.5), (2, 3)),
        (lambda: nn.Embedding(4, 3), (2, 3)),
        (lambda: nn.PReLU(), (2, 3)),
        (lambda: rnn.LSTM(3, bidirectional=True), (4, 2, 3)),
        (lambda: rnn.GRU(3), (4, 2, 3)),
    ],
)
def test_layers(layer, shape, with_np):
    net = layer()
    net.initialize()
    for y in both(net, mnp.random.uniform(size=shape)):
        assert type(y) is mnp.ndarray
    assert all(type(p.data()) is mnp.ndarray for p in net.collect_params().values())


def test_losses(with_np, x):
    label = mnp.array([2, 0], dtype="int32")
    (y,) = both(gluon.loss.SoftmaxCrossEntropyLoss(), x, label)
    assert y.shape == (2,)
    (y,) = both(gluon.loss.L2Loss(), x, mnp.zeros((2, 3)))
    np.testing.assert_allclose(y.asnumpy(), (x.asnumpy() ** 2).mean(1) / 2, rtol=1e-6)


def test_parameter_files(tmp_path, with_np, x):
    net, other = Net(), Net()
    net.initialize()
    expected = net(x)
    net.save_parameters(tmp_path / "net.params")
    other.load_parameters(tmp_path / "net.params")
    same([other(x)], [expected])
    npx.save(tmp_path / "x", {"x": x})
    assert type(npx.load(tmp_path / "x")["x"]) is mnp.ndarray


# Symbols


def test_untyped_symbols():
    data = sym.var("data").as_np_ndarray()
    y = sym.np.mean(sym.npx.relu(data), axis=1) * 2 + sym.np.zeros((1,))
    assert y.list_arguments() == ["data"] and y.infer_shape(data=(2, 3))[1] == [(2,)]
    assert sym.np.sum(data).infer_shape(data=(2, 3))[1] == [()]
    assert data[0, 1:].infer_shape(data=(2, 3))[1] == [(2,)]
    same(y.eval(data=nd.ones((2, 3))), [nd.array([2, 2])])
    block = gluon.SymbolBlock([y], [data])
    np.testing.assert_array_equal(block(mnp.ones((2, 3))).asnumpy(), [2, 2])


def test_graphs_of_mxnets_operators():
    """As MXNet 1.9.1 writes them."""
    text = (
        '{"nodes": [{"op": "null", "name": "data", "inputs": []}, '
        '{"op": "_npi_mean", "name": "mean0", "attrs": {"axis": "(1,)", "keepdims": "True", "dtype": "None"}, '
        '"inputs": [[0, 0, 0]]}, '
        '{"op": "_npi_subtract", "name": "sub0", "inputs": [[0, 0, 0], [1, 0, 0]]}, '
        '{"op": "_npx_relu", "name": "relu0", "inputs": [[2, 0, 0]]}], '
        '"arg_nodes": [0], "node_row_ptr": [0, 1, 2, 3, 4], "heads": [[3, 0, 0]], '
        '"attrs": {"mxnet_version": ["int", 10901]}}'
    )
    graph = sym.load_json(text)
    (y,) = graph.eval(data=nd.array([[1, 2, 3]]))
    assert y.asnumpy().tolist() == [[0, 0, 1]]


def test_exported_graphs(tmp_path, with_np, x):
    net = Net()
    net.initialize()
    (expected,) = both(net, x)
    net.export(str(tmp_path / "net"))
    other = gluon.SymbolBlock.imports(tmp_path / "net-symbol.json", ["data"], tmp_path / "net-0000.params")
    same([other(x)], [expected])


@pytest.mark.parametrize("hybridized", (False, True))
def test_arrays_are_row_major(x, hybridized):
    def call(function):
        net = Program(lambda F, a: function(a))
        if hybridized:
            net.hybridize()
        return net(x)

    for refused in (
        lambda a: a.reshape(3, 2, order="F"),
        lambda a: a.reshape((3, 2), order="A"),
        lambda a: a.flatten(order="F"),
        lambda a: a.copy(order="F"),
        lambda a: a.ravel(order="F"),
    ):
        with pytest.raises(NotImplementedError, match="row-major"):
            call(refused)
    with pytest.raises(ValueError, match="order must be"):
        call(lambda a: a.astype("int32", order="F"))
    assert call(lambda a: a.reshape(3, 2, order="C").astype("int32", order="C")).shape == (3, 2)
    assert call(lambda a: a.astype("int32", order=None)).dtype == np.int32
    assert call(lambda a: a.ravel(order="K")).shape == (6,)
    with pytest.raises(ValueError, match="order must be"):
        mx.sym.var("a").as_np_ndarray().astype("int32", order="F")


def test_refusals(x):
    with pytest.raises(MXNetError, match="does not support boolean type"):
        (x > 0) - (x > 0)
    with pytest.raises(MXNetError, match="initial is not supported yet"):
        mnp.max(x, initial=3)
    with pytest.raises(NotImplementedError, match="order"):
        mnp.zeros((2,), order="F")
    with pytest.raises(TypeError, match="invalid keyword"):
        mnp.exp(x, nonsense=1)


# Matrices

A = [[4.0, 1], [2, 3]]
S = [[2.0, 1], [1, 3]]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("solve", (A, [1.0, 2]), [0.1, 0.6]),
        ("solve", (A, S), [[0.5, 0], [0, 1]]),
        ("cholesky", (S,), [[2**0.5, 0], [0.5**0.5, 2.5**0.5]]),
        ("tensorsolve", ([[[1.0, 0]], [[0, 2]]], [[3.0], [4]]), [3, 2]),
        ("matrix_power", (A, 3), [[86, 39], [78, 47]]),
        ("multi_dot", ([A, S, A],), [[50, 30], [50, 40]]),
        ("eigvalsh", (S,), [1.381966, 3.618034]),
        ("pinv", ([[1.0, 2, 3], [4, 5, 7]],), [[-1.428571, 0.6], [0.142857, 0], [0.714286, -0.2]]),
        ("matrix_rank", (A,), 2),
        ("cond", (A,), 2.618034),
    ],
)
def test_functions_of_matrices(name, arguments, expected):
    """The expected values are MXNet's."""

    def array(x):
        return [array(y) for y in x] if name == "multi_dot" and isinstance(x[0][0], list) else mx.np.array(x)

    given = [array(x) if isinstance(x, list) else x for x in arguments]
    np.testing.assert_allclose(getattr(mx.np.linalg, name)(*given), expected, rtol=1e-5, atol=1e-6)


def test_a_system_of_mixed_types_is_solved_in_float64():
    x = mx.np.linalg.solve(mx.np.array(A), mx.np.array([1.0, 2], dtype="float64"))
    assert x.dtype == np.float64
    np.testing.assert_allclose(x.asnumpy(), [0.1, 0.6], rtol=1e-15)


def test_decompositions():
    a = mx.np.array([[1.0, 2, 3], [4, 5, 7]])
    q, r = mx.np.linalg.qr(a)
    np.testing.assert_allclose((q @ r).asnumpy(), a.asnumpy(), rtol=1e-5)
    x, _, rank, _ = mx.np.linalg.lstsq(a.T, mx.np.array([1.0, 2, 3]))
    np.testing.assert_allclose(x.asnumpy(), [1, 0], atol=1e-5)
    assert rank == 2


class Matrices(mx.gluon.HybridBlock):
    """A function of `np.linalg`, by name."""

    def __init__(self, name):
        super().__init__()
        self.function = name

    def hybrid_forward(self, F, *x):
        return getattr(F.np.linalg, self.function)(*x)


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize(
    ("name", "given", "values", "gradient"),
    [
        ("solve", (S, [1.0, 2]), [0.2, 0.6], [[-0.08, -0.24], [-0.04, -0.12]]),
        (
            "svd",
            ([[1.0, 2, 3], [4, 5, 6.5]],),
            [9.838863, 0.6684180],
            [[-2.48464, 1.401852, 1.997632], [-1.169, 0.408327, 2.667225]],
        ),
        ("eigh", (S,), [1.381966, 3.618034], np.zeros((2, 2))),
        ("eigvalsh", (S,), [1.381966, 3.618034], np.zeros((2, 2))),
        ("pinv", ([[1.0, 2, 3], [4, 5, 7]],), [[-1.428571, 0.6], [0.142857, 0], [0.714286, -0.2]], np.zeros((2, 3))),
    ],
)
def test_functions_of_matrices_are_compiled_and_have_mxnets_gradients(name, given, values, gradient, hybridize):
    net, x = Matrices(name), [mx.np.array(v) for v in given]
    net.hybridize(hybridize)
    x[0].attach_grad()
    with mx.autograd.record():
        y = net(*x)
        if name == "svd":  # MXNet's gradient of this sum
            (u, s, v), y = y, y[1]
            loss = (
                (u * mx.np.arange(4).reshape(2, 2)).sum() + 2 * s.sum() + (v * mx.np.arange(6).reshape(2, 3) ** 2).sum()
            )
        else:
            y = y[0] if name == "eigh" else y
            loss = y.sum()
    loss.backward()
    np.testing.assert_allclose(y.asnumpy(), values, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(x[0].grad.asnumpy(), gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda F, x: F.np.linalg.inv(x), "inverse: the input matrix is non-convertible"),
        (lambda F, x: F.np.linalg.solve(x, x), "solve: the factor U is exactly singular"),
        (lambda F, x: F.np.linalg.cholesky(x - 1), "potrf failed"),
        (lambda F, x: F.linalg.potri(x.as_nd_ndarray() * 0), "potri failed"),
    ],
)
def test_what_has_no_inverse_or_factor_is_an_error_in_both_modes(function, message):
    class Net(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return function(F, x)

    for hybridize in (False, True):
        net = Net()
        net.hybridize(hybridize)
        for x in ([[1.0, 2], [2, 4]], [[[3.0, 1], [1, 3]], [[0, 0], [0, 0]]]):
            with pytest.raises(MXNetError, match=message):
                net(mx.np.array(x)).asnumpy()
    if "potri" not in message:  # and the block still works
        assert np.isfinite(net(mx.np.array([[3.0, 1], [1, 3]])).asnumpy()).all()


def test_what_numpy_computes_says_so_in_a_hybridized_block():
    net = Matrices("qr")
    net.hybridize()
    with pytest.raises(MXNetError, match=r"np\.linalg\.qr\(\) cannot be compiled: NumPy computes it"):
        net(mx.np.array(A))
    with pytest.raises(MXNetError, match="eigvals: complex eigenvalues are not supported"):
        mx.np.linalg.eigvals(mx.np.array([[0.0, 1], [-1, 0]]))


def test_percentiles():
    a = mx.np.array([[1, 2, 3], [4, 5, 7]], dtype="int32")
    assert mx.np.percentile(a, 50).item() == 3.5 and mx.np.quantile(a, 0.5).dtype == np.float32
    assert mx.np.percentile(a, 30, axis=1, interpolation="lower").asnumpy().tolist() == [1, 4]
    for q in (101, mx.np.array([50.0, -1])):
        with pytest.raises(ValueError, match="exceeds the valid range"):
            mx.np.percentile(a, q)


def test_numbers_of_outcomes():
    x = mx.np.random.multinomial(20, mx.np.array([0.2, 0, 0.8]), size=(50, 2)).asnumpy()
    assert x.dtype == np.int64 and x.shape == (50, 2, 3)
    assert (x.sum(-1) == 20).all() and not x[..., 1].any() and 14 < x[..., 2].mean() < 18
    assert mx.np.random.multinomial(3, [1.0]).asnumpy().tolist() == [3]


def test_arrays_as_programs_write_and_limit_them():
    x = mx.np.array([-1, 1, 3.0])
    assert f"{x[1]:.3f}" == "1.000" and f"{x}" == "[-1.  1.  3.]"
    with pytest.raises(TypeError, match="Cannot format"):
        f"{x:.3f}"
    assert x.clip(min=0).tolist() == [0, 1, 3] and x.clip(max=2).tolist() == [-1, 1, 2]
    assert mx.np.genfromtxt(["1,2", "3,4"], delimiter=",", dtype=np.int32).tolist() == [[1, 2], [3, 4]]


def test_initializers_get_arrays_of_numpy():
    kinds = []

    class Noted(mx.init.Initializer):
        def _init_weight(self, name, array):
            kinds.append(type(array))

    with mx.util.np_array(True):
        mx.gluon.nn.Dense(2, in_units=2, use_bias=False).initialize(Noted())
    assert kinds == [mx.np.ndarray]
