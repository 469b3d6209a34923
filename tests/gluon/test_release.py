"""hybridize(static_alloc=True) frees parameters of which code only reads packed copies, without visible effect."""

import copy
import gc
import os
import pickle
import weakref

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.files import origin
from gluonjit.gluon import nn
from support.threads import at_once

pytestmark = pytest.mark.skipif(os.name != "posix", reason="mapped files could not be replaced here")


def build():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(200, in_units=128, activation="relu"), nn.Dense(150, in_units=200))
    return net


@pytest.fixture(params=["net.params", "net.safetensors"])
def path(request, tmp_path):
    net = build()
    net.initialize(mx.init.Xavier())
    net.save_parameters(str(tmp_path / request.param))
    return tmp_path / request.param


X = mx.nd.array(np.random.default_rng(0).standard_normal((5, 128)), dtype="float32")


def loaded(path, **options):
    net = build()
    net.load_parameters(str(path))
    net.hybridize(**(options or {"static_alloc": True}))
    return net


def expected(path):
    return loaded(path, static_alloc=False)(X).asnumpy()


def array_of(param):
    """A weak reference to the array of a parameter; dead, its memory is free."""
    return weakref.ref(param.data()._array)


def test_released_and_read_again(path):
    net, want = loaded(path), expected(path)
    arrays = [array_of(p) for p in net.collect_params().values()]
    truth = [p.data().asnumpy() for p in net.collect_params().values()]
    for _ in range(3):
        np.testing.assert_array_equal(net(X).asnumpy(), want)
    assert [a() is None for a in arrays] == [x.nbytes >= origin.SMALLEST for x in truth]
    assert [a() is None for a in arrays] == [True, False, True, False]
    assert net._fast_call is not None
    for p, x in zip(net.collect_params().values(), truth):
        np.testing.assert_array_equal(p.data().asnumpy(), x)
        assert p.data() is p.data()
    np.testing.assert_array_equal(net(X).asnumpy(), want)


def test_parameters_without_gradients(path):
    net, want = loaded(path), expected(path)
    for p in net.collect_params().values():
        p.grad_req = "null"
    arrays = [array_of(p) for p in net.collect_params(".*weight").values()]
    np.testing.assert_array_equal(net(X).asnumpy(), want)
    assert [a() for a in arrays] == [None, None]


def test_another_signature_reads_them_again_and_they_stay(path):
    net = loaded(path)
    net(X)
    np.testing.assert_allclose(net(X[:2]).asnumpy(), expected(path)[:2], rtol=1e-5, atol=1e-6)
    kept = [array_of(p) for p in net.collect_params().values()]
    net(X)
    net(X[:2])
    assert all(a() is not None for a in kept)


@pytest.mark.parametrize("write", ["set_data", "in place", "view", "load"])
def test_writes_afterwards_count(path, write):
    net = loaded(path)
    net(X)
    weight = net[0].weight
    half = weight.data().asnumpy() / 2 if write == "load" else None
    if write == "set_data":
        weight.set_data(mx.nd.ones(weight.shape))
    elif write == "in place":
        weight.data()[:] = 1
    elif write == "view":
        weight.data()[3:7][1] = 1
    else:
        other = build()
        other.load_parameters(str(path))
        other[0].weight.set_data(half)
        other.save_parameters(str(path))
        net.load_parameters(str(path))
    got = net(X).asnumpy()
    fresh = build()
    fresh.load_parameters(str(path))
    fresh[0].weight.set_data(weight.data())
    np.testing.assert_allclose(got, fresh(X).asnumpy(), rtol=1e-4, atol=1e-5)
    assert not np.array_equal(got, expected(path)) or write == "load"


def test_loaded_again_released_again(path):
    net = loaded(path)
    net(X)
    net.load_parameters(str(path))
    kept = array_of(net[0].weight)
    net(X)
    assert kept() is None


