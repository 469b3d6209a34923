"""Sorting arrays of any length in place: quicksort by vectors, down to pieces that a network sorts in registers.

A vector is divided by one comparison: its elements below a bound are moved together and stored at the front of the
piece, the others in spare memory, from where they follow. Whole vectors are read and written. What they touch after
the piece is not below any element of it, stays in order, and is put back; so no piece needs a tail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gluonjit.codegen.kernels.sorting_network import ROWS, Network
from gluonjit.codegen.kernels.vectors import Step, fold, splat
from gluonjit.codegen.text.llvm import Function, vector
from gluonjit.ir.dims import Extent
from gluonjit.ir.kernels.sort_words import BUCKETS

PADDING = ROWS + 1
"""Vectors after the last item that are read and written, too."""
_MERGED = 2048
"""Bytes of items up to which merging is faster than quicksort."""
_SAMPLES = 9
_SHORT = 4
"""The most vectors of an open length that are sorted where they are, by a network of their own."""
_STACK = 64
"""The most pieces that wait: the shorter half of a piece is next, so there are no more than the logarithm of the number
of items."""


def sort_in_place(f: Function, item: str, lanes: int, items: str, spare: str, n: Any, ordered: Any = 0) -> None:
    """Sorts n `item`s (i32 or i64) at `items`. Both arrays have PADDING more vectors after the n items.

    `ordered`: the mask of low bits by which items that differ in nothing else are in order already.
    """
    network = Network(f, item, lanes)
    if isinstance(n, int) and n <= network.rows(n) * lanes:
        network.pad(items, n, network.rows(n) - n // lanes)
        network.sort_block(items, 0, network.rows(n))
        return
    network.pad(items, n, PADDING)
    if isinstance(n, int):
        _call(f, item, lanes, items, spare, n, ordered)
        return
    short = f.op(f"icmp sle i64 {f.extent(n)}, {_SHORT * lanes}")
    with f.if_(short):
        network.sort_block(items, 0, _SHORT)
    with f.if_(f.op(f"xor i1 {short}, true")):
        _call(f, item, lanes, items, spare, n, ordered)


def sort_distributed(
    f: Function,
    item: str,
    lanes: int,
    areas: tuple[str, str],
    n: Extent,
    key: Callable[[Any, int], str],
    write: Callable[[str, str, str], None],
    starts: list[tuple[str, str]],
    look: Step,
) -> list[str]:
    """Sorts n items, too many for a cache, in buckets that fit into it: `key(k, lanes)` gives those from the k-th on.
    `write(k, items, size)` takes the sorted items from the k-th on. `areas` have room for n items and PADDING more
    vectors for each of BUCKETS. The result is what `fold` makes of `starts` by `look`.

    They are read twice: counted, and distributed, by borders that are taken from a sample.
    """
    spare, items = areas
    network = Network(f, item, lanes)
    borders = _sampled_borders(network, areas, n, key)

    def count(k: Any, lanes: int, carried: tuple[str, ...]) -> list[str]:
        x, type, counts = key(k, lanes), vector(lanes, item), carried[len(starts) :]
        less = [f.op(f"icmp slt {type} {x}, {splat(f, border, lanes, item)}") for border in borders]
        wide = [f.op(f"sext {vector(lanes, 'i1')} {bits} to {type}") for bits in less]
        counted = [f.op(f"sub {type} {count}, {one}") for count, one in zip(counts, wide)]
        return look(k, lanes, carried[: len(starts)]) + counted

    folded = fold(f, n, lanes, starts + [("add", "0")] * len(borders), count, item)
    found, counts = folded[: len(starts)], folded[len(starts) :]
    counts = [x if item == "i64" else f.op(f"sext {item} {x} to i64") for x in counts]
    begins = ["0", *(f.add(x, (k + 1) * PADDING * lanes) for k, x in enumerate(counts))]
    ends = _distribute(network, items, n, key, borders, begins)
    written = "0"
    for k, begin in enumerate(begins):
        size = f.sub(f.load("i64", f.gep("i64", ends, k), 8), begin)
        bucket = f.gep(item, items, begin)
        network.pad(bucket, size, PADDING)
        _call(f, item, lanes, bucket, spare, size, 0)
        write(written, bucket, size)
        written = f.add(written, size)
    return found


def _sampled_borders(network: Network, areas: tuple[str, str], n: Extent, key: Callable[[Any, int], str]) -> list[str]:
    """Items between which about as many of all lie as between their neighbours: every 16th of a sorted sample."""
    f, item, (spare, items) = network.f, network.item, areas
    samples = 16 * BUCKETS
    with f.for_(0, samples) as loop:
        f.store(item, key(f.mul(loop.index, f.div(n, samples)), 1), f.gep(item, items, loop.index), 1)
    network.pad(items, samples, PADDING)
    _call(f, item, network.lanes, items, spare, samples, 0)
    return [f.load(item, f.gep(item, items, k * 16), 1) for k in range(1, BUCKETS)]


def _distribute(
    network: Network,
    items: str,
    n: Extent,
    key: Callable[[Any, int], str],
    borders: Sequence[str],
    begins: Sequence[str],
) -> str:
    """Writes every item to the bucket between its borders. Buckets begin at `begins`; returns the table of where they
    end."""
    f, item, lanes, type = network.f, network.item, network.lanes, network.vector
    mask = vector(lanes, "i1")
    splats = [network.splat(border) for border in borders]
    whole = f.mul(f.div(n, lanes), lanes)
    with f.for_(0, whole, lanes, carried=[("i64", begin) for begin in begins]) as loop:
        x, after = key(loop.index, lanes), []
        less = [f.op(f"icmp slt {type} {x}, {border}") for border in splats]
        bits = [network.bits(m) for m in less]
        for k, at in enumerate(loop.carried):
            inside, number = less[k] if k < len(less) else network.all, bits[k] if k < len(bits) else network.all_bits
            if k > 0:
                inside = f.op(f"xor {mask} {inside}, {less[k - 1]}")
                number = f.op(f"xor i64 {number}, {bits[k - 1]}")
            network.store(network.together(x, inside, number), items, at)
            after.append(f.add(at, f.intrinsic("llvm.ctpop", "i64", ("i64", number))))
        loop.next(*after)
    ends = f.alloca("i64", BUCKETS)
    for k, end in enumerate(loop.results):
        f.store("i64", end, f.gep("i64", ends, k), 8)
    with f.for_(whole, n) as rest:
        x, bucket = key(rest.index, 1), "0"
        for border in borders:
            bucket = f.add(bucket, f.op(f"zext i1 {f.op(f'icmp sge {item} {x}, {border}')} to i64"))
        place = f.gep("i64", ends, bucket)
        at = f.load("i64", place, 8)
        f.store(item, x, f.gep(item, items, at), 1)
        f.store("i64", f.add(at, 1), place, 8)
    return ends


def _call(f: Function, item: str, lanes: int, items: str, spare: str, n: Any, ordered: Any) -> None:
    """Calls the function that sorts, which is once in each module."""
    keeps_order = ordered != 0
    name = f"sort_{item}_{lanes}" + "_in_order" * keeps_order
    if all(g.name != name for g in f.module.functions):
        params = ("ptr noalias", "items"), ("ptr noalias", "spare"), ("i64", "n"), ("i64", "ordered")
        g = f.module.function(name, params, linkage="internal", attributes="noinline")
        Quicksort(g, item, lanes, keeps_order).write()
    f.call(name, "void", ("ptr", items), ("ptr", spare), ("i64", n), ("i64", ordered))


class Quicksort:
    """Writes the function: a loop over pieces, the next one on top of a stack.

    A piece is its begin, its end, two integers between which its elements are, and how often it may still be divided:
    where pivots were bad so often, it is merged instead. A piece of elements that must be equal is sorted.
    `keeps_order`: whether some bits are in order already, which partitions must keep then.
    """

    def __init__(self, f: Function, item: str, lanes: int, keeps_order: bool) -> None:
        self.f, self.item, self.lanes, self.keeps_order = f, item, lanes, keeps_order
        self.bits = int(item[1:])
        self.network = Network(f, item, lanes)
        self.vector = self.network.vector
        self.stack = f.alloca("[5 x i64]", _STACK)

    def write(self) -> None:
        f = self.f
        most = (1 << (self.bits - 1)) - 1
        self._push(0, 0, "%n", ~most, most, self.limit())
        with f.if_(f.op(f"xor i1 {self._is_sorted()}, true")), f.repeat([("i64", "1")]) as loop:
            top = f.sub(loop.carried[0], 1)
            begin, end, low, high, divisions = (f.load("i64", self._field(top, k), 8) for k in range(5))
            # Their other bits are in order, which partitions have kept.
            equal = f.op(f"icmp eq i64 {low}, {self._without_ordered(high)}")
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

    def _is_sorted(self) -> str:
        """Whether the items are in order from the start; of others, few are looked at."""
        f, network = self.f, self.network
        with f.repeat([("i64", "0")]) as loop:
            (at,) = loop.carried
            here, following = network.load("%items", at), network.load("%items", f.add(at, 1))
            greater = network.bits(f.op(f"icmp sgt {self.vector} {here}, {following}"))
            wrong = f.op(f"icmp ne i64 {greater}, 0")
            after = f.add(at, self.lanes)
            loop.next(after)
            more = f.op(f"icmp slt i64 {after}, %n")
            loop.again = f.op(f"and i1 {more}, {f.op(f'xor i1 {wrong}, true')}")
        return f.op(f"xor i1 {wrong}, true")

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
        pivot = self._without_ordered(self._pivot(begin, f.sub(end, begin)))
        # Nothing is below the least integer that there may be: what is equal to it is divided from what is greater.
        least = f.op(f"icmp eq i64 {pivot}, {low}")
        bound = f.op(f"select i1 {least}, i64 {f.add('%ordered', 1)}, i64 0")
        bound = f.add(pivot, bound)
        middle = f.min(self._partition(begin, end, bound), end)
        longer = f.op(f"icmp sgt i64 {f.sub(end, middle)}, {f.sub(middle, begin)}")
        longer = f.op(f"zext i1 {longer} to i64")
        divisions = f.sub(divisions, 1)
        self._push(f.add(top, longer), begin, middle, low, f.sub(bound, 1), divisions)
        self._push(f.sub(f.add(top, 1), longer), middle, end, bound, high, divisions)
        return f.add(top, 2)

    def _without_ordered(self, item: str) -> str:
        return self.f.op(f"and i64 {item}, {self.f.op('xor i64 %ordered, -1')}")

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
        after = network.load("%items", whole)
        limit = network.splat(bound if self.bits == 64 else f.op(f"trunc i64 {bound} to {self.item}"))
        divide = self._divide_in_order if self.keeps_order or network.compresses else self._divide_by_permuting
        middle, others = divide(begin, whole, limit)
        with f.for_(0, f.sub(whole, middle), lanes) as copy:
            network.store(network.load(others, copy.index), "%items", f.add(middle, copy.index))
        network.store(after, "%items", whole)
        return middle

    def _divide_in_order(self, begin: str, whole: str, limit: str) -> tuple[str, str]:
        """Moves elements below the limit to the front; where they end, and where the others are now. Both stay in
        their order."""
        f, lanes, network = self.f, self.lanes, self.network
        with f.for_(begin, whole, lanes, carried=[("i64", begin)]) as loop:
            (at,) = loop.carried
            x = network.load("%items", loop.index)
            less = f.op(f"icmp slt {self.vector} {x}, {limit}")
            bits = network.bits(less)
            network.store(network.together(x, less, bits), "%items", at)
            rest = f.op(f"xor <{lanes} x i1> {less}, {network.all}")
            bits_of_rest = f.op(f"xor i64 {bits}, {network.all_bits}")
            network.store(network.together(x, rest, bits_of_rest), "%spare", f.sub(loop.index, at))
            loop.next(f.add(at, f.intrinsic("llvm.ctpop", "i64", ("i64", bits))))
        (middle,) = loop.results
        return middle, "%spare"

    def _divide_by_permuting(self, begin: str, whole: str, limit: str) -> tuple[str, str]:
        """The same in any order, by one permutation: the others go to spare memory downwards from its end, each vector
        over the elements below the limit that were stored with the one before. The last vector comes first, as its
        end may be beyond the piece, and has to stay where it is."""
        f, lanes, network = self.f, self.lanes, self.network

        def divided(at: str) -> tuple[str, str]:
            x = network.load("%items", at)
            less = f.op(f"icmp slt {self.vector} {x}, {limit}")
            bits = network.bits(less)
            return network.together(x, less, bits), f.intrinsic("llvm.ctpop", "i64", ("i64", bits))

        end = f.sub(whole, lanes)
        last, count = divided(end)
        first = f.sub(end, begin)
        network.store(last, "%spare", first)
        with f.for_(begin, end, lanes, carried=[("i64", begin), ("i64", f.add(first, count))]) as loop:
            at, others = loop.carried
            x, less = divided(loop.index)
            network.store(x, "%items", at)
            others = f.sub(others, lanes)
            network.store(x, "%spare", others)
            loop.next(f.add(at, less), f.add(others, less))
        at, others = loop.results
        network.store(last, "%items", at)
        return f.add(at, count), f.gep(self.item, "%spare", others)
