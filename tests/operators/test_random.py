"""Random operators draw from the distributions they name; the key is fixed, so a passing test always passes."""

import math

import numpy as np
import pytest

from gluonjit.ir.quiet import quiet
from gluonjit.operators import registry
from gluonjit.operators.sampling import random_draws
from gluonjit.runtime import eager
from gluonjit.runtime.eager import Eager

from . import samples
from .running import run_eager

N = 20_000


def draw(operator, inputs=(), **attrs):
    return run_eager(operator, [np.asarray(x, np.float32) for x in inputs], attrs)[0]


def normal_cdf(x):
    return 0.5 * (1 + np.array([math.erf(v / math.sqrt(2)) for v in x]))


def gamma_cdf(k, x):
    """For whole k and k = 1/2."""
    if k == 0.5:
        return np.array([math.erf(math.sqrt(v)) for v in x])
    return 1 - np.exp(-x) * sum(x**n / math.factorial(n) for n in range(k))


def assert_follows(values, cdf):
    """Kolmogorov and Smirnov's test, at the level of one in a thousand."""
    x = np.sort(np.asarray(values, np.float64).ravel())
    n = x.size
    steps = np.arange(n + 1) / n
    expected = cdf(x)
    distance = max(np.abs(expected - steps[1:]).max(), np.abs(expected - steps[:-1]).max())
    assert distance < 1.95 / math.sqrt(n), f"off by {distance * math.sqrt(n):.2f} / sqrt(n)"


def assert_counts(values, probabilities):
    """Pearson's test of whole numbers, four standard deviations wide; `probabilities` are those of 0, 1, 2, …"""
    values = np.asarray(values, np.int64).ravel()
    expected = np.asarray(probabilities) * values.size
    kept = expected >= 8
    observed = np.bincount(values, minlength=len(expected))
    statistic = ((observed[: len(expected)][kept] - expected[kept]) ** 2 / expected[kept]).sum()
    freedom = kept.sum() - 1
    assert observed.sum() - observed[: len(expected)].sum() < 5, "values beyond the list"
    assert statistic < freedom + 4 * math.sqrt(2 * freedom) + 8, f"{statistic:.1f} for {freedom} degrees of freedom"


def poisson(mean, n=400):
    return [math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(n)]


def negative_binomial(k, p, n=400):
    return [
        math.exp(math.lgamma(x + k) - math.lgamma(k) - math.lgamma(x + 1) + k * math.log(p) + x * math.log1p(-p))
        for x in range(n)
    ]


def test_uniform():
    x = draw("_random_uniform", low=-1, high=3, shape=(N,))
    assert x.min() >= -1 and x.max() < 3
    assert_follows(x, lambda v: (v + 1) / 4)


@pytest.mark.parametrize(("dtype", "low", "high"), [("float16", 0, 1), ("float32", 1, 1.0000002), ("float64", 0, 1)])
def test_uniform_stays_below_high(dtype, low, high):
    x = draw("_random_uniform", low=low, high=high, shape=(N,), dtype=dtype)
    assert x.min() >= low and x.max() < high


def test_uniform_of_no_width():
    assert set(draw("_random_uniform", low=3, high=3, shape=(5,))) == {3}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_normal(dtype):
    x = draw("_random_normal", loc=2, scale=3, shape=(N,), dtype=dtype)
    assert x.dtype == dtype
    assert_follows((x.astype(np.float64) - 2) / 3, normal_cdf)


def test_neighbours_are_independent():
    x = draw("_random_normal", shape=(N,)).astype(np.float64)
    y = draw("_random_uniform", shape=(N,)).astype(np.float64) - 0.5
    for values in (x, np.abs(x) - np.abs(x).mean(), y):
        for lag in (1, 2, 7):
            correlation = (values[lag:] * values[:-lag]).mean() / values.var()
            assert abs(correlation) < 4 / math.sqrt(N)


def test_exponential():
    assert_follows(draw("_random_exponential", lam=2, shape=(N,)), lambda x: 1 - np.exp(-2 * x))


@pytest.mark.parametrize("alpha", [0.5, 1, 2, 20])
def test_gamma(alpha):
    x = draw("_random_gamma", alpha=alpha, beta=3, shape=(N,)).astype(np.float64)
    assert_follows(x / 3, lambda v: gamma_cdf(alpha, v))


@pytest.mark.parametrize("mean", [0.3, 5, 7.9, 8, 30, 250])
def test_poisson(mean):
    assert_counts(draw("_random_poisson", lam=mean, shape=(N,)), poisson(mean))


def test_poisson_of_nothing():
    assert set(draw("_random_poisson", lam=0, shape=(50,))) == {0}


