"""Data sets packed by gzip, read as far as their size allows: a small file may unpack to any amount."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gluonjit.base import MXNetError

MAX_RATIO = 100
SPARE = 64 << 20
"""A file may unpack to so many times its size, and so many bytes more."""


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """What a gzip file unpacks to, as a stream. MXNetError where it is damaged, or unpacks to too much."""
    import gzip

    try:
        with gzip.open(path) as file:
            yield _Bounded(file, MAX_RATIO * os.path.getsize(path) + SPARE, str(path))
    except (EOFError, zlib.error, gzip.BadGzipFile) as e:
        raise MXNetError(f"{path}: damaged gzip file ({e})") from e


class _Bounded(io.RawIOBase):
    """Reads from `file`. MXNetError for asking, at once or in all, for more than `limit` bytes."""

    def __init__(self, file: Any, limit: int, where: str) -> None:
        self.file, self.limit, self.where = file, limit, where

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.file.tell()

    def seek(self, position: int, whence: int = 0) -> int:
        self._check(position if whence == 0 else self.tell() + position)
        return self.file.seek(position, whence)

    def read(self, size: int = -1) -> bytes:
        if size is None or size < 0:
            data = self.file.read(max(0, self.limit + 1 - self.tell()))
            self._check(self.tell())
            return data
        self._check(self.tell() + size)
        return self.file.read(size)

    def _check(self, end: int) -> None:
        if end > self.limit:
            raise MXNetError(f"{self.where} unpacks to {end} bytes or more; {self.limit} is the most for its size")
