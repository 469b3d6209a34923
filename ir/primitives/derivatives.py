"""The gradient rules of elementwise primitives (`Primitive.vjp`): cotangents of the operands from the result's.

Operands have the result's shape, constants broadcast. Where there is no derivative, MXNet's choice is taken: `abs` has
0 at 0, a tie of `maximum` or `minimum` goes to the first operand. Where MXNet gives NaN although a derivative exists
(`pow` with base or exponent 0), the derivative is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gluonjit.ir.types import BOOL, F64, dtype_of

Value = Any
Rule = Callable[..., Any]


def _number(b: Any, value: float, like: Value) -> Value:
    """A constant of the element type of `like`."""
    return b.constant(value, dtype_of(like))


def zero(b: Any, like: Value) -> Value:
    return _number(b, 0, like)


def _times(slope: Callable[[Any, Value, Value], Value]) -> Rule:
    """The rule of a function of one operand from its derivative `slope(b, x, y)`."""
    return lambda b, g, y, x: b.mul(g, slope(b, x, y))


def _over(divisor: Callable[[Any, Value, Value], Value]) -> Rule:
    """The rule of a function of one operand from the reciprocal of its derivative."""
    return lambda b, g, y, x: b.div(g, divisor(b, x, y))


def _one_plus(b: Any, x: Value) -> Value:
    return b.add(x, _number(b, 1, x))


def _one_minus(b: Any, x: Value) -> Value:
    return b.sub(_number(b, 1, x), x)


def _square(b: Any, x: Value) -> Value:
    return b.mul(x, x)


def _scaled(b: Any, x: Value, factor: float) -> Value:
    return b.mul(x, _number(b, factor, x))


def _rsqrt(b: Any, g: Value, y: Value, x: Value) -> Value:
    # y / x rather than y³, which overflows earlier.
    return b.mul(g, b.div(_scaled(b, y, -0.5), x))


def _div(b: Any, g: Value, y: Value, x: Value, by: Value) -> tuple[Value, ...]:
    return b.div(g, by), b.neg(b.div(b.mul(g, y), by))


def _mod(b: Any, g: Value, y: Value, x: Value, by: Value) -> tuple[Value, ...]:
    return g, b.neg(b.mul(g, b.floor(b.div(x, by))))


def _pow(b: Any, g: Value, y: Value, x: Value, exponent: Value) -> tuple[Value | None, ...]:
    none, one = zero(b, x), _number(b, 1, x)
    at_0 = b.eq(x, none)
    away_from_0 = b.select(at_0, one, x)
    # x**0 is 1 everywhere, and 0 * x**-1 has no value at 0. 0**p does not depend on p > 0, and log(0) has none either.
    # What is selected comes before the operation: a second derivative flows through what a select discards.
    base = b.select(b.eq(exponent, none), away_from_0, x)
    slope = b.mul(exponent, b.pow(base, b.sub(exponent, one)))
    by_exponent = b.mul(g, b.mul(y, b.log(away_from_0))) if dtype_of(x).is_float else None
    return b.mul(g, slope), by_exponent


def _extremum(first_wins: str) -> Rule:
    def rule(b: Any, g: Value, y: Value, x: Value, other: Value) -> tuple[Value, ...]:
        first, none = getattr(b, first_wins)(x, other), zero(b, g)
        return b.select(first, g, none), b.select(first, none, g)

    return rule


def _atan2(b: Any, g: Value, y: Value, x: Value, other: Value) -> tuple[Value, ...]:
    scaled = b.div(g, b.add(_square(b, x), _square(b, other)))
    return b.mul(scaled, other), b.neg(b.mul(scaled, x))


def _hypot(b: Any, g: Value, y: Value, x: Value, other: Value) -> tuple[Value, ...]:
    at_0 = b.eq(y, zero(b, y))
    length = b.select(at_0, _number(b, 1, y), y)
    return b.mul(g, b.div(x, length)), b.mul(g, b.div(other, length))


_TRIGAMMA_SERIES = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
"""The Bernoulli numbers B2, B4, …, coefficients of z**-3, z**-5, … in the asymptotic series."""
_TRIGAMMA_SHIFTS = 9
"""From z = 9 on the series is exact to 1e-15."""


def _trigamma(b: Any, x: Value) -> Value:
    """The derivative of digamma, in f64: the asymptotic series at z >= 9, which trigamma(z) = trigamma(z + 1) + 1/z²
    leads to; for negative x by reflection, trigamma(1 - x) + trigamma(x) = π² / sin²(π x)."""
    wide = b.cast(x, dtype=F64)

    def number(value: float) -> Value:
        return b.constant(value, F64)

    negative = b.lt(wide, number(0))
    z = b.select(negative, b.sub(number(1), wide), wide)
    total = b.mul(wide, number(0))
    for _ in range(_TRIGAMMA_SHIFTS):
        small = b.lt(z, number(_TRIGAMMA_SHIFTS))
        total = b.select(small, b.add(total, b.div(number(1), _square(b, z))), total)
        z = b.select(small, b.add(z, number(1)), z)
    inverse = b.div(number(1), z)
    square = _square(b, inverse)
    series = number(_TRIGAMMA_SERIES[-1])
    for coefficient in _TRIGAMMA_SERIES[-2::-1]:
        series = b.add(b.mul(series, square), number(coefficient))
    series = b.add(b.add(b.mul(b.mul(series, square), inverse), inverse), b.mul(square, number(0.5)))
    positive = b.add(total, series)
    sine = b.sin(b.mul(number(math.pi), b.sub(wide, b.rint(wide))))
    reflected = b.sub(b.div(number(math.pi**2), _square(b, sine)), positive)
    return b.cast(b.select(negative, reflected, positive), dtype=dtype_of(x))


def select(b: Any, g: Value, y: Value, cond: Value, x: Value, other: Value) -> tuple[Value | None, ...]:
    none = zero(b, g)
    return None, b.select(cond, g, none), b.select(cond, none, g)


def cast(b: Any, g: Value, y: Value, x: Value, dtype: Any) -> Value | None:
    # Through integers, too, as in MXNet, where a gradient has the type of what it belongs to.
    return None if dtype_of(x) is BOOL else b.cast(g, dtype=dtype_of(x))


RULES: dict[str, Rule] = {
    "neg": lambda b, g, y, x: b.neg(g),
    "abs": _times(lambda b, x, y: b.sign(x)),
    "exp": _times(lambda b, x, y: y),
    "expm1": _times(lambda b, x, y: _one_plus(b, y)),
    "log": _over(lambda b, x, y: x),
    "log1p": _over(lambda b, x, y: _one_plus(b, x)),
    "log2": _over(lambda b, x, y: _scaled(b, x, math.log(2))),
    "log10": _over(lambda b, x, y: _scaled(b, x, math.log(10))),
    "sqrt": _over(lambda b, x, y: _scaled(b, y, 2)),
    "rsqrt": _rsqrt,
    "cbrt": _over(lambda b, x, y: _scaled(b, _square(b, y), 3)),
    "sin": _times(lambda b, x, y: b.cos(x)),
    "cos": _times(lambda b, x, y: b.neg(b.sin(x))),
    "tan": _times(lambda b, x, y: _one_plus(b, _square(b, y))),
    "asin": _over(lambda b, x, y: b.sqrt(_one_minus(b, _square(b, x)))),
    "acos": _over(lambda b, x, y: b.neg(b.sqrt(_one_minus(b, _square(b, x))))),
    "atan": _over(lambda b, x, y: _one_plus(b, _square(b, x))),
    "sinh": _times(lambda b, x, y: b.cosh(x)),
    "cosh": _times(lambda b, x, y: b.sinh(x)),
    "tanh": _times(lambda b, x, y: _one_minus(b, _square(b, y))),
    "asinh": _over(lambda b, x, y: b.sqrt(_one_plus(b, _square(b, x)))),
    "acosh": _over(lambda b, x, y: b.sqrt(b.sub(_square(b, x), _number(b, 1, x)))),
    "atanh": _over(lambda b, x, y: _one_minus(b, _square(b, x))),
    "sigmoid": _times(lambda b, x, y: b.mul(y, _one_minus(b, y))),
    "erf": _times(lambda b, x, y: _scaled(b, b.exp(b.neg(_square(b, x))), 2 / math.sqrt(math.pi))),
    "erfinv": _times(lambda b, x, y: _scaled(b, b.exp(_square(b, y)), math.sqrt(math.pi) / 2)),
    "lgamma": _times(lambda b, x, y: b.digamma(x)),
    "digamma": _times(lambda b, x, y: _trigamma(b, x)),
    "add": lambda b, g, y, x, other: (g, g),
    "sub": lambda b, g, y, x, other: (g, b.neg(g)),
    "mul": lambda b, g, y, x, other: (b.mul(g, other), b.mul(g, x)),
    "div": _div,
    "mod": _mod,
    "pow": _pow,
    "maximum": _extremum("ge"),
    "minimum": _extremum("le"),
    "atan2": _atan2,
    "hypot": _hypot,
}
"""The rules by primitive; those that are missing are constant almost everywhere."""
