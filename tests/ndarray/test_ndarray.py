"""`mx.nd.NDArray`: its attributes, operators, conversions, and which of its methods share memory."""

import copy
import pickle
import struct
import warnings

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import MXNetError, nd


@pytest.fixture
def x():
    return nd.array([[1, 2, 3], [4, 5, 6]])


def same(array, expected, dtype=None):
    np.testing.assert_array_equal(array.asnumpy(), expected)
    if dtype is not None:
        assert array.dtype is dtype


def test_attributes(x):
    assert (x.shape, x.size, x.ndim, len(x), x.dtype, x.stype) == ((2, 3), 6, 2, 2, np.float32, "default")
    assert x.context == mx.cpu()
    assert hash(x) == id(x) // 16 and x in [x]
    assert isinstance(x.handle.value, int)
    with pytest.raises(AttributeError, match="'NDArray' object has no attribute 'nosuch'"):
        x.nosuch  # noqa: B018


# Making arrays: MXNet's rule for the element type.


@pytest.mark.parametrize(
    ("source", "kwargs", "dtype"),
    [
        ([1, 2], {}, np.float32),
        (np.arange(3.0), {}, np.float32),
        (np.arange(3, dtype="int8"), {}, np.float32),
        (nd.array([1], dtype="int32"), {}, np.int32),
        (nd.array([1], dtype="int32"), {"dtype": "float64"}, np.float64),
        ([True, False], {}, np.float32),
        ([1.9], {"dtype": np.uint8}, np.uint8),
        ([1, 2], {"dtype": "bool"}, np.bool_),
        ([], {}, np.float32),
        (5, {}, np.float32),
        ([nd.array([1, 2]), nd.array([3, 4])], {}, np.float32),
    ],
)
def test_array(source, kwargs, dtype):
    x = nd.array(source, **kwargs)
    assert x.dtype is dtype
    same(x, np.array(source).astype(dtype))
    assert x.shape == np.shape(source)


def test_integers_out_of_the_types_range_wrap_around():
    """As with the NumPy that MXNet has; today's refuses them."""
    for array in (mx.nd.array, mx.np.array):
        same(array([[-1, 2], [300, 0]], dtype="uint8"), [[255, 2], [44, 0]])
    x = nd.zeros(2, dtype="uint8")
    x[:] = [-1, 300]
    same(x, [255, 44], np.uint8)
    with pytest.raises(TypeError, match="array like"):
        nd.array([10**30], dtype="uint8")


def test_bfloat16_is_an_element_type():
    x = nd.array([1.0, 2.5], dtype="bfloat16")
    assert str(np.dtype(x.dtype)) == "bfloat16"
    same(x.astype("float32"), [1.0, 2.5], np.float32)


def test_array_copies():
    source = np.ones(3, np.float32)
    x = nd.array(source)
    source[0] = 5
    same(x, [1, 1, 1])


@pytest.mark.parametrize("source", [["a"], [[1], [2, 3]]])
def test_array_of_what_is_no_array(source):
    with pytest.raises(TypeError, match="source_array must be array like object"):
        nd.array(source)


def test_unknown_element_types():
    with pytest.raises(TypeError, match="foo"):
        nd.array([1], dtype="foo")
    with pytest.raises(MXNetError, match="int16"):
        nd.array([1], dtype="int16")


def test_full_and_empty():
    same(nd.full((2,), 7), [7, 7], np.float32)
    same(nd.full(2, 7.9, dtype="int32"), [7, 7], np.int32)
    same(nd.full((2, 2), nd.array([1, 2])), [[1, 2], [1, 2]])
    assert nd.empty((0, 3)).shape == (0, 3)
    assert nd.empty(3, dtype="float64").dtype is np.float64


def test_zeros_ones_arange_eye_linspace():
    same(nd.zeros(3), [0, 0, 0], np.float32)
    same(nd.ones((2,), dtype="int32"), [1, 1], np.int32)
    same(nd.arange(5), [0, 1, 2, 3, 4], np.float32)
    same(nd.arange(0, 10, 3, repeat=2), [0, 0, 3, 3, 6, 6, 9, 9])
    same(nd.arange(2, dtype="int32"), [0, 1], np.int32)
    same(nd.eye(3, 2, 1), [[0, 1], [0, 0], [0, 0]])
    same(nd.linspace(0, 1, 5), [0, 0.25, 0.5, 0.75, 1], np.float32)
    np.testing.assert_allclose(nd.linspace(0, 1, 5, endpoint=False).asnumpy(), [0, 0.2, 0.4, 0.6, 0.8], rtol=1e-6)
    assert nd.zeros((2,), ctx=mx.cpu(1)).ctx == mx.cpu(1)


