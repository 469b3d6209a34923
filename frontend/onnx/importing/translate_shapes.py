"""ONNX's operators that move elements, and what models compute with sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.ir.dims import Dim, Extent
from gluonjit.onnx.importing.importer import FOLDED, Importer, Untranslated, Val, of_sizes, translation
from gluonjit.onnx.importing.onnx_files import Call, element_type
from gluonjit.onnx.importing.translate_elementwise import cast
from gluonjit.onnx.importing.translate_layers import padded

# Constants


@translation("Constant")
def _constant(g: Importer, call: Call) -> Val:
    for key, dtype in (("value_float", np.float32), ("value_floats", np.float32), ("value_ints", np.int64)):
        if key in call.attrs:
            return g.constant(np.array(call.attrs[key], dtype), g._stem)
    if "value_int" in call.attrs:
        return g.constant(np.array(call.attrs["value_int"], np.int64), g._stem)
    value = call.attrs.get("value", call.attrs.get("sparse_value"))
    if value is None:
        raise Untranslated("of strings")
    return g.constant(value, g._stem)


@translation("ConstantOfShape")
def _constant_of_shape(g: Importer, call: Call, shape: Val) -> Val:
    value = np.asarray(call.get("value", np.zeros(1, np.float32))).reshape(())
    return _filled(g, g.constant(value), g.ints(shape, "shape"))


def _filled(g: Importer, value: Val, shape: Sequence[Extent]) -> Val:
    fixed = [n for n in shape if not isinstance(n, Dim)]
    if min(fixed, default=0) < 0:
        raise ValueError(f"there is no shape {tuple(shape)}")
    if len(fixed) == len(shape) and math.prod(fixed) <= FOLDED:
        assert value.array is not None
        return g.constant(np.broadcast_to(value.array, tuple(fixed)).copy(), g._stem)
    return _expanded(g, value, shape)


def _expanded(g: Importer, x: Val, shape: Sequence[Extent]) -> Val:
    """`x` in the shape that it broadcasts to together with `shape`."""
    rank = max(x.rank, len(shape))
    wanted = [1] * (rank - len(shape)) + list(shape)
    own = [1] * (rank - x.rank) + list(x.shape)
    full = [m if n == 1 else n for m, n in zip(own, wanted)]
    if not any(isinstance(n, Dim) for n, m in zip(full, own) if n != m):
        # -2 keeps the length that the axis has.
        codes = tuple(-2 if isinstance(n, Dim) else n for n in full)
        if len(own) != x.rank:
            x = g.op("_np_reshape", x, newshape=_codes(own)) if not any(isinstance(n, Dim) for n in x.shape) else x
        return g.op("_npi_broadcast_to", x, shape=codes) if tuple(full) != tuple(x.shape) else x
    # Open sizes: together with zeros that get them from the inputs.
    for axis, n in enumerate(full):
        if n == own[axis]:
            continue
        if isinstance(n, Dim):
            source, at = _axis_of(g, n)
            part = g.op("zeros_like", _line(g, source, at))
            like = g.op("_np_reshape", part, newshape=tuple(-1 if k == axis else 1 for k in range(rank)))
        else:
            like = g.constant(np.zeros(tuple(n if k == axis else 1 for k in range(rank)), np.float32))
        ones = cast(g, g.op("_npi_equal", like, g.op("zeros_like", like)), x.dtype)
        if x.dtype == np.bool_:
            x = g.op("_npi_bitwise_and", x, ones)
        else:
            x = g.op("_npi_where", cast(g, ones, np.bool_), x, x)
    return x


def _axis_of(g: Importer, n: Dim) -> tuple[Val, int]:
    if len(n.terms) == 1:
        ((names, factor),) = n.terms.items()
        if factor == 1 and len(names) == 1:
            return g._sizes[names[0]]
    raise Untranslated(f"to the size {n}")


def _line(g: Importer, x: Val, axis: int) -> Val:
    """The elements of `x` along an axis, as a vector."""
    begin = tuple(None if k == axis else 0 for k in range(x.rank))
    end = tuple(None if k == axis else 1 for k in range(x.rank))
    return g.op("_np_reshape", g.op("slice", x, begin=begin, end=end, step=(1,) * x.rank), newshape=(-1,))


def _codes(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple(-1 if isinstance(n, Dim) else n for n in shape)


@translation("EyeLike")
def _eye_like(g: Importer, call: Call, x: Val) -> Val:
    to = element_type(call.attrs["dtype"], "EyeLike") if "dtype" in call.attrs else x.dtype
    if not x.type.is_static or x.type.size > FOLDED:
        raise Untranslated("of a large or open shape")
    rows, columns = x.shape
    return g.constant(np.eye(rows, columns, k=call.get("k", 0), dtype=to))


@translation("Range")
def _range(g: Importer, call: Call, start: Val, limit: Val, delta: Val) -> Val:
    return progression(g, start, limit, delta)


def progression(g: Importer, start: Val, limit: Val, delta: Val) -> Val:
    """start, start + delta, … before limit: known numbers, or those from 0 below an open size in steps of 1."""
    if all(v.array is not None for v in (start, limit, delta)):
        first, last, step = (v.array.reshape(()) for v in (start, limit, delta))  # type: ignore[union-attr]
        if not step:
            raise ValueError("the step is 0")
        count = max(math.ceil((float(last) - float(first)) / float(step)), 0)
        if count > FOLDED:
            raise Untranslated(f"of {count:,} elements")
        return g.constant((first + np.arange(count) * step).astype(start.dtype))
    if start.array is not None and not start.array.any() and delta.array is not None and delta.array == 1:
        if limit.sizes is not None and limit.sizes.size == 1:
            source, axis = _axis_of(g, limit.sizes.reshape(-1)[0])
            line = g.op("ones_like", cast(g, g.op("zeros_like", _line(g, source, axis)), np.int64))
            return cast(g, g.op("_minus_scalar", g.op("_np_cumsum", line, axis=0), scalar=1.0), start.dtype)
    for v in (start, limit, delta):
        g.known(v, "end")
    raise Untranslated("of open sizes")


# Sizes


@translation("Shape")
def _shape(g: Importer, call: Call, x: Val) -> Val:
    start, end = call.get("start", 0), call.get("end")
    return g.sized(list(x.shape)[slice(start, end)])


@translation("Size")
def _size(g: Importer, call: Call, x: Val) -> Val:
    return g.sized(math.prod(x.shape))


@of_sizes("Gather")
def _sizes_gather(g: Importer, call: Call, x: np.ndarray, index: np.ndarray) -> Any:
    return np.take(x, index.astype(np.int64), call.get("axis", 0))


@of_sizes("Concat")
def _sizes_concat(g: Importer, call: Call, *xs: np.ndarray) -> Any:
    return np.concatenate(xs, call.get("axis", 0))


@of_sizes("Slice")
def _sizes_slice(g: Importer, call: Call, x: np.ndarray, *bounds: Any) -> Any:
    start, end, axes, steps = _bounds(call, x.ndim, [None if b is None else [int(n) for n in b] for b in bounds])
    index = [slice(None)] * x.ndim
    for axis, first, last, step in zip(axes, start, end, steps):
        index[axis] = slice(first, last, step)
    return x[tuple(index)]


@of_sizes("Squeeze", "Unsqueeze", "Reshape", "Cast", "Identity")
def _sizes_shape(g: Importer, call: Call, x: np.ndarray, more: np.ndarray | None = None) -> Any:
    if call.op == "Cast":
        return x if call.attrs["to"] in (6, 7) else None
    if call.op == "Identity":
        return x
    if call.op == "Reshape":
        return x.reshape([int(n) for n in more]) if more is not None else None
    axes = call.get("axes") if more is None else [int(n) for n in more.reshape(-1)]
    if call.op == "Unsqueeze":
        return np.expand_dims(x, tuple(axes or ()))
    return np.squeeze(x, tuple(axes) if axes else None)


@of_sizes("Add", "Sub", "Mul", "Div", "Mod", "Neg", "Equal", "Where", "ReduceProd", "Max", "Min")
def _sizes_arithmetic(g: Importer, call: Call, x: np.ndarray, *more: Any) -> Any:
    if any(v is not None and v.dtype.kind == "f" for v in (x, *more)):
        return None
    match call.op:
        case "Add":
            return x + more[0]
        case "Sub":
            return x - more[0]
        case "Mul":
            return x * more[0]
        case "Div":
            return x // more[0]
        case "Mod":
            return x % more[0]
        case "Neg":
            return -x
        case "ReduceProd":
            return np.array(math.prod(x.reshape(-1)), object).reshape((1,) * x.ndim if call.get("keepdims", 1) else ())
        case _:
            return None


@translation("Reshape")
def _reshape(g: Importer, call: Call, x: Val, shape: Val | None = None) -> Val:
    wanted = list(call.attrs["shape"]) if shape is None else g.ints(shape, "shape")
    if not call.get("allowzero", 0):
        wanted = [x.shape[k] if not isinstance(n, Dim) and n == 0 else n for k, n in enumerate(wanted)]
    return reshaped(g, x, wanted)


def reshaped(g: Importer, x: Val, wanted: Sequence[Any]) -> Val:
    """`x` in another shape, of which one size may be -1."""
    if not any(isinstance(n, Dim) for n in (*x.shape, *wanted)):
        return g.op("_np_reshape", x, newshape=tuple(wanted))
    whole = math.prod(x.shape)
    full = list(wanted)
    if -1 in [n for n in full if not isinstance(n, Dim)]:
        at = full.index(-1)
        rest = math.prod(n for k, n in enumerate(full) if k != at)
        full[at] = whole // rest
    if tuple(full) == tuple(x.shape):
        return x
    # MXNet's codes: 0 is the size of the axis that stands there, -1 what is left.
    codes = [0 if isinstance(n, Dim) and k < x.rank and x.shape[k] == n else n for k, n in enumerate(full)]
    left = [k for k, n in enumerate(codes) if isinstance(n, Dim)]
    if len(left) <= 1:
        return g.op("Reshape", x, shape=tuple(-1 if k in left else n for k, n in enumerate(codes)))
    return _by_runs(g, x, full)


def _by_runs(g: Importer, x: Val, full: Sequence[Any]) -> Val:
    """Reshapes with the code -4, which splits an axis, and -3, which merges two."""
    codes: list[int] = []
    i = j = 0
    old = x.shape
    while i < len(old) or j < len(full):
        if i < len(old) and j < len(full) and old[i] == full[j]:
            codes.append(0)
            i, j = i + 1, j + 1
        elif i + 1 < len(old) and j < len(full) and old[i] * old[i + 1] == full[j]:
            codes.append(-3)
            i, j = i + 2, j + 1
        elif i < len(old) and j + 1 < len(full) and full[j] * full[j + 1] == old[i]:
            first, second = (-1 if isinstance(n, Dim) else n for n in full[j : j + 2])
            if first == second == -1:
                raise Untranslated(f"from {tuple(old)} to {tuple(full)}")
            codes += [-4, first, second]
            i, j = i + 1, j + 2
        elif j < len(full) and full[j] == 1:
            codes.append(1)
            j += 1
        else:
            raise Untranslated(f"from {tuple(old)} to {tuple(full)}")
    return g.op("Reshape", x, shape=tuple(codes))


@translation("Flatten")
def _flatten(g: Importer, call: Call, x: Val) -> Val:
    axis = call.get("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    if axis == 1 and x.rank > 1:
        return g.op("Flatten", x)
    return reshaped(g, x, [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])


@translation("Expand")
def _expand(g: Importer, call: Call, x: Val, shape: Val) -> Val:
    return _expanded(g, x, g.ints(shape, "shape"))


@translation("Squeeze")
def _squeeze(g: Importer, call: Call, x: Val, axes: Val | None = None) -> Val:
    chosen = call.get("axes") if axes is None else [int(k) for k in g.known(axes, "axes").reshape(-1)]
    return g.op("_np_squeeze", x, axis=None if chosen is None else tuple(chosen))


@translation("Unsqueeze")
def _unsqueeze(g: Importer, call: Call, x: Val, axes: Val | None = None) -> Val:
    chosen = call.get("axes") if axes is None else [int(k) for k in g.known(axes, "axes").reshape(-1)]
    rank = x.rank + len(chosen)
    for axis in sorted(k % rank for k in chosen):
        x = g.op("expand_dims", x, axis=axis)
    return x


@translation("Transpose")
def _transpose(g: Importer, call: Call, x: Val) -> Val:
    perm = tuple(call.get("perm") or range(x.rank)[::-1])
    return g.op("transpose", x, axes=perm) if x.rank > 1 else x


@translation("Concat")
def _concat(g: Importer, call: Call, *xs: Val) -> Val:
    return g.op("Concat", *xs, dim=call.get("axis", 1) % xs[0].rank) if len(xs) > 1 else xs[0]


@translation("Split")
def _split(g: Importer, call: Call, x: Val, sizes: Val | None = None) -> Any:
    axis = call.get("axis", 0) % x.rank
    parts = call.get("split") if sizes is None else g.ints(sizes, "sizes")
    count = call.get("num_outputs") or len(call.outputs)
    if parts is None:
        each = -(-x.shape[axis] // count)
        parts = [each] * (count - 1)
        parts.append(x.shape[axis] - sum(parts))
    start, found = 0, []
    for n in parts:
        end = start + n
        if isinstance(end, Dim) or isinstance(start, Dim):
            raise Untranslated("of an open size")
        if n == 0:
            begin = tuple(0 if k == axis else None for k in range(x.rank))
            found.append(g.op("slice", x, begin=begin, end=begin, step=(1,) * x.rank))
        else:
            found.append(g.op("slice_axis", x, axis=axis, begin=start, end=end))
        start = end
    return found


def _bounds(call: Call, rank: int, given: Sequence[Any]) -> tuple[Any, ...]:
    if "starts" in call.attrs:
        start, end, axes = call.attrs["starts"], call.attrs["ends"], call.get("axes")
        steps = None
    else:
        start, end, axes, steps = [*given, None, None][:4]
    axes = range(len(start)) if axes is None else [k % rank for k in axes]
    return start, end, list(axes), steps or [1] * len(start)


@translation("Slice")
def _slice(g: Importer, call: Call, x: Val, *bounds: Val | None) -> Val:
    given = [None if b is None else g.ints(b, "bounds") for b in bounds]
    start, end, axes, steps = _bounds(call, x.rank, given)
    begin_all: list[Any] = [None] * x.rank
    end_all: list[Any] = [None] * x.rank
    step_all = [1] * x.rank
    for axis, first, last, step in zip(axes, start, end, steps):
        n = x.shape[axis]
        if isinstance(first, Dim) or isinstance(last, Dim):
            first, last = _relative(first, n, False), _relative(last, n, True)
        if not isinstance(n, Dim):
            # As in Python: ends that lie outside are clipped.
            first, last, step = slice(first, last, step).indices(n)
            if (last - first) * step <= 0:
                first, last, step = 0, 0, 1
            if step < 0 and last < 0:
                last = None
        else:
            far = 1 << 30
            first = None if first in (0, None) and step > 0 or (first is not None and first >= far) else first
            last = None if last is None or abs(last) >= far else last
        begin_all[axis], end_all[axis], step_all[axis] = first, last, step
    if all(b in (None, 0) and e in (None, n) and s == 1 for b, e, s, n in zip(begin_all, end_all, step_all, x.shape)):
        return x
    return g.op("slice", x, begin=tuple(begin_all), end=tuple(end_all), step=tuple(step_all))


def _relative(place: Any, n: Any, end: bool) -> Any:
    """A place that depends on an open size, counted from the end of an axis of `n`."""
    if not isinstance(place, Dim):
        return place
    distance = place - n
    if isinstance(distance, Dim):
        raise Untranslated(f"to {place} of {n}")
    return None if end and distance >= 0 else distance


@translation("Gather")
def _gather(g: Importer, call: Call, x: Val, index: Val) -> Val:
    axis = call.get("axis", 0) % x.rank
    n = x.shape[axis]
    if index.array is not None and not isinstance(n, Dim):
        place = index.array.astype(np.int64)
        if place.size and not (-n <= place.min() and place.max() < n):
            raise ValueError(
                f"the index {place.min() if place.min() < -n else place.max()} is outside of an axis of {n}"
            )
        place = np.where(place < 0, place + n, place)
        if index.rank == 0:
            k = int(place)
            return g.op("_np_squeeze", g.op("slice_axis", x, axis=axis, begin=k, end=k + 1), axis=(axis,))
        return g.op("take", x, g.constant(place, index.name), axis=axis, mode="clip")
    if index.array is not None and index.rank == 0:
        k = int(index.array)
        part = g.op("slice_axis", x, axis=axis, begin=k, end=k + 1 if k != -1 else None)
        return g.op("_np_squeeze", part, axis=(axis,))
    if x.array is not None and x.rank == 2 and axis == 0 and x.floats and index.array is None:
        return g.op("Embedding", _positive(g, index, n), x, input_dim=n, output_dim=x.shape[1], dtype=x.dtype.name)
    return g.op("take", x, index, axis=axis, mode="wrap")


def _positive(g: Importer, index: Val, n: Any) -> Val:
    """Indices counted from 0."""
    if isinstance(n, Dim):
        size: Val = g.extent(n)
        return g.op("broadcast_mod", index, cast(g, size, index.dtype))
    return g.op(
        "broadcast_mod",
        index,
        g.constant(np.array([n], index.dtype)) if index.rank else g.constant(np.array(n, index.dtype)),
    )


def _static(x: Val, what: str) -> tuple[int, ...]:
    if not x.type.is_static:
        raise Untranslated(f"of an open {what}")
    return x.shape


def _places(g: Importer, shape: Sequence[int]) -> list[Val]:
    """For each axis, the position along it of every element of an array of this shape."""
    if math.prod(shape) > 1 << 22:
        raise Untranslated("of so many elements")
    return [g.constant(np.ascontiguousarray(place)) for place in np.indices(shape, np.int64)]


@translation("GatherElements")
def _gather_elements(g: Importer, call: Call, x: Val, index: Val) -> Val:
    axis = call.get("axis", 0) % x.rank
    return g.op("gather_nd", x, _index_tuples(g, x, index, axis))


def _index_tuples(g: Importer, x: Val, index: Val, axis: int) -> Val:
    places = _places(g, _static(index, "index"))
    places[axis] = cast(g, _positive(g, index, x.shape[axis]), np.int64)
    rows = [g.op("expand_dims", p, axis=0) for p in places]
    return g.op("Concat", *rows, dim=0) if len(rows) > 1 else rows[0]


@translation("GatherND")
def _gather_nd(g: Importer, call: Call, x: Val, index: Val) -> Val:
    return g.op("gather_nd", x, _tuples(g, x, index, call.get("batch_dims", 0)))


def _tuples(g: Importer, x: Val, index: Val, batch: int = 0) -> Val:
    """ONNX's index tuples, in the last axis, as MXNet's, in the first, counted from 0 and with those of the batch."""
    depth = index.shape[-1]
    turned = g.op("transpose", index, axes=(index.rank - 1, *range(index.rank - 1))) if index.rank > 1 else index
    sizes = np.array(_static(x, "data")[batch : batch + depth], np.int64)
    limits = g.constant(sizes.reshape(-1, *(1,) * (index.rank - 1)))
    turned = g.op("broadcast_mod", cast(g, turned, np.int64), limits)
    if not batch:
        return turned
    own = _places(g, _static(index, "index")[:-1])[:batch]
    return g.op("Concat", *(g.op("expand_dims", p, axis=0) for p in own), turned, dim=0)


@translation("ScatterElements", "Scatter")
def _scatter_elements(g: Importer, call: Call, x: Val, index: Val, updates: Val) -> Val:
    axis = call.get("axis", 0) % x.rank
    return _scattered(g, call, x, _index_tuples(g, x, index, axis), updates)


@translation("ScatterND")
def _scatter_nd(g: Importer, call: Call, x: Val, index: Val, updates: Val) -> Val:
    return _scattered(g, call, x, _tuples(g, x, index), updates)


def _scattered(g: Importer, call: Call, x: Val, tuples: Val, updates: Val) -> Val:
    how = call.get("reduction", "none")
    if how == "none":
        return g.op("_scatter_set_nd", x, updates, tuples, shape=_static(x, "data"))
    raise Untranslated(f"with the reduction {how}")


@translation("OneHot")
def _one_hot(g: Importer, call: Call, index: Val, depth: Val, values: Val) -> Val:
    count = int(g.known(depth, "depth").reshape(-1)[0])
    axis = call.get("axis", -1) % (index.rank + 1)
    wide = cast(g, index, np.int64)
    inside = g.op(
        "_npi_where",
        g.op("_npi_less_scalar", wide, scalar=0),
        g.op("broadcast_add", wide, g.constant(np.array(count, np.int64))),
        wide,
    )
    steps = g.constant(np.arange(count).reshape([-1 if k == axis else 1 for k in range(index.rank + 1)]))
    hit = g.op("_npi_equal", g.op("expand_dims", inside, axis=axis), steps)
    off, on = (g.op("_np_squeeze", g.op("slice_axis", values, axis=0, begin=k, end=k + 1), axis=(0,)) for k in range(2))
    return g.op("_npi_where", hit, on, off)


@translation("TopK")
def _top_k(g: Importer, call: Call, x: Val, k: Val | None = None) -> Any:
    count = call.attrs["k"] if k is None else int(g.known(k, "number").reshape(-1)[0])
    axis = call.get("axis", -1) % x.rank
    largest = bool(call.get("largest", 1))
    places = g.op("argsort", x, axis=axis, is_ascend=not largest, dtype="int64")
    places = g.op("slice_axis", places, axis=axis, begin=0, end=count)
    values = g.op("sort", x, axis=axis, is_ascend=not largest)
    return [g.op("slice_axis", values, axis=axis, begin=0, end=count), places]


@translation("Tile")
def _tile(g: Importer, call: Call, x: Val, repeats: Val) -> Val:
    reps = tuple(int(n) for n in g.known(repeats, "repeats"))
    return g.op("tile", x, reps=reps) if reps else x


@translation("Pad")
def _pad(g: Importer, call: Call, x: Val, pads: Val | None = None, value: Val | None = None, axes: Any = None) -> Val:
    amounts = call.attrs["pads"] if pads is None else [int(n) for n in g.known(pads, "padding")]
    chosen = range(x.rank) if axes is None else [int(k) % x.rank for k in g.known(axes, "axes")]
    low, high = [0] * x.rank, [0] * x.rank
    for k, axis in enumerate(chosen):
        low[axis], high[axis] = amounts[k], amounts[len(amounts) // 2 + k]
    mode = call.get("mode", "constant")
    number = call.get("value", 0.0)
    if value is not None:
        number = float(g.known(value, "value").reshape(()))
    if mode == "constant":
        return padded(g, x, low, high, number)
    for axis, (a, b) in enumerate(zip(low, high)):
        if a < 0 or b < 0:
            x = g.op("slice_axis", x, axis=axis, begin=max(-a, 0), end=b if b < 0 else None)
    pairs = tuple((max(a, 0), max(b, 0)) for a, b in zip(low, high))
    if mode == "wrap":
        for axis, (a, b) in enumerate(pairs):
            n = _static(x, "size")[axis]
            place = np.arange(-a, n + b) % n
            x = g.op("take", x, g.constant(place), axis=axis, mode="clip") if a or b else x
        return x
    return g.op("_npi_pad", x, pad_width=pairs, mode=mode)


@translation("Trilu")
def _trilu(g: Importer, call: Call, x: Val, k: Val | None = None) -> Val:
    offset = 0 if k is None else int(g.known(k, "k").reshape(()))
    rows, columns = x.shape[-2:]
    if isinstance(rows, Dim) or isinstance(columns, Dim) or rows * columns > 1 << 22:
        if call.get("upper", 1):
            raise Untranslated("of open sizes")
        return g.op("_npi_tril", x, k=offset)
    mask = np.tri(rows, columns, offset - 1 if call.get("upper", 1) else offset, dtype=bool)
    keep = g.constant(~mask if call.get("upper", 1) else mask)
    return g.op("_npi_where", keep, x, g.op("zeros_like", x))


@translation("DepthToSpace", "SpaceToDepth")
def _depth(g: Importer, call: Call, x: Val) -> Val:
    size = call.attrs["blocksize"]
    if call.op == "SpaceToDepth":
        return g.op("space_to_depth", x, block_size=size)
    if call.get("mode", "DCR") == "DCR":
        return g.op("depth_to_space", x, block_size=size)
    channels, height, width = x.shape[1:]
    y = g.op("Reshape", x, shape=(0, channels // size**2, size, size, height, width))
    y = g.op("transpose", y, axes=(0, 1, 4, 2, 5, 3))
    return g.op("Reshape", y, shape=(0, 0, height * size, width * size))


@translation("ReverseSequence")
def _reverse_sequence(g: Importer, call: Call, x: Val, lengths: Val) -> Val:
    time, batch = call.get("time_axis", 0), call.get("batch_axis", 1)
    turned = x if time == 0 else g.op("SwapAxis", x, dim1=0, dim2=1)
    if {time, batch} != {0, 1}:
        raise Untranslated(f"along {time} and {batch}")
    y = g.op("SequenceReverse", turned, cast(g, lengths, np.int32), use_sequence_length=True)
    return y if time == 0 else g.op("SwapAxis", y, dim1=0, dim2=1)


@translation("Compress")
def _compress(g: Importer, call: Call, x: Val, condition: Val) -> Val:
    if condition.array is None:
        raise Untranslated("whose condition is computed")
    places = np.flatnonzero(condition.array)
    axis = call.get("axis")
    if axis is None:
        x, axis = reshaped(g, x, [-1]), 0
    return g.op("take", x, g.constant(places), axis=axis % x.rank, mode="clip")


@translation("NonZero")
def _non_zero(g: Importer, call: Call, x: Val) -> Val:
    if x.array is None:
        raise Untranslated("whose operand is computed")
    return g.constant(np.array(np.nonzero(x.array), np.int64))


@translation("MaxRoiPool")
def _roi_pool(g: Importer, call: Call, x: Val, rois: Val) -> Val:
    return g.op(
        "ROIPooling",
        x,
        rois,
        pooled_size=tuple(call.attrs["pooled_shape"]),
        spatial_scale=call.get("spatial_scale", 1.0),
    )


# Resizing: along each axis a weighted sum of some of its elements


@translation("Resize", "Upsample")
def _resize(g: Importer, call: Call, x: Val, *more: Val | None) -> Val:
    roi, scales, sizes = _resize_inputs(call, more)
    axes = [k % x.rank for k in call.get("axes") or range(x.rank)]
    mode, how = call.get("mode", "nearest"), call.get("coordinate_transformation_mode", "half_pixel")
    if call.op == "Upsample" or (call.version < 11):
        how = "asymmetric"
    factors: list[Any] = [1.0] * x.rank
    new: list[Any] = list(x.shape)
    if sizes is not None:
        _sized(g, call, x, sizes, axes, factors, new)
    else:
        given = (
            [float(s) for s in g.known(scales, "scales").reshape(-1)] if scales is not None else call.attrs["scales"]
        )
        for axis, factor in zip(axes, given):
            factors[axis] = float(np.float32(factor))
            if factor != 1:
                if isinstance(x.shape[axis], Dim):
                    new[axis] = x.shape[axis] * int(factor) if factor == int(factor) else None
                else:
                    new[axis] = int(math.floor(x.shape[axis] * factors[axis]))
    changed = [axis for axis in range(x.rank) if new[axis] != x.shape[axis] or how == "tf_crop_and_resize"]
    if mode == "nearest" and how in ("asymmetric", "half_pixel") and _whole(call, changed, factors, x):
        for axis in changed:
            x = g.op("repeat", x, repeats=int(factors[axis]), axis=axis)
        return x
    if any(isinstance(x.shape[axis], Dim) or new[axis] is None for axis in changed):
        raise Untranslated("of open sizes")
    region = None if roi is None else [float(v) for v in g.known(roi, "roi").reshape(-1)]
    integers = not x.floats
    kind = x.dtype
    if integers and mode != "nearest":
        x = cast(g, x, np.float32)
    for axis in changed:
        ends = (0.0, 1.0)
        if region and how == "tf_crop_and_resize":
            at = axes.index(axis) if axis in axes else None
            if at is None:
                continue
            ends = (region[at], region[len(axes) + at])
        n = x.shape[axis]
        matrix, outside = _weights(call, mode, how, n, new[axis], factors[axis], ends)
        x = _weighted(g, x, axis, matrix, mode == "nearest")
        if outside.any():
            keep = g.constant(~outside.reshape([-1 if k == axis else 1 for k in range(x.rank)]))
            x = g.op("_npi_where", keep, x, g.constant(np.array(call.get("extrapolation_value", 0.0), x.dtype)))
    return cast(g, x, kind)


def _resize_inputs(call: Call, more: Sequence[Any]) -> tuple[Any, Any, Any]:
    """(roi, scales, sizes)"""
    if call.op == "Upsample" or call.version < 11:
        return None, more[0] if more else None, None
    roi, scales, sizes = [*more, None, None, None][:3]
    if scales is not None and scales.type.size == 0:
        scales = None
    if roi is not None and roi.type.size == 0:
        roi = None
    return roi, scales, sizes


def _sized(
    g: Importer, call: Call, x: Val, sizes: Val, axes: Sequence[int], factors: list[Any], new: list[Any]
) -> None:
    wanted = g.ints(sizes, "sizes")
    policy = call.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        pick = min if policy == "not_larger" else max
        shared = pick(n / x.shape[axis] for axis, n in zip(axes, wanted))
        wanted = [math.floor(shared * x.shape[axis] + 0.5) for axis in axes]
    for axis, n in zip(axes, wanted):
        new[axis] = n
        if n != x.shape[axis]:
            if isinstance(n, Dim) or isinstance(x.shape[axis], Dim):
                raise Untranslated("of open sizes")
            factors[axis] = n / x.shape[axis] if policy == "stretch" else shared


def _whole(call: Call, changed: Sequence[int], factors: Sequence[Any], x: Val) -> bool:
    """Whether each element is repeated the same number of times."""
    if call.get("nearest_mode", "round_prefer_floor") not in ("floor", "round_prefer_floor"):
        return False
    how = call.get("coordinate_transformation_mode", "half_pixel")
    floor = call.get("nearest_mode", "round_prefer_floor") == "floor"
    plain = call.op == "Upsample" or call.version < 11 or (how == "asymmetric") == floor
    return plain and all(factors[k] == int(factors[k]) and factors[k] > 1 for k in changed)


def _weighted(g: Importer, x: Val, axis: int, matrix: np.ndarray, single: bool) -> Val:
    """Every result along the axis as a sum of elements times a row of the matrix."""
    if single:
        return g.op("take", x, g.constant(matrix.argmax(1)), axis=axis, mode="clip")
    if matrix.size > 1 << 24:
        raise Untranslated("to that size")
    weights = g.constant(np.ascontiguousarray(matrix.T).astype(x.dtype))
    last = x.rank - 1
    if axis == last:
        return g.op("_npi_matmul", x, weights)
    order = [k for k in range(x.rank) if k != axis] + [axis]
    y = g.op("_npi_matmul", g.op("transpose", x, axes=tuple(order)), weights)
    return g.op("transpose", y, axes=tuple(order.index(k) for k in range(x.rank)))


def _centres(how: str, n: int, size: int, factor: float, ends: tuple[float, float]) -> np.ndarray:
    """Where along an axis of n elements each of the `size` results lies."""
    k = np.arange(size, dtype=np.float64)
    match how:
        case "half_pixel":
            return (k + 0.5) / factor - 0.5
        case "half_pixel_symmetric":
            adjusted = size / (factor * n)
            return n / 2 * (1 - adjusted) + (k + 0.5) / factor - 0.5
        case "pytorch_half_pixel":
            return (k + 0.5) / factor - 0.5 if size > 1 else k * 0
        case "align_corners":
            return k * ((n - 1) / (size - 1)) if size > 1 else k * 0
        case "asymmetric":
            return k / factor
        case "tf_crop_and_resize":
            start, end = ends
            step = (end - start) * (n - 1) / (size - 1) if size > 1 else 0.0
            return start * (n - 1) + k * step if size > 1 else np.full(1, 0.5 * (start + end) * (n - 1))
    raise Untranslated(f"with {how}")


def _weights(
    call: Call, mode: str, how: str, n: int, size: int, factor: float, ends: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """(size, n) weights of the elements of an axis, and which results lie outside of it."""
    place = _centres(how, n, size, factor, ends)
    outside = (place < 0) | (place > n - 1) if how == "tf_crop_and_resize" else np.zeros(size, bool)
    matrix = np.zeros((size, n))
    rows = np.arange(size)
    if mode == "nearest":
        rounding = call.get("nearest_mode", "round_prefer_floor")
        if call.op == "Upsample" or call.version < 11:
            rounding = "floor"
        roundings: dict[str, Any] = {
            "round_prefer_floor": lambda p: np.ceil(p - 0.5),
            "round_prefer_ceil": lambda p: np.floor(p + 0.5),
            "floor": np.floor,
            "ceil": np.ceil,
        }
        at = roundings[rounding](place)
        matrix[rows, at.astype(int).clip(0, n - 1)] = 1
        return matrix, outside
    smooth = bool(call.get("antialias", 0)) and factor < 1
    spread = 1 / factor if smooth else 1.0
    if mode == "linear":
        reach, weight = spread, lambda d: np.maximum(1 - np.abs(d) / spread, 0)
    elif mode == "cubic":
        a = call.get("cubic_coeff_a", -0.75)
        reach = 2 * spread

        def weight(d: np.ndarray) -> np.ndarray:
            d = np.abs(d) / spread
            near = ((a + 2) * d - (a + 3)) * d * d + 1
            far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            return np.where(d <= 1, near, np.where(d < 2, far, 0))
    else:
        raise Untranslated(f"in mode {mode}")
    first = np.floor(place - reach).astype(int)
    exclude = bool(call.get("exclude_outside", 0))
    for step in range(math.ceil(2 * reach) + 2):
        at = first + step
        share = weight(place - at)
        if exclude or smooth:
            share = np.where((at >= 0) & (at < n), share, 0)
        np.add.at(matrix, (rows, at.clip(0, n - 1)), share)
    if exclude or smooth:
        matrix /= matrix.sum(1, keepdims=True)
    return matrix, outside
