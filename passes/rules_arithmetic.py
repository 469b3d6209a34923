"""Identities of elementwise primitives, for `simplify`.

Each is exact: for every operand, infinities, NaN and both zeros included, the result is the same number (of NaN, that
it is one). What only holds for real numbers has no place here: `x * 0` is NaN for an infinite x, `x + 0.0` is not x
for -0.0, `(x + a) - a` rounds, `pow(x, 0.5)` differs from the root at -inf.
"""

from __future__ import annotations

import math

import numpy as np

from gluonjit.ir.graph import Op, Value
from gluonjit.ir.types import BOOL, DType, dtype
from gluonjit.passes.simplifier import Simplifier, full, is_number, made_by, rule, uniform


@rule("add", "mul", "sub", "div", "and", "or", "xor", "shift_left", "shift_right", "pow")
def neutral(b: Simplifier, op: Op) -> Value | None:
    """x * 1, x / 1, pow(x, 1): the exact result is x, so rounding gives x. x + (-0.0) and x - 0.0 are x for both zeros
    (-0.0 + -0.0 = -0.0, 0.0 + -0.0 = 0.0), unlike x + 0.0. Integers: x + 0, x - 0, x | 0, x ^ 0, x & ~0, shifts by 0.
    """
    x, y = op.operands
    element = uniform(b, y)
    number = _neutral(op.name, y.dtype)
    if number is not None and is_number(element, number) and x.type == op.result.type:
        return x
    if op.name in ("add", "mul", "and", "or", "xor"):
        if number is not None and is_number(uniform(b, x), number) and y.type == op.result.type:
            return y
    return None


def _neutral(name: str, kind: DType) -> float | None:
    if name in ("mul", "div", "pow"):
        return 1
    if name == "add":
        return -0.0 if kind.is_float else 0
    if name == "and":
        return 1 if kind is BOOL else int(np.iinfo(kind.numpy).max) if kind.kind == "u" else -1
    return 0


@rule("mul", "and", "or")
def absorbing(b: Simplifier, op: Op) -> Value | None:
    """Integers and bool only: x * 0 = 0, x & 0 = 0, bool: x | True = True."""
    x, y = op.operands
    if x.dtype.is_float:
        return None
    number = 0
    if op.name == "or":
        if x.dtype is not BOOL:
            return None
        number = 1
    for value in (x, y):
        if is_number(uniform(b, value), number) and value.type == op.result.type:
            return value
    return None


@rule("mul", "div", "sub")
def negation(b: Simplifier, op: Op) -> Value | None:
    """x * -1, x / -1 (floats) and (-0.0) - x (integers: 0 - x) only change the sign, of zeros and infinities, too."""
    x, y = op.operands
    if x.dtype.kind == "u" or op.name == "div" and not x.dtype.is_float:
        return None
    if op.name == "sub":
        zero = -0.0 if x.dtype.is_float else 0
        return b.neg(y) if is_number(uniform(b, x), zero) and y.type == op.result.type else None
    if is_number(uniform(b, y), -1) and x.type == op.result.type:
        return b.neg(x)
    if op.name == "mul" and is_number(uniform(b, x), -1) and y.type == op.result.type:
        return b.neg(y)
    return None


@rule("neg", "not")
def involution(b: Simplifier, op: Op) -> Value | None:
    """-(-x) and ~~x only flip bits back; integers wrap twice."""
    inner = made_by(b, op.operands[0], op.name)
    return inner.operands[0] if inner is not None else None


@rule("abs")
def absolute(b: Simplifier, op: Op) -> Value | None:
    """abs(abs(x)) and abs(-x) are abs(x): the sign is cleared whatever it was. The least integer stays as it is in
    both forms. An unsigned x is its own; -x is not."""
    x = op.operands[0]
    if x.dtype.kind == "u" or made_by(b, x, "abs"):
        return x
    inner = made_by(b, x, "neg")
    return b.abs(inner.operands[0]) if inner is not None else None


@rule("add", "sub", "mul", "div")
def negated_operands(b: Simplifier, op: Op) -> Value | None:
    """x + -y = x - y and x - -y = x + y: IEEE 754 defines subtraction so; integers wrap the same way.
    -x * -y = x * y, and / for floats: the result's sign is the product of the signs."""
    x, y = op.operands
    minus_x, minus_y = made_by(b, x, "neg"), made_by(b, y, "neg")
    if op.name == "add":
        if minus_y is not None:
            return b.sub(x, minus_y.operands[0])
        return b.sub(y, minus_x.operands[0]) if minus_x is not None else None
    if op.name == "sub":
        return b.add(x, minus_y.operands[0]) if minus_y is not None else None
    if minus_x is None or minus_y is None or not (x.dtype.is_float or op.name == "mul"):
        return None
    return b.emit(op.name, [minus_x.operands[0], minus_y.operands[0]])[0]


