"""The NumPy convolution of `conv`: matrix products of columns, or tap by tap if each channel has its own filter.

A strided view of the padded input holds, for every result position, the elements under the window. Copied so that
each position is a column ("im2col"), the convolution is one matrix product per group and image, or several images
where these have few positions, as in the gradient of weights.

A dilated input is not written out with its zeros: each phase of the result is a convolution of its own
(`conv_phases.py`).

Taps outside of the input are no terms of the sum. Padding with zeros gives the same result unless a weight is infinite
or NaN (0 · inf is NaN); then the sum is computed tap by tap, over the inside alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gluonjit.ir.primitives.conv_phases import numpy_divides, phases_of
from gluonjit.ir.primitives.convolution_layout import Layout, Window
from gluonjit.ir.primitives.reduction import sums_of
from gluonjit.ir.types import DType, dtype_of

_COLUMNS = 1 << 20  # elements of the column buffer
_FEW = 32  # positions of an image that are too few for a matrix product of their own
_PLANES = 1 << 15  # elements of a result that are summed over all taps before the next ones: they stay in the cache


def evaluate(
    x: np.ndarray, w: np.ndarray, axes: Layout, window: Window, groups: int, dtype: DType | None = None
) -> np.ndarray:
    if x.dtype != w.dtype:
        raise TypeError(f"convolution of {x.dtype} with {w.dtype}")
    wide, dtype = sums_of(dtype_of(x), dtype)
    x = x.transpose(axes.input).astype(wide.numpy, copy=False)
    w = w.transpose(axes.weight).astype(wide.numpy, copy=False)
    y = _convolved(x, w, window, groups)
    # From N, C, spatial to the result's layout.
    y = y.transpose(sorted(range(y.ndim), key=lambda k: axes.result[k]))
    return y.astype(dtype.numpy, copy=False)


def _convolved(x: np.ndarray, w: np.ndarray, window: Window, groups: int) -> np.ndarray:
    """The convolution of N, C, spatial with O, I, spatial."""
    stride, low, high, dilation, inner = window
    taps = w.shape[2:]
    whole = [((n - 1) * k + 1 if n else 0) + a + b for n, a, b, k in zip(x.shape[2:], low, high, inner)]
    out = tuple((n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(whole, taps, stride, dilation))
    pads = any(low) or any(high) or any(k > 1 for k in inner)
    # One pass without an array of bools. A sum that overflows takes the slower way to the same result.
    if pads and not np.isfinite(w.sum()):
        mask = _padded(np.ones((1, 1, *x.shape[2:]), bool), low, high, inner)
        return _by_taps(_padded(x, low, high, inner), mask, w, out, stride, dilation, groups)
    if numpy_divides(out, inner) and any(k > 1 and s == 1 for k, s in zip(inner, stride)):
        return _by_phases(x, w, out, window, groups)
    x = _padded(x, low, high, inner)
    if math.prod(taps) == 1 and all(s == 1 for s in stride) and not is_joint(len(x), out):
        return _pointwise(x, w, groups)
    if groups == x.shape[1] == w.shape[0] > 1:
        return _depthwise(x, w, out, stride, dilation)
    return _by_columns(x, w, out, stride, dilation, groups)


def is_joint(images: int, out: Sequence[int]) -> bool:
    """Whether one product computes several images, as each has few positions (`out`: by axis)."""
    return images > 1 and math.prod(out) < _FEW


def _by_phases(x: np.ndarray, w: np.ndarray, out: tuple[int, ...], window: Window, groups: int) -> np.ndarray:
    """Each phase by itself, along the axes without strides whose input is dilated."""
    stride, low, high, dilation, inner = window
    y = np.zeros((x.shape[0], w.shape[0], *out), x.dtype)
    axes = [k for k, (by, s) in enumerate(zip(inner, stride)) if by > 1 and s == 1]
    choices = [phases_of(out[k], x.shape[k + 2], w.shape[k + 2], low[k], dilation[k], inner[k]) for k in axes]
    for numbers in itertools.product(*[range(inner[k]) for k in axes]):
        first, last, apart, between = [*low], [*high], [*dilation], [*inner]
        target, filters = [slice(None)] * y.ndim, [slice(None)] * w.ndim
        phases = [choice[number] for choice, number in zip(choices, numbers)]
        if any(phase.length <= 0 or phase.taps <= 0 for phase in phases):
            continue
        for k, number, phase in zip(axes, numbers, phases):
            first[k], last[k] = phase.low, phase.high(phase.length, x.shape[k + 2])
            apart[k], between[k] = phase.dilation, 1
            target[k + 2], filters[k + 2] = slice(number, None, inner[k]), slice(phase.first, None, phase.step)
        own = Window(stride, first, last, apart, between)
        y[tuple(target)] = _convolved(x, w[tuple(filters)], own, groups)
    return y


def _padded(x: np.ndarray, low: Sequence[int], high: Sequence[int], inner: Sequence[int]) -> np.ndarray:
    """`x` with `inner` - 1 zeros between elements and `low`/`high` more at the ends (negative: fewer elements)."""
    if not any(low) and not any(high) and all(k == 1 for k in inner):
        return x
    shape, target, source = list(x.shape[:2]), [slice(None)] * 2, [slice(None)] * 2
    for n, a, b, k in zip(x.shape[2:], low, high, inner):
        size = ((n - 1) * k + 1 if n else 0) + a + b
        # Element j lands on a + j * k; those with 0 <= a + j * k < size remain.
        first = max(0, -(a // k))
        last = min(n, (size - 1 - a) // k + 1)
        shape.append(size)
        source.append(slice(first, max(first, last)))
        target.append(slice(a + first * k, max(a + (last - 1) * k + 1, a + first * k), k))
    y = np.zeros(shape, x.dtype)
    y[tuple(target)] = x[tuple(source)]
    return y


def _pointwise(x: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
    """Kernels of one tap: the input is its own column matrix."""
    n, channels, *space = x.shape
    columns = x.reshape(n, groups, channels // groups, math.prod(space))
    filters = w.reshape(groups, w.shape[0] // groups, w.shape[1])
    return np.matmul(filters, columns).reshape(n, w.shape[0], *space)


def _windows(x: np.ndarray, taps: Sequence[int], out: Sequence[int], stride: Any, dilation: Any) -> np.ndarray:
    """A view [batch, channels, *taps, *out] of padded `x`."""
    extents, by = (*taps, *out), (*dilation, *stride)
    # Along an extent of 1, `by` may be any number, and the product larger than an address.
    strides = (s * k if n > 1 else 0 for n, s, k in zip(extents, x.strides[2:] * 2, by))
    return as_strided(x, (*x.shape[:2], *extents), (*x.strides[:2], *strides), writeable=False)


def _depthwise(
    x: np.ndarray, w: np.ndarray, out: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> np.ndarray:
    """One filter per channel: a multiply-add of whole planes per tap, a few planes at a time."""
    n, channels = x.shape[:2]
    y = np.empty((n, channels, *out), x.dtype)
    windows = _windows(x, w.shape[2:], out, stride, dilation)
    step = max(1, _PLANES // max(1, math.prod(out)))
    ones = (1,) * len(out)
    for image, first in itertools.product(range(n), range(0, channels, step)):
        some = slice(first, first + step)
        total = y[image, some]
        product = np.empty_like(total)
        for number, tap in enumerate(itertools.product(*map(range, w.shape[2:]))):
            plane_at: Any = (image, some, *tap)
            weight_at: Any = (some, 0, *tap)
            plane, weight = windows[plane_at], w[weight_at].reshape(-1, *ones)
            if number == 0:
                np.multiply(plane, weight, out=total)
            else:
                np.multiply(plane, weight, out=product)
                np.add(total, product, out=total)
    return y


def _by_taps(
    x: np.ndarray,
    mask: np.ndarray,
    w: np.ndarray,
    out: tuple[int, ...],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    """The sum of one product per tap, only over elements of `x` where `mask` (with its spatial shape) is True."""
    windows, inside = (_windows(v, w.shape[2:], out, stride, dilation) for v in (x, mask))
    y = np.zeros((x.shape[0], w.shape[0], *out), x.dtype)
    for tap in itertools.product(*map(range, w.shape[2:])):
        at: Any = (slice(None), slice(None), *tap)
        np.add(y, _pointwise(windows[at], w[at], groups), out=y, where=inside[at])
    return y


def _by_columns(
    x: np.ndarray, w: np.ndarray, out: tuple[int, ...], stride: Sequence[int], dilation: Sequence[int], groups: int
) -> np.ndarray:
    n, channels = x.shape[:2]
    taps, depth, width = w.shape[2:], w.shape[1], w.shape[0] // groups
    y = np.zeros((n, w.shape[0], *out), x.dtype)
    terms = depth * math.prod(taps)
    if y.size == 0 or terms == 0:
        return y
    filters = w.reshape(groups, width, terms)
    windows = _windows(x, taps, out, stride, dilation)
    if is_joint(n, out):
        _several_images(windows, filters, y)
        return y
    # The first spatial axis is processed in pieces, so that the column buffer stays small.
    rows, inner = (out[0], math.prod(out[1:])) if out else (1, 1)
    step = max(1, min(rows, _COLUMNS // (terms * inner)))
    for image, group in itertools.product(range(n), range(groups)):
        block = windows[image, group * depth : (group + 1) * depth]
        result = y[image, group * width : (group + 1) * width].reshape(width, rows * inner)
        for first in range(0, rows, step):
            last = min(rows, first + step)
            cut = (slice(None),) * (1 + len(taps)) + ((slice(first, last),) if out else ())
            columns = np.ascontiguousarray(block[cut]).reshape(terms, (last - first) * inner)
            if step >= rows:
                np.matmul(filters[group], columns, out=result)
            else:
                result[:, first * inner : last * inner] = np.matmul(filters[group], columns)
    return y


def _several_images(windows: np.ndarray, filters: np.ndarray, y: np.ndarray) -> None:
    """Writes the convolution into `y` [image, channel, *out], with a row for each position of several images.
    `windows`: of `_windows`; `filters`: [group, filter, term]."""
    groups, width, terms = filters.shape
    out = y.shape[2:]
    depth, positions = windows.shape[1] // groups, math.prod(out)
    rows_of = np.moveaxis(windows, range(-len(out), 0), range(1, 1 + len(out)))
    step = max(1, _COLUMNS // (terms * positions))
    # Where there are many terms, as many as a batch has pixels, an image is processed in pieces of its first axis.
    lines = out[0] if out else 1
    high = lines if step > 1 else max(1, min(lines, _COLUMNS // (terms * positions // lines)))
    for image, group, line in itertools.product(range(0, len(y), step), range(groups), range(0, lines, high)):
        some, piece = slice(image, image + step), (slice(line, line + high),) if out else ()
        rest = [slice(None)] * (len(out) - 1)
        read: Any = (some, *piece, *rest, slice(group * depth, (group + 1) * depth))
        written: Any = (some, slice(group * width, (group + 1) * width), *piece)
        part = rows_of[read]
        rows = np.ascontiguousarray(part).reshape(-1, terms)
        found = np.matmul(rows, filters[group].T).reshape(*part.shape[: 1 + len(out)], width)
        y[written] = np.moveaxis(found, -1, 1)
