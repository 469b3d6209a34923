"""Untrusted zip archives of arrays (`.npz`): sizes are checked before memory is allocated."""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from gluonjit.ir.array_literal import from_archive
from gluonjit.ir.types import IRError, TensorType

MAX_DIRECTORY = 16 << 20
"""Bytes of an archive's directory. Python's `zipfile` makes objects of all of it, ten times as large, when it opens."""

MAX_HEADER = 10_000
"""Bytes before an array's elements; as in NumPy."""

MAX_DEFLATED = 2**30
"""Bytes of an array that is stored compressed: few bytes may unpack to any number."""

_END = struct.Struct("<4s8xII")  # signature, …, the directory's size and offset
_LOCATOR = struct.Struct("<4s4xQ4x")  # signature, …, where the record of 64 bits is
_END64 = struct.Struct("<4s36xQ")  # signature, …, the directory's size


def check_directory(file: IO[bytes]) -> None:
    """BadZipFile for an archive with a directory larger than MAX_DIRECTORY, before that is read."""
    import zipfile

    size = file.seek(0, os.SEEK_END)
    start = max(0, size - 22 - 0xFFFF)  # the end's record, and at most so long a comment
    file.seek(start)
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if 0 <= at <= len(tail) - _END.size:
        directory = _END.unpack_from(tail, at)[1]
        if at >= 20 and tail[at - 20 : at - 16] == b"PK\6\7":
            file.seek(min(_LOCATOR.unpack_from(tail, at - 20)[1], size))
            record = file.read(_END64.size)
            if len(record) == _END64.size:
                directory = max(_END64.unpack(record)[1], 0 if directory == 0xFFFFFFFF else directory)
        if directory > MAX_DIRECTORY:
            raise zipfile.BadZipFile(f"a directory of {directory} bytes; {MAX_DIRECTORY} is the most")
    file.seek(0)


def read_array(path: Path, key: str, type_: TensorType) -> np.ndarray:
    """The array `key` of an archive, which must be of this type; IRError, or what damage makes `zipfile` raise."""
    import zipfile

    if not path.is_file():
        raise IRError("no such file")
    with open(path, "rb") as file:
        check_directory(file)
        with zipfile.ZipFile(file) as archive:
            try:
                member = archive.getinfo(f"{key}.npy")
            except KeyError:
                raise IRError("it has no such array") from None
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise IRError("it is compressed otherwise than NumPy does")
            if member.file_size > type_.nbytes + MAX_HEADER:
                raise IRError(f"it has {member.file_size} bytes, {type_} has {type_.nbytes}")
            if member.compress_type == zipfile.ZIP_DEFLATED and member.file_size > MAX_DEFLATED:
                raise IRError(f"it unpacks to {member.file_size} bytes; {MAX_DEFLATED} is the most")
            with archive.open(member) as opened:
                version = npy.read_magic(opened)
                read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, _, dtype = read_header(opened)
            # NumPy takes the memory that the header asks for, whatever follows it.
            if math.prod(shape) * dtype.itemsize > min(member.file_size, type_.nbytes):
                raise IRError(f"it is {dtype}{list(shape)}, not {type_}")
            with archive.open(member) as opened:
                return from_archive(npy.read_array(opened, allow_pickle=False), type_)
