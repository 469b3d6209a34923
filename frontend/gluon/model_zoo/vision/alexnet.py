"""AlexNet (Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks")."""

from __future__ import annotations

from typing import Any

from gluonjit.gluon import nn
from gluonjit.gluon.model_zoo.model_store import ROOT, load_pretrained
from gluonjit.gluon.model_zoo.vision.parts import CPU, Classifier, sequence

__all__ = ["AlexNet", "alexnet"]


class AlexNet(Classifier):
    """Five convolutions and three dense layers, for images of 224 x 224."""

    def __init__(self, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = sequence(
                nn.Conv2D(64, kernel_size=11, strides=4, padding=2, activation="relu"),
                nn.MaxPool2D(pool_size=3, strides=2),
                nn.Conv2D(192, kernel_size=5, padding=2, activation="relu"),
                nn.MaxPool2D(pool_size=3, strides=2),
                nn.Conv2D(384, kernel_size=3, padding=1, activation="relu"),
                nn.Conv2D(256, kernel_size=3, padding=1, activation="relu"),
                nn.Conv2D(256, kernel_size=3, padding=1, activation="relu"),
                nn.MaxPool2D(pool_size=3, strides=2),
                nn.Flatten(),
                nn.Dense(4096, activation="relu"),
                nn.Dropout(0.5),
                nn.Dense(4096, activation="relu"),
                nn.Dropout(0.5),
            )
            self.output = nn.Dense(classes)


def alexnet(pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any) -> AlexNet:
    """AlexNet. `pretrained` loads the published weights from folder `root` to `ctx`."""
    net = AlexNet(**kwargs)
    if pretrained:
        load_pretrained(net, "alexnet", ctx, root)
    return net
