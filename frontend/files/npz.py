"""NumPy's `.npz`: a zip archive with one `.npy` file for each array. Arrays without names are `arr_0`, `arr_1`, …"""

from __future__ import annotations

import ast
import errno
import io
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NoReturn

import numpy as np
from numpy.lib import format as npy

from gluonjit.base import CheckpointError, MXNetError
from gluonjit.files import array_names, atomic, json_file
from gluonjit.files.array_names import shown
from gluonjit.ir.archive import MAX_HEADER, check_directory
from gluonjit.ir.types import BF16, IRError, dtype_of
from gluonjit.ir.types import dtype as element_type

ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, struct.error)
"""The errors that `zipfile` raises for malformed archives."""

METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}
"""The methods that NumPy writes. Others are refused, as their ratio has no bound: a few bytes of bzip2 may unpack to
any size."""

MAX_RATIO = 100
SPARE = 64 << 20
"""Deflated arrays may take MAX_RATIO times the file's size, plus SPARE bytes. Only zeros deflate by nearly 1000."""

LOCAL_HEADER = struct.Struct("<4s22xHH")
"""The header before a member's data: signature, …, lengths of the name and of the extra field, which follow it."""


def read(
    path: str | os.PathLike[str], copy: bool = True, limit: int | None = None
) -> dict[str, np.ndarray] | list[np.ndarray]:
    """Copies of the arrays in a file that `np.savez` or `write` wrote. Pickled objects are never loaded.

    `limit`: how many bytes deflated arrays may take in all; by default 100 times the file's size plus 64 MiB.

    Raises CheckpointError for a malformed file, MXNetError for one that cannot be opened.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            check_directory(file)
            with zipfile.ZipFile(file) as archive:
                _check_members(archive, file, name, limit)
                arrays: dict[str, np.ndarray] = {}
                for member in archive.infolist():
                    with archive.open(member) as opened:
                        where = f"{name}: {shown(member.filename)}"
                        arrays[member.filename.removesuffix(".npy")] = _array(opened, member.file_size, where)
    except CheckpointError:
        raise
    except ARCHIVE_ERRORS as e:
        found = shown(str(e))
        raise CheckpointError(f"{name}: damaged archive ({found}); expected what numpy.savez writes") from e
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


def _check_members(archive: zipfile.ZipFile, file: IO[bytes], name: str, limit: int | None) -> None:
    """Refuses members that are not arrays, that overlap, or that unpack to more than the limit.

    As members do not overlap, the total size of stored ones is bounded by the file's size.
    """
    found: set[str] = set()
    size = os.fstat(file.fileno()).st_size
    left = MAX_RATIO * size + SPARE if limit is None else limit
    end, before = 0, "the file's beginning"
    for member in sorted(archive.infolist(), key=lambda member: member.header_offset):
        title = shown(member.filename)
        where = f"{name}: {title}"
        if not member.filename.endswith(".npy"):
            _fail(where, "a file that is not an array", "names that end in .npy")
        if member.filename in found:
            _fail(where, "there is another one", "each name once")
        found.add(member.filename)
        if member.flag_bits & 1:
            _fail(where, "it is encrypted", "what numpy.savez writes")
        if member.compress_type not in METHODS:
            _fail(where, f"compressed by method {member.compress_type}", " or ".join(METHODS.values()))
        if member.header_offset < end:
            _fail(where, f"it begins at byte {member.header_offset}", f"{end} or later, where {before} ends")
        file.seek(member.header_offset)
        header = file.read(LOCAL_HEADER.size)
        if len(header) < LOCAL_HEADER.size or header[:4] != b"PK\3\4":
            _fail(where, f"no member of an archive at byte {member.header_offset}", "one")
        _, *lengths = LOCAL_HEADER.unpack(header)
        end, before = member.header_offset + len(header) + sum(lengths) + member.compress_size, title
        if end > archive.start_dir:
            _fail(where, f"its data end at byte {end}", f"{archive.start_dir} at most, where the directory begins")
        if member.compress_type == zipfile.ZIP_STORED:
            if member.file_size != member.compress_size:
                _fail(where, f"{member.file_size} bytes, stored as {member.compress_size}", "the same number")
            continue
        if member.file_size > left:
            expected = f"at most {left} here (all deflated arrays of a file: {MAX_RATIO} times its size, {SPARE} more)"
            _fail(where, f"{member.file_size} bytes, deflated to {member.compress_size}", expected)
        left -= member.file_size


def _fail(where: str, found: str, expected: str) -> NoReturn:
    raise CheckpointError(f"{where}: {found}; expected {expected}")


NUMBERS = re.compile(r"[<>|=]?[fiub]\d{1,2}", re.ASCII)
"""How headers spell element types that can be read: byte order, kind, bytes."""


def _header(file: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """(shape, whether in Fortran order, element type), from the start of a `.npy` file.

    NumPy's own function is not used, as it raises all kinds of exceptions for damaged headers.
    """
    wanted = "what numpy.save writes"
    head = file.read(8)
    if head[:6] != npy.MAGIC_PREFIX or len(head) < 8:
        _fail(where, f"no header of an array (it begins with {head!r})", wanted)
    form = {(1, 0): "<H", (2, 0): "<I"}.get((head[6], head[7]))
    if form is None:
        _fail(where, f"version {head[6]}.{head[7]} of .npy", "1.0 or 2.0")
    field = file.read(struct.calcsize(form))
    length = struct.unpack(form, field)[0] if len(field) == struct.calcsize(form) else 0
    if not 0 < length <= MAX_HEADER:
        _fail(where, f"a header of {length} bytes", f"1 to {MAX_HEADER}")
    text = str(file.read(length), "latin-1")
    try:
        if "\\" in text:  # headers need no escapes, and Python warns of unknown ones
            raise ValueError("a backslash")
        header = ast.literal_eval(re.sub(r"(?<=\d)L\b", "", text.strip()))  # Python 2 wrote 3L
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as e:  # all that literal_eval raises
        _fail(where, f"no header of an array ({shown(str(e) or type(e).__name__)})", wanted)
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        _fail(where, f"no header of an array ({json_file.brief(header)})", wanted)
    descr, fortran, shape = header["descr"], header["fortran_order"], header["shape"]
    if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
        _fail(where, f"shape {json_file.brief(shape)}", "a tuple of integers from 0")
    if type(fortran) is not bool:
        _fail(where, f"fortran_order {json_file.brief(fortran)}", "True or False")
    try:
        dtype = np.dtype(descr) if isinstance(descr, str) and NUMBERS.fullmatch(descr) else None
    except TypeError:  # `<f3`
        dtype = None
    if dtype is None:
        _fail(where, f"elements of type {json_file.brief(descr)}", "numbers")
    return shape, fortran, dtype


def _array(file: IO[bytes], file_size: int, where: str) -> np.ndarray:
    """The array in a `.npy` file of `file_size` bytes; `where` is for messages."""
    shape, fortran, dtype = _header(file, where)
    if len(shape) > 32 or math.prod(n or 1 for n in shape) * dtype.itemsize >= 1 << 63:
        _fail(where, f"{dtype}{json_file.brief(list(shape))}", "at most 32 dimensions and less than 2**63 bytes")
    left = file_size - file.tell()
    size = math.prod(shape) * dtype.itemsize
    if size != left:
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
        native = array.astype(dtype.newbyteorder("="), order="C", copy=False)
        element_type(native.dtype)
    except IRError as e:
        _fail(where, f"elements of type {dtype}", str(e))
    return native


def write(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> None:
    """Writes an uncompressed file for `np.load`. MXNetError for bfloat16, or if the file cannot be written."""
    named = arrays if isinstance(arrays, Mapping) else {f"arr_{k}": x for k, x in enumerate(arrays)}
    array_names.check(named)
    for name, x in named.items():
        if dtype_of(x) is BF16:
            raise MXNetError(
                f"array {name!r} is bfloat16, which .npz files do not have: save as .params or .safetensors"
            )
    atomic.write(path, _chunks(named))


def _chunks(arrays: Mapping[str, np.ndarray]) -> Iterator[Any]:
    """The archive, in pieces: `zipfile` writes into a buffer that is emptied after each array."""
    buffer = _DrainableStream()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:  # type: ignore[call-overload]
        for name, x in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # without a date: equal arrays give equal files
            with archive.open(member, "w", force_zip64=True) as file:
                npy.write_array(file, np.ascontiguousarray(x).reshape(x.shape), allow_pickle=False)
                yield from buffer.drain()
    yield from buffer.drain()


class _DrainableStream(io.RawIOBase):
    """A stream that cannot seek, and that buffers what is written until `drain`."""

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
