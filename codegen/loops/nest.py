"""The shape of a loop nest: which variables it runs over, in which order, and along which one it is vectorised.

Given is what the code inside will access (`evaluate.trace`). Variables are split where a reshape divides them
(`i // n` with a whole number of n's), so that each part appears by itself, and then merged again where every access
walks through two neighbours as if they were one: what is contiguous becomes one long loop. The vector runs along the
variable that makes the references cheapest in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np

from gluonjit.codegen.loops.evaluate import Index
from gluonjit.codegen.loops.footprint import Reduction, Reference, Tracer
from gluonjit.codegen.loops.index import (
    PIECES,
    Affine,
    Atom,
    Div,
    Lookup,
    Mod,
    Var,
    affine,
    counter,
    covering,
    divides,
    split,
    variable,
)
from gluonjit.codegen.math.vecmath import FUNCTIONS
from gluonjit.ir.dims import Dim, Extent, hint
from gluonjit.ir.graph import Graph, Value
from gluonjit.ir.types import DType

_UNIFORM, _GATHER, _SCATTER = 0.25, 0.7, 1.0
"""Cost of a scalar load that all lanes share, and per lane of a gather and of a scatter; a vector access is 1."""
_LONGEST_TABLE = 32
"""The most vectors of a row that is unrolled completely because its elements are looked up in a table."""
_WINDOW = 40
"""Instructions of an element, as primitives count them, that leave little room for another one's: Philox's, or a
log-gamma and an exponential, are about 200 of the processor's."""
_SQUARE_WORK = 8
"""The most operations per element of a loop that is unrolled over the rows of a square."""


def extent(var: Var) -> Extent:
    return var.high + 1


def count(var: Var) -> int:
    """How many values it has, or is taken to have where that is about speed."""
    return hint(var.high + 1)


def _quotients(atoms: Iterable[tuple[Atom, Extent]]) -> Iterable[Div | Mod]:
    for atom, _ in atoms:
        if isinstance(atom, Div | Mod):
            yield atom
        if isinstance(atom, Div | Mod | Lookup):
            yield from _quotients(atom.expr.terms)


