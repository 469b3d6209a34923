"""Writing a file so that a crash or a full disk leaves the old one whole."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.files import origin


def write(path: str | os.PathLike[str], chunks: Iterable[Any]) -> None:
    """Writes these chunks (objects with a buffer) to the file `path`; if that fails, an old file is unchanged.

    The chunks go to a temporary file in the same folder, which is then renamed. The permissions of an existing file are
    kept, and a symbolic link keeps pointing to the replaced file. A file that somebody may be holding open, to read
    there what is written here (`_is_held`), keeps its identity: the temporary file is copied into it. Pipes and devices
    are written directly. MXNetError if the system reports an error.
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
        facts = os.stat(target) if os.path.exists(target) else None
        if facts is not None and _is_held(facts):
            _overwrite(target, temporary)
            return
        if facts is not None:
            os.chmod(temporary, stat.S_IMODE(facts.st_mode))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _is_held(facts: os.stat_result) -> bool:
    """Whether a file is open in this process, or empty, as the temporary files are that programs make for another one
    to write to. Not if arrays view its contents: they would change.
    """
    if origin.is_mapped(facts):
        return False
    return not facts.st_size or any(os.path.samestat(facts, other) for other in _open_files())


def _open_files() -> Iterator[os.stat_result]:
    with contextlib.suppress(OSError):  # systems without this folder
        for descriptor in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):  # the one that listed the folder
                yield os.fstat(int(descriptor))


def _overwrite(target: str, temporary: str) -> None:
    """Copies a file into another one. Should the machine stop meanwhile, the temporary file is whole."""
    with open(temporary, "rb") as source, open(target, "r+b") as file:
        size = os.fstat(source.fileno()).st_size
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is noticed while the old contents are there
        while chunk := source.read(1 << 20):
            file.write(chunk)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    os.unlink(temporary)


def _sync_folder(folder: str) -> None:
    """Flushes the renaming itself to disk, on systems that can synchronize folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
