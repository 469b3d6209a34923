"""MobileNet (Howard et al. 2017) and MobileNet v2 (Sandler et al. 2018), with a multiplier for the channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gluonjit.gluon import nn
from gluonjit.gluon.block import HybridBlock
from gluonjit.gluon.model_zoo.model_store import ROOT, load_pretrained
from gluonjit.gluon.model_zoo.vision.parts import CPU, Classifier, sequence, variant

__all__ = [
    "MobileNet",
    "MobileNetV2",
    "get_mobilenet",
    "get_mobilenet_v2",
    "mobilenet0_5",
    "mobilenet0_25",
    "mobilenet0_75",
    "mobilenet1_0",
    "mobilenet_v2_0_5",
    "mobilenet_v2_0_25",
    "mobilenet_v2_0_75",
    "mobilenet_v2_1_0",
]


class RELU6(HybridBlock):
    """min(max(x, 0), 6)."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.clip(x, 0, 6, name="relu6")


def _relu() -> HybridBlock:
    return nn.Activation("relu")


def _conv(
    channels: int,
    kernel: int = 1,
    stride: int = 1,
    pad: int = 0,
    groups: int = 1,
    activation: Callable[[], HybridBlock] | None = None,
) -> list[HybridBlock]:
    """Convolution, batch normalization and an optional activation."""
    layers = [nn.Conv2D(channels, kernel, stride, pad, groups=groups, use_bias=False), nn.BatchNorm(scale=True)]
    return layers if activation is None else [*layers, activation()]


class LinearBottleneck(HybridBlock):
    """1 x 1 to `t` times as many channels, depthwise 3 x 3, 1 x 1 to `channels`; a shortcut if the shapes are equal."""

    def __init__(self, in_channels: int, channels: int, t: int, stride: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.use_shortcut = stride == 1 and in_channels == channels
        inner = in_channels * t
        with self.name_scope():
            self.out = nn.HybridSequential()
            self.out.add(
                *_conv(inner, activation=RELU6),
                *_conv(inner, 3, stride, 1, groups=inner, activation=RELU6),
                *_conv(channels),
            )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        out = self.out(x)
        return F.elemwise_add(out, x) if self.use_shortcut else out


_V1 = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
"""Channels and stride of each depthwise separable convolution."""

_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""For each group of bottlenecks: expansion, channels, number of bottlenecks, stride of the first."""


class MobileNet(Classifier):
    """Depthwise separable convolutions: 3 x 3 of each channel by itself, then 1 x 1."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            before = int(32 * multiplier)
            self.features = sequence(*_conv(before, 3, 2, 1, activation=_relu))
            for wide, stride in _V1:
                channels = int(wide * multiplier)
                self.features.add(
                    *_conv(before, 3, stride, 1, groups=before, activation=_relu),
                    *_conv(channels, activation=_relu),
                )
                before = channels
            self.features.add(nn.GlobalAvgPool2D(), nn.Flatten())
            self.output = nn.Dense(classes)


class MobileNetV2(Classifier):
    """Bottlenecks with linear narrow ends, which shortcuts connect."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="features_")
            with self.features.name_scope():
                before = int(32 * multiplier)
                self.features.add(*_conv(before, 3, 2, 1, activation=RELU6))
                for t, wide, count, first in _V2:
                    channels = int(wide * multiplier)
                    for k in range(count):
                        stride = first if k == 0 else 1
                        self.features.add(LinearBottleneck(before, channels, t, stride))
                        before = channels
                last = int(1280 * multiplier) if multiplier > 1.0 else 1280
                self.features.add(*_conv(last, activation=RELU6), nn.GlobalAvgPool2D())
            self.output = nn.HybridSequential(prefix="output_")
            with self.output.name_scope():
                self.output.add(nn.Conv2D(classes, 1, use_bias=False, prefix="pred_"), nn.Flatten())


def _suffix(multiplier: float) -> str:
    """The multiplier as in the names of published weights: 1.0, 0.75, 0.5, 0.25."""
    text = f"{multiplier:.2f}"
    return text[:-1] if text in ("1.00", "0.50") else text


def get_mobilenet(
    multiplier: float, pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any
) -> MobileNet:
    """MobileNet. `pretrained` loads the published weights from folder `root` to `ctx`."""
    net = MobileNet(multiplier, **kwargs)
    if pretrained:
        load_pretrained(net, f"mobilenet{_suffix(multiplier)}", ctx, root)
    return net


def get_mobilenet_v2(
    multiplier: float, pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any
) -> MobileNetV2:
    """MobileNet v2. `pretrained` loads the published weights from folder `root` to `ctx`."""
    net = MobileNetV2(multiplier, **kwargs)
    if pretrained:
        load_pretrained(net, f"mobilenetv2_{_suffix(multiplier)}", ctx, root)
    return net


mobilenet1_0 = variant("mobilenet1_0", get_mobilenet, 1.0)
mobilenet0_75 = variant("mobilenet0_75", get_mobilenet, 0.75)
mobilenet0_5 = variant("mobilenet0_5", get_mobilenet, 0.5)
mobilenet0_25 = variant("mobilenet0_25", get_mobilenet, 0.25)
mobilenet_v2_1_0 = variant("mobilenet_v2_1_0", get_mobilenet_v2, 1.0)
mobilenet_v2_0_75 = variant("mobilenet_v2_0_75", get_mobilenet_v2, 0.75)
mobilenet_v2_0_5 = variant("mobilenet_v2_0_5", get_mobilenet_v2, 0.5)
mobilenet_v2_0_25 = variant("mobilenet_v2_0_25", get_mobilenet_v2, 0.25)
