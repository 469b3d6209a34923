"""Depthwise convolution and other narrow groups, channels last: the kernel `depthwise`.

Where every channel has a filter of its own, vectors run over channels and nothing is broadcast. A tile is a number of
rows by a number of adjacent pixels, of one vector of output channels. All taps of a tile are unrolled: each input pixel
is loaded once and contributes to every output pixel whose taps reach it. Padding is never read: columns at the border
are known when the code is generated (`pixel_tiles.py`), and input rows outside of the image are skipped by a branch.

The same works for groups of several channels, if a vector holds whole groups: a shuffle copies each channel of a group
to the lanes of all filters of the group.

With a tile of 0 rows, it is one row and its taps are loops, for windows too large to unroll; the input then has no
padding along the last axis.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gluonjit.codegen.kernels.conv import spatial_axes
from gluonjit.codegen.kernels.epilogue import Epilogue, find_anchor
from gluonjit.codegen.kernels.matmul import share, unravel
from gluonjit.codegen.kernels.pixel_tiles import Axis, Kind, PixelTiles
from gluonjit.codegen.kernels.tiles import Rows, Tile, prefetch
from gluonjit.codegen.text.kernel_code import writes
from gluonjit.codegen.text.llvm import Function, Module, vector
from gluonjit.ir.graph import Op
from gluonjit.ir.kernels.product_plans import Depthwise
from gluonjit.ir.windows import strides_of


@writes(Depthwise)
def lower_depthwise(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module."""
    DepthwiseCode(module.function(name), op).write()


class At(NamedTuple):
    """The first element of a tile of the result."""

    image: Any
    row: Any
    pixel: Any
    channel: Any


