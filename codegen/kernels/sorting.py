"""The kernel `sorting`, of `sort`: line by line.

A key is an integer that orders as the element does, in signed order; equal elements (0 and -0, NaNs) have equal keys.
If only values are wanted, keys alone are sorted, and elements made of them again. Otherwise keys are sorted together
with their places (`sorting_words`).

If only the first `count` are wanted, one pass keeps the elements that are less than the last of the first `count` so
far, which soon are few. When too many have been kept, they are sorted, and all but the first `count` are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from gluonjit.codegen.kernels.sequential import for_each
from gluonjit.codegen.kernels.sorting_network import ROWS, Network
from gluonjit.codegen.kernels.sorting_partition import sort_distributed, sort_in_place
from gluonjit.codegen.kernels.sorting_words import Pairs, Words
from gluonjit.codegen.kernels.vectors import fold, number, splat
from gluonjit.codegen.loops.access import Access
from gluonjit.codegen.loops.index import Affine
from gluonjit.codegen.text.kernel_code import writes
from gluonjit.codegen.text.llvm import Function, Module, vector
from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.dims import Extent
from gluonjit.ir.graph import Op
from gluonjit.ir.kernels.op_plans import Sorting
from gluonjit.ir.kernels.sort_words import DISTRIBUTED, candidates, is_partial, sort_memory
from gluonjit.ir.types import BF16, F16, F32, F64

_INFINITY = {F16: 0x7C00, BF16: 0x7F80, F32: 0x7F800000, F64: 0x7FF0000000000000}

_RANKED = 16
"""The longest line whose elements are ordered by comparing each with all others."""


@writes(Sorting)
def lower_sorting(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module. Its table: the operand, then the results."""
    f = module.function(name)
    if all(r.size for r in op.results):
        s = Access(f, module.target.width)
        sort = _Sort(f, s, op)
        for_each(s, sort.outer * sort.inner, 8 * sort.n, sort.line)


