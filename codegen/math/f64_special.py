"""Error function, its inverse, and the gamma function's logarithm in f64.

To a few 1e-16 of their values; near the zeros of `lgamma` and `digamma` to 1e-14 absolutely.
"""

from __future__ import annotations

import math

from gluonjit.codegen.math.f64_circular import sine_cosine
from gluonjit.codegen.math.f64_exponential import LEAST, exp, log
from gluonjit.codegen.math.f64_powers import two_product
from gluonjit.codegen.math.number import Num, fma, polynomial, where

INF, NAN = math.inf, math.nan

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
    p, p_low = two_product(y, y)
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
    w = log(where(rest > 0.0, rest * (a + 1.0), LEAST))
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
    # gamma(x) gamma(1 - x) = π / sin(π x). Tiny x takes sin(π x) = π x, as computing it would lose a denormal's digits.
    sine, _ = _sine_cosine_of_turns(_distance(x))
    reflected = -log(where(abs(x) < 2.0**-60, abs(x), abs(sine) * (1 / math.pi))) - y
    y = where(x < 0.5, where(sine.equals(0.0), INF, reflected), y)
    return where(abs(x).equals(INF), INF, where(x.equals(x), y, NAN))


def _sine_cosine_of_turns(d: Num) -> tuple[Num, Num]:
    """sin(π d) and cos(π d) for |d| <= 1/2."""
    near = abs(d) <= 0.25
    sine, cosine = sine_cosine(where(near, d, 0.5 - abs(d)) * math.pi)
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
