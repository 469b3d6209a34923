"""Register tiles: the inner loops that matrix products and convolutions share.

A tile of the result, `rows` × `vectors` registers, is summed up term by term. For each term the weights of the tile's
columns are loaded as vectors, one value per row is broadcast, and every accumulator gets one multiply-add. Mostly a row
is a constant displacement from one pointer, so the loop has no address arithmetic to speak of; where the distance of
rows is open, every third row has a pointer, and addressing modes reach the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from gluonjit.codegen.target import pair_products
from gluonjit.codegen.text.llvm import Function, memory_type, vector
from gluonjit.ir.dims import Dim, Extent, divides
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import F32, DType

_UNROLLED = 56
"""Multiply-adds in the body of an unrolled loop, about."""
_STRIDE = 1024
"""Bytes of weights that a loop's body reads at most. Prefetchers follow an instruction whose address grows by this much
per iteration; beyond, a matrix times a vector was measured at half the bandwidth of the L2 cache."""
_FEW_ROWS = 4
"""With fewer rows, loading weights from the second-level cache takes longer than the multiply-adds."""
_AHEAD = 4096
"""Bytes between a weight and what is prefetched when it is used."""
_MANY = 12
"""From this number of accumulators on, a loop over an open number of terms is not unrolled: a second loop for the last
ones would cost more, since accumulators are copied between the two."""
_REACHED = 3
"""Rows, an open distance apart, that an instruction can address from one pointer: the distance times 0, 1 or 2."""
OFTEN = 4
"""Every so many terms, a line is prefetched of what has an open number of bytes per term."""
_STREAMS, _STREAM_STEP = 8, 16
"""The most streams that are prefetched at the same time, and the least bytes per term of each: with 8, the four terms
of a loop's body ask for half a line, so for each line twice."""
RUN = 128
"""Terms of f32 that an accumulator adds up, at most about, before they go into a total: rounding errors then grow with
how long a run is and how many there are, not with the number of all terms. With runs twice as long, a
net of many convolutions and BatchNorms was a third further from the truth than with MXNet's kernels."""
_WHOLE = 2 * RUN
"""The most terms of a sum that is not cut: totals go through memory, which takes 2 to 7 % of the time."""
_LATE = 96
"""How many terms before the end what the epilogue reads and writes is fetched again: on the way, a panel of weights has
driven it from the first cache, above all where rows lie a page apart."""

Rows = list[list[str]]
"""Accumulators: a list of vectors for each row."""
Late = Callable[[], None]
"""Writes code that is to run `_LATE` terms before the end of a sum."""


