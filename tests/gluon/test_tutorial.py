"""What MXNet's hybridize tutorials show, run both ways; where they warn that a program breaks, it works here."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd

pytestmark = pytest.mark.usefixtures("fresh_names")

TOLERANCE = 1e-5


def both_ways(net, *inputs):
    """Results (as ndarrays) of an imperative call and of two hybridized ones, which must agree with it."""
    expected = net(*inputs)
    many = isinstance(expected, (list, tuple))
    expected = [y.asnumpy() for y in (expected if many else [expected])]
    net.hybridize()
    for _ in range(2):
        out = net(*inputs)
        for a, b in zip([y.asnumpy() for y in (out if many else [out])], expected, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            assert np.abs(a - b).max() <= TOLERANCE * np.abs(b).max()
    return expected if many else expected[0]


def block(function):
    """A HybridBlock whose `hybrid_forward(F, *inputs)` is the function."""

    class Snippet(gluon.HybridBlock):
        def hybrid_forward(self, F, *inputs):
            return function(F, *inputs)

    return Snippet()


# Imperative and symbolic programs


def test_fancy_func():
    def add(a, b):
        return a + b

    def fancy_func(a, b, c, d):
        return add(add(a, b), add(c, d))

    assert fancy_func(1, 2, 3, 4) == 10
    assert fancy_func(*(nd.array([k]) for k in (1, 2, 3, 4))).asscalar() == 10
    assert both_ways(block(lambda F, *inputs: fancy_func(*inputs)), *(nd.array([k]) for k in (1, 2, 3, 4))) == 10
    symbol = fancy_func(*map(mx.sym.var, "abcd"))
    assert symbol.list_arguments() == list("abcd")
    assert symbol.eval(**{k: nd.array([v]) for k, v in zip("abcd", (1, 2, 3, 4))})[0].asscalar() == 10


# Models


def test_lenet(example):
    mx.random.seed(1)
    net = example("lenet").net()
    out = both_ways(net, nd.random_normal(shape=(16, 1, 28, 28)))
    assert out.shape == (16, 10) and np.ptp(out) > 0
    assert net(nd.random.normal(shape=(3, 1, 28, 28))).shape == (3, 10)  # another batch size


def test_mlp(example):
    net = example("mlp").net()
    out = both_ways(net, nd.random.normal(shape=(1, 512)))
    assert out.shape == (1, 2)
    net.hybridize(static_alloc=True, static_shape=True)
    assert net(nd.random.normal(shape=(1, 512))).shape == (1, 2)


def test_a_symbol_in_gives_a_symbol(example):
    net = example("mlp").net()
    y = net(mx.sym.var("data"))
    assert isinstance(y, mx.sym.Symbol)
    assert y.list_arguments() == ["data"] + [f"dense{k}_{kind}" for k in range(3) for kind in ("weight", "bias")]
    assert y.infer_shape(data=(3, 512))[1] == [(3, 2)]


def test_hybridnet_prints_only_while_it_is_traced(example, capsys):
    net = example("hybridnet").net()
    x = nd.random.normal(shape=(1, 4))
    for _ in range(2):
        net(x)
        lines = capsys.readouterr().out
        assert lines.startswith("F:  <module 'gluonjit.ndarray'") and "x:  \n[[" in lines and "hidden:  \n[[" in lines
    net.hybridize()
    net(x)
    assert [line.split(" from ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "F:  <module 'gluonjit.symbol'",
        "x:  <Symbol data 1x4 float32>",
        "hidden:  <Symbol hybridnet0_relu0 1x10 float32>",
    ]
    net(x)
    assert capsys.readouterr().out == ""


# Where the tutorials say that hybridized programs differ


def test_broadcasting_operators():
    x = nd.array([[1, 2, 3], [4, 5, 6]])
    out = both_ways(block(lambda F, x: F.broadcast_add(x, F.ones((1, 1)))), x)
    np.testing.assert_array_equal(out, x.asnumpy() + 1)


@pytest.mark.parametrize("name", "add sub mul div mod maximum minimum power equal greater lesser_equal".split())
def test_plain_operators_broadcast_too(name):
    x, y = nd.array([[1, 2, 3], [4, 5, 6]]), nd.array([[2], [3]])
    plain = {
        "add": lambda F, x, y: x + y,
        "sub": lambda F, x, y: x - y,
        "mul": lambda F, x, y: x * y,
        "div": lambda F, x, y: x / y,
        "mod": lambda F, x, y: x % y,
        "power": lambda F, x, y: x**y,
        "equal": lambda F, x, y: x == y,
        "greater": lambda F, x, y: x > y,
        "lesser_equal": lambda F, x, y: x <= y,
    }.get(name, lambda F, x, y: getattr(F, name)(x, y))
    np.testing.assert_array_equal(
        both_ways(block(plain), x, y),
        both_ways(block(lambda F, x, y: getattr(F, f"broadcast_{name}")(x, y)), x, y),
    )


def test_indexing():
    x = nd.arange(12).reshape((3, 4))
    array = x.asnumpy()
    np.testing.assert_array_equal(both_ways(block(lambda F, x: x[0]), x), array[0])
    np.testing.assert_array_equal(both_ways(block(lambda F, x: x[0, 1]), x), array[:1, 1])
    np.testing.assert_array_equal(both_ways(block(lambda F, x: x[1:3, ::2]), x), array[1:3, ::2])
    np.testing.assert_array_equal(
        both_ways(block(lambda F, x: F.slice(x, begin=(0, 1), end=(2, 3))), x), array[:2, 1:3]
    )


def test_writing():
    def clear_first(F, x):
        x = x * 1
        x[0] = 2
        x += 1
        return x

    out = both_ways(block(clear_first), nd.zeros((2, 3)))
    assert out.tolist() == [[3, 3, 3], [1, 1, 1]]


def test_masking_with_where():
    x = nd.array([[-1, 2], [3, -4]])
    out = both_ways(block(lambda F, x: F.where(x > 0, x, F.zeros_like(x))), x)
    assert out.tolist() == [[0, 2], [3, 0]]


def test_shapes_types_and_contexts():
    def ask(F, x):
        rows = [x[k] * (k + 1) for k in range(x.shape[0])]
        scale = F.full(x.shape, len(x), dtype=x.dtype, ctx=x.context)
        return F.stack(*rows) * scale if x.shape[0] > 1 else x

    net = block(ask)
    np.testing.assert_array_equal(both_ways(net, nd.ones((2, 3))), [[2, 2, 2], [4, 4, 4]])
    np.testing.assert_array_equal(net(nd.ones((3, 1))).asnumpy(), [[3], [6], [9]])  # another shape, another loop
    np.testing.assert_array_equal(net(nd.ones((1, 2))).asnumpy(), [[1, 1]])


def test_branching_on_a_value_says_what_to_write():
    def branch(F, x):
        if x.sum() > 0:
            return x
        return -x

    net = block(branch)
    net(nd.ones((2,)))
    net.hybridize()
    with pytest.raises(mx.MXNetError, match="(?s)if x.sum\\(\\) > 0:"):
        net(nd.ones((2,)))


def test_asnumpy_says_what_to_write():
    net = block(lambda F, x: x + float(x.asnumpy().max()))
    net(nd.ones((2,)))
    net.hybridize()
    with pytest.raises(mx.MXNetError, match="asnumpy"):
        net(nd.ones((2,)))
