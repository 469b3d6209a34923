"""Indices out of bounds: an error of one kind, imperatively and in compiled code, where MXNet has one."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd
from gluonjit.base import MXNetError


def assigned(x, i):
    y = x * 1
    y[i] = 7
    return y


READS = {
    "gather_nd": lambda F, x, i: F.gather_nd(x, F.expand_dims(i, 0)),
    "two indices": lambda F, x, i: F.gather_nd(x, F.stack(i * 0, i)),
    "x[i]": lambda F, x, i: x[i],
    "x[i, i]": lambda F, x, i: x[i, i],
    "x[:, i]": lambda F, x, i: x[:, i],
    "x[1:3, i]": lambda F, x, i: x[1:3, i],
    "x[:, :, i]": lambda F, x, i: x[:, :, i],
    "x[i] = 7": lambda F, x, i: assigned(x, i),
}
SIZE = 4


def both(function):
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x, i):
            return function(F, x, i)

    imperative, compiled = Net(), Net()
    compiled.hybridize()
    return imperative, compiled


@pytest.mark.parametrize("what", READS)
def test_both_modes_alike(what):
    x = nd.random.uniform(shape=(SIZE, SIZE, SIZE))
    imperative, compiled = both(READS[what])
    for values in ([0, 1, 3], [-1, -4, 2], [1, 1, 1]):
        for dtype in ("int32", "float32", "int64"):
            i = nd.array(values, dtype=dtype)
            assert np.array_equal(compiled(x, i).asnumpy(), imperative(x, i).asnumpy()), (values, dtype)
    beyond = 2**32 + 1  # as int32, it would be 1
    cases = [
        ([0, 4, 1], 4, "int32"),
        ([0, 1, -5], -5, "int32"),
        ([900, 0, 0], 900, "int32"),
        ([0, beyond, 1], beyond, "int64"),
        ([-beyond, 0, 0], -beyond, "int64"),
        ([0, beyond, 0], beyond, "float64"),
    ]
    for values, outside, dtype in cases:
        i = nd.array(values, dtype=dtype)
        for net in (imperative, compiled, compiled):
            with pytest.raises(IndexError, match=rf"index {outside} is out of bounds for axis \d with size 4"):
                net(x, i)
    assert np.array_equal(compiled(x, nd.array([2])).asnumpy(), imperative(x, nd.array([2])).asnumpy())


def test_the_axis_is_named():
    imperative, compiled = both(READS["two indices"])
    for net in (imperative, compiled):
        with pytest.raises(IndexError, match="index 9 is out of bounds for axis 1 with size 5"):
            net(nd.zeros((4, 5)), nd.array([9]))


def test_take():
    imperative, compiled = both(lambda F, x, i: F.take(x, i, mode="raise", axis=1))
    x, i = nd.random.uniform(shape=(2, 3)), nd.array([[0, 2], [1, 1]])
    assert np.array_equal(compiled(x, i).asnumpy(), imperative(x, i).asnumpy())
    for net in (imperative, compiled):
        for wrong in ([3], [-1]):
            with pytest.raises(MXNetError, match="take operator contains indices out of bound"):
                net(x, nd.array(wrong))


def test_in_a_loop():
    body = lambda F, x, i: F.contrib.foreach(lambda row, state: (F.gather_nd(x, row), state), i, [])[0]  # noqa: E731
    imperative, compiled = both(body)
    x, i = nd.random.uniform(shape=(3,)), nd.array([[[0, 1]], [[2, -1]]])
    assert np.array_equal(compiled(x, i).asnumpy(), imperative(x, i).asnumpy())
    for net in (imperative, compiled):
        with pytest.raises(IndexError, match="index 3 is out of bounds"):
            net(x, nd.array([[[0, 1]], [[3, 0]]]))


def test_states_are_not_written_after_an_error():
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x, i):
            y = x[i]
            x[:] = x + 1
            return y

    net = Net()
    net.hybridize()
    x = nd.zeros(3)
    with pytest.raises(IndexError):
        net(x, nd.array([3]))
    assert x.asnumpy().tolist() == [0, 0, 0]
    net(x, nd.array([2]))
    assert x.asnumpy().tolist() == [1, 1, 1]


def test_executor():
    symbol = mx.sym.gather_nd(mx.sym.var("x"), mx.sym.var("i"))
    executor = symbol.bind(mx.cpu(), {"x": nd.array([1, 2, 3]), "i": nd.array([[0, 5]])})
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 3"):
        executor.forward()


@pytest.mark.parametrize("index", [np.array([2**32 + 1]), [2**32 + 1], np.array([2**64 - 1], np.uint64), [2**70]])
def test_indices_that_are_no_int32(index):
    imperative, compiled = both(lambda F, x, i: x[index] + i)
    for net in (imperative, compiled):
        with pytest.raises(IndexError, match="out of bounds"):
            net(nd.zeros((4,)), nd.zeros((1,)))
    with pytest.raises(IndexError, match="out of bounds"):
        nd.zeros((4,))[index] = 1
    with pytest.raises(IndexError, match="out of bounds"):
        mx.np.zeros((4,))[index]


def test_indices_of_different_types():
    x = nd.arange(12).reshape((3, 4))
    i, j = nd.array([0, 2], dtype="int64"), nd.array([1.9, 3], dtype="float32")
    imperative, compiled = both(lambda F, x, i: x[i, j])
    assert compiled(x, i).asnumpy().tolist() == imperative(x, i).asnumpy().tolist() == [1, 11]


def test_indices_are_checked_against_open_extents():
    _, compiled = both(READS["two indices"])
    compiled.hybridize(dynamic={"data0": {0: "n", 1: "l"}})
    for shape in ((3, 4), (5, 2), (2, 9)):
        x = nd.arange(shape[0] * shape[1]).reshape(shape)
        last = shape[1] - 1
        i = nd.array([0, -1, last], dtype="int32")
        assert compiled(x, i).asnumpy().tolist() == [0, last, last]
        with pytest.raises(IndexError, match=f"index {last + 1} is out of bounds for axis 1 with size {last + 1}"):
            compiled(x, i + 1).wait_to_read()
    assert len(compiled._jit_cached.store.open_entries) == 1
