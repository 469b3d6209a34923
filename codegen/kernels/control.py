"""Loops, branches and calls: functions that call their regions' functions.

A region is a planned graph, lowered like the whole one (`codegen.program`) to a function of a table. The op's workspace
(`ir.buffers.control_workspace`) holds the regions' arenas and the buffers of carried values.

Every thread runs the whole loop with its own pointers and iteration number. Threads share the work of the regions; the
first thread alone does the little work of the loop itself. A barrier follows every write that another thread may read.

Where a loop treats the rows of an open dimension independently, as a recurrent layer does with the samples of a batch,
and there are enough of them, each thread runs the whole loop for its part of the rows instead, and waits for nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from gluonjit.codegen.interface import Layout
from gluonjit.codegen.kernels.batch_split import Rows
from gluonjit.codegen.kernels.matmul import share
from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.codegen.threads.calls import barrier
from gluonjit.codegen.threads.stamps import Watch
from gluonjit.ir.buffers import control_workspace
from gluonjit.ir.dims import Extent, named, names_of
from gluonjit.ir.graph import Op


@dataclass
class Region:
    """A region's function, and the contents of its table."""

    name: str
    layout: Layout
    backwards: str | None = None
    """A function with the same results that reads weights from the last to the first; see `passes/alternate.py`."""


def lower_control(
    name: str, op: Op, regions: Sequence[Region], alone: bool, module: Module, rows: Rows | None, scratch: Extent
) -> None:
    """Appends the function of a `loop`, `branch` or `call`. Its table: operands, results, workspace, the scratch of all
    threads, the team. `alone`: only ever called on one thread.

    `rows`: those of which each thread may take a part; `scratch`: bytes per thread.
    """
    if rows is None:
        _lower(module.function(name), op, regions, alone)
        return
    _lower(module.function(f"{name}_shared"), op, regions, alone)
    _Control(module.function(f"{name}_part"), op, regions, True, rows.dimension, scratch).loop()
    f = module.function(name)
    enough = f.op(f"icmp sge i64 {f.extent(named(rows.dimension))}, {f.mul('%nthreads', rows.least)}")
    in_parts = f.op(f"and i1 {enough}, {f.op('icmp ne i64 %nthreads, 1')}")
    for suffix, holds in (("part", in_parts), ("shared", f.op(f"xor i1 {in_parts}, true"))):
        with f.if_(holds):
            f.call(f"{name}_{suffix}", "void", ("ptr", "%table"), ("i64", "%thread"), ("i64", "%nthreads"))


def _lower(f: Function, op: Op, regions: Sequence[Region], alone: bool) -> None:
    lowering = _Control(f, op, regions, alone)
    {"branch": lowering.branch, "loop": lowering.loop, "call": lowering.once}[op.name]()


