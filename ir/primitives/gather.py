"""Primitives that read or write at computed indices, and `sort`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gluonjit.ir.dims import Dim, is_less, is_static
from gluonjit.ir.opdef import REQUIRED, primitive
from gluonjit.ir.primitives.checks import INTEGER, NUMERIC, check_axis, check_choice, check_kind, check_same_dtype
from gluonjit.ir.types import I64, IRError, TensorType, dtype_of, type_of

if TYPE_CHECKING:
    from gluonjit.ir.graph import Emitter


Index = Any


def _clipped(s: Any, value: Any, n: int) -> Any:
    """Integer scalar `value` as an index along an axis of `n`, clipped to the ends."""
    wide = s.cast(value, I64)
    return s.to_index(s.maximum(s.minimum(wide, s.constant(n - 1, I64)), s.constant(0, I64)))


# gather ---------------------------------------------------------------------------------------------------------------


def _infer_gather(x: TensorType, idx: TensorType, axis: Any, mode: Any) -> TensorType:
    check_axis(axis, x)
    check_kind(idx, INTEGER, "indices")
    check_choice("mode", mode, ("clip", "wrap"))
    if x.shape[axis] == 0 and idx.size:
        raise IRError(f"cannot take {idx.size} element(s) along axis {axis} of {x}, which is empty")
    return x.with_shape(x.shape[:axis] + idx.shape + x.shape[axis + 1 :])


def _eval_gather(x: np.ndarray, idx: np.ndarray, axis: int, mode: str) -> np.ndarray:
    if idx.dtype.kind not in "iu":
        raise TypeError(f"indices of type {idx.dtype}")
    if mode == "wrap" and idx.size:
        idx = idx.astype(np.int64) % x.shape[axis]  # np.take adds and subtracts the length until an index is inside
    y: Any = np.take(x, idx, axis, mode="clip")
    return y if type(y) is np.ndarray else np.asarray(y, x.dtype)


def _element_gather(s: Any, i: Index, x: Any, idx: Any, axis: int, mode: str) -> Any:
    n, place = x.type.shape[axis], tuple(i[axis : axis + idx.type.rank])
    if idx.known is not None and not isinstance(n, Dim):
        table = idx.known.astype(np.int64)
        at = s.lookup(table % n if mode == "wrap" else table.clip(0, n - 1), place)
        return x((*i[:axis], at, *i[axis + idx.type.rank :]))
    value = idx(place)
    if mode == "wrap":
        at = s.to_index(s.mod(s.cast(value, I64), s.constant(n, I64)))
    else:
        at = _clipped(s, value, n)
    return x((*i[:axis], at, *i[axis + idx.type.rank :]))


def _infer_gather_nd(x: TensorType, idx: TensorType) -> TensorType:
    check_index_tuples(x, idx)
    depth = idx.shape[0]
    _check_not_empty(x, idx)
    return x.with_shape(idx.shape[1:] + x.shape[depth:])


def _check_not_empty(x: TensorType, idx: TensorType) -> None:
    if 0 in x.shape[: idx.shape[0]] and idx.size:
        raise IRError(f"cannot take elements of {x}, which has none along the indexed axes")


def check_index_tuples(x: TensorType, idx: TensorType) -> None:
    """`idx[:, j…]` must be able to index the first axes of `x`."""
    check_kind(idx, INTEGER, "indices")
    if idx.rank < 1 or not 1 <= idx.shape[0] <= x.rank:
        raise IRError(f"the first axis of indices {idx} must count between 1 and {x.rank} axes of {x}")


def _eval_gather_nd(x: np.ndarray, idx: np.ndarray) -> np.ndarray:
    depth = idx.shape[0]
    if 0 in x.shape[:depth]:
        _check_not_empty(type_of(x), type_of(idx))
        return np.empty(idx.shape[1:] + x.shape[depth:], x.dtype)
    place: Any = 0
    for row, n in zip(idx, x.shape):
        place = place * np.int64(n) + np.clip(row, 0, n - 1, dtype=np.int64)
    y: Any = x.reshape(math.prod(x.shape[:depth]), *x.shape[depth:]).take(place, axis=0)
    return y if type(y) is np.ndarray else np.asarray(y, x.dtype)


def _element_gather_nd(s: Any, i: Index, x: Any, idx: Any) -> Any:
    depth, points = idx.type.shape[0], idx.type.rank - 1
    at = tuple(_clipped(s, idx((m, *i[:points])), x.type.shape[m]) for m in range(depth))
    return x((*at, *i[points:]))


# scatter_add ----------------------------------------------------------------------------------------------------------


def _infer_scatter_add(x: TensorType, idx: TensorType, u: TensorType) -> TensorType:
    check_same_dtype(x, u)
    check_kind(x, NUMERIC)
    check_index_tuples(x, idx)
    wanted = idx.shape[1:] + x.shape[idx.shape[0] :]
    if u.shape != wanted:
        raise IRError(f"what is added must have shape {wanted} for indices {idx} into {x}, got {u}")
    return x


def _eval_scatter_add(x: np.ndarray, idx: np.ndarray, u: np.ndarray) -> np.ndarray:
    if x.dtype != u.dtype:
        raise TypeError(f"scatter of {u.dtype} into {x.dtype}")
    y = x.copy()
    depth = idx.shape[0]
    rows = idx.reshape(depth, -1)
    inside = np.ones(rows.shape[1], np.bool_)
    for row, n in zip(rows, x.shape):
        inside &= (row >= 0) & (row < n)
    parts = u.reshape(rows.shape[1], *x.shape[depth:])
    if not inside.all():
        rows, parts = rows[:, inside], parts[inside]
    np.add.at(y, tuple(rows.astype(np.int64)), parts)
    return y


# sort -----------------------------------------------------------------------------------------------------------------


_LONG = 1024
"""The shortest line whose first few elements are chosen by the last of them rather than sorted with the others."""


def _infer_sort(x: TensorType, axis: Any, descending: Any, count: Any, order: Any) -> Any:
    check_axis(axis, x)
    check_kind(x, NUMERIC)
    for name, value in (("descending", descending), ("order", order)):
        if not isinstance(value, bool):
            raise IRError(f"{name} must be True or False, got {value!r}")
    if not isinstance(count, int) or count < 0 or is_less(x.shape[axis], count):
        raise IRError(f"count must be 0 or at most {x.shape[axis]}, got {count!r}")
    y = x.with_shape((*x.shape[:axis], count or x.shape[axis], *x.shape[axis + 1 :]))
    return (y, y.with_dtype(I64)) if order else y


def _eval_sort(x: np.ndarray, axis: int, descending: bool, count: int, order: bool) -> Any:
    n = x.shape[axis]
    if not x.size:
        values = x[(slice(None),) * axis + (slice(count or n),)]
        return (values, np.zeros(values.shape, np.int64)) if order else values
    last = axis == x.ndim - 1
    lines = np.ascontiguousarray(x if last else np.moveaxis(x, axis, -1))
    if not order:
        found = _first_values(lines, descending, count or n)
        if found is not None:
            return np.ascontiguousarray(found if last else np.moveaxis(found, -1, axis))
    places = (_chosen_first if 0 < count < n and n >= _LONG else _sorted_first)(lines, descending, count or n)
    results = [np.ascontiguousarray(y if last else np.moveaxis(y, -1, axis)) for y in (_at(lines, places), places)]
    return tuple(results) if order else results[0]


def _at(lines: np.ndarray, places: np.ndarray) -> np.ndarray:
    """`take_along_axis` of the last axis, several times as fast. `places` are other ones meanwhile: a further array of
    their size would cost more than the sums."""
    if lines.ndim == 1:
        return lines.take(places)
    starts = np.arange(0, lines.size, lines.shape[-1]).reshape(*lines.shape[:-1], 1)
    places += starts
    found = lines.reshape(-1).take(places)
    places -= starts
    return found


def _sorts_well(dtype: np.dtype) -> bool:
    """Whether NumPy's fastest sort may be used: it has none for bf16, and with AVX-512 that of float16 gives a wrong
    order where many are equal (NumPy 2.4)."""
    return dtype.kind != "V" and dtype != np.float16


def _first_values(lines: np.ndarray, descending: bool, count: int) -> np.ndarray | None:
    """Those in order, by NumPy's sort; None if equal elements may differ in their bits: 0 and -0, NaNs."""
    if not _sorts_well(lines.dtype):
        return None
    if lines.dtype.kind == "f":
        bits = lines.view(f"i{lines.dtype.itemsize}")
        if bits.min() == np.iinfo(bits.dtype).min:  # -0
            return None
    n = lines.shape[-1]
    if count < n:
        first = n - count if descending else count - 1
        if lines.dtype.kind == "f" and np.isnan(lines.max()):
            return None
        lines = np.partition(lines, first, axis=-1)
        lines = lines[..., first:] if descending else lines[..., :count]
    # The stable sort of bytes counts them.
    lines = np.sort(lines, axis=-1, kind="stable" if lines.dtype.itemsize == 1 else "quicksort")
    if lines.dtype.kind == "f" and np.isnan(lines[..., -1]).any():
        return None
    return lines[..., ::-1] if descending else lines


