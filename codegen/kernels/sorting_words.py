"""What is sorted where the order of elements is wanted: their keys together with their places in the line.

Both classes keep a list of elements in memory, in order of their places or sorted. Keys of at most 32 bits are words
with the place below the key. No two words are equal, so any way to sort them keeps the order of equal keys.
"""

from __future__ import annotations

from typing import Any

from gluonjit.codegen.kernels.sorting_partition import sort_in_place
from gluonjit.codegen.kernels.vectors import counting, fold, number, splat
from gluonjit.codegen.text.llvm import Function, vector
from gluonjit.ir.dims import Extent
from gluonjit.ir.kernels.sort_words import PLACE_BITS


class Words:
    """Keys of at most 32 bits. `areas`: two arrays of i64."""

    def __init__(self, f: Function, item: str, lanes: int, areas: list[str]) -> None:
        self.f, self.item, self.lanes = f, item, lanes
        self.words, self.spare = areas
        self.mask = (1 << PLACE_BITS) - 1

    def put(self, at: Any, key: str, place: Any, lanes: int = 1) -> None:
        """Elements `at`, at + 1, … of the list become those with these keys and the places from `place` on."""
        f = self.f
        type = vector(lanes, "i64")
        wide = f.op(f"sext {vector(lanes, self.item)} {key} to {type}")
        high = f.op(f"shl {type} {wide}, {number(lanes, 'i64', PLACE_BITS)}")
        f.store(type, f.op(f"or {type} {high}, {counting(f, place, lanes)}"), f.gep("i64", self.words, at), 8)

    def sort(self, n: Any) -> None:
        sort_in_place(self.f, "i64", self.lanes, self.words, self.spare, n, self.mask)

    def keep(self, count: Extent) -> None:
        """Forgets all but the first elements of a sorted list."""

    def key(self, k: Any) -> str:
        f = self.f
        high = f.op(f"ashr i64 {f.load('i64', f.gep('i64', self.words, k), 8)}, {PLACE_BITS}")
        return f.op(f"trunc i64 {high} to {self.item}")

    def places(self, k: Any, lanes: int = 1) -> str:
        """The places of `lanes` elements of a sorted list, as i64."""
        type = vector(lanes, "i64")
        word = self.f.load(type, self.f.gep("i64", self.words, k), 8)
        return self.f.op(f"and {type} {word}, {number(lanes, 'i64', self.mask)}")