class _Sort:
    """Writes the code for lines of an op, one after the other."""

    def __init__(self, f: Function, s: Access, op: Op) -> None:
        (x,) = op.operands
        shape, axis, count = x.shape, op.attrs["axis"], op.attrs["count"]
        self.f, self.s, self.dtype = f, s, x.dtype
        self.outer, self.n, self.inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
        self.count: Extent = count or self.n
        self.descending = op.attrs["descending"]
        plan = KERNEL.of(op)
        read = plan.read if isinstance(plan, Sorting) else None
        self.read = range(len(op.results)) if read is None else read
        self.kept = candidates(count)
        self.partial = is_partial(self.n, count)
        self.x, self.values = f.table(0), f.table(1)
        self.order = f.table(2) if op.attrs["order"] else ""
        memory = sort_memory(x.type, axis, count)
        areas = [f.table(1 + len(op.results))]
        while len(areas) < memory.areas:
            areas.append(f.gep("i8", areas[-1], memory.each))
        self.a, self.b = areas[:2]
        self.list = (
            Words(f, self.item, s.width // 2, areas)
            if self.dtype.bits <= 32
            else Pairs(f, s.width // 2, areas, selects=self.partial)
        )

    def line(self, t: Affine) -> None:
        f, s = self.f, self.s
        o, at = t // self.inner, t % self.inner
        self.source = f.gep(self.item, self.x, s.uniform(o * (self.n * self.inner) + at).ssa)
        first = s.uniform(o * (self.count * self.inner) + at).ssa
        if 1 not in self.read and not self.partial:
            self._sort_values(first)
        elif isinstance(self.n, int) and self.n <= _RANKED:
            self._rank(first)
        else:
            if self.partial:
                self._select()
            else:
                self._list(self.n)
                self.list.sort(self.n)
            self._write_list(first)

    # ---- elements

    @property
    def item(self) -> str:
        """The integer type that an element is read as."""
        return f"i{self.dtype.bits}"

    def _lanes(self, bits: int) -> int:
        """How many elements that follow each other in memory a vector holds."""
        return self.s.width * 32 // bits if self.inner == 1 else 1

    def _element(self, k: Any, lanes: int = 1) -> str:
        """`lanes` elements from the k-th on, as integers."""
        place = self.f.gep(self.item, self.source, self.f.mul(k, self.inner))
        return self.f.load(vector(lanes, self.item), place, self.dtype.bits // 8)

    def _elements(self, k: int, count: int) -> str:
        """`count` elements from the k-th on, as integers, one by one if they do not follow each other in memory."""
        if self.inner == 1:
            return self._element(k, count)
        if count == 1:
            return self._element(k)
        type, found = vector(count, self.item), "poison"
        for lane in range(count):
            x = self._element(k + lane)
            found = self.f.op(f"insertelement {type} {found}, {self.item} {x}, i64 {lane}")
        return found

    def _each(self, n: Any, lanes: int, body: Callable[[str, int], None]) -> None:
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
        type, mask, least = vector(lanes, self.item), vector(lanes, "i1"), -(1 << (dtype.bits - 1))
        key = x
        if dtype.is_float:
            magnitude = self._magnitude(x, lanes)
            zero = self._is_zero(magnitude, lanes)
            key = self._folded(x, lanes)
            key = f.op(f"select {mask} {zero}, {type} {number(lanes, self.item, 0)}, {type} {key}")
            nan = self._is_nan(magnitude, lanes)
            key = f.op(f"select {mask} {nan}, {type} {number(lanes, self.item, ~least)}, {type} {key}")
        elif dtype.kind != "i":
            key = f.op(f"xor {type} {x}, {number(lanes, self.item, least)}")
        return f.op(f"xor {type} {key}, {number(lanes, self.item, -1)}") if self.descending else key

    def _is_odd(self, x: str, lanes: int) -> str:
        """Whether elements of a float type are -0 or NaNs: keys do not tell what they were."""
        f, type = self.f, vector(lanes, self.item)
        negative = f.op(f"icmp eq {type} {x}, {number(lanes, self.item, -(1 << (self.dtype.bits - 1)))}")
        nan = self._is_nan(self._magnitude(x, lanes), lanes)
        return f.op(f"or {vector(lanes, 'i1')} {negative}, {nan}")

    def _magnitude(self, x: str, lanes: int) -> str:
        type, most = vector(lanes, self.item), (1 << (self.dtype.bits - 1)) - 1
        return self.f.op(f"and {type} {x}, {number(lanes, self.item, most)}")

    def _is_zero(self, magnitude: str, lanes: int) -> str:
        return self.f.op(f"icmp eq {vector(lanes, self.item)} {magnitude}, {number(lanes, self.item, 0)}")

    def _is_nan(self, magnitude: str, lanes: int) -> str:
        infinity = number(lanes, self.item, _INFINITY[self.dtype])
        return self.f.op(f"icmp sgt {vector(lanes, self.item)} {magnitude}, {infinity}")

    def _folded(self, x: str, lanes: int) -> str:
        """A float's bits as an integer that orders as it does, and back: below 0, all but the sign are inverted."""
        f, type = self.f, vector(lanes, self.item)
        negative = f.op(f"ashr {type} {x}, {number(lanes, self.item, self.dtype.bits - 1)}")
        return f.op(f"xor {type} {x}, {self._magnitude(negative, lanes)}")

    def _from_key(self, key: str, lanes: int) -> str:
        """The element that has this key: 0 for the key of zeros, one NaN for the key of all NaNs."""
        f, dtype = self.f, self.dtype
        type, sign = vector(lanes, self.item), -(1 << (dtype.bits - 1))
        if self.descending:
            key = f.op(f"xor {type} {key}, {number(lanes, self.item, -1)}")
        if dtype.is_float:
            return self._folded(key, lanes)
        return key if dtype.kind == "i" else f.op(f"xor {type} {key}, {number(lanes, self.item, sign)}")

    # ---- values alone

    def _sort_values(self, first: str) -> None:
        f = self.f
        self.wide = f"i{max(self.dtype.bits, 32)}"
        if self.inner != 1 or not (isinstance(self.n, int) and isinstance(self.count, int)):
            self._sort_in_memory(first)
            return
        lanes, rows = _network_size(self.n, self._lanes(int(self.wide[1:])))
        if self.n > lanes * rows:
            self._sort_in_memory(first)
            return
        network = Network(f, self.wide, lanes)
        parts = [(k, min(lanes, self.n - k)) for k in range(0, self.n, lanes)]
        keys, odd = [], "false"
        for k, count in parts:
            x = self._element(k, count)
            keys.append(network.filled(self._wide_key(x, count), count))
            if self.dtype.is_float:
                odd = f.op(f"or i1 {odd}, {_any(f, self._is_odd(x, count), count)}")
        keys = network.block(keys + [network.filled("", 0)] * (rows - len(keys)))
        for key, (k, _) in zip(keys, parts):
            count = min(lanes, self.count - k)
            if count > 0:
                self._write(first, k, network.first(key, count), count)
        if self.dtype.is_float:
            with f.if_(odd):
                self._restore(first)

    def _wide_key(self, x: str, lanes: int) -> str:
        return _resized(self.f, "sext", self._key(x, lanes), self.item, self.wide, lanes)

    def _sort_in_memory(self, first: str) -> None:
        f, least = self.f, self._least_distributed()
        if isinstance(self.n, int) or least is None:
            distributes = isinstance(self.n, int) and least is not None and self.n >= least
            odd = (self._sort_distributed if distributes else self._sort_in_place)(first)
        else:
            long = f.op(f"icmp sge i64 {f.extent(self.n)}, {least}")
            sorts = (lambda: self._sort_distributed(first)), (lambda: self._sort_in_place(first))
            odd = f.either(long, self.wide, *sorts)
        if self.dtype.is_float:
            with f.if_(f.op(f"icmp ne {self.wide} {odd}, 0")):
                self._restore(first)

    def _least_distributed(self) -> int | None:
        """The length from which a line of keys is twice as long as the cache of the second level; None where elements
        are not next to each other or not all wanted."""
        if self.inner != 1 or self.n != self.count:
            return None
        return max(DISTRIBUTED, 2 * self.f.target.l2 * 8 // int(self.wide[1:]))

    def _sort_in_place(self, first: str) -> str:
        """Sorts a line; not 0 if elements are odd."""
        f, wide = self.f, self.wide

        def make(k: Any, lanes: int, carried: tuple[str, ...]) -> list[str]:
            x = self._element(k, lanes)
            f.store(vector(lanes, wide), self._wide_key(x, lanes), f.gep(wide, self.a, k), 4)
            return self._with_odd(x, lanes, carried)

        def write(k: str, lanes: int) -> None:
            self._write(first, k, f.load(vector(lanes, wide), f.gep(wide, self.a, k), 4), lanes)

        odd = fold(f, self.n, self._lanes(int(wide[1:])), self._no_odd(), make, wide)
        sort_in_place(f, wide, self.s.width * 32 // int(wide[1:]), self.a, self.b, self.n)
        self._each(self.count, self._lanes(int(wide[1:])), write)
        return odd[0] if odd else "0"

    def _sort_distributed(self, first: str) -> str:
        """The same for a line that no cache holds."""
        f, wide = self.f, self.wide

        def key(k: Any, lanes: int) -> str:
            return self._wide_key(self._element(k, lanes), lanes)

        def look(k: Any, lanes: int, carried: tuple[str, ...]) -> list[str]:
            return self._with_odd(self._element(k, lanes), lanes, carried)

        def write(at: str, items: str, size: str) -> None:
            def write(k: str, lanes: int) -> None:
                self._write(first, f.add(at, k), f.load(vector(lanes, wide), f.gep(wide, items, k), 4), lanes)

            self._each(size, lanes, write)

        lanes = self.s.width * 32 // int(wide[1:])
        odd = sort_distributed(f, wide, lanes, (self.a, self.b), self.n, key, write, self._no_odd(), look)
        return odd[0] if odd else "0"

    def _no_odd(self) -> list[tuple[str, str]]:
        """What `fold` starts with to find out whether elements are odd."""
        return [("or", "0")] if self.dtype.is_float else []

    def _with_odd(self, x: str, lanes: int, carried: tuple[str, ...]) -> list[str]:
        if not carried:
            return []
        odd = _resized(self.f, "sext", self._is_odd(x, lanes), "i1", self.wide, lanes)
        return [self.f.op(f"or {vector(lanes, self.wide)} {carried[0]}, {odd}")]

    def _write(self, first: str, k: Any, keys: str, lanes: int) -> None:
        """The elements with these keys as results from the k-th on."""
        f = self.f
        x = self._from_key(_resized(f, "trunc", keys, self.wide, self.item, lanes), lanes)
        place = f.gep(self.item, self.values, f.add(first, f.mul(k, self.inner)))
        f.store(vector(lanes, self.item), x, place, self.dtype.bits // 8)

    def _restore(self, first: str) -> None:
        """Writes zeros and NaNs once more, with their own bits and in their order."""
        f, bits, wide = self.f, self.dtype.bits, self.wide
        sign = -(1 << (bits - 1))
        # Keys of zeros and of NaNs, and how many are less.
        borders = (-1, sign) if self.descending else (0, -sign - 1)

        def count(k: Any, lanes: int, counts: tuple[str, ...]) -> list[str]:
            type, key = vector(lanes, wide), self._wide_key(self._element(k, lanes), lanes)
            less = [f.op(f"icmp slt {type} {key}, {number(lanes, wide, border)}") for border in borders]
            return [f.op(f"sub {type} {n}, {_resized(f, 'sext', m, 'i1', wide, lanes)}") for n, m in zip(counts, less)]

        counts = fold(f, self.n, self._lanes(int(wide[1:])), [("add", "0")] * 2, count, wide)
        counts = [_resized(f, "sext", n, wide, "i64", 1) for n in counts]
        for begin, chosen in zip(counts, (self._is_zero, self._is_nan)):
            size = f.min(self._collect(chosen), f.max(f.sub(self.count, begin), 0))

            def write(k: str, lanes: int, begin: str = begin) -> None:
                x = _resized(f, "trunc", f.load(vector(lanes, wide), f.gep(wide, self.a, k), 4), wide, self.item, lanes)
                place = f.gep(self.item, self.values, f.add(first, f.mul(f.add(begin, k), self.inner)))
                f.store(vector(lanes, self.item), x, place, bits // 8)

            self._each(size, self._lanes(int(wide[1:])), write)

    def _collect(self, chosen: Callable[[str, int], str]) -> str:
        """Moves elements whose magnitudes are chosen to `a`, in their order; how many there are."""
        f, wide, at, whole = self.f, self.wide, "0", 0
        lanes = self._lanes(int(wide[1:]))
        if lanes > 1:
            network = Network(f, wide, lanes)
            whole = f.mul(f.div(self.n, lanes), lanes)
            with f.for_(0, whole, lanes, carried=[("i64", at)]) as loop:
                x = self._element(loop.index, lanes)
                mask = chosen(self._magnitude(x, lanes), lanes)
                number = network.bits(mask)
                x = network.together(_resized(f, "sext", x, self.item, wide, lanes), mask, number)
                network.store(x, self.a, loop.carried[0])
                loop.next(f.add(loop.carried[0], f.intrinsic("llvm.ctpop", "i64", ("i64", number))))
            (at,) = loop.results
        with f.for_(whole, self.n, carried=[("i64", at)]) as loop:
            x = self._element(loop.index)
            f.store(wide, _resized(f, "sext", x, self.item, wide, 1), f.gep(wide, self.a, loop.carried[0]), 4)
            one = f.op(f"zext i1 {chosen(self._magnitude(x, 1), 1)} to i64")
            loop.next(f.add(loop.carried[0], one))
        return loop.results[0]

    # ---- a few elements

    def _rank(self, first: str) -> None:
        """Counts, for each element, those that come before it: all smaller ones, and equal ones on its left."""
        f, item = self.f, self.item
        lanes = min(self.s.width * 32 // self.dtype.bits, 16)
        type, blocks = vector(lanes, item), -(-self.n // lanes)
        # Vectors are loaded again as they were stored: from several stores they would have to wait for the cache.
        network = Network(f, item, lanes)
        keys = []
        for block in range(blocks):
            count = min(lanes, self.n - block * lanes)
            key = self._key(self._elements(block * lanes, count), count)
            keys.append(network.filled(key, count))
            network.store(keys[-1], self.a, block * lanes)
        with f.for_(0, self.n) as loop:
            mine = f.load(item, f.gep(item, self.a, loop.index), 1)
            mine = splat(f, mine, lanes, item)
            smaller, equal = "0", "0"
            for k, others in enumerate(keys):
                found = []
                for how in ("slt", "eq"):
                    mask = f.op(f"icmp {how} {type} {others}, {mine}")
                    bits = f.op(f"zext i{lanes} {f.op(f'bitcast <{lanes} x i1> {mask} to i{lanes}')} to i64")
                    found.append(f.op(f"shl i64 {bits}, {k * lanes}"))
                smaller, equal = f.op(f"or i64 {smaller}, {found[0]}"), f.op(f"or i64 {equal}, {found[1]}")
            left = f.sub(f.op(f"shl i64 1, {loop.index}"), 1)
            before = f.op(f"or i64 {smaller}, {f.op(f'and i64 {equal}, {left}')}")
            rank = f.intrinsic("llvm.ctpop", "i64", ("i64", before))
            with f.if_(f.op(f"icmp slt i64 {rank}, {self.count}")):
                self._put(first, rank, loop.index)

    # ---- keys and places

    def _list(self, n: Extent) -> None:
        """Lists the first n elements."""
        self._each(n, self._lanes(64), lambda k, lanes: self._append(k, k, lanes))

    def _append(self, at: Any, k: Any, lanes: int = 1) -> None:
        self.list.put(at, self._key(self._element(k, lanes), lanes), k, lanes)

    def _select(self) -> None:
        """Lists the first `count` elements, in order."""
        f = self.f
        begin = f.min(self.kept, self.n)
        self._list(begin)
        with f.repeat([("i64", begin), ("i64", begin)]) as loop:
            at, kept = loop.carried
            more = f.op(f"icmp slt i64 {at}, {f.extent(self.n)}")
            many = f.op(f"icmp sgt i64 {kept}, {(self.count + self.kept) // 2}")
            sorts = f.op(f"select i1 {more}, i1 {many}, i1 true")
            with f.if_(sorts):
                self.list.sort(kept)
                self.list.keep(self.count)
            # The first `count` elements are in order, whether they were sorted now or earlier.
            last = self.list.key(self.count - 1)
            loop.next(*self._scan(at, f.op(f"select i1 {sorts}, i64 {self.count}, i64 {kept}"), last))
            loop.again = more

    def _scan(self, at: str, kept: str, last: str) -> tuple[str, str]:
        """Appends the elements from `at` on whose key is less than `last` to the `kept` ones of the list, for as many
        elements as there is room for: (where it stopped, how many are listed)."""
        f, lanes, item = self.f, self._lanes(self.dtype.bits), self.item
        end = f.min(self.n, f.add(at, f.sub(self.kept, kept)))
        whole = at
        if lanes > 1:
            type = vector(lanes, item)
            border = splat(f, last, lanes, item)
            whole = f.add(at, f.mul(f.div(f.sub(end, at), lanes), lanes))
            with f.for_(at, whole, lanes, carried=[("i64", kept)]) as loop:
                (kept,) = loop.carried
                keys = self._key(self._element(loop.index, lanes), lanes)
                less = f.op(f"icmp slt {type} {keys}, {border}")
                found = f.op(f"bitcast <{lanes} x i1> {less} to i{lanes}")
                found = _resized(f, "zext", found, f"i{lanes}", "i64", 1)
                n = f.intrinsic("llvm.ctpop", "i64", ("i64", found))
                with f.for_(0, n, carried=[("i64", found)]) as each:
                    (left,) = each.carried
                    lane = f.intrinsic("llvm.cttz", "i64", ("i64", left), ("i1", "true"))
                    self._append(f.add(kept, each.index), f.add(loop.index, lane))
                    each.next(f.op(f"and i64 {left}, {f.sub(left, 1)}"))
                loop.next(f.add(kept, n))
            (kept,) = loop.results
        # What does not fill a vector is looked at here if the line ends, and in the next pass otherwise.
        ends = f.op(f"icmp eq i64 {f.extent(end)}, {f.extent(self.n)}")
        stop = end if lanes == 1 else f.op(f"select i1 {ends}, i64 {f.extent(end)}, i64 {whole}")
        with f.for_(whole, stop, carried=[("i64", kept)]) as loop:
            key = self._key(self._element(loop.index), 1)
            self.list.put(loop.carried[0], key, loop.index)
            less = f.op(f"icmp slt {item} {key}, {last}")
            loop.next(f.add(loop.carried[0], f.op(f"zext i1 {less} to i64")))
        return stop, loop.results[0]

    def _write_list(self, first: str) -> None:
        """The first `count` listed elements as results."""
        f = self.f

        def write(k: str, lanes: int) -> None:
            if lanes == 1:
                self._put(first, k, self.list.places(k))
            else:
                f.store(vector(lanes, "i64"), self.list.places(k, lanes), f.gep("i64", self.order, f.add(first, k)), 8)

        self._each(self.count, 1 if 0 in self.read else self._lanes(64), write)

    def _put(self, first: str, k: str, index: str) -> None:
        """Writes element `index` of the line as the k-th result."""
        f, item = self.f, self.item
        at = f.add(first, f.mul(k, self.inner))
        if 0 in self.read:
            f.store(item, self._element(index), f.gep(item, self.values, at), self.dtype.bits // 8)
        if 1 in self.read:
            f.store("i64", index, f.gep("i64", self.order, at), 8)


def _network_size(n: int, lanes: int) -> tuple[int, int]:
    """(lanes, rows) of a network for n items, in vectors of up to `lanes` lanes."""
    rows = 2
    while rows < ROWS and rows * lanes < n:
        rows *= 2
    while rows * lanes // 2 >= n and lanes > 4:
        lanes //= 2
    return lanes, rows


def _any(f: Function, mask: str, lanes: int) -> str:
    return mask if lanes == 1 else f.op(f"icmp ne i{lanes} {f.op(f'bitcast <{lanes} x i1> {mask} to i{lanes}')}, 0")


def _resized(f: Function, how: str, value: str, item: str, to: str, lanes: int) -> str:
    return value if item == to else f.op(f"{how} {vector(lanes, item)} {value} to {vector(lanes, to)}")
