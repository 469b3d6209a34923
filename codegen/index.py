"""Index expressions: integers that are affine in loop variables, with exact `//` and `%`.

Every movement primitive is a map of indices, and the composition of such maps is what decides whether a loop reads
memory contiguously. A reshape, for one, is `//` and `%` of a flat index; composed with its inverse, or with a loop that
runs over merged axes, they must vanish again. So an expression is kept as a sum of coefficient · atom plus a constant,
where atoms are variables with a known range, and the quotients and remainders that could not be simplified away:

    e // n  →  drops what n divides, when the rest stays inside one multiple of n (by the ranges)
    n·(e // n) + e % n  →  e            n·((e // n) % m) + e % n  →  e % (n·m)

A gather by known indices looks its index up in a table, which is an atom, too (`lookup`).

`//` rounds down and `%` is never negative, as in Python. Expressions are immutable and compare by value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from math import gcd
from typing import Any, ClassVar

import numpy as np

_serial = itertools.count()


class Atom:
    """What an expression is affine in. `low` and `high` bound its value, both inclusive."""

    low: int
    high: int
    key: tuple[Any, ...]
    leaves: frozenset[Var]
    size: int
    """Number of terms, those of what is divided included."""

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


class Var(Atom):
    """A variable: of a loop, a lane number, or any integer known at run time only. Each is itself alone."""

    def __init__(self, name: str, low: int, high: int) -> None:
        self.name = name
        self.low, self.high = low, high
        self.key = (0, next(_serial))
        self.leaves = frozenset((self,))
        self.size = 1

    def __repr__(self) -> str:
        return self.name


class Named(Var):
    """A variable that stands for an expression which has become too long to simplify."""

    def __init__(self, expr: Affine) -> None:
        super().__init__("at", expr.low, expr.high)
        self.expr = expr
        self.leaves = expr.leaves | {self}


class _Quotient(Atom):
    """`expr // n` or `expr % n`, which nothing simplifies: n > 1, and the constant of `expr` is in [0, n)."""

    symbol: str

    def __init__(self, expr: Affine, n: int) -> None:
        self.expr, self.n = expr, n
        self.key = (self.kind, n, expr.key)
        self.leaves = expr.leaves
        self.size = expr.size + 1
        self.low, self.high = self._range()

    kind: int

    def _range(self) -> tuple[int, int]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"({self.expr} {self.symbol} {self.n})"


class Div(_Quotient):
    kind, symbol = 1, "//"

    def _range(self) -> tuple[int, int]:
        return self.expr.low // self.n, self.expr.high // self.n


class Mod(_Quotient):
    kind, symbol = 2, "%"

    def _range(self) -> tuple[int, int]:
        return 0, self.n - 1

    @cached_property
    def quotient(self) -> Affine:
        """`expr // n`, which this is the remainder of."""
        return self.expr // self.n


class Lookup(Atom):
    """`table[expr]`, where the table is neither constant nor evenly spaced. Equal tables are equal here."""

    _numbers: ClassVar[dict[tuple[int, ...], int]] = {}

    def __init__(self, table: tuple[int, ...], expr: Affine) -> None:
        self.table, self.expr = table, expr
        self.key = (3, self._numbers.setdefault(table, next(_serial)), expr.key)
        self.leaves = expr.leaves
        self.size = expr.size + 1
        self.low, self.high = min(table), max(table)

    def __repr__(self) -> str:
        return f"table[{self.expr}]"


class Affine:
    """const + Σ coefficient · atom. `terms` are sorted, with no zero coefficients."""

    __slots__ = ("_hash", "_leaves", "const", "high", "key", "low", "size", "terms")

    def __init__(self, const: int, terms: tuple[tuple[Atom, int], ...] = ()) -> None:
        self.const = const
        self.terms = terms
        low = high = const
        size = 0
        for atom, c in terms:
            size += atom.size
            if c > 0:
                low += c * atom.low
                high += c * atom.high
            else:
                low += c * atom.high
                high += c * atom.low
        self.low, self.high, self.size = low, high, size
        self.key = (const, tuple([(a.key, c) for a, c in terms]))
        self._hash = hash(self.key)
        self._leaves: frozenset[Var] | None = None

    @property
    def leaves(self) -> frozenset[Var]:
        """The variables it depends on."""
        if self._leaves is None:
            self._leaves = frozenset().union(*(a.leaves for a, _ in self.terms)) if self.terms else _NONE
        return self._leaves

    def is_multiple_of(self, n: int) -> bool:
        """For all values of its atoms, as far as the coefficients tell."""
        return self.const % n == 0 and all(c % n == 0 for _, c in self.terms)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Affine) and self.key == other.key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        parts = [f"{a}" if c == 1 else f"{c}*{a}" for a, c in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)

    def coefficient(self, var: Var) -> int | None:
        """The coefficient of `var`; None if the value is not linear in it."""
        found = 0
        for atom, c in self.terms:
            if atom is var:
                found = c
            elif var in atom.leaves:
                return None
        return found

    def __add__(self, other: Any) -> Affine:
        if isinstance(other, int):
            return Affine(self.const + other, self.terms) if other else self
        if not isinstance(other, Affine):
            return NotImplemented
        if not other.terms:
            return Affine(self.const + other.const, self.terms) if other.const else self
        if not self.terms:
            return Affine(self.const + other.const, other.terms) if self.const else other
        terms = dict(self.terms)
        for atom, c in other.terms:
            terms[atom] = terms.get(atom, 0) + c
        return _sum(self.const + other.const, terms)

    __radd__ = __add__

    def __mul__(self, k: Any) -> Affine:
        if not isinstance(k, int):
            return NotImplemented
        if k == 0:
            return ZERO
        return self if k == 1 else Affine(self.const * k, tuple([(a, c * k) for a, c in self.terms]))

    __rmul__ = __mul__

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Any) -> Affine:
        return self + other * -1

    def __rsub__(self, other: Any) -> Affine:
        return self * -1 + other

    def __floordiv__(self, n: Any) -> Affine:
        if not isinstance(n, int):
            return NotImplemented
        return _divide(self, n)[0]

    def __mod__(self, n: Any) -> Affine:
        if not isinstance(n, int):
            return NotImplemented
        return _divide(self, n)[1]

    def substitute(self, values: Mapping[Var, Affine | int]) -> Affine:
        """The expression with variables replaced, simplified anew."""
        if not any(v in values for v in self.leaves):
            return self
        out = Affine(self.const)
        for atom, c in self.terms:
            out = out + _substituted(atom, values) * c
        return out

    def evaluate(self, value: Callable[[Var], Any]) -> Any:
        """The value where variables have values (integers, or arrays of them)."""
        out: Any = self.const
        for atom, c in self.terms:
            if isinstance(atom, _Quotient):
                inner = atom.expr.evaluate(value)
                out = out + (inner // atom.n if isinstance(atom, Div) else inner % atom.n) * c
            elif isinstance(atom, Lookup):
                # Beside padding, lanes that are masked out have positions outside the table: any element will do.
                out = out + np.take(atom.table, atom.expr.evaluate(value), mode="clip") * c
            else:
                assert isinstance(atom, Var)
                out = out + value(atom) * c
        return out


_NONE: frozenset[Var] = frozenset()
ZERO = Affine(0)


def affine(x: Affine | Var | int) -> Affine:
    """`x` as an expression."""
    if isinstance(x, Affine):
        return x
    return Affine(0, ((x, 1),)) if isinstance(x, Var) else Affine(int(x))


def variable(name: str, extent: int) -> Affine:
    """A new variable in [0, extent); one of extent 1 is the constant 0."""
    return ZERO if extent == 1 else affine(Var(name, 0, extent - 1))


def flat(index: Iterable[Affine | int], shape: Iterable[int], strides: Iterable[int] | None = None) -> Affine:
    """The position of `index` in an array of `shape`, row-major unless it has `strides`."""
    out = ZERO
    if strides is not None:
        for i, step in zip(index, strides, strict=True):
            out = out + affine(i) * step
        return out
    for i, n in zip(index, shape, strict=True):
        out = out * n + i
    return out


def lookup(table: Sequence[int], e: Affine) -> Affine:
    """`table[e]`, for 0 <= e < len(table); of another e, as there may be beside padding, any number."""
    low = max(e.low, 0)
    part = table[low : max(e.high, 0) + 1]
    step = part[1] - part[0] if len(part) > 1 else 0
    if all(b - a == step for a, b in zip(part, part[1:])):
        return (e - low) * step + part[0] if part else Affine(0)
    return affine_of(Lookup(tuple(table), e))


PIECES = 4
"""The most loads that are better than a gather of a whole vector."""


def covering(pattern: Sequence[int], width: int) -> list[int]:
    """Where windows of at most `width` consecutive numbers start that cover a pattern of numbers, between its least and
    its largest; all have the same size."""
    low, high = min(pattern), max(pattern)
    size = min(width, high - low + 1)
    starts: list[int] = []
    for p in sorted(set(pattern)):
        if not starts or p >= starts[-1] + size:
            starts.append(min(p, high - size + 1))
    return starts


def _substituted(atom: Atom, values: Mapping[Var, Affine | int]) -> Affine:
    if isinstance(atom, _Quotient):
        inner = atom.expr.substitute(values)
        return inner // atom.n if isinstance(atom, Div) else inner % atom.n
    if isinstance(atom, Lookup):
        return lookup(atom.table, atom.expr.substitute(values))
    assert isinstance(atom, Var)
    return affine(values.get(atom, atom))


def _sum(const: int, terms: dict[Atom, int]) -> Affine:
    """The sum, with quotients and their remainders put together again."""
    again = True
    while again:
        again = False
        for atom in terms:
            if isinstance(atom, Mod) and terms[atom]:
                joined = _recombined(atom, terms)
                if joined is not None:
                    const += joined.const
                    for a, c in joined.terms:
                        terms[a] = terms.get(a, 0) + c
                    again = True
                    break
    kept = [(a, c) for a, c in terms.items() if c]
    kept.sort(key=lambda term: term[0].key)
    return Affine(const, tuple(kept))


def _recombined(remainder: Mod, terms: dict[Atom, int]) -> Affine | None:
    """Removes `remainder` and its quotient from `terms` and returns what they make together; None if they do not.

    With coefficient b and remainder e % n, the quotient q = e // n, or q % m, must be there with coefficient b·n.
    """
    b, n = terms[remainder], remainder.n
    q = remainder.quotient
    if q.terms and all(terms.get(a, 0) == b * n * c for a, c in q.terms):
        for a, _ in q.terms:
            terms[a] = 0
        terms[remainder] = 0
        return remainder.expr * b - q.const * b * n
    for other, c in terms.items():
        if c == b * n and isinstance(other, Mod) and other.expr == q:
            terms[other] = terms[remainder] = 0
            return (remainder.expr % (n * other.n)) * b
    return None


def _divide(e: Affine, n: int) -> tuple[Affine, Affine]:
    """(e // n, e % n), for n > 0."""
    if n <= 0:
        raise ValueError(f"division by {n}")
    if n == 1:
        return e, ZERO
    # e = n·whole + rest, where each coefficient of the rest is less than n (and of its own sign: -1 stays -1).
    whole: dict[Atom, int] = {}
    rest: dict[Atom, int] = {}
    for atom, c in e.terms:
        q = c // n if c > 0 else -(-c // n)
        if q:
            whole[atom] = q
        if c - q * n:
            rest[atom] = c - q * n
    quotient, left = _sum(0, whole), _sum(e.const, rest)

    k = left.low // n
    if left.high // n == k:
        return quotient + k, left - k * n

    # A common factor g of n and of some terms comes out when the other terms together stay inside one multiple of g:
    # with left = g·big + small and 0 <= small < g, left // n = big // (n/g) and left % n = g·(big % (n/g)) + small.
    for g in sorted({gcd(n, c) for _, c in left.terms} - {1}, reverse=True):
        small = _sum(left.const, {a: c for a, c in left.terms if c % g})
        multiple = small.low // g
        if small.high // g == multiple:
            big = _sum(multiple, {a: c // g for a, c in left.terms if c % g == 0})
            above, r = _divide(big, n // g)
            return quotient + above, r * g + (small - multiple * g)

    k, const = divmod(left.const, n)
    return quotient + (_divided(Affine(const, left.terms), n) + k), _remainder(Affine(const, left.terms), n)


def _divided(e: Affine, n: int) -> Affine:
    """`e // n` of what has no common factors to take out."""
    for atom, c in e.terms:
        if c == 1 and isinstance(atom, Div):  # (x // a + r) // n is (x + a·r) // (a·n)
            rest = _sum(e.const, {a: k for a, k in e.terms if a is not atom})
            return (atom.expr + rest * atom.n) // (atom.n * n)
    if len(e.terms) == 1 and e.const == 0:
        ((atom, c),) = e.terms
        if c == 1 and isinstance(atom, Mod) and atom.n % n == 0:  # (x % (n·m)) // n
            return (atom.expr // n) % (atom.n // n)
    return affine_of(Div(e, n))


def _remainder(e: Affine, n: int) -> Affine:
    """`e % n` of what has no common factors to take out."""
    for atom, c in e.terms:
        if isinstance(atom, Mod) and c * atom.n % n == 0:  # c·(x % m) is c·x, as far as n is concerned
            return _divide(_sum(e.const, {a: k for a, k in e.terms if a is not atom}) + atom.expr * c, n)[1]
    return affine_of(Mod(e, n))


def affine_of(atom: Atom) -> Affine:
    return Affine(0, ((atom, 1),))
