"""Transcendental functions in f64, to a few 1e-16 of their values (`pow` to 1e-14 of it).

Written for shortness first: series instead of tables where they are short enough, and one function in terms of
another where that loses nothing. Formulas are named at each function. Operands and results are `Num`s.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gluonjit.codegen.llvm import Module, float_literal
from gluonjit.codegen.number import Num, fma, polynomial, where
from gluonjit.codegen.values import Val
from gluonjit.ir.types import BOOL, F64, I64

INF, NAN = math.inf, math.nan
_MAGIC = 1.5 * 2.0**52  # see vecmath._MAGIC
_LOG2E = 1.4426950408889634
# ln 2 with 32 and 53 bits more: products with an exponent are exact.
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_LEAST = 2.0**-1022
_EXP_HIGHEST, _EXP_LOWEST = 709.782712893384, -708.3964185322641


# ---- exponential and logarithm


def _reduced(x: Num) -> tuple[Num, Num]:
    t = fma(x, _LOG2E, _MAGIC)
    n = t - _MAGIC
    return t, fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))


_EXPM1 = [1 / math.factorial(k) for k in range(2, 15)]  # (e^r - 1 - r) / r²: the next term is below 1e-19


def exp(x: Num) -> Num:
    t, r = _reduced(x)
    y = fma(polynomial(r, _EXPM1), r * r, r) + 1.0
    y = (y.bits() + (t.bits() << 52)).as_float()
    return where(x > _EXP_HIGHEST, INF, where(x < _EXP_LOWEST, 0.0, y))


def expm1(x: Num) -> Num:
    t, r = _reduced(x.maximum(-38.0))
    p = fma(polynomial(r, _EXPM1), r * r, r)
    half = ((t.bits() << 52) + (1022 << 52)).as_float()
    y = fma(p, half, half - 0.5)
    y = y + y
    return where(x > _EXP_HIGHEST, INF, where(x.equals(0.0), x, y))


def sigmoid(x: Num) -> Num:
    return 1.0 / (exp(-x) + 1.0)


def tanh(x: Num) -> Num:
    y = abs(x).minimum(20.0)
    y = expm1(y + y)
    return (y / (y + 2.0)).with_sign_of(x)


def sinh(x: Num) -> Num:
    """(m + m / (m + 1)) / 2 with m = e^|x| - 1; near the end of the range (e^(|x|/2))² / 2, which overflows later."""
    a = abs(x)
    m = expm1(a)
    half = exp(a * 0.5)
    return where(a < 709.0, (m + m / (m + 1.0)) * 0.5, half * 0.5 * half).with_sign_of(x)


def cosh(x: Num) -> Num:
    a = abs(x)
    e = exp(a)
    half = exp(a * 0.5)
    return where(a < 709.0, e * 0.5 + 0.5 / e, half * 0.5 * half)


def _split(x: Num) -> tuple[Num, Num]:
    """(e, f) with x = 2**e (1 + f) and sqrt(1/2) <= 1 + f < sqrt(2), for normal, positive x; e as a float."""
    root = 0x3FE6A09E667F3BCD  # sqrt(1/2)
    i = x.bits() - root
    # There is no vector conversion of i64 on most machines: the exponent goes into the low bits of a float.
    e = (i.sar(52) + 0x4338000000000000).as_float() - _MAGIC
    return e, ((i & 0xFFFFFFFFFFFFF) + root).as_float() - 1.0


_ATANH = [2 / (2 * k + 3) for k in range(11)]  # (2 atanh(s) - 2s) / s³ in s², for |s| <= 0.1716: the rest is 1e-18


def _log_of(e: Num, f: Num) -> Num:
    """log(2**e (1 + f)), where log(1 + f) = 2 atanh(s) with s = f / (2 + f).

    With h = f²/2 this is f - (h - s (h + R)), whose roundings are small against f.
    """
    s = f / (f + 2.0)
    u = s * s
    h = f * f * 0.5
    r = u * polynomial(u, _ATANH)
    return fma(e, _LN2_HIGH, f - (h - fma(s, h + r, e * _LN2_LOW)))


def _log_edges(x: Num, y: Num) -> Num:
    y = where(x < _LEAST, where(x < 0.0, x.of(NAN), -INF), y)
    return where(x < INF, y, x)


def log(x: Num) -> Num:
    return _log_edges(x, _log_of(*_split(x)))


def _log_in_base(x: Num, high: float, low: float, factor: float) -> Num:
    """e · (high + low) + factor · log(1 + f), for bases where the logarithm of 2 is high + low."""
    e, f = _split(x)
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
    e, f = _split(u)
    scale = ((1023.0 + _MAGIC - e.minimum(1022.0)).bits() << 52).as_float()  # 2**-e
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


# ---- powers


def _two_product(a: Num, b: Num) -> tuple[Num, Num]:
    p = a * b
    return p, fma(a, b, -p)


def pow(x: Num, y: Num) -> Num:
    """exp(y log|x|), with the logarithm in two parts, since its error is multiplied by up to 709; then the sign."""
    a = abs(x)
    e, f = _split(a)
    # log(1 + f) = 2s + s³ R(s²): what rounding s loses is recovered from the division's remainder.
    d = f + 2.0
    s = f / d
    s_low = (fma(-s, d, f) - s * (f - (d - 2.0))) / d
    u = s * s
    tail = fma(s * u, polynomial(u, _ATANH), fma(e, _LN2_LOW, s_low * 2.0))
    big, two_s = e * _LN2_HIGH, s + s
    high = big + two_s
    # `big` is 0 or larger than two_s, so this is what the sum rounded away.
    low = (big - high) + two_s + tail
    total = high + low
    low = (high - total) + low
    p, p_low = _two_product(y, total)
    p_low = fma(y, low, p_low)
    z = exp(p)
    z = where(abs(p) < 708.0, fma(z, p_low, z), z)

    below = y < 0.0
    z = where(a < _LEAST, where(below, z.of(INF), 0.0), z)
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
    """exp(log|x| / 3), and a step of Newton's method."""
    a = abs(x)
    y = exp(log(a) * (1 / 3))
    y = y - (y * y * y - a) / (y * y * 3.0)
    return where((a >= _LEAST) & (a < INF), y, a).with_sign_of(x)


