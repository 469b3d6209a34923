"""Sizes of register tiles, from shapes and a target's registers and caches.

Per term of the sum, a tile of `rows` × `vectors` accumulators takes rows · vectors multiply-adds, `vectors` loads of
weights and `rows` broadcasts. It must leave registers for the weights of one term, a broadcast value and, where there
is no fused multiply-add, a product. Of the tiles that fit, the one with the lowest estimated time is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from gluonjit.ir.dims import Dim, Extent, Shape, at, least, names_of
from gluonjit.ir.kernels.product_plans import Depthwise
from gluonjit.ir.kernels.tile_lengths import cut, tile_lengths
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import DType

MAX_ROWS = 14
MAX_VECTORS = 4
MAX_LINES = 16
"""The most vectors of a tile whose epilogue reads a residual that is not cached, and writes as many lines. The misses
of 26 vectors are more than the first-level cache can have outstanding, so all other loads stall behind them: a third
of the time in ResNet-50's first stage."""
_OVERLAP = 0.15
"""The share of the streaming time that is not hidden behind the multiply-adds."""
_WAITING = 0.45
"""How much longer multiply-adds take where all slots for loads are used, and by the square of their share where not all
are: then a load more often finds none free when it is wanted. With 16 registers, a Zen 3 took 0.88 to 0.99 of the time
with 4x24 that it took with 5x16, which loads 1.2 times as often. With 32, tiles have few loads to wait for: 13x32, 8x48
and 6x64 were within 3 %."""
ANYWHERE = 1
"""For the bytes that rows lie apart: estimates leave out what their places cost, as those of Winograd convolutions do,
whose other constants were measured so."""
_UNLIKE = 1.03
"""The factor by which a narrower last panel is taken to cost more, where there is much code for each kind of panel."""
_TILE_COST = 24
"""Cycles to begin and finish a tile."""
_TASKS = 16
"""The fewest tasks that threads can share evenly."""


class Loads(NamedTuple):
    """How a tile's loads fare."""

    in_time: float
    """The share that begins in time."""
    delay: bool = False
    """Whether multiply-adds wait for some of them (`_WAITING`)."""


NEAR = Loads(1)
APART = Loads(0.7, delay=True)
"""Where rows lie a line or more apart. Of tiles of one vector, which load once per multiply-add, a Zen 3 reached 40 to
60 % of the peak, of those of two or three 65 to 90."""


_USUAL = 8
"""What a name in the size of an image is taken to be: images of 32·h pixels mostly have about 256."""


def usual(shape: Shape) -> tuple[int, ...]:
    """What decisions about speed assume for the size of an image."""
    return tuple(at(n, dict.fromkeys(names_of([n]), _USUAL)) for n in shape)


def is_halved(n: int, dtype: DType, target: Machine) -> bool:
    """Whether the last of n columns fill no more than half a vector, so that two rows fit into one."""
    return 0 < n % target.sum_lanes(dtype) <= target.sum_lanes(dtype) // 2


def registers(rows: int, vectors: int, target: Machine, halved: bool = False) -> int:
    """Vector registers of a tile: accumulators, one term's weights, a broadcast value, and an unfused product.

    `halved`: two rows share the accumulator of their last vectors, and need a blended broadcast value."""
    shared = rows // 2 - 2 if halved else 0
    return rows * vectors + vectors + (1 if target.has_fma else 2) - shared


