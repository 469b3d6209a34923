"""Gradients of convolution weights, channels last: the kernel `weight_gradient`.

    y[t…, c, o] = Σ over images n and positions p… of x[n, p·s + t·d - low, c] · g[n, p…, o]

In the graph this is a `conv` that sums over the batch: its `stride` is d, its `dilation` is s, and g is its weight. For
each tap t it is a matrix product with the pixels as terms. A register tile is a number of channels c by a panel of
channels o; for each pixel, vectors of g are loaded and single elements of x broadcast. Pixels that a tap reads outside
of x are no terms. If x has one channel, the rows of a tile are taps along the last axis instead, where all of these are
inside (`by_taps`).

Tiles are divided into groups, all taps of some channels c and o each, whose sums stay in the second-level cache, in
scratch memory (`ir/kernels/weight_gradient_memory.py`). All of them take their sums over one block of rows of x and g,
which they add, before the next one: what neighbours read of a block stays in the first-level cache. Pixels that are
read an eighth of a page apart or further would meet in few sets of the caches, and so would rows of y: what a group
reads of a block is then copied first, and y is written when the sums are complete. So are rows of g that would fill the
first-level cache. Where x is copied, so is g, and a list has for each tap which pixels of both are terms: a tile's sum
over a block is one loop then, however short rows of pixels are. Meanwhile each tile fetches its part of what is copied
next; without copies, of the next block, where one group has all tiles (`ahead`).

Threads share tiles, so sums do not depend on the number of threads, nor on the groups. What `_MANY` blocks add up goes
into totals, which bounds the rounding error of long sums.

Where channels are no multiple of a tile's rows, the last tile begins a little earlier, and repeats some of the one
before: two threads may then write the same bits to the same place. So all tiles are alike, and one kernel serves any
number of channels (`_with_any_size`), images and pixels, of tiles in a group, and of rows in a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

from gluonjit.codegen.kernels.epilogue import find_anchor
from gluonjit.codegen.kernels.matmul import panel_variants, share, unravel
from gluonjit.codegen.kernels.tiles import Rows, Tile, chains, prefetch
from gluonjit.codegen.loops.any_size import opened_axis
from gluonjit.codegen.text.kernel_code import AnySize, writes
from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.ir.annotations import GUARD, STRIDES
from gluonjit.ir.dims import LOWEST, Dim, Extent, divides, is_at_most, is_less, named
from gluonjit.ir.graph import Builder, Op
from gluonjit.ir.kernels.product_plans import WeightGradient
from gluonjit.ir.kernels.weight_gradient_memory import copied_channels
from gluonjit.ir.machine import Machine
from gluonjit.ir.windows import row_major, strides_of

_UNIT = LOWEST
"""What plans count is passed as a multiple of this, as it may be 1."""
_COUNTS = ("block", "high", "wide")
"""The fields of a plan that are open dimensions where channels are."""
_DEPTH = "copied"
"""The open dimension of `copied_channels`, as a multiple of `_UNIT`."""
_MANY = 64
"""Blocks after which what they added up goes into totals."""


def _with_any_size(op: Op, target: Machine) -> AnySize | None:
    """The op with open channels, images and pixels; None where one code would not do for others."""
    anchor = find_anchor(op.regions[0])
    plan, (x, g) = WeightGradient.of(op), op.operands
    if plan.by_taps or STRIDES.of(op) or GUARD.of(op) is not None or op.regions[0].ops != (anchor,):
        return None
    sizes: dict[str, int] = {}
    channels = opened_axis("c", x.shape[-1], target.line // x.dtype.itemsize, sizes)
    filters = opened_axis("f", g.shape[-1], plan.columns, sizes)
    if not sizes or not (divides(plan.columns, filters) and is_at_most(plan.rows, channels)):
        return None
    sizes |= {name: _UNIT * getattr(plan, name) for name in _COUNTS}
    sizes[_DEPTH] = _UNIT * copied_channels(plan, x.dtype.itemsize, target)
    images = opened_axis("i", x.shape[0], 1, sizes)
    pixels: list[tuple[Extent, Extent]] = []
    """Of the input and of the cotangent, along each axis."""
    for k, (n, m, step) in enumerate(zip(x.shape[1:-1], g.shape[1:-1], anchor.attrs["dilation"], strict=True)):
        there = m if n - step * m + step * LOWEST < 1 else opened_axis(f"p{k}", m, 1, sizes)
        pixels.append((step * there + (n - step * m), there))
    b = Builder(op.regions[0].name, op.regions[0].level)
    inputs = [
        b.input(v.name, v.type.with_shape((images, *size, n)))
        for v, size, n in zip(op.regions[0].inputs, zip(*pixels, strict=True), (channels, filters), strict=True)
    ]
    body = b.build(b.emit("conv", inputs, anchor.attrs))
    return AnySize.of(op, body, sizes, replace(plan, block=1, high=1, wide=1))


@writes(WeightGradient, for_any_size=_with_any_size)
def lower_weight_gradient(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module. Its table ends with the thread's scratch."""
    _Gradient(module.function(name), op).write()


