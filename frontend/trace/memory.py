"""Memory while tracing: writes become functional updates, which all views see.

A `Cell` is the memory of one array; it holds its current value, an entry of the graph. A symbol is a handle: a cell, an
offset and a shape, as all views in MXNet are contiguous. A write through a handle gives the cell a new value, in which
the handle's elements are replaced; other handles see by the cell's version that they must extract their elements again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gluonjit.operators.own_gradients import REDIRECTED_GRADIENT
from gluonjit.symbol.graph import Entry

if TYPE_CHECKING:
    from gluonjit.trace.recorder import Recorder
    from gluonjit.trace.traced_symbol import TracedSymbol

Shape = tuple[int, ...]


class Cell:
    """`entry` is the value of the whole memory, `version` the number of writes so far.

    `frame` tells where the array was created: in the program itself, or in the body of a loop or branch; `recorded`
    whether it has been written to other than in a pause.
    """

    __slots__ = ("entry", "frame", "recorded", "version")

    def __init__(self, entry: Entry, frame: object) -> None:
        self.entry = entry
        self.frame = frame
        self.version = 0
        self.recorded = False


def read(handle: TracedSymbol) -> Entry:
    """The current value of the handle's elements."""
    cell, frames = handle._cell, handle._recorder.frames
    seen = handle._seen
    # A value that was extracted in the body of a loop or branch cannot be used after that body.
    if seen is None or seen[0] != cell.version or seen[2] not in frames:
        entry = _extract(handle)
        if handle._detached:
            entry = handle._recorder.detached(entry)
        seen = handle._seen = (cell.version, entry, frames[-1])
    return seen[1]


def _extract(handle: TracedSymbol) -> Entry:
    recorder, cell = handle._recorder, handle._cell
    root = recorder.types.get(cell.entry)
    if root is None or handle._shape is None or root.shape == handle._shape:
        return cell.entry
    size = math.prod(handle._shape)
    if size == root.size:
        return reshaped(recorder, cell.entry, handle._shape)
    if not size:  # `slice_axis` takes no empty part
        pin(recorder, cell.entry)
        return recorder.constant(np.empty(handle._shape, root.dtype.numpy))._cell.entry
    rows = _rows(root.shape, handle._offset, size)
    if rows is not None:
        part = recorder.emit("slice_axis", [cell.entry], {"axis": 0, "begin": rows[0], "end": rows[1]})[0]
    else:
        flat = reshaped(recorder, cell.entry, (root.size,))
        end = handle._offset + size
        part = recorder.emit("slice_axis", [flat], {"axis": 0, "begin": handle._offset, "end": end})[0]
    pin(recorder, cell.entry)
    return reshaped(recorder, part, handle._shape)


def write(handle: TracedSymbol, value: Entry) -> None:
    """Replaces the handle's elements by `value`, which has its shape and element type."""
    recorder, cell = handle._recorder, handle._cell
    if cell.frame is not recorder.frames[-1]:
        recorder.refuse(
            "a write inside of foreach, while_loop or cond to an array that was not made there cannot be compiled",
            "pass the new value on as a state of the loop, or return it from the branch",
        )
    before, root = cell.entry, recorder.types[cell.entry]
    shape = recorder.types[value].shape
    size = math.prod(shape)
    if size == root.size:
        if shape != root.shape:
            pin(recorder, cell.entry)
        cell.entry = reshaped(recorder, value, root.shape)
    else:
        pin(recorder, cell.entry)
        rows = _rows(root.shape, handle._offset, size)
        if rows is not None:
            whole, span, within = cell.entry, rows, (rows[1] - rows[0], *root.shape[1:])
        else:
            whole = reshaped(recorder, cell.entry, (root.size,))
            span, within = (handle._offset, handle._offset + size), (size,)
        attrs = {"begin": (span[0],), "end": (span[1],)}
        new = recorder.emit("_slice_assign", [whole, reshaped(recorder, value, within)], attrs)[0]
        cell.entry = reshaped(recorder, new, root.shape)
    cell.version += 1
    if recorder.paused:
        cell.entry = _with_gradient_of(recorder, before, cell.entry)
    else:
        cell.recorded = True
        handle._detached = False
        handle._seen = (cell.version, value, recorder.frames[-1])


def _with_gradient_of(recorder: Recorder, before: Entry, value: Entry) -> Entry:
    """The new value of memory that is written to while recording is paused: gradients by it go to where those by its
    value before go."""
    value = recorder.detached(value)
    if recorder.detached(before) == before:
        return value
    return recorder.emit(REDIRECTED_GRADIENT, [value, before], {"num_args": 2})[0]


def _rows(shape: Shape, offset: int, size: int) -> tuple[int, int] | None:
    """The rows (of the first axis) that elements [offset, offset + size) cover; None unless these are whole rows."""
    row = math.prod(shape[1:])
    if not shape or not row or offset % row or size % row:
        return None
    return offset // row, (offset + size) // row


def reshaped(recorder: Recorder, entry: Entry, shape: Sequence[int]) -> Entry:
    """`entry` reshaped to a shape of the same size."""
    known = recorder.types[entry].shape
    if known == tuple(shape):
        return entry
    pin(recorder, entry)
    target = tuple(shape)
    if not target or 0 in target:  # `Reshape` cannot produce rank 0, and its code 0 means "keep"
        return recorder.emit("_np_reshape", [entry], {"newshape": target})[0]
    return recorder.emit("Reshape", [entry], {"shape": target})[0]


def pin(recorder: Recorder, entry: Entry) -> None:
    """Records that the graph depends on the shape of `entry`."""
    recorder.note("shape", entry)
