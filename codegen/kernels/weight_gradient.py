"""Gradients of convolution weights, channels last: the kernel `weight_gradient`.

    y[t…, c, o] = Σ over images n and positions p… of x[n, p·s + t·d - low, c] · g[n, p…, o]

In the graph this is a `conv` that sums over the batch: its `stride` is d, its `dilation` is s, and g is its weight. For
each tap t it is a matrix product with the pixels as terms. A register tile is a number of channels c by a panel of
channels o; for each pixel, vectors of g are loaded and single elements of x broadcast. Pixels that a tap reads outside
of x are no terms.

Tiles are divided into groups, all taps of some channels c and o each, whose part of y stays in the second-level cache.
So does a block of rows of x and g, as far as the group reads it, while all tiles of the group take their sums over it,
which they then add to y. Threads share tiles, so sums do not depend on the number of threads, nor on the groups; a sum
over a block bounds the rounding error of long sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from gluonjit.ir.windows import row_major, strides_of


@writes(WeightGradient)
def lower_weight_gradient(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module."""
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

    def write(self) -> None:
        f = self.f
        lines = self.images * math.prod(self.count[:-1])
        size = math.prod(self.taps) * self.high * self.wide
        first, last = share(f, math.prod(self.groups) * size)
        with f.for_(f.div(first, size), f.div(f.add(last, size - 1), size), hint="group") as group:
            begin = f.mul(group.index, size)
            end = f.min(f.add(begin, size), last)
            begin = f.max(begin, first)
            with f.for_(begin, end, hint="task") as task:
                self._task(task.index, None)
            with f.for_(0, lines, self.block, hint="block") as block:
                stop = f.min(f.add(block.index, self.block), lines)
                with f.for_(begin, end, hint="task") as task:
                    self._task(task.index, (block.index, stop))

    def _task(self, number: Any, span: tuple[Any, Any] | None) -> None:
        """Adds a tile's sums over the rows of pixels in `span`, or sets the tile to zeros. The last groups may have
        places for tiles that there are not."""
        f = self.f
        down, across, wide, high, *tap = unravel(f, number, [*self.groups, self.wide, self.high, *self.taps])
        part, panel = f.add(f.mul(down, self.high), high), f.add(f.mul(across, self.wide), wide)
        with ExitStack() as inside:
            for k, count, of in ((part, self.tiles, self.high), (panel, self.panels, self.wide)):
                if count % of:
                    inside.enter_context(f.if_(f.op(f"icmp ult i64 {k}, {count}")))
            self._tiles(part, panel, tap, span)

    def _tiles(self, part: Any, panel: Any, tap: list[Any], span: tuple[Any, Any] | None) -> None:
        """The tile that is there, of those that may be narrower or lower than others."""
        f = self.f
        whole, rest = divmod(self.channels, self.rows)
        for tile in panel_variants(f, self.dtype, self.filters, self.columns, panel):
            if whole and rest:
                with f.if_(f.op(f"icmp slt i64 {part}, {whole}")):
                    self._tile(tile, self.rows, part, panel, tap, span)
                with f.if_(f.op(f"icmp sge i64 {part}, {whole}")):
                    self._tile(tile, rest, part, panel, tap, span)
            else:
                self._tile(tile, rest or self.rows, part, panel, tap, span)

    def _tile(self, tile: Tile, rows: int, part: Any, panel: Any, tap: list[Any], span: tuple[Any, Any] | None) -> None:
        f = self.f
        channel, column = f.mul(part, self.rows), f.mul(panel, self.columns)
        place: Any = column
        for index, step in zip([*tap, channel], self.y_strides):
            place = f.add(place, f.mul(index, step))
        out = f.gep(self.scalar, self.y, place)
        acc = tile.zeros(rows) if span is None else self._sum(tile, rows, channel, column, tap, span)
        for r, row in enumerate(acc):
            for v, register in enumerate(row):
                p = f.gep(self.scalar, out, r * self.y_strides[-2] + v * tile.lanes)
                partial = tile.is_partial(v)
                if span is not None:
                    register = f.op(f"fadd {tile.vector} {tile.load(p, partial)}, {register}")
                tile.store(register, p, partial)

    def _sum(self, tile: Tile, rows: int, channel: Any, column: Any, tap: list[Any], span: tuple[Any, Any]) -> Rows:
        f = self.f
        *outer, last = range(len(self.count))
        # Along the last axis, the tap reads inside of x for positions [start, stop).
        shift = f.sub(f.mul(tap[last], self.apart[last]), self.low[last])
        start, stop = self._inside(last, shift)
        # A tile with fewer accumulators than keep all units busy takes sums over several pixels at a time.
        apart = max(1, f.target.chains // (rows * tile.vectors))
        types = [(tile.vector, register) for _ in range(apart) for row in tile.zeros(rows) for register in row]
        with f.for_(span[0], span[1], 1, types, "line") as line:
            image, *at = unravel(f, line.index, [self.images, *self.count[:-1]])
            source: Any = f.add(channel, f.mul(image, self.x_strides[0]))
            weights: Any = f.add(column, f.mul(image, self.g_strides[0]))
            end = stop
            for k in outer:
                there = f.sub(f.add(f.mul(at[k], self.step[k]), f.mul(tap[k], self.apart[k])), self.low[k])
                source = f.add(source, f.mul(there, self.x_strides[k + 1]))
                weights = f.add(weights, f.mul(at[k], self.g_strides[k + 1]))
                if self._may_leave(k):
                    inside = f.op(f"icmp ult i64 {there}, {f.extent(self.size[k])}")
                    end = f.op(f"select i1 {inside}, i64 {end}, i64 {start}")
            source = f.add(source, f.mul(shift, self.x_strides[-2]))

            def add(pixel: Any, sums: Sequence[str]) -> list[str]:
                names = iter(sums)
                x = self._at(self.x, f.add(source, f.mul(pixel, self.step[last] * self.x_strides[-2])))
                g = self._at(self.g, f.add(weights, f.mul(pixel, self.g_strides[-2])))
                vectors = [
                    tile.load(f.gep(self.scalar, g, v * tile.lanes), tile.is_partial(v)) for v in range(tile.vectors)
                ]
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