@pytest.mark.parametrize("mean", [1.5, 8.0, 9.5, 40.0, 2000.0])
def test_poisson_distribution_function(mean, monkeypatch):
    """At equidistant probabilities in place of random ones, the distribution function shows to the sixth digit."""
    n = 200_000
    u = (np.arange(n) + 0.5) / n
    b = Eager(False, lambda: None)
    w = math.sqrt(2) * b.erfinv(2 * u - 1)
    monkeypatch.setattr(random_draws, "positive_unit", lambda b, shape, dtype: u)
    monkeypatch.setattr(random_draws, "normal", lambda b, shape, dtype: w)
    with quiet():
        drawn = random_draws.poisson(b, np.float64(mean) * np.ones(n), (n,))
    top = int(mean + 12 * math.sqrt(mean) + 12)
    exact = np.cumsum(poisson(mean, top))
    found = np.cumsum(np.bincount(drawn.astype(int), minlength=top))[:top] / n
    assert np.abs(found - exact).max() < 7e-6 + 1 / n


@pytest.mark.parametrize(("k", "p"), [(1, 0.3), (4, 0.5), (20, 0.4)])
def test_negative_binomial(k, p):
    assert_counts(draw("_random_negative_binomial", k=k, p=p, shape=(N,)), negative_binomial(k, p))


@pytest.mark.parametrize(("mu", "alpha"), [(2, 0.5), (10, 0.2)])
def test_generalized_negative_binomial(mu, alpha):
    expected = negative_binomial(1 / alpha, 1 / (1 + mu * alpha))
    assert_counts(draw("_random_generalized_negative_binomial", mu=mu, alpha=alpha, shape=(N,)), expected)


def test_generalized_negative_binomial_without_dispersion():
    assert_counts(draw("_random_generalized_negative_binomial", mu=3, alpha=0, shape=(N,)), poisson(3))


def test_randint():
    assert_counts(draw("_random_randint", low=-3, high=4, shape=(N,)) + 3, [1 / 7] * 7)
    wide = draw("_random_randint", low=-(2**62), high=2**62 - 1, shape=(N,), dtype="int64")
    assert_follows(wide / 2.0**63 + 0.5, lambda x: x)


def test_multinomial():
    data = np.array([[0.1, 0.0, 0.6, 0.3], [0.25, 0.25, 0.25, 0.25]], np.float32)
    x, likelihood = run_eager("_sample_multinomial", [data], {"shape": (N // 2,), "get_prob": True})
    assert x.shape == likelihood.shape == (2, N // 2) and x.dtype == "int32"
    for row, chances, logs in zip(x, data, likelihood):
        assert_counts(row, chances)
        assert np.allclose(logs, np.log(chances[row]), rtol=1e-6)


def test_shuffle():
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    first = []
    for k in range(600):
        b = Eager(False, lambda k=k: np.array([k, 0]))
        (y,) = registry.get("shuffle").expand_into(b, [x], {})
        assert sorted(map(tuple, y)) == list(map(tuple, x))
        first.append(y[0, 0] / 2)
    assert_counts(first, [1 / 6] * 6)


@pytest.mark.parametrize(
    ("operator", "parameters", "means"),
    [
        ("uniform", [[0, 10], [2, 20]], [1, 15]),
        ("normal", [[0, 10], [1, 2]], [0, 10]),
        ("exponential", [[0.5, 4]], [2, 0.25]),
        ("gamma", [[0.4, 5], [2, 3]], [0.8, 15]),
        ("poisson", [[0.5, 50]], [0.5, 50]),
        ("negative_binomial", [[2, 10], [0.5, 0.8]], [2, 2.5]),
        ("generalized_negative_binomial", [[3, 30], [0, 0.1]], [3, 30]),
    ],
)
def test_parameters_as_tensors(operator, parameters, means):
    x = draw(f"_sample_{operator}", parameters, shape=(N,))
    assert x.shape == (2, N)
    error = np.abs(x.mean(1) - means) / (x.std(1) / math.sqrt(N))
    assert (error < 4).all()


@pytest.mark.parametrize("operator", [name for name in samples.operators() if registry.get(name).streams])
def test_streams_are_counted(operator):
    op = registry.get(operator)
    for case in samples.cases(operator):
        drawn = []

        def key(drawn=drawn):
            drawn.append(1)
            return np.array([1, len(drawn)])

        attrs = op.parse(case.attrs)
        with quiet():
            op.expand_into(Eager(case.training, key), case.inputs, attrs)
        assert len(drawn) == op.streams(attrs, case.training), case


@pytest.mark.parametrize("name", ["uniform", "normal", "gamma", "poisson", "negative_binomial"])
def test_large_tensors_are_computed_in_pieces(name, monkeypatch):
    """Of which nobody can tell: the numbers, and the keys that are taken, are those of the whole."""
    sizes = []

    def whole(b, compute, shape, uniform=None):
        sizes.append(shape)
        return compute(b, shape)

    assert eager.PIECE < 40_000
    pieces = draw(f"_random_{name}", shape=(4, 10_001))
    monkeypatch.setattr(Eager, "elementwise", whole)
    assert np.array_equal(draw(f"_random_{name}", shape=(4, 10_001)), pieces)
    assert sizes
