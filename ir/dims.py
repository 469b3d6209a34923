"""Extents that are known at run time only: polynomials over named dimensions, such as `n`, `12*n` or `n*l + 1`.

A shape is a tuple of ints and of these. Arithmetic gives an int again where the names cancel out. The value of every
name is at least `LOWEST`: extents of 0 and 1 mean something of their own (nothing to compute, broadcasting), so they
have graphs of their own. What was concluded may hold for 1 as well: `relying` tells.

A question whose answer depends on a name's value, as `n < 64`, raises `Undecided`. So does every use as a number
(`range(n)`, `float(n)`): code that was written for static shapes either is right for open ones, or says what it needs.
Equality is the exception, for shapes are keys: it holds if both sides are the same polynomial. "Not equal" therefore
means "not known to be equal".
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from numbers import Rational
from typing import Any

from gluonjit.common.lazy import cached_property
from gluonjit.ir.types import IRError

LOWEST = 2
"""No named dimension is smaller."""
HINT = 16
"""The value that decisions about speed, not meaning, assume for every name. It is the same whichever sizes a program
has seen, so that they have no influence on its bits."""


class Undecided(IRError):
    """The answer depends on the value of a named dimension."""


Monomial = tuple[str, ...]
"""The names of a product, sorted; a name is there as often as it is a factor."""


def _by_degree(term: tuple[Monomial, int]) -> tuple[int, Monomial]:
    return -len(term[0]), term[0]


class Dim:
    """A polynomial over named dimensions which is not constant: Σ coefficient · monomial, no coefficient 0."""

    __slots__ = ("__dict__", "_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        """`polynomial` is for terms that may cancel out."""
        ordered = sorted(terms.items(), key=_by_degree) if len(terms) > 1 else terms.items()
        self.terms: dict[Monomial, int] = dict(ordered)
        self._hash: int | None = None

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for names in self.terms for name in names)

    def at(self, sizes: Mapping[str, int]) -> int:
        """Its value where the names have values. Raises IRError for a name that has none."""
        missing = sorted(self.names - set(sizes))
        if missing:
            raise IRError(f"the extent {self} needs a size for {', '.join(missing)}")
        return sum(c * math.prod(sizes[name] for name in names) for names, c in self.terms.items())

    def partly_at(self, sizes: Mapping[str, int]) -> Extent:
        """What is left of it where some names have values."""
        out: dict[Monomial, int] = {}
        for names, c in self.terms.items():
            left = tuple(name for name in names if name not in sizes)
            out[left] = out.get(left, 0) + c * math.prod(sizes[name] for name in names if name in sizes)
        return polynomial(out)

    @cached_property
    def low(self) -> int | None:
        """Its least value; None if it has none, or none that can be seen."""
        return self._low_from(LOWEST)

    @cached_property
    def low_from_1(self) -> int | None:
        """`low` if names might be 1: no larger than that, None at least where that is."""
        return self._low_from(1)

    def _low_from(self, lowest: int) -> int | None:
        """The least value where no name is below `lowest`; None if, with every name as `lowest` + something that is not
        negative, some coefficient is negative."""
        if all(c > 0 or not names for names, c in self.terms.items()):
            return sum(c * lowest ** len(names) for names, c in self.terms.items())
        shifted: dict[Monomial, int] = {}
        for names, c in self.terms.items():
            for kept in product((False, True), repeat=len(names)):
                rest = tuple(name for name, keep in zip(names, kept, strict=True) if keep)
                shifted[rest] = shifted.get(rest, 0) + c * lowest ** (len(names) - len(rest))
        if any(c < 0 for names, c in shifted.items() if names):
            return None
        return shifted.get((), 0)

    # ---- arithmetic

    def __add__(self, other: Any) -> Extent:
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        out = dict(self.terms)
        for names, c in terms.items():
            out[names] = out.get(names, 0) + c
        return polynomial(out)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return Dim({names: -c for names, c in self.terms.items()})

    def __pos__(self) -> Dim:
        return self

    def __sub__(self, other: Any) -> Extent:
        return NotImplemented if _terms(other) is None else self + -other

    def __rsub__(self, other: Any) -> Extent:
        return NotImplemented if _terms(other) is None else -self + other

    def __mul__(self, other: Any) -> Extent:
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        if type(other) is int:
            return Dim({names: c * other for names, c in self.terms.items()}) if other else 0
        out: dict[Monomial, int] = {}
        for a, c in self.terms.items():
            for b, d in terms.items():
                names = tuple(sorted(a + b))
                out[names] = out.get(names, 0) + c * d
        return polynomial(out)

    __rmul__ = __mul__

    def __pow__(self, k: Any) -> Extent:
        return math.prod([self] * k) if isinstance(k, int) and k >= 0 else NotImplemented

    def __divmod__(self, other: Any) -> tuple[Extent, Extent]:
        return NotImplemented if _terms(other) is None else _divmod(self, other)

    def __rdivmod__(self, other: Any) -> tuple[Extent, Extent]:
        return NotImplemented if _terms(other) is None else _divmod(other, self)

    def __floordiv__(self, other: Any) -> Extent:
        return NotImplemented if _terms(other) is None else _divmod(self, other)[0]

    def __rfloordiv__(self, other: Any) -> Extent:
        return NotImplemented if _terms(other) is None else _divmod(other, self)[0]

    def __mod__(self, other: Any) -> Extent:
        return NotImplemented if _terms(other) is None else _divmod(self, other)[1]

    def __rmod__(self, other: Any) -> Extent:
        return NotImplemented if _terms(other) is None else _divmod(other, self)[1]

    # ---- questions

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Dim) and self.terms == other.terms)

    def __hash__(self) -> int:
        if self._hash is None:  # most are steps to another one, and nobody asks
            self._hash = hash(tuple(self.terms.items()))
        return self._hash

    def __lt__(self, other: Any) -> bool:
        return NotImplemented if _terms(other) is None else _less(self, other)

    def __gt__(self, other: Any) -> bool:
        return NotImplemented if _terms(other) is None else _less(other, self)

    def __le__(self, other: Any) -> bool:
        return NotImplemented if _terms(other) is None else not _less(other, self)

    def __ge__(self, other: Any) -> bool:
        return NotImplemented if _terms(other) is None else not _less(self, other)

    def __bool__(self) -> bool:
        if _is_certain(self, 1) or _is_certain(-self, 1):
            return True
        raise Undecided(f"whether {self} is 0 depends on {_listed(self.names)}")

    def _number(self, *_: Any) -> Any:
        raise Undecided(f"{self} is not a number before {_listed(self.names)} has a value")

    __index__ = __int__ = __float__ = __truediv__ = __rtruediv__ = __round__ = _number

    def __repr__(self) -> str:
        text = ""
        for names, c in self.terms.items():
            factors = "*".join(([] if abs(c) == 1 and names else [str(abs(c))]) + list(names))
            text += (" - " if c < 0 else " + ") + factors if text else ("-" if c < 0 else "") + factors
        return text.replace(" ", "")


class Reliance(threading.local):
    """Whether an answer was given, on this thread, that would have been another one if names might be 1."""

    noted = False


_reliance = Reliance()


class Relying:
    """See `relying`."""

    noted = False
    """Known at the end of the block."""


@contextmanager
def relying() -> Iterator[Relying]:
    """Tells whether what is concluded within relies on names being at least `LOWEST`.

    Only answers that compare sizes are looked at. That an extent is not equal to 1 is nothing that may be relied on."""
    found, outer = Relying(), _reliance.noted
    _reliance.noted = False
    try:
        yield found
    finally:
        found.noted = _reliance.noted
        _reliance.noted = outer or found.noted


@contextmanager
def right_either_way() -> Iterator[None]:
    """A context for questions of which both answers lead to what is right for all sizes: `relying` does not note
    them."""
    outer = _reliance.noted
    try:
        yield
    finally:
        _reliance.noted = outer


Extent = int | Dim
Shape = tuple[Extent, ...]


def named(name: str) -> Dim:
    """The dimension of that name. Raises IRError for what the text of a graph could not hold."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise IRError(f"{name!r} cannot name a dimension: a small letter, then small letters, digits and _")
    return Dim({(name,): 1})


