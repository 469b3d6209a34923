"""Write counters: how a compiled call notices that a parameter, or any captured array, has new contents.

A `Storage` is shared by an array and all its views. Every write through any of them calls `wrote`. Compiled code
keeps packed copies of what it derived from a storage (see the pass `hoist`); before a call it compares one global
counter, and only if that moved, the counters of the storages it *watches*.
"""

from __future__ import annotations

import mmap
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

EPOCH = np.zeros(1, np.int64)
"""Moves with every write to a watched storage. Its address is baked into the native entry, so it is never replaced."""


Watched = tuple["Storage", Hashable]
"""A storage, and a value that is another one whenever its contents may be others."""


class Piece(Protocol):
    """A part of a file that an array was read from."""

    @property
    def mapped(self) -> mmap.mmap:
        """The whole file."""

    @property
    def offset(self) -> int:
        """Where in the file the part begins, in bytes."""

    @property
    def nbytes(self) -> int:
        """Its size."""

    @property
    def facts(self) -> tuple[int, ...]:
        """Numbers of which one differs if the file's contents do; the last two are times of change (ns)."""

    def is_intact(self) -> bool:
        """Whether the file has not been changed since it was mapped."""


class Storage:
    """The identity of a piece of memory.

    `version` counts writes, `watched` says that compiled code depends on it, and `context` is the device that the
    front end was told to put it on (None: the first CPU, where nearly everything is). `exposed` memory is written to by
    others, too, who do not tell. `aliased` says that there may be, or have been, more than one array on this memory.
    `origin` is a part of a file, and the version that has the same contents.
    """

    __slots__ = ("__weakref__", "aliased", "context", "exposed", "origin", "version", "watched")

    def __init__(self, context: Any = None) -> None:
        self.version = 0
        self.watched = False
        self.exposed = False
        self.aliased = False
        self.origin: tuple[Any, int] | None = None
        self.context = context

    def piece(self) -> Any:
        """The part of a file (`Piece`) that holds the same now, or None."""
        same = self.origin is not None and self.origin[1] == self.version and not self.exposed
        return self.origin[0] if self.origin is not None and same else None

    def wrote(self) -> None:
        self.version += 1
        self.replaced()

    def replaced(self) -> None:
        """Must be called when code that watched this storage is to read another one from now on."""
        if self.watched:
            EPOCH[0] += 1

    def watch(self) -> Watched:
        """What compiled code compares from now on to learn whether the contents may be others."""
        self.watched = True
        return self, object() if self.exposed else self.version


def watched(arrays: Sequence[Any], which: Iterable[int]) -> list[Watched | None]:
    """For those of the arrays that `which` numbers, what `Storage.watch` gives; None for the others."""
    found: list[Watched | None] = [None] * len(arrays)
    for k in which:
        storage = arrays[k]._storage
        found[k] = (arrays[k].storage() if storage is None else storage).watch()
    return found
