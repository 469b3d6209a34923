"""Prepared values (packed weights …) on disk: a process maps what another one has computed, instead of computing it.

They are as large as the parameters, so nothing is kept unless somebody asks for it (`gluonjit compile`,
`net.compile(…, keep=True)`). They lie beside the entries of the object cache (`runtime/cache.py`), which says who may
write there:

    prepared/COMPILER/COMPONENT-INPUTS    the results of a `prepare` component, each at a multiple of ALIGNMENT
    prepared/sums/FACTS                   the SHA-256 of a parameters' file that had these facts

COMPILER is a digest of this package's sources and of the target, COMPONENT one of what the component computes, INPUTS
one of the arrays that it reads. An input that was read from a file and not written to since is known by the sum of
that file and its place in it; others are read themselves. Sums are remembered by the file's device, inode, size and
times of change, so a process that has seen a model before reads no parameter at all.

Results are verified by their name and size alone: reading them all would take as long as computing them. So a file gets
its name when all of it is on disk. Mapped memory is shared by all processes.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np

from gluonjit.common.lazy import cached_property
from gluonjit.ir.dims import aligned
from gluonjit.ir.machine import ALIGNMENT
from gluonjit.ir.types import TensorType
from gluonjit.runtime import cache
from gluonjit.runtime.storage import Piece, Storage

LIMIT = 1 << 32
"""Bytes of all files; beyond that, the least recently used ones are removed."""
SMALLEST = 1 << 16
"""Results of fewer bytes are computed sooner than found."""
_MAGIC = b"gluonjit packed1"
_SETTLED = 2.0
"""Seconds after which a file that is changed again gets another time of change, on every file system."""

_sums: dict[tuple[object, ...], str] = {}
"""Hashes of parameters' files, by their facts."""


def folder() -> Path:
    return cache.folder() / "prepared"


class PreparedFiles:
    """The files of one compiler. `made_by`: what, besides this package's sources, results depend on."""

    def __init__(self, made_by: Hashable) -> None:
        self._made_by = made_by

    @cached_property
    def _folder(self) -> Path:
        return folder() / cache.digest(self._made_by)

    def components(self) -> frozenset[str]:
        """The components of which there are files."""
        if cache.why_off() or not folder().is_dir():
            return frozenset()
        try:
            return frozenset(name.partition("-")[0] for name in os.listdir(self._folder))
        except OSError:
            return frozenset()

    def find(self, component: str, inputs: str, types: Sequence[TensorType]) -> list[np.ndarray] | None:
        """The results, mapped and read-only; None if there is no file of them that can be used."""
        path = self._folder / f"{component}-{inputs}"
        offsets, size = _places(types)
        mapped = cache.map_file(path, size)
        if mapped is None or mapped[: len(_MAGIC)] != _MAGIC:
            return None
        return [
            np.frombuffer(mapped, np.uint8, t.nbytes, at).view(t.dtype.numpy).reshape(t.shape)
            for t, at in zip(types, offsets, strict=True)
        ]

    def keep(self, component: str, inputs: str, results: Sequence[np.ndarray], types: Sequence[TensorType]) -> int:
        """Writes the results, unless their file is there; returns its size, or 0 if that is impossible."""
        if cache.why_off():
            return 0
        path = self._folder / f"{component}-{inputs}"
        offsets, size = _places(types)
        if path.is_file() and path.stat().st_size == size:
            return size
        parts: list[bytes | memoryview] = [_MAGIC]
        at = len(_MAGIC)
        for offset, x in zip(offsets, results, strict=True):
            parts += [bytes(offset - at), x.reshape(-1).view(np.uint8).data]
            at = offset + x.nbytes
        return size if _write(path, parts) else 0


def _places(types: Sequence[TensorType]) -> tuple[list[int], int]:
    """(where the results of these types begin in a file, its size)"""
    offsets, at = [], len(_MAGIC)
    for t in types:
        offsets.append(int(aligned(at, ALIGNMENT)))
        at = offsets[-1] + int(t.nbytes)
    return offsets, at


def _write(path: Path, parts: Sequence[bytes | memoryview]) -> bool:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return cache.write(path, parts, durable=True)


# ---- what inputs are


def inputs_digest(inputs: Sequence[np.ndarray], storages: Sequence[Storage]) -> str:
    """Equal for inputs with equal elements in equal files; different for different elements."""
    found = [_identity(x, storage) for x, storage in zip(inputs, storages, strict=True)]
    return hashlib.sha256(repr(found).encode()).hexdigest()


def _identity(x: np.ndarray, storage: Storage) -> tuple[object, ...]:
    piece = storage.piece()
    # Else it is a part of the storage: arrays are contiguous.
    is_whole = piece is not None and piece.nbytes == x.nbytes
    if piece is not None and is_whole and (known := _sum(piece)):
        return known, piece.offset, x.nbytes
    return (hashlib.sha256(np.ascontiguousarray(x).view(np.uint8).data).hexdigest(),)


def _sum(piece: Piece) -> str | None:
    """The SHA-256 of the file; None if it has changed since it was mapped."""
    facts = piece.facts
    if facts in _sums:
        return _sums[facts]
    remembered = folder() / "sums" / hashlib.sha256(repr(facts).encode()).hexdigest()
    text = cache.read(remembered, 64)
    found = text.decode("ascii", "replace") if text is not None and len(text) == 64 else None
    if found is None:
        if not piece.is_intact():
            return None
        found = hashlib.sha256(piece.mapped).hexdigest()
        if max(facts[-2:]) / 1e9 < time.time() - _SETTLED and not cache.why_off():
            _write(remembered, [found.encode()])
    _sums[facts] = found
    return found


# ---- all files


def files() -> list[cache.Entry]:
    """All files, the most recently used first."""
    found = [entry for where in cache.files(folder()) for entry in cache.files(where.path)]
    return sorted(found, key=lambda e: -e.used)


def evict(limit: int | None = None) -> int:
    """Removes the least recently used files beyond `limit` bytes (LIMIT); returns how many."""
    total, removed = 0, 0
    for entry in files():
        total += entry.size
        if total > (LIMIT if limit is None else limit):
            cache.remove(entry.path)
            removed += 1
    return removed
