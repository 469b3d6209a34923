"""Operators on images (height, width, channels), or batches of them: conversion, cropping, flips and colors.

Colors are red, green, blue, in 0 … 255. Results of integer types are truncated and saturate.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, I32, dtype_of
from gluonjit.operators.attributes import integer, number, numbers
from gluonjit.operators.documentation import documented, example, on
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.sampling.random_draws import normal, uniform
from gluonjit.operators.support import convert, fractional, require_numeric, shape_text

GRAY = (0.299, 0.587, 0.114)
"""The weights of red, green and blue in the luminance."""

PRINCIPAL_COLORS = (
    (55.46 * -0.5675, 4.794 * 0.7192, 1.148 * 0.4009),
    (55.46 * -0.5808, 4.794 * -0.0045, 1.148 * -0.8140),
    (55.46 * -0.5836, 4.794 * -0.6948, 1.148 * 0.4203),
)
"""The principal components of colors in ImageNet, as columns, scaled by their standard deviations."""


def _check_image(x: Any) -> int:
    """The rank of an image or a batch; OperatorError unless it is 3 or 4."""
    if len(x.shape) not in (3, 4):
        raise OperatorError(f"Input image must have 3 or 4 axes, got {shape_text(x.shape)}")
    return len(x.shape)


def _check_colors(x: Any) -> int:
    """The number of channels; OperatorError unless it is 1 or 3."""
    if len(x.shape) < 3 or x.shape[-1] not in (1, 3):
        raise OperatorError(f"an image (height, width, channels) has 1 or 3 channels; got {shape_text(x.shape)}")
    return x.shape[-1]


def _saturated(b: Emitter, x: Any, like: Any) -> Any:
    """float32 converted to the element type of `like`; for integers, truncated and saturated."""
    own = dtype_of(like)
    if not own.is_float:
        limits = np.iinfo(own.numpy)
        x = b.minimum(b.maximum(x, b.constant(limits.min, F32)), b.constant(limits.max, F32))
    return x if own is F32 else b.cast(x, dtype=own)


def _f32(b: Emitter, x: Any) -> Any:
    require_numeric("image", x)
    return x if dtype_of(x) is F32 else b.cast(x, dtype=F32)


# Conversion


@operator("_image_to_tensor")
def to_tensor(b: Emitter, data: Any) -> Any:
    """Converts images from bytes to float32 and moves their channels to the front

    Shapes: data (…, height, width, channels) -> (…, channels, height, width)

    0 … 255 becomes 0 … 1. An image, or a batch of them.

    >>> mx.nd.image.to_tensor(mx.nd.array([[[0, 51, 255]]], dtype="uint8")).asnumpy().ravel()
    array([0. , 0.2, 1. ], dtype=float32)
    """
    rank = _check_image(data)
    x = _f32(b, data) / 255
    return b.transpose(x, perm=(2, 0, 1) if rank == 3 else (0, 3, 1, 2))


@operator(
    "_image_normalize",
    attrs={
        "mean": numbers((0.0, 0.0, 0.0, 0.0), doc="the mean of each channel, or of all"),
        "std": numbers((1.0, 1.0, 1.0, 1.0), doc="the standard deviation of each channel, or of all"),
    },
)
def normalize(b: Emitter, data: Any, *, mean: tuple[float, ...], std: tuple[float, ...]) -> Any:
    """(x - mean) / std, by channel

    Shapes: data (…, channels, height, width) of 1 or 3 channels -> the same

    >>> mx.nd.image.normalize(mx.nd.ones((1, 1, 2)), mean=0.5, std=0.25).asnumpy()
    array([[[2., 2.]]], dtype=float32)
    """
    rank = _check_image(data)
    x = fractional(b, data)
    channels = data.shape[rank - 3]
    if channels not in (1, 3):
        raise OperatorError(
            f"The first dimension of input tensor must be the channel dimension with either 1 or 3 "
            f"elements, but got input with shape {shape_text(data.shape)}"
        )
    columns = []
    for what, values in (("mean", mean), ("std", std)):
        if len(values) != 1 and len(values) < channels:
            raise OperatorError(f"{what} has {len(values)} numbers for {channels} channels")
        column = np.broadcast_to(values[:1] if len(values) == 1 else values[:channels], channels)
        columns.append(b.constant(column.reshape(channels, 1, 1), dtype_of(x)))
    return convert(b, (x - columns[0]) / columns[1], require_numeric("_image_normalize", data))


@operator(
    "_image_crop",
    attrs={
        "x": integer(low=0, doc="left edge in pixels"),
        "y": integer(low=0, doc="top edge in pixels"),
        "width": integer(low=1, doc="width in pixels"),
        "height": integer(low=1, doc="height in pixels"),
    },
)
def crop(b: Emitter, data: Any, *, x: int, y: int, width: int, height: int) -> Any:
    """The part of an image of the given width and height with upper left corner (x, y)

    Shapes: data (…, h, w, channels) -> (…, height, width, channels)

    MXNetError if the part reaches beyond the image.

    >>> mx.nd.image.crop(mx.nd.arange(6).reshape((2, 3, 1)), x=1, y=0, width=2, height=2).asnumpy()[:, :, 0]
    array([[1., 2.],
           [4., 5.]], dtype=float32)
    """
    rank = _check_image(data)
    batch, (old_height, old_width, channels) = tuple(data.shape[: rank - 3]), data.shape[rank - 3 :]
    if x + width > old_width or y + height > old_height:
        raise OperatorError(
            f"crop of {height} x {width} at ({x}, {y}) reaches beyond the image of {old_height} x {old_width}"
        )
    start = (*(0 for _ in batch), y, x, 0)
    return b.slice(data, start=start, size=(*batch, height, width, channels))


# Flips


def _declare_flip(name: str, axis: int, doc: str, x: str, y: str) -> None:
    """`x`, `y`: an example of one channel, and its pixels after the flip."""

    def flip(b: Emitter, data: Any) -> Any:
        return b.reverse(data, axes=(_check_image(data) + axis,))

    def random_flip(b: Emitter, data: Any) -> Any:
        heads = uniform(b, (), F32) < 0.5
        return b.select(heads, flip(b, data), data)

    shapes = "data (…, height, width, channels) -> the same"
    flip.__doc__ = documented(f"An image {doc}", shapes, example(f"mx.nd.image.flip_{name}({on(x)}).reshape(-1)", y))
    flipped = f">>> y = mx.nd.image.random_flip_{name}({on(x)}).asnumpy().ravel().tolist()\n>>> y in ([1, 2], [2, 1])"
    random_flip.__doc__ = documented(f"An image, with probability 1/2 {doc}", shapes, f"{flipped}\nTrue")
    operator(f"_image_flip_{name}", same_shape=True)(flip)
    operator(f"_image_random_flip_{name}", same_shape=True, streams=lambda attrs, training: 1)(random_flip)


_declare_flip("left_right", -2, "with left and right exchanged", "[[[1], [2]]]", "[2., 1.]")
_declare_flip("top_bottom", -3, "upside down", "[[[1]], [[2]]]", "[2., 1.]")


# Colors: functions of float32 images and a 0-d factor


def _weighted(b: Emitter, x: Any) -> Any:
    """The luminance of each pixel, in an axis of length 1 in place of the channels."""
    y = x * b.constant(np.array(GRAY), F32) if x.shape[-1] == 3 else x
    return b.reshape(b.reduce(y, op="sum", axes=(len(x.shape) - 1,)), shape=(*x.shape[:-1], 1))


def _blend(b: Emitter, x: Any, gray: Any, factor: Any) -> Any:
    return x * factor + gray * (1 - factor)


def brightness(b: Emitter, x: Any, factor: Any) -> Any:
    return x * factor


def contrast(b: Emitter, x: Any, factor: Any) -> Any:
    """Scales the difference from the image's mean luminance by `factor`."""
    gray = _weighted(b, x)
    axes = tuple(range(len(x.shape) - 3, len(x.shape)))
    count = x.shape[-3] * x.shape[-2]
    mean = b.reduce(gray, op="sum", axes=axes) / max(count, 1)
    return _blend(b, x, b.reshape(mean, shape=(*x.shape[:-3], 1, 1, 1)), factor)


