"""How the rows of a matrix product are cut into register tiles.

A known number of rows gives tiles of one height and perhaps a lower last one. Of an open number of rows, tiles get
heights that differ by one at most (17 rows in tiles of up to 8: 6, 6, 5), since a last tile of few rows would take
about as long as a whole one. So there is code for every height that may occur, and a branch for each run of tiles.
Where that would be too much code, all tiles get the same even height, and the last one begins earlier: it computes
some rows again, to the same bits. So does the last of many tiles, all of which are whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gluonjit.codegen.text.llvm import Function
from gluonjit.ir.dims import Dim, Extent, least_of_all, least_usual

OVERLAPPING = 32
"""Tiles of which the last one may compute rows again: at most a part in so many takes longer."""


class RowTiles:
    """`count` tiles of up to `rows` of the `m` rows. To be made where a function begins. `few`: there should be code
    for few heights."""

    def __init__(self, f: Function, m: Extent, rows: int, few: bool = False) -> None:
        self.f, self.m, self.rows = f, m, rows
        self.low = -(-least_usual(m) // rows)
        """The least number of tiles that there may be, if no dimension is 1."""
        self.heights: list[int] = []
        """The heights that tiles of an open number of rows may have; empty if all tiles are whole."""
        self.count: Any
        unit = math.gcd(rows, *m.terms.values()) if isinstance(m, Dim) else rows
        if isinstance(m, int) or unit == rows:
            self.count = -(-m // rows)
            self._whole: Any = m // rows
            self._rest = int(m % rows)
            return
        self._overlapping = least_of_all(m) >= OVERLAPPING * rows
        if self._overlapping:
            self.heights, self.count = [rows], f.div(f.add(m, rows - 1), rows)
            return
        self._same = few and unit == 1
        if self._same:
            self._make_even()
            return
        self.heights = heights(m, rows, unit)
        self._unit, units, most = unit, m // unit, rows // unit
        self.count = f.div(f.add(units, most - 1), most)
        self._height = f.div(units, self.count)
        """The height of the lower tiles, in units."""
        self._higher = f.mod(units, self.count)
        """How many tiles are one unit higher: the first ones."""

    def _make_even(self) -> None:
        """One even height for all tiles. An odd number of rows that one tile could nearly hold takes two; a single row
        is a tile of its own."""
        f, most, may_be_1 = self.f, self.rows - self.rows % 2, least_of_all(self.m) == 1
        self.heights = [*([1] if may_be_1 else []), *range(2, most + 1, 2)]

        def height(tiles: Any) -> Any:
            """The least even height with which this number of tiles hold all rows."""
            twice = f.mul(tiles, 2)
            return f.mul(f.div(f.add(self.m, f.sub(twice, 1)), twice), 2)

        count = f.div(f.add(self.m, most - 1), most)
        fits = f.op(f"icmp sle i64 {height(count)}, {f.extent(self.m)}")
        self.count = f.op(f"select i1 {fits}, i64 {f.extent(count)}, i64 2")
        self._height = height(self.count)
        if may_be_1:
            is_1 = f.op(f"icmp eq i64 {f.extent(self.m)}, 1")
            self.count = f.op(f"select i1 {is_1}, i64 1, i64 {self.count}")
            self._height = f.op(f"select i1 {is_1}, i64 1, i64 {self._height}")

    def each(self, start: Any, stop: Any) -> Iterator[tuple[Any, Any, int]]:
        """The tiles from number `start` to `stop` - 1: opens code for every height, and yields there a tile's number,
        first row and height."""
        f = self.f
        if self.heights and self._overlapping:
            with f.for_(start, stop, hint="tile") as loop:
                yield loop.index, f.min(f.mul(loop.index, self.rows), f.sub(self.m, self.rows)), self.rows
            return
        if self.heights:
            yield from self._of_same_height(start, stop) if self._same else self._nearly_equal(start, stop)
            return
        whole, rest = self._whole, self._rest
        if self.count == 1:
            yield 0, 0, rest or self.rows
            return
        with f.for_(start, f.min(stop, whole), hint="tile") as loop:
            yield loop.index, f.mul(loop.index, self.rows), self.rows
        if rest:
            with f.if_(f.op(f"icmp sgt i64 {stop}, {whole}")):
                yield whole, whole * self.rows, rest

    def _of_same_height(self, start: Any, stop: Any) -> Iterator[tuple[Any, Any, int]]:
        f = self.f
        for height in self.heights:
            with f.if_(f.op(f"icmp eq i64 {self._height}, {height}")), f.for_(start, stop, hint="tile") as loop:
                yield loop.index, f.min(f.mul(loop.index, height), f.sub(self.m, height)), height

    def _nearly_equal(self, start: Any, stop: Any) -> Iterator[tuple[Any, Any, int]]:
        f = self.f
        for height in self.heights:
            units = height // self._unit
            lower = f.op(f"icmp eq i64 {self._height}, {units}")
            higher = f.op(f"icmp eq i64 {self._height}, {units - 1}")
            with f.if_(f.op(f"or i1 {lower}, {higher}")):
                first = f.op(f"select i1 {lower}, i64 {f.max(start, self._higher)}, i64 {f.extent(start)}")
                end = f.op(f"select i1 {lower}, i64 {f.extent(stop)}, i64 {f.min(stop, self._higher)}")
                with f.for_(first, end, hint="tile") as loop:
                    number = loop.index
                    row = f.add(f.mul(number, self._height), f.min(number, self._higher))
                    yield number, f.mul(row, self._unit), height


def heights(m: Extent, rows: int, unit: int) -> list[int]:
    """The heights of nearly equal tiles of an open number of rows, a multiple of `unit`."""
    low, most = -(-least_of_all(m) // unit), rows // unit
    found = set()
    # From most · (most - 1) units on, tiles have the full height or one unit less.
    for units in range(low, max(low, most * most) + most + 1):
        tiles = -(-units // most)
        found |= {units // tiles, -(-units // tiles)}
    return [unit * height for height in sorted(found)]


def lowest_height(least: int, rows: int) -> int:
    """The least of the heights of nearly equal tiles of up to `rows` rows, for every number of rows from `least`."""
    return min(m // -(-m // rows) for m in range(least, max(least, rows * rows) + rows))
