"""DenseNet (Huang et al. 2016, "Densely Connected Convolutional Networks")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gluonjit.gluon import nn
from gluonjit.gluon.block import HybridBlock
from gluonjit.gluon.contrib.nn import HybridConcurrent, Identity
from gluonjit.gluon.model_zoo.model_store import ROOT, load_pretrained
from gluonjit.gluon.model_zoo.vision.parts import CPU, Classifier, sequence, variant

__all__ = ["DenseNet", "densenet121", "densenet161", "densenet169", "densenet201"]


def _make_dense_block(
    num_layers: int, bn_size: int, growth_rate: int, dropout: float, stage_index: int
) -> nn.HybridSequential:
    out = nn.HybridSequential(prefix=f"stage{stage_index}_")
    with out.name_scope():
        out.add(*(_make_dense_layer(growth_rate, bn_size, dropout) for _ in range(num_layers)))
    return out


def _make_dense_layer(growth_rate: int, bn_size: int, dropout: float) -> HybridBlock:
    """A layer that appends `growth_rate` new channels to its input."""
    new = sequence(
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(bn_size * growth_rate, kernel_size=1, use_bias=False),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(growth_rate, kernel_size=3, padding=1, use_bias=False),
    )
    if dropout:
        new.add(nn.Dropout(dropout))
    out = HybridConcurrent(axis=1, prefix="")
    out.add(Identity(), new)
    return out


def _make_transition(num_output_features: int) -> nn.HybridSequential:
    return sequence(
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(num_output_features, kernel_size=1, use_bias=False),
        nn.AvgPool2D(pool_size=2, strides=2),
    )


class DenseNet(Classifier):
    """Blocks of `block_config` layers; a transition between two blocks halves channels and image size."""

    def __init__(
        self,
        num_init_features: int,
        growth_rate: int,
        block_config: Sequence[int],
        bn_size: int = 4,
        dropout: float = 0,
        classes: int = 1000,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = sequence(
                nn.Conv2D(num_init_features, kernel_size=7, strides=2, padding=3, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.MaxPool2D(pool_size=3, strides=2, padding=1),
            )
            channels = num_init_features
            for stage, num_layers in enumerate(block_config, 1):
                self.features.add(_make_dense_block(num_layers, bn_size, growth_rate, dropout, stage))
                channels += num_layers * growth_rate
                if stage != len(block_config):
                    channels //= 2
                    self.features.add(_make_transition(channels))
            self.features.add(nn.BatchNorm(), nn.Activation("relu"), nn.AvgPool2D(pool_size=7), nn.Flatten())
            self.output = nn.Dense(classes)


densenet_spec = {
    121: (64, 32, [6, 12, 24, 16]),
    161: (96, 48, [6, 12, 36, 24]),
    169: (64, 32, [6, 12, 32, 32]),
    201: (64, 32, [6, 12, 48, 32]),
}
"""By number of layers: first channels, growth rate, layers of each block."""


def get_densenet(
    num_layers: int, pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any
) -> DenseNet:
    """DenseNet of 121, 161, 169 or 201 layers. `pretrained` loads the published weights from folder `root` to `ctx`."""
    net = DenseNet(*densenet_spec[num_layers], **kwargs)
    if pretrained:
        load_pretrained(net, f"densenet{num_layers}", ctx, root)
    return net


densenet121 = variant("densenet121", get_densenet, 121)
densenet161 = variant("densenet161", get_densenet, 161)
densenet169 = variant("densenet169", get_densenet, 169)
densenet201 = variant("densenet201", get_densenet, 201)
