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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

from gluonjit.codegen.kernels.conv import spatial_axes
from gluonjit.codegen.kernels.epilogue import Epilogue, find_anchor
from gluonjit.codegen.kernels.linear_map import linear_map
from gluonjit.codegen.kernels.matmul import panel_variants, share, unravel
from gluonjit.codegen.kernels.pixel_tiles import Axis
from gluonjit.codegen.kernels.tiles import Fetch, Fetches, Tile, prefetch, steps
from gluonjit.codegen.kernels.winograd_channels import BLOCK, BLOCK_UNIT, any_channels
from gluonjit.codegen.kernels.winograd_fetch import Pixels, Tiling, next_block
from gluonjit.codegen.text.kernel_code import writes
from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.codegen.threads.calls import barrier
from gluonjit.common.cook_toom import transform
from gluonjit.ir.dims import Dim, Extent, divides, hint, is_less, least_usual, named
from gluonjit.ir.graph import Op
from gluonjit.ir.kernels.product_plans import Winograd
from gluonjit.ir.kernels.winograd_memory import WinogradMemory
from gluonjit.ir.windows import strides_of

_SPREAD = 4
"""The register tiles over which fetching the next panel is spread if their number in a block is open."""
_CHANNELS = 4
"""Vectors of channels per task, where threads share a transform."""


