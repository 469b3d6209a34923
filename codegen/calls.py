"""The function that calls a graph's kernels in order, each with a table of pointers, and lets threads meet between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gluonjit.codegen.interface import Layout
from gluonjit.codegen.llvm import Function
from gluonjit.codegen.places import Place
from gluonjit.codegen.schedule import Step, barriers
from gluonjit.codegen.team import Block


@dataclass
class Call:
    kernel: str
    pointers: list[Place]
    step: Step


def emit_calls(f: Function, layout: Layout, calls: Sequence[Call], alone: bool, scratch: int) -> None:
    """Fills the function. `alone`: one thread alone ever runs it; `scratch`: bytes per thread."""
    own = f.alloca("ptr", max((len(c.pointers) for c in calls), default=1))
    pointers = _pointers(f, layout, calls, scratch)

    def call(c: Call, thread: str | int, nthreads: str | int) -> None:
        for k, place in enumerate(c.pointers):
            f.store("ptr", pointers[place], f.gep("ptr", own, k), align=8)
        f.call(c.kernel, "void", ("ptr", own), ("i64", thread), ("i64", nthreads))

    if alone:
        for c in calls:
            call(c, 0, 1)
        return
    first = f.op("icmp eq i64 %thread, 0")
    waits = barriers([c.step for c in calls])
    at = 0
    while at < len(calls):
        if waits[at]:
            barrier(f, f.table(layout.team_slot))
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


def barrier(f: Function, team: str) -> None:
    """Waits until all threads that run `f` have come here."""
    with f.if_(f.op("icmp ne i64 %nthreads, 1")):
        function = f.load("ptr", f.gep("i8", team, int(Block.BARRIER)), 8)
        f.emit(f"call void {function}(ptr {team}, i64 %nthreads)")


def _pointers(f: Function, layout: Layout, calls: Sequence[Call], scratch: int) -> dict[Place, str]:
    """The pointers to all places that the calls name."""
    made: dict[Place, str] = {}
    for place in (p for c in calls for p in c.pointers):
        if place in made:
            continue
        if place.kind == "arena":
            made[place] = f.gep("i8", f.table(layout.arena_slot), place.at)
        elif place.kind == "scratch":
            made[place] = f.gep("i8", f.table(layout.scratch_slot), f.mul("%thread", scratch))
        else:
            slot = {"table": place.at, "threads": layout.scratch_slot, "team": layout.team_slot}.get(place.kind)
            made[place] = "null" if slot is None else f.gep("i8", f.table(slot), place.offset)
    return made
