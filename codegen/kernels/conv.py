"""Direct convolution, channels last: the kernel `conv`.

    y[n, o…, c] = Σ over taps t… and input channels i of x[n, o·stride + t·dilation - low, i] · w[t…, i, c]

A register tile is a number of adjacent pixels along the last spatial axis by a panel of output channels. The weights
are packed like a matrix product's: [P, taps…, I, nr], or [G, P, …] for groups. Padding is never read: along the last
axis it is known at compile time which taps read which pixels, so that tiles at the border have code of their own; along
the other axes the range of taps is computed for each row. Where adjacent taps are valid for the same pixels, taps and
channels are contiguous in both x and w, and are summed in one loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from gluonjit.codegen.kernels.epilogue import Epilogue, find_anchor
from gluonjit.codegen.kernels.matmul import in_units, panel_variants, share, unravel
from gluonjit.codegen.kernels.open_convolution import Opening, with_sizes
from gluonjit.codegen.kernels.pixel_tiles import Axis, Kind, PixelTiles
from gluonjit.codegen.kernels.tiles import RUN, Fetch, Rows, Tile, unit_type
from gluonjit.codegen.loops.any_size import opened_axis
from gluonjit.codegen.text.kernel_code import AnySize, writes
from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.ir.annotations import GUARD, STRIDES
from gluonjit.ir.dims import hint
from gluonjit.ir.graph import Op
from gluonjit.ir.kernels.product_plans import Conv
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import F32
from gluonjit.ir.windows import row_major, strides_of


def _any_images(op: Op, target: Machine) -> AnySize | None:
    """The op with an open number of images; None where one code would not do for others."""
    body, sizes = op.regions[0], dict[str, int]()
    anchor = find_anchor(body)
    x, y = anchor.operands[0], anchor.result
    images = opened_axis("i", y.shape[0], 1, sizes)
    if not sizes or STRIDES.of(op) or GUARD.of(op) is not None:
        return None
    opened = with_sizes(body, anchor, Opening(y.shape, x.shape, (images, *y.shape[1:-1]), x.shape[-1], y.shape[-1]))
    return None if opened is None else AnySize.of(op, opened, sizes)


@writes(Conv, for_any_size=_any_images)
def lower_conv(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module."""
    _Direct(module.function(name), op).write()


def spatial_axes(anchor: Any) -> list[Axis]:
    x, w = anchor.operands
    y, a = anchor.result, anchor.attrs
    return [
        Axis(x.shape[k + 1], y.shape[k + 1], w.shape[k], a["stride"][k], a["low"][k], a["dilation"][k])
        for k in range(x.ndim - 2)
    ]


class Place(NamedTuple):
    """The position of a row of pixels in result, input and weights."""

    image: Any
    at: Sequence[Any]
    """Output positions along the outer axes."""
    channel: Any
    """The first channel of the panel."""
    source: Any
    """Offset of image and group in x."""
    w: str
    """The panel's weights."""
    before: Any = 0
    """The number of the task's register tiles before this row of pixels."""