def term_cycles(rows: int, vectors: int, target: Machine, halved: bool = False, loads: Loads = NEAR) -> float:
    """Estimated cycles of a tile for one term of its sums."""
    multiply_adds = (rows * vectors - halved * (rows // 2)) * target.cycles_per_multiply_add
    if registers(rows, vectors, target, halved) >= target.num_vector_registers - 1:
        multiply_adds *= 1.03  # weights cannot be loaded ahead of their use
    stream = vectors * target.vector_bits / 8 / target.l2_rate
    if loads.delay and target.num_vector_registers < 32:
        multiply_adds *= 1 + _WAITING * ((rows + vectors) / target.units / multiply_adds) ** 2
    return max(multiply_adds, (rows + vectors) / (loads.in_time * target.units), stream) + _OVERLAP * stream


def tile_cycles(
    rows: int, vectors: int, terms: int, target: Machine, halved: bool = False, loads: Loads = NEAR
) -> float:
    """Estimated cycles of a register tile."""
    return terms * term_cycles(rows, vectors, target, halved, loads) + _TILE_COST + rows * vectors


def product_cycles(
    m: int,
    n: int,
    k: int,
    rows: int,
    vectors: int,
    dtype: DType,
    target: Machine,
    halved: bool = False,
    loads: Loads = NEAR,
) -> float:
    """Estimated cycles of one core for an [m, n] result of sums of k terms in tiles of `rows` × `vectors` registers."""
    needed, k = -(-n // target.sum_lanes(dtype)), -(-k // target.multiplication(dtype).terms)
    last = needed % vectors or vectors
    columns = [(vectors, (needed - last) // vectors, False), (last, 1, halved)]
    heights = [(rows, m // rows), (m % rows, 1)]
    return sum(p * q * tile_cycles(r, v, k, target, h, loads) for v, p, h in columns for r, q in heights if r)


@lru_cache(4096)
def register_tile(
    m: int,
    n: int,
    k: int,
    row_bytes: int,
    dtype: DType,
    target: Machine,
    most: int = MAX_ROWS,
    halved: bool = False,
    size: int = MAX_ROWS * MAX_VECTORS,
    alike: bool = False,
) -> tuple[int, int]:
    """(rows, columns) of the tile for an [m, n] result of sums of k terms, where rows of the left operand lie
    `row_bytes` apart; at most `most` rows and `size` vectors. `halved`: two rows share the last vector of columns.
    `alike`: panels of columns that are all alike are worth a little time, since there is much code for each kind."""
    best: FittingTile | None = None
    for choice in register_tiles(m, n, k, row_bytes, dtype, target, most, halved, size, alike):
        if best is None or choice.cycles < best.cycles * 0.999:
            best = choice
    assert best is not None, "one row of one vector always fits"
    return best.rows, best.columns


class FittingTile(NamedTuple):
    """A register tile that fits, and the time that the whole product is expected to take with it."""

    cycles: float
    rows: int
    columns: int


def register_tiles(
    m: int,
    n: int,
    k: int,
    row_bytes: int,
    dtype: DType,
    target: Machine,
    most: int = MAX_ROWS,
    halved: bool = False,
    size: int = MAX_ROWS * MAX_VECTORS,
    alike: bool = False,
) -> Iterator[FittingTile]:
    """Among these, `register_tile` chooses; the arguments are the same."""
    width = target.sum_lanes(dtype)
    needed = -(-n // width)
    loads = APART if row_bytes >= target.line else NEAR
    most_rows = min(m, most, target.l1_ways if row_bytes % target.page == 0 else MAX_ROWS)
    for vectors in range(1, min(MAX_VECTORS, needed) + 1):
        # Spread m evenly over its tiles, or leave a short last one: 100 rows are 7 · 13 + 9 at best.
        for rows in sorted({-(-m // -(-m // most)) for most in range(1, most_rows + 1)}):
            needed_registers = registers(rows, vectors, target, halved and vectors == needed)
            if needed_registers > target.num_vector_registers or rows * vectors > size:
                continue
            cycles = product_cycles(m, n, k, rows, vectors, dtype, target, halved, loads)
            if alike and n % (vectors * width) and n > vectors * width:
                cycles *= _UNLIKE
            yield FittingTile(cycles, rows, vectors * width)


_SIZES = (2, 4, 7, 8, 10, 16, 25)
"""Sizes that the names of an open line may have: its tile should suit all of them."""
_LENGTH = 0.01
"""The share of the time by which code for one more length of a tile is taken to cost more."""


def pixels_apart(stride: int, pixel_bytes: int, target: Machine) -> int:
    """What `register_tile` takes for the bytes that a convolution's rows lie apart. Those within a line are loaded one
    by one, too: a Zen 3 computed 16 filters of 1 to 8 channels in 0.70 to 0.77 of the time with tiles of two vectors,
    where the count of those loads as free chose 14 rows of one."""
    return max(stride * pixel_bytes, target.line)


def open_line_tile(
    line: Dim, n: int, k: int, row_bytes: int, dtype: DType, target: Machine, most: int = MAX_ROWS
) -> tuple[int, int]:
    """`register_tile` for an open number of rows, cut as in `ir/kernels/tile_lengths.py`."""
    width = target.sum_lanes(dtype)
    most = min(most, target.l1_ways if row_bytes % target.page == 0 else MAX_ROWS)
    best: tuple[float, int, int] | None = None
    for vectors in range(1, min(MAX_VECTORS, -(-n // width)) + 1):
        for rows in range(1, most + 1):
            if registers(rows, vectors, target) > target.num_vector_registers:
                continue

            def cycles(rows: int, vectors: int = vectors) -> float:
                return product_cycles(rows, n, k, rows, vectors, dtype, target)

            cost = _open_line_cycles(line, rows, cycles)
            if best is None or cost < best[0]:
                best = cost, rows, vectors * width
    assert best is not None, "one row of one vector always fits"
    return best[1], best[2]


def _open_line_cycles(line: Dim, most: int, cycles: Callable[[int], float]) -> float:
    """The time per pixel of an open line in tiles of up to `most` pixels that take `cycles` each."""
    lengths, total = tile_lengths(line, most), 0.0
    for size in _SIZES:
        pixels = line.at(dict.fromkeys(line.names, size))
        count, length = cut(pixels, most, lengths.unit)
        total += count * cycles(length) / pixels
    return total * (1 + _LENGTH * len(lengths.all))


def tasks_block(tiles: int, tile_bytes: int, others: int, target: Machine) -> int:
    """Row tiles per task (a block), where one tile reads `tile_bytes` and there are `others` independent sets of tiles.

    A block's input is read again for each panel of columns, so it should fit into the second-level cache.
    """
    block = max(1, min(tiles, target.l2 // 2 // max(tile_bytes, 1)))
    while block > 1 and others * -(-tiles // block) < _TASKS:
        block = -(-block // 2)
    return -(-tiles // -(-tiles // block))


MAX_DEPTH = 4
"""The most input channels of a narrow group: each adds a multiply-add per unrolled tap."""
_DEPTHWISE_TILE = 1.0
"""The time to load a depthwise tile's weights, in pixels."""
_UNROLLED = 400
"""The most unrolled multiply-adds of a tile of narrow groups."""


def is_narrow(depth: int, filters: int, dtype: DType, target: Machine) -> bool:
    """Whether vectors run over groups of `depth` input channels and `filters` output channels."""
    return depth <= min(filters, MAX_DEPTH) and target.sum_lanes(dtype) % filters == 0


_ROW_TILES = 8
"""Row tiles of an image that are enough tasks for threads, though each has all channels."""


def depthwise_tile(
    out: tuple[Extent, Extent, int],
    size: tuple[Extent, Extent],
    taps: tuple[int, int],
    stride: int,
    depth: int,
    dtype: DType,
    target: Machine,
) -> Depthwise:
    """The tile for a result of `out` = (rows, pixels, channels) from an image of `size` = (rows, pixels), with `taps`
    along both axes, `stride` along the rows, and `depth` input channels per group."""
    rows, pixels, channels = usual(out)
    in_rows, in_pixels = usual(size)
    # Rows of a tile share the input rows where their taps overlap. Half of the registers accumulate, the others hold
    # inputs and weights. Where data exceed the cache, reading fewer bytes per result matters more than long rows.
    cached = (rows * pixels + in_rows * in_pixels) * channels * dtype.itemsize <= target.l2
    height = min(least(out[0]), 1 if taps[0] == 1 else 2 if cached or target.num_vector_registers < 32 else 4)
    terms = taps[0] * taps[1] * depth
    while height > 1 and height * terms * min(pixels, 4) > _UNROLLED:
        height //= 2
    most = min(target.num_vector_registers // 2 // height, 7, _UNROLLED // (terms * height))
    if most == 0:
        height, most = 0, 7
    width = -(-pixels // -(-pixels // most))
    if isinstance(out[1], Dim):
        line = out[1]
        width = min(range(1, most + 1), key=lambda w: _open_line_cycles(line, w, lambda n: n + _DEPTHWISE_TILE))
    vector = target.vector_bits // 8
    vectors = -(-channels * dtype.itemsize // vector)
    if not cached and height and rows >= _ROW_TILES * height:
        # Where rows come from memory, or from the third-level cache, they are best read and written from front to end.
        return Depthwise(height, width, 1, vectors)
    # The input rows of one row tile should stay in the first-level cache until the next tile needs them.
    row_bytes = ((height - 1) * stride + taps[0] if height else taps[0]) * in_pixels * vector
    parts = -(-vectors // max(1, min(vectors, target.l1 // 2 // row_bytes)))
    return Depthwise(height, width, min(-(-rows // max(height, 1)), 4), -(-vectors // parts))


class Line(NamedTuple):
    """The taps of a convolution along the last spatial axis."""

    size: Any
    taps: int
    stride: int
    low: int
    dilation: int

    def borders(self, out: Any) -> tuple[Any, Any]:
        """How many of `out` pixels at either end have taps that read padding, or more."""
        before = max(0, -(-self.low // self.stride))
        beyond = (out - 1) * self.stride + (self.taps - 1) * self.dilation - self.low - (self.size - 1)
        return before, max(0, -(-beyond // self.stride))


MAX_SEGMENTS = 20
_MAX_OPEN_SEGMENTS = 60


def ragged(pixels: int, out: Extent, line: Line) -> bool:
    """Whether padding along a line needs too much code: each border tile has code of its own, with a loop for every set
    of its pixels that a tap can reach."""

    def loops(border: int) -> int:
        whole, rest = divmod(border, pixels)
        most = line.taps if line.dilation == 1 else max(line.taps, pixels)
        return whole * min(most, pixels + 1) + (min(most, rest + 1) if rest else 0)

    before, after = line.borders(out)
    if isinstance(out, int):
        return 1 + loops(min(out, before)) + loops(min(out, after)) > MAX_SEGMENTS
    lengths = tile_lengths(out, pixels)
    # Where there are several tiles, only the first and the last are at a border; neighbours share at most one pixel.
    if (before or after) and lengths.several and max(before, after) >= lengths.several[0]:
        return True
    ends = loops(before) + loops(after)
    return bool(ends) and len(lengths.several) * (1 + ends) + len(lengths.alone) * (1 + ends) > _MAX_OPEN_SEGMENTS
