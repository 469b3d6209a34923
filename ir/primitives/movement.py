"""Primitives that move elements without computing: result elements are operand elements (or padding).

An `eval` may return a view of its operand, as results are never written to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import itemgetter, methodcaller
from typing import TYPE_CHECKING, Any

import numpy as np

from gluonjit.ir.dims import is_less, right_either_way
from gluonjit.ir.opdef import REQUIRED, primitive
from gluonjit.ir.primitives.checks import check_axes, check_axis, check_same_dtype, ints
from gluonjit.ir.types import IRError, TensorType, dtype_of

if TYPE_CHECKING:
    from gluonjit.ir.graph import Emitter


Index = Any  # a tuple of index expressions


def interleaved(b: Emitter, parts: Mapping[tuple[int, ...], Any], axes: Sequence[int], shape: Sequence[int]) -> Any:
    """A tensor of this shape, put together over the emitter `b` from its phases: `parts[p, …]` has the elements whose
    remainder along `axes` is p, …, and perhaps some beyond. All parts have one shape."""
    parts = dict(parts)
    for k in reversed(range(len(axes))):
        # The phases side by side on a new axis after the axis, which is then merged with it.
        axis = axes[k]
        count = 1 + max(phase[k] for phase in parts)
        for head in dict.fromkeys(phase[:k] for phase in parts):
            row = [parts.pop((*head, n)) for n in range(count)]
            parts[head] = row[0] if count == 1 else _merged(b, row, axis, shape[axis])
    (y,) = parts.values()
    return y if y.shape == tuple(shape) else b.slice(y, start=(0,) * len(shape), size=tuple(shape))


def _merged(b: Emitter, row: Sequence[Any], axis: int, length: int) -> Any:
    apart = [b.reshape(v, shape=(*v.shape[: axis + 1], 1, *v.shape[axis + 1 :])) for v in row]
    y = b.concat(*apart, axis=axis + 1)
    y = b.reshape(y, shape=(*y.shape[:axis], y.shape[axis] * len(row), *y.shape[axis + 2 :]))
    if y.shape[axis] == length:
        return y
    size = (*y.shape[:axis], length, *y.shape[axis + 1 :])
    return b.slice(y, start=(0,) * len(size), size=size)


# broadcast ------------------------------------------------------------------------------------------------------------


def broadcast_dims(rank: int, shape: Sequence[int], dims: Sequence[int] | None) -> tuple[int, ...]:
    """The result axis of each operand axis; trailing alignment when `dims` is None."""
    return tuple(dims) if dims is not None else tuple(range(len(shape) - rank, len(shape)))


def _infer_broadcast(x: TensorType, shape: Any, dims: Any) -> TensorType:
    shape = ints("shape", shape, low=0)
    if dims is None and x.rank > len(shape):
        raise IRError(f"{x} has more axes than the result's shape {shape}; reshape it first")
    if dims is not None:
        dims = ints("dims", dims, length=x.rank)
        if any(not 0 <= d < len(shape) for d in dims) or any(a >= b for a, b in zip(dims, dims[1:], strict=False)):
            raise IRError(f"dims = {dims} must be increasing axes of the result's shape {shape}; transpose first")
    dims = broadcast_dims(x.rank, shape, dims)
    for n, d in zip(x.shape, dims, strict=True):
        if n not in (1, shape[d]):
            raise IRError(f"axis of {n} of {x} cannot become axis {d} of {shape}; only axes of 1 stretch")
    return x.with_shape(shape)


def _eval_broadcast(x: np.ndarray, shape: Sequence[int], dims: Sequence[int] | None) -> np.ndarray:
    if dims is not None:
        aligned = [1] * len(shape)
        for n, d in zip(x.shape, dims, strict=True):
            aligned[d] = n
        x = x.reshape(aligned)
    return np.broadcast_to(x, shape)


_COPIED = 4096
"""Elements that are copied in less time than `np.broadcast_to` takes to make a view."""


def _quick_broadcast(x: TensorType, shape: Sequence[int], dims: Sequence[int] | None) -> Any:
    aligned = [1] * len(shape)
    for n, d in zip(x.shape, broadcast_dims(x.rank, shape, dims), strict=True):
        aligned[d] = n
    of, to, dtype = tuple(aligned), tuple(shape), x.dtype.numpy
    if math.prod(to) > _COPIED:
        return None

    def quick(x: np.ndarray) -> np.ndarray:
        y = np.empty(to, dtype)
        y[...] = x.reshape(of)
        return y

    return quick


def _element_broadcast(s: Any, i: Index, x: Any, shape: Sequence[int], dims: Sequence[int] | None) -> Any:
    axes = broadcast_dims(x.type.rank, shape, dims)
    return x(tuple(0 if n == 1 else i[d] for n, d in zip(x.type.shape, axes, strict=True)))


# reshape and transpose ------------------------------------------------------------------------------------------------


def _infer_reshape(x: TensorType, shape: Any) -> TensorType:
    shape = ints("shape", shape, low=0)
    if math.prod(shape) != x.size:
        raise IRError(f"{x} has {x.size} elements, shape {shape} has {math.prod(shape)}")
    return x.with_shape(shape)


def reshape_groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[range, range]]:
    """The finest division of both shapes into runs of axes with equal sizes, in order.

    (2, 3, 4) to (6, 4) is [(0..1, 0..0), (2..2, 1..1)]: indices mix inside a run only. Shapes have no axis of 0.
    The runs of open shapes are those of sizes that have nothing in common, or longer.
    """
    groups = []
    a = b = 0
    while a < len(old) or b < len(new):
        first_a, first_b = a, b
        left = right = 1
        while left != right or (a == first_a and b == first_b):
            with right_either_way():  # both shapes are a single run at worst
                behind = a < len(old) and not is_less(right, left)
            if b >= len(new) or behind:
                left *= old[a]
                a += 1
            else:
                right *= new[b]
                b += 1
        groups.append((range(first_a, a), range(first_b, b)))
    return groups


def _element_reshape(s: Any, i: Index, x: Any, shape: Sequence[int]) -> Any:
    old = x.type.shape
    if x.type.size == 0:  # nothing to compute; any index of the right rank will do
        return x((0,) * len(old))
    index: list[Any] = [0] * len(old)
    for sources, targets in reshape_groups(old, shape):
        moving = [k for k in targets if shape[k] != 1]
        kept = [k for k in sources if old[k] != 1]
        if not kept:
            continue
        flat: Any = i[moving[0]]
        for k in moving[1:]:
            flat = flat * shape[k] + i[k]
        for k in reversed(kept[1:]):
            index[k] = flat % old[k]
            flat = flat // old[k]
        index[kept[0]] = flat
    return x(tuple(index))


def _infer_transpose(x: TensorType, perm: Any) -> TensorType:
    perm = ints("perm", perm, length=x.rank)
    if sorted(perm) != list(range(x.rank)):
        raise IRError(f"perm = {perm} is not a permutation of the axes of {x}")
    return x.with_shape(tuple(x.shape[p] for p in perm))


def _element_transpose(s: Any, i: Index, x: Any, perm: Sequence[int]) -> Any:
    index: list[Any] = [0] * len(perm)
    for k, p in enumerate(perm):
        index[p] = i[k]
    return x(tuple(index))


# slice, reverse, pad --------------------------------------------------------------------------------------------------


def _infer_slice(x: TensorType, start: Any, size: Any, step: Any) -> TensorType:
    start, size = ints("start", start, x.rank, low=0), ints("size", size, x.rank, low=0)
    check_window(x, start, size, (1,) * x.rank if step is None else ints("step", step, x.rank, low=1))
    return x.with_shape(size)


def check_window(x: TensorType, start: Sequence[int], size: Sequence[int], step: Sequence[int]) -> None:
    """start : start + size * step : step must lie in `x`."""
    for axis, (n, first, count, by) in enumerate(zip(x.shape, start, size, step, strict=True)):
        last = first + (count - 1) * by if count else first - 1
        if first > n or last >= n:
            raise IRError(f"{count} element(s) from {first} in steps of {by} leave axis {axis} of {x}")


def _slices(start: Sequence[int], size: Sequence[int], step: Sequence[int] | None) -> tuple[slice, ...]:
    if step is None:
        return tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))
    # The end is one past the last element: NumPy clips a later end, which would hide that `size` does not fit.
    return tuple(slice(a, a + (n - 1) * k + 1 if n else a, k) for a, n, k in zip(start, size, step, strict=True))


def _eval_slice(x: np.ndarray, start: Sequence[int], size: Sequence[int], step: Sequence[int] | None) -> np.ndarray:
    y = x[_slices(start, size, step)] if x.ndim else x
    if y.shape != tuple(size):
        raise IndexError("slice leaves the operand")
    return y


def _quick_slice(x: TensorType, start: Sequence[int], size: Sequence[int], step: Sequence[int] | None) -> Any:
    return itemgetter(_slices(start, size, step)) if x.rank else None


def _element_slice(s: Any, i: Index, x: Any, start: Any, size: Any, step: Any) -> Any:
    step = step or (1,) * len(start)
    return x(tuple(k * by + first for k, first, by in zip(i, start, step, strict=True)))


def _infer_reverse(x: TensorType, axes: Any) -> TensorType:
    check_axes("axes", axes, x)
    return x


def _element_reverse(s: Any, i: Index, x: Any, axes: Sequence[int]) -> Any:
    return x(tuple(k * -1 + (n - 1) if axis in axes else k for axis, (k, n) in enumerate(zip(i, x.type.shape))))


def _infer_pad(x: TensorType, value: TensorType, low: Any, high: Any, interior: Any) -> TensorType:
    check_same_dtype(x, value)
    if value.rank:
        raise IRError(f"the padding value must be 0-d, got {value}")
    low, high = ints("low", low, x.rank, low=0), ints("high", high, x.rank, low=0)
    inner = (0,) * x.rank if interior is None else ints("interior", interior, x.rank, low=0)
    return x.with_shape(
        tuple(a + n + max(n - 1, 0) * k + b for n, a, b, k in zip(x.shape, low, high, inner, strict=True))
    )


def _eval_pad(
    x: np.ndarray, value: np.ndarray, low: Sequence[int], high: Sequence[int], interior: Sequence[int] | None
) -> np.ndarray:
    if x.dtype != value.dtype:
        raise TypeError(f"pad of {x.dtype} with {value.dtype}")
    shape, inside = _padded(x.shape, low, high, interior)
    y = np.full(shape, value, x.dtype)
    y[inside] = x
    return y


def _padded(
    shape: Sequence[int], low: Sequence[int], high: Sequence[int], interior: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[slice, ...]]:
    """The shape of what is padded, and where in it the operand's elements are."""
    inner = interior or (0,) * len(shape)
    spread = [n + max(n - 1, 0) * k for n, k in zip(shape, inner)]
    whole = tuple([a + n + b for n, a, b in zip(spread, low, high, strict=True)])
    return whole, tuple([slice(a, a + n, k + 1) for a, n, k in zip(low, spread, inner)])


