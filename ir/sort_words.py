"""The words that the kernel of `sort` moves: a key above an index."""

from __future__ import annotations

from typing import NamedTuple

from gluonjit.ir.dims import Extent
from gluonjit.ir.types import DType, TensorType

BINS = 256
"""Values of a digit."""


class SortWord(NamedTuple):
    """`bits` in all, the key from bit `shift` on, in `digits` bytes. No line has 2**32 elements of 32 bits."""

    bits: int
    shift: int
    digits: int


def sort_word(dtype: DType) -> SortWord:
    return SortWord(64, 32, dtype.bits // 8) if dtype.bits <= 32 else SortWord(128, 64, dtype.bits // 8)


def sort_scratch(x: TensorType, axis: int) -> Extent:
    """Bytes for each thread: the counts of each digit, and two arrays of words."""
    word = sort_word(x.dtype)
    return word.digits * BINS * 8 + (2 * x.shape[axis] + 64) * (word.bits // 8)
