"""Functions on images: reading, resizing, cropping, rotating.

Interpolation methods: 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos; 9 chooses bicubic to enlarge and area to
shrink, 10 chooses at random.
"""

from __future__ import annotations

import os
import random
import warnings
from numbers import Number
from typing import Any

import numpy as np

from gluonjit import ndarray as nd
from gluonjit.base import MXNetError
from gluonjit.files.image_files import decode
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language.kinds import as_current
from gluonjit.ndarray import NDArray

Box = tuple[int, int, int, int]
"""Left, top, width, height."""

MAX_PIXELS = 1 << 27
"""The most pixels of a resized image: one that is very long and narrow in a file must not take all memory."""


def imdecode(buf: Any, flag: int = 1, to_rgb: bool = True, out: NDArray | None = None) -> NDArray:
    """The image in a file's contents (bytes, or an array of them), as u8[height, width, channels].

    `flag`: 1 color, 0 gray, -1 as it is stored. `to_rgb=False` puts blue first.
    """
    if isinstance(buf, NDArray):
        buf = buf.asnumpy()
    if isinstance(buf, np.ndarray):
        buf = buf.astype(np.uint8).tobytes()
    if not isinstance(buf, (bytes, bytearray)):
        raise ValueError(
            "buf must be of type bytes, bytearray or numpy.ndarray, "
            "if you would like to input type str, please convert to bytes"
        )
    if not buf:
        raise MXNetError("Decoding failed. Invalid image file: it is empty")
    pixels = decode(bytes(buf), {1: "RGB", 0: "L"}.get(flag))
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    elif not to_rgb:
        pixels = pixels[:, :, ::-1]
    image = as_current(nd.array(pixels, dtype=np.uint8))
    if out is None:
        return image
    out[:] = image
    return out


def imread(filename: str | os.PathLike[str], flag: int = 1, to_rgb: bool = True, out: NDArray | None = None) -> NDArray:
    """The image in a file; see `imdecode`."""
    try:
        with open(filename, "rb") as file:
            data = file.read()
    except OSError as e:
        raise MXNetError(f"cannot read the image {os.fspath(filename)}: {e.strerror or e}") from e
    return imdecode(data, flag, to_rgb, out)


def imresize(src: NDArray, w: int, h: int, interp: int = 1, out: NDArray | None = None) -> NDArray:
    """The image at `w` by `h` pixels."""
    return nd._internal._cvimresize(src, w=int(w), h=int(h), interp=interp, out=out)


def copyMakeBorder(
    src: NDArray, top: int, bot: int, left: int, right: int, type: int = 0, value: float = 0.0, values: Any = ()
) -> NDArray:
    """The image with a border: `type` 0 of one color (`values`, or `value` in each channel), 1 of its outer pixels,
    2 mirrored with them, 4 mirrored without. 16 is added to a type by OpenCV's programs, and changes nothing."""
    type &= ~16
    widths = ((top, bot), (left, right), (0, 0))
    image = src.asnumpy()
    modes = {1: "edge", 2: "symmetric", 4: "reflect"}
    if type in modes:
        framed = np.pad(image, widths, modes[type])  # type: ignore[call-overload]
    elif type == 0:
        height, width, channels = image.shape
        color = np.broadcast_to(np.asarray(values if len(values) else value, image.dtype), channels)
        framed = np.tile(color, (height + top + bot, width + left + right, 1))
        framed[top : top + height, left : left + width] = image
    else:
        raise MXNetError(f"border type {type} is not supported: 0, 1, 2 and 4 are")
    return nd.array(framed, dtype=image.dtype)


def scale_down(src_size: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """`size` (width, height), scaled down to fit into `src_size`, with the aspect ratio kept."""
    w, h = size
    sw, sh = src_size
    if sh < h:
        w, h = float(w * sh) / h, sh  # type: ignore[assignment]
    if sw < w:
        w, h = sw, float(h * sw) / w  # type: ignore[assignment]
    return int(w), int(h)


def _get_interp_method(interp: int, sizes: Any = ()) -> int:
    """Replaces the methods 9 and 10 by the one chosen; `sizes` is (old height, old width, new height, new width)."""
    if interp == 9:
        if not sizes:
            return 2
        oh, ow, nh, nw = sizes
        return 2 if nh > oh and nw > ow else 3 if nh < oh and nw < ow else 1
    if interp == 10:
        return random.randint(0, 4)
    if interp not in range(5):
        raise ValueError(f"Unknown interp method {interp}")
    return interp


def resize_short(src: NDArray, size: int, interp: int = 2) -> NDArray:
    """The image with its shorter edge of length `size`."""
    h, w, _ = src.shape
    new_h, new_w = (size * h // w, size) if h > w else (size, size * w // h)
    if new_h * new_w > MAX_PIXELS:
        raise MXNetError(f"resize_short: an image of {h} x {w} pixels would become one of {new_h} x {new_w}")
    return imresize(src, new_w, new_h, interp=_get_interp_method(interp, (h, w, new_h, new_w)))


def fixed_crop(
    src: NDArray, x0: int, y0: int, w: int, h: int, size: tuple[int, int] | None = None, interp: int = 2
) -> NDArray:
    """The part of the image at (x0, y0), resized to `size` (width, height) if that is given."""
    out = src[y0 : y0 + h, x0 : x0 + w]
    if size is not None and (w, h) != size:
        return imresize(out, *size, interp=_get_interp_method(interp, (h, w, size[1], size[0])))
    return out


def random_crop(src: NDArray, size: tuple[int, int], interp: int = 2) -> tuple[NDArray, Box]:
    """(random crop of `size` (width, height), its box); a smaller image gives a smaller crop, enlarged to `size`."""
    h, w, _ = src.shape
    new_w, new_h = scale_down((w, h), size)
    x0, y0 = random.randint(0, w - new_w), random.randint(0, h - new_h)
    return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)


def center_crop(src: NDArray, size: tuple[int, int], interp: int = 2) -> tuple[NDArray, Box]:
    """(center crop of `size` (width, height), its box); a smaller image gives a smaller crop, enlarged to `size`."""
    h, w, _ = src.shape
    new_w, new_h = scale_down((w, h), size)
    x0, y0 = int((w - new_w) / 2), int((h - new_h) / 2)
    return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)