def test_joining_and_moving(x):
    same(nd.concatenate([x, x], axis=1), [[1, 2, 3, 1, 2, 3], [4, 5, 6, 4, 5, 6]])
    assert nd.concatenate([x], always_copy=False) is x
    assert nd.moveaxis(nd.zeros((2, 3, 4)), 0, 2).shape == (3, 4, 2)
    assert nd.moveaxis(nd.zeros((2, 3, 4)), (0, 1), (-1, -2)).shape == (4, 3, 2)
    with pytest.raises(ValueError, match="Source should verify"):
        nd.moveaxis(x, 5, 0)
    with pytest.raises(AssertionError):
        nd.concatenate([])
    assert nd.waitall() is None


# Out of the array.


def test_asnumpy_is_a_copy(x):
    x.asnumpy()[:] = 0
    assert x.asnumpy().sum() == 21
    assert np.asarray(x).dtype == np.float32
    np.testing.assert_array_equal(np.array(x, dtype="int64"), [[1, 2, 3], [4, 5, 6]])


def test_scalars(x):
    one = nd.array([[2.5]])
    assert one.asscalar() == 2.5 and type(one.asscalar()) is np.float32
    assert float(one) == 2.5 and int(one) == 2 and bool(one)
    assert "abcd"[nd.array([2], dtype="int32")] == "c"
    assert not nd.array([0]) and not nd.array([])
    with pytest.raises(ValueError, match="The current array is not a scalar"):
        x.asscalar()
    with pytest.raises(ValueError, match="The truth value of an NDArray with multiple elements is ambiguous."):
        bool(x)
    with pytest.raises(TypeError, match=r"float\(\) argument must be a string or a real number, not 'NDArray'"):
        float(x)
    with pytest.raises(TypeError, match=r"int\(\) argument must be a string, a bytes-like object or a real number"):
        int(x)
    with pytest.raises(TypeError):
        [1, 2][one]


# Copies and views.


def test_what_shares_memory(x):
    for view in [
        x.reshape((3, 2)),
        x.detach(),
        x.astype("float32", copy=False),
        x.as_in_context(mx.cpu()),
        x.flatten(inplace=True),
        x.expand_dims(0, inplace=True),
        x.expand_dims(0, inplace=True).squeeze(inplace=True),
        x.as_nd_ndarray(),
    ]:
        assert view.storage() is x.storage()
        view[:] = view + 1
    same(x, [[9, 10, 11], [12, 13, 14]])


