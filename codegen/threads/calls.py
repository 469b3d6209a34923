"""The function that calls a graph's kernels in order, each with a table of pointers, and lets threads meet between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gluonjit.codegen.interface import Layout
from gluonjit.codegen.text.llvm import Function
from gluonjit.codegen.threads.places import Place
from gluonjit.codegen.threads.schedule import Step, barriers
from gluonjit.codegen.threads.stamps import Watch
from gluonjit.codegen.threads.team import Block
from gluonjit.ir.dims import Extent


@dataclass
class Call:
    kernel: str
    pointers: list[Place]
    step: Step
    site: int | None = None
    """The kernel's number in `codegen.threads.stamps`, if the program is to be measured."""
    sizes: tuple[int, ...] = ()
    """Of the open dimensions that the kernel has in a program without any."""


def emit_calls(f: Function, layout: Layout, calls: Sequence[Call], alone: bool, scratch: Extent) -> None:
    """Fills the function. `alone`: one thread alone ever runs it; `scratch`: bytes per thread.

    If the layout says when results are `ready`, the first thread notes in the table how many kernels have run: where a
    result is complete, or at the next barrier if threads share the work.
    """
    dims = layout.dims
    watch = _watch(f, layout)
    before = max(len(dims) + (watch is not None), *(len(c.sizes) for c in calls), 0)
    own = f.gep("ptr", f.alloca("ptr", before + max((len(c.pointers) for c in calls), default=1)), before)
    for k, (name, slot) in enumerate(zip(dims, layout.size_slots, strict=True)):
        f.sizes[name] = f.load("i64", f.gep("ptr", "%table", slot), align=8)
        f.store("i64", f.sizes[name], f.gep("ptr", own, -1 - k), align=8)
    arena = f.table(layout.arena_slot)

    def pointer(place: Place) -> str:
        if place.kind == "arena":
            return f.gep("i8", arena, place.at)
        if place.kind == "scratch":
            return f.gep("i8", f.table(layout.scratch_slot), f.mul("%thread", scratch))
        slot = {"table": place.at, "threads": layout.scratch_slot, "team": layout.team_slot}.get(place.kind)
        return "null" if slot is None else f.gep("i8", f.table(slot), place.offset)

    def call(c: Call, thread: str | int, nthreads: str | int) -> None:
        # Pointers are found again for each call: kept for the whole function, they take LLVM several times as long.
        for k, place in enumerate(c.pointers):
            f.store("ptr", pointer(place), f.gep("ptr", own, k), align=8)
        for k, size in enumerate(c.sizes):
            f.store("i64", size, f.gep("ptr", own, -1 - k), align=8)
        if watch is not None and not c.sizes:
            f.store("ptr", watch.area, f.gep("ptr", own, -1 - len(f.module.dims)), align=8)
        f.call(c.kernel, "void", ("ptr", own), ("i64", thread), ("i64", nthreads))
        if watch is not None and c.site is not None:
            watch.ended(c.site)

    def note(count: int) -> None:
        # Whoever sees the number sees what was written before.
        f.emit(f"store atomic i64 {count}, ptr {f.gep('i64', '%table', layout.progress_slot)} release, align 8")

    if alone:
        for k, c in enumerate(calls, 1):
            call(c, 0, 1)
            if k in layout.ready:
                note(k)
        _leave(watch)
        return
    first = f.op("icmp eq i64 %thread, 0")
    waits = barriers([c.step for c in calls])
    at = noted = 0
    while at < len(calls):
        if waits[at]:
            barrier(f, f.table(layout.team_slot))
            if watch is not None:
                watch.ended(watch.stamps.barrier(watch.inside, calls[at - 1].site))
            if any(noted < count <= at for count in layout.ready):
                with f.if_(first):
                    note(at)
                noted = at
        if calls[at].step.shared:
            call(calls[at], "%thread", "%nthreads")
            at += 1
            continue
        with f.if_(first):  # up to the next barrier, or shared step
            while True:
                call(calls[at], 0, 1)
                at += 1
                if at == len(calls) or waits[at] or calls[at].step.shared:
                    break
        if watch is not None:
            watch.begins()
    _leave(watch)


def _watch(f: Function, layout: Layout) -> Watch | None:
    """What measures the function, if that is wanted. Its table has one more word, the pointer to an area: in the body
    of a loop the thread's own, else the first thread's."""
    stamps = f.module.stamps
    if stamps is None:
        return None
    area = f.load("ptr", f.gep("ptr", "%table", layout.size), align=8)
    if stamps.inside is None:
        # How many sites there will be is not known yet.
        stride = f.load("i64", f.gep("i64", "%table", layout.size + 1), align=8)
        area = f.gep("i64", area, f.mul("%thread", stride))
    watch = Watch(f, stamps, area, stamps.inside)
    if stamps.inside is None:
        watch.entered()
    return watch


def _leave(watch: Watch | None) -> None:
    if watch is not None and watch.inside is None:
        watch.left()


def barrier(f: Function, team: str) -> None:
    """Waits until all threads that run `f` have come here."""
    with f.if_(f.op("icmp ne i64 %nthreads, 1")):
        function = f.load("ptr", f.gep("i8", team, int(Block.BARRIER)), 8)
        f.emit(f"call void {function}(ptr {team}, i64 %nthreads)")
