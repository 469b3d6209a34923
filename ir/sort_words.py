"""What the kernel of `sort` moves: keys, or words, each a key above the index of its element."""

from __future__ import annotations

from typing import NamedTuple

from gluonjit.ir.dims import Extent
from gluonjit.ir.types import DType, TensorType

BINS = 256
"""Values of a digit."""
_PADDING = 1024
"""Bytes after each array: networks sort whole blocks, of at most 8 vectors."""


class SortWord(NamedTuple):
    """`bits` in all, the key from bit `shift` on, in `digits` bytes. No line has 2**32 elements of 32 bits."""

    bits: int
    shift: int
    digits: int


def sort_word(dtype: DType) -> SortWord:
    return SortWord(64, 32, dtype.bits // 8) if dtype.bits <= 32 else SortWord(128, 64, dtype.bits // 8)


def candidates(count: int) -> int:
    """How many words are kept until they are sorted and all but the first `count` forgotten."""
    return count + max(count, 256)


class SortMemory(NamedTuple):
    """Bytes of each thread's memory: the counts of each digit, then two arrays of words."""

    bins: int
    words: Extent

    @property
    def all(self) -> Extent:
        return self.bins + 2 * self.words


def sort_memory(x: TensorType, axis: int, count: int) -> SortMemory:
    word = sort_word(x.dtype)
    return SortMemory(word.digits * BINS * 8, (x.shape[axis] + candidates(count)) * (word.bits // 8) + _PADDING)
