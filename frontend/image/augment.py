"""Augmenters: functions of an image with settings, and `CreateAugmenter`, which makes the usual list of them.

Those that change colors take float images and change them in place.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np

from gluonjit import ndarray as nd
from gluonjit.image.image import (
    _get_interp_method,
    center_crop,
    color_normalize,
    imresize,
    random_crop,
    random_size_crop,
    resize_short,
)
from gluonjit.ndarray import NDArray

GRAY = np.array([0.299, 0.587, 0.114], np.float32)

TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
FROM_YIQ = np.array([[1.0, 0.956, 0.621], [1.0, -0.272, -0.647], [1.0, -1.107, 1.705]])

# Principal components of ImageNet's colors: eigenvalues, and eigenvectors as columns.
EIGVAL = np.array([55.46, 4.794, 1.148])
EIGVEC = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])


class Augmenter:
    """A function of an image. Its settings are keywords of this constructor; `dumps` returns them as JSON."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = {key: plain(value) for key, value in kwargs.items()}

    def dumps(self) -> Any:
        return as_json(self, self._kwargs)

    def __call__(self, src: Any) -> Any:
        raise NotImplementedError("Must override implementation.")


def as_json(augmenter: Any, settings: dict[str, Any]) -> str:
    """What `dumps` returns for an augmenter with these settings."""
    import json

    return json.dumps([type(augmenter).__name__.lower(), settings])


def plain(value: Any) -> Any:
    """A setting as `dumps` writes it: arrays become lists."""
    if isinstance(value, NDArray):
        value = value.asnumpy()
    return value.tolist() if isinstance(value, np.ndarray) else value


class SequentialAug(Augmenter):
    """Applies augmenters in order."""

    def __init__(self, ts: list[Augmenter]) -> None:
        super().__init__()
        self.ts = ts

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), [t.dumps() for t in self.ts]]

    def __call__(self, src: Any) -> Any:
        for t in self.ts:
            src = t(src)
        return src


class RandomOrderAug(SequentialAug):
    """Applies all augmenters, in a random order for each image."""

    def __call__(self, src: Any) -> Any:
        random.shuffle(self.ts)
        return super().__call__(src)


