"""Gradients of depthwise filters, channels last: the kernel `depthwise_gradient`.

    y[t…, c] = Σ over images n and positions p… of x[n, p·s + t·d - low, c] · g[n, p…, c]

Lanes are channels. Each pixel of g is loaded once, and multiplied by the pixels of x that all taps, or a group of them,
read there; a group has a register for the sums of each of its taps. Taps that read outside of x are no terms: at both
ends of a row of pixels some columns of taps have loops of their own, and rows of taps that are not all inside of x are
summed one by one.

A row of pixels is summed up before it is added to y, so rounding errors grow with the length of rows and with their
number, not with the product. A block of rows stays in the second-level cache while all channels are summed over it.
Threads share channels, so sums do not depend on the number of threads.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from gluonjit.codegen.kernels.matmul import panel_variants, share, unravel
from gluonjit.codegen.kernels.tiles import Tile, prefetch
from gluonjit.codegen.kernels.weight_gradient import may_leave, positions_inside
from gluonjit.codegen.text.kernel_code import writes
from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.ir.graph import Op
from gluonjit.ir.kernels.product_plans import DepthwiseGradient
from gluonjit.ir.windows import row_major


@writes(DepthwiseGradient)
def lower_depthwise_gradient(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module. Its table: x, g, y."""
    _Gradient(module.function(name), op).write()


