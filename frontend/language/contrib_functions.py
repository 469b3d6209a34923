"""The functions of `nd.contrib` and `sym.contrib` that are composed of operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


def isinf(data: Any) -> Any:
    """1 where an element is infinite, else 0, in the type of `data`.

    >>> mx.nd.contrib.isinf(mx.nd.array([1, np.inf, np.nan])).asnumpy()
    array([0., 1., 0.], dtype=float32)
    """
    return data.abs() == math.inf


def isnan(data: Any) -> Any:
    """1 where an element is NaN, else 0, in the type of `data`.

    >>> mx.nd.contrib.isnan(mx.nd.array([1, np.inf, np.nan])).asnumpy()
    array([0., 0., 1.], dtype=float32)
    """
    return data != data


def isfinite(data: Any) -> Any:
    """1 where an element is neither infinite nor NaN, else 0, in the type of `data`.

    >>> mx.nd.contrib.isfinite(mx.nd.array([1, np.inf, np.nan])).asnumpy()
    array([1., 0., 0.], dtype=float32)
    """
    return data.abs() < math.inf


def rand_zipfian(true_classes: Any, num_sampled: int, range_max: int, ctx: Any = None) -> list[Any]:
    """Draws classes below `range_max` with probabilities log((class + 2) / (class + 1)) / log(range_max + 1).

    Returns the `num_sampled` drawn ones (int64), and how often each of `true_classes` and each of the drawn ones is
    expected among so many (float64). `ctx` is that of the result.

    >>> drawn, expected, expected_drawn = mx.nd.contrib.rand_zipfian(mx.nd.array([3]), 4, 5)
    >>> drawn.shape, expected.asnumpy().round(3)
    ((4,), array([0.498]))
    """
    whole = math.log(range_max + 1)
    where = {} if ctx is None else {"ctx": ctx}
    draw = type(true_classes)._functions.random.uniform
    drawn = (draw(0, whole, shape=(num_sampled,), dtype="float64", **where).exp() - 1).astype("int64") % range_max

    def expected(classes: Any) -> Any:
        number = classes.astype("float64")
        return ((number + 2.0) / (number + 1.0)).log() / whole * num_sampled

    given = true_classes if ctx is None else true_classes.as_in_context(ctx)
    return [drawn, expected(given), expected(drawn)]


def of_both() -> dict[str, Callable[..., Any]]:
    """The functions that work with arrays and symbols alike, by name."""
    return {function.__name__: function for function in (isinf, isnan, isfinite, rand_zipfian)}
