"""`depthwise_gradient`: the gradient of the filters of a depthwise convolution, channels last.

    y[t…, c] = Σ over images n and positions p… of x[n, p·s + t·d - low, c] · g[n, p…, c]

`conv` cannot say this in one op, as no axis of its operands would be both summed over and kept apart by groups. Taps
that are outside of x are no terms.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gluonjit.ir.opdef import REQUIRED, primitive
from gluonjit.ir.primitives.checks import check_same_dtype, ints
from gluonjit.ir.primitives.reduction import summed
from gluonjit.ir.types import F32, F64, DType, IRError, TensorType

if TYPE_CHECKING:
    from gluonjit.ir.graph import Emitter

_DTYPES = (F32, F64)
"""What its kernel multiplies. Narrower floats would be rounded after each product."""
_TAPS = 64
"""Code is written for each."""
_FAR = 1 << 24
"""No place is so far from another that 64 bits do not hold it."""


def fits(dtype: DType, taps: Sequence[Any], *windows: Sequence[Any]) -> bool:
    """Whether there is such an op: `windows` are its stride, low and dilation."""
    numbers = (*taps, *itertools.chain(*windows))
    if dtype not in _DTYPES or not taps or not all(isinstance(n, int) and abs(n) < _FAR for n in numbers):
        return False
    return math.prod(taps) <= _TAPS


def _infer(x: TensorType, g: TensorType, taps: Any, stride: Any, low: Any, dilation: Any) -> TensorType:
    check_same_dtype(x, g)
    if x.rank < 3 or x.rank != g.rank or x.shape[0] != g.shape[0] or x.shape[-1] != g.shape[-1]:
        raise IRError(f"images (n, spatial…, channels) and cotangents of as many must be given, got {x} and {g}")
    spatial = x.rank - 2
    taps, low = ints("taps", taps, spatial, low=1), ints("low", low, spatial)
    stride, dilation = ints("stride", stride, spatial, low=1), ints("dilation", dilation, spatial, low=1)
    if not fits(x.dtype, taps, stride, low, dilation):
        raise IRError(
            f"it is for float32 and float64, at most {_TAPS} taps, and ints below {_FAR}; got {x}, taps = {taps}, "
            f"stride = {stride}, low = {low}, dilation = {dilation}"
        )
    if not isinstance(x.shape[-1], int):
        raise IRError(f"the number of channels must not be open, got {x}")
    return x.with_shape((*taps, x.shape[-1]))


def _eval(
    x: np.ndarray,
    g: np.ndarray,
    taps: Sequence[int],
    stride: Sequence[int],
    low: Sequence[int],
    dilation: Sequence[int],
) -> np.ndarray:
    size, count = x.shape[1:-1], g.shape[1:-1]
    y = np.zeros((*taps, x.shape[-1]), x.dtype)
    for tap in itertools.product(*map(range, taps)):
        # Position p reads x[p * stride + shift], where that is inside.
        shift = [t * d - a for t, d, a in zip(tap, dilation, low, strict=True)]
        first = [max(0, -(m // s)) for m, s in zip(shift, stride, strict=True)]
        last = [min(n, (k - 1 - m) // s + 1) for n, k, m, s in zip(count, size, shift, stride, strict=True)]
        if any(a >= z for a, z in zip(first, last, strict=True)):
            continue
        reads = zip(first, last, stride, shift, strict=True)
        every = slice(None)
        there = (every, *(slice(a * s + m, (z - 1) * s + m + 1, s) for a, z, s, m in reads))
        here = (every, *(slice(a, z) for a, z in zip(first, last, strict=True)))
        y[tap] = summed(np.add, x[there] * g[here], tuple(range(x.ndim - 1)))
    return y


def _vjp(
    b: Emitter,
    dy: Any,
    y: Any,
    x: Any,
    g: Any,
    taps: Sequence[int],
    stride: Sequence[int],
    low: Sequence[int],
    dilation: Sequence[int],
) -> tuple[Any, Any]:
    """It is linear in both operands: x by the data gradient of the convolution whose filters are dy, and g by that
    convolution itself."""
    spatial = range(len(taps))
    size, count, channels = x.shape[1:-1], g.shape[1:-1], x.shape[-1]
    if 0 in (*x.shape, *g.shape):
        return None, None
    digits = "".join(map(str, spatial))
    layout = (f"N{digits}C", f"{digits}IO", f"N{digits}C")
    one = (1,) * len(taps)
    reach = [(n - 1) * by for n, by in zip(taps, dilation, strict=True)]
    # So that there are as many results as g has.
    high = [(m - 1) * s + r + 1 - a - n for m, s, r, a, n in zip(count, stride, reach, low, size, strict=True)]
    filters = b.reshape(dy, shape=(*taps, 1, channels))
    window: dict[str, Any] = {"dilation": tuple(dilation), "groups": channels, "layout": layout}
    dg = b.conv(x, filters, stride=tuple(stride), low=tuple(low), high=tuple(high), input_dilation=one, **window)
    backwards = [r - a for r, a in zip(reach, low, strict=True)]
    rest = [n + r - a - ((m - 1) * s + 1) for n, r, a, m, s in zip(size, reach, backwards, count, stride, strict=True)]
    flipped = b.reverse(filters, axes=tuple(k for k in spatial if taps[k] > 1))
    dx = b.conv(g, flipped, stride=one, low=tuple(backwards), high=tuple(rest), input_dilation=tuple(stride), **window)
    return dx, dg


primitive(
    "depthwise_gradient",
    infer=_infer,
    eval=_eval,
    attrs={"taps": REQUIRED, "stride": REQUIRED, "low": REQUIRED, "dilation": REQUIRED},
    vjp=_vjp,
    doc="sums of x (n, spatial…, channels) times g, for each tap and channel: the gradient of depthwise filters",
)
