"""Matrix products: the kernel `matmul`.

The body multiplies a [batch…, M, K] by b, which is either [batch…, K, N] or *packed*, [batch…, P, K, nr]: its columns
in P panels of nr, padded with zeros, so that one panel is read from front to end. If `halved`, both halves of the last
vector of the last panel hold the same columns (`tiles.Tile`).

If the plan is `reversed`, and if one tile has all rows, a thread computes its panels from the last to the first.

If the plan has a `part`, a thread sums up so many terms for all of its tiles of a block, then as many more. The rows of
a part stay in the second-level cache, a panel in the first; what tiles have summed up waits in scratch memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from gluonjit.codegen.kernels.epilogue import Epilogue, find_anchor
from gluonjit.codegen.kernels.matmul_sizes import BLOCK, FAR, FEW_TERMS, SPREAD, any_product, is_worth_it, tiles_ahead
from gluonjit.codegen.kernels.row_tiles import RowTiles, lowest_height
from gluonjit.codegen.kernels.tiles import Fetch, Fetches, Rows, Tile, chains, prefetch, unit_type
from gluonjit.codegen.text.kernel_code import writes
from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.ir.dims import Dim, Extent, divides, hint, is_static, named
from gluonjit.ir.graph import Op
from gluonjit.ir.kernels.product_plans import Matmul
from gluonjit.ir.machine import Machine
from gluonjit.ir.windows import strides_of

_TOUCHED = 8
"""The most rows of a panel that is not packed that a tile prefetches, all at once."""


def _same_sums(op: Op, target: Machine, least: int) -> bool:
    """Whether register tiles of all heights that occur add up their terms in as many chains."""
    x, y, plan = op.operands[0], op.results[0], Matmul.of(op)
    if plan.halved or not is_static((*x.type.shape[1:], *y.type.shape[1:])):
        return False
    lanes, n, rows, columns = target.sum_lanes(x.dtype), y.type.shape[-1], plan.rows, plan.columns
    vectors = {columns // lanes} if n >= columns else set()
    vectors |= {-(-(n % columns) // lanes)} - {0}
    heights = range(lowest_height(least, rows), rows)
    return all(chains(h * v, target) == chains(rows * v, target) for h in heights for v in vectors)


@writes(Matmul, same_sums=_same_sums, for_any_size=any_product)
def lower_matmul(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module."""
    Product(module.function(name), op).write()


class _Terms(NamedTuple):
    """The terms that a panel's tiles sum up: all, or a part."""

    first: Any = 0
    slot: Any = 0
    """Tile t has slot `slot` + t of `Product.sums`."""
    are_new: str = "false"
    """Whether this is the first panel for which a thread reads the part of the rows (i1)."""
    are_last: str = "true"
    """Whether no part follows (i1)."""