def _quick_pad(
    x: TensorType, value: TensorType, low: Sequence[int], high: Sequence[int], interior: Sequence[int] | None
) -> Any:
    shape, inside, dtype = *_padded(x.shape, low, high, interior), x.dtype.numpy

    def quick(x: np.ndarray, value: np.ndarray) -> np.ndarray:
        y = np.empty(shape, dtype)
        y[...] = value
        y[inside] = x
        return y

    return quick


def _element_pad(s: Any, i: Index, x: Any, value: Any, low: Any, high: Any, interior: Any) -> Any:
    interior = interior or (0,) * len(low)
    inside = None
    index = []
    for k, n, a, b, zeros in zip(i, x.type.shape, low, high, interior, strict=True):
        at = k + -a if a != 0 else k
        if a != 0 or b != 0 or (n == 0 and zeros != 0):
            inside = both(s, inside, s.in_range(at, 0, n + max(n - 1, 0) * zeros))
        if zeros:
            inside = both(s, inside, s.in_range(at % (zeros + 1), 0, 1))
            at = at // (zeros + 1)
        index.append(at)
    if inside is None:
        return x(tuple(index))
    return s.guarded(inside, lambda: x(tuple(index)), value(()))


def both(s: Any, a: Any, b: Any) -> Any:
    """`a and b` over a handler, where None is no condition."""
    return b if a is None else getattr(s, "and")(a, b)


