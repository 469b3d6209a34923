"""Gradients of convolution weights by Winograd's algorithm, channels last: the kernel `winograd_gradient`.

    y = Gᵀ [Σ over tiles of (A g Aᵀ) ⊙ (Bᵀ d B)] G          (`frontend/common/cook_toom.py`)

This is the transpose of what a convolution does to its weights: g is a tile of the cotangent, d the window of the input
that it belongs to. In the graph it is a `conv` that sums over the batch, as in `weight_gradient.py`.

Three steps: windows and tiles are transformed, [positions, tiles, channels]; position by position, a matrix product
with tiles as terms adds to sums, [positions, channels of the input, channels of the cotangent]; and when all tiles have
been added, the sums are transformed. All threads do each step together, in memory that they share
(`ir/kernels/winograd_gradient_memory.py`). They take a block of tiles at a time, so that near caches hold what a
product reads, memory does not grow with the batch, and the rounding error of long sums is bounded. Threads share
positions, panels and channels, never a sum.

One kernel serves any number of channels, and of pixels (`_with_any_channels`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gluonjit.codegen.kernels.epilogue import find_anchor
from gluonjit.codegen.kernels.linear_map import Walk, map_both_ways
from gluonjit.codegen.kernels.matmul import panel_variants, share, unravel
from gluonjit.codegen.kernels.pixel_tiles import Axis
from gluonjit.codegen.kernels.tiles import Rows, Tile, prefetch, steps
from gluonjit.codegen.kernels.winograd_channels import BLOCK, BLOCK_UNIT, open_size
from gluonjit.codegen.kernels.winograd_windows import (
    Channels,
    Image,
    Span,
    Tiled,
    Windows,
    clear,
    place_of,
    share_transform,
    vectors,
)
from gluonjit.codegen.loops.any_size import opened_axis
from gluonjit.codegen.text.kernel_code import AnySize, writes
from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.codegen.threads.calls import barrier
from gluonjit.ir.annotations import GUARD, STRIDES
from gluonjit.ir.dims import Dim, named
from gluonjit.ir.graph import Builder, Op
from gluonjit.ir.kernels.product_plans import WinogradGradient
from gluonjit.ir.kernels.winograd_gradient_memory import OPEN, WinogradGradientMemory
from gluonjit.ir.machine import Machine
from gluonjit.ir.windows import row_major


def _memory(op: Op, target: Machine) -> WinogradGradientMemory:
    """The memory of an op whose channels are known, or open."""
    plan, (x, g) = WinogradGradient.of(op), op.operands
    taps = find_anchor(op.regions[0]).result.shape[:-2]
    extents = [m + r - 1 for m, r in zip(plan.outputs[-len(taps) :], taps, strict=True)]
    both = (1, extents[0]) if len(extents) == 1 else (extents[0], extents[1])
    return WinogradGradientMemory.of(plan, both, x.shape[-1], g.shape[-1], x.dtype.itemsize, target)


def _with_any_channels(op: Op, target: Machine) -> AnySize | None:
    """The op with open channels, images and pixels; None where one code would not do for others."""
    anchor = find_anchor(op.regions[0])
    if STRIDES.of(op) or GUARD.of(op) is not None or WinogradGradient.of(op).wide or op.regions[0].ops != (anchor,):
        return None
    plan, (x, g) = WinogradGradient.of(op), op.operands
    sizes: dict[str, int] = {}
    line = target.line // x.dtype.itemsize
    channels = opened_axis("c", x.shape[-1], line, sizes)
    filters = opened_axis("f", g.shape[-1], plan.columns, sizes)
    # Transforms have no remainder then, and rows of windows must be whole lines.
    if len(sizes) < 2 or plan.width * plan.columns % line:
        return None
    memory = _memory(op, target)
    for name, array in zip(OPEN, (memory.x, memory.g, memory.sums), strict=True):
        sizes |= array.open_sizes(name, target)
    sizes[BLOCK] = plan.block * BLOCK_UNIT
    images, both = opened_axis("n", x.shape[0], 1, sizes), zip(x.shape[1:-1], g.shape[1:-1], strict=True)
    pixels = [open_size(f"p{k}", n, i - n, sizes) for k, (i, n) in enumerate(both)]
    shapes = [
        (images, *(n + (a - b) for n, a, b in zip(pixels, x.shape[1:-1], g.shape[1:-1], strict=True)), channels),
        (images, *pixels, filters),
    ]
    b = Builder(op.regions[0].name, op.regions[0].level)
    inputs = [b.input(v.name, v.type.with_shape(s)) for v, s in zip(op.regions[0].inputs, shapes, strict=True)]
    body = b.build(b.emit("conv", inputs, anchor.attrs))
    return AnySize.of(op, body, sizes, replace(plan, block=1))


@writes(WinogradGradient, for_any_size=_with_any_channels)
def lower_winograd_gradient(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module. Its table ends with the thread's scratch, the memory that threads share, and
    the team."""
    _Gradient(module.function(name), op).write()


