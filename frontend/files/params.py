"""MXNet's `.params` files: named or unnamed arrays.

All numbers are little-endian, nothing is aligned:

    file:    u64 0x112 · u64 reserved · u64 count · records · u64 names (count; 0: a list) · names (u64 length, bytes)
    V2, V3:  u32 magic · i32 storage · [storage shape] · shape · context · type · [aux types and shapes] · data · [aux]
    V1:      u32 magic · shape · context · type · data
    V0:      u32 rank · rank × u32 · context · type · data
    shape:   i32 rank · rank × i64
    context: i32 device type · i32 device number;  type: i32

MXNet writes V2, and V3 where a rank of 0 is a scalar; V0 and V1 are from 0.x. Sparse arrays are V2, with what is in
brackets. `read` and `write` use NumPy arrays, and `sparse.Parts`; a reader that wants dense arrays alone gets the
sparse ones as dense ones, with a warning.
"""

from __future__ import annotations

import math
import os
import stat
import struct
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from gluonjit.base import CheckpointError, MXNetError
from gluonjit.files import array_names, atomic, origin, sparse
from gluonjit.files.type_flags import TYPE_FLAGS
from gluonjit.ir.types import DType, dtype_of
from gluonjit.ir.types import dtype as ir_dtype
from gluonjit.util import is_np_shape

MAGIC = 0x112
V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
MAX_RANK = 32
"""NumPy 1's limit."""
MAX_LISTED = 5
"""The most arrays that a warning lists."""
SPARE = 16 << 20
"""Bytes that reading may take in addition to twice the file's size; not all of them are for arrays."""
OTHER = 1 << 20
CPU = (1, 0)
"""The device type and number that are written. Arrays of any device are read into the host's memory."""

FLAG_OF = {ir_dtype(name): flag for name, flag in TYPE_FLAGS.items()}
TYPE_OF = {flag: type for type, flag in FLAG_OF.items()}

Arrays = dict[str, Any] | list[Any]

# Reading


