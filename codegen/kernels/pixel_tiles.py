"""The tiles of a line of pixels, of known length (`conv.tile_kinds`) or open (`ir/kernels/tile_lengths.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from gluonjit.codegen.text.llvm import Function
from gluonjit.ir.kernels.tile_lengths import tile_lengths


@dataclass(frozen=True)
class Axis:
    """One spatial axis; `size` and `out` may be open."""

    size: Any
    out: Any
    taps: int
    stride: int
    low: int
    dilation: int

    def at(self, o: Any, tap: int) -> Any:
        """The input position that `tap` of output position `o` reads, inside or not."""
        return o * self.stride + tap * self.dilation - self.low

    def reads(self, o: int, tap: int) -> bool:
        return bool(0 <= self.at(o, tap) < self.size)

    def first_at(self, position: int, tap: int) -> int:
        """The first output position, perhaps negative, whose `tap` reads the input at `position` or after it."""
        return -((tap * self.dilation - self.low - position) // self.stride)

    @property
    def is_padded(self) -> bool:
        """Whether some tap of some output position is outside."""
        return self.low > 0 or bool(self.at(self.out - 1, self.taps - 1) >= self.size)

    def of_length(self, out: int) -> Axis:
        """This axis, of open length, where it has `out` output positions. Raises Undecided if the input positions that
        are left over depend on a size."""
        return replace(self, out=out, size=out * self.stride + int(self.size - self.out * self.stride))

    def tap_range(self, f: Function, o: Any) -> tuple[Any, Any]:
        """[first, last) of the taps that read inside the input for output position `o` (i64)."""
        if not self.is_padded:
            return 0, self.taps
        start = f.sub(f.mul(o, self.stride), self.low)
        before = f.max(f.sub(0, start), 0)
        after = f.max(f.sub(self.size, start), 0)
        first = f.div(f.add(before, self.dilation - 1), self.dilation)
        last = f.div(f.add(after, self.dilation - 1), self.dilation)
        return first, f.min(last, self.taps)


@dataclass(frozen=True)
class Segment:
    """Taps [first, last) along the last axis, which read inside the input for the pixels `active` of a tile."""

    first: int
    last: int
    active: tuple[int, ...]


@dataclass(frozen=True)
class Kind:
    """What the code of a tile depends on: its pixels, and the taps that they read."""

    pixels: int
    segments: tuple[Segment, ...]


def tile_kinds(axis: Axis, pixels: int, merge: bool) -> list[tuple[Kind, int, int]]:
    """(kind, first tile, number of tiles) for runs of equal tiles along the axis. `merge`: taps may be joined.

    The axis may be of any length: only tiles where a tap begins or ceases to read inside the input are looked at.
    """
    tiles = -(-axis.out // pixels)
    # The last tile may have fewer pixels.
    starts = {0, axis.out // pixels}
    for tap in range(axis.taps):
        for edge in (0, axis.size):
            tile = axis.first_at(edge, tap) // pixels
            starts |= {tile, tile + 1}
    ends = [*sorted(t for t in starts if 0 <= t < tiles), tiles]
    runs: list[tuple[Kind, int, int]] = []
    for first, end in pairwise(ends):
        kind = _tile_kind(axis, first * pixels, min(pixels, axis.out - first * pixels), merge)
        if runs and runs[-1][0] == kind:
            first = runs.pop()[1]
        runs.append((kind, first, end - first))
    return runs


def _tile_kind(axis: Axis, start: int, count: int, merge: bool) -> Kind:
    """The kind of the tile of `count` pixels that begins at output position `start`."""
    segments: list[Segment] = []
    for tap in range(axis.taps):
        active = tuple(c for c in range(count) if axis.reads(start + c, tap))
        if segments and merge and segments[-1].active == active and segments[-1].last == tap:
            segments[-1] = Segment(segments[-1].first, tap + 1, active)
        elif active:
            segments.append(Segment(tap, tap + 1, active))
    return Kind(count, tuple(segments))


class PixelTiles:
    """The tiles of a line of up to `pixels` pixels each. To be made where a function begins. `merge`: taps may be
    joined."""

    def __init__(self, f: Function, axis: Axis, pixels: int, merge: bool) -> None:
        self.f, self.axis, self.pixels, self.merge = f, axis, pixels, merge
        self.count: Any
        """The number of tiles."""
        self.units: Any
        """The number of parts into which tasks may divide the line (`span`)."""
        self._runs: list[tuple[Kind, int, int]] = []
        if isinstance(axis.out, int):
            self._runs = tile_kinds(axis, pixels, merge)
            self.count = self.units = -(-axis.out // pixels)
            return
        self.lengths = tile_lengths(axis.out, pixels)
        unit = self.lengths.unit
        units, most = axis.out // unit, pixels // unit
        self.count = f.div(f.add(units, most - 1), most)
        # Open tiles overlap, and those at the ends may add up terms in another order. So that what lies in two tiles
        # does not depend on threads, who computes the first tile goes on with the second, and so at the other end.
        self.units = f.max(f.sub(self.count, 2), 1)
        self._length: Any = f.div(f.add(units, f.sub(self.count, 1)), self.count) if most > 1 else 1
        between, free = f.max(f.sub(self.count, 1), 1), f.sub(units, self._length)
        # Units from the beginning of a tile to that of the next one; for the first `_rest` tiles, one more.
        self._step: Any = f.div(free, between) if most > 1 else 1
        self._rest: Any = f.mod(free, between) if most > 1 else 0

    def span(self, start: Any, stop: Any) -> tuple[Any, Any]:
        """The tiles of the parts [start, stop) of the line."""
        f = self.f
        if isinstance(self.axis.out, int):
            return start, stop
        first = f.op(f"select i1 {f.op(f'icmp eq i64 {start}, 0')}, i64 0, i64 {f.add(start, 1)}")
        is_end = f.op(f"icmp eq i64 {stop}, {self.units}")
        return first, f.op(f"select i1 {is_end}, i64 {self.count}, i64 {f.add(stop, 1)}")

    def each(self, span: tuple[Any, Any] | None = None) -> Iterator[tuple[Kind, Any, Any]]:
        """All tiles of the line, or those in [span[0], span[1]): opens code for every kind, and yields there the kind,
        the tile's number and its first pixel."""
        f = self.f
        for kind, first, count in self._runs:
            with each(f, first, count, span) as number:
                yield kind, number, f.mul(number, self.pixels)
        if isinstance(self.axis.out, int):
            return
        alone, several, unit = self.lengths.alone, self.lengths.several, self.lengths.unit
        for length in self.lengths.all:
            with self._if(len(self.lengths.all) > 1, "eq", self._length, length // unit):
                if length in several:
                    with self._if(length in alone, "ne", self.count, 1):
                        yield from self._several(length, span)
                if length in alone:
                    with self._if(length in several, "eq", self.count, 1), each(f, 0, 1, span):
                        yield self._kind(length, 0, length), 0, 0

    def _several(self, length: int, span: tuple[Any, Any] | None) -> Iterator[tuple[Kind, Any, Any]]:
        f = self.f
        # A line that is long enough for padding at one end to be far away from the other end.
        far = 3 * length + self.axis.low + self.axis.taps * self.axis.dilation
        kinds = [self._kind(far, start, length) for start in (0, far // 2, far - length)]
        first, last = (1, f.sub(self.count, 1)) if len(set(kinds)) > 1 else (0, self.count)
        start, stop = span or (0, self.count)
        if first:
            with self._if(span is not None, "eq", start, 0):
                yield kinds[0], 0, 0
        with f.for_(f.max(start, first), f.min(stop, last), hint="tile") as loop:
            pixel = f.add(f.mul(loop.index, self._step), f.min(loop.index, self._rest) if self._rest != 0 else 0)
            yield kinds[1], loop.index, f.mul(pixel, self.lengths.unit)
        if first:
            with self._if(span is not None, "eq", stop, self.count):
                yield kinds[2], last, f.extent(self.axis.out - length)

    def _kind(self, line: int, start: int, length: int) -> Kind:
        return _tile_kind(self.axis.of_length(line), start, length, self.merge)

    @contextmanager
    def _if(self, needed: bool, how: str, a: Any, b: Any) -> Iterator[None]:
        """Code that runs if a and b compare so; always, unless `needed`."""
        f = self.f
        if not needed:
            yield
            return
        with f.if_(f.op(f"icmp {how} i64 {f.extent(a)}, {f.extent(b)}")):
            yield


@contextmanager
def each(f: Function, first: int, count: int, span: tuple[Any, Any] | None = None) -> Iterator[Any]:
    """A loop over [first, first + count), cut to `span`; no loop for a single iteration."""
    if span is not None and (count > 1 or span != (0, 1)):
        with f.for_(f.max(span[0], first), f.min(span[1], first + count), hint="tile") as loop:
            yield loop.index
    elif count == 1:
        yield first
    else:
        with f.for_(first, first + count, hint="tile") as loop:
            yield loop.index
