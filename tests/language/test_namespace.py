"""The operator functions: where they are, how they are called, and what they say about themselves."""

import inspect
import traceback

import numpy as np
import pytest

from gluonjit import MXNetError, nd
from gluonjit.base import _Null, dtype_name
from gluonjit.language import namespace
from gluonjit.operators.registry import OPERATORS


@pytest.fixture
def x():
    return nd.array([[1, -2, 3], [-4, 5, -6]])


def same(array, expected):
    np.testing.assert_allclose(array.asnumpy(), expected, rtol=1e-6)


# Places.


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("relu", ("op", "relu")),
        ("linalg_gemm2", ("op", "linalg_gemm2")),
        ("random_normal", ("op", "random_normal")),
        ("_plus_scalar", ("_internal", "_plus_scalar")),
        ("_random_normal", ("_internal", "_random_normal")),
        ("_sample_normal", ("_internal", "_sample_normal")),
        ("_random_normal_like", ("random", "normal_like")),
        ("_contrib_div_sqrt_dim", ("contrib", "div_sqrt_dim")),
        ("_linalg_gemm2", ("linalg", "gemm2")),
        ("_sparse_dot", ("sparse", "dot")),
        ("_image_resize", ("image", "resize")),
    ],
)
def test_where_an_operator_is(name, place):
    assert namespace.place_of(name) == place


def test_every_operator_is_found_and_documented():
    import gluonjit.operators  # noqa: F401

    assert len(OPERATORS) > 150
    for full, op in OPERATORS.items():
        place, name = namespace.place_of(full)
        module = getattr(nd, place)
        function = getattr(module, name)
        assert name in dir(module)
        assert function.__name__ == name and function.__doc__
        if place == "op" and name not in vars(nd):
            assert getattr(nd, name) is function
        if not op.variadic and full != "Custom":  # which is called with the operator's own attributes
            names = list(inspect.signature(function).parameters)
            assert names == [*namespace.input_names(op), *op.attrs, "out", "name", "kwargs"]


def test_small_modules_list_their_functions():
    assert "div_sqrt_dim" in nd.contrib.__dict__
    assert "gemm2" in nd.linalg.__dict__


def test_internal_functions_are_only_in_internal(x):
    same(nd._internal._plus_scalar(x, 2), x.asnumpy() + 2)
    same(nd._internal._plus_scalar(x, scalar=2), x.asnumpy() + 2)
    assert not hasattr(nd, "_plus_scalar") and not hasattr(nd._internal, "relu")
    assert nd.op.relu(x).shape == x.shape


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        (nd, "nosuch", "module 'gluonjit.ndarray' has no attribute 'nosuch'"),
        (nd.contrib, "nosuch", "module 'gluonjit.ndarray.contrib' has no attribute 'nosuch'"),
        (nd.random, "nosuch", "module 'gluonjit.ndarray.random' has no attribute 'nosuch'"),
        (nd, "Convolutoin", "module 'gluonjit.ndarray' has no attribute 'Convolutoin'; did you mean 'Convolution'?"),
        (nd, "__nosuch__", "module 'gluonjit.ndarray' has no attribute '__nosuch__'"),
    ],
)
def test_unknown_names(module, name, message):
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert str(caught.value).startswith(message)
    assert "Did you mean" not in traceback.format_exception_only(caught.value)[-1]  # Python's own, once more


# Calls.


def test_signature_is_mxnets():
    assert str(inspect.signature(nd.FullyConnected)) == (
        "(data=None, weight=None, bias=None, num_hidden=_Null, no_bias=_Null, flatten=_Null, "
        "out=None, name=None, **kwargs)"
    )
    assert str(inspect.signature(nd.relu)) == "(data=None, out=None, name=None, **kwargs)"
    assert str(inspect.signature(nd.concat)) == "(*data, **kwargs)"
    assert str(inspect.signature(nd.LeakyReLU)).startswith("(data=None, gamma=None, act_type=_Null, slope=_Null")


def test_documentation_lists_inputs_and_attributes():
    text = nd.FullyConnected.__doc__
    assert "data, weight, bias : inputs" in text
    assert "num_hidden : int, required" in text and "no_bias : boolean, optional, default=False" in text