def read(
    path: str | os.PathLike[str], copy: bool = True, dense_limit: int | None = None, keep_sparse: bool = False
) -> Arrays:
    """The arrays of a file: a dict if they have names, else a list. Arrays do not share memory.

    Without `copy`, arrays are read-only views of the mapped file where possible. This is for callers that copy them
    immediately.

    `dense_limit`: how many bytes the sparse arrays may take as dense ones, in all. The default, twice the file's size
    plus 15 MB, is enough unless arrays are nearly empty, and keeps a damaged shape from exhausting the memory. With
    `keep_sparse`, they are `sparse.Parts`.

    Raises CheckpointError for a malformed file, MXNetError for one that cannot be opened.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            if stat.S_ISCHR(facts.st_mode):
                raise MXNetError(f"cannot read {name}: it is a device")
            if not facts.st_size:  # neither an empty file nor a pipe can be mapped
                return parse(file.read(), name, dense_limit, keep_sparse)
            mapped = origin.map_file(file)
    except OSError as e:
        raise MXNetError(f"cannot read {name}: {e.strerror or e}{_others(name, e)}") from e
    # Not closed here: the map is freed with the last array that views it, which a traceback may keep alive.
    return _Reader(memoryview(mapped), name, dense_limit, copy, keep_sparse).file()


def _others(name: str, error: OSError) -> str:
    """What an error about a missing file adds: the files beside it with the same ending."""
    folder, file = os.path.split(os.fsdecode(name))
    ending = os.path.splitext(file)[1]
    if not isinstance(error, FileNotFoundError) or not ending:
        return ""
    try:
        there = sorted(other for other in os.listdir(folder or ".") if other.endswith(ending))
    except OSError:
        return ""
    alike = [other for other in there if other.rpartition("-")[0] == file.rpartition("-")[0] != ""] or there
    if not alike:
        return f"; {folder or 'the current folder'} has no file *{ending}"
    more = f" and {len(alike) - 5} more" if len(alike) > 5 else ""
    return f"; {folder or 'the current folder'} has {', '.join(alike[:5])}{more}"


def parse(data: Any, name: str, dense_limit: int | None = None, keep_sparse: bool = False) -> Arrays:
    """`read` for a buffer; `name` is for messages."""
    return _Reader(memoryview(data), name, dense_limit, copy=True, keep_sparse=keep_sparse).file()


def parse_record(data: Any, name: str, keep_sparse: bool = False) -> Any:
    """The array that `record` has written; see `read` for `keep_sparse`."""
    return _Reader(memoryview(data), name, None, copy=True, keep_sparse=keep_sparse).record(0)


class _Reader:
    """A position in a buffer, with bounds checks. `what` in its methods is the part's name in messages."""

    def __init__(
        self, view: memoryview, name: str, dense_limit: int | None, copy: bool, keep_sparse: bool = False
    ) -> None:
        self.view = view
        self.name = name
        self.offset = 0
        self.copy = copy
        self.keep_sparse = keep_sparse
        self.dense_limit = 2 * len(view) + SPARE - OTHER if dense_limit is None else dense_limit
        self.densified: dict[int, str] = {}
        """The storage types of sparse arrays, by number."""

    def fail(self, found: str, expected: str, offset: int | None = None) -> NoReturn:
        at = self.offset if offset is None else offset
        raise CheckpointError(f"{self.name}: byte {at}: {found}; expected {expected} (Invalid NDArray file format)")

    def left(self) -> int:
        return len(self.view) - self.offset

    def numbers(self, form: str, what: str) -> tuple[int, ...]:
        layout = struct.Struct("<" + form)
        if layout.size > self.left():
            self.fail(f"the file ends within {what}", f"{layout.size} bytes, but {self.left()} are left")
        values = layout.unpack_from(self.view, self.offset)
        self.offset += layout.size
        return values

    def number(self, form: str, what: str) -> int:
        return self.numbers(form, what)[0]

    def count(self, what: str, least: int) -> int:
        """A u64 that counts things of at least `least` bytes each."""
        start = self.offset
        value = self.number("Q", what)
        if value * least > self.left():
            self.fail(f"{what} is {value}", f"at most {self.left() // least}: {self.left()} bytes are left", start)
        return value

    def file(self) -> Arrays:
        magic, _ = self.numbers("QQ", "the file's header")
        if magic != MAGIC:
            if bytes(self.view[:1]) in b"{[":
                raise CheckpointError(f"{self.name} is JSON; expected parameters (Invalid NDArray file format)")
            if bytes(self.view[:6]) == b"\x93NUMPY":
                raise CheckpointError(f"{self.name} is one array of NumPy's (.npy); expected parameters, by name")
            if bytes(self.view[:4]) == b"\x7fELF":
                raise CheckpointError(f"{self.name} is a shared library; expected parameters")
            self.fail(f"this is no file of parameters: the magic number is {magic:#x}", f"{MAGIC:#x}", 0)
        count = self.count("the number of arrays", least=17)
        arrays = [self.record(k) for k in range(count)]
        start = self.offset
        named = self.count("the number of names", least=8)
        if not named:
            self.note(list(map(str, range(count))))
            return arrays
        if named != count:
            self.fail(f"there are {named} names", f"as many as arrays ({count}), or none", start)
        result: dict[str, np.ndarray] = {}
        for k, array in enumerate(arrays):
            start = self.offset
            name = self.string(f"name {k}")
            if name in result:
                self.fail(f"name {k} is {name!r} again", "each name once", start)
            result[name] = array
        self.note(list(result))
        return result

    def note(self, names: Sequence[str]) -> None:
        """Warns that sparse arrays have been read as dense ones."""
        listed = [f"{array_names.shown(names[k])} ({storage})" for k, storage in self.densified.items()]
        if len(listed) > MAX_LISTED:
            listed[MAX_LISTED:] = [f"and {len(listed) - MAX_LISTED} more"]
        if listed:
            warnings.warn(f"{self.name}: sparse arrays are read as dense ones: {', '.join(listed)}", stacklevel=2)

    def string(self, what: str) -> str:
        length = self.count(f"the length of {what}", least=1)
        start = self.offset
        self.offset += length
        try:
            text = str(self.view[start : self.offset], "utf-8")
        except UnicodeDecodeError as e:
            self.fail(f"{what} is not UTF-8 ({e.reason})", "text", start + e.start)
        if found := array_names.fault(text):
            self.fail(f"{what} has {found}", "none", start)
        return text

    def record(self, number: int) -> Any:
        """One array, of any version."""
        what = f"array {number}"
        start = self.offset
        magic = self.number("I", what)
        storage = sparse.DEFAULT
        stored: tuple[int, ...] = ()
        if magic in (V1, V2, V3):
            if magic != V1:
                storage = self.storage(what)
            if storage != sparse.DEFAULT:
                stored = self.shape(f"the storage shape of {what}")
            start = self.offset
            shape = self.shape(f"the shape of {what}")
            if magic == V2 and not shape:
                self.fail(f"{what} has no shape: it was saved before it had a value", "an array with a value", start)
        elif magic <= MAX_RANK:
            shape = self.numbers(f"{magic}I", f"the shape of {what}")
        else:
            versions = f"{V1:#x}, {V2:#x} or {V3:#x} (versions 1 to 3) or a rank up to {MAX_RANK} (version 0)"
            self.fail(f"{what} begins with {magic:#x}", versions, start)
        self.numbers("ii", f"the context of {what}")
        type = self.type(what)
        if storage == sparse.DEFAULT:
            return self.dense(shape, type, what, self.copy)
        if not self.keep_sparse:
            self.densified[number] = sparse.NAMES[storage]
        return self.sparse(storage, shape, stored, type, what, start)

    def storage(self, what: str) -> int:
        value = self.number("i", f"the storage type of {what}")
        if value not in sparse.AUX:
            self.fail(f"the storage type of {what} is {value}", "0 (dense), 1 (row_sparse) or 2 (csr)", self.offset - 4)
        return value

    def shape(self, what: str) -> tuple[int, ...]:
        rank = self.number("i", what)
        if not 0 <= rank <= MAX_RANK:
            self.fail(f"{what} has {rank} dimensions", f"0 to {MAX_RANK}", self.offset - 4)
        start = self.offset
        shape = self.numbers(f"{rank}q", what)
        if any(n < 0 for n in shape):
            self.fail(f"{what} is {shape}", "no negative dimensions", start)
        return shape

    def type(self, what: str) -> DType:
        flag = self.number("i", f"the element type of {what}")
        if flag not in TYPE_OF:
            known = ", ".join(f"{f} ({t})" for f, t in TYPE_OF.items())
            self.fail(f"the element type of {what} is {flag}", f"one of {known}", self.offset - 4)
        return TYPE_OF[flag]

    def dense(self, shape: Sequence[int], type: DType, what: str, copy: bool) -> np.ndarray:
        """The elements of an array. Only this method copies from the file."""
        size = self.size(shape, type, what)
        if size > self.left():
            self.fail(f"{what} is {_shown(type, shape)}", f"{size} bytes of it, but {self.left()} are left")
        is_bool = type.kind == "b"
        stored = np.dtype(np.uint8) if is_bool else type.numpy
        count = size // type.itemsize
        source = np.frombuffer(self.view, stored, count, self.offset) if size else np.empty(0, stored)
        self.offset += size
        if not (copy or is_bool):
            return source.reshape(shape)
        self.dense_limit -= size
        array = np.empty(shape, type.numpy)
        if is_bool:  # a byte other than 0 and 1 is invalid in NumPy, but means True in MXNet
            np.not_equal(source, 0, out=array.reshape(-1))
        else:
            array.reshape(-1)[:] = source
        return array

    def size(self, shape: Sequence[int], type: DType, what: str) -> int:
        """The size of an array in bytes. Also refuses empty arrays whose other dimensions overflow in NumPy."""
        if math.prod(n or 1 for n in shape) * type.itemsize >= 1 << 63:
            self.fail(f"{what} is {_shown(type, shape)}", "less than 2**63 bytes")
        return math.prod(shape) * type.itemsize

    def sparse(
        self, storage: int, shape: tuple[int, ...], stored: tuple[int, ...], type: DType, what: str, start: int
    ) -> Any:
        """Reads the rest of a sparse array, from after its element type; returns its parts, or a dense array."""
        aux = []
        for part in (f"the {name} of {what}" for name in sparse.AUX[storage]):
            aux_type = self.type(part)
            if not aux_type.is_integer:
                self.fail(f"{part} are {aux_type}", "integers", self.offset - 4)
            aux.append((self.shape(f"the shape of {part}"), aux_type, part))
        size = self.size(shape, type, what)
        if self.keep_sparse:
            values = self.dense(stored, type, what, copy=True)
            parts = tuple(self.dense(*part, copy=True).astype(np.int64) for part in aux)
            try:
                sparse.check(storage, shape, values, parts)
            except ValueError as e:
                found, _, expected = str(e).partition("; expected ")
                self.fail(f"{what}: {found}", expected, start)
            return sparse.Parts(storage, shape, values, parts)
        if size > self.dense_limit:
            self.fail(f"{what} takes {size} bytes as a dense array", f"at most {self.dense_limit} in this file", start)
        self.dense_limit -= size
        values = self.dense(stored, type, what, copy=False)
        try:
            return sparse.densify(storage, shape, values, [self.dense(*part, copy=False) for part in aux])
        except ValueError as e:
            found, _, expected = str(e).partition("; expected ")
            self.fail(f"{what}: {found}", expected, start)


