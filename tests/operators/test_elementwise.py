"""Elementwise operators: what they refuse, and values that the recordings of MXNet do not hold."""

import math

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.base import MXNetError
from gluonjit.ir.graph import Builder
from gluonjit.ir.types import IRError, tensor
from gluonjit.ir.types import dtype as element_type
from support.compare import difference

from .running import run_eager
from .samples import floats

ONES = np.ones((2, 3), np.float32)


def one(operator, *inputs, **attrs):
    return run_eager(operator, inputs, attrs)[0]


@pytest.mark.parametrize("operator", ["elemwise_add", "broadcast_mul", "_maximum", "broadcast_equal", "add_n"])
def test_element_types_are_not_promoted(operator):
    attrs = {"num_args": 2} if operator == "add_n" else {}
    with pytest.raises(MXNetError, match="Incompatible attr in node at 1-th input: expected float32, got float64"):
        one(operator, ONES, ONES.astype(np.float64), **attrs)


def test_element_types_that_differ_say_how_to_convert_them():
    remedy = r"convert one: data with x.astype\('float32'\), or a network's parameters with net.cast\('float64'\)"
    with pytest.raises(MXNetError, match=remedy):
        one("FullyConnected", ONES.astype(np.float64), ONES, num_hidden=2, no_bias=True)
    with pytest.raises(MXNetError, match=r"convert one: data with x.astype\('float32'\)$"):
        one("elemwise_add", ONES.astype(np.int32), ONES)


@pytest.mark.parametrize("operator", ["elemwise_add", "_maximum", "_equal", "add_n"])
def test_equal_shapes_are_required(operator):
    attrs = {"num_args": 2} if operator == "add_n" else {}
    with pytest.raises(MXNetError, match=r"Incompatible attr in node at 1-th input: expected \[2,3\], got \[1,3\]"):
        one(operator, ONES, ONES[:1], **attrs)


def test_shapes_that_do_not_broadcast():
    with pytest.raises(IRError, match="operands could not be broadcast together with shapes"):
        one("broadcast_add", ONES, ONES[:, :2])
    b = Builder(level="traced")
    with pytest.raises(IRError, match=r"f32\[2,3\], f32\[4\].*could not be broadcast together with shapes"):
        b.emit("mx.broadcast_add", [b.input("x", tensor("f32", 2, 3)), b.input("y", tensor("f32", 4))])


@pytest.mark.parametrize("operator", ["broadcast_add", "elemwise_sub", "_lesser", "broadcast_logical_or"])
def test_bool_is_refused(operator):
    flags = np.array([True, False])
    with pytest.raises(MXNetError, match=f"Operator {operator} does not support boolean type"):
        one(operator, flags, flags)
    with pytest.raises(MXNetError, match="does not support boolean type"):
        one("exp", flags)


def test_integers_are_refused():
    with pytest.raises(MXNetError, match="only support floating point types, not int32"):
        one("hard_sigmoid", np.arange(3, dtype=np.int32))


def test_where_refuses_other_shapes():
    with pytest.raises(MXNetError, match=r"the condition of where must have the shape \[2,3\]"):
        one("where", ONES[0], ONES, ONES)
    with pytest.raises(MXNetError, match="Incompatible attr"):
        one("where", ONES, ONES, ONES[:1])


def test_integer_division_by_zero_is_zero():
    x, zero = np.array([5, -5, 0], np.int32), np.zeros(3, np.int32)
    assert one("elemwise_div", x, zero).tolist() == [0, 0, 0]
    assert one("_div_scalar", x, scalar=0).tolist() == [0, 0, 0]
    assert one("_mod_scalar", x, scalar=0).tolist() == [0, 0, 0]


def test_scalars_beyond_the_type():
    x = np.array([1, 2], np.int32)
    assert one("_plus_scalar", x, scalar=math.nan).tolist() == [1, 2]
    assert one("_maximum_scalar", np.array([1.0], np.float16), scalar=-1e9).tolist() == [1.0]
    assert one("_plus_scalar", np.array([1.0], np.float16), scalar=-1e9).tolist() == [-math.inf]
    assert one("_minimum_scalar", np.array([1], np.int64), scalar=1e30).tolist() == [1]