@pytest.mark.parametrize("why", ["not allowed", "held", "viewed", "written", "no file", "training", "another type"])
def test_kept(path, why):
    net = build()
    if why == "no file":
        net.initialize()
    else:
        net.load_parameters(str(path))
    x = X
    if why == "another type":
        net.cast("float64")
        x = X.astype("float64")
    net.hybridize(static_alloc=why != "not allowed")
    weight = net[0].weight
    if why == "written":
        weight.data()[0, 0] = 7
    kept = array_of(weight)
    held = {"held": lambda: weight.data(), "viewed": lambda: weight.data()[2:5]}.get(why, lambda: None)()
    if why == "training":
        with mx.autograd.train_mode():
            net(x)
    else:
        net(x)
    gc.collect()
    assert kept() is not None
    if held is not None:
        held[:] = 3
        assert (weight.data().asnumpy() == 3).any()
    plain = build()
    plain.load_parameters(str(path)) if why != "no file" else plain.initialize()
    plain.cast(weight.dtype)
    for ours, theirs in zip(net.collect_params().values(), plain.collect_params().values()):
        theirs.set_data(ours.data())
    np.testing.assert_allclose(net(x).asnumpy(), plain(x).asnumpy(), rtol=1e-4, atol=1e-4)


def test_what_every_call_reads_stays(tmp_path):
    """An embedding gathers from the array itself."""
    net = nn.Embedding(1000, 40)
    net.initialize()
    net.save_parameters(str(tmp_path / "e.params"))
    net.load_parameters(str(tmp_path / "e.params"))
    net.hybridize(static_alloc=True)
    kept = array_of(net.weight)
    rows = net(mx.nd.array([3, 999]))
    assert kept() is not None
    np.testing.assert_array_equal(rows.asnumpy(), net.weight.data().asnumpy()[[3, 999]])


@pytest.mark.parametrize("how", ["removed", "replaced", "saved over"])
def test_the_file_may_go(path, how):
    net, want = loaded(path), expected(path)
    truth = [p.data().asnumpy() for p in net.collect_params().values()]
    net(X)
    if how == "removed":
        path.unlink()
    elif how == "replaced":
        path.with_suffix(".other").write_bytes(b"else")
        path.with_suffix(".other").replace(path)
    else:
        before = path.read_bytes()
        net.save_parameters(str(path))
        assert path.read_bytes() == before
    for p, x in zip(net.collect_params().values(), truth):
        np.testing.assert_array_equal(p.data().asnumpy(), x)
    np.testing.assert_array_equal(net(X).asnumpy(), want)


def test_a_file_overwritten_in_place(path):
    net, late, want = loaded(path), loaded(path), expected(path)
    net(X)
    data = bytearray(path.read_bytes())
    data[-1000:] = b"\0" * 1000
    with path.open("r+b") as f:
        f.write(data)
    os.utime(path, (1, 1))  # whatever the clock's resolution
    np.testing.assert_array_equal(net(X).asnumpy(), want)
    with pytest.raises(mx.MXNetError, match="overwritten in place"):
        net[0].weight.data()
    for p, twin in zip(net.collect_params().values(), late.collect_params().values()):
        p.set_data(twin.data())
    np.testing.assert_array_equal(net(X).asnumpy(), want)
    kept = array_of(late[0].weight)
    np.testing.assert_array_equal(late(X).asnumpy(), want)
    assert kept() is not None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies(path, copied):
    net = loaded(path)
    net(X)
    twin = copied(net[0].weight)
    np.testing.assert_array_equal(twin.data().asnumpy(), net[0].weight.data().asnumpy())
    twin.data()[:] = 0
    assert net[0].weight.data().asnumpy().any()


def test_threads(path):
    net, want = loaded(path), expected(path)
    wrong = []

    def work(k):
        for _ in range(10):
            if not np.array_equal(net(X).asnumpy(), want) or (k == 0 and not net[0].weight.data().asnumpy().any()):
                wrong.append(k)

    at_once(work, 4)
    assert not wrong


def test_memory_of_the_file_is_given_back(tmp_path):
    """Neither what loading has read of the file stays in memory, nor what was read again."""
    if not os.path.exists("/proc/self/smaps"):
        pytest.skip("needs Linux")
    net = nn.Dense(2000, in_units=500, use_bias=False)
    net.initialize()
    path = str(tmp_path / "big.params")
    net.save_parameters(path)

    def resident():
        lines = iter(open("/proc/self/smaps"))
        return sum(
            int(next(line for line in lines if line.startswith("Rss:")).split()[1]) for line in lines if path in line
        )

    net.load_parameters(path)
    assert resident() < 500  # kB, of 4000
    net.hybridize(static_alloc=True)
    kept = array_of(net.weight)
    net(mx.nd.ones((1, 500)))
    assert kept() is None
    net.weight.data()
    assert resident() < 500
