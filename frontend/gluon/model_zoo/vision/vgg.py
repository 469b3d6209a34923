"""VGG (Simonyan and Zisserman 2014), with and without batch normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gluonjit.gluon import nn
from gluonjit.gluon.model_zoo.model_store import ROOT, load_pretrained
from gluonjit.gluon.model_zoo.vision.parts import CPU, Classifier, sequence, variant
from gluonjit.training.initializers import Xavier

__all__ = ["VGG", "get_vgg", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn"]


class VGG(Classifier):
    """Stages of layers[k] convolutions with filters[k] channels, each followed by pooling, then three dense layers."""

    def __init__(
        self,
        layers: Sequence[int],
        filters: Sequence[int],
        classes: int = 1000,
        batch_norm: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if len(layers) != len(filters):
            raise AssertionError(f"layers has {len(layers)} entries, filters {len(filters)}")
        with self.name_scope():
            self.features = sequence()
            for count, channels in zip(layers, filters):
                for _ in range(count):
                    self.features.add(_conv(channels))
                    if batch_norm:
                        self.features.add(nn.BatchNorm())
                    self.features.add(nn.Activation("relu"))
                self.features.add(nn.MaxPool2D(strides=2))
            for _ in range(2):
                self.features.add(_dense(4096, activation="relu"), nn.Dropout(rate=0.5))
            self.output = _dense(classes)


def _conv(channels: int) -> nn.Conv2D:
    init = Xavier(rnd_type="gaussian", factor_type="out", magnitude=2)
    return nn.Conv2D(channels, kernel_size=3, padding=1, weight_initializer=init, bias_initializer="zeros")


def _dense(units: int, activation: str | None = None) -> nn.Dense:
    return nn.Dense(units, activation=activation, weight_initializer="normal", bias_initializer="zeros")


_FILTERS = [64, 128, 256, 512, 512]
vgg_spec = {
    11: ([1, 1, 2, 2, 2], _FILTERS),
    13: ([2, 2, 2, 2, 2], _FILTERS),
    16: ([2, 2, 3, 3, 3], _FILTERS),
    19: ([2, 2, 4, 4, 4], _FILTERS),
}
"""By number of layers: `layers` and `filters` of `VGG`."""


def get_vgg(num_layers: int, pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any) -> VGG:
    """VGG of 11, 13, 16 or 19 layers. `pretrained` loads the published weights from folder `root` to `ctx`."""
    net = VGG(*vgg_spec[num_layers], **kwargs)
    if pretrained:
        load_pretrained(net, f"vgg{num_layers}{'_bn' if kwargs.get('batch_norm') else ''}", ctx, root)
    return net


vgg11 = variant("vgg11", get_vgg, 11)
vgg13 = variant("vgg13", get_vgg, 13)
vgg16 = variant("vgg16", get_vgg, 16)
vgg19 = variant("vgg19", get_vgg, 19)
vgg11_bn = variant("vgg11_bn", get_vgg, 11, batch_norm=True)
vgg13_bn = variant("vgg13_bn", get_vgg, 13, batch_norm=True)
vgg16_bn = variant("vgg16_bn", get_vgg, 16, batch_norm=True)
vgg19_bn = variant("vgg19_bn", get_vgg, 19, batch_norm=True)