def _chosen_first(lines: np.ndarray, descending: bool, count: int) -> np.ndarray:
    """The places of the first `count` of many: of those up to the last one, the leftmost if they are too many."""
    n = lines.shape[-1]
    if not _sorts_well(lines.dtype) or (lines.dtype.kind == "f" and np.isnan(lines.max())):
        lines, descending = _sort_keys(lines, descending), False
    last = n - count if descending else count - 1
    border = np.partition(lines, last, axis=-1)[..., last : last + 1]
    chosen = lines >= border if descending else lines <= border
    places = np.flatnonzero(chosen)
    if places.size != border.size * count:
        tied = np.count_nonzero(chosen, axis=-1) > count
        same = lines[tied] == border[tied]
        missing = count - np.count_nonzero(chosen[tied] & ~same, axis=-1)
        chosen[tied] &= ~same | (np.cumsum(same, axis=-1) <= missing[..., None])
        places = np.flatnonzero(chosen)
    places = (places % n).reshape(*lines.shape[:-1], count)
    return _at(places, _sorted_first(_at(lines, places), descending, count))


def _sort_keys(x: np.ndarray, descending: bool) -> np.ndarray:
    """Integers that order as the elements do; equal elements have equal keys."""
    if x.dtype.kind not in "fV":
        return ~x if descending else x
    bits = x.dtype.itemsize * 8
    keys = (x + x.dtype.type(0)).view(f"i{bits // 8}")  # -0 + 0 is 0
    below = keys >> keys.dtype.type(bits - 1)
    below &= np.iinfo(keys.dtype).max
    keys ^= below
    if x.dtype.kind == "V" or np.isnan(x.max()):
        keys[np.isnan(x)] = np.iinfo(keys.dtype).max
    return np.invert(keys, out=keys) if descending else keys


