"""`x[key]` and `x[key] = value` while tracing.

`ndarray.index_keys` interprets a key on shapes, as it does for arrays. A basic key becomes a `slice`, or a view where
NDArray makes one. A constant index array becomes a gather from the flattened array, at known positions; an index that
is itself an array of the trace becomes `gather_nd`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gluonjit.base import integer_types, numeric_types
from gluonjit.ir.types import F64, I32, I64, DType, broadcast_shapes
from gluonjit.language.array import Array
from gluonjit.ndarray.index_keys import Advanced, Basic, first_axis, fit, numpy_key, parse, whole_numbers
from gluonjit.ndarray.ndarray import convert
from gluonjit.symbol.graph import Entry
from gluonjit.trace.facts import Subscript
from gluonjit.trace.memory import pin, read, reshaped, write

if TYPE_CHECKING:
    from gluonjit.trace.recorder import Recorder
    from gluonjit.trace.traced_symbol import TracedSymbol

Shape = tuple[int, ...]


def get(x: TracedSymbol, key: Any) -> Any:
    """`x[key]`: a view if the key is basic and its elements are contiguous, else a copy."""
    recorder = x._recorder
    if key == () if isinstance(key, tuple) else key is Ellipsis or _is_whole(key):
        return x
    found = _by_key(x, key, final=(1,))
    if found is not None:
        return found
    shape = x.shape
    arrays = _traced_parts(key)
    if any(recorder.lift(part).ndim == 0 for part in arrays):
        found = _take_as_numpy(x, key if isinstance(key, tuple) else (key,))
        return found if found.ndim else recorder.fresh(reshaped(recorder, read(found), (1,)))
    if arrays:
        return _take(x, key)
    if isinstance(key, slice) and key.step in (None, 1) and shape:
        start, stop = first_axis(key, shape[0])
        key = slice(start, stop)
    meaning = parse(key, shape)
    if isinstance(meaning, Advanced):
        positions = _positions(meaning, shape)
        return recorder.fresh(_gather(x, positions))
    entry = reshaped(recorder, _sliced(x, meaning), meaning.shape)
    if not meaning.contiguous:
        return recorder.fresh(entry)
    return x.view(_flat(meaning.start, shape), meaning.shape, entry)


def get_as_numpy(x: TracedSymbol, key: Any) -> Any:
    """`x[key]` by NumPy's rules: the result may have rank 0, and bools are masks."""
    recorder = x._recorder
    found = _by_key(x, key, final=())
    if found is not None:
        return found
    shape = x.shape
    if _traced_parts(key):
        return _take_as_numpy(x, key if isinstance(key, tuple) else (key,))
    parts = numpy_key(key)
    if any(isinstance(part, (np.ndarray, np.bool_, bool, range)) for part in parts):
        return recorder.fresh(_gather(x, np.arange(math.prod(shape)).reshape(shape)[parts]))
    meaning = parse(parts, shape)
    assert isinstance(meaning, Basic)
    final = () if len(meaning.int_axes) == len(shape) and not meaning.new_axes else meaning.shape
    entry = reshaped(recorder, _sliced(x, meaning), final)
    return x.view(_flat(meaning.start, shape), final, entry) if meaning.contiguous else recorder.fresh(entry)


def _by_key(x: TracedSymbol, key: Any, final: Shape) -> TracedSymbol | None:
    """`x[key]` by operators that take the key as it is, so that the graph also serves other shapes. None for keys and
    results that need the shape. `final`: the result's shape where integers index all axes."""
    recorder = x._recorder
    parts = _every_axis(key, x._type.rank)
    if parts is None:
        return None
    shape = x._type.shape
    meaning = parse(tuple(slice(*p) if isinstance(p, tuple) else p for p in parts), shape)
    assert isinstance(meaning, Basic)
    chosen = meaning.int_axes
    if 0 in meaning.size or (len(chosen) == len(shape) and meaning.new_axes):
        return None
    entry = read(x)
    recorder.note(Subscript(parts), entry)
    ends = [p if isinstance(p, tuple) else (p, p + 1 or None) for p in parts if p is not None]
    cut = [axis for axis, pair in enumerate(ends) if pair != (None, None)]
    if len(cut) == 1 and cut[0] in chosen:
        begin, end = ends[cut[0]]
        entry = recorder.emit("slice_axis", [entry], {"axis": cut[0], "begin": begin, "end": end})[0]
    elif cut:
        attrs = {"begin": tuple(begin for begin, _ in ends), "end": tuple(end for _, end in ends)}
        entry = recorder.emit("slice", [entry], attrs)[0]
    if chosen and len(chosen) == len(shape):
        entry = recorder.emit("_np_reshape", [entry], {"newshape": final})[0]
    elif chosen:
        entry = recorder.emit("squeeze", [entry], {"axis": chosen})[0]
    for axis in meaning.new_axes:
        entry = recorder.emit("expand_dims", [entry], {"axis": axis})[0]
    if not meaning.contiguous:
        return recorder.fresh(entry)
    return x.view(_flat(meaning.start, shape), recorder.types[entry].shape, entry)


