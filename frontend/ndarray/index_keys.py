"""The meaning of index keys: `x[key]` and `x[key] = value` by MXNet's rules, computed from shapes alone.

MXNet has two kinds of keys. Integers, slices, None and Ellipsis are *basic*: the result shares memory with the array
when the elements are contiguous, and is a copy otherwise. A list, tuple, range or array in the key makes it *advanced*:
always a copy. The rules are NumPy's except that

* a result is never 0-d: where NumPy drops the last axis, one of length 1 stays;
* boolean lists and NumPy masks count as integers 0 and 1, and boolean NDArrays are refused;
* together with an advanced index, None inserts its axis where MXNet does (see `_new_axes`).

`parse` needs no array: tracing uses it on shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gluonjit.base import MXNetError, integer_types
from gluonjit.ir.primitives.elementwise import saturating
from gluonjit.language.array import Array
from gluonjit.operators.movement.slicing import taken

Shape = tuple[int, ...]


class Basic(NamedTuple):
    """Per axis of the array: `start`, `step` (may be negative) and `size`. `shape` is the result's.

    `kept` is the result's shape before axes are dropped (integers) and inserted (None): it equals `size`.
    """

    start: Shape
    size: Shape
    step: Shape
    shape: Shape
    int_axes: Shape
    new_axes: Shape
    contiguous: bool

    @property
    def slices(self) -> tuple[slice, ...]:
        """The NumPy key of the same elements, with every axis kept."""
        return tuple(_as_slice(*parts) for parts in zip(self.start, self.size, self.step))


class Advanced(NamedTuple):
    """`key` (integers, slices, i64 arrays) indexes as in NumPy; then axes of length 1 are inserted at `new_axes`."""

    key: tuple[Any, ...]
    new_axes: Shape


def parse(key: Any, shape: Shape) -> Basic | Advanced:
    """The meaning of `key` for an array of `shape`. Raises MXNet's exception for an invalid key."""
    expanded = _expand(key, shape)
    axes = tuple(k for k in expanded if k is not None)
    advanced = _is_advanced(axes)
    if len(axes) > len(shape):
        raise IndexError(f"too many indices ({len(axes)}) for array with {len(shape)} dimensions")
    return _advanced(expanded, axes, shape) if advanced else _basic(expanded, axes, shape)


def _expand(key: Any, shape: Shape) -> tuple[Any, ...]:
    """`key` as a tuple that names every axis: Ellipsis and missing axes become full slices."""
    parts: list[Any] = []
    ellipsis = None
    for part in key if isinstance(key, tuple) else (key,):
        if part is Ellipsis:
            if ellipsis is not None:
                raise IndexError("Cannot use more than one ellipsis (`...`) for indexing")
            ellipsis = len(parts)
        elif isinstance(part, bool):
            pass  # inside a tuple MXNet skips it
        elif _is_ndarray(part):
            parts.append(_index_array(part, len(parts), shape))
        else:
            parts.append(part)
    if ellipsis is None:
        ellipsis = len(parts)
    missing = len(shape) - sum(part is not None for part in parts)
    return (*parts[:ellipsis], *[slice(None)] * missing, *parts[ellipsis:])


def _is_ndarray(part: Any) -> bool:
    return hasattr(part, "asnumpy")


def _index_array(index: Any, axis: int, shape: Shape) -> Any:
    """The values of an NDArray used as an index; a 0-d one is an integer."""
    values = index.asnumpy()
    if values.dtype == np.bool_:
        for k, n in enumerate(values.shape, axis):
            if k < len(shape) and shape[k] != n:
                raise IndexError(
                    f"boolean index did not match indexed array along axis {k}; "
                    f"size is {shape[k]} but corresponding boolean size is {n}"
                )
        raise ValueError(
            "Cannot perform boolean indexing in legacy mode. Please "
            "use nd.contrib.boolean_mask, or nd.where to keep the shape."
        )
    return int(values) if values.ndim == 0 else values


def _is_advanced(axes: Sequence[Any]) -> bool:
    advanced = False
    for part in axes:
        if isinstance(part, (np.ndarray, list, tuple, range)):
            advanced = True
        elif not isinstance(part, (slice, *integer_types)):
            raise ValueError(f"NDArray does not support slicing with key {part} of type {type(part)}.")
    return advanced


def _basic(expanded: Sequence[Any], axes: Sequence[Any], shape: Shape) -> Basic:
    start: list[Any] = []
    size: list[Any] = []
    step, int_axes = [], []
    for axis, (part, n) in enumerate(zip(axes, shape)):
        if isinstance(part, slice):
            begin, length, stride = taken(n, part)
        else:
            if not -n <= part < n:
                raise IndexError(f"index {part} is out of bounds for axis {axis} with size {n}")
            begin, length, stride = int(part) % n, 1, 1
            int_axes.append(axis)
        start.append(begin)
        size.append(length)
        step.append(stride)
    result: list[int] = []
    new_axes = []
    remaining = iter(size)
    for part in expanded:
        if part is None:
            new_axes.append(len(result))
            result.append(1)
        else:
            length = next(remaining)
            if isinstance(part, slice):
                result.append(length)
    return Basic(
        tuple(start),
        tuple(size),
        tuple(step),
        tuple(result) or (1,),
        tuple(int_axes),
        tuple(new_axes),
        is_contiguous(size, step, shape),
    )


