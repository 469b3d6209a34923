"""Index expressions: integers that are affine in loop variables, with exact `//` and `%`.

Every movement primitive is a map of indices, and the composition of such maps is what decides whether a loop reads
memory contiguously. A reshape, for one, is `//` and `%` of a flat index; composed with its inverse, or with a loop that
runs over merged axes, they must vanish again. So an expression is kept as a sum of coefficient · atom plus a constant,
where atoms are variables with a known range, and the quotients and remainders that could not be simplified away:

    e // n  →  drops what n divides, when the rest stays inside one multiple of n (by the ranges)
    n·(e // n) + e % n  →  e            n·((e // n) % m) + e % n  →  e % (n·m)

A gather by known indices looks its index up in a table, which is an atom, too (`lookup`).

Coefficients, constants, divisors and bounds may be open extents (`ir/dims.py`): `(i·l + j) // l` is i for j < l,
whatever l is. A simplification that holds for some sizes only is left out, and a bound that nobody can know is one of
an i64.

`//` rounds down and `%` is never negative, as in Python. Expressions are immutable and compare by value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import gcd
from typing import Any, ClassVar

import numpy as np

from gluonjit.common.lazy import cached_property
from gluonjit.ir.dims import Dim, Extent, Monomial, Undecided, hint, is_at_most, is_less, polynomial
from gluonjit.ir.windows import row_major

_serial = itertools.count()

LEAST, LARGEST = -(2**63), 2**63 - 1
"""The bounds of what nothing is known about."""


class Atom:
    """What an expression is affine in. `low` and `high`, extents, bound its value, both inclusive."""

    low: Any
    high: Any
    key: tuple[Any, ...]
    _hash: int
    size: int
    """Number of terms, those of what is divided included."""
    is_open = False
    """Whether its definition has open extents in it, so that nobody knows its values where its variables have some."""

    @property
    def leaves(self) -> frozenset[Var]:
        """The variables it depends on."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self.key == other.key)

    def __hash__(self) -> int:
        return self._hash

    def _name(self, key: tuple[Any, ...]) -> None:
        self.key = key
        self._hash = hash(key)


class Var(Atom):
    """A variable: of a loop, a lane number, or any integer known at run time only. Each is itself alone."""

    def __init__(self, name: str, low: Extent, high: Extent) -> None:
        self.name = name
        self.low, self.high = low, high
        self._name((0, next(_serial)))
        self.size = 1

    @property
    def leaves(self) -> frozenset[Var]:
        return frozenset((self,))  # not kept: it refers to the variable

    def __repr__(self) -> str:
        return self.name


class Named(Var):
    """A variable that stands for an expression which has become too long to simplify."""

    def __init__(self, expr: Affine) -> None:
        super().__init__("at", expr.low, expr.high)
        self.expr = expr

    @property
    def leaves(self) -> frozenset[Var]:
        return self.expr.leaves | {self}


class _Quotient(Atom):
    """`expr // n` or `expr % n`, which nothing simplifies: n > 1, and the constant of `expr` is in [0, n)."""

    symbol: str

    def __init__(self, expr: Affine, n: Extent) -> None:
        self.expr, self.n = expr, n
        self.is_open = isinstance(n, Dim) or expr.is_open
        # The key is what terms are sorted by, so there are only ints in it.
        self._name((self.kind, _rank(n), _ranked(expr)) if self.is_open else (self.kind, n, expr.key))
        self.size = expr.size + 1
        self.low, self.high = self._range()

    kind: int

    @property
    def leaves(self) -> frozenset[Var]:
        return self.expr.leaves

    def _range(self) -> tuple[Extent, Extent]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"({self.expr} {self.symbol} {self.n})"


class Div(_Quotient):
    kind, symbol = 1, "//"

    def _range(self) -> tuple[Extent, Extent]:
        low, high, n = self.expr.low, self.expr.high, self.n
        if type(low) is int and type(high) is int and type(n) is int:
            return low // n, high // n
        return _least_quotient(low, n), _largest_quotient(high, n)


class Mod(_Quotient):
    kind, symbol = 2, "%"

    def _range(self) -> tuple[Extent, Extent]:
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
        self.is_open = expr.is_open
        key = _ranked(expr) if self.is_open else expr.key
        self._name((3, self._numbers.setdefault(table, next(_serial)), key))
        self.size = expr.size + 1
        self.low, self.high = min(table), max(table)

    @property
    def leaves(self) -> frozenset[Var]:
        return self.expr.leaves

    def __repr__(self) -> str:
        return f"table[{self.expr}]"