# concat and update_slice ----------------------------------------------------------------------------------------------


def _infer_concat(*xs: TensorType, axis: Any) -> TensorType:
    if not xs:
        raise IRError("needs at least one operand")
    first = xs[0]
    check_axis(axis, first)
    for x in xs[1:]:
        check_same_dtype(first, x)
        if x.rank != first.rank or any(m != n for k, (m, n) in enumerate(zip(first.shape, x.shape)) if k != axis):
            raise IRError(f"{first} and {x} differ in more than the length of axis {axis}")
    shape = list(first.shape)
    shape[axis] = sum(x.shape[axis] for x in xs)
    return first.with_shape(tuple(shape))


def _eval_concat(*xs: np.ndarray, axis: int) -> np.ndarray:
    if any(x.dtype != xs[0].dtype for x in xs):
        raise TypeError("concat of different element types")
    return np.concatenate(xs, axis)


def _quick_concat(*xs: TensorType, axis: int) -> Any:
    return lambda *xs: np.concatenate(xs, axis)


def _element_concat(s: Any, i: Index, *xs: Any, axis: int) -> Any:
    result = s.constant(0, xs[0].type.dtype)
    end = 0
    for x in xs:
        start, end = end, end + x.type.shape[axis]
        if start == end:
            continue
        index = (*i[:axis], i[axis] + -start if start != 0 else i[axis], *i[axis + 1 :])
        if end - start == sum(x.type.shape[axis] for x in xs):
            return x(index)
        # Every part is guarded, even the last one: `otherwise` is always computed, so it must not load.
        result = s.guarded(s.in_range(i[axis], start, end), lambda x=x, index=index: x(index), result)
    return result


