"""Decides by estimated times whether to compute a convolution by Winograd's algorithm, and with which tiles.

Times are cycles of one core. Multiply-adds are counted as executed, so tiles that reach beyond the result count in
full. Weights are assumed to be cold, as in a net whose weights exceed the caches: computing hides a part of the time to
fetch them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

from gluonjit.ir.kernels.kernel_plan import Plan
from gluonjit.ir.kernels.product_plans import Winograd
from gluonjit.ir.kernels.winograd_memory import WinogradMemory
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import DType
from gluonjit.passes import tiling

_EXPOSED = 0.4
"""The share of the time to fetch weights that multiply-adds do not hide."""
_REFETCH, _OVERLAP = 0.1, 0.5
"""Fetching the weights again for another block costs `_REFETCH` times the fetch, plus the part of the fetch that
exceeds `_OVERLAP` times the block's multiply-adds."""
_TRANSFORM = 3.0
"""Cycles per vector and position of a transform, of the input or of the result."""
_MIN_TILES_FOR_BLOCKS = 8
"""The fewest register tiles for which blocks are considered; fewer do not divide evenly among threads."""
_SHARED_ROWS, _BLOCK_ROWS = 8, (14, 13, 12)
"""Rows of a register tile when threads share each step, and the candidates when each thread works on blocks. Where
operands come from the third-level cache, large tiles wait longer for their first terms; in blocks, large tiles read
the weights less often."""
_GAIN = 0.9
"""A transform must take at most this share of the direct time, as it costs memory and accuracy."""
_BLOCKS = (1, 2, 3, 4, 6, 8)
P = TypeVar("P", bound=Plan)


class Problem(NamedTuple):
    """A convolution of stride 1 without groups over two spatial axes, the first of which may have size 1."""

    images: int
    out: tuple[int, int]
    taps: tuple[int, int]
    inside: float
    """The share of taps that do not fall on padding."""
    depth: int
    filters: int
    dtype: DType
    trained: bool = False
    """Whether the weights change from call to call, so that each call transforms them."""
    least: int = 0
    """The fewest images that there may be, if their number is open; `images` is then what it is taken to be."""


@lru_cache(1024)
def winograd_tile(problem: Problem, target: Machine) -> Winograd | None:
    """The best transform and tile; None if computing directly is expected to be as fast."""
    return best_transform(direct_cycles(problem, target), winograd_tiles(problem, target))


def best_transform(direct: float, plans: Iterable[tuple[P, float]]) -> P | None:
    """The plan that takes the fewest cycles; None if computing directly, in so many, is about as fast."""
    best, limit = None, _GAIN * direct
    for plan, cycles in plans:
        if cycles < limit:
            best, limit = plan, cycles
    return best


def winograd_tiles(problem: Problem, target: Machine) -> Iterator[tuple[Winograd, float]]:
    """Each transform with its best tile, and the cycles that it is expected to take."""
    for outputs in _outputs(problem.taps):
        tile = _tile(problem, outputs, target)
        yield tile, winograd_cycles(problem, tile, target)


