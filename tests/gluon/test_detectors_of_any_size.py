"""Detectors whose images change size, against plain calls: anchors, grids, resizing and averages of open sizes."""

from __future__ import annotations

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.base import MXNetError
from gluonjit.gluon import HybridBlock, nn


def _down(*channels):
    net = nn.HybridSequential()
    for c in channels:
        net.add(nn.Conv2D(c, 3, strides=2, padding=1), nn.LeakyReLU(0.1))
    return net


class Grid(HybridBlock):
    """Two scales, like YOLO: cells add their place, which is cut from a table, and the deep scale is enlarged."""

    def __init__(self, cells):
        super().__init__()
        places = np.stack(np.meshgrid(np.arange(cells), np.arange(cells)), -1)[None, None]
        with self.name_scope():
            self.first, self.second = _down(4, 8), _down(8)
            self.heads = nn.HybridSequential()
            self.heads.add(nn.Conv2D(2 * 5, 1), nn.Conv2D(2 * 5, 1))
            self.offsets = self.params.get_constant("offsets", places.astype(np.float32))

    def _boxes(self, F, y, offsets, step):
        cells = F.expand_dims(F.slice(y, begin=(0, 0), end=(1, 1)), axis=-1)
        offset = F.slice_like(offsets, cells * 0, axes=(2, 3)).reshape((1, -1, 1, 2))
        y = y.reshape((0, 2, 5, -1)).transpose((0, 3, 1, 2))
        center = F.broadcast_add(y.slice_axis(axis=-1, begin=0, end=2).sigmoid(), offset) * step
        half = F.exp(y.slice_axis(axis=-1, begin=2, end=4)) * step
        score = y.slice_axis(axis=-1, begin=4, end=None).sigmoid()
        return F.concat(score, center - half, center + half, dim=-1).reshape((0, -1, 5))

    def hybrid_forward(self, F, x, offsets):
        wide = self.first(x)
        deep = self.second(wide)
        large = F.slice_like(F.repeat(F.repeat(deep, axis=-1, repeats=2), axis=-2, repeats=2), wide * 0, axes=(2, 3))
        small = self._boxes(F, self.heads[0](deep), offsets, 8)
        boxes = F.concat(small, self._boxes(F, self.heads[1](large + wide), offsets, 4), dim=1)
        return F.contrib.box_nms(
            boxes, overlap_thresh=0.5, valid_thresh=0.3, topk=20, id_index=-1, score_index=0, coord_start=1
        )


class Anchors(HybridBlock):
    """Two scales, like SSD."""

    def __init__(self, **prior):
        super().__init__()
        self.prior = prior
        with self.name_scope():
            self.scales = nn.HybridSequential()
            self.scales.add(_down(4, 8), _down(8))
            self.classes, self.places = nn.HybridSequential(), nn.HybridSequential()
            for _ in range(2):
                self.classes.add(nn.Conv2D(3 * 4, 3, padding=1))
                self.places.add(nn.Conv2D(4 * 4, 3, padding=1))

    def hybrid_forward(self, F, x):
        anchors, classes, places = [], [], []
        for k, (scale, size) in enumerate(zip(self.scales, (0.2, 0.4))):
            x = scale(x)
            anchors.append(F.contrib.MultiBoxPrior(x, sizes=(size, size * 1.3), ratios=(1, 2, 0.5), **self.prior))
            classes.append(self.classes[k](x).transpose((0, 2, 3, 1)).reshape((0, -1, 3)))
            places.append(F.flatten(self.places[k](x).transpose((0, 2, 3, 1))))
        probability = F.softmax(F.concat(*classes, dim=1)).transpose((0, 2, 1))
        return F.contrib.MultiBoxDetection(
            probability, F.concat(*places, dim=1), F.concat(*anchors, dim=1), nms_topk=30
        )


def _made(net):
    net.initialize(mx.init.Xavier())
    return net


def _image(*shape):
    return mx.nd.array(np.random.default_rng(shape).uniform(-1, 1, shape))


def _check_any_size(net, *shapes):
    """Against plain calls; returns how many codes serve these sizes."""
    images = [_image(*shape) for shape in shapes]
    wanted = [net(x).asnumpy() for x in images]
    net.hybridize(dynamic={"data": {2: "8*h", 3: "8*w"}})
    for x, y in zip(images, wanted):
        np.testing.assert_allclose(net(x).asnumpy(), y, rtol=1e-4, atol=1e-4)
    return len({id(c.session) for c in net._jit_cached.store.entries})