class _Control:
    """`rows`: each thread takes its part of the rows of this dimension, and `alone` is true. `scratch`: bytes of each
    thread."""

    def __init__(
        self,
        f: Function,
        op: Op,
        regions: Sequence[Region],
        alone: bool,
        rows: str | None = None,
        scratch: Extent = 0,
    ) -> None:
        self.f, self.op, self.regions, self.alone = f, op, regions, alone
        self.member: tuple[str | int, str | int] = ("%thread", "%nthreads")
        """The number of the thread, and of threads, that the regions are called with."""
        self.pointers = [f.table(k) for k in range(len(op.operands) + len(op.results) + 3)]
        *_, self.scratch, self.team = self.pointers
        # Bytes from row to row of the arrays that a loop runs over, computed before `_take_part` changes their sizes.
        types = [v.type for v in (*op.operands, *op.results)]
        self.pitches = [f.extent(t.nbytes // max(t.shape[0], 1)) if t.shape else 0 for t in types]
        places = control_workspace(op.regions, op)
        if rows is not None:
            self._take_part(rows, scratch, places["end"])
        self.stamps = f.module.stamps
        self.site = self.stamps.inside if self.stamps is not None else None
        self.area: str | None = None
        """The thread's area of `codegen.threads.stamps`, if time is measured: it is in front of the sizes."""
        if self.stamps is not None:
            self.area = f.load("ptr", f.gep("ptr", "%table", -1 - len(f.module.dims)), align=8)
        *arrays, workspace, _, _ = self.pointers
        self.operands, self.results = arrays[: len(op.operands)], arrays[len(op.operands) :]
        self.places = {key: f.gep("i8", workspace, at) for key, at in places.items() if key != "end"}

    def _take_part(self, rows: str, scratch: Extent, workspace: Extent) -> None:
        """Lets pointers and sizes be those of the thread's part of the rows."""
        f, op = self.f, self.op
        carried = op.attrs["carried"]
        first, last = share(f, named(rows))
        per_row: list[Extent] = []
        for values in (op.operands, op.results):
            for k, v in enumerate(values):
                size = v.type.nbytes // named(rows) if rows in names_of(v.type.shape) else 0
                per_row.append(size // max(op.attrs["trip"], 1) if k >= carried else size)
        per_row += [workspace // named(rows), 0, 0]
        self.pointers = [f.gep("i8", p, f.mul(first, n)) if n else p for p, n in zip(self.pointers, per_row)]
        self.scratch = f.gep("i8", self.scratch, f.mul("%thread", scratch))
        self.member = (0, 1)
        f.sizes[rows] = f.sub(last, first)

    def call(self, k: int, inputs: Sequence[str], results: Sequence[str], iteration: str | None = None) -> None:
        """Calls region k; every second iteration backwards, where there is such a function."""
        f, region = self.f, self.regions[k]
        layout = region.layout
        table = f.alloca("ptr", layout.size + (self.area is not None))
        if self.area is not None:
            f.store("ptr", self.area, f.gep("ptr", table, layout.size), align=8)
        constants = [f.module.constant(c) for c in layout.constants]
        filled = {
            **dict(zip(layout.input_slots, inputs, strict=True)),
            **dict(zip(layout.result_slots, results, strict=True)),
            **dict(zip(layout.constant_slots, constants, strict=True)),
            layout.arena_slot: self.places[f"arena{k}"],
            layout.scratch_slot: self.scratch,
            layout.team_slot: self.team,
        }
        for slot, pointer in filled.items():
            f.store("ptr", pointer, f.gep("ptr", table, slot), align=8)
        for name, slot in zip(layout.dims, layout.size_slots, strict=True):
            f.store("i64", named(name), f.gep("ptr", table, slot), align=8)
        thread, nthreads = self.member
        args = (("ptr", table), ("i64", thread), ("i64", nthreads))
        if region.backwards is None or iteration is None:
            f.call(region.name, "void", *args)
            return
        odd = f.op(f"trunc i64 {iteration} to i1")
        with f.if_(odd):
            f.call(region.backwards, "void", *args)
        with f.if_(f.op(f"xor i1 {odd}, true")):
            f.call(region.name, "void", *args)

    def meet(self) -> None:
        if self.alone:
            return
        if self.stamps is None or self.area is None:
            barrier(self.f, self.team)
            return
        watch = Watch(self.f, self.stamps, self.area, self.site)
        barrier(self.f, self.team)
        watch.ended(self.stamps.barrier(self.site, self.site))

    def first(self) -> AbstractContextManager[Any]:
        """A context for code that the first thread alone runs."""
        return nullcontext() if self.alone else self.f.if_(self.f.op("icmp eq i64 %thread, 0"))

    def once(self) -> None:
        self.call(0, self.operands, self.results)

    def branch(self) -> None:
        f = self.f
        condition, *captured = self.operands
        taken = f.op(f"icmp ne i8 {f.load('i8', condition)}, 0")
        with f.if_(taken):
            self.call(0, captured, self.results)
        with f.if_(f.op(f"xor i1 {taken}, true")):
            self.call(1, captured, self.results)

    def loop(self) -> None:
        f, op, operands, results, places = self.f, self.op, self.operands, self.results, self.places
        carried, scanned, trip = (op.attrs[key] for key in ("carried", "scanned", "trip"))
        conditional = len(self.regions) > 1
        captured = operands[carried + scanned :]
        sizes = [v.type.nbytes for v in op.operands[:carried]]
        rows = op.results[carried:]
        with self.first():
            for k, size in enumerate(sizes):
                _copy(f, places[f"a{k}"], operands[k], size)
            if conditional:
                # Iterations that do not run leave their rows 0.
                for pointer, v in zip(results[carried:], rows, strict=True):
                    _zero(f, pointer, v.type.nbytes)
        self.meet()

        number = f.alloca("i64")
        states = [("ptr", places[f"{buffer}{k}"]) for buffer in "ab" for k in range(carried)]
        with f.for_(0, trip, carried=[*states, ("i1", "true")]) as loop:
            now, following, runs = loop.carried[:carried], loop.carried[carried:-1], loop.carried[-1]
            f.store("i64", loop.index, number, align=8)
            if conditional:
                runs = self._goes_on(runs, [number, *now, *captured])
            with f.if_(runs):
                # The iteration's row of each array over which the loop runs.
                row = f.sub(f.sub(trip, 1), loop.index) if op.attrs["last_first"] else loop.index
                items = [
                    f.gep("i8", operands[k], f.mul(row, self.pitches[k])) for k in range(carried, carried + scanned)
                ]
                outs = [
                    f.gep("i8", results[k], f.mul(row, self.pitches[len(operands) + k]))
                    for k in range(carried, len(results))
                ]
                self.call(0, [number, *now, *items, *captured], [*following, *outs], loop.index)
                self.meet()
            # Swap the buffers: the new values are carried on, and the old ones are overwritten next.
            new = [f.op(f"select i1 {runs}, ptr {b}, ptr {a}") for a, b in zip(now, following, strict=True)]
            free = [f.op(f"select i1 {runs}, ptr {a}, ptr {b}") for a, b in zip(now, following, strict=True)]
            loop.next(*new, *free, runs)
        with self.first():
            for pointer, final, size in zip(results[:carried], loop.results[:carried], sizes, strict=True):
                _copy(f, pointer, final, size)

    def _goes_on(self, before: str, inputs: Sequence[str]) -> str:
        """Whether to go on: the condition, if it has held `before`. No thread reads the word that holds the condition
        any more when a later iteration overwrites it."""
        f, go = self.f, self.places["go"]
        label = f.scope.label
        with f.if_(before) as then:
            self.call(1, inputs, [go])
            self.meet()
            holds = f.op(f"icmp ne i8 {f.load('i8', go)}, 0")
        return f.op(f"phi i1 [ false, %{label} ], [ {holds}, %{then.label} ]")


def _copy(f: Function, to: str, source: str, nbytes: Extent) -> None:
    args = (("ptr", to), ("ptr", source), ("i64", nbytes), ("i1", "false"))
    f.intrinsic("llvm.memcpy", "void", *args, overload=("ptr", "ptr", "i64"))


def _zero(f: Function, to: str, nbytes: Extent) -> None:
    args = (("ptr", to), ("i8", 0), ("i64", nbytes), ("i1", "false"))
    f.intrinsic("llvm.memset", "void", *args, overload=("ptr", "i64"))