class ResizeAug(Augmenter):
    """Resizes the image so that its shorter edge has length `size`."""

    def __init__(self, size: int, interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size = size
        self.interp = interp

    def __call__(self, src: Any) -> Any:
        return resize_short(src, self.size, self.interp)


class ForceResizeAug(Augmenter):
    """Resizes to `size` (width, height), regardless of the aspect ratio."""

    def __init__(self, size: tuple[int, int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size = size
        self.interp = interp

    def __call__(self, src: Any) -> Any:
        sizes = (src.shape[0], src.shape[1], self.size[1], self.size[0])
        return imresize(src, *self.size, interp=_get_interp_method(self.interp, sizes))


class RandomCropAug(Augmenter):
    """Crops a random rectangle of `size` (width, height)."""

    def __init__(self, size: tuple[int, int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size = size
        self.interp = interp

    def __call__(self, src: Any) -> Any:
        return random_crop(src, self.size, self.interp)[0]


class CenterCropAug(Augmenter):
    """Crops a rectangle of `size` (width, height) from the center."""

    def __init__(self, size: tuple[int, int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size = size
        self.interp = interp

    def __call__(self, src: Any) -> Any:
        return center_crop(src, self.size, self.interp)[0]


class RandomSizedCropAug(Augmenter):
    """Crops a rectangle of random area and aspect ratio, resized to `size` (width, height)."""

    def __init__(
        self, size: tuple[int, int], area: Any, ratio: tuple[float, float], interp: int = 2, **kwargs: Any
    ) -> None:
        if "min_area" in kwargs:
            warnings.warn("`min_area` is deprecated. Please use `area` instead.", DeprecationWarning, stacklevel=2)
            area = kwargs.pop("min_area")
        if kwargs:
            raise TypeError(f"unexpected keyword arguments for `RandomSizedCropAug`: {', '.join(kwargs)}")
        super().__init__(size=size, area=area, ratio=ratio, interp=interp)
        self.size = size
        self.area = area
        self.ratio = ratio
        self.interp = interp

    def __call__(self, src: Any) -> Any:
        return random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


class BrightnessJitterAug(Augmenter):
    """Multiplies the image by a number within 1 ± `brightness`."""

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness=brightness)
        self.brightness = brightness

    def __call__(self, src: Any) -> Any:
        src *= 1.0 + random.uniform(-self.brightness, self.brightness)
        return src


class ContrastJitterAug(Augmenter):
    """Scales the distance from the image's mean gray by a number within 1 ± `contrast`."""

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast=contrast)
        self.contrast = contrast

    def __call__(self, src: Any) -> Any:
        alpha = 1.0 + random.uniform(-self.contrast, self.contrast)
        gray = float((src.asnumpy() * GRAY).sum()) / (src.size / 3)
        src *= alpha
        src += gray * (1.0 - alpha)
        return src


class SaturationJitterAug(Augmenter):
    """Scales the distance from each pixel's gray by a number within 1 ± `saturation`."""

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation=saturation)
        self.saturation = saturation

    def __call__(self, src: Any) -> Any:
        alpha = 1.0 + random.uniform(-self.saturation, self.saturation)
        gray = (src * nd.array(GRAY)).sum(axis=2, keepdims=True) * (1.0 - alpha)
        src *= alpha
        src += gray
        return src


class HueJitterAug(Augmenter):
    """Rotates hues by up to `hue` times 180°, in the YIQ space."""

    def __init__(self, hue: float) -> None:
        super().__init__(hue=hue)
        self.hue = hue

    def __call__(self, src: Any) -> Any:
        angle = random.uniform(-self.hue, self.hue) * np.pi
        u, w = np.cos(angle), np.sin(angle)
        turn = np.array([[1.0, 0.0, 0.0], [0.0, u, -w], [0.0, w, u]])
        return nd.dot(src, nd.array((FROM_YIQ @ turn @ TO_YIQ).T))


def shifted_hls(x: np.ndarray, hue: int, lightness: int, saturation: int) -> np.ndarray:
    """u8[height, width, 3], red first, with these amounts added in OpenCV's HLS space of bytes.

    There hue has 180 steps, lightness and saturation have 255. A hue after the last step is the first one, and one
    below 0 is 0, as MXNet's record iterators have it.
    """
    rgb = x.astype(np.float32) * np.float32(1 / 255)
    red, green, blue = np.moveaxis(rgb, 2, 0)
    most, least = rgb.max(2), rgb.min(2)
    spread, both = most - least, most + least
    degrees = 60 / np.where(spread > 0, spread, np.float32(1))
    angle = np.select(
        [most == red, most == green],
        [(green - blue) * degrees, (blue - red) * degrees + 120],
        (red - green) * degrees + 240,
    )
    parts = (
        np.where(angle < 0, angle + 360, angle) / 2,
        both * np.float32(0.5) * 255,
        spread / np.where(spread > 0, np.where(both < 1, both, 2 - most - least), np.float32(1)) * 255,
    )
    h, l, s = (
        np.clip(np.rint(part) + add, 0, limit)
        for part, add, limit in zip(parts, (hue, lightness, saturation), (180, 255, 255))
    )
    h, l, s = h / 30 % 6, l / 255, s / 255
    high = np.where(l <= 0.5, l * (1 + s), l + s - l * s)
    low = 2 * l - high
    ramps = np.stack([np.abs(h - 3) - 1, 2 - np.abs(h - 2), 2 - np.abs(h - 4)], 2)
    y = low[..., None] + (high - low)[..., None] * np.clip(ramps, 0, 1)
    return np.clip(np.rint(y * 255), 0, 255).astype(np.uint8)


class ColorJitterAug(RandomOrderAug):
    """Changes brightness, contrast and saturation, in random order."""

    def __init__(self, brightness: float, contrast: float, saturation: float) -> None:
        chosen: list[Augmenter] = []
        if brightness > 0:
            chosen.append(BrightnessJitterAug(brightness))
        if contrast > 0:
            chosen.append(ContrastJitterAug(contrast))
        if saturation > 0:
            chosen.append(SaturationJitterAug(saturation))
        super().__init__(chosen)


class LightingAug(Augmenter):
    """Adds principal colors in random amounts, normal with standard deviation `alphastd`."""

    def __init__(self, alphastd: float, eigval: Any, eigvec: Any) -> None:
        super().__init__(alphastd=alphastd, eigval=eigval, eigvec=eigvec)
        self.alphastd = alphastd
        self.eigval = eigval
        self.eigvec = eigvec

    def __call__(self, src: Any) -> Any:
        alpha = np.random.normal(0, self.alphastd, 3)
        src += nd.array(np.dot(self.eigvec * alpha, self.eigval))
        return src


class ColorNormalizeAug(Augmenter):
    """(image − mean) / std."""

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__(mean=mean, std=std)
        self.mean = mean if mean is None else nd.array(mean)
        self.std = std if std is None else nd.array(std)

    def __call__(self, src: Any) -> Any:
        return color_normalize(src, self.mean, self.std)


class RandomGrayAug(Augmenter):
    """Converts the image to gray, with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p
        self.mat = nd.array(np.repeat([[0.21], [0.72], [0.07]], 3, axis=1))

    def __call__(self, src: Any) -> Any:
        return nd.dot(src, self.mat) if random.random() < self.p else src


class HorizontalFlipAug(Augmenter):
    """Mirrors the image left to right, with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: Any) -> Any:
        return nd.flip(src, axis=1) if random.random() < self.p else src


class CastAug(Augmenter):
    """Converts to another element type."""

    def __init__(self, typ: str = "float32") -> None:
        super().__init__(type=typ)
        self.typ = typ

    def __call__(self, src: Any) -> Any:
        return src.astype(self.typ)


def CreateAugmenter(
    data_shape: tuple[int, int, int],
    resize: int = 0,
    rand_crop: bool = False,
    rand_resize: bool = False,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    hue: float = 0,
    pca_noise: float = 0,
    rand_gray: float = 0,
    inter_method: int = 2,
) -> list[Augmenter]:
    """The list of augmenters that the settings select, for images of `data_shape` (channels, height, width).

    `mean=True` and `std=True` are ImageNet's.
    """
    augmenters: list[Augmenter] = []
    if resize > 0:
        augmenters.append(ResizeAug(resize, inter_method))
    size = (data_shape[2], data_shape[1])
    if rand_resize:
        if not rand_crop:
            raise AssertionError("rand_resize needs rand_crop")
        augmenters.append(RandomSizedCropAug(size, 0.08, (3.0 / 4.0, 4.0 / 3.0), inter_method))
    else:
        augmenters.append((RandomCropAug if rand_crop else CenterCropAug)(size, inter_method))
    if rand_mirror:
        augmenters.append(HorizontalFlipAug(0.5))
    augmenters.append(CastAug())
    if brightness or contrast or saturation:
        augmenters.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        augmenters.append(HueJitterAug(hue))
    if pca_noise > 0:
        augmenters.append(LightingAug(pca_noise, EIGVAL, EIGVEC))
    if rand_gray > 0:
        augmenters.append(RandomGrayAug(rand_gray))
    mean, std = channel_statistics(mean, std)
    if mean is not None or std is not None:
        augmenters.append(ColorNormalizeAug(mean, std))
    return augmenters


def channel_statistics(mean: Any, std: Any) -> tuple[Any, Any]:
    """Mean and deviation of the pixels in each channel: arrays, or None; True stands for ImageNet's."""
    mean = np.array([123.68, 116.28, 103.53]) if mean is True else mean
    std = np.array([58.395, 57.12, 57.375]) if std is True else std
    for what, value in (("mean", mean), ("std", std)):
        if value is not None and (not isinstance(value, (np.ndarray, NDArray)) or value.shape[0] not in (1, 3)):
            raise AssertionError(f"{what} must be an array of 1 or 3 numbers, or True")
    return mean, std
