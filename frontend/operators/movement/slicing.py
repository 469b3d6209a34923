"""Operators that take (or replace) a regular part of a tensor: slices, crops, reversal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gluonjit.ir.dims import Extent, is_at_most
from gluonjit.ir.graph import Emitter
from gluonjit.ir.opdef import REQUIRED
from gluonjit.ir.primitives.host_call import ERRORS
from gluonjit.ir.types import I64, dtype_of
from gluonjit.operators.attributes import boolean, bounds, integer, number, optional, shape
from gluonjit.operators.movement.joining import part
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import (
    Shapes,
    axis_in,
    first_from_output,
    merge,
    require_same_dtype,
    require_shape,
    scalar,
    shape_text,
)

# Slices


class Window(NamedTuple):
    """Along each axis `size` elements from `start` on, `step` > 0 apart; then the axes `flipped` are reversed."""

    start: tuple[Any, ...]
    size: tuple[Any, ...]
    step: Shape
    flipped: Shape


def window(old: Sequence[int], begin: Shape, end: Shape, step: Shape) -> Window:
    """The window that MXNet's `begin`, `end` and `step` select; entries may be None, as in Python's slices."""
    if len(begin) > len(old):
        raise OperatorError(
            f"Slicing axis exceeds data dimensions: begin={tuple(begin)} for an array of shape {shape_text(old)}"
        )
    if len(begin) != len(end):
        raise OperatorError("begin and end must have the same length")
    if step and len(step) != len(begin):
        raise OperatorError("step and begin must have the same length")
    start: list[Extent] = []
    size: list[Extent] = []
    stride, flipped = [], []
    for axis, n in enumerate(old):
        key = slice(None)
        if axis < len(begin):
            if step and step[axis] == 0:
                raise OperatorError(f"slice op step[{axis}] cannot be 0")
            key = slice(begin[axis], end[axis], step[axis] if step else None)
        first, count, by = taken(n, key)
        if by < 0:
            flipped.append(axis)
            first, by = first + (count - 1) * by, -by
        start.append(first if count else 0)
        size.append(count)
        stride.append(by)
    return Window(tuple(start), tuple(size), tuple(stride), tuple(flipped))


def taken(n: Extent, key: slice) -> tuple[Extent, Extent, int]:
    """First element, count and step of `range(n)[key]`. Raises Undecided if they depend on an open extent in another
    way than as a sum of products."""
    if isinstance(n, int):
        found = range(n)[key]
        return found.start, len(found), found.step
    by = 1 if key.step is None else key.step
    low, high = (0, n) if by > 0 else (-1, n - 1)
    bounds: list[Extent] = []
    for at, default in ((key.start, low if by > 0 else high), (key.stop, high if by > 0 else low)):
        place = default if at is None else at + n if at < 0 else at
        bounds.append(low if place < low else high if place > high else place)
    start, stop = bounds
    if by > 0:
        count = (stop - start + by - 1) // by if start < stop else 0
    else:
        count = (start - stop - by - 1) // -by if stop < start else 0
    return start, count, by


def _steps(w: Window) -> Shape | None:
    """The steps in the form that the primitives take: None if all are 1."""
    return None if all(k == 1 for k in w.step) else w.step


_RANGE = {
    "begin": bounds(doc="per axis; None: the first element, or the last if step < 0"),
    "end": bounds(doc="per axis, exclusive; None: up to the other end"),
    "step": bounds((), doc="per axis, not 0; negative ones read backwards"),
}


@operator("slice", aliases=("crop",), attrs=_RANGE, clips=True)
def slice_(b: Emitter, data: Any, *, begin: Shape, end: Shape, step: Shape) -> Any:
    """data[begin:end:step] on the first axes

    Shapes: data (any) -> the lengths of the slices, then data's other axes

    Bounds are clipped, as in Python. MXNetError for a step of 0, and more slices than axes.

    >>> mx.nd.slice(mx.nd.array([[1, 2, 3], [4, 5, 6]]), begin=(None, 0), end=(None, 2)).asnumpy()
    array([[1., 2.],
           [4., 5.]], dtype=float32)
    """
    w = window(data.shape, begin, end, step)
    if w.size == tuple(data.shape) and not w.flipped:
        return data
    y = b.slice(data, start=w.start, size=w.size, step=_steps(w))
    return b.reverse(y, axes=w.flipped) if w.flipped else y


def _replaced(b: Emitter, x: Any, w: Window, new: Any) -> Any:
    """Replaces the elements of `x` in the window `w` by `new`."""
    if 0 in w.size:
        return x
    if w.flipped:
        new = b.reverse(new, axes=w.flipped)
    return b.update_slice(x, new, start=w.start, step=_steps(w))


@operator(
    "_slice_assign",
    aliases=("_crop_assign",),
    inputs=("lhs", "rhs"),
    attrs=_RANGE,
    infer_inputs=first_from_output,
)
def slice_assign(b: Emitter, lhs: Any, rhs: Any, *, begin: Shape, end: Shape, step: Shape) -> Any:
    """Replaces lhs[begin:end:step] by rhs, which must have the shape of the slice

    Shapes: lhs (any), rhs (the slice's) -> lhs's shape

    >>> x = mx.nd.zeros(4)
    >>> x[1:3] = mx.nd.array([5, 6])
    >>> x.asnumpy()
    array([0., 5., 6., 0.], dtype=float32)
    """
    require_same_dtype(lhs, rhs)
    w = window(lhs.shape, begin, end, step)
    require_shape(rhs, w.size, "rhs")
    return _replaced(b, lhs, w, rhs)


@operator(
    "_slice_assign_scalar",
    aliases=("_crop_assign_scalar",),
    attrs={"scalar": number(0.0, doc="the number"), **_RANGE},
    same_shape=True,
)
def slice_assign_scalar(b: Emitter, data: Any, *, scalar: float, begin: Shape, end: Shape, step: Shape) -> Any:
    """Sets data[begin:end:step] to a number

    Shapes: data (any) -> the same

    >>> x = mx.nd.zeros(4)
    >>> x[1:3] = 7
    >>> x.asnumpy()
    array([0., 7., 7., 0.], dtype=float32)
    """
    w = window(data.shape, begin, end, step)
    value = b.broadcast(_constant(b, scalar, dtype_of(data)), shape=w.size)
    return _replaced(b, data, w, value)


_constant = scalar


def _but_axis(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    """An `infer_inputs` rule: the data has the output's shape except along the sliced axis."""
    out = outputs[0]
    if not out:
        return inputs
    axis = axis_in(attrs["axis"], len(out))
    return [merge(inputs[0], (*out[:axis], 0, *out[axis + 1 :]))]


@operator(
    "slice_axis",
    attrs={
        "axis": integer(doc="the axis that is cut"),
        "begin": integer(doc="the first position"),
        "end": optional(integer(doc="the end, exclusive; None: to the end"), REQUIRED),
    },
    infer_inputs=_but_axis,
    clips=True,
)
def slice_axis(b: Emitter, data: Any, *, axis: int, begin: int, end: int | None) -> Any:
    """data[begin:end] along one axis; negative numbers count from the end

    Shapes: data (any) -> the same, with end - begin along `axis`

    MXNetError for bounds outside of the axis, and for an empty slice.

    >>> mx.nd.slice_axis(mx.nd.array([[1, 2, 3], [4, 5, 6]]), axis=1, begin=0, end=-1).asnumpy()
    array([[1., 2.],
           [4., 5.]], dtype=float32)
    """
    rank = len(data.shape)
    if not -rank <= axis < rank:
        raise OperatorError(
            "Transformed axis must be smaller than the source ndim and larger than zero! "
            f"Recieved axis={axis}, src_ndim={rank}, transformed axis={axis + rank if axis < 0 else axis}"
        )
    axis %= rank
    n = data.shape[axis]
    start = begin + n if begin < 0 else begin
    stop = n if end is None else end + n if end < 0 else end
    if start < 0:
        raise OperatorError(f"Invalid begin for begin={begin} as axis_size is {n}")
    if not 0 <= stop <= n:
        raise OperatorError(f"Invalid end for end={end} as axis_size is {n}")
    if start >= stop and n:
        raise OperatorError(f"Invalid begin, end, get begin={begin}, end={end}")
    return part(b, data, axis, start, stop)


@operator(
    "slice_like",
    inputs=("data", "shape_like"),
    attrs={"axes": shape((), doc="the axes to cut; () means all")},
)
def slice_like(b: Emitter, data: Any, shape_like: Any, *, axes: Shape) -> Any:
    """Cuts the data to the lengths of `shape_like` along the given axes, from the start

    Shapes: data (any), shape_like (any) -> data's, with the extents of `shape_like` along `axes`

    MXNetError if `shape_like` is longer.

    >>> mx.nd.slice_like(mx.nd.array([[1, 2, 3], [4, 5, 6]]), mx.nd.zeros((1, 2))).asnumpy()
    array([[1., 2.]], dtype=float32)
    """
    old, like = tuple(data.shape), tuple(shape_like.shape)
    size = list(old)
    if not axes:
        if len(old) != len(like):
            raise OperatorError(
                "By default slice_axis performs slice on all axes, but ndim mismatch for inputs: "
                f"{len(old)} vs. {len(like)}"
            )
        axes = tuple(range(len(old)))
    for a in (a + len(old) if a < 0 else a for a in axes):  # also of `shape_like`, whatever its rank
        for which, rank in (("first", len(old)), ("second", len(like))):
            if not 0 <= a < rank:
                raise OperatorError(f"Slice axis: {a} exceeds {which} input: {rank}")
        if isinstance(old[a], int) and not isinstance(like[a], int) and not is_at_most(like[a], old[a]):
            data = _first(b, data, a, like[a])
        elif like[a] > old[a]:
            raise OperatorError(_exceeds(a, like[a], old[a]))
        size[a] = like[a]
    size_there = tuple(data.shape)
    return b.slice(data, start=(0,) * len(old), size=tuple(size)) if tuple(size) != size_there else data


def _first(b: Emitter, x: Any, axis: int, count: Extent) -> Any:
    """The first elements along an axis, of which there may be too few: that shows when the code runs."""
    lasts = [b.constant(count - 1 if k == axis else 0, I64) for k in range(axis + 1)]
    sizes = (*[1] * axis, x.shape[axis])
    b.check_index(b.concat(*(b.reshape(n, shape=(1,)) for n in lasts), axis=0), sizes=sizes, error="slice_like")
    return b.gather(x, b.iota(shape=(count,), axis=0, dtype=I64), axis=axis, mode="clip")


ERRORS["slice_like"] = lambda last, axis, n: OperatorError(_exceeds(axis, last + 1, n))


def _exceeds(axis: int, size: int, limit: int) -> str:
    return f"Slice axis {axis} with size {size} exceeds limit of input with size {limit}"


@operator(
    "Crop",
    variadic=True,
    attrs={
        "num_args": integer(low=1, high=2, doc="how many inputs there are"),
        "offset": shape((0, 0), doc="(y, x) of the corner"),
        "h_w": shape((0, 0), doc="height and width, if there is no second input"),
        "center_crop": boolean(False, doc="whether to take the center and ignore the offset"),
    },
)
def crop(
    b: Emitter, data: Any, crop_like: Any = None, *, num_args: int, offset: Shape, h_w: Shape, center_crop: bool
) -> Any:
    """Crops a rectangle from each NCHW image, of the size of the second input or of `h_w`

    Shapes: data (batch, channels, h, w), crop_like (batch', channels', height, width) -> (batch, channels, height,
    width)

    MXNetError if the rectangle does not lie within the image.

    >>> image = mx.nd.array([[[[1, 2, 3], [4, 5, 6]]]])
    >>> mx.nd.Crop(image, offset=(0, 1), h_w=(2, 2), num_args=1).asnumpy()
    array([[[[2., 3.],
             [5., 6.]]]], dtype=float32)
    """
    if len(data.shape) != 4 or crop_like is not None and len(crop_like.shape) != 4:
        raise OperatorError("Input data should be 4D in batch-channel-y-x")
    size = tuple(crop_like.shape[2:]) if crop_like is not None else tuple(h_w)
    if len(size) != 2 or len(offset) != 2:
        raise OperatorError(f"h_w {shape_text(size)} and offset {shape_text(offset)} must have two entries")
    room = [n - m for n, m in zip(data.shape[2:], size)]
    for k, what in enumerate(("height", "width")):
        if size[k] < 1:
            raise OperatorError(f"the crop {what}(h_w[{k}]) should be larger than 1")
        if room[k] < 0:
            raise OperatorError(f"the crop {what} {size[k]} exceeds that of the data, {data.shape[2 + k]}")
        if not center_crop and not 0 <= offset[k] <= room[k]:
            raise OperatorError(f"offset[{k}] should be less than the residual space of {what}")
    corner = tuple(r // 2 for r in room) if center_crop else tuple(offset)
    return b.slice(data, start=(0, 0, *corner), size=(*data.shape[:2], *size))


# Reversal


@operator("reverse", aliases=("flip",), attrs={"axis": shape(doc="axes to reverse")}, same_shape=True)
def reverse(b: Emitter, data: Any, *, axis: Shape) -> Any:
    """Reverses the elements along the given axes

    Shapes: data (any) -> the same

    >>> mx.nd.reverse(mx.nd.array([[1, 2, 3], [4, 5, 6]]), axis=1).asnumpy()
    array([[3., 2., 1.],
           [6., 5., 4.]], dtype=float32)
    """
    rank = len(data.shape)
    axes = [axis_in(a, rank) for a in axis]
    # An axis given twice is reversed twice.
    odd = tuple(sorted(a for a in set(axes) if axes.count(a) % 2))
    return b.reverse(data, axes=odd) if odd else data
