"""The memory that the kernel `winograd` works in.

The result is cut into tiles of `height` × `width` pixels. Each needs a window of the input, which is transformed into
as many values per channel as it has pixels, its *positions*; so are the filters. For each position, a matrix product
over channels takes tiles to transformed tiles of the result.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from gluonjit.ir.kernels.product_plans import Winograd
from gluonjit.ir.machine import Machine


class Transformed(NamedTuple):
    """An array [positions, tiles, channels]: byte strides."""

    positions: int
    tile: int
    position: int

    @staticmethod
    def of(positions: int, tiles: int, channels: int, itemsize: int, machine: Machine) -> Transformed:
        """A tile's positions are written, or read, at the same time, and so are the tiles of a register tile: neither
        should meet in few sets of the first cache, as they would if they lay a page apart."""
        line = machine.line
        tile = _lines(channels * itemsize, line)
        if tile % (machine.page // 2) == 0:
            tile += line
        lines = tiles * tile // line
        return Transformed(positions, tile, (lines + 1 - lines % 2) * line)

    @property
    def nbytes(self) -> int:
        return self.positions * self.position


class WinogradMemory(NamedTuple):
    """Bytes. A thread's scratch holds `zeros`, a `window`, and `inputs` and `outputs`, unless these are shared."""

    zeros: int
    """A row of a window where the input has none."""
    window: int
    """A window that is put together from what exists."""
    inputs: Transformed
    outputs: Transformed

    @staticmethod
    def of(
        tile: Winograd,
        extents: tuple[int, int],
        tiles: Any,
        depth: int,
        filters: int,
        itemsize: int,
        machine: Machine,
    ) -> WinogradMemory:
        """The memory for `tiles` windows of `extents` pixels and `depth` channels. (Their number may be open if the
        tile has a block.)"""
        slots = abs(tile.block) * tile.rows or tiles
        positions = math.prod(extents)
        columns = -(-filters // tile.columns) * tile.columns
        row = _lines(extents[1] * depth * itemsize, machine.line)
        return WinogradMemory(
            row,
            # A vector at the end of a pixel is written as a whole.
            (extents[0] + 1) * row,
            Transformed.of(positions, slots, depth, itemsize, machine),
            Transformed.of(positions, slots, columns, itemsize, machine),
        )

    @property
    def own(self) -> int:
        """Bytes that each thread needs for itself."""
        return self.zeros + self.window

    @property
    def transformed(self) -> int:
        return self.inputs.nbytes + self.outputs.nbytes


def _lines(nbytes: int, line: int) -> int:
    return -(-nbytes // line) * line