def _infer_update_slice(x: TensorType, u: TensorType, start: Any, step: Any) -> TensorType:
    check_same_dtype(x, u)
    if x.rank != u.rank:
        raise IRError(f"{u} must have as many axes as {x}")
    start = ints("start", start, x.rank, low=0)
    check_window(x, start, u.shape, (1,) * x.rank if step is None else ints("step", step, x.rank, low=1))
    return x


def _eval_update_slice(x: np.ndarray, u: np.ndarray, start: Sequence[int], step: Sequence[int] | None) -> np.ndarray:
    if x.dtype != u.dtype:
        raise TypeError(f"update of {x.dtype} with {u.dtype}")
    y = x.copy()
    at = (*_slices(start, u.shape, step), ...)  # with `...` it is a view for 0-d, too
    window = y[at]
    if window.shape != u.shape:
        raise IndexError("update leaves the operand")
    window[...] = u
    return y


def _element_update_slice(s: Any, i: Index, x: Any, u: Any, start: Any, step: Any) -> Any:
    if u.type.size == 0:
        return x(i)
    inside = None
    index = []
    for k, n, m, first, by in zip(i, x.type.shape, u.type.shape, start, step or (1,) * len(start), strict=True):
        if n == m:
            index.append(k)
            continue
        at = k + -first if first != 0 else k
        inside = both(s, inside, s.in_range(at, 0, (m - 1) * by + 1))
        if by > 1:
            inside = both(s, inside, s.in_range(at % by, 0, 1))
            at = at // by
        index.append(at)
    if inside is None:
        return u(tuple(index))
    return s.guarded(inside, lambda: u(tuple(index)), x(i))


# gradients ------------------------------------------------------------------------------------------------------------


def _vjp_broadcast(b: Emitter, g: Any, y: Any, x: Any, shape: Sequence[int], dims: Sequence[int] | None) -> Any:
    axes = broadcast_dims(len(x.shape), shape, dims)
    stretched = {d for n, d in zip(x.shape, axes, strict=True) if n != shape[d]}
    summed = tuple(d for d in range(len(shape)) if d in stretched or d not in axes)
    total = b.reduce(g, op="sum", axes=summed) if summed else g
    return b.reshape(total, shape=x.shape) if total.shape != x.shape else total


def _vjp_slice(b: Emitter, g: Any, y: Any, x: Any, start: Any, size: Any, step: Any) -> Any:
    by = step or (1,) * len(start)
    used = [first + ((n - 1) * k + 1 if n else 0) for first, n, k in zip(start, size, by, strict=True)]
    high = tuple(n - last for n, last in zip(x.shape, used, strict=True))
    zero = b.constant(0, dtype_of(g))
    return b.pad(g, zero, low=tuple(start), high=high, interior=tuple(k - 1 for k in by))


