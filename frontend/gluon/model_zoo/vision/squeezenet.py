"""SqueezeNet (Iandola et al. 2016), versions 1.0 and 1.1."""

from __future__ import annotations

from typing import Any

from gluonjit.gluon import nn
from gluonjit.gluon.contrib.nn import HybridConcurrent
from gluonjit.gluon.model_zoo.model_store import ROOT, load_pretrained
from gluonjit.gluon.model_zoo.vision.parts import CPU, Classifier, sequence, variant

__all__ = ["SqueezeNet", "squeezenet1_0", "squeezenet1_1"]


def _conv(channels: int, kernel_size: int, padding: int = 0) -> nn.HybridSequential:
    return sequence(nn.Conv2D(channels, kernel_size, padding=padding), nn.Activation("relu"))


def _fire(squeeze: int, expand: int) -> nn.HybridSequential:
    """A 1 x 1 convolution to `squeeze` channels, then a 1 x 1 and a 3 x 3 one, each to `expand` channels."""
    narrow = _conv(squeeze, 1)
    paths = HybridConcurrent(axis=1, prefix="")
    paths.add(_conv(expand, 1), _conv(expand, 3, 1))
    return sequence(narrow, paths)


_POOL = "pool"
_SPECS: dict[str, tuple[tuple[int, int], tuple[Any, ...]]] = {
    "1.0": ((96, 7), (_POOL, 16, 16, 32, _POOL, 32, 48, 48, 64, _POOL, 64)),
    "1.1": ((64, 3), (_POOL, 16, 16, _POOL, 32, 32, _POOL, 48, 48, 64, 64)),
}
"""By version: channels and kernel of the first convolution, then poolings and the squeezed channels of fire modules."""


class SqueezeNet(Classifier):
    """A chain of fire modules, which squeeze the channels and then expand them by a factor of four."""

    def __init__(self, version: str, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if version not in _SPECS:
            raise AssertionError(f"Unsupported SqueezeNet version {version}:1.0 or 1.1 expected")
        (channels, kernel_size), rest = _SPECS[version]
        with self.name_scope():
            self.features = sequence(nn.Conv2D(channels, kernel_size, strides=2), nn.Activation("relu"))
            for item in rest:
                if item == _POOL:
                    self.features.add(nn.MaxPool2D(pool_size=3, strides=2, ceil_mode=True))
                else:
                    self.features.add(_fire(item, 4 * item))
            self.features.add(nn.Dropout(0.5))
            self.output = sequence(
                nn.Conv2D(classes, kernel_size=1), nn.Activation("relu"), nn.AvgPool2D(13), nn.Flatten()
            )


def get_squeezenet(
    version: str, pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any
) -> SqueezeNet:
    """SqueezeNet '1.0' or '1.1'. `pretrained` loads the published weights from folder `root` to `ctx`."""
    net = SqueezeNet(version, **kwargs)
    if pretrained:
        load_pretrained(net, f"squeezenet{version}", ctx, root)
    return net


squeezenet1_0 = variant("squeezenet1_0", get_squeezenet, "1.0")
squeezenet1_1 = variant("squeezenet1_1", get_squeezenet, "1.1")