@dataclass(frozen=True)
class Fetch:
    """What to prefetch while a sum is computed: `step` bytes from `pointer` on per term."""

    pointer: str
    step: Any
    """An int, or a value of code."""
    nearest: bool
    """Whether into the first-level cache, rather than the second."""

    def at(self, tile: Tile, k: Any) -> Fetch:
        """What to prefetch from term k on."""
        offset = tile.f.extent(tile.f.mul(k, self.step))
        # Not `inbounds`: what is prefetched need not exist.
        return replace(self, pointer=tile.f.op(f"getelementptr i8, ptr {self.pointer}, i64 {offset}"))

    def emit(self, tile: Tile, k: int) -> None:
        """Prefetches for term k."""
        size = tile.f.target.line
        if isinstance(self.step, str):
            if k % OFTEN == 0:
                prefetch(tile.f, self.at(tile, k).pointer, 0, self.nearest)
            return
        for line in range(-(-k * self.step // size), -(-(k + 1) * self.step // size)):
            prefetch(tile.f, self.pointer, line * size, self.nearest)


@dataclass(frozen=True)
class Fetches:
    """Several streams to prefetch at the same time."""

    parts: tuple[Fetch, ...]

    @staticmethod
    def spread(f: Function, pointer: str, step: int, terms: int) -> Fetches:
        """`step` bytes per term, for `terms` terms, from `pointer` on: into the first cache, and from several places at
        the same time. The hardware prefetchers follow each of these streams up to the end of a page, so they
        rarely have to start again all at once."""
        count = max(1, min(_STREAMS, step // _STREAM_STEP))
        part = -(-step // count)
        return Fetches(tuple(Fetch(f.gep("i8", pointer, k * part * terms), part, nearest=True) for k in range(count)))

    def at(self, tile: Tile, k: Any) -> Fetches:
        return Fetches(tuple(part.at(tile, k) for part in self.parts))

    def emit(self, tile: Tile, k: int) -> None:
        for part in self.parts:
            part.emit(tile, k)


class _Cell(NamedTuple):
    """An accumulator: vector `vector` of a row, or the halves of two rows' last vectors."""

    rows: tuple[int, ...]
    vector: int


_Chains = list[dict[_Cell, str]]
"""Partial sums of each accumulator."""


@dataclass(frozen=True)
class _Line:
    """What is multiplied; see `Tile.contract`."""

    x: str
    offsets: Sequence[Extent]
    w: str
    w_step: Extent
    aligned: bool
    fetch: Fetch | Fetches | None
    active: Sequence[int]
    heads: Mapping[int, str] = field(default_factory=dict)
    """In a loop over terms: where some of the rows are, if their distance is open; others are found from the nearest
    one before."""

    @property
    def is_open(self) -> bool:
        return any(isinstance(self.offsets[r], Dim) for r in self.active)

    def is_shared(self, terms: int) -> bool:
        """Whether rows have values in common among so many terms."""
        places = [self.offsets[r] for r in self.active]
        return not self.is_open and any(0 < b - a < terms for a, b in zip(places, places[1:]))

    def factor(self, tile: Tile, r: int, k: int) -> str:
        """Where row r's value for term k is."""
        f, offset = tile.f, self.offsets[r]
        if not isinstance(offset, Dim):
            return f.gep(tile.scalar, self.x, offset + k)
        first, step = r - r % _REACHED, self.offsets[1] - self.offsets[0]
        p = self.heads.get(first) or f.gep(tile.scalar, self.x, self.offsets[first])
        if r > first:
            p = f.gep(f"[{r - first} x {tile.scalar}]", p, step)
        return f.gep(tile.scalar, p, k)

    def begin(self, tile: Tile) -> dict[int, str]:
        """The `heads` at term 0."""
        firsts = sorted({r - r % _REACHED for r in self.active}) if self.is_open else []
        return {first: tile.f.gep(tile.scalar, self.x, self.offsets[first]) for first in firsts}

    def at(self, tile: Tile, k: Any) -> _Line:
        """The line from term k on."""
        f = tile.f
        x, w = f.gep(tile.scalar, self.x, k), f.gep(tile.scalar, self.w, f.mul(k, self.w_step))
        return replace(self, x=x, w=w, fetch=self.fetch and self.fetch.at(tile, k))


def unit_type(dtype: DType, machine: Machine) -> str:
    """LLVM's type of what a tile loads at a time of operands of this type."""
    terms = machine.multiplication(dtype).terms
    return memory_type(dtype) if terms == 1 else f"i{terms * dtype.bits}"


def chains(accumulators: int, machine: Machine) -> int:
    """How many partial sums each of them is split into, so that a small tile is not bound by latency."""
    return max(1, -(-machine.chains // accumulators))


class Tile:
    """Writes the code of one register tile: `vectors` registers of columns, of which the last has `last` lanes, or as
    many as `left` (i64) tells at run time.

    Columns past `last` are never read from operands of the result's width, nor written. If `halved`, the last vector of
    weights holds its columns twice, in either half, and `contract` sums two rows in one register.

    `usual`: the accumulators of most of the kernel's tiles, if this one has fewer. Loops are unrolled as if it had so
    many: else code would be longest where it runs least.
    """

    def __init__(
        self,
        f: Function,
        dtype: DType,
        vectors: int,
        last: int | None = None,
        halved: bool = False,
        left: str | None = None,
        usual: int = 0,
    ) -> None:
        self.f = f
        way = f.target.multiplication(dtype)
        self.sums = way.sums
        self.scalar = unit_type(dtype, f.target)
        """What is loaded at a time: a factor, or as many as one instruction multiplies and adds up."""
        self.bytes = dtype.itemsize * way.terms
        self.align = dtype.itemsize
        self.lanes = f.target.sum_lanes(dtype)
        self.vectors = vectors
        self.last = self.lanes if last is None else last
        self.halved = halved
        self.left = left
        self.usual = usual
        self.vector = vector(self.lanes, self.scalar)
        self._suffix = f"v{self.lanes}{way.sums.kind}{way.sums.bits}"
        self._pairs = pair_products(f.target) if way.terms == 2 else None
        if self._pairs is not None:
            halves = vector(2 * self.lanes, "i16")
            f.module.declare(self._pairs, self.vector, [halves] * 2)
        elif self.sums.is_float and f.target.has_fma:
            f.module.declare(f"llvm.fma.{self._suffix}", self.vector, [self.vector] * 3)
        self._mask = self._exist(left) if left is not None else self._first(self.last)

    def is_partial(self, v: int) -> bool:
        """Whether vector `v` of a row has columns that do not exist."""
        return v == self.vectors - 1 and (self.last < self.lanes or self.left is not None)

    def zeros(self, rows: int) -> Rows:
        return [["zeroinitializer"] * self.vectors for _ in range(rows)]

    # ---- instructions

    def splat(self, scalar: str) -> str:
        f = self.f
        one = f.op(f"insertelement {self.vector} poison, {self.scalar} {scalar}, i64 0")
        mask = f"<{self.lanes} x i32> zeroinitializer"
        return f.op(f"shufflevector {self.vector} {one}, {self.vector} poison, {mask}")

    def multiply_add(self, a: str, b: str, c: str) -> str:
        """a·b + c, of floats: rounded once where the target can, else twice. Of pairs of integers: both products."""
        f, t = self.f, self.vector
        if not self.sums.is_float:
            return self.add(self._products_of_pairs(a, b), c)
        if f.target.has_fma:
            return f.op(f"call {t} @llvm.fma.{self._suffix}({t} {a}, {t} {b}, {t} {c})")
        return self.add(f.op(f"fmul {t} {a}, {b}"), c)

    def add(self, a: str, b: str) -> str:
        return self.f.op(f"{'fadd' if self.sums.is_float else 'add'} {self.vector} {a}, {b}")

    def _products_of_pairs(self, a: str, b: str) -> str:
        """The sums of the two products of each lane's signed halves."""
        f, t, halves = self.f, self.vector, vector(2 * self.lanes, "i16")
        if self._pairs is not None:
            left, right = (f.op(f"bitcast {t} {v} to {halves}") for v in (a, b))
            return f.op(f"call {t} @{self._pairs}({halves} {left}, {halves} {right})")
        shift = f"<{', '.join(['i32 16'] * self.lanes)}>"
        high = [f.op(f"ashr {t} {v}, {shift}") for v in (a, b)]
        low = [f.op(f"ashr {t} {f.op(f'shl {t} {v}, {shift}')}, {shift}") for v in (a, b)]
        return self.add(*(f.op(f"mul {t} {x}, {y}") for x, y in (low, high)))

    def load(self, pointer: str, partial: bool = False, align: int | None = None) -> str:
        """A vector from memory; a partial one does not touch what lies past its last lane, and has zeros there."""
        f, t = self.f, self.vector
        align = align or self.bytes
        if not partial:
            return f.op(f"load {t}, ptr {pointer}, align {align}")
        name = f"llvm.masked.load.{self._suffix}.p0"
        f.module.declare(name, t, ["ptr", "i32", f"<{self.lanes} x i1>", t])
        return f.op(f"call {t} @{name}(ptr {pointer}, i32 {align}, {self.mask}, {t} zeroinitializer)")

    def store(self, value: str, pointer: str, partial: bool = False) -> None:
        """A vector to memory; a partial one does not touch what lies past its last lane."""
        f, t = self.f, self.vector
        if not partial:
            f.emit(f"store {t} {value}, ptr {pointer}, align {self.bytes}")
            return
        if self.left is None and not f.target.masks_stores:
            if self.last == 1:
                part = f.op(f"extractelement {t} {value}, i64 0")
            else:
                lanes = ", ".join(f"i32 {k}" for k in range(self.last))
                part = f.op(f"shufflevector {t} {value}, {t} poison, <{self.last} x i32> <{lanes}>")
            f.emit(f"store {vector(self.last, self.scalar)} {part}, ptr {pointer}, align {self.bytes}")
            return
        name = f"llvm.masked.store.{self._suffix}.p0"
        f.module.declare(name, "void", [t, "ptr", "i32", f"<{self.lanes} x i1>"])
        f.emit(f"call void @{name}({t} {value}, ptr {pointer}, i32 {self.bytes}, {self.mask})")

    @property
    def mask(self) -> str:
        """The lanes of a partial vector that exist, with its type."""
        return self._mask

    def _first(self, count: int) -> str:
        bits = ", ".join("i1 true" if k < count else "i1 false" for k in range(self.lanes))
        return f"<{self.lanes} x i1> <{bits}>"

    def _exist(self, count: str) -> str:
        f, numbers = self.f, f"<{self.lanes} x i32>"
        one = f.op(f"insertelement {numbers} poison, i32 {f.op(f'trunc i64 {count} to i32')}, i64 0")
        counts = f.op(f"shufflevector {numbers} {one}, {numbers} poison, {numbers} zeroinitializer")
        lanes = ", ".join(f"i32 {k}" for k in range(self.lanes))
        return f"<{self.lanes} x i1> " + f.op(f"icmp ugt {numbers} {counts}, <{lanes}>")

    def _shuffled(self, a: str, b: str, picks: Sequence[int]) -> str:
        mask = ", ".join(f"i32 {p}" for p in picks)
        return self.f.op(f"shufflevector {self.vector} {a}, {self.vector} {b}, <{self.lanes} x i32> <{mask}>")

    # ---- sums of products

    def cells(self, rows: Sequence[int]) -> list[_Cell]:
        """The accumulators for these rows. They come row by row, if halved two by two."""
        if not self.halved:
            return [_Cell((r,), v) for r in rows for v in range(self.vectors)]
        found = []
        for k in range(0, len(rows), 2):
            some = tuple(rows[k : k + 2])
            found += [_Cell((r,), v) for r in some for v in range(self.vectors - 1)]
            found.append(_Cell(some, self.vectors - 1))
        return found

    def chains(self, rows: int) -> int:
        """`chains` of a tile of `rows` rows."""
        return chains(len(self.cells(range(rows))), self.f.target)

    def contract(
        self,
        acc: Rows,
        x: str,
        offsets: Sequence[Extent],
        w: str,
        terms: Extent,
        *,
        w_step: Extent,
        aligned: bool,
        ahead: bool = False,
        fetch: Fetch | Fetches | None = None,
        active: Sequence[int] | None = None,
        apart: bool = False,
        uncut: bool = False,
        late: Late | None = None,
    ) -> Rows:
        """acc[r] += Σ x[offsets[r] + k] · w[k · w_step + column] over k < terms, for the rows in `active` (all).

        `x` and `w` are pointers, offsets and steps count elements. `aligned`: each row of w is a whole number of
        vectors that begins at a multiple of their size; else its last vector is read as far as it exists.
        `ahead`: the nearest cache does not hold the weights, fetch them ahead of their use. `fetch`: something
        else to fetch meanwhile.
        `apart`: acc holds so many terms that these are summed separately first, for accuracy. `uncut`: the
        terms are not cut, a caller adds up sums of a few. `late` is not called where a known number of terms is cut.
        """
        f = self.f
        rows = range(len(acc)) if active is None else active
        # A tile of few rows waits for memory anyway, and the machine's own prefetcher is better at streams.
        if ahead and len(rows) >= _FEW_ROWS and isinstance(w_step, int):
            fetch = Fetch(f.gep("i8", w, _AHEAD), w_step * self.bytes, nearest=True)
        line = _Line(x, offsets, w, w_step, aligned, fetch, rows)
        if isinstance(terms, Dim):
            is_new = all(v == "zeroinitializer" for r in rows for v in acc[r])
            if is_new and self.sums is F32 and divides(self._open_unroll(line), terms):
                return self._open_runs(acc, line, terms, late)
            return self._open_sum(acc, line, terms)
        run = terms if uncut else self._run_length(terms, len(rows))
        if run == terms and not apart:
            return self._run(acc, line, run, late)
        # Totals are kept in memory: there is no register left for them.
        places = self._parking(rows)
        for (r, v), place in places.items():
            f.store(self.vector, acc[r][v], place)

        def plus_parked(part: Rows) -> Rows:
            total = [list(row) for row in acc]
            for (r, v), place in places.items():
                total[r][v] = self.add(f.load(self.vector, place), part[r][v])
            return total

        if run == terms:
            return plus_parked(self._run(self.zeros(len(acc)), line, run))
        whole, rest = divmod(terms, run)
        with f.for_(0, whole * run, run, hint="run") as loop:
            total = plus_parked(self._run(self.zeros(len(acc)), line.at(self, loop.index), run))
            for (r, v), place in places.items():
                f.store(self.vector, total[r][v], place)
        if rest:
            return plus_parked(self._run(self.zeros(len(acc)), line.at(self, whole * run), rest))
        total = [list(row) for row in acc]
        for (r, v), place in places.items():
            total[r][v] = f.load(self.vector, place)
        return total

    def _open_sum(self, acc: Rows, line: _Line, terms: Dim) -> Rows:
        """`contract` for an open number of terms: whole runs, of which there may be none, and the rest."""
        f = self.f
        if self.sums is not F32:
            return self._open_run(acc, line, terms)
        run = RUN * self.chains(len(line.active))
        places = self._parking(line.active)

        def add_parked(part: Rows) -> Rows:
            total = [list(row) for row in part]
            for (r, v), place in places.items():
                total[r][v] = self.add(f.load(self.vector, place), part[r][v])
            return total

        last = f.mul(f.div(f.sub(terms, 1), run), run)
        are_several = f.op(f"icmp sgt i64 {last}, 0")
        with f.if_(are_several):
            for place in places.values():
                f.store(self.vector, "zeroinitializer", place)
            with f.for_(0, last, run, hint="run") as loop:
                total = add_parked(self._run(self.zeros(len(acc)), line.at(self, loop.index), run))
                for (r, v), place in places.items():
                    f.store(self.vector, total[r][v], place)
        part = self._open_run(acc, line.at(self, last), f.sub(terms, last))
        before = f.scope.label
        with f.if_(are_several) as then:
            total = add_parked(part)
        for r, v in places:
            total[r][v] = f.op(f"phi {self.vector} [ {part[r][v]}, %{before} ], [ {total[r][v]}, %{then.label} ]")
        return total

    def _run_length(self, terms: int, rows: int) -> int:
        """How many terms are added up at a time: all, or a divisor of their number if one is near `RUN`."""
        chains = self.chains(rows)
        limit = RUN * chains
        if self.sums is not F32 or terms <= _WHOLE * chains:
            return terms
        divisors = [n for n in range(limit, limit // 2, -1) if terms % n == 0]
        return max(divisors, key=lambda n: (n % (2 * chains) == 0, n), default=limit)

    def _run(self, acc: Rows, line: _Line, terms: int, late: Late | None = None) -> Rows:
        """`contract` without cutting the sum."""
        active = line.active
        chains = self.chains(len(active))
        if terms < 2 * chains:
            chains = 1
        cells = self.cells(active)
        unroll = self._unroll(line, terms, chains)
        whole = terms // unroll * unroll if terms >= 2 * unroll else 0
        sums = self._begun(acc, cells, chains)
        middle = whole - _LATE // unroll * unroll
        if late is not None and middle > 0:
            sums = self._in_two(line, sums, (0, whole, unroll), middle, late)
        elif whole:
            sums = self._loop(line, cells, sums, (0, whole, unroll))
        self._add_terms(line, range(whole, terms), cells, sums)
        return self._total(acc, cells, sums)

    def _open_runs(self, zeros: Rows, line: _Line, terms: Dim, late: Late | None) -> Rows:
        """`contract` for an open number of terms of which an unrolled loop leaves no rest: one loop serves all runs.
        What a run sums up goes into a total if others follow. `zeros`: accumulators that are all zero."""
        f, cells, chains = self.f, self.cells(line.active), self.chains(len(line.active))
        unroll, length = self._open_unroll(line), RUN * chains
        length += -length % unroll
        places = self._parking(line.active)
        are_several = f.op(f"icmp sgt i64 {f.extent(terms)}, {2 * length}")
        run = f.op(f"select i1 {are_several}, i64 {length}, i64 {f.extent(terms)}")
        with f.if_(are_several):
            for place in places.values():
                f.store(self.vector, "zeroinitializer", place)
        with f.for_(0, terms, run, [(self.vector, "zeroinitializer")] * len(places), "run") as loop:
            stop = f.add(loop.index, run)
            end, begun = f.min(stop, terms), self._begun(zeros, cells, chains)
            if late is None:
                sums = self._loop(line, cells, begun, (loop.index, end, unroll))
            else:
                is_last = f.op(f"icmp eq i64 {end}, {f.extent(terms)}")
                middle = f.max(loop.index, f.sub(end, _LATE // unroll * unroll))
                middle = f.op(f"select i1 {is_last}, i64 {middle}, i64 {end}")
                sums = self._in_two(line, begun, (loop.index, end, unroll), middle, late)
            part = self._total(zeros, cells, sums)
            with f.if_(f.op(f"icmp slt i64 {stop}, {f.extent(terms)}")):
                for (r, v), place in places.items():
                    f.store(self.vector, self.add(f.load(self.vector, place), part[r][v]), place)
            loop.next(*(part[r][v] for r, v in places))
        before = f.scope.label
        with f.if_(are_several) as then:
            totals = [
                self.add(f.load(self.vector, place), last)
                for place, last in zip(places.values(), loop.results, strict=True)
            ]
        total = [list(row) for row in zeros]
        for (r, v), last, sum in zip(places, loop.results, totals, strict=True):
            total[r][v] = f.op(f"phi {self.vector} [ {last}, %{before} ], [ {sum}, %{then.label} ]")
        return total

    def _in_two(self, line: _Line, begun: _Chains, span: tuple[Any, Any, int], middle: Any, late: Late) -> _Chains:
        """`_loop`, interrupted by `late` before term `middle`, unless that is the end."""
        f, (start, stop, step), cells = self.f, span, list(begun[0])

        def by_chain(values: Iterable[str]) -> _Chains:
            names = iter(values)
            return [{c: next(names) for c in cells} for _ in begun]

        places = [("i64", str(start)), ("i64", str(middle))]
        with f.repeat([*places, *((self.vector, s[c]) for s in begun for c in cells)]) as loop:
            first, until, *values = loop.carried
            sums = self._loop(line, cells, by_chain(values), (first, until, step))
            loop.again = f.op(f"icmp slt i64 {until}, {stop}")
            with f.if_(loop.again):
                late()
            loop.next(until, str(stop), *(s[c] for s in sums for c in cells))
        return by_chain(loop.results[2:])

    def _parking(self, rows: Sequence[int]) -> dict[tuple[int, int], str]:
        """Memory for the totals of these rows, by row and vector: there is no register left for them."""
        parked = self.f.shared_alloca(self.vector, self.f.target.num_vector_registers, self.lanes * self.bytes)
        cells = [(r, v) for r in rows for v in range(self.vectors)]
        return {cell: self.f.gep(self.vector, parked, k) for k, cell in enumerate(cells)}

    def _open_unroll(self, line: _Line) -> int:
        """The terms in the body of a loop over an open number of them."""
        return self._unroll(line, RUN, self.chains(len(line.active)))

    def _unroll(self, line: _Line, terms: int, chains: int) -> int:
        """The terms in the body of a loop over so many. Rows that are not active count: in most tiles, all are."""
        rows = range(len(line.offsets))
        return unroll_factor(
            terms, max(len(self.cells(rows)), self.usual), self.vectors * self.lanes * self.bytes, chains
        )

    def _open_run(self, acc: Rows, line: _Line, terms: Any) -> Rows:
        """`_run` for as many terms as `terms` (i64, or open) tells at run time."""
        f = self.f
        chains = self.chains(len(line.active))
        cells = self.cells(line.active)
        if len(cells) >= _MANY:
            return self._total(acc, cells, self._loop(line, cells, self._begun(acc, cells, 1), (0, terms, 1)))
        unroll = self._open_unroll(line)
        whole = f.mul(f.div(terms, unroll), unroll)
        sums = self._loop(line, cells, self._begun(acc, cells, chains), (0, whole, unroll))
        if unroll > 1:
            sums[:1] = self._loop(line, cells, sums[:1], (whole, terms, 1))
        return self._total(acc, cells, sums)

    def _begun(self, acc: Rows, cells: Sequence[_Cell], chains: int) -> _Chains:
        """What each chain begins with, for each accumulator."""
        sums = [{cell: self._gathered(acc, cell) for cell in cells}]
        return sums + [dict.fromkeys(cells, "zeroinitializer") for _ in range(chains - 1)]

    def _loop(self, line: _Line, cells: Sequence[_Cell], sums: _Chains, span: tuple[Any, Any, int]) -> _Chains:
        """The chains after the terms in `range(*span)`, which are dealt out to them."""
        f, (start, stop, step) = self.f, span
        heads = line.at(self, start).begin(self)
        carried = [(self.vector, s[c]) for s in sums for c in cells] + [("ptr", p) for p in heads.values()]
        with f.for_(start, stop, step, carried, "k", aligned=True) as loop:
            names = iter(loop.carried)
            inner = [{c: next(names) for c in cells} for _ in sums]
            at = replace(line.at(self, loop.index), heads=dict(zip(heads, names)))
            self._add_terms(at, range(step), cells, inner)
            # LLVM would find all rows from one pointer, in turn, and keep the factors of several terms on the stack.
            following = [f.hidden(f.gep(self.scalar, p, step)) for p in at.heads.values()]
            loop.next(*(s[c] for s in inner for c in cells), *following)
        names = iter(loop.results)
        return [{c: next(names) for c in cells} for _ in sums]

    def _add_terms(self, line: _Line, terms: range, cells: Sequence[_Cell], sums: _Chains) -> None:
        """Writes out these terms, which are dealt out to the chains."""
        # Adjacent pixels of few channels have values in common. LLVM would load each once, and keep it for the terms
        # after it: where there is no register left, accumulators and weights go to the stack instead.
        short = len(cells) + self.vectors + len(line.active) > self.f.target.num_vector_registers
        again = short and line.is_shared(len(terms))
        for k in terms:
            if again and k > terms.start:
                line = replace(line, x=self.f.hidden(line.x))
            self._add_term(line, k, cells, sums[k % len(sums)])

    def _add_term(self, line: _Line, k: int, cells: Sequence[_Cell], sums: dict[_Cell, str]) -> None:
        f, half = self.f, self.lanes // 2
        weights = []
        for v in range(self.vectors):
            if isinstance(line.w_step, Dim):
                p = f.gep(self.scalar, f.gep(self.scalar, line.w, k * line.w_step), v * self.lanes)
            else:
                p = f.gep(self.scalar, line.w, k * line.w_step + v * self.lanes)
            align = self.lanes * self.bytes if line.aligned else None
            weights.append(self.load(p, not line.aligned and self.is_partial(v), align))
        if line.fetch:
            line.fetch.emit(self, k)
        factors: dict[int, str] = {}
        for cell in cells:
            for r in cell.rows:
                if r not in factors:
                    factors[r] = self.splat(f.load(self.scalar, line.factor(self, r, k), self.align))
            both = [factors[r] for r in cell.rows]
            blend = [*range(half), *range(self.lanes + half, 2 * self.lanes)]
            factor = both[0] if len(both) == 1 else self._shuffled(both[0], both[1], blend)
            sums[cell] = self.multiply_add(factor, weights[cell.vector], sums[cell])

    def _total(self, acc: Rows, cells: Sequence[_Cell], sums: Sequence[dict[_Cell, str]]) -> Rows:
        """The sums of all chains, as rows; rows of `acc` without an accumulator stay."""
        total = [list(row) for row in acc]
        for cell in cells:
            parts = [s[cell] for s in sums]
            while len(parts) > 1:
                a, b = parts[:2]
                parts = [*parts[2:], self.add(a, b)]
            self._scatter(parts[0], cell, total)
        return total

    def _gathered(self, acc: Rows, cell: _Cell) -> str:
        """What the accumulator begins with."""
        parts = [acc[r][cell.vector] for r in cell.rows]
        if len(parts) == 1 or set(parts) == {"zeroinitializer"}:
            return parts[0]
        half = self.lanes // 2
        return self._shuffled(parts[0], parts[1], [*range(half), *range(self.lanes, self.lanes + half)])

    def _scatter(self, sum: str, cell: _Cell, rows: Rows) -> None:
        """Puts the sums of an accumulator into the `rows` that they belong to, as vectors."""
        # The other lanes of a partial vector are never read.
        rows[cell.rows[0]][cell.vector] = sum
        for r in cell.rows[1:]:
            rows[r][cell.vector] = self._shuffled(sum, sum, [*range(self.lanes // 2, self.lanes)] * 2)


def steps(f: Function, first: Any, step: Extent, count: int, type: str = "ptr") -> Iterator[Any]:
    """`count` pointers, `step` bytes apart, or numbers of type i64. If the step is open, each is found from the one
    before: LLVM would find all of them before a loop, and keep them on the stack."""
    for k in range(count):
        if not isinstance(step, Dim):
            yield f.gep("i8", first, k * step) if type == "ptr" else f.add(first, k * step)
            continue
        yield first
        if k < count - 1:
            first = f.hidden(f.gep("i8", first, step) if type == "ptr" else f.add(first, step), type)


def prefetch(f: Function, pointer: str, ahead: Extent, nearest: bool = True, write: bool = False) -> None:
    """Prefetches the cache line `ahead` bytes after `pointer`, which need not exist, to be read or written in the first
    cache, or at least the second."""
    p = f.op(f"getelementptr i8, ptr {pointer}, i64 {f.extent(ahead)}")
    args = (("ptr", p), ("i32", int(write)), ("i32", 3 if nearest else 2), ("i32", 1))
    f.intrinsic("llvm.prefetch", "void", *args, overload=("ptr",))


def unroll_factor(terms: int, per_term: int, weights: int, chains: int) -> int:
    """Terms in the body of the loop: a multiple of `chains`, a divisor of `terms` if one is near.

    `per_term` counts multiply-adds, `weights` is the bytes of weights that one term reads.
    """
    wanted = max(1, min(16, round(_UNROLLED / per_term), _STRIDE // weights))
    if terms <= wanted + wanted // 2:
        return max(terms, 1)
    steps = [u for u in range(chains, 2 * wanted + chains, chains) if 2 * u >= wanted and u * weights <= _STRIDE]
    return min(steps or [chains], key=lambda u: (terms % u * 4 + abs(u - wanted), u))
