"""Depthwise convolution, channels last: `.kernel = 'depthwise'`.

Every channel is convolved with a filter of its own, so vectors run over channels and nothing is broadcast. A tile is
some rows by some neighbouring pixels of one vector of channels. All its taps are unrolled: each input pixel is loaded
once, and added to every output pixel that one of its taps touches. Padding is never read: columns at the border are
known when the code is written (`conv.tile_kinds`), an input row outside is jumped over.

`.tile` = (rows and pixels of a tile, row tiles and vectors of channels per task).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gluonjit.codegen.conv import Axis, Kind, each, spatial_axes, tile_kinds
from gluonjit.codegen.epilogue import Epilogue, find_anchor
from gluonjit.codegen.llvm import Function, Module
from gluonjit.codegen.matmul import share, unravel
from gluonjit.codegen.target import Target
from gluonjit.codegen.tiles import Rows, Tile
from gluonjit.ir.graph import Graph


def lower_depthwise(name: str, body: Graph, attrs: Mapping[str, Any], target: Target, module: Module) -> None:
    """Appends the kernel to the module."""
    _Depthwise(module.function(name), body, attrs).write()


class _Depthwise:
    def __init__(self, f: Function, body: Graph, attrs: Mapping[str, Any]) -> None:
        self.f = f
        anchor = find_anchor(body)
        x, w = anchor.operands
        self.dtype = x.dtype
        axes = spatial_axes(anchor)
        # A line of pixels is an image of one row.
        self.rows, self.columns = axes if len(axes) == 2 else (Axis(1, 1, 1, 1, 0, 1), axes[0])
        self.index_axes = len(axes)
        self.images, self.channels = x.shape[0], x.shape[-1]
        self.height, self.pixels, self.block, self.vectors = attrs[".tile"]
        self.kinds = tile_kinds(self.columns, self.pixels, merge=False)
        self.x, self.w = f.table(body.inputs.index(x)), f.table(body.inputs.index(w))
        self.epilogue = Epilogue(f, body, anchor)
        self.lanes = f.target.lanes(self.dtype)
        self.scalar = Tile(f, self.dtype, 1).scalar

    def write(self) -> None:
        f, rows = self.f, self.rows
        row_tiles = -(-rows.out // self.height)
        blocks, chunk = -(-row_tiles // self.block), self.vectors * self.lanes
        chunks = -(-self.channels // chunk)
        first, last = share(f, self.images * blocks * chunks)
        with f.for_(first, last, hint="task") as task:
            image, block, part = unravel(f, task.index, [self.images, blocks, chunks])
            channels = f.mul(part, chunk), f.min(f.mul(f.add(part, 1), chunk), self.channels)
            start = f.mul(block, self.block)
            whole = rows.out // self.height
            with f.for_(start, f.min(f.add(start, self.block), whole), hint="row") as loop:
                self._row_tile(image, f.mul(loop.index, self.height), self.height, channels)
            if rows.out % self.height:
                with f.if_(f.op(f"icmp eq i64 {block}, {blocks - 1}")):
                    self._row_tile(image, whole * self.height, rows.out % self.height, channels)

    def _row_tile(self, image: Any, row: Any, height: int, channels: tuple[Any, Any]) -> None:
        """Output rows row … row + height - 1."""
        f, (low, high) = self.f, channels
        tail = self.channels % self.lanes
        for kind, first, count in self.kinds:
            with each(f, first, count) as index:
                pixel = f.mul(index, self.pixels)
                with f.for_(low, f.sub(high, self.lanes - 1), self.lanes, hint="channel") as loop:
                    self._tile(Tile(f, self.dtype, 1), kind, image, row, height, pixel, loop.index)
                if tail:
                    with f.if_(f.op(f"icmp eq i64 {high}, {self.channels}")):
                        self._tile(Tile(f, self.dtype, 1, tail), kind, image, row, height, pixel, self.channels - tail)

    def _tile(self, tile: Tile, kind: Kind, image: Any, row: Any, height: int, pixel: Any, channel: Any) -> None:
        f = self.f
        acc = [tile.zeros(kind.pixels) for _ in range(height)]
        first_row = f.sub(f.mul(row, self.rows.stride), self.rows.low)
        reach = (height - 1) * self.rows.stride + (self.rows.taps - 1) * self.rows.dilation
        for j in range(reach + 1):
            # Input row first_row + j is the one that tap t of output row r reads, for these (r, t).
            uses = [
                (r, t)
                for r in range(height)
                for t in range(self.rows.taps)
                if r * self.rows.stride + t * self.rows.dilation == j
            ]
            if uses:
                position = f.add(first_row, j)
                acc = self._guarded(tile, position, acc, kind, uses, image, pixel, channel)
        for r in range(height):
            index = [image, f.add(row, r), pixel, channel]
            self.epilogue.write(tile, acc[r], index if self.index_axes == 2 else [image, pixel, channel])

    def _guarded(
        self,
        tile: Tile,
        position: Any,
        acc: list[Rows],
        kind: Kind,
        uses: list[Any],
        image: Any,
        pixel: Any,
        channel: Any,
    ) -> list[Rows]:
        """Adds what input row `position` contributes, if there is such a row."""
        f = self.f
        if not self.rows.is_padded:
            return self._add_row(tile, position, acc, kind, uses, image, pixel, channel)
        inside = f.op(f"icmp ult i64 {position}, {self.rows.size}")  # unsigned: a negative one is huge
        before = f.scope.label
        with f.if_(inside) as then:
            new = self._add_row(tile, position, acc, kind, uses, image, pixel, channel)
        merged = [[list(line) for line in rows] for rows in acc]
        for r, rows in enumerate(acc):
            for c, (old,) in enumerate(rows):
                if new[r][c][0] != old:
                    merged[r][c] = [f.op(f"phi {tile.vector} [ {old}, %{before} ], [ {new[r][c][0]}, %{then.label} ]")]
        return merged

    def _add_row(
        self,
        tile: Tile,
        position: Any,
        acc: list[Rows],
        kind: Kind,
        uses: list[Any],
        image: Any,
        pixel: Any,
        channel: Any,
    ) -> list[Rows]:
        f, axis, channels = self.f, self.columns, self.channels
        acc = [[list(line) for line in rows] for rows in acc]
        taps = [(s.first, c) for s in kind.segments for c in s.active]
        if not taps:
            return acc
        # Columns of the input, counted from the first that the tile reads.
        columns = {(t, c): c * axis.stride + t * axis.dilation for t, c in taps}
        first = min(columns.values())
        line = f.add(f.mul(image, self.rows.size), position)
        start = f.add(f.mul(line, axis.size), f.add(f.mul(pixel, axis.stride), first - axis.low))
        x = f.gep(self.scalar, self.x, f.add(f.mul(start, channels), channel))
        w = f.gep(self.scalar, self.w, channel)
        partial = tile.is_partial(0)
        loaded: dict[int, str] = {}
        for t in sorted({t for t, _ in taps}):
            weights = {k: tile.load(f.gep(self.scalar, w, (k * axis.taps + t) * channels), partial) for _, k in uses}
            for c in (c for tap, c in taps if tap == t):
                at = columns[t, c] - first
                if at not in loaded:
                    loaded[at] = tile.load(f.gep(self.scalar, x, at * channels), partial)
                for r, k in uses:
                    acc[r][c] = [tile.multiply_add(loaded[at], weights[k], acc[r][c][0])]
        return acc
