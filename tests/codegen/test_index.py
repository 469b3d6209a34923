"""Index expressions against Python's integers, and the simplifications that contiguous access rests on."""

import itertools
import random

import pytest

from gluonjit.codegen.loops.index import Affine, Div, Var, affine, counter, flat, lookup, variable
from gluonjit.ir.dims import at, is_at_most, named
from support.soak import tries


def values(expr, variables):
    """The expression's value for every assignment of the variables."""
    for assignment in itertools.product(*(range(v.low, v.high + 1) for v in variables)):
        yield expr.evaluate(dict(zip(variables, assignment)).__getitem__)


@pytest.mark.parametrize("seed", range(8))
def test_random_expressions(seed):
    """Sums, products, quotients and remainders, nested, have the values and bounds that Python's integers have."""
    rng = random.Random(seed)
    variables = [Var("a", 0, 5), Var("b", 0, 3), Var("c", -3, 4)]
    assignments = list(itertools.product(*(range(v.low, v.high + 1) for v in variables)))
    for _ in range(tries(60)):
        some = rng.sample(assignments, 40)
        env = {v: [assignment[k] for assignment in some] for k, v in enumerate(variables)}
        start = Affine(rng.randint(-5, 12))
        expected = [start.const] * len(some)
        for v in variables:
            c = rng.choice([0, 1, 1, 2, 3, 4, 6, 8, 12, 24, -1, -2])
            start = start + affine(v) * c
            expected = [e + x * c for e, x in zip(expected, env[v])]
        pool = [(start, expected)]
        for _ in range(rng.randint(1, 5)):
            x, xs = rng.choice(pool)
            y, ys = rng.choice(pool)
            n = rng.choice([1, 2, 3, 4, 6, 8, 12])
            pool.append(
                rng.choice(
                    [
                        (x // n, [e // n for e in xs]),
                        (x % n, [e % n for e in xs]),
                        (x * n, [e * n for e in xs]),
                        (x + y * n, [e + n * g for e, g in zip(xs, ys)]),
                        (x - y * n, [e - n * g for e, g in zip(xs, ys)]),
                    ]
                )
            )
        for expr, wanted in pool:
            assert expr.low <= min(wanted) and max(wanted) <= expr.high, expr
            for k, assignment in enumerate(some):
                assert expr.evaluate(dict(zip(variables, assignment)).__getitem__) == wanted[k], expr


@pytest.mark.parametrize("divisor", range(1, 14))
def test_every_quotient_and_remainder_of_two_terms(divisor):
    a, b = Var("a", 0, 4), Var("b", 0, 6)
    for ca, cb, const in itertools.product((1, 2, 3, 4, 7, -1), (1, 3, 7, -2), (-4, 0, 5)):
        e = affine(a) * ca + affine(b) * cb + const
        wanted = list(values(e, (a, b)))
        assert list(values(e // divisor, (a, b))) == [x // divisor for x in wanted]
        assert list(values(e % divisor, (a, b))) == [x % divisor for x in wanted]
        assert (e // divisor) * divisor + e % divisor == e


def test_ranges_remove_quotients():
    h, w, c = variable("h", 4), variable("w", 6), variable("c", 5)
    at = flat((h, w, c), (4, 6, 5))
    assert (at // 30, at % 30, at // 5 % 6, at % 5) == (h, w * 5 + c, w, c)
    assert at // 10 * 10 + at % 10 == at
    assert at // 15 == h * 2 + w // 3
    assert at // 120 == affine(0)
    assert (w * 5 + c) // 30 == affine(0) and (c + 7) % 30 == c + 7


def test_a_reshape_of_a_merged_loop_is_contiguous():
    i = variable("i", 12 * 5 * 4 * 3)
    four = (i // 60, i // 12 % 5, i // 3 % 4, i % 3)
    assert flat(four, (12, 5, 4, 3)) == i
    assert flat((i // 60, i // 3 % 20, i % 3), (12, 20, 3)) == i
    # Through another shape and back, with sizes that share no factor along the way.
    other = flat((i // 90, i // 9 % 10, i % 9), (8, 10, 9))
    assert other == i
    assert flat((i // 60 % 12, i % 60 // 12, i % 12), (12, 5, 12)) == i


def test_nested_quotients_join():
    i = variable("i", 1000)
    assert i // 4 // 5 == i // 20
    assert (i // 4 + 3) // 5 == (i + 12) // 20
    assert i % 12 % 4 == i % 4
    assert i % 12 // 4 == i // 4 % 3
    assert (i * 2 + 1) // 2 == i and (i * 2 + 1) % 2 == affine(1)


def test_a_blocked_loop_keeps_what_divides_the_block():
    block, lane = variable("block", 9), affine(Var("lane", 0, 15))
    i = block * 48 + lane + 16
    assert i % 16 == lane and i // 16 == block * 3 + 1
    assert i // 4 == block * 12 + lane // 4 + 4
    assert i % 3 == (lane + 16) % 3  # the same in every block


def test_an_index_of_a_blocked_loop_is_contiguous():
    """Splitting an index whose parts share no factor with the block, and joining it again."""
    block, lane = variable("block", 6), affine(Var("lane", 0, 15))
    i = block * 48 + lane + 16
    assert flat((i // 33, i // 3 % 11, i % 3), (10, 11, 3)) == i
    assert flat((i // 70, i // 14 % 5, i % 14), (5, 5, 14)) == i


def test_substitution_simplifies_again():
    i = Var("i", 0, 59)
    e = affine(i) // 12 * 100 + affine(i) % 12
    a, b = variable("a", 5), variable("b", 12)
    assert e.substitute({i: a * 12 + b}) == a * 100 + b
    assert e.substitute({i: 25}) == affine(201)


def test_coefficient():
    i, j = Var("i", 0, 9), Var("j", 0, 9)
    e = affine(i) * 3 + affine(j) // 2 + 1
    assert (e.coefficient(i), e.coefficient(j), e.coefficient(Var("k", 0, 1))) == (3, None, 0)
    assert e.leaves == {i, j}


def test_lookups():
    table = [3, 1, 4, 1, 5, 9, 2, 6]
    i, block, lane = Var("i", 0, 7), variable("block", 2), variable("lane", 4)
    e = lookup(table, affine(i))
    assert (e.low, e.high, e.leaves, e.coefficient(i)) == (1, 9, {i}, None)
    assert [e.evaluate(lambda _: k) for k in range(8)] == table  # noqa: B023 (called at once)
    assert e == lookup(list(table), affine(i)) and e != lookup([*table[:7], 7], affine(i))
    assert e.substitute({i: 5}) == affine(9)
    assert e.substitute({i: block * 4 + lane}) == lookup(table, block * 4 + lane)
    # What is evenly spaced, in the range that is looked at, needs no table.
    assert lookup([7, 5, 3, 1], variable("j", 4)).terms[0][1] == -2
    assert e.substitute({i: affine(Var("k", 0, 1)) + 3}).coefficient(i) == 0
    pair = Var("k", 0, 1)
    assert e.substitute({i: affine(pair) + 2}) == affine(pair) * -3 + 4


def test_only_positive_divisors():
    with pytest.raises(ValueError):
        variable("i", 4) // 0


# ---- open extents


N, L, M = named("n"), named("l"), named("m")


def sized(expr, sizes, env):
    """The value of an expression with open extents."""
    out = at(expr.const, sizes)
    for atom, c in expr.terms:
        if isinstance(atom, Var):
            x = env[atom]
        else:
            inner, n = sized(atom.expr, sizes, env), at(atom.n, sizes)
            x = inner // n if isinstance(atom, Div) else inner % n
        out += at(c, sizes) * x
    return out


def bounds_hold(expr, sizes, x):
    low, high = (at(b, sizes) for b in (expr.low, expr.high))
    return low <= x <= high


@pytest.mark.parametrize("seed", range(8))
def test_random_open_expressions(seed):
    rng = random.Random(seed)
    sizes = [{"n": rng.randint(2, 9), "l": rng.randint(2, 9), "m": rng.randint(2, 5)} for _ in range(12)]
    extents = [N, L, N * L, L + M, L * 12, 5]
    factors = [1, 1, 2, 4, 12, N, L, L * 4, N * L, -1, -L, L + M, L - M]
    for _ in range(tries(12)):
        variables = [Var("v", 0, n - 1) for n in rng.sample(extents, 3)]
        cases = [(s, {v: rng.randint(0, at(v.high, s)) for v in variables}) for s in sizes for _ in range(4)]
        start = Affine(rng.choice([0, 0, 3, -1, L, N * L - 1]))
        expected = [at(start.const, s) for s, _ in cases]
        for v in variables:
            c = rng.choice(factors)
            start = start + affine(v) * c
            expected = [e + at(c, s) * env[v] for e, (s, env) in zip(expected, cases)]
        pool = [(start, expected)]
        for _ in range(rng.randint(1, 5)):
            x, xs = rng.choice(pool)
            y, ys = rng.choice(pool)
            n = rng.choice([2, 3, 4, 12, N, L, L * 4, N * L, L + M])
            at_n = [at(n, s) for s, _ in cases]
            pool.append(
                rng.choice(
                    [
                        (x // n, [e // k for e, k in zip(xs, at_n)]),
                        (x % n, [e % k for e, k in zip(xs, at_n)]),
                        (x + y * n, [e + k * g for e, g, k in zip(xs, ys, at_n)]),
                        (x - y * n, [e - k * g for e, g, k in zip(xs, ys, at_n)]),
                    ]
                )
            )
        for expr, wanted in pool:
            for (s, env), x in zip(cases, wanted):
                assert sized(expr, s, env) == x, (expr, s)
                assert bounds_hold(expr, s, x), (expr, s)


def test_open_simplifications():
    i, j, k = (affine(Var(name, 0, n - 1)) for name, n in (("i", N), ("j", L), ("k", 768)))
    e = (i * L + j) * 768 + k
    assert e % 768 == k
    assert e // 768 == i * L + j
    assert e // 768 // L == i
    assert e // 768 % L == j
    assert e // (L * 768) == i
    assert e // 64 % 12 == k // 64
    merged = affine(Var("v", 0, N * L * 768 - 1))
    assert (merged // (L * 768)) * (L * 768) + merged % (L * 768) == merged
    assert (merged // 768 // L) * L + merged // 768 % L == merged // 768
    assert ((i * (L + M) + j) * 4 + 3) // 4 // (L + M) == i
    assert (j + 1) // (L + 1) == affine(0)
    assert (j + 1) // L != affine(0)


@pytest.mark.parametrize("n", [N * 10, N * L, N + 7])
def test_counters_of_blocks_stay_inside(n):
    block = affine(counter("block", n, 48)) * 48
    assert is_at_most((block + affine(Var("lane", 0, 15)) + 32).high, n - 1)
    for size in (2, 7, 48, 100):
        actual = at(n, {"n": size, "l": 3})
        assert at(block.high, {"n": size, "l": 3}) >= (actual // 48 - 1) * 48
    assert (block + 5) % 12 == affine(5)