class Affine:
    """const + Σ coefficient · atom. `terms` are sorted, with no zero coefficients.

    Many are steps to another one, and nobody asks for their bounds or compares them: these are computed on demand."""

    __slots__ = ("_hash", "_high", "_key", "_leaves", "_low", "_parts", "_size", "const", "terms")

    def __init__(self, const: Extent, terms: tuple[tuple[Atom, Extent], ...] = ()) -> None:
        self.const = const
        self.terms = terms
        self._low: Any = None
        self._high: Any = None
        self._size: int | None = None
        self._key: tuple[Any, ...] | None = None
        self._hash: int | None = None
        self._leaves: frozenset[Var] | None = None
        self._parts: tuple[Extent, tuple[Affine, Affine]] | None = None
        """The last divisor, with quotient and remainder: most who ask for one of these want the other, too."""

    @property
    def low(self) -> Any:
        """The value is at least this."""
        if self._low is None:
            self._bound()
        return self._low

    @property
    def high(self) -> Any:
        """The value is at most this."""
        if self._high is None:
            self._bound()
        return self._high

    def _bound(self) -> None:
        low = high = self.const
        try:
            for atom, c in self.terms:
                if c > 0:
                    low += c * atom.low
                    high += c * atom.high
                else:
                    low += c * atom.high
                    high += c * atom.low
        except Undecided:  # the sign of an open coefficient
            low, high = LEAST, LARGEST
        self._low, self._high = low, high

    @property
    def size(self) -> int:
        """Number of terms, those of what is divided included."""
        if self._size is None:
            self._size = sum([atom.size for atom, _ in self.terms])
        return self._size

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal expressions."""
        if self._key is None:
            self._key = (self.const, tuple([(a.key, c) for a, c in self.terms]))
        return self._key

    @property
    def is_open(self) -> bool:
        """Whether there is an open extent in it, other than as a bound of a variable."""
        return isinstance(self.const, Dim) or any(isinstance(c, Dim) or atom.is_open for atom, c in self.terms)

    @property
    def leaves(self) -> frozenset[Var]:
        """The variables it depends on."""
        if self._leaves is None:
            if len(self.terms) == 1:
                self._leaves = self.terms[0][0].leaves
            else:
                self._leaves = _NONE.union(*[a.leaves for a, _ in self.terms])
        return self._leaves

    def is_multiple_of(self, n: int) -> bool:
        """Whether the value is a multiple of n for all values of its atoms, as far as the coefficients tell."""
        return divides(n, self.const) and all(divides(n, c) for _, c in self.terms)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Affine) and self.key == other.key)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.key)
        return self._hash

    def __repr__(self) -> str:
        parts = [f"{a}" if c == 1 else f"{c}*{a}" for a, c in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)

    def coefficient(self, var: Var) -> Any:
        """The coefficient of `var`, an extent; None if the value is not linear in it."""
        found: Extent = 0
        for atom, c in self.terms:
            if atom is var:
                found = c
            elif var in atom.leaves:
                return None
        return found

    def __add__(self, other: Any) -> Affine:
        if isinstance(other, int):
            return Affine(self.const + other, self.terms) if other else self
        if isinstance(other, Dim):
            return Affine(self.const + other, self.terms)
        if not isinstance(other, Affine):
            return NotImplemented
        if not other.terms:
            return Affine(self.const + other.const, self.terms) if other.const != 0 else self
        if not self.terms:
            return Affine(self.const + other.const, other.terms) if self.const != 0 else other
        terms = dict(self.terms)
        for atom, c in other.terms:
            terms[atom] = terms.get(atom, 0) + c
        return _sum(self.const + other.const, terms)

    __radd__ = __add__

    def __mul__(self, k: Any) -> Affine:
        if not isinstance(k, (int, Dim)):
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
        if not isinstance(n, (int, Dim)):
            return NotImplemented
        return _divide(self, n)[0]

    def __mod__(self, n: Any) -> Affine:
        if not isinstance(n, (int, Dim)):
            return NotImplemented
        return _divide(self, n)[1]

    def substitute(self, values: Mapping[Var, Affine | Extent]) -> Affine:
        """The expression with variables replaced, simplified anew."""
        if self.leaves.isdisjoint(values):
            return self
        parts = [(_substituted(atom, values), c) for atom, c in self.terms]
        linear = _linear(self.const, parts)
        if linear is not None:
            return linear
        out = Affine(self.const)
        for part, c in parts:
            out = out + part * c
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


def affine(x: Affine | Var | Extent) -> Affine:
    """`x` as an expression."""
    if isinstance(x, Affine):
        return x
    if isinstance(x, Var):
        return Affine(0, ((x, 1),))
    return Affine(x if isinstance(x, Dim) else int(x))


def variable(name: str, extent: Extent) -> Affine:
    """A new variable in [0, extent); one of extent 1 is the constant 0."""
    return ZERO if extent == 1 else affine(Var(name, 0, extent - 1))


def counter(name: str, n: Extent, size: int, last: bool = False) -> Var:
    """A variable that counts blocks of `size` among n elements, those that are whole; with `last`, it may also be the
    number of the block in which the others are. Its bound may be a fraction: n / size, rounded down, has no name."""
    if not isinstance(n, Dim):
        return Var(name, 0, n // size - 1 + last)
    bound = {names: Fraction(c, size) for names, c in n.terms.items()}
    bound[()] = bound.get((), Fraction(0)) - 1 + last
    return Var(name, 0, Dim({names: int(c) if c.denominator == 1 else c for names, c in bound.items() if c}))  # type: ignore[misc]


def flat(index: Iterable[Affine | Extent], shape: Iterable[Extent], strides: Iterable[Extent] | None = None) -> Affine:
    """The position of `index` in an array of `shape`, row-major unless it has `strides`."""
    parts, shape = [i if isinstance(i, Affine) else affine(i) for i in index], tuple(shape)
    linear = _linear(0, zip(parts, row_major(shape) if strides is None else strides, strict=True))
    if linear is not None:
        return linear
    out = ZERO
    if strides is not None:
        for i, step in zip(parts, strides, strict=True):
            out = out + i * step
        return out
    for i, n in zip(parts, shape, strict=True):
        out = out * n + i
    return out


def lookup(table: Sequence[int], e: Affine) -> Affine:
    """`table[e]`, for 0 <= e < len(table); of another e, as there may be beside padding, any number."""
    low, high = (e.low, e.high) if type(e.low) is int and type(e.high) is int else (0, len(table) - 1)
    low = max(low, 0)
    part = table[low : max(high, 0) + 1]
    step = part[1] - part[0] if len(part) > 1 else 0
    if all(b - a == step for a, b in zip(part, part[1:])):
        return (e - low) * step + part[0] if part else Affine(0)
    return affine_of(Lookup(tuple(table), e))


def is_inside(e: Affine, low: Extent, high: Extent) -> bool | None:
    """Whether low <= e < high for all values of e; None if not for all, or if nobody can know."""
    if is_at_most(low, e.low) and is_less(e.high, high):
        return True
    if is_less(e.high, low) or is_at_most(high, e.low):
        return False
    return None


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


def _substituted(atom: Atom, values: Mapping[Var, Affine | Extent]) -> Affine:
    if isinstance(atom, _Quotient):
        inner = atom.expr.substitute(values)
        return inner // atom.n if isinstance(atom, Div) else inner % atom.n
    if isinstance(atom, Lookup):
        return lookup(atom.table, atom.expr.substitute(values))
    assert isinstance(atom, Var)
    return affine(values.get(atom, atom))


def _linear(const: Extent, parts: Iterable[tuple[Affine, Extent]]) -> Affine | None:
    """const + Σ part · coefficient, at once; None if a remainder is in it, which `_sum` might put together with its
    quotient."""
    terms: dict[Atom, Extent] = {}
    for part, by in parts:
        if part.const != 0:
            const += part.const * by
        for atom, c in part.terms:
            if isinstance(atom, Mod):
                return None
            before = terms.get(atom)
            terms[atom] = c * by if before is None else before + c * by
    kept = [term for term in terms.items() if term[1] != 0]
    if len(kept) > 1:
        kept.sort(key=lambda term: term[0].key)
    return Affine(const, tuple(kept))


def _sum(const: Extent, terms: dict[Atom, Extent]) -> Affine:
    """The sum, with quotients and their remainders put together again."""
    again = True
    while again:
        again = False
        for atom in terms:
            if isinstance(atom, Mod) and terms[atom] != 0:
                joined = _recombined(atom, terms)
                if joined is not None:
                    const += joined.const
                    for a, c in joined.terms:
                        terms[a] = terms.get(a, 0) + c
                    again = True
                    break
    kept = [(a, c) for a, c in terms.items() if c != 0]
    if len(kept) > 1:
        kept.sort(key=lambda term: term[0].key)
    return Affine(const, tuple(kept))


def _recombined(remainder: Mod, terms: dict[Atom, Extent]) -> Affine | None:
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


def _divide(e: Affine, n: Extent) -> tuple[Affine, Affine]:
    """(e // n, e % n), for n > 0."""
    if n == 1:
        return e, ZERO
    if e._parts is None or e._parts[0] != n:
        e._parts = n, _divide_anew(e, n)
    return e._parts[1]


def _divide_anew(e: Affine, n: Extent) -> tuple[Affine, Affine]:
    if type(n) is int and type(e.low) is int and type(e.high) is int:
        if n <= 0:
            raise ValueError(f"division by {n}")
        try:
            return _divide_known(e, n)
        except Undecided:  # coefficients are open, though the bounds are not
            pass
    return _divide_open(e, n)


def _divide_known(e: Affine, n: int) -> tuple[Affine, Affine]:
    """(e // n, e % n), for n > 1."""
    # e = n·whole + rest, where each coefficient of the rest is less than n (and of its own sign: -1 stays -1).
    whole: dict[Atom, Extent] = {}
    rest: dict[Atom, Extent] = {}
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


def _divide_open(e: Affine, n: Extent) -> tuple[Affine, Affine]:
    """`_divide` where anything may be open; what only holds for some sizes is left as it is."""
    if not is_less(0, n):
        raise Undecided(f"division of an index by {n}, which may be 0 or less")
    whole: dict[Atom, Extent] = {}
    rest: dict[Atom, Extent] = {}
    for atom, c in e.terms:
        q, over = split(c, n)
        if over != 0 and len(_terms_of(n)) > 1:
            q, over = 0, c
        if q != 0:
            whole[atom] = q
        if over != 0:
            rest[atom] = over
    quotient, left = _sum(0, whole), _sum(e.const, rest)
    if whole and type(n) is int and type(left.low) is int and type(left.high) is int:
        above, r = _divide(left, n)
        return quotient + above, r

    k = _quotient_of_all(left, n)
    if k is not None:
        return quotient + k, left + k * n * -1

    for g in _factors(n, left):
        small = _sum(left.const, {a: c for a, c in left.terms if _ratio(c, g) is None})
        multiple, parts = _quotient_of_all(small, g), _ratio(n, g)
        if multiple is not None and parts is not None:
            big = _sum(multiple, {a: ratio for a, c in left.terms if (ratio := _ratio(c, g)) is not None})
            above, r = _divide(big, parts)
            return quotient + above, r * g + (small + multiple * g * -1)

    k, const = split(left.const, n)
    if is_less(const, 0):
        k, const = k - 1, const + n
    return quotient + (_divided(Affine(const, left.terms), n) + k), _remainder(Affine(const, left.terms), n)


# ---- open extents


def divides(n: Extent, c: Extent) -> bool:
    """Whether c is certainly a multiple of n."""
    return c % n == 0 if type(c) is int and type(n) is int else _ratio(c, n) is not None


def split(c: Extent, n: Extent) -> tuple[Extent, Extent]:
    """(q, r) with c = q·n + r, where r has no multiples of n's first term any more; of ints, r has the sign of c."""
    if not isinstance(n, Dim):
        terms = c.terms if isinstance(c, Dim) else {(): c}
        q = polynomial({names: k // n if k > 0 else -(-k // n) for names, k in terms.items()})
        return q, c - q * n
    (by, divisor), *_ = n.terms.items()
    q, r = 0, c
    while True:
        for names, k in (r.terms if isinstance(r, Dim) else {(): r}).items():
            rest = _without(names, by)
            part = (k // divisor if k * divisor > 0 else -(-k // divisor)) if rest is not None else 0
            if part:
                assert rest is not None
                step = polynomial({rest: part})
                q, r = q + step, r - step * n
                break
        else:
            return q, r


def _without(names: Monomial, by: Monomial) -> Monomial | None:
    """A monomial divided by another; None if it is no multiple."""
    left = list(names)
    for name in by:
        if name not in left:
            return None
        left.remove(name)
    return tuple(left)


def _ratio(c: Extent, n: Extent) -> Extent | None:
    """c / n if c is certainly a multiple of n, else None."""
    q, r = split(c, n)
    return q if r == 0 else None


def _factors(n: Extent, e: Affine) -> list[Extent]:
    """Common factors of n and of coefficients, all positive, the largest first."""
    found: dict[Extent, None] = {}
    for _, c in e.terms:
        size = c if is_less(0, c) else c * -1
        if is_less(0, size) and _ratio(n, size) is not None:
            found[size] = None
        found[_content((n, c))] = None
    found.pop(1, None)
    return sorted(found, key=hint, reverse=True)


def _content(extents: Sequence[Extent]) -> Extent:
    """The largest term that divides every term of these."""
    all = [term for e in extents for term in _terms_of(e)]
    k = gcd(*(c for _, c in all))
    common = list(all[0][0])
    for names, _ in all[1:]:
        left = list(names)
        common = [name for name in common if name in left and (left.remove(name) or True)]  # type: ignore[func-returns-value]
    return polynomial({tuple(common): k})


def _terms_of(e: Extent) -> list[tuple[Monomial, int]]:
    return list(e.terms.items()) if isinstance(e, Dim) else [((), e)]


def _quotient_of_all(e: Affine, n: Extent) -> Extent | None:
    """`e // n` if it is the same for all values of e."""
    k = _least_quotient(e.low, n, None)
    return k if k is not None and is_less(e.high, (k + 1) * n) else None


def _least_quotient(low: Extent, n: Extent, otherwise: Any = LEAST) -> Any:
    """A k that is at most `low // n`, the largest that is easily found."""
    k = _floor(low, n)
    for q in (k, k - 1):
        if is_at_most(q * n, low):
            return q
    return 0 if is_at_most(0, low) else low if is_at_most(low, 0) and otherwise is not None else otherwise


def _largest_quotient(high: Extent, n: Extent) -> Extent:
    """A k that is at least `high // n`, the least that is easily found."""
    k = _floor(high, n)
    for q in (k - 1, k):
        if is_less(high, (q + 1) * n):
            return q
    return high if is_at_most(0, high) else LARGEST


def _floor(bound: Extent, n: Extent) -> Extent:
    """About bound / n: its terms divided and rounded, as bounds may have fractions."""
    whole = (
        polynomial({names: int(c // 1) for names, c in _terms_of(bound)}) if isinstance(bound, Dim) else int(bound // 1)
    )
    return split(whole, n)[0]


def _rank(n: Extent) -> int:
    """An int that is different for different extents; an int is itself."""
    return n if not isinstance(n, Dim) else int.from_bytes(b"\1" * 9 + str(n).encode(), "big")


def _ranked(e: Affine) -> tuple[Any, ...]:
    """The key of an expression, with ints for open extents."""
    return _rank(e.const), tuple([(atom.key, _rank(c)) for atom, c in e.terms])


def _divided(e: Affine, n: Extent) -> Affine:
    """`e // n` of what has no common factors to take out."""
    for atom, c in e.terms:
        if c == 1 and isinstance(atom, Div):  # (x // a + r) // n is (x + a·r) // (a·n)
            rest = _sum(e.const, {a: k for a, k in e.terms if a is not atom})
            return (atom.expr + rest * atom.n) // (atom.n * n)
    if len(e.terms) == 1 and e.const == 0:
        ((atom, c),) = e.terms
        if c == 1 and isinstance(atom, Mod) and divides(n, atom.n):  # (x % (n·m)) // n
            return (atom.expr // n) % split(atom.n, n)[0]
    return affine_of(Div(e, n))


def _remainder(e: Affine, n: Extent) -> Affine:
    """`e % n` of what has no common factors to take out."""
    for atom, c in e.terms:
        if isinstance(atom, Mod) and divides(n, c * atom.n):  # c·(x % m) is c·x, as far as n is concerned
            return _divide(_sum(e.const, {a: k for a, k in e.terms if a is not atom}) + atom.expr * c, n)[1]
    return affine_of(Mod(e, n))


def affine_of(atom: Atom) -> Affine:
    return Affine(0, ((atom, 1),))
