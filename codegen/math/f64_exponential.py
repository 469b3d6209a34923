"""Exponentials and logarithms in f64, to a few 1e-16 of their values.

Short code is preferred: series instead of tables where these are short enough, and one function in terms of another
where that loses no accuracy. Each function names its formula. Operands and results are `Num`s.
"""

from __future__ import annotations

import math

from gluonjit.codegen.math.number import Num, fma, polynomial, where

INF, NAN = math.inf, math.nan
MAGIC = 1.5 * 2.0**52  # see vecmath._MAGIC
_LOG2E = 1.4426950408889634
# ln 2 with 32 and 53 bits more: products with an exponent are exact.
LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
LEAST = 2.0**-1022
_EXP_HIGHEST, _EXP_LOWEST = 709.782712893384, -708.3964185322641
_EXP_ZERO = -746.0
"""Where exp is less than half of the least denormal number, 2⁻¹⁰⁷⁴."""


def _reduced(x: Num) -> tuple[Num, Num]:
    t = fma(x, _LOG2E, MAGIC)
    n = t - MAGIC
    return t, fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))


_EXPM1 = [1 / math.factorial(k) for k in range(2, 15)]  # (e^r - 1 - r) / r²: the next term is below 1e-19


def exp(x: Num) -> Num:
    x = x.maximum(_EXP_ZERO)
    t, r = _reduced(x)
    y = fma(polynomial(r, _EXPM1), r * r, r) + 1.0
    y = (y.bits() + (t.bits() << 52)).as_float()
    # See vecmath.exp.
    sum = (y.bits() + (56 << 52)).as_float() + 2.0**-966
    denormal = (sum.bits() - ((1023 - 966) << 52)).as_float()
    return where(x > _EXP_HIGHEST, INF, where(x < _EXP_LOWEST, denormal, y))


def expm1(x: Num) -> Num:
    t, r = _reduced(x.maximum(-38.0))
    p = fma(polynomial(r, _EXPM1), r * r, r)
    half = ((t.bits() << 52) + (1022 << 52)).as_float()
    y = fma(p, half, half - 0.5)
    y = y + y
    return where(x > _EXP_HIGHEST, INF, where(abs(x) < 2.0**-54, x, y))


def sigmoid(x: Num) -> Num:
    return 1.0 / (exp(-x) + 1.0)


def tanh(x: Num) -> Num:
    y = abs(x).minimum(20.0)
    y = expm1(y + y)
    return (y / (y + 2.0)).with_sign_of(x)


def sinh(x: Num) -> Num:
    """(m + m / (m + 1)) / 2 with m = e^|x| - 1; for large |x| (e^(|x|/2))² / 2, which overflows later."""
    a = abs(x)
    m = expm1(a)
    half = exp(a * 0.5)
    return where(a < 709.0, (m + m / (m + 1.0)) * 0.5, half * 0.5 * half).with_sign_of(x)


def cosh(x: Num) -> Num:
    a = abs(x)
    e = exp(a)
    half = exp(a * 0.5)
    return where(a < 709.0, e * 0.5 + 0.5 / e, half * 0.5 * half)


def split(x: Num) -> tuple[Num, Num]:
    """(e, f) with x = 2**e (1 + f) and sqrt(1/2) <= 1 + f < sqrt(2), for normal, positive x; e as a float."""
    root = 0x3FE6A09E667F3BCD  # sqrt(1/2)
    i = x.bits() - root
    # There is no vector conversion of i64 on most machines: the exponent goes into the low bits of a float.
    e = (i.sar(52) + 0x4338000000000000).as_float() - MAGIC
    return e, ((i & 0xFFFFFFFFFFFFF) + root).as_float() - 1.0


def split_any(x: Num) -> tuple[Num, Num]:
    """`split` that also accepts denormal numbers."""
    is_denormal = x < LEAST
    e, f = split(where(is_denormal, x * 2.0**52, x))
    return e - where(is_denormal, x.of(52.0), 0.0), f


ATANH = [2 / (2 * k + 3) for k in range(11)]  # (2 atanh(s) - 2s) / s³ in s², for |s| <= 0.1716: the rest is 1e-18


def _log_of(e: Num, f: Num) -> Num:
    """log(2**e (1 + f)), where log(1 + f) = 2 atanh(s) with s = f / (2 + f).

    With h = f²/2 this is f - (h - s (h + R)), whose roundings are small against f.
    """
    s = f / (f + 2.0)
    u = s * s
    h = f * f * 0.5
    r = u * polynomial(u, ATANH)
    return fma(e, LN2_HIGH, f - (h - fma(s, h + r, e * LN2_LOW)))


def _log_edges(x: Num, y: Num) -> Num:
    y = where(x > 0.0, y, where(x < 0.0, x.of(NAN), -INF))
    return where(x < INF, y, x)


def log(x: Num) -> Num:
    return _log_edges(x, _log_of(*split_any(x)))


def _log_in_base(x: Num, high: float, low: float, factor: float) -> Num:
    """e · (high + low) + factor · log(1 + f), for bases where the logarithm of 2 is high + low."""
    e, f = split_any(x)
    y = _log_of(e * 0.0, f) * factor
    return _log_edges(x, fma(e, high, fma(e, low, y)))


def log2(x: Num) -> Num:
    return _log_in_base(x, 1.0, 0.0, _LOG2E)


def log10(x: Num) -> Num:
    high = math.floor(math.log10(2) * 2**32) / 2**32
    return _log_in_base(x, high, math.log10(2) - high, 1 / math.log(10))


def log1p(x: Num) -> Num:
    u = x + 1.0
    b = u - 1.0
    lost = (1.0 - (u - b)) + (x - b)
    e, f = split(u)
    scale = ((1023.0 + MAGIC - e.minimum(1022.0)).bits() << 52).as_float()  # 2**-e
    y = _log_of(e, fma(lost, scale, f))
    y = where(x.equals(0.0), x, y)
    y = where(x > -1.0, y, where(x.equals(-1.0), x.of(-INF), NAN))
    return where(x < INF, y, where(x.equals(INF), x.of(INF), NAN))


def asinh(x: Num) -> Num:
    """log1p(a + a² / (1 + sqrt(1 + a²))) of a = |x|; log(2a) where a² overflows."""
    a = abs(x)
    square = a * a
    y = log1p(a + square / ((square + 1.0).sqrt() + 1.0))
    return where(a < 1e150, y, log(a) + math.log(2)).with_sign_of(x)


def acosh(x: Num) -> Num:
    """log1p(t + sqrt(2t + t²)) with t = x - 1."""
    t = x - 1.0
    y = log1p(t + (t * (t + 2.0)).sqrt())
    return where(x < 1.0, NAN, where(x > 1e150, log(x) + math.log(2), y))


def atanh(x: Num) -> Num:
    a = abs(x)
    return (log1p(2.0 * a / (1.0 - a)) * 0.5).with_sign_of(x)
