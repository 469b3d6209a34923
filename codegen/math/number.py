"""`Num`: a `Val` with the operators of formulas (`ir/formulas.py`), so that the code of `vecmath` reads like them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gluonjit.codegen.math.values import Val
from gluonjit.ir.formulas import Formula
from gluonjit.ir.types import F32, F64, I32, I64, DType


class Num(Formula):
    """A value with operators. Python numbers on the other side become constants of the same type.

    Comparisons give a bool `Num`, for `where` and `&`, `|`. On integers `>>` fills with zeros; `sar` keeps the sign.
    """

    __slots__ = ("s", "v")

    def __init__(self, s: Any, v: Val) -> None:
        self.s, self.v = s, v

    def of(self, x: Any) -> Num:
        """`x` as a value of this type."""
        return x if isinstance(x, Num) else Num(self.s, self.s.constant(x, self.v.dtype))

    def _emit(self, name: str, *operands: Any) -> Num:
        return Num(self.s, getattr(self.s, name)(*(self.of(x).v for x in operands)))

    def equals(self, x: Any) -> Num:
        return self._emit("eq", self, x)

    def differs(self, x: Any) -> Num:
        """Not equal; true for NaN."""
        return self._emit("ne", self, x)

    def __lshift__(self, n: int) -> Num:
        return self._emit("shift_left", self, n)

    def __rshift__(self, n: int) -> Num:
        return self._emit("shift_right", self, n)

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
        return self._emit("sqrt", self)

    def rint(self) -> Num:
        return self._emit("rint", self)

    def minimum(self, x: Any) -> Num:
        return self._emit("minimum", self, x)

    def maximum(self, x: Any) -> Num:
        return self._emit("maximum", self, x)

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
