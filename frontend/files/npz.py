"""NumPy's `.npz`: a zip archive with one `.npy` file for each array. Arrays without names are `arr_0`, `arr_1`, …"""

from __future__ import annotations

import errno
import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NoReturn

import numpy as np
from numpy.lib import format as npy

from gluonjit.base import CheckpointError, MXNetError
from gluonjit.files import atomic
from gluonjit.ir.types import BF16, IRError, dtype_of

DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, struct.error)
"""What `zipfile` raises for archives that are not what they should be."""

MAX_RATIO = 1100
"""How many times its size a compressed file can be at most: deflate does not reach it."""


def read(path: str | os.PathLike[str], copy: bool = True) -> dict[str, np.ndarray] | list[np.ndarray]:
    """The arrays of a file that `np.savez` or `write` wrote, always as copies. No pickled object is ever loaded.

    Raises CheckpointError for a malformed file, MXNetError for one that cannot be opened.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            size = os.fstat(file.fileno()).st_size
            arrays: dict[str, np.ndarray] = {}
            for member in archive.infolist():
                array = _member(archive, member, name, size)
                if arrays.setdefault(member.filename.removesuffix(".npy"), array) is not array:
                    raise CheckpointError(f"{name}: {member.filename}: there is another one; expected each name once")
    except CheckpointError:
        raise
    except DAMAGE as e:
        raise CheckpointError(f"{name}: damaged archive ({e}); expected what numpy.savez writes") from e
    except OSError as e:
        if e.errno == errno.EINVAL:  # a position before the file's beginning
            raise CheckpointError(
                f"{name}: damaged archive (impossible offset); expected what numpy.savez writes"
            ) from e
        raise MXNetError(f"cannot read {name}: {e.strerror or e}") from e
    if arrays and list(arrays) == [f"arr_{k}" for k in range(len(arrays))]:
        return list(arrays.values())
    return arrays


def read_array(path: str | os.PathLike[str]) -> np.ndarray:
    """The array in a `.npy` file. Errors as in `read`."""
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            return _array(file, os.fstat(file.fileno()).st_size, name)
    except OSError as e:
        raise MXNetError(f"cannot read {name}: {e.strerror or e}") from e


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, file_size: int) -> np.ndarray:
    where = f"{name}: {member.filename}"
    if not member.filename.endswith(".npy"):
        _fail(where, "a file that is no array", "names that end in .npy")
    if member.compress_size > file_size or member.file_size > MAX_RATIO * member.compress_size:
        found = f"{member.file_size} bytes out of {member.compress_size}"
        _fail(where, found, f"at most {MAX_RATIO} times as many")
    with archive.open(member) as file:
        return _array(file, member.file_size, where)


def _fail(where: str, found: str, expected: str) -> NoReturn:
    raise CheckpointError(f"{where}: {found}; expected {expected}")


def _array(file: IO[bytes], file_size: int, where: str) -> np.ndarray:
    """The array in a `.npy` file of `file_size` bytes; `where` is for messages."""
    try:
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            _fail(where, f"version {version} of .npy", "1.0 or 2.0")
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = header(file)
    except ValueError as e:
        if isinstance(e, CheckpointError):
            raise
        _fail(where, f"no header of an array ({str(e).splitlines()[0]})", "what numpy.save writes")
    if dtype.hasobject or dtype.kind not in "fiub":
        _fail(where, f"elements of type {dtype}", "numbers")
    if math.prod(n or 1 for n in shape) * dtype.itemsize >= 1 << 63 or len(shape) > 32:
        _fail(where, f"{dtype}{list(shape)}", "at most 32 dimensions and less than 2**63 bytes")
    left = file_size - file.tell()
    size = math.prod(shape) * dtype.itemsize
    if any(n < 0 for n in shape) or size != left:
        _fail(where, f"{left} bytes", f"{size} for {dtype}{list(shape)}")
    data = np.empty(math.prod(shape), dtype)
    target = data.view(np.uint8)
    done = 0
    while done < size:
        piece = file.read(min(size - done, 1 << 20))
        if not piece:
            _fail(where, "the data end", f"{size} bytes")
        target[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    array = data.reshape(shape, order="F" if fortran else "C")
    try:
        dtype_of(native := array.astype(dtype.newbyteorder("="), order="C", copy=False))
    except IRError as e:
        _fail(where, f"elements of type {dtype}", str(e))
    return native


def write(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> None:
    """Writes what `np.load` reads, uncompressed. MXNetError for bfloat16, and when the file cannot be written."""
    named = arrays if isinstance(arrays, Mapping) else {f"arr_{k}": x for k, x in enumerate(arrays)}
    for name, x in named.items():
        if dtype_of(x) is BF16:
            raise MXNetError(
                f"array {name!r} is bfloat16, which .npz files do not have: save as .params or .safetensors"
            )
    atomic.write(path, _chunks(named))


def _chunks(arrays: Mapping[str, np.ndarray]) -> Iterator[Any]:
    """The archive, in pieces: `zipfile` writes into a buffer that is emptied after each array."""
    buffer = _Drained()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:  # type: ignore[call-overload]
        for name, x in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # without a date: equal arrays give equal files
            with archive.open(member, "w", force_zip64=True) as file:
                npy.write_array(file, np.ascontiguousarray(x).reshape(x.shape), allow_pickle=False)
                yield from buffer.drain()
    yield from buffer.drain()


class _Drained(io.RawIOBase):
    """A stream that cannot seek, and keeps what is written until it is drained."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._position += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._position

    def drain(self) -> list[bytes]:
        pieces, self._pieces = self._pieces, []
        return pieces