def random_size_crop(
    src: NDArray,
    size: tuple[int, int],
    area: float | tuple[float, float],
    ratio: tuple[float, float],
    interp: int = 2,
    **kwargs: Any,
) -> tuple[NDArray, Box]:
    """(random crop, resized to `size`; its box). `area` bounds its share of the image, `ratio` its aspect ratio."""
    if "min_area" in kwargs:
        warnings.warn("`min_area` is deprecated. Please use `area` instead.", DeprecationWarning, stacklevel=2)
        area = kwargs.pop("min_area")
    if kwargs:
        raise TypeError(f"unexpected keyword arguments for `random_size_crop`: {', '.join(kwargs)}")
    bounds = (area, 1.0) if isinstance(area, Number) else area
    h, w, _ = src.shape
    for _ in range(10):
        target = random.uniform(*bounds) * h * w  # type: ignore[misc]
        proportion = np.exp(random.uniform(np.log(ratio[0]), np.log(ratio[1])))
        new_w, new_h = int(round(np.sqrt(target * proportion))), int(round(np.sqrt(target / proportion)))
        if new_w <= w and new_h <= h:
            x0, y0 = random.randint(0, w - new_w), random.randint(0, h - new_h)
            return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)
    return center_crop(src, size, interp)


def color_normalize(src: NDArray, mean: Any, std: Any = None) -> NDArray:
    """(src − mean) / std, in place."""
    if mean is not None:
        src -= mean
    if std is not None:
        src /= std
    return src


def imrotate(src: NDArray, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """Rotates a float32 image (channels, height, width), or a batch of them, counter-clockwise about its center.

    A batch takes one angle, or one for each image. `zoom_in` scales so that no corner of the result is empty,
    `zoom_out` so that no corner of the image is cut off.
    """
    if zoom_in and zoom_out:
        raise ValueError("`zoom_in` and `zoom_out` cannot be both True")
    if src.dtype is not np.float32:
        raise TypeError("Only `float32` images are supported by this function")
    if src.ndim not in (3, 4):
        raise ValueError("Only 3D and 4D are supported by this function")
    if src.ndim == 3:
        if not isinstance(rotation_degrees, Number):
            raise TypeError("When a single image is passed the rotation angle is required to be a scalar.")
        return imrotate(src.expand_dims(axis=0), rotation_degrees, zoom_in, zoom_out)[0]
    if isinstance(rotation_degrees, NDArray):
        rotation_degrees = rotation_degrees.asnumpy()
    count = src.shape[0]
    if not isinstance(rotation_degrees, Number) and len(rotation_degrees) != count:
        raise ValueError("The number of images must be equal to the number of rotation angles")
    angles = np.deg2rad(np.broadcast_to(rotation_degrees, count)).astype(np.float32).reshape(count, 1, 1)
    h, w = src.shape[2:]
    y, x = np.mgrid[:h, :w].astype(np.float32)
    middle_y, middle_x = (h - 1) / 2, (w - 1) / 2
    x, y = x - middle_x, y - middle_y
    cos, sin = np.cos(angles), np.sin(angles)
    grid = np.stack([(x * cos - y * sin) / middle_x, (x * sin + y * cos) / middle_y], axis=1)
    if zoom_in or zoom_out:
        # The extent of the rotated corners, in units of width and height.
        radius, corner = np.hypot(h, w), np.arctan(h / w)
        reach = [corner + np.abs(angles), corner - np.abs(angles)]
        wide = np.maximum(*(np.abs(radius * np.cos(a)) for a in reach)) / w
        high = np.maximum(*(np.abs(radius * np.sin(a)) for a in reach)) / h
        scale = np.maximum(wide, high) if zoom_out else np.minimum(1 / wide, 1 / high)
        grid = grid * scale[:, None]
    return nd.BilinearSampler(src, nd.array(grid))


def random_rotate(
    src: NDArray, angle_limits: tuple[float, float], zoom_in: bool = False, zoom_out: bool = False
) -> NDArray:
    """`imrotate` by random angles (degrees) between two limits."""
    size = None if src.ndim == 3 else src.shape[0]
    return imrotate(src, np.random.uniform(*angle_limits, size=size), zoom_in, zoom_out)


_mxnet_names.explain(__name__)
