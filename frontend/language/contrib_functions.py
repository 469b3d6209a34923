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


def of_both() -> dict[str, Callable[..., Any]]:
    """The functions that work with arrays and symbols alike, by name."""
    return {function.__name__: function for function in (isinf, isnan, isfinite)}
