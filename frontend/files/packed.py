"""Data sets packed by gzip, bzip2 or zip, read as far as their size allows: a small file may unpack to any amount."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.files import atomic
from gluonjit.ir.archive import check_directory

MAX_RATIO = 100
SPARE = 64 << 20
"""A file may unpack to MAX_RATIO times its size and SPARE bytes more."""


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """What a gzip file unpacks to, as a stream. MXNetError where it is damaged, or unpacks to too much."""
    import gzip

    try:
        with gzip.open(path) as file:
            yield _Bounded(file, _limit(path), path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as e:
        raise MXNetError(f"{path}: damaged gzip file ({e})") from e


def unpack_bz2(path: Path, target: Path) -> None:
    """Writes what a bzip2 file unpacks to. MXNetError where it is damaged, or unpacks to too much; then no file is
    left."""
    import bz2

    def chunks() -> Iterator[bytes]:
        with bz2.open(path) as file:
            most = _limit(path)
            while True:
                try:
                    chunk = file.read(1 << 20)
                except (EOFError, OSError) as e:
                    raise MXNetError(f"{path}: damaged bzip2 file ({e})") from e
                _check(file.tell(), most, path)
                if not chunk:
                    return
                yield chunk

    atomic.write(target, chunks())


def unzip(path: Path, folder: Path) -> None:
    """Unpacks a zip archive into a folder. MXNetError where it is damaged, or, before writing, if it unpacks to too
    much."""
    import zipfile

    try:
        with open(path, "rb") as file:
            check_directory(file)
            with zipfile.ZipFile(file) as archive:
                _check(sum(member.file_size for member in archive.infolist()), _limit(path), path)
                archive.extractall(folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as e:
        raise MXNetError(f"{path}: damaged zip archive ({e})") from e


def _limit(path: Path) -> int:
    return MAX_RATIO * os.path.getsize(path) + SPARE


def _check(end: int, limit: int, path: Path) -> None:
    if end > limit:
        raise MXNetError(f"{path} unpacks to {end} bytes or more; {limit} is the most for its size")


class _Bounded(io.RawIOBase):
    """Reads from `file`. MXNetError for asking, at once or in all, for more than `limit` bytes."""

    def __init__(self, file: Any, limit: int, path: Path) -> None:
        self.file, self.limit, self.path = file, limit, path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.file.tell()

    def seek(self, position: int, whence: int = 0) -> int:
        _check(position if whence == 0 else self.tell() + position, self.limit, self.path)
        return self.file.seek(position, whence)

    def read(self, size: int = -1) -> bytes:
        if size is None or size < 0:
            data = self.file.read(max(0, self.limit + 1 - self.tell()))
            _check(self.tell(), self.limit, self.path)
            return data
        _check(self.tell() + size, self.limit, self.path)
        return self.file.read(size)
