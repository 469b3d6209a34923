"""The nets that are measured, W1 to W14, as Gluon blocks with weights that are a function of their names.

net, inputs = make("W4")                      # an initialized block, and ndarrays to call it with
net, inputs = make("W3", batch=16, width=2)   # twice the channels, where the workload can be widened
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import gluonjit as mx
from benchmarks.weights import values
from gluonjit.gluon import HybridBlock, nn, rnn
from gluonjit.gluon.model_zoo import vision

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Workload:
    key: str
    title: str
    build: Callable[[int], HybridBlock]
    """From a factor for the number of channels to a block that is not initialized."""
    shapes: Callable[[int, int], list[Shape]]
    """From batch and that factor to the shapes of the inputs."""
    goal: tuple[float, float] | None
    """How many times faster than the best peer it should be, on 1 thread and on 2; None if nothing was agreed on."""
    batch: int = 1
    widens: bool = True
    gain: float = 2.0
    """Variance of weights times their fan-in: 2 keeps the variance through ReLU, 1 through what is linear about 0."""


def mlp(width: int) -> HybridBlock:
    net = nn.HybridSequential()
    net.add(nn.Dense(256 * width, activation="relu"), nn.Dense(128 * width, activation="relu"), nn.Dense(2))
    return net


def lenet(width: int) -> HybridBlock:
    net = nn.HybridSequential()
    for channels in (6 * width, 16 * width):
        net.add(nn.Conv2D(channels, 5, activation="relu"), nn.MaxPool2D(2, 2))
    net.add(nn.Dense(120, activation="relu"), nn.Dense(84, activation="relu"), nn.Dense(10))
    return net


def resnet18(width: int) -> HybridBlock:
    channels = [c * width for c in (64, 64, 128, 256, 512)]
    return vision.ResNetV1(vision.BasicBlockV1, [2, 2, 2, 2], channels)


def lstm(width: int) -> HybridBlock:
    net = nn.HybridSequential()
    net.add(rnn.LSTM(256 * width, input_size=256 * width))
    return net


class Encoder(HybridBlock):
    """One layer of BERT: self-attention and two dense layers, each added to its input and normalized."""

    def __init__(self, units: int, heads: int) -> None:
        super().__init__()
        self._split = (0, 0, heads, units // heads)
        self._scale = (units // heads) ** -0.5
        with self.name_scope():
            self.query = nn.Dense(units, flatten=False, in_units=units)
            self.key = nn.Dense(units, flatten=False, in_units=units)
            self.value = nn.Dense(units, flatten=False, in_units=units)
            self.proj = nn.Dense(units, flatten=False, in_units=units)
            self.norm1 = nn.LayerNorm(epsilon=1e-12, in_channels=units)
            self.ffn1 = nn.Dense(4 * units, flatten=False, in_units=units)
            self.gelu = nn.GELU()
            self.ffn2 = nn.Dense(units, flatten=False, in_units=4 * units)
            self.norm2 = nn.LayerNorm(epsilon=1e-12, in_channels=units)

    def hybrid_forward(self, F, x):
        def heads(t):  # (batch, heads, length, units of one head)
            return t.reshape(self._split).transpose((0, 2, 1, 3))

        query, key, value = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        scores = F.softmax(F.linalg.gemm2(query, key, transpose_b=True) * self._scale, axis=-1)
        mixed = F.linalg.gemm2(scores, value).transpose((0, 2, 1, 3)).reshape((0, 0, -1))
        x = self.norm1(x + self.proj(mixed))
        return self.norm2(x + self.ffn2(self.gelu(self.ffn1(x))))


def elementwise(width: int) -> HybridBlock:
    return Elementwise()


def bert(width: int) -> HybridBlock:
    net = nn.HybridSequential()
    net.add(*(Encoder(768 * width, 12 * width) for _ in range(12)))
    return net


class Elementwise(HybridBlock):
    def hybrid_forward(self, F, a, b, c, d):
        return F.tanh(a * b + c) * F.sigmoid(d)


class Detector(HybridBlock):
    """An SSD for images of 300 x 300: MobileNet 1.0 cut after strides 16 and 32, four smaller scales after it.

    Returns probabilities (batch, classes + 1, anchors), offsets of boxes (batch, 4 anchors), anchors (1, anchors, 4):
    what MultiBoxDetection takes."""

    SIZES = ((0.1, 0.141), (0.2, 0.272), (0.37, 0.447), (0.54, 0.619), (0.71, 0.79), (0.88, 0.961))
    RATIOS = ((1, 2, 0.5), *((1, 2, 0.5, 3, 1 / 3),) * 3, *((1, 2, 0.5),) * 2)

    def __init__(self, classes: int = 20) -> None:
        super().__init__()
        self._rows = (0, -1, classes + 1)
        features = vision.mobilenet1_0().features
        with self.name_scope():
            self.stages, self.classes, self.offsets = (nn.HybridSequential() for _ in range(3))
            self.stages.add(features[:69], features[69:-2])  # without the classifier's pooling
            for channels in (512, 256, 256, 128):
                stage = nn.HybridSequential()
                for layer in (nn.Conv2D(channels // 2, 1), nn.Conv2D(channels, 3, strides=2, padding=1)):
                    stage.add(layer, nn.BatchNorm(), nn.Activation("relu"))
                self.stages.add(stage)
            for sizes, ratios in zip(self.SIZES, self.RATIOS):
                count = len(sizes) + len(ratios) - 1
                self.classes.add(nn.Conv2D(count * (classes + 1), 3, padding=1))
                self.offsets.add(nn.Conv2D(count * 4, 3, padding=1))

    def hybrid_forward(self, F, x):
        def row(y):  # the channels of a place are neighbours
            return F.flatten(F.transpose(y, axes=(0, 2, 3, 1)))

        classes, offsets, anchors = [], [], []
        for k, stage in enumerate(self.stages):
            x = stage(x)
            classes.append(row(self.classes[k](x)))
            offsets.append(row(self.offsets[k](x)))
            anchors.append(F.contrib.MultiBoxPrior(x, sizes=self.SIZES[k], ratios=self.RATIOS[k]))
        scores = F.reshape(F.concat(*classes, dim=1), shape=self._rows)
        chances = F.transpose(F.softmax(scores, axis=-1), axes=(0, 2, 1))
        return chances, F.concat(*offsets, dim=1), F.concat(*anchors, dim=1)


def detector(width: int) -> HybridBlock:
    return Detector()


def _zoo(name: str) -> Callable[[int], HybridBlock]:
    return lambda width: vision.get_model(name)


def _image(size: int) -> Callable[[int, int], list[Shape]]:
    return lambda batch, width: [(batch, 3, size, size)]


def _vector(batch: int, width: int) -> list[Shape]:
    return [(batch, 512 * width)]


def _sequence(batch: int, width: int) -> list[Shape]:
    return [(32, batch, 256 * width)]


def _words(batch: int, width: int) -> list[Shape]:
    return [(batch, 128, 768 * width)]


def _four_vectors(batch: int, width: int) -> list[Shape]:
    return [(batch, 2**20 * width)] * 4


WORKLOADS = {
    w.key: w
    for w in (
        Workload("W1", "MLP 512-256-128-2", mlp, _vector, (1.8, 1.4)),
        Workload("W1b", "MLP 512-256-128-2, batch 64", mlp, _vector, (1.0, 1.05), 64),
        Workload("W2", "LeNet, batch 16", lenet, lambda n, width: [(n, 1, 28, 28)], (1.6, 1.6), 16),
        Workload("W3", "ResNet-18 v1", resnet18, _image(224), (1.5, 1.5)),
        Workload("W4", "ResNet-50 v1", _zoo("resnet50_v1"), _image(224), (1.15, 1.15), widens=False),
        Workload("W5", "MobileNetV2 1.0", _zoo("mobilenetv2_1.0"), _image(224), (1.15, 1.15), widens=False),
        Workload("W6", "VGG-16", _zoo("vgg16"), _image(224), (1.4, 1.4), widens=False),
        Workload("W7", "DenseNet-121", _zoo("densenet121"), _image(224), (1.25, 1.25), widens=False),
        Workload("W8", "SqueezeNet 1.0", _zoo("squeezenet1.0"), _image(224), (1.2, 1.2), widens=False),
        Workload("W9", "Inception v3", _zoo("inceptionv3"), _image(299), (1.2, 1.2), widens=False),
        Workload("W10", "LSTM 256, 32 steps", lstm, _sequence, (1.15, 1.3), gain=1.0),
        Workload("W11", "BERT-base, length 128", bert, _words, (1.05, 1.05), gain=1.0),
        Workload("W12", "Elementwise, 4M floats", elementwise, _four_vectors, (1.2, 1.2), 4),
        Workload("W13", "ResNet-18 v1, batch 16", resnet18, _image(224), (1.5, 1.5), 16),
        Workload("W14", "SSD 300, MobileNet 1.0", detector, _image(300), None, widens=False),
    )
}


def make(key: str, batch: int | None = None, width: int = 1) -> tuple[HybridBlock, list[np.ndarray]]:
    """(the block, initialized, its shapes complete; inputs for it). Not hybridized."""
    workload = WORKLOADS[key]
    if width != 1 and not workload.widens:
        raise ValueError(f"{key} ({workload.title}) has no factor for its channels")
    net = workload.build(width)
    rng = np.random.RandomState(0)
    shapes = workload.shapes(batch or workload.batch, width)
    inputs = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    net.initialize()
    parameters = net._collect_params_with_prefix()
    if any(0 in p.shape for p in parameters.values()):
        net.infer_shape(*map(mx.nd.array, inputs))
    for name, parameter in parameters.items():
        parameter._finish_deferred_init()
        parameter.set_data(mx.nd.array(values(name, parameter.shape, workload.gain)))
    return net, inputs


def results(returned: Any) -> list[Any]:
    """The arrays (or symbols) that a net has returned."""
    return list(returned) if isinstance(returned, (list, tuple)) else [returned]
