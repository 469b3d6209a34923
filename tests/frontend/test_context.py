"""Devices: names for parts of the host's memory, and the GPU that is not there."""

import threading

import pytest

import gluonjit as mx
from gluonjit import nd


def test_names_and_equality():
    assert repr(mx.cpu(1)) == str(mx.cpu(1)) == "cpu(1)"
    assert repr(mx.cpu_pinned()) == "cpu_pinned(0)"
    assert repr(mx.context.cpu_shared(2)) == "cpu_shared(2)"
    assert mx.cpu() == mx.cpu(0) != mx.cpu(1)
    assert mx.cpu() != "cpu(0)"
    assert hash(mx.cpu()) == hash(mx.Context("cpu", 0))
    assert len({mx.cpu(), mx.cpu(0), mx.gpu()}) == 2
    assert mx.Context(mx.cpu(3)) == mx.cpu(3)
    assert (mx.cpu().device_type, mx.cpu().device_typeid, mx.gpu(1).device_id) == ("cpu", 1, 1)
    with pytest.raises(KeyError):
        mx.Context("tpu")


def test_current_context_nests_and_is_thread_local():
    seen = []
    assert mx.current_context() == mx.cpu(0)
    with mx.cpu(1) as inner:
        assert mx.current_context() is inner
        with inner, mx.cpu(2):
            assert mx.current_context() == mx.cpu(2)
        thread = threading.Thread(target=lambda: seen.append(mx.current_context()))
        thread.start()
        thread.join()
        assert mx.current_context() is inner
    assert mx.current_context() == mx.cpu(0)
    assert seen == [mx.cpu(0)]


def test_arrays_remember_their_device():
    x = nd.array([1, 2], ctx=mx.cpu(1))
    assert x.context == x.ctx == mx.cpu(1)
    assert x[0:1].ctx == x.reshape((2, 1)).ctx == x.detach().ctx == mx.cpu(1)
    assert x.copy().ctx == x.astype("int32").ctx == x[[0]].ctx == (x + 1).ctx == mx.cpu(1)
    assert x.as_in_context(mx.cpu(1)) is x
    y = x.as_in_context(mx.cpu(0))
    assert y is not x and y.ctx == mx.cpu(0)
    assert x.copyto(mx.cpu(2)).ctx == mx.cpu(2)
    with mx.cpu(3):
        assert nd.array([1]).ctx == nd.full((1,), 1).ctx == nd.empty((1,)).ctx == mx.cpu(3)
    assert repr(x).endswith("<NDArray 2 @cpu(1)>")


def test_there_is_no_gpu():
    assert mx.context.num_gpus() == 0
    x = nd.array([1])
    for use in [
        lambda: nd.array([1], ctx=mx.gpu()),
        lambda: x.as_in_context(mx.gpu(1)),
        lambda: x.copyto(mx.gpu()),
        lambda: nd.empty((1,), mx.gpu()),
        mx.context.gpu_memory_info,
    ]:
        with pytest.raises(mx.MXNetError, match=r"gpu\(\d\)"):
            use()
    with mx.gpu(), pytest.raises(mx.MXNetError, match="GPU is not enabled"):
        nd.array([1])