def hypot(x: Num, y: Num) -> Num:
    a, b = abs(x), abs(y)
    big, small = where(a > b, a, b), where(a > b, b, a)
    t = small / big
    z = where(big.equals(0.0), 0.0, big * fma(t, t, 1.0).sqrt())
    return where(a.equals(INF) | b.equals(INF), INF, where(a.equals(a) & b.equals(b), z, NAN))


def mod(x: Num, y: Num) -> Num:
    """The remainder with the sign of y, exactly.

    r - trunc(r / y) y is exact in one fused operation, even where the quotient had to be rounded; it is repeated while
    |r| is not smaller than |y|. Quotients that overflow are first taken modulo a large multiple of y.
    """
    s = x.s
    b = abs(y)
    start = abs(x)
    fit = (start < INF) & (b > 0.0)  # elsewhere the loop would not end
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
    # Dekker: the first half rounded to 26 bits, so that the second has 26 and a sign, and their products are exact.
    (qh, ql), (bh, bl) = ((h, v - h) for v in (q, b) for h in [((v.bits() + (1 << 26)) & -(1 << 27)).as_float()])
    return (((a - qh * bh) - qh * bl) - ql * bh) - ql * bl


# ---- circular functions

# π/2 in three parts, of 33, 33 and 53 bits: their products with up to 20 bits (31 when fused) are exact.
_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
_SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(1, 9)]  # (sin r - r)/r³ in r²: the next term is 1e-19
_COS = [(-1) ** k / math.factorial(2 * k) for k in range(2, 10)]