def _every_axis(key: Any, rank: int) -> tuple[Any, ...] | None:
    """A key of integers, slices without steps, None and Ellipsis as an integer or the ends of a slice for each axis,
    and None. None for other keys."""
    parts: list[Any] = []
    rest = None
    for part in key if isinstance(key, tuple) else (key,):
        if part is Ellipsis and rest is None:
            rest = len(parts)
        elif part is None:
            parts.append(None)
        elif isinstance(part, integer_types) and not isinstance(part, bool):
            parts.append(int(part))
        elif (
            isinstance(part, slice) and all(_is_end(end) for end in (part.start, part.stop)) and part.step in (None, 1)
        ):
            parts.append((part.start, part.stop))
        else:
            return None
    missing = rank - sum(part is not None for part in parts)
    rest = len(parts) if rest is None else rest
    return None if missing < 0 else (*parts[:rest], *[(None, None)] * missing, *parts[rest:])


def _is_end(end: Any) -> bool:
    return end is None or (isinstance(end, int) and not isinstance(end, bool))


def _take_as_numpy(x: TracedSymbol, parts: tuple[Any, ...]) -> Any:
    """`_take`, where index arrays of rank 0 act like integers: they remove the axis that they index."""
    recorder = x._recorder
    vectors: list[Any] = []
    for part in parts:
        if _traced_parts(part):
            index = recorder.lift(part)
            part = recorder.fresh(reshaped(recorder, read(index), (1,))) if index.ndim == 0 else index
            vectors.append((part, index.ndim == 0))
        else:
            vectors.append((part, not isinstance(part, slice) and np.ndim(part) == 0))
    found = _take(x, tuple(part for part, _ in vectors))
    chosen = [(k, single) for k, (part, single) in enumerate(vectors) if not isinstance(part, slice)]
    if not all(single for _, single in chosen):
        return found
    axis, entry = chosen[0][0], read(found)
    pin(recorder, entry)
    shape = recorder.types[entry].shape
    return recorder.fresh(reshaped(recorder, entry, shape[:axis] + shape[axis + 1 :]))


def put(x: TracedSymbol, key: Any, value: Any) -> None:
    """`x[key] = value`, for x and all views of its memory; the value is cast and broadcast."""
    recorder = x._recorder
    shape = x.shape
    if x._type.size == 0:
        return
    if _traced_parts(key):
        _scatter(x, key, value)
        return
    meaning = parse(() if key is Ellipsis else key, shape)
    if isinstance(meaning, Advanced):
        positions = _positions(meaning, shape)
        new = _fitted(x, value, positions.shape, ())
        flat = reshaped(recorder, read(x), (math.prod(shape),))
        # Take from the concatenation of old and new elements; if several write to one position, the last one wins.
        source = np.arange(math.prod(shape))
        source[positions.reshape(-1)] = math.prod(shape) + np.arange(positions.size)
        both = recorder.emit("Concat", [flat, reshaped(recorder, new, (positions.size,))], {"dim": 0})[0]
        taken = recorder.emit("take", [both, read(recorder.constant(source.reshape(shape)))], {"axis": 0})[0]
        write(x, taken)
        return
    if 0 in meaning.size:
        return
    if isinstance(value, numeric_types):
        attrs = {**_bounds(meaning), "scalar": float(value)}
        pin(recorder, read(x))
        write(x, recorder.emit("_slice_assign_scalar", [read(x)], attrs)[0])
        return
    kept = tuple(n for axis, n in enumerate(meaning.size) if axis not in meaning.int_axes) or (1,)
    new = reshaped(recorder, _fitted(x, value, kept, meaning.new_axes), meaning.size)
    if meaning.size == shape and all(step > 0 for step in meaning.step):
        write(x, new)
    elif meaning.contiguous and (recorder.paused or not x._detached):
        write(x.view(_flat(meaning.start, shape), meaning.size), new)
    else:
        pin(recorder, read(x))
        write(x, recorder.emit("_slice_assign", [read(x), new], _bounds(meaning))[0])