def polynomial(terms: Mapping[Monomial, int]) -> Extent:
    """Σ coefficient · monomial; an int if it is constant. The constant's monomial is ()."""
    kept = {names: c for names, c in terms.items() if c}
    return Dim(kept) if any(kept) else kept.get((), 0)


_TERM = re.compile(r"([+-]?)(\w+(?:\*\w+)*)", re.ASCII)
MAX_DEGREE = 8


def parse(text: str) -> Extent:
    """The extent that prints as `text`, such as "12*l*n-n+1". Raises IRError for other texts."""
    text = "".join(text.split())
    terms: dict[Monomial, int] = {}
    at = 0
    while at < len(text) or not at:
        m = _TERM.match(text, at)
        factors = m[2].split("*") if m else []
        numbers = [f for f in factors if f.isdigit()]
        if m is None or (at and not m[1]) or any(len(f) > 18 for f in numbers) or len(factors) > MAX_DEGREE:
            raise IRError(f"{text!r} is not an extent: an integer, a name, or a sum of products of them, as 12*n+1")
        names = tuple(sorted(name for f in factors if not f.isdigit() for name in named(f).names))
        c = math.prod(map(int, numbers))
        terms[names] = terms.get(names, 0) + (-c if m[1] == "-" else c)
        at = m.end()
    return polynomial(terms)


