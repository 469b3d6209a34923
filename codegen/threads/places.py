"""The memory of a planned graph's values at run time: buffer, offset, and the bytes that a value covers.

Buffers are what the function's table points to (`codegen.interface.Layout`): inputs, results …, and the arena, which
all intermediates share.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gluonjit.codegen.interface import Layout
from gluonjit.codegen.threads.schedule import Span
from gluonjit.ir.dims import Extent
from gluonjit.ir.graph import Graph, Value
from gluonjit.ir.types import IRError
from gluonjit.ir.windows import result_buffers, windows


class Place(NamedTuple):
    """Where a pointer in a kernel's table points.

    'table': `offset` bytes after what the function's own table holds at slot `at`; 'arena': into the arena, at a byte
    offset; 'scratch': to this thread's scratch; 'threads': to the scratch of all; 'team': to the team's block; 'null'.
    """

    kind: str
    at: Any = 0
    offset: Extent = 0


class Places:
    """The places of a graph's values. Raises IRError for a value without memory."""

    def __init__(self, graph: Graph, layout: Layout) -> None:
        prepared = [r for op in graph.ops if op.name == "prepare" for r in op.results]
        constants = [op.result for op in graph.ops if op.name == "constant"]
        self._windows = windows(graph)
        owned = result_buffers(graph, self._windows)
        for k, v in enumerate(graph.results):
            if owned.get(self._windows[v].root) != k:
                raise IRError(f"result {k} of @{graph.name} has no kernel of its own; plan-memory adds a copy")
        self._slots = {
            **dict(zip(graph.inputs, layout.input_slots, strict=True)),
            **dict(zip(prepared, layout.prepared_slots, strict=True)),
            **dict(zip(constants, layout.constant_slots, strict=True)),
            **{root: layout.result_slots[k] for root, k in owned.items()},
        }
        """Root → the slot of its buffer, for roots outside of the arena."""
        self._places: dict[Value, Place] = {}
        self._spans: dict[Value, Span] = {}
        self._name = graph.name
        self._same = {}
        """The slot of a new value that is written over its state → the state's."""
        if graph.attrs.get("in_place"):
            inputs = dict(zip(graph.inputs, layout.input_slots, strict=True))
            new = layout.result_slots[len(graph.outputs) :]
            self._same = {slot: inputs[state] for slot, (state, _) in zip(new, graph.updates, strict=True)}

    def __getitem__(self, v: Value) -> Place:
        found = self._places.get(v)
        if found is None:
            found = self._places[v] = self._place(v)
        return found

    def _place(self, v: Value) -> Place:
        root, offset, _ = self._windows[v]
        offset *= v.dtype.itemsize
        if root in self._slots:
            return Place("table", self._slots[root], offset)
        if root.offset is None:
            raise IRError(f"%{root.name} of @{self._name} has no place in memory")
        return Place("arena", root.offset + offset)

    def span(self, v: Value) -> Span:
        """The bytes that the value covers."""
        found = self._spans.get(v)
        if found is None:
            found = self._spans[v] = self._span(v)
        return found

    def _span(self, v: Value) -> Span:
        place, item = self[v], v.dtype.itemsize
        axes = [(n, s * item) for n, s in zip(v.shape, self._windows[v].strides, strict=True) if n != 1]
        run = item
        while axes and axes[-1][1] == run:
            run *= axes.pop()[0]
        pitch = axes[-1][1] if axes else 0
        stop = run + sum((n - 1) * s for n, s in axes)
        for (_, outer), (n, inner) in zip(axes, axes[1:]):
            if outer != n * inner:
                run, pitch = stop, 0
                break
        name = "arena" if place.kind == "arena" else f"table {self._same.get(place.at, place.at)}"
        start = place.at if place.kind == "arena" else place.offset
        if v.size == 0:
            stop = 0
        return Span(name, start, start + stop, *((run, pitch) if pitch else ()))
