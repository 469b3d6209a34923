"""The function that calls a graph's kernels in order, each with a table of pointers, and lets threads meet between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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


_MANY = 32
"""From so many calls on, a loop reads them from a list. As instructions they take LLVM a tenth of a millisecond each;
the loop jumps to each kernel through a pointer, which fewer and smaller kernels might notice."""
_SLOT = 16
"""Bits of a word of the list that say which slot of the function's table is meant; the others are the bytes after what
is there."""
_NUMBER, _SCRATCH = (1 << _SLOT) - 1, (1 << _SLOT) - 2
"""In place of a slot: the rest of the word is a number, which is copied; this thread's scratch."""


def emit_calls(f: Function, layout: Layout, calls: Sequence[Call], alone: bool, scratch: Extent) -> None:
    """Fills the function. `alone`: one thread alone ever runs it; `scratch`: bytes per thread.

    If the layout says when results are `ready`, the first thread notes in the table how many kernels have run: where a
    result is complete, or at the next barrier if threads share the work.
    """
    dims = layout.dims
    watch = _watch(f, layout)
    before = max(len(dims) + (watch is not None), *(len(c.sizes) for c in calls), 0)
    own = f.gep("ptr", f.alloca("ptr", before + max((len(c.pointers) for c in calls), default=1)), before)
    waits = [False] * len(calls) if alone else barriers([c.step for c in calls])
    if len(calls) >= _MANY and not dims and watch is None and layout.size < _SCRATCH:
        _loop(f, layout, calls, waits, alone, scratch, own)
        return
    f.is_cold = True  # it only passes pointers on: 10 ns more per call, for a quarter of LLVM's time
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

    if alone:
        for k, c in enumerate(calls, 1):
            call(c, 0, 1)
            if k in layout.ready:
                _note(f, layout, k)
        _leave(watch)
        return
    first = f.op("icmp eq i64 %thread, 0")
    at = noted = 0
    while at < len(calls):
        if waits[at]:
            barrier(f, f.table(layout.team_slot))
            if watch is not None:
                watch.ended(watch.stamps.barrier(watch.inside, calls[at - 1].site))
            if any(noted < count <= at for count in layout.ready):
                with f.if_(first):
                    _note(f, layout, at)
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


def _loop(
    f: Function, layout: Layout, calls: Sequence[Call], waits: Sequence[bool], alone: bool, scratch: Extent, own: str
) -> None:
    """`emit_calls` as a loop over a list of words. For each call: its kernel's number with, below it, 8 bits for the
    number of its sizes and one each for: results are complete, there is a barrier in front, all threads run it; how
    many words follow; these: its sizes, the last one first, and its pointers (see `_SLOT`)."""
    slots = {"arena": layout.arena_slot, "scratch": _SCRATCH, "threads": layout.scratch_slot, "team": layout.team_slot}
    slots["null"] = _NUMBER
    kernels: dict[str, int] = {}
    words: list[int] = []
    noted = 0
    for at, c in enumerate(calls):
        notes = (alone or waits[at]) and any(noted < count <= at for count in layout.ready)
        noted = at if notes else noted
        bits = notes << 2 | waits[at] << 1 | (c.step.shared and not alone)
        words += [kernels.setdefault(c.kernel, len(kernels)) << 11 | len(c.sizes) << 3 | bits]
        words += [len(c.sizes) + len(c.pointers), *(size << _SLOT | _NUMBER for size in reversed(c.sizes))]
        for kind, place, offset in c.pointers:
            slot, after = (place, offset) if kind == "table" else (slots[kind], place if kind == "arena" else offset)
            words.append(int(after) << _SLOT | slot)
    lists, functions = f.module.constant(np.array(words, np.int64)), f.module.pointers(tuple(kernels))
    first = "true" if alone else f.op("icmp eq i64 %thread, 0")
    mine = f.add(f.load("i64", f.gep("ptr", "%table", layout.scratch_slot), align=8), f.mul("%thread", scratch))

    def bit(word: str, k: int) -> str:
        return f.op(f"icmp ne i64 {f.op(f'and i64 {word}, {1 << k}')}, 0")

    with f.for_(0, len(calls), carried=[("i64", "0")]) as loop:
        (at_word,) = loop.carried
        head = f.gep("i64", lists, at_word)
        what, count = f.load("i64", head, align=8), f.load("i64", f.gep("i64", head, 1), align=8)
        if any(waits):
            with f.if_(bit(what, 1)):
                barrier(f, f.table(layout.team_slot))
        if layout.ready:
            with f.if_(f.op(f"and i1 {first}, {bit(what, 2)}")):
                _note(f, layout, loop.index)
        shared = bit(what, 0)
        with f.if_(f.op(f"or i1 {first}, {shared}")):
            sizes = f.op(f"and i64 {f.op(f'lshr i64 {what}, 3')}, 255")
            _fill(f, f.gep("ptr", own, f.sub(0, sizes)), f.gep("i64", head, 2), count, mine)
            kernel = f.load("ptr", f.gep("ptr", functions, f.op(f"lshr i64 {what}, 11")), align=8)
            thread = f.op(f"select i1 {shared}, i64 %thread, i64 0")
            nthreads = f.op(f"select i1 {shared}, i64 %nthreads, i64 1")
            f.call(kernel, "void", ("ptr", own), ("i64", thread), ("i64", nthreads))
        loop.next(f.add(f.add(at_word, count), 2))
    if alone and len(calls) in layout.ready:
        _note(f, layout, len(calls))


def _fill(f: Function, own: str, words: str, count: str, mine: str) -> None:
    """Writes what `count` words of a list stand for to `own`. `mine`: this thread's scratch."""
    with f.for_(0, count) as loop:
        word = f.load("i64", f.gep("i64", words, loop.index), align=8)
        slot = f.op(f"and i64 {word}, {_NUMBER}")
        is_slot = f.op(f"icmp ult i64 {slot}, {_SCRATCH}")
        there = f.load("i64", f.gep("i64", "%table", f.op(f"select i1 {is_slot}, i64 {slot}, i64 0")), align=8)
        other = f.op(f"select i1 {f.op(f'icmp eq i64 {slot}, {_SCRATCH}')}, i64 {mine}, i64 0")
        base = f.op(f"select i1 {is_slot}, i64 {there}, i64 {other}")
        value = f.op(f"add i64 {base}, {f.op(f'ashr i64 {word}, {_SLOT}')}")
        f.store("i64", value, f.gep("i64", own, loop.index), align=8)


def _note(f: Function, layout: Layout, count: int | str) -> None:
    """Notes in the table how many kernels have run. Whoever sees the number sees what was written before."""
    f.emit(f"store atomic i64 {count}, ptr {f.gep('i64', '%table', layout.progress_slot)} release, align 8")


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
