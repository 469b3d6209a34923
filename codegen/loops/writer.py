"""Writes one loop nest as planned (`codegen/loops/nest`): threads' shares, vectors and their remainders.

Where a transpose makes the lanes of a load lie far apart, another loop walks that memory contiguously. The two are
blocked, so that a square of elements is read by rows and turned in registers (`Access.square`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

from gluonjit.codegen.loops.access import Buffer, Index
from gluonjit.codegen.loops.handler import AHEAD, Handler
from gluonjit.codegen.loops.index import Affine, Var, affine, counter, divides
from gluonjit.codegen.loops.nest import NestPlan, count, extent
from gluonjit.codegen.loops.sums_together import StoredTotals
from gluonjit.codegen.math.values import Val
from gluonjit.ir.dims import Dim, Extent, hint, is_less
from gluonjit.ir.graph import Value
from gluonjit.ir.types import I64

_SMALL = 1 << 14
"""Elements (in a reduction, times terms) below which one thread does all the work."""
_TASKS = 64
"""Enough iterations of the outer loops to be divided among threads."""

_MANY = 1 << 17
"""Elements from which on it is worth twice the time to compile that two vectors of long code take a tenth less time
side by side."""

_SHORT = 4
"""The most vectors of a row that is unrolled, several rows at a time."""

_COLUMNS = (4, 6, 5, 3, 7, 2)
"""Vectors of columns that are summed at a time, the best first: enough for sums not to wait for each other, few enough
for their accumulators."""

_ROWS = 8
"""Rows of which columns are summed in f32 before the totals, in memory, are read and written: prefetchers follow few
streams. From memory, rows of 4 KiB and more took a Zen 3 0.42 to 0.69 of the time that they take 32 at a time."""

_TOTALS = 8192
"""Numbers of f64 that a thread has on its stack for sums down columns; more columns than that are summed part by
part."""

Written = tuple[Buffer, Value]
"""An output: its buffer and its value."""


class NestWriter:
    """The loops that write a group of outputs of one shape."""

    def __init__(self, s: Handler, group: Sequence[Written], plan: NestPlan) -> None:
        self.s, self.f, self.group, self.plan = s, s.f, group, plan
        self.short = _is_short(plan, s.width)
        """Whether rows are so short that several are computed at a time, without loops."""
        self.together = _unrolled(plan) if plan.is_long else 8 if hint(plan.terms) <= _SHORT // 2 * s.width else 4
        # The values that several phases of a short row share stay in registers.
        s.new_nest(frozenset() if self.short else plan.kept)
        self.phases = [] if self.short else plan.phases
        self.reductions = plan.reductions if not plan.rows and plan.vector.unroll == 1 else []
        """What is reduced for each element, where rows of them have nothing in common."""
        ahead = [at for stage in self.reductions for at in stage]
        self.index = (*plan.index, *(i for _, index in (*self.phases, *ahead) for i in index))
        """The outputs' index, and those of phases and reductions, which become those of an element together."""
        self.fetched = self._following_rows() if s.ahead == "rows" else []
        self.threads = "%nthreads"
        """How many share the work."""

    def _following_rows(self) -> list[tuple[Buffer, Extent]]:
        """(an input that is read row by row, elements to a row that comes soon): it is fetched while this one is
        written, as the last phase of a row reads nothing new, and memory would have nothing to do."""
        s, plan = self.s, self.plan
        vector = plan.vector.var
        if not plan.rows or vector is None or vector in plan.rows or vector is not plan.order[-1]:
            return []
        row = [v for v in plan.order if v in plan.rows][-1]
        found = []
        for v, buffer in s.inputs.items():
            if v.shape == self.group[0][1].shape:
                e = buffer.flat(plan.index)
                distance = e.coefficient(row)
                if distance is not None and distance != 0 and e.coefficient(vector) == 1:
                    found.append((buffer, distance * -(-AHEAD // (abs(hint(distance)) * v.dtype.itemsize))))
        return found

    def write(self) -> None:
        """Writes the nest, after deciding how many threads share the work."""
        f, plan = self.f, self.plan
        size = prod(map(extent, plan.order)) * plan.terms
        if isinstance(size, Dim):
            small = f.op(f"icmp slt i64 {f.extent(size)}, {_SMALL}")
            self.threads = f.op(f"select i1 {small}, i64 1, i64 %nthreads")
            with f.if_(f.op(f"icmp slt i64 %thread, {self.threads}")):
                self._shared()
        elif size < _SMALL:
            with f.if_(f.op("icmp eq i64 %thread, 0")):
                self._level(plan.order, self.index, None)
        else:
            self._shared()

    def _shared(self) -> None:
        """Writes the loops, after deciding which of them the threads share."""
        f, plan = self.f, self.plan
        order, vector = plan.order, plan.vector.var
        # Of rows, only whole ones: each is computed once. The loops of vectors and squares are divided by themselves.
        special = [v for v in (plan.across, vector) if v is not None]
        outer = [v for v in order if v in plan.rows] if plan.rows else list(order)
        while outer and any(v in special for v in outer):
            outer.pop()
        loops = 0
        while loops < len(outer) and prod(map(count, outer[:loops])) < _TASKS:
            loops += 1
        tasks = prod(map(extent, outer[:loops]))
        divided = special[0] if special and (not plan.rows or special[0] in plan.rows) else None
        if divided is not None and hint(tasks) < min(count(divided) // self.s.width, _TASKS):
            self._level(order, self.index, divided)
            return
        if not loops:
            with f.if_(f.op("icmp eq i64 %thread, 0")):
                self._level(order, self.index, None)
            return
        begin, end = self._share(tasks)

        def task(left: Affine) -> None:
            values: dict[Var, Affine | Extent] = {}
            for v in reversed(outer[:loops]):
                values[v] = left % extent(v)
                left = left // extent(v)
            self._level(order[loops:], tuple(i.substitute(values) for i in self.index), None)

        self._each("task", begin, end, tasks, order[loops:], task)

    def _each(
        self, name: str, begin: Any, end: Any, trips: Extent, rest: Sequence[Var], body: Callable[[Affine], None]
    ) -> None:
        """A loop over a part of `trips` iterations, around loops over `rest`; of short rows, several at a time."""
        f, n = self.f, self.together
        short = self.short and n > 1 and all(v is self.plan.vector.var for v in rest)
        if short and (isinstance(trips, Dim) or trips >= n):
            # Independent rows hide the latency of each other's sums.
            whole = f.add(begin, f.op(f"and i64 {f.sub(end, begin)}, {-n}"))
            with f.for_(begin, whole, n, hint=name) as loop:
                first = self._bound(name, trips - n + 1, loop.index)
                self.s.alternate(functools.partial(body, first + j) for j in range(n))
            begin = whole
        with f.for_(begin, end, hint=name) as loop:
            body(self._bound(name, trips, loop.index))

    def _share(self, tasks: Any) -> tuple[str, str]:
        """This thread's part of `tasks`."""
        f = self.f
        begin = f.op(f"udiv i64 {f.mul('%thread', tasks)}, {self.threads}")
        return begin, f.op(f"udiv i64 {f.mul(f.add('%thread', 1), tasks)}, {self.threads}")

    def _by_the_last(self, divided: bool, write: Callable[[], None]) -> None:
        """The remainder of a loop; done by the last thread if the loop is divided."""
        f = self.f
        if not divided:
            write()
            return
        with f.if_(f.op(f"icmp eq i64 {f.add('%thread', 1)}, {self.threads}")):
            write()

    def _bound(self, name: str, trips: Extent, ssa: str) -> Affine:
        """A variable for the counter of the innermost open loop."""
        return self._counting(Var(name, 0, trips - 1), ssa)

    def _counting(self, var: Var, ssa: Any) -> Affine:
        self.s.bind(var, Val(self.f.extent(ssa), I64, False, self.f.scope))
        return affine(var)

    def _level(self, order: Sequence[Var], index: Index, divided: Var | None) -> None:
        """The loops over `order`, outermost first; `divided`: the one that is divided among threads."""
        if not order:
            self._element(index)
            return
        var, rest = order[0], order[1:]

        def inside(value: Affine) -> None:
            self._level(rest, tuple(i.substitute({var: value}) for i in index), divided)

        def ahead(values: Sequence[Affine]) -> list[list[tuple[Value, Index]]]:
            return self._stages([tuple(i.substitute({var: value}) for i in index) for value in values])

        if var is self.plan.vector.var:
            together = ahead if self.reductions and not rest else None
            if together is not None and self._by_runs(var, inside, divided is var, together):
                return
            if isinstance(extent(var), Dim):
                self._open_vectors(var, inside, divided is var)
            else:
                self._vectors(var, inside, divided is var, together)
        elif var is self.plan.across:
            self._squares(var, rest[0], index, divided is var)
        else:
            self._each(var.name, 0, extent(var), extent(var), rest, inside)

    def _vectors(
        self,
        var: Var,
        inside: Callable[[Affine], None],
        divided: bool,
        ahead: Callable[[Sequence[Affine]], list[list[tuple[Value, Index]]]] | None = None,
    ) -> None:
        """A loop over blocks of vectors, then over single vectors, then a partial one. `ahead`: the reductions that are
        to be written for several of them together first, in stages."""
        f, s, n, width, plan = self.f, self.s, count(var), self.s.width, self.plan
        repeats = plan.vector.unroll > 1  # patterns of lanes, once per block: each vector has its own
        unroll = plan.vector.unroll
        if not repeats and var is plan.order[-1] and plan.across is None:
            unroll = n // width if self.short else _unrolled(plan)
        unroll = max(1, min(unroll, n // width))
        lane = affine(s.lane_number(width)) if n >= width else Affine(0)
        blocks = n // (width * unroll)
        # A square takes all registers.
        alternate = s.alternate if plan.across is None else _in_sequence

        def together(first: Affine, vectors: int) -> None:
            if ahead is not None:
                for stage in ahead([first + j * width for j in range(vectors)]):
                    s.write_ahead(stage)
            alternate(functools.partial(inside, first + j * width) for j in range(vectors))
            s.forget_ahead()

        if blocks == 1 and not divided:
            together(lane, unroll)
        elif blocks:
            begin, end = self._share(blocks) if divided else (0, blocks)
            with f.for_(begin, end) as loop:
                together(self._bound(var.name, blocks, loop.index) * (width * unroll) + lane, unroll)
        done = blocks * unroll
        singles, partial = n // width - done, n % width

        def remainder() -> None:
            if ahead is not None and singles:
                together(lane + done * width, singles)
            elif repeats or singles == 1:
                for j in range(singles):
                    inside(lane + (done + j) * width)
            elif singles:
                with f.for_(0, singles) as loop:
                    inside(self._bound(var.name, singles, loop.index) * width + lane + done * width)
            if partial:
                inside(affine(s.lane_number(partial)) + n // width * width)

        if singles or partial:
            self._by_the_last(divided, remainder)

    def _open_vectors(self, var: Var, inside: Callable[[Affine], None], divided: bool) -> None:
        """The same for a number of elements that is open."""
        f, s, n, width, plan = self.f, self.s, extent(var), self.s.width, self.plan
        unroll = plan.vector.unroll
        repeats = unroll > 1
        if not repeats and var is plan.order[-1] and plan.across is None:
            unroll = _unrolled(plan)
        alternate = s.alternate if plan.across is None else _in_sequence
        lane = affine(s.lane_number(width))
        block = width * unroll
        blocks = s.whole(n, block)
        begin, end = self._share(blocks) if divided else (0, blocks)
        with f.for_(begin, end) as loop:
            i = self._counting(counter(var.name, n, block), loop.index) * block + lane
            alternate(functools.partial(inside, i + j * width) for j in range(unroll))

        def partial(counted: int, vector: int, whole: Any) -> None:
            """What the block has left after its whole vectors: part of one."""
            left = f.sub(n, f.add(f.mul(whole, counted), vector * width))
            with f.if_(f.op(f"icmp sgt i64 {left}, 0")):
                start = self._counting(counter(var.name, n, counted, last=True), whole) * counted + vector * width
                with s.last_lanes(n, start, left) as last:
                    inside(last)

        def remainder() -> None:
            if repeats:  # each vector of a block has its own pattern of lanes
                for j in range(unroll):
                    partial(block, j, blocks)
                return
            whole = s.whole(n, width)
            if unroll > 1:
                with f.for_(f.mul(blocks, unroll), whole) as loop:
                    inside(self._counting(counter(var.name, n, width), loop.index) * width + lane)
            if not divides(width, n):
                partial(width, 0, whole)

        if not divides(block, n):
            self._by_the_last(divided, remainder)

    def _squares(self, across: Var, along: Var, index: Index, divided: bool) -> None:
        """Blocks of as many iterations of `across` as a vector has lanes; then those left over, one by one.

        The vectors of a line of the cache, if `across` has whole lines, are squares one after the other: few lines stay
        in the caches until the loop comes back to them where rows are a multiple of a page apart."""
        f, s, width = self.f, self.s, self.s.width
        n, line = extent(across), elements_of_line(s)
        size = line if divides(line, n) else width
        blocks = s.whole(n, size)
        rest = f.sub(n, f.mul(blocks, size))
        begin, end = self._share(blocks) if divided else (0, blocks)
        var = counter("block", n, size) if isinstance(n, Dim) else Var("block", 0, max(blocks, 2) - 1)

        def turned(block: Affine, rows: Iterable[int], *vectors: Affine) -> None:
            with s.streaming_together():
                for j, value in itertools.product(rows, vectors):
                    s.square = (var, size, j % width)
                    self._element(tuple(i.substitute({across: block * size + j, along: value}) for i in index))
            s.square = None

        if any(buffer.streaming for buffer, _ in self.group):
            # Whole lines past the caches, of rows that are read from front to end, as few as prefetchers follow.
            lanes, trips = affine(s.lane_number(width)), s.whole(extent(along), line)
            with f.for_(0, trips) as outer, f.for_(begin, end) as loop:
                first = self._counting(counter(along.name, extent(along), line), outer.index) * line + lanes
                block = self._counting(var, loop.index)
                for row in range(0, size, width):
                    turned(block, range(row, row + width), *(first + k for k in range(0, line, width)))
        else:
            with f.for_(begin, end) as loop:
                block = self._counting(var, loop.index)
                write = self._open_vectors if isinstance(extent(along), Dim) else self._vectors
                write(along, functools.partial(turned, block, range(size)), False)

        def remainder() -> None:
            if isinstance(n, Dim):
                with f.for_(f.mul(blocks, size), n) as loop:
                    i = self._bound(across.name, n, loop.index)
                    self._level([along], tuple(k.substitute({across: i}) for k in index), None)
                return
            with f.for_(0, rest) as loop:
                i = self._bound(across.name, rest, loop.index) + blocks * size
                self._level([along], tuple(k.substitute({across: i}) for k in index), None)

        if rest != 0:
            self._by_the_last(divided, remainder)

    def _by_runs(
        self,
        var: Var,
        inside: Callable[[Affine], None],
        divided: bool,
        ahead: Callable[[Sequence[Affine]], list[list[tuple[Value, Index]]]],
    ) -> bool:
        """`_vectors` for sums down the columns of a matrix with long rows, which is read from front to end: some
        columns at a time would fetch more from memory than they read. False if it is something else."""
        f, s, n, width = self.f, self.s, extent(var), self.s.width
        vectors = columns_at_a_time(n, width)
        if not vectors or len(self.reductions) != 1:
            return False
        lane = affine(s.lane_number(width))
        blocks = n // (width * vectors)

        def sums(first: Affine) -> list[tuple[Value, Index]]:
            (stage,) = ahead([first + j * width for j in range(vectors)])
            return stage

        known = s.runs_of_sums(sums(lane), _ROWS)
        if known is None:
            return False
        each = len(known.sums)
        most = max(1, _TOTALS // (each * width))
        totals = StoredTotals(s, each * (min(blocks, most) if isinstance(blocks, int) else most))
        begin, end = self._share(blocks) if divided else (0, blocks)
        with f.for_(begin, end, most, hint="part") as part:
            some_blocks = part.index, f.min(f.add(part.index, most), end)

            def block(loop: Any) -> tuple[Affine, Any]:
                first = self._bound(var.name, blocks, loop.index) * (width * vectors) + lane
                return first, f.mul(f.sub(loop.index, part.index), each)

            with f.for_(*some_blocks) as loop:
                totals.store(block(loop)[1], known.totals)
            with known.runs() as run, f.for_(*some_blocks) as loop:
                first, place = block(loop)
                some = s.runs_of_sums(sums(first), _ROWS)
                assert some is not None
                totals.store(place, some.run(run.index, totals.load(place, each)))
            with f.for_(*some_blocks) as loop:
                first, place = block(loop)
                wanted = sums(first)
                some = s.runs_of_sums(wanted, _ROWS)
                assert some is not None
                s.set_ready(wanted, some.finished(totals.load(place, each)))
                s.alternate(functools.partial(inside, first + j * width) for j in range(vectors))
                s.forget_ahead()
        return True

    def _stages(self, indices: Sequence[Index]) -> list[list[tuple[Value, Index]]]:
        """The reductions of elements at these indices; those of a stage are to be written together."""
        start = len(self.plan.index) + sum(len(index) for _, index in self.phases)
        found = []
        for stage in self.reductions:
            wanted = []
            for v, own in stage:
                wanted += [(v, at[start : start + len(own)]) for at in indices]
                start += len(own)
            found.append(wanted)
        return found

    def _element(self, index: Index) -> None:
        rank = len(self.plan.index)
        index, left = index[:rank], index[rank:]

        def compute() -> list[Val]:
            at = left
            for v, own in self.phases:
                self.s.evaluator.value(v, at[: len(own)])
                at = at[len(own) :]
            return [self.s.evaluator.value(v, index) for _, v in self.group]

        values = self.s.evaluator.run(compute)
        with self.s.streaming_together():
            for (buffer, _), value in zip(self.group, values):
                self.s.store(buffer, index, value)
        for buffer, distance in self.fetched:
            self.s.fetch(buffer, buffer.flat(index) + distance)


def elements_of_line(s: Handler) -> int:
    """How many elements the vectors of a line of the cache have, or one vector that is longer."""
    return s.width * max(1, s.f.target.line * 8 // s.f.target.vector_bits)


def columns_at_a_time(n: Extent, width: int) -> int:
    """How many vectors of n columns are summed at a time, if these are several times as many; else 0."""
    return next((k for k in _COLUMNS if divides(width * k, n) and is_less(width * k, n)), 0)


def _in_sequence(pieces: Iterable[Callable[[], object]]) -> None:
    for write in pieces:
        write()


def _unrolled(plan: NestPlan) -> int:
    """How many vectors of a row are computed at a time, so that one's latency is hidden by another's instructions."""
    if plan.is_long:
        return 2 if prod(map(count, plan.order)) >= _MANY else 1
    return 4 if plan.work <= 8 else 2


def _is_short(plan: NestPlan, width: int) -> bool:
    """Whether the loops compute one short row after the other: reduced, and then written."""
    vector, order = plan.vector.var, plan.order
    if vector is None or plan.across is not None or plan.vector.unroll > 1:
        return False
    if isinstance(extent(vector), Dim) or count(vector) > _SHORT * width:
        return False
    return vector is order[-1] and len(order) > 1 and order[:-1] == plan.rows and extent(vector) == plan.terms