def quarters(x: Num) -> tuple[Num, Num]:
    """(r, q): x = q π/2 + r with |r| <= π/4; q is an i64 of which the low two bits count. NaN for infinities."""
    s = x.s
    t = fma(x, 2 / math.pi, _MAGIC)
    n = t - _MAGIC
    r = x
    for part in _HALF_PI:
        r = fma(n, -part, r)
    large = abs(x) > (2.0**30 if s.target.has_fma else 2.0**20)
    r_val, q_val = _large_quarters(s, x.v, (large & (abs(x) < INF)).v, r.v, t.bits().v)
    return Num(s, r_val), Num(s, q_val)


def _large_quarters(s: Any, x: Val, large: Val, r: Val, q: Val) -> tuple[Val, Val]:
    """`r` and `q` replaced in the lanes of `large`, if there are any: a call per lane."""
    f = s.f
    name = _reduce_function(f.module)
    scope = max((x.scope, r.scope, q.scope), key=lambda scope: scope.depth)
    lanes = x.lanes
    f64s, i64s, bools = (s.type(d, lanes) for d in (F64, I64, BOOL))
    with f.at(scope):
        trips = f.op(f"select i1 {s.any(large)}, i64 {s.width if lanes else 1}, i64 0")
        with f.for_(0, trips, carried=[(f64s, r.ssa), (i64s, q.ssa)]) as loop:
            old_r, old_q = loop.carried
            k = loop.index
            if lanes:
                one = f.op(f"extractelement {f64s} {x.ssa}, i64 {k}")
                wanted = f.op(f"extractelement {bools} {large.ssa}, i64 {k}")
            else:
                one, wanted = x.ssa, large.ssa
            pair = f.call(name, "{ double, i64 }", ("double", one))
            new_r, new_q = (f.op(f"extractvalue {{ double, i64 }} {pair}, {j}") for j in (0, 1))
            if lanes:
                new_r = f.op(f"insertelement {f64s} {old_r}, double {new_r}, i64 {k}")
                new_q = f.op(f"insertelement {i64s} {old_q}, i64 {new_q}, i64 {k}")
            loop.next(
                f.op(f"select i1 {wanted}, {f64s} {new_r}, {f64s} {old_r}"),
                f.op(f"select i1 {wanted}, {i64s} {new_q}, {i64s} {old_q}"),
            )
    return Val(loop.results[0], F64, lanes, scope), Val(loop.results[1], I64, lanes, scope)


@functools.cache
def two_over_pi(bits: int) -> int:
    """floor(2/π · 2**bits), by Machin's formula π/4 = 4 atan(1/5) - atan(1/239)."""
    one = 1 << (bits + 64)

    def atan_of_inverse(n: int) -> int:
        term = total = one // n
        k = 1
        while term:
            term //= -n * n
            k += 2
            total += term // k
        return total

    quarter = 4 * atan_of_inverse(5) - atan_of_inverse(239)
    return (one << bits) // (2 * quarter)


