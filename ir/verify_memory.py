"""What the verifier asks of a graph of level `planned`, whose intermediates have places in one arena.

* Every value that a kernel writes lies in the arena, inside its size and aligned, unless it is a result of the graph,
  which has a buffer of its own. Nothing else has an offset.
* Buffers that live at the same time do not overlap. A buffer lives from the op that writes it to the last op that
  reads it, or a view of it; an op's workspace lives during the op. A result may have the place of an operand that dies
  in its op where `in_place_pairs` says that the kernel allows it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import NoReturn

from gluonjit.ir.buffers import ALIGNMENT, buffer_roots, in_place_pairs, is_view, result_buffers, runs_kernel
from gluonjit.ir.graph import Graph, Op, Value

Fail = Callable[["Op | None", str], NoReturn]


def verify_memory(graph: Graph, fail: Fail) -> None:
    """Calls `fail(op, problem)` for the first thing that is wrong."""
    roots = buffer_roots(graph)
    owned = result_buffers(graph, roots)
    for k, v in enumerate(graph.results):
        if owned.get(roots.get(v, v)) != k:
            fail(None, f"no kernel writes result {k} of the graph into a buffer of its own")
    last_use: dict[Value, int] = {}
    for t, op in enumerate(graph.ops):
        if not is_view(op):
            last_use.update((roots.get(v, v), t) for v in op.operands)

    arena = _Arena(graph.attrs.get("arena", 0))
    dying: dict[int, list[Value]] = {}
    for t, op in enumerate(graph.ops):
        placed = [r for r in op.results if runs_kernel(op) and r not in owned]
        for r in op.results:
            if r in placed and r.offset is None:
                fail(op, "a result has no place in the arena")
            if r not in placed and r.offset is not None:
                fail(op, "a result that does not live in the arena has an offset")
        for r, over in in_place_pairs(op, roots):
            if r in placed and over.offset == r.offset and last_use.get(over) == t:
                arena.remove(over)
        for r in placed:
            if problem := arena.add(r, r.offset or 0, r.type.nbytes):
                fail(op, problem)
            dying.setdefault(last_use.get(r, t), []).append(r)
        if runs_kernel(op) and op.attrs.get(".workspace"):
            if ".workspace_offset" not in op.attrs:
                fail(op, "its workspace has no place in the arena")
            if problem := arena.add(op, op.attrs[".workspace_offset"], op.attrs[".workspace"]):
                fail(op, problem)
            arena.remove(op)
        for v in dying.pop(t, ()):
            arena.remove(v)


class _Arena:
    """The pieces that live now, sorted by offset; they never overlap, so only neighbours need a look."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pieces: list[tuple[int, int, str]] = []
        self.place: dict[Value | Op, tuple[int, int, str]] = {}

    def add(self, owner: Value | Op, offset: int, size: int) -> str:
        """Adds a piece; what is wrong with it, or ''."""
        if offset < 0 or offset + size > self.size:
            return f"bytes {offset} to {offset + size} are outside the arena of {self.size}"
        if offset % ALIGNMENT:
            return f"offset {offset} is not a multiple of {ALIGNMENT}"
        if size == 0:
            return ""
        piece = (offset, offset + size, f"%{owner.name}" if isinstance(owner, Value) else f"{owner.name}'s workspace")
        k = bisect_left(self.pieces, piece)
        for other in self.pieces[max(k - 1, 0) : k + 1]:
            if other[0] < piece[1] and piece[0] < other[1]:
                return f"bytes {offset} to {piece[1]} overlap {other[2]} at {other[0]} to {other[1]}, which still lives"
        insort(self.pieces, piece)
        self.place[owner] = piece
        return ""

    def remove(self, owner: Value | Op) -> None:
        piece = self.place.pop(owner, None)
        if piece is not None:
            del self.pieces[bisect_left(self.pieces, piece)]