# Writing


def write(path: str | os.PathLike[str], arrays: Mapping[str, Any] | Sequence[Any]) -> None:
    """Writes arrays, and sparse ones (`sparse.Parts`), byte for byte as MXNet's `nd.save` does.

    An existing file is replaced atomically. V2 cannot represent scalars: a file that contains one, or that is written
    within `np_shape(True)`, is V3, which MXNet reads within `np_shape(True)`. MXNetError if the file cannot be written.
    """
    atomic.write(path, chunks(arrays))


def chunks(arrays: Mapping[str, Any] | Sequence[Any]) -> Iterator[Any]:
    """The contents that `write` writes, as a sequence of buffers."""
    names = list(arrays) if isinstance(arrays, Mapping) else []
    array_names.check(names)
    values = list(arrays.values() if isinstance(arrays, Mapping) else arrays)
    magic = V2 if all(x.shape for x in values) and not is_np_shape() else V3
    yield struct.pack("<QQQ", MAGIC, 0, len(values))
    for x in values:
        yield from _record(x, magic)
    yield struct.pack("<Q", len(names))
    for name in names:
        encoded = name.encode()
        yield struct.pack("<Q", len(encoded)) + encoded


def record(x: np.ndarray | sparse.Parts) -> bytearray:
    """One array as a file holds it."""
    scalars = not isinstance(x, sparse.Parts) and not x.ndim
    return bytearray().join(map(bytes, _record(x, V3 if scalars or is_np_shape() else V2)))


def _record(x: np.ndarray | sparse.Parts, magic: int) -> Iterator[Any]:
    if isinstance(x, sparse.Parts):
        arrays = (x.values, *x.aux)
        yield struct.pack("<Ii", magic, x.storage)
        yield _dimensions(x.values.shape) + _dimensions(x.shape)
        yield struct.pack("<iii", *CPU, FLAG_OF[dtype_of(x.values)])
        for aux in x.aux:
            yield struct.pack("<i", FLAG_OF[dtype_of(aux)]) + _dimensions(aux.shape)
        for part in arrays:
            yield np.ascontiguousarray(part).reshape(-1).view(np.uint8)
        return
    yield struct.pack(f"<Iii{x.ndim}q", magic, sparse.DEFAULT, x.ndim, *x.shape)
    yield struct.pack("<iii", *CPU, FLAG_OF[dtype_of(x)])
    yield np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def _dimensions(shape: Sequence[int]) -> bytes:
    return struct.pack(f"<i{len(shape)}q", len(shape), *shape)


def _shown(type: DType, shape: Sequence[int]) -> str:
    """Formats a type as `TensorType` does; that class refuses the sizes found in damaged files."""
    return f"{type}[{','.join(map(str, shape))}]"
