"""Blocks whose arguments change shape: one compile serves every size, and what cannot be open is explained."""

from __future__ import annotations

import signal
import warnings
from functools import partial

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.codegen.entry import Field
from gluonjit.codes import open_shapes
from gluonjit.codes.open_shapes import checked, declared_open, opened
from gluonjit.execution import block_compiler
from gluonjit.execution.block_compiler import BlockCompiler
from gluonjit.execution.session import Session
from gluonjit.gluon import HybridBlock, nn
from gluonjit.ir.dims import Undecided
from gluonjit.ir.types import IRError, tensor
from gluonjit.runtime import build
from gluonjit.runtime.arenas import ARENAS
from gluonjit.runtime.fast_call import give_back_arena


def _dense():
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu", in_units=5), nn.LayerNorm(in_channels=8), nn.Dense(3, in_units=8))
    net.initialize()
    return net


def _data(*shape):
    return mx.nd.array(np.random.default_rng(shape).uniform(-1, 1, shape))


def _closed(net):
    """Why calls are no longer tried with open dimensions."""
    return net._jit_cached.store.closed


def _sessions(net):
    return len({id(c.session) for c in net._jit_cached.store.entries})


def _plainly(net, *arguments):
    """What the block gives operator by operator, so that no layer inside of it is compiled."""
    hybridized = []
    net.apply(lambda block: hybridized.append(block) if block._active else None)
    for block in hybridized:
        block.__dict__["_active"] = False
    try:
        return net._run_as_python(*arguments)
    finally:
        for block in hybridized:
            block.__dict__["_active"] = True


def _check(net, arrays):
    """Compares calls with what the block gives operator by operator."""
    for x in arrays:
        wanted = _plainly(net, *x)
        for _ in range(2):
            np.testing.assert_allclose(net(*x).asnumpy(), wanted.asnumpy(), rtol=1e-4, atol=1e-5)


def test_the_second_size_opens_the_dimension():
    net = _dense()
    net.hybridize()
    _check(net, [(_data(n, 5),) for n in (16, 4, 7, 33, 2)])
    assert _sessions(net) == 2  # for 16, and for any
    _check(net, [(_data(1, 5),), (_data(16, 5),), (_data(64, 5),)])
    assert _sessions(net) == 2  # 1 is such a size


class TimeIsUp(Exception):
    pass


def test_a_time_limit_ends_an_attempt_to_open_dimensions(monkeypatch):
    # Its error is neither a fault of the compiler nor a reason why sizes could not be open.
    def limit(*_):
        raise TimeIsUp

    net = _dense()
    net.hybridize()
    net(_data(16, 5))
    before = signal.signal(signal.SIGUSR1, limit)
    try:
        with monkeypatch.context() as m, pytest.raises(TimeIsUp):
            m.setattr(BlockCompiler, "_compiled", lambda *_: signal.raise_signal(signal.SIGUSR1))
            net(_data(4, 5))
    finally:
        signal.signal(signal.SIGUSR1, before)
    _check(net, [(_data(n, 5),) for n in (4, 7)])
    assert _sessions(net) == 2


def test_declared_dimensions_are_open_at_once():
    net = _dense()
    net.hybridize(dynamic={"data": {0: "batch"}})
    _check(net, [(_data(n, 5),) for n in (16, 4, 7)])
    assert _sessions(net) == 1
    (code,) = net._jit_cached.store.open_entries
    assert str(code.session.graph.inputs[0].type) == "f32[batch,5]"


@pytest.mark.parametrize(
    ("run", "is_shared"),
    [
        (lambda F, x: F.squeeze(x) * 2, False),  # drops the axis
        (lambda F, x: x[-1:] * 2, False),  # is the whole array
        (lambda F, x: F.slice_axis(x, axis=0, begin=-1, end=None) * 2, False),  # is concluded to leave something out
        (lambda F, x: F.broadcast_add(x, F.ones((1, 5))), True),
    ],
)
def test_what_1_means(run, is_shared):
    """Sizes of 1 have code of their own where the program means something else for them."""
    net = _OneResult(run)
    net.hybridize()
    _check(net, [(_data(n, 5),) for n in (4, 7, 1, 3)])
    (code,) = net._jit_cached.store.open_entries
    (own,) = (c for c in net._jit_cached.store.entries if c.types[0].shape == (1, 5))
    assert (own.session is code.session) == is_shared


