"""What a convolution's attributes mean: which axis is which, and how its window moves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from gluonjit.ir.types import IRError


class Layout(NamedTuple):
    """The axes of input, weight and result by meaning, parsed from letters such as ('NC01', 'OI01', 'NC01')."""

    input: tuple[int, ...]  # axes of N, C, then spatial 0, 1, …
    weight: tuple[int, ...]  # axes of O, I, then spatial
    result: tuple[int, ...]  # axes of N, C, then spatial

    @staticmethod
    @lru_cache(maxsize=256)
    def parse(letters: tuple[str, str, str]) -> Layout:
        if not isinstance(letters, tuple) or not all(isinstance(text, str) for text in letters) or len(letters) != 3:
            raise IRError(f"layout must be three strings (input, weight, result), got {letters!r}")
        spatial = "".join(map(str, range(max(len(letters[0]) - 2, 0))))
        axes = []
        for text, first in zip(letters, ("NC", "OI", "NC")):
            wanted = first + spatial
            if sorted(text) != sorted(wanted):
                raise IRError(f"layout {text!r} must be a permutation of {wanted!r}")
            axes.append(tuple(text.index(letter) for letter in wanted))
        return Layout(*axes)


class Window(NamedTuple):
    """The attributes along spatial axes."""

    stride: Sequence[int]
    low: Sequence[int]
    high: Sequence[int]
    dilation: Sequence[int]
    input_dilation: Sequence[int]