class Product:
    """Writes one kernel.

    Register tiles are numbered by image, then by blocks of rows, panels of columns, and tiles of a block. A thread
    computes a contiguous range of them. During one panel, the next one is prefetched into the second-level cache.
    """

    def __init__(self, f: Function, op: Op) -> None:
        self.f = f
        body, plan = op.regions[0], Matmul.of(op)
        anchor = find_anchor(body)
        a = anchor.operands[0]
        self.packed, self.ahead = plan.packed, plan.ahead
        b = body.inputs[1] if self.packed else anchor.operands[1]
        self.dtype = a.dtype
        self.unit = unit_type(a.dtype, f.target)
        self.terms = f.target.multiplication(a.dtype).terms
        """The factors of a unit, of which all sizes here count the number."""
        self.unit_bytes = a.dtype.itemsize * self.terms
        self.rows, self.columns, self.halved = plan.rows, plan.columns, plan.halved
        self.for_any = plan.block == 0
        """Whether it is for any size (`matmul_sizes`)."""
        self.block: Any = named(BLOCK) if self.for_any else plan.block
        *self.batch, self.m, terms = a.shape
        self.k = f.div(terms, self.terms)
        self.n = anchor.result.shape[-1]
        self.a_strides, self.b_strides = (in_units(f, strides_of(op, body.inputs.index(v)), self.terms) for v in (a, b))
        if self.terms > 1:
            self.b_strides = self.b_strides[:-1]  # within a unit
        self.a, self.b = f.table(body.inputs.index(a)), f.table(body.inputs.index(b))
        self.epilogue = Epilogue(f, op, anchor)
        self.panels = f.div(f.add(self.n, self.columns - 1), self.columns)
        self.tiles = RowTiles(f, self.m, self.rows, few=not is_static((self.n, self.k)))
        self.backwards = plan.reversed and self.tiles.low == 1 and not self.batch
        if self.backwards and not isinstance(self.tiles.count, int):
            self.is_one = f.op(f"icmp eq i64 {f.extent(self.tiles.count)}, 1")
        self.panel_size = self.k * self.columns if self.packed else self.columns
        self.part: Any = plan.part or self.k
        self.sums = f.table(len(body.inputs) + 1) if plan.part else ""
        """What tiles have summed up, each in `rows` · `columns` elements: scratch memory, if there are parts."""
        size = self.columns * self.unit_bytes
        self.spread = f.div(f.add(self.block, size - 1), self.block) if self.for_any else 0
        """The bytes per term of the next panel that a tile prefetches."""

    def write(self) -> None:
        f, count, images = self.f, self.tiles.count, math.prod(self.batch)
        per_image, per_block = f.mul(count, self.panels), f.mul(self.block, self.panels)
        first, last = share(f, f.mul(images, per_image))
        if images == 1 and isinstance(count, int) and count <= self.block:
            self._block(0, 0, first, last)
            return
        with f.if_(f.op(f"icmp slt i64 {first}, {last}")), f.repeat([("i64", first)]) as loop:
            (number,) = loop.carried
            image, place = f.div(number, per_image), f.mod(number, per_image)
            block, start = f.div(place, per_block), f.mod(place, per_block)
            height = f.min(self.block, f.sub(count, f.mul(block, self.block)))
            stop = f.min(f.add(start, f.sub(last, number)), f.mul(height, self.panels))
            self._block(image, block, start, stop)
            number = f.add(number, f.sub(stop, start))
            loop.next(number)
            loop.again = f.op(f"icmp slt i64 {number}, {last}")

    def _block(self, image: Any, block: Any, start: Any, stop: Any) -> None:
        """Computes tiles start … stop - 1 of a block of rows, numbered within the block."""
        f = self.f
        first = f.mul(block, self.block)
        height = f.min(self.block, f.sub(self.tiles.count, first))
        at = unravel(f, image, self.batch)
        with f.if_(f.op(f"icmp slt i64 {start}, {stop}")):
            if not self.sums:
                self._panels(at, first, height, start, stop, 0)
                return
            with f.for_(0, self.k, self.part, hint="part") as part:
                self._panels(at, first, height, start, stop, part.index)

    def _panels(self, at: list[Any], first: Any, height: Any, start: Any, stop: Any, part: Any) -> None:
        """`_block`, for the terms from number `part` on: of a block of `height` tiles, `first` the first."""
        f = self.f
        with f.repeat([("i64", start)]) as loop:
            (number,) = loop.carried
            panel, one = f.div(number, height), f.mod(number, height)
            if self.backwards:
                turned = f.sub(f.add(start, f.sub(stop, 1)), panel)
                is_one = isinstance(self.tiles.count, int)
                panel = turned if is_one else f.op(f"select i1 {self.is_one}, i64 {turned}, i64 {panel}")
            end = 1 if height == 1 else f.min(height, f.add(one, f.sub(stop, number)))
            number = f.add(number, f.sub(end, one))
            loop.next(number)
            loop.again = f.op(f"icmp slt i64 {number}, {stop}")
            terms = _Terms()
            if self.sums:
                is_new = f.op(f"icmp eq i64 {panel}, {f.div(start, height)}")
                is_last = f.op(f"icmp eq i64 {part}, {f.extent(self.k - self.part)}")
                terms = _Terms(part, f.sub(f.mul(panel, height), f.add(first, start)), is_new, is_last)
            self._panel(at, panel, f.add(first, one), f.add(first, end), terms)

    def _panel(self, at: list[Any], panel: Any, start: Any, stop: Any, terms: _Terms) -> None:
        """Computes row tiles start … stop - 1 of a panel."""
        f, part = self.f, terms.first
        w = f.gep(self.unit, self.b, f.add(_position(f, at, self.b_strides), f.mul(panel, self.panel_size)))
        x = f.gep(self.unit, self.a, f.add(_position(f, at, self.a_strides), part))
        w = f.gep(self.unit, w, f.mul(part, self.b_strides[-2]))
        for tile in panel_variants(f, self.dtype, self.n, self.columns, panel, self.halved, self.rows):
            for number, row, rows in self.tiles.each(start, stop):
                place = [*at, row, f.mul(panel, self.columns)]
                line = f.gep(self.unit, x, f.mul(row, self.a_strides[-2]))
                if self.sums:
                    with f.if_(terms.are_last):
                        self.epilogue.prefetch(tile, rows, place)
                    if self.ahead:
                        with f.if_(terms.are_new):
                            self._touch_rows(line, rows)
                acc = self.tile(tile, rows, place, line, w, f.sub(number, start), terms.are_last)
                if self.sums:
                    self._add_part(tile, acc, place, terms, f.add(number, terms.slot))
                else:
                    self.epilogue.write(tile, acc, place)

    def _touch_rows(self, x: str, rows: int) -> None:
        """Prefetches the part of the rows of the tile below one at `x`. They need not exist."""
        f, size = self.f, self.unit_bytes
        with f.for_(0, self.part, f.target.line // size, hint="line") as loop:
            for r in range(rows, 2 * rows):
                at = f.add(loop.index, f.mul(r, self.a_strides[-2]))
                prefetch(f, f.op(f"getelementptr {self.unit}, ptr {x}, i64 {f.extent(at)}"), 0, nearest=False)

    def _add_part(self, tile: Tile, acc: Rows, place: list[Any], terms: _Terms, slot: Any) -> None:
        """Adds a tile's sums to those of the terms before, and finishes it after the last ones."""
        f, t = self.f, tile.vector
        begin = f.gep(self.unit, self.sums, f.mul(slot, self.rows * self.columns))
        places = [f.gep(t, begin, k) for k in range(len(acc) * tile.vectors)]
        values, before = [v for row in acc for v in row], f.scope.label
        with f.if_(f.op(f"icmp sgt i64 {terms.first}, 0")) as then:
            added = [tile.add(f.load(t, p), v) for p, v in zip(places, values)]
        sums = [f.op(f"phi {t} [ {v}, %{before} ], [ {total}, %{then.label} ]") for v, total in zip(values, added)]
        with f.if_(terms.are_last):
            rows = [sums[k : k + tile.vectors] for k in range(0, len(sums), tile.vectors)]
            self.epilogue.write(tile, rows, place)
        with f.if_(f.op(f"xor i1 {terms.are_last}, true")):
            for value, p in zip(sums, places):
                f.store(t, value, p)

    def tile(
        self, tile: Tile, rows: int, place: list[Any], x: str, w: str, number: Any, are_last: str = "true"
    ) -> Rows:
        """The sums of a register tile: the `number`-th of those that the thread computes in this panel. `x`, `w`: its
        first row, and the panel, at the first of `part` terms. `are_last`: whether no part follows."""
        ahead = self._tiles_ahead(rows)
        if not self.sums:
            few = ahead != 0 and self.k < FEW_TERMS
            row = self.f.add(place[-2], self.f.mul(ahead, rows)) if few else place[-2]
            self.epilogue.prefetch(tile, rows, [*place[:-2], row, place[-1]])
        weights = self._following(w, number)
        fetch: Fetch | Fetches | None = weights
        if ahead != 0 and not self.sums and self._reads_on() and self.a_strides[-2] == self.k:
            size = rows * self.unit_bytes
            offset = self.f.mul(ahead, size * self.k)
            begin = self.f.op(f"getelementptr i8, ptr {x}, i64 {self.f.extent(offset)}")  # need not exist
            following = Fetch(begin, size, nearest=False)
            fetch = following if weights is None else Fetches((weights, following))
        self._touch_following(w, number)

        def fetch_again() -> None:
            with self.f.if_(are_last):
                self.epilogue.prefetch(tile, rows, place)

        return tile.contract(
            tile.zeros(rows),
            x,
            [r * self.a_strides[-2] for r in range(rows)],
            w,
            self.part,
            w_step=self.b_strides[-2],
            aligned=self.packed,
            ahead=fetch is None and self.packed and hint(self.panel_size) * self.unit_bytes > self.f.target.l1,
            fetch=fetch,
            uncut=bool(self.sums),
            late=fetch_again if self.epilogue.streams else None,
        )

    def _tiles_ahead(self, rows: int) -> Any:
        """How many tiles of the panel come before the one whose rows a tile of this height prefetches. 0 if its own
        residual is all that is prefetched."""
        if not self.ahead:
            return 0
        if isinstance(self.k, Dim):
            return named(FAR) - 1
        tiles = tiles_ahead(rows, self.k, self.unit_bytes)
        return tiles if self.for_any or is_worth_it(tiles, self.block) else 0

    def _reads_on(self) -> bool:
        """Whether rows are prefetched: with more columns than terms, most would have been for another panel."""
        return isinstance(self.k, Dim) if self.for_any else self.k >= self.n

    def _following(self, w: str, number: Any) -> Fetch | None:
        """The part of the next panel's weights to prefetch during one of this panel's tiles."""
        f, step = self.f, self.spread
        if not self.for_any:
            tiles = min(self.block, self.tiles.low)
            if not self.packed or tiles < SPREAD:
                return None
            if tiles < self.block and isinstance(self.m, Dim):
                number = f.min(number, tiles - 1)  # there may be more of them
            step = -(-self.columns * self.unit_bytes // tiles)
        panel = f.gep(self.unit, w, self.panel_size)
        return Fetch(f.gep("i8", panel, f.mul(number, f.mul(step, self.part))), step, nearest=False)

    def _touch_following(self, w: str, number: Any) -> None:
        """Prefetches a tile's part of the next panel's rows, where panels are read as they lie: `_following` for what
        has a line or two per term."""
        if self.packed:
            return
        f, apart, tiles = self.f, self.b_strides[-2], min(self.block, self.tiles.low)
        if tiles < SPREAD or not is_static((self.n, self.k, apart)) or self.n <= self.columns:
            return
        rows = -(-self.part // tiles)
        if rows <= _TOUCHED:
            first = f.gep(self.unit, w, f.add(self.columns, f.mul(number, rows * apart)))
            for row in range(rows):
                prefetch(f, first, row * apart * self.unit_bytes, nearest=False)


def in_units(f: Function, strides: Sequence[Extent], terms: int) -> list[Any]:
    """Strides of elements as those of units of so many, the last axis without gaps."""
    return [*strides] if terms == 1 else [*(f.div(step, terms) for step in strides[:-1]), 1]


def _position(f: Function, index: Sequence[Any], strides: Sequence[Extent]) -> Any:
    """The offset of the element at `index`; indices of the remaining axes are 0."""
    position: Any = 0
    for i, step in zip(index, strides):
        position = f.add(position, f.mul(i, step))
    return position


def share(f: Function, tasks: Any) -> tuple[str, str]:
    """[first, last) of this thread's tasks."""
    first = f.op(f"udiv i64 {f.mul('%thread', tasks)}, %nthreads")
    last = f.op(f"udiv i64 {f.mul(f.add('%thread', 1), tasks)}, %nthreads")
    return first, last


def unravel(f: Function, flat: Any, shape: list[Any]) -> list[Any]:
    """The index of element `flat` of an array of `shape`."""
    index: list[Any] = []
    for n in reversed(shape):
        index.insert(0, f.mod(flat, n) if len(index) < len(shape) - 1 else flat)
        flat = f.div(flat, n)
    return index


def panel_variants(
    f: Function, dtype: Any, n: Extent, columns: int, panel: Any, halved: bool = False, rows: int = 0
) -> Any:
    """The kinds of panel of n columns: for each, opens the code that runs when `panel` is of it, and yields its Tile.

    All are `columns` wide except for the last, which may be narrower, and whose last vector may be `halved`. `rows`: of
    most tiles.
    """
    lanes = f.target.sum_lanes(dtype)
    if divides(columns, n):
        yield Tile(f, dtype, columns // lanes)
        return
    rest = n.terms.get((), 0) % columns if isinstance(n, Dim) else n % columns
    if isinstance(n, Dim) and not divides(columns, n - rest):
        yield from _open_panel_variants(f, dtype, n, columns, panel)
        return
    full, vectors = (n - rest) // columns, -(-rest // lanes)
    last = rest - (vectors - 1) * lanes
    if full:
        with f.if_(f.op(f"icmp ult i64 {panel}, {f.extent(full)}")):
            yield Tile(f, dtype, columns // lanes)
        with f.if_(f.op(f"icmp eq i64 {panel}, {f.extent(full)}")):
            yield Tile(f, dtype, vectors, last, halved, usual=rows * columns // lanes)
    else:
        yield Tile(f, dtype, vectors, last, halved)


def _open_panel_variants(f: Function, dtype: Any, n: Dim, columns: int, panel: Any) -> Any:
    """`panel_variants` for an open number of columns: how many vectors the last panel has, and how many lanes the last
    of these, is known at run time."""
    lanes = f.target.sum_lanes(dtype)
    here = f.min(f.sub(n, f.mul(panel, columns)), columns)
    vectors = f.div(f.add(here, lanes - 1), lanes)
    is_whole = f.op(f"icmp eq i64 {here}, {columns}")
    with f.if_(is_whole):
        yield Tile(f, dtype, columns // lanes)
    for count in range(1, columns // lanes + 1):
        fits = f.op(f"icmp eq i64 {vectors}, {count}")
        if count == columns // lanes:
            fits = f.op(f"and i1 {fits}, {f.op(f'xor i1 {is_whole}, true')}")
        with f.if_(fits):
            yield Tile(f, dtype, count, left=f.sub(here, (count - 1) * lanes))
