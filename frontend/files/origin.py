"""Where a parameter's value was read from, so that it can be read again and need not be kept in memory.

The file stays mapped, so the value remains readable if the file is removed or replaced; overwriting it in place is
detected. Files stay mapped only on POSIX systems: elsewhere a mapped file could not be replaced.
"""

from __future__ import annotations

import mmap
import os
import weakref
from typing import BinaryIO, NamedTuple

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.runtime.mapping import map_readonly

SMALLEST = 1 << 16
"""The smallest array, in bytes, whose memory is worth releasing."""

_maps: weakref.WeakKeyDictionary[mmap.mmap, tuple[str, os.stat_result]] = weakref.WeakKeyDictionary()
"""The file's absolute path, and what the system told about it when it was mapped."""


def map_file(file: BinaryIO) -> mmap.mmap:
    """Maps an open, non-empty file, read-only."""
    mapped = map_readonly(file.fileno())
    if os.name == "posix":
        _maps[mapped] = os.path.abspath(file.name), os.fstat(file.fileno())
    return mapped


def is_mapped(facts: os.stat_result) -> bool:
    """Whether arrays view this file's contents."""
    return any(os.path.samestat(facts, other) for _, other in list(_maps.values()))


def _identity(facts: os.stat_result) -> tuple[int, int, int, int]:
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


class Origin(NamedTuple):
    """A piece of a mapped file."""

    array: np.ndarray
    """The elements as they are in the file; read-only."""
    mapped: mmap.mmap

    @property
    def path(self) -> str:
        return _maps[self.mapped][0]

    @property
    def offset(self) -> int:
        """Where in the file the piece begins, in bytes."""
        return int(self.array.ctypes.data - np.frombuffer(self.mapped, np.uint8).ctypes.data)

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    @property
    def facts(self) -> tuple[int, ...]:
        """Device, inode number, size, and the times (ns) at which contents and inode were changed: the last cannot be
        set, so that it tells apart files that were given the same times."""
        facts = _maps[self.mapped][1]
        return (*_identity(facts), facts.st_ctime_ns)

    def is_intact(self) -> bool:
        """Whether the file has not been changed since it was mapped."""
        path, facts = _maps[self.mapped]
        then = _identity(facts)
        try:
            now = _identity(os.stat(path))
        except OSError:
            return True  # removed, so it cannot be changed any more
        return now[:2] != then[:2] or now == then

    def read(self) -> np.ndarray:
        """A copy of the elements. MXNetError if the file has been changed."""
        if not self.is_intact():
            raise MXNetError(f"{self.path} has been overwritten in place since it was loaded")
        copy = np.array(self.array, order="C")
        self.drop_pages()
        return copy

    def drop_pages(self) -> None:
        """Lets the system drop the pages that reading the elements brought into memory."""
        advice = getattr(mmap, "MADV_DONTNEED", None)
        if advice is None:
            return
        begin = self.offset
        start = begin // mmap.PAGESIZE * mmap.PAGESIZE
        self.mapped.madvise(advice, start, begin + self.array.nbytes - start)


def origin_of(array: np.ndarray) -> Origin | None:
    """The origin of an array that is a view of a mapped file; None for other arrays and for small ones."""
    if array.flags.writeable or array.nbytes < SMALLEST:
        return None
    owner: object = array
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return Origin(array, owner) if isinstance(owner, mmap.mmap) and owner in _maps else None