class Pairs:
    """Keys of 64 bits, of which a word does not have room for all.

    The least key is subtracted, the rest moved up as far as the greatest allows, and what is then in the low bits is
    replaced by the number of the element in the list. Where bits are lost, neighbours that have all others in common
    may be in the wrong order. A run of such elements is sorted once more, by the bits that were lost.

    `areas`: five arrays of i64.
    """

    def __init__(self, f: Function, lanes: int, areas: list[str], selects: bool) -> None:
        """`selects`: whether `keep` will be called. Only then does the list have places of its own."""
        self.f, self.lanes, self.selects = f, lanes, selects
        self.words, self.spare, self.run, self.keys, self.kept = areas
        self.least = self.up = self.bits = self.mask = ""

    def put(self, at: Any, key: str, place: Any, lanes: int = 1) -> None:
        f = self.f
        type = vector(lanes, "i64")
        f.store(type, key, f.gep("i64", self.keys, at), 8)
        if self.selects:
            f.store(type, counting(f, place, lanes), f.gep("i64", self.kept, at), 8)

    def key(self, k: Any) -> str:
        return self._load(self.keys, k)

    def places(self, k: Any, lanes: int = 1) -> str:
        if self.selects:
            return self._load(self.kept, k, lanes)
        type = vector(lanes, "i64")
        return self.f.op(f"and {type} {self._load(self.words, k, lanes)}, {splat(self.f, self.mask, lanes)}")

    def keep(self, count: Extent) -> None:
        f = self.f
        moved = (self.keys, self.spare), (self.kept, self.run)
        with f.for_(0, count) as loop:
            k = f.op(f"and i64 {self._load(self.words, loop.index)}, {self.mask}")
            for source, target in moved:
                self._store(self._load(source, k), target, loop.index)
        with f.for_(0, count) as loop:
            for target, source in moved:
                self._store(self._load(source, loop.index), target, loop.index)

    def sort(self, n: Any) -> None:
        f = self.f
        least, greatest = self._range(n)
        extent = f.op(f"sub i64 {greatest}, {least}")
        self.least = least
        self.up = f.op(f"and i64 {f.intrinsic('llvm.ctlz', 'i64', ('i64', extent), ('i1', 'false'))}, 63")
        self.bits = f.sub(64, f.intrinsic("llvm.ctlz", "i64", ("i64", f.sub(n, 1)), ("i1", "false")))
        self.mask = f.sub(f.op(f"shl i64 1, {self.bits}"), 1)
        lost = self._make_words(n)
        sort_in_place(f, "i64", self.lanes, self.words, self.spare, n, self.mask)
        with f.if_(f.op(f"icmp ne i64 {lost}, 0")), f.if_(self._has_disorder(n)):
            self._sort_runs(n)

    def _range(self, n: Any) -> tuple[str, str]:
        """The least and the greatest key."""
        f = self.f

        def step(k: Any, lanes: int, carried: tuple[str, ...]) -> list[str]:
            type = vector(lanes, "i64")
            keys = self._load(self.keys, k, lanes)
            hows = ("llvm.smin", "llvm.smax")
            return [f.intrinsic(how, type, (type, x), (type, keys)) for how, x in zip(hows, carried)]

        first = self._load(self.keys, 0)
        least, greatest = fold(f, n, self.lanes, [("smin", first), ("smax", first)], step)
        return least, greatest

    def _raised(self, keys: str, lanes: int) -> str:
        f, type = self.f, vector(lanes, "i64")
        apart = f.op(f"sub {type} {keys}, {splat(f, self.least, lanes)}")
        return f.op(f"shl {type} {apart}, {splat(f, self.up, lanes)}")

    def _make_words(self, n: Any) -> str:
        """Makes a word of each key; returns the bits that any key has lost (their bitwise or)."""
        f = self.f

        def step(k: Any, lanes: int, carried: tuple[str, ...]) -> list[str]:
            type = vector(lanes, "i64")
            raised = self._raised(self._load(self.keys, k, lanes), lanes)
            lost = f.op(f"and {type} {raised}, {splat(f, self.mask, lanes)}")
            number_of = counting(f, k, lanes)
            word = f.op(f"xor {type} {f.op(f'xor {type} {raised}, {lost}')}, {number(lanes, 'i64', -(1 << 63))}")
            f.store(type, f.op(f"or {type} {word}, {number_of}"), f.gep("i64", self.words, k), 8)
            return [f.op(f"or {type} {carried[0]}, {lost}")]

        return fold(f, n, self.lanes, [("or", "0")], step)[0]

    def _has_disorder(self, n: Any) -> str:
        """Whether the keys of neighbours with alike words (i1) are in the wrong order."""
        f = self.f

        def step(k: Any, lanes: int, carried: tuple[str, ...]) -> list[str]:
            type = vector(lanes, "i64")
            words = [self._load(self.words, f.add(k, j), lanes) for j in range(2)]
            apart = f.op(f"xor {type} {words[0]}, {words[1]}")
            alike = f.op(f"icmp ule {type} {apart}, {splat(f, self.mask, lanes)}")
            if lanes > 1:
                alike = f.op(f"bitcast <{lanes} x i1> {alike} to i{lanes}")

            def compare() -> str:
                wrong = "false"
                for j in range(lanes):
                    pair = [self._key_of(self._load(self.words, f.add(k, j + i))) for i in range(2)]
                    greater = f.op(f"icmp sgt i64 {pair[0]}, {pair[1]}")
                    this = f.op(f"trunc i{lanes} {f.op(f'lshr i{lanes} {alike}, {j}')} to i1") if lanes > 1 else alike
                    wrong = f.op(f"or i1 {wrong}, {f.op(f'and i1 {greater}, {this}')}")
                found = f.op(f"zext i1 {wrong} to i64")
                return f.op(f"insertelement {type} zeroinitializer, i64 {found}, i64 0") if lanes > 1 else found

            zero = "zeroinitializer" if lanes > 1 else "0"
            some = f.op(f"icmp ne i{lanes} {alike}, 0")
            return [f.op(f"or {type} {carried[0]}, {f.either(some, type, compare, lambda: zero)}")]

        return f.op(f"icmp ne i64 {fold(f, f.sub(n, 1), self.lanes, [('or', '0')], step)[0]}, 0")

    def _key_of(self, word: str) -> str:
        return self._load(self.keys, self.f.op(f"and i64 {word}, {self.mask}"))

    def _sort_runs(self, n: Any) -> None:
        """Puts elements whose words differ in the number alone in order of their keys."""
        f = self.f
        with f.repeat([("i64", "0")]) as loop:
            (begin,) = loop.carried
            first = self._load(self.words, begin)
            with f.repeat([("i64", begin)]) as walk:
                end = f.add(walk.carried[0], 1)
                inside = f.op(f"icmp slt i64 {end}, {f.extent(n)}")
                # After the last word is padding, which may be read.
                apart = f.op(f"xor i64 {first}, {self._load(self.words, end)}")
                alike = f.op(f"icmp ule i64 {apart}, {self.mask}")
                walk.next(end)
                walk.again = f.op(f"and i1 {inside}, {alike}")
            (end,) = walk.results
            size = f.sub(end, begin)
            with f.if_(f.op(f"icmp sgt i64 {size}, 1")):
                self._sort_run(begin, size)
            loop.next(end)
            loop.again = f.op(f"icmp slt i64 {end}, {f.extent(n)}")

    def _sort_run(self, begin: str, size: str) -> None:
        f = self.f
        with f.for_(0, size) as loop:
            word = self._load(self.words, f.add(begin, loop.index))
            lost = f.op(f"and i64 {self._raised(self._key_of(word), 1)}, {self.mask}")
            high = f.op(f"shl i64 {lost}, {self.bits}")
            # The highest bit is the sign of what is compared.
            high = f.op(f"xor i64 {high}, {-(1 << 63)}")
            self._store(f.op(f"or i64 {high}, {f.op(f'and i64 {word}, {self.mask}')}"), self.run, loop.index)
        sort_in_place(f, "i64", self.lanes, self.run, self.spare, size, self.mask)
        with f.for_(0, size) as loop:
            self._store(self._load(self.run, loop.index), self.words, f.add(begin, loop.index))

    def _load(self, area: str, k: Any, lanes: int = 1) -> str:
        return self.f.load(vector(lanes, "i64"), self.f.gep("i64", area, k), 8)

    def _store(self, value: str, area: str, k: Any) -> None:
        self.f.store("i64", value, self.f.gep("i64", area, k), 8)
