"""Who is told of gradients before backward has ended: sums over processes begin with the first ones."""

from __future__ import annotations

import os
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from gluonjit.runtime.storage import Storage
from gluonjit.runtime.watching import Progress


class Listener(Protocol):
    """An object that is told of gradients, on the threads that run backward, so it must not wait."""

    def computing(self, storage: Storage, gradient: np.ndarray, progress: Progress | None, ready: int) -> None:
        """`gradient`, which will be stored in this storage unless others are added to it, is complete as soon as
        `progress.steps()` is `ready`, and nobody writes to it afterwards. Without `progress` it is complete now, and
        what happens to it later is not known. A gradient may be announced twice: first with `progress`."""

    def stored(self, storage: Storage, gradient: np.ndarray) -> None:
        """`gradient` has been written to the storage, or added."""


listeners: WeakKeyDictionary[Storage, Listener] = WeakKeyDictionary()
"""Listeners by the storage of the array that a gradient is stored in."""


def announce(target: Any, request: str, gradient: np.ndarray, progress: Progress | None = None, ready: int = 0) -> None:
    """Says that backward computes a gradient, which it will store in the array `target`."""
    listener = listeners.get(target.storage())
    if listener is None or request != "write" or target.stype != "default":
        return
    if gradient.dtype == target._array.dtype and gradient.shape == target._array.shape:
        listener.computing(target.storage(), gradient, progress, ready)


def note_stored(target: Any, gradient: np.ndarray) -> None:
    listener = listeners.get(target.storage())
    if listener is not None:
        listener.stored(target.storage(), gradient)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=listeners.clear)
