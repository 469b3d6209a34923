"""The training steps that are measured, T1 to T12: what is computed, on which data, from which parameters.

MXNet's own process reads this module, too, so nothing here imports an engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

BATCHES = 4
"""Batches that are taken in turn, so that a loss curve is one of learning."""
WORDS = 10_000
"""The size of the vocabulary of language models, for both their inputs and their labels."""


@dataclass(frozen=True)
class Step:
    key: str
    title: str
    shape: tuple[int, ...]
    """Of one sample of the input."""
    classes: int
    batch: int
    small: int
    """The batch of `--small`."""
    gflop: float
    """What a step of `batch` samples computes: every product once, convolutions by their definition, and no gradient
    of the data."""
    optimizer: str
    settings: dict[str, float] = field(default_factory=dict)
    """Of the optimizer, by MXNet's names."""
    clip: float | None = None
    """The greatest norm of all gradients together."""
    gain: float = 2.0
    """See `weights.values`."""

    @property
    def is_of_words(self) -> bool:
        """Whether it trains a language model."""
        return self.classes == WORDS

    @property
    def is_adversarial(self) -> bool:
        """Whether it trains two networks, one of which makes images (`adversarial_nets`)."""
        return not self.classes

    @property
    def is_of_boxes(self) -> bool:
        """Whether it trains a network that finds objects: it gives scores and offsets of boxes (`_Detection`)."""
        return self.key == "T12"

    @property
    def labels(self) -> tuple[int, ...]:
        """The shape of a sample's label."""
        if self.is_of_boxes:
            return (BOXES, 5)
        return self.shape if self.is_of_words else ()


_IMAGES = {"learning_rate": 0.01, "momentum": 0.9, "wd": 1e-4}

STEPS = {
    s.key: s
    for s in (
        Step("T1", "MLP 784-128-64-10, SGD", (784,), 10, 64, 64, 0.029, "sgd", {"learning_rate": 0.1}),
        Step(
            "T2",
            "LeNet, momentum",
            (1, 28, 28),
            10,
            64,
            16,
            0.84,
            "sgd",
            {"learning_rate": 0.01, "momentum": 0.9},
        ),
        Step("T3", "ResNet-18 v1, 32x32, momentum, wd", (3, 32, 32), 10, 64, 16, 213, "sgd", _IMAGES),
        Step("T4", "ResNet-18 v1, 224x224, momentum, wd", (3, 224, 224), 1000, 16, 4, 170, "sgd", _IMAGES),
        Step("T5", "MobileNetV2 1.0, momentum, wd", (3, 224, 224), 1000, 16, 4, 29, "sgd", _IMAGES),
        Step(
            "T6",
            "LSTM 2x200, 35 words, clipped, SGD",
            (35,),
            WORDS,
            32,
            8,
            17.7,
            "sgd",
            {"learning_rate": 1.0},
            clip=0.25,
            gain=1.0,
        ),
        Step(
            "T7",
            "4 encoder layers, length 128, Adam",
            (128, 256),
            10,
            8,
            2,
            21,
            "adam",
            {"learning_rate": 1e-4},
            gain=1.0,
        ),
        Step("T8", "ResNet-50 v1, 224x224, momentum, wd", (3, 224, 224), 1000, 8, 2, 194, "sgd", _IMAGES),
        Step(
            "T9",
            "BERT-base encoder, length 128, Adam",
            (128, 768),
            10,
            4,
            1,
            266,
            "adam",
            {"learning_rate": 1e-5},
            gain=1.0,
        ),
        Step(
            "T10",
            "GRU 2x200, 35 words, clipped, SGD",
            (35,),
            WORDS,
            32,
            8,
            16.7,
            "sgd",
            {"learning_rate": 1.0},
            clip=0.25,
            gain=1.0,
        ),
        Step(
            "T11",
            "DCGAN 64x64, both networks, Adam",
            (3, 64, 64),
            0,
            64,
            8,
            158,
            "adam",
            {"learning_rate": 2e-4, "beta1": 0.5},
        ),
        Step("T12", "SSD 256x256, SGD, wd", (3, 256, 256), 1, 16, 4, 93, "sgd", {"learning_rate": 0.05, "wd": 5e-4}),
    )
}


