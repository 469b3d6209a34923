"""Convolution of images of one channel by a few filters: the kernel `planar`.

Where the filters would fill less than half of a vector, the lanes are adjacent pixels of the result instead. For each
tap, a vector of pixels is loaded once, and its product with each filter's weight is added to that filter's accumulator.
At the end the accumulators are interleaved, as the filters are the last axis of the result.

A row is cut into whole vectors. The rest of the row is a *piece*: half a vector, a quarter …, wide enough to hold the
rest. It ends where the row ends, so it may compute some pixels again. A tile has as many rows as there are pieces in a
vector, so that its pieces share vectors. The input is not padded, and adjacent pixels are adjacent in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from gluonjit.codegen.kernels.conv import spatial_axes
from gluonjit.codegen.kernels.epilogue import Epilogue, find_anchor
from gluonjit.codegen.kernels.matmul import share, unravel
from gluonjit.codegen.kernels.pixel_tiles import Axis
from gluonjit.codegen.kernels.tiles import Tile
from gluonjit.codegen.loops.index import affine
from gluonjit.codegen.text.kernel_code import writes
from gluonjit.codegen.text.llvm import Function, Module, vector
from gluonjit.ir.graph import Op
from gluonjit.ir.kernels.product_plans import Planar
from gluonjit.ir.windows import strides_of


@writes(Planar)
def lower_planar(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module."""
    _Planar(module.function(name), op).write()


class Piece(NamedTuple):
    """Adjacent pixels of one row of a tile, from `column` on, that fill some lanes of a vector."""

    row: int
    column: int
    lane: int
    size: int


