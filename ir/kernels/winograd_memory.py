"""The memory that the kernel `winograd` works in.

The result is cut into tiles of `height` × `width` pixels. Each needs a window of the input, which is transformed into
as many values per channel as it has pixels, its *positions*; so are the filters. For each position, a matrix product
over channels takes tiles to transformed tiles of the result.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from gluonjit.ir.dims import LOWEST, Dim, Extent, aligned, named
from gluonjit.ir.kernels.product_plans import Winograd
from gluonjit.ir.machine import Machine


class Transformed(NamedTuple):
    """An array [positions, tiles, channels], or [positions, groups of channels, tiles, channels of a group]: byte
    strides, which may be open ones (`Extent`)."""

    positions: int
    tile: Any
    position: Any
    group: int = 0
    """Channels of a group; 0: all are one."""
    apart: int = 0
    """From one group to the next."""

    @staticmethod
    def of(
        positions: int, tiles: int, channels: int, itemsize: int, machine: Machine, is_odd: bool = False
    ) -> Transformed:
        """A tile's positions are written, or read, at the same time, and so are the tiles of a register tile: neither
        should meet in few sets of the first cache, as they would if they lay a page apart. `is_odd`: nor should a line
        of each of many tiles, so tiles are an odd number of lines apart."""
        line = machine.line
        tile = -(-channels * itemsize // line) * line
        if tile % (2 * line if is_odd else machine.page // 2) == 0:
            tile += line
        return Transformed(positions, tile, _odd_lines(tiles * tile, machine))

    @staticmethod
    def in_groups(
        positions: int, tiles: int, channels: int, group: int, itemsize: int, machine: Machine
    ) -> Transformed:
        """The channels of a group are all that a product reads at a time: what it reads lies together."""
        tile = group * itemsize
        apart = tiles * tile
        return Transformed(positions, tile, _odd_lines(-(-channels // group) * apart, machine), group, apart)

    @staticmethod
    def open(name: str, positions: int, machine: Machine) -> Transformed:
        """The strides are no polynomials of tiles and channels. So if any of these are open, they are open dimensions
        of their own, `{name}_tile` and `{name}_position`, in units of `stride_unit`."""
        unit = stride_unit(machine)
        return Transformed(positions, unit * named(f"{name}_tile"), unit * named(f"{name}_position"))

    def open_sizes(self, name: str, machine: Machine) -> dict[str, int]:
        """What the open dimensions of `open` are for this array."""
        unit = stride_unit(machine)
        return {f"{name}_tile": self.tile // unit, f"{name}_position": self.position // unit}

    @property
    def nbytes(self) -> Any:
        return self.positions * self.position


def _odd_lines(nbytes: int, machine: Machine) -> int:
    """These bytes, or more: an odd number of lines of the cache."""
    lines = -(-nbytes // machine.line)
    return (lines + 1 - lines % 2) * machine.line


class WinogradMemory(NamedTuple):
    """Bytes, open ones if channels of the input or of the result are. A thread's scratch holds `zeros`, a `window`, and
    `inputs` and `outputs` unless these are shared."""

    zeros: Any
    """A row of a window where the input has none."""
    window: Any
    """A window that is put together from what exists."""
    inputs: Transformed
    outputs: Transformed

    @staticmethod
    def of(
        tile: Winograd,
        extents: tuple[int, int],
        tiles: Any,
        depth: Extent,
        filters: Extent,
        itemsize: int,
        machine: Machine,
    ) -> WinogradMemory:
        """The memory for `tiles` windows of `extents` pixels and `depth` channels. (The number of windows may be open
        if the tile has a block. A row of open channels is a multiple of a line, open filters are one of a panel.)"""
        positions = math.prod(extents)
        row = aligned(extents[1] * depth * itemsize, machine.line)
        if isinstance(depth, Dim) or isinstance(filters, Dim):
            inputs, outputs = (Transformed.open(name, positions, machine) for name in "vm")
        else:
            slots, columns = (
                abs(tile.block) * tile.rows or _slots(tiles, tile.rows),
                -(-filters // tile.columns) * tile.columns,
            )
            inputs = Transformed.of(positions, slots, depth, itemsize, machine)
            outputs = Transformed.of(positions, slots, columns, itemsize, machine)
        # A vector at the end of a pixel is written as a whole.
        return WinogradMemory(row, (extents[0] + 1) * row, inputs, outputs)

    @property
    def own(self) -> Any:
        """Bytes that each thread needs for itself."""
        return self.zeros + self.window

    @property
    def transformed(self) -> Any:
        return self.inputs.nbytes + self.outputs.nbytes


_WASTE = 32
"""The part of the products, at most, that may be of tiles that do not exist."""


def is_nearly_filled(tiles: int, rows: int) -> bool:
    """Whether register tiles of so many rows hold so many tiles with next to no room left."""
    return -tiles % rows * _WASTE <= tiles


def _slots(tiles: int, rows: int) -> int:
    """The tiles for which there is memory: as many as register tiles hold, where none is lower."""
    return tiles + (-tiles % rows if is_nearly_filled(tiles, rows) else 0)


def stride_unit(machine: Machine) -> int:
    """Bytes: every stride is several of them, so that there is no open dimension of size 1."""
    return machine.line // LOWEST
