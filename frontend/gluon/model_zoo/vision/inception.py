"""Inception v3 (Szegedy et al. 2015, "Rethinking the Inception Architecture for Computer Vision")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gluonjit.gluon import nn
from gluonjit.gluon.block import HybridBlock
from gluonjit.gluon.contrib.nn import HybridConcurrent
from gluonjit.gluon.model_zoo.model_store import ROOT, load_pretrained
from gluonjit.gluon.model_zoo.vision.parts import CPU, Classifier, sequence
from gluonjit.language import mxnet_names as _mxnet_names

__all__ = ["Inception3", "inception_v3"]


def _conv(channels: int, kernel_size: Any, strides: int = 1, padding: Any = 0) -> nn.HybridSequential:
    return sequence(
        nn.Conv2D(channels, kernel_size, strides, padding, use_bias=False),
        nn.BatchNorm(epsilon=0.001),
        nn.Activation("relu"),
    )


def _branch(*convs: tuple[Any, ...], pool: str | None = None) -> nn.HybridSequential:
    """An optional pooling, then convolutions, each given by channels, kernel, and optionally strides and padding."""
    out = sequence()
    if pool == "avg":
        out.add(nn.AvgPool2D(pool_size=3, strides=1, padding=1))
    elif pool == "max":
        out.add(nn.MaxPool2D(pool_size=3, strides=2))
    out.add(*(_conv(*conv) for conv in convs))
    return out


def _side_by_side(*branches: HybridBlock) -> HybridConcurrent:
    out = HybridConcurrent(axis=1, prefix="")
    out.add(*branches)
    return out


def _module(prefix: str, make: Callable[..., list[HybridBlock]], *args: Any) -> HybridConcurrent:
    """The concurrent branches that `make(*args)` returns."""
    out = HybridConcurrent(axis=1, prefix=prefix)
    with out.name_scope():
        out.add(*make(*args))
    return out


# The modules in the paper's order; all except B and D keep the image's size.


def _a(pool_features: int) -> list[HybridBlock]:
    return [
        _branch((64, 1)),
        _branch((48, 1), (64, 5, 1, 2)),
        _branch((64, 1), (96, 3, 1, 1), (96, 3, 1, 1)),
        _branch((pool_features, 1), pool="avg"),
    ]


def _b() -> list[HybridBlock]:
    return [
        _branch((384, 3, 2)),
        _branch((64, 1), (96, 3, 1, 1), (96, 3, 2)),
        _branch(pool="max"),
    ]


def _c(n: int) -> list[HybridBlock]:
    row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    return [
        _branch((192, 1)),
        _branch((n, 1), (n, *row), (192, *column)),
        _branch((n, 1), (n, *column), (n, *row), (n, *column), (192, *row)),
        _branch((192, 1), pool="avg"),
    ]


def _d() -> list[HybridBlock]:
    return [
        _branch((192, 1), (320, 3, 2)),
        _branch((192, 1), (192, (1, 7), 1, (0, 3)), (192, (7, 1), 1, (3, 0)), (192, 3, 2)),
        _branch(pool="max"),
    ]


def _e() -> list[HybridBlock]:
    row, column = (384, (1, 3), 1, (0, 1)), (384, (3, 1), 1, (1, 0))
    return [
        _branch((320, 1)),
        sequence(_branch((384, 1)), _side_by_side(_branch(row), _branch(column))),
        sequence(_branch((448, 1), (384, 3, 1, 1)), _side_by_side(_branch(row), _branch(column))),
        _branch((192, 1), pool="avg"),
    ]


class Inception3(Classifier):
    """Inception v3 without the auxiliary classifier, for images of 299 x 299."""

    def __init__(self, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = sequence(
                _conv(32, 3, 2),
                _conv(32, 3),
                _conv(64, 3, 1, 1),
                nn.MaxPool2D(pool_size=3, strides=2),
                _conv(80, 1),
                _conv(192, 3),
                nn.MaxPool2D(pool_size=3, strides=2),
                _module("A1_", _a, 32),
                _module("A2_", _a, 64),
                _module("A3_", _a, 64),
                _module("B_", _b),
                _module("C1_", _c, 128),
                _module("C2_", _c, 160),
                _module("C3_", _c, 160),
                _module("C4_", _c, 192),
                _module("D_", _d),
                _module("E1_", _e),
                _module("E2_", _e),
                nn.AvgPool2D(pool_size=8),
                nn.Dropout(0.5),
            )
            self.output = nn.Dense(classes)


def inception_v3(pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any) -> Inception3:
    """Inception v3. `pretrained` loads the published weights from folder `root` to `ctx`."""
    net = Inception3(**kwargs)
    if pretrained:
        load_pretrained(net, "inceptionv3", ctx, root)
    return net


_mxnet_names.explain(__name__)