def test_ways_to_give_arguments(x):
    w = nd.array([[1, 0, 1], [2, 1, 0]])
    b = nd.array([10, 20])
    expected = x.asnumpy() @ w.asnumpy().T + b.asnumpy()
    out = nd.array(np.zeros((2, 2)))
    same(nd.FullyConnected(x, w, b, 2), expected)
    same(nd.FullyConnected(x, w, b, num_hidden=2, name="fc"), expected)
    same(nd.FullyConnected(data=x, weight=w, bias=b, num_hidden="2", flatten="True"), expected)
    same(nd.FullyConnected(x, bias=b, weight=w, num_hidden=2), expected)
    same(nd.FullyConnected(x, w, None, 2, True), expected - b.asnumpy())
    same(nd.FullyConnected(x, w, b, 2, _Null, _Null), expected)
    assert nd.FullyConnected(x, w, b, 2, False, True, out) is out
    same(out, expected)


def test_variadic_operators(x):
    same(nd.add_n(x, x, x), 3 * x.asnumpy())
    with pytest.raises(AssertionError, match="Positional arguments must have NDArray type, but got 0"):
        nd.add_n(x, x, 0)


def test_operators_without_attributes_ignore_foreign_ones(x):
    same(nd.relu(x, foo=1), np.maximum(x.asnumpy(), 0))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: nd.relu(3), AssertionError, "Argument data must have NDArray type, but got 3"),
        (lambda x: nd.relu(np.ones(2)), AssertionError, "Argument data must have NDArray type, but got"),
        (lambda x: nd.relu(x, data=x), TypeError, "relu() got multiple values for argument 'data'"),
        (lambda x: nd.relu(x, 1, 2, 3), TypeError, "relu() takes from 0 to 3 positional arguments but 4 were given"),
        (lambda x: nd.relu(), MXNetError, "Operator relu expects 1 inputs, but got 0 instead."),
        (lambda x: nd.broadcast_add(x), MXNetError, "Operator broadcast_add expects 2 inputs, but got 1 instead."),
        (lambda x: nd.FullyConnected(x, x), MXNetError, "Required parameter num_hidden of int is not presented"),
        (
            lambda x: nd.FullyConnected(x, x, num_hiden=2),
            MXNetError,
            "; did you mean 'num_hidden'?",
        ),
        (lambda x: nd.FullyConnected(x, x, num_hidden=2, num_hiden=2), MXNetError, "Cannot find argument 'num_hiden'"),
        (lambda x: nd.FullyConnected(x, x, x, 2, num_hidden=2), TypeError, "multiple values for argument 'num_hidden'"),
        (lambda x: nd.Activation(x, act_type="foo"), MXNetError, "Invalid Input: 'foo', valid values are"),
    ],
)
def test_wrong_calls(x, call, error, message):
    with pytest.raises(error) as caught:
        call(x)
    assert message in str(caught.value)


def test_errors_of_primitives_name_the_operator(x):
    with pytest.raises(MXNetError, match="dot"):
        nd.dot(x, x)


def test_attributes_that_compare_equal_are_kept_apart():
    one = nd.array([1.0])
    for scalar in (0.0, -0.0, 0, -0.0, 0.0):
        product = nd._internal._mul_scalar(one, scalar=scalar).asscalar()
        assert product == 0 and np.signbit(product) == np.signbit(float(scalar))


def test_unhashable_attributes(x):
    same(nd.transpose(x, axes=[1, 0]), x.asnumpy().T)
    same(nd.transpose(x, axes=np.array([1, 0])), x.asnumpy().T)


def test_results_are_fresh_memory(x):
    before = x.asnumpy()
    for y in [nd.identity(x), nd.BlockGrad(x), nd.Dropout(x), nd.Flatten(x), nd.reshape(x, (6,)), nd.transpose(x)]:
        assert y._array.flags.c_contiguous and y._array.flags.writeable
        assert not np.may_share_memory(y._array, x._array)
        y[:] = 0
    same(x, before)


@pytest.mark.parametrize("spelling", ["float16", "f2", np.float16, np.dtype("float16")])
def test_element_types_by_any_spelling(x, spelling):
    assert nd.cast(x, dtype=spelling).dtype is np.float16
    assert dtype_name(spelling) == "float16"


def test_bfloat16(x):
    assert str(np.dtype(nd.cast(x, dtype="bfloat16").dtype)) == "bfloat16"
    with pytest.raises(TypeError):
        nd.cast(x, dtype="foo")