def _vjp_pad(b: Emitter, g: Any, y: Any, x: Any, value: Any, low: Any, high: Any, interior: Any) -> tuple[Any, Any]:
    step = tuple(k + 1 for k in interior) if interior else None
    inner = b.slice(g, start=tuple(low), size=x.shape, step=step)
    zeros = b.broadcast(b.constant(0, dtype_of(g)), shape=x.shape)
    around = b.update_slice(g, zeros, start=tuple(low), step=step)
    return inner, b.reduce(around, op="sum", axes=tuple(range(len(g.shape))))


def _vjp_concat(b: Emitter, g: Any, y: Any, *xs: Any, axis: int) -> Any:
    parts, first = [], 0
    for x in xs:
        start = tuple(first if k == axis else 0 for k in range(len(x.shape)))
        parts.append(b.slice(g, start=start, size=x.shape))
        first += x.shape[axis]
    return tuple(parts)


def _vjp_update_slice(b: Emitter, g: Any, y: Any, x: Any, u: Any, start: Any, step: Any) -> tuple[Any, Any]:
    zeros = b.broadcast(b.constant(0, dtype_of(g)), shape=u.shape)
    kept = b.update_slice(g, zeros, start=start, step=step)
    return kept, b.slice(g, start=start, size=u.shape, step=step)


primitive(
    "broadcast",
    infer=_infer_broadcast,
    eval=_eval_broadcast,
    quick=_quick_broadcast,
    element=_element_broadcast,
    attrs={"shape": REQUIRED, "dims": None},
    moves="affine",
    vjp=_vjp_broadcast,
    doc="operand axis k becomes result axis dims[k] (None: the trailing axes); axes of 1 stretch",
)
primitive(
    "reshape",
    infer=_infer_reshape,
    eval=lambda x, shape: x.reshape(shape),
    quick=lambda x, shape: methodcaller("reshape", tuple(shape)),
    element=_element_reshape,
    attrs={"shape": REQUIRED},
    moves="affine",
    vjp=lambda b, g, y, x, shape: b.reshape(g, shape=x.shape),
    doc="the same elements, in row-major order, in another shape",
)
primitive(
    "transpose",
    infer=_infer_transpose,
    eval=lambda x, perm: x.transpose(perm),
    quick=lambda x, perm: methodcaller("transpose", tuple(perm)),
    element=_element_transpose,
    attrs={"perm": REQUIRED},
    moves="affine",
    vjp=lambda b, g, y, x, perm: b.transpose(g, perm=tuple(sorted(range(len(perm)), key=lambda k: perm[k]))),
    doc="result axis k is operand axis perm[k]",
)
primitive(
    "slice",
    infer=_infer_slice,
    eval=_eval_slice,
    quick=_quick_slice,
    element=_element_slice,
    attrs={"start": REQUIRED, "size": REQUIRED, "step": None},
    moves="affine",
    vjp=_vjp_slice,
    doc="per axis: `size` elements from `start` on, `step` apart",
)
primitive(
    "reverse",
    infer=_infer_reverse,
    eval=lambda x, axes: np.flip(x, axes) if axes else x,
    element=_element_reverse,
    attrs={"axes": REQUIRED},
    moves="affine",
    vjp=lambda b, g, y, x, axes: b.reverse(g, axes=axes),
    doc="the axes read backwards",
)
primitive(
    "pad",
    infer=_infer_pad,
    eval=_eval_pad,
    quick=_quick_pad,
    element=_element_pad,
    attrs={"low": REQUIRED, "high": REQUIRED, "interior": None},
    moves="lookup",
    vjp=_vjp_pad,
    doc="per axis: `low` and `high` copies of the value at the ends and `interior` ones between elements",
)
primitive(
    "concat",
    infer=_infer_concat,
    eval=_eval_concat,
    quick=_quick_concat,
    element=_element_concat,
    attrs={"axis": REQUIRED},
    moves="lookup",
    vjp=_vjp_concat,
    doc="the operands one after another along an axis",
)
primitive(
    "update_slice",
    infer=_infer_update_slice,
    eval=_eval_update_slice,
    element=_element_update_slice,
    attrs={"start": REQUIRED, "step": None},
    moves="lookup",
    vjp=_vjp_update_slice,
    doc="x with x[start : start + size(u) * step : step] replaced by u",
)
