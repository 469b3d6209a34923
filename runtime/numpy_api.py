"""NumPy's C API, by number: functions and data of its table (numpy/__multiarray_api.h)."""

from __future__ import annotations

import ctypes
import functools
import importlib

import numpy as np

# Stable since NumPy 1.0, the last three since 1.22.
NEW_FROM_DESCR, EMPTY = 94, 184
SET_HANDLER, GET_HANDLER, DEFAULT_HANDLER = 304, 305, 306


@functools.cache
def numpy_api(index: int) -> int:
    """The address in this row of the table."""
    core = "numpy._core" if int(np.__version__.partition(".")[0]) >= 2 else "numpy.core"
    capsule = importlib.import_module(f"{core}._multiarray_umath")._ARRAY_API
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = (ctypes.py_object, ctypes.c_char_p)
    return ctypes.c_void_p.from_address(get(capsule, None) + 8 * index).value  # type: ignore[return-value]
