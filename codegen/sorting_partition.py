"""Sorting arrays of any length in place: quicksort by vectors, down to pieces that a network sorts in registers.

A vector is divided by one comparison: its elements below a bound are moved together and stored at the front of the
piece, the others in spare memory, from where they follow. Whole vectors are read and written. What they touch behind
the piece is not below any element of it, stays in order, and is put back; so no piece needs a tail.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gluonjit.codegen.llvm import Function, vector
from gluonjit.codegen.sorting_network import ROWS, Network

PADDING = ROWS + 1
"""Vectors behind the items that are read and written."""
_MERGED = 2048
"""Bytes of items up to which merging is faster than quicksort."""
_SAMPLES = 9
_STACK = 64
"""Pieces that wait. The shorter half of a piece is next, so they are at most the logarithm of the number of items."""


def sort_in_place(f: Function, item: str, lanes: int, items: str, spare: str, n: Any) -> None:
    """Sorts n `item`s (i32 or i64) at `items`. Both arrays have PADDING more vectors behind n items."""
    network = Network(f, item, lanes)
    if isinstance(n, int) and n <= network.rows(n) * lanes:
        network.pad(items, n, network.rows(n) - n // lanes)
        network.sort_block(items, 0, network.rows(n))
    else:
        network.pad(items, n, PADDING)
        f.call(_function(f, item, lanes), "void", ("ptr", items), ("ptr", spare), ("i64", n))


def _function(f: Function, item: str, lanes: int) -> str:
    """The function that sorts, once in each module."""
    name = f"sort_{item}_{lanes}"
    if all(g.name != name for g in f.module.functions):
        params = ("ptr noalias", "items"), ("ptr noalias", "spare"), ("i64", "n")
        g = f.module.function(name, params, linkage="internal", attributes="noinline")
        Quicksort(g, item, lanes).write()
    return name


class Quicksort:
    """Writes the function: a loop over pieces, the next one on top of a stack.

    A piece is its begin, its end, two integers between which its elements are, and how often it may still be divided:
    where pivots were bad so often, it is merged instead. A piece of elements that must be equal is sorted.
    """

    def __init__(self, f: Function, item: str, lanes: int) -> None:
        self.f, self.item, self.lanes = f, item, lanes
        self.bits = int(item[1:])
        self.network = Network(f, item, lanes)
        self.vector = self.network.vector
        self.stack = f.alloca("[5 x i64]", _STACK)

    def write(self) -> None:
        f = self.f
        most = (1 << (self.bits - 1)) - 1
        self._push(0, 0, "%n", ~most, most, self.limit())
        with f.repeat([("i64", "1")]) as loop:
            top = f.sub(loop.carried[0], 1)
            begin, end, low, high, divisions = (f.load("i64", self._field(top, k), 8) for k in range(5))
            equal = f.op(f"icmp eq i64 {low}, {high}")
            size = f.op(f"select i1 {equal}, i64 1, i64 {f.sub(end, begin)}")

            def sorted() -> str:
                with f.if_(f.op(f"icmp sgt i64 {size}, 1")):
                    self._sort(begin, size)
                return top

            last = f.op(f"icmp sle i64 {size}, {ROWS * self.lanes}")
            last = f.op(f"or i1 {last}, {f.op(f'icmp eq i64 {divisions}, 0')}")
            top = f.either(last, "i64", sorted, lambda: self._divide(top, begin, end, low, high, divisions))
            loop.next(top)
            loop.again = f.op(f"icmp sgt i64 {top}, 0")

    def limit(self) -> str:
        """How often pieces may be divided: twice the logarithm of the number of items, if there are many."""
        f = self.f
        short = f.op(f"icmp sle i64 %n, {_MERGED * 8 // self.bits}")
        zeros = f.intrinsic("llvm.ctlz", "i64", ("i64", "%n"), ("i1", "false"))
        return f.op(f"select i1 {short}, i64 0, i64 {f.sub(128, f.mul(zeros, 2))}")

    def _field(self, piece: Any, k: int) -> str:
        return self.f.gep("i64", self.stack, self.f.add(self.f.mul(piece, 5), k))

    def _push(self, top: Any, *fields: Any) -> None:
        for k, value in enumerate(fields):
            self.f.store("i64", value, self._field(top, k), 8)

    def _sort(self, begin: str, size: str) -> None:
        f, network = self.f, self.network
        items = f.gep(self.item, "%items", begin)
        few = f.op(f"icmp sle i64 {size}, {ROWS // 2 * self.lanes}")
        with f.if_(few):
            network.sort_block(items, 0, ROWS // 2)
        with f.if_(f.op(f"xor i1 {few}, true")):
            sorted = network.sort(items, "%spare", size)
            # What was sorted together with the piece has been moved as well.
            total = network.padded(size)
            with f.if_(f.op(f"icmp ne ptr {sorted}, {items}")), f.for_(0, total, self.lanes) as loop:
                network.store(network.load(sorted, loop.index), items, loop.index)

    def _divide(self, top: str, begin: str, end: str, low: str, high: str, divisions: str) -> str:
        """Pushes both parts of a piece; the top of the stack."""
        f = self.f
        pivot = self._pivot(begin, f.sub(end, begin))
        # Nothing is below the least integer that there may be: what is equal to it is divided from what is greater.
        least = f.op(f"icmp eq i64 {pivot}, {low}")
        bound = f.add(pivot, f.op(f"zext i1 {least} to i64"))
        middle = f.min(self._partition(begin, end, bound), end)
        longer = f.op(f"icmp sgt i64 {f.sub(end, middle)}, {f.sub(middle, begin)}")
        longer = f.op(f"zext i1 {longer} to i64")
        divisions = f.sub(divisions, 1)
        self._push(f.add(top, longer), begin, middle, low, f.sub(bound, 1), divisions)
        self._push(f.sub(f.add(top, 1), longer), middle, end, bound, high, divisions)
        return f.add(top, 2)

    def _pivot(self, begin: str, size: str) -> str:
        """The median of three medians of three."""
        f = self.f
        step = f.div(size, _SAMPLES)
        first = f.add(begin, f.div(step, 2))
        places = [f.gep(self.item, "%items", f.add(first, f.mul(step, k))) for k in range(_SAMPLES)]
        samples = [f.load(self.item, place, 1) for place in places]
        if self.bits < 64:
            samples = [f.op(f"sext {self.item} {x} to i64") for x in samples]

        def median(a: str, b: str, c: str) -> str:
            return f.max(f.min(a, b), f.min(f.max(a, b), c))

        return median(*(median(*samples[k::3]) for k in range(3)))

    def _partition(self, begin: str, end: str, bound: str) -> str:
        """Moves elements below `bound` to the front; where the others begin, or the end or more if there are none."""
        f, lanes, network = self.f, self.lanes, self.network
        vectors = f.div(f.add(f.sub(end, begin), lanes - 1), lanes)
        whole = f.add(begin, f.mul(vectors, lanes))
        behind = network.load("%items", whole)
        limit = network.splat(bound if self.bits == 64 else f.op(f"trunc i64 {bound} to {self.item}"))
        with f.for_(begin, whole, lanes, carried=[("i64", begin)]) as loop:
            (at,) = loop.carried
            x = network.load("%items", loop.index)
            less = f.op(f"icmp slt {self.vector} {x}, {limit}")
            bits = f.op(f"zext i{lanes} {f.op(f'bitcast <{lanes} x i1> {less} to i{lanes}')} to i64")
            network.store(self._together(x, less, bits), "%items", at)
            rest = f.op(f"xor <{lanes} x i1> {less}, {_all(lanes)}")
            bits_of_rest = f.op(f"xor i64 {bits}, {(1 << lanes) - 1}")
            network.store(self._together(x, rest, bits_of_rest), "%spare", f.sub(loop.index, at))
            loop.next(f.add(at, f.intrinsic("llvm.ctpop", "i64", ("i64", bits))))
        (middle,) = loop.results
        with f.for_(0, f.sub(whole, middle), lanes) as copy:
            network.store(network.load("%spare", copy.index), "%items", f.add(middle, copy.index))
        network.store(behind, "%items", whole)
        return middle

    def _together(self, x: str, mask: str, bits: str) -> str:
        """A vector that begins with the lanes of x that are in the mask, in their order."""
        f, lanes = self.f, self.lanes
        if f.target.compresses and lanes * self.bits == f.target.vector_bits:
            args = (self.vector, x), (f"<{lanes} x i1>", mask), (self.vector, "poison")
            return f.intrinsic("llvm.experimental.vector.compress", self.vector, *args)
        # Elsewhere a permutation that is looked up. Of bytes in 128 bits, and of words in 256, it is one instruction,
        # which LLVM finds in what follows.
        unit = 8 if lanes * self.bits <= 128 else 32
        units = self.bits // unit
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


def _permutations(lanes: int, units: int) -> list[list[int]]:
    """For each mask: the lanes in it, then the others; each lane is so many units."""
    found = []
    for mask in range(1 << lanes):
        order = sorted(range(lanes), key=lambda lane: not mask >> lane & 1)
        found.append([lane * units + k for lane in order for k in range(units)])
    return found


def _all(lanes: int) -> str:
    return f"<{', '.join(['i1 true'] * lanes)}>"
