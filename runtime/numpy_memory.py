"""Where the memory of NumPy's arrays comes from: NumPy takes a handler, for one thread, from a capsule (NEP 49)."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from gluonjit.runtime.numpy_api import SET_HANDLER, numpy_api

ours: Any = None
"""The capsule of `runtime.kept_blocks`, once native code has made use of it: what it needs takes longer to load than a
program without native code would save."""


@functools.cache
def set_handler() -> Any:
    """PyDataMem_SetHandler, which returns the handler before."""
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(numpy_api(SET_HANDLER))


class InKeptBlocks:
    """A context in which arrays that NumPy makes on this thread get memory from `ours`, if there is one."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = set_handler()(ours) if ours is not None else None

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            set_handler()(self._before)
