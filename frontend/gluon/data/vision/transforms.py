"""Transforms of images: blocks, which `Compose` chains.

Images are (height, width, channels) with values from 0 to 255 until `ToTensor`, which converts them to (channels,
height, width) with values from 0 to 1. HybridBlocks also take batches.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit import image
from gluonjit.base import numeric_types
from gluonjit.gluon.block import Block, HybridBlock
from gluonjit.gluon.nn import Sequential
from gluonjit.ndarray import NDArray

__all__ = [
    "Cast",
    "CenterCrop",
    "Compose",
    "CropResize",
    "Normalize",
    "RandomApply",
    "RandomBrightness",
    "RandomColorJitter",
    "RandomContrast",
    "RandomFlipLeftRight",
    "RandomFlipTopBottom",
    "RandomHue",
    "RandomLighting",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSaturation",
    "Resize",
    "Rotate",
    "ToTensor",
]

Size = int | tuple[int, int]
"""One number for width and height, or (width, height)."""


def _pair(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, numeric_types) else size  # type: ignore[return-value]


class Compose(Sequential):
    """Applies transforms in order.

    They are not hybridized (as they are in MXNet): compiling for each of many image sizes would take longer than it
    saves.

    >>> transform = transforms.Compose([transforms.Resize(4), transforms.ToTensor()])
    >>> transform(mx.nd.ones((6, 8, 3), dtype="uint8")).shape
    (3, 4, 4)
    """

    def __init__(self, transforms: Sequence[Block]) -> None:
        super().__init__()
        self.add(*transforms)


# Numbers and layout


class Cast(HybridBlock):
    """Converts to another element type.

    >>> transforms.Cast("float16")(mx.nd.ones((2,))).dtype.__name__
    'float16'
    """

    def __init__(self, dtype: Any = "float32") -> None:
        super().__init__()
        self._dtype = dtype

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.cast(x, self._dtype)


class ToTensor(HybridBlock):
    """Converts (height, width, channels), 0 to 255, to float32 (channels, height, width), 0 to 1.

    Batches (batch, height, width, channels) become (batch, channels, height, width).

    >>> transforms.ToTensor()(mx.nd.full((1, 1, 3), 255, dtype="uint8")).asnumpy().ravel()
    array([1., 1., 1.], dtype=float32)
    """

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.to_tensor(x)


class Normalize(HybridBlock):
    """(x − mean) / std for each channel of (channels, height, width); a single number is for all channels.

    Batches (batch, channels, height, width), too.

    >>> transforms.Normalize(mean=(1, 0, 3), std=2)(mx.nd.ones((3, 1, 1))).asnumpy().ravel()
    array([ 0. ,  0.5, -1. ], dtype=float32)
    """

    def __init__(self, mean: Any = 0.0, std: Any = 1.0) -> None:
        super().__init__()
        self._mean = mean
        self._std = std

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.normalize(x, self._mean, self._std)


# Sizes


class Resize(HybridBlock):
    """Resizes to `size`; with `keep_ratio`, a single number is the length of the shorter edge.

    (height, width, channels) in and out; `size`: one number, or (width, height). `interpolation`: 0 nearest, 1
    bilinear, 2 area, 3 bicubic.

    >>> transforms.Resize((4, 5))(mx.nd.ones((8, 10, 3), dtype="uint8")).shape
    (5, 4, 3)
    """

    def __init__(self, size: Size, keep_ratio: bool = False, interpolation: int = 1) -> None:
        super().__init__()
        self._size = size
        self._keep = keep_ratio
        self._interpolation = interpolation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.resize(x, self._size, self._keep, self._interpolation)


class CropResize(HybridBlock):
    """Crops the rectangle at (x, y) with the given width and height, and resizes it to `size` if that is given.

    (height, width, channels) in and out.

    >>> transforms.CropResize(x=1, y=2, width=4, height=3)(mx.nd.ones((8, 8, 3))).shape
    (3, 4, 3)
    """

    def __init__(
        self, x: int, y: int, width: int, height: int, size: Size | None = None, interpolation: int | None = None
    ) -> None:
        super().__init__()
        self._box = (x, y, width, height)
        self._size = size
        self._interpolation = 1 if interpolation is None else interpolation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        out = F.image.crop(x, *self._box)
        return F.image.resize(out, self._size, False, self._interpolation) if self._size else out


class CenterCrop(Block):
    """Crops a rectangle of `size` from the center; a smaller image is enlarged to `size`.

    (height, width, channels) in and out; `size`: one number, or (width, height).

    >>> transforms.CenterCrop((4, 2))(mx.nd.ones((8, 8, 3))).shape
    (2, 4, 3)
    """

    def __init__(self, size: Size, interpolation: int = 1) -> None:
        super().__init__()
        self._args = (_pair(size), interpolation)

    def forward(self, x: NDArray) -> NDArray:
        return image.center_crop(x, *self._args)[0]


class RandomResizedCrop(Block):
    """Crops a random rectangle and resizes it to `size`. `scale` bounds its share of the image's area, `ratio` its
    aspect ratio.

    (height, width, channels) in and out; `size`: one number, or (width, height).

    >>> transforms.RandomResizedCrop(4)(mx.nd.ones((8, 8, 3), dtype="uint8")).shape
    (4, 4, 3)
    """

    def __init__(
        self,
        size: Size,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: int = 1,
    ) -> None:
        super().__init__()
        self._args = (_pair(size), scale, ratio, interpolation)

    def forward(self, x: NDArray) -> NDArray:
        return image.random_size_crop(x, *self._args)[0]


# Flips and turns


class RandomFlipLeftRight(HybridBlock):
    """Mirrors the image left to right, with probability 1/2.

    (height, width, channels) in and out.

    >>> transforms.RandomFlipLeftRight()(mx.nd.ones((4, 6, 3))).shape
    (4, 6, 3)
    """

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_flip_left_right(x)


class RandomFlipTopBottom(HybridBlock):
    """Mirrors the image top to bottom, with probability 1/2.

    (height, width, channels) in and out.

    >>> transforms.RandomFlipTopBottom()(mx.nd.ones((4, 6, 3))).shape
    (4, 6, 3)
    """

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_flip_top_bottom(x)


class Rotate(Block):
    """Rotates a float32 image (channels, height, width) by an angle in degrees; see `image.imrotate`.

    Batches (batch, channels, height, width), too.

    >>> transforms.Rotate(90)(mx.nd.ones((3, 8, 8))).shape
    (3, 8, 8)
    """

    def __init__(self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False) -> None:
        super().__init__()
        self._args = (rotation_degrees, zoom_in, zoom_out)

    def forward(self, x: NDArray) -> NDArray:
        _require_float32(x)
        return image.imrotate(x, *self._args)


class RandomRotation(Block):
    """`Rotate` by an angle between two limits, with probability `rotate_with_proba`.

    Float32 images (channels, height, width) in and out.

    >>> transforms.RandomRotation((-10, 10))(mx.nd.ones((3, 8, 8))).shape
    (3, 8, 8)
    """

    def __init__(
        self,
        angle_limits: tuple[float, float],
        zoom_in: bool = False,
        zoom_out: bool = False,
        rotate_with_proba: float = 1.0,
    ) -> None:
        super().__init__()
        lower, upper = angle_limits
        if lower >= upper:
            raise ValueError("`angle_limits` must be an ordered tuple")
        if not 0 <= rotate_with_proba <= 1:
            raise ValueError("Probability of rotating the image should be between 0 and 1")
        self._args = (angle_limits, zoom_in, zoom_out)
        self._rotate_with_proba = rotate_with_proba

    def forward(self, x: NDArray) -> NDArray:
        if np.random.random() > self._rotate_with_proba:
            return x
        _require_float32(x)
        return image.random_rotate(x, *self._args)


def _require_float32(x: NDArray) -> None:
    if x.dtype is not np.float32:
        raise TypeError("This transformation only supports float32. Consider calling it after ToTensor")


# Colors


class _RandomColor(HybridBlock):
    """A color operator with a random factor between 1 − amount (at least 0) and 1 + amount."""

    _operator: str

    def __init__(self, amount: float) -> None:
        super().__init__()
        self._args = (max(0, 1 - amount), 1 + amount)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return getattr(F.image, self._operator)(x, *self._args)


class RandomBrightness(_RandomColor):
    """Multiplies the image by a number between 1 − `brightness` and 1 + `brightness`.

    >>> bright = transforms.RandomBrightness(0.5)(mx.nd.ones((1, 1, 3)))
    >>> 0.5 <= float(bright.max().asscalar()) <= 1.5
    True
    """

    _operator = "random_brightness"

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness)


class RandomContrast(_RandomColor):
    """Scales the distance from the image's mean gray by a factor between 1 − `contrast` and 1 + `contrast`.

    (height, width, 3) in and out.

    >>> transforms.RandomContrast(0.5)(mx.nd.ones((4, 4, 3))).shape
    (4, 4, 3)
    """

    _operator = "random_contrast"

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast)


class RandomSaturation(_RandomColor):
    """Scales the distance from each pixel's gray by a factor between 1 − `saturation` and 1 + `saturation`.

    (height, width, 3) in and out.

    >>> transforms.RandomSaturation(0.5)(mx.nd.ones((4, 4, 3))).shape
    (4, 4, 3)
    """

    _operator = "random_saturation"

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation)


class RandomHue(_RandomColor):
    """Rotates hues by up to `hue` times 360°.

    (height, width, 3) in and out.

    >>> transforms.RandomHue(0.1)(mx.nd.ones((4, 4, 3))).shape
    (4, 4, 3)
    """

    _operator = "random_hue"

    def __init__(self, hue: float) -> None:
        super().__init__(hue)


class RandomColorJitter(HybridBlock):
    """Changes brightness, contrast, saturation and hue, each by up to the given amount, in random order.

    (height, width, 3) in and out.

    >>> transforms.RandomColorJitter(0.1, 0.1, 0.1, 0.1)(mx.nd.ones((4, 4, 3))).shape
    (4, 4, 3)
    """

    def __init__(self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0) -> None:
        super().__init__()
        self._args = (brightness, contrast, saturation, hue)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_color_jitter(x, *self._args)


class RandomLighting(HybridBlock):
    """Adds ImageNet's principal colors in random amounts, normal with standard deviation `alpha`.

    (height, width, 3) in and out (Krizhevsky et al., 2012).

    >>> transforms.RandomLighting(0.1)(mx.nd.ones((4, 4, 3))).shape
    (4, 4, 3)
    """

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.random_lighting(x, self._alpha)


# Chance


class RandomApply(Sequential):
    """Applies another transform with probability `p`.

    >>> transforms.RandomApply(transforms.Cast("float16"), p=1)(mx.nd.ones((2,))).dtype.__name__
    'float16'
    """

    def __init__(self, transforms: Block, p: float = 0.5) -> None:
        super().__init__()
        self.transforms = transforms
        self.p = p

    def forward(self, x: Any) -> Any:
        return x if self.p < random.random() else self.transforms(x)
