"""What a Winograd kernel asks of memory while it multiplies: the pixels of its next block of tiles.

Transforms read and write much and compute little, so with pixels that no near cache holds they would mostly wait.
Products leave the memory idle, but for weights. So each register tile of a block's products fetches some rows of pixels
for the next block, into the second cache: those that will be read, and those that will be written, too, since a store
to a line that is not there has to wait for it as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gluonjit.codegen.kernels.matmul import unravel
from gluonjit.codegen.kernels.tiles import OFTEN, Fetch
from gluonjit.codegen.loops.access import Buffer
from gluonjit.codegen.text.llvm import Function, memory_type
from gluonjit.ir.dims import Extent, least_usual
from gluonjit.ir.windows import row_major


@dataclass(frozen=True)
class Pixels:
    """Rows of pixels of which each tile has its own."""

    pointer: str
    type: str
    strides: tuple[Extent, Extent, Extent]
    """Elements from one image, row and pixel to the next; pixels follow each other without a gap."""
    rows: int
    """Rows of a tile."""
    first: tuple[int, int]
    """The row and column at which the first tile begins."""
    nbytes: Extent
    """Bytes of a pixel."""

    @staticmethod
    def of_result(buffer: Buffer, outputs: int) -> Iterator[Pixels]:
        """Those of a buffer [image, (row,) pixel, channel] of which a tile has `outputs` rows; none if there are gaps
        between them."""
        image, *row, pixel, _ = buffer.strides or row_major(buffer.shape)
        if pixel == buffer.shape[-1]:
            strides = (image, row[0] if row else 0, pixel)
            nbytes = pixel * buffer.dtype.itemsize
            yield Pixels(buffer.pointer, memory_type(buffer.dtype), strides, outputs, (0, 0), nbytes)


@dataclass(frozen=True)
class Tiling:
    """How images are cut into tiles."""

    count: Sequence[int]
    """Images, rows of tiles, tiles in a row."""
    outputs: tuple[int, int]
    """Pixels of the result that a tile is high, and wide."""


def next_block(
    f: Function,
    pixels: Sequence[Pixels],
    tiling: Tiling,
    first: Any,
    tiles: int,
    block: Any,
    number: Any,
    products: Extent,
    terms: Extent,
) -> Iterator[Fetch]:
    """What register tile `number` of a block, whose products sum `terms` terms each, fetches for the next block, whose
    first tile is `first`, and of which not all need exist. A block is `block` register tiles, of `tiles` tiles, for
    each of `products` products."""
    for p in pixels:
        rows = f.mul(block, tiles * p.rows)
        each = -(-tiles * p.rows // least_usual(products))
        step = _step(f, tiling.outputs[1] * p.nbytes, terms)
        for k in range(each):
            row = f.min(f.add(f.mul(number, each), k), f.sub(rows, 1))
            t = f.add(first, f.div(row, p.rows))
            image, ty, tx = unravel(f, t, list(tiling.count))
            y = f.add(f.mul(ty, tiling.outputs[0]), f.add(f.mod(row, p.rows), p.first[0]))
            x = f.add(f.mul(tx, tiling.outputs[1]), p.first[1])
            at: Any = 0
            for i, stride in zip((image, y, x), p.strides, strict=True):
                at = f.add(at, f.mul(i, stride))
            # Not `inbounds`.
            yield Fetch(f.op(f"getelementptr {p.type}, ptr {p.pointer}, i64 {f.extent(at)}"), step, nearest=False)


def _step(f: Function, nbytes: Extent, terms: Extent) -> Any:
    """The bytes that each of `terms` terms fetches of `nbytes`; about so many, where these are open."""
    if isinstance(nbytes, int) and isinstance(terms, int):
        return -(-nbytes // terms)
    return f.target.line // OFTEN