def _sorted_first(lines: np.ndarray, descending: bool, count: int) -> np.ndarray:
    """The places along the last axis of the first `count` elements; equal ones keep their order.

    A key and its place in one integer are never equal, so NumPy's fastest sort will do: it is several times as fast as
    a stable one. Of keys of 64 bits, there is room for those that differ, or for most of them.
    """
    keys = _sort_keys(lines, descending)
    n = keys.shape[-1]
    place = max(n - 1, 0).bit_length()
    mask = (1 << place) - 1
    fits = keys.dtype.itemsize * 8 + place <= 63
    if fits:
        words = keys.astype(np.int64)
        words <<= place
    else:
        least = int(keys.min())
        up = 64 - max(1, (int(keys.max()) - least).bit_length())
        # From the least to the greatest integer, modulo 2**64.
        zero = (least + (1 << (63 - up)) + (1 << 63)) % (1 << 64) - (1 << 63)
        words = np.subtract(keys, np.int64(zero), dtype=np.int64)
        words <<= up
        fits = up >= place
        if not fits:
            words &= ~mask
    words |= np.arange(n)
    if fits and count < n:
        words = np.partition(words, count, axis=-1)[..., :count]
    words.sort(axis=-1)
    if not fits:
        _order_alike(words, place, keys)
    words &= mask
    return words[..., :count]


def _order_alike(words: np.ndarray, place: int, keys: np.ndarray) -> None:
    """Sorts, by their keys, neighbours among sorted words that differ in the place alone, their lowest `place` bits."""
    alike = np.zeros(words.shape, np.bool_)
    np.equal((words[..., 1:] ^ words[..., :-1]) >> place, 0, out=alike[..., 1:])
    if alike.any():
        inside = alike.copy()
        inside[..., :-1] |= alike[..., 1:]
        at = np.flatnonzero(inside)
        runs = np.cumsum(~alike.reshape(-1)[at])
        ordered = _at(keys, words & ((1 << place) - 1)).reshape(-1)[at]
        if ((runs[1:] == runs[:-1]) & (ordered[1:] < ordered[:-1])).any():
            found = words.reshape(-1)
            found[at] = found[at[np.lexsort((ordered, runs))]]


# gradients ------------------------------------------------------------------------------------------------------------