def batches(step: Step, batch: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Inputs and labels. Those of language models are (words, batch), as `gluon.rnn` takes them by default."""
    rng = np.random.RandomState(0)
    found = []
    for _ in range(BATCHES):
        if step.is_of_words:
            x, y = (rng.randint(0, WORDS, (*step.shape, batch)) for _ in range(2))
        elif step.is_adversarial:  # pictures, and what others are made of
            x, y = rng.uniform(-1, 1, (batch, *step.shape)), rng.standard_normal((batch, NOISE, 1, 1))
        elif step.is_of_boxes:  # of each box, the class, 0 for most, and the four offsets
            x, y = rng.uniform(-1, 1, (batch, *step.shape)), rng.standard_normal((batch, *step.labels))
            y[..., 0] = rng.uniform(size=y.shape[:2]) < 0.05
        else:
            x, y = rng.uniform(-1, 1, (batch, *step.shape)), rng.randint(0, step.classes, batch)
        found.append((x.astype(np.float32), y.astype(np.float32)))
    return found


def gluon_net(mx: Any, step: Step) -> Any:
    """The net as a Gluon user writes it; `mx` is gluonjit or MXNet."""
    nn, vision = mx.gluon.nn, mx.gluon.model_zoo.vision
    if step.key in ("T3", "T4"):
        channels = [64, 64, 128, 256, 512]
        small = step.key == "T3"
        return vision.ResNetV1(vision.BasicBlockV1, [2, 2, 2, 2], channels, classes=step.classes, thumbnail=small)
    if step.key == "T5":
        return vision.mobilenet_v2_1_0(classes=step.classes)
    if step.key == "T8":
        return vision.ResNetV1(vision.BottleneckV1, [3, 4, 6, 3], [64, 256, 512, 1024, 2048], classes=step.classes)
    if step.is_of_boxes:
        return _detector(mx)
    if step.is_of_words:
        return _language_model(mx, "GRU" if step.key == "T10" else "LSTM")
    net = nn.HybridSequential()
    if step.key == "T1":
        net.add(nn.Dense(128, activation="relu"), nn.Dense(64, activation="relu"), nn.Dense(10))
    elif step.key == "T2":
        for channels in (20, 50):
            net.add(nn.Conv2D(channels, 5, activation="relu"), nn.MaxPool2D(2, 2))
        net.add(nn.Dense(500, activation="relu"), nn.Dense(10))
    else:
        layers, heads = ENCODERS[step.key]
        _encoder(mx, net, layers, step.shape[-1], heads)
    return net


ENCODERS = {"T7": (4, 4), "T9": (12, 12)}
"""Layers and heads of encoders."""


DETECTOR = (16, 32, 64), (128, 128, 128)
"""Channels of the blocks of T12, each of which halves the picture: up to the first that has boxes, and after it."""
BOXES = 4 * (32 * 32 + 16 * 16 + 8 * 8 + 4 * 4 + 1)
"""How many boxes T12 has for a picture, four for each pixel of five sizes."""


def gluon_loss(mx: Any, step: Step) -> Any:
    """The loss of the net's results and the labels, one for each sample."""
    if not step.is_of_boxes:
        return mx.gluon.loss.SoftmaxCrossEntropyLoss()

    class DetectionLoss(mx.gluon.HybridBlock):
        """The classes of boxes, and the offsets of those that are no background."""

        def __init__(self) -> None:
            super().__init__()
            self.of_classes, self.of_offsets = mx.gluon.loss.SoftmaxCrossEntropyLoss(), mx.gluon.loss.L1Loss()

        def hybrid_forward(self, F: Any, scores: Any, offsets: Any, y: Any) -> Any:
            classes, wanted = F.slice_axis(y, axis=2, begin=0, end=1), F.slice_axis(y, axis=2, begin=1, end=5)
            of_objects = self.of_offsets(F.broadcast_mul(offsets, classes), F.broadcast_mul(wanted, classes))
            return self.of_classes(scores, classes) + of_objects

    return DetectionLoss()


def _detector(mx: Any) -> Any:
    """A single-shot detector: of each of five sizes of feature maps, the scores of two classes, (batch, boxes, 2), and
    the offsets, (batch, boxes, 4), of four boxes a pixel."""
    nn = mx.gluon.nn

    def halved(channels: int) -> Any:
        block = nn.HybridSequential()
        for _ in range(2):
            block.add(nn.Conv2D(channels, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"))
        block.add(nn.MaxPool2D(2))
        return block

    class Detector(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            before, after = DETECTOR
            with self.name_scope():
                self.stages, self.scores, self.offsets = (nn.HybridSequential() for _ in range(3))
                self.stages.add(nn.HybridSequential())
                for channels in before:
                    self.stages[0].add(halved(channels))
                for channels in after:
                    self.stages.add(halved(channels))
                self.stages.add(nn.GlobalMaxPool2D())
                for _ in self.stages:
                    self.scores.add(nn.Conv2D(4 * 2, 3, padding=1))
                    self.offsets.add(nn.Conv2D(4 * 4, 3, padding=1))

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            def of_boxes(x: Any, numbers: int) -> Any:
                return x.transpose((0, 2, 3, 1)).reshape((0, -1, numbers))

            scores, offsets = [], []
            for stage, s, o in zip(self.stages, self.scores, self.offsets):
                x = stage(x)
                scores.append(of_boxes(s(x), 2))
                offsets.append(of_boxes(o(x), 4))
            return F.concat(*scores, dim=1), F.concat(*offsets, dim=1)

    return Detector()


NOISE = 100
"""The numbers that a picture of T11 is made of."""


def adversarial_nets(mx: Any) -> tuple[Any, Any]:
    """(generator, discriminator) of MXNet's example dc_gan, but that the latter gives one score."""
    nn = mx.gluon.nn
    generator, discriminator = nn.HybridSequential(prefix="generator_"), nn.HybridSequential(prefix="discriminator_")
    with generator.name_scope():
        for channels, stride, padding in ((512, 1, 0), (256, 2, 1), (128, 2, 1), (64, 2, 1)):
            generator.add(nn.Conv2DTranspose(channels, 4, stride, padding, use_bias=False))
            generator.add(nn.BatchNorm(), nn.Activation("relu"))
        generator.add(nn.Conv2DTranspose(3, 4, 2, 1, use_bias=False), nn.Activation("tanh"))
    with discriminator.name_scope():
        discriminator.add(nn.Conv2D(64, 4, 2, 1, use_bias=False), nn.LeakyReLU(0.2))
        for channels in (128, 256, 512):
            discriminator.add(nn.Conv2D(channels, 4, 2, 1, use_bias=False), nn.BatchNorm(), nn.LeakyReLU(0.2))
        discriminator.add(nn.Conv2D(1, 4, 1, 0, use_bias=False))
    return generator, discriminator


def _language_model(mx: Any, kind: str) -> Any:
    nn, rnn = mx.gluon.nn, mx.gluon.rnn

    class LanguageModel(mx.gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.embedding = nn.Embedding(WORDS, 200)
                self.recurrent = getattr(rnn, kind)(200, 2, input_size=200)
                self.decoder = nn.Dense(WORDS, flatten=False, in_units=200)

        def hybrid_forward(self, F: Any, words: Any) -> Any:
            return self.decoder(self.recurrent(self.embedding(words)))

    return LanguageModel()


def _encoder(mx: Any, net: Any, layers: int, units: int, heads: int) -> None:
    nn = mx.gluon.nn

    class Layer(mx.gluon.HybridBlock):
        """Self-attention and two dense layers, each added to its input and normalized."""

        def __init__(self, units: int, heads: int) -> None:
            super().__init__()
            self._heads, self._scale = heads, (units // heads) ** -0.5
            with self.name_scope():
                self.qkv = nn.Dense(3 * units, flatten=False, in_units=units)
                self.proj = nn.Dense(units, flatten=False, in_units=units)
                self.norm1 = nn.LayerNorm(in_channels=units)
                self.ffn1 = nn.Dense(4 * units, flatten=False, in_units=units)
                self.gelu = nn.GELU()
                self.ffn2 = nn.Dense(units, flatten=False, in_units=4 * units)
                self.norm2 = nn.LayerNorm(in_channels=units)

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            def heads(t: Any) -> Any:  # (batch * heads, length, units of one head)
                return t.reshape((0, 0, self._heads, -1)).transpose((0, 2, 1, 3)).reshape((-3, 0, 0))

            query, key, value = (heads(t) for t in F.split(self.qkv(x), 3, axis=2))
            weights = F.softmax(F.batch_dot(query, key, transpose_b=True) * self._scale)
            mixed = F.batch_dot(weights, value).reshape((-4, -1, self._heads, 0, 0)).transpose((0, 2, 1, 3))
            x = self.norm1(x + self.proj(mixed.reshape((0, 0, -3))))
            return self.norm2(x + self.ffn2(self.gelu(self.ffn1(x))))

    for _ in range(layers):
        net.add(Layer(units, heads))
    net.add(nn.HybridLambda(lambda F, x: F.mean(x, axis=1)), nn.Dense(10))