def _reduce_function(module: Module) -> str:
    """Adds `{double r, i64 q} reduce(double x)`: Payne and Hanek's reduction, for 2**20 <= |x| < inf.

    x = M · 2**(e - 52) with an integer M. The bits of 2/π that would contribute multiples of 4 are skipped; M times
    the next 192 has the quarter turns in its top two bits and 190 bits of fraction below.
    """
    name = "reduce_quarters"
    if any(g.name == name for g in module.functions):
        return name
    words = 21  # the first is zero, for exponents below 54
    value = two_over_pi((words - 1) * 64)
    table = module.constant(
        np.array([value >> (64 * (words - 1 - k)) & (2**64 - 1) for k in range(words)], np.uint64), align=8
    )
    f = module.function(name, (("double", "x"),), "{ double, i64 }", linkage="internal", attributes="noinline")
    bits = f.op("bitcast double %x to i64")
    exponent = f.op(f"and i64 {f.op(f'lshr i64 {bits}, 52')}, 2047")
    mantissa = f.op(f"or i64 {f.op(f'and i64 {bits}, {2**52 - 1}')}, {2**52}")
    # e - 54 bits are skipped after the zero word; the bounds only matter for operands that nobody asked for.
    position = f.min(f.max(f.sub(exponent, 1023 + 54 - 64), 0), 64 * (words - 4))
    word, shift = f.op(f"lshr i64 {position}, 6"), f.op(f"and i64 {position}, 63")
    w = [f.load("i64", f.gep("i64", table, f.add(word, k)), align=8) for k in range(4)]
    parts = [f.intrinsic("llvm.fshl", "i64", ("i64", a), ("i64", b), ("i64", shift)) for a, b in zip(w, w[1:])]
    m = f.op(f"zext i64 {mantissa} to i128")
    carry = "0"
    products = []
    for part in reversed(parts):
        product = f.op(f"mul i128 {f.op(f'zext i64 {part} to i128')}, {m}")
        total = f.op(f"add i128 {product}, {carry}")
        products.append(f.op(f"trunc i128 {total} to i64"))
        carry = f.op(f"lshr i128 {total}, 64")
    low, high = products[1], products[2]
    q = f.op(f"lshr i64 {f.op(f'add i64 {high}, {1 << 61}')}, 62")
    # The fraction, minus one when it is a half or more: the same bits read as a signed number.
    fraction = f.intrinsic("llvm.fshl", "i64", ("i64", high), ("i64", low), ("i64", 2))
    rest = f.op(f"shl i64 {low}, 2")
    r = f.op(f"fmul double {f.op(f'sitofp i64 {fraction} to double')}, {_literal(2.0**-64)}")
    more = f.op(f"fmul double {f.op(f'uitofp i64 {rest} to double')}, {_literal(2.0**-128)}")
    r = f.op(f"fmul double {f.op(f'fadd double {r}, {more}')}, {_literal(math.pi / 2)}")
    negative = f.op(f"icmp slt i64 {bits}, 0")
    r = f.op(f"select i1 {negative}, double {f.op(f'fneg double {r}')}, double {r}")
    q = f.op(f"select i1 {negative}, i64 {f.op(f'sub i64 0, {q}')}, i64 {q}")
    pair = f.op(f"insertvalue {{ double, i64 }} poison, double {r}, 0")
    f.ret(f.op(f"insertvalue {{ double, i64 }} {pair}, i64 {q}, 1"))
    return name


def _literal(value: float) -> str:
    return float_literal(value, "double")


def _sine_cosine(r: Num) -> tuple[Num, Num]:
    """Of |r| <= π/4."""
    u = r * r
    sine = fma(r * u, polynomial(u, _SIN), r)
    return sine, fma(u * u, polynomial(u, _COS), fma(u, -0.5, 1.0))


def _turned(r: Num, q: Num) -> Num:
    """sin(r + q π/2)."""
    sine, cosine = _sine_cosine(r)
    y = where((q & 1).equals(0), sine, cosine)
    return (y.bits() ^ ((q & 2) << 62)).as_float()


def sin(x: Num) -> Num:
    return where(x.equals(0.0), x, _turned(*quarters(x)))


def cos(x: Num) -> Num:
    r, q = quarters(x)
    return _turned(r, q + 1)


def tan(x: Num) -> Num:
    r, q = quarters(x)
    sine, cosine = _sine_cosine(r)
    even = (q & 1).equals(0)
    return where(x.equals(0.0), x, where(even, sine, -cosine) / where(even, cosine, sine))


# (atan x - x)/x³ in x² for |x| <= tan(π/8): 1e-18
_ATAN = (
    -0.33333333333333199,
    0.19999999999954079,
    -0.14285714280248252,
    0.11111110786125996,
    -0.090908978361317048,
    0.076920616318037731,
    -0.066631203266569129,
    0.058480085196176112,
    -0.050398438039655439,
    0.038078279418260112,
    -0.017922235654630131,
)


def _atan_of(t: Num) -> Num:
    """atan of 0 <= t <= 1; above tan(π/8) as π/4 + atan((t - 1) / (t + 1))."""
    upper = t > 0.41421356237309503
    z = where(upper, (t - 1.0) / (t + 1.0), t)
    u = z * z
    y = fma(z * u, polynomial(u, _ATAN), z)
    return where(upper, (y + 6.123233995736766e-17 * 0.5) + math.pi / 4, y)


