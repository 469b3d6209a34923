"""How a line of an open number of pixels is cut into register tiles.

All tiles of a line have the same length, the least one with which as few tiles as possible hold the line, and they are
spread evenly: neighbours share a pixel or so, which both compute, to the same bits. So there is a piece of code for
every length that may occur, few if all of them have a large divisor in common: 8·w pixels in tiles of 8 only ever need
8, w pixels in tiles of up to 14 need each length from 2 to 14.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gluonjit.ir.dims import Dim, least


class Lengths(NamedTuple):
    unit: int
    """What all lengths are multiples of, and the line, too."""
    alone: tuple[int, ...]
    """The lengths that a single tile may have, which then is the line."""
    several: tuple[int, ...]
    """The lengths of which there may be several tiles."""

    @property
    def all(self) -> tuple[int, ...]:
        return tuple(sorted({*self.alone, *self.several}))


def tile_lengths(line: Dim, most: int) -> Lengths:
    """The lengths of tiles of up to `most` pixels that a line is cut into."""
    unit = math.gcd(most, *line.terms.values())
    step = math.gcd(*(c for names, c in line.terms.items() if names))
    low = least(line)
    # A line may be as long as any of these, and of longer ones all tiles have `most` pixels.
    cuts = {cut(n, most, unit) for n in range(low, max(low, most * most) + step + most, step)}
    alone, several = ({length for count, length in cuts if (count > 1) == more} for more in (False, True))
    return Lengths(unit, tuple(sorted(alone)), tuple(sorted(several)))


def cut(line: int, most: int, unit: int) -> tuple[int, int]:
    """(number, length) of the tiles of a line, a multiple of `unit`."""
    count = -(-line // most)
    return count, -(-line // (count * unit)) * unit
