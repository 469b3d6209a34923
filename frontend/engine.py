"""`mx.engine`: how many operators MXNet runs as one. There is no engine here: the size is kept, without effect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["bulk", "set_bulk_size"]

_size = 15


def set_bulk_size(size: int) -> int:
    """Returns the size before."""
    global _size
    before, _size = _size, size
    return before


@contextmanager
def bulk(size: int) -> Iterator[None]:
    """`with mx.engine.bulk(10):` sets the size inside."""
    before = set_bulk_size(size)
    try:
        yield
    finally:
        set_bulk_size(before)
