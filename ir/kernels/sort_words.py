"""The memory of the kernel of `sort`, and when it looks for the first elements of a line instead of sorting all."""

from __future__ import annotations

from typing import NamedTuple

from gluonjit.ir.dims import Extent
from gluonjit.ir.types import TensorType

PLACE_BITS = 32
"""The low bits of a word, which hold the place of a key of at most 32 bits. No line has 2**32 elements of 32 bits."""
_PADDING = 17 * 64
"""Bytes after each array: sorting reads and writes up to 17 vectors beyond it."""
BUCKETS = 6
"""Buckets among which lines that are too long for a cache are distributed. Each has its own padding. Where they end is
kept in registers, of which some machines have 16."""
DISTRIBUTED = 1 << 15
"""The least number of elements of such a line."""


def candidates(count: int) -> int:
    """How many elements are kept until they are sorted and all but the first `count` forgotten."""
    return count + max(count, 256)


def is_partial(n: Extent, count: int) -> bool:
    """Whether the first `count` of n elements are selected before they are sorted."""
    return count != 0 and not (isinstance(n, int) and n <= 2 * candidates(count))


class SortMemory(NamedTuple):
    """Each thread's memory: `areas` arrays of `each` bytes."""

    areas: int
    each: Extent

    @property
    def all(self) -> Extent:
        return self.areas * self.each


def sort_memory(x: TensorType, axis: int, count: int) -> SortMemory:
    n = x.shape[axis]
    items = candidates(count) if is_partial(n, count) else n
    padding = _PADDING
    if isinstance(items, int):
        items = -(-items // 8) * 8  # whole cache lines
    if not isinstance(items, int) or items >= DISTRIBUTED:
        padding *= BUCKETS
    return SortMemory(2 if x.dtype.bits <= 32 else 5, items * 8 + padding)