class Space:
    """Loop variables in order, under refinement. `values` says what the variables it began with are by now."""

    def __init__(
        self, order: Sequence[Var], references: Sequence[Reference], group: Mapping[Var, int] | None = None
    ) -> None:
        self.order = list(order)
        self.exprs = [a.expr for a in references]
        self.group = dict(group or {})
        """Variables of different groups are not merged."""
        self.values: dict[Var, Affine] = {v: affine(v) for v in order}

    def _substitute(self, step: Mapping[Var, Affine]) -> None:
        self.exprs = [e.substitute(step) for e in self.exprs]
        self.values = {v: e.substitute(step) for v, e in self.values.items()}

    def applied(self, index: Index, traced: Tracer) -> tuple[Index, Tracer]:
        """An index and the accesses at it, in terms of the current variables."""
        if all(self.values[v] == affine(v) for v in self.values):
            return index, traced
        return tuple(i.substitute(self.values) for i in index), traced.substituted(self.values)

    def split(self) -> None:
        """Splits every variable of which a whole quotient is taken somewhere."""
        for _ in range(32):
            found = self._divided()
            if found is None:
                return
            var, n = found
            outer, inner = variable(var.name, split(extent(var), n)[0]), variable(var.name, n)
            at = self.order.index(var)
            parts = [v for e in (outer, inner) for v in e.leaves]
            self.order[at : at + 1] = parts
            self.group.update((v, self.group.get(var, 0)) for v in parts)
            self._substitute({var: outer * n + inner})

    def _divided(self) -> tuple[Var, Extent] | None:
        known = set(self.order)
        for e in self.exprs:
            for atom in _quotients(e.terms):
                inner = atom.expr
                if len(inner.terms) == 1 and inner.const == 0 and inner.terms[0][1] == 1:
                    var = inner.terms[0][0]
                    if isinstance(var, Var) and var in known and divides(atom.n, extent(var)):
                        return var, atom.n
        return None

    def merge(self) -> None:
        """Merges adjacent variables that every access traverses like a single one."""
        k = 0
        while k + 1 < len(self.order):
            a, b = self.order[k], self.order[k + 1]
            same = self.group.get(a, 0) == self.group.get(b, 0)
            if same and all(_walks_as_one(e, a, b) for e in self.exprs):
                self.join(k)
            else:
                k += 1

    def join(self, k: int) -> None:
        """Merges variables k and k + 1 of the order."""
        a, b = self.order[k : k + 2]
        n = extent(b)
        merged = variable(a.name, extent(a) * n)
        (var,) = merged.leaves
        self.order[k : k + 2] = [var]
        self.group[var] = self.group.get(a, 0)
        self._substitute({a: merged // n, b: merged % n})


def _walks_as_one(e: Affine, a: Var, b: Var) -> bool:
    """Whether `e`, and what it divides, depends on a and b through a · extent(b) + b alone."""
    ca: Extent = 0
    cb: Extent = 0
    for atom, c in e.terms:
        if atom is a:
            ca = c
        elif atom is b:
            cb = c
        elif a in atom.leaves or b in atom.leaves:
            if not isinstance(atom, Div | Mod | Lookup) or not _walks_as_one(atom.expr, a, b):
                return False
    return ca == cb * extent(b)


# ---- what a vector along a variable costs


def _lane_cost(e: Affine, kind: str, var: Var, width: int, unroll: int) -> float:
    """Cost of one access for a whole vector along `var`, on average over the `unroll` vectors of a block."""
    c = e.coefficient(var)
    if kind in ("range", "number"):
        return 0.0 if c == 0 else 0.5
    scattered = width * (_SCATTER if kind == "store" else _GATHER)
    if c == 0:
        return scattered if kind == "store" else _UNIFORM
    if c is not None:
        return _pattern_cost([hint(c) * k for k in range(width)], kind, width)
    size, n = width * unroll, extent(var)
    # In an unrolled loop every index is known.
    known_block = not isinstance(n, Dim) and size + width > n
    if isinstance(n, Dim):
        block = affine(counter("block", n, size))
    else:
        block = affine(0) if known_block else variable("block", max(2, n // size))
    total = 0.0
    vectors = min(unroll, -(-count(var) // width))
    for j in range(vectors):
        lane = Var("lane", 0, (min(width, count(var) - j * width) if known_block else width) - 1)
        at = e.substitute({var: block * size + affine(lane) + j * width})
        lanes = [(atom, k) for atom, k in at.terms if lane in atom.leaves]
        if any(len(atom.leaves) > 1 or atom.is_open or isinstance(k, Dim) for atom, k in lanes):
            total += scattered
        else:
            known = Affine(0, tuple(lanes))
            numbers = np.arange(count(lane))
            pattern = np.broadcast_to(known.evaluate(lambda _: numbers), numbers.shape)  # noqa: B023 (called at once)
            total += _pattern_cost(pattern.tolist(), kind, width)
    return total / vectors


def _pattern_cost(pattern: Sequence[int], kind: str, width: int) -> float:
    """Cost of an access whose lanes lie this many elements apart."""
    scattered = width * (_SCATTER if kind == "store" else _GATHER)
    if kind == "load" and min(pattern) == max(pattern):
        return _UNIFORM
    if pattern == list(range(pattern[0], pattern[0] + len(pattern))):
        return 1.0
    if kind == "store":
        return scattered
    pieces = len(covering(pattern, width))
    return pieces + 0.5 if pieces <= PIECES else scattered


def _efficiency(n: int, width: int) -> float:
    """The share of lanes that do useful work."""
    return n / (-(-n // width) * width)


@dataclass
class LoopChoice:
    """`var` is None for a scalar loop. `cost` is in vector operations, for the whole nest."""

    var: Var | None
    cost: float
    unroll: int = 1


def choose_vector(
    order: Sequence[Var], references: Sequence[Reference], work: float, width: int, within: Reduction | None = None
) -> LoopChoice:
    """The variable of a nest along which to vectorise it.

    `work` is the number of operations computed per iteration. A reduction that depends on the variable then runs over
    vectors; any other one is vectorised over its own variables, or is not, by the cheapest of those. `within`: the
    reduction whose own loop this is; what happens outside of it does not count.
    """
    best = LoopChoice(None, _total(order, references, work, width, None, 1, within))
    for var in order:
        # Patterns that repeat every n elements are the same in each block if n divides the block.
        unrolls = {1, *(u for n in _periods(references, var) if (u := n // gcd(n, width)) <= 8)}
        whole = 0 if isinstance(extent(var), Dim) else count(var) // width
        if 1 < whole <= _LONGEST_TABLE and any(_looks_up(a.expr, var) for a in references):
            unrolls.add(whole)  # then each vector's indices are known
        for unroll in sorted(unrolls):
            cost = _total(order, references, work, width, var, unroll, within)
            if cost < best.cost:
                best = LoopChoice(var, cost, unroll)
    return best


def _lookups(atoms: Iterable[tuple[Atom, Extent]]) -> Iterable[Lookup]:
    for atom, _ in atoms:
        if isinstance(atom, Lookup):
            yield atom
        if isinstance(atom, Div | Mod | Lookup):
            yield from _lookups(atom.expr.terms)


def _looks_up(e: Affine, var: Var) -> bool:
    return any(var in atom.leaves for atom in _lookups(e.terms))


def _periods(references: Sequence[Reference], var: Var) -> set[int]:
    divisors = (atom.n for a in references for atom in _quotients(a.expr.terms) if var in atom.leaves)
    return {n for n in divisors if not isinstance(n, Dim)}


def _total(
    order: Sequence[Var],
    references: Sequence[Reference],
    work: float,
    width: int,
    var: Var | None,
    unroll: int,
    within: Reduction | None,
) -> float:
    per_vector = 1.0 if var is None else 1 / (width * _efficiency(count(var), width))
    total = work * prod(map(count, order)) * per_vector
    for a in references:
        loops = a.loops if within is None else a.loops[a.loops.index(within) + 1 :]
        # A reduction is computed once for every combination of the variables that it depends on.
        rows = [v for v in order if not loops or any(v in r.leaves for r in loops)]
        times = prod(map(count, rows)) * prod([hint(r.trips) for r in loops])
        if var in rows:
            assert var is not None
            total += times * per_vector * _lane_cost(a.expr, a.kind, var, width, unroll)
        elif loops:
            total += times * min([1.0, *(_own_cost(a, k, width) for r in loops for k in r.vars if k.terms)])
        else:
            total += times
    return total


def _own_cost(a: Reference, k: Affine, width: int) -> float:
    """Per element, of an access in a reduction that is vectorised over its own variable k."""
    ((var, _),) = k.terms
    assert isinstance(var, Var)
    return _lane_cost(a.expr, a.kind, var, width, 1) / (width * _efficiency(count(var), width))


# ---- the plan of a nest


@dataclass
class NestPlan:
    """Which loops to write: `order`, outermost first, in terms of which the outputs' `index` is given.

    `rows`: variables of rows, each of which is computed as a whole. `vector`: along which to vectorise, if at all.
    `across`: the variable, just before the vector's, with which to read squares. `terms`: of its largest reduction.
    """

    index: Index
    order: list[Var]
    rows: list[Var]
    vector: LoopChoice
    across: Var | None
    work: float
    is_long: bool
    """Whether the instructions for one vector nearly fill the processor's window: there is little room for those of
    another one, and so little to gain from writing several vectors' side by side."""
    terms: Extent
    kept: frozenset[Value]
    """Values to keep in rows, see `rows.Row`."""
    phases: list[tuple[Value, Index]]
    """The reductions that fill those rows: other uses of these values come later."""
    reductions: list[list[tuple[Value, Index]]]
    """Those of a row, after those that their terms depend on; what is in one list is independent of each other."""

    def writes_lines(self, elements: int, dtype: DType) -> bool:
        """Whether the vectors of a line of a result, or of two lines, are written right after each other: rows from
        front to end, with no reduction between two vectors, or squares of whole lines. `elements`: those of f32 that a
        line has."""
        if self.reductions and not self.rows:
            return False
        if self.across is not None and (dtype.itemsize < 4 or not divides(elements, extent(self.order[-1]))):
            return False
        return self.vector.var is not None and self.vector.var is self.order[-1]


def plan_nest(body: Graph, variables: Sequence[Var], index: Index, traced: Tracer, width: int) -> NestPlan:
    """The loops over `variables` (in row-major order) for outputs at `index`, whose references are `traced`."""
    order, rows = _ordered(variables, traced)
    space = Space(order, traced.references, {v: v in rows for v in order})
    space.merge()
    index, traced = space.applied(index, traced)
    work = 1 + 0.2 * sum(1 for _, _, loops in traced.visits if not loops)
    producers = (body.producers.get(v) for v, _, loops in traced.visits if not loops)
    instructions = sum(op.definition.instructions for op in producers if op is not None)
    is_long = instructions >= _WINDOW
    choice = choose_vector(space.order, traced.references, work, width)
    flat = _flattened(index, traced, space, work, width)
    if flat is not None and flat[2].cost < choice.cost:
        index, space, choice, traced = flat
    inner_rows = [v for v in space.order if space.group.get(v)]
    order = _with_vector_inside(space.order, inner_rows, choice.var)
    across = _across(order, inner_rows, choice, traced, work, width)
    if across is not None:
        order.remove(across)
        order.insert(-1, across)
    index, order = _in_blocks(index, order, choice, traced)
    terms = max((r.trips for r in traced.reductions), key=hint, default=1)
    reductions = _in_stages(body, [(r.value, r.index) for r in traced.reductions if r.leaves <= set(order)])
    kept = _worth_keeping(body, traced, [] if inner_rows else reductions)
    filling = {loops[0] for v, _, loops in traced.visits if v in kept and len(loops) == 1}
    # Of a reduction at a computed index, it is not known yet where in the rows it is.
    phases = [(r.value, r.index) for r in traced.reductions if r in filling and r.leaves <= set(order)]
    return NestPlan(index, order, inner_rows, choice, across, work, is_long, terms, kept, phases, reductions)


BLOCK = 8
"""Rows that are cut into pieces together: as many as there are lines in a set of the first cache, at least, for rows a
page apart."""


def _in_blocks(index: Index, order: list[Var], choice: LoopChoice, traced: Tracer) -> tuple[Index, list[Var]]:
    """The loops for what cuts rows into short pieces and puts those of all rows below each other, as packing does: a
    block of rows after the other, where each piece of all rows would be read before the next ones. A row's next piece
    is then still near, and there are as many pages to look up as rows of a block."""
    loads = [a for a in traced.references if a.kind == "load"]
    if len(order) < 3 or choice.var is not order[-1] or len(loads) != 1 or len(traced.references) != 2:
        return index, order
    *outer, piece, row, along = order
    e, n = loads[0].expr, extent(row)
    if e.coefficient(along) != 1 or e.coefficient(piece) != extent(along) or not divides(BLOCK, n):
        return index, order
    blocks, inside = variable(row.name, split(n, BLOCK)[0]), variable(row.name, BLOCK)
    index = tuple(i.substitute({row: blocks * BLOCK + inside}) for i in index)
    return index, [*outer, *blocks.leaves, piece, *inside.leaves, along]


def _in_stages(body: Graph, reductions: Sequence[tuple[Value, Index]]) -> list[list[tuple[Value, Index]]]:
    """See `NestPlan.reductions`."""
    reduced = {v for v, _ in reductions}
    before: dict[Value, int] = {}
    for op in body.ops:
        depth = max((before.get(v, 0) + (v in reduced) for v in op.operands), default=0)
        before.update(dict.fromkeys(op.results, depth))
    stages: dict[int, list[tuple[Value, Index]]] = {}
    for v, index in reductions:
        stages.setdefault(before[v], []).append((v, index))
    return [stages[k] for k in sorted(stages)]


def _ordered(variables: Sequence[Var], traced: Tracer) -> tuple[list[Var], set[Var]]:
    """(the order of the loops, the variables of rows): what reductions depend on comes first, as far as some variables
    are such and others are not."""
    dims = set(variables)
    rows = [r.leaves & dims for r in traced.reductions]
    rows = [r for r in rows if r != dims]
    count = {v: sum(v in r for r in rows) for v in variables}
    return sorted(variables, key=lambda v: -count[v]), {v for v in variables if count[v]}


def _across(
    order: Sequence[Var], rows: Sequence[Var], choice: LoopChoice, traced: Tracer, work: float, width: int
) -> Var | None:
    """Another variable along which memory is contiguous that the vector has to gather: a square is read by rows and
    turned or, where the lanes lie irregularly, gathered from lines that stay in the cache from row to row."""
    u = choice.var
    if u is None or u is not order[-1] or work > _SQUARE_WORK:
        return None
    best: dict[Var, int] = {}
    for a in traced.references:
        if a.kind != "load" or a.loops or a.guarded:
            continue
        if _lane_cost(a.expr, a.kind, u, width, choice.unroll) < width * _GATHER:
            continue
        for w in order[:-1]:
            if (w in rows) == (u in rows) and count(w) >= width and a.expr.coefficient(w) == 1:
                best[w] = best.get(w, 0) + 1
    return max(best, key=lambda w: best[w], default=None)


_COST = {**dict.fromkeys(FUNCTIONS, 12), **dict.fromkeys(("div", "sqrt", "rsqrt"), 4)}
"""Instructions of primitives that take more than about one."""


def _worth_keeping(body: Graph, traced: Tracer, stages: Sequence[Sequence[tuple[Value, Index]]]) -> frozenset[Value]:
    """Values that several phases compute (reductions over the same rows, and what follows them), the last ones of
    their kind on the way to the results, and which take longer to compute again than to store and load. The reductions
    of one of the `stages` are written together, in one phase."""
    phases: dict[Value, set[Any]] = {}
    stage_of = {reduction: k for k, stage in enumerate(stages) for reduction in stage}
    for v, _, loops in traced.visits:
        last = loops[-1] if loops else None
        phases.setdefault(v, set()).add(last and stage_of.get((last.value, last.index), last))
    again = {v for v, where in phases.items() if len(where) > 1}
    cost: dict[Value, int] = {}
    for op in body.ops:
        for r in op.results:
            if r in again:
                own = 8 if op.definition.accumulates else 1
                cost[r] = _COST.get(op.name, own) + sum(cost.get(v, 0) for v in dict.fromkeys(op.operands))
    leaving = set(body.outputs)
    return frozenset(
        v
        for v in again
        if cost.get(v, 0) >= 8 and (v in leaving or any(op.results[0] not in again for op in body.uses[v]))
    )


def _with_vector_inside(order: Sequence[Var], rows: Sequence[Var], var: Var | None) -> list[Var]:
    """The vector's loop last among its kind: of the rows, or of what is inside them."""
    if var is None:
        return list(order)
    first = [v for v in order if v in rows and v is not var]
    second = [v for v in order if v not in rows and v is not var]
    return [*first, var, *second] if var in rows else [*first, *second, var]


def _flattened(
    index: Index, traced: Tracer, space: Space, work: float, width: int
) -> tuple[Index, Space, LoopChoice, Tracer] | None:
    """The same nest with short inner loops merged, whatever index arithmetic that takes, for better vectors."""
    order = list(space.order)
    if len(order) < 2 or not _is_below(order[-1], 2 * width):
        return None
    joined = Space(order, [], space.group)
    while len(joined.order) > 1 and _is_below(joined.order[-1], 4 * width):
        if joined.group.get(joined.order[-2], 0) != joined.group.get(joined.order[-1], 0):
            break
        joined.join(len(joined.order) - 2)
    if joined.order == order:
        return None
    index, traced = joined.applied(index, traced)
    return index, joined, choose_vector(joined.order, traced.references, work, width), traced


def _is_below(var: Var, n: int) -> bool:
    """Whether a variable is known to have fewer than n values."""
    return not isinstance(extent(var), Dim) and count(var) < n
