"""`reduce_window`: reduces every position of a sliding window, as pooling does; averages divide afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.ir.opdef import REQUIRED, primitive
from gluonjit.ir.primitives.checks import NUMERIC, check_choice, check_kind, ints, window_extent
from gluonjit.ir.primitives.movement import both
from gluonjit.ir.primitives.reduction import accumulator, identity
from gluonjit.ir.types import TensorType, dtype_of

Index = Any

_UFUNCS = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def _infer(x: TensorType, op: Any, window: Any, stride: Any, low: Any, high: Any, dilation: Any) -> TensorType:
    check_choice("op", op, tuple(_UFUNCS))
    check_kind(x, NUMERIC)
    window, stride = ints("window", window, x.rank, low=1), ints("stride", stride, x.rank, low=1)
    low, high = ints("low", low, x.rank, low=0), ints("high", high, x.rank, low=0)
    dilation = (1,) * x.rank if dilation is None else ints("dilation", dilation, x.rank, low=1)
    return x.with_shape(
        tuple(
            window_extent(f"axis {k} of {x}", n, *per_axis)
            for k, (n, *per_axis) in enumerate(zip(x.shape, window, stride, low, high, dilation))
        )
    )


def _eval(
    x: np.ndarray,
    op: str,
    window: Sequence[int],
    stride: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    dilation: Sequence[int] | None,
) -> np.ndarray:
    """Reduces one axis after the other, tap by tap, on whole slices: 2 k operations for a window of k × k."""
    dtype = dtype_of(x)
    wide = accumulator(dtype)
    y = x.astype(wide.numpy, copy=False)
    ufunc = _UFUNCS[op]
    nothing = wide.numpy.type(identity(op, wide))
    spacing = dilation or (1,) * x.ndim
    # Axes that shrink most come first, so that the others have fewer elements to reduce.
    for axis in sorted(range(x.ndim), key=lambda k: -stride[k]):
        taps, step, apart = window[axis], stride[axis], spacing[axis]
        if (taps, step, low[axis], high[axis]) != (1, 1, 0, 0):
            y = _along(y, axis, ufunc, nothing, taps, step, low[axis], high[axis], apart)
    return y.astype(x.dtype) if wide is not dtype else y


def _along(
    x: np.ndarray, axis: int, ufunc: Any, nothing: Any, taps: int, step: int, low: int, high: int, apart: int
) -> np.ndarray:
    n = x.shape[axis]
    count = (n + low + high - (taps - 1) * apart - 1) // step + 1

    def along(first: int, last: int, by: int) -> tuple[slice, ...]:
        """The index of elements first, first + by, … up to `last` along the axis."""
        return (*(slice(None),) * axis, slice(first, last + 1, by))

    out: np.ndarray | None = None
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    for tap in range(taps):
        # Result r reads x[r * step + shift], if that is inside of x.
        shift = tap * apart - low
        first = max(0, -(shift // step))
        last = min(count, (n - 1 - shift) // step + 1)
        if out is None and first == 0 and last >= count:
            out = np.array(x[along(shift, shift + (count - 1) * step, step)], order="C")
            continue
        if out is None:
            out = np.full(shape, nothing, x.dtype)
        if first < last:
            part = out[along(first, last - 1, 1)]
            ufunc(part, x[along(first * step + shift, (last - 1) * step + shift, step)], out=part)
    assert out is not None  # there is at least one tap
    return out


def _element(s: Any, i: Index, x: Any, op: str, window: Any, stride: Any, low: Any, high: Any, dilation: Any) -> Any:
    dtype, shape = x.type.dtype, x.type.shape
    wide = accumulator(dtype) if op == "sum" else dtype
    spacing = dilation or (1,) * len(shape)
    nothing = s.constant(identity(op, wide), wide)
    # Axes on which the window is a single tap are not reduced over.
    reduced = [axis for axis, taps in enumerate(window) if taps > 1]

    def term(k: Index) -> Any:
        tap = dict(zip(reduced, k))
        at, inside = [], None
        for axis, n in enumerate(shape):
            place = i[axis] * stride[axis] if stride[axis] > 1 else i[axis]
            if axis in tap:
                place = place + tap[axis] * spacing[axis]
            if low[axis]:
                place = place + -low[axis]
            if low[axis] or high[axis]:
                inside = both(s, inside, s.in_range(place, 0, n))
            at.append(place)

        def load() -> Any:
            value = x(tuple(at))
            return value if wide is dtype else s.cast(value, wide)

        return load() if inside is None else s.guarded(inside, load, nothing)

    total = s.reduce(op, tuple(window[axis] for axis in reduced), term, wide) if reduced else term(())
    return total if wide is dtype else s.cast(total, dtype)


primitive(
    "reduce_window",
    infer=_infer,
    eval=_eval,
    element=_element,
    attrs={
        "op": REQUIRED,
        "window": REQUIRED,
        "stride": REQUIRED,
        "low": REQUIRED,
        "high": REQUIRED,
        "dilation": None,
    },
    accumulates="reduction",
    doc="sum, max or min of every position of a window; padding (low, high) is what the reduction of nothing gives",
)
