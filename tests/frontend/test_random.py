"""Random numbers: one seeded sequence of keys, and MXNet's functions over the random operators."""

import inspect
import threading

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import MXNetError, nd, random


@pytest.fixture(autouse=True)
def seeded():
    mx.random.seed(7)


# Keys.


def test_keys_count_up_from_the_seed():
    mx.random.seed(5)
    keys = [random.next_key(), random.reserve(3), random.next_key()]
    np.testing.assert_array_equal(keys, [[5, 0], [5, 1], [5, 4]])
    assert all(key.dtype == np.int64 for key in keys)
    mx.random.seed(5)
    np.testing.assert_array_equal(random.next_key(), [5, 0])


@pytest.mark.parametrize(("seed", "kept"), [(-1, 2**32 - 1), (2**40 + 3, 3), (np.int64(9), 9), (True, 1)])
def test_seeds_are_32_bits(seed, kept):
    mx.random.seed(seed, ctx=mx.cpu())
    assert random.next_key()[0] == kept


@pytest.mark.parametrize("seed", ["a", 1.5, None])
def test_seeds_are_integers(seed):
    with pytest.raises(ValueError, match="seed_state must be int"):
        mx.random.seed(seed)


def test_no_two_threads_get_the_same_key():
    keys = []
    threads = [threading.Thread(target=lambda: keys.extend(random.next_key()[1] for _ in range(300))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(keys) == list(range(1200))


# Functions.

DRAWS = {
    "uniform": lambda **k: nd.random.uniform(-1, 3, **k),
    "normal": lambda **k: nd.random.normal(2, 0.5, **k),
    "exponential": lambda **k: nd.random.exponential(2.0, **k),
    "gamma": lambda **k: nd.random.gamma(3.0, 0.5, **k),
    "poisson": lambda **k: nd.random.poisson(4.0, **k),
    "negative_binomial": lambda **k: nd.random.negative_binomial(3, 0.4, **k),
    "generalized_negative_binomial": lambda **k: nd.random.generalized_negative_binomial(2.0, 0.3, **k),
    "randint": lambda **k: nd.random.randint(-2, 5, **k),
}
# Mean and variance of the distributions above.
MOMENTS = {
    "uniform": (1, 16 / 12),
    "normal": (2, 0.25),
    "exponential": (2, 4),
    "gamma": (1.5, 0.75),
    "poisson": (4, 4),
    "negative_binomial": (3 * 0.6 / 0.4, 3 * 0.6 / 0.16),
    "generalized_negative_binomial": (2, 2 + 0.3 * 4),
    "randint": (1, 4),
}


@pytest.mark.parametrize("name", DRAWS)
def test_distributions(name):
    n = 20000
    x = DRAWS[name](shape=(n,))
    assert x.shape == (n,)
    assert x.dtype is (np.int32 if name == "randint" else np.float32)
    mean, variance = MOMENTS[name]
    values = x.asnumpy().astype(np.float64)
    assert abs(values.mean() - mean) < 5 * np.sqrt(variance / n)
    assert abs(values.var() / variance - 1) < 0.1


@pytest.mark.parametrize("name", DRAWS)
def test_the_seed_decides(name):
    def draw():
        mx.random.seed(3)
        return [DRAWS[name](shape=(5,)).asnumpy() for _ in range(2)]

    first, second = draw(), draw()
    np.testing.assert_array_equal(first, second)
    if name not in ("randint", "poisson"):
        assert not np.array_equal(first[0], first[1])


def test_shapes_and_types():
    assert nd.random.uniform().shape == (1,)
    assert nd.random.uniform(0, 1, 2).shape == (2,)
    assert nd.random.uniform(0, 1, shape=(2, 3), dtype="float64").dtype is np.float64
    assert nd.random.randn(2, 3).shape == (2, 3)
    assert nd.random.randn(2, loc=100.0, scale=0.001).asnumpy().min() > 99
    assert nd.random.randint(0, 5, shape=(4,), dtype="int64").dtype is np.int64
    assert nd.random.uniform(shape=2, ctx=mx.cpu(1)).ctx == mx.cpu(1)
    out = nd.zeros((2, 2))
    assert nd.random.normal(out=out) is out and out.asnumpy().any()


def test_parameters_as_arrays():
    low, high = nd.array([0, 10]), nd.array([1, 20])
    x = nd.random.uniform(low, high, shape=3).asnumpy()
    assert x.shape == (2, 3)
    assert (x[0] >= 0).all() and (x[0] < 1).all() and (x[1] >= 10).all() and (x[1] < 20).all()
    assert nd.random.normal(low, high).shape == (2,)
    assert nd.random.exponential(nd.ones(2), shape=2).shape == (2, 2)


def test_multinomial_and_shuffle():
    sure = nd.array([[0, 1.0], [1, 0]])
    np.testing.assert_array_equal(nd.random.multinomial(sure, shape=3).asnumpy(), [[1, 1, 1], [0, 0, 0]])
    draws, log_probabilities = nd.random.multinomial(nd.array([0.0, 1.0]), shape=2, get_prob=True)
    assert draws.dtype is np.int32 and log_probabilities.asnumpy().tolist() == [0, 0]
    x = nd.arange(20)
    assert sorted(nd.random.shuffle(x).asnumpy()) == list(range(20))


def test_other_spellings():
    def first(draw):
        mx.random.seed(1)
        return draw().asnumpy()

    same = [
        lambda: nd.random.normal(0, 1, shape=(3,)),
        lambda: mx.random.normal(shape=(3,)),
        lambda: nd.random_normal(0, 1, shape=(3,)),
        lambda: nd.random_normal(loc=0, scale=1, shape=(3,)),
        lambda: nd.random.randn(3),
    ]
    for draw in same:
        np.testing.assert_array_equal(first(draw), first(same[0]))
    like = nd.zeros((2, 3))
    assert nd.random.uniform_like(like).shape == nd.random.normal_like(like).shape == (2, 3)


def test_signatures_are_mxnets():
    assert str(inspect.signature(nd.random.uniform)) == (
        "(low=0, high=1, shape=_Null, dtype=_Null, ctx=None, out=None, **kwargs)"
    )
    assert str(inspect.signature(nd.random.randint)).startswith("(low, high, shape=_Null")


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (lambda: nd.random.normal(nd.zeros(2), 1), AssertionError, "must all have the same type, but got both"),
        (lambda: nd.random.normal("a"), ValueError, "must be either NDArray or numbers, but got <class 'str'>"),
        (lambda: nd.random.randint(0.5, 5, shape=2), MXNetError, "Invalid Parameter format for low expect"),
        (lambda: nd.random.uniform(shape=(2,), foo=3), MXNetError, "Cannot find argument 'foo'"),
        (lambda: nd.random.uniform(0, 1, ctx=mx.gpu()), MXNetError, "GPU is not enabled"),
        (lambda: nd.random.randint(), TypeError, "missing a required argument: 'low'"),
        (lambda: mx.random.nosuch, AttributeError, "module 'gluonjit.random' has no attribute 'nosuch'"),
    ],
)
def test_wrong_calls(draw, error, message):
    with pytest.raises(error) as caught:
        draw()
    assert message in str(caught.value)
