"""Circular functions and their inverses in f64, to a few 1e-16 of their values, for arguments of any size."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from gluonjit.codegen.math.f64_exponential import MAGIC
from gluonjit.codegen.math.number import Num, fma, polynomial, where
from gluonjit.codegen.math.values import Val
from gluonjit.codegen.text.llvm import Module, float_literal
from gluonjit.ir.types import BOOL, F64, I64

INF, NAN = math.inf, math.nan

# π/2 in three parts, of 33, 33 and 53 bits: their products with up to 20 bits (31 when fused) are exact.
_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
_SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(1, 9)]  # (sin r - r)/r³ in r²: the next term is 1e-19
_COS = [(-1) ** k / math.factorial(2 * k) for k in range(2, 10)]


def quarters(x: Num) -> tuple[Num, Num]:
    """(r, q): x = q π/2 + r with |r| <= π/4; only the low two bits of q, an i64, are used. NaN for infinities."""
    s = x.s
    t = fma(x, 2 / math.pi, MAGIC)
    n = t - MAGIC
    r = x
    for part in _HALF_PI:
        r = fma(n, -part, r)
    large = abs(x) > (2.0**30 if s.target.has_fma else 2.0**20)
    r_val, q_val = _large_quarters(s, x.v, (large & (abs(x) < INF)).v, r.v, t.bits().v)
    return Num(s, r_val), Num(s, q_val)


def _large_quarters(s: Any, x: Val, large: Val, r: Val, q: Val) -> tuple[Val, Val]:
    """`r` and `q`, replaced in the lanes where `large` holds by one function call per lane."""
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
    # e - 54 bits are skipped after the zero word; the bounds only matter for lanes whose results are not used.
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


def sine_cosine(r: Num) -> tuple[Num, Num]:
    """(sin r, cos r) for |r| <= π/4."""
    u = r * r
    sine = fma(r * u, polynomial(u, _SIN), r)
    return sine, fma(u * u, polynomial(u, _COS), fma(u, -0.5, 1.0))


def _turned(r: Num, q: Num) -> Num:
    """sin(r + q π/2)."""
    sine, cosine = sine_cosine(r)
    y = where((q & 1).equals(0), sine, cosine)
    return (y.bits() ^ ((q & 2) << 62)).as_float()


def sin(x: Num) -> Num:
    return where(x.equals(0.0), x, _turned(*quarters(x)))


def cos(x: Num) -> Num:
    r, q = quarters(x)
    return _turned(r, q + 1)


def tan(x: Num) -> Num:
    r, q = quarters(x)
    sine, cosine = sine_cosine(r)
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
    """Computes atan of the smaller over the larger coordinate, then moves the angle to its octant."""
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
