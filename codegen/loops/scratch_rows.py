"""Rows of scratch memory, for values that several phases over the same elements need and that are costly to compute.

The first reduction over a row that computes such a value puts it there, and the later phases find it: the exponentials
of a softmax are summed, and then divided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gluonjit.codegen.loops.access import Access, Buffer
from gluonjit.codegen.loops.evaluate import Index
from gluonjit.codegen.loops.index import Affine, Var, affine, is_inside
from gluonjit.codegen.math.values import Val
from gluonjit.codegen.text.llvm import Function, Scope
from gluonjit.ir.dims import Dim, Extent, aligned
from gluonjit.ir.graph import Value

_SCRATCH = 1 << 16
"""Bytes of stack that a kernel may use for rows."""

Axes = tuple[int | None, ...]
"""Which axis of a reduction each axis of a value walks along; None: it is fixed in the row."""


@dataclass(eq=False)
class Row:
    """Elements of one value along the axes that a reduction runs over, for the row that is being worked on.

    `start` is the index of the row's first element, known once one has been put there. When the row itself is a vector
    of rows, `lane` is its lane number and the last axis.
    """

    buffer: Buffer
    axes: Axes
    lane: Var | None
    start: Index | None = None

    def place(self, index: Index) -> Index | None:
        """The position in the row of the value's element at `index`; None if the row does not hold it."""
        place: list[Affine] = [Affine(0)] * (len(self.buffer.shape) - (self.lane is not None))
        for i, first, axis in zip(index, self.start or (), self.axes):
            distance = i - first
            if axis is None:
                if distance != Affine(0):
                    return None
            elif not is_inside(distance, 0, self.buffer.shape[axis]):
                return None
            else:
                place[axis] = distance
        return tuple(place)

    def address(self, place: Index) -> Index:
        return place if self.lane is None else (*place, affine(self.lane))


def walked_axes(index: Index, vars: Sequence[Affine]) -> Axes | None:
    """Which of `vars` each component of an index walks along, if each is walked along once, in steps of 1."""
    axes: list[int | None] = []
    for i in index:
        walked = [k for k, v in enumerate(vars) if v.leaves & i.leaves]
        if len(walked) > 1 or (walked and vars[walked[0]].leaves & (i - vars[walked[0]]).leaves):
            return None
        axes.append(walked[0] if walked else None)
    used = [k for k in axes if k is not None]
    wanted = [k for k, v in enumerate(vars) if v.leaves]
    return tuple(axes) if sorted(used) == wanted else None


class Rows(Access):
    """`kept` are the values to keep in rows, in the nest that is being written."""

    def __init__(self, f: Function, width: int) -> None:
        super().__init__(f, width)
        self.kept: frozenset[Value] = frozenset()
        self._rows: dict[Value, list[Row]] = {}
        self._filling: dict[Value, Row] = {}
        """The rows that the innermost reduction being written fills."""
        self._term_index: Index = ()
        """The index of the term being computed."""
        self._memory_left = _SCRATCH
        self.scratch: str | None = None
        """Memory of this thread for rows of open lengths, if there is any; else they are not kept."""
        self.scratch_used: Extent = 0
        self._rows_made = 0

    def alternate(self, pieces: Iterable[Callable[[], object]]) -> None:
        """`Function.alternate`, unless a piece has rows of its own, as others put theirs into the same memory."""
        before = self._rows_made
        with self.streaming_together():
            self.f.alternate(pieces, lambda: self._rows_made == before)

    def _new_rows(self, kept: Mapping[Value, Axes], extents: Sequence[Extent], lane: Var | None) -> dict[Value, Row]:
        """Scratch memory for values that a reduction computes element by element."""
        rows = {}
        shape = tuple(extents) if lane is None else (*extents, self.width)
        for v, axes in kept.items():
            pointer = self._scratch(v, math.prod(shape) * v.dtype.itemsize)
            if pointer is not None:
                rows[v] = Row(Buffer(pointer, v.dtype, shape, self.f.scope), axes, lane)
        return rows

    def _scratch(self, v: Value, size: Extent) -> str | None:
        """Memory for a row of `v`: that of a row that is no longer needed, or new; None when there is no more."""
        self._rows_made += 1
        for row in self._rows.get(v, ()):
            if self._runs_before(row.buffer.scope) and math.prod(row.buffer.shape) * v.dtype.itemsize == size:
                self._rows[v].remove(row)
                return row.buffer.pointer
        if isinstance(size, Dim):
            return self._open_row(size)
        if size > self._memory_left:
            return None
        self._memory_left -= size
        return self.f.alloca("i8", size, 64)

    def _open_row(self, size: Dim) -> str | None:
        """New memory for a row whose length is open."""
        if self.scratch is None:
            return None
        with self.f.at(self.f.root):
            pointer = self.f.gep("i8", self.scratch, self.scratch_used)
        self.scratch_used = self.scratch_used + aligned(size, 64)
        return pointer

    def _runs_before(self, scope: Scope) -> bool:
        """Whether all code of `scope` runs before what is written now."""
        inner: Scope | None = scope
        while inner is not None and inner.closed:
            inner = inner.parent
        return inner is not None and inner is not scope and self._open(inner)

    def _open(self, scope: Scope) -> bool:
        """Whether code is now being written inside `scope`."""
        inner: Scope | None = self.f.scope
        while inner is not None and inner is not scope:
            inner = inner.parent
        return inner is not None

    def keep(self, v: Value, index: Index, value: Val) -> None:
        """Puts an element that has just been computed into its row, if this is the reduction that fills it."""
        row = self._filling.get(v)
        if row is not None and self.mask is None:
            row.start = tuple(i if axis is None else i - self._term_index[axis] for i, axis in zip(index, row.axes))
            self.store(row.buffer, row.address(self._term_index), value)

    def recall(self, v: Value, index: Index) -> Val | None:
        """The element from its row, if a reduction has filled one."""
        found = self._find_row(v, index)
        return None if found is None else self.load(found[0].buffer, found[0].address(found[1]))

    def _find_row(self, v: Value, index: Index) -> tuple[Row, Index] | None:
        """(a row that holds the element and can be read here, the element's place in it)."""
        for row in self._rows.get(v, ()):
            place = row.place(index) if self._open(row.buffer.scope) else None
            if place is not None:
                return row, place
        return None
