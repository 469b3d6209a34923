"""`Num`: a `Val` with Python's operators, so that the code of `vecmath` reads like its formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gluonjit.codegen.math.values import Val
from gluonjit.ir.types import F32, F64, I32, I64, DType


class Num:
    """A value with operators. Python numbers on the other side become constants of the same type.

    Comparisons give a bool `Num`, for `where` and `&`, `|`. On integers `>>` fills with zeros; `sar` keeps the sign.
    """

    __slots__ = ("s", "v")

    def __init__(self, s: Any, v: Val) -> None:
        self.s, self.v = s, v

    def of(self, x: Any) -> Num:
        """`x` as a value of this type."""
        return x if isinstance(x, Num) else Num(self.s, self.s.constant(x, self.v.dtype))

    def _do(self, name: str, *others: Any) -> Num:
        return Num(self.s, getattr(self.s, name)(self.v, *(self.of(x).v for x in others)))

    def __add__(self, x: Any) -> Num:
        return self._do("add", x)

    def __radd__(self, x: Any) -> Num:
        return self.of(x)._do("add", self)

    def __sub__(self, x: Any) -> Num:
        return self._do("sub", x)

    def __rsub__(self, x: Any) -> Num:
        return self.of(x)._do("sub", self)

    def __mul__(self, x: Any) -> Num:
        return self._do("mul", x)

    def __rmul__(self, x: Any) -> Num:
        return self.of(x)._do("mul", self)

    def __truediv__(self, x: Any) -> Num:
        return self._do("div", x)

    def __rtruediv__(self, x: Any) -> Num:
        return self.of(x)._do("div", self)

    def __neg__(self) -> Num:
        return self._do("neg")

    def __abs__(self) -> Num:
        return self._do("abs")

    def __lt__(self, x: Any) -> Num:
        return self._do("lt", x)

    def __le__(self, x: Any) -> Num:
        return self._do("le", x)

    def __gt__(self, x: Any) -> Num:
        return self._do("gt", x)

    def __ge__(self, x: Any) -> Num:
        return self._do("ge", x)

    def equals(self, x: Any) -> Num:
        return self._do("eq", x)

    def differs(self, x: Any) -> Num:
        """Not equal; true for NaN."""
        return self._do("ne", x)

    def __and__(self, x: Any) -> Num:
        return self._do("and", x)

    def __or__(self, x: Any) -> Num:
        return self._do("or", x)

    def __xor__(self, x: Any) -> Num:
        return self._do("xor", x)

    def __invert__(self) -> Num:
        return self._do("not")

    def __lshift__(self, n: int) -> Num:
        return self._do("shift_left", n)

    def __rshift__(self, n: int) -> Num:
        return self._do("shift_right", n)

    def sar(self, n: int) -> Num:
        return Num(self.s, self.s.emit("ashr {t} {0}, {1}", self.v.dtype, self.v, self.of(n).v))

    def bits(self) -> Num:
        """A float's bits, as the integer of the same width."""
        return Num(self.s, self.s.bitcast(self.v, I64 if self.v.dtype is F64 else I32))

    def as_float(self) -> Num:
        """The float that has these bits."""
        return Num(self.s, self.s.bitcast(self.v, F64 if self.v.dtype is I64 else F32))

    def to(self, dtype: DType) -> Num:
        """The number converted to another type (not its bits reinterpreted)."""
        return Num(self.s, self.s.cast(self.v, dtype))

    def sqrt(self) -> Num:
        return self._do("sqrt")

    def rint(self) -> Num:
        return self._do("rint")

    def minimum(self, x: Any) -> Num:
        return self._do("minimum", x)

    def maximum(self, x: Any) -> Num:
        return self._do("maximum", x)

    def with_sign_of(self, x: Num) -> Num:
        return Num(self.s, self.s.copysign(self.v, x.v))


def fma(a: Num, b: Any, c: Any) -> Num:
    """a·b + c, in one rounding where the machine has it."""
    return Num(a.s, a.s.fma(a.v, a.of(b).v, a.of(c).v))


def where(condition: Num, a: Any, b: Any) -> Num:
    """a where the condition holds, else b; one of them must be a `Num`."""
    like = a if isinstance(a, Num) else b
    return Num(like.s, like.s.select(condition.v, like.of(a).v, like.of(b).v))


def polynomial(x: Num, coefficients: Sequence[float]) -> Num:
    """c[0] + c[1] x + c[2] x² + …, by Horner's rule."""
    y = x.of(coefficients[-1])
    for c in coefficients[-2::-1]:
        y = fma(y, x, c)
    return y
