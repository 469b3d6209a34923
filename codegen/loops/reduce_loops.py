"""Reductions inside a loop nest: `s.reduce` of the handler that emits code.

A reduction is placed in the innermost scope that its index depends on, so it is computed once per row however many
elements of the row use it. Where the values around it have lanes, it is a loop over vectors; else it is vectorised
itself, along whichever of its own axes is contiguous, into several accumulators that are combined at the end.

Sums of f32 are made of runs of at most 64 additions per accumulator, which are then added up in f64: the error does not
grow with the number of terms. The order of additions depends on shapes and target alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from gluonjit.codegen.loops.evaluate import Evaluator, Index
from gluonjit.codegen.loops.footprint import trace
from gluonjit.codegen.loops.index import Affine, Var, affine, counter, divides
from gluonjit.codegen.loops.nest import Space, choose_vector, extent
from gluonjit.codegen.loops.scratch_rows import Axes, Rows, walked_axes
from gluonjit.codegen.loops.sums_together import TERMS, RunsOfSums, sums_together
from gluonjit.codegen.math.values import Val
from gluonjit.codegen.text.llvm import Function
from gluonjit.ir.dims import Dim, Extent, hint, hinted, is_at_most, is_less
from gluonjit.ir.graph import Value
from gluonjit.ir.kernels.element_plans import RUN
from gluonjit.ir.primitives.reduction import identity
from gluonjit.ir.types import BOOL, F32, F64, I32, I64, DType

UNROLLED = 16
"""The most iterations, in all loops together, that are unrolled completely."""
_UNROLLED_INSTRUCTIONS = 64
"""The most instructions, as primitives count them, of all those iterations: an exponential of each of ten classes would
take LLVM a tenth of a second."""
_BLOCKS = 2
"""The most iterations, of several vectors each, that are unrolled."""

State = list[Val]
"""An accumulator: one value; (best, where) of argmax, argmin; (best, largest bits) of max and min of floats, where the
best is chosen as if there were no NaN, and the bits, without their sign, tell whether there was one."""


@dataclass
class _Plan:
    """The loops of one reduction: `order`, outermost first, in terms of which the term's `index` is given."""

    order: list[Var]
    index: tuple[Affine, ...]
    vector: bool
    """Whether the last loop runs over vectors."""
    unroll: int
    """Number of accumulators; 0: no loop, the terms are unrolled."""
    kept: dict[Value, Axes]
    """Values to put into rows, and how they lie along the reduction."""
    rising: bool
    """Whether each accumulator takes its terms in row-major order."""

    @property
    def long(self) -> Extent:
        """How many terms it has, if it is a single loop over many, none of which is kept; else 0. An open number is
        many if there are whole blocks of terms."""
        if len(self.order) != 1 or self.vector or not self.unroll or self.kept:
            return 0
        terms = extent(self.order[0])
        return terms if (divides(TERMS, terms) if isinstance(terms, Dim) else terms > 2 * RUN) else 0


class _Later(Exception):
    """Unwinds from a reduction that has been put on a list instead of being written."""