def tiles_together(problem: Problem, tile: Winograd, target: Machine) -> int:
    """How many register tiles all threads should take at a time if the number of images is open: so many that what lies
    between the steps stays in the second-level caches of two cores, or is a third of the weights, which are read again
    each time; and all of the fewest images."""
    weights = _positions(problem, tile) * problem.depth * problem.filters * problem.dtype.itemsize
    each = working_memory(problem, replace(tile, block=-1), target).transformed
    count = -(-tile_count(problem, tile.outputs) // tile.rows)
    fewest = -(-tile_count(problem._replace(images=problem.least), tile.outputs) // tile.rows)
    return max(fewest, min(count, max(2 * target.l2, weights // 3) // each))


def _outputs(taps: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The sizes of tiles whose transforms are exact enough: 6 points along each of two axes, or 8 along one."""
    points = 8 if 1 in taps else 6
    each = [(1,) if r == 1 else tuple(m for m in (2, 4, 6) if m + r - 1 <= points) for r in taps]
    return ((a, b) for a in each[0] for b in each[1] if (a, b) != (1, 1))


def _tile(problem: Problem, outputs: tuple[int, int], target: Machine) -> Winograd:
    def cycles(tile: Winograd) -> float:
        products = _products(problem, tile, target)
        # With an odd number of register tiles, one of two threads waits.
        idle = -(-tiles // (2 * tile.rows)) * 2 * tile.rows / tiles - 1 if tile.block else 0.0
        return products * (1 + idle / 2) + _traffic(problem, tile, target)

    tiles = tile_count(problem, outputs)
    shape = (tiles, problem.filters, problem.depth, tiling.ANYWHERE, problem.dtype, target)
    choices = [Winograd(*outputs, *tiling.register_tile(*shape, _SHARED_ROWS), 0)]
    best, columns = tiling.register_tile(*shape)
    vectors = columns // target.lanes(problem.dtype)
    fitting = {r for r in _BLOCK_ROWS if tiling.registers(r, vectors, target) <= target.num_vector_registers}
    pixels = problem.images * math.prod(problem.out) * (problem.depth + problem.filters) * problem.dtype.itemsize
    is_far = pixels > target.l3 // 2
    fewest = tile_count(problem._replace(images=problem.least), outputs) if problem.least else tiles
    for rows in sorted({best, *fitting}, reverse=True):
        if -(-fewest // rows) >= _MIN_TILES_FOR_BLOCKS:
            choices += (Winograd(*outputs, rows, columns, block, is_far) for block in _BLOCKS)
    return min(choices, key=cycles)


def direct_cycles(problem: Problem, target: Machine) -> float:
    """Estimated cycles of the direct convolution."""
    images, (rows, width), taps, inside, depth, filters, dtype, *_ = problem
    terms = math.prod(taps) * depth
    tile = tiling.register_tile(width, filters, terms, tiling.ANYWHERE, dtype, target)
    vectors = tile[1] // target.lanes(dtype)
    compute = images * rows * inside * tiling.product_cycles(width, filters, terms, tile[0], vectors, dtype, target)
    return _with_weights(compute, terms * filters * dtype.itemsize, target)


def winograd_cycles(problem: Problem, tile: Winograd, target: Machine) -> float:
    """Estimated cycles of the Winograd convolution."""
    positions, tiles, item = _positions(problem, tile), tile_count(problem, tile.outputs), problem.dtype.itemsize
    width = target.lanes(problem.dtype)
    products = _products(problem, tile, target)
    vectors = -(-problem.depth // width) - (-problem.filters // width)
    transforms = tiles * vectors * positions * _TRANSFORM
    weights = positions * problem.depth * problem.filters * item
    if problem.trained:
        multiply_adds = math.prod(problem.taps) * weights / item / width
        transforms += multiply_adds / 2 + 2 * weights / _rate(weights, 2, target)
    return _with_weights(products + transforms, weights, target) + _traffic(problem, tile, target)


def _with_weights(compute: float, nbytes: float, target: Machine) -> float:
    fetch = nbytes / target.memory_rate
    return max(compute, fetch) + _EXPOSED * min(compute, fetch)


def _rate(nbytes: float, share: int, target: Machine) -> float:
    """Bytes per cycle of what comes from the third-level cache if it takes no more than this share of it."""
    return target.l3_rate if nbytes <= target.l3 // share else target.memory_rate


def _traffic(problem: Problem, tile: Winograd, target: Machine) -> float:
    """Cycles to move transformed tiles that do not fit into the second-level cache together with the pixels and weights
    in use, and to read the weights again for each block."""
    tiles, item = tile_count(problem, tile.outputs), problem.dtype.itemsize
    memory = working_memory(problem, tile, target)
    weights = _positions(problem, tile) * problem.depth * problem.filters * item
    whole, rest = divmod(tiles, tile.block * tile.rows or tiles)
    over = max(0, memory.transformed - target.l2 * 3 // 4)
    cycles = 2 * (whole + (rest > 0)) * over / _rate(memory.transformed, 4, target)
    if memory.transformed + weights > target.l2:
        fetch = weights / _rate(weights, 2, target)
        # `_with_weights` counts the first block's weights, which every kernel has to fetch.
        for count, size in ((whole - 1, tile.block * tile.rows), (1 if rest else 0, rest)):
            hidden = _OVERLAP * _products(problem, tile, target) * size / tiles
            cycles += count * (_REFETCH * fetch + max(0.0, fetch - hidden))
    return cycles


def _products(problem: Problem, tile: Winograd, target: Machine) -> float:
    """Cycles of the multiply-adds."""
    tiles, vectors = tile_count(problem, tile.outputs), tile.columns // target.lanes(problem.dtype)
    each = tiling.product_cycles(tiles, problem.filters, problem.depth, tile.rows, vectors, problem.dtype, target)
    return _positions(problem, tile) * each


def working_memory(problem: Problem, tile: Winograd, target: Machine) -> WinogradMemory:
    extents = (tile.height + problem.taps[0] - 1, tile.width + problem.taps[1] - 1)
    tiles = tile_count(problem, tile.outputs)
    return WinogradMemory.of(tile, extents, tiles, problem.depth, problem.filters, problem.dtype.itemsize, target)


def _positions(problem: Problem, tile: Winograd) -> int:
    return math.prod(m + r - 1 for m, r in zip(tile.outputs, problem.taps))


def tile_count(problem: Problem, outputs: Sequence[int]) -> int:
    """How many tiles of `outputs` pixels along both axes the result is cut into."""
    return problem.images * math.prod(-(-n // m) for n, m in zip(problem.out, outputs))
