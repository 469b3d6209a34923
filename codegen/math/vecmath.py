"""Transcendental functions as straight-line code over values, for any number of lanes.

`FUNCTIONS` maps a primitive's name to a function of the handler and its operands, f32 or f64. Functions that matter for
the speed of models have f32 code here; others are computed in f64 (`f64_*`) and rounded. Polynomials are minimax fits
made by `benchmarks/minimax.py`; errors (in units of the last place, against exact values) are measured by
tests/codegen/test_vecmath.py: at most 2 for exp, log and tanh, at most 6 for erf, at most 4 for the others.

Denormal operands are read, and denormal results rounded, with full accuracy. No denormal occurs as an intermediate
value of a normal result, because some machines compute with denormals a hundred times more slowly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gluonjit.codegen.math import f64_circular, f64_exponential, f64_powers, f64_special
from gluonjit.codegen.math.number import Num, fma, polynomial, where
from gluonjit.codegen.math.values import Val
from gluonjit.ir.types import F32, F64, I32

INF, NAN = math.inf, math.nan

# Adding 1.5·2²³ rounds a float to an integer and leaves that integer in the low bits of the sum.
_MAGIC = 12582912.0
_LOG2E = 1.4426950408889634
# ln 2 in two parts; the first has 15 bits, so that its product with an exponent is exact.
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.42860682030941723e-6
_LEAST = 2.0**-126
_EXP_HIGHEST, _EXP_LOWEST = 88.72283172607422, -87.3365478515625
_EXP_ZERO = -104.0
"""Where exp is less than half of the least denormal number, 2⁻¹⁴⁹."""

# (e^r - 1 - r) / r² for |r| <= ln 2 / 2, weighted for e^r and for e^r - 1: 3e-9 and 1.3e-8.
_EXP = (0.499999935, 0.166665207, 0.0416683875, 0.0083687103, 0.00138146083)
_EXPM1 = (0.500000006, 0.16666543, 0.0416662824, 0.00836657826, 0.00139464207)
# The latter for -0.35 <= r <= ln 2: 5e-9.
_EXPM1_UP = (0.499999975, 0.166666948, 0.0416675947, 0.00832741722, 0.00138579567, 0.000229891315)
# (log(1 + f) - f + f²/2) / f³ for sqrt(1/2) <= 1 + f <= sqrt(2): 6e-9 of the logarithm.
_LOG = (
    0.333333167,
    -0.250008105,
    0.200022858,
    -0.166245519,
    0.141812018,
    -0.13128785,
    0.128815882,
    -0.0785945674,
)
# erf(x)/x as a quotient P/Q in x² for |x| <= 3.93, beyond which erf is 1: 2.3e-8.
_ERF_END = 3.93
_ERF_P = (1.12837915, 0.190767631, 0.052787867, 0.00377884361, 0.000284779643, 2.04193886e-6)
_ERF_Q = (1.0, 0.502396134, 0.114250577, 0.0149959069, 0.00116500554, 3.8002235e-5)
# (sin x - x)/x³ and (cos x - 1 + x²/2)/x⁴ in x² for |x| <= π/4: 4e-9 and 1e-10.
_SIN = (-0.166666549, 0.00833217812, -0.000195172966)
_COS = (0.0416666469, -0.00138873675, 2.44384464e-5)


def _reduced(x: Num) -> tuple[Num, Num]:
    """(t, r) with x = n ln 2 + r and |r| <= ln 2 / 2, where t holds n in its low bits."""
    t = fma(x, _LOG2E, _MAGIC)
    n = t - _MAGIC
    return t, fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))


def _exp_in_range(x: Num) -> Num:
    """exp of arguments whose result neither overflows nor is below the least normal number."""
    t, r = _reduced(x)
    y = fma(polynomial(r, _EXP), r * r, r) + 1.0
    return (y.bits() + (t.bits() << 23)).as_float()  # the product with 2**n: n is added to the exponent


def exp(x: Num) -> Num:
    x = x.maximum(_EXP_ZERO)
    y = _exp_in_range(x)
    # A denormal result is made as an integer. The last bit of 2⁻¹⁰⁰ + 2²⁶ y is 2²⁶ times the least denormal, so the
    # mantissa of this sum holds the bits of y, rounded.
    sum = (y.bits() + (26 << 23)).as_float() + 2.0**-100
    denormal = (sum.bits() - ((127 - 100) << 23)).as_float()
    return where(x > _EXP_HIGHEST, INF, where(x < _EXP_LOWEST, denormal, y))


def expm1(x: Num) -> Num:
    # Half of the scale above, so that it does not overflow before the result does.
    t, r = _reduced(x.maximum(-17.5))
    p = fma(polynomial(r, _EXPM1), r * r, r)
    half = ((t.bits() << 23) + 0x3F000000).as_float()
    y = fma(p, half, half - 0.5)
    y = y + y
    return where(x > _EXP_HIGHEST, INF, where(abs(x) < 2.0**-25, x, y))


def sigmoid(x: Num) -> Num:
    y = -x
    e = _exp_in_range(y.maximum(_EXP_LOWEST))
    return 1.0 / (where(y > _EXP_HIGHEST, INF, e) + 1.0)


def tanh(x: Num) -> Num:
    """m / (m + 2) with m = e^2|x| - 1. Where x is small, m = e^-2|x| - 1, which rounds by half as much."""
    y = abs(x).minimum(9.02)
    y = y + y
    # Reduced to 0 <= r <= ln 2: then the sum of 2ⁿ (e^r - 1) and 2ⁿ - 1 never cancels.
    t = fma(y - 0.34657, _LOG2E, _MAGIC)
    n = t - _MAGIC
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, y))
    r = where(y < 0.34, -r, r)
    p = fma(polynomial(r, _EXPM1_UP), r * r, r)
    scale = ((t.bits() << 23) + 0x3F800000).as_float()
    y = fma(p, scale, scale - 1.0)
    return (y / (y + 2.0)).with_sign_of(x)


def _split(x: Num) -> tuple[Num, Num]:
    """(e, f) with x = 2**e (1 + f) and sqrt(1/2) <= 1 + f < sqrt(2); e as an i32. For normal, positive x."""
    root = 0x3F3504F3  # sqrt(1/2)
    i = x.bits() - root
    return i.sar(23), ((i & 0x7FFFFF) + root).as_float() - 1.0


def _log_series(f: Num, more: Num | float) -> Num:
    """log(1 + f) - f, plus `more`, which is small against the result."""
    u = f * f
    return fma(u, -0.5, fma(f * u, polynomial(f, _LOG), more))


def _log_edges(x: Num, y: Num) -> Num:
    y = where(x > 0.0, y, where(x < 0.0, x.of(NAN), -INF))
    return where(x < INF, y, x)  # inf and NaN are returned unchanged


def log(x: Num) -> Num:
    is_denormal = x < _LEAST
    n, f = _split(where(is_denormal, x * 2.0**23, x))
    e = n.to(F32) - where(is_denormal, x.of(23.0), 0.0)
    return _log_edges(x, fma(e, _LN2_HIGH, f + _log_series(f, e * _LN2_LOW)))


def log1p(x: Num) -> Num:
    u = x + 1.0
    # The rounding error of the sum is added to the fraction, with the same scale.
    b = u - 1.0
    lost = (1.0 - (u - b)) + (x - b)
    n, f = _split(u)
    f = fma(lost, ((127 - n.minimum(126)) << 23).as_float(), f)
    e = n.to(F32)
    y = fma(e, _LN2_HIGH, f + _log_series(f, e * _LN2_LOW))
    y = where(x.equals(0.0), x, y)
    y = where(x > -1.0, y, where(x.equals(-1.0), x.of(-INF), NAN))
    return where(x < INF, y, where(x.equals(INF), x.of(INF), NAN))


def erf(x: Num) -> Num:
    y = abs(x).minimum(_ERF_END)
    u = y * y
    return (y * polynomial(u, _ERF_P) / polynomial(u, _ERF_Q)).minimum(1.0).with_sign_of(x)


def _sine(x: Num, quarter: int) -> Num:
    """sin(x + quarter · π/2), by reducing the argument to [-π/4, π/4] and a number of quarter turns."""
    r, q = f64_circular.quarters(x.to(F64))
    r = r.to(F32)
    q = Num(q.s, q.s.cast(q.v, I32)) + quarter
    u = r * r
    sine = fma(r * u, polynomial(u, _SIN), r)
    cosine = fma(u * u, polynomial(u, _COS), fma(u, -0.5, 1.0))
    y = where((q & 1).equals(0), sine, cosine)
    return (y.bits() ^ ((q & 2) << 30)).as_float()


def sin(x: Num) -> Num:
    return where(x.equals(0.0), x, _sine(x, 0))


def cos(x: Num) -> Num:
    return _sine(x, 1)


_F32: dict[str, Callable[..., Num]] = {f.__name__: f for f in (exp, expm1, log, log1p, tanh, sigmoid, erf, sin, cos)}
_F64: dict[str, Callable[..., Num]] = {
    name: getattr(module, name)
    for module, names in (
        (f64_exponential, "exp expm1 sigmoid tanh sinh cosh log log2 log10 log1p asinh acosh atanh"),
        (f64_powers, "pow cbrt hypot mod"),
        (f64_circular, "sin cos tan asin acos atan atan2"),
        (f64_special, "erf erfinv lgamma digamma"),
    )
    for name in names.split()
}


def _function(name: str) -> Callable[..., Val]:
    narrow, wide = _F32.get(name), _F64[name]

    def apply(s: Any, *args: Val) -> Val:
        x = [Num(s, a) for a in args]
        if args[0].dtype is F64:
            return wide(*x).v
        if narrow is not None:
            return narrow(*x).v
        return wide(*(v.to(F64) for v in x)).to(F32).v

    return apply


FUNCTIONS: dict[str, Callable[..., Val]] = {name: _function(name) for name in _F64}