def saturation(b: Emitter, x: Any, factor: Any) -> Any:
    """Scales the difference from gray by `factor`. (MXNet's gray is the blue part only, as it overwrites the sum.)"""
    return x if x.shape[-1] == 1 else _blend(b, x, _weighted(b, x), factor)


def hue(b: Emitter, x: Any, turn: Any) -> Any:
    """Rotates hues by `turn` times 360° on the color wheel; lightness and saturation are kept."""
    if x.shape[-1] == 1:
        return x
    shape = tuple(x.shape)
    corner, part = (0,) * (len(shape) - 1), (*shape[:-1], 1)
    r, g, blue = (b.slice(x, start=(*corner, k), size=part) / 255 for k in range(3))
    zero, half, one = (b.constant(v, F32) for v in (0, 0.5, 1))
    high, low = b.maximum(b.maximum(r, g), blue), b.minimum(b.minimum(r, g), blue)
    total, spread = high + low, high - low
    lightness = total * half
    colored = spread > b.constant(np.finfo(np.float32).eps, F32)
    # Angles in sixths of the wheel.
    third = b.select(b.eq(high, r), g - blue, b.select(b.eq(high, g), blue - r, r - g)) / spread
    start = b.select(b.eq(high, r), zero, b.select(b.eq(high, g), b.constant(2, F32), b.constant(4, F32)))
    angle = third + start + turn * 6
    amount = spread / b.select(lightness < half, total, 2 - total)
    # Back to RGB: along the wheel, each channel rises from lightness - reach to lightness + reach and falls again, with
    # the channels a third of the wheel apart. In twelfths of the wheel:
    reach = amount * b.minimum(lightness, one - lightness)
    channels = []
    for start_at in (0, 8, 4):
        at = angle * 2 + start_at
        at = b.mod(at, b.constant(12, F32))
        wave = b.minimum(b.minimum(at - 3, 9 - at), one)
        channels.append(lightness - reach * b.maximum(wave, b.constant(-1, F32)))
    turned = b.select(colored, b.concat(*channels, axis=len(shape) - 1), lightness)
    return turned * 255


