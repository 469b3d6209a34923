"""The verifier's rules for graphs of level `planned`, whose intermediates have places in one arena.

* Every buffer that kernels write lies in the arena, inside its size and aligned, unless it is a result of the graph,
  which has a buffer of its own. Nothing else has an offset.
* Buffers that are live at the same time do not overlap. A buffer is live from the first op that writes it, or a window
  of it, to the last op that reads or writes it; an op's workspace is live during the op. A result may take the place of
  an operand that its op is the last to read, if the kernel allows it (`in_place_pairs`).
* Operands of a concat that is a view are windows of it, each written once (`ir/windows.py`), and the `.strides` of
  each kernel are those that follow from the graph.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import NoReturn

from gluonjit.ir.annotations import STRIDES, WORKSPACE, WORKSPACE_OFFSET
from gluonjit.ir.buffers import is_view, runs_kernel
from gluonjit.ir.dims import HINT, LOWEST, at
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.machine import ALIGNMENT
from gluonjit.ir.sizes import dimensions, with_sizes
from gluonjit.ir.types import IRError
from gluonjit.ir.windows import (
    Strides,
    in_place_pairs,
    is_filled,
    kernel_strides,
    result_buffers,
    takes_strides,
    windows,
)

Fail = Callable[["Op | None", str], NoReturn]


def verify_memory(graph: Graph, fail: Fail) -> None:
    """Calls `fail(op, problem)` for the first fault. A graph with open dimensions is looked at with two sets of sizes:
    places are multiples of products of them, so what overlaps for some sizes does for all."""
    names = dimensions(graph)
    if names:
        for first in (LOWEST, HINT):
            sizes = {name: first + k for k, name in enumerate(names)}
            verify_memory(with_sizes(graph, sizes), lambda _, problem: fail(None, f"{problem}, with sizes {sizes}"))  # noqa: B023
        return
    try:
        places = windows(graph)
    except IRError as e:
        fail(None, str(e))
    owned = result_buffers(graph, places)
    for k, v in enumerate(graph.results):
        if owned.get(places[v].root) != k:
            fail(None, f"no kernel writes result {k} of the graph into a buffer of its own")
    last_use: dict[Value, int] = {}
    for t, op in enumerate(graph.ops):
        if not is_view(op):
            last_use.update((places[v].root, t) for v in (*op.operands, *op.results))

    arena = _Arena(graph.attrs.get("arena", 0))
    dying: dict[int, list[Value]] = {}
    for t, op in enumerate(graph.ops):
        written = [places[r].root for r in op.results] if runs_kernel(op) else []
        placed = [root for root in dict.fromkeys(written) if root not in owned]
        for root in placed:
            if root.offset is None:
                fail(op, "a result has no place in the arena")
        for r in op.results:
            fills = places[r].root is r and (runs_kernel(op) or is_filled(op))
            if r.offset is not None and not (fills and r not in owned):
                fail(op, "a result that does not live in the arena has an offset")
        if runs_kernel(op):
            _verify_strides(op, kernel_strides(op, places), fail)
        for r, over in in_place_pairs(op, places):
            if r in placed and over.offset == r.offset and last_use.get(over) == t:
                arena.remove(over)
        for root in placed:
            if root in arena.place:
                continue
            if problem := arena.add(root, at(root.offset or 0, {}), root.type.nbytes):
                fail(op, problem)
            dying.setdefault(last_use.get(root, t), []).append(root)
        if runs_kernel(op) and WORKSPACE.of(op):
            if not WORKSPACE_OFFSET.is_on(op):
                fail(op, "its workspace has no place in the arena")
            if problem := arena.add(op, at(WORKSPACE_OFFSET.of(op), {}), at(WORKSPACE.of(op), {})):
                fail(op, problem)
            arena.remove(op)
        for v in dying.pop(t, ()):
            arena.remove(v)


def _verify_strides(op: Op, strides: tuple[Strides | None, ...], fail: Fail) -> None:
    if STRIDES.of(op) != strides:
        fail(op, f"its operands and results have the strides {strides}")
    for k, own in enumerate(strides):
        if own is not None and not takes_strides(op, k, own):
            fail(op, f"its kernel knows no strides but those of a whole buffer, here it meets {own}")


class _Arena:
    """The pieces that are live now, sorted by offset. They never overlap, so only neighbours need to be compared."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pieces: list[tuple[int, int, str]] = []
        self.place: dict[Value | Op, tuple[int, int, str]] = {}

    def add(self, owner: Value | Op, offset: int, size: int) -> str:
        """Adds a piece; returns what is wrong with it, or ''."""
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
