"""Uses of `foreach`, `while_loop` and `cond`, for real MXNet (`oracle/record_control_flow.py`) and for both modes here.

A case is `function(F, *arrays)` and the arrays. Nothing here imports gluonjit, and numbers come from `RandomState`,
whose streams never change.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from .samples import floats, integers, special

Case = tuple[Callable[..., Any], list[np.ndarray]]

BUILDERS: dict[str, Callable[[np.random.RandomState], Case]] = {}


def case(build: Callable[[np.random.RandomState], Case]) -> Callable[[np.random.RandomState], Case]:
    BUILDERS[build.__name__] = build
    return build


def make(name: str) -> Case:
    return BUILDERS[name](np.random.RandomState(zlib.crc32(name.encode())))


# foreach


@case
def foreach_running_sum(rng):
    def function(F, x, state):
        return F.contrib.foreach(lambda row, total: (row * total, total + row), x, state)

    return function, [floats(rng, 5, 3), floats(rng, 3)]


@case
def foreach_nan_and_infinity(rng):
    def function(F, x, state):
        return F.contrib.foreach(lambda row, most: (F.broadcast_maximum(row, most), row + most), x, state)

    return function, [special(), np.zeros(4, "float32")]


@case
def foreach_integers(rng):
    def function(F, x, state):
        return F.contrib.foreach(lambda row, states: (row + states[0], [row - states[0]]), x, [state])

    return function, [integers(rng, 4, 2), integers(rng, 2)]


@case
def foreach_several(rng):
    """Rows of two arrays, two outputs, two states, and an array from outside, along a negative axis."""

    def function(F, x, y, s, t, w):
        def body(rows, states):
            product = F.dot(rows[0], w) + rows[1]
            return [product, F.sum(product, axis=-1)], [states[0] + product, F.tanh(states[1])]

        return F.contrib.foreach(body, [x, y], [s, t])

    return function, [floats(rng, 3, 2, 4), floats(rng, 3, 2, 5), floats(rng, 2, 5), floats(rng, 2), floats(rng, 4, 5)]


@case
def foreach_of_one_row(rng):
    def function(F, x, state):
        return F.contrib.foreach(lambda row, total: (F.sort(row, axis=-1), total * 2), x, state)

    return function, [floats(rng, 1, 6), floats(rng, 1)]


@case
def foreach_within_foreach(rng):
    def function(F, x, state):
        def body(row, total):
            parts, last = F.contrib.foreach(lambda v, s: (v * s, s + v), row, F.sum(total))
            return parts, total + last

        return F.contrib.foreach(body, x, state)

    return function, [floats(rng, 3, 4), floats(rng, 1)]


# while_loop. MXNet leaves rows that are not reached as it finds them: none of these is looked at


@case
def while_counting(rng):
    def function(F, start):
        return F.contrib.while_loop(lambda i: i < 5, lambda i: (i * i, i + 1), [start], max_iterations=5)

    return function, [np.zeros(1, "float32")]


@case
def while_integers(rng):
    def function(F, i, total):
        def body(i, total):
            return total, [i - 1, total + i * i]

        return F.contrib.while_loop(lambda i, total: i > 0, body, [i, total], max_iterations=4)

    return function, [np.array([4], "int32"), integers(rng, 1)]


@case
def while_halving(rng):
    """Until the largest is below 1: the rows past that are cut off."""

    def function(F, x):
        def body(x):
            return F.max(x, axis=-1), [x / 2]

        rows, states = F.contrib.while_loop(lambda x: F.max(x) >= 1, body, [x], max_iterations=9)
        return F.slice_axis(rows, axis=0, begin=0, end=3), states

    return function, [np.array([[7.0, -3, 2], [1, 0.5, -8]], "float32")]


@case
def while_nan(rng):
    """NaN is not less than anything, so it ends the loop."""

    def function(F, i, x):
        def body(i, x):
            return x, [i + 1, F.sqrt(x - i)]

        return F.contrib.while_loop(lambda i, x: (i < 3) * (x == x), body, [i, x], max_iterations=3)[1]

    return function, [np.zeros(1, "float32"), np.array([0.25], "float32")]


@case
def while_infinite(rng):
    def function(F, i, x):
        return F.contrib.while_loop(lambda i, x: i < 4, lambda i, x: (1 / x, [i + 1, x * x]), [i, x], max_iterations=4)

    return function, [np.zeros(1, "float32"), np.array([1e10, 0.0, -np.inf, np.nan], "float32")]


# cond


@case
def cond_true(rng):
    def function(F, x, y):
        return F.contrib.cond(F.sum(x) > -1e9, lambda: F.broadcast_add(x, y), lambda: F.broadcast_mul(x, y))

    return function, [floats(rng, 3, 2), floats(rng, 1, 2)]


@case
def cond_false(rng):
    def function(F, x, y):
        return F.contrib.cond(F.sum(x) > 1e9, lambda: [x, y], lambda: [F.flip(x, axis=1), y * 2])

    return function, [floats(rng, 3, 2), floats(rng, 4)]


@case
def cond_nan(rng):
    """A comparison with NaN does not hold; NaN itself is not 0."""

    def function(F, x, y):
        first = F.contrib.cond(F.sum(x) > 0, lambda: y, lambda: -y)
        return first, F.contrib.cond(F.sum(x), lambda: y * 3, lambda: y * 5)

    return function, [np.array([1, np.nan], "float32"), floats(rng, 4)]


@case
def cond_infinite(rng):
    def function(F, x, y):
        return F.contrib.cond(F.max(x) > 1e38, lambda: F.log(y / F.sum(x)), lambda: y)

    return function, [np.array([1, np.inf], "float32"), floats(rng, 4)]


@case
def cond_integers(rng):
    def function(F, x, y):
        return F.contrib.cond(F.sum(x) < 1000, lambda: x + y, lambda: x - y)

    return function, [integers(rng, 5), integers(rng, 5)]


@case
def cond_within_foreach(rng):
    def function(F, x, state):
        def body(row, total):
            new = F.contrib.cond(F.sum(row) > F.sum(total), lambda: total + row, lambda: total - row)
            return new * 2, new

        return F.contrib.foreach(body, x, state)

    return function, [floats(rng, 6, 3), floats(rng, 3)]
