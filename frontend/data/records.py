"""`mx.recordio`: files of records, as MXNet's `im2rec` packs images.

A record is `magic (u32) | kind << 29 | length (u32) | data | zeros up to a multiple of 4`, all little-endian. If the
magic number occurs in the data at a multiple of 4, the record is split there: the number is omitted, and the pieces are
of kind 1 (first), 2, …, 3 (last); a whole record is of kind 0. A separate `.idx` file has a line `key<TAB>offset` for
each record.
"""

from __future__ import annotations

import io
import numbers
import os
import struct
from collections import namedtuple
from collections.abc import Callable
from typing import Any, BinaryIO, TextIO

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.files.image_files import decode, pillow

__all__ = ["IRHeader", "MXIndexedRecordIO", "MXRecordIO", "pack", "pack_img", "unpack", "unpack_img"]

_MAGIC = 0xCED7230A
_WORD = struct.Struct("<I")
_HEAD = struct.Struct("<II")
_MAX_LENGTH = (1 << 29) - 1


class MXRecordIO:
    """A file of records, read ('r') or written ('w') in order.

    A forked process opens the file again, so that it has its own position.
    """

    def __init__(self, uri: str | os.PathLike[str], flag: str) -> None:
        self.uri = os.fspath(uri)
        self.flag = flag
        self.is_open = False
        self._file: BinaryIO | None = None
        self.open()

    def open(self) -> None:
        if self.flag not in ("r", "w"):
            raise ValueError(f"Invalid flag {self.flag}")
        self.writable = self.flag == "w"
        try:
            self._file = open(self.uri, "wb" if self.writable else "rb")
        except OSError as e:
            raise MXNetError(f"cannot open {self.uri}: {e.strerror or e}") from e
        self.pid = os.getpid()
        self.is_open = True

    def close(self) -> None:
        if self.is_open and self._file is not None:
            self._file.close()
        self.is_open = False

    def reset(self) -> None:
        """Goes back to the first record; a file being written is emptied."""
        self.close()
        self.open()

    def __del__(self) -> None:
        if getattr(self, "is_open", False):
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_file", "pid")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "_file": None}
        if state["is_open"]:
            if self.writable:
                raise MXNetError(f"{self.uri} is being written, so it cannot be handed to another process")
            self.open()

    def _handle(self, writable: bool) -> BinaryIO:
        if not self.is_open or self._file is None:
            raise MXNetError(f"{self.uri} is closed")
        if self.writable != writable:
            raise AssertionError(f"{self.uri} was opened for {'writing' if self.writable else 'reading'}")
        if self.pid != os.getpid():
            if writable:
                raise RuntimeError("Forbidden operation in multiple processes")
            position = self._file.tell()
            self.open()
            self._file.seek(position)
        return self._file

    def write(self, buf: bytes | str) -> None:
        """Appends a record."""
        file = self._handle(writable=True)
        data = buf.encode() if isinstance(buf, str) else bytes(buf)
        if len(data) > _MAX_LENGTH:
            raise MXNetError(f"a record of {len(data)} bytes; {_MAX_LENGTH} is the most")
        pieces = _cut(data)
        for k, piece in enumerate(pieces):
            kind = 0 if len(pieces) == 1 else 1 if k == 0 else 3 if k == len(pieces) - 1 else 2
            file.write(_HEAD.pack(_MAGIC, kind << 29 | len(piece)))
            file.write(piece + b"\0" * (-len(piece) % 4))

    def read(self) -> bytes | None:
        """The next record; None at the end of the file."""
        file = self._handle(writable=False)
        pieces: list[bytes] = []
        while True:
            start = file.tell()
            head = file.read(_HEAD.size)
            if not head and not pieces:
                return None
            if len(head) < _HEAD.size:
                raise MXNetError(f"{self.uri}: the record at byte {start} is cut off")
            magic, word = _HEAD.unpack(head)
            kind, length = word >> 29, word & _MAX_LENGTH
            if magic != _MAGIC or kind not in ((2, 3) if pieces else (0, 1)):
                raise MXNetError(f"{self.uri}: no record starts at byte {start}; is it a RecordIO file?")
            # Checked first: a read takes memory for all that it is told to read.
            if length > os.fstat(file.fileno()).st_size - file.tell():
                raise MXNetError(f"{self.uri}: the record at byte {start} is cut off")
            data = file.read(length + -length % 4)
            pieces.append(data[:length])
            if kind in (0, 3):
                return _WORD.pack(_MAGIC).join(pieces)


def _cut(data: bytes) -> list[bytes]:
    """The pieces between occurrences of the magic number at multiples of 4."""
    pieces, start = [], 0
    magic = _WORD.pack(_MAGIC)
    found = data.find(magic)
    while found >= 0:
        if found % 4 == 0:
            pieces.append(data[start:found])
            start = found + 4
            found = data.find(magic, start)
        else:
            found = data.find(magic, found + 1)
    return [*pieces, data[start:]]


