"""Writes one loop nest as planned (`codegen/nest`): threads' shares, vectors and their remainders.

Where a transpose makes the lanes of a load lie far apart, another loop walks that memory contiguously. The two are
blocked, so that a square of elements is read by rows and turned in registers (`Access.square`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

from gluonjit.codegen.access import Buffer, Index
from gluonjit.codegen.handler import AHEAD, Handler
from gluonjit.codegen.index import Affine, Var, affine
from gluonjit.codegen.nest import Plan, extent
from gluonjit.codegen.values import Val
from gluonjit.ir.graph import Value
from gluonjit.ir.types import I64

_SMALL = 1 << 14
"""With fewer elements (times terms, in a reduction), one thread does all the work."""
_TASKS = 64
"""Enough iterations of the outer loops to be divided among threads."""

_SHORT = 4
"""The most vectors of a row that is unrolled, several rows at a time."""

Written = tuple[Buffer, Value]
"""An output: its buffer and its value."""


class NestWriter:
    """The loops that write a group of outputs of one shape."""

    def __init__(self, s: Handler, group: Sequence[Written], plan: Plan) -> None:
        self.s, self.f, self.group, self.plan = s, s.f, group, plan
        self.short = _is_short(plan, s.width)
        """Whether rows are so short that several are computed at a time, without loops."""
        self.together = 8 if plan.terms <= _SHORT // 2 * s.width else 4
        # The values that several phases of a short row share stay in registers.
        s.new_nest(frozenset() if self.short else plan.kept)
        self.phases = [] if self.short else plan.phases
        self.index = (*plan.index, *(i for _, index in self.phases for i in index))
        """The outputs' index, and the indices of the phases, which become those of an element together."""
        self.fetched = self._following_rows() if s.ahead == "rows" else []

    def _following_rows(self) -> list[tuple[Buffer, int]]:
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
                if distance and e.coefficient(vector) == 1:
                    found.append((buffer, distance * -(-AHEAD // (abs(distance) * v.dtype.itemsize))))
        return found

    def write(self) -> None:
        """Decides which loops the threads share."""
        f, plan = self.f, self.plan
        order, vector = plan.order, plan.vector.var
        if prod(map(extent, order)) * plan.terms < _SMALL:
            with f.if_(f.op("icmp eq i64 %thread, 0")):
                self._level(order, self.index, None)
            return
        # Of rows, only whole ones: each is computed once. The loops of vectors and squares are divided by themselves.
        special = [v for v in (plan.across, vector) if v is not None]
        outer = [v for v in order if v in plan.rows] if plan.rows else list(order)
        while outer and any(v in special for v in outer):
            outer.pop()
        count = 0
        while count < len(outer) and prod(map(extent, outer[:count])) < _TASKS:
            count += 1
        tasks = prod(map(extent, outer[:count]))
        divided = special[0] if special and (not plan.rows or special[0] in plan.rows) else None
        if divided is not None and tasks < min(extent(divided) // self.s.width, _TASKS):
            self._level(order, self.index, divided)
            return
        if not count:
            with f.if_(f.op("icmp eq i64 %thread, 0")):
                self._level(order, self.index, None)
            return
        begin, end = self._share(tasks)

        def task(left: Affine) -> None:
            values: dict[Var, Affine | int] = {}
            for v in reversed(outer[:count]):
                values[v] = left % extent(v)
                left = left // extent(v)
            self._level(order[count:], tuple(i.substitute(values) for i in self.index), None)

        self._each("task", begin, end, tasks, order[count:], task)

    def _each(
        self, name: str, begin: Any, end: Any, trips: int, rest: Sequence[Var], body: Callable[[Affine], None]
    ) -> None:
        """A loop over a part of `trips` iterations, around loops over `rest`; of short rows, several at a time."""
        f, n = self.f, self.together
        if self.short and trips >= n and all(v is self.plan.vector.var for v in rest):
            # Independent rows hide the latency of each other's sums.
            whole = f.add(begin, f.op(f"and i64 {f.sub(end, begin)}, {-n}"))
            with f.for_(begin, whole, n, hint=name) as loop:
                first = self._bound(name, trips - n + 1, loop.index)
                self.s.alternate(functools.partial(body, first + j) for j in range(n))
            begin = whole
        with f.for_(begin, end, hint=name) as loop:
            body(self._bound(name, trips, loop.index))

    def _share(self, tasks: int) -> tuple[str, str]:
        """This thread's part of `tasks`."""
        f = self.f
        begin = f.op(f"udiv i64 {f.mul('%thread', tasks)}, %nthreads")
        return begin, f.op(f"udiv i64 {f.mul(f.add('%thread', 1), tasks)}, %nthreads")

    def _by_the_last(self, divided: bool, write: Callable[[], None]) -> None:
        """The remainder of a loop; done by the last thread if the loop is divided."""
        f = self.f
        if not divided:
            write()
            return
        with f.if_(f.op(f"icmp eq i64 {f.add('%thread', 1)}, %nthreads")):
            write()

    def _bound(self, name: str, trips: int, ssa: str) -> Affine:
        """A variable for the counter of the innermost open loop."""
        var = Var(name, 0, trips - 1)
        self.s.bind(var, Val(ssa, I64, False, self.f.scope))
        return affine(var)

    def _level(self, order: Sequence[Var], index: Index, divided: Var | None) -> None:
        """The loops over `order`, outermost first; `divided`: the one that is divided among threads."""
        if not order:
            self._element(index)
            return
        var, rest = order[0], order[1:]

        def inside(value: Affine) -> None:
            self._level(rest, tuple(i.substitute({var: value}) for i in index), divided)

        if var is self.plan.vector.var:
            self._vectors(var, inside, divided is var)
        elif var is self.plan.across:
            self._squares(var, rest[0], index, divided is var)
        else:
            self._each(var.name, 0, extent(var), extent(var), rest, inside)

    def _vectors(self, var: Var, inside: Callable[[Affine], None], divided: bool) -> None:
        """A loop over blocks of vectors, then over single vectors, then a partial one."""
        f, s, n, width, plan = self.f, self.s, extent(var), self.s.width, self.plan
        repeats = plan.vector.unroll > 1  # patterns of lanes, once per block: each vector has its own
        unroll = plan.vector.unroll
        if not repeats and var is plan.order[-1] and plan.across is None:
            unroll = n // width if self.short else 4 if plan.work <= 8 else 2
        unroll = max(1, min(unroll, n // width))
        lane = affine(s.lane_number(width)) if n >= width else Affine(0)
        blocks = n // (width * unroll)
        # A square takes all registers.
        alternate = s.alternate if plan.across is None else _in_sequence
        if blocks == 1 and not divided:
            alternate(functools.partial(inside, lane + j * width) for j in range(unroll))
        elif blocks:
            begin, end = self._share(blocks) if divided else (0, blocks)
            with f.for_(begin, end) as loop:
                i = self._bound(var.name, blocks, loop.index) * (width * unroll) + lane
                alternate(functools.partial(inside, i + j * width) for j in range(unroll))
        done = blocks * unroll
        singles, partial = n // width - done, n % width

        def remainder() -> None:
            if repeats or singles == 1:
                for j in range(singles):
                    inside(lane + (done + j) * width)
            elif singles:
                with f.for_(0, singles) as loop:
                    inside(self._bound(var.name, singles, loop.index) * width + lane + done * width)
            if partial:
                inside(affine(s.lane_number(partial)) + n // width * width)

        if singles or partial:
            self._by_the_last(divided, remainder)

    def _squares(self, across: Var, along: Var, index: Index, divided: bool) -> None:
        """Blocks of as many iterations of `across` as a vector has lanes; then those left over, one by one."""
        f, s, width = self.f, self.s, self.s.width
        blocks, rest = divmod(extent(across), width)
        begin, end = self._share(blocks) if divided else (0, blocks)
        with f.for_(begin, end) as loop:
            block = self._bound("block", max(blocks, 2), loop.index)
            (var,) = block.leaves

            def turned(value: Affine) -> None:
                for j in range(width):
                    s.square = (var, j)
                    self._element(tuple(i.substitute({across: block * width + j, along: value}) for i in index))
                s.square = None

            self._vectors(along, turned, False)

        def remainder() -> None:
            with f.for_(0, rest) as loop:
                i = self._bound(across.name, rest, loop.index) + blocks * width
                self._level([along], tuple(k.substitute({across: i}) for k in index), None)

        if rest:
            self._by_the_last(divided, remainder)

    def _element(self, index: Index) -> None:
        rank = len(self.plan.index)
        index, left = index[:rank], index[rank:]

        def compute() -> list[Val]:
            at = left
            for v, own in self.phases:
                self.s.evaluator.value(v, at[: len(own)])
                at = at[len(own) :]
            return [self.s.evaluator.value(v, index) for _, v in self.group]

        for (buffer, _), value in zip(self.group, self.s.evaluator.run(compute)):
            self.s.store(buffer, index, value)
        for buffer, distance in self.fetched:
            self.s.fetch(buffer, buffer.flat(index) + distance)


def _in_sequence(pieces: Iterable[Callable[[], object]]) -> None:
    for write in pieces:
        write()


def _is_short(plan: Plan, width: int) -> bool:
    """Whether the loops compute one short row after the other: reduced, and then written."""
    vector, order = plan.vector.var, plan.order
    if vector is None or plan.across is not None or plan.vector.unroll > 1 or extent(vector) > _SHORT * width:
        return False
    return vector is order[-1] and len(order) > 1 and order[:-1] == plan.rows and extent(vector) == plan.terms