def atan2(y: Num, x: Num) -> Num:
    """The angle from the smaller over the larger coordinate, then moved to its octant."""
    a, b = abs(y), abs(x)
    swap = a > b
    small, big = where(swap, b, a), where(swap, a, b)
    t = where(big.equals(0.0), 0.0, where(small.equals(big), 1.0, small / big))  # equal infinities, too
    z = _atan_of(t)
    z = where(swap, (math.pi / 2 - z) + 6.123233995736766e-17, z)
    z = where(x.bits() < 0, (math.pi - z) + 1.2246467991473532e-16, z)
    z = z.with_sign_of(y)
    return where(a.equals(a) & b.equals(b), z, NAN)


def atan(x: Num) -> Num:
    return atan2(x, x.of(1.0))


def _leg(x: Num) -> Num:
    """sqrt(1 - x²), accurate near |x| = 1; NaN beyond."""
    return ((1.0 - x) * (x + 1.0)).sqrt()


def asin(x: Num) -> Num:
    return atan2(x, _leg(x))


def acos(x: Num) -> Num:
    return atan2(_leg(x), x)


# ---- error function

# erf(x)/x in x² for |x| <= 1: 2e-17
_ERF_CENTRE = (
    1.1283791670955126,
    -0.37612638903183748,
    0.11283791670954857,
    -0.026866170645072894,
    0.0052239776247808541,
    -0.00085483269787414768,
    0.00012055331036872985,
    -1.4925593506248784e-5,
    1.6460972806742763e-6,
    -1.6350025114136335e-7,
    1.4657879118344268e-8,
    -1.1365663196342515e-9,
    5.9452571388635878e-11,
)
# (1 + 2y) exp(y²) erfc(y) in t = (y - 3)/(y + 3) for 1 <= y <= 27: 4e-17
_ERFC_TAIL = (
    1.2530080582697297,
    -0.13562110612458119,
    -0.047562294353451222,
    0.12964515870276233,
    -0.11927366341527016,
    0.068308027343940978,
    -0.023770514919840443,
    0.0025293918162610323,
    0.0018886903779399386,
    -0.00077983227041512092,
    -0.00010515997488788555,
    0.00012509934011712152,
    4.9505529262012595e-6,
    -2.0100722483246982e-5,
    -7.3587020872682309e-7,
    3.4745807892827946e-6,
    3.6805208535457677e-7,
    -6.2731168214519718e-7,
    -1.5631945714189961e-7,
    1.2633148034212209e-7,
    4.3215431511477346e-8,
    -3.4969453393130295e-8,
    4.7626490311460812e-9,
)


def _erf_centre(x: Num) -> Num:
    return x * polynomial(x * x, _ERF_CENTRE)


def _erfc_tail(y: Num) -> Num:
    """1 - erf(y) for 1 <= y <= 27, with a small relative error."""
    p, p_low = _two_product(y, y)
    e = exp(-p)
    e = fma(e, -p_low, e)
    return e * polynomial((y - 3.0) / (y + 3.0), _ERFC_TAIL) / fma(y, 2.0, 1.0)


def erf(x: Num) -> Num:
    y = abs(x)
    tail = 1.0 - _erfc_tail(y.maximum(1.0).minimum(6.5))
    return where(y < 1.0, _erf_centre(x), tail.with_sign_of(x))


def erfinv(x: Num) -> Num:
    """Winitzki's closed form (to 2e-3), and three steps of Halley's method on erf, or on erfc where x is near 1.

    With f = erf(y) - a and f' = 2/sqrt(π) exp(-y²), a step is u / (1 + u y) where u = f / f'.
    """
    a = abs(x)
    rest = 1.0 - a
    w = log(where(rest > 0.0, rest * (a + 1.0), _LEAST))
    k = w * 0.5 + 2 / (math.pi * 0.147)
    y = ((k * k - w * (1 / 0.147)).sqrt() - k).sqrt()
    # Near 0 the closed form cancels; there it is nearly linear.
    y = where(a < 0.01, a * 0.886226925452758, y)
    for _ in range(3):
        centre = y < 1.0
        f = where(centre, _erf_centre(y.minimum(1.0)) - a, rest - _erfc_tail(y.maximum(1.0).minimum(26.0)))
        u = f * exp(y * y) * 0.886226925452758
        y = y - u / fma(u, y, 1.0)
    y = where(a.equals(1.0), INF, where(a < 1.0, y, NAN))
    return y.with_sign_of(x)