@rule("maximum", "minimum", "and", "or")
def idempotent(b: Simplifier, op: Op) -> Value | None:
    """f(x, x) = x: both choices are x; NaN stays NaN."""
    x, y = op.operands
    return x if x is y else None


@rule("select")
def selection(b: Simplifier, op: Op) -> Value | None:
    """Equal arms, or a condition that is the same everywhere: the result is one arm. `not` swaps the arms."""
    cond, x, y = op.operands
    if x is y and x.type == op.result.type:
        return x
    known = uniform(b, cond)
    if known is not None:
        arm = x if known else y
        return arm if arm.type == op.result.type else None
    inverse = made_by(b, cond, "not")
    return b.select(inverse.operands[0], y, x) if inverse is not None else None


@rule("div")
def power_of_two(b: Simplifier, op: Op) -> Value | None:
    """x / 2**k = x * 2**-k: both are the rounding of the same number, as long as 2**-k is itself a normal number."""
    x, y = op.operands
    element = uniform(b, y)
    if element is None or not x.dtype.is_float:
        return None
    mantissa, exponent = math.frexp(float(element))
    low, high = _NORMAL_EXPONENTS[x.dtype.name]
    # A power of two is ±0.5 * 2**exponent, and its inverse ±2**(1 - exponent).
    if abs(mantissa) != 0.5 or not low <= 1 - exponent <= high or not low <= exponent - 1 <= high:
        return None
    return b.mul(x, full(b, y, 1 / float(element)))


_NORMAL_EXPONENTS = {"f16": (-14, 15), "bf16": (-126, 127), "f32": (-126, 127), "f64": (-1022, 1023)}
"""k for which 2**k is a normal number."""


@rule("pow")
def small_power(b: Simplifier, op: Op) -> Value | None:
    """pow(x, 2) = x * x, which is x² rounded once, as pow means to be; signs, infinities and NaN agree. pow(x, -1) of
    floats = 1 / x likewise, at both zeros, too."""
    x, y = op.operands
    element = uniform(b, y)
    if x.type != op.result.type:
        return None
    if is_number(element, 2):
        return b.mul(x, x)
    if is_number(element, -1) and x.dtype.is_float:
        return b.div(full(b, x, 1), x)
    return None


@rule("floor", "ceil", "round", "rint", "trunc")
def already_whole(b: Simplifier, op: Op) -> Value | None:
    """Integers are whole; so is what another of these functions made, and infinities and NaN stay as they are."""
    x = op.operands[0]
    inner = b.producer(x)
    whole = x.dtype.is_integer or inner is not None and inner.name in ("floor", "ceil", "round", "rint", "trunc")
    return x if whole else None


@rule("cast")
def casts(b: Simplifier, op: Op) -> Value | None:
    """A cast to x's own type is x. The first of two casts goes when it keeps every value, and the second one then
    means the same: it does not where an integer wraps on its way to a narrower one but would saturate as a float.
    """
    x = op.operands[0]
    if x.type == op.result.type:
        return x
    inner = made_by(b, x, "cast")
    if inner is None:
        return None
    source = inner.operands[0]
    first, middle, last = source.dtype, x.dtype, dtype(op.attrs["dtype"])
    if not holds(middle, first):
        return None
    if first.is_integer and middle.is_float and last.is_integer and not holds(last, first):
        return None
    return source if last is first else b.cast(source, dtype=last)


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`, so that casting there keeps it."""
    if wide is narrow or narrow is BOOL:
        return True
    if wide is BOOL or narrow.is_float and not wide.is_float:
        return False
    if narrow.is_float:
        return wide.bits > narrow.bits
    if wide.is_float:
        return _DIGITS[wide.name] >= narrow.bits - (narrow.kind == "i")
    # A signed type needs a bit more than an unsigned one; an unsigned type holds no negative number.
    return wide.bits > narrow.bits and (wide.kind == "i" or narrow.kind == "u")


_DIGITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
"""For each float type, the bits of integers that are exact in it."""
