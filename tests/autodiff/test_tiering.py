"""Plain calls that move to native code, and gradients that do."""

import gc
import math
import weakref

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, nd
from gluonjit.autodiff import tiering
from gluonjit.execution.backends import get_backend
from gluonjit.language import late
from gluonjit.ndarray import imperative
from gluonjit.operators import registry
from gluonjit.operators.registry import operator_graph

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


def compiled(monkeypatch, compile):
    """The graphs that plain calls compile from now on, with `compile`."""
    made = []
    monkeypatch.setattr(late.compile_graph, "_function", lambda graph, options: made.append(graph) or compile(graph))
    return made


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


def test_a_filter_of_its_own_for_each_channel_pays_for_each_tap():
    """NumPy takes a pass for each tap, and neither columns nor a product; one tap for all is a product."""
    kernel = {"kernel": (3, 3), "num_filter": 64, "no_bias": True}
    shapes = (8, 64, 28, 28), (64, 1, 3, 3)
    taps = 9 * 8 * 64 * 26 * 26
    assert 0.5 * taps < saved("Convolution", shapes, **kernel, num_group=64) < 2 * taps
    one = {"num_filter": 64, "no_bias": True}
    pointwise = saved("Convolution", [(8, 64, 28, 28), (64, 64, 1, 1)], **one, kernel=(1, 1))
    assert pointwise == pytest.approx(saved("dot", [(8 * 28 * 28, 64), (64, 64)]), rel=0.5)
    squeezed = [(64, 960, 1, 1), (240, 960, 1, 1)]
    assert saved("Convolution", squeezed, num_filter=240, no_bias=True, kernel=(1, 1)) == pytest.approx(
        saved("dot", [(64, 960), (960, 240)]), rel=0.5
    )
    strided = saved("Convolution", [(8, 64, 28, 28), (64, 64, 1, 1)], **one, kernel=(1, 1), stride=(2, 2))
    assert pointwise != strided > 0