def test_what_copies(x):
    for y in [
        x.copy(),
        x.copyto(mx.cpu()),
        x.astype("float32"),
        x.T,
        x.flatten(),
        x.expand_dims(0),
        x.squeeze(),
        nd.reshape(x, (3, 2)),
        nd.identity(x),
        x.tostype("default"),
        copy.copy(x),
        copy.deepcopy(x),
        pickle.loads(pickle.dumps(x)),
    ]:
        y[:] = 0
        assert y._array.flags.c_contiguous and y.dtype is np.float32
    same(x, [[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize("make", [nd.NDArray, mx.np.ndarray])
def test_what_mxnet_pickles(make):
    """It was written on a GPU, device type 2."""
    head = b"\xc9\xfa\x93\xf9" + struct.pack("<iiqiii", 0, 1, 2, 2, 0, 0)
    x = make(None)
    x.__setstate__({"handle": bytearray(head + np.array([1, 2], "f4").tobytes())})
    assert x.asnumpy().tolist() == [1, 2] and x.context == mx.cpu()
    again = make(None)
    again.__setstate__(x.__getstate__())
    assert again.asnumpy().tolist() == [1, 2]


def test_pickle_keeps_type_and_device():
    for dtype in ("float16", "bfloat16", "int8", "bool"):
        x = nd.array([[0, 1]], dtype=dtype, ctx=mx.cpu(1))
        y = pickle.loads(pickle.dumps(x))
        assert (y.dtype, y.shape, y.ctx) == (x.dtype, x.shape, x.ctx)
        np.testing.assert_array_equal(y.asnumpy(), x.asnumpy())


def test_copyto(x):
    target = nd.zeros((2, 3), dtype="int32")
    assert (x + 0.5).copyto(target) is target
    same(target, [[1, 2, 3], [4, 5, 6]], np.int32)
    with pytest.raises(MXNetError, match=r"expected \[2, 3\], got \[2, 2\]"):
        x.copyto(nd.zeros((2, 2)))
    with pytest.raises(TypeError, match="copyto does not support type <class 'int'>"):
        x.copyto(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert x.copyto(x) is False
    assert "copy an array to itself" in str(caught[0].message)


def test_astype_truncates(x):
    same(nd.array([1.9, -1.9, 0]).astype("int32"), [1, -1, 0], np.int32)
    same(nd.array([0.5, 0, -2]).astype(bool), [True, False, True], np.bool_)
    with pytest.raises(TypeError):
        x.astype("foo")


def test_inplace_shape_errors(x):
    with pytest.raises(AssertionError, match="axis 4 is out of range for 2d array"):
        x.expand_dims(4, inplace=True)
    with pytest.raises(AssertionError, match="Squeeze target axis 0 must be size 1, got 2."):
        x.squeeze(0, inplace=True)


def test_every_write_is_counted(x):
    view = x[0]
    storage = x.storage()
    writes = [
        lambda: x.__setitem__(0, 1),
        lambda: view.__setitem__(slice(None), 2),
        lambda: x.__iadd__(1),
        lambda: nd.relu(view, out=view),
        lambda: nd.zeros((2, 3)).copyto(x),
        lambda: x.slice_assign_scalar(1.0, (0, 0), (1, 1), (1, 1)),
        lambda: x.slice_assign(nd.array([[5.0]]), (0, 0), (1, 1), ()),
    ]
    for k, write in enumerate(writes):
        write()
        assert storage.version == k + 1
    assert x[0, 0].asscalar() == 5


# Python's operators.


def test_arithmetic(x):
    a = x.asnumpy()
    row = nd.array([[1, 2, 4]])
    r = row.asnumpy()
    for ours, expected in [
        (x + row, a + r),
        (x - row, a - r),
        (x * row, a * r),
        (x / row, a / r),
        (x % row, a % r),
        (x**row, a**r),
        (x + 1, a + 1),
        (1 + x, 1 + a),
        (x - 1, a - 1),
        (1 - x, 1 - a),
        (2 * x, 2 * a),
        (x / 2, a / 2),
        (2 / x, 2 / a),
        (x % 2, a % 2),
        (5 % x, 5 % a),
        (x**2, a**2),
        (2**x, 2**a),
        (-x, -a),
        (abs(-x), a),
        (x + np.float32(2), a + 2),
        (np.float32(2) + x, a + 2),
        (np.int64(2) * x, a * 2),
        (x + True, a + 1),
    ]:
        np.testing.assert_allclose(ours.asnumpy(), expected, rtol=1e-6)
        assert ours.dtype is np.float32


def test_comparisons_have_the_inputs_type(x):
    a = x.asnumpy()
    for ours, expected in [
        (x == 2, a == 2),
        (x != x, a != a),
        (x > 2, a > 2),
        (2 > x, 2 > a),
        (x >= 2, a >= 2),
        (x < 2, a < 2),
        (x <= nd.array([[2], [5]]), a <= [[2], [5]]),
    ]:
        same(ours, expected, np.float32)


def test_integers_stay_integers():
    x = nd.array([1, 2], dtype="int32")
    same(x + 1.5, [2, 3], np.int32)
    same(x / 2, [0, 1], np.int32)
    same(nd.array([200, 2], dtype="uint8") + 100, [44, 102], np.uint8)


def test_in_place(x):
    y, view = x, x[0]
    x += 1
    x -= nd.array([[1], [2]])
    x *= 2
    x /= 4
    assert x is y
    same(x, [[0.5, 1, 1.5], [1.5, 2, 2.5]])
    x %= 1
    same(view, [0.5, 0, 0.5])
    with pytest.raises(MXNetError):
        view += x  # the result is larger
    with pytest.raises(TypeError, match="type <class 'str'> not supported"):
        x += "a"
    x.writable = False
    with pytest.raises(ValueError, match="trying to add to a readonly NDArray"):
        x += 1


@pytest.mark.parametrize("other", [None, "a", np.ones(3), [1]], ids=["None", "str", "ndarray", "list"])
def test_foreign_operands(x, other):
    message = f"type {type(other)} not supported".replace("(", r"\(")
    for use in [lambda: x + other, lambda: x == other, lambda: x != other, lambda: x > other]:
        with pytest.raises(TypeError, match=message):
            use()


def test_foreign_left_operands(x):
    with pytest.raises(TypeError, match="type <class 'numpy.ndarray'> not supported"):
        np.ones(3) + x
    with pytest.raises(AssertionError, match="Argument lhs must have NDArray type, but got a"):
        "a" - x


def test_operators_that_mxnet_does_not_have(x):
    for use in [lambda: x @ x, lambda: x // 2, lambda: x & 1, lambda: ~x, lambda: divmod(x, 2), lambda: round(x)]:
        with pytest.raises(TypeError):
            use()


def test_shapes_that_do_not_broadcast(x):
    with pytest.raises(MXNetError, match="broadcast"):
        x + nd.array([1, 2])
    with pytest.raises(MXNetError):
        x + nd.array([[1, 2, 3]], dtype="float64")


def test_numpy_functions_that_call_methods(x):
    same(np.sum(x), [21])
    same(np.max(x), [6])
    same(np.clip(x, 2, 3), [[2, 2, 3], [3, 3, 3]])


# Methods.


def test_every_method_of_mxnet_exists():
    members = """T abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmax_channel argmin argsort as_in_context
    as_nd_ndarray as_np_ndarray asnumpy asscalar astype attach_grad backward broadcast_axes broadcast_like broadcast_to
    cbrt ceil clip context copy copyto cos cosh ctx degrees depth_to_space detach diag dtype exp expand_dims expm1 fix
    flatten flip floor grad handle log log10 log1p log2 log_softmax max mean min nanprod nansum ndim norm one_hot
    ones_like pad pick prod radians rcbrt reciprocal relu repeat reshape reshape_like rint round rsqrt shape shape_array
    sigmoid sign sin sinh size size_array slice slice_assign slice_assign_scalar slice_axis slice_like softmax softmin
    sort space_to_depth split split_v2 sqrt square squeeze stype sum swapaxes take tan tanh tile to_dlpack_for_read
    to_dlpack_for_write topk tostype transpose trunc wait_to_read writable zeros_like"""
    assert [name for name in members.split() if not hasattr(nd.NDArray, name)] == []


def test_methods_are_operators(x):
    same(x.sum(axis=1), [6, 15])
    same(x.sum(), [21])
    same(x.relu(), x.asnumpy())
    same(x.T, x.asnumpy().T)
    same(x.transpose((1, 0)), x.asnumpy().T)
    same(x.clip(2, 4), [[2, 2, 3], [4, 4, 4]])
    same(x.broadcast_to((2, 2, 3)), np.broadcast_to(x.asnumpy(), (2, 2, 3)))
    same(x[0:1].broadcast_like(x), [[1, 2, 3]] * 2)
    assert nd.NDArray.exp.__doc__.startswith("`x.exp(…)` is `mx.nd.exp(x, …)`")
    with pytest.raises(ValueError, match="could not be broadcast together with remapped shapes"):
        x.broadcast_to((4, 3))


def test_a_vector_is_no_csr_matrix(x):
    with pytest.raises(ValueError, match="should be 2 Dimensional. Current shape is"):
        x.reshape((-1,)).tostype("csr")


# Calling operators.


def test_out(x):
    out = nd.zeros((2, 3))
    assert nd.exp(x, out=out) is out
    np.testing.assert_allclose(out.asnumpy(), np.exp(x.asnumpy()), rtol=1e-6)
    nd.exp(x, out=x)
    same(x, out.asnumpy())
    for bad in [nd.zeros((3, 2)), nd.zeros((2, 3), dtype="float64")]:
        with pytest.raises(MXNetError, match="Incompatible attr in node  at 0-th output"):
            nd.exp(x, out=bad)


def test_several_results(x):
    parts = nd.split(x, num_outputs=3, axis=1)
    assert [p.shape for p in parts] == [(2, 1)] * 3
    assert isinstance(nd.split(x, num_outputs=1, axis=1), nd.NDArray)
    outs = [nd.zeros((2, 1)) for _ in range(3)]
    assert nd.split(x, num_outputs=3, axis=1, out=outs) is outs
    same(outs[2], [[3], [6]])
    with pytest.raises(MXNetError, match="3 outputs"):
        nd.split(x, num_outputs=3, axis=1, out=outs[:2])
    for p in parts:
        p[:] = 0
    same(x, [[1, 2, 3], [4, 5, 6]])


def test_zero_size_arrays():
    x = nd.array(np.zeros((0, 3)))
    assert (x + 1).shape == (0, 3)
    same(x.sum(axis=0), [0, 0, 0])
    same(x.sum(), [0])
    assert repr(x).endswith("<NDArray 0x3 @cpu(0)>")


def test_zero_d_arrays():
    x = nd.array(5)
    assert x.shape == () and x[()] is x and x[:] is x
    x[:] = 7
    assert x.asscalar() == 7
    x[()] = nd.array([8])
    assert (x + 1).asscalar() == 9
    with pytest.raises(IndexError, match="scalar tensor can only accept"):
        x[0] = 1
    with pytest.raises(ValueError, match="setting an array element with a sequence."):
        x[:] = [1, 2]
