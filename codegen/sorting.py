"""The kernel of `sort`, `.kernel = 'sequential'`: line by line.

A key is an integer that orders as the element does, in signed order; equal elements (0 and -0, NaNs) have equal keys.
If only values are wanted, keys alone are sorted, and elements made of them again. Otherwise words are: a key above the
index, so that no two are equal and any way to sort them is a stable one. Lines of up to some ten thousand words are
sorted by networks, longer ones by their digits.

If only the first `count` are wanted, one pass keeps what is less than the last of the first `count` so far: few, soon.
When too many have been kept, they are sorted, and the rest is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from gluonjit.codegen.access import Access
from gluonjit.codegen.index import Affine
from gluonjit.codegen.llvm import Function, vector
from gluonjit.codegen.sorting_network import Network
from gluonjit.codegen.sorting_radix import Radix
from gluonjit.ir.dims import Extent
from gluonjit.ir.graph import Op
from gluonjit.ir.sort_words import candidates, sort_memory, sort_word
from gluonjit.ir.types import BF16, F16, F32, F64

_LONG = 1 << 15
"""Lines of more words are sorted by their digits."""
_INFINITY = {F16: 0x7C00, BF16: 0x7F80, F32: 0x7F800000, F64: 0x7FF0000000000000}


class Sort:
    """Writes the code for lines of an op, one after the other."""

    def __init__(self, f: Function, s: Access, op: Op) -> None:
        (x,) = op.operands
        shape, axis, count = x.shape, op.attrs["axis"], op.attrs["count"]
        self.f, self.s, self.dtype = f, s, x.dtype
        self.outer, self.n, self.inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
        self.count: Extent = count or self.n
        self.descending = op.attrs["descending"]
        self.read = op.attrs.get(".read", range(len(op.results)))
        self.kept = candidates(count)
        self.partial = count != 0 and not (isinstance(self.n, int) and self.n <= 2 * self.kept)
        self.word = sort_word(x.dtype)
        self.x, self.values = f.table(0), f.table(1)
        self.order = f.table(2) if op.attrs["order"] else ""
        memory = sort_memory(x.type, axis, count)
        self.bins = f.table(1 + len(op.results))
        self.a = f.gep("i8", self.bins, memory.bins)
        self.b = f.gep("i8", self.a, memory.words)

    def line(self, t: Affine) -> None:
        f, s = self.f, self.s
        o, at = t // self.inner, t % self.inner
        self.source = f.gep(self.item, self.x, s.uniform(o * (self.n * self.inner) + at).ssa)
        first = s.uniform(o * (self.count * self.inner) + at).ssa
        lanes = min(s.width * 32 // self.dtype.bits, 16)
        if 1 not in self.read and not self.partial:
            self._sort_values(first)
        elif isinstance(self.n, int) and self.n <= 4 * lanes:
            self._rank(lanes, first)
        elif self.partial:
            self._write_words(self._selected(), first)
        else:
            self._make_words(self.n)
            self._write_words(self._sorted(self.n, self.n), first)

    # ---- elements

    @property
    def item(self) -> str:
        """The integer type that an element is read as."""
        return f"i{self.dtype.bits}"

    def _lanes(self, bits: int) -> int:
        """In a vector, of elements that follow each other in memory."""
        return self.s.width * 32 // bits if self.inner == 1 else 1

    def _element(self, k: Any, lanes: int = 1) -> str:
        """`lanes` elements from the k-th on, as integers."""
        place = self.f.gep(self.item, self.source, self.f.mul(k, self.inner))
        return self.f.load(vector(lanes, self.item), place, self.dtype.bits // 8)

    def _each(self, n: Extent, lanes: int, body: Callable[[str, int], None]) -> None:
        """`body(k, lanes)` for all elements below n, in vectors and then one by one."""
        f, whole = self.f, 0
        if lanes > 1:
            whole = f.mul(f.div(n, lanes), lanes)
            with f.for_(0, whole, lanes) as loop:
                body(loop.index, lanes)
        with f.for_(whole, n) as loop:
            body(loop.index, 1)

    def _key(self, x: str, lanes: int) -> str:
        f, dtype = self.f, self.dtype
        type = vector(lanes, self.item)
        mask = vector(lanes, "i1")
        sign = -(1 << (dtype.bits - 1))

        def number(value: int) -> str:
            return _number(lanes, self.item, value)

        if dtype.is_float:
            magnitude = self._magnitude(x, lanes)
            zero = f.op(f"icmp eq {type} {magnitude}, {number(0)}")
            key = f.op(f"select {mask} {zero}, {type} {number(0)}, {type} {self._folded(x, lanes)}")
            nan = self._is_nan(magnitude, lanes)
            key = f.op(f"select {mask} {nan}, {type} {number(-sign - 1)}, {type} {key}")
        elif dtype.kind == "i":
            key = x
        else:
            key = f.op(f"xor {type} {x}, {number(sign)}")
        return f.op(f"xor {type} {key}, {number(-1)}") if self.descending else key

    def _magnitude(self, x: str, lanes: int) -> str:
        type, most = vector(lanes, self.item), (1 << (self.dtype.bits - 1)) - 1
        return self.f.op(f"and {type} {x}, {_number(lanes, self.item, most)}")

    def _is_nan(self, magnitude: str, lanes: int) -> str:
        infinity = _number(lanes, self.item, _INFINITY[self.dtype])
        return self.f.op(f"icmp sgt {vector(lanes, self.item)} {magnitude}, {infinity}")

    def _folded(self, x: str, lanes: int) -> str:
        """A float's bits as an integer that orders as it does, and back: below 0, all but the sign are inverted."""
        f, type = self.f, vector(lanes, self.item)
        negative = f.op(f"ashr {type} {x}, {_number(lanes, self.item, self.dtype.bits - 1)}")
        return f.op(f"xor {type} {x}, {self._magnitude(negative, lanes)}")

    def _from_key(self, key: str, lanes: int) -> str:
        """The element; of zeros 0, of NaNs one of them."""
        f, dtype = self.f, self.dtype
        type, sign = vector(lanes, self.item), -(1 << (dtype.bits - 1))
        if self.descending:
            key = f.op(f"xor {type} {key}, {_number(lanes, self.item, -1)}")
        if dtype.is_float:
            return self._folded(key, lanes)
        return key if dtype.kind == "i" else f.op(f"xor {type} {key}, {_number(lanes, self.item, sign)}")

    # ---- values alone

    def _sort_values(self, first: str) -> None:
        f, wide = self.f, f"i{max(self.dtype.bits, 32)}"
        lanes = self._lanes(max(self.dtype.bits, 32))
        network = Network(f, wide, self.s.width * 32 // int(wide[1:]))

        def make(k: str, lanes: int) -> None:
            key = self._key(self._element(k, lanes), lanes)
            f.store(vector(lanes, wide), _resized(f, "sext", key, self.item, wide, lanes), f.gep(wide, self.a, k), 4)

        self._each(self.n, lanes, make)
        network.pad(self.a, self.n)
        keys = network.sort(self.a, self.b, self.n)

        def write(k: str, lanes: int) -> None:
            key = f.load(vector(lanes, wide), f.gep(wide, keys, k), 4)
            x = self._from_key(_resized(f, "trunc", key, wide, self.item, lanes), lanes)
            place = f.gep(self.item, self.values, f.add(first, f.mul(k, self.inner)))
            f.store(vector(lanes, self.item), x, place, self.dtype.bits // 8)

        self._each(self.count, lanes, write)
        if self.dtype.is_float:
            self._restore(first, keys, wide)

    def _restore(self, first: str, keys: str, wide: str) -> None:
        """Writes zeros and NaNs once more, with their own bits and in their order, if any of them is -0 or a NaN."""
        f, bits = self.f, self.dtype.bits
        sign = -(1 << (bits - 1))
        lanes = self._lanes(bits)
        type, mask = vector(lanes, self.item), vector(lanes, "i1")

        def odd(x: str, lanes: int) -> str:
            type, mask = vector(lanes, self.item), vector(lanes, "i1")
            zero = f.op(f"icmp eq {type} {x}, {_number(lanes, self.item, sign)}")
            return f.op(f"or {mask} {zero}, {self._is_nan(self._magnitude(x, lanes), lanes)}")

        whole, found = 0, "false"
        if lanes > 1:
            whole = f.mul(f.div(self.n, lanes), lanes)
            with f.for_(0, whole, lanes, carried=[(type, "zeroinitializer")]) as loop:
                here = f.op(f"sext {mask} {odd(self._element(loop.index, lanes), lanes)} to {type}")
                loop.next(f.op(f"or {type} {loop.carried[0]}, {here}"))
            all = f.op(f"icmp ne {type} {loop.results[0]}, zeroinitializer")
            found = f.op(f"icmp ne i{lanes} {f.op(f'bitcast {mask} {all} to i{lanes}')}, 0")
        with f.for_(whole, self.n, carried=[("i1", found)]) as loop:
            loop.next(f.op(f"or i1 {loop.carried[0]}, {odd(self._element(loop.index), 1)}"))
        with f.if_(loop.results[0]):
            # Keys of zeros and of NaNs, and how many are less.
            borders = (-1, sign) if self.descending else (0, -sign - 1)
            with f.for_(0, self.n, carried=[("i64", "0"), ("i64", "0")]) as loop:
                key = f.load(wide, f.gep(wide, keys, loop.index), 4)
                less = [f.op(f"zext i1 {f.op(f'icmp slt {wide} {key}, {border}')} to i64") for border in borders]
                loop.next(*(f.add(n, one) for n, one in zip(loop.carried, less)))
            with f.for_(0, self.n, carried=[("i64", p) for p in loop.results]) as loop:
                x = self._element(loop.index)
                magnitude = self._magnitude(x, 1)
                zero = f.op(f"icmp eq {self.item} {magnitude}, 0")
                nan = self._is_nan(magnitude, 1)
                at = f.op(f"select i1 {zero}, i64 {loop.carried[0]}, i64 {loop.carried[1]}")
                wanted = f.op(f"icmp slt i64 {at}, {f.extent(self.count)}")
                with f.if_(f.op(f"and i1 {f.op(f'or i1 {zero}, {nan}')}, {wanted}")):
                    place = f.gep(self.item, self.values, f.add(first, f.mul(at, self.inner)))
                    f.store(self.item, x, place, bits // 8)
                loop.next(*(f.add(p, f.op(f"zext i1 {c} to i64")) for p, c in zip(loop.carried, (zero, nan))))

    # ---- a few elements

    def _rank(self, lanes: int, first: str) -> None:
        """Counts, for each element, those that come before it: all smaller ones, and equal ones on its left."""
        f, item = self.f, self.item
        type, blocks = vector(lanes, item), -(-self.n // lanes)
        with f.for_(0, self.n) as loop:
            f.store(item, self._key(self._element(loop.index), 1), f.gep(item, self.a, loop.index), 1)
        for k in range(self.n, blocks * lanes):
            f.store(item, (1 << (self.dtype.bits - 1)) - 1, f.gep(item, self.a, k), 1)
        with f.for_(0, self.n) as loop:
            mine = f.load(item, f.gep(item, self.a, loop.index), 1)
            one = f.op(f"insertelement {type} poison, {item} {mine}, i64 0")
            splat = f.op(f"shufflevector {type} {one}, {type} poison, <{lanes} x i32> zeroinitializer")
            smaller, equal = "0", "0"
            for k in range(blocks):
                others = f.load(type, f.gep(type, self.a, k), 1)
                found = []
                for how in ("slt", "eq"):
                    mask = f.op(f"icmp {how} {type} {others}, {splat}")
                    bits = f.op(f"zext i{lanes} {f.op(f'bitcast <{lanes} x i1> {mask} to i{lanes}')} to i64")
                    found.append(f.op(f"shl i64 {bits}, {k * lanes}"))
                smaller, equal = f.op(f"or i64 {smaller}, {found[0]}"), f.op(f"or i64 {equal}, {found[1]}")
            left = f.sub(f.op(f"shl i64 1, {loop.index}"), 1)
            before = f.op(f"or i64 {smaller}, {f.op(f'and i64 {equal}, {left}')}")
            rank = f.intrinsic("llvm.ctpop", "i64", ("i64", before))
            with f.if_(f.op(f"icmp slt i64 {rank}, {self.count}")):
                self._put(first, rank, loop.index)

    # ---- words

    def _make_words(self, n: Extent) -> None:
        """Stores at `a` those of the first n elements."""
        lanes = self._lanes(64) if self.word.bits == 64 else 1
        self._each(n, lanes, lambda k, lanes: self._store_word(self._made(k, lanes), self.a, k, lanes))

    def _made(self, k: Any, lanes: int = 1) -> str:
        """The words of `lanes` elements from the k-th on."""
        return self._joined(self._key(self._element(k, lanes), lanes), k, lanes)

    def _joined(self, key: str, k: Any, lanes: int = 1) -> str:
        f, word = self.f, f"i{self.word.bits}"
        type = vector(lanes, word)
        wide = _resized(f, "sext", key, self.item, word, lanes)
        high = f.op(f"shl {type} {wide}, {_number(lanes, word, self.word.shift)}")
        low = k if word == "i64" else f.op(f"zext i64 {k} to {word}")
        if lanes > 1:
            one = f.op(f"insertelement {type} poison, {word} {low}, i64 0")
            low = f.op(f"shufflevector {type} {one}, {type} poison, <{lanes} x i32> zeroinitializer")
            low = f.op(f"add {type} {low}, <{', '.join(f'{word} {lane}' for lane in range(lanes))}>")
        return f.op(f"or {type} {high}, {low}")

    def _store_word(self, value: str, words: str, k: Any, lanes: int = 1) -> None:
        word = f"i{self.word.bits}"
        self.f.store(vector(lanes, word), value, self.f.gep(word, words, k), 8)

    def _sorted(self, n: Any, most: Extent) -> str:
        """Sorts the n words at `a`, of which there are at most so many; where they are then."""
        f = self.f

        def by_network() -> str:
            network = Network(f, "i64", self.s.width // 2)
            network.pad(self.a, n)
            return network.sort(self.a, self.b, n)

        def by_digits() -> str:
            return Radix(f, self.word, self.bins, n).sort(self.a, self.b, n)

        if self.word.bits != 64:
            return by_digits()
        if isinstance(most, int):
            return by_network() if most <= _LONG else by_digits()
        return f.either(f.op(f"icmp sle i64 {f.extent(n)}, {_LONG}"), "ptr", by_network, by_digits)

    def _selected(self) -> str:
        """The first `count` words, in order."""
        f, word = self.f, f"i{self.word.bits}"
        begin = f.min(self.kept, self.n)
        self._make_words(begin)
        with f.repeat([("i64", begin), ("i64", begin)]) as loop:
            at, kept = loop.carried
            more = f.op(f"icmp slt i64 {at}, {f.extent(self.n)}")
            many = f.op(f"icmp sgt i64 {kept}, {(self.count + self.kept) // 2}")
            sorts = f.op(f"select i1 {more}, i1 {many}, i1 true")
            with f.if_(sorts):
                words = self._sorted(kept, self.kept)
                with f.if_(f.op(f"icmp ne ptr {words}, {self.a}")), f.for_(0, self.count) as copy:
                    self._store_word(f.load(word, f.gep(word, words, copy.index), 8), self.a, copy.index)
            # The first `count` words are in order, whether they were sorted now or earlier.
            last = f.load(word, f.gep(word, self.a, self.count - 1), 8)
            last = _resized(f, "trunc", f.op(f"ashr {word} {last}, {self.word.shift}"), word, self.item, 1)
            loop.next(*self._scan(at, f.op(f"select i1 {sorts}, i64 {self.count}, i64 {kept}"), last))
            loop.again = more
        return self.a

    def _scan(self, at: str, kept: str, last: str) -> tuple[str, str]:
        """Appends the words of elements from `at` on whose key is less than `last` to the `kept` words at `a`, for as
        many elements as there is room for words: (where it stopped, how many words there are)."""
        f, lanes, item = self.f, self._lanes(self.dtype.bits), self.item
        end = f.min(self.n, f.add(at, f.sub(self.kept, kept)))
        whole = at
        if lanes > 1:
            type = vector(lanes, item)
            one = f.op(f"insertelement {type} poison, {item} {last}, i64 0")
            border = f.op(f"shufflevector {type} {one}, {type} poison, <{lanes} x i32> zeroinitializer")
            whole = f.add(at, f.mul(f.div(f.sub(end, at), lanes), lanes))
            with f.for_(at, whole, lanes, carried=[("i64", kept)]) as loop:
                (kept,) = loop.carried
                keys = self._key(self._element(loop.index, lanes), lanes)
                less = f.op(f"icmp slt {type} {keys}, {border}")
                found = f.op(f"zext i{lanes} {f.op(f'bitcast <{lanes} x i1> {less} to i{lanes}')} to i64")
                n = f.intrinsic("llvm.ctpop", "i64", ("i64", found))
                with f.for_(0, n, carried=[("i64", found)]) as each:
                    (left,) = each.carried
                    lane = f.intrinsic("llvm.cttz", "i64", ("i64", left), ("i1", "true"))
                    word = self._made(f.add(loop.index, lane))
                    self._store_word(word, self.a, f.add(kept, each.index))
                    each.next(f.op(f"and i64 {left}, {f.sub(left, 1)}"))
                loop.next(f.add(kept, n))
            (kept,) = loop.results
        # What does not fill a vector is looked at here if the line ends, and in the next pass otherwise.
        ends = f.op(f"icmp eq i64 {f.extent(end)}, {f.extent(self.n)}")
        stop = end if lanes == 1 else f.op(f"select i1 {ends}, i64 {f.extent(end)}, i64 {whole}")
        with f.for_(whole, stop, carried=[("i64", kept)]) as loop:
            key = self._key(self._element(loop.index), 1)
            self._store_word(self._joined(key, loop.index), self.a, loop.carried[0])
            less = f.op(f"icmp slt {item} {key}, {last}")
            loop.next(f.add(loop.carried[0], f.op(f"zext i1 {less} to i64")))
        return stop, loop.results[0]

    def _write_words(self, words: str, first: str) -> None:
        """The first `count` words as results."""
        f, word = self.f, f"i{self.word.bits}"
        with f.for_(0, self.count) as loop:
            found = f.load(word, f.gep(word, words, loop.index), 8)
            if self.word.bits == 64:
                index = f.op(f"and i64 {found}, {(1 << self.word.shift) - 1}")
            else:
                index = f.op(f"trunc {word} {found} to i64")
            self._put(first, loop.index, index)

    def _put(self, first: str, k: str, index: str) -> None:
        """Element `index` of the line is the k-th result."""
        f, item = self.f, self.item
        at = f.add(first, f.mul(k, self.inner))
        if 0 in self.read:
            f.store(item, self._element(index), f.gep(item, self.values, at), self.dtype.bits // 8)
        if 1 in self.read:
            f.store("i64", index, f.gep("i64", self.order, at), 8)


def _number(lanes: int, item: str, value: int) -> str:
    return str(value) if lanes == 1 else f"<{', '.join([f'{item} {value}'] * lanes)}>"


def _resized(f: Function, how: str, value: str, item: str, to: str, lanes: int) -> str:
    return value if item == to else f.op(f"{how} {vector(lanes, item)} {value} to {vector(lanes, to)}")