class _Gradient:
    def __init__(self, f: Function, op: Op) -> None:
        self.f = f
        plan = DepthwiseGradient.of(op)
        self.rows, self.columns, self.block, self.ahead = plan.rows, plan.columns, plan.block, plan.ahead
        x, g = op.operands
        self.dtype = x.dtype
        self.images, *self.size, self.channels = x.shape
        _, *self.count, _ = g.shape
        self.taps, self.step = op.attrs["taps"], op.attrs["stride"]
        self.low, self.apart = op.attrs["low"], op.attrs["dilation"]
        self.x_strides, self.g_strides = row_major(x.shape), row_major(g.shape)
        self.x, self.g, self.y = f.table(0), f.table(1), f.table(2)
        self.lanes = f.target.lanes(x.dtype)
        self.scalar = Tile(f, x.dtype, 1).scalar

    def write(self) -> None:
        f = self.f
        lines = self.images * math.prod(self.count[:-1])
        first, last = share(f, f.div(f.add(self.channels, self.lanes - 1), self.lanes))
        with f.for_(first, last, hint="panel") as panel:
            for tile in panel_variants(f, self.dtype, self.channels, self.lanes, panel.index):
                for k in range(math.prod(self.taps)):
                    tile.store("zeroinitializer", self._sums(k, panel.index), tile.is_partial(0))
        with f.for_(0, lines, self.block, hint="block") as block:
            stop = f.min(f.add(block.index, self.block), lines)
            with f.for_(first, last, hint="panel") as panel:
                for tile in panel_variants(f, self.dtype, self.channels, self.lanes, panel.index):
                    with f.for_(block.index, stop, hint="line") as line:
                        self._line(tile, panel.index, line.index)

    def _sums(self, tap: int, panel: Any) -> str:
        """Where y has those of a panel of channels for the tap of this number."""
        return self.f.gep(self.scalar, self.y, self.f.add(tap * self.channels, self.f.mul(panel, self.lanes)))

    def _line(self, tile: Tile, panel: Any, line: Any) -> None:
        """Adds the products of a row of pixels of g to y."""
        f = self.f
        image, *at = unravel(f, line, [self.images, *self.count[:-1]])
        channel = f.mul(panel, self.lanes)
        g = f.add(f.mul(image, self.g_strides[0]), channel)
        for position, step in zip(at, self.g_strides[1:]):
            g = f.add(g, f.mul(position, step))
        x = f.add(f.mul(image, self.x_strides[0]), channel)
        rows = list(itertools.product(*map(range, self.taps[:-1])))
        following = self._following(panel, line) if self.ahead else []
        for first in range(0, len(rows), self.rows):
            group = rows[first : first + self.rows]
            found = [self._row(x, at, row) for row in group]
            for columns in self._columns():
                fetched = following if not first and not columns.start else []
                together = [(first + k, source) for k, (source, _) in enumerate(found)]
                conditions = [inside for _, inside in found if inside is not None]
                if not conditions:
                    self._add(tile, panel, g, together, columns, fetched)
                    continue
                whole = functools.reduce(lambda a, b: f.op(f"and i1 {a}, {b}"), conditions)
                with f.if_(whole):
                    self._add(tile, panel, g, together, columns, fetched)
                if len(group) == 1:
                    continue
                with f.if_(f.op(f"xor i1 {whole}, true")):
                    for one, (_, inside) in zip(together, found):
                        with f.if_(inside or "true"):
                            self._add(tile, panel, g, [one], columns)

    def _following(self, panel: Any, line: Any) -> list[tuple[str, int]]:
        """A panel's part of the row of pixels of g that lies a block behind this one, and of as much of x: where it
        begins, and its bytes for each pixel of a row."""
        f, vector, found = self.f, self.lanes * self.dtype.itemsize, []
        there, part = f.add(line, self.block), f.mul(panel, self.count[-1])
        for pointer, pixels in ((self.g, 1), (self.x, math.prod(self.step))):
            size = vector * pixels
            begin = f.add(
                f.mul(there, self.count[-1] * self.channels * self.dtype.itemsize * pixels), f.mul(part, size)
            )
            found.append((f.op(f"getelementptr i8, ptr {pointer}, i64 {f.extent(begin)}"), size))
        return found

    def _columns(self) -> Iterator[range]:
        """Groups of taps along the last axis."""
        for first in range(0, self.taps[-1], self.columns):
            yield range(first, min(first + self.columns, self.taps[-1]))

    def _row(self, x: Any, at: Sequence[Any], row: Sequence[int]) -> tuple[Any, str | None]:
        """Where the pixels of x begin that a row of taps reads for a row of pixels at `at`, and whether there are such
        (i1; None if there always are)."""
        f, inside = self.f, None
        for k, (position, tap) in enumerate(zip(at, row)):
            there = f.sub(f.add(f.mul(position, self.step[k]), tap * self.apart[k]), self.low[k])
            x = f.add(x, f.mul(there, self.x_strides[k + 1]))
            if may_leave(self.size[k], self.count[k], self.taps[k], self.step[k], self.apart[k], self.low[k]):
                condition = f.op(f"icmp ult i64 {there}, {f.extent(self.size[k])}")
                inside = condition if inside is None else f.op(f"and i1 {inside}, {condition}")
        return x, inside

    def _add(
        self,
        tile: Tile,
        panel: Any,
        g: Any,
        rows: Sequence[tuple[int, Any]],
        columns: range,
        fetched: Sequence[tuple[str, int]] = (),
    ) -> None:
        """Adds the products of a row of pixels of g to the sums of these rows (number, where its pixels of x begin) and
        columns of taps, and meanwhile prefetches what is `fetched`."""
        f = self.f
        shifts = [column * self.apart[-1] - self.low[-1] for column in columns]
        spans = [positions_inside(f, m, self.step[-1], self.size[-1], self.count[-1]) for m in shifts]
        begin, end = spans[0][0], spans[0][1]
        for start, stop in spans[1:]:
            begin, end = f.max(begin, start), f.min(end, stop)
        sums = [["zeroinitializer"] * len(columns) for _ in rows]

        def add(first: Any, last: Any, some: Sequence[int]) -> None:
            """The products of the pixels [first, last) for some columns."""
            if isinstance(first, int) and isinstance(last, int) and first >= last:
                return
            cells = [(r, c) for r in range(len(rows)) for c in some]
            with f.for_(first, last, 1, [(tile.vector, sums[r][c]) for r, c in cells], "pixel") as pixel:
                carried = dict(zip(cells, pixel.carried))
                for part, size in fetched if len(some) == len(columns) else ():
                    for at in range(0, size, f.target.line):
                        prefetch(f, part, f.add(f.mul(pixel.index, size), at), nearest=False)
                weights = self._load(tile, self.g, f.add(g, f.mul(pixel.index, self.g_strides[-2])))
                place = f.mul(pixel.index, self.step[-1] * self.x_strides[-2])
                for r, (_, source) in enumerate(rows):
                    for c in some:
                        at = f.add(f.add(source, place), f.mul(shifts[c], self.x_strides[-2]))
                        carried[r, c] = tile.multiply_add(self._load(tile, self.x, at), weights, carried[r, c])
                pixel.next(*carried.values())
            for (r, c), total in zip(cells, pixel.results):
                sums[r][c] = total

        for c, (start, stop) in enumerate(spans):
            add(start, f.min(begin, stop), [c])
        add(begin, end, range(len(columns)))
        for c, (start, stop) in enumerate(spans):
            add(f.max(f.max(begin, end), start), stop, [c])
        for r, (row, _) in enumerate(rows):
            for c, column in enumerate(columns):
                place = self._sums(row * self.taps[-1] + column, panel)
                before = tile.load(place, tile.is_partial(0))
                total = f.op(f"fadd {tile.vector} {before}, {sums[r][c]}")
                tile.store(total, place, tile.is_partial(0))

    def _load(self, tile: Tile, pointer: str, offset: Any) -> str:
        # Not `inbounds`: the terms of an offset may lie outside where the whole does not.
        place = self.f.op(f"getelementptr {self.scalar}, ptr {pointer}, i64 {self.f.extent(offset)}")
        return tile.load(place, tile.is_partial(0))
