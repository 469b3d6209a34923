"""Powers, roots and remainders in f64: `pow` to 1e-14 of its value, `mod` exactly, the others to a few 1e-16."""

from __future__ import annotations

import math
from typing import Any

from gluonjit.codegen.math.f64_exponential import ATANH, LEAST, LN2_HIGH, LN2_LOW, exp, log, split_any
from gluonjit.codegen.math.number import Num, fma, polynomial, where
from gluonjit.codegen.math.values import Val
from gluonjit.ir.types import F64

INF, NAN = math.inf, math.nan


def two_product(a: Num, b: Num) -> tuple[Num, Num]:
    p = a * b
    return p, fma(a, b, -p)


def pow(x: Num, y: Num) -> Num:
    """exp(y log|x|), with the logarithm in two parts, since its error is multiplied by up to 709; then the sign."""
    a = abs(x)
    e, f = split_any(a)
    # log(1 + f) = 2s + s³ R(s²): what rounding s loses is recovered from the division's remainder.
    d = f + 2.0
    s = f / d
    s_low = (fma(-s, d, f) - s * (f - (d - 2.0))) / d
    u = s * s
    tail = fma(s * u, polynomial(u, ATANH), fma(e, LN2_LOW, s_low * 2.0))
    big, two_s = e * LN2_HIGH, s + s
    high = big + two_s
    # `big` is 0 or larger than two_s, so this is what the sum rounded away.
    low = (big - high) + two_s + tail
    total = high + low
    low = (high - total) + low
    p, p_low = two_product(y, total)
    p_low = fma(y, low, p_low)
    z = exp(p)
    z = where((p > -746.0) & (z < INF), fma(z, p_low, z), z)

    below = y < 0.0
    z = where(a.equals(0.0), where(below, z.of(INF), 0.0), z)
    z = where(a.equals(INF), where(below, z.of(0.0), INF), z)
    infinite = abs(y).equals(INF)
    z = where(infinite, where(a.equals(1.0), 1.0, where((a > 1.0) ^ below, z.of(INF), 0.0)), z)
    whole = y.rint().equals(y)
    odd = whole & (y * 0.5).rint().differs(y * 0.5) & (abs(y) < 2.0**53)
    minus = x.bits() < 0
    z = where(minus & odd, -z, z)
    z = where((x < 0.0) & ~whole & (a < INF), NAN, z)
    z = where(x.equals(x) & y.equals(y), z, NAN)
    return where(x.equals(1.0) | y.equals(0.0), 1.0, z)


def cbrt(x: Num) -> Num:
    """exp(log|x| / 3), then a step of Newton's method; denormals are scaled by 2⁵⁴ first, to have enough digits."""
    a = abs(x)
    is_denormal = a < LEAST
    b = where(is_denormal, a * 2.0**54, a)
    y = exp(log(b) * (1 / 3))
    y = y - (y * y * y - b) / (y * y * 3.0)
    y = where(is_denormal, y * 2.0**-18, y)
    return where((a > 0.0) & (a < INF), y, a).with_sign_of(x)


def hypot(x: Num, y: Num) -> Num:
    a, b = abs(x), abs(y)
    big, small = where(a > b, a, b), where(a > b, b, a)
    t = small / big
    z = where(big.equals(0.0), 0.0, big * fma(t, t, 1.0).sqrt())
    return where(a.equals(INF) | b.equals(INF), INF, where(a.equals(a) & b.equals(b), z, NAN))


def mod(x: Num, y: Num) -> Num:
    """The remainder with the sign of y, exactly.

    r - trunc(r / y) y is exact in one fused operation, even if the quotient had to be rounded; it is repeated until
    |r| < |y|. If the quotient would overflow, x is first reduced modulo a large multiple of y.
    """
    s = x.s
    b = abs(y)
    start = abs(x)
    fit = (start < INF) & (b > 0.0)  # in other lanes the loop would not end
    huge = fit & (start * 2.0**-1000 >= b)
    r = _remainder(s, where(fit, start, 0.0), where(huge, b * 2.0**1022, b))
    r = where(huge, _remainder(s, r, b), r)
    r = where(fit, where(r < 0.0, r + b, r), NAN).with_sign_of(x)
    turn = r.differs(0.0) & ((r < 0.0) ^ (y < 0.0))
    r = where(turn, r + y, r)
    r = where(r.equals(0.0), abs(r).with_sign_of(y), r)
    return where(b.equals(b), r, NAN)


def _remainder(s: Any, r: Num, b: Num) -> Num:
    """A number congruent to r modulo b and smaller than b, of either sign; for finite r and b > 0 (or NaN)."""
    lanes = r.v.lanes or b.v.lanes
    divisor, start = (Num(s, s.splat(v.v) if lanes else v.v) for v in (b, r))
    scope = max((r.v.scope, b.v.scope), key=lambda scope: scope.depth)
    with s.f.at(scope), s.f.repeat([(s.type(F64, lanes), start.v.ssa)]) as loop:
        left = Num(s, Val(loop.carried[0], F64, lanes, loop.scope))
        following = _exact_difference(left, Num(s, s.trunc((left / divisor).v)), divisor)
        following = where(abs(left) >= divisor, following, left)
        loop.next(following.v.ssa)
        loop.again = s.any((abs(following) >= divisor).v)
    return Num(s, Val(loop.results[0], F64, lanes, scope))


def _exact_difference(a: Num, q: Num, b: Num) -> Num:
    """a - q·b without rounding the product."""
    if a.s.target.has_fma:
        return fma(-q, b, a)
    # Dekker's splitting: the high part has 26 bits and the low part 26 and a sign, so that their products are exact.
    (qh, ql), (bh, bl) = ((h, v - h) for v in (q, b) for h in [((v.bits() + (1 << 26)) & -(1 << 27)).as_float()])
    return (((a - qh * bh) - qh * bl) - ql * bh) - ql * bl
