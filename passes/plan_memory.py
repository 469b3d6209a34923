"""`plan-memory`: gives every intermediate a byte offset in one arena. Values that are never live together share memory.

Two buffers *interfere* when one is written while the other is still to be read. Offsets are assigned greedily on the
interference graph, the largest buffer first, each at the lowest offset that fits between its neighbours (first-fit
decreasing; Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020). An elementwise
kernel may overwrite an operand of which it is the last reader. A buffer that is written window by window (a concat) is
live from the first window on.

Where sizes are open, a buffer takes c·m bytes, for a product m of open dimensions. The buffers of one m are planned
together, by their c, and get a part of the arena for themselves: which ones overlap is then the same for all sizes.

With the graph attribute `in_place`, the caller passes each state's own array for its new value. A new value that cannot
be written there while the state is still being read is copied in the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from gluonjit.ir.annotations import KERNEL, SCRATCH, STRIDES, WORKSPACE, WORKSPACE_OFFSET
from gluonjit.ir.arena import last_uses
from gluonjit.ir.buffers import control_workspace, runs_kernel
from gluonjit.ir.dims import Extent, Monomial, aligned, leading, most, polynomial
from gluonjit.ir.graph import Builder, Graph, Loc, Op, Value, with_notes, with_regions
from gluonjit.ir.kernels.element_plans import Copy
from gluonjit.ir.machine import ALIGNMENT
from gluonjit.ir.types import IRError
from gluonjit.ir.windows import (
    Strides,
    Window,
    in_place_pairs,
    is_row_major,
    result_buffers,
    updates_in_place,
    windows,
)
from gluonjit.passes.manager import register_pass


@dataclass(eq=False)
class Buffer:
    """A piece of the arena, live from the op that writes it to the last that reads it (indices into `graph.ops`)."""

    size: Any
    """Bytes; of a buffer whose size is open, bytes per unit of `unit`."""
    start: int
    end: int
    unit: Monomial = ()
    """The product of open dimensions that multiplies `size` and `offset`; `base` does not count in it."""
    offset: int = 0
    base: Extent = 0

    @property
    def place(self) -> Extent:
        """Where it begins in the arena."""
        return self.base + self.offset * polynomial({self.unit: 1})


@register_pass("plan-memory", needs="fused", gives="planned")
def plan_memory(graph: Graph) -> Graph:
    """Gives every intermediate a place in one arena; the result has level `planned`.

    Sets `Value.offset`, `.workspace_offset`, and the graph attributes `arena` (bytes), `arena_sum` (unshared) and, if a
    kernel needs any, `scratch` (bytes per thread)."""
    graph = replace(graph, ops=tuple([_with_planned_regions(op) for op in graph.ops]))
    places = windows(graph)
    if copied := _without_buffers(graph, places):
        graph = _with_copies(graph, copied)
        places = windows(graph)
    if graph.attrs.get("in_place"):
        direct = enumerate(updates_in_place(graph, places), len(graph.outputs))
        if late := [k for k, in_place in direct if not in_place]:
            graph = _with_copies(graph, dict.fromkeys(late))
            places = windows(graph)
    owned = result_buffers(graph, places)
    last_use = last_uses(graph, places)

    buffers: dict[Value, Buffer] = {}
    workspaces: dict[Op, Buffer] = {}
    reuses: list[tuple[Buffer, Buffer]] = []
    for t, op in enumerate(graph.ops):
        if not runs_kernel(op):
            continue
        for root in dict.fromkeys(places[r].root for r in op.results):
            if root not in owned and root not in buffers:
                buffers[root] = _buffer(root.type.nbytes, t, last_use.get(root, t))
        if WORKSPACE.of(op):
            workspaces[op] = _buffer(WORKSPACE.of(op), t, t)
        for r, root in in_place_pairs(op, places):
            old = buffers.get(root)
            if r in buffers and old is not None and old.end == t:
                reuses.append((old, buffers[r]))
    every = [*buffers.values(), *workspaces.values()]
    arena: Extent = 0
    for unit in sorted({b.unit for b in every}, key=lambda unit: (len(unit), unit)):
        group = [b for b in every if b.unit == unit]
        size = _assign(group, [(a, b) for a, b in reuses if a.unit == b.unit == unit])
        for b in group:
            b.base = arena
        arena = arena + size * polynomial({unit: 1})

    offsets = {v: b.place for v, b in buffers.items()}
    notes = {op: WORKSPACE_OFFSET(b.place) for op, b in workspaces.items()}
    attrs = {"arena": arena, "arena_sum": sum(b.size * polynomial({b.unit: 1}) for b in every)}
    if scratch := _scratch(graph):
        attrs["scratch"] = scratch
    return _annotate(graph, offsets, notes).with_attrs(**attrs)


def _buffer(nbytes: Extent, start: int, end: int) -> Buffer:
    unit, size = leading(nbytes)
    return Buffer(aligned(size, ALIGNMENT), start, end, unit)


def _scratch(graph: Graph) -> Extent:
    """Scratch bytes per thread: the most that any kernel needs, as kernels run one after the other."""
    sizes: list[Extent] = [0]
    for op in graph.ops:
        sizes.append(SCRATCH.of(op))
        if op.definition.level == "control":
            sizes += (region.attrs.get("scratch", 0) for region in op.regions)
    return most(sizes)


def _assign(buffers: list[Buffer], reuses: list[tuple[Buffer, Buffer]]) -> int:
    """Sets the offsets; returns the size of the arena in bytes."""
    partners: dict[Buffer, list[Buffer]] = {}
    """These may be at the same offset; other buffers that are live at that time still interfere with both."""
    for old, new in reuses:
        partners.setdefault(old, []).append(new)
        partners.setdefault(new, []).append(old)
    interfering: dict[Buffer, list[Buffer]] = {b: [] for b in buffers}
    live: list[Buffer] = []
    for b in sorted(buffers, key=lambda b: b.start):
        live = [other for other in live if other.end >= b.start]
        for other in live:
            if other not in partners.get(b, ()):
                interfering[b].append(other)
                interfering[other].append(b)
        live.append(b)

    arena = 0
    placed: set[Buffer] = set()
    for b in sorted(buffers, key=lambda b: (-b.size, b.start)):
        taken = [(n.offset, n.offset + n.size) for n in interfering[b] if n in placed and n.size]
        beside = [(p.offset, p.offset + p.size) for p in partners.get(b, ()) if p in placed]
        b.offset = _first_fit(b.size, taken, beside)
        placed.add(b)
        arena = max(arena, b.offset + b.size)
    return arena


def _first_fit(size: int, taken: list[tuple[int, int]], partners: list[tuple[int, int]]) -> int:
    """The lowest offset outside `taken` at which the buffer coincides with each partner, or does not overlap it."""
    merged = _merged(taken)
    after = 0
    for start, end in [*merged, (_END, _END)]:
        # From `after` to `start` is free.
        inside = {after, *(at for pair in partners for at in pair if after < at < start)}
        for at in sorted(inside):
            exact = all(at == begin or at + size <= begin or at >= stop for begin, stop in partners)
            if at + size <= start and exact:
                return at
        after = end
    raise IRError(f"{size} bytes more do not fit into memory")


_END = 2**62
"""An offset after every buffer."""


def _merged(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of the intervals, in order, as intervals that do not touch."""
    out: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if out and start <= out[-1][1]:
            out[-1] = out[-1][0], max(end, out[-1][1])
        else:
            out.append((start, end))
    return out


