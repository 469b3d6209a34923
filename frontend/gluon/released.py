"""`Releasable`: an array whose memory can be freed while compiled code reads only packed copies of it.

`hybridize(static_alloc=True)` releases parameters that were loaded from a file. Accessing one reads the file again
(`files.origin`).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gluonjit import ndarray
from gluonjit.base import MXNetError
from gluonjit.files.origin import Origin
from gluonjit.language.kinds import as_np
from gluonjit.runtime import forks
from gluonjit.runtime.storage import Storage

_releasing = forks.held()
_ONE_REFERENCE = 2
"""The result of `sys.getrefcount` for an object with one reference: its argument is a second one."""


class Releasable:
    """The part of a parameter that holds its array: `_first` is the array on the first context, or None."""

    name: str
    _replicas: list[ndarray.NDArray]
    """The arrays on other contexts."""
    _released: Storage | None = None
    """The storage of an array whose memory has been freed."""
    _plain: ndarray.NDArray | None = None
    """The array, if layers compute with itself for arguments on cpu(0)."""
    _of_numpy = False
    """Whether the array is an `mx.np.ndarray`."""

    def _attach(self) -> None:
        """Asks for gradients by the array, when it is a new one."""
        raise NotImplementedError

    @property
    def _first(self) -> ndarray.NDArray | None:
        """The array, or None. A released array is read from its file again."""
        data = self.__dict__["_first"]
        if data is None and self._released is not None:
            self._restore()
            data = self.__dict__["_first"]
        return data

    @_first.setter
    def _first(self, data: ndarray.NDArray | None) -> None:
        with _releasing:
            self.__dict__["_first"], self._released, self._plain = data, None, None

    def _note_plain(self) -> None:
        """Sets `_plain`, when the array is a new one."""
        raise NotImplementedError

    def _set_origin(self, origin: Origin) -> None:
        """Records that the array equals the contents of a file and has not been written to."""
        data = self._first
        if data is not None:
            origin.drop_pages()
            data.storage().origin = origin, data.storage().version

    def _release(self) -> int:
        """Frees the array's memory until the array is accessed; returns the number of bytes freed.

        Does nothing if something else refers to the array or to a view of it, or if it differs from its file. An array
        that has been read again is not released a second time.
        """
        with _releasing:
            data: Any = self.__dict__["_first"]
            if data is None or self._replicas or (data._grad_state is not None and data._grad_state.has_grad):
                return 0
            storage = data.storage()
            origin = storage.piece()
            if origin is None or not origin.is_intact():
                return 0
            # From now on no other thread finds it.
            self._released, self.__dict__["_first"], self._plain = storage, None, None
            if sys.getrefcount(data) > _ONE_REFERENCE or sys.getrefcount(data._array) > _ONE_REFERENCE:
                self._first = data
                self._note_plain()
                return 0
            return data._array.nbytes

    def _restore(self, overwritten: bool = False) -> None:
        """Allocates a released array again. `overwritten`: the caller sets all elements, so the file is not read."""
        with _releasing:
            if self._released is None:
                return  # not released, or another thread has just restored it
            origin = self._released.piece()
            try:
                array = origin.read()
            except MXNetError as e:
                if not overwritten:
                    raise MXNetError(
                        f"Parameter '{self.name}' was freed from memory, as hybridize(static_alloc=True) allows, "
                        f"and cannot be read again: {e}"
                    ) from None
                array = np.empty_like(origin.array)
            data = ndarray.NDArray._wrap(array)
            data._storage = self._released  # code compiled from it stays valid until it is written to
            self.__dict__["_first"] = as_np(data) if self._of_numpy else data
            data._storage.origin = self._released = None
            self._attach()
            self._note_plain()
