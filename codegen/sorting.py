"""The kernel of `sort`, `.kernel = 'sequential'`: a radix sort of words, each a key above an index.

A key is an unsigned integer that orders as the element does. Equal elements (0 and -0, NaNs) have equal keys, and radix
sort is stable. If only the first `count` are wanted, they are selected first, digit by digit from the top: whatever has
a lower digit than the last one wanted is in, and those with the same digit are looked at again.
"""

from __future__ import annotations

from math import prod
from typing import Any

from gluonjit.codegen.access import Access
from gluonjit.codegen.index import Affine
from gluonjit.codegen.llvm import Function
from gluonjit.ir.dims import Extent
from gluonjit.ir.graph import Op
from gluonjit.ir.sort_words import BINS, sort_word
from gluonjit.ir.types import BF16, F16, F32, F64

_FEW = 40
"""Up to so many words, insertion is faster than passes over bins."""
_SHORT = 128
"""Up to so many, digits have 4 bits: most of the time goes into the bins."""
_WHOLE = 256
"""Lines of up to so many elements are sorted as a whole, even if few are wanted."""
_INFINITY = {F16: 0x7C00, BF16: 0x7F80, F32: 0x7F800000, F64: 0x7FF0000000000000}


class Sort:
    """Writes the code for lines of an op, one after the other."""

    def __init__(self, f: Function, s: Access, op: Op) -> None:
        (x,) = op.operands
        shape, axis = x.shape, op.attrs["axis"]
        self.f, self.s, self.dtype = f, s, x.dtype
        self.outer, self.n, self.inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
        self.count: Extent = op.attrs["count"] or self.n
        short = isinstance(self.n, int)
        self.partial = op.attrs["count"] != 0 and not (short and self.n <= max(_WHOLE, op.attrs["count"]))
        self.descending = op.attrs["descending"]
        self.read = op.attrs.get(".read", range(len(op.results)))
        bits, self.shift, self.digits = sort_word(x.dtype)
        self.word = f"i{bits}"
        self.digit = 8
        if short and self.n <= _SHORT:
            self.digit, self.digits = 4, 2 * self.digits
        self.bins_of_digit = 1 << self.digit
        self.x, self.values = f.table(0), f.table(1)
        self.order = f.table(2) if op.attrs["order"] else ""
        scratch = f.table(1 + len(op.results))
        self.bins = scratch
        self.a = f.gep("i8", scratch, BINS * 8 * x.dtype.bits // 8)
        self.b = f.gep(self.word, self.a, self.n)

    def line(self, t: Affine) -> None:
        f, s = self.f, self.s
        o, at = t // self.inner, t % self.inner
        item = f"i{self.dtype.bits}"
        self.source = f.gep(item, self.x, s.uniform(o * (self.n * self.inner) + at).ssa)
        first = s.uniform(o * (self.count * self.inner) + at).ssa
        lanes = s.width * 32 // self.dtype.bits
        if isinstance(self.n, int) and self.n <= 4 * min(lanes, 16):
            self._rank(min(lanes, 16), first)
        elif self.partial:
            self._select()
            self._finish(self.b, self.a, self.count, first)
        else:
            self._finish(self.a, self.b, self.n, first)

    # ---- words

    def _key(self, k: Any) -> str:
        """The key of element k, an integer as wide as the element."""
        f, bits = self.f, self.dtype.bits
        item, sign = f"i{bits}", -(1 << (bits - 1))
        key = f.load(item, f.gep(item, self.source, f.mul(k, self.inner)), bits // 8)
        if self.dtype.is_float:
            magnitude = f.op(f"and {item} {key}, {-sign - 1}")
            negative = f.op(f"icmp slt {item} {key}, 0")
            up, down = f.op(f"or {item} {key}, {sign}"), f.op(f"xor {item} {key}, -1")
            key = f.op(f"select i1 {negative}, {item} {down}, {item} {up}")
            zero = f.op(f"icmp eq {item} {magnitude}, 0")
            key = f.op(f"select i1 {zero}, {item} {sign}, {item} {key}")
            nan = f.op(f"icmp ugt {item} {magnitude}, {_INFINITY[self.dtype]}")
            key = f.op(f"select i1 {nan}, {item} -1, {item} {key}")
        elif self.dtype.kind == "i":
            key = f.op(f"xor {item} {key}, {sign}")
        return f.op(f"xor {item} {key}, -1") if self.descending else key

    def _made(self, k: Any) -> str:
        f, word, item = self.f, self.word, f"i{self.dtype.bits}"
        high = f.op(f"shl {word} {f.op(f'zext {item} {self._key(k)} to {word}')}, {self.shift}")
        low = k if word == "i64" else f.op(f"zext i64 {k} to {word}")
        return f.op(f"or {word} {high}, {low}")

    def _digit(self, word: str, d: int) -> str:
        f = self.f
        moved = f.op(f"lshr {self.word} {word}, {self.shift + self.digit * d}")
        narrow = moved if self.word == "i64" else f.op(f"trunc {self.word} {moved} to i64")
        return f.op(f"and i64 {narrow}, {self.bins_of_digit - 1}")

    def _place(self, words: str, k: Any) -> str:
        return self.f.gep(self.word, words, k)

    def _load(self, words: str, k: Any) -> str:
        return self.f.load(self.word, self._place(words, k), 8)

    def _store(self, value: str, words: str, k: Any) -> None:
        self.f.store(self.word, value, self._place(words, k), 8)

    # ---- bins

    def _bin(self, d: int, digit: Any) -> str:
        return self.f.gep("i64", self.bins, self.f.add(digit, d * self.bins_of_digit))

    def _clear(self, first: int, last: int) -> None:
        with self.f.for_(first * self.bins_of_digit // 8, last * self.bins_of_digit // 8) as loop:
            self.f.store("<8 x i64>", "zeroinitializer", self.f.gep("<8 x i64>", self.bins, loop.index), 8)

    def _counted(self, d: int, digit: str, by: Any = 1) -> None:
        place = self._bin(d, digit)
        self.f.store("i64", self.f.add(self.f.load("i64", place, 8), by), place, 8)

    # ---- a few elements

    def _rank(self, lanes: int, first: str) -> None:
        """Counts, for each element, those that come before it: all smaller ones, and equal ones on its left."""
        f, item = self.f, f"i{self.dtype.bits}"
        vector, blocks = f"<{lanes} x {item}>", -(-self.n // lanes)
        with f.for_(0, self.n) as loop:
            f.store(item, self._key(loop.index), f.gep(item, self.a, loop.index), 1)
        for k in range(self.n, blocks * lanes):
            f.store(item, -1, f.gep(item, self.a, k), 1)
        with f.for_(0, self.n) as loop:
            mine = f.load(item, f.gep(item, self.a, loop.index), 1)
            one = f.op(f"insertelement {vector} poison, {item} {mine}, i64 0")
            splat = f.op(f"shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer")
            smaller, equal = "0", "0"
            for k in range(blocks):
                others = f.load(vector, f.gep(vector, self.a, k), 1)
                found = []
                for how in ("ult", "eq"):
                    mask = f.op(f"icmp {how} {vector} {others}, {splat}")
                    bits = f.op(f"zext i{lanes} {f.op(f'bitcast <{lanes} x i1> {mask} to i{lanes}')} to i64")
                    found.append(f.op(f"shl i64 {bits}, {k * lanes}"))
                smaller, equal = f.op(f"or i64 {smaller}, {found[0]}"), f.op(f"or i64 {equal}, {found[1]}")
            left = f.sub(f.op(f"shl i64 1, {loop.index}"), 1)
            before = f.op(f"or i64 {smaller}, {f.op(f'and i64 {equal}, {left}')}")
            rank = f.intrinsic("llvm.ctpop", "i64", ("i64", before))
            with f.if_(f.op(f"icmp slt i64 {rank}, {self.count}")):
                self._put(first, rank, loop.index)

    # ---- the whole line

    def _finish(self, src: str, dst: str, n: Extent, first: str) -> None:
        """Sorts n words at `src`, which are made first unless they have been selected, and writes the results."""
        f = self.f
        few = f.op(f"icmp sle i64 {f.extent(n)}, {_FEW}")
        with f.if_(few):
            self._insert(src, n)
            self._write(src, first)
        with f.if_(f.op(f"xor i1 {few}, true")):
            self._clear(0, self.digits)
            with f.for_(0, n) as loop:
                word = self._load(src, loop.index) if self.partial else self._made(loop.index)
                if not self.partial:
                    self._store(word, src, loop.index)
                for d in range(self.digits):
                    self._counted(d, self._digit(word, d))
            for d in range(self.digits):
                alike = f.load("i64", self._bin(d, self._digit(self._load(src, 0), d)), 8)
                needed = f.op(f"icmp ne i64 {alike}, {f.extent(n)}")
                with f.if_(needed):
                    self._pass(d, src, dst, n)
                src, dst = (f.op(f"select i1 {needed}, ptr {p}, ptr {q}") for p, q in ((dst, src), (src, dst)))
            self._write(src, first)

    def _pass(self, d: int, src: str, dst: str, n: Extent) -> None:
        f = self.f
        with f.for_(0, self.bins_of_digit, carried=[("i64", "0")]) as loop:
            place = self._bin(d, loop.index)
            here = f.load("i64", place, 8)
            f.store("i64", loop.carried[0], place, 8)
            loop.next(f.add(loop.carried[0], here))
        with f.for_(0, n) as loop:
            word = self._load(src, loop.index)
            place = self._bin(d, self._digit(word, d))
            at = f.load("i64", place, 8)
            f.store("i64", f.add(at, 1), place, 8)
            self._store(word, dst, at)

    def _insert(self, words: str, n: Extent) -> None:
        f = self.f
        with f.for_(0, n) as loop:
            word = self._load(words, loop.index) if self.partial else self._made(loop.index)
            with f.repeat([("i64", loop.index)]) as hole:
                (at,) = hole.carried
                before = f.max(f.sub(at, 1), 0)
                other = self._load(words, before)
                later = f.op(f"icmp ugt {self.word} {other}, {word}")
                moves = f.op(f"and i1 {f.op(f'icmp sgt i64 {at}, 0')}, {later}")
                # At its own place the hole gets the word itself, which the next round may move on.
                kept = f.op(f"select i1 {moves}, {self.word} {other}, {self.word} {word}")
                self._store(kept, words, at)
                hole.next(f.sub(at, 1))
                hole.again = moves

    def _select(self) -> None:
        """The first `count` words, at `b`, equal ones in order; those that are still candidates stay at `a`."""
        f, top = self.f, self.digits - 1
        self._clear(top, top + 1)
        with f.for_(0, self.n) as loop:
            word = self._made(loop.index)
            self._store(word, self.a, loop.index)
            self._counted(top, self._digit(word, top))
        left, chosen, want = f.extent(self.n), "0", f.extent(self.count)
        for d in reversed(range(self.digits)):
            with f.repeat([("i64", "0"), ("i64", "0")]) as search:
                bin, before = search.carried
                after = f.add(before, f.load("i64", self._bin(d, bin), 8))
                goes_on = f.op(f"icmp slt i64 {after}, {want}")
                search.next(
                    f.op(f"select i1 {goes_on}, i64 {f.add(bin, 1)}, i64 {bin}"),
                    f.op(f"select i1 {goes_on}, i64 {after}, i64 {before}"),
                )
                search.again = goes_on
            last, before = search.results
            if d:
                self._clear(d - 1, d)
            with f.for_(0, left, carried=[("i64", chosen), ("i64", "0")]) as loop:
                taken, kept = loop.carried
                word = self._load(self.a, loop.index)
                digit = self._digit(word, d)
                self._store(word, self.b, taken)
                self._store(word, self.a, kept)
                less, same = (
                    f.op(f"zext i1 {f.op(f'icmp {how} i64 {digit}, {last}')} to i64") for how in ("ult", "eq")
                )
                if d:
                    self._counted(d - 1, self._digit(word, d - 1), same)
                loop.next(f.add(taken, less), f.add(kept, same))
            chosen, left = loop.results
            want = f.sub(want, before)
        with f.for_(0, want) as loop:
            self._store(self._load(self.a, loop.index), self.b, f.add(chosen, loop.index))

    def _write(self, words: str, first: str) -> None:
        f = self.f
        with f.for_(0, self.count) as loop:
            word = self._load(words, loop.index)
            if self.word == "i64":
                index = f.op(f"and i64 {word}, {(1 << self.shift) - 1}")
            else:
                index = f.op(f"trunc {self.word} {word} to i64")
            self._put(first, loop.index, index)

    def _put(self, first: str, k: str, index: str) -> None:
        """Element `index` of the line is the k-th result."""
        f, item = self.f, f"i{self.dtype.bits}"
        at = f.add(first, f.mul(k, self.inner))
        if 0 in self.read:
            value = f.load(item, f.gep(item, self.source, f.mul(index, self.inner)), self.dtype.bits // 8)
            f.store(item, value, f.gep(item, self.values, at), self.dtype.bits // 8)
        if 1 in self.read:
            f.store("i64", index, f.gep("i64", self.order, at), 8)
