"""Memory: from an index expression to the loads and stores that reach it.

What matters is how the flat address of an element depends on the lane number. Not at all: a scalar load. In a fixed
pattern that spans a few vectors (1, -1 or 2 apart, repeated, …): loads of what the pattern covers, and shuffles.
Otherwise a gather. No element is touched that no active lane asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gluonjit.codegen.loops.index import PIECES, Affine, Atom, Lookup, Var, covering, flat
from gluonjit.codegen.loops.indices import Indices
from gluonjit.codegen.math.values import Val
from gluonjit.codegen.text.llvm import Function, Scope, memory_type, vector
from gluonjit.ir.dims import Extent, is_less
from gluonjit.ir.types import BF16, BOOL, F16, F32, I32, I64, DType, type_of

Index = tuple[Any, ...]


class Buffer:
    """An array in memory, aligned to its element: a pointer that is known at the function's entry. Row-major, unless it
    has `strides` (elements)."""

    __slots__ = ("dtype", "pointer", "scope", "shape", "streaming", "strides")

    def __init__(
        self, pointer: str, dtype: DType, shape: Sequence[Any], scope: Scope, strides: Sequence[Any] | None = None
    ) -> None:
        self.pointer = pointer
        self.dtype = dtype
        self.shape = tuple(shape)
        self.scope = scope
        self.strides = None if strides is None else tuple(strides)
        self.streaming = False
        """Whether whole vectors bypass the caches when written, if the first element is aligned to a vector."""

    def flat(self, index: Index) -> Affine:
        """The offset in elements of `index` from the first element."""
        return flat(index, self.shape, self.strides)

    @property
    def extent(self) -> Extent:
        """The number of elements that the array spans, gaps of its strides included."""
        return 1 + self.flat(tuple(n - 1 for n in self.shape)).const


class Access(Indices):
    """Loads and stores at index expressions."""

    def __init__(self, f: Function, width: int) -> None:
        super().__init__(f, width)
        self.square: tuple[Var, int, int] | None = None
        """(a loop variable, n, r): the element that is computed is row r of `width` rows, all of which are computed one
        after the other. The variable counts blocks of n rows, which are one square or several."""
        self.aligned = ""
        """Whether (i1) all results that may bypass the caches begin at multiples of a vector's size."""
        self._streamed: list[tuple[str, int]] = []
        """Stores of vectors past the caches that are still to be written, and the bytes of an element."""
        self._together: Scope | None = None
        """Where they will be."""
        self._flat: dict[Any, Affine] = {}
        """By index, shape and strides, `Buffer.flat`: a kernel's operands are much alike."""

    def flat(self, buffer: Buffer, index: Index) -> Affine:
        """`buffer.flat(index)`."""
        key = index, buffer.shape, buffer.strides
        known = self._flat.get(key)
        if known is None:
            known = self._flat[key] = buffer.flat(index)
        return known

    def array(self, value: np.ndarray) -> Callable[[Index], Val]:
        """The elements of a constant."""
        dtype = type_of(value).dtype
        if value.size and value.tobytes() == value.reshape(-1)[:1].tobytes() * value.size:
            only = value.reshape(-1)[0]
            constant = self.constant(int(only) if dtype.is_integer else float(only), dtype)
            return lambda index: constant
        buffer = Buffer(self.f.module.constant(value), dtype, value.shape, self.f.root)
        return lambda index: self.load(buffer, index)

    def _looked_up(self, atom: Lookup) -> Val:
        table = np.asarray(atom.table, np.int32 if max(atom.table) < 2**31 else np.int64)
        buffer = Buffer(self.f.module.constant(table), type_of(table).dtype, table.shape, self.f.root)
        return self.cast(self.load(buffer, (atom.expr,)), I64)

    # ---- loads

    def load(self, buffer: Buffer, index: Index) -> Val:
        """The element at `index` in the lanes of `mask`; arbitrary values in the others."""
        e = self.flat(buffer, index)
        fixed, uniform, varying = self._parts(e)
        if varying:
            apart = self._apart(varying)
            turned = None if fixed or apart is None else self._turned(buffer, uniform, apart)
            return self._gather(buffer, e) if turned is None else turned
        if not fixed:
            return self._load_scalar(buffer, uniform)
        count, pattern = self._pattern(fixed)
        low, high = min(pattern), max(pattern)
        if low == high:
            return self._load_scalar(buffer, uniform + low)
        if self.tail is not None or (self.mask is not None and self.mask.lanes):
            if pattern == list(range(low, low + count)):
                return self._load_masked(buffer, uniform + low, self._active(self.mask, count))
            return self._gather(buffer, e)
        if len(covering(pattern, self.width)) > PIECES:
            turned = self._turned(buffer, uniform, pattern)
            return self._gather(buffer, e) if turned is None else turned
        return self._load_pattern(buffer, uniform + low, [p - low for p in pattern])

    def _load_scalar(self, buffer: Buffer, e: Affine) -> Val:
        mask = self.mask
        if mask is not None and mask.lanes:
            # All lanes read the same element, so it may be read if any lane is active.
            mask = Val(self.any(mask), BOOL, False, mask.scope)
        pointer, scope = self._safe(buffer, *self._address(buffer, e), mask)
        loaded = self._instruction(f"load {self.in_memory(buffer.dtype)}, ptr {pointer}", buffer, scope)
        return self._register(loaded, buffer.dtype, False, scope)

    def _load_pattern(self, buffer: Buffer, base: Affine, pattern: list[int]) -> Val:
        """Lane k is element pattern[k] from `base` on; patterns start at 0 and are covered by a few vectors."""
        width = self.width
        element = self.in_memory(buffer.dtype)
        if pattern == list(range(width)):  # nearly all
            pointer, scope = self._safe(buffer, *self._address(buffer, base), self.mask)
            loaded = self._instruction(f"load {vector(width, element)}, ptr {pointer}", buffer, scope)
            return self._register(loaded, buffer.dtype, True, scope)
        span = max(pattern) + 1
        full = pattern + pattern[:1] * (width - len(pattern))
        if pattern == list(range(len(pattern))) and len(pattern) < width and self._masks_well(buffer.dtype):
            return self._load_masked(buffer, base, self._active(self.mask, len(pattern)))
        size = min(width, span)
        starts = covering(pattern, width)
        pieces = []
        for start in starts:
            pointer, scope = self._safe(buffer, *self._address(buffer, base + start), self.mask)
            text = f"load {vector(size, element)}, ptr {pointer}"
            pieces.append(self._instruction(text, buffer, scope))
        loaded = vector(size, element)
        sources = [next(k for k in reversed(range(len(starts))) if starts[k] <= p) for p in full]
        picks = [p - starts[k] + size * k if k < 2 else 0 for p, k in zip(full, sources)]
        result = self._shuffle(loaded, pieces[0], pieces[min(1, len(pieces) - 1)], picks, scope)
        for j in range(2, len(pieces)):
            # Lanes that are complete stay; those whose element is in piece j come from it.
            picks = [width + p - starts[j] if k == j else lane for lane, (p, k) in enumerate(zip(full, sources))]
            result = self._shuffle(loaded, result, pieces[j], picks, scope)
        return self._register(result, buffer.dtype, True, scope)

    def _apart(self, varying: list[tuple[Atom, Extent]]) -> list[Extent] | None:
        """Where the lanes lie if they are an open number of elements apart."""
        (lane, c), *others = varying
        return [c * k for k in range(lane.high + 1)] if not others and lane in self.lane_numbers else None

    def _turned(self, buffer: Buffer, base: Affine, pattern: Sequence[Extent]) -> Val | None:
        """Lanes that lie far apart, as one row of a square (see `square`) that is read by its columns and turned.

        The columns are `width` consecutive elements each, of which this asks for one; the others are asked for next.
        """
        if (
            self.square is None
            or self.mask is not None
            or self.tail is not None
            or base.coefficient(self.square[0]) != self.square[1]
        ):
            return None
        _, _, row = self.square
        _, scope = self._address(buffer, base)
        key = ("square", buffer.pointer, base - row, tuple(pattern))
        rows = scope.memo.get(key)
        if rows is None:
            element = self.in_memory(buffer.dtype)
            type = vector(self.width, element)
            columns = ["zeroinitializer"] * self.width
            for lane, p in enumerate(pattern):
                pointer, _ = self._address(buffer, base - row + p)
                columns[lane] = self._instruction(f"load {type}, ptr {pointer}", buffer, scope)
            rows = scope.memo[key] = self._transposed(columns, type, scope)
        return self._register(rows[row], buffer.dtype, True, scope)

    def _transposed(self, rows: list[str], type: str, scope: Scope) -> list[str]:
        """A square of vectors, transposed by exchanging blocks of ever larger size across its diagonal."""
        n = len(rows)
        d = 1
        while d < n:
            picks = (
                [k if not k & d else n + k - d for k in range(n)],
                [k + d if not k & d else n + k for k in range(n)],
            )
            for i in range(n):
                if not i & d:
                    a, b = rows[i], rows[i + d]
                    rows[i], rows[i + d] = (self._shuffle(type, a, b, p, scope) for p in picks)
            d *= 2
        return rows

    def _shuffle(self, type: str, a: str, b: str, picks: list[int], scope: Scope) -> str:
        """A shuffle of the elements of a and b; b's are numbered after a's."""
        mask = ", ".join(f"i32 {p}" for p in picks)
        return self.f.pure(f"shufflevector {type} {a}, {type} {b}, <{len(picks)} x i32> <{mask}>", scope)

    def _load_masked(self, buffer: Buffer, e: Affine, mask: Val) -> Val:
        element = self.in_memory(buffer.dtype)
        type = vector(self.width, element)
        pointer, scope = self._address(buffer, e)
        scope = max((scope, mask.scope), key=lambda s: s.depth)
        bools = vector(self.width, "i1")
        name = f"llvm.masked.load.v{self.width}{_SUFFIX[element]}.p0"
        self.f.module.declare(name, type, ["ptr", "i32", bools, type])
        text = (
            f"call {type} @{name}(ptr {pointer}, i32 {buffer.dtype.itemsize}, {bools} {self.splat(mask).ssa}, "
            f"{type} zeroinitializer)"
        )
        return self._register(self.f.pure(text, scope), buffer.dtype, True, scope)

    def _gather(self, buffer: Buffer, e: Affine) -> Val:
        if self.target.vector_bits < 512 and self.mask is None and self.tail is None:
            return self._element_by_element(buffer, e)
        element = self.in_memory(buffer.dtype)
        type, pointers = vector(self.width, element), vector(self.width, "ptr")
        addresses, count = self._addresses(buffer, e)
        mask = self._active(self.mask, count)
        scope = max((addresses.scope, mask.scope), key=lambda s: s.depth)
        bools = vector(self.width, "i1")
        name = f"llvm.masked.gather.v{self.width}{_SUFFIX[element]}.v{self.width}p0"
        self.f.module.declare(name, type, [pointers, "i32", bools, type])
        text = (
            f"call {type} @{name}({pointers} {addresses.ssa}, i32 {buffer.dtype.itemsize}, "
            f"{bools} {self.splat(mask).ssa}, {type} zeroinitializer)"
        )
        return self._register(self.f.pure(text, scope), buffer.dtype, True, scope)

    def _element_by_element(self, buffer: Buffer, e: Affine) -> Val:
        """A gather as loads of single elements. LLVM would make these as well where the machine has no gather or only a
        slow one, but of a vector of pointers, from which each has to be taken."""
        fixed, uniform, varying = self._parts(e)
        element, (base, scope) = self.in_memory(buffer.dtype), self._address(buffer, uniform)
        type, count = vector(self.width, element), self._active_lanes(fixed, varying)
        places = [f"i64 {p}" for p in self._pattern(fixed)[1][:count]] if fixed else ["i64 0"] * count
        if varying:
            offset = self._offset(buffer, fixed, varying)
            kind, ssa = self.type(offset.dtype, True), self.splat(offset).ssa
            scope = max((scope, offset.scope), key=lambda s: s.depth)
            numbers = [self.f.pure(f"extractelement {kind} {ssa}, i64 {k}", offset.scope) for k in range(count)]
            places = [f"{self.type(offset.dtype, False)} {n}" for n in numbers]
        lanes = "poison" if count == self.width else "zeroinitializer"
        for k, place in enumerate(places):
            pointer = self.f.pure(f"getelementptr {element}, ptr {base}, {place}", scope)
            one = self._instruction(f"load {element}, ptr {pointer}", buffer, scope)
            lanes = self.f.pure(f"insertelement {type} {lanes}, {element} {one}, i64 {k}", scope)
        return self._register(lanes, buffer.dtype, True, scope)

    def _addresses(self, buffer: Buffer, e: Affine) -> tuple[Val, int]:
        """(a vector of pointers, the number of active lanes)."""
        fixed, uniform, varying = self._parts(e)
        offset = self._offset(buffer, fixed, varying)
        base, scope = self._address(buffer, uniform)
        scope = max((scope, offset.scope), key=lambda s: s.depth)
        kinds = self.in_memory(buffer.dtype), self.type(offset.dtype, True)
        text = f"getelementptr {kinds[0]}, ptr {base}, {kinds[1]} {self.splat(offset).ssa}"
        pointers = self.f.pure(text, scope)
        return Val(pointers, I64, True, scope), self._active_lanes(fixed, varying)

    def _offset(self, buffer: Buffer, fixed: list[tuple[Atom, int]], varying: list[tuple[Atom, Extent]]) -> Val:
        """Where each lane's element is, of what differs among lanes."""
        # Offsets inside a small buffer fit an i32, whatever the range of the expression.
        kind = I32 if is_less(buffer.extent, 2**31) else I64
        return self._integer(Affine(0, (*fixed, *varying)), kind)

    def _active_lanes(self, fixed: list[tuple[Atom, int]], varying: list[tuple[Atom, Extent]]) -> int:
        """The number of lanes that ask for an element."""
        counts = [v.high + 1 for atom, _ in (*fixed, *varying) for v in atom.leaves if v in self.lane_numbers]
        return min(counts, default=self.width)

    def _active(self, mask: Val | None, count: int) -> Val:
        """`mask`, and only the first `count` lanes, and those of a `tail`."""
        active = self.lane_constant([True] * count, BOOL)
        if self.tail is not None:
            active = self.both(active, self.tail)
        return active if mask is None else self.both(mask, active)

    def fetch(self, buffer: Buffer, e: Affine, nearest: bool = True) -> None:
        """Prefetches the cache line of the first lane's element, which need not exist, into the first cache, or at
        least the second."""
        fixed, uniform, varying = self._parts(e)
        if not varying:
            pointer, _ = self._address(buffer, uniform + (min(self._pattern(fixed)[1]) if fixed else 0))
            args = (("ptr", pointer), ("i32", 0), ("i32", 3 if nearest else 2), ("i32", 1))
            self.f.intrinsic("llvm.prefetch", "void", *args, overload=("ptr",))

    # ---- stores

    def store(self, buffer: Buffer, index: Index, value: Val) -> None:
        """Writes the active lanes of `value` (a uniform one at one place, if the address is)."""
        e = self.flat(buffer, index)
        fixed, uniform, varying = self._parts(e)
        scope = self.f.scope
        memory = self.in_memory(buffer.dtype)
        if not fixed and not varying:
            pointer, _ = self._address(buffer, uniform)
            self._write(f"store {memory} {self._to_memory(value)}, ptr {pointer}", buffer, scope)
            return
        value = self.splat(value)
        data = self._to_memory(value)
        if fixed and not varying:
            count, pattern = self._pattern(fixed)
            low = min(pattern)
            if pattern == list(range(low, low + count)):
                self._store_contiguous(buffer, uniform + low, data, count, scope)
                return
        pointers, count = self._addresses(buffer, e)
        type, kind, bools = (vector(self.width, t) for t in (memory, "ptr", "i1"))
        name = f"llvm.masked.scatter.v{self.width}{_SUFFIX[memory]}.v{self.width}p0"
        self.f.module.declare(name, "void", [type, kind, "i32", bools])
        self._emit_at(
            f"call void @{name}({type} {data}, {kind} {pointers.ssa}, i32 {buffer.dtype.itemsize}, "
            f"{bools} {self.splat(self._active(None, count)).ssa})",
            scope,
        )

    def _store_contiguous(self, buffer: Buffer, e: Affine, data: str, count: int, scope: Scope) -> None:
        memory = self.in_memory(buffer.dtype)
        pointer, _ = self._address(buffer, e)
        type, bools = vector(self.width, memory), vector(self.width, "i1")
        whole = count == self.width and self.tail is None
        if whole and buffer.streaming and e.is_multiple_of(self.width):
            self._streamed.append((f"store {type} {data}, ptr {pointer}", buffer.dtype.itemsize))
        elif whole:
            self._write(f"store {type} {data}, ptr {pointer}", buffer, scope)
        elif count == 1 and self.tail is None:
            # Not a masked store of one lane, which LLVM makes one of the wider type when the value was truncated.
            one = self.f.pure(f"extractelement {type} {data}, i64 0", scope)
            self._write(f"store {memory} {one}, ptr {pointer}", buffer, scope)
        elif self.tail is not None or self._masks_well(buffer.dtype) and self.target.masks_stores:
            name = f"llvm.masked.store.v{self.width}{_SUFFIX[memory]}.p0"
            self.f.module.declare(name, "void", [type, "ptr", "i32", bools])
            mask = self.splat(self._active(None, count))
            self._emit_at(
                f"call void @{name}({type} {data}, ptr {pointer}, i32 {buffer.dtype.itemsize}, {bools} {mask.ssa})",
                scope,
            )
        else:
            part = self._shuffle(type, data, "poison", list(range(count)), scope)
            self._write(f"store {vector(count, memory)} {part}, ptr {pointer}", buffer, scope)

    @contextmanager
    def streaming_together(self) -> Iterator[None]:
        """What is stored here past the caches is stored at the end, after one branch: only what begins at a multiple of
        a vector's size can be, and where results begin is the caller's choice. Such loops wait for memory, so branches
        cost them nothing, and a second loop would take LLVM as long as the first one."""
        f, outer = self.f, self._together
        self._together = f.scope
        yield
        self._together = outer
        if not self._streamed or outer is f.scope:
            return
        stores, self._streamed = self._streamed, []
        past = f", !nontemporal {f.module.nontemporal}"

        def write(vectors: int, how: str) -> None:
            for store, itemsize in stores:
                f.emit(f"{store}, align {itemsize * vectors}{how}")

        f.fork(self.aligned, lambda: write(self.width, past), lambda: write(1, ""))

    # ---- helpers

    def _masks_well(self, dtype: DType) -> bool:
        """Whether an access with a constant mask is better than one of a shorter vector."""
        return self.target.has_masked_access and (dtype.itemsize >= 4 or self.target.vector_bits == 512)

    def in_memory(self, dtype: DType) -> str:
        """The type that loads and stores use: bits where the machine cannot convert."""
        if dtype is BF16 or (dtype is F16 and not self.target.has_f16):
            return "i16"
        return memory_type(dtype)

    def _address(self, buffer: Buffer, e: Affine) -> tuple[str, Scope]:
        """A pointer to element `e` (uniform), and the scope it is known in."""
        offset = self.uniform(Affine(0, e.terms))
        element = self.in_memory(buffer.dtype)
        scope = max((offset.scope, buffer.scope), key=lambda s: s.depth)
        pointer = buffer.pointer
        if e.terms:
            pointer = self.f.pure(f"getelementptr {element}, ptr {pointer}, i64 {offset.ssa}", scope)
        if e.const != 0:
            pointer = self.f.pure(f"getelementptr {element}, ptr {pointer}, i64 {self.f.extent(e.const)}", scope)
        return pointer, scope

    def _safe(self, buffer: Buffer, pointer: str, scope: Scope, mask: Val | None) -> tuple[str, Scope]:
        """`pointer` where the uniform mask holds, else one to zeros, which is always readable."""
        if mask is None:
            return pointer, scope
        scope = max((scope, mask.scope), key=lambda s: s.depth)
        zeros = self.f.module.constant(np.zeros(self.width * 8, np.uint8))
        return self.f.pure(f"select i1 {mask.ssa}, ptr {pointer}, ptr {zeros}", scope), scope

    def _instruction(self, text: str, buffer: Buffer, scope: Scope) -> str:
        return self.f.pure(f"{text}, align {buffer.dtype.itemsize}", scope)

    def _write(self, text: str, buffer: Buffer, scope: Scope) -> None:
        self._emit_at(f"{text}, align {buffer.dtype.itemsize}", scope)

    def _emit_at(self, text: str, scope: Scope) -> None:
        scope.lines.append("  " + text)

    def _register(self, loaded: str, dtype: DType, lanes: bool, scope: Scope) -> Val:
        """A loaded value in the form that registers hold."""

        def val(ssa: str, kind: DType) -> Val:
            return Val(ssa, kind, lanes, scope)

        if dtype is BOOL:
            kind = vector(self.width, "i8") if lanes else "i8"
            zero = "zeroinitializer" if lanes else "0"
            return val(self.f.pure(f"icmp ne {kind} {loaded}, {zero}", scope), BOOL)
        memory = self.in_memory(dtype)
        if memory == "i16" and dtype.is_float:
            n, e = (f"<{self.width} x ", ">") if lanes else ("", "")
            bits = self.f.pure(f"zext {n}i16{e} {loaded} to {n}i32{e}", scope)
            return self.from_bits(val(bits, I32), dtype)
        if memory == "half":
            return self.emit("fpext {n}half{e} {0} to {r}", F16, val(loaded, F16))
        return val(loaded, dtype)

    def _to_memory(self, value: Val) -> str:
        """A register in the form that memory holds."""
        n, e = (f"<{self.width} x ", ">") if value.lanes else ("", "")
        if value.dtype is BOOL:
            return self.f.pure(f"zext {n}i1{e} {value.ssa} to {n}i8{e}", value.scope)
        memory = self.in_memory(value.dtype)
        if memory == "i16" and value.dtype.is_float:
            # The value is rounded already: for bf16 the bits are simply the upper half.
            if value.dtype is BF16:
                bits = self.emit("lshr {t} {0}, {1}", I32, self.bitcast(value, I32), self.constant(16, I32))
            else:
                bits = self.f16_bits(self.retyped(value, F32))
            return self.emit("trunc {t} {0} to {n}i16{e}", I32, bits).ssa
        if memory == "half":
            return self.emit("fptrunc {t} {0} to {n}half{e}", F16, value).ssa
        return value.ssa


_SUFFIX = {"half": "f16", "float": "f32", "double": "f64", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64"}