class _Gradient:
    def __init__(self, f: Function, op: Op) -> None:
        self.f = f
        body, plan = op.regions[0], WinogradGradient.of(op)
        anchor = find_anchor(body)
        x, g = anchor.operands
        self.dtype = x.dtype
        self.rows, self.columns = plan.rows, plan.columns
        self.images, *size, self.channels = x.shape
        _, *count, self.filters = g.shape
        for_any = isinstance(self.channels, Dim) and isinstance(self.filters, Dim)
        self.block: Any = f.div(named(BLOCK), BLOCK_UNIT) if for_any else plan.block
        self.taps, low = anchor.result.shape[:-2], anchor.attrs["low"]
        axes = [Axis(n, m, r, 1, k, 1) for n, m, r, k in zip(size, count, self.taps, low, strict=True)]
        # A line of pixels is an image of one row.
        high, long = axes if len(axes) == 2 else (Axis(1, 1, 1, 1, 0, 1), axes[0])
        self.down, self.along = Tiled(f, high, plan.height), Tiled(f, long, plan.width)
        self.count: Any = f.mul(f.mul(self.images, self.down.count), self.along.count)
        memory = _memory(op, f.target)
        self.positions = memory.x.positions
        self.x_layout, self.g_layout, self.sums_layout = memory.x, memory.g, memory.sums
        self.y = f.table(len(body.inputs))
        scratch, shared, self.team = (f.table(len(body.inputs) + 1 + k) for k in range(3))
        self.v = shared
        self.u = f.gep("i8", self.v, memory.x.nbytes)
        self.wide = plan.wide
        own_sums = f.gep("i8", scratch, memory.zeros + memory.window)
        self.sums = own_sums if memory.at_once else f.gep("i8", self.u, memory.g.nbytes)
        self.scalar, self.item = Tile(f, x.dtype, 1).scalar, x.dtype.itemsize
        self.align = f.target.lanes(x.dtype) * self.item
        self.panels = f.div(f.add(self.filters, self.columns - 1), self.columns)
        own = (scratch, memory.zeros)
        clear(f, x.dtype, *own)
        self.windows = []
        """The transforms of x and of g."""
        for v, memory_of, *cuts in (
            (x, (self.v, memory.x), self.down.of_input, self.along.of_input),
            (g, (self.u, memory.g), self.down.of_cotangent, self.along.of_cotangent),
        ):
            image, *row, pixel, _ = row_major(v.shape)
            pointer, strides = f.table(body.inputs.index(v)), (image, row[0] if row else 0, pixel)
            images = Image(pointer, strides, self.images, v.shape[-1], self.dtype)
            self.windows.append(Windows(f, images, (cuts[0], cuts[1]), memory_of, own))

    def write(self) -> None:
        f = self.f
        if self.wide:
            self._transform(Span(0, self.count))
            self._at_once()
            return
        with f.for_(0, self.count, self.block, hint="block") as block:
            span = Span(block.index, f.min(f.add(block.index, self.block), self.count))
            self._transform(span)
            is_first = f.op(f"icmp eq i64 {block.index}, 0")
            with f.for_(*share(f, f.mul(self.positions, self.panels)), hint="product") as task:
                position, panel = unravel(f, task.index, [self.positions, self.panels])
                sums = f.gep("i8", self.sums, f.mul(panel, self.columns * self.item))
                slots = f.sub(span.last, span.first)
                self._product(position, panel, (0, self.channels), slots, sums, is_first)
            barrier(f, self.team)
        with f.for_(*share(f, self.channels), hint="channel") as c:
            self._output(c.index, f.gep("i8", self.sums, f.mul(c.index, self.sums_layout.tile)), (0, self.filters))

    def _transform(self, span: Span) -> None:
        """Transforms these tiles, and their windows."""
        for windows in self.windows:
            share_transform(self.f, self.dtype, span, windows.depth, windows.transform)
        barrier(self.f, self.team)

    def _at_once(self) -> None:
        """Sums over all tiles, and their transforms, of a line of the input's channels and some panels at a time. The
        panels change least often, so that the second-level cache has their tiles."""
        f, line, wide = self.f, self.x_layout.group, self.wide * self.columns
        counts = [f.div(f.add(n, by - 1), by) for n, by in ((self.filters, wide), (self.channels, line))]
        with f.for_(*share(f, f.mul(*counts)), hint="part") as part:
            across, down = unravel(f, part.index, counts)
            first, low = f.mul(down, line), f.mul(across, wide)
            channels = first, f.min(f.add(first, line), self.channels)
            panel = f.mul(across, self.wide)
            panels = f.min(f.sub(self.panels, panel), self.wide)
            with f.for_(0, self.positions, hint="position") as position, f.for_(0, panels, hint="panel") as k:
                sums = f.gep("i8", self.sums, f.mul(k.index, self.columns * self.item))
                self._product(position.index, f.add(panel, k.index), channels, self.count, sums, None)
            with f.for_(*channels, hint="channel") as c:
                sums = f.gep("i8", self.sums, f.mul(f.sub(c.index, first), self.sums_layout.tile))
                self._output(c.index, sums, (low, f.min(f.add(low, wide), self.filters)))

    def _product(
        self, position: Any, panel: Any, channels: Channels, slots: Any, sums: str, is_first: str | None
    ) -> None:
        """Adds the products of the tiles in slots [0, slots) to the sums of a position and a panel, for some channels
        of the input. `sums`: those of the first position and channel. `is_first`: whether there are none yet; None:
        there never are any."""
        f = self.f
        v = f.gep("i8", self.v, f.mul(position, self.x_layout.position))
        u = f.gep("i8", self.u, f.mul(position, self.g_layout.position))
        u = place_of(f, u, self.g_layout, 0, f.mul(panel, self.columns), self.item)
        sums = f.gep("i8", sums, f.mul(position, self.sums_layout.position))
        for narrow in panel_variants(f, self.dtype, self.filters, self.columns, panel):
            # Columns and rows that do not exist are whatever is in memory, and so are their sums, which none reads.
            tile = Tile(f, self.dtype, narrow.vectors)
            with f.for_(*channels, self.rows, hint="channel") as c:
                found = self._sum(tile, place_of(f, v, self.x_layout, 0, c.index, self.item), u, slots)
                place = f.gep("i8", sums, f.mul(f.sub(c.index, channels[0]), self.sums_layout.tile))
                self._add(tile, place, found, is_first)

    def _sum(self, tile: Tile, v: str, u: str, slots: Any) -> Rows:
        """A register tile's sums over a block."""
        f = self.f
        types = [(tile.vector, register) for row in tile.zeros(self.rows) for register in row]
        with f.for_(0, slots, 1, types, "tile") as t:
            x = f.gep("i8", v, f.mul(t.index, self.x_layout.tile))
            g = f.gep("i8", u, f.mul(t.index, self.g_layout.tile))
            if self.wide:  # what the product of the next position reads
                prefetch(f, x, self.x_layout.position)
            vectors = [tile.load(f.gep("i8", g, k * self.align), align=self.align) for k in range(tile.vectors)]
            names, found = iter(t.carried), []
            for r in range(self.rows):
                factor = tile.splat(f.load(self.scalar, f.gep(self.scalar, x, r), self.item))
                found += [tile.multiply_add(factor, w, next(names)) for w in vectors]
            t.next(*found)
        names = iter(t.results)
        return [[next(names) for _ in range(tile.vectors)] for _ in range(self.rows)]

    def _add(self, tile: Tile, sums: str, found: Rows, begins: str | None) -> None:
        """Adds to the sums of a register tile, or begins them."""
        f = self.f
        if begins is None:
            self._store(tile, sums, found, False)
            return
        for condition, adds in ((begins, False), (f.op(f"xor i1 {begins}, true"), True)):
            with f.if_(condition):
                self._store(tile, sums, found, adds)

    def _store(self, tile: Tile, sums: str, found: Rows, adds: bool) -> None:
        f = self.f
        for place, row in zip(steps(f, sums, self.sums_layout.tile, self.rows), found, strict=True):
            for k, value in enumerate(row):
                p = f.gep("i8", place, k * self.align)
                if adds:
                    value = f.op(f"fadd {tile.vector} {tile.load(p, align=self.align)}, {value}")
                f.store(tile.vector, value, p, self.align)

    def _output(self, c: Any, sums: str, filters: Channels) -> None:
        """Gᵀ m G of a channel of the input and some of the cotangent. `sums`: of the first of them."""
        f, position = self.f, self.sums_layout.position
        down, along = (tuple(zip(*axis.transform.weight)) for axis in (self.down, self.along))
        target = f.gep(self.scalar, self.y, f.mul(c, self.filters))
        step = self.channels * self.filters * self.item
        for tile, o in vectors(f, self.dtype, filters, self.filters):

            def load(top: str, tile: Tile = tile) -> list[str]:
                places = steps(f, top, self.along.extent * position, self.down.extent)
                return [tile.load(p, align=self.align) for p in places]

            def store(_: Any, place: str, y: list[str], tile: Tile = tile) -> None:
                for p, v in zip(steps(f, place, step, len(along)), y, strict=True):
                    tile.store(v, p, tile.is_partial(0))

            rows = Walk(f.gep(self.scalar, target, o), len(along) * step)
            source = f.gep(self.scalar, sums, f.sub(o, filters[0]))
            map_both_ways(tile, down, along, Walk(source, position), load, rows, store)
