"""`Noting`: the native function that notes a call of a step of training (`codegen.noting`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gluonjit.codegen.noting import Note
from gluonjit.runtime import native
from gluonjit.runtime.addresses import member_offset, python_function
from gluonjit.runtime.numpy_api import EMPTY, numpy_api
from gluonjit.runtime.storage import Storage


class Passed(NamedTuple):
    """An array of which each call has another one. `words`: what holds its address, (table, slot)."""

    own: type
    deferred: type
    shape: tuple[int, ...]
    dtype: np.dtype
    words: Sequence[tuple[np.ndarray, int]]


class Noting:
    """`note(*args)`, for `arguments` each of which is `Passed` or the result of an earlier call.

    * An argument that fits gets the class `deferred`, and is appended to the list `noted` before.
    * Returns an array of the `result`'s deferred class, with the slots of an NDArray; None, and nothing is done, if
      some argument is anything else. `returned` has to learn of results that are returned instead.
    """

    def __init__(self, arguments: Sequence[Passed | Noting], result: Passed, noted: list[Any]) -> None:
        self._record = record = np.zeros(Note.COUNT, np.int64)
        self._keep: list[Any] = [arguments, result, noted]
        operands: list[int] = []
        for x in arguments:
            if isinstance(x, Noting):
                operands += [0, x._record[Note.RESULT :].ctypes.data, 0, 0, 0]
            else:
                operands += [id(x.own), id(x.deferred), self._words(x), *_type(x)]
        record[Note.N_ARGS], record[Note.OPERANDS] = len(arguments), self._kept(operands)
        record[Note.ARRAY_TYPE], record[Note.NONE], record[Note.FALSE] = id(np.ndarray), id(None), id(False)
        for field, cls, slot in (
            (Note.ARRAY_SLOT, result.own, "_array"),
            (Note.STORAGE_SLOT, result.own, "_storage"),
            (Note.ORIGIN_SLOT, result.own, "_grad_state"),
            (Note.STORAGE_CONTEXT, Storage, "context"),
            (Note.STORAGE_ALIASED, Storage, "aliased"),
            (Note.STORAGE_EXPOSED, Storage, "exposed"),
        ):
            record[field] = member_offset(cls, slot)
        for field, name in (
            (Note.APPEND, "PyList_Append"),
            (Note.SET, "PyObject_SetAttr"),
            (Note.INCREF, "Py_IncRef"),
            (Note.DECREF, "Py_DecRef"),
            (Note.ALLOC, "PyType_GenericAlloc"),
        ):
            record[field] = python_function(name)
        record[Note.DEFERRED], record[Note.CLASS] = id(noted), id(_CLASS)
        record[Note.NEW_ARRAY], record[Note.RESULT_KIND] = numpy_api(EMPTY), id(result.deferred)
        record[Note.RESULT_TYPE], record[Note.RESULT_WORDS] = self._kept(_type(result)), self._words(result)
        self.note = native.new_function(native.steps().note, record)

    def returned(self, result: Any) -> None:
        """The call has this result, which others may be passed."""
        self._record[Note.RESULT] = id(result)

    def _kept(self, words: Sequence[int]) -> int:
        """The address of these words."""
        array = np.array(words, np.int64)
        self._keep.append(array)
        return array.ctypes.data

    def _words(self, x: Passed) -> int:
        return self._kept([len(x.words), *(table[slot:].ctypes.data for table, slot in x.words)])


_CLASS = "__class__"


def _type(x: Passed) -> list[int]:
    return [id(x.dtype), len(x.shape), *x.shape]
