"""`x[key]` and `x[key] = value`: elements as NumPy has them, memory shared exactly where MXNet 1.9.1 shares it."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import nd
from gluonjit.ndarray import index_keys

s = np.s_
SHAPE = (2, 3, 4)

# Recorded from MXNet on an array of SHAPE: the keys whose result is a view, and those that copy.
VIEWS = [
    s[0], s[-1], s[np.int64(1)], s[None], s[...], s[1:3], s[-2:], s[:-1], s[0:100], s[-100:2], s[0:1:2], s[::2],
    s[0, 1], s[0, -1], s[0, 0, 0], s[0, 1:3], s[0, :], s[0, ...], s[0:1, 1:3], s[0:2, :], s[0:2, 0:3], s[1:2, 1],
    s[None, 0], s[0, None], s[:, None], s[0, None, 1], s[..., None], s[None, None], s[0, None, 1:3],
]  # fmt: skip
COPIES = [
    s[::-1], s[0, ::2], s[..., 0], s[..., 0:1], s[:, 0], s[:, 1:3], s[0:1, ::2], s[None, :, 1],
    s[[0]], s[[0, -1]], s[[[0, 1], [1, 0]]], s[[0, 1], [1, 2]], s[[0, 1], 1], s[1, [0, 1]], s[[0, 1], :],
    s[:, [0, 1]], s[1:3, [0, 2]], s[[[0], [1]], [0, 1]], s[[0], :, [0, 1]], s[:, [0, 1], [0, 1]], s[[0, 1], 0, [0, 1]],
    s[0, :, [0, 1]], s[[0, 1], ...], s[..., [0, 1]], s[None, [0, 1]], s[np.array([0, 1])],
]  # fmt: skip
EMPTY = [s[0:0], s[100:200], s[0:0, 1], s[2:1, :], s[[]], s[:, []]]


def fresh():
    return nd.array(np.arange(24).reshape(SHAPE))


def at_least_1d(array):
    return array.reshape(array.shape or (1,))


@pytest.mark.parametrize("key", VIEWS, ids=str)
def test_views_share_memory(key):
    x = fresh()
    y = x[key]
    np.testing.assert_array_equal(y.asnumpy(), at_least_1d(x.asnumpy()[key]))
    y[:] = -7
    expected = np.arange(24.0).reshape(SHAPE)
    expected[key] = -7
    np.testing.assert_array_equal(x.asnumpy(), expected)
    assert y.storage() is x.storage()


@pytest.mark.parametrize("key", COPIES, ids=str)
def test_copies_do_not(key):
    x = fresh()
    y = x[key]
    np.testing.assert_array_equal(y.asnumpy(), at_least_1d(x.asnumpy()[key]))
    y[:] = -7
    np.testing.assert_array_equal(x.asnumpy(), np.arange(24.0).reshape(SHAPE))
    assert y._array.flags.c_contiguous


@pytest.mark.parametrize("key", EMPTY, ids=str)
def test_empty_results(key):
    x = fresh()
    assert x[key].shape == x.asnumpy()[key].shape
    x[key] = 5
    np.testing.assert_array_equal(x.asnumpy(), np.arange(24.0).reshape(SHAPE))


def test_whole_array_is_the_array_itself():
    x = fresh()
    assert x[:] is x and x[()] is x
    assert x[...] is not x


# MXNet's own ways: the NumPy key that means the same.
@pytest.mark.parametrize(
    ("key", "meaning"),
    [
        ([True, False], [1, 0]),
        (np.array([True, False, True]), [1, 0, 1]),
        ([1.7], [1]),
        ((0, 1), (0, 1)),
        (((0, 1),), [0, 1]),
        (range(2), [0, 1]),
        ((range(2), 0), ([0, 1], 0)),
        (True, 1),
    ],
    ids=str,
)
def test_what_counts_as_integer(key, meaning):
    np.testing.assert_array_equal(fresh()[key].asnumpy(), fresh().asnumpy()[meaning])


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "uint8"])
def test_ndarray_as_index(dtype):
    x = fresh()
    rows, columns = nd.array([1, 0], dtype=dtype), nd.array([2, 1], dtype=dtype)
    np.testing.assert_array_equal(x[rows].asnumpy(), x.asnumpy()[[1, 0]])
    np.testing.assert_array_equal(x[rows, columns].asnumpy(), x.asnumpy()[[1, 0], [2, 1]])
    np.testing.assert_array_equal(x[:, columns, 0:2].asnumpy(), x.asnumpy()[:, [2, 1], 0:2])


def test_none_beside_an_index_array_goes_where_mxnet_puts_it():
    x = nd.array(np.arange(12).reshape(3, 4))
    assert x[[0, 1], None].shape == (1, 2, 4)  # NumPy: (2, 1, 4)
    assert x[[0, 1], :, None].shape == (2, 1, 4)  # NumPy: (2, 4, 1)
    assert x[None, [0, 1]].shape == (1, 2, 4)


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (3, IndexError, "index 3 is out of bounds for axis 0 with size 2"),
        (-3, IndexError, "index -3 is out of bounds for axis 0 with size 2"),
        (s[0, 9], IndexError, "index 9 is out of bounds for axis 1 with size 3"),
        (s[0, 0, 0, 0], IndexError, "too many indices (4) for array with 3 dimensions"),
        (s[..., 1, ...], IndexError, "Cannot use more than one ellipsis (`...`) for indexing"),
        (s[::0], ValueError, "slice step cannot be zero"),
        ("foo", ValueError, "NDArray does not support slicing with key foo of type <class 'str'>."),
        (1.0, ValueError, "NDArray does not support slicing with key 1.0 of type <class 'float'>."),
        (np.int8(1), ValueError, "NDArray does not support slicing with key 1 of type <class 'numpy.int8'>."),
        ([0, 5], IndexError, "index 5 is out of bounds for axis 0 with size 2"),
        ([-5], IndexError, "index -5 is out of bounds for axis 0 with size 2"),
        (([0, 1], [0, 1, 2]), ValueError, "shape1=(2,) is not broadcastable to shape2=(3,)"),
    ],
    ids=str,
)
def test_errors_in_mxnets_words(key, error, message):
    with pytest.raises(error) as caught:
        fresh()[key]
    assert str(caught.value) == message
    if key != 3 and key != -3:  # a write says the same
        with pytest.raises(error) as caught:
            fresh()[key] = 1
        assert str(caught.value) == message


def test_boolean_ndarray_is_refused():
    with pytest.raises(ValueError, match="Cannot perform boolean indexing in legacy mode"):
        fresh()[nd.array([1, 0], dtype=bool)]
    with pytest.raises(IndexError, match="size is 2 but corresponding boolean size is 3"):
        fresh()[nd.array([1, 0, 1], dtype=bool)]


def test_a_slice_that_ends_before_it_starts():
    from gluonjit import MXNetError

    with pytest.raises(MXNetError, match="Invalid slicing range"):
        fresh()[2:1]


WRITES = [key for key in VIEWS + COPIES if key is not None]


@pytest.mark.parametrize("key", WRITES, ids=str)
def test_assignment(key):
    result = fresh()[key].shape
    values = np.arange(np.prod(result)).reshape(result) + 100.0
    plain = np.arange(24.0).reshape(SHAPE)
    for value in (5, 2.5, True, nd.array(values), values, nd.array([9])):
        x, expected = fresh(), plain.copy()
        x[key] = value
        raw = value.asnumpy() if isinstance(value, nd.NDArray) else value
        expected[key] = np.broadcast_to(raw, result).reshape(expected[key].shape)
        np.testing.assert_array_equal(x.asnumpy(), expected)


def test_assigned_values_broadcast_and_take_the_arrays_type():
    x = nd.array(np.zeros((2, 3)), dtype="int32")
    x[0] = nd.array([[1.9, -1.9, 2]])  # leading axes of length 1 go, fractions too
    x[1] = [7, 8, 9]
    np.testing.assert_array_equal(x.asnumpy(), [[1, -1, 2], [7, 8, 9]])
    assert x.dtype is np.int32
    with pytest.raises(ValueError, match=r"\(4,\) and requested shape \(3,\)"):
        x[0] = [1, 2, 3, 4]
    with pytest.raises(TypeError, match="does not support assignment with non-array-like object a of type"):
        x[0] = "a"


def test_overlapping_assignment():
    x = nd.array([1, 2, 3, 4])
    x[1:] = x[:-1]
    np.testing.assert_array_equal(x.asnumpy(), [1, 1, 2, 3])


def test_iteration_gives_views():
    x = fresh()
    rows = list(x)
    assert len(rows) == len(x) == 2
    rows[1][:] = 0
    assert x.asnumpy()[1].sum() == 0
    assert list(nd.array(np.zeros((0, 2)))) == []


def test_contiguity_is_what_numpy_finds():
    """`parse` decides on shapes alone; a NumPy view knows its strides."""
    rng = np.random.default_rng(0)
    for _ in range(500):
        shape = tuple(rng.integers(0, 4, rng.integers(1, 4)))
        array = np.zeros(shape)
        key = []
        for n in shape:
            start, stop = (None if rng.random() < 0.3 else int(rng.integers(-n - 1, n + 2)) for _ in range(2))
            key.append(slice(start, stop, [None, 1, 2, -1, -2][rng.integers(5)]))
            if n and rng.random() < 0.3:
                key[-1] = int(rng.integers(-n, n))
        meaning = index_keys.parse(tuple(key), shape)
        view = array[tuple(key)]
        assert meaning.shape == (view.shape or (1,))
        assert array[meaning.slices].size == view.size
        assert meaning.contiguous == view.flags.c_contiguous


# Recorded from MXNet: shape, target, reverse, result.
@pytest.mark.parametrize(
    ("shape", "target", "reverse", "result"),
    [
        ((2, 3, 4), (4, 0, 2), False, (4, 3, 2)),
        ((2, 3, 4), (0, -1), False, (2, 12)),
        ((2, 3, 4), (-1, 6, 1), False, (4, 6, 1)),
        ((2, 3, 4), (-2, 1, 1), False, (2, 3, 4, 1, 1)),
        ((2, 3, 4), (-1, -2), False, (2, 3, 4)),
        ((2, 3, 4, 5), (-3, -3), False, (6, 20)),
        ((2, 3, 4), (-3, -1), False, (6, 4)),
        ((2, 3, 4), (-4, 1, 2, -2), False, (1, 2, 3, 4)),
        ((2, 3, 4), (2, -4, -1, 3, -2), False, (2, 1, 3, 4)),
        ((2, 3, 4), (-4, -1, 2, 0, 0), False, (1, 2, 3, 4)),
        ((2, 3, 4), (0, 0, 0, -1), False, (2, 3, 4, 1)),
        ((10, 5, 4), (-1, 0), False, (40, 5)),
        ((10, 5, 4), (-1, 0), True, (50, 4)),
        ((2, 3, 4), (-3, 0), True, (6, 4)),
        ((2, 3, 4), (0, -3), True, (2, 12)),
        ((6,), (3, 2, -4), True, (3, 2)),
        ((0, 3), (3, -1), False, (3, 0)),
    ],
)
def test_reshape_codes(shape, target, reverse, result):
    x = nd.array(np.zeros(shape))
    y = x.reshape(target, reverse=reverse)
    assert y.shape == result
    assert y.storage() is x.storage()
    assert x.reshape(*target, reverse=reverse).shape == x.reshape(shape=target, reverse=reverse).shape == result


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ((4, -1), ValueError, r"Cannot reshape array of size 6 into shape \(4, -1\)"),
        ((5,), ValueError, r"Cannot reshape array of size 6 into shape \(5,\)"),
        ((7,), RuntimeError, "which is larger"),
        ((-1, -1), RuntimeError, "One and only one dim can be inferred"),
        ((0, 0, 0), RuntimeError, "asks for more dimensions"),
        ((-4, 3, 1, -2), RuntimeError, "Split dims 3, 1 do not divide original dim 2"),
        ((-4, 2), RuntimeError, "must be followed by two dimensions"),
        ((-5,), RuntimeError, "shape dim size must be >= -1, while received -5"),
    ],
)
def test_reshape_errors(target, error, message):
    with pytest.raises(error, match=message):
        nd.array(np.zeros((2, 3))).reshape(target)


def test_reshape_keywords():
    x = nd.array(np.zeros((2, 3)))
    with pytest.raises(AssertionError, match="Shape must be provided."):
        x.reshape()
    with pytest.raises(TypeError, match="Got unknown keywords in reshape: foo. Accepted"):
        x.reshape(6, foo=1)


@pytest.mark.parametrize("numpy", [False, True], ids=["nd", "np"])
def test_index_arrays_of_any_rank_and_length_hybridized(numpy):
    def program(F, x, i):
        y, z = x + 1, x + 2
        y[i] = 5
        z[i, 1] = x[i, 2] * 2
        return y, z, x[i], x[:, i], x[1, i], x[i, i], x[i, 1:]

    net, plain = (mx.gluon.nn.HybridLambda(program) for _ in range(2))
    net.hybridize()
    arrays = mx.np if numpy else mx.nd
    x = arrays.array(np.arange(16).reshape(4, 4))
    for index in ([3], 1, [3], [], -4, [[2, 0]], [3], [1, 2]):
        i = arrays.array(np.array(index, "int32"), dtype="int32")
        for found, wanted in zip(net(x, i), plain(x, i)):
            assert found.shape == wanted.shape and (found.asnumpy() == wanted.asnumpy()).all()


def test_one_trace_serves_index_arrays_of_all_lengths():
    net = mx.gluon.nn.HybridLambda(lambda F, x, i: x[i])
    net.hybridize()
    for n in (1, 3, 2):
        assert net(nd.arange(4), nd.arange(n)).asnumpy().tolist() == [*range(n)]
    assert len(net._jit_cached.traces) == 1
