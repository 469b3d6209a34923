"""Sizes of register tiles, from shapes and a target's registers and caches.

A tile of `rows` × `vectors` accumulators takes, per term of the sum, rows · vectors multiply-adds, vectors loads of
weights and rows broadcasts. It must leave registers for the weights of one term, a broadcast value and, where there
is no fused multiply-add, a product. Among the tiles that fit, the one with the lowest estimated time wins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

MAX_ROWS = 14
"""Rows of activations are not packed: more of them than the ways of a cache set push each other out."""
MAX_VECTORS = 8
_UNITS = 2
"""Multiply-adds per cycle, and loads."""
_STREAM = 32
"""Bytes of weights per cycle that come from the second cache."""
_TILE_COST = 24
"""Cycles to begin and finish a tile."""
_TASKS = 16
"""So many tasks are wanted at least, for threads to share."""


class TileShape(NamedTuple):
    rows: int
    columns: int
    block: int
    """Tiles along the rows that one task does, one after the other."""


def lanes(target: Any, itemsize: int) -> int:
    return target.vector_bits // (8 * itemsize)


def fits(rows: int, vectors: int, target: Any) -> bool:
    """Whether the accumulators, one term's weights and what a multiply-add needs besides are held in registers."""
    return rows * vectors + vectors + (1 if target.has_fma else 2) <= target.num_vector_registers


def term_cycles(rows: int, vectors: int, target: Any) -> float:
    """Estimated cycles per term of a tile."""
    multiply_adds = rows * vectors * (1 if target.has_fma else 2)
    weights = vectors * target.vector_bits / 8
    return max(multiply_adds / _UNITS, (rows + vectors) / _UNITS, weights / _STREAM)


def register_tile(m: int, n: int, k: int, itemsize: int, target: Any) -> tuple[int, int]:
    """(rows, columns) of the tile for an [m, n] result of sums of k terms."""
    width = lanes(target, itemsize)
    needed = -(-n // width)
    best: tuple[float, int, int] | None = None
    for vectors in range(1, min(MAX_VECTORS, needed) + 1):
        for most in range(1, min(MAX_ROWS, m) + 1):
            # As even as possible: 100 rows are 7 · 13 + 9, better 4 · 12 + 4 · 13 … of which rows ≤ most.
            rows = -(-m // -(-m // most))
            if rows != most or not fits(rows, vectors, target):
                continue
            full, rest = divmod(needed, vectors)
            columns = [(vectors, full), (rest, 1 if rest else 0)]
            heights = [(rows, m // rows), (m % rows, 1 if m % rows else 0)]
            cycles = sum(
                p * q * (k * term_cycles(r, v, target) + _TILE_COST + r * v)
                for v, p in columns
                for r, q in heights
                if p and q
            )
            if best is None or cycles < best[0] * 0.995:
                best = (cycles, rows, vectors * width)
    assert best is not None, "one row of one vector always fits"
    return best[1], best[2]


def tasks_block(tiles: int, tile_bytes: int, others: int, target: Any) -> int:
    """Row tiles per task, where one tile reads `tile_bytes` and there are `others` independent lots of them.

    What a block reads is read again for each panel of columns, so it should stay in the second cache.
    """
    block = max(1, min(tiles, target.l2 // 2 // max(tile_bytes, 1)))
    while block > 1 and others * -(-tiles // block) < _TASKS:
        block = -(-block // 2)
    return -(-tiles // -(-tiles // block))


class DepthwiseTile(NamedTuple):
    rows: int
    pixels: int
    block: int
    """Row tiles per task."""
    vectors: int
    """Vectors of channels per task."""


def depthwise_tile(
    images: int, rows: int, pixels: int, channels: int, row_taps: int, itemsize: int, target: Any
) -> DepthwiseTile:
    """For `images` results of `rows` × `pixels` × `channels`; `row_taps` filter taps along a column."""
    # Two rows share the input rows between them. Half of the registers accumulate, the rest hold inputs and weights.
    height = 2 if rows > 1 and row_taps > 1 else 1
    most = max(1, min(8, target.num_vector_registers // 2 // height))
    width = -(-pixels // -(-pixels // most))
    vectors = -(-channels // lanes(target, itemsize))
    tiles = -(-rows // height)
    block = 1
    while images * -(-tiles // (2 * block)) >= 4 * _TASKS:
        block *= 2
    parts = min(vectors, max(1, -(-_TASKS // (images * -(-tiles // block)))))
    return DepthwiseTile(height, width, block, -(-vectors // parts))