def test_what_numpy_does_in_short_loops_or_one_by_one_counts():
    short, long = saved("sum", [(100000, 2)], axis=1), saved("sum", [(2, 100000)], axis=1)
    assert short > 4 * long and saved("sum", [(100000, 2)], axis=0) == pytest.approx(short, rel=0.01)
    assert saved("sum", [(100, 2000)], axis=0) < 1.1 * saved("sum", [(100, 2000)], axis=1)
    runs, elements = (saved("take", [(1000, n), (1000 // n, 100)]) for n in (100, 1))
    assert runs < elements / 4
    assert saved("_np_cumsum", [(1000, 100)], axis=0) > 5 * saved("sum", [(1000, 100)], axis=0)


def test_packing_counts_where_weights_change():
    shapes, attrs = [(4, 2048), (2048, 2048)], {"num_hidden": 2048, "no_bias": True}
    assert saved("FullyConnected", shapes, packs=True, **attrs) < saved("FullyConnected", shapes, packs=False, **attrs)


def test_code_is_made_when_calls_would_have_gained_as_much_as_it_costs(monkeypatch):
    made = compiled(monkeypatch, lambda graph: graph)
    op = registry.get("tanh")

    def tier(*shape):
        types = [tiering.type_of(np.empty(shape, np.float32))]
        return tiering.Tier(codes, types, lambda: op.expansion(types, {}, False))

    codes = tiering.Codes("tanh", lambda types: operator_graph(op, {}, types, False))
    first = tier(300, 300)
    calls = int(tiering.BUDGET / saved("tanh", [(300, 300)]))
    assert calls > 3 and [first.native() for _ in range(calls)] == [None] * calls
    assert first.native() is first.native() and len(made) == 1
    # Calls of other sizes add up, and share what is made then.
    others = [tier(301 + k % 7, 300) for k in range(calls + 1)]
    assert [x.native() is None for x in others[: calls // 2]] == [True] * (calls // 2)
    assert [x.native() for x in others][-1] is not None
    assert tier(1000, 300).native() is others[-1].native() and not made[1].inputs[0].type.is_static
    assert first.native() is not others[-1].native() and tier(2, 2).native() is None and len(made) == 2


def test_sizes_of_one_magnitude_are_judged_once():
    codes = tiering.Codes("tanh", lambda types: pytest.fail("compiled"))
    small, large = ((tiering.type_of(np.empty((n, 3), np.float32)),) for n in (100, 120))
    gain = codes.gain(small, lambda: 1e6 - tiering._CALL)
    assert gain == pytest.approx(1e6 - tiering._CALL)
    assert codes.gain(large, lambda: pytest.fail("judged")) == pytest.approx(1.2e6 - tiering._CALL)
    other = (tiering.type_of(np.empty((25, 12), np.float32)),)  # as many elements
    assert codes.gain(other, lambda: -tiering._CALL) == -tiering._CALL


def test_an_operator_that_never_repeats_is_compiled_ever_less(monkeypatch):
    made = compiled(monkeypatch, lambda graph: graph)
    monkeypatch.setattr(tiering, "_accounts", tiering.defaultdict(tiering.Account))
    op = registry.get("clip")
    types = [tiering.type_of(np.empty((300, 300), np.float32))]

    def tier(most):
        attrs = op.parse({"a_min": 0, "a_max": most})
        codes = tiering.Codes(op.name, lambda types: operator_graph(op, attrs, types, False))
        return tiering.Tier(codes, types, lambda: op.expansion(types, attrs, False))

    monkeypatch.setattr(tiering, "BUDGET", tier(0)._judged() * 1.5)
    tiers = [tier(k) for k in range(40)]
    assert all(x.native() is None for x in tiers)
    compiled_tiers = [x for x in tiers if x.native() is not None]
    assert len(compiled_tiers) == len(made) == tiering._UNPROVEN + 1
    account = tiering._accounts[op.name]
    failed = len(account.unproven) - len(made)
    for _ in range(2):
        for x in compiled_tiers:  # they do repeat; and another thread saw the same call of each
            x._code.owes = 1
            x.native()
    assert len(account.unproven) == failed == 0
    again = tier(50)
    assert again.native() is None and again.native() is not None


def test_types_whose_calls_pay_for_their_code_do_not_wait_for_others(monkeypatch):
    made = compiled(monkeypatch, lambda graph: graph)
    monkeypatch.setattr(tiering, "_accounts", tiering.defaultdict(tiering.Account))
    account = tiering._accounts["tanh"]
    account.unproven |= {object() for _ in range(tiering._UNPROVEN + 20)}
    op = registry.get("tanh")
    codes = tiering.Codes("tanh", lambda types: operator_graph(op, {}, types, False))
    types = [tiering.type_of(np.empty((300, 300), np.float32))]
    tier = tiering.Tier(codes, types, lambda: op.expansion(types, {}, False))
    calls = math.ceil(tiering.BUDGET / saved("tanh", [(300, 300)]))
    assert [tier.native() for _ in range(calls)] == [None] * calls and not made
    assert tier.native() is not None and len(made) == 1


def test_code_that_its_first_call_pays_for_is_no_reason_to_wait(monkeypatch):
    """Each of these is called once, and each call gains more than compiling costs."""
    made = compiled(monkeypatch, lambda graph: graph)
    monkeypatch.setattr(tiering, "_accounts", tiering.defaultdict(tiering.Account))
    types = [tiering.type_of(np.empty((300, 300), np.float32))]
    for most in range(20):
        attrs = registry.get("clip").parse({"a_min": 0, "a_max": most})
        graph = operator_graph(registry.get("clip"), attrs, types, False)
        tier = tiering.Tier(tiering.Codes("clip", lambda types, graph=graph: graph), types, lambda: None)
        tier._gain = tiering.BUDGET
        assert tier.native() is not None
    assert len(made) == 20 and not tiering._accounts["clip"].unproven


def test_gradients_of_several_sizes_share_code(calls, monkeypatch):
    made = compiled(monkeypatch, lambda graph: get_backend(None)(graph, {}))
    for n in (5, 6, 9, 12, 70):
        x = nd.array(np.linspace(-2, 2, 3 * n).reshape(3, n))
        x.attach_grad()
        with autograd.record():
            y = nd.softmax(x * x, axis=1, temperature=1.5)
        y.backward(x)
        e = np.exp((x.asnumpy().astype(np.float64) ** 2) / 1.5)
        s = e / e.sum(1, keepdims=True)
        g = x.asnumpy() * s - s * (x.asnumpy() * s).sum(1, keepdims=True)
        np.testing.assert_allclose(x.grad.asnumpy(), g / 1.5 * 2 * x.asnumpy(), atol=1e-5)
    names = [graph.name for graph in made]
    assert names.count("softmax") == names.count("softmax_backward") == 2


def test_gradients_whose_size_only_operands_tell(calls, monkeypatch):
    for n in (5, 6, 9, 12):
        x = nd.ones((0, n))
        x.attach_grad()
        with autograd.record():
            y = nd.sum(x)
        y.backward()
        assert x.grad.shape == (0, n)


def test_gradients_of_gradients_have_code_of_their_own(calls, monkeypatch):
    def run():
        x = nd.array(IMAGES[0, 0])
        x.attach_grad()
        with autograd.record():
            g = autograd.grad(nd.tanh(x) * 2, x, create_graph=True)[0]
            y = (g * g).sum()
        y.backward()
        return [a.asnumpy() for a in (g, x.grad)]

    for a, b in zip(run(), by_numpy(monkeypatch, run)):
        np.testing.assert_allclose(a, b, atol=1e-5)


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


MIXED = {
    "softmax": lambda x, w: nd.softmax(x, axis=-1),
    "tanh and product": lambda x, w: nd.broadcast_mul(nd.tanh(x), w),
    "sort": lambda x, w: nd.sort(x, axis=-1),
}


def mixed_calls():
    """Results and gradients of calls that differ in types, modes, memory and what is asked for."""
    rng, found = np.random.RandomState(0), []
    for step in range(40):
        name = list(MIXED)[rng.randint(len(MIXED))]
        dtype = ("float32", "float32", "float64")[rng.randint(3)]
        rows, columns = (0, 1, 2, 5)[rng.randint(4)], (3, 6)[rng.randint(2)]
        both = nd.array(rng.uniform(-1, 1, (2 * rows, columns)), dtype=dtype)
        views = both[:rows], both[rows:], both.reshape((rows, 2, columns))[:, 1], both[:rows].copy()
        x, w = views[rng.randint(4)], nd.array(rng.uniform(0.1, 1, columns), dtype=dtype)
        x.attach_grad(("write", "add", "null")[rng.randint(3)])
        w.attach_grad(("write", "add")[rng.randint(2)])
        with autograd.record() if rng.rand() < 0.5 else autograd.train_mode():
            y = MIXED[name](x, w)
            if autograd.is_recording():
                (y * y + w).sum().backward()
        if rng.rand() < 0.3 and not autograd.is_recording():
            y = nd.clip(y, -0.5, 0.5, out=y)
        found += [(f"{name}, step {step}", a.asnumpy()) for a in (y, x, x.grad, w.grad) if a is not None]
    return found


def test_native_code_takes_over_in_the_midst_of_other_calls(calls, monkeypatch):
    monkeypatch.delenv("GLUONJIT_PLAIN")
    expected = by_numpy(monkeypatch, mixed_calls)
    assert not calls
    monkeypatch.setattr(tiering, "saving", lambda graph, packs: tiering.BUDGET / 3)
    monkeypatch.setattr(tiering, "work", lambda graph: 1.0)
    monkeypatch.setattr(tiering, "_DIRECT", 2)
    for (what, a), (_, b) in zip(mixed_calls(), expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, what
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=what)
    assert len({*calls}) > 2


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
        for _ in range(tiering._STEADY + 2):
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
    for _ in range(tiering._STEADY + 2):
        convolution(x, w)
    (call,) = imperative._calls[registry.get("Convolution")].values()
    ((_, steady),) = call.tiers._tiers.entries
    ((_, copy),) = steady.native().copies.values()
    assert copy.prepared
    copy = weakref.ref(copy)
    assert len(call.tiers._ready) == 1
    del w
    gc.collect()
    assert copy() is None and not call.tiers._seen and not call.tiers._ready


def test_calls_with_weights_that_stay_look_at_no_versions(calls, monkeypatch):
    x, w, other = nd.array(IMAGES), nd.array(WEIGHT), nd.array(WEIGHT)
    for _ in range(tiering._STEADY + 2):
        before = convolution(x, w).asnumpy()
        convolution(x, other)
    (call,) = imperative._calls[registry.get("Convolution")].values()
    looked, steady = [], tiering.TieredOperator._steady
    monkeypatch.setattr(tiering.TieredOperator, "_steady", lambda *args: looked.append(args) or steady(*args))
    ready = call.tiers._ready[w.storage()]
    assert convolution(x, w).asnumpy().tobytes() == before.tobytes() and not looked
    other[:] = 0  # a write to any weight
    for _ in range(2):
        assert convolution(x, w).asnumpy().tobytes() == before.tobytes()
    assert len(looked) == 1 and call.tiers._ready[w.storage()] is ready
    w[:] = 0
    assert not convolution(x, w).asnumpy().any() and w.storage() not in call.tiers._ready


def test_weights_that_every_step_uses_twice_are_not_prepared(calls):
    x, w = nd.array(IMAGES), nd.array(WEIGHT)
    for _ in range(tiering._STEADY + 1):
        convolution(x, w)
        convolution(x, w)
        w[:] = w + 1
    (call,) = imperative._calls[registry.get("Convolution")].values()
    ((changing, steady),) = call.tiers._tiers.entries
    assert changing._code is not None and steady._code is None


def test_direct_calls_after_some_others(calls):
    arrays = [RNG.uniform(-1, 1, (3, 40)).astype(np.float32) for _ in range(2)]
    x, y = map(nd.array, arrays)
    for _ in range(tiering._DIRECT + 1):
        result = nd.broadcast_maximum(x, y)
    ((tier, _),) = next(iter(imperative._calls[registry.get("broadcast_maximum")].values())).tiers._tiers.entries
    direct = tier.direct._fast
    assert direct is not None
    before = mx.get_num_threads()
    mx.set_num_threads(before)  # direct calls know the number, so they are made anew
    assert direct(x, y) is None
    np.testing.assert_array_equal(nd.broadcast_maximum(x, y).asnumpy(), np.maximum(*arrays))
    assert result.asnumpy().tobytes() == nd.broadcast_maximum(x, y).asnumpy().tobytes()


def test_products_are_native_before_blas_wakes_threads():
    assert saved("dot", [(64, 64), (64, 64)]) > 0
    assert saved("dot", [(64, 63), (63, 64)]) < 0
    assert saved("dot", [(8, 1024), (1024, 1024)]) < 0, "packing takes longer than the product"


def test_errors_are_those_of_plain_calls(calls):
    with pytest.raises(mx.MXNetError, match=r"Error in operator Convolution\(f32\[2,4,9,9\], f32\[8,3,3,3\]\)"):
        convolution(nd.array(IMAGES), nd.ones((8, 3, 3, 3)))
    with pytest.raises(mx.MXNetError, match="out of bound"):
        nd.take(nd.ones((3, 2)), nd.array([5]), mode="raise").asnumpy()
    assert not calls


def test_channels_of_convolutions_are_not_open(monkeypatch, calls):
    """Kernels are made for channels; batches may be open."""
    made = compiled(monkeypatch, lambda graph: get_backend(None)(graph, {}))
    for batch, channels in ((2, 4), (3, 4), (2, 5), (2, 6)):
        x = nd.array(RNG.uniform(-1, 1, (batch, channels, 9, 9)))
        nd.Convolution(x, nd.ones((8, channels, 3, 3)), kernel=(3, 3), num_filter=8, no_bias=True)
    shapes = [[v.shape for v in graph.inputs] for graph in made]
    assert any(not isinstance(x[0], int) for x, _ in shapes)
    assert all(isinstance(x[1], int) for x, _ in shapes)


@pytest.mark.parametrize("untold", [0, 5])
def test_many_draws_of_few_numbers_are_compiled(monkeypatch, untold):
    """At the same call, whether the tiers hear of the first ones at once or later."""
    made = compiled(monkeypatch, lambda graph: get_backend("native")(graph, {}))
    monkeypatch.setattr(imperative, "_calls", {})
    monkeypatch.setattr(imperative, "_FEW_CALLS", untold)
    monkeypatch.setattr(tiering, "_accounts", tiering.defaultdict(tiering.Account))
    monkeypatch.setattr(tiering, "BUDGET", 12 * tiering._DRAW)

    def drawn():
        mx.random.seed(5)
        return [(nd.random.uniform(-1, 1, shape=(4, 3)).asnumpy(), len(made)) for _ in range(20)]

    found, counts = zip(*drawn())
    assert [graph.name for graph in made] == ["_random_uniform"] and counts.index(1) == 13
    np.testing.assert_allclose(found, [x for x, _ in by_numpy_alone(monkeypatch, drawn)], rtol=1e-6)
    assert len(np.unique(found)) == 240


def test_first_values_of_parameters_import_no_tiers(monkeypatch):
    """Nor are large uniform ones ever compiled: they are drawn by native code as they are."""
    monkeypatch.setattr(imperative, "_calls", {})
    monkeypatch.setattr(late.tiered_operator, "_function", None)
    monkeypatch.setattr(late.tiered_operator, "module", "nosuch")
    for draw in (nd.random.uniform, nd.random.normal):
        for shape in ((8, 4, 3, 3), (8, 4, 3, 3), (200, 300)):
            draw(0, 1, shape=shape)
    with pytest.raises(ImportError):
        nd.random.normal(0, 1, shape=(1 << 13, 1 << 10))
    nd.random.uniform(0, 1, shape=(1 << 13, 1 << 10))


def by_numpy_alone(monkeypatch, run):
    with monkeypatch.context() as m:
        m.setenv("GLUONJIT_PLAIN", "numpy")
        m.setattr(imperative, "_calls", {})
        return run()


def test_graphs_that_take_longer_to_compile_have_to_gain_more(monkeypatch):
    made = compiled(monkeypatch, lambda graph: graph)
    monkeypatch.setattr(tiering, "_accounts", tiering.defaultdict(tiering.Account))

    def calls(name, shapes, **attrs):
        op = registry.get(name)
        attrs, types = op.parse(attrs), [tiering.type_of(np.empty(shape, np.float32)) for shape in shapes]
        codes = tiering.Codes(name, lambda types: operator_graph(op, attrs, types, False))
        tier = tiering.Tier(codes, types, lambda: op.expansion(types, attrs, False))
        monkeypatch.setattr(codes, "gain", lambda types, judged: judged() and tiering.BUDGET / 4)
        count = next(k for k in range(1, 100) if tier.native() is not None)
        assert made.pop().name == name and tier._code.owes == tiering.BUDGET * (codes.work - 0.25)
        return count, codes.work

    assert calls("tanh", [(300, 300)]) == (4, 1.0)
    kernel = {"kernel": (3, 3), "num_filter": 64, "no_bias": True}
    few, least = calls("Convolution", [(8, 64, 28, 28), (64, 64, 3, 3)], **kernel)
    more, middle = calls("Deconvolution", [(8, 64, 28, 28), (64, 64, 3, 3)], **kernel, stride=(2, 2))
    assert few < more and least < middle
    rnn = {"mode": "lstm", "state_size": 32, "num_layers": 2, "state_outputs": True}
    size = 4 * 32 * (32 + 32 + 2) * 2
    many, most = calls("RNN", [(10, 64, 32), (size,), (2, 64, 32), (2, 64, 32)], **rnn)
    assert few < many and 1 < most and least < most