def test_kernels_of_one_image():
    """Winograd, direct, depthwise and planar convolutions, pooling, products of few rows."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(6, 3, padding=1, in_channels=1), nn.Conv2D(24, 3, strides=2, in_channels=6))
    net.add(nn.Conv2D(24, 3, padding=1, in_channels=24), nn.Conv2D(24, 3, padding=1, groups=24, in_channels=24))
    net.add(nn.Conv2D(40, 1, in_channels=24), nn.MaxPool2D(2, 2), nn.Flatten(), nn.Dense(20, in_units=1440))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    _check(net, [(_data(n, 1, 26, 26),) for n in (4, 3, 1, 2)])
    assert _sessions(net) == 2


def test_none_open():
    net = _dense()
    net.hybridize(dynamic=False)
    _check(net, [(_data(n, 5),) for n in (16, 4, 7)])
    assert _sessions(net) == 3


def test_two_dimensions_of_attention():
    class Attention(HybridBlock):
        def hybrid_forward(self, F, x, mask):
            scores = F.batch_dot(x, x, transpose_b=True) + F.expand_dims(mask, 1)
            return F.batch_dot(F.softmax(scores), x).mean(axis=1)

    net = Attention()
    net.hybridize()
    _check(net, [(_data(n, l, 6), _data(n, l)) for n, l in ((2, 7), (3, 9), (5, 5), (2, 16), (8, 33))])
    assert _sessions(net) == 2


def test_one_answer_whatever_came_before():
    x = _data(7, 5)
    nets = [_dense() for _ in range(2)]
    for a, b in zip(nets[0].collect_params().values(), nets[1].collect_params().values()):
        b.set_data(a.data())
    answers = []
    for net, sizes in zip(nets, ((4, 64), (33, 2))):
        net.hybridize()
        for n in sizes:
            net(_data(n, 5))
        answers.append(net(x).asnumpy())
    np.testing.assert_array_equal(*answers)


def test_a_program_that_reads_a_size_is_compiled_for_each():
    class Halves(HybridBlock):
        def hybrid_forward(self, F, x):
            return x[: x.shape[0] // 2] * 2

    net = Halves()
    net.hybridize()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _check(net, [(_data(n, 3),) for n in (4, 6, 8)])
    net.hybridize(dynamic={"data": {0: "batch"}})
    with pytest.warns(
        UserWarning, match=r"the program has read the shape of data: \(8, 3\), which is \(batch, 3\) now"
    ) as caught:
        _check(net, [(_data(8, 3),)])
    assert caught[0].filename == __file__ and "is compiled for each of their sizes" in str(caught[0].message)


def test_images_of_several_sizes_still_have_an_open_batch():
    class Cropped(HybridBlock):
        def hybrid_forward(self, F, x):
            return F.slice(x, begin=(None, None, None, 1), end=(None, None, None, 7))  # which a width might not have

    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, strides=2, in_channels=2), Cropped())
    net.add(nn.GlobalAvgPool2D(), nn.Dense(3, in_units=4))
    net.initialize()
    net.hybridize()
    _check(net, [(_data(2, 2, 8, 8),), (_data(3, 2, 9, 10),)])  # both sizes of an image, and the batch
    _check(net, [(_data(n, 2, 9, 10),) for n in (5, 7, 2)])
    assert _sessions(net) == 2 and not _closed(net)
    _check(net, [(_data(2, 2, 12, 8),), (_data(4, 2, 12, 8),)])
    assert _sessions(net) == 3


def _strided(**options):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, 2, 1, in_channels=2), nn.MaxPool2D(2, 2), nn.GlobalAvgPool2D())
    net.initialize()
    net.hybridize(**options)
    return net


def test_images_of_any_size_with_the_same_rest():
    """Strides divide multiples of a power of two: one code for all sizes that leave the same rest."""
    net = _strided()
    _check(net, [(_data(1, 2, 16, 16),), (_data(1, 2, 24, 24),)])
    types = [str(code.session.graph.inputs[0].type) for code in net._jit_cached.store.open_entries]
    assert types == ["f32[1,2,8*n,8*n]"]
    before = _sessions(net)
    _check(net, [(_data(1, 2, n, n),) for n in (40, 16, 64)])
    assert _sessions(net) == before and not _closed(net)
    _check(net, [(_data(1, 2, 24, 40),)])  # height and width differ for the first time
    _check(net, [(_data(1, 2, 26, 40),), (_data(1, 2, 64, 16),), (_data(1, 2, 34, 24),)])  # another rest
    assert len(net._jit_cached.store.open_entries) == 3


def test_a_pyramid_of_images_needs_few_codes():
    """The second rest is taken modulo the least power of two that will do, so that there are no more than four."""
    net = nn.HybridSequential()
    net.add(nn.MaxPool2D(2, 2), nn.Conv2D(3, 3, in_channels=2))
    net.initialize()
    net.hybridize()
    sizes = [
        (70, 71),
        (64, 60),
        (55, 53),
        (47, 44),
        (41, 38),
        (36, 31),
        (30, 29),
        (26, 24),
        (22, 20),
        (19, 17),
        (15, 16),
    ]
    _check(net, [(_data(1, 2, *size),) for size in sizes])
    assert _sessions(net) <= 6


def test_images_of_any_size_in_batches_of_any():
    net = _strided(dynamic={"data": {0: "batch", 2: "8*h", 3: "8*w+3"}})
    _check(net, [(_data(n, 2, h, w),) for n, h, w in ((2, 16, 19), (3, 24, 35), (2, 40, 27), (5, 16, 67))])
    assert _sessions(net) == 1
    _check(net, [(_data(2, 2, 18, 19),), (_data(2, 2, 8, 19),), (_data(1, 2, 16, 19),)])  # not such sizes
    net = _strided(dynamic={"data": {2: "8*h", 3: "8*w"}})
    _check(net, [(_data(n, 2, h, w),) for n, h, w in ((1, 48, 32), (1, 16, 40), (2, 32, 56), (2, 64, 16))])
    assert _sessions(net) == 2  # for one image, and for two


def test_a_detector_of_batches_of_any_size():
    class Detector(HybridBlock):
        def __init__(self):
            super().__init__()
            self.classes, self.offsets = nn.Conv2D(9, 3, in_channels=2), nn.Conv2D(12, 3, in_channels=2)

        def hybrid_forward(self, F, x):
            y = self.classes(x)
            anchors = F.contrib.MultiBoxPrior(y, sizes=(0.3, 0.5), ratios=(1, 2))
            scores = F.reshape(F.flatten(F.transpose(y, (0, 2, 3, 1))), (0, -1, 3))
            chances = F.transpose(F.softmax(scores), (0, 2, 1))
            offsets = F.flatten(F.transpose(self.offsets(x), (0, 2, 3, 1)))
            found = F.contrib.MultiBoxDetection(chances, offsets, anchors, nms_topk=9)
            return F.contrib.box_nms(found, overlap_thresh=0.2, id_index=0, topk=5)

    net = Detector()
    net.initialize(mx.init.Normal(0.5))
    net.hybridize(dynamic={"data": {0: "batch"}})
    _check(net, [(_data(n, 2, 6, 5),) for n in (4, 3, 9, 2)])
    assert _sessions(net) == 1


def test_a_stride_needs_multiples():
    net = _strided(dynamic={"data": {2: "h"}})
    with pytest.warns(UserWarning, match=r"divided by 2 depends on h[\s\S]*declare a multiple .* as '32\*h'"):
        _check(net, [(_data(1, 2, 16, 16),)])
    for wrong in ("h*w", "h+1", "2*h+2", "-h", "2*h-1", "h*h"):
        with pytest.raises(
            ValueError, match="is not a dimension: give a name, such as .h., or a multiple of one and a rest"
        ):
            net.hybridize(dynamic={"data": {2: wrong}})


def test_a_size_that_cannot_be_open_does_not_stop_others():
    net = _strided()
    _check(net, [(_data(1, 2, n, n),) for n in (9, 5, 64, 96, 160)])  # 2*n+1 cannot be divided by 4
    (code,) = net._jit_cached.store.open_entries
    assert str(code.session.graph.inputs[0].type) == "f32[1,2,32*n,32*n]" and not _closed(net)


def test_a_program_that_is_never_open_is_soon_not_tried(monkeypatch):
    net, tried, new = _strided(), [], BlockCompiler._compiled

    def refuses(self, known, signature, *rest):
        if not all(t.is_static for t in signature.types):
            tried.extend([signature] * (self.block is net))
            raise Undecided("it depends")
        return new(self, known, signature, *rest)

    monkeypatch.setattr(BlockCompiler, "_compiled", refuses)
    monkeypatch.setattr(open_shapes, "MAX_FAILURES", 3)
    _check(net, [(_data(1, 2, n, n),) for n in (8, 9, 10, 11, 12)])
    assert len(tried) == 3 and _closed(net) == ["it depends"]


def test_gradients_of_images_of_any_size():
    net, plain = _strided(), _strided()
    plain.hybridize(False)
    for a, b in zip(net.collect_params().values(), plain.collect_params().values()):
        b.set_data(a.data())
    for size in (16, 24, 40, 24):
        found = []
        for block in (net, plain):
            x = mx.nd.array(np.random.default_rng(size).standard_normal((2, 2, size, 16)).astype(np.float32))
            x.attach_grad()
            with mx.autograd.record():
                y = (block(x) ** 2).sum()
            y.backward()
            found.append([x.grad.asnumpy(), *(p.grad().asnumpy() for p in block.collect_params(".*weight").values())])
        for a, b in zip(*found):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5 * max(1, np.abs(b).max()))


def test_a_write_to_a_weight_is_seen_by_open_code():
    net = _dense()
    net.hybridize()
    for n in (4, 7, 5):
        net(_data(n, 5))
    net[0].weight.set_data(net[0].weight.data() * 3)
    _check(net, [(_data(n, 5),) for n in (9, 7, 4)])


def test_recorded_calls_between():
    net = _dense()
    net.hybridize()
    for n in (4, 7, 5, 3):
        x = _data(n, 5)
        x.attach_grad()
        net(x)
        with mx.autograd.record():
            y = (net(x) ** 2).sum()
        y.backward()
        plain = x.grad.asnumpy().copy()
        with mx.autograd.record():
            y = (_plainly(net, x) ** 2).sum()
        y.backward()
        np.testing.assert_allclose(plain, x.grad.asnumpy(), rtol=1e-4, atol=1e-5)


def _trained(net, sizes):
    """The parameters after a step of each batch size."""
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for n in sizes:
        with mx.autograd.record():
            loss = (net(_data(n, 5)) ** 2).mean(axis=1)
        loss.backward()
        trainer.step(n)
    return [p.data().asnumpy() for p in net.collect_params().values()]


def test_a_size_of_1_that_is_recorded_has_gradients_of_its_own():
    nets = [_dense() for _ in range(2)]
    for a, b in zip(nets[0].collect_params().values(), nets[1].collect_params().values()):
        b.set_data(a.data())
    nets[0].hybridize()
    _check(nets[0], [(_data(n, 5),) for n in (16, 7, 1)])
    for found, wanted in zip(_trained(nets[0], (7, 1, 4, 1)), _trained(nets[1], (7, 1, 4, 1))):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    _check(nets[0], [(_data(n, 5),) for n in (1, 7)])


@pytest.mark.parametrize("wait", [True, False])
def test_a_size_of_1_that_comes_often_gets_code_of_its_own(monkeypatch, wait):
    monkeypatch.setattr(block_compiler, "CALLS_OF_1", 4)
    net = _dense()
    net.hybridize(wait=wait)
    one, many = _data(1, 5), [_data(n, 5) for n in (16, 7)]
    wanted = _plainly(net, one).asnumpy()
    for x in many:
        net(x)
        for thread in [c.session._compiling for c in net._jit_cached.store.entries if c.session._compiling]:
            thread.join()

    def session():
        np.testing.assert_allclose(net(one).asnumpy(), wanted, rtol=1e-4, atol=1e-5)
        own = next((c.own for c in net._jit_cached.store.entries if c.own), None)
        if own is not None and own.session._compiling is not None:
            own.session._compiling.join()
        return next(c.session for c in net._jit_cached.store.entries if c.types[0].shape == (1, 5))

    found = [session(), session()]
    with mx.autograd.record(train_mode=False):
        net(one)  # does not count
    found += [session() for _ in range(5)]
    assert [s.is_open for s in found] == [True] * (4 if wait else 5) + [False] * (3 if wait else 2)
    net(many[1])
    assert _sessions(net) == 3  # for 16, for any, and for 1


def test_gradients_of_every_size():
    nets = [_dense() for _ in range(2)]
    for a, b in zip(nets[0].collect_params().values(), nets[1].collect_params().values()):
        b.set_data(a.data())
    nets[0].hybridize()
    sizes = (16, 7, 9, 2, 16, 33)
    for found, wanted in zip(_trained(nets[0], sizes), _trained(nets[1], sizes)):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    (code,) = nets[0]._jit_cached.store.open_entries
    assert len(code.computation()._forwards) == 1 and not code.refused
    _check(nets[0], [(_data(n, 5),) for n in (7, 16)])  # not recorded: other code


class _OneResult(HybridBlock):
    def __init__(self, run):
        super().__init__()
        self.run = run

    def hybrid_forward(self, F, x):
        return self.run(F, x)


@pytest.mark.parametrize(
    ("run", "is_open"),
    [
        (lambda F, x: F.flatten(x), False),  # the gradient's only input has the extent m*n
        (lambda F, x: F.repeat(x, repeats=2), False),
        (lambda F, x: F.mean(x), False),
        (lambda F, x: F.concat(x, F.slice_axis(x, axis=1, begin=1, end=None), dim=1), True),
    ],
)
def test_gradients_that_only_see_the_shape_of_the_result(run, is_open):
    nets = [_OneResult(run) for _ in range(2)]
    nets[0].hybridize()
    for shape in ((4, 5, 4), (4, 2, 5), (4, 7, 3)):
        x, found = _data(*shape), []
        for net in nets:
            x.attach_grad()
            with mx.autograd.record():
                y = net(x)
            y.backward(mx.nd.arange(y.size).reshape(y.shape))
            found.append(x.grad.asnumpy())
        np.testing.assert_allclose(*found, rtol=1e-6)
    (code,) = nets[0]._jit_cached.store.open_entries
    assert bool(code.refused) != is_open


def test_what_only_gradients_have_open(monkeypatch):
    """A recorded call has made the dimensions open; the code of a plain call cannot be."""
    net = _dense()
    net.hybridize()
    for n in (4, 7):
        with mx.autograd.record(train_mode=False):
            net(_data(n, 5))
    assert len(net._jit_cached.store.open_entries) == 1
    callee = Session.callee.fget

    def refuses(self):
        if self.is_open:
            raise Undecided("whether n < 3 depends on n")
        return callee(self)

    monkeypatch.setattr(Session, "callee", property(refuses))
    _check(net, [(_data(n, 5),) for n in (7, 9)])
    assert not net._jit_cached.store.open_entries and _closed(net) == ["whether n < 3 depends on n"]


def test_gradients_of_gradients_and_anomalies():
    net = _dense()
    net.hybridize()
    for n in (4, 7, 5):
        x = _data(n, 5)
        grads = []
        for run in (net, partial(_plainly, net)):
            x.attach_grad()
            with mx.autograd.record():
                y = (run(x) ** 2).sum()
                (first,) = mx.autograd.grad(y, [x], create_graph=True)
                (first**2).sum().backward()
            grads.append(x.grad.asnumpy().copy())
        np.testing.assert_allclose(*grads, rtol=1e-3, atol=1e-4)
    with mx.autograd.detect_anomaly(), mx.autograd.record():
        y = net(_data(6, 5))
        y.backward()


def test_which_dimensions_have_changed():
    def types(*shapes):
        return [tensor("f32", *shape) for shape in shapes]

    first = types((4, 5), (4,), (3, 4))
    assert opened([], first) is None
    assert list(map(str, opened([first], types((6, 5), (6,), (3, 6))))) == ["f32[n,5]", "f32[n]", "f32[3,n]"]
    assert list(map(str, opened([first], types((6, 8), (6,), (3, 4))))) == ["f32[n,m]", "f32[n]", "f32[3,4]"]
    assert opened([first], types((1, 5), (1,), (3, 1))) is None
    assert list(map(str, opened([first], types((1, 8), (1,), (3, 1))))) == ["f32[1,n]", "f32[1]", "f32[3,1]"]
    found = opened([first], types((1, 77), (1,), (3, 1)), "steps", (32, 0))
    assert list(map(str, found)) == ["f32[1,32*n+13]", "f32[1]", "f32[3,1]"]
    assert list(map(str, opened([first], types((6, 8), (6,), (3, 4)), "batch"))) == ["f32[n,8]", "f32[n]", "f32[3,4]"]
    history = [first, types((6, 6), (6,), (3, 6))]  # 4 to 6 and 5 to 6
    assert list(map(str, opened(history, types((7, 9), (7,), (3, 7))))) == ["f32[n,m]", "f32[n]", "f32[3,n]"]


def test_a_batch_of_one_has_open_lengths():
    """A size that needs a graph of its own does not keep the others from being open."""
    net = nn.HybridSequential()
    net.add(nn.Dense(8, flatten=False, in_units=5), nn.LayerNorm(in_channels=8))
    net.initialize()
    inputs = [(_data(n, l, 5),) for n, l in ((3, 4), (1, 9), (2, 7), (1, 5), (1, 6), (4, 1), (5, 1))]
    for counts in ((3, 1), (4, 3)):
        for dynamic, count in zip((None, {"data": {0: "batch", 1: "length"}}), counts):
            net.hybridize(dynamic=dynamic)
            _check(net, inputs)
            assert _sessions(net) == count
        net.add(_OneResult(lambda F, x: F.broadcast_sub(x, F.slice_axis(x, axis=1, begin=-1, end=None))))


def test_a_declared_name_is_one_size():
    x, y = tensor("f32", 1, 7), tensor("f32", 5, 7)
    axes = {0: "n", 1: "l"}
    for pair, texts in (((x, y), None), ((x, x), ["f32[1,l]"] * 2), ((y, y), ["f32[n,l]"] * 2)):
        found = declared_open({"a": axes, "b": axes}, ["a", "b"], pair)
        assert (found and list(map(str, found))) == texts


def test_nothing_is_tried_for_what_is_closed():
    """Blocks and executors ask alike: after so many failures, not even the first of the candidates is given."""
    tried = open_shapes.Openings()
    tried.history.append([tensor("f32", 4, 5)])
    for n in range(6, 6 + open_shapes.MAX_FAILURES):
        assert tried.closed is None
        for candidate in tried.candidates([tensor("f32", n, n)]):
            tried.failed((*candidate, tensor("f32", n)), "it depends")
            break
    assert tried.closed == "it depends" and not list(tried.candidates([tensor("f32", 50, 51)]))


def test_small_sizes_that_cannot_be_open():
    """None is a power of two times a name and a rest."""
    rows = [[tensor("f32", 4, 5)], [tensor("f32", 4, 3)]]
    assert opened(rows[:1], rows[1], "steps", (2, 0)) is None
    net = _OneResult(lambda F, x: x[:, : x.shape[1] // 2])
    net.hybridize()
    _check(net, [(_data(4, n),) for n in (5, 3, 2, 6)])


def test_declarations_are_checked():
    for wrong in (True, "batch", {"data": 0}, {"data": {"0": "n"}}, {"data": {0: 1}}, {0: {0: "n"}}):
        with pytest.raises(ValueError, match="dynamic is"):
            checked(wrong)
    with pytest.raises(IRError, match="'Batch' cannot name a dimension"):
        checked({"data": {0: "Batch"}})
    assert checked({"data": [-1], "Data": [0], "3.x": [1]}) == {
        "data": {-1: "data_last1"},
        "Data": {0: "data_1_0"},
        "3.x": {1: "x_1"},
    }
    assert checked({"data": [0]}) == {"data": {0: "data_0"}}
    net = _dense()
    net.hybridize(dynamic={"dat": {0: "n"}})
    with pytest.raises(ValueError, match="dynamic names the argument 'dat'; the arguments are data"):
        net(_data(2, 5))
    net.hybridize(dynamic={"data": {2: "n"}})
    with pytest.raises(ValueError, match="names axis 2 of 'data'"):
        net(_data(2, 5))
    net.hybridize(dynamic={"data": {0: "n", -2: "m"}})
    with pytest.raises(ValueError, match="names axis -2 of .data. twice"):
        net(_data(2, 5))
    assert declared_open({"a": {0: "n"}, "b": {0: "n"}}, ["a", "b"], [tensor("f32", 2), tensor("f32", 3)]) is None


def test_only_a_size_that_comes_twice_gets_an_arena_of_its_own():
    net = _dense()
    net.hybridize()
    net(_data(4, 5))
    assert net._fast_call is not None
    for n in (7, 9, 7):
        net(_data(n, 5))
        assert net._fast_call is None
    net(_data(7, 5))
    assert net._fast_call is not None
    free = len(ARENAS._free)
    net(_data(9, 5))  # gives back what the latest call had, and takes it
    assert len(ARENAS._free) == free + 1


def test_an_arena_in_use_is_not_given_back():
    net = _dense()
    net.hybridize()
    net(_data(4, 5))
    free = ARENAS._free
    fast = net._fast_call
    in_use = len(free)
    arena, fast.__self__[Field.ARENA] = int(fast.__self__[Field.ARENA]), 0  # as during a call
    give_back_arena(fast)
    assert len(free) == in_use
    fast.__self__[Field.ARENA] = arena
    for _ in range(2):
        give_back_arena(fast)
        assert len(free) == in_use + 1 and arena in [a.ctypes.data for a in free.values()]


def test_code_serves_dimensions_of_any_name(object_cache, monkeypatch):
    made = []
    real = build.compiled
    monkeypatch.setattr(build, "compiled", lambda graph, *rest: made.append(graph) or real(graph, *rest))
    wanted = []
    for rows, columns in (("batch", "length"), ("n", "m"), ("m", "n")):
        net = nn.HybridLambda(lambda F, x: F.softmax(x, axis=1) * 2)
        wanted.append(net(_data(3, 7)).asnumpy())
        net.hybridize(dynamic={"data": {0: rows, 1: columns}})
        np.testing.assert_allclose(net(_data(3, 7)).asnumpy(), wanted[0], rtol=1e-5)
        assert _sessions(net) == 1 and str(net._jit_cached.store.open_entries[0].session.graph.inputs[0].type) == (
            f"f32[{rows},{columns}]"
        )
    assert [str(graph.inputs[0].type) for graph in made] == ["f32[n,m]"]


def test_products_of_doubles_with_an_open_number_of_terms():
    class Net(HybridBlock):
        def hybrid_forward(self, F, a, b):
            return F.dot(F.reshape(a, (0, -1)), F.reshape(b, (0, -1)), transpose_b=True)

    net = Net()
    net.hybridize(dynamic={"data0": {1: "t"}, "data1": {1: "t"}})
    for t in (2, 3, 40):
        a, b = _data(13, t, 8).astype("float64"), _data(8, t, 8).astype("float64")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = net(a, b).asnumpy()
        np.testing.assert_allclose(found, a.asnumpy().reshape(13, -1) @ b.asnumpy().reshape(8, -1).T, rtol=1e-13)