def _zeros(b: Emitter, like: Any) -> Any:
    return b.broadcast(b.constant(0, dtype_of(like)), shape=like.shape)


def _clipped_tuples(b: Emitter, idx: Any, sizes: Sequence[int]) -> Any:
    """idx[:, j…] as i64, clipped to axes of these sizes."""
    wide = b.cast(idx, dtype=I64)
    shape = (len(sizes), *(1,) * (len(idx.shape) - 1))
    if is_static(sizes):
        last = b.constant(np.array(sizes, np.int64).reshape(shape) - 1, I64)
    else:
        last = b.reshape(b.constant(tuple(n - 1 for n in sizes), I64), shape=shape)
    return b.maximum(b.minimum(wide, last), b.constant(0, I64))


def _vjp_gather(b: Emitter, g: Any, y: Any, x: Any, idx: Any, axis: int, mode: str) -> tuple[Any, None]:
    n, points = x.shape[axis], len(idx.shape)
    rows = b.reshape(idx, shape=(1, *idx.shape))
    if mode == "wrap":
        at = b.mod(b.cast(rows, dtype=I64), b.constant(max(n, 1), I64))
    else:
        at = _clipped_tuples(b, rows, (n,))
    # scatter_add indexes first axes: bring those of `idx`, and the axis of x, to the front, and go back afterwards.
    rank = len(g.shape)
    moved = (*range(axis, axis + points), *range(axis), *range(axis + points, rank))
    perm = (axis, *(k for k in range(len(x.shape)) if k != axis))
    target = _zeros(b, b.transpose(x, perm=perm))
    total = b.scatter_add(target, at, b.transpose(g, perm=moved))
    return b.transpose(total, perm=tuple(sorted(range(len(perm)), key=lambda k: perm[k]))), None


def _vjp_gather_nd(b: Emitter, g: Any, y: Any, x: Any, idx: Any) -> tuple[Any, None]:
    return b.scatter_add(_zeros(b, x), _clipped_tuples(b, idx, x.shape[: idx.shape[0]]), g), None


def _vjp_scatter_add(b: Emitter, g: Any, y: Any, x: Any, idx: Any, u: Any) -> tuple[Any, None, Any]:
    depth = idx.shape[0]
    if 0 in x.shape[:depth]:  # nothing was added
        return g, None, _zeros(b, u)
    inside = b.eq(_clipped_tuples(b, idx, x.shape[:depth]), b.cast(idx, dtype=I64))
    kept = b.reduce(inside, op="all", axes=(0,))
    rest = len(u.shape) - len(kept.shape)
    return g, None, b.select(b.reshape(kept, shape=(*kept.shape, *(1,) * rest)), b.gather_nd(g, idx), _zeros(b, u))


def _vjp_sort(b: Emitter, g: Any, y: Any, x: Any, axis: int, descending: bool, count: int, order: bool) -> Any:
    values = g[0] if order else g
    if values is None:
        return None
    found = y[1] if order else b.sort(x, axis=axis, descending=descending, count=count)[1]
    places = [found if k == axis else b.iota(shape=found.shape, axis=k, dtype=I64) for k in range(len(x.shape))]
    return b.scatter_add(
        _zeros(b, x), b.concat(*(b.reshape(p, shape=(1, *found.shape)) for p in places), axis=0), values
    )


primitive(
    "gather",
    infer=_infer_gather,
    eval=_eval_gather,
    element=_element_gather,
    attrs={"axis": REQUIRED, "mode": "clip"},
    moves="lookup",
    vjp=_vjp_gather,
    doc="x[..., idx, ...] along one axis; indices out of range go to the nearest end or wrap around",
)
primitive(
    "gather_nd",
    infer=_infer_gather_nd,
    eval=_eval_gather_nd,
    element=_element_gather_nd,
    moves="lookup",
    vjp=_vjp_gather_nd,
    doc="idx[:, j...] indexes the first axes of x; indices out of range go to the nearest end",
)
primitive(
    "scatter_add",
    infer=_infer_scatter_add,
    eval=_eval_scatter_add,
    vjp=_vjp_scatter_add,
    doc="x with u added at idx, in row-major order of idx, each sum rounded; tuples out of range are dropped",
)
primitive(
    "sort",
    infer=_infer_sort,
    eval=_eval_sort,
    attrs={"axis": REQUIRED, "descending": False, "count": 0, "order": True},
    vjp=_vjp_sort,
    doc="values in order along an axis (all, or the first count) and, with order, where each came from; equals keep "
    "their order, NaN is the largest",
)