def _with_planned_regions(op: Op) -> Op:
    """The op with a plan of its body, which has its own arena, if it is a `prepare`; a loop or branch with one of its
    workspace."""
    if op.name == "prepare":
        return with_regions(op, [plan_memory(op.regions[0])])
    if op.definition.level != "control":
        return op
    # The pass manager has run this pass on its regions, unless it was hoisted into a `prepare`.
    regions = [r if r.level == "planned" else plan_memory(r) for r in op.regions]
    return with_notes(with_regions(op, regions), WORKSPACE(control_workspace(regions, op)["end"]))


def _with_copies(graph: Graph, copied: Mapping[int, Strides | None]) -> Graph:
    """The graph with copies in place of these of its results, of the given strides (None: row-major), at its end."""
    b, results = Builder(graph.name, graph.level), list(graph.results)
    for k, strides in copied.items():
        b.loc = _loc(graph, results[k])
        results[k] = _copy(b, results[k], strides)
    count = len(graph.outputs)
    states = [state for state, _ in graph.updates]
    return replace(
        graph,
        ops=graph.ops + b.build(()).ops,
        outputs=tuple(results[:count]),
        updates=tuple(zip(states, results[count:], strict=True)),
    )


def _without_buffers(graph: Graph, places: Mapping[Value, Window]) -> dict[int, Strides | None]:
    """The results of the graph that have no buffer of their own which a kernel writes, and their strides."""
    owned = result_buffers(graph, places)
    windows = {k: places[v] for k, v in enumerate(graph.results) if owned.get(places[v].root) != k}
    shapes = [v.shape for v in graph.results]
    return {k: None if is_row_major(shapes[k], w.strides) else w.strides for k, w in windows.items()}


def _copy(b: Builder, x: Value, strides: tuple[int, ...] | None = None) -> Value:
    """A copy of a value with these strides (None: row-major)."""
    body = Builder("copy", "fused")
    region = body.build([body.input("x", x.type)])
    attrs = KERNEL(Copy()) | (STRIDES((strides, None)) if strides else {})
    return b.emit("fused", [x], attrs, [region], result_names=[x.name])[0]


def _loc(graph: Graph, v: Value) -> Loc | None:
    """Where a value comes from."""
    op = graph.producers.get(v)
    return op.loc if op is not None else None


def _annotate(graph: Graph, offsets: Mapping[Value, Extent], notes: Mapping[Op, dict[str, Extent]]) -> Graph:
    """The same graph with offsets on values and notes on ops."""
    env: dict[Value, Value] = {}
    ops = []
    for v in graph.inputs:
        env[v] = v
    for op in graph.ops:
        for r in op.results:
            env[r] = Value(r.name, r.type, offsets.get(r))
        attrs = MappingProxyType({**op.attrs, **notes[op]}) if op in notes else op.attrs
        operands, results = tuple([env[v] for v in op.operands]), tuple([env[r] for r in op.results])
        ops.append(Op(op.name, operands, attrs, results, op.regions, op.loc))
    return replace(
        graph,
        ops=tuple(ops),
        outputs=tuple(env[v] for v in graph.outputs),
        updates=tuple((env[s], env[v]) for s, v in graph.updates),
        level="planned",
    )