# ---- gamma function

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
# Stirling's series, of log gamma and of its derivative, in 1/z²; z >= 8 makes the next terms 1e-16 and less.
_STIRLING = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)]
_DIGAMMA = [-b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)]
_SHIFT = 8


def _above_half(x: Num) -> tuple[Num, Num, Num]:
    """(z, small, z + 8 or z): z = x or 1 - x, whichever is at least 0.5, and whether it was shifted up."""
    z = where(x < 0.5, 1.0 - x, x)
    small = z < float(_SHIFT)
    return z, small, where(small, z + float(_SHIFT), z)


def _distance(x: Num) -> Num:
    """x minus the nearest whole number."""
    return x - x.rint()


def lgamma(x: Num) -> Num:
    """Stirling's series, shifted up by gamma(z + 8) = z (z + 1) … (z + 7) gamma(z) and reflected below 1/2."""
    z, small, w = _above_half(x)
    inverse = 1.0 / w
    y = (w - 0.5) * (log(w) - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5)
    y = fma(inverse, polynomial(inverse * inverse, _STIRLING), y)
    product = z
    for k in range(1, _SHIFT):
        product = product * (z + float(k))
    y = where(small, y - log(where(small, product, 1.0)), y)
    y = where(w < INF, y, INF)
    # gamma(x) gamma(1 - x) = π / sin(π x)
    sine, _ = _sine_cosine_of_turns(_distance(x))
    reflected = math.log(math.pi) - log(abs(sine)) - y
    y = where(x < 0.5, where(sine.equals(0.0), INF, reflected), y)
    return where(abs(x).equals(INF), INF, where(x.equals(x), y, NAN))


def _sine_cosine_of_turns(d: Num) -> tuple[Num, Num]:
    """sin(π d) and cos(π d) for |d| <= 1/2."""
    near = abs(d) <= 0.25
    sine, cosine = _sine_cosine(where(near, d, 0.5 - abs(d)) * math.pi)
    return where(near, sine, cosine.with_sign_of(d)), where(near, cosine, sine)


def digamma(x: Num) -> Num:
    """log z - 1/(2z) - …, shifted up by digamma(z + 1) = digamma(z) + 1/z and reflected below 1/2."""
    z, small, w = _above_half(x)
    inverse = 1.0 / w
    square = inverse * inverse
    y = log(w) - inverse * 0.5 + square * polynomial(square, _DIGAMMA)
    shifts = 1.0 / z
    for k in range(1, _SHIFT):
        shifts = shifts + 1.0 / (z + float(k))
    y = where(small, y - shifts, y)
    y = where(w < INF, y, INF)
    # digamma(1 - x) - digamma(x) = π / tan(π x)
    sine, cosine = _sine_cosine_of_turns(_distance(x))
    reflected = y - cosine / sine * math.pi
    y = where(x < 0.5, where(sine.equals(0.0), NAN, reflected), y)
    y = where(x.equals(0.0), x.of(-INF).with_sign_of(-x), y)
    return where(x > -INF, y, NAN)


FUNCTIONS: dict[str, Callable[..., Num]] = {
    f.__name__: f
    for f in (
        exp, expm1, sigmoid, tanh, sinh, cosh, log, log2, log10, log1p, asinh, acosh, atanh, pow, cbrt, hypot, mod,
        sin, cos, tan, asin, acos, atan, atan2, erf, erfinv, lgamma, digamma,
    )
}  # fmt: skip
"""Primitive → formula."""
