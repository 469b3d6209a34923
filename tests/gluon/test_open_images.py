"""Whole networks, one code for images of any height and width."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.gluon import HybridBlock, nn
from gluonjit.gluon.model_zoo import vision
from gluonjit.runtime import compiler
from support.kernels import runnable_targets


class Segmenter(HybridBlock):
    """As in fully convolutional networks: what is found at a quarter of the size, enlarged, and finer features."""

    def __init__(self):
        super().__init__()
        self.down = nn.HybridSequential()
        for channels in (8, 16):
            self.down.add(
                nn.Conv2D(channels, 3, 2, 1, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.Conv2D(16, 3, 1, 1),
            )
        self.classes, self.finer = nn.Conv2D(5, 1), nn.Conv2D(5, 3, padding=1)
        self.up = nn.Conv2DTranspose(5, 8, strides=4, padding=2)

    def hybrid_forward(self, F, x):
        return F.log_softmax(self.up(self.classes(self.down(x))) + self.finer(x), axis=1)


class Detector(HybridBlock):
    """As in SSD: classes and boxes from feature maps of several sizes, joined."""

    def __init__(self):
        super().__init__()
        self.stages, self.classes, self.boxes = (nn.HybridSequential() for _ in range(3))
        for channels in (8, 16, 32):
            stage = nn.HybridSequential()
            stage.add(nn.Conv2D(channels, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D())
            self.stages.add(stage)
            self.classes.add(nn.Conv2D(4 * 3, 3, padding=1))
            self.boxes.add(nn.Conv2D(4 * 4, 3, padding=1))

    def hybrid_forward(self, F, x):
        classes, boxes = [], []
        for stage, c, b in zip(self.stages, self.classes, self.boxes):
            x = stage(x)
            classes.append(F.flatten(F.transpose(c(x), axes=(0, 2, 3, 1))))
            boxes.append(F.flatten(F.transpose(b(x), axes=(0, 2, 3, 1))))
        return F.softmax(F.reshape(F.concat(*classes, dim=1), (0, -1, 3))), F.concat(*boxes, dim=1)


def _mobilenet():
    """MobileNet 2 without the last ten of its seventeen bottlenecks."""
    layers = vision.mobilenet_v2_0_25().features
    net = nn.HybridSequential()
    net.add(*layers[:10], *layers[-4:], nn.Flatten(), nn.Dense(7))
    return net


NETS = {
    "segmenter": (Segmenter, 8),
    "detector": (Detector, 8),
    "mobilenet_v2_0_25": (_mobilenet, 32),
    # ResNet-18 with narrower stages from the third on, and the first stage alone of two blocks: the same layers.
    "resnet18": (lambda: vision.ResNetV1(vision.BasicBlockV1, [2, 1, 1, 1], [64, 64, 128, 144, 160], classes=7), 32),
}


@pytest.mark.parametrize("name", NETS)
def test_whole_networks(name, monkeypatch):
    machines = runnable_targets()
    machine = machines[list(NETS).index(name) % len(machines)]
    monkeypatch.setattr(compiler, "host_target", lambda: machine)
    make, step = NETS[name]
    net = make()
    net.initialize(mx.init.Xavier(magnitude=2.5))
    rng = np.random.default_rng(0)
    sizes = [(2, 2, 3), (3, 4, 2), (2, 3, 3), (5, 2, 5)]
    images = [mx.nd.array(rng.standard_normal((n, 3, step * h, step * w))) for n, h, w in sizes]
    wanted = [net(x) for x in images]
    net.hybridize(dynamic={"data": {0: "batch", 2: f"{step}*h", 3: f"{step}*w"}})
    for x, plain in zip(images, wanted, strict=True):
        found = net(x)
        pairs = zip(found, plain, strict=True) if isinstance(found, (list, tuple)) else [(found, plain)]
        for y, z in pairs:
            a, b = y.asnumpy(), z.asnumpy()
            assert a.shape == b.shape and abs(a - b).max() <= 1e-5 * abs(b).max()
    assert len({id(c.session) for c in net._jit_cached.store.entries}) == 1