ADJUST: dict[str, Callable[..., Any]] = {
    "brightness": brightness,
    "contrast": contrast,
    "saturation": saturation,
    "hue": hue,
}


def _between(b: Emitter, low: float, high: float) -> Any:
    """A uniform random 0-d number. Draws one stream."""
    return uniform(b, (), F32) * (high - low) + low


def _declare_random(name: str, adjust: Callable[..., Any]) -> None:
    unchanged = 0 if name == "hue" else 1

    def random(b: Emitter, data: Any, *, min_factor: float, max_factor: float) -> Any:
        if max_factor < min_factor:
            raise OperatorError(f"max_factor {max_factor} is below min_factor {min_factor}")
        _check_colors(data)
        factor = _between(b, min_factor, max_factor)
        return _saturated(b, adjust(b, _f32(b, data), factor), data)

    random.__doc__ = documented(
        f"An image with its {name} changed by a random factor",
        "data (height, width, 1 or 3) -> the same",
        f"The factor is uniform over [min_factor, max_factor]; {unchanged} changes nothing. MXNetError if the bounds "
        "are in the wrong order.",
        f">>> mx.nd.image.random_{name}(mx.nd.ones((1, 1, 3)), {unchanged}, {unchanged}).asnumpy().ravel()\n"
        "array([1., 1., 1.], dtype=float32)",
    )
    operator(
        f"_image_random_{name}",
        attrs={
            "min_factor": number(low=0, doc="the least factor"),
            "max_factor": number(low=0, doc="the largest factor"),
        },
        same_shape=True,
        streams=lambda attrs, training: 1,
    )(random)


