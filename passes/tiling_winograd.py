"""Whether a convolution is worth transforming, and in which tiles: the estimated times of all ways, compared.

Times are cycles of one core. Multiply-adds are counted as they are executed, tiles that are partly outside of the
result included. Weights are taken to be cold, as they are in a net that has more of them than the caches hold: they are
fetched while something is computed, but not entirely in its shadow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gluonjit.ir.winograd import LINE, WinogradMemory, WinogradTile
from gluonjit.passes import tiling

_MEMORY, _L3 = 10.0, 25.0
"""Bytes per cycle from memory, and from the third cache."""
_EXPOSED = 0.4
"""The part of fetching weights that is not hidden by multiply-adds."""
_TRANSFORM = 3.0
"""Cycles per vector and position to transform, forth or back."""
_TOGETHER = 12
"""Register tiles along the tiles; with fewer, threads would share them unevenly."""
_GAIN = 0.9
"""A transform has to save so much: it costs memory, and digits."""
_BLOCKS = (1, 2, 3, 4, 6, 8)


class Problem(NamedTuple):
    """A convolution of stride 1 without groups. Of its two spatial axes the first may be one of 1."""

    images: int
    out: tuple[int, int]
    taps: tuple[int, int]
    inside: float
    """The part of all taps that do not fall on padding."""
    depth: int
    filters: int
    itemsize: int


def winograd_tile(problem: Problem, target: Any) -> WinogradTile | None:
    """The best transform and tile; None where the convolution itself is expected to be as fast."""
    best, limit = None, _GAIN * direct_cycles(problem, target)
    for outputs in _outputs(problem.taps):
        tile = _tile(problem, outputs, target)
        cycles = winograd_cycles(problem, tile, target)
        if cycles < limit:
            best, limit = tile, cycles
    return best


def _outputs(taps: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The sizes of tiles whose transforms are exact enough: 6 points along each of two axes, or 8 along one."""
    points = 8 if 1 in taps else 6
    each = [(1,) if r == 1 else tuple(m for m in (2, 4, 6) if m + r - 1 <= points) for r in taps]
    return ((a, b) for a in each[0] for b in each[1] if (a, b) != (1, 1))


def _tile(problem: Problem, outputs: tuple[int, int], target: Any) -> WinogradTile:
    depth, filters, item = problem.depth, problem.filters, problem.itemsize
    tiles = _tiles(problem, outputs)
    # One row less than most: LLVM does not always manage with all the registers.
    rows, columns = tiling.register_tile(tiles, filters, depth, LINE, item, target, tiling.MAX_ROWS - 1)
    tile = WinogradTile(*outputs, rows, columns, 0)
    units = -(-tiles // rows)
    if units < _TOGETHER:
        return tile
    choices = [tile, *(tile._replace(block=block) for block in _BLOCKS)]
    return min(choices, key=lambda tile: _traffic(problem, tile, target))


def direct_cycles(problem: Problem, target: Any) -> float:
    """Of a direct convolution."""
    images, (rows, width), taps, inside, depth, filters, item = problem
    terms = math.prod(taps) * depth
    tile = tiling.register_tile(width, filters, terms, LINE, item, target)
    vectors = tile[1] // tiling.lanes(target, item)
    compute = images * rows * inside * tiling.product_cycles(width, filters, terms, tile[0], vectors, item, target)
    return _with_weights(compute, terms * filters * item)


def winograd_cycles(problem: Problem, tile: WinogradTile, target: Any) -> float:
    """Of a transformed one."""
    positions, tiles, item = _positions(problem, tile), _tiles(problem, tile[:2]), problem.itemsize
    width = tiling.lanes(target, item)
    products = positions * tiling.product_cycles(
        tiles, problem.filters, problem.depth, tile.rows, tile.columns // width, item, target
    )
    vectors = -(-problem.depth // width) - (-problem.filters // width)
    transforms = tiles * vectors * positions * _TRANSFORM
    weights = positions * problem.depth * problem.filters * item
    return _with_weights(products + transforms, weights) + _traffic(problem, tile, target)


def _with_weights(compute: float, nbytes: float) -> float:
    fetch = nbytes / _MEMORY
    return max(compute, fetch) + _EXPOSED * min(compute, fetch)


def _traffic(problem: Problem, tile: WinogradTile, target: Any) -> float:
    """Cycles for what the second cache does not hold: transformed tiles, and weights that each block reads again."""
    tiles, positions = _tiles(problem, tile[:2]), _positions(problem, tile)
    memory = working_memory(problem, tile)
    blocks = -(-tiles // (tile.block * tile.rows)) if tile.block else 1
    weights = positions * problem.depth * problem.filters * problem.itemsize
    cycles = 0.0
    if memory.transformed > target.l2:
        cycles += 2 * blocks * memory.transformed / _L3
    if memory.transformed + weights > target.l2:
        cycles += 0.25 * (blocks - 1) * weights / _L3
    return cycles


def working_memory(problem: Problem, tile: WinogradTile) -> WinogradMemory:
    extents = (tile.height + problem.taps[0] - 1, tile.width + problem.taps[1] - 1)
    tiles = _tiles(problem, tile[:2])
    return WinogradMemory.of(tile, extents, tiles, problem.depth, problem.filters, problem.itemsize)


def _positions(problem: Problem, tile: WinogradTile) -> int:
    return math.prod(m + r - 1 for m, r in zip(tile[:2], problem.taps))


def _tiles(problem: Problem, outputs: Sequence[int]) -> int:
    return problem.images * math.prod(-(-n // m) for n, m in zip(problem.out, outputs))
