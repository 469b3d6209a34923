"""Index expressions against Python's integers, and the simplifications that contiguous access rests on."""

import itertools
import random

import pytest

from gluonjit.codegen.index import Affine, Var, affine, flat, lookup, variable


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
    for _ in range(120):
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
