"""The gradient rules of elementwise primitives (`Primitive.vjp`): cotangents of the operands from the result's.

Operands have the result's shape, constants broadcast. Where there is no derivative, MXNet's choice is taken: `abs` has
0 at 0, a tie of `maximum` or `minimum` goes to the first operand. Where MXNet gives NaN although a derivative exists
(`pow` with base or exponent 0), the derivative is given.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gluonjit.ir.types import BOOL, F64, dtype_of

if TYPE_CHECKING:
    from gluonjit.ir.graph import Emitter


Value = Any
Rule = Callable[..., Any]


def _number(b: Emitter, value: float, like: Value) -> Value:
    """A constant of the element type of `like`."""
    return b.constant(value, dtype_of(like))


def zero(b: Emitter, like: Value) -> Value:
    return _number(b, 0, like)


def _times(slope: Callable[[Any, Value, Value], Value]) -> Rule:
    """The rule of a function of one operand from its derivative `slope(b, x, y)`."""
    return lambda b, g, y, x: g * slope(b, x, y)


def _over(divisor: Callable[[Any, Value, Value], Value]) -> Rule:
    """The rule of a function of one operand from the reciprocal of its derivative."""
    return lambda b, g, y, x: g / divisor(b, x, y)


def _rsqrt(b: Emitter, g: Value, y: Value, x: Value) -> Value:
    # y / x rather than y³, which overflows earlier.
    return g * (y * -0.5 / x)


def _div(b: Emitter, g: Value, y: Value, x: Value, by: Value) -> tuple[Value, ...]:
    return b.div(g, by), -b.div(g * y, by)  # of integers, too


def _mod(b: Emitter, g: Value, y: Value, x: Value, by: Value) -> tuple[Value, ...]:
    return g, -(g * b.floor(b.div(x, by)))


def _pow(b: Emitter, g: Value, y: Value, x: Value, exponent: Value) -> tuple[Value | None, ...]:
    none, one = zero(b, x), _number(b, 1, x)
    at_0 = b.eq(x, none)
    away_from_0 = b.select(at_0, one, x)
    # x**0 is 1 everywhere, and 0 * x**-1 has no value at 0. 0**p does not depend on p > 0, and log(0) has none either.
    # What is selected comes before the operation: a second derivative flows through what a select discards.
    base = b.select(b.eq(exponent, none), away_from_0, x)
    slope = exponent * b.pow(base, exponent - one)
    by_exponent = g * (y * b.log(away_from_0)) if dtype_of(x).is_float else None
    return g * slope, by_exponent


def _extremum(first_wins: Callable[[Value, Value], Value]) -> Rule:
    def rule(b: Emitter, g: Value, y: Value, x: Value, other: Value) -> tuple[Value, ...]:
        first, none = first_wins(x, other), zero(b, g)
        return b.select(first, g, none), b.select(first, none, g)

    return rule


def _atan2(b: Emitter, g: Value, y: Value, x: Value, other: Value) -> tuple[Value, ...]:
    scaled = g / (x * x + other * other)
    return scaled * other, -(scaled * x)


def _hypot(b: Emitter, g: Value, y: Value, x: Value, other: Value) -> tuple[Value, ...]:
    at_0 = b.eq(y, zero(b, y))
    length = b.select(at_0, _number(b, 1, y), y)
    return g * (x / length), g * (other / length)


_TRIGAMMA_SERIES = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
"""The Bernoulli numbers B2, B4, …, coefficients of z**-3, z**-5, … in the asymptotic series."""
_TRIGAMMA_SHIFTS = 9
"""From z = 9 on the series is exact to 1e-15."""


def _trigamma(b: Emitter, x: Value) -> Value:
    """The derivative of digamma, in f64: the asymptotic series at z >= 9, which trigamma(z) = trigamma(z + 1) + 1/z²
    leads to; for negative x by reflection, trigamma(1 - x) + trigamma(x) = π² / sin²(π x)."""
    wide = b.cast(x, dtype=F64)
    negative = wide < 0
    z = b.select(negative, 1 - wide, wide)
    total = wide * 0
    for _ in range(_TRIGAMMA_SHIFTS):
        small = z < _TRIGAMMA_SHIFTS
        total = b.select(small, total + 1 / (z * z), total)
        z = b.select(small, z + 1, z)
    inverse = 1 / z
    square = inverse * inverse
    series = b.constant(_TRIGAMMA_SERIES[-1], F64)
    for coefficient in _TRIGAMMA_SERIES[-2::-1]:
        series = series * square + coefficient
    series = series * square * inverse + inverse + square * 0.5
    positive = total + series
    sine = b.sin(math.pi * (wide - b.rint(wide)))
    reflected = math.pi**2 / (sine * sine) - positive
    return b.cast(b.select(negative, reflected, positive), dtype=dtype_of(x))


def select(b: Emitter, g: Value, y: Value, cond: Value, x: Value, other: Value) -> tuple[Value | None, ...]:
    none = zero(b, g)
    return None, b.select(cond, g, none), b.select(cond, none, g)


def cast(b: Emitter, g: Value, y: Value, x: Value, dtype: Any) -> Value | None:
    # Through integers, too, as in MXNet, where a gradient has the type of what it belongs to.
    return None if dtype_of(x) is BOOL else b.cast(g, dtype=dtype_of(x))


RULES: dict[str, Rule] = {
    "neg": lambda b, g, y, x: -g,
    "abs": _times(lambda b, x, y: b.sign(x)),
    "exp": _times(lambda b, x, y: y),
    "expm1": _times(lambda b, x, y: y + 1),
    "log": _over(lambda b, x, y: x),
    "log1p": _over(lambda b, x, y: x + 1),
    "log2": _over(lambda b, x, y: x * math.log(2)),
    "log10": _over(lambda b, x, y: x * math.log(10)),
    "sqrt": _over(lambda b, x, y: y * 2),
    "rsqrt": _rsqrt,
    "cbrt": _over(lambda b, x, y: y * y * 3),
    "sin": _times(lambda b, x, y: b.cos(x)),
    "cos": _times(lambda b, x, y: -b.sin(x)),
    "tan": _times(lambda b, x, y: y * y + 1),
    "asin": _over(lambda b, x, y: b.sqrt(1 - x * x)),
    "acos": _over(lambda b, x, y: -b.sqrt(1 - x * x)),
    "atan": _over(lambda b, x, y: x * x + 1),
    "sinh": _times(lambda b, x, y: b.cosh(x)),
    "cosh": _times(lambda b, x, y: b.sinh(x)),
    "tanh": _times(lambda b, x, y: 1 - y * y),
    "asinh": _over(lambda b, x, y: b.sqrt(x * x + 1)),
    "acosh": _over(lambda b, x, y: b.sqrt(x * x - 1)),
    "atanh": _over(lambda b, x, y: 1 - x * x),
    "sigmoid": _times(lambda b, x, y: y * (1 - y)),
    "erf": _times(lambda b, x, y: b.exp(-(x * x)) * (2 / math.sqrt(math.pi))),
    "erfinv": _times(lambda b, x, y: b.exp(y * y) * (math.sqrt(math.pi) / 2)),
    "lgamma": _times(lambda b, x, y: b.digamma(x)),
    "digamma": _times(lambda b, x, y: _trigamma(b, x)),
    "add": lambda b, g, y, x, other: (g, g),
    "sub": lambda b, g, y, x, other: (g, -g),
    "mul": lambda b, g, y, x, other: (g * other, g * x),
    "div": _div,
    "mod": _mod,
    "pow": _pow,
    "maximum": _extremum(operator.ge),
    "minimum": _extremum(operator.le),
    "atan2": _atan2,
    "hypot": _hypot,
}
"""The rules by primitive; those that are missing are constant almost everywhere."""