class Reductions(Rows):
    evaluator: Evaluator
    strides: Mapping[Value, Sequence[Extent]]
    """The strides of the inputs that are not row-major."""

    def __init__(self, f: Function, width: int) -> None:
        super().__init__(f, width)
        self._plans: dict[tuple[Value, bool], _Plan] = {}
        self._asked: dict[tuple[Value, Index], _Emitter] | None = None
        """While it is found what reductions are asked for: those that can be written together."""
        self._ready: dict[tuple[Value, Index], Val] = {}
        """Reductions that have been written ahead."""
        self.read_again: Mapping[Value, tuple[Extent, ...]] = {}
        """Reductions during which later rows are prefetched (`element_plans.read_again`)."""
        self.row_read_again: tuple[Extent, ...] = ()
        """While one of them is written: the shape of a row."""

    def reduce(self, op: str, extents: Sequence[Extent], term: Callable[[Index], Val], dtype: DType) -> Val:
        arg = op in ("argmax", "argmin")
        if 0 in extents:
            return self.constant(identity(op, dtype), dtype)
        value, index = self.evaluator.frames[-1]
        if self.mask is None and (value, index) in self._ready:
            return self._ready[value, index]
        leaves = frozenset[Var]().union(*(i.leaves for i in index))
        scope = self.scope_of(leaves)
        lanes = self.varies(leaves)
        if self.mask is not None:
            lanes = lanes or self.mask.lanes
            scope = max((scope, self.mask.scope), key=lambda s: s.depth)
        plan = self._plans.get((value, lanes))
        if plan is None:
            plan = self._plans[value, lanes] = self._plan(value, index, lanes)
        if self._asked is not None:
            if op == "sum" and dtype is F32 and lanes and self.mask is None and self.tail is None and plan.long != 0:
                self._asked[value, index] = _Emitter(self, op, dtype, plan, extents, term, lanes)
            raise _Later
        with self.f.at(scope):
            outer = self._filling, self._term_index, self.tail, self.row_read_again
            self._filling, self.row_read_again = {}, self.read_again.get(value, ())
            if not lanes:
                self.tail = None
            lane = next((v for v in leaves if v in self.lane_numbers), None)
            if self.mask is None and lanes == (lane is not None):
                self._filling = self._new_rows(plan.kept, extents, lane)
            result = _Emitter(self, op, dtype, plan, extents, term, lanes).run()
            for v, row in self._filling.items():
                if row.start is not None:
                    self._rows.setdefault(v, []).append(row)
            self._filling, self._term_index, self.tail, self.row_read_again = outer
        return self.cast(result[1], I64) if arg else result[0]

    def write_ahead(self, wanted: Sequence[tuple[Value, Index]]) -> None:
        """Writes long sums of several vectors, which do not depend on each other, in one loop over their terms. They
        are `_ready` until `forget_ahead`."""
        asked = self._long_sums(wanted)
        for terms in dict.fromkeys(e.plan.long for e in asked.values()):
            group = {key: e for key, e in asked.items() if e.plan.long == terms}
            if len(group) < 2:
                continue
            scope = self.scope_of(v for _, index in group for i in index for v in i.leaves)
            with self.f.at(scope):
                outer = self._filling, self._term_index
                self._filling = {}
                self._ready.update(zip(group, sums_together(self, terms, list(group.values())), strict=True))
                self._filling, self._term_index = outer

    def _long_sums(self, wanted: Sequence[tuple[Value, Index]]) -> dict[tuple[Value, Index], _Emitter]:
        """Those of the wanted reductions that are long sums of a vector, or what these need."""
        asked = self._asked = {}
        try:
            for value, index in wanted:
                with suppress(_Later):
                    self.evaluator.run(partial(self.evaluator.value, value, index))
        finally:
            self._asked = None
        return asked

    def runs_of_sums(self, wanted: Sequence[tuple[Value, Index]], rows: int) -> RunsOfSums | None:
        """The wanted reductions, in runs of so many terms, if they are long sums of vectors over the same terms."""
        asked = self._long_sums(wanted)
        terms = {e.plan.long for e in asked.values()}
        if len(terms) != 1 or asked.keys() != set(wanted):
            return None
        return RunsOfSums(self, terms.pop(), [asked[key] for key in wanted], rows)

    def set_ready(self, wanted: Sequence[tuple[Value, Index]], results: Sequence[Val]) -> None:
        """Takes these reductions as written, until `forget_ahead`."""
        self._ready.update(zip(wanted, results, strict=True))

    def forget_ahead(self) -> None:
        self._ready.clear()

    def new_nest(self, kept: frozenset[Value]) -> None:
        """Starts another loop nest, in which these values are kept."""
        self.kept = kept
        self._plans.clear()

    def _plan(self, value: Value, index: Index, lanes: bool) -> _Plan:
        traced = trace(self.evaluator.body, [(value, index)], self.strides)
        mine = next(r for r in traced.reductions if r.value is value and not r.loops)
        kept: dict[Value, Axes] = {}
        for v, at, loops in traced.visits:
            axes = walked_axes(at, mine.vars) if v in self.kept and loops == (mine,) else None
            if axes is not None:
                kept.setdefault(v, axes)
        own = [v for k in mine.vars for v in k.leaves]
        inside = [v for v, _, loops in traced.visits if loops[:1] == (mine,)]
        producers = (self.evaluator.body.producers.get(v) for v in inside)
        each = sum(op.definition.instructions for op in producers if op is not None)
        few = is_at_most(mine.trips, UNROLLED)
        if lanes and few and is_at_most(mine.trips, int(_UNROLLED_INSTRUCTIONS // max(each, 1))):
            return _Plan(own, mine.vars, False, 0, kept, True)
        accesses = [a for a in traced.references if a.loops and a.loops[0] is mine]
        space = Space([v for v in own if isinstance(v, Var)], accesses)
        space.split()
        space.merge()
        for a, e in zip(accesses, space.exprs):
            a.expr = e
        terms = tuple(k.substitute(space.values) for k in mine.vars)
        order = list(space.order)
        work = 1 + 0.2 * len(inside)
        unroll = 4 if work <= 4 and not (lanes and few) else 2
        if lanes or not order:
            return _Plan(order, terms, False, unroll, kept, True)
        choice = choose_vector(order, accesses, work, self.width, mine)
        rising = choice.var in (None, order[-1])
        if choice.var is not None:
            order.remove(choice.var)
            order.append(choice.var)
        return _Plan(order, terms, choice.var is not None, max(choice.unroll, unroll), kept, rising)


class _Emitter:
    """Writes one reduction."""

    def __init__(
        self,
        s: Reductions,
        op: str,
        dtype: DType,
        plan: _Plan,
        extents: Sequence[Extent],
        term: Callable[[Index], Val],
        lanes: bool,
    ) -> None:
        self.s, self.op, self.dtype, self.plan = s, op, dtype, plan
        self.extents, self.term = extents, term
        self.lanes = lanes or plan.vector
        self.arg = op in ("argmax", "argmin")
        self.ordered = op in ("max", "min") and dtype.is_float
        self.bits = I64 if dtype is F64 else I32
        self.where = I32 if is_less(math.prod(extents), 2**31) else I64

    def run(self) -> State:
        plan = self.plan
        if plan.unroll == 0:
            return self._written_out()
        size = extent(plan.order[-1]) if plan.order else 1
        step = self.s.width if plan.vector else 1
        self.unroll = plan.unroll if isinstance(size, Dim) else max(1, min(plan.unroll, size // step))
        blocks = size if isinstance(size, Dim) else size // (step * self.unroll)
        self.chunk_level, self.chunk = self._chunks([*map(extent, plan.order[:-1]), blocks])
        self.is_long: str | None = None
        result = self._level(0, {}, self._states())
        if self.is_long is not None:
            return self._total(result, self.is_long)
        if self.chunk_level is None:
            state = self._joined(result)
            return self._finished(self._across(state) if plan.vector else state)
        state = self._moved(result)[-1]
        return [self.s.cast((self._across(state) if plan.vector else state)[0], F32)]

    # ---- loops

    def _chunks(self, trips: list[Extent]) -> tuple[int | None, int]:
        """(level, iterations): the loop that is cut into runs, after each of which the sum moves to the f64 total. A
        loop of open length is, as it may be long."""
        if self.op != "sum" or self.dtype is not F32:
            return None, 0
        count = 1
        for level in reversed(range(len(trips))):
            n = trips[level]
            if isinstance(n, Dim) or count * n > 2 * RUN:
                return level, max(1, RUN // count)
            count *= max(1, n)
        return None, 0

    def _level(self, level: int, bound: dict[Var, Affine], states: list[State]) -> list[State]:
        """The loops from `level` inwards, after which the accumulators are the result."""
        if level >= len(self.plan.order) - 1:
            return self._innermost(bound, states)
        var = self.plan.order[level]

        def body(i: Affine, states: list[State]) -> list[State]:
            return self._level(level + 1, {**bound, var: i}, states)

        n = extent(var)
        return self._counted(level, n, n - 1, states, body)

    def _counted(
        self,
        level: int,
        trips: Any,
        last: Extent,
        states: list[State],
        body: Callable[[Affine, list[State]], list[State]],
    ) -> list[State]:
        """A loop over `body`, divided into runs if it is the one to be divided; `last` bounds the number of the last of
        its `trips`."""
        if level != self.chunk_level:
            return self._loop(0, trips, last, states, body)
        s, f = self.s, self.s.f
        if level == 0 and self.plan.vector and not isinstance(trips, int):
            self.is_long = f.op(f"icmp sgt i64 {f.extent(trips)}, {self.chunk}")
        with f.for_(0, trips, self.chunk, carried=self._carried(states)) as run:
            inside = self._bound(states, run.carried, run.scope)
            end = f.add(run.index, self.chunk)
            whole = isinstance(trips, int) and trips % self.chunk == 0
            inside = self._loop(run.index, end if whole else f.min(end, trips), last, inside, body)
            moved = self._moved(inside)
            if self.is_long is not None:
                more = Val(f.op(f"icmp slt i64 {end}, {f.extent(trips)}"), BOOL, False, f.scope)
                moved = [[s.select(more, a, b) for a, b in zip(*pair)] for pair in zip(moved, inside)]
            run.next(*(self._spread(v).ssa for state in moved for v in state))
        return self._bound(states, run.results, f.scope)

    def _total(self, states: list[State], is_long: str) -> State:
        """The sum of an open number of terms. The last run has not moved to the total, so that a short row, which is
        a single run, needs none."""
        f = self.s.f

        def here() -> list[State]:
            return [[Val(v.ssa, v.dtype, v.lanes, f.scope) for v in state] for state in states]

        def long() -> str:
            return self.s.cast(self._across(self._moved(here())[-1])[0], F32).ssa

        def short() -> str:
            return self._across(self._joined(here()[:-1]))[0].ssa

        return [Val(f.either(is_long, "float", long, short), F32, False, f.scope)]

    def _loop(
        self,
        start: Any,
        stop: Any,
        last: Extent,
        states: list[State],
        body: Callable[[Affine, list[State]], list[State]],
    ) -> list[State]:
        f = self.s.f
        if isinstance(last, int) and last < _BLOCKS and start == 0:
            for k in range(last + 1):
                states = body(Affine(k), states)
            return states
        with f.for_(start, stop, carried=self._carried(states), hint="k") as loop:
            var = Var("k", 0, last)
            self.s.bind(var, Val(loop.index, I64, False, loop.scope))
            states = body(affine(var), self._bound(states, loop.carried, loop.scope))
            loop.next(*(self._spread(v).ssa for state in states for v in state))
        return self._bound(states, loop.results, f.scope)

    def _innermost(self, bound: dict[Var, Affine], states: list[State]) -> list[State]:
        """The last variable: whole blocks of vectors (or elements), then the vectors left over, then a partial one."""
        s, plan = self.s, self.plan
        if not plan.order:
            return [self.more(bound, states[0]), *states[1:]]
        var = plan.order[-1]
        n, step = extent(var), s.width if plan.vector else 1
        size = hint(n)
        lane = affine(s.lane_number(s.width)) if plan.vector and (isinstance(n, Dim) or size >= step) else Affine(0)
        block = step * self.unroll
        blocks = size // block

        def body(i: Affine, states: list[State]) -> list[State]:
            parts = list(states)

            def more(j: int) -> None:
                parts[j] = self.more({**bound, var: i * block + j * step + lane}, states[j])

            s.alternate(partial(more, j) for j in range(self.unroll))
            return parts

        if isinstance(n, Dim):
            last = counter("k", n, block).high
            states = self._counted(len(plan.order) - 1, s.whole(n, block), last, states, body)
            if not divides(block, n):
                states[0] = self._remainder(bound, var, s.whole(n, block), block, states[0])
            return states
        if blocks:
            states = self._counted(len(plan.order) - 1, blocks, blocks - 1, states, body)
        for j, start in enumerate(range(blocks * block, size - step + 1, step)):
            states[j] = self.more({**bound, var: lane + start}, states[j])
        if size % step:
            rest = affine(s.lane_number(size % step)) + size // step * step
            j = size // step % self.unroll
            active = s.lane_constant([True] * (size % step), BOOL)
            states[j] = self.more({**bound, var: rest}, states[j], active)
        return states

    def _remainder(self, bound: dict[Var, Affine], var: Var, whole: Any, block: int, state: State) -> State:
        """`state` with the terms that `whole` blocks of an open loop have left, a vector or an element at a time."""
        s, f, n = self.s, self.s.f, extent(var)
        step = s.width if self.plan.vector else 1
        with f.for_(f.mul(whole, block), n, step, carried=self._carried([state]), hint="k") as loop:
            first = Var("k", 0, n - 1)
            s.bind(first, Val(loop.index, I64, False, loop.scope))
            (inside,) = self._bound([state], loop.carried, loop.scope)
            if self.plan.vector:
                with s.last_lanes(n, affine(first), f.sub(n, loop.index)) as i:
                    inside = self.more({**bound, var: i}, inside, s.tail)
            else:
                inside = self.more({**bound, var: affine(first)}, inside)
            loop.next(*(self._spread(v).ssa for v in inside))
        return self._bound([state], loop.results, f.scope)[0]

    def _written_out(self) -> State:
        terms = []
        extents = hinted(self.extents)
        for flat in range(math.prod(extents)):
            index = []
            for n in reversed(extents):
                index.append(Affine(flat % n))
                flat //= n
            terms.append(self._term(tuple(reversed(index))))
        if self.ordered:
            return [self._best([value for value, _ in terms])]
        state = None
        for term in terms:
            state = self._combined(state, term)
        assert state is not None
        return state

    def _best(self, values: list[Val]) -> Val:
        """The maximum, or minimum, of a few values; NaN if one of them is: a single comparison tests two."""
        s, best = self.s, values[0]
        for v in values[1:]:
            best = self._better(v, best)
        numbers = None
        for a, b in zip(values[::2], [*values[1::2], values[-1]]):
            both = s.emit("fcmp ord {t} {0}, {1}", BOOL, a, b)
            numbers = both if numbers is None else s.both(numbers, both)
        assert numbers is not None
        return s.select(numbers, best, s.constant(math.nan, self.dtype))

    def _better(self, a: Val, b: Val) -> Val:
        """The larger or the smaller of two numbers, depending on the operator."""
        wins = "ogt" if self.op in ("max", "argmax") else "olt"
        return self.s.select(self.s.emit(f"fcmp {wins} {{t}} {{0}}, {{1}}", BOOL, a, b), a, b)

    # ---- accumulators: `unroll` of them, and the f64 total after them if sums are cut into runs

    def _states(self) -> list[State]:
        if self.arg and self.plan.rising:
            return [self._first(j) for j in range(self.unroll)]
        states = [self._start() for _ in range(self.unroll)]
        return states if self.chunk_level is None else [*states, [self._identity(F64)]]

    def _moved(self, states: list[State]) -> list[State]:
        """Adds the accumulators to the total and clears them."""
        *parts, (total,) = states
        (sum,) = self._joined(parts)
        return [*(self._start() for _ in parts), [self.added(total, self.s.cast(sum, F64))]]

    def _first(self, j: int) -> State:
        """What accumulator j of argmax or argmin begins with: the worst value, at its first term. So one
        strict comparison is enough: a term that is equal to the best one so far is never taken."""
        plan, step = self.plan, self.s.width if self.plan.vector else 1
        values = dict.fromkeys(plan.order, Affine(0))
        if plan.order:
            lane = affine(self.s.lane_number(self.s.width)) if plan.vector else Affine(0)
            values[plan.order[-1]] = lane + j * step
        where = self._flat(tuple(k.substitute(values) for k in plan.index))
        return [self._start()[0], self.s.index_value(where, self.where)]

    def _flat(self, index: Index) -> Affine:
        at = Affine(0)
        for k, n in zip(index, self.extents):
            at = at * n + k
        return at

    def more(self, values: dict[Var, Affine], state: State, active: Val | None = None) -> State:
        """`state` with one more term, or with the `active` lanes of it."""
        new = self._term(tuple(k.substitute(values) for k in self.plan.index))
        if active is not None:
            new = [self.s.select(active, v, start) for v, start in zip(new, self._start())]
        return self._followed(state, new) if self.arg and self.plan.rising else self._combined(state, new)

    def _followed(self, a: State, b: State) -> State:
        """The better of two argmax or argmin states; a, which comes first, if they are equal."""
        s = self.s
        takes = (s.gt if self.op == "argmax" else s.lt)(b[0], a[0])
        if self.dtype.is_float:
            # NaN is better than any number: b is, or b is NaN, and a is not.
            takes = s.emit(f"fcmp {'ugt' if self.op == 'argmax' else 'ult'} {{t}} {{0}}, {{1}}", BOOL, b[0], a[0])
            takes = s.both(takes, s.emit("fcmp ord {t} {0}, {0}", BOOL, a[0]))
        return [s.select(takes, x, y) for x, y in zip(b, a)]

    def _term(self, index: Index) -> State:
        self.s._term_index = index
        value = self.s.evaluator.run(lambda: self.term(index))
        if self.ordered:
            magnitude = self.s.constant(2 ** (self.bits.bits - 1) - 1, self.bits)
            return [value, self.s.both(self.s.bitcast(value, self.bits), magnitude)]
        if not self.arg:
            return [value]
        return [value, self.s.index_value(self._flat(index), self.where)]

    def _identity(self, dtype: DType) -> Val:
        return self.s.constant(identity(self.op, dtype), dtype)

    def _start(self) -> State:
        if self.ordered:
            return [self._identity(self.dtype), self.s.constant(0, self.bits)]
        if not self.arg:
            return [self._identity(self.dtype)]
        # Any term is better than this one, as its index is smaller than no other's.
        name = "max" if self.op == "argmax" else "min"
        worst = self.s.constant(identity(name, self.dtype), self.dtype)
        return [worst, self.s.constant(2 ** (self.where.bits - 1) - 1, self.where)]

    def _combined(self, a: State | None, b: State) -> State:
        if a is None:
            return b
        s = self.s
        if self.ordered:
            return [self._better(a[0], b[0]), s.intrinsic("llvm.umax", self.bits, a[1], b[1])]
        if not self.arg:
            return [self._two(a[0], b[0])]
        better = (s.gt if self.op == "argmax" else s.lt)(b[0], a[0])
        equal = s.eq(a[0], b[0])
        if self.dtype.is_float:
            nan_a, nan_b = s.isnan(a[0]), s.isnan(b[0])
            better = s.either(better, s.both(nan_b, s.inverse(nan_a)))
            equal = s.either(equal, s.both(nan_a, nan_b))
        takes = s.either(better, s.both(equal, s.lt(b[1], a[1])))
        return [s.select(takes, x, y) for x, y in zip(b, a)]

    def _finished(self, state: State) -> State:
        if not self.ordered:
            return state
        s = self.s
        infinity = s.constant(0x7FF0000000000000 if self.bits is I64 else 0x7F800000, self.bits)
        nan = s.constant(math.nan, self.dtype)
        return [s.select(s.gt(state[1], infinity), nan, state[0])]

    def _two(self, a: Val, b: Val) -> Val:
        s = self.s
        if self.op == "sum":
            return self.added(a, b)
        if self.op == "prod":
            return s.mul(a, b)
        if self.op in ("any", "all"):
            return s.either(a, b) if self.op == "any" else s.both(a, b)
        return s.maximum(a, b) if self.op == "max" else s.minimum(a, b)

    def added(self, a: Val, b: Val) -> Val:
        if a.dtype in (F32, F64):
            if a.const == 0.0:
                return b
            # A product that is added stays unrounded. No other code fuses, and LLVM is not left to choose.
            if a.factors is not None:
                return self.s.fma(*a.factors, b)
            if b.factors is not None:
                return self.s.fma(*b.factors, a)
        return self.s.add(a, b)

    def _joined(self, states: list[State]) -> State:
        """Combines all accumulators into one, pairwise."""
        while len(states) > 1:
            pairs = zip(states[::2], states[1::2])
            states = [self._combined(a, b) for a, b in pairs] + states[len(states) // 2 * 2 :]
        return states[0]

    def _across(self, state: State) -> State:
        """Combines all lanes into one, by halves."""
        s = self.s
        state = [s.splat(v) for v in state]
        if not self.arg:
            return [self._lane(v) for v in self._halved(state, self._combined)]
        # First the best value of all lanes, then the least index at which it is found.
        value, where = state
        better = s.maximum if self.op == "argmax" else s.minimum
        if self.dtype.is_float:
            better = self._better
        (best,) = self._halved([value], lambda a, b: [better(a[0], b[0])])
        found = s.eq(value, best)
        if self.dtype.is_float:
            nan = s.isnan(value)
            found = s.select(Val(s.any(nan), BOOL, False, nan.scope), nan, found)
            best = s.select(Val(s.any(nan), BOOL, False, nan.scope), s.constant(math.nan, self.dtype), best)
        candidates = s.select(found, where, s.constant(2 ** (self.where.bits - 1) - 1, self.where))
        (least,) = self._halved([candidates], lambda a, b: [s.minimum(a[0], b[0])])
        return [self._lane(best), self._lane(least)]

    def _halved(self, state: State, combined: Callable[[State, State], State]) -> State:
        """The combination of all lanes, in every lane; by halves."""
        s = self.s
        half = s.width // 2
        while half:
            picks = ", ".join(f"i32 {k ^ half}" for k in range(s.width))
            moved = [
                s.emit(f"shufflevector {{t}} {{0}}, {{t}} poison, <{s.width} x i32> <{picks}>", v.dtype, v)
                for v in state
            ]
            state = combined(state, moved)
            half //= 2
        return state

    def _lane(self, v: Val) -> Val:
        """The first lane of a vector."""
        v = self.s.splat(v)
        text = f"extractelement {self.s.type(v.dtype, True)} {v.ssa}, i64 0"
        return Val(self.s.f.pure(text, v.scope), v.dtype, False, v.scope)

    # ---- what loops carry

    def _spread(self, v: Val) -> Val:
        return self.s.splat(v) if self.lanes else v

    def _carried(self, states: list[Any]) -> list[tuple[str, str]]:
        return [(self.s.type(v.dtype, self.lanes), self._spread(v).ssa) for state in states for v in state]

    def _bound(self, states: list[Any], names: Sequence[str], scope: Any) -> list[Any]:
        """The accumulators, as the values called `names` in `scope`."""
        left = iter(names)
        return [[Val(next(left), v.dtype, self.lanes, scope) for v in state] for state in states]
