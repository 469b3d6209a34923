"""Sorting in vectors: networks of compare-exchanges, and merges of runs in memory.

Elements are integers in signed order. A network sees a few registers as one array whose index is made of *bits*: some
choose the register, the others the lane. A compare-exchange along a bit is one minimum and one maximum if the bit
chooses the register; if it chooses the lane, it changes places with a register's bit first, by one shuffle for each
register. What is exchanged next thus decides where the elements are, and nothing is moved back before the end.

Merging is bitonic (K. E. Batcher, "Sorting networks and their applications", 1968): the second run is reversed, and the
halves are exchanged along each bit from the highest to the lowest. Runs in memory are merged a few vectors at a time:
the lower half of what two sorted pieces give is written, the upper half meets the next piece of the run with the
smaller head.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.codegen.text.llvm import Function, vector

ROWS = 16
"""The most registers of a block that is sorted at once."""


class _Bits:
    """Registers as one array: which bit of a register's number, or of the lane, is which bit of the index."""

    def __init__(self, network: Network, registers: Sequence[str], register_bits: Sequence[int], lanes: Sequence[int]):
        self.network = network
        self.registers = list(registers)
        self.of_register = list(register_bits)
        """The bit of the index that each bit of the register's number is, lowest first."""
        self.of_lane = list(lanes)

    def merge(self, top: int) -> None:
        """Merges runs whose index has `top` bits, in pairs."""
        later = list(range(top, -1, -1))
        for k in range(len(later)):
            place = self._at_register(later[k], later[k + 1 :])
            if k == 0:
                self._reverse(place, top)
            for low in self._pairs(place):
                high = low | 1 << place
                self.registers[low], self.registers[high] = self.network.exchanged(
                    self.registers[low], self.registers[high]
                )

    def in_order(self) -> list[str]:
        """The registers, elements in order of their index."""
        lanes = len(self.of_lane)
        for name, place, lane in _moves_to_order(tuple(self.of_register), tuple(self.of_lane), self.network.unpacked):
            if name == "swap":
                self._swap(place, lane)
            else:
                self._interleave(place)
        return [
            self.registers[sum((r >> k & 1) << self.of_register.index(lanes + k) for k in range(len(self.of_register)))]
            for r in range(len(self.registers))
        ]

    def _pairs(self, place: int) -> list[int]:
        return [r for r in range(len(self.registers)) if not r >> place & 1]

    def _at_register(self, bit: int, later: Sequence[int]) -> int:
        """Brings a bit of the index to the registers, for one that is needed last; its place there."""
        if bit in self.of_register:
            return self.of_register.index(bit)
        need = {b: k for k, b in enumerate(later)}
        place = max(range(len(self.of_register)), key=lambda p: need.get(self.of_register[p], len(need)))
        self._swap(place, self.of_lane.index(bit))
        return place

    def _swap(self, place: int, lane: int) -> None:
        """A bit of the register's number and one of the lane change places."""
        one, lanes = 1 << lane, 1 << len(self.of_lane)
        self._shuffle(
            place,
            [k + lanes - one if k & one else k for k in range(lanes)],
            [k + lanes if k & one else k + one for k in range(lanes)],
        )
        self.of_register[place], self.of_lane[lane] = self.of_lane[lane], self.of_register[place]

    def _interleave(self, place: int) -> None:
        """In each part of `unpacked` lanes, a bit of the register's number becomes the lowest one of the lane, whose
        highest one becomes the register's."""
        lanes, part = 1 << len(self.of_lane), self.network.unpacked
        first = [k // part * part + k % part // 2 + lanes * (k % 2) for k in range(lanes)]
        self._shuffle(place, first, [k + part // 2 for k in first])
        self.of_register[place], self.of_lane[:] = _interleaved(self.of_register[place], self.of_lane, part)

    def _shuffle(self, place: int, first: Sequence[int], second: Sequence[int]) -> None:
        """Replaces each pair of registers that differ in one bit by these lanes of both."""
        for low in self._pairs(place):
            a, b = self.registers[low], self.registers[low | 1 << place]
            self.registers[low] = self.network.shuffled(a, b, first)
            self.registers[low | 1 << place] = self.network.shuffled(a, b, second)

    def _reverse(self, place: int, top: int) -> None:
        """Reverses each second run, whose elements have a 1 at this place of the register's number."""
        rows = sum(1 << p for p, bit in enumerate(self.of_register) if bit < top)
        lanes = sum(1 << p for p, bit in enumerate(self.of_lane) if bit < top)
        moved = [lane ^ lanes for lane in range(1 << len(self.of_lane))]
        old = self.registers[:]
        for r in range(len(old)):
            if r >> place & 1:
                self.registers[r] = self.network.shuffled(old[r ^ rows], old[r ^ rows], moved)


def _interleaved(register: int, lanes: Sequence[int], part: int) -> tuple[int, list[int]]:
    """What `_interleave` makes of a bit of the register's number and those of the lane."""
    top = part.bit_length() - 2
    return lanes[top], [register, *lanes[:top], *lanes[top + 1 :]]


@functools.lru_cache(maxsize=256)
def _moves_to_order(registers: tuple[int, ...], lanes: tuple[int, ...], part: int) -> list[tuple[str, int, int]]:
    """The fewest swaps and interleavings after which the lane's bits are the lowest ones of the index, in order."""
    found: dict[Any, list[tuple[str, int, int]]] = {(registers, lanes): []}
    queue = deque(found)
    while True:
        registers, lanes = queue.popleft()
        before = found[registers, lanes]
        if lanes == tuple(range(len(lanes))):
            return before
        for place, bit in enumerate(registers):
            states = [(("swap", place, k), lanes[k], (*lanes[:k], bit, *lanes[k + 1 :])) for k in range(len(lanes))]
            freed, shifted = _interleaved(bit, lanes, part)
            states.append((("interleave", place, 0), freed, tuple(shifted)))
            for move, moved, others in states:
                state = ((*registers[:place], moved, *registers[place + 1 :]), others)
                if state not in found:
                    found[state] = [*before, move]
                    queue.append(state)


class Network:
    """Sorts arrays of `item` (i8 to i64) in memory, `lanes` at a time."""

    def __init__(self, f: Function, item: str, lanes: int) -> None:
        self.f, self.item, self.lanes = f, item, lanes
        self.vector = vector(lanes, item)
        self.lane_bits = lanes.bit_length() - 1
        self.unpacked = min(lanes, 128 // int(item[1:]))
        """Lanes of the parts of a vector in which two can be interleaved by one cheap instruction."""

    def exchanged(self, a: str, b: str) -> tuple[str, str]:
        """(minima, maxima)."""
        f = self.f
        less = f.op(f"icmp slt {self.vector} {a}, {b}")
        mask = vector(self.lanes, "i1")
        return (
            f.op(f"select {mask} {less}, {self.vector} {a}, {self.vector} {b}"),
            f.op(f"select {mask} {less}, {self.vector} {b}, {self.vector} {a}"),
        )

    def shuffled(self, a: str, b: str, lanes: Sequence[int]) -> str:
        if a == b:
            lanes = [lane % self.lanes for lane in lanes]
            if lanes == list(range(self.lanes)):
                return a
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        other = "poison" if a == b else b
        return self.f.op(f"shufflevector {self.vector} {a}, {self.vector} {other}, <{self.lanes} x i32> <{mask}>")

    def splat(self, value: Any) -> str:
        """The same item in all lanes."""
        f = self.f
        one = f.op(f"insertelement {self.vector} poison, {self.item} {value}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return f.op(f"shufflevector {self.vector} {one}, {self.vector} poison, {zeros}")

    def filled(self, value: str, count: int) -> str:
        """A vector of `count` items, followed by the greatest there are."""
        f, greatest = self.f, (1 << (int(self.item[1:]) - 1)) - 1
        rest = f"<{', '.join([f'{self.item} {greatest}'] * self.lanes)}>"
        if count == 0:
            return rest
        if count == 1:
            return f.op(f"insertelement {self.vector} {rest}, {self.item} {value}, i64 0")
        if count == self.lanes:
            return value
        part = vector(count, self.item)
        fill = f"<{', '.join([f'{self.item} {greatest}'] * count)}>"
        mask = ", ".join(f"i32 {min(lane, count)}" for lane in range(self.lanes))
        return f.op(f"shufflevector {part} {value}, {part} {fill}, <{self.lanes} x i32> <{mask}>")

    def first(self, value: str, count: int) -> str:
        """The first `count` items of a vector."""
        if count == 1:
            return self.f.op(f"extractelement {self.vector} {value}, i64 0")
        if count == self.lanes:
            return value
        mask = ", ".join(f"i32 {lane}" for lane in range(count))
        return self.f.op(f"shufflevector {self.vector} {value}, {self.vector} poison, <{count} x i32> <{mask}>")

    @property
    def all(self) -> str:
        """The mask of all lanes."""
        return f"<{', '.join(['i1 true'] * self.lanes)}>"

    @property
    def all_bits(self) -> str:
        return str((1 << self.lanes) - 1)

    def bits(self, mask: str) -> str:
        """A mask as an i64."""
        number = self.f.op(f"bitcast <{self.lanes} x i1> {mask} to i{self.lanes}")
        return self.f.op(f"zext i{self.lanes} {number} to i64")

    @property
    def compresses(self) -> bool:
        """Whether an instruction moves the lanes in a mask together; the others are lost then."""
        return self.f.target.compresses and self.lanes * int(self.item[1:]) == self.f.target.vector_bits

    def together(self, x: str, mask: str, bits: str) -> str:
        """A vector that begins with the lanes of x that are in the mask, in their order. The others follow, unless it
        `compresses`."""
        f, lanes = self.f, self.lanes
        if self.compresses:
            args = (self.vector, x), (f"<{lanes} x i1>", mask), (self.vector, "poison")
            return f.intrinsic("llvm.experimental.vector.compress", self.vector, *args)
        # Elsewhere a permutation that is looked up. Of bytes in 128 bits, and of words in 256, it is one instruction,
        # which LLVM finds in what follows.
        unit = 8 if lanes * int(self.item[1:]) <= 128 else 32
        units = int(self.item[1:]) // unit
        table = f.module.constant(np.array(_permutations(lanes, units), np.uint8))
        count = lanes * units
        part = vector(count, f"i{unit}")
        index = f.load(vector(count, "i8"), f.gep(vector(count, "i8"), table, bits), 1)
        if unit > 8:
            index = f.op(f"zext {vector(count, 'i8')} {index} to {part}")
        source = f.op(f"bitcast {self.vector} {x} to {part}")
        result = "poison"
        for k in range(count):
            lane = f.op(f"extractelement {part} {index}, i64 {k}")
            moved = f.op(f"extractelement {part} {source}, i{unit} {lane}")
            result = f.op(f"insertelement {part} {result}, i{unit} {moved}, i64 {k}")
        return f.op(f"bitcast {part} {result} to {self.vector}")

    def block(self, registers: Sequence[str]) -> list[str]:
        """The registers, whose number is a power of two, sorted as one array."""
        rows = list(registers)
        for low, high in _odd_even(len(rows)):
            rows[low], rows[high] = self.exchanged(rows[low], rows[high])
        column = len(rows).bit_length() - 1
        bits = _Bits(self, rows, range(column), range(column, column + self.lane_bits))
        for top in range(column, column + self.lane_bits):
            bits.merge(top)
        return bits.in_order()

    def merged(self, first: Sequence[str], second: Sequence[str]) -> list[str]:
        """Two sorted pieces as one; each is as many registers as a power of two."""
        rows = [*first, *second]
        each = (len(rows) // 2).bit_length() - 1
        bits = _Bits(self, rows, range(self.lane_bits, self.lane_bits + each + 1), range(self.lane_bits))
        bits.merge(self.lane_bits + each)
        return bits.in_order()

    # ---- in memory

    def rows(self, n: Any) -> int:
        """Registers of the blocks in which n items are sorted."""
        if not isinstance(n, int):
            return ROWS
        rows = 2
        while rows < ROWS and rows * self.lanes < n:
            rows *= 2
        return rows

    def padded(self, n: Any) -> Any:
        """n rounded up to whole blocks: how many items `sort` reads."""
        size = self.rows(n) * self.lanes
        return self.f.mul(self.f.div(self.f.add(n, size - 1), size), size)

    def pad(self, items: str, n: Any, vectors: int = ROWS) -> None:
        """Fills vectors after the n items with the greatest item there is."""
        greatest = self.splat((1 << (int(self.item[1:]) - 1)) - 1)
        for k in range(vectors):
            self.store(greatest, items, self.f.add(n, k * self.lanes))

    def sort_block(self, items: str, begin: Any, rows: int) -> None:
        """Sorts a block in place."""
        at = [self.f.add(begin, k * self.lanes) for k in range(rows)]
        for k, v in zip(at, self.block([self.load(items, k) for k in at])):
            self.store(v, items, k)

    def sort(self, items: str, spare: str, n: Any) -> str:
        """Sorts the items at `items`, which have been padded, with as much memory at `spare`; where they are then."""
        f, rows = self.f, self.rows(n)
        size, total = rows * self.lanes, self.padded(n)
        with f.for_(0, total, size) as loop:
            self.sort_block(items, loop.index, rows)
        if isinstance(total, int) and total <= size:
            return items
        step = min(f.target.num_vector_registers // 4, rows)
        longer = f.op(f"icmp sgt i64 {f.extent(total)}, {size}")
        return f.either(longer, "ptr", lambda: self._passes(items, spare, size, step, total), lambda: items)

    def _passes(self, items: str, spare: str, size: int, step: int, total: Any) -> str:
        """Merges runs of `size` items, then of twice as many, until there is one."""
        f = self.f
        with f.repeat([("i64", str(size)), ("ptr", items), ("ptr", spare)]) as loop:
            run, source, target = loop.carried
            pair = f.op(f"shl i64 {run}, 1")
            pairs = f.op(f"udiv i64 {f.extent(f.sub(f.add(total, pair), 1))}, {pair}")
            with f.for_(0, pairs) as each:
                begin = f.mul(each.index, pair)
                middle, end = f.min(f.add(begin, run), total), f.min(f.add(begin, pair), total)
                self._merge(source, target, begin, f.extent(middle), f.extent(end), step)
            loop.next(pair, target, source)
            loop.again = f.op(f"icmp slt i64 {pair}, {f.extent(total)}")
        return loop.results[1]

    def _merge(self, source: str, target: str, begin: str, middle: str, end: str, step: int) -> None:
        """Merges [begin, middle) and [middle, end), of which the second may be empty."""
        f, size = self.f, step * self.lanes
        held = [self.load(source, f.add(begin, k * self.lanes)) for k in range(step)]
        carried = [("i64", f.add(begin, size)), ("i64", middle), *((self.vector, v) for v in held)]
        with f.for_(begin, f.sub(end, size), size, carried=carried) as loop:
            first, second, *held = loop.carried
            heads = [f.load(self.item, f.gep(self.item, source, at), 1) for at in (first, second)]
            smaller = f.op(f"icmp sle {self.item} {heads[0]}, {heads[1]}")
            left = f.op(f"icmp ne i64 {first}, {middle}")
            alone = f.op(f"icmp eq i64 {second}, {end}")
            takes = f.op(f"or i1 {alone}, {f.op(f'and i1 {left}, {smaller}')}")
            # No select: LLVM makes a branch of it here, which is taken or not at random.
            mask = f.op(f"sext i1 {takes} to i64")
            at = f.add(second, f.op(f"and i64 {f.sub(first, second)}, {mask}"))
            taken = [self.load(source, f.add(at, k * self.lanes)) for k in range(step)]
            merged = self.merged(held, taken)
            for k in range(step):
                self.store(merged[k], target, f.add(loop.index, k * self.lanes))
            by = f.op(f"and i64 {mask}, {size}")
            loop.next(f.add(first, by), f.add(second, f.sub(size, by)), *merged[step:])
        for k, v in enumerate(loop.results[2:]):
            self.store(v, target, f.add(end, k * self.lanes - size))

    def load(self, items: str, at: Any) -> str:
        return self.f.load(self.vector, self.f.gep(self.item, items, at), 1)

    def store(self, value: str, items: str, at: Any) -> None:
        self.f.store(self.vector, value, self.f.gep(self.item, items, at), 1)


def _odd_even(n: int) -> list[tuple[int, int]]:
    """Compare-exchanges that sort n = 2**k elements: Batcher's odd-even merge sort."""
    found = []
    p = 1
    while p < n:
        k = p
        while k >= 1:
            for j in range(k % p, n - k, 2 * k):
                for i in range(min(k, n - j - k)):
                    if (i + j) // (2 * p) == (i + j + k) // (2 * p):
                        found.append((i + j, i + j + k))
            k //= 2
        p *= 2
    return found


def _permutations(lanes: int, units: int) -> list[list[int]]:
    """For each mask of lanes, a permutation: the lanes in it, then the others. A lane has `units` units."""
    found = []
    for mask in range(1 << lanes):
        order = sorted(range(lanes), key=lambda lane: not mask >> lane & 1)
        found.append([lane * units + k for lane in order for k in range(units)])
    return found
