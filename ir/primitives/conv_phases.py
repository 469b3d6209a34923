"""The phases of a convolution of a dilated input.

Between the elements of an input that is dilated by s there are zeros, so result position r reads only the taps k for
which (r + k * dilation - low) is a multiple of s. These depend on r mod s alone, its *phase*: results of one phase are
a convolution of the input as it is with every s-th tap (along each axis). Together the phases take 1/s of the
multiply-adds along each axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

MOST_PHASES = 256
"""Beyond these, most of the result is zeros, and what is saved is less than what many convolutions cost."""


_LEAST_POSITIONS = 64


def numpy_divides(out: Sequence[int], inner: Sequence[int]) -> bool:
    """Whether NumPy computes results of these spatial sizes phase by phase. Of fewer positions, the matrix products
    have so few columns that they take as long as those with the zeros."""
    phases = math.prod(inner)
    return 1 < phases <= MOST_PHASES and math.prod(out) >= _LEAST_POSITIONS * phases


class Phase(NamedTuple):
    """One phase along one axis: a convolution with `length` results."""

    length: int
    first: int
    """The first tap."""
    taps: int
    step: int
    """Between taps."""
    low: int
    dilation: int

    def high(self, count: int, size: int) -> int:
        """The padding at the end of an input of this size, for so many results."""
        return count - 1 + (self.taps - 1) * self.dilation + 1 - size - self.low


def phases_of(out: int, size: int, taps: int, low: int, dilation: int, inner: int) -> list[Phase]:
    """The phases along an axis without strides, of `out` results, of an input of this size that is dilated by `inner`,
    in the order of their first results."""
    found = []
    apart = inner // math.gcd(dilation, inner)
    for phase in range(inner):
        count = -(-(out - phase) // inner) if out > phase else 0
        first = next((k for k in range(min(apart, taps)) if (phase + k * dilation - low) % inner == 0), taps)
        shift = (low - phase - first * dilation) // inner
        found.append(Phase(count, first, -(-(taps - first) // apart), apart, shift, dilation * apart // inner))
    return found