def _is_whole(key: Any) -> bool:
    return isinstance(key, slice) and key == slice(None)


def _traced_parts(key: Any) -> list[Any]:
    """The parts of a key that are arrays whose values are not known."""
    return [part for part in (key if isinstance(key, tuple) else (key,)) if isinstance(part, Array)]


def _flat(start: Sequence[int], shape: Shape) -> int:
    """The position of element `start` in row-major order."""
    offset = 0
    for begin, n in zip(start, shape):
        offset = offset * n + begin
    return offset


def _bounds(meaning: Basic) -> dict[str, Any]:
    """begin, end and step of `slice` and similar operators; None is an end before the first element."""
    ends = [b + n * s for b, n, s in zip(meaning.start, meaning.size, meaning.step)]
    attrs: dict[str, Any] = {"begin": meaning.start, "end": tuple(e if e >= 0 else None for e in ends)}
    if any(step != 1 for step in meaning.step):
        attrs["step"] = meaning.step
    return attrs


def _sliced(x: TracedSymbol, meaning: Basic) -> Entry:
    """The elements of a basic key, keeping the axes that integers index."""
    recorder, entry = x._recorder, read(x)
    shape = x._type.shape
    cut = [axis for axis, n in enumerate(shape) if (meaning.size[axis], meaning.step[axis]) != (n, 1)]
    if not cut:
        return entry
    if 0 in meaning.size:
        recorder.note("dtype", entry)
        return read(recorder.constant(np.zeros(meaning.size, x._type.dtype.numpy)))
    if len(cut) == 1 and meaning.step[cut[0]] == 1:
        (axis,) = cut
        begin = meaning.start[axis]
        attrs = {"axis": axis, "begin": begin, "end": begin + meaning.size[axis]}
        return recorder.emit("slice_axis", [entry], attrs)[0]
    attrs = _bounds(meaning)
    return recorder.emit("slice", [entry], attrs)[0]


def _positions(meaning: Advanced, shape: Shape) -> np.ndarray:
    """Row-major positions of the elements that an advanced key selects, in the result's shape."""
    positions = np.arange(math.prod(shape)).reshape(shape)[meaning.key]
    for axis in meaning.new_axes:
        positions = np.expand_dims(positions, axis)
    return positions if positions.ndim else positions.reshape(1)


def _gather(x: TracedSymbol, positions: np.ndarray) -> Entry:
    recorder = x._recorder
    flat = reshaped(recorder, read(x), (x._type.size,))
    return recorder.emit("take", [flat, read(recorder.constant(positions))], {"axis": 0})[0]


def _take(x: TracedSymbol, key: Any) -> Any:
    """`x[key]` with index arrays of unknown values: one of them and slices, or several for the first axes.

    Uses `gather_nd`, which counts negative positions from the end, and raises an error for those out of bounds.
    """
    recorder = x._recorder
    parts = key if isinstance(key, tuple) else (key,)
    slices = [k for k, part in enumerate(parts) if isinstance(part, slice)]
    if len(slices) < len(parts) - 1:
        return recorder.fresh(recorder.emit("gather_nd", [read(x), _tuples(x, parts)], {})[0])
    (axis,) = {*range(len(parts))} - {*slices}
    rest = tuple(slice(None) if k == axis else part for k, part in enumerate(parts))
    source = get(x, rest) if slices else x
    index = recorder.emit("expand_dims", [_index(x, parts[axis])], {"axis": 0})[0]
    whole = read(source)
    if axis:  # move the indexed axis to the front, and the result's index axes back to its place
        pin(recorder, whole)
        order = (axis, *(k for k in range(len(recorder.types[whole].shape)) if k != axis))
        whole = recorder.emit("transpose", [whole], {"axes": order})[0]
    found = recorder.emit("gather_nd", [whole, index], {})[0]
    if axis:
        new = len(recorder.types[index].shape) - 1
        back = (*range(new, new + axis), *range(new), *range(new + axis, len(recorder.types[found].shape)))
        found = recorder.emit("transpose", [found], {"axes": back})[0]
    return recorder.fresh(found)