def vectors_of_tile(rows: int, width: int, piece: int, lanes: int) -> list[list[Piece]]:
    """The contents of each vector of a tile, whose rows have `width` pixels; the last `piece` of each share vectors."""
    found = [[Piece(r, c, 0, lanes)] for r in range(rows) for c in range(0, width // lanes * lanes, lanes)]
    if piece:
        shared = lanes // piece
        for r in range(0, rows, shared):
            found.append([Piece(r + k, width - piece, k * piece, piece) for k in range(shared)])
    return found


class _Planar:
    def __init__(self, f: Function, op: Op) -> None:
        self.f = f
        body, plan = op.regions[0], Planar.of(op)
        anchor = find_anchor(body)
        x, w = anchor.operands
        self.dtype = x.dtype
        self.axes: tuple[Axis, Axis] = tuple(spatial_axes(anchor))  # type: ignore[assignment]
        self.images, self.filters = x.shape[0], w.shape[-1]
        self.x_strides = strides_of(op, body.inputs.index(x))
        self.rows, self.block = plan.rows, plan.block
        self.tile = Tile(f, self.dtype, 1)
        self.lanes = self.tile.lanes
        self.vectors = vectors_of_tile(self.rows, self.axes[1].out, plan.piece, self.lanes)
        self.x, self.w = f.table(body.inputs.index(x)), f.table(body.inputs.index(w))
        self.epilogue = _Pixels(f, op, anchor)

    def write(self) -> None:
        f, height = self.f, self.axes[0].out
        tiles = height // self.rows
        blocks = -(-tiles // self.block)
        first, last = share(f, self.images * blocks)
        with f.for_(first, last, hint="task") as task:
            image, block = unravel(f, task.index, [self.images, blocks])
            start = f.mul(block, self.block * self.rows)
            end = f.op(f"icmp eq i64 {block}, {blocks - 1}")
            stop = f.op(f"select i1 {end}, i64 {height}, i64 {f.add(start, self.block * self.rows)}")
            with f.for_(start, stop, self.rows, hint="row") as loop:
                # The last tile of an image may compute some rows again.
                self._tile(image, f.min(loop.index, height - self.rows))

    def _tile(self, image: Any, row: Any) -> None:
        most = max(1, (self.f.target.num_vector_registers - 4) // self.filters - 1)
        for k in range(0, len(self.vectors), most):
            chosen = self.vectors[k : k + most]
            for pieces, acc in zip(chosen, self._sums(image, row, chosen)):
                self._finish(image, row, pieces, acc)

    def _sums(self, image: Any, row: Any, chosen: Sequence[Sequence[Piece]]) -> list[list[str]]:
        """The sum over all taps, for each vector and filter."""
        f, tile, (rows, columns) = self.f, self.tile, self.axes
        cells = [(v, c) for v in range(len(chosen)) for c in range(self.filters)]
        start = f.add(f.mul(image, self.x_strides[0]), f.mul(f.mul(row, rows.stride), self.x_strides[1]))
        x = f.gep(tile.scalar, self.x, start)
        with f.for_(0, rows.taps, 1, [(tile.vector, "zeroinitializer")] * len(cells), "tap") as loop:
            acc = dict(zip(cells, loop.carried))
            line = f.gep(tile.scalar, x, f.mul(loop.index, rows.dilation * self.x_strides[1]))
            weights = f.gep(tile.scalar, self.w, f.mul(loop.index, columns.taps * self.filters))
            for t in range(columns.taps):
                pixels = [self._load(line, pieces, t * columns.dilation) for pieces in chosen]
                for c in range(self.filters):
                    weight = f.load(tile.scalar, f.gep(tile.scalar, weights, t * self.filters + c), tile.bytes)
                    spread = tile.splat(weight)
                    for v, loaded in enumerate(pixels):
                        acc[v, c] = tile.multiply_add(loaded, spread, acc[v, c])
            loop.next(*acc.values())
        found = dict(zip(cells, loop.results))
        return [[found[v, c] for c in range(self.filters)] for v in range(len(chosen))]

    def _load(self, line: str, pieces: Sequence[Piece], shift: int) -> str:
        """The pixels that a tap reads for a vector, `shift` to the right."""
        f, scalar = self.f, self.tile.scalar
        parts = []
        for p in pieces:
            at = p.row * self.axes[0].stride * self.x_strides[1] + p.column + shift
            parts.append(f.load(vector(p.size, scalar), f.gep(scalar, line, at), self.tile.bytes))
        size = pieces[0].size
        while len(parts) > 1:
            picks = ", ".join(f"i32 {k}" for k in range(2 * size))
            type = vector(size, scalar)
            parts = [
                f.op(f"shufflevector {type} {a}, {type} {b}, <{2 * size} x i32> <{picks}>")
                for a, b in zip(parts[::2], parts[1::2])
            ]
            size *= 2
        return parts[0]

    # ---- the result

    def _finish(self, image: Any, row: Any, pieces: Sequence[Piece], acc: Sequence[str]) -> None:
        """Applies the epilogue to the accumulators of all filters, and stores them pixel by pixel."""
        f, tile, width = self.f, self.tile, self.axes[1].out
        values = self.epilogue.finished(acc, image, row, pieces[0])
        for p in pieces:
            pixel = f.add(f.mul(f.add(f.mul(image, self.axes[0].out), f.add(row, p.row)), width), p.column)
            y = f.gep(tile.scalar, self.epilogue.out.pointer, f.mul(pixel, self.filters))
            places = [(c, p.lane + k) for k in range(p.size) for c in range(self.filters)]
            for at in range(0, len(places), self.lanes):
                picked = places[at : at + self.lanes]
                type, found = f"<{len(picked)} x {tile.scalar}>", self._picked(values, picked)
                f.store(type, found, f.gep(tile.scalar, y, at), tile.bytes)

    def _picked(self, values: Sequence[str], places: Sequence[tuple[int, int]]) -> str:
        """A vector made of lanes of several vectors: (vector, lane) for each."""
        size, found = len(places), ""
        done: set[int] = set()  # lanes of `found` that hold their final value
        for a, b in _pairs(list(dict.fromkeys(which for which, _ in places))):
            mine = [k for k, (which, _) in enumerate(places) if which in (a, b)]
            picks = [-1] * size
            for k in mine:
                which, lane = places[k]
                picks[k] = lane + (self.lanes if which == b else 0)
            both = self._shuffle(self.tile.vector, values[a], values[b], picks)
            if found:
                picks = [size + k if k in mine else k if k in done else -1 for k in range(size)]
                both = self._shuffle(f"<{size} x {self.tile.scalar}>", found, both, picks)
            found = both
            done.update(mine)
        return found

    def _shuffle(self, type: str, a: str, b: str, picks: Sequence[int]) -> str:
        mask = ", ".join("i32 poison" if p < 0 else f"i32 {p}" for p in picks)
        return self.f.op(f"shufflevector {type} {a}, {type} {b}, <{len(picks)} x i32> <{mask}>")


def _pairs(items: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of consecutive items; a last single one is paired with itself."""
    for k in range(0, len(items), 2):
        yield items[k], items[min(k + 1, len(items) - 1)]


class _Pixels(Epilogue):
    """The epilogue for vectors of pixels of one filter. Its operands depend on the filter alone."""

    def finished(self, acc: Sequence[str], image: Any, row: Any, piece: Piece) -> list[str]:
        self.handler.forget()
        lanes = affine(self.handler.lane_number(self.handler.width))
        self._accumulators.clear()
        values = []
        for c, register in enumerate(acc):
            index = (affine(0), affine(0), lanes, affine(c))
            self._accumulators[index] = register
            value = self.run(partial(self.value, self.result, index))
            values.append(self.handler.splat(value).ssa)
        return values
