"""Gradients of convolution weights, channels last: the kernel `weight_gradient`.

    y[t…, c, o] = Σ over images n and positions p… of x[n, p·s + t·d - low, c] · g[n, p…, o]

In the graph this is a `conv` that sums over the batch: its `stride` is d, its `dilation` is s, and g is its weight. For
each tap t it is a matrix product with the pixels as terms. A register tile is a number of channels c by a panel of
channels o; for each pixel, vectors of g are loaded and single elements of x broadcast. Pixels that a tap reads outside
of x are no terms.

Tiles are divided into groups, all taps of some channels c and o each, whose sums stay in the second-level cache, in
scratch memory (`ir/kernels/weight_gradient_memory.py`). So does a block of rows of x and g, as far as the group reads
it, while all tiles of the group take their sums over it, which they then add. Pixels, and rows of y, that lie a page
apart would meet in few sets of the caches: what a group reads of some blocks is then copied first, and y is written
when the sums are complete. Threads share tiles, so sums do not depend on the number of threads, nor on the groups; a
sum over a block bounds the rounding error of long sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from gluonjit.codegen.kernels.epilogue import find_anchor
from gluonjit.codegen.kernels.matmul import panel_variants, share, unravel
from gluonjit.codegen.kernels.tiles import Rows, Tile
from gluonjit.codegen.text.kernel_code import writes
from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.ir.dims import is_less
from gluonjit.ir.graph import Op
from gluonjit.ir.kernels.product_plans import WeightGradient
from gluonjit.ir.kernels.weight_gradient_memory import WeightGradientMemory
from gluonjit.ir.windows import row_major, strides_of


@writes(WeightGradient)
def lower_weight_gradient(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module. Its table ends with the thread's scratch."""
    _Gradient(module.function(name), op).write()


