"""NumPy arrays with memory from `codegen/block_memory.py`, where blocks of large arrays that died serve the next."""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gluonjit.codegen.block_memory import LARGE, WORDS, Word
from gluonjit.codegen.python_objects import Array
from gluonjit.runtime import native, numpy_memory
from gluonjit.runtime.numpy_api import DEFAULT_HANDLER, numpy_api
from gluonjit.runtime.numpy_memory import InKeptBlocks

STATE = np.zeros(WORDS, np.int64)
"""What `codegen.block_memory` calls `blocks`."""


class _Handler(ctypes.Structure):
    """PyDataMem_Handler of numpy/ndarraytypes.h."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


@functools.cache
def handler() -> Any:
    """The capsule that NumPy takes for a handler of memory, which must never go; None if NumPy's array layout is not
    the expected one, its memory does not come from `malloc`, or the C library has no aligned memory."""
    libc = native.libc()
    if libc is None or not hasattr(libc, "aligned_alloc"):
        return None
    probe = np.empty(1)
    default = ctypes.c_void_p.from_address(numpy_api(DEFAULT_HANDLER)).value
    if ctypes.c_void_p.from_address(id(probe) + Array.HANDLER).value != default:
        return None
    STATE[Word.ALLOC] = native.libc_address("aligned_alloc")
    STATE[Word.FREE] = native.libc_address("free")
    STATE[Word.REALLOC] = native.libc_address("realloc")
    STATE[Word.ADVISE] = native.libc_address("madvise") if hasattr(mmap, "MADV_HUGEPAGE") else 0
    STATE[Word.USABLE] = native.libc_address("malloc_usable_size") if hasattr(libc, "malloc_usable_size") else 0
    functions = (native.entry().loaded.address(n) for n in ("take_block", "take_cleared", "resize_block", "give_block"))
    made = _Handler(b"gluonjit", 1, STATE.ctypes.data, *functions)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    keep = ctypes.pythonapi.Py_IncRef
    keep.restype, keep.argtypes = None, (ctypes.py_object,)
    capsule = new(ctypes.addressof(made), _NAME, None)
    for needed in (made, STATE, native.entry().loaded, capsule):
        # For ever: arrays die when the interpreter ends, in any order, and two threads may each make a capsule.
        keep(needed)
    numpy_memory.ours = capsule
    return capsule


_NAME = b"mem_handler"


def setter() -> tuple[Callable[[Any], Any], Any] | None:
    """The function that gives NumPy a handler for this thread, which returns the one before, and `handler()`; None
    without one."""
    ours = handler()
    return (numpy_memory.set_handler(), ours) if ours is not None else None


def empty(shape: Sequence[int], dtype: np.dtype, nbytes: int) -> np.ndarray:
    """`np.empty`; `nbytes` is its size. Large arrays begin a page."""
    if nbytes < LARGE:
        return np.empty(shape, dtype)
    handler()
    with InKeptBlocks():
        return np.empty(shape, dtype)


def release() -> None:
    """Frees all blocks that wait."""
    if STATE[Word.WAITING]:
        free_oldest = native.entry().free_oldest
        while free_oldest(STATE.ctypes.data, -1, 0):
            pass
