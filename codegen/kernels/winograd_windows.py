"""The transform of windows that Winograd kernels begin with: w = M d Mᵀ for each window d of an image, channels last.

Images are cut along each axis; windows may overlap, and reach beyond the border, where they have zeros. Transforms are
vectorised over channels, and write scratch memory, [positions, tiles, channels] (`ir/kernels/winograd_memory.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from gluonjit.codegen.kernels.linear_map import Walk, map_both_ways
from gluonjit.codegen.kernels.matmul import share, unravel
from gluonjit.codegen.kernels.pixel_tiles import Axis
from gluonjit.codegen.kernels.tiles import Tile, prefetch, steps
from gluonjit.codegen.text.llvm import Function
from gluonjit.common.cook_toom import Matrix, transform
from gluonjit.ir.dims import Dim, Extent, aligned, divides, hint, is_less
from gluonjit.ir.kernels.winograd_memory import Transformed
from gluonjit.ir.types import DType

_CHANNELS = 4
"""Vectors of channels per task, where threads share a transform."""

Channels = tuple[Any, Any]
"""[low, high)."""


class Span(NamedTuple):
    """Tiles [first, last) of the result, which lie in slots [0, last - first) of scratch memory."""

    first: Any
    last: Any


@dataclass(frozen=True)
class Cut:
    """One spatial axis of an image, cut into windows."""

    count: Any
    """The number of windows; a value of code where it is neither known nor a polynomial."""
    step: int
    """Pixels from the beginning of a window to that of the next one."""
    low: int
    """Pixels of the first window that are in front of the image."""
    size: Any
    """Pixels of the image."""
    extent: int
    """Pixels of a window."""
    matrix: Matrix
    """Transforms a window along this axis."""

    @property
    def is_padded(self) -> bool:
        """Whether some window is partly outside, as far as that is known."""
        if not isinstance(self.count, (int, Dim)):
            return True
        last = (self.count - 1) * self.step - self.low + self.extent - 1
        return self.low > 0 or not is_less(last, self.size)


class Tiled:
    """One spatial axis of a convolution, cut into tiles of `outputs` pixels of the result."""

    def __init__(self, f: Function, axis: Axis, outputs: int) -> None:
        self.axis, self.outputs = axis, outputs
        self.count: Any = f.div(f.add(axis.out, outputs - 1), outputs)
        """The number of tiles; a value of code where it is neither known nor a polynomial."""
        self.usual = -(-hint(axis.out) // outputs)
        self.transform = transform(outputs, axis.taps)
        self.extent = len(self.transform.input)
        """Pixels along each axis of a window of the input."""

    @property
    def of_input(self) -> Cut:
        """The windows of the input."""
        return Cut(self.count, self.outputs, self.axis.low, self.axis.size, self.extent, self.transform.input)

    @property
    def of_cotangent(self) -> Cut:
        """The tiles of the result's cotangent, with the transpose of what makes tiles of the result."""
        return Cut(self.count, self.outputs, 0, self.axis.out, self.outputs, tuple(zip(*self.transform.output)))

    @property
    def is_ragged(self) -> bool:
        """Whether the last tile is partly outside of the result, as far as that is known."""
        return not divides(self.outputs, self.axis.out)


class Image(NamedTuple):
    """Images [image, row, pixel, channel]."""

    pointer: str
    strides: tuple[Any, Any, Any]
    """Elements from one image, row and pixel to the next."""
    count: Any
    depth: Extent
    dtype: DType


