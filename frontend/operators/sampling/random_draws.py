"""The distributions that the random operators draw from, computed from `random_bits`.

Every function draws a fixed number of streams and computes each element from the bits at its own index, so that the
numbers do not depend on how a graph is compiled. `shape` is the shape of the result, to which parameters broadcast.
Numbers are computed in `dtype`, float32 or float64, unless stated otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, F64, I32, I64, DType

Shape = tuple[int, ...]

GAMMA_ROUNDS = 7
GAMMA_STREAMS = 2 * GAMMA_ROUNDS + 1
"""A round of `gamma` fails with probability 0.0483 at most: all of them once in 1.6e9 elements."""

SMALL_MEAN = 8.0
POISSON_STEPS = 32
"""Poisson numbers of a mean up to `SMALL_MEAN` exceed `POISSON_STEPS` with probability 1e-10 at most."""


def uniform(b: Emitter, shape: Shape, dtype: DType) -> Any:
    """Uniform over the multiples of 2**-24 (float64: 2**-53) in [0, 1). One stream."""

    def compute(b: Emitter, shape: Shape) -> Any:
        if dtype is F64:
            bits = b.shift_right(b.random_bits(shape, I64), b.constant(11, I64))
            return b.cast(bits, dtype=F64) * 2.0**-53
        bits = b.shift_right(b.random_bits(shape, I32), b.constant(8, I32))
        return b.cast(bits, dtype=F32) * 2.0**-24

    return b.elementwise(compute, shape)


def _unit(b: Emitter, word: Any, dtype: DType) -> Any:
    """Maps 32 random bits to (0, 1], keeping all of them for numbers near 0."""
    return (b.cast(word, dtype=dtype) + 0.5) * 2.0**-32


def _words(b: Emitter, shape: Shape) -> tuple[Any, Any]:
    """Two independent numbers of 32 bits, as int64. One stream."""
    bits = b.random_bits(shape, I64)
    return b.shift_right(bits, b.constant(32, I64)), bits & b.constant(0xFFFFFFFF, I64)


def positive_unit(b: Emitter, shape: Shape, dtype: DType) -> Any:
    """Uniform over (0, 1], in steps of 2**-32. One stream."""
    return b.elementwise(lambda b, shape: _unit(b, _words(b, shape)[0], dtype), shape)


def normal(b: Emitter, shape: Shape, dtype: DType) -> Any:
    """Standard normal, up to 6.7 standard deviations (Box and Muller's transform). One stream."""

    def compute(b: Emitter, shape: Shape) -> Any:
        first, second = _words(b, shape)
        radius = b.sqrt(b.log(_unit(b, first, dtype)) * -2)
        angle = b.cast(second, dtype=dtype) * (2 * math.pi * 2.0**-32)
        return radius * b.cos(angle)

    return b.elementwise(compute, shape)


def exponential(b: Emitter, shape: Shape, dtype: DType) -> Any:
    """Standard exponential, up to 22.9. One stream."""
    return -b.log(positive_unit(b, shape, dtype))


def gamma(b: Emitter, alpha: Any, shape: Shape, dtype: DType) -> Any:
    """Gamma with shape parameter `alpha` and scale 1. `GAMMA_STREAMS` streams.

    Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000): the cube of a normal
    variate, rejected now and then. Instead of looping until one is accepted, `GAMMA_ROUNDS` are drawn for all. Where
    alpha < 1, gamma(alpha) is gamma(alpha + 1) * u**(1 / alpha).
    """
    one = b.constant(1, dtype)
    small = alpha < one
    d = b.select(small, alpha + one, alpha) - 1 / 3
    c = b.rsqrt(d * 9)
    y = one
    for _ in range(GAMMA_ROUNDS):
        x = normal(b, shape, dtype)
        t = c * x + one
        v = t * t * t
        # The logarithm of a negative v is NaN, and comparisons with NaN are false: v is rejected.
        bound = d * (one - v + b.log(v))
        bound = bound + x * x * 0.5
        accepted = b.log(positive_unit(b, shape, dtype)) < bound
        y = b.select(accepted, v, y)
    boost = b.exp(b.log(positive_unit(b, shape, dtype)) / alpha)
    return d * y * b.select(small, boost, one)


# Poisson


def poisson(b: Emitter, mean: Any, shape: Shape) -> Any:
    """Poisson with the given mean (float64), as whole numbers in float64. Two streams."""
    small = poisson_of_small_mean(b, mean, shape)
    return b.select(mean < SMALL_MEAN, small, poisson_of_large_mean(b, mean, shape))


def poisson_of_small_mean(b: Emitter, mean: Any, shape: Shape) -> Any:
    """For means up to `SMALL_MEAN`: inversion, summing the probabilities until they exceed u. One stream."""
    u = positive_unit(b, shape, F64)
    probability = b.exp(-mean)
    below, count = probability, b.constant(0, F64)
    for k in range(1, POISSON_STEPS + 1):
        count = b.select(u > below, b.constant(k, F64), count)
        probability = probability * (mean * (1 / k))
        below = below + probability
    return count


def poisson_of_large_mean(b: Emitter, mean: Any, shape: Shape) -> Any:
    """For means from `SMALL_MEAN` on: the quantile function at a normal variate's probability. One stream.

    Temme's uniform asymptotic expansion of the incomplete gamma function, as M. Giles inverts it ("Approximation of
    the inverse Poisson cumulative distribution function", ACM TOMS 42 (2016)): with r such that
    sqrt(2 (1 - r + r log r)) = s = w / sqrt(mean), taken with the sign of r - 1, the quantile of a normal w is

        mean * r + c(r) - 0.0218 / (mean * r + c(r) + 0.065 * mean),   c(r) = log(s * sqrt(r) / (r - 1)) / log(r)

    rounded down. The distribution function is off by 6e-6 at mean 8, 3e-6 at 10, 3e-7 at 100.
    """

    def number(x: float) -> Any:
        return b.constant(x, F64)

    w = normal(b, shape, F64)
    # Below -1.41, where r reaches 0, the quantile is 0 already.
    s = b.maximum(w / b.sqrt(mean), number(-1.41))
    half_square = s * s * number(0.5)
    near_one = _polynomial(b, s, (1, 1, 1 / 6, -1 / 72, 1 / 270))
    r = b.maximum(near_one, number(1e-3))
    for _ in range(2):  # Newton
        log_r = b.log(r)
        excess = number(1) - r + r * log_r - half_square
        r = b.maximum(r - excess / log_r, number(1e-12))
    c = b.log(s * b.sqrt(r) / (r - number(1))) / b.log(r)
    # Near r = 1 the formulas are 0 / 0, and the series exact.
    central = abs(s) < number(0.01)
    r = b.select(central, near_one, r)
    c = b.select(central, _polynomial(b, s, (1 / 3, -1 / 36, 7 / 810)), c)
    x = mean * r + c
    x = x - number(0.0218) / (x + mean * number(0.065))
    return b.maximum(b.floor(x), number(0))


def _polynomial(b: Emitter, x: Any, coefficients: Sequence[float]) -> Any:
    """c[0] + c[1] x + c[2] x² + … in float64."""
    y = b.constant(coefficients[-1], F64)
    for c in coefficients[-2::-1]:
        y = y * x + c
    return y
