"""Hugging Face's `.safetensors`: arrays by name, and no code.

    u64 length of the header · header · data
    header: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …, "__metadata__": {text: text}}

Numbers are little-endian, offsets count from the start of the data, which the arrays fill without holes.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from gluonjit.base import CheckpointError, MXNetError
from gluonjit.files import array_names, atomic, json_file, origin
from gluonjit.files.json_file import brief
from gluonjit.ir.types import dtype, dtype_of

TYPES = {
    "F64": dtype("f64"),
    "F32": dtype("f32"),
    "F16": dtype("f16"),
    "BF16": dtype("bf16"),
    "I64": dtype("i64"),
    "I32": dtype("i32"),
    "I8": dtype("i8"),
    "U8": dtype("u8"),
    "BOOL": dtype("bool"),
}
NAMES = {type: name for name, type in TYPES.items()}

METADATA = "__metadata__"
LIST = {"gluonjit": "list"}
"""The metadata of a file of unnamed arrays, whose names are numbers."""

MAX_HEADER = 100_000_000
"""Bytes; the format's own limit."""


def read(path: str | os.PathLike[str], copy: bool = True) -> dict[str, np.ndarray] | list[np.ndarray]:
    """The arrays of a file: a list if `write` was given a list, else a dict. Arrays do not share memory.

    Without `copy`, arrays are read-only views of the mapped file where possible.

    Raises CheckpointError for a malformed file, MXNetError for one that cannot be opened.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < 8:
                raise CheckpointError(f"{name}: byte 0: the file ends; expected the length of a header")
            mapped = origin.map_file(file)
    except OSError as e:
        raise MXNetError(f"cannot read {name}: {e.strerror or e}") from e
    return _Reader(name, memoryview(mapped), copy).arrays()


class _Reader:
    def __init__(self, name: str, view: memoryview, copy: bool) -> None:
        self.name = name
        self.view = view
        self.copy = copy

    def fail(self, where: str, found: str, expected: str) -> NoReturn:
        raise CheckpointError(f"{self.name}: {where}: {found}; expected {expected}")

    def arrays(self) -> dict[str, np.ndarray] | list[np.ndarray]:
        (length,) = struct.unpack_from("<Q", self.view)
        if length > min(len(self.view) - 8, MAX_HEADER):
            self.fail("byte 0", f"a header of {length} bytes", f"at most {min(len(self.view) - 8, MAX_HEADER)}")
        header = json_file.decode(bytes(self.view[8 : 8 + length]), self.name, "a header")
        if not isinstance(header, dict):
            self.fail("byte 8", brief(header), "an object")
        metadata = header.pop(METADATA, None)
        start = 8 + length
        entries = sorted((self.entry(name, value) for name, value in header.items()), key=lambda entry: entry[2])
        end = 0
        for name, _, begin, stop, _ in entries:
            if begin != end:
                self.fail(repr(name), f"its data begin at {begin}", f"{end}, where the array before it ends")
            end = stop
        if start + end != len(self.view):
            self.fail("the data", f"{len(self.view) - start} bytes", f"{end}, as many as the arrays have")
        place = {entry[0]: entry for entry in entries}
        found = {name: self.array(place[name], start) for name in header}
        if metadata == LIST and list(found) == [str(k) for k in range(len(found))]:
            return list(found.values())
        return found

    def entry(self, name: str, value: Any) -> tuple[str, Any, int, int, tuple[int, ...]]:
        """(name, element type, begin, end, shape)"""
        where = repr(name)
        if found := array_names.fault(name):
            self.fail(where, f"a name with {found}", "none")
        if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
            self.fail(where, brief(value), "an object with dtype, shape and data_offsets")
        type = TYPES.get(value["dtype"]) if isinstance(value["dtype"], str) else None
        if type is None:
            self.fail(where, f"element type {brief(value['dtype'])}", ", ".join(TYPES))
        shape, offsets = self.sizes(value["shape"], where), self.sizes(value["data_offsets"], where)
        size = math.prod(shape) * type.itemsize
        if math.prod(n or 1 for n in shape) * type.itemsize >= 1 << 63 or len(shape) > 32:
            self.fail(where, f"shape {brief(value['shape'])}", "at most 32 dimensions and less than 2**63 bytes")
        if len(offsets) != 2 or offsets[1] - offsets[0] != size:
            self.fail(where, f"data_offsets {brief(value['data_offsets'])}", f"[begin, begin + {size}]")
        return name, type, offsets[0], offsets[1], shape

    def sizes(self, value: Any, where: str) -> tuple[int, ...]:
        if not isinstance(value, list) or any(not isinstance(n, int) or isinstance(n, bool) or n < 0 for n in value):
            self.fail(where, brief(value), "a list of sizes")
        return tuple(value)

    def array(self, entry: tuple[str, Any, int, int, tuple[int, ...]], start: int) -> np.ndarray:
        _, type, begin, end, shape = entry
        data = self.view[start + begin : start + end]
        if type.kind == "b":
            return np.frombuffer(data, np.uint8).reshape(shape) != 0
        array = np.frombuffer(data, type.numpy).reshape(shape)
        return array.copy() if self.copy else array


def write(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> None:
    """Writes arrays; an existing file is replaced atomically. MXNetError if the file cannot be written."""
    atomic.write(path, _chunks(arrays))


def _chunks(arrays: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> Iterator[Any]:
    named = arrays if isinstance(arrays, Mapping) else {str(k): x for k, x in enumerate(arrays)}
    if METADATA in named:
        raise MXNetError(f"no array in a .safetensors file can be called {METADATA}")
    array_names.check(named)
    header: dict[str, Any] = {} if isinstance(arrays, Mapping) else {METADATA: LIST}
    offset = 0
    for name, x in named.items():
        header[name] = {
            "dtype": NAMES[dtype_of(x)],
            "shape": list(x.shape),
            "data_offsets": [offset, offset + x.nbytes],
        }
        offset += x.nbytes
    import json

    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for x in named.values():
        yield np.ascontiguousarray(x).reshape(-1).view(np.uint8)
