"""ResNet (He et al.): v1 (2015, "Deep Residual Learning"), v2 (2016, "Identity Mappings"), of 18 to 152 layers.

v1 normalizes after each convolution and applies ReLU after the sum; v2 does both before each convolution. A block's
shortcut is the identity, or with `downsample` a 1 x 1 convolution with the block's `channels` and `stride`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gluonjit.gluon import nn
from gluonjit.gluon.block import HybridBlock
from gluonjit.gluon.model_zoo.model_store import ROOT, load_pretrained
from gluonjit.gluon.model_zoo.vision.parts import CPU, Classifier, sequence, variant

__all__ = [
    "BasicBlockV1",
    "BasicBlockV2",
    "BottleneckV1",
    "BottleneckV2",
    "ResNetV1",
    "ResNetV2",
    "get_resnet",
    "resnet18_v1",
    "resnet18_v2",
    "resnet34_v1",
    "resnet34_v2",
    "resnet50_v1",
    "resnet50_v2",
    "resnet101_v1",
    "resnet101_v2",
    "resnet152_v1",
    "resnet152_v2",
]


def _conv3x3(channels: int, stride: int, in_channels: int) -> nn.Conv2D:
    return nn.Conv2D(channels, 3, stride, 1, use_bias=False, in_channels=in_channels)


def _conv1x1(channels: int, stride: int, in_channels: int = 0) -> nn.Conv2D:
    return nn.Conv2D(channels, 1, stride, use_bias=False, in_channels=in_channels)


def _relu() -> nn.Activation:
    return nn.Activation("relu")


class _BlockV1(HybridBlock):
    """relu(body(x) + shortcut)."""

    body: nn.HybridSequential

    def _add_shortcut(self, channels: int, stride: int, downsample: bool, in_channels: int) -> None:
        self.downsample = sequence(_conv1x1(channels, stride, in_channels), nn.BatchNorm()) if downsample else None

    def _parts(self, x: Any) -> tuple[Any, Any]:
        """The body's result and the shortcut's."""
        out = self.body(x)
        return out, x if self.downsample is None else self.downsample(x)


class BasicBlockV1(_BlockV1):
    """Two 3 x 3 convolutions."""

    def __init__(
        self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.body = sequence(
            _conv3x3(channels, stride, in_channels),
            nn.BatchNorm(),
            _relu(),
            _conv3x3(channels, 1, channels),
            nn.BatchNorm(),
        )
        self._add_shortcut(channels, stride, downsample, in_channels)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        out, shortcut = self._parts(x)
        return F.Activation(shortcut + out, act_type="relu")


class BottleneckV1(_BlockV1):
    """1 x 1 to a quarter of the channels, 3 x 3, and 1 x 1 back; the 1 x 1 convolutions have a bias."""

    def __init__(
        self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        inner = channels // 4
        self.body = sequence(
            nn.Conv2D(inner, kernel_size=1, strides=stride),
            nn.BatchNorm(),
            _relu(),
            _conv3x3(inner, 1, inner),
            nn.BatchNorm(),
            _relu(),
            nn.Conv2D(channels, kernel_size=1, strides=1),
            nn.BatchNorm(),
        )
        self._add_shortcut(channels, stride, downsample, in_channels)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        out, shortcut = self._parts(x)
        return F.Activation(out + shortcut, act_type="relu")


class _BlockV2(HybridBlock):
    """Repeats normalization, ReLU and convolution; the shortcut starts after the first ReLU."""

    def _add(self, convolutions: Sequence[nn.Conv2D], shortcut: nn.Conv2D | None) -> None:
        """Registers the layers as bn1, conv1, bn2, …, downsample."""
        for k, conv in enumerate(convolutions, 1):
            setattr(self, f"bn{k}", nn.BatchNorm())
            setattr(self, f"conv{k}", conv)
        self.downsample = shortcut
        self._depth = len(convolutions)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        shortcut = x
        for k in range(1, self._depth + 1):
            x = F.Activation(getattr(self, f"bn{k}")(x), act_type="relu")
            if k == 1 and self.downsample is not None:
                shortcut = self.downsample(x)
            x = getattr(self, f"conv{k}")(x)
        return x + shortcut


class BasicBlockV2(_BlockV2):
    """Two 3 x 3 convolutions."""

    def __init__(
        self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        convolutions = _conv3x3(channels, stride, in_channels), _conv3x3(channels, 1, channels)
        self._add(convolutions, _conv1x1(channels, stride, in_channels) if downsample else None)


class BottleneckV2(_BlockV2):
    """1 x 1 to a quarter of the channels, 3 x 3, and 1 x 1 back."""

    def __init__(
        self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        inner = channels // 4
        convolutions = _conv1x1(inner, 1), _conv3x3(inner, stride, inner), _conv1x1(channels, 1)
        self._add(convolutions, _conv1x1(channels, stride, in_channels) if downsample else None)


Residual = Callable[..., HybridBlock]
"""One of the block classes above."""


class _ResNet(Classifier):
    """The base of both versions: a stem, and stages of layers[k] blocks with channels[k + 1] channels."""

    def _stem(self, channels: int, thumbnail: bool) -> list[HybridBlock]:
        """The first layers: one convolution for a `thumbnail`, else layers that shrink the sides to a quarter."""
        if thumbnail:
            return [_conv3x3(channels, 1, 0)]
        return [
            nn.Conv2D(channels, 7, 2, 3, use_bias=False),
            nn.BatchNorm(),
            _relu(),
            nn.MaxPool2D(3, 2, 1),
        ]

    def _stages(self, block: Residual, layers: Sequence[int], channels: Sequence[int]) -> list[HybridBlock]:
        if len(layers) != len(channels) - 1:
            raise AssertionError(f"{len(layers)} stages need {len(layers) + 1} numbers of channels, not {channels}")
        return [
            self._make_layer(block, count, channels[k + 1], 1 if k == 0 else 2, k + 1, channels[k])
            for k, count in enumerate(layers)
        ]

    def _make_layer(
        self, block: Residual, layers: int, channels: int, stride: int, stage_index: int, in_channels: int = 0
    ) -> nn.HybridSequential:
        layer = nn.HybridSequential(prefix=f"stage{stage_index}_")
        with layer.name_scope():
            layer.add(block(channels, stride, channels != in_channels, in_channels=in_channels, prefix=""))
            for _ in range(layers - 1):
                layer.add(block(channels, 1, False, in_channels=channels, prefix=""))
        return layer


class ResNetV1(_ResNet):
    """ResNet v1 of `layers` blocks per stage; `thumbnail` is for small images."""

    def __init__(
        self,
        block: Residual,
        layers: Sequence[int],
        channels: Sequence[int],
        classes: int = 1000,
        thumbnail: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = sequence(
                *self._stem(channels[0], thumbnail),
                *self._stages(block, layers, channels),
                nn.GlobalAvgPool2D(),
            )
            self.output = nn.Dense(classes, in_units=channels[-1])


class ResNetV2(_ResNet):
    """ResNet v2 of `layers` blocks per stage; `thumbnail` is for small images."""

    def __init__(
        self,
        block: Residual,
        layers: Sequence[int],
        channels: Sequence[int],
        classes: int = 1000,
        thumbnail: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = sequence(
                nn.BatchNorm(scale=False, center=False),
                *self._stem(channels[0], thumbnail),
                *self._stages(block, layers, channels),
                nn.BatchNorm(),
                _relu(),
                nn.GlobalAvgPool2D(),
                nn.Flatten(),
            )
            self.output = nn.Dense(classes, in_units=channels[-1])


resnet_spec: dict[int, tuple[str, list[int], list[int]]] = {
    18: ("basic_block", [2, 2, 2, 2], [64, 64, 128, 256, 512]),
    34: ("basic_block", [3, 4, 6, 3], [64, 64, 128, 256, 512]),
    50: ("bottle_neck", [3, 4, 6, 3], [64, 256, 512, 1024, 2048]),
    101: ("bottle_neck", [3, 4, 23, 3], [64, 256, 512, 1024, 2048]),
    152: ("bottle_neck", [3, 8, 36, 3], [64, 256, 512, 1024, 2048]),
}
"""By number of layers: kind of block, blocks of each stage, channels of each stage."""

resnet_net_versions: list[type[ResNetV1] | type[ResNetV2]] = [ResNetV1, ResNetV2]
resnet_block_versions: list[dict[str, Residual]] = [
    {"basic_block": BasicBlockV1, "bottle_neck": BottleneckV1},
    {"basic_block": BasicBlockV2, "bottle_neck": BottleneckV2},
]


def get_resnet(
    version: int, num_layers: int, pretrained: bool = False, ctx: Any = CPU, root: str = ROOT, **kwargs: Any
) -> _ResNet:
    """ResNet v1 or v2. `pretrained` loads the published weights from folder `root` to `ctx`."""
    if num_layers not in resnet_spec:
        raise AssertionError(f"Invalid number of layers: {num_layers}. Options are {resnet_spec.keys()}")
    if version not in (1, 2):
        raise AssertionError(f"Invalid resnet version: {version}. Options are 1 and 2.")
    kind, layers, channels = resnet_spec[num_layers]
    block = resnet_block_versions[version - 1][kind]
    net = resnet_net_versions[version - 1](block, layers, channels, **kwargs)
    if pretrained:
        load_pretrained(net, f"resnet{num_layers}_v{version}", ctx, root)
    return net


resnet18_v1 = variant("resnet18_v1", get_resnet, 1, 18)
resnet34_v1 = variant("resnet34_v1", get_resnet, 1, 34)
resnet50_v1 = variant("resnet50_v1", get_resnet, 1, 50)
resnet101_v1 = variant("resnet101_v1", get_resnet, 1, 101)
resnet152_v1 = variant("resnet152_v1", get_resnet, 1, 152)
resnet18_v2 = variant("resnet18_v2", get_resnet, 2, 18)
resnet34_v2 = variant("resnet34_v2", get_resnet, 2, 34)
resnet50_v2 = variant("resnet50_v2", get_resnet, 2, 50)
resnet101_v2 = variant("resnet101_v2", get_resnet, 2, 101)
resnet152_v2 = variant("resnet152_v2", get_resnet, 2, 152)
