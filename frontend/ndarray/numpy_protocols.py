"""What NumPy's functions do with arrays of `mx.nd`: `numpy.exp(x)`.

They compute on the elements and return NumPy's arrays. While recording, that would lose gradients without a word, so it
is an error there. Python's operators with a NumPy number on the left (`numpy.float32(2) * x`) arrive here, too, and are
NDArray's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.language.modes import modes
from gluonjit.language.source import quote, user_loc
from gluonjit.ndarray.ndarray import NDArray
from gluonjit.ndarray.variable import tracked

_REFLECTED = {
    np.add: "__radd__",
    np.subtract: "__rsub__",
    np.multiply: "__rmul__",
    np.true_divide: "__rtruediv__",
    np.remainder: "__rmod__",
    np.power: "__rpow__",
    np.equal: "__eq__",
    np.not_equal: "__ne__",
    np.less: "__gt__",
    np.less_equal: "__ge__",
    np.greater: "__lt__",
    np.greater_equal: "__le__",
}
"""The method of the right operand that is Python's operator for a ufunc."""

_CONSTANT = ("zeros_like", "ones_like", "full_like", "empty_like")
"""Functions that read no element."""


def array_ufunc(self: NDArray, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    if method == "__call__" and not kwargs and ufunc in _REFLECTED and not isinstance(inputs[0], NDArray):
        return getattr(inputs[1], _REFLECTED[ufunc])(number_of(inputs[0]))
    return by_numpy(getattr(ufunc, method), ufunc.__name__, inputs, kwargs)


def number_of(x: Any) -> Any:
    """The number in a NumPy array without axes, which is how NumPy passes a number that it compares; else `x`."""
    return x[()] if isinstance(x, np.ndarray) and not x.ndim else x


def array_function(self: NDArray, function: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    # Its code, on these very arrays: np.sum(x) is x.sum().
    found = function._implementation(*args, **kwargs)
    if function.__name__ not in _CONSTANT:
        check_gradient(function.__name__, (*args, *kwargs.values()), found)
    return found


def by_numpy(function: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of NumPy's function on the elements. MXNetError if it would have no gradient, but should."""
    found = function(*map(_elements, args), **{key: _elements(x) for key, x in kwargs.items()})
    check_gradient(name, (*args, *kwargs.values()), found)
    return found


def _elements(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)([_elements(y) for y in x])
    if isinstance(x, dict):
        return {key: _elements(y) for key, y in x.items()}
    return np.asarray(x) if hasattr(x, "as_np_ndarray") else x


def check_gradient(name: str, given: Any, found: Any, wrapped: bool = False) -> None:
    """While recording, MXNetError if gradients flow to an array among `given` and NumPy has computed `found`, numbers
    that would have none. `wrapped`: NumPy has computed what our arrays in `found` hold, too."""
    results = found if isinstance(found, (list, tuple)) else (found,)
    if not modes.recording or not any(_is_float(y, wrapped) for y in results):
        return
    pending = list(given)
    while pending:
        x = pending.pop()
        if isinstance(x, (list, tuple)):
            pending += x
        elif isinstance(x, NDArray) and x._grad_state is not None and tracked(x):
            raise MXNetError(
                f"np.{name} is computed by NumPy, so it has no gradient: call it outside of autograd.record(), or on "
                f"x.detach(){quote(user_loc())}"
            )


def _is_float(y: Any, wrapped: bool) -> bool:
    if isinstance(y, NDArray):
        return wrapped and y._array.dtype.kind == "f"
    return isinstance(y, (np.ndarray, np.generic)) and y.dtype.kind in "fcO"


NDArray.__array_ufunc__ = array_ufunc  # type: ignore[attr-defined]
NDArray.__array_function__ = array_function  # type: ignore[attr-defined]