def names_of(shape: Iterable[Extent]) -> frozenset[str]:
    """The names in a shape."""
    found: frozenset[str] = frozenset()
    for n in shape:
        if isinstance(n, Dim):
            found |= n.names
    return found


def is_static(shape: Iterable[Extent]) -> bool:
    return not any(isinstance(n, Dim) for n in shape)


def hint(n: Extent) -> int:
    """What decisions about speed assume for an extent; never for what must be right."""
    return n.at(dict.fromkeys(n.names, HINT)) if isinstance(n, Dim) else n


def least(n: Extent) -> int:
    """What an extent that is not 0 is at least, as far as it can be seen."""
    if isinstance(n, int):
        return n
    _reliance.noted |= n.low_from_1 != n.low
    return n.low or 1


def least_usual(n: Extent) -> int:
    """`least` for decisions about speed, which may be wrong where a name is 1."""
    return n if isinstance(n, int) else n.low or 1


def least_of_all(n: Extent) -> int:
    """`least` where names may be 1."""
    return n if isinstance(n, int) else n.low_from_1 or 1


def hinted(shape: Iterable[Extent]) -> tuple[int, ...]:
    return tuple([hint(n) for n in shape])


def at(n: Extent, sizes: Mapping[str, int]) -> int:
    return n.at(sizes) if isinstance(n, Dim) else n


def partly_at(n: Extent, sizes: Mapping[str, int]) -> Extent:
    return n.partly_at(sizes) if isinstance(n, Dim) else n


def is_less(a: Extent, b: Extent) -> bool:
    """Whether a < b is certain."""
    return _is_certain(b - a, 1)


def is_at_most(a: Extent, b: Extent) -> bool:
    """Whether a <= b is certain."""
    return _is_certain(b - a, 0)


def is_equal(a: Extent, b: Extent) -> bool:
    """Whether a == b. Raises Undecided if that depends on a size, which `==` takes for a no."""
    if a == b:
        return True
    if is_less(a, b) or is_less(b, a):
        return False
    raise Undecided(f"whether {a} is {b} depends on {_listed(names_of((a, b)))}")


