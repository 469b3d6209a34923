"""Reductions inside a loop nest: `s.reduce` of the handler that emits code.

A reduction is placed in the innermost scope that its index depends on, so it is computed once per row however many
elements of the row use it. Where the values around it have lanes, it is a loop over vectors; else it is vectorised
itself, along whichever of its own axes is contiguous, into several accumulators that are combined at the end.

Sums of f32 are made of runs of at most 64 additions per accumulator, which are then added up in f64: the error does not
grow with the number of terms. The order of additions depends on shapes and target alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gluonjit.codegen.access import Access, Buffer, Index
from gluonjit.codegen.evaluate import Evaluator, trace
from gluonjit.codegen.index import Affine, Var, affine
from gluonjit.codegen.llvm import Function, Scope
from gluonjit.codegen.nest import Space, choose_vector, extent
from gluonjit.codegen.values import Val
from gluonjit.ir.graph import Value
from gluonjit.ir.primitives.reduction import identity
from gluonjit.ir.types import BOOL, F32, F64, I32, I64, DType

_UNROLLED = 16
"""Loops of so few iterations in all are written out."""
_RUN = 32
"""Additions of f32 in a row before the sum moves on to an f64, where there are more than twice as many."""

_SCRATCH = 1 << 16
"""Bytes of stack that a kernel may use for rows."""

State = list[Val]
"""An accumulator: one value; (best, where) of argmax, argmin; (best, largest bits) of max and min of floats, where the
best is chosen as if there were no NaN, and the bits, without their sign, tell whether there was one."""


@dataclass(eq=False)
class Row:
    """Elements of one value along the axes that a reduction runs over, for the row that is being worked on.

    `axes[k]`: which of the reduction's axes axis k of the value is; None: it is fixed in the row. `start`: the index of
    the row's first element. When the row itself is a vector of rows, `lane` is its lane number and the last axis.
    """

    buffer: Buffer
    axes: tuple[int | None, ...]
    lane: Var | None
    start: Index | None = None

    def place(self, index: Index) -> Index | None:
        """Where in the row the element at `index` of the value is; None when it is not there."""
        place: list[Affine] = [Affine(0)] * (len(self.buffer.shape) - (self.lane is not None))
        for i, first, axis in zip(index, self.start or (), self.axes):
            distance = i - first
            if axis is None:
                if distance != Affine(0):
                    return None
            elif distance.low < 0 or distance.high >= self.buffer.shape[axis]:
                return None
            else:
                place[axis] = distance
        return tuple(place)

    def address(self, place: Index) -> Index:
        return place if self.lane is None else (*place, affine(self.lane))


def _axes(index: Index, vars: Sequence[Affine]) -> tuple[int | None, ...] | None:
    """Which of `vars` each component of an index walks along, if each is walked along once, in steps of 1."""
    axes: list[int | None] = []
    for i in index:
        walked = [k for k, v in enumerate(vars) if v.leaves & i.leaves]
        if len(walked) > 1 or (walked and vars[walked[0]].leaves & (i - vars[walked[0]]).leaves):
            return None
        axes.append(walked[0] if walked else None)
    used = [k for k in axes if k is not None]
    wanted = [k for k, v in enumerate(vars) if v.leaves]
    return tuple(axes) if sorted(used) == wanted else None


@dataclass
class _Plan:
    """The loops of one reduction: `order`, outermost first, in terms of which the term's `index` is given."""

    order: list[Var]
    index: tuple[Affine, ...]
    vector: bool
    """Whether the last loop runs over vectors."""
    unroll: int
    """Accumulators; 0: no loop, the terms are written out."""
    kept: dict[Value, tuple[int | None, ...]]
    """Values to keep in rows, and which of the reduction's axes each of their axes is (see `Row`)."""


