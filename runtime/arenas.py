"""Buffers for native code: aligned, and given out to one call at a time."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from gluonjit.runtime.native import libc

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


def give_back() -> None:
    """Gives memory that the C library keeps for later back to the system: LLVM leaves some MB behind. Takes 1 ms."""
    trim = getattr(libc(), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(ctypes.c_size_t(0))


_HUGE_PAGE = 2 << 20
"""Bytes."""


class CacheFriendly:
    """Arrays, one after the other, in huge pages: for what every call reads and the second cache can nearly hold.

    That cache goes by physical addresses. Small pages come from anywhere, so that some of its sets get more lines than
    they have room for, and each call misses all of those: two matrices that fill 60 % of the cache were measured 5 to
    50 % slower, another figure in each process. A huge page fills all sets alike. Elsewhere than on Linux, the pages
    are what the system gives.
    """

    LIMIT = 2 * _HUGE_PAGE
    """Bytes in all up to which this is worth the time of clearing such pages."""

    def __init__(self) -> None:
        self._left = np.empty(0, np.uint8)

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An uninitialised C-contiguous array on an ALIGNMENT boundary. Its pages live as long as any array in them."""
        n = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        taken = -(-n // ALIGNMENT) * ALIGNMENT
        if self._left.nbytes < taken:
            self._left = _huge_pages(taken)
        place, self._left = self._left[:n], self._left[taken:]
        return place.view(dtype).reshape(shape)


def _huge_pages(nbytes: int) -> np.ndarray:
    """Whole pages (u8) that hold `nbytes`."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    size = -(-nbytes // _HUGE_PAGE) * _HUGE_PAGE
    if advice is None:
        return aligned_empty(size)
    memory = mmap.mmap(-1, size + _HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    every = np.frombuffer(memory, np.uint8)
    skip = -every.ctypes.data % _HUGE_PAGE
    try:
        memory.madvise(advice, skip, size)
    except OSError:  # a kernel without them
        pass
    return every[skip : skip + size]


class ArenaPool:
    """Memory that a call takes and puts back; as many arenas exist as calls ever ran at once."""

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def take(self, nbytes: int) -> np.ndarray:
        """At least so many bytes."""
        try:
            arena = self._free.pop()  # atomic: two threads never get the same one
            if arena.nbytes >= nbytes:
                return arena
        except IndexError:
            pass
        return aligned_empty(nbytes)

    def put(self, arena: np.ndarray) -> None:
        self._free.append(arena)

    def drop(self, above: int = -1) -> None:
        """Gives those arenas back to the system that no call has, and that have more than `above` bytes."""
        self._free = [arena for arena in self._free if arena.nbytes <= above]