def test_rint_goes_down_at_halves():
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609.0, -8388609.0], np.float32)
    assert one("rint", x).tolist() == [-3, -2, -1, 0, 1, 2, 0, 8388609, -8388609]


def test_cast_saturates_where_mxnet_is_undefined():
    x = np.array([np.nan, np.inf, -np.inf, 3e9], np.float32)
    assert one("Cast", x, dtype="int32").tolist() == [0, 2**31 - 1, -(2**31), 2**31 - 1]


REFERENCES = {
    "softsign": lambda x: x / (1 + abs(x)),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "gamma": np.vectorize(math.gamma),
    "gammaln": np.vectorize(math.lgamma),
    "erf": np.vectorize(math.erf),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "expm1": np.expm1,
    "log1p": np.log1p,
    "arcsinh": np.arcsinh,
    "tanh": np.tanh,
    "degrees": np.degrees,
    "smooth_l1": lambda x: np.where(abs(x) > 1, abs(x) - 0.5, x * x / 2),
}


@pytest.mark.parametrize("operator", REFERENCES)
def test_float32_against_float64_reference(operator):
    """Judged element by element, which is stricter than the project's promise."""
    x = floats(np.random.RandomState(5), 500, low=0.01, high=20)
    expected = REFERENCES[operator](x.astype(np.float64))
    assert np.max(np.abs(one(operator, x) / expected - 1)) < 1e-5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("operator", ["gamma", "softsign", "sigmoid", "exp"])
def test_narrow_types_are_rounded_at_the_end(operator, dtype):
    narrow = element_type(dtype)
    x = floats(np.random.RandomState(5), 50, low=0.5, high=5).astype(narrow.numpy)
    y = one(operator, x)
    assert y.dtype == narrow.numpy
    exact = one(operator, x.astype(np.float64)).astype(narrow.numpy)
    allowed = 2 if operator == "softsign" else 1  # units of the last place: softsign is two steps
    assert difference(y.astype(np.float32), exact.astype(np.float32)) <= allowed * 2.0 ** (
        -10 if dtype == "float16" else -7
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_means_of_many_whole_numbers(dtype):
    """Neither the count (300) nor the sum fits into 8 bits; in 32 bits the sum does not."""
    large = {"int32": 2**31 - 1, "int64": 2**40}.get(dtype, 100)
    x = mx.nd.array(np.full((2, 300), large), dtype=dtype)
    net = mx.gluon.nn.HybridLambda(lambda F, x: F.mean(x, axis=1))
    net.hybridize()
    for mean in (mx.nd.mean(x, axis=1), net(x)):
        assert mean.dtype == x.dtype and mean.asnumpy().tolist() == [large, large]


def test_indices_far_outside_wrap_at_once():
    """The remainder is computed, not found by adding the length again and again."""
    index = mx.nd.array([2**62, -(2**62), 7, -1], dtype="int64")
    net = mx.gluon.nn.HybridLambda(lambda F, x, i: F.take(x, i, mode="wrap"))
    net.hybridize()
    for found in (mx.nd.take(mx.nd.arange(5), index, mode="wrap"), net(mx.nd.arange(5), index)):
        assert found.asnumpy().tolist() == [4, 1, 2, 4]


def test_picks_by_narrow_indices():
    """The axis is longer than the index's type can say."""
    x, index = mx.nd.arange(600).reshape((2, 300)), mx.nd.array([-1, 100], dtype="int8")
    net = mx.gluon.nn.HybridLambda(lambda F, x, i: F.pick(x, i, mode="wrap"))
    net.hybridize()
    for found in (mx.nd.pick(x, index, mode="wrap"), net(x, index)):
        assert found.asnumpy().tolist() == [299, 400]


@pytest.mark.parametrize("shape, gradient", [((2,), 24), ((2, 1), 12), ((2, 3), 12), ((2, 3, 4), 4)])
@pytest.mark.parametrize("hybrid", [False, True])
def test_make_loss_counts_all_axes_but_the_last_as_the_batch(shape, gradient, hybrid):
    x = mx.nd.ones(shape)
    x.attach_grad()
    net = mx.gluon.nn.HybridLambda(lambda F, x: F.MakeLoss(x * x, grad_scale=12, normalization="batch"))
    net.hybridize(hybrid)
    with mx.autograd.record():
        y = net(x)
    y.backward()
    assert (x.grad.asnumpy() == gradient).all()