class Reductions(Access):
    """`kept` are values that several phases over the same rows need and that are expensive: the first reduction over
    a row that computes one of them puts it into scratch memory, where the later phases find it."""

    evaluator: Evaluator

    def __init__(self, f: Function, width: int) -> None:
        super().__init__(f, width)
        self.kept: frozenset[Value] = frozenset()
        self._plans: dict[tuple[Value, bool], _Plan] = {}
        self._rows: dict[Value, list[Row]] = {}
        self._filling: dict[Value, Row] = {}
        """Of the innermost reduction whose loops are being written."""
        self._term_index: Index = ()
        self._memory_left = _SCRATCH

    def reduce(self, op: str, extents: Sequence[int], term: Callable[[Index], Val], dtype: DType) -> Val:
        arg = op in ("argmax", "argmin")
        if 0 in extents:
            return self.constant(identity(op, dtype), dtype)
        value, index = self.evaluator.frames[-1]
        leaves = frozenset[Var]().union(*(i.leaves for i in index))
        scope = self.scope_of(leaves)
        lanes = self.varies(leaves)
        if self.mask is not None:
            lanes = lanes or self.mask.lanes
            scope = max((scope, self.mask.scope), key=lambda s: s.depth)
        plan = self._plans.get((value, lanes))
        if plan is None:
            plan = self._plans[value, lanes] = self._plan(value, index, lanes)
        with self.f.at(scope):
            outer = self._filling, self._term_index
            self._filling = {}
            lane = next((v for v in leaves if v in self.lane_numbers), None)
            if self.mask is None and lanes == (lane is not None):
                self._filling = self._new_rows(plan, extents, lane)
            result = _Emitter(self, op, dtype, plan, extents, term, lanes).run()
            for v, row in self._filling.items():
                if row.start is not None:
                    self._rows.setdefault(v, []).append(row)
            self._filling, self._term_index = outer
        return self.cast(result[1], I64) if arg else result[0]

    def new_nest(self, kept: frozenset[Value]) -> None:
        """Another loop nest begins, in which these values are kept."""
        self.kept = kept
        self._plans.clear()

    # ---- rows in scratch memory

    def _new_rows(self, plan: _Plan, extents: Sequence[int], lane: Var | None) -> dict[Value, Row]:
        """Scratch memory for the kept values that this reduction computes element by element."""
        rows = {}
        shape = tuple(extents) if lane is None else (*extents, self.width)
        for v, axes in plan.kept.items():
            pointer = self._scratch(v, math.prod(shape) * v.dtype.itemsize)
            if pointer is not None:
                rows[v] = Row(Buffer(pointer, v.dtype, shape, self.f.scope), axes, lane)
        return rows

    def _scratch(self, v: Value, size: int) -> str | None:
        """Memory for a row of `v`: that of a row that is no longer needed, or new; None when there is no more."""
        for row in self._rows.get(v, ()):
            if self._behind(row.buffer.scope) and math.prod(row.buffer.shape) * v.dtype.itemsize == size:
                self._rows[v].remove(row)
                return row.buffer.pointer
        if size > self._memory_left:
            return None
        self._memory_left -= size
        return self.f.alloca("i8", size, 64)

    def _behind(self, scope: Scope) -> bool:
        """Whether all code of `scope` runs before what is written now."""
        inner: Scope | None = scope
        while inner is not None and inner.closed:
            inner = inner.parent
        return inner is not None and inner is not scope and self._open(inner)

    def _open(self, scope: Scope) -> bool:
        """Whether code is now being written inside `scope`."""
        inner: Scope | None = self.f.scope
        while inner is not None and inner is not scope:
            inner = inner.parent
        return inner is not None

    def keep(self, v: Value, index: Index, value: Val) -> None:
        """Puts an element that has just been computed into its row, if this is the reduction that fills it."""
        row = self._filling.get(v)
        if row is not None and self.mask is None:
            row.start = tuple(i if axis is None else i - self._term_index[axis] for i, axis in zip(index, row.axes))
            self.store(row.buffer, row.address(self._term_index), value)

    def recall(self, v: Value, index: Index) -> Val | None:
        """The element from its row, if a reduction has filled one."""
        found = self._find_row(v, index)
        return None if found is None else self.load(found[0].buffer, found[0].address(found[1]))

    def _find_row(self, v: Value, index: Index) -> tuple[Row, Index] | None:
        """(a row that holds the element and can be read here, the element's place in it)."""
        for row in self._rows.get(v, ()):
            place = row.place(index) if self._open(row.buffer.scope) else None
            if place is not None:
                return row, place
        return None

    def _plan(self, value: Value, index: Index, lanes: bool) -> _Plan:
        traced = trace(self.evaluator.body, [(value, index)])
        mine = next(r for r in traced.reductions if r.value is value and not r.loops)
        kept: dict[Value, tuple[int | None, ...]] = {}
        for v, at, loops in traced.visits:
            axes = _axes(at, mine.vars) if v in self.kept and loops == (mine,) else None
            if axes is not None:
                kept.setdefault(v, axes)
        own = [v for k in mine.vars for v in k.leaves]
        if mine.trips <= _UNROLLED and lanes:
            return _Plan(own, mine.vars, False, 0, kept)
        accesses = [a for a in traced.accesses if a.loops and a.loops[0] is mine]
        space = Space([v for v in own if isinstance(v, Var)], accesses)
        space.split()
        space.merge()
        for a, e in zip(accesses, space.exprs):
            a.expr = e
        terms = tuple(k.substitute(space.values) for k in mine.vars)
        order = list(space.order)
        work = 1 + 0.2 * sum(1 for _, _, loops in traced.visits if loops[:1] == (mine,))
        unroll = 4 if work <= 4 else 2
        if lanes or not order:
            return _Plan(order, terms, False, unroll, kept)
        choice = choose_vector(order, accesses, work, self.width, mine)
        if choice.var is not None:
            order.remove(choice.var)
            order.append(choice.var)
        return _Plan(order, terms, choice.var is not None, max(choice.unroll, unroll), kept)