class DepthwiseCode:
    """Writes the code of one kernel, whose table holds the body's inputs from place `first` on."""

    def __init__(self, f: Function, op: Op, first: int = 0) -> None:
        self.f = f
        body, plan = op.regions[0], Depthwise.of(op)
        anchor = find_anchor(body)
        x, w = anchor.operands
        self.dtype = x.dtype
        axes = spatial_axes(anchor)
        # One spatial axis: treat it as an image of one row.
        self.rows, self.columns = axes if len(axes) == 2 else (Axis(1, 1, 1, 1, 0, 1), axes[0])
        self.is_line = len(axes) == 1
        self.images, self.channels = x.shape[0], anchor.result.shape[-1]
        image, *lines, self.pixel, _ = strides_of(op, body.inputs.index(x))
        self.image, self.line = image, lines[0] if lines else image
        """Strides of x in elements, from one image and one row to the next (`pixel`: from one pixel to the next)."""
        self.depth = w.shape[-2]
        self.filters = self.channels // anchor.attrs["groups"]
        """Input channels and filters of a group."""
        self.pixels, self.block, self.vectors, self.ahead = plan.pixels, plan.block, plan.vectors, plan.ahead
        self.rolled, self.height = plan.rows == 0, max(plan.rows, 1)
        self.tiles = PixelTiles(f, self.columns, self.pixels, merge=False)
        self.x, self.w = (f.table(first + body.inputs.index(v)) for v in (x, w))
        self.epilogue = Epilogue(f, op, anchor, first)
        self.lanes = f.target.lanes(self.dtype)
        self.scalar = Tile(f, self.dtype, 1).scalar

    def write(self) -> None:
        f, rows = self.f, self.rows
        whole, rest = self._row_tiles()
        blocks = f.div(f.add(whole, self.block - 1 + (rest > 0)), self.block)
        chunk = self.vectors * self.lanes
        chunks = -(-self.channels // chunk)
        first, last = share(f, f.mul(self.images * chunks, blocks))
        with f.for_(first, last, hint="task") as task:
            image, block, part = unravel(f, task.index, [self.images, blocks, chunks])
            channels = f.mul(part, chunk), f.min(f.mul(f.add(part, 1), chunk), self.channels)
            start = f.mul(block, self.block)
            with f.for_(start, f.min(f.add(start, self.block), whole), hint="row") as loop:
                row = f.mul(loop.index, self.height)
                # The last tile of an open number of rows may compute some of them again.
                row = row if isinstance(rows.out, int) else f.min(row, f.sub(rows.out, self.height))
                self.row_tile(image, row, self.height, channels)
            if rest:
                with f.if_(f.op(f"icmp eq i64 {block}, {blocks - 1}")):
                    self.row_tile(image, whole * self.height, rest, channels)

    def _row_tiles(self) -> tuple[Any, int]:
        """The number of whole row tiles, and the rows of a lower last one."""
        rows, height = self.rows.out, self.height
        if isinstance(rows, int):
            return divmod(rows, height)
        return self.f.div(self.f.add(rows, height - 1), height), 0

    def row_tile(self, image: Any, row: Any, height: int, channels: tuple[Any, Any]) -> None:
        """Output rows row … row + height - 1."""
        f, (low, high) = self.f, channels
        tail = self.channels % self.lanes
        for kind, _, pixel in self.tiles.each():
            with f.for_(low, f.sub(high, self.lanes - 1), self.lanes, hint="channel") as loop:
                self._tile(Tile(f, self.dtype, 1), kind, height, At(image, row, pixel, loop.index))
            if tail:
                with f.if_(f.op(f"icmp eq i64 {high}, {self.channels}")):
                    at = At(image, row, pixel, self.channels - tail)
                    self._tile(Tile(f, self.dtype, 1, tail), kind, height, at)

    def _tile(self, tile: Tile, kind: Kind, height: int, at: At) -> None:
        if self.ahead:
            self._fetch_below(tile, kind, height, at)
        lines = [self._loops(tile, kind, at)] if self.rolled else self._unrolled(tile, kind, height, at)
        for r, acc in enumerate(lines):
            place = [at.pixel, at.channel] if self.is_line else [self.f.add(at.row, r), at.pixel, at.channel]
            self.epilogue.write(tile, acc, [at.image, *place])

    def _fetch_below(self, tile: Tile, kind: Kind, height: int, at: At) -> None:
        """Prefetches what the tile below reads and this one does not, and what it writes. It need not exist."""
        f, rows, columns = self.f, self.rows, self.columns
        reach = (height - 1) * rows.stride + (rows.taps - 1) * rows.dilation + 1
        below = f.add(f.mul(at.row, rows.stride), reach - rows.low)
        channel = f.div(f.mul(at.channel, self.depth), self.filters)
        for line in range(height * rows.stride):
            place = f.add(f.mul(at.image, self.image), f.mul(f.add(below, line), self.line))
            place = f.add(f.add(place, f.mul(f.mul(at.pixel, columns.stride), self.pixel)), channel)
            x = f.op(f"getelementptr {self.scalar}, ptr {self.x}, i64 {f.extent(place)}")  # not `inbounds`
            for pixel in range(kind.pixels * columns.stride):
                prefetch(f, x, pixel * self.pixel * tile.bytes, nearest=False)
        for line in range(height):
            index = [at.image, f.add(at.row, height + line), at.pixel, at.channel]
            self.epilogue.prefetch(tile, kind.pixels, index)

    # ---- taps as loops

    def _loops(self, tile: Tile, kind: Kind, at: At) -> Rows:
        """The sums of the tile's pixels in one row, tap by tap."""
        f, axis = self.f, self.columns
        first, last = self.rows.tap_range(f, at.row)
        with f.for_(first, last, 1, [(tile.vector, "zeroinitializer")] * kind.pixels, "tap") as outer:
            row = f.add(f.mul(at.row, self.rows.stride), f.sub(f.mul(outer.index, self.rows.dilation), self.rows.low))
            with f.for_(0, axis.taps, 1, [(tile.vector, v) for v in outer.carried], "tap") as loop:
                column = f.sub(f.add(f.mul(at.pixel, axis.stride), f.mul(loop.index, axis.dilation)), axis.low)
                x = self._input(at, row, column)
                tap = f.add(f.mul(outer.index, axis.taps), loop.index)
                acc = list(loop.carried)
                weights = [self._weight(tile, at, f.add(f.mul(tap, self.depth), d)) for d in range(self.depth)]
                for c in range(kind.pixels):
                    loaded = self._load_pixel(tile, f.gep(self.scalar, x, c * axis.stride * self.pixel))
                    for d, weight in enumerate(weights):
                        acc[c] = tile.multiply_add(self._spread(tile, loaded, d), weight, acc[c])
                loop.next(*acc)
            outer.next(*loop.results)
        return [[v] for v in outer.results]

    # ---- unrolled taps

    def _unrolled(self, tile: Tile, kind: Kind, height: int, at: At) -> list[Rows]:
        """The sums of the tile's pixels in `height` rows."""
        f, axis = self.f, self.rows
        lines = [tile.zeros(kind.pixels) for _ in range(height)]
        first = f.sub(f.mul(at.row, axis.stride), axis.low)
        if not kind.segments:
            return lines
        readers: dict[int, list[tuple[int, int]]] = {}
        for r in range(height):
            for t in range(axis.taps):
                readers.setdefault(r * axis.stride + t * axis.dilation, []).append((r, t))
        # Input row first + j is the one that tap t of output row r reads, for these (r, t).
        for j, uses in sorted(readers.items()):
            row = f.add(first, j)
            if axis.is_padded:
                lines = self._guarded(tile, kind, uses, at, row, lines)
            else:
                lines = self._add_row(tile, kind, uses, at, row, lines)
        return lines

    def _guarded(
        self, tile: Tile, kind: Kind, uses: list[tuple[int, int]], at: At, row: Any, lines: list[Rows]
    ) -> list[Rows]:
        """`_add_row` if there is an input row `row`."""
        f = self.f
        inside = f.op(f"icmp ult i64 {row}, {f.extent(self.rows.size)}")  # unsigned: a negative one is huge
        before = f.scope.label
        with f.if_(inside) as then:
            new = self._add_row(tile, kind, uses, at, row, lines)

        def merged(old: str, new: str) -> str:
            return old if new == old else f.op(f"phi {tile.vector} [ {old}, %{before} ], [ {new}, %{then.label} ]")

        return [
            [[merged(a, b)] for (a,), (b,) in zip(acc, new_acc, strict=True)]
            for acc, new_acc in zip(lines, new, strict=True)
        ]

    def _add_row(
        self, tile: Tile, kind: Kind, uses: list[tuple[int, int]], at: At, row: Any, lines: list[Rows]
    ) -> list[Rows]:
        """`lines` plus what input row `row` contributes: it is tap t of output row r, for (r, t) in `uses`."""
        f, axis = self.f, self.columns
        lines = [[list(registers) for registers in acc] for acc in lines]
        taps = [(s.first, c) for s in kind.segments for c in s.active]
        columns = {(t, c): c * axis.stride + t * axis.dilation - axis.low for t, c in taps}
        # The pointer starts at the first pixel that is read, so that it is inside of x.
        first = min(columns.values())
        x = self._input(at, row, f.add(f.mul(at.pixel, axis.stride), first))
        loaded = {
            column: self._load_pixel(tile, f.gep(self.scalar, x, (column - first) * self.pixel))
            for column in sorted(set(columns.values()))
        }
        for d in range(self.depth):
            lanes = {column: self._spread(tile, v, d) for column, v in loaded.items()}
            for t in sorted({t for t, _ in taps}):
                weights = {k: self._weight(tile, at, (k * axis.taps + t) * self.depth + d) for _, k in uses}
                for c in (c for tap, c in taps if tap == t):
                    for r, k in uses:
                        lines[r][c] = [tile.multiply_add(lanes[columns[t, c]], weights[k], lines[r][c][0])]
        return lines

    # ---- memory

    def _input(self, at: At, row: Any, column: Any) -> str:
        """Where the input channels for `at`'s output channels are."""
        f = self.f
        line = f.add(f.mul(at.image, self.image), f.mul(row, self.line))
        source = f.div(f.mul(at.channel, self.depth), self.filters)
        return f.gep(self.scalar, self.x, f.add(f.add(line, f.mul(column, self.pixel)), source))

    def _weight(self, tile: Tile, at: At, which: Any) -> str:
        """Weights of the tile's channels; `which` counts taps and channels of a group."""
        f = self.f
        # The constant part of the address comes last, so that it becomes the instruction's displacement.
        w = f.pure(f"getelementptr inbounds {self.scalar}, ptr {self.w}, i64 {at.channel}", f.scope)
        return tile.load(f.gep(self.scalar, w, f.mul(which, self.channels)), tile.is_partial(0))

    def _load_pixel(self, tile: Tile, pointer: str) -> str:
        """The input channels that the tile's output channels read."""
        if self.depth == self.filters == 1:
            return tile.load(pointer, tile.is_partial(0))
        return self.f.load(vector(self._sources(tile), self.scalar), pointer, tile.bytes)

    def _sources(self, tile: Tile) -> int:
        return tile.last // self.filters * self.depth

    def _spread(self, tile: Tile, pixel: str, d: int) -> str:
        """Channel d of each group, copied to the lanes of all filters of the group."""
        n = self._sources(tile)
        if self.depth == self.filters == 1:
            return pixel
        if n == 1:
            return tile.splat(pixel)
        picks = [lane // self.filters * self.depth + d if lane < tile.last else 0 for lane in range(tile.lanes)]
        type, mask = vector(n, self.scalar), ", ".join(f"i32 {p}" for p in picks)
        return self.f.op(f"shufflevector {type} {pixel}, {type} poison, <{tile.lanes} x i32> <{mask}>")
