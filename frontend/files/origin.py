"""Where a parameter's value was read from, so that it can be read again and need not be kept in memory.

The file stays mapped, so that removing or replacing it changes nothing; one that is overwritten in place is noticed.
Files are mapped without copying on every system, and kept mapped on POSIX ones: elsewhere a mapped file could not be
replaced.
"""

from __future__ import annotations

import mmap
import os
import weakref
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from gluonjit.base import MXNetError

SMALLEST = 1 << 16
"""Bytes from which on an array is worth it."""

_Facts = tuple[str, int, int, int, int]
"""The file's absolute path, device, number, size, time of the last change (ns)."""

_maps: weakref.WeakKeyDictionary[mmap.mmap, _Facts] = weakref.WeakKeyDictionary()


def map_file(file: BinaryIO) -> mmap.mmap:
    """The whole of an open file that is not empty, to be read."""
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if os.name == "posix":
        _maps[mapped] = (os.path.abspath(file.name), *_identity(os.fstat(file.fileno())))
    return mapped


def _identity(facts: os.stat_result) -> tuple[int, int, int, int]:
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


@dataclass(frozen=True)
class Origin:
    """A piece of a mapped file."""

    array: np.ndarray
    """The elements as they are in the file; read-only."""
    mapped: mmap.mmap

    @property
    def path(self) -> str:
        return _maps[self.mapped][0]

    def is_intact(self) -> bool:
        """Whether the elements are those that were there when the file was mapped."""
        path, *facts = _maps[self.mapped]
        try:
            now = _identity(os.stat(path))
        except OSError:
            return True  # removed: it cannot be changed any more
        return now[:2] != tuple(facts[:2]) or now == tuple(facts)

    def read(self) -> np.ndarray:
        """A copy of the elements. Raises MXNetError when they are not there any more."""
        if not self.is_intact():
            raise MXNetError(f"{self.path} has been overwritten in place since it was loaded")
        copy = np.array(self.array, order="C")
        self.drop_pages()
        return copy

    def drop_pages(self) -> None:
        """Lets the system have the memory that reading the elements took."""
        advice = getattr(mmap, "MADV_DONTNEED", None)
        if advice is None:
            return
        begin = self.array.ctypes.data - np.frombuffer(self.mapped, np.uint8).ctypes.data
        start = begin // mmap.PAGESIZE * mmap.PAGESIZE
        self.mapped.madvise(advice, start, begin + self.array.nbytes - start)


def origin_of(array: np.ndarray) -> Origin | None:
    """The piece of a file that `array` is; None if it is anything else, or too small to care."""
    if array.flags.writeable or array.nbytes < SMALLEST:
        return None
    owner: object = array
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return Origin(array, owner) if isinstance(owner, mmap.mmap) and owner in _maps else None