class Windows:
    """The transform of the windows of images. `target`: the array that it writes; `scratch`: memory of the thread, as
    large as `window_bytes` tells, which begins with a row of zeros."""

    def __init__(
        self,
        f: Function,
        image: Image,
        cuts: tuple[Cut, Cut],
        target: tuple[str, Transformed],
        scratch: tuple[str, Any],
    ) -> None:
        self.f, self.image = f, image
        self.rows, self.columns = cuts
        self.target, self.layout = target
        self.depth, self.strides = image.depth, image.strides
        self.vector = Tile(f, image.dtype, 1)
        self.scalar, self.lanes, self.item = self.vector.scalar, self.vector.lanes, image.dtype.itemsize
        self.zeros, zeros = scratch
        self.window = f.gep("i8", self.zeros, zeros)
        self.row_bytes = aligned(self.columns.extent * image.depth * self.item, f.target.line)
        """Bytes of a row of a window that is put together where part of it lies outside of the input."""
        self.is_dense = self.strides[2] == self.depth

    def transform(self, t: Any, slot: Any, channels: Channels) -> None:
        """Transforms some channels of the window of tile `t`."""
        f, rows, columns = self.f, self.rows, self.columns
        image, ty, tx = unravel(f, t, [self.image.count, rows.count, columns.count])
        top = f.sub(f.mul(ty, rows.step), rows.low)
        left = f.sub(f.mul(tx, columns.step), columns.low)
        source = f.gep(self.scalar, self.image.pointer, f.mul(image, self.strides[0]))
        pointers = [f.gep("i8", self.window, k * self.row_bytes) for k in range(rows.extent)]
        following: list[str] = []
        if not self.is_dense:
            self._copy_window(source, top, left, channels)
        else:
            there = [self._row(source, f.add(top, k), left) for k in range(rows.extent)]
            step = f.extent(columns.extent * self.depth)
            # Not `inbounds`: there need not be a next tile.
            following = [f.op(f"getelementptr {self.scalar}, ptr {p}, i64 {step}") for p in there]
            if columns.is_padded:
                # A window that crosses the border is assembled in scratch memory, with zeros for missing columns.
                right = f.op(f"icmp sgt i64 {f.add(left, columns.extent)}, {f.extent(columns.size)}")
                outside = f.op(f"or i1 {right}, {f.op(f'icmp slt i64 {left}, 0')}")
                with f.if_(outside):
                    self._copy_window(source, top, left, channels)
                there = [f.op(f"select i1 {outside}, ptr {a}, ptr {b}") for a, b in zip(pointers, there)]
            pointers = there
        for tile, c in vectors(f, self.image.dtype, channels, self.depth):
            # The part of the next tile that it does not share with this one.
            for p in following:
                for k in range(columns.step):
                    prefetch(f, f.op(f"getelementptr {self.scalar}, ptr {p}, i64 {c}"), k * self.depth * self.item)
            self._transform(tile, pointers, c, place_of(f, self.target, self.layout, slot, c, self.item))

    def _row(self, source: str, row: Any, column: Any) -> str:
        """The pixel at a row and column of the input; zeros where there is no such row."""
        f = self.f
        offset = f.add(f.mul(row, self.strides[1]), f.mul(column, self.strides[2]))
        # Not `inbounds`: it may lie outside, and is then not read.
        p = f.op(f"getelementptr {self.scalar}, ptr {source}, i64 {f.extent(offset)}")
        if not self.rows.is_padded:
            return p
        inside = f.op(f"icmp ult i64 {row}, {f.extent(self.rows.size)}")  # unsigned: a negative one is huge
        return f.op(f"select i1 {inside}, ptr {p}, ptr {self.zeros}")

    def _copy_window(self, source: str, top: Any, left: Any, channels: Channels) -> None:
        """Puts the window whose first pixel is at row `top`, column `left` of the input together in scratch memory."""
        f = self.f
        with f.for_(0, self.rows.extent, hint="row") as row, f.for_(0, self.columns.extent, hint="column") as column:
            x = f.add(left, column.index)
            p = self._row(source, f.add(top, row.index), x)
            inside = f.op(f"icmp ult i64 {x}, {f.extent(self.columns.size)}")
            p = f.op(f"select i1 {inside}, ptr {p}, ptr {self.zeros}")
            offset = f.add(f.mul(row.index, self.row_bytes), f.mul(column.index, self.depth * self.item))
            target = f.gep("i8", self.window, offset)
            for tile, c in vectors(f, self.image.dtype, channels, self.depth):
                v = tile.load(f.gep(self.scalar, p, c), tile.is_partial(0))
                # A partial vector overwrites the beginning of the next pixel, which is written after it.
                f.store(tile.vector, v, f.gep(self.scalar, target, c), self.item)

    def _transform(self, tile: Tile, pointers: list[str], channel: Any, target: str) -> None:
        f, rows, columns = self.f, self.rows.matrix, self.columns.matrix
        position = self.layout.position

        def load(c: Any) -> list[str]:
            return [tile.load(f.gep(self.scalar, p, c), tile.is_partial(0)) for p in pointers]

        def store(_: Any, place: str, y: list[str]) -> None:
            for p, v in zip(steps(f, place, position, len(columns)), y, strict=True):
                f.store(tile.vector, v, p, self.lanes * self.item)

        across = Walk(channel, self.depth, "i64")
        map_both_ways(tile, rows, columns, across, load, Walk(target, len(columns) * position), store)


def place_of(f: Function, array: str, layout: Transformed, slot: Any, channel: Any, itemsize: int) -> str:
    """Where the first position of a tile has a channel."""
    if layout.group:
        array = f.gep("i8", array, f.mul(f.div(channel, layout.group), layout.apart))
        channel = f.mod(channel, layout.group)
    return f.gep("i8", array, f.add(f.mul(slot, layout.tile), f.mul(channel, itemsize)))


def clear(f: Function, dtype: DType, zeros: str, nbytes: Any) -> None:
    """Writes the row of zeros that `Windows` reads."""
    tile = Tile(f, dtype, 1)
    with f.for_(0, nbytes // dtype.itemsize, tile.lanes) as loop:
        f.store(tile.vector, "zeroinitializer", f.gep(tile.scalar, zeros, loop.index), tile.lanes * dtype.itemsize)


def share_transform(
    f: Function, dtype: DType, span: Span, channels: Extent, step: Callable[[Any, Any, Channels], None]
) -> None:
    """This thread's part of a transform of some tiles and all channels: `step(tile, slot, channels)`."""
    some = _CHANNELS * f.target.lanes(dtype)
    parts, count = f.div(f.add(channels, some - 1), some), f.sub(span.last, span.first)
    first, last = share(f, f.mul(count, parts))
    # Tile by tile, as finding where one lies takes as long as transforming some channels.
    with f.for_(f.div(first, parts), f.div(f.add(last, f.sub(parts, 1)), parts), hint="slot") as slot:
        before = f.mul(slot.index, parts)
        low = f.mul(f.max(f.sub(first, before), 0), some)
        high = f.min(f.mul(f.sub(last, before), some), channels)
        step(f.add(span.first, slot.index), slot.index, (low, high))


def vectors(f: Function, dtype: DType, channels: Channels, count: Extent) -> Iterator[tuple[Tile, Any]]:
    """Opens the loops over the vectors of some of `count` channels: for each kind, a tile of one vector and its first
    channel."""
    (low, high), lanes = channels, f.target.lanes(dtype)
    with f.for_(low, f.sub(high, lanes - 1), lanes, hint="channel") as loop:
        yield Tile(f, dtype, 1), loop.index
    if not divides(lanes, count):
        tail = f.mod(count, lanes)
        with _if_last(f, high, count):
            yield Tile(f, dtype, 1, tail), count - tail


@contextmanager
def _if_last(f: Function, high: Any, count: Extent) -> Iterator[None]:
    if high == count:
        yield
    else:
        with f.if_(f.op(f"icmp eq i64 {high}, {count}")):
            yield
