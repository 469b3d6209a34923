"""Plain calls that move to native code, and gradients that do."""

import gc
import weakref

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, nd
from gluonjit.autodiff import tiering
from gluonjit.ndarray import imperative
from gluonjit.operators import registry

RNG = np.random.RandomState(0)
IMAGES = RNG.uniform(-1, 1, (2, 4, 9, 9)).astype(np.float32)
WEIGHT = RNG.uniform(-1, 1, (8, 4, 3, 3)).astype(np.float32)


@pytest.fixture
def calls(monkeypatch):
    """The operators that have run natively; whatever can be compiled is, at the first call."""
    monkeypatch.setattr(imperative, "SMALL", 0)
    monkeypatch.setattr(imperative, "_calls", {})
    monkeypatch.setenv("GLUONJIT_PLAIN", "native")
    noted = []
    compute = tiering.TieredOperator.compute

    def noting(self, *args):
        noted.append(self.name)
        return compute(self, *args)

    monkeypatch.setattr(tiering.TieredOperator, "compute", noting)
    return noted


def by_numpy(monkeypatch, run):
    with monkeypatch.context() as m:
        m.setattr(imperative, "SMALL", 1 << 60)
        return run()


def convolution(x, w):
    return nd.Convolution(x, w, kernel=(3, 3), num_filter=8, no_bias=True)


def saved(name, shapes, packs=True, **attrs):
    op = registry.get(name)
    types = [tiering.type_of(np.empty(shape, np.float32)) for shape in shapes]
    return tiering.saving(op.expansion(types, op.parse(attrs), True), packs)


def test_convolutions_pay_and_small_or_single_steps_do_not():
    kernel = {"kernel": (3, 3), "num_filter": 64, "no_bias": True}
    assert saved("Convolution", [(8, 64, 28, 28), (64, 64, 3, 3)], **kernel) > 1e6
    assert saved("Convolution", [(1, 4, 5, 5), (64, 4, 3, 3)], **kernel) < 0
    assert saved("elemwise_add", [(8, 8), (8, 8)]) < 0
    assert saved("reshape", [(1000, 1000)], shape=(-1,)) < 0
    assert saved("softmax", [(1000, 1000)]) > 0


def test_packing_counts_where_weights_change():
    shapes, attrs = [(4, 2048), (2048, 2048)], {"num_hidden": 2048, "no_bias": True}
    assert saved("FullyConnected", shapes, packs=True, **attrs) < saved("FullyConnected", shapes, packs=False, **attrs)


def test_code_is_made_when_calls_would_have_gained_as_much_as_it_costs(monkeypatch):
    made = []
    monkeypatch.setattr(tiering.late, "compile_graph", lambda graph, options: made.append(graph) or graph)
    op, types = registry.get("tanh"), [tiering.type_of(np.empty((300, 300), np.float32))]
    graph = op.expansion(types, {}, False)
    tier = tiering.Tiered(lambda: graph, lambda: graph)
    calls = int(tiering.BUDGET / tiering.saving(graph, True))
    assert calls > 3 and [tier.native() for _ in range(calls)] == [None] * calls
    assert tier.native() is tier.native() and len(made) == 1


def test_results_and_gradients(calls, monkeypatch):
    def run():
        x, w = nd.array(IMAGES), nd.array(WEIGHT)
        x.attach_grad()
        w.attach_grad()
        with autograd.record():
            y = convolution(x, w)
            loss = (nd.Pooling(y, kernel=(2, 2), stride=(2, 2)) ** 2).sum()
        loss.backward()
        return [a.asnumpy() for a in (y, loss, x.grad, w.grad)]

    expected = by_numpy(monkeypatch, run)
    assert not calls
    for a, b in zip(run(), expected):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())
    assert {"Convolution", "Pooling", "sum"} <= {*calls}


def test_random_numbers_are_those_of_numpy(calls, monkeypatch):
    def run():
        mx.random.seed(3)
        x = nd.ones((7, 30))
        x.attach_grad()
        with autograd.record():
            y = nd.Dropout(x, p=0.4)
        y.backward()
        with autograd.train_mode():
            return y.asnumpy(), x.grad.asnumpy(), nd.Dropout(x, p=0.4).asnumpy()

    for a, b in zip(by_numpy(monkeypatch, run), run()):
        np.testing.assert_array_equal(a, b)
    assert calls == ["Dropout", "Dropout"]


def test_statistics_are_updated(calls, monkeypatch):
    def run():
        net = mx.gluon.nn.BatchNorm(in_channels=4)
        net.initialize()
        with autograd.record():
            y = net(nd.array(IMAGES))
        y.backward()
        return y.asnumpy(), net.running_mean.data().asnumpy(), net.running_var.data().asnumpy()

    for a, b in zip(by_numpy(monkeypatch, run), run()):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert "BatchNorm" in calls


def test_weights_that_were_prepared_are_seen_to_change(calls):
    x, w = nd.array(IMAGES), nd.array(WEIGHT)

    def check(w):
        windows, filters = IMAGES[:, :, :3, :3].reshape(2, -1), w.asnumpy().reshape(8, -1)
        first = windows.astype(np.float64) @ filters.T.astype(np.float64)
        for _ in range(3):
            np.testing.assert_allclose(convolution(x, w).asnumpy()[:, :, 0, 0], first, atol=1e-5)

    check(w)
    w[:] = w * 2
    check(w)
    w[3:5][:] = 1  # through a view
    check(w)
    both = nd.stack(w, -w)
    for _ in range(2):  # two weights in one storage
        check(both[0])
        check(both[1])


def test_what_was_prepared_ends_with_the_weight(calls):
    x, w = nd.array(IMAGES), nd.array(WEIGHT)
    for _ in range(3):
        convolution(x, w)
    (call,) = imperative._calls[registry.get("Convolution")].values()
    (forms,) = call.tiers._known.values()
    (seen,) = forms.seen.values()
    code = weakref.ref(seen.code)
    assert seen.code.prepared
    del seen, w
    gc.collect()
    assert code() is None and not forms.seen


def test_errors_are_those_of_plain_calls(calls):
    with pytest.raises(mx.MXNetError, match=r"Error in operator Convolution\(f32\[2,4,9,9\], f32\[8,3,3,3\]\)"):
        convolution(nd.array(IMAGES), nd.ones((8, 3, 3, 3)))
    with pytest.raises(mx.MXNetError, match="out of bound"):
        nd.take(nd.ones((3, 2)), nd.array([5]), mode="raise").asnumpy()
    assert not calls