for _name, _adjust in ADJUST.items():
    _declare_random(_name, _adjust)


@operator(
    "_image_random_color_jitter",
    attrs={name: number(doc="the largest relative change") for name in ADJUST},
    same_shape=True,
    streams=lambda attrs, training: 5,
)
def random_color_jitter(b: Emitter, data: Any, **amounts: float) -> Any:
    """An image with its brightness, contrast, saturation and hue changed at random, in random order

    Shapes: data (height, width, channels) -> the same

    >>> mx.nd.image.random_color_jitter(mx.nd.ones((2, 2, 3)), brightness=0, contrast=0, saturation=0, hue=0).shape
    (2, 2, 3)
    """
    _check_colors(data)
    x = _f32(b, data)
    factors = {name: _between(b, -a, a) if name == "hue" else _between(b, 1 - a, 1 + a) for name, a in amounts.items()}
    used = [name for name in ADJUST if amounts[name] > 0]
    orders = np.array(list(itertools.permutations(range(max(len(used), 1)))))
    drawn = b.cast(uniform(b, (), F32) * len(orders), dtype=I32)
    order = b.gather(b.constant(orders, I32), drawn, axis=0)
    for step in range(len(used)):
        chosen = b.reshape(b.slice(order, start=(step,), size=(1,)), shape=())
        # The order is drawn at run time: each step computes all adjustments and selects one.
        results = [ADJUST[name](b, x, factors[name]) for name in used]
        x = results[0]
        for k in range(1, len(used)):
            x = b.select(b.eq(chosen, b.constant(k, I32)), results[k], x)
        x = b.cast(_saturated(b, x, data), dtype=F32) if not dtype_of(data).is_float else x
    return _saturated(b, x, data)


def _lit(b: Emitter, data: Any, alpha: Any) -> Any:
    """`data` plus the principal colors times `alpha`, float32[3]."""
    if _check_colors(data) == 1:
        return data
    shift = b.reduce(b.constant(np.array(PRINCIPAL_COLORS), F32) * alpha, op="sum", axes=(1,))
    return _saturated(b, _f32(b, data) + shift, data)


@operator("_image_adjust_lighting", attrs={"alpha": numbers(doc="the factor of each principal color")}, same_shape=True)
def adjust_lighting(b: Emitter, data: Any, *, alpha: tuple[float, ...]) -> Any:
    """An image with multiples of ImageNet's principal colors added

    Shapes: data (height, width, 3) -> the same

    The colors are the principal components of ImageNet's pixels, each times its standard deviation (Krizhevsky et al.,
    2012).

    >>> mx.nd.image.adjust_lighting(mx.nd.ones((1, 1, 3)), alpha=(0, 0, 0)).asnumpy()
    array([[[1., 1., 1.]]], dtype=float32)
    """
    if len(alpha) != 3:
        raise OperatorError(f"alpha must have 3 numbers, not {len(alpha)}")
    return _lit(b, data, b.constant(np.array(alpha), F32))


@operator(
    "_image_random_lighting",
    attrs={"alpha_std": number(0.05, doc="standard deviation of the factors")},
    same_shape=True,
    streams=lambda attrs, training: 1,
)
def random_lighting(b: Emitter, data: Any, *, alpha_std: float) -> Any:
    """An image with random multiples of ImageNet's principal colors added

    Shapes: data (height, width, 3) -> the same

    The factors are normal with mean 0 (Krizhevsky et al., 2012).

    >>> mx.nd.image.random_lighting(mx.nd.ones((1, 1, 3)), alpha_std=0).asnumpy()
    array([[[1., 1., 1.]]], dtype=float32)
    """
    return _lit(b, data, normal(b, (3,), F32) * alpha_std)
