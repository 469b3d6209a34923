"""What NumPy's functions do with arrays and symbols of `mx.np`: `numpy.exp(x)` is `mx.np.exp(x)`.

So they are recorded and compiled like it. Functions that `mx.np` lacks, other methods of ufuncs, and calls with NumPy's
arrays among the operands compute on the elements; see `ndarray/numpy_protocols.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ndarray.numpy_protocols import by_numpy, number_of
from gluonjit.numpy.methods import NumpyMethods

_OTHER_NAMES = {"amax": "max", "amin": "min", "divide": "true_divide", "remainder": "mod"}
"""Names that differ in `mx.np`."""


def _array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    own = _own(self._np, ufunc.__name__) if method == "__call__" and not kwargs else None
    if own is None:
        return by_numpy(getattr(ufunc, method), ufunc.__name__, inputs, kwargs)
    return own(*map(number_of, inputs))


def _array_function(self: Any, function: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    package = self._np.linalg if function.__module__ == "numpy.linalg" else self._np
    own = _own(package, function.__name__)
    if own is None or any(issubclass(kind, np.ndarray) for kind in types):
        return by_numpy(function, function.__name__, args, kwargs)
    return own(*args, **kwargs)


def _own(package: Any, name: str) -> Any:
    return getattr(package, name, None) or getattr(package, _OTHER_NAMES.get(name, ""), None)


NumpyMethods.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]
NumpyMethods.__array_function__ = _array_function  # type: ignore[attr-defined]