def _scatter(x: TracedSymbol, key: Any, value: Any) -> None:
    """`x[key] = value` with index arrays of unknown values for the first axes."""
    recorder = x._recorder
    shape = x.shape
    parts = key if isinstance(key, tuple) else (key,)
    while _is_whole(parts[-1]):
        parts = parts[:-1]
    tuples = _tuples(x, parts)
    new = _fitted(x, value, recorder.types[tuples].shape[1:] + shape[len(parts) :], ())
    write(x, recorder.emit("_scatter_set_nd", [read(x), new, tuples], {"shape": shape})[0])


def _tuples(x: TracedSymbol, parts: Sequence[Any]) -> Entry:
    """Index arrays for the first axes as one operand of `gather_nd`: broadcast, and stacked along a new first axis."""
    recorder = x._recorder
    if any(part is None or part is Ellipsis or isinstance(part, slice) for part in parts):
        recorder.refuse(
            "an index that combines arrays of unknown values with slices, None or ... in this way cannot be compiled",
            "F.take(x, index, axis=…), F.pick or F.gather_nd",
        )
    indices = [_index(x, part) for part in parts]
    if len({recorder.types[e].dtype for e in indices}) > 1:
        indices = [_cast(recorder, e, I64) for e in indices]
    shape = broadcast_shapes(*(recorder.types[e].shape for e in indices))
    indices = [_fitted(recorder.fresh(e), recorder.fresh(e), shape, ()) for e in indices]
    return recorder.emit("stack", indices, {"axis": 0})[0]


def _index(x: TracedSymbol, part: Any) -> Entry:
    """One index array, as integers; fractions are truncated."""
    recorder = x._recorder
    if not isinstance(part, Array):
        return read(recorder.constant(np.atleast_1d(whole_numbers(part))))
    entry = read(recorder.lift(part))
    dtype = recorder.note("dtype", entry)
    if dtype.kind == "b":
        recorder.refuse("x[mask] cannot be compiled: its shape depends on the mask", "F.where(mask, x, other)", True)
    if recorder.lift(part).ndim == 0:
        entry = reshaped(recorder, entry, (1,))
    return entry if dtype.is_integer else _cast(recorder, entry, I64 if dtype is F64 else I32)


def _cast(recorder: Recorder, entry: Entry, dtype: DType) -> Entry:
    if recorder.types[entry].dtype is dtype:
        return entry
    return recorder.emit("Cast", [entry], {"dtype": dtype.numpy.name})[0]


def _fitted(x: TracedSymbol, value: Any, shape: Shape, squeeze: Sequence[int]) -> Entry:
    """`value` cast to x's element type and broadcast to `shape`; surplus leading axes of length 1 are dropped."""
    recorder = x._recorder
    dtype = recorder.ask("dtype", x)
    if not isinstance(value, Array):
        value = recorder.constant(np.atleast_1d(convert(np.asarray(value), dtype.numpy)))
    entry = read(recorder.lift(value))
    if recorder.note("dtype", entry) is not dtype:
        entry = recorder.emit("Cast", [entry], {"dtype": dtype.numpy.name})[0]
    own = recorder.types[entry].shape
    pin(recorder, entry)
    if own == shape:
        return entry
    # Runs `fit`, which has the rule, on a stand-in of one byte, for its error if the value does not fit.
    stand_in = np.broadcast_to(np.zeros((), np.int8), own)
    fit(stand_in, shape, squeeze)
    if 0 in shape:  # which `broadcast_to` takes for "as it is"
        return read(recorder.constant(np.zeros(shape, dtype.numpy)))
    trailing = own
    if squeeze and len(trailing) > len(shape):
        trailing = tuple(n for axis, n in enumerate(trailing) if axis not in squeeze)
    while len(trailing) > len(shape):
        trailing = trailing[1:]
    entry = reshaped(recorder, entry, (1,) * (len(shape) - len(trailing)) + trailing)
    return (
        entry if recorder.types[entry].shape == shape else recorder.emit("broadcast_to", [entry], {"shape": shape})[0]
    )
