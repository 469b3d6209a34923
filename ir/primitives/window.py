"""`reduce_window`: reduces every position of a sliding window, as pooling does; averages divide afterwards."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gluonjit.ir.dims import Extent
from gluonjit.ir.opdef import REQUIRED, primitive
from gluonjit.ir.primitives.checks import NUMERIC, check_choice, check_kind, ints, window_extent
from gluonjit.ir.primitives.movement import both, interleaved
from gluonjit.ir.primitives.reduction import accumulator, identity
from gluonjit.ir.types import I8, I64, TensorType, dtype_of

if TYPE_CHECKING:
    from gluonjit.ir.graph import Emitter


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


# gradients ------------------------------------------------------------------------------------------------------------

_UNROLLED = 64
"""Elements of the largest window that is searched tap by tap; larger ones along one axis after the other."""
_PHASES = 16
"""The largest product of strides; with a larger one, each result is one of many to be put side by side."""


def _vjp(
    b: Emitter, g: Any, y: Any, x: Any, op: str, window: Any, stride: Any, low: Any, high: Any, dilation: Any
) -> Any:
    spacing = tuple(dilation or (1,) * len(window))
    if 0 in y.shape or 0 in x.shape:
        return b.broadcast(b.constant(0, dtype_of(g)), shape=x.shape)
    if op == "sum":
        return _spread(b, g, x.shape, window, stride, low, spacing)
    if math.prod(window) > _UNROLLED or math.prod(stride) > _PHASES:
        return _axis_by_axis(b, g, x, op, window, stride, low, high, spacing)
    padded = _padded(b, x, op, low, high)
    # The number of the first tap that holds the result; -1 where there is none (NaN).
    taps = list(itertools.product(*map(range, window)))
    first = b.broadcast(b.constant(-1, I8), shape=y.shape)
    for k, tap in reversed(list(enumerate(taps))):
        start = tuple(t * apart for t, apart in zip(tap, spacing, strict=True))
        found = b.eq(b.slice(padded, start=start, size=y.shape, step=tuple(stride)), y)
        first = b.select(found, b.constant(k, I8), first)
    return _by_phases(b, g, first, x.shape, window, stride, low, high, spacing)


class _Tap(NamedTuple):
    """A tap of a window along one axis: position p * stride + phase of the input is it in the window of result
    p + shift, for any p."""

    number: int
    phase: int
    shift: int


def _taps(window: int, stride: int, low: int, spacing: int) -> list[_Tap]:
    return [_Tap(t, (t * spacing - low) % stride, -((t * spacing - low) // stride)) for t in range(window)]


def _by_phases(
    b: Emitter,
    g: Any,
    first: Any,
    shape: Sequence[int],
    window: Sequence[int],
    stride: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    spacing: Sequence[int],
) -> Any:
    """The cotangent of an input of this shape, given which tap of each window gets that of its result. Input positions
    of one *phase* (their remainders by the strides) are in windows by the same taps: a sum for each phase will do."""
    per_axis = [_taps(*numbers) for numbers in zip(window, stride, low, spacing, strict=True)]
    more = [
        _beyond(n, m, (w - 1) * apart - lo - hi, s)
        for n, m, w, apart, lo, hi, s in zip(shape, g.shape, window, spacing, low, high, stride, strict=True)
    ]
    counts = tuple(m + k for m, k in zip(g.shape, more, strict=True))
    zero, none = b.constant(0, dtype_of(g)), b.constant(-1, I8)

    def shifted(v: Any, nothing: Any, shifts: Sequence[int]) -> Any:
        before = tuple(max(-k, 0) for k in shifts)
        start = tuple(max(k, 0) for k in shifts)
        after = tuple(max(at + extra - lead, 0) for at, extra, lead in zip(start, more, before, strict=True))
        if any(before) or any(after):
            v = b.pad(v, nothing, low=before, high=after)
        return v if not any(start) and v.shape == counts else b.slice(v, start=start, size=counts)

    parts: dict[tuple[int, ...], Any] = {}
    for number, tap in enumerate(itertools.product(*per_axis)):
        phase, shifts = tuple(t.phase for t in tap), [t.shift for t in tap]
        mine = b.eq(shifted(first, none, shifts), b.constant(number, I8))
        part = b.select(mine, shifted(g, zero, shifts), zero)
        parts[phase] = part if phase not in parts else parts[phase] + part
    for phase in itertools.product(*map(range, stride)):
        if phase not in parts:  # between windows
            parts[phase] = b.broadcast(zero, shape=counts)
    return interleaved(b, parts, range(len(shape)), shape)


def _beyond(n: Extent, results: Extent, overlap: int, stride: int) -> int:
    """By how many positions of a phase those of an input of `n` elements are more than the results; at least so many if
    that depends on a size. `overlap`: elements that the last window reads beyond `stride` of them, without padding."""
    rest = n - results * stride
    return -(-rest // stride) if isinstance(rest, int) else max(-(-overlap // stride), 0)


def _padded(b: Emitter, x: Any, op: str, low: Sequence[int], high: Sequence[int]) -> Any:
    nothing = b.constant(identity(op, dtype_of(x)), dtype_of(x))
    return b.pad(x, nothing, low=tuple(low), high=tuple(high)) if any(low) or any(high) else x


def _unpadded(b: Emitter, padded: Any, shape: Sequence[int], low: Sequence[int]) -> Any:
    return padded if padded.shape == tuple(shape) else b.slice(padded, start=tuple(low), size=tuple(shape))


def _spread(
    b: Emitter, g: Any, shape: Sequence[int], window: Any, stride: Any, low: Sequence[int], spacing: Sequence[int]
) -> Any:
    """Every element's sum of the cotangents of the windows that it is in: a windowed sum of g, dilated by `stride`."""
    reach = [(taps - 1) * apart for taps, apart in zip(window, spacing, strict=True)]
    # Position q of the padded input is read by results r with q = r * stride + tap * spacing.
    ends = [(n - 1) * s + 1 for n, s in zip(g.shape, stride, strict=True)]
    high = [max(n + a - end, 0) for n, a, end in zip(shape, low, ends, strict=True)]
    zero = b.constant(0, dtype_of(g))
    wide = b.pad(g, zero, low=tuple(reach), high=tuple(high), interior=tuple(s - 1 for s in stride))
    none = (0,) * len(shape)
    total = b.reduce_window(
        wide, op="sum", window=tuple(window), stride=(1,) * len(shape), low=none, high=none, dilation=tuple(spacing)
    )
    return b.slice(total, start=tuple(low), size=tuple(shape))


