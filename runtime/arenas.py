"""Aligned buffers for native code, and pools that lend them to one call at a time."""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import weakref
from collections.abc import Callable

import numpy as np

from gluonjit.ir.machine import ALIGNMENT
from gluonjit.runtime import kept_blocks
from gluonjit.runtime.native import libc

_OWN_PAGES = 1 << 20
"""Buffers of at least this many bytes get a mapping of their own. NumPy requests huge pages for large arrays; their
first use was measured to take up to six times as long as that of small pages, and later uses are no faster."""


def aligned_empty(nbytes: int) -> np.ndarray:
    """Uninitialised bytes (u8), the first on an ALIGNMENT boundary."""
    if nbytes >= _OWN_PAGES and hasattr(mmap, "MAP_ANONYMOUS"):
        # Private: a forked child must not write to its parent's buffers.
        return np.frombuffer(mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + nbytes]


def _mapping(array: np.ndarray) -> mmap.mmap | None:
    """The mapping that `aligned_empty` made for an array; None if it made none."""
    mapping = array.base.obj if isinstance(array.base, memoryview) else None
    return mapping if isinstance(mapping, mmap.mmap) else None


def _grown(mapping: mmap.mmap, nbytes: int) -> np.ndarray | None:
    """`aligned_empty`, from a mapping in which no array lies any more; None if that cannot grow. The pages that it has
    go along: to touch a page for the first time takes ten times as long as to write to it."""
    try:
        mapping.resize(nbytes)
    except (BufferError, SystemError, OSError):  # there still is an array, no `mremap`, no memory
        return None
    return np.frombuffer(mapping, np.uint8)


def aligned_array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised C-contiguous array on an ALIGNMENT boundary."""
    n = int(math.prod(shape)) * dtype.itemsize
    return aligned_empty(n).view(dtype).reshape(shape)


def aligned_copy(array: np.ndarray) -> np.ndarray:
    copy = aligned_array(array.shape, array.dtype)
    copy[...] = array
    return copy


def give_back() -> None:
    """Returns memory that the C library keeps for reuse to the system: some MB after LLVM has run. Takes 1 ms."""
    trim = getattr(libc(), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(ctypes.c_size_t(0))


_HUGE_PAGE = 2 << 20
"""Bytes of a huge page."""


class CacheFriendly:
    """Allocates arrays contiguously in huge pages, for data that every call reads and that nearly fill the L2 cache.

    The L2 cache is indexed by physical addresses. Small pages have arbitrary ones, so some sets of the cache get more
    lines than they can hold, and each call misses all of these: two matrices that fill 60 % of the cache were measured
    to be 5 to 50 % slower, differently in each process. A huge page fills all sets evenly. Only Linux is asked for huge
    pages; other systems give their usual ones.
    """

    LIMIT = 2 * _HUGE_PAGE
    """The most bytes, in all, that are worth the time that the system takes to clear huge pages."""

    def __init__(self) -> None:
        self._left = np.empty(0, np.uint8)

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An uninitialised C-contiguous array on an ALIGNMENT boundary. Pages are freed with the last array in them."""
        n = int(math.prod(shape)) * dtype.itemsize
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
    except OSError:  # a kernel without huge pages
        pass
    return every[skip : skip + size]


class ArenaPool:
    """Arenas that calls take and put back. There are as many as the most calls that ever ran at once, and none is much
    larger than what its users (`lend`) that still exist may take. `shrinks()` is called when the largest user has
    gone."""

    def __init__(self, shrinks: Callable[[], object] = lambda: None) -> None:
        self._shrinks = shrinks
        self._free: dict[int, np.ndarray] = {}
        """By `id`. Operations of a dict are atomic, so two threads never get the same arena."""
        self._needs: dict[int, int] = {}
        self._numbers = itertools.count()
        self._largest = 0

    def lend(self, user: object, nbytes: int) -> None:
        """From now on, and until it is gone, `user` takes arenas of this size."""
        number = next(self._numbers)
        self._needs[number] = nbytes
        self._largest = max(self._largest, nbytes)
        weakref.finalize(user, self._end, number).atexit = False

    def _end(self, number: int) -> None:
        if self._needs.pop(number) == self._largest:
            self._largest = max(list(self._needs.values()), default=0)
            self.drop(above=_SPARE * self._largest)
            self._shrinks()

    def take(self, nbytes: int) -> np.ndarray:
        """An arena of at least `nbytes` bytes: the smallest one that is free."""
        try:
            number, arena = self._free.popitem()
        except KeyError:
            return aligned_empty(nbytes)
        if not self._free and arena.nbytes >= nbytes:  # nearly always there is one
            return arena
        self._free[number] = arena
        while self._free:
            free = [(arena.nbytes, number) for number, arena in list(self._free.items())]
            size, number = min([place for place in free if place[0] >= nbytes] or [max(free, default=(0, 0))])
            found = self._free.pop(number, None)
            if found is None:  # another thread has just taken it
                continue
            if size >= nbytes:
                return found
            mapping = _mapping(found)
            del arena, found
            # Larger sizes are likely to follow; pages that are not touched cost nothing.
            grown = _grown(mapping, _SPARE * nbytes) if mapping is not None else None
            if grown is not None:
                return grown
            del mapping
            try:
                return aligned_empty(_SPARE * nbytes)
            except (MemoryError, OSError):
                break
        return aligned_empty(nbytes)

    def put(self, arena: np.ndarray) -> None:
        if arena.nbytes <= _SPARE * self._largest:
            self._free[id(arena)] = arena

    def drop(self, above: int = -1) -> None:
        """Frees the arenas of more than `above` bytes that no call is using."""
        for number, arena in list(self._free.items()):
            if arena.nbytes > above:
                self._free.pop(number, None)


_SPARE = 2
"""An arena that replaces a smaller one is so many times as large as needed."""

ARENAS = ArenaPool(kept_blocks.release)
"""The arenas of all code. One call after the other writes to the same pages, in whatever program. Arrays as large as
those of the largest code are not likely to come again once it has gone."""
