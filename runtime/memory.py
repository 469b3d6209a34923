"""Buffers for native code: aligned, and given out to one call at a time."""

from __future__ import annotations

import mmap

import numpy as np

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector in use."""


_OWN_PAGES = 1 << 20
"""Bytes from which on a buffer is mapped by itself. NumPy asks for huge pages for large arrays, and the first use of
those was measured to take up to six times as long as that of small ones; what runs later gains nothing from them."""


def aligned_empty(nbytes: int) -> np.ndarray:
    """Uninitialised bytes (u8), the first on an ALIGNMENT boundary."""
    if nbytes >= _OWN_PAGES and hasattr(mmap, "MAP_ANONYMOUS"):
        # Private: a forked child must not compute in its parent's buffers.
        return np.frombuffer(mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + nbytes]


def aligned_array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised C-contiguous array on an ALIGNMENT boundary."""
    n = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return aligned_empty(n).view(dtype).reshape(shape)


def aligned_copy(array: np.ndarray) -> np.ndarray:
    copy = aligned_array(array.shape, array.dtype)
    copy[...] = array
    return copy


class ArenaPool:
    """Arenas of one size, with scratch for each thread behind. A call takes one and puts it back; as many exist as
    calls ever ran at once."""

    def __init__(self, nbytes: int, scratch: int = 0) -> None:
        self.nbytes = -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.scratch = scratch
        """Bytes per thread; they begin at offset `nbytes`."""
        self._free: list[np.ndarray] = []

    def take(self, nthreads: int = 1) -> np.ndarray:
        size = self.nbytes + nthreads * self.scratch
        try:
            arena = self._free.pop()  # atomic: two threads never get the same one
            if arena.nbytes >= size:
                return arena
        except IndexError:
            pass
        return aligned_empty(size)

    def put(self, arena: np.ndarray) -> None:
        self._free.append(arena)
