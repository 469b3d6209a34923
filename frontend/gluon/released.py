"""`Releasable`: an array that can leave memory while compiled code needs nothing but packed copies of it.

`hybridize(static_alloc=True)` has parameters that were read from a file released. Whoever asks for one then makes it
read the file again (`files.origin`).
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
_ONE = 2
"""What `sys.getrefcount` counts when there is one reference: the other one is its argument."""


class Releasable:
    """What a parameter is besides its name and shape: `_data`, its array on the first context, or None."""

    name: str
    _replicas: list[ndarray.NDArray]
    """The arrays on other contexts."""
    _origin: tuple[Origin, int] | None = None
    """The file that the array was read from, and the version of its storage that has the file's elements."""
    _released: Storage | None = None
    """That of an array whose memory has been given up."""
    _of_numpy = False
    """Whether the array is one of `mx.np`."""

    @property
    def _data(self) -> ndarray.NDArray | None:
        """The array, if there is one; it is read again from its file if it has been released."""
        data = self.__dict__["_data"]
        if data is None and self._released is not None:
            self._restore()
            data = self.__dict__["_data"]
        return data

    @_data.setter
    def _data(self, data: ndarray.NDArray | None) -> None:
        with _releasing:
            self.__dict__["_data"] = data
            self._origin = self._released = None

    def _came_from(self, origin: Origin) -> None:
        """Notes that the array has the elements of a file, and has not been written to."""
        data = self._data
        if data is not None and not self._replicas:
            origin.forget()
            self._origin = origin, data.storage().version

    def _release(self) -> int:
        """Frees the array until it is asked for; returns how many bytes that frees.

        Only if nothing else refers to it or to a view of it, and it has the elements of a file that is unchanged. An
        array that has been read again is not released a second time.
        """
        with _releasing:
            data: Any = self.__dict__["_data"]
            if data is None or self._origin is None or data._grad_state is not None:
                return 0
            origin, version = self._origin
            storage = data.storage()
            if storage.version != version or not origin.is_intact():
                return 0
            self._released, self.__dict__["_data"] = storage, None  # from now on no other thread finds it
            if sys.getrefcount(data) > _ONE or sys.getrefcount(data._array) > _ONE:
                self.__dict__["_data"], self._released = data, None
                return 0
            return data._array.nbytes

    def _restore(self, overwritten: bool = False) -> None:
        """Puts a released array back. `overwritten`: the caller writes to all elements, so they need not be read."""
        with _releasing:
            if self._released is None or self._origin is None:
                return  # it is there, or another thread has just done it
            origin = self._origin[0]
            try:
                array = origin.read()
            except MXNetError as e:
                if not overwritten:
                    raise MXNetError(
                        f"Parameter '{self.name}' is not in memory any more, as hybridize(static_alloc=True) allows, "
                        f"and cannot be read again: {e}"
                    ) from None
                array = np.empty_like(origin.array)
            data = ndarray.NDArray._wrap(array)
            data._storage = self._released  # what was compiled from it stays valid until somebody writes to it
            self.__dict__["_data"] = as_np(data) if self._of_numpy else data
            self._origin = self._released = None