class _Block(NamedTuple):
    """Rows of pixels, whose terms are to be added."""

    span: tuple[Any, Any]
    first: Sequence[Any]
    """The place of the first one: the image, and where in it."""


class _Pixels(NamedTuple):
    """What is to be prefetched."""

    first: str
    count: Any
    step: Any
    """Bytes from one to the next."""
    size: Any
    """Bytes of each."""
    share: Any
    """How many are for each task of a group."""


class _Listed(NamedTuple):
    """The terms that are listed are to be added."""

    following: Sequence[_Pixels]
    """What is to be prefetched meanwhile, by all tasks of the group on the block."""


class _Gradient:
    def __init__(self, f: Function, op: Op) -> None:
        self.f = f
        body, plan = op.regions[0], WeightGradient.of(op)
        anchor = find_anchor(body)
        x, g = anchor.operands
        self.dtype = x.dtype
        self.rows, self.columns = plan.rows, plan.columns
        self.images, *self.size, self.channels = x.shape
        _, *self.count, self.filters = g.shape
        self.taps = anchor.result.shape[:-2]
        self.step, self.apart = anchor.attrs["dilation"], anchor.attrs["stride"]
        self.low = anchor.attrs["low"]
        self.x_strides, self.g_strides = (strides_of(op, body.inputs.index(v)) for v in (x, g))
        self.y_strides = row_major(anchor.result.shape)
        self.row_step: Any = 1
        """Elements of x from what a row of a tile reads to the next one's."""
        if plan.by_taps:
            self.taps, self.channels = (*self.taps[:-1], 1), self.taps[-1]
            self.row_step = self.apart[-1] * self.x_strides[-2]
        self.x, self.g = f.table(body.inputs.index(x)), f.table(body.inputs.index(g))
        self.y = f.table(len(body.inputs))
        self.scalar, self.scalar_bytes = Tile(f, x.dtype, 1).scalar, x.dtype.itemsize
        self.block: Any = plan.block
        self.high: Any = plan.high
        self.wide: Any = plan.wide
        self.depth: Any = copied_channels(plan, x.dtype.itemsize, f.target)
        if isinstance(self.channels, Dim) or isinstance(self.filters, Dim):
            self.block, self.high, self.wide = (f.div(named(name), _UNIT) for name in _COUNTS)
            self.depth = f.div(named(_DEPTH), _UNIT)
        self._lines = [self.images, *self.count[:-1]]
        """What rows of pixels are numbered by."""
        self.panels = f.div(f.add(self.filters, self.columns - 1), self.columns)
        self.tiles = f.div(f.add(self.channels, self.rows - 1), self.rows)
        counts = ((self.tiles, self.high), (self.panels, self.wide))
        self.groups = [f.div(f.add(count, f.sub(each, 1)), each) for count, each in counts]
        self.copies_x, self.copies_g, self.ahead = plan.copies_x, plan.copies_g, plan.ahead
        self.sums = f.table(len(body.inputs) + 1)
        group = f.mul(f.mul(self.high, self.wide), math.prod(self.taps) * self.rows * self.columns)
        self.totals = f.gep(self.scalar, self.sums, group)
        self.g_copy = f.gep(self.scalar, self.totals, group)
        self.x_copy = self.g_copy
        self.most: Any = f.mul(self.block, self.count[-1])
        """Pixels of a block."""
        if self.copies_x:
            self.x_copy = f.gep(self.scalar, self.g_copy, f.mul(self.most, f.mul(self.wide, self.columns)))
            copied = f.mul(self.block, f.mul(self.size[-1], self.depth))
            self.counts = f.gep(self.scalar, self.x_copy, copied)
            self.places = f.gep("i64", self.counts, self.taps[-1])

    def write(self) -> None:
        f, each = self.f, self.rows * self.columns
        lines = self.images * math.prod(self.count[:-1])
        size = f.mul(f.mul(self.high, self.wide), math.prod(self.taps))
        vector = Tile(f, self.dtype, 1)
        first, last = share(f, f.mul(f.mul(*self.groups), size))
        with f.for_(f.div(first, size), f.div(f.add(last, f.sub(size, 1)), size), hint="group") as group:
            at = unravel(f, group.index, self.groups)
            whole = f.mul(group.index, size)
            begin, end = f.max(whole, first), f.min(f.add(whole, size), last)
            own = f.mul(f.sub(begin, whole), each), f.mul(f.sub(end, whole), each)
            with f.for_(*own, vector.lanes) as place:
                for memory in (self.sums, self.totals):
                    vector.store("zeroinitializer", f.gep(self.scalar, memory, place.index))
            with f.for_(0, lines, self.block, hint="block") as block:
                span = block.index, f.min(f.add(block.index, self.block), lines)
                if self.copies_g:
                    self._copy_g(at[1], span)
                if self.copies_x:
                    self._listed_tasks(at, f.sub(begin, whole), f.sub(end, whole), span)
                else:
                    line = unravel(f, block.index, self._lines)
                    self._tasks(at, f.sub(begin, whole), f.sub(end, whole), _Block(span, line))
                following = f.add(f.div(block.index, self.block), 1)
                with f.if_(f.op(f"icmp eq i64 {f.mod(following, _MANY)}, 0")):
                    self._move(own, self.sums, self.totals)
            self._move(own, self.totals, self.sums)
            self._tasks(at, f.sub(begin, whole), f.sub(end, whole))

    def _move(self, own: tuple[Any, Any], source: str, target: str) -> None:
        """Adds these elements of one memory to those of another, and leaves zeros."""
        f, vector = self.f, Tile(self.f, self.dtype, 1)
        with f.for_(*own, vector.lanes) as place:
            there, to = (f.gep(self.scalar, memory, place.index) for memory in (source, target))
            total = f.op(f"fadd {vector.vector} {vector.load(to)}, {vector.load(there)}")
            vector.store(total, to)
            vector.store("zeroinitializer", there)

    def _listed_tasks(self, group: list[Any], first: Any, last: Any, span: tuple[Any, Any]) -> None:
        """Tasks of a group on a block, those of a tap along all but the last axis at a time."""
        f = self.f
        each = f.mul(f.mul(self.high, self.wide), self.taps[-1])
        listed = _Listed(self._block_at(group, span[1]))
        with f.for_(f.div(first, each), f.div(f.add(last, f.sub(each, 1)), each), hint="tap") as tap:
            low, outer = f.mul(tap.index, each), unravel(f, tap.index, [*self.taps[:-1]])
            self._copy_x(group[0], outer, span)
            self._list(outer, span)
            self._tasks(group, f.max(low, first), f.min(f.add(low, each), last), listed)

    def _tasks(self, group: list[Any], first: Any, last: Any, terms: _Block | _Listed | None = None) -> None:
        """Those with these numbers in a group, one after the other."""
        f = self.f
        *outer, along = self.taps
        counts = [*outer, self.wide, self.high, along]
        begin = [("i64", k) for k in unravel(f, first, counts)]
        with f.for_(first, last, 1, begin, "task") as task:
            *tap, wide, high, at = task.carried
            self._task([*tap, at], (high, wide), group, task.index, terms)
            task.next(*_counted_on(f, task.carried, counts))

    def _copy_x(self, down: Any, tap: list[Any], span: tuple[Any, Any]) -> None:
        """Copies the channels of x that a group reads, of the rows of pixels that taps read at these places along all
        but the last axis."""
        f, lanes = self.f, Tile(self.f, self.dtype, 1).lanes
        first = self._first_channel(f.mul(down, self.high))
        count = f.min(self.depth, f.sub(self.channels, first))
        one, vector = Tile(f, self.dtype, 1), Tile(f, self.dtype, 1).vector
        with f.for_(*span, hint="line") as line:
            inside, source = self._line_of_x(unravel(f, line.index, self._lines), tap)
            with ExitStack() as stack:
                if inside is not None:
                    stack.enter_context(f.if_(inside))
                target = f.mul(f.sub(line.index, span[0]), f.mul(self.size[-1], self.depth))
                with f.for_(0, self.size[-1], hint="pixel") as pixel:
                    place = f.add(f.add(source, first), f.mul(pixel.index, self.x_strides[-2]))
                    x = self._at(self.x, place)
                    to = self._at(self.x_copy, f.add(target, f.mul(pixel.index, self.depth)))
                    with f.for_(0, f.sub(count, lanes - 1), lanes, hint="channel") as c:
                        f.store(vector, one.load(f.gep(self.scalar, x, c.index)), f.gep(self.scalar, to, c.index), 4)
                    with f.for_(f.mul(f.div(count, lanes), lanes), count, hint="channel") as c:
                        value = f.load(self.scalar, f.gep(self.scalar, x, c.index), one.bytes)
                        f.store(self.scalar, value, f.gep(self.scalar, to, c.index), one.bytes)

    def _block_at(self, group: list[Any], line: Any) -> list[_Pixels]:
        """What a group reads of the block that begins with this row of pixels, but for pixels that no tap reads."""
        f, (down, across), item = self.f, group, self.scalar_bytes
        place = unravel(f, line, self._lines)
        g = f.add(self._line_of_g(place), f.mul(f.mul(across, self.wide), self.columns))
        filters, bytes_of_g = f.mul(self.wide, self.columns), f.mul(self.g_strides[-2], item)
        tasks = f.mul(f.mul(self.high, self.wide), math.prod(self.taps))

        def share_of(pixels: Any) -> Any:
            return f.div(f.add(pixels, f.sub(tasks, 1)), tasks)

        found = [_Pixels(self._at(self.g, g), self.most, bytes_of_g, f.mul(filters, item), share_of(self.most))]
        if all(step <= taps for step, taps in zip(self.step, self.taps, strict=True)):
            _, there = self._line_of_x(place, [0] * (len(self.taps) - 1))
            x = self._at(self.x, f.add(there, self._first_channel(f.mul(down, self.high))))
            pixels = f.mul(self.block, f.mul(self.size[-1], math.prod(self.step[:-1])))
            step, size = f.mul(self.x_strides[-2], item), f.mul(self.depth, item)
            found.append(_Pixels(x, pixels, step, size, share_of(pixels)))
        return found

    def _fetch(self, following: Sequence[_Pixels], number: Any) -> None:
        """Prefetches a task's part of the next block. `number`: which task of the group it is."""
        f = self.f
        for pixels in following:
            first = f.mul(number, pixels.share)
            with f.for_(first, f.min(f.add(first, pixels.share), pixels.count), hint="pixel") as pixel:
                there = self._byte(pixels.first, f.mul(pixel.index, pixels.step))
                with f.for_(0, pixels.size, f.target.line, hint="part") as part:
                    prefetch(f, self._byte(there, part.index), 0, nearest=False)

    def _list(self, outer: list[Any], span: tuple[Any, Any]) -> None:
        """Lists, for each tap along the last axis, where the terms of a block are: bytes from the beginning of the
        copies of x, and from that of a panel's copy of g in the upper half of a word."""
        f, last, item = self.f, len(self.count) - 1, self.scalar_bytes
        with f.for_(0, self.taps[-1], hint="along") as along:
            shift = f.sub(f.mul(along.index, self.apart[last]), self.low[last])
            start, stop = self._inside(last, shift)
            begin = [("i64", k) for k in (0, *unravel(f, span[0], self._lines))]
            with f.for_(*span, 1, begin, "line") as line:
                number, *place = line.carried
                inside, _ = self._line_of_x(place, outer)
                end = stop if inside is None else f.op(f"select i1 {inside}, i64 {f.extent(stop)}, i64 {start}")
                row = f.sub(line.index, span[0])
                x, g = f.add(f.mul(row, self.size[-1]), shift), f.mul(row, self.count[-1])
                to = self._listed(along.index, f.sub(number, start))
                with f.for_(start, end, hint="pixel") as pixel:
                    of_x = f.mul(f.add(x, f.mul(pixel.index, self.step[last])), f.mul(self.depth, item))
                    of_g = f.mul(f.add(g, pixel.index), self.columns * item)
                    both = f.op(f"or i64 {f.op(f'shl i64 {of_g}, 32')}, {of_x}")
                    f.store("i64", both, f.gep("i64", to, pixel.index), 8)
                line.next(f.add(number, f.max(f.sub(end, start), 0)), *_counted_on(f, place, self._lines))
            f.store("i64", line.results[0], f.gep("i64", self.counts, along.index), 8)

    def _listed(self, along: Any, number: Any) -> str:
        """Where the list has a term of a tap."""
        f = self.f
        return f.op(f"getelementptr i64, ptr {self.places}, i64 {f.add(f.mul(along, self.most), number)}")

    def _line_of_x(self, line: Sequence[Any], tap: Sequence[Any]) -> tuple[str | None, Any]:
        """Whether there is a row of pixels of x that belongs to a row of g and a tap (None: surely), and where it
        begins. `line`: the image, and the row's place in it."""
        f, (image, *at) = self.f, line
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
        with f.for_(*span, hint="line") as line:
            before = f.mul(f.sub(line.index, span[0]), self.count[-1])
            there = self._line_of_g(unravel(f, line.index, self._lines))
            self._copy_line_of_g(across, there, (0, self.count[-1]), lambda p: f.add(before, p))

    def _copy_line_of_g(self, across: Any, there: Any, pixels: tuple[Any, Any], number: Callable[[Any], Any]) -> None:
        """Copies the panels of g that a group reads of these pixels of a row, which begins at `there`. `number`: of the
        copy of such a pixel."""
        f = self.f
        with f.for_(0, self.wide, hint="wide") as wide:
            panel = f.add(f.mul(across, self.wide), wide.index)
            with ExitStack() as inside:
                if (is_there := self._exists(panel, self.panels, self.wide)) is not None:
                    inside.enter_context(f.if_(is_there))
                source = f.add(f.mul(panel, self.columns), there)
                for tile in panel_variants(f, self.dtype, self.filters, self.columns, panel):
                    with f.for_(*pixels, hint="pixel") as pixel:
                        g = self._at(self.g, f.add(source, f.mul(pixel.index, self.g_strides[-2])))
                        place = f.add(self._copied_panel(wide.index), f.mul(number(pixel.index), self.columns))
                        to = self._at(self.g_copy, place)
                        for v in range(tile.vectors):
                            register = tile.load(f.gep(self.scalar, g, v * tile.lanes), tile.is_partial(v))
                            tile.store(register, f.gep(self.scalar, to, v * tile.lanes))

    def _copied_panel(self, wide: Any) -> Any:
        """Where the copy of a panel of the group begins."""
        return self.f.mul(wide, self.f.mul(self.most, self.columns))

    def _line_of_g(self, line: Sequence[Any]) -> Any:
        """Where a row of pixels of g begins."""
        f, (image, *at) = self.f, line
        place = f.mul(image, self.g_strides[0])
        for index, step in zip(at, self.g_strides[1:-2]):
            place = f.add(place, f.mul(index, step))
        return place

    def _first_channel(self, tile: Any) -> Any:
        """The first channel of the input of a tile."""
        start = self.f.mul(tile, self.rows)
        return start if divides(self.rows, self.channels) else self.f.min(start, self.channels - self.rows)

    def _exists(self, number: Any, count: Any, each: Any) -> str | None:
        """Whether there is this one of `count` tiles in groups of `each`; None: surely."""
        if isinstance(count, int) and isinstance(each, int) and count % each == 0:
            return None
        return self.f.op(f"icmp ult i64 {number}, {self.f.extent(count)}")

    def _task(
        self,
        tap: list[Any],
        place: tuple[Any, Any],
        group: list[Any],
        number: Any,
        terms: _Block | _Listed | None,
    ) -> None:
        """Adds a tile's sums over these terms, or writes its sums to y. `place`: where it is in its group, along
        channels of the input, and of the cotangent; `number`: which task of the group it is. The last groups may have
        places for tiles that there are not."""
        f, (high, wide), (down, across) = self.f, place, group
        part, panel = f.add(f.mul(down, self.high), high), f.add(f.mul(across, self.wide), wide)
        sums = f.gep(self.scalar, self.sums, f.mul(number, self.rows * self.columns))
        with ExitStack() as inside:
            for k, count, of in ((part, self.tiles, self.high), (panel, self.panels, self.wide)):
                if (is_there := self._exists(k, count, of)) is not None:
                    inside.enter_context(f.if_(is_there))
            channel, column = self._first_channel(part), f.mul(panel, self.columns)
            for tile in panel_variants(f, self.dtype, self.filters, self.columns, panel):
                if terms is None:
                    self._write(tile, sums, [*tap, channel, column])
                    continue
                if isinstance(terms, _Listed):
                    copied = f.sub(channel, self._first_channel(f.mul(down, self.high)))
                    self._fetch(terms.following, number)
                    found = self._sum_listed(tile, copied, wide, tap[-1])
                else:
                    found = self._sum(tile, channel, column, wide, tap, terms, number)
                self._add(tile, sums, found)

    def _in_sums(self, tile: Tile, sums: str, r: int, v: int) -> str:
        return self.f.gep(self.scalar, sums, r * self.columns + v * tile.lanes)

    def _add(self, tile: Tile, sums: str, found: Rows) -> None:
        """Adds to the sums of a tile."""
        for r, row in enumerate(found):
            for v, register in enumerate(row):
                p = self._in_sums(tile, sums, r, v)
                tile.store(self.f.op(f"fadd {tile.vector} {tile.load(p)}, {register}"), p)

    def _write(self, tile: Tile, sums: str, index: list[Any]) -> None:
        """Writes the sums of a tile to y."""
        f, place = self.f, index[-1]
        for at, step in zip(index[:-1], self.y_strides):
            place = f.add(place, f.mul(at, step))
        out = f.gep(self.scalar, self.y, place)
        for r in range(self.rows):
            row = f.gep(self.scalar, out, r * self.y_strides[-2])
            for v in range(tile.vectors):
                p = f.gep(self.scalar, row, v * tile.lanes)
                tile.store(tile.load(self._in_sums(tile, sums, r, v)), p, tile.is_partial(v))

    def _sum_listed(self, tile: Tile, channel: Any, wide: Any, along: Any) -> Rows:
        """A tile's sums over the terms that are listed for a tap. `channel`: of those that are copied."""
        f = self.f
        x, g = self._at(self.x_copy, channel), self._at(self.g_copy, self._copied_panel(wide))
        listed = self._listed(along, 0)

        def find(number: Any, heads: Sequence[str]) -> list[str]:
            both = f.load("i64", f.gep("i64", listed, number), 8)
            return [
                self._byte(x, f.op(f"and i64 {both}, {2**32 - 1}")),
                self._byte(g, f.op(f"lshr i64 {both}, 32")),
            ]

        count = f.load("i64", f.gep("i64", self.counts, along), 8)
        return self._total(tile, self._sums_of_pixels(tile, self._zeros(tile), [], [], 0, count, find))

    def _sum(
        self, tile: Tile, channel: Any, column: Any, wide: Any, tap: list[Any], block: _Block, number: Any
    ) -> Rows:
        """A tile's sums over the rows of pixels of a block. `number`: which task of the group it is."""
        f, last, (span, at) = self.f, len(self.count) - 1, block
        # Along the last axis, the tap reads inside of x for positions [start, stop).
        shift = f.sub(f.mul(tap[last], self.apart[last]), self.low[last])
        start, stop = self._inside(last, shift)
        zeros = self._zeros(tile)
        first = [*((tile.vector, register) for register in zeros), *(("i64", k) for k in at)]
        with f.for_(span[0], span[1], 1, first, "line") as line:
            sums, place = line.carried[: len(zeros)], line.carried[len(zeros) :]
            inside, source = self._line_of_x(place, tap[:-1])
            end = stop if inside is None else f.op(f"select i1 {inside}, i64 {f.extent(stop)}, i64 {start}")
            x_step, g_step = f.mul(self.step[last], self.x_strides[-2]), self.g_strides[-2]
            source = f.add(f.add(source, f.mul(channel, self.row_step)), f.mul(shift, self.x_strides[-2]))
            if self.copies_g:
                before = f.mul(f.sub(line.index, span[0]), self.count[-1])
                g, g_step = f.add(self._copied_panel(wide), f.mul(before, self.columns)), self.columns
            else:
                g = f.add(column, self._line_of_g(place))
            x = self._at(self.x, f.add(source, f.mul(start, x_step)))
            g = self._at(self.g_copy if self.copies_g else self.g, f.add(g, f.mul(start, g_step)))
            following = self._following(place, number) if self.ahead else []
            heads = [x, g, *(self._byte(part, f.mul(start, step)) for part, step in following)]
            steps = [f.mul(x_step, tile.bytes), f.mul(g_step, tile.bytes), *(step for _, step in following)]
            found = self._sums_of_pixels(tile, sums, heads, steps, start, end)
            line.next(*found, *_counted_on(f, place, self._lines))
        return self._total(tile, line.results[: len(zeros)])

    def _zeros(self, tile: Tile) -> list[str]:
        """Empty sums: if a tile has fewer accumulators than keep all units busy, of several pixels at a time."""
        accumulators, free = self.rows * tile.vectors, self.f.target.num_vector_registers - tile.vectors - 1
        apart = max(1, min(chains(accumulators, self.f.target), free // accumulators))
        return [register for _ in range(apart) for row in tile.zeros(self.rows) for register in row]

    def _total(self, tile: Tile, sums: Sequence[str]) -> Rows:
        """The sums that began as `_zeros`, added up."""
        size = self.rows * tile.vectors
        total = [*sums[:size]]
        for k in range(size, len(sums), size):
            total = [self.f.op(f"fadd {tile.vector} {a}, {b}") for a, b in zip(total, sums[k : k + size], strict=True)]
        names = iter(total)
        return [[next(names) for _ in range(tile.vectors)] for _ in range(self.rows)]

    def _sums_of_pixels(
        self,
        tile: Tile,
        sums: Sequence[str],
        heads: Sequence[str],
        steps: Sequence[Any],
        start: Any,
        end: Any,
        find: Callable[[Any, Sequence[str]], Sequence[str]] = lambda number, heads: heads,
    ) -> list[str]:
        """`sums` and the terms [start, end). `heads`: pointers for the first one, `steps`: bytes to the next one's;
        `find(number, heads)`: where a term's x, g, and what is prefetched with it, are."""
        f, size = self.f, self.rows * tile.vectors
        apart = len(sums) // size

        def after(heads: Sequence[str], pixels: int) -> list[str]:
            return [self._byte(p, f.mul(step, pixels)) for p, step in zip(heads, steps, strict=True)]

        def add(number: Any, heads: Sequence[str], sums: Sequence[str]) -> list[str]:
            names, (x, g, *parts) = iter(sums), find(number, heads)
            for part in parts:
                prefetch(f, part, 0, nearest=False)
            partial = [not self.copies_g and tile.is_partial(v) for v in range(tile.vectors)]
            vectors = [tile.load(f.gep(self.scalar, g, v * tile.lanes), p) for v, p in enumerate(partial)]
            found = []
            for r in range(self.rows):
                factor = tile.splat(f.load(self.scalar, f.gep(self.scalar, x, r * self.row_step), tile.bytes))
                found += [tile.multiply_add(factor, v, next(names)) for v in vectors]
            return found

        if apart > 1:
            count = f.max(f.sub(end, start), 0)  # a tap may be outside at every position
            rest = f.add(start, f.mul(f.div(count, apart), apart))
            begun = [*((tile.vector, c) for c in sums), *(("ptr", p) for p in heads)]
            with f.for_(start, rest, apart, begun, "pixels") as pixels:
                at, found = pixels.carried[len(sums) :], []
                for k in range(apart):
                    found += add(f.add(pixels.index, k), after(at, k), pixels.carried[k * size : (k + 1) * size])
                pixels.next(*found, *after(at, apart))
            start, heads, sums = rest, [*pixels.results[len(sums) :]], pixels.results[: len(sums)]
        begun = [*((tile.vector, c) for c in sums[:size]), *(("ptr", p) for p in heads)]
        with f.for_(start, end, 1, begun, "pixel") as pixel:
            pixel.next(*add(pixel.index, pixel.carried[size:], pixel.carried[:size]), *after(pixel.carried[size:], 1))
        return [*pixel.results[:size], *sums[size:]]

    def _following(self, place: Sequence[Any], number: Any) -> list[tuple[str, Any]]:
        """A task's part of the row of pixels that lies a block behind the one at this place: where it begins, and its
        bytes per pixel of the cotangent. Also of the input, if it has the same rows."""
        f, item, found = self.f, self.scalar_bytes, []
        operands = [(self.g, self.g_strides, self.filters)]
        if {*self.taps, *self.step} == {1}:
            operands.append((self.x, self.x_strides, self.channels))
        for pointer, strides, channels in operands:
            there = f.mul(self.block, strides[-3])  # images follow each other as rows do
            for at, apart in zip(place, strides[:-2], strict=True):
                there = f.add(there, f.mul(at, apart))
            count = f.mul(f.mul(self.high, self.wide), math.prod(self.taps))
            step = f.div(f.add(f.mul(channels, item), f.sub(count, 1)), count)
            found.append((self._byte(self._at(pointer, there), f.mul(number, f.mul(self.count[-1], step))), step))
        return found

    def _at(self, pointer: str, offset: Any) -> str:
        # Not `inbounds`: the terms of an offset may lie outside where the whole does not.
        return self.f.op(f"getelementptr {self.scalar}, ptr {pointer}, i64 {self.f.extent(offset)}")

    def _byte(self, pointer: str, offset: Any) -> str:
        return self.f.op(f"getelementptr i8, ptr {pointer}, i64 {self.f.extent(offset)}")

    def _may_leave(self, k: int) -> bool:
        """Whether some tap of some position along axis k may be outside of x."""
        return may_leave(self.size[k], self.count[k], self.taps[k], self.step[k], self.apart[k], self.low[k])

    def _inside(self, k: int, shift: Any) -> tuple[Any, Any]:
        """[start, stop) of the positions p for which p · step + shift is inside of x."""
        if not self._may_leave(k):
            return 0, self.count[k]
        return positions_inside(self.f, shift, self.step[k], self.size[k], self.count[k])


def _counted_on(f: Function, at: Sequence[str], counts: Sequence[Any]) -> list[str]:
    """The place after `at`, as `unravel` gives it: a division by an open number takes as long as a few pixels."""
    first, *rest = at
    following: list[str] = []
    passes: Any = 1
    for k, count in reversed([*zip(rest, counts[1:], strict=True)]):
        more = f.add(k, passes)
        is_last = f.op(f"icmp eq i64 {more}, {f.extent(count)}")
        following.insert(0, f.op(f"select i1 {is_last}, i64 0, i64 {more}"))
        passes = f.op(f"zext i1 {is_last} to i64")
    return [f.add(first, passes), *following]


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
