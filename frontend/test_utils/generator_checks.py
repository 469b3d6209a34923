"""Checks of random generators: functions that give as many samples of a distribution as they are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Generator = Callable[[int], Any]


def gen_buckets_probs_with_ppf(
    ppf: Callable[[float], float], nbuckets: int
) -> tuple[list[tuple[float, float]], list[float]]:
    """Intervals that a distribution with this inverse of its cdf falls into with equal probability; and that."""
    if nbuckets < 1:
        raise AssertionError(f"there must be at least one bucket, got {nbuckets}")
    ends = [ppf(k / nbuckets) for k in range(nbuckets + 1)]
    return list(zip(ends, ends[1:])), [1.0 / nbuckets] * nbuckets


def mean_check(generator: Generator, mu: float, sigma: float, nsamples: int = 1000000) -> bool:
    """Whether the samples' mean is within three standard errors, sigma / sqrt(n), of `mu`."""
    mean = np.array(generator(nsamples)).mean()
    return bool(abs(mean - mu) < 3 * sigma / math.sqrt(nsamples))


def var_check(generator: Generator, sigma: float, nsamples: int = 1000000) -> bool:
    """Whether the samples' variance is within three standard errors, sigma² sqrt(2 / (n - 1)), of sigma²."""
    variance = np.array(generator(nsamples)).var(ddof=1)
    return bool(abs(variance - sigma**2) < 3 * sigma**2 * math.sqrt(2 / (nsamples - 1)))


def chi_square_check(
    generator: Generator, buckets: Sequence[Any], probs: Sequence[float], nsamples: int = 1000000
) -> tuple[float, np.ndarray, np.ndarray]:
    """Pearson's chi-square test: (p, how many samples fell into each bucket, how many should have).

    Buckets are intervals (low, high), in ascending order and without overlap, or the values themselves.
    """
    if not isinstance(buckets, list) or len(probs) != len(buckets):
        raise AssertionError("buckets must be a list, with a probability for each")
    samples = np.asarray(generator(nsamples))
    if isinstance(buckets[0], (list, tuple)):
        ends = np.array(buckets, np.float32).ravel()
        if (np.diff(ends) < 0).any():
            raise AssertionError(f"buckets must be in ascending order and not overlap, got {buckets}")
        places, wanted = np.searchsorted(ends, samples, side="right") // 2, range(len(buckets))
    else:
        places, wanted = samples, buckets  # type: ignore[assignment]
    observed = np.array([np.count_nonzero(places == bucket) for bucket in wanted])
    expected = (nsamples * np.array(probs, np.float32)).astype(np.int32)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = float(((observed - expected) ** 2 / expected).sum())
    return _chi_square_tail(statistic, len(buckets) - 1), observed, expected


def _chi_square_tail(x: float, freedom: int) -> float:
    """The probability that a chi-square variable with this many degrees of freedom exceeds x.

    A finite sum (Abramowitz and Stegun, 26.4.4 and 26.4.5).
    """
    if math.isnan(x) or freedom < 1:
        return math.nan
    if x <= 0 or math.isinf(x):
        return float(x <= 0)
    half = x / 2
    odd = freedom % 2
    powers = [k + odd / 2 for k in range(freedom // 2)]
    terms = (math.exp(s * math.log(half) - half - math.lgamma(s + 1)) for s in powers)
    return min((math.erfc(math.sqrt(half)) if odd else 0.0) + math.fsum(terms), 1.0)


def verify_generator(
    generator: Generator,
    buckets: Sequence[Any],
    probs: Sequence[float],
    nsamples: int = 1000000,
    nrepeat: int = 5,
    success_rate: float = 0.2,
    alpha: float = 0.05,
) -> list[float]:
    """The p values of `nrepeat` chi-square tests; AssertionError if less than `success_rate` of them exceed `alpha`."""
    results = [chi_square_check(generator, buckets, probs, nsamples) for _ in range(nrepeat)]
    ps = [p for p, _, _ in results]
    if sum(p > alpha for p in ps) < nrepeat * success_rate:
        raise AssertionError(
            f"Generator test fails, Chi-square p={ps}, obs_freq={[r[1] for r in results]}, "
            f"expected_freq={[r[2] for r in results]}.\nbuckets={buckets}, probs={probs}"
        )
    return ps
