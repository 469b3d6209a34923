"""Memory shared with NumPy and through DLPack: where MXNet shares, and compiled code sees what is written there."""

import mmap

import ml_dtypes
import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd
from gluonjit.base import MXNetError


def test_from_numpy_takes_the_memory_over():
    source = np.arange(3.0)
    x = nd.from_numpy(source)
    assert x.dtype is np.float64 and not source.flags.writeable
    x += 1
    assert source.tolist() == x.asnumpy().tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="c-contiguous"):
        nd.from_numpy(np.zeros((2, 3)).T)
    copy = nd.from_numpy(np.zeros(3), zero_copy=False)
    copy[:] = 1


def test_from_numpy_twice():
    source = np.arange(4, dtype=np.float32)
    x, y, part = nd.from_numpy(source), nd.from_numpy(source), nd.from_numpy(source[2:])
    y[:] = 7
    part[:] = 9
    assert x.asnumpy().tolist() == source.tolist() == [7, 7, 9, 9]
    assert x.storage() is y.storage() is part.storage()


def test_from_numpy_of_memory_that_nobody_may_write_to(tmp_path):
    (tmp_path / "zeros").write_bytes(bytes(16))
    with open(tmp_path / "zeros", "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    for source in (np.frombuffer(bytes(16), np.float32), np.frombuffer(mapped, np.float32)):
        x = nd.from_numpy(source)
        assert not x.writable
        with pytest.raises(ValueError, match="read-?only"):
            x[:] = 1
        with pytest.raises(ValueError, match="read-?only"):
            x += 1
        assert (x + 1).asnumpy().tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("give", [nd.to_dlpack_for_write, nd.to_dlpack_for_read], ids=["write", "read"])
def test_dlpack_shares(give):
    x = nd.array([[1, 2, 3], [4, 5, 6]])
    y, row = nd.from_dlpack(give(x)), nd.from_dlpack(give(x[1]))
    y[0] = 7
    row[:] = 8
    assert x.asnumpy().tolist() == [[7, 7, 7], [8, 8, 8]]
    assert y.storage() is x.storage()
    del x
    assert y.asnumpy().tolist() == [[7, 7, 7], [8, 8, 8]]


def test_dlpack_of_other_types():
    for dtype in ("float64", "float16", "int8", "uint8", "int32", "int64", "bool"):
        x = nd.array([0, 1], dtype=dtype)
        y = nd.from_dlpack(x.to_dlpack_for_read())
        assert y.dtype is x.dtype and y.asnumpy().tolist() == x.asnumpy().tolist()
    empty = nd.from_dlpack(nd.zeros((0, 3)).to_dlpack_for_write())
    assert empty.shape == (0, 3)
    with pytest.raises(MXNetError, match="bfloat16.*DLPack"):
        nd.from_numpy(np.zeros(3, ml_dtypes.bfloat16)).to_dlpack_for_read()
    with pytest.raises(MXNetError, match="complex64"):
        nd.from_dlpack(np.zeros(3, np.complex64))


def test_from_dlpack_of_what_is_none():
    capsule = nd.zeros((2,)).to_dlpack_for_read()
    nd.from_dlpack(capsule)
    with pytest.raises(MXNetError, match="only once"):
        nd.from_dlpack(capsule)
    with pytest.raises(TypeError, match="DLPack capsule"):
        nd.from_dlpack(5)


def test_from_dlpack_copies_what_no_ndarray_can_be():
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = nd.from_dlpack(source.T)
    x[:] = 0
    assert source[1, 2] == 5 and x.shape == (3, 2)


def test_compiled_code_sees_what_others_write():
    """The weight is kept packed between calls; whoever has it through DLPack tells nobody of writes."""
    net = gluon.nn.Dense(4, use_bias=False, in_units=8)
    net.initialize()
    net.hybridize()
    x = nd.ones((2, 8))
    net(x), net(x)
    outside = np.from_dlpack(_AsObject(net.weight.data().to_dlpack_for_write()))
    for value in (1, 2, 3):
        _write(outside, value)
        assert net(x).asnumpy().tolist() == [[8 * value] * 4] * 2
    inside = nd.from_dlpack(net.weight.data().to_dlpack_for_read())
    inside[:] = 5
    assert net(x).asnumpy().tolist() == [[40] * 4] * 2
    bound = mx.sym.FullyConnected(mx.sym.var("x"), mx.sym.var("w"), num_hidden=4, no_bias=True).bind(
        mx.cpu(), {"x": x, "w": net.weight.data()}
    )
    for value in (1, 2):
        _write(outside, value)
        assert bound.forward()[0].asnumpy().tolist() == [[8 * value] * 4] * 2


class _AsObject:
    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **kwargs):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0


def _write(array, value):
    """As another framework writes: through the address."""
    import ctypes

    (ctypes.c_float * array.size).from_address(array.ctypes.data)[:] = [value] * array.size