def test_anchors():
    net = _made(Anchors(clip=True, steps=(0.1, 0.125), offsets=(0.4, 0.6)))
    assert _check_any_size(net, (2, 3, 48, 32), (2, 3, 16, 40), (2, 3, 64, 16)) == 1


def test_a_grid_and_a_table_that_is_too_small():
    """An error of the call, as in plain calls: code for any size finds it when it runs."""
    net = _made(Grid(cells=16))
    assert _check_any_size(net, (2, 3, 48, 32), (2, 3, 16, 40), (2, 3, 64, 16)) == 1
    for call in (net._run_as_python, net):
        with pytest.raises(MXNetError, match="Slice axis 3 with size 18 exceeds limit of input with size 16"):
            call(_image(2, 3, 32, 72)).wait_to_read()
    assert net(_image(2, 3, 24, 16)).shape == (2, 2 * (3 * 2 + 6 * 4), 5)


def test_parts_of_a_table_have_gradients():
    """Each element's is the sum over the calls that read it."""

    class Cut(HybridBlock):
        def __init__(self):
            super().__init__()
            self.table = self.params.get("table", shape=(6, 7), init=mx.init.Uniform(1))

        def hybrid_forward(self, F, x, table):
            return F.slice_like(table, x) * x * x

    net = _made(Cut())
    net.hybridize(dynamic={"data": {0: "h", 1: "w"}})
    for shape in ((3, 4), (6, 7), (2, 5)):
        x = _image(*shape)
        x.attach_grad()
        with mx.autograd.record():
            y = net(x)
        y.backward()
        table, wanted = net.table.data().asnumpy(), np.zeros((6, 7), np.float32)
        wanted[: shape[0], : shape[1]] = x.asnumpy() ** 2
        np.testing.assert_allclose(net.table.grad().asnumpy(), wanted, rtol=1e-5)
        np.testing.assert_allclose(x.grad.asnumpy(), 2 * x.asnumpy() * table[: shape[0], : shape[1]], rtol=1e-5)


class _Layer(HybridBlock):
    def __init__(self, run):
        super().__init__()
        self.run = run

    def hybrid_forward(self, F, x):
        return self.run(F, x)


@pytest.mark.parametrize(
    "run",
    [
        lambda F, x: F.contrib.BilinearResize2D(x, scale_height=2, scale_width=3, mode="size"),
        lambda F, x: F.contrib.BilinearResize2D(x, height=5, width=1),
        lambda F, x: F.contrib.BilinearResize2D(x, height=7, width=16, align_corners=False),
        lambda F, x: F.contrib.BilinearResize2D(x, F.Pooling(x, kernel=(2, 2), stride=(2, 2)), mode="like"),
        lambda F, x: F.contrib.BilinearResize2D(
            F.slice(x, begin=(0, 0, 0, 0), end=(None, None, 3, 2)), x, mode="like", align_corners=False
        ),
        lambda F, x: F.Pooling(x, kernel=(3, 3), pad=(1, 1), pool_type="avg", count_include_pad=False),
        lambda F, x: F.Pooling(x, kernel=(3, 2), stride=(2, 2), pad=(1, 0), pool_type="avg", count_include_pad=False),
        lambda F, x: F.Pooling(x, kernel=(3, 3), stride=(2, 2), pool_type="avg", pooling_convention="full"),
    ],
    ids=["scaled", "to one column", "edges", "smaller", "larger", "average", "strided average", "full average"],
)
def test_layers_of_any_size(run):
    net = _Layer(run)
    net.hybridize(dynamic={"data": {0: "n", 2: "4*h", 3: "4*w"}})
    for shape in ((2, 3, 16, 8), (3, 3, 8, 20), (2, 3, 12, 12)):
        x = _image(*shape)
        np.testing.assert_allclose(net(x).asnumpy(), net._run_as_python(x).asnumpy(), rtol=1e-5, atol=1e-6)
    assert len({id(c.session) for c in net._jit_cached.store.entries}) == 1 == len(net._jit_cached.store.open_entries)
