"""`native_exit`: an `__exit__` of native code, in which no signal's handler runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gluonjit.codegen.leaving import Leave
from gluonjit.runtime import native
from gluonjit.runtime.addresses import member_offset, python_function

_records: list[np.ndarray] = []
"""The record that the native code knows, if there is one."""


def native_exit(
    context: type,
    slots: Sequence[str],
    target: Any,
    names: Sequence[str],
    counter: np.ndarray,
    guard: tuple[Any, str],
    fallback: Callable[[Any], Any],
) -> Any:
    """The method `__exit__` of a class of contexts. It gives the attributes `names` of `target`, which are True or
    False, the values in the context's `slots`, sets these to None, and adds to `counter` by how many more are True now.
    `fallback` does it if one of the slots is None already, or the attribute `guard` is not. There may be one such
    class."""
    assert not _records, "its code knows one"
    record = np.zeros(Leave.COUNT, np.int64)
    record[Leave.FALLBACK], record[Leave.VECTORCALL] = id(fallback), python_function("PyObject_VectorcallDict")
    record[Leave.GET], record[Leave.SET] = python_function("PyObject_GetAttr"), python_function("PyObject_SetAttr")
    record[Leave.INCREF], record[Leave.DECREF] = python_function("Py_IncRef"), python_function("Py_DecRef")
    record[Leave.NONE], record[Leave.TRUE] = id(None), id(True)
    record[Leave.TARGET], record[Leave.COUNTER] = id(target), counter.ctypes.data
    record[Leave.GUARD], record[Leave.GUARD_NAME] = map(id, guard)
    for k, (name, slot) in enumerate(zip(names, slots, strict=True)):
        record[Leave.NAMES + k], record[Leave.SLOTS + k] = id(name), member_offset(context, slot)
    steps = native.steps()
    steps.set_leave(record.ctypes.data)
    _records.append(record)
    # For ever: contexts end while the interpreter exits, too.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object((record, target, names, counter, guard, fallback, steps)))
    new_method = ctypes.pythonapi.PyDescr_NewMethod
    new_method.restype, new_method.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.c_void_p)
    return new_method(context, ctypes.byref(steps.leave))
