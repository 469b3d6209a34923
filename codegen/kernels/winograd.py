"""Winograd convolution, channels last: the kernel `winograd`.

    y tile = Aᵀ [Σ over channels of (G g Gᵀ) ⊙ (Bᵀ d B)] A        (`frontend/common/cook_toom.py`)

Three steps: the windows d of some tiles are transformed, position by position the results are multiplied with the
transformed weights, and the products are transformed back, with the epilogue on top. Transforms are vectorised over
channels. They keep their results in scratch memory, [positions, tiles, channels] (`ir/kernels/winograd_memory.py`).

Either each thread takes a block of tiles through all three steps, so that what lies between them stays in its second
cache, or, where tiles are few and weights are many, all threads do each step for all tiles and then meet: weights are
then read once. Which tiles form a register tile does not depend on the threads, so neither does any result.

If the number of images or their size is open, so is that of tiles. Where threads work together they then take a fixed
number of tiles at a time, and the last register tile of a block is as high as one of a few heights, above what is
needed: rows that do not exist are computed from whatever is in scratch memory, and never read.

The second operand holds the transformed weights, [positions, P, I, nr]: P panels of nr output channels for each
position.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

from gluonjit.codegen.kernels.conv import spatial_axes
from gluonjit.codegen.kernels.epilogue import Epilogue, find_anchor
from gluonjit.codegen.kernels.linear_map import Walk, map_both_ways
from gluonjit.codegen.kernels.matmul import panel_variants, share, unravel
from gluonjit.codegen.kernels.pixel_tiles import Axis
from gluonjit.codegen.kernels.tiles import Fetch, Fetches, Tile, steps
from gluonjit.codegen.kernels.winograd_channels import BLOCK, BLOCK_UNIT, any_channels
from gluonjit.codegen.kernels.winograd_fetch import Pixels, Tiling, next_block
from gluonjit.codegen.kernels.winograd_windows import (
    Channels,
    Image,
    Span,
    Tiled,
    Windows,
    clear,
    share_transform,
    vectors,
)
from gluonjit.codegen.text.kernel_code import writes
from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.codegen.threads.calls import barrier
from gluonjit.ir.dims import Dim, least_usual, named
from gluonjit.ir.graph import Op
from gluonjit.ir.kernels.product_plans import Winograd
from gluonjit.ir.kernels.winograd_memory import WinogradMemory, is_nearly_filled
from gluonjit.ir.windows import strides_of

_SPREAD = 4
"""The register tiles over which fetching the next panel is spread if their number in a block is open."""


@writes(Winograd, for_any_size=any_channels)
def lower_winograd(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module. Its table ends with the thread's scratch, and if all threads work together, the
    memory that they share and the team."""
    _Winograd(module.function(name), op).write()


class Product(NamedTuple):
    """Which of the products."""

    position: Any
    panel: Any