def _axis_by_axis(
    b: Emitter, g: Any, x: Any, op: str, window: Any, stride: Any, low: Any, high: Any, spacing: Sequence[int]
) -> Any:
    """The cotangent of x for large windows: the maximum of a window is that of its rows' maxima. The last axis is
    reduced first, so that the first maximum in row-major order gets all."""
    rank = len(window)

    def alone(values: Sequence[int], axis: int, other: int) -> tuple[int, ...]:
        return tuple(values[k] if k == axis else other for k in range(rank))

    steps = []
    for k in reversed(range(rank)):
        if (window[k], stride[k], low[k], high[k]) == (1, 1, 0, 0):
            continue
        steps.append((k, x))
        x = b.reduce_window(
            x,
            op=op,
            window=alone(window, k, 1),
            stride=alone(stride, k, 1),
            low=alone(low, k, 0),
            high=alone(high, k, 0),
            dilation=alone(spacing, k, 1),
        )
    for k, x in reversed(steps):
        begin = alone(low, k, 0)
        padded = _padded(b, x, op, begin, alone(high, k, 0))
        g = _unpadded(b, _along_axis(b, g, padded, op, k, window[k], stride[k], spacing[k]), x.shape, begin)
    return g


def _along_axis(b: Emitter, g: Any, x: Any, op: str, axis: int, taps: int, stride: int, spacing: int) -> Any:
    """The cotangent of x for windows along one axis, without padding."""
    count, rank = g.shape[axis], len(x.shape)
    table = np.arange(count, dtype=np.int64)[:, None] * stride + np.arange(taps, dtype=np.int64) * spacing
    rows = b.gather(x, b.constant(table, I64), axis=axis)
    tap = b.arg_reduce(rows, op="argmax" if op == "max" else "argmin", axis=axis + 1)
    starts = b.iota(shape=g.shape, axis=axis, dtype=I64) * stride
    at = starts + tap * spacing
    zero = b.constant(0, dtype_of(g))
    if count == 1:
        here = b.eq(b.iota(shape=x.shape, axis=axis, dtype=I64), b.broadcast(at, shape=x.shape))
        return b.select(here, b.broadcast(g, shape=x.shape), zero)
    places = [at if k == axis else b.iota(shape=g.shape, axis=k, dtype=I64) for k in range(rank)]
    index = b.concat(*(b.reshape(p, shape=(1, *g.shape)) for p in places), axis=0)
    return b.scatter_add(b.broadcast(zero, shape=x.shape), index, g)


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
    vjp=_vjp,
    doc="sum, max or min of every position of a window; padding (low, high) is what the reduction of nothing gives",
)