def is_contiguous(size: Sequence[int], step: Sequence[int], shape: Shape) -> bool:
    """Whether the elements are contiguous in row-major memory; at most one element always is."""
    if 0 in size:
        return True
    partial = False  # whether an axis further right is selected only in part
    for count, stride, n in zip(reversed(size), reversed(step), reversed(shape)):
        if (stride != 1 or partial) and count > 1:
            return False
        partial = partial or count < n
    return True


def _as_slice(start: int, size: int, step: int) -> slice:
    stop = start + size * step
    return slice(start, stop if stop >= 0 else None, step) if size else slice(0, 0)


def _advanced(expanded: Sequence[Any], axes: Sequence[Any], shape: Shape) -> Advanced:
    key: list[Any] = []
    block: Shape = ()
    for part, n in zip(axes, shape):
        if not isinstance(part, slice):
            part = np.array([part]) if isinstance(part, integer_types) else whole_numbers(part)
            block = _broadcast(block, part.shape)
            outside = part[(part < -n) | (part >= n)]
            if outside.size:
                raise IndexError(f"index {outside[0]} is out of bounds for axis {len(key)} with size {n}")
        key.append(part)
    return Advanced(tuple(key), _new_axes(expanded, len(block)))


def whole_numbers(part: Any) -> np.ndarray:
    """An index array as i64: fractions dropped, booleans as 0 and 1, floats converted as operators do it.

    MXNet converts to int32, where large positions wrap around. TypeError for arrays of other things than numbers,
    IndexError for numbers beyond 64 bits.
    """
    try:
        values = np.asarray(part) if isinstance(part, np.ndarray) else np.array(part)
        if values.dtype.kind in "fV":  # V: bfloat16
            narrow = values.dtype != np.float64
            return saturating(values, np.dtype(np.int32 if narrow else np.int64)).astype(np.int64)
        if values.dtype == np.uint64 and values.size and values.max() > np.iinfo(np.int64).max:
            raise IndexError(f"index {values.max()} is out of bounds for every axis")
        return values.astype(np.int64)
    except OverflowError:
        raise IndexError(f"index {part} is out of bounds for every axis") from None
    except (TypeError, ValueError):
        raise TypeError("source_array must be array like object") from None


def _broadcast(a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    out = []
    for m, n in zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b):
        if m != 1 and n != 1 and m != n:
            raise ValueError(f"shape1={a} is not broadcastable to shape2={b}")
        out.append(n if m == 1 else m)
    return tuple(out)


def _new_axes(expanded: Sequence[Any], block_rank: int) -> Shape:
    """Where axes of length 1 are inserted into the result of an advanced index, in the order of the Nones.

    MXNet's rule, which differs from NumPy's: the axes of adjacent index arrays are not counted.
    """
    is_array = [part is not None and not isinstance(part, slice) for part in expanded]
    where = [k for k, yes in enumerate(is_array) if yes]
    adjacent = where == list(range(where[0], where[-1] + 1))
    position = 0 if adjacent else block_rank
    out = []
    for part, yes in zip(expanded, is_array):
        if part is None:
            out.append(position)
        position += not yes
    return tuple(out)


def first_axis(key: Any, n: int) -> tuple[int, int]:
    """`x[start:stop]` along the first axis of length `n`, as MXNet clips it. MXNetError for start > stop."""
    start = 0 if key.start is None else _clip(key.start, n)
    stop = n if key.stop is None else _clip(key.stop, n)
    if start > stop:
        raise MXNetError(f"Check failed: begin <= end ({start} vs. {stop}) : Invalid slicing range [{start},{stop})")
    return start, stop


def _clip(position: int, n: int) -> int:
    return max(position + n, 0) if position < 0 else min(position, n)


class Misfit(ValueError):
    """A value has a shape that does not fit the part of an array to which it is assigned."""


def fit(value: np.ndarray, shape: Shape, squeeze: Sequence[int] = ()) -> np.ndarray:
    """`value` broadcast to `shape`, for assignment: excess leading axes of length 1 are dropped.

    `squeeze` are the axes that None inserted through the key; they are removed from a value that has them as well.
    """
    if squeeze and value.ndim > len(shape):
        value = value.squeeze(tuple(axis for axis in squeeze if axis < value.ndim))
    extra = value.ndim - len(shape)
    if extra > 0:
        lead = 0
        while lead < extra and value.shape[lead] == 1:
            lead += 1
        value = value.reshape(value.shape[lead:])
    if value.shape == shape:
        return value
    try:
        return np.broadcast_to(value, shape)
    except ValueError:
        raise Misfit(
            "operands could not be broadcast together with remapped shapes[original->remapped]: "
            f"{value.shape} and requested shape {shape} of the part that is assigned to"
        ) from None


def numpy_key(key: Any) -> tuple[Any, ...]:
    """The index as a tuple for NumPy: arrays converted to NumPy's, float arrays to integers."""
    parts = key if isinstance(key, tuple) else (key,)
    return tuple(_index(part) for part in parts)


def _index(part: Any) -> Any:
    if isinstance(part, Array):
        part = part._array  # type: ignore[attr-defined]
    elif isinstance(part, list):
        part = np.asarray([getattr(p, "_array", p) for p in part], None if part else np.int64)
    return whole_numbers(part) if isinstance(part, np.ndarray) and part.dtype.kind in "fVuO" else part
