"""Writing a file so that a crash or a full disk leaves the old one whole."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from typing import Any

from gluonjit.base import MXNetError


def write(path: str | os.PathLike[str], chunks: Iterable[Any]) -> None:
    """Writes these chunks (objects with a buffer) to the file `path`; if that fails, an old file is unchanged.

    The chunks go to a temporary file in the same folder, which is then renamed. The permissions of an existing file are
    kept, and a symbolic link keeps pointing to the replaced file. Pipes and devices are written directly. MXNetError if
    the system reports an error.
    """
    target = os.path.realpath(path)
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            with open(target, "wb") as file:
                file.writelines(chunks)
        else:
            _replace(target, chunks)
    except OSError as e:
        raise MXNetError(f"cannot write {os.fspath(path)}: {e.strerror or e}") from e


def _replace(target: str, chunks: Iterable[Any]) -> None:
    folder, name = os.path.split(target)
    # The name is shortened, as the suffix could make it too long for the file system.
    temporary = os.path.join(folder, f".{name[:64]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    # Not `tempfile`: only the owner can read its files, while new files have to follow the user's umask.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(target):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """Flushes the renaming itself to disk, on systems that can synchronize folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
