"""Indices as values: loop variables, lane numbers, and the integer values of index expressions.

For a vector an expression is split into a sum of three parts: one that depends on the lane number alone, and so is a
constant vector; one that is the same in all lanes; and one that varies otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gluonjit.codegen.loops.index import (
    LARGEST,
    LEAST,
    Affine,
    Atom,
    Div,
    Lookup,
    Mod,
    Named,
    Var,
    affine,
    flat,
    is_inside,
    lookup,
)
from gluonjit.codegen.math.values import Val
from gluonjit.codegen.math.vector_ops import Arithmetic
from gluonjit.codegen.text.llvm import Function, Scope
from gluonjit.ir.dims import Dim, Extent, Undecided, is_at_most
from gluonjit.ir.types import BOOL, I32, I64, DType
from gluonjit.ir.types import dtype as as_dtype

_Terms = tuple[tuple[Atom, Extent], ...]


class Indices(Arithmetic):
    """`bind` gives a variable its value; variables in `lane_numbers` are the number of the lane itself. In the last,
    partial vector of a loop their range is smaller than the width, and the lanes beyond it are inactive.
    """

    def __init__(self, f: Function, width: int) -> None:
        super().__init__(f, width)
        self.mask: Val | None = None
        """The lanes that may access memory (see `guarded`); None: all."""
        self._masks: dict[str, Val] = {}
        self.tail: Val | None = None
        """The lanes that exist, while the last vector of an open number of elements is being written; None: all.
        Unlike `mask`, what is the same in all lanes does not depend on it."""
        self.lane_numbers: set[Var] = set()
        self._variables: dict[Var, Val] = {}
        self._opaque: dict[str, Var] = {}
        self._last: dict[Var, Affine] = {}
        """What the variables of `last_lanes` are."""
        self._split: dict[_Terms, tuple[list[tuple[Atom, int]], _Terms, list[tuple[Atom, Extent]]]] = {}
        """By terms, `_parts` of them, while variables are bound as they are: code that is written out for several
        vectors asks for the same terms with other constants."""
        self._sums: dict[_Terms, Val] = {}
        """By terms that are uniform, their sum, likewise."""

    # ---- variables

    def bind(self, variable: Var, value: Val) -> None:
        self._variables[variable] = value
        self._split.clear()
        self._sums.clear()

    def lane_number(self, count: int) -> Var:
        """A variable that is k in lane k; lanes from `count` on are inactive.

        What depends on it stays in the scope that is open now.
        """
        var = Var("lane", 0, count - 1)
        self.lane_numbers.add(var)
        numbers = self.lane_constant(range(count), I64)
        if self.width > 1:
            numbers = self.splat(numbers)
        self._variables[var] = Val(numbers.ssa, I64, self.width > 1, self.f.scope)
        return var

    @contextmanager
    def last_lanes(self, n: Extent, start: Affine, left: str) -> Iterator[Affine]:
        """A context for code of a vector that is not whole: `left` lanes (i64) from `start` on, below n, which is open.
        Gives their index: a variable, as `start` plus a lane number may be n and more where no lane is active."""
        var = Var("last", 0, n - 1)
        self._last[var] = start + affine(self.lane_number(self.width))
        self._variables[var] = Val("", I64, True, self.f.scope)
        numbers = self.lane_constant(range(self.width), I64)
        outer = self.tail
        self.tail = self.emit("icmp slt {t} {0}, {1}", BOOL, numbers, Val(left, I64, False, self.f.scope))
        try:
            yield affine(var)
        finally:
            self.tail = outer

    def scope_of(self, variables: Any) -> Scope:
        """The innermost scope in which one of the variables is bound."""
        scope = self.f.root
        for v in variables:
            bound = self._variables.get(v)
            if bound is not None and bound.scope.depth > scope.depth:
                scope = bound.scope
        return scope

    def varies(self, variables: Any) -> bool:
        """Whether one of the variables differs between lanes."""
        for v in variables:
            bound = self._variables.get(v)
            if bound is not None and bound.lanes:
                return True
        return False

    def whole(self, n: Extent, size: int) -> Any:
        """n // size, as what `Function.for_` takes; computed at the function's entry if it is open."""
        try:
            return n // size
        except Undecided:
            return self.f.pure(f"udiv i64 {self.f.extent(n)}, {size}", self.f.root)

    # ---- the handler's methods on indices

    def to_index(self, value: Val) -> Affine:
        """An integer value as an index."""
        if value.const is not None:
            return Affine(value.const)
        wide = self.cast(value, I64)
        var = self._opaque.get(wide.ssa)
        if var is None:
            var = self._opaque[wide.ssa] = Var("at", LEAST, LARGEST)
            self._variables[var] = wide
        return affine(var)

    def lookup(self, table: np.ndarray, index: Any) -> Affine:
        """An element of a constant as an index."""
        return lookup(table.reshape(-1).tolist(), flat(index, table.shape))

    def named(self, e: Affine) -> Affine:
        """A new variable with the value of an expression."""
        memo = self.scope_of(e.leaves).memo
        known = memo.get(e)
        if known is None:
            var = Named(e)
            self._variables[var] = self._integer(e, I64)
            known = memo[e] = affine(var)
        return known

    def index_value(self, index: Any, dtype: Any) -> Val:
        """An index as a value of `dtype`."""
        e, to = affine(index), as_dtype(dtype)
        if not e.terms:
            return self.cast(self.constant(e.const, I64), to) if to.is_integer else self.constant(e.const, to)
        return self.cast(self._integer(e, _kind(e)), to)

    def in_range(self, index: Any, low: Extent, high: Extent) -> Val:
        """low <= index < high."""
        e = affine(index) - low
        known = is_inside(e, 0, high - low)
        if known is not None:
            return self.constant(known, BOOL)
        kind = _kind(e, high - low)
        return self.emit("icmp ult {t} {0}, {1}", BOOL, self._integer(e, kind), self.constant(high - low, kind))

    def guarded(self, condition: Val, thunk: Callable[[], Val], otherwise: Val) -> Val:
        if condition.const is not None:
            return thunk() if condition.const else otherwise
        with self.masked(condition):
            value = thunk()
        return self.select(condition, value, otherwise)

    @contextmanager
    def masked(self, condition: Val | None) -> Iterator[None]:
        """In this context memory is accessed only in lanes where `condition` holds as well."""
        outer = self.mask
        if condition is not None:
            mask = condition if outer is None else self.both(outer, condition)
            # Evaluated again, a condition must be the same object: memos tell masks apart by identity.
            self.mask = self._masks.setdefault(mask.ssa, mask)
        try:
            yield
        finally:
            self.mask = outer

    # ---- integers from expressions

    def _integer(self, e: Affine, dtype: DType) -> Val:
        """The value of an expression, in `dtype` (i32 only if it fits)."""
        fixed, uniform, varying = self._parts(e)
        total = self._between_integers(self.uniform(uniform), dtype)
        if fixed:
            count, values = self._pattern(fixed)
            lanes = self.lane_constant(values + [0] * (self.width - count), dtype)
            total = self.emit("add {t} {0}, {1}", dtype, total, lanes)
        for atom, c in varying:
            value = self._between_integers(self._varying(atom), dtype)
            total = self.emit("add {t} {0}, {1}", dtype, total, self._times(value, c))
        return total

    def _parts(self, e: Affine) -> tuple[list[tuple[Atom, int]], Affine, list[tuple[Atom, Extent]]]:
        """The terms that depend on the lane number alone, the uniform rest, and the terms that vary otherwise."""
        if self._last:
            e = e.substitute(self._last)
        known = self._split.get(e.terms)
        if known is None:
            known = self._split[e.terms] = self._split_terms(e.terms)
        fixed, uniform, varying = known
        return fixed, Affine(e.const, uniform), varying

    def _split_terms(self, terms: _Terms) -> tuple[list[tuple[Atom, int]], _Terms, list[tuple[Atom, Extent]]]:
        fixed: list[tuple[Atom, int]] = []
        uniform, varying = [], []
        for atom, c in terms:
            if not self.varies(atom.leaves):
                uniform.append((atom, c))
            elif atom.leaves <= self.lane_numbers and not atom.is_open and not isinstance(c, Dim):
                fixed.append((atom, c))
            else:
                varying.append((atom, c))
        return fixed, tuple(uniform), varying

    def _pattern(self, fixed: list[tuple[Atom, int]]) -> tuple[int, list[int]]:
        """(number of active lanes, value in each) of terms that depend on the lane number."""
        count = min(v.high + 1 for atom, _ in fixed for v in atom.leaves)
        if all(isinstance(atom, Var) for atom, _ in fixed):
            step = sum(c for _, c in fixed)
            return count, [step * k for k in range(count)]
        e = Affine(0, tuple(fixed))
        return count, [int(e.evaluate(lambda _: k)) for k in range(count)]  # noqa: B023 (called at once)

    def uniform(self, e: Affine) -> Val:
        """A uniform expression as an i64."""
        if not e.terms:
            return self.constant(e.const, I64)
        total = self._sums.get(e.terms)
        if total is None or total.scope.closed:
            total = self._sums[e.terms] = self._sum(e.terms)
        return self.emit("add nsw {t} {0}, {1}", I64, total, self.constant(e.const, I64)) if e.const != 0 else total

    def _sum(self, terms: _Terms) -> Val:
        """Uniform terms as an i64. Those of outer loops are added first, so that their sum is loop-invariant."""
        values = [(self._atom(atom), c) for atom, c in terms]
        values.sort(key=lambda term: term[0].scope.depth)
        total = self._times(*values[0])
        for value, c in values[1:]:
            total = self.emit("add nsw {t} {0}, {1}", I64, total, self._times(value, c))
        return total

    def _times(self, value: Val, c: Extent) -> Val:
        return value if c == 1 else self.emit("mul {t} {0}, {1}", value.dtype, value, self.constant(c, value.dtype))

    def _atom(self, atom: Atom) -> Val:
        """A uniform atom, as an i64."""
        if isinstance(atom, Var):
            return self._variables[atom]
        if isinstance(atom, Lookup):
            return self._looked_up(atom)
        assert isinstance(atom, Div | Mod)
        return self._quotient(atom, self.uniform(atom.expr), atom.expr)

    def _varying(self, atom: Atom) -> Val:
        if isinstance(atom, Var):
            return self._variables[atom]
        if isinstance(atom, Lookup):
            return self._looked_up(atom)
        assert isinstance(atom, Div | Mod)
        return self._quotient(atom, self._integer(atom.expr, _kind(atom.expr, atom.n)), atom.expr)

    def _looked_up(self, atom: Lookup) -> Val:
        """An element of a table, as an i64."""
        raise NotImplementedError

    def _quotient(self, atom: Div | Mod, value: Val, e: Affine) -> Val:
        """Quotient or remainder, rounded down; if negative, the value is first raised by a multiple of the divisor."""
        dtype, n = value.dtype, self.constant(atom.n, value.dtype)
        if not (type(e.low) is int and type(e.high) is int and type(atom.n) is int):
            if not is_at_most(0, e.low):
                return self._rounded_down(atom, value, n)
            return self.emit(("urem" if isinstance(atom, Mod) else "udiv") + " {t} {0}, {1}", dtype, value, n)
        shift = -(e.low // atom.n) if e.low < 0 else 0
        if shift and e.high + shift * atom.n >= 2 ** (dtype.bits - 1):
            return self._rounded_down(atom, value, n)
        if shift:
            value = self.emit("add {t} {0}, {1}", dtype, value, self.constant(shift * atom.n, dtype))
        if isinstance(atom, Mod):
            return self.emit("urem {t} {0}, {1}", dtype, value, n)
        value = self.emit("udiv {t} {0}, {1}", dtype, value, n)
        return self.emit("sub {t} {0}, {1}", dtype, value, self.constant(shift, dtype)) if shift else value

    def _rounded_down(self, atom: Div | Mod, value: Val, n: Val) -> Val:
        """Quotient or remainder, rounded down, of values without known bounds."""
        r = self.mod(value, n)
        if isinstance(atom, Mod):
            return r
        return self.emit("sdiv {t} {0}, {1}", value.dtype, self.sub(value, r), n)


def _kind(e: Affine, beside: Extent = 0) -> DType:
    """The type that an expression is computed in, if a number beside it has to fit as well."""
    known = type(e.low) is int and type(e.high) is int and type(beside) is int
    return I32 if known and -(2**31) <= e.low and e.high < 2**31 else I64