class _Emitter:
    """Writes one reduction."""

    def __init__(
        self,
        s: Reductions,
        op: str,
        dtype: DType,
        plan: _Plan,
        extents: Sequence[int],
        term: Callable[[Index], Val],
        lanes: bool,
    ) -> None:
        self.s, self.op, self.dtype, self.plan = s, op, dtype, plan
        self.extents, self.term = extents, term
        self.lanes = lanes or plan.vector
        self.arg = op in ("argmax", "argmin")
        self.ordered = op in ("max", "min") and dtype.is_float
        self.bits = I64 if dtype is F64 else I32
        self.where = I32 if math.prod(extents) < 2**31 else I64

    def run(self) -> State:
        plan = self.plan
        if plan.unroll == 0:
            return self._written_out()
        size = extent(plan.order[-1]) if plan.order else 1
        step = self.s.width if plan.vector else 1
        self.unroll = max(1, min(plan.unroll, size // step))
        blocks = size // (step * self.unroll)
        self.chunk_level, self.chunk = self._chunks([*map(extent, plan.order[:-1]), blocks])
        result = self._level(0, {}, self._states())
        if self.chunk_level is None:
            state = self._joined(result)
            return self._finished(self._across(state) if plan.vector else state)
        state = self._moved(result)[-1]
        return [self.s.cast((self._across(state) if plan.vector else state)[0], F32)]

    # ---- loops

    def _chunks(self, trips: list[int]) -> tuple[int | None, int]:
        """(level, iterations): the loop that is cut into runs, after each of which the sum moves to the f64 total."""
        if self.op != "sum" or self.dtype is not F32:
            return None, 0
        count = 1
        for level in reversed(range(len(trips))):
            if count * trips[level] > 2 * _RUN:
                return level, max(1, _RUN // count)
            count *= max(1, trips[level])
        return None, 0

    def _level(self, level: int, bound: dict[Var, Affine], states: list[State]) -> list[State]:
        """The loops from `level` inwards, after which the accumulators are the result."""
        if level >= len(self.plan.order) - 1:
            return self._innermost(bound, states)
        var = self.plan.order[level]

        def body(i: Affine, states: list[State]) -> list[State]:
            return self._level(level + 1, {**bound, var: i}, states)

        return self._counted(level, extent(var), states, body)

    def _counted(
        self, level: int, trips: int, states: list[State], body: Callable[[Affine, list[State]], list[State]]
    ) -> list[State]:
        """A loop whose iterations go through `body`; cut into runs if it is the one for that."""
        if level != self.chunk_level:
            return self._loop(0, trips, trips, states, body)
        f = self.s.f
        with f.for_(0, trips, self.chunk, carried=self._carried(states)) as run:
            inside = self._bound(states, run.carried, run.scope)
            end = f.add(run.index, self.chunk)
            inside = self._loop(run.index, f.min(end, trips) if trips % self.chunk else end, trips, inside, body)
            run.next(*(self._spread(v).ssa for state in self._moved(inside) for v in state))
        return self._bound(states, run.results, f.scope)

    def _loop(
        self,
        start: Any,
        stop: Any,
        trips: int,
        states: list[State],
        body: Callable[[Affine, list[State]], list[State]],
    ) -> list[State]:
        f = self.s.f
        if trips == 1:
            return body(Affine(0), states)
        with f.for_(start, stop, carried=self._carried(states), hint="k") as loop:
            var = Var("k", 0, trips - 1)
            self.s.bind(var, Val(loop.index, I64, False, loop.scope))
            states = body(affine(var), self._bound(states, loop.carried, loop.scope))
            loop.next(*(self._spread(v).ssa for state in states for v in state))
        return self._bound(states, loop.results, f.scope)

    def _innermost(self, bound: dict[Var, Affine], states: list[State]) -> list[State]:
        """The last variable: whole blocks of vectors (or elements), then the vectors left over, then a partial one."""
        s, plan = self.s, self.plan
        if not plan.order:
            return [self._more(bound, states[0]), *states[1:]]
        var = plan.order[-1]
        size, step = extent(var), s.width if plan.vector else 1
        lane = affine(s.lane_number(s.width)) if plan.vector and size >= step else Affine(0)
        block = step * self.unroll
        blocks = size // block

        def body(i: Affine, states: list[State]) -> list[State]:
            parts = states[: self.unroll]
            parts = [self._more({**bound, var: i * block + j * step + lane}, state) for j, state in enumerate(parts)]
            return parts + states[self.unroll :]

        if blocks:
            states = self._counted(len(plan.order) - 1, blocks, states, body)
        for j, start in enumerate(range(blocks * block, size - step + 1, step)):
            states[j] = self._more({**bound, var: lane + start}, states[j])
        if size % step:
            rest = affine(s.lane_number(size % step)) + size // step * step
            j = size // step % self.unroll
            states[j] = self._more({**bound, var: rest}, states[j], size % step)
        return states

    def _written_out(self) -> State:
        state: State | None = None
        for flat in range(math.prod(self.extents)):
            index = []
            for n in reversed(self.extents):
                index.append(Affine(flat % n))
                flat //= n
            state = self._combined(state, self._term(tuple(reversed(index))))
        assert state is not None
        return self._finished(state)

    # ---- accumulators: `unroll` of them, and the f64 total after them if sums are cut into runs

    def _states(self) -> list[State]:
        states = [self._start() for _ in range(self.unroll)]
        return states if self.chunk_level is None else [*states, [self._identity(F64)]]

    def _moved(self, states: list[State]) -> list[State]:
        """The accumulators' contents moved into the total."""
        *parts, (total,) = states
        (sum,) = self._joined(parts)
        return [*(self._start() for _ in parts), [self._added(total, self.s.cast(sum, F64))]]

    def _more(self, values: dict[Var, Affine], state: State, active: int | None = None) -> State:
        """`state` and one more term; only the first `active` lanes of it, if given."""
        new = self._term(tuple(k.substitute(values) for k in self.plan.index))
        if active is not None:
            mask = self.s.lane_constant([True] * active, BOOL)
            new = [self.s.select(mask, v, start) for v, start in zip(new, self._start())]
        return self._combined(state, new)

    def _term(self, index: Index) -> State:
        self.s._term_index = index
        value = self.s.evaluator.run(lambda: self.term(index))
        if self.ordered:
            magnitude = self.s.constant(2 ** (self.bits.bits - 1) - 1, self.bits)
            return [value, self.s._both(self.s.bitcast(value, self.bits), magnitude)]
        if not self.arg:
            return [value]
        at: Any = Affine(0)
        for k, n in zip(index, self.extents):
            at = at * n + k
        return [value, self.s.index_value(at, self.where)]

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
            wins = "ogt" if self.op == "max" else "olt"
            first = s.emit(f"fcmp {wins} {{t}} {{0}}, {{1}}", BOOL, a[0], b[0])
            return [s.select(first, a[0], b[0]), s.intrinsic("llvm.umax", self.bits, a[1], b[1])]
        if not self.arg:
            return [self._two(a[0], b[0])]
        better = (s.gt if self.op == "argmax" else s.lt)(b[0], a[0])
        equal = s.eq(a[0], b[0])
        if self.dtype.is_float:
            nan_a, nan_b = s.isnan(a[0]), s.isnan(b[0])
            better = s._or(better, s._both(nan_b, s._not(nan_a)))
            equal = s._or(equal, s._both(nan_a, nan_b))
        takes = s._or(better, s._both(equal, s.lt(b[1], a[1])))
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
            return self._added(a, b)
        if self.op == "prod":
            return s.mul(a, b)
        if self.op in ("any", "all"):
            return s._or(a, b) if self.op == "any" else s._both(a, b)
        return s.maximum(a, b) if self.op == "max" else s.minimum(a, b)

    def _added(self, a: Val, b: Val) -> Val:
        if a.dtype in (F32, F64):
            if a.const == 0.0:
                return b
            # A product that is added may stay unrounded.
            return self.s.emit("fadd contract {t} {0}, {1}", a.dtype, a, b)
        return self.s.add(a, b)

    def _joined(self, states: list[State]) -> State:
        """All accumulators in one, pairwise."""
        while len(states) > 1:
            pairs = zip(states[::2], states[1::2])
            states = [self._combined(a, b) for a, b in pairs] + states[len(states) // 2 * 2 :]
        return states[0]

    def _across(self, state: State) -> State:
        """All lanes in one, by halves."""
        s = self.s
        state = [s.splat(v) for v in state]
        half = s.width // 2
        while half:
            picks = ", ".join(f"i32 {(k + half) % s.width}" for k in range(s.width))
            moved = [
                s.emit(f"shufflevector {{t}} {{0}}, {{t}} poison, <{s.width} x i32> <{picks}>", v.dtype, v)
                for v in state
            ]
            state = self._combined(state, moved)
            half //= 2
        return [
            Val(s.f.pure(f"extractelement {s.type(v.dtype, True)} {v.ssa}, i64 0", v.scope), v.dtype, False, v.scope)
            for v in state
        ]

    # ---- what loops carry

    def _spread(self, v: Val) -> Val:
        return self.s.splat(v) if self.lanes else v

    def _carried(self, states: list[Any]) -> list[tuple[str, str]]:
        return [(self.s.type(v.dtype, self.lanes), self._spread(v).ssa) for state in states for v in state]

    def _bound(self, states: list[Any], names: Sequence[str], scope: Any) -> list[Any]:
        """The accumulators, as the values called `names` in `scope`."""
        left = iter(names)
        return [[Val(next(left), v.dtype, self.lanes, scope) for v in state] for state in states]