class _Gradient:
    def __init__(self, f: Function, op: Op) -> None:
        self.f = f
        body, plan = op.regions[0], WeightGradient.of(op)
        anchor = find_anchor(body)
        x, g = anchor.operands
        self.dtype = x.dtype
        self.rows, self.columns, self.block = plan.rows, plan.columns, plan.block
        self.images, *self.size, self.channels = x.shape
        _, *self.count, self.filters = g.shape
        self.taps = anchor.result.shape[:-2]
        self.step, self.apart = anchor.attrs["dilation"], anchor.attrs["stride"]
        self.low = anchor.attrs["low"]
        self.x_strides, self.g_strides = (strides_of(op, body.inputs.index(v)) for v in (x, g))
        self.y_strides = row_major(anchor.result.shape)
        self.x, self.g = f.table(body.inputs.index(x)), f.table(body.inputs.index(g))
        self.y = f.table(len(body.inputs))
        self.scalar = Tile(f, x.dtype, 1).scalar
        self.panels, self.tiles = -(-self.filters // self.columns), -(-self.channels // self.rows)
        self.high, self.wide = plan.high, plan.wide
        self.groups = -(-self.tiles // self.high), -(-self.panels // self.wide)
        self.sums = f.table(len(body.inputs) + 1)
        self.near = plan.near * plan.block
        memory = WeightGradientMemory.of(plan, x.shape, g.shape, self.taps, self.dtype.itemsize, f.target)
        self.copies_g, self.copies_x, self.depth = memory.g != 0, memory.x != 0, memory.depth
        self.g_copy = f.gep(self.scalar, self.sums, memory.sums)
        self.x_copy = f.gep(self.scalar, self.g_copy, memory.g)

    def write(self) -> None:
        f, each = self.f, self.rows * self.columns
        lines = self.images * math.prod(self.count[:-1])
        size = math.prod(self.taps) * self.high * self.wide
        vector = Tile(f, self.dtype, 1)
        first, last = share(f, math.prod(self.groups) * size)
        with f.for_(f.div(first, size), f.div(f.add(last, size - 1), size), hint="group") as group:
            whole = f.mul(group.index, size)
            begin, end = f.max(whole, first), f.min(f.add(whole, size), last)
            with f.for_(f.mul(f.sub(begin, whole), each), f.mul(f.sub(end, whole), each), vector.lanes) as place:
                vector.store("zeroinitializer", f.gep(self.scalar, self.sums, place.index))
            with f.for_(0, lines, self.near, hint="near") as near:
                span = near.index, f.min(f.add(near.index, self.near), lines)
                if self.copies_g:
                    self._copy_g(f.mod(group.index, self.groups[1]), span)
                # What is copied of x is for some of the tasks, which follow each other: those of a tap along all but
                # the last axis.
                outer = self.taps[:-1] if self.copies_x else ()
                some = size // math.prod(outer)
                with f.for_(0, math.prod(outer), hint="tap") as tap:
                    low = f.add(whole, f.mul(tap.index, some))
                    low, high = f.max(low, begin), f.min(f.add(low, some), end)
                    if self.copies_x:
                        with f.if_(f.op(f"icmp slt i64 {low}, {high}")):
                            self._copy_x(f.div(group.index, self.groups[1]), unravel(f, tap.index, [*outer]), span)
                    with f.for_(low, high, hint="task") as task:
                        self._task(task.index, f.sub(task.index, whole), span)
            with f.for_(begin, end, hint="task") as task:
                self._task(task.index, f.sub(task.index, whole), None)

    def _copy_x(self, down: Any, tap: list[Any], span: tuple[Any, Any]) -> None:
        """Copies the channels of x that a group reads, of the rows of pixels that taps read at these places along all
        but the last axis."""
        f, lanes = self.f, Tile(self.f, self.dtype, 1).lanes
        first = f.mul(down, self.high * self.rows)
        count = f.min(self.high * self.rows, f.sub(self.channels, first))
        one, vector = Tile(f, self.dtype, 1), Tile(f, self.dtype, 1).vector
        with f.for_(*span, hint="line") as line:
            inside, source = self._line_of_x(line.index, tap)
            with ExitStack() as stack:
                if inside is not None:
                    stack.enter_context(f.if_(inside))
                target = f.mul(f.sub(line.index, span[0]), self.size[-1] * self.depth)
                with f.for_(0, self.size[-1], hint="pixel") as pixel:
                    place = f.add(f.add(source, first), f.mul(pixel.index, self.x_strides[-2]))
                    x = self._at(self.x, place)
                    to = self._at(self.x_copy, f.add(target, f.mul(pixel.index, self.depth)))
                    with f.for_(0, f.sub(count, lanes - 1), lanes, hint="channel") as c:
                        f.store(vector, one.load(f.gep(self.scalar, x, c.index)), f.gep(self.scalar, to, c.index), 4)
                    with f.for_(f.mul(f.div(count, lanes), lanes), count, hint="channel") as c:
                        value = f.load(self.scalar, f.gep(self.scalar, x, c.index), one.bytes)
                        f.store(self.scalar, value, f.gep(self.scalar, to, c.index), one.bytes)

    def _line_of_x(self, line: Any, tap: Sequence[Any]) -> tuple[str | None, Any]:
        """Whether there is a row of pixels of x that belongs to a row of g and a tap (None: surely), and where it
        begins."""
        f = self.f
        image, *at = unravel(f, line, [self.images, *self.count[:-1]])
        source: Any = f.mul(image, self.x_strides[0])
        inside: str | None = None
        for k, position in enumerate(at):
            there = f.sub(f.add(f.mul(position, self.step[k]), f.mul(tap[k], self.apart[k])), self.low[k])
            source = f.add(source, f.mul(there, self.x_strides[k + 1]))
            if self._may_leave(k):
                this = f.op(f"icmp ult i64 {there}, {f.extent(self.size[k])}")
                inside = this if inside is None else f.op(f"and i1 {inside}, {this}")
        return inside, source

    def _copy_g(self, across: Any, span: tuple[Any, Any]) -> None:
        """Copies the panels of g that a group reads."""
        f = self.f
        with f.for_(*span, hint="line") as line, f.for_(0, self.wide, hint="wide") as wide:
            panel = f.add(f.mul(across, self.wide), wide.index)
            with ExitStack() as inside:
                if self.panels % self.wide:
                    inside.enter_context(f.if_(f.op(f"icmp ult i64 {panel}, {self.panels}")))
                source = f.add(f.mul(panel, self.columns), self._line_of_g(line.index))
                target = self._copied_line(f.sub(line.index, span[0]), wide.index)
                for tile in panel_variants(f, self.dtype, self.filters, self.columns, panel):
                    with f.for_(0, self.count[-1], hint="pixel") as pixel:
                        g = self._at(self.g, f.add(source, f.mul(pixel.index, self.g_strides[-2])))
                        to = self._at(self.g_copy, f.add(target, f.mul(pixel.index, self.columns)))
                        for v in range(tile.vectors):
                            register = tile.load(f.gep(self.scalar, g, v * tile.lanes), tile.is_partial(v))
                            tile.store(register, f.gep(self.scalar, to, v * tile.lanes))

    def _line_of_g(self, line: Any) -> Any:
        """Where a row of pixels of g begins."""
        f = self.f
        image, *at = unravel(f, line, [self.images, *self.count[:-1]])
        place = f.mul(image, self.g_strides[0])
        for index, step in zip(at, self.g_strides[1:-2]):
            place = f.add(place, f.mul(index, step))
        return place

    def _copied_line(self, line: Any, wide: Any) -> Any:
        """Where the part of a copied row of g begins that is in a panel of the group."""
        f = self.f
        return f.mul(f.add(f.mul(line, self.wide), wide), self.count[-1] * self.columns)

    def _task(self, number: Any, place: Any, span: tuple[Any, Any] | None) -> None:
        """Adds a tile's sums over the rows of pixels in `span`, or writes them to y. `place`: its number in the group.
        The last groups may have places for tiles that there are not."""
        f = self.f
        *outer, last = self.taps
        index = unravel(f, number, [*self.groups, *outer, self.wide, self.high, last])
        (down, across), (wide, high), tap = index[:2], index[-3:-1], [*index[2:-3], index[-1]]
        part, panel = f.add(f.mul(down, self.high), high), f.add(f.mul(across, self.wide), wide)
        sums = f.gep(self.scalar, self.sums, f.mul(place, self.rows * self.columns))
        with ExitStack() as inside:
            for k, count, of in ((part, self.tiles, self.high), (panel, self.panels, self.wide)):
                if count % of:
                    inside.enter_context(f.if_(f.op(f"icmp ult i64 {k}, {count}")))
            for tile, rows in self._tiles(part, panel):
                channel, column = f.mul(part, self.rows), f.mul(panel, self.columns)
                if span is None:
                    self._write(tile, rows, sums, [*tap, channel, column])
                    continue
                if self.copies_x:
                    channel = f.mul(high, self.rows)
                with f.for_(*span, self.block, hint="block") as block:
                    some = block.index, f.min(f.add(block.index, self.block), span[1])
                    found = self._sum(tile, rows, channel, column, wide, tap, some, span[0])
                    self._add(tile, sums, found)

    def _tiles(self, part: Any, panel: Any) -> Iterator[tuple[Tile, int]]:
        """The kinds of tile, as some are narrower or lower than others: for each, opens the code that runs when this
        one is of it, and yields it with its height."""
        f = self.f
        whole, rest = divmod(self.channels, self.rows)
        for tile in panel_variants(f, self.dtype, self.filters, self.columns, panel):
            if whole and rest:
                with f.if_(f.op(f"icmp slt i64 {part}, {whole}")):
                    yield tile, self.rows
                with f.if_(f.op(f"icmp sge i64 {part}, {whole}")):
                    yield tile, rest
            else:
                yield tile, rest or self.rows

    def _in_sums(self, tile: Tile, sums: str, r: int, v: int) -> str:
        return self.f.gep(self.scalar, sums, r * self.columns + v * tile.lanes)

    def _add(self, tile: Tile, sums: str, found: Rows) -> None:
        """Adds to the sums of a tile."""
        for r, row in enumerate(found):
            for v, register in enumerate(row):
                p = self._in_sums(tile, sums, r, v)
                tile.store(self.f.op(f"fadd {tile.vector} {tile.load(p)}, {register}"), p)

    def _write(self, tile: Tile, rows: int, sums: str, index: list[Any]) -> None:
        """Writes the sums of a tile to y."""
        f, place = self.f, index[-1]
        for at, step in zip(index[:-1], self.y_strides):
            place = f.add(place, f.mul(at, step))
        out = f.gep(self.scalar, self.y, place)
        for r in range(rows):
            for v in range(tile.vectors):
                p = f.gep(self.scalar, out, r * self.y_strides[-2] + v * tile.lanes)
                tile.store(tile.load(self._in_sums(tile, sums, r, v)), p, tile.is_partial(v))

    def _sum(
        self,
        tile: Tile,
        rows: int,
        channel: Any,
        column: Any,
        wide: Any,
        tap: list[Any],
        span: tuple[Any, Any],
        copied: Any,
    ) -> Rows:
        """A tile's sums over the rows of pixels in `span`. `copied`: the first row in what was copied."""
        f, last = self.f, len(self.count) - 1
        # Along the last axis, the tap reads inside of x for positions [start, stop).
        shift = f.sub(f.mul(tap[last], self.apart[last]), self.low[last])
        start, stop = self._inside(last, shift)
        # A tile with fewer accumulators than keep all units busy takes sums over several pixels at a time.
        apart = max(1, f.target.chains // (rows * tile.vectors))
        types = [(tile.vector, register) for _ in range(apart) for row in tile.zeros(rows) for register in row]
        with f.for_(span[0], span[1], 1, types, "line") as line:
            inside, source = self._line_of_x(line.index, tap[:-1])
            end = stop if inside is None else f.op(f"select i1 {inside}, i64 {stop}, i64 {start}")
            if self.copies_x:
                source = f.mul(f.sub(line.index, copied), self.size[-1] * self.depth)
            if self.copies_g:
                weights = self._copied_line(f.sub(line.index, copied), wide)
            else:
                weights = f.add(column, self._line_of_g(line.index))
            x_from, x_step = (self.x_copy, self.depth) if self.copies_x else (self.x, self.x_strides[-2])
            g_from, g_step = (self.g_copy, self.columns) if self.copies_g else (self.g, self.g_strides[-2])
            source = f.add(f.add(source, channel), f.mul(shift, x_step))

            def add(pixel: Any, sums: Sequence[str]) -> list[str]:
                names = iter(sums)
                x = self._at(x_from, f.add(source, f.mul(pixel, self.step[last] * x_step)))
                g = self._at(g_from, f.add(weights, f.mul(pixel, g_step)))
                partial = [not self.copies_g and tile.is_partial(v) for v in range(tile.vectors)]
                vectors = [tile.load(f.gep(self.scalar, g, v * tile.lanes), p) for v, p in enumerate(partial)]
                found = []
                for r in range(rows):
                    factor = tile.splat(f.load(self.scalar, f.gep(self.scalar, x, r), tile.bytes))
                    found += [tile.multiply_add(factor, v, next(names)) for v in vectors]
                return found

            sums: Sequence[str] = line.carried
            size = rows * tile.vectors
            if apart > 1:
                count = f.max(f.sub(end, start), 0)  # a tap may be outside at every position
                rest = f.add(start, f.mul(f.div(count, apart), apart))
                with f.for_(start, rest, apart, [(tile.vector, c) for c in sums], "pixels") as pixels:
                    groups = [pixels.carried[k * size : (k + 1) * size] for k in range(apart)]
                    pixels.next(*(y for k, group in enumerate(groups) for y in add(f.add(pixels.index, k), group)))
                start, sums = rest, pixels.results
            with f.for_(start, end, 1, [(tile.vector, c) for c in sums[:size]], "pixel") as pixel:
                pixel.next(*add(pixel.index, pixel.carried))
            line.next(*pixel.results, *sums[size:])
        total = [*line.results[:size]]
        for k in range(1, apart):
            part = line.results[k * size : (k + 1) * size]
            total = [f.op(f"fadd {tile.vector} {a}, {b}") for a, b in zip(total, part, strict=True)]
        names = iter(total)
        return [[next(names) for _ in range(tile.vectors)] for _ in range(rows)]

    def _at(self, pointer: str, offset: Any) -> str:
        # Not `inbounds`: the terms of an offset may lie outside where the whole does not.
        return self.f.op(f"getelementptr {self.scalar}, ptr {pointer}, i64 {offset}")

    def _may_leave(self, k: int) -> bool:
        """Whether some tap of some position along axis k may be outside of x."""
        return may_leave(self.size[k], self.count[k], self.taps[k], self.step[k], self.apart[k], self.low[k])

    def _inside(self, k: int, shift: Any) -> tuple[Any, Any]:
        """[start, stop) of the positions p for which p · step + shift is inside of x."""
        if not self._may_leave(k):
            return 0, self.count[k]
        return positions_inside(self.f, shift, self.step[k], self.size[k], self.count[k])


def may_leave(size: Any, count: Any, taps: int, step: int, apart: int, low: Any) -> bool:
    """Whether one of `taps`, `apart` from each other, of one of `count` positions may be outside of `size` pixels."""
    reach = (count - 1) * step + (taps - 1) * apart
    return low > 0 or not is_less(reach - low, size)


def positions_inside(f: Function, shift: Any, step: int, size: Any, count: Any) -> tuple[Any, Any]:
    """[start, stop) of the positions p below count for which p · step + shift is in [0, size); start may be the
    larger one if there are none."""
    start = f.div(f.add(f.max(f.sub(0, shift), 0), step - 1), step)
    stop = f.div(f.add(f.max(f.sub(size, shift), 0), step - 1), step)
    return start, f.min(stop, count)
