"""The shape of a loop nest: which variables it runs over, in which order, and along which one it is vectorised.

Given is what the code inside will access (`evaluate.trace`). Variables are split where a reshape divides them
(`i // n` with a whole number of n's), so that each part appears by itself, and then merged again where every access
walks through two neighbours as if they were one: what is contiguous becomes one long loop. The vector runs along the
variable that makes the accesses cheapest in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from gluonjit.codegen.evaluate import Access, Index, Reduction, Tracer
from gluonjit.codegen.index import Affine, Atom, Div, Mod, Var, affine, variable

_UNIFORM, _GATHER, _SCATTER = 0.25, 0.7, 1.0
"""Cost of a scalar load that all lanes share, and per lane of a gather and of a scatter; a vector access is 1."""


def extent(var: Var) -> int:
    return var.high + 1


def _quotients(atoms: Iterable[tuple[Atom, int]]) -> Iterable[Div | Mod]:
    for atom, _ in atoms:
        if isinstance(atom, Div | Mod):
            yield atom
            yield from _quotients(atom.expr.terms)


class Space:
    """Loop variables in order, under refinement. `values` says what the variables it began with are by now."""

    def __init__(
        self, order: Sequence[Var], accesses: Sequence[Access], group: Mapping[Var, int] | None = None
    ) -> None:
        self.order = list(order)
        self.exprs = [a.expr for a in accesses]
        self.group = dict(group or {})
        """Variables of different groups are not merged."""
        self.values: dict[Var, Affine] = {v: affine(v) for v in order}

    def _substitute(self, step: Mapping[Var, Affine]) -> None:
        self.exprs = [e.substitute(step) for e in self.exprs]
        self.values = {v: e.substitute(step) for v, e in self.values.items()}

    def applied(self, index: Index, traced: Tracer) -> tuple[Index, Tracer]:
        """An index, and what is accessed at it, in terms of the variables of now."""
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
            outer, inner = variable(var.name, extent(var) // n), variable(var.name, n)
            at = self.order.index(var)
            parts = [v for e in (outer, inner) for v in e.leaves]
            self.order[at : at + 1] = parts
            self.group.update((v, self.group.get(var, 0)) for v in parts)
            self._substitute({var: outer * n + inner})

    def _divided(self) -> tuple[Var, int] | None:
        known = set(self.order)
        for e in self.exprs:
            for atom in _quotients(e.terms):
                inner = atom.expr
                if len(inner.terms) == 1 and inner.const == 0 and inner.terms[0][1] == 1:
                    var = inner.terms[0][0]
                    if isinstance(var, Var) and var in known and extent(var) % atom.n == 0:
                        return var, atom.n
        return None

    def merge(self) -> None:
        """Merges neighbours that every access walks through as one."""
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
    ca = cb = 0
    for atom, c in e.terms:
        if atom is a:
            ca = c
        elif atom is b:
            cb = c
        elif a in atom.leaves or b in atom.leaves:
            if not isinstance(atom, Div | Mod) or not _walks_as_one(atom.expr, a, b):
                return False
    return ca == cb * extent(b)


# ---- what a vector along a variable costs


def _lane_cost(e: Affine, kind: str, var: Var, width: int, unroll: int) -> float:
    """Cost of one access for a whole vector along `var`."""
    c = e.coefficient(var)
    if kind in ("range", "number"):
        return 0.0 if c == 0 else 0.5
    scattered = width * (_SCATTER if kind == "store" else _GATHER)
    if c == 0:
        return scattered if kind == "store" else _UNIFORM
    if c is None:
        block = variable("block", max(2, extent(var) // (width * unroll)))
        lane = Var("lane", 0, width - 1)
        e = e.substitute({var: block * (width * unroll) + affine(lane)})
        lanes = [(atom, k) for atom, k in e.terms if lane in atom.leaves]
        if any(len(atom.leaves) > 1 for atom, _ in lanes):
            return scattered
        pattern = [int(Affine(0, tuple(lanes)).evaluate(lambda _, k=k: k)) for k in range(width)]
        span = max(pattern) - min(pattern)
        if span == 0 and kind == "load":
            return _UNIFORM
        if pattern == list(range(min(pattern), min(pattern) + width)):
            return 1.0
    else:
        span = abs(c) * (width - 1)
        if c == 1:
            return 1.0
    if kind == "store":
        return scattered
    pieces = span // width + 1
    return pieces + 0.5 if pieces <= 4 else scattered


def _efficiency(n: int, width: int) -> float:
    """The part of the lanes that do something useful."""
    return n / (-(-n // width) * width)


@dataclass
class Choice:
    """`var` is None for a scalar loop. `cost` is in vector operations, for the whole nest."""

    var: Var | None
    cost: float
    unroll: int = 1


def choose_vector(
    order: Sequence[Var], accesses: Sequence[Access], work: float, width: int, within: Reduction | None = None
) -> Choice:
    """The variable of a nest along which to vectorise it.

    `work` is the number of operations computed per iteration. A reduction that depends on the variable then runs over
    vectors; any other one is vectorised over its own variables, or is not, by the cheapest of those. `within`: the
    reduction whose own loop this is; what happens outside of it does not count.
    """
    best = Choice(None, _total(order, accesses, work, width, None, 1, within))
    for var in order:
        # Patterns that repeat every n elements are the same in each block if n divides the block.
        unrolls = {1, *(u for n in _periods(accesses, var) if (u := n // gcd(n, width)) <= 8)}
        for unroll in sorted(unrolls):
            cost = _total(order, accesses, work, width, var, unroll, within)
            if cost < best.cost:
                best = Choice(var, cost, unroll)
    return best


def _periods(accesses: Sequence[Access], var: Var) -> set[int]:
    return {atom.n for a in accesses for atom in _quotients(a.expr.terms) if var in atom.leaves}


def _total(
    order: Sequence[Var],
    accesses: Sequence[Access],
    work: float,
    width: int,
    var: Var | None,
    unroll: int,
    within: Reduction | None,
) -> float:
    per_vector = 1.0 if var is None else 1 / (width * _efficiency(extent(var), width))
    total = work * prod(map(extent, order)) * per_vector
    for a in accesses:
        loops = a.loops if within is None else a.loops[a.loops.index(within) + 1 :]
        # A reduction is computed once for every combination of the variables that it depends on.
        rows = [v for v in order if not loops or any(v in r.leaves for r in loops)]
        times = prod(map(extent, rows)) * prod(r.trips for r in loops)
        if var in rows:
            assert var is not None
            total += times * per_vector * _lane_cost(a.expr, a.kind, var, width, unroll)
        elif loops:
            total += times * min([1.0, *(_own_cost(a, k, width) for r in loops for k in r.vars if k.terms)])
        else:
            total += times
    return total


def _own_cost(a: Access, k: Affine, width: int) -> float:
    """Per element, of an access in a reduction that is vectorised over its own variable k."""
    ((var, _),) = k.terms
    assert isinstance(var, Var)
    return _lane_cost(a.expr, a.kind, var, width, 1) / (width * _efficiency(extent(var), width))