def are_equal(a: Iterable[Extent], b: Iterable[Extent]) -> bool:
    """Whether two shapes are equal; raises Undecided if that depends on a size."""
    a, b = tuple(a), tuple(b)
    if len(a) != len(b) or any(is_less(m, n) or is_less(n, m) for m, n in zip(a, b, strict=True)):
        return False
    return all(is_equal(m, n) for m, n in zip(a, b, strict=True))


def divides(n: int, e: Extent) -> bool:
    """Whether `e` is certainly a multiple of n."""
    return all(c % n == 0 for c in e.terms.values()) if isinstance(e, Dim) else e % n == 0


def aligned(n: Extent, alignment: int) -> Extent:
    """A multiple of `alignment` that is at least n, whose coefficients must not be negative; for an int the least."""
    if isinstance(n, Dim):
        return Dim({names: -(-c // alignment) * alignment for names, c in n.terms.items()})
    return -(-n // alignment) * alignment


def most(extents: Iterable[Extent]) -> Extent:
    """What is at least as large as each of these, whose coefficients must not be negative; for ints the largest."""
    out: dict[Monomial, int] = {}
    for n in extents:
        for names, c in (n.terms if isinstance(n, Dim) else {(): n}).items():
            out[names] = max(out.get(names, 0), c)
    return polynomial(out)


def leading(n: Extent) -> tuple[Monomial, int]:
    """(monomial m, c) with n <= c·m, where c·m is n itself if that is a single term."""
    if not isinstance(n, Dim):
        return (), n
    powers = {name: max(names.count(name) for names in n.terms) for name in sorted(n.names)}
    return tuple(name for name, k in powers.items() for _ in range(k)), sum(max(c, 0) for c in n.terms.values())


def _terms(x: Any) -> Mapping[Monomial, int] | None:
    if isinstance(x, Dim):
        return x.terms
    if type(x) is int:  # nearly all
        return {(): x}
    # NumPy's integers are no ints; they come from shapes that were computed with arrays.
    if hasattr(x, "__index__"):
        return {(): int(x)}
    if isinstance(x, Rational):  # in bounds of what is rounded down (`codegen/loops/index.py`), never in a shape
        return {(): x}  # type: ignore[dict-item]
    return None


def _is_certain(e: Extent, least: int) -> bool:
    """Whether e >= least is certain."""
    if not isinstance(e, Dim):
        return e >= least
    if e.low_from_1 is not None and e.low_from_1 >= least:
        return True
    if e.low is None or e.low < least:
        return False
    _reliance.noted = True
    return True


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _less(a: Extent, b: Extent) -> bool:
    if is_less(a, b):
        return True
    if is_at_most(b, a):
        return False
    raise Undecided(f"whether {a} < {b} depends on {_listed(names_of((a, b)))}")


def _divmod(a: Extent, b: Extent) -> tuple[Extent, Extent]:
    """(a // b, a % b), for a divisor of one term that is certainly positive."""
    terms, divisor = _terms(a), _terms(b)
    assert terms is not None and divisor is not None
    if len(divisor) != 1 or not is_less(0, b):
        raise Undecided(f"{a} divided by {b} depends on {_listed(names_of((a, b)))}")
    ((by, k),) = divisor.items()
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for names, c in terms.items():
        left = list(names)
        if all(name in left and (left.remove(name) or True) for name in by):  # type: ignore[func-returns-value]
            quotient[tuple(left)], over = divmod(c, k)
            if over:
                rest[names] = over
        else:
            rest[names] = c
    whole, remainder = polynomial(quotient), polynomial(rest)
    if is_at_most(0, remainder) and is_less(remainder, b):
        return whole, remainder
    if is_at_most(-b, remainder) and is_less(remainder, 0):
        return whole - 1, remainder + b
    raise Undecided(f"the remainder of {a} divided by {b} depends on {_listed(names_of((a, b)))}")