def lower_heights(count: Any, rows: int) -> list[int]:
    """The heights, below `rows`, for a last register tile of an open number of tiles: about three."""
    unit = math.gcd(rows, *count.terms.values()) if isinstance(count, Dim) else 1
    return sorted({-(-rows * k // (4 * unit)) * unit for k in (1, 2, 3)} - {rows})


class _Winograd:
    def __init__(self, f: Function, op: Op) -> None:
        self.f = f
        body, plan = op.regions[0], Winograd.of(op)
        anchor = find_anchor(body)
        x, w = anchor.operands[0], body.inputs[1]
        self.tile = plan
        self.dtype = x.dtype
        axes = spatial_axes(anchor)
        self.is_line = len(axes) == 1
        # A line of pixels is an image of one row.
        rows, columns = axes if not self.is_line else (Axis(1, 1, 1, 1, 0, 1), axes[0])
        self.rows, self.columns = Tiled(f, rows, self.tile.height), Tiled(f, columns, self.tile.width)
        self.images, self.depth, self.filters = x.shape[0], x.shape[-1], anchor.result.shape[-1]
        self.count: Any = f.mul(f.mul(self.images, self.rows.count), self.columns.count)
        row_tiles = -(-least_usual(self.images) * self.rows.usual * self.columns.usual // self.tile.rows)
        is_open = not isinstance(self.count, int)
        self.block: Any = plan.block
        """A value of code where channels are open."""
        self.row_tiles = min(abs(plan.block), row_tiles) if is_open else plan.block or row_tiles
        """The register tiles of a panel over which fetching the next panel is spread."""
        self.for_any = isinstance(self.depth, Dim) or isinstance(self.filters, Dim)
        """Whether channels are open (`winograd_channels`); the size of the image may then be open, too."""
        if plan.block > 0 and self.for_any:
            self.block = f.div(named(BLOCK), BLOCK_UNIT)
            self.row_tiles = _SPREAD
        self.positions, self.panels, _, _ = w.shape
        which = body.inputs.index(x)
        image, *row, pixel, _ = strides_of(op, which)
        self.x_strides = (image, row[0] if row else 0, pixel)
        self.x, self.w = f.table(which), f.table(1)
        self.epilogue = Epilogue(f, op, anchor)
        self.scalar, self.item = Tile(f, self.dtype, 1).scalar, self.dtype.itemsize
        self.align = f.target.lanes(self.dtype) * self.item

        extents = (self.rows.extent, self.columns.extent)
        memory = WinogradMemory.of(self.tile, extents, self.count, self.depth, self.filters, self.item, f.target)
        self.inputs, self.outputs = memory.inputs, memory.outputs
        scratch = f.table(len(body.inputs) + 1)
        if self.tile.block > 0:
            transformed = f.gep("i8", scratch, memory.own)
        else:
            transformed, self.team = f.table(len(body.inputs) + 2), f.table(len(body.inputs) + 3)
        self.v, self.m = transformed, f.gep("i8", transformed, self.inputs.nbytes)
        image = Image(self.x, self.x_strides, self.images, self.depth, self.dtype)
        cuts = (self.rows.of_input, self.columns.of_input)
        self.windows = Windows(f, image, cuts, (self.v, self.inputs), (scratch, memory.zeros))
        clear(f, self.dtype, scratch, memory.zeros)

    def write(self) -> None:
        if self.tile.block > 0:
            self._by_blocks()
        elif not self.tile.block:
            self._together(Span(0, self.count))
        else:
            f, rows = self.f, self.tile.rows
            # Blocks of nearly equal numbers of register tiles.
            tiles = f.div(f.add(self.count, rows - 1), rows)
            blocks = f.div(f.add(tiles, -self.tile.block - 1), -self.tile.block)
            some = f.mul(f.div(f.add(tiles, f.sub(blocks, 1)), blocks), rows)
            with f.for_(0, self.count, some, hint="block") as block:
                self._together(Span(block.index, f.min(f.add(block.index, some), self.count)))

    def _by_blocks(self) -> None:
        f, rows = self.f, self.tile.rows
        first, last = share(f, f.div(f.add(self.count, rows - 1), rows))
        with f.for_(first, last, self.block, hint="block") as block:
            stop = f.min(f.add(block.index, self.block), last)
            span = Span(f.mul(block.index, rows), f.min(f.mul(stop, rows), self.count))
            with f.for_(*span, hint="tile") as t:
                self.windows.transform(t.index, f.sub(t.index, span.first), (0, self.depth))
            # Not one loop over both: with open channels, a division takes as long as some terms.
            with f.for_(0, self.positions, hint="position") as position:
                with f.for_(0, self.panels, hint="panel") as panel:
                    at = Product(position.index, panel.index)
                    self._product(at, f.sub(span.last, span.first), span.last)
            with f.for_(*span, hint="tile") as t:
                self._output(t.index, f.sub(t.index, span.first), (0, self.filters))

    def _together(self, span: Span) -> None:
        """When a thread transforms the next block's windows, all others have multiplied this one's; when it multiplies,
        they have transformed its products. So there is no barrier at the end."""
        f = self.f
        share_transform(f, self.dtype, span, self.depth, self.windows.transform)
        barrier(f, self.team)
        with f.for_(*share(f, self.positions * self.panels), hint="product") as task:
            position, panel = unravel(f, task.index, [self.positions, self.panels])
            self._product(Product(position, panel), f.sub(span.last, span.first))
        barrier(f, self.team)
        share_transform(f, self.dtype, span, self.filters, self._output)

    # ---- products

    def _product(self, at: Product, slots: Any, after: Any = None) -> None:
        """One position of the slots [0, slots), by one panel of weights. `after`: the tile that the next block begins
        with."""
        f, rows, columns = self.f, self.tile.rows, self.tile.columns
        position, panel = at
        task = f.add(f.mul(position, self.panels), panel)
        w = f.gep(self.scalar, self.w, f.mul(task, self.depth * columns))
        v = f.gep("i8", self.v, f.mul(position, self.inputs.position))
        m = f.add(f.mul(position, self.outputs.position), f.mul(panel, columns * self.item))
        m = f.gep("i8", self.m, m)
        # Weights are larger than the cache: each tile of a panel prefetches its part of the next panel.
        row_tiles = self.row_tiles
        step = -(-columns * self.item // row_tiles)
        following = f.gep(self.scalar, w, self.depth * columns)

        def register_tile(tile: Tile, number: Any, count: int) -> None:
            first = f.mul(number, rows)
            may_be_more = isinstance(self.block, str) or row_tiles < abs(self.block)
            which = f.min(number, row_tiles - 1) if may_be_more else number
            part = f.gep("i8", following, f.mul(which, step * self.depth))
            fetches = [*Fetches.spread(f, part, step, self.depth).parts]
            if after is not None and self.tile.ahead:
                fetches += self._next_block(after, f.add(f.mul(task, self.block), number))
            acc = tile.contract(
                tile.zeros(count),
                f.gep("i8", v, f.mul(first, self.inputs.tile)),
                [r * (self.inputs.tile // self.item) for r in range(count)],
                w,
                self.depth,
                w_step=columns,
                aligned=True,
                fetch=Fetches(tuple(fetches)),
            )
            target = f.gep("i8", m, f.mul(first, self.outputs.tile))
            for place, row in zip(steps(f, target, self.outputs.tile, count), acc, strict=True):
                for k, value in enumerate(row):
                    f.store(tile.vector, value, f.gep("i8", place, k * self.align), self.align)

        for narrow in panel_variants(f, self.dtype, self.filters, columns, panel, rows=rows):
            # Columns that do not exist are zeros in the weights, and are never read in scratch memory.
            tile = Tile(f, self.dtype, narrow.vectors, usual=narrow.usual or rows * narrow.vectors)
            # The last tiles of all may not fill a register tile. Of many, they are computed with what happens to be in
            # the memory after them, which spares the code for a lower one.
            if is_nearly_filled(self.count, rows) if isinstance(self.count, int) else self.for_any:
                with f.for_(0, f.div(f.add(slots, rows - 1), rows), hint="tile") as loop:
                    register_tile(tile, loop.index, rows)
                continue
            if isinstance(self.count, int):
                whole = f.div(slots, rows)
                with f.for_(0, whole, hint="tile") as loop:
                    register_tile(tile, loop.index, rows)
                if rest := self.count % rows:
                    with f.if_(f.op(f"icmp ne i64 {f.mul(whole, rows)}, {slots}")):
                        register_tile(tile, whole, rest)
                continue
            lower = lower_heights(self.count, rows)
            whole = f.div(f.add(slots, rows - 1 - max(lower, default=0)), rows)
            with f.for_(0, whole, hint="tile") as loop:
                register_tile(tile, loop.index, rows)
            left = f.sub(slots, f.mul(whole, rows))
            for less, height in pairwise((0, *lower)):
                fits = f.op(f"icmp sle i64 {left}, {height}")
                with f.if_(f.op(f"and i1 {fits}, {f.op(f'icmp sgt i64 {left}, {less}')}")):
                    register_tile(tile, whole, height)

    def _next_block(self, first: Any, number: Any) -> Iterator[Fetch]:
        """What register tile `number` of a block fetches for the next one, whose first tile is `first`."""
        rows, columns, tiles = self.rows, self.columns, self.tile.rows
        pixels = [
            p for buffer in (*self.epilogue.streams, self.epilogue.out) for p in Pixels.of_result(buffer, rows.outputs)
        ]
        if self.windows.is_dense:
            # Columns that a tile shares with the one before come with that one.
            at = (-rows.axis.low, columns.extent - columns.outputs - columns.axis.low)
            size = self.depth * self.item
            pixels.append(Pixels(self.x, self.scalar, self.x_strides, rows.extent, at, size))
        tiling = Tiling((self.images, rows.count, columns.count), (rows.outputs, columns.outputs))
        products = self.positions * self.panels
        return next_block(self.f, pixels, tiling, first, tiles, self.block, number, products, self.depth)

    # ---- output transform

    def _output(self, t: Any, slot: Any, channels: Channels) -> None:
        """Aᵀ m A of tile `t`, and the epilogue on it."""
        f, rows, columns = self.f, self.rows, self.columns
        image, ty, tx = unravel(f, t, [self.images, rows.count, columns.count])
        y, x = f.mul(ty, rows.outputs), f.mul(tx, columns.outputs)
        width = f.sub(columns.axis.out, x)
        high = f.min(f.sub(rows.axis.out, y), rows.outputs) if rows.is_ragged else None
        source = f.gep("i8", self.m, f.mul(slot, self.outputs.tile))
        narrow = f.op(f"icmp slt i64 {width}, {columns.outputs}") if columns.is_ragged else ""
        for tile, c in vectors(f, self.dtype, channels, self.filters):

            def load(top: str, tile: Tile = tile) -> list[str]:
                places = steps(f, top, columns.extent * self.outputs.position, rows.extent)
                return [tile.load(p, align=self.align) for p in places]

            def store(k: Any, _: str, line: list[str], tile: Tile = tile, c: Any = c) -> None:
                row = f.add(y, k)
                following = self._index(image, row, f.add(x, columns.outputs), c)
                self.epilogue.prefetch(tile, columns.outputs, following)
                if narrow:
                    with f.if_(narrow):
                        self._write_part(tile, line, width, [image, row, x, c])
                with f.if_(f.op(f"xor i1 {narrow}, true")) if narrow else nullcontext():
                    self.epilogue.write(tile, [[v] for v in line], self._index(image, row, x, c))

            down, along = rows.transform.output, columns.transform.output
            across = Walk(f.gep(self.scalar, source, c), self.outputs.position)
            map_both_ways(tile, down, along, across, load, Walk(0, 1, "i64"), store, high)

    def _write_part(self, tile: Tile, line: list[str], width: Any, index: Sequence[Any]) -> None:
        """Stores the first pixels of a line, one by one, from the stack."""
        f, (image, y, x, c) = self.f, index
        parked = f.shared_alloca(tile.vector, len(line), self.align)
        for k, v in enumerate(line):
            f.store(tile.vector, v, f.gep(tile.vector, parked, k))
        with f.for_(0, width, hint="column") as column:
            v = f.load(tile.vector, f.gep(tile.vector, parked, column.index))
            self.epilogue.write(tile, [[v]], self._index(image, y, f.add(x, column.index), c))

    def _index(self, image: Any, y: Any, x: Any, channel: Any) -> list[Any]:
        return [image, x, channel] if self.is_line else [image, y, x, channel]