@writes(Winograd, for_any_size=any_channels)
def lower_winograd(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module. Its table ends with the thread's scratch, and if all threads work together, the
    memory that they share and the team."""
    _Winograd(module.function(name), op).write()


class Tiled:
    """One spatial axis, cut into tiles of `outputs` pixels of the result."""

    def __init__(self, f: Function, axis: Axis, outputs: int) -> None:
        self.axis, self.outputs = axis, outputs
        self.count: Any = f.div(f.add(axis.out, outputs - 1), outputs)
        """The number of tiles; a value of code where it is neither known nor a polynomial."""
        self.usual = -(-hint(axis.out) // outputs)
        self.transform = transform(outputs, axis.taps)
        self.extent = len(self.transform.input)
        """Pixels along each axis of a window of the input."""

    @property
    def is_padded(self) -> bool:
        """Whether some window is partly outside, as far as that is known."""
        if not isinstance(self.count, (int, Dim)):
            return True
        last = (self.count - 1) * self.outputs - self.axis.low + self.extent - 1
        return self.axis.low > 0 or not is_less(last, self.axis.size)

    @property
    def is_ragged(self) -> bool:
        """Whether the last tile is partly outside of the result, as far as that is known."""
        return not divides(self.outputs, self.axis.out)


class Span(NamedTuple):
    """Tiles [first, last) of the result, which lie in slots [0, last - first) of scratch memory."""

    first: Any
    last: Any


class Product(NamedTuple):
    """Which of the products."""

    position: Any
    panel: Any


Channels = tuple[Any, Any]
"""[low, high)."""


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
        if plan.block > 0 and (isinstance(self.depth, Dim) or isinstance(self.filters, Dim)):
            self.block = f.div(named(BLOCK), BLOCK_UNIT)
            self.row_tiles = _SPREAD
        self.positions, self.panels, _, _ = w.shape
        which = body.inputs.index(x)
        image, *row, pixel, _ = strides_of(op, which)
        self.x_strides = (image, row[0] if row else 0, pixel)
        self.x, self.w = f.table(which), f.table(1)
        self.epilogue = Epilogue(f, op, anchor)
        self.vector = Tile(f, self.dtype, 1)
        self.scalar, self.lanes, self.item = self.vector.scalar, self.vector.lanes, self.dtype.itemsize
        self.align = self.lanes * self.item

        extents = (self.rows.extent, self.columns.extent)
        memory = WinogradMemory.of(self.tile, extents, self.count, self.depth, self.filters, self.item, f.target)
        self.inputs, self.outputs = memory.inputs, memory.outputs
        scratch = f.table(len(body.inputs) + 1)
        self.zeros, self.window = scratch, f.gep("i8", scratch, memory.zeros)
        if self.tile.block > 0:
            transformed = f.gep("i8", scratch, memory.own)
        else:
            transformed, self.team = f.table(len(body.inputs) + 2), f.table(len(body.inputs) + 3)
        self.v, self.m = transformed, f.gep("i8", transformed, self.inputs.nbytes)
        self.row_bytes = memory.zeros
        """Bytes of a row of a window that is put together where part of it lies outside of the input."""
        self.is_dense = self.x_strides[2] == self.depth
        with f.for_(0, memory.zeros // self.item, self.lanes) as loop:
            f.store(self.vector.vector, "zeroinitializer", f.gep(self.scalar, scratch, loop.index), self.align)

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
                self._input(t.index, f.sub(t.index, span.first), (0, self.depth))
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
        self._share(span, self.depth, self._input)
        barrier(f, self.team)
        with f.for_(*share(f, self.positions * self.panels), hint="product") as task:
            position, panel = unravel(f, task.index, [self.positions, self.panels])
            self._product(Product(position, panel), f.sub(span.last, span.first))
        barrier(f, self.team)
        self._share(span, self.filters, self._output)

    def _share(self, span: Span, channels: Extent, step: Callable[[Any, Any, Channels], None]) -> None:
        """This thread's part of a transform of some tiles and all channels."""
        f, some = self.f, _CHANNELS * self.lanes
        parts, count = f.div(f.add(channels, some - 1), some), f.sub(span.last, span.first)
        with f.for_(*share(f, f.mul(count, parts)), hint="task") as task:
            slot, part = unravel(f, task.index, [count, parts])
            low = f.mul(part, some)
            step(f.add(span.first, slot), slot, (low, f.min(f.add(low, some), channels)))

    # ---- input transform

    def _input(self, t: Any, slot: Any, channels: Channels) -> None:
        """Bᵀ d B of tile `t`."""
        f, rows, columns = self.f, self.rows, self.columns
        image, ty, tx = unravel(f, t, [self.images, rows.count, columns.count])
        top = f.sub(f.mul(ty, rows.outputs), rows.axis.low)
        left = f.sub(f.mul(tx, columns.outputs), columns.axis.low)
        source = f.gep(self.scalar, self.x, f.mul(image, self.x_strides[0]))
        pointers = [f.gep("i8", self.window, k * self.row_bytes) for k in range(rows.extent)]
        following: list[str] = []
        if not self.is_dense:
            self._copy_window(source, top, left, channels)
        else:
            there = [self._row(source, f.add(top, k), left) for k in range(rows.extent)]
            step = f.extent(columns.extent * self.depth)
            # Not `inbounds`: there need not be a next tile.
            following = [f.op(f"getelementptr {self.scalar}, ptr {p}, i64 {step}") for p in there]
            if columns.is_padded:
                # A window that crosses the border is assembled in scratch memory, with zeros for missing columns.
                right = f.op(f"icmp sgt i64 {f.add(left, columns.extent)}, {f.extent(columns.axis.size)}")
                outside = f.op(f"or i1 {right}, {f.op(f'icmp slt i64 {left}, 0')}")
                with f.if_(outside):
                    self._copy_window(source, top, left, channels)
                there = [f.op(f"select i1 {outside}, ptr {a}, ptr {b}") for a, b in zip(pointers, there)]
            pointers = there
        target = f.gep("i8", self.v, f.mul(slot, self.inputs.tile))
        for tile, c in self._vectors(channels, self.depth):
            # The part of the next tile that it does not share with this one.
            for p in following:
                for k in range(columns.outputs):
                    prefetch(f, f.op(f"getelementptr {self.scalar}, ptr {p}, i64 {c}"), k * self.depth * self.item)
            self._transform_input(tile, pointers, c, f.gep(self.scalar, target, c))

    def _row(self, source: str, row: Any, column: Any) -> str:
        """The pixel at a row and column of the input; zeros where there is no such row."""
        f = self.f
        offset = f.add(f.mul(row, self.x_strides[1]), f.mul(column, self.x_strides[2]))
        # Not `inbounds`: it may lie outside, and is then not read.
        p = f.op(f"getelementptr {self.scalar}, ptr {source}, i64 {f.extent(offset)}")
        if not self.rows.is_padded:
            return p
        inside = f.op(f"icmp ult i64 {row}, {f.extent(self.rows.axis.size)}")  # unsigned: a negative one is huge
        return f.op(f"select i1 {inside}, ptr {p}, ptr {self.zeros}")

    def _copy_window(self, source: str, top: Any, left: Any, channels: Channels) -> None:
        """Puts the window whose first pixel is at row `top`, column `left` of the input together in scratch memory."""
        f = self.f
        with f.for_(0, self.rows.extent, hint="row") as row, f.for_(0, self.columns.extent, hint="column") as column:
            x = f.add(left, column.index)
            p = self._row(source, f.add(top, row.index), x)
            inside = f.op(f"icmp ult i64 {x}, {f.extent(self.columns.axis.size)}")
            p = f.op(f"select i1 {inside}, ptr {p}, ptr {self.zeros}")
            offset = f.add(f.mul(row.index, self.row_bytes), f.mul(column.index, self.depth * self.item))
            target = f.gep("i8", self.window, offset)
            for tile, c in self._vectors(channels, self.depth):
                v = tile.load(f.gep(self.scalar, p, c), tile.is_partial(0))
                # A partial vector overwrites the beginning of the next pixel, which is written after it.
                f.store(tile.vector, v, f.gep(self.scalar, target, c), self.item)

    def _transform_input(self, tile: Tile, pointers: list[str], channel: Any, target: str) -> None:
        f = self.f
        columns = []
        for c in steps(f, channel, self.depth, self.columns.extent, "i64"):
            window = [tile.load(f.gep(self.scalar, p, c), tile.is_partial(0)) for p in pointers]
            columns.append(linear_map(tile, self.rows.transform.input, window))
        places = steps(f, target, self.inputs.position, self.rows.extent * self.columns.extent)
        for row in zip(*columns, strict=True):
            for v in linear_map(tile, self.columns.transform.input, row):
                f.store(tile.vector, v, next(places), self.align)

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

        for narrow in panel_variants(f, self.dtype, self.filters, columns, panel):
            # Columns that do not exist are zeros in the weights, and are never read in scratch memory.
            tile = Tile(f, self.dtype, narrow.vectors)
            # The last tiles of all may not fill a register tile.
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
        if self.is_dense:
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
        height, width = f.sub(rows.axis.out, y), f.sub(columns.axis.out, x)
        source = f.gep("i8", self.m, f.mul(slot, self.outputs.tile))
        for tile, c in self._vectors(channels, self.filters):
            for k in range(rows.outputs):
                following = self._index(image, f.add(y, k), f.add(x, columns.outputs), c)
                self.epilogue.prefetch(tile, columns.outputs, following, written=True)
            lines = self._transform_output(tile, f.gep(self.scalar, source, c))
            if not (rows.is_ragged or columns.is_ragged):
                self._write_tile(tile, lines, [image, y, x, c])
                continue
            high, wide = f.op(f"icmp sge i64 {height}, {len(lines)}"), f.op(f"icmp sge i64 {width}, {len(lines[0])}")
            is_whole = f.op(f"and i1 {high}, {wide}")
            with f.if_(is_whole):
                self._write_tile(tile, lines, [image, y, x, c])
            with f.if_(f.op(f"xor i1 {is_whole}, true")):
                self._write_part(tile, lines, (height, width), [image, y, x, c])

    def _transform_output(self, tile: Tile, source: str) -> list[list[str]]:
        f, extent = self.f, self.columns.extent
        columns = []
        for top in steps(f, source, self.outputs.position, extent):
            places = steps(f, top, extent * self.outputs.position, self.rows.extent)
            loaded = [tile.load(p, align=self.align) for p in places]
            columns.append(linear_map(tile, self.rows.transform.output, loaded))
        return [linear_map(tile, self.columns.transform.output, row) for row in zip(*columns, strict=True)]

    def _write_tile(self, tile: Tile, lines: list[list[str]], index: Sequence[Any]) -> None:
        image, y, x, c = index
        for k, line in enumerate(lines):
            self.epilogue.write(tile, [[v] for v in line], self._index(image, self.f.add(y, k), x, c))

    def _write_part(self, tile: Tile, lines: list[list[str]], size: tuple[Any, Any], index: Sequence[Any]) -> None:
        """Stores the pixels of the tile that exist, one by one, from the stack."""
        f, (image, y, x, c) = self.f, index
        width = len(lines[0])
        parked = f.shared_alloca(tile.vector, f.target.num_vector_registers, self.align)
        for k, v in enumerate(v for line in lines for v in line):
            f.store(tile.vector, v, f.gep(tile.vector, parked, k))
        with f.for_(0, f.min(size[0], len(lines)), hint="row") as row:
            with f.for_(0, f.min(size[1], width), hint="column") as column:
                at = f.add(f.mul(row.index, width), column.index)
                v = f.load(tile.vector, f.gep(tile.vector, parked, at))
                self.epilogue.write(tile, [[v]], self._index(image, f.add(y, row.index), f.add(x, column.index), c))

    def _index(self, image: Any, y: Any, x: Any, channel: Any) -> list[Any]:
        return [image, x, channel] if self.is_line else [image, y, x, channel]

    def _vectors(self, channels: Channels, count: Extent) -> Iterator[tuple[Tile, Any]]:
        """Opens the loops over the vectors of some of `count` channels: for each kind, a tile of one vector and its
        first channel."""
        f, (low, high) = self.f, channels
        with f.for_(low, f.sub(high, self.lanes - 1), self.lanes, hint="channel") as loop:
            yield self.vector, loop.index
        if not divides(self.lanes, count):
            tail = f.mod(count, self.lanes)
            with self._if_last(high, count):
                yield Tile(f, self.dtype, 1, tail), count - tail

    @contextmanager
    def _if_last(self, high: Any, count: Extent) -> Iterator[None]:
        if high == count:
            yield
        else:
            with self.f.if_(self.f.op(f"icmp eq i64 {high}, {count}")):
                yield
