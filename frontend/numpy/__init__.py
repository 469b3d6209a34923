"""`mx.np`: arrays and functions with NumPy's semantics."""

import sys as _sys
from typing import TYPE_CHECKING, Any

import numpy as _numpy

from gluonjit.numpy import called_by_numpy as _called_by_numpy  # noqa: F401
from gluonjit.numpy.methods import NumpyMethods as _NumpyMethods
from gluonjit.numpy.multiarray import array as array
from gluonjit.numpy.multiarray import ndarray as ndarray
from gluonjit.numpy.namespaces import equip as _equip
from gluonjit.numpy.namespaces import flavours as _flavours

if TYPE_CHECKING:  # what `equip` makes

    def __getattr__(name: str) -> Any: ...


_CONSTANTS = "pi e inf nan newaxis float16 float32 float64 int8 int32 int64 uint8 bool_ dtype finfo iinfo".split()

NaN = NAN = _numpy.nan
PINF, NINF = _numpy.inf, -_numpy.inf
PZERO, NZERO = 0.0, -0.0
bool = _numpy.bool_

_NumpyMethods._np = _sys.modules[__name__]
_equip(globals(), __name__, {**{name: getattr(_numpy, name) for name in _CONSTANTS}, **_flavours(False)[0]})


def set_printoptions(*args: Any, **kwargs: Any) -> None:
    """`numpy.set_printoptions`, whose settings also apply to these arrays.

    >>> mx.np.set_printoptions(precision=8)
    """
    _numpy.set_printoptions(*args, **kwargs)