class MXIndexedRecordIO(MXRecordIO):
    """A file of records with an index: `read_idx(key)`, `write_idx(key, record)`; `key_type` parses keys."""

    def __init__(
        self,
        idx_path: str | os.PathLike[str],
        uri: str | os.PathLike[str],
        flag: str,
        key_type: Callable[[str], Any] = int,
    ) -> None:
        self.idx_path = os.fspath(idx_path)
        self.key_type = key_type
        self.fidx: TextIO | None = None
        super().__init__(uri, flag)

    def open(self) -> None:
        super().open()
        self.idx: dict[Any, int] = {}
        self.keys: list[Any] = []
        try:
            self.fidx = open(self.idx_path, "w" if self.writable else "r")
        except OSError as e:
            raise MXNetError(f"cannot open the index {self.idx_path}: {e.strerror or e}") from e
        if self.writable:
            return
        size = os.stat(self.uri).st_size
        try:
            for number, line in enumerate(self.fidx, 1):
                key, position = self._entry(line.strip(), f"{self.idx_path}:{number}", size)
                self.idx[key] = position
                self.keys.append(key)
        except UnicodeDecodeError as e:
            raise MXNetError(f"{self.idx_path} is not text: {e}") from e
        self.fidx.close()

    def _entry(self, line: str, where: str, size: int) -> tuple[Any, int]:
        """(key, offset) in a line of the index; `size` is that of the file of records."""
        text, tab, rest = line.partition("\t")
        if not tab:
            raise MXNetError(f"{where}: {line[:100]!r} is not key<TAB>offset")
        digits = rest.split("\t")[0]
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and int(digits) < size):
            raise MXNetError(f"{where}: {digits[:100]!r} is not an offset in {self.uri}, which has {size} bytes")
        try:
            return self.key_type(text), int(digits)
        except ValueError as e:
            kind = getattr(self.key_type, "__name__", self.key_type)
            raise MXNetError(f"{where}: {text[:100]!r} is not a key of type {kind}") from e

    def close(self) -> None:
        super().close()
        if self.fidx is not None:
            self.fidx.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "fidx": None}

    def seek(self, idx: Any) -> None:
        """Makes the record with key `idx` the next to be read. KeyError if the index has no such key."""
        self._handle(writable=False).seek(self.idx[idx])

    def tell(self) -> int:
        """Where the next record will be written."""
        return self._handle(writable=True).tell()

    def read_idx(self, idx: Any) -> bytes | None:
        self.seek(idx)
        return self.read()

    def write_idx(self, idx: Any, buf: bytes | str) -> None:
        key = self.key_type(idx)
        position = self.tell()
        self.write(buf)
        assert self.fidx is not None
        self.fidx.write(f"{key}\t{position}\n")
        self.idx[key] = position
        self.keys.append(key)


IRHeader = namedtuple("IRHeader", ["flag", "label", "id", "id2"])
"""The header of an image record: a label (a number, or `flag` numbers), and two numbers that identify the image."""

_IR = struct.Struct("<IfQQ")


def pack(header: IRHeader, s: bytes) -> bytes:
    """A record of header and contents."""
    header = IRHeader(*header)
    if isinstance(header.label, numbers.Number):
        header = header._replace(flag=0)
    else:
        label = np.asarray(header.label, np.float32)
        header = header._replace(flag=label.size, label=0)
        s = label.tobytes() + s
    return _IR.pack(*header) + s


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """Header and contents of a record that `pack` made."""
    if len(s) < _IR.size:
        raise MXNetError(f"a record of {len(s)} bytes has no image header, which has {_IR.size}")
    header = IRHeader(*_IR.unpack_from(s))
    s = s[_IR.size :]
    if header.flag > 0:
        if header.flag * 4 > len(s):
            raise MXNetError(f"a record announces {header.flag} labels, but has {len(s)} bytes after its header")
        header = header._replace(label=np.frombuffer(s, np.float32, header.flag))
        s = s[header.flag * 4 :]
    return header, s


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, np.ndarray]:
    """Header and image of a record: u8[height, width, 3] in the order blue, green, red, as OpenCV has it.

    `iscolor`: 1 color, 0 gray (u8[height, width]), -1 as it was stored.
    """
    header, data = unpack(s)
    image = decode(data, {1: "RGB", 0: "L"}.get(iscolor))
    return header, image[:, :, ::-1] if image.ndim == 3 else image


def pack_img(header: IRHeader, img: np.ndarray, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """A record of header and encoded image; `img` is as `unpack_img` returns it.

    `quality` is that of JPEG (up to 100), or the compression level of PNG (up to 9).
    """
    img = np.asarray(img, np.uint8)
    rgb = img[:, :, ::-1] if img.ndim == 3 else img
    encoded = io.BytesIO()
    kind = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG"}.get(img_fmt.lower())
    if kind is None:
        raise MXNetError(f"images are packed as .jpg or .png, not {img_fmt!r}")
    options = {"quality": quality} if kind == "JPEG" else {"compress_level": min(quality, 9)}
    pillow().fromarray(np.ascontiguousarray(rgb)).save(encoded, kind, **options)
    return pack(header, encoded.getvalue())