class _Direct:
    def __init__(self, f: Function, op: Op) -> None:
        self.f = f
        body, plan = op.regions[0], Conv.of(op)
        anchor = find_anchor(body)
        x, w = anchor.operands[0], body.inputs[1]
        self.dtype = x.dtype
        self.unit = unit_type(x.dtype, f.target)
        factors = f.target.multiplication(x.dtype).terms
        self.unit_bytes = x.dtype.itemsize * factors
        self.pixels, self.columns, self.block, self.halved = plan.pixels, plan.columns, plan.block, plan.halved
        *self.outer, self.axis = spatial_axes(anchor)
        self.groups = anchor.attrs["groups"]
        self.images, self.channels = x.shape[0], x.shape[-1] // factors
        """Of an input, whose sizes and those of weights count units (`tiles.unit_type`)."""
        self.depth = self.channels // self.groups
        self.filters = anchor.result.shape[-1] // self.groups
        self.x_strides = in_units(f, strides_of(op, body.inputs.index(x)), factors)
        panel = (w.shape if factors == 1 else w.shape[:-1])[-3 - len(self.outer) :]
        self.w_strides = row_major(panel)
        self.panels = w.shape[0 if self.groups == 1 else 1]
        self.panel_size = math.prod(panel)
        self.x, self.w = f.table(body.inputs.index(x)), f.table(1)
        self.epilogue = Epilogue(f, op, anchor)
        merge = self.groups == 1 and self.axis.dilation == 1 and self.x_strides[-2] == self.channels
        self.tiles = PixelTiles(f, self.axis, self.pixels, merge)
        terms = self.depth * math.prod(axis.taps for axis in (*self.outer, self.axis))
        self.is_long = self.dtype is F32 and terms > RUN
        # Many weights are larger than the cache: each tile of a task prefetches its part of the next panel.
        tiles = self.block * (-(-hint(self.axis.out) // self.pixels) if self.outer else 1)
        self.fetched = -(-self.columns * self.unit_bytes // tiles) if w.type.nbytes > f.target.l1 else 0
        """Bytes of the next panel's weights that a tile prefetches per term."""

    def write(self) -> None:
        f = self.f
        # A task is a block of rows of pixels, or of tiles if there is only one row.
        units = math.prod(axis.out for axis in self.outer) if self.outer else self.tiles.units
        blocks = f.div(f.add(units, self.block - 1), self.block)
        first, last = share(f, f.mul(self.images * self.groups * self.panels, blocks))
        with f.for_(first, last, hint="task") as task:
            image, block, group, panel = unravel(f, task.index, [self.images, blocks, self.groups, self.panels])
            w = f.gep(self.unit, self.w, f.mul(f.add(f.mul(group, self.panels), panel), self.panel_size))
            channel = f.add(f.mul(group, self.filters), f.mul(panel, self.columns))
            source = f.add(f.mul(image, self.x_strides[0]), f.mul(group, self.depth))
            start = f.mul(block, self.block)
            stop = f.min(f.add(start, self.block), units)
            for tile in panel_variants(f, self.dtype, self.filters, self.columns, panel, self.halved, self.pixels):
                if not self.outer:
                    self._row(tile, Place(image, [], channel, source, w, f.sub(0, start)), self.tiles.span(start, stop))
                    continue
                with f.for_(start, stop, hint="row") as row:
                    at = unravel(f, row.index, [axis.out for axis in self.outer])
                    before = f.mul(f.sub(row.index, start), self.tiles.count)
                    self._row(tile, Place(image, at, channel, source, w, before), None)

    def _row(self, tile: Tile, place: Place, span: tuple[Any, Any] | None) -> None:
        """All tiles of a row of pixels, or those in [span[0], span[1])."""
        f = self.f
        for kind, number, pixel in self.tiles.each(span):
            index = [place.image, *place.at, pixel, place.channel]
            self.epilogue.prefetch(tile, kind.pixels, index)
            here = place._replace(before=f.add(place.before, number))
            acc = self._sum(tile, kind, here, pixel, [], tile.zeros(kind.pixels))
            self.epilogue.write(tile, acc, index)

    def _sum(self, tile: Tile, kind: Kind, place: Place, pixel: Any, taps: list[Any], acc: Rows) -> Rows:
        """acc + the sum over the taps of the outer axes that `taps` does not fix."""
        f = self.f
        if len(taps) == len(self.outer):
            return self._sum_line(tile, kind, place, pixel, taps, acc)
        axis = self.outer[len(taps)]
        first, last = axis.tap_range(f, place.at[len(taps)])
        if (first, last) == (0, 1):
            return self._sum(tile, kind, place, pixel, [*taps, 0], acc)
        with f.for_(first, last, 1, [(tile.vector, v) for row in acc for v in row], "tap") as loop:
            names = iter(loop.carried)
            inner = [[next(names) for _ in row] for row in acc]
            inner = self._sum(tile, kind, place, pixel, [*taps, loop.index], inner)
            loop.next(*(v for row in inner for v in row))
        names = iter(loop.results)
        return [[next(names) for _ in row] for row in acc]

    def _sum_line(self, tile: Tile, kind: Kind, place: Place, pixel: Any, taps: list[Any], acc: Rows) -> Rows:
        """acc + the sum over the taps along the last axis."""
        f, axis = self.f, self.axis
        source, w = place.source, place.w
        for outer, o, tap, step, w_step in zip(self.outer, place.at, taps, self.x_strides[1:], self.w_strides):
            position = f.add(f.mul(o, outer.stride), f.sub(f.mul(tap, outer.dilation), outer.low))
            source = f.add(source, f.mul(position, step))
            w = f.gep(self.unit, w, f.mul(tap, w_step))
        step = axis.stride * self.x_strides[-2]
        source = f.add(source, f.mul(pixel, step))
        for segment in kind.segments:
            # The pointer starts at the first pixel that reads inside the input, so that it is inside of x.
            one = segment.active[0]
            terms = (segment.last - segment.first) * self.depth
            weights = f.gep(self.unit, w, segment.first * self.w_strides[-3])
            fetch = None
            if self.fetched:
                offset = f.add(f.mul(place.before, terms * self.fetched), self.panel_size * self.unit_bytes)
                # Not `inbounds`: there need not be a next panel.
                fetch = Fetch(f.op(f"getelementptr i8, ptr {weights}, i64 {offset}"), self.fetched, nearest=True)
            acc = tile.contract(
                acc,
                f.gep(self.unit, self.x, f.add(source, axis.at(one, segment.first) * self.x_strides[-2])),
                [(r - one) * step for r in range(kind.pixels)],
                weights,
                terms,
                w_step=self.columns,
                aligned=True,
                fetch=fetch,
                active=segment.active,
                apart=self.is_long and 2 * terms >= RUN,
            )
        return acc
