"""Memory: from an index expression to the loads and stores that reach it.

What matters is how the flat address of an element depends on the lane number. Not at all: a scalar load. In a fixed
pattern that spans a few vectors (1, -1 or 2 apart, repeated, …): loads of what the pattern covers, and shuffles.
Otherwise a gather. No element is touched that no active lane asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gluonjit.codegen.arithmetic import Arithmetic
from gluonjit.codegen.index import PIECES, Affine, Atom, Div, Mod, Named, Var, affine, covering, flat
from gluonjit.codegen.llvm import Function, Scope, memory_type, vector
from gluonjit.codegen.values import Val
from gluonjit.ir.types import BF16, BOOL, F16, F32, I32, I64, DType, type_of
from gluonjit.ir.types import dtype as as_dtype

Index = tuple[Any, ...]


class Buffer:
    """An array in memory, row-major and aligned to its element: a pointer that is known at the function's entry."""

    __slots__ = ("dtype", "pointer", "scope", "shape")

    def __init__(self, pointer: str, dtype: DType, shape: Sequence[int], scope: Scope) -> None:
        self.pointer = pointer
        self.dtype = dtype
        self.shape = tuple(shape)
        self.scope = scope


class Access(Arithmetic):
    """Values that come from memory and from loop variables.

    `bind` tells what a variable is; the variables in `lane_numbers` are the number of the lane itself (in the last,
    partial vector of a loop their range is smaller than the width, and so the lanes beyond are inactive).
    """

    def __init__(self, f: Function, width: int) -> None:
        super().__init__(f, width)
        self.mask: Val | None = None
        """Where memory may be touched (see `guarded`); None: everywhere."""
        self.square: tuple[Var, int] | None = None
        """(a loop variable, r): the element that is computed is row r of `width` rows, all of which are computed one
        after the other, and which follow each other with the variable, `width` for each of its steps."""
        self._variables: dict[Var, Val] = {}
        self.lane_numbers: set[Var] = set()
        self._opaque: dict[str, Var] = {}

    # ---- variables

    def bind(self, variable: Var, value: Val) -> None:
        self._variables[variable] = value

    def lane_number(self, count: int) -> Var:
        """A variable that is k in lane k; lanes from `count` on are inactive.

        What depends on it stays in the scope that is open now.
        """
        var = Var("lane", 0, count - 1)
        self.lane_numbers.add(var)
        numbers = self.lane_constant(range(count), I64)
        self._variables[var] = Val(numbers.ssa, I64, self.width > 1, self.f.scope)
        return var

    def scope_of(self, variables: Any) -> Scope:
        """The innermost scope that one of the variables needs."""
        scope = self.f.root
        for v in variables:
            if v in self._variables and self._variables[v].scope.depth > scope.depth:
                scope = self._variables[v].scope
        return scope

    def varies(self, variables: Any) -> bool:
        """Whether one of the variables differs between lanes."""
        return any(v in self._variables and self._variables[v].lanes for v in variables)

    # ---- the handler's methods on indices

    def to_index(self, value: Val) -> Affine:
        """An integer value as an index."""
        if value.const is not None:
            return Affine(value.const)
        wide = self.cast(value, I64)
        var = self._opaque.get(wide.ssa)
        if var is None:
            var = self._opaque[wide.ssa] = Var("at", -(2**63), 2**63 - 1)
            self._variables[var] = wide
        return affine(var)

    def named(self, e: Affine) -> Affine:
        """A variable that holds the value of an expression."""
        memo = self.scope_of(e.leaves).memo
        known = memo.get(e)
        if known is None:
            var = Named(e)
            self._variables[var] = self._integer(e, I64)
            known = memo[e] = affine(var)
        return known

    def index_value(self, index: Any, dtype: Any) -> Val:
        """An index as a value of `dtype`."""
        e, to = affine(index), as_dtype(dtype)
        if not e.terms:
            return self.cast(self.constant(e.const, I64), to) if to.is_integer else self.constant(e.const, to)
        small = -(2**31) <= e.low and e.high < 2**31
        return self.cast(self._integer(e, I32 if small else I64), to)

    def in_range(self, index: Any, low: int, high: int) -> Val:
        """low <= index < high."""
        e = affine(index) - low
        if e.low >= 0 and e.high < high - low:
            return self.constant(True, BOOL)
        if e.high < 0 or e.low >= high - low:
            return self.constant(False, BOOL)
        kind = I32 if -(2**31) <= e.low and e.high < 2**31 else I64
        return self.emit("icmp ult {t} {0}, {1}", BOOL, self._integer(e, kind), self.constant(high - low, kind))

    def guarded(self, condition: Val, thunk: Callable[[], Val], otherwise: Val) -> Val:
        if condition.const is not None:
            return thunk() if condition.const else otherwise
        with self.masked(condition):
            value = thunk()
        return self.select(condition, value, otherwise)

    @contextmanager
    def masked(self, condition: Val | None) -> Iterator[None]:
        """Memory is touched only where `condition` holds, too."""
        outer = self.mask
        if condition is not None and outer is not None:
            condition = self._both(outer, condition)
        self.mask = condition if condition is not None else outer
        try:
            yield
        finally:
            self.mask = outer

    def array(self, value: np.ndarray) -> Callable[[Index], Val]:
        """The elements of a constant."""
        dtype = type_of(value).dtype
        if value.size and value.tobytes() == value.reshape(-1)[:1].tobytes() * value.size:
            only = value.reshape(-1)[0]
            constant = self.constant(int(only) if dtype.is_integer else float(only), dtype)
            return lambda index: constant
        buffer = Buffer(self.f.module.constant(value), dtype, value.shape, self.f.root)
        return lambda index: self.load(buffer, index)

    # ---- integers from expressions

    def _integer(self, e: Affine, dtype: DType) -> Val:
        """The value of an expression, in `dtype` (i32 only if it fits)."""
        fixed, uniform, varying = self._parts(e)
        total = self._between_integers(self._uniform(uniform), dtype)
        if fixed:
            count, values = self._pattern(fixed)
            lanes = self.lane_constant(values + [0] * (self.width - count), dtype)
            total = self.emit("add {t} {0}, {1}", dtype, total, lanes)
        for atom, c in varying:
            value = self._between_integers(self._varying(atom), dtype)
            total = self.emit("add {t} {0}, {1}", dtype, total, self._times(value, c))
        return total

    def _parts(self, e: Affine) -> tuple[list[tuple[Atom, int]], Affine, list[tuple[Atom, int]]]:
        """The terms that depend on the lane number alone, the uniform rest, and the terms that vary otherwise."""
        fixed, uniform, varying = [], [], []
        for atom, c in e.terms:
            if not self.varies(atom.leaves):
                uniform.append((atom, c))
            elif atom.leaves <= self.lane_numbers:
                fixed.append((atom, c))
            else:
                varying.append((atom, c))
        return fixed, Affine(e.const, tuple(uniform)), varying

    def _pattern(self, fixed: list[tuple[Atom, int]]) -> tuple[int, list[int]]:
        """(number of active lanes, value in each) of terms that depend on the lane number."""
        count = min(v.high + 1 for atom, _ in fixed for v in atom.leaves)
        e = Affine(0, tuple(fixed))
        return count, [int(e.evaluate(lambda _: k)) for k in range(count)]  # noqa: B023 (called at once)

    def _uniform(self, e: Affine) -> Val:
        """A uniform expression as an i64: outer loops' terms first, so that their sum leaves the inner loops."""
        total: Val | None = None
        values = [(self._atom(atom), c) for atom, c in e.terms]
        values.sort(key=lambda term: term[0].scope.depth)
        for value, c in values:
            term = self._times(value, c)
            total = term if total is None else self.emit("add nsw {t} {0}, {1}", I64, total, term)
        const = self.constant(e.const, I64)
        if total is None:
            return const
        return self.emit("add nsw {t} {0}, {1}", I64, total, const) if e.const else total

    def _times(self, value: Val, c: int) -> Val:
        return value if c == 1 else self.emit("mul {t} {0}, {1}", value.dtype, value, self.constant(c, value.dtype))

    def _atom(self, atom: Atom) -> Val:
        """A uniform atom, as an i64."""
        if isinstance(atom, Var):
            return self._variables[atom]
        assert isinstance(atom, Div | Mod)
        return self._quotient(atom, self._uniform(atom.expr), atom.expr)

    def _varying(self, atom: Atom) -> Val:
        if isinstance(atom, Var):
            return self._variables[atom]
        assert isinstance(atom, Div | Mod)
        small = -(2**31) <= atom.expr.low and atom.expr.high < 2**31
        return self._quotient(atom, self._integer(atom.expr, I32 if small else I64), atom.expr)

    def _quotient(self, atom: Div | Mod, value: Val, e: Affine) -> Val:
        """Quotient or remainder, rounded down; what may be negative is first moved up by a multiple of the divisor."""
        dtype, n = value.dtype, self.constant(atom.n, value.dtype)
        shift = -(e.low // atom.n) if e.low < 0 else 0
        if shift and e.high + shift * atom.n >= 2 ** (dtype.bits - 1):
            return self._rounded_down(atom, value, n)
        if shift:
            value = self.emit("add {t} {0}, {1}", dtype, value, self.constant(shift * atom.n, dtype))
        if isinstance(atom, Mod):
            return self.emit("urem {t} {0}, {1}", dtype, value, n)
        value = self.emit("udiv {t} {0}, {1}", dtype, value, n)
        return self.emit("sub {t} {0}, {1}", dtype, value, self.constant(shift, dtype)) if shift else value

    def _rounded_down(self, atom: Div | Mod, value: Val, n: Val) -> Val:
        """The same for values of any size."""
        r = self.mod(value, n)
        if isinstance(atom, Mod):
            return r
        return self.emit("sdiv {t} {0}, {1}", value.dtype, self.sub(value, r), n)

    # ---- loads

    def load(self, buffer: Buffer, index: Index) -> Val:
        """The element at `index`, where `mask` allows it; anything elsewhere."""
        e = flat(index, buffer.shape)
        fixed, uniform, varying = self._parts(e)
        if varying:
            return self._gather(buffer, e)
        if not fixed:
            return self._load_scalar(buffer, uniform)
        count, pattern = self._pattern(fixed)
        low, high = min(pattern), max(pattern)
        if low == high:
            return self._load_scalar(buffer, uniform + low)
        if self.mask is not None and self.mask.lanes:
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
            # Whatever lane asks for it: the element exists if any does.
            mask = Val(self.any(mask), BOOL, False, mask.scope)
        pointer, scope = self._safe(buffer, *self._address(buffer, e), mask)
        loaded = self._instruction(f"load {self._memory(buffer.dtype)}, ptr {pointer}", buffer, scope)
        return self._register(loaded, buffer.dtype, False, scope)

    def _load_pattern(self, buffer: Buffer, base: Affine, pattern: list[int]) -> Val:
        """Lane k is element pattern[k] from `base` on; patterns start at 0 and are covered by a few vectors."""
        width, span = self.width, max(pattern) + 1
        element = self._memory(buffer.dtype)
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
        if len(pieces) == 1 and size == width and full == list(range(width)):
            return self._register(pieces[0], buffer.dtype, True, scope)
        sources = [next(k for k in reversed(range(len(starts))) if starts[k] <= p) for p in full]
        picks = [p - starts[k] + size * k if k < 2 else 0 for p, k in zip(full, sources)]
        result = self._shuffle(loaded, pieces[0], pieces[min(1, len(pieces) - 1)], picks, scope)
        for j in range(2, len(pieces)):
            # Lanes done so far stay, those whose element is in piece j come from it.
            picks = [width + p - starts[j] if k == j else lane for lane, (p, k) in enumerate(zip(full, sources))]
            result = self._shuffle(loaded, result, pieces[j], picks, scope)
        return self._register(result, buffer.dtype, True, scope)

    def _turned(self, buffer: Buffer, base: Affine, pattern: list[int]) -> Val | None:
        """Lanes that lie far apart, as one row of a square (see `square`) that is read by its columns and turned.

        The columns are `width` consecutive elements each, of which this asks for one; the others are asked for next.
        """
        if self.square is None or self.mask is not None or base.coefficient(self.square[0]) != self.width:
            return None
        var, row = self.square
        _, scope = self._address(buffer, base)
        key = ("square", buffer.pointer, base - row, tuple(pattern))
        rows = scope.memo.get(key)
        if rows is None:
            element = self._memory(buffer.dtype)
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
        """Elements of a (from 0) and b (after a's) in a new order."""
        mask = ", ".join(f"i32 {p}" for p in picks)
        return self.f.pure(f"shufflevector {type} {a}, {type} {b}, <{len(picks)} x i32> <{mask}>", scope)

    def _load_masked(self, buffer: Buffer, e: Affine, mask: Val) -> Val:
        element = self._memory(buffer.dtype)
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
        element = self._memory(buffer.dtype)
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

    def _addresses(self, buffer: Buffer, e: Affine) -> tuple[Val, int]:
        """(a vector of pointers, the number of active lanes)."""
        fixed, uniform, varying = self._parts(e)
        counts = [v.high + 1 for atom, _ in (*fixed, *varying) for v in atom.leaves if v in self.lane_numbers]
        # Offsets inside a small buffer fit an i32, whatever the range of the expression.
        kind = I32 if math.prod(buffer.shape) < 2**31 else I64
        offset = self._integer(Affine(0, (*fixed, *varying)), kind)
        base, scope = self._address(buffer, uniform)
        scope = max((scope, offset.scope), key=lambda s: s.depth)
        text = (
            f"getelementptr {self._memory(buffer.dtype)}, ptr {base}, {self.type(kind, True)} {self.splat(offset).ssa}"
        )
        pointers = self.f.pure(text, scope)
        return Val(pointers, I64, True, scope), min(counts, default=self.width)

    def _active(self, mask: Val | None, count: int) -> Val:
        """`mask`, and only the first `count` lanes."""
        active = self.lane_constant([True] * count, BOOL)
        return active if mask is None else self._both(mask, active)

    # ---- stores

    def store(self, buffer: Buffer, index: Index, value: Val) -> None:
        """Writes the active lanes of `value` (a uniform one at one place, if the address is)."""
        e = flat(index, buffer.shape)
        fixed, uniform, varying = self._parts(e)
        scope = self.f.scope
        memory = self._memory(buffer.dtype)
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
        memory = self._memory(buffer.dtype)
        pointer, _ = self._address(buffer, e)
        type, bools = vector(self.width, memory), vector(self.width, "i1")
        if count == self.width:
            self._write(f"store {type} {data}, ptr {pointer}", buffer, scope)
        elif count == 1:
            # Not a masked store of one lane, which LLVM makes one of the wider type when the value was truncated.
            one = self.f.pure(f"extractelement {type} {data}, i64 0", scope)
            self._write(f"store {memory} {one}, ptr {pointer}", buffer, scope)
        elif self._masks_well(buffer.dtype):
            name = f"llvm.masked.store.v{self.width}{_SUFFIX[memory]}.p0"
            self.f.module.declare(name, "void", [type, "ptr", "i32", bools])
            mask = self.splat(self.lane_constant([True] * count, BOOL))
            self._emit_at(
                f"call void @{name}({type} {data}, ptr {pointer}, i32 {buffer.dtype.itemsize}, {bools} {mask.ssa})",
                scope,
            )
        else:
            part = self._shuffle(type, data, "poison", list(range(count)), scope)
            self._write(f"store {vector(count, memory)} {part}, ptr {pointer}", buffer, scope)

    # ---- helpers

    def _masks_well(self, dtype: DType) -> bool:
        """Whether a masked access of a constant mask is better than one of a shorter vector."""
        return self.target.has_masked_access and (dtype.itemsize >= 4 or self.target.vector_bits == 512)

    def _memory(self, dtype: DType) -> str:
        """The type that loads and stores use: bits where the machine cannot convert."""
        if dtype is BF16 or (dtype is F16 and not self.target.has_f16):
            return "i16"
        return memory_type(dtype)

    def _address(self, buffer: Buffer, e: Affine) -> tuple[str, Scope]:
        """A pointer to element `e` (uniform), and the scope it is known in."""
        offset = self._uniform(Affine(0, e.terms))
        element = self._memory(buffer.dtype)
        scope = max((offset.scope, buffer.scope), key=lambda s: s.depth)
        pointer = buffer.pointer
        if e.terms:
            pointer = self.f.pure(f"getelementptr {element}, ptr {pointer}, i64 {offset.ssa}", scope)
        if e.const:
            pointer = self.f.pure(f"getelementptr {element}, ptr {pointer}, i64 {e.const}", scope)
        return pointer, scope

    def _safe(self, buffer: Buffer, pointer: str, scope: Scope, mask: Val | None) -> tuple[str, Scope]:
        """`pointer` where the uniform mask holds, else one to zeros that anybody may read."""
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
        """What was loaded, as it is kept in registers."""

        def val(ssa: str, kind: DType) -> Val:
            return Val(ssa, kind, lanes, scope)

        if dtype is BOOL:
            kind = vector(self.width, "i8") if lanes else "i8"
            zero = "zeroinitializer" if lanes else "0"
            return val(self.f.pure(f"icmp ne {kind} {loaded}, {zero}", scope), BOOL)
        memory = self._memory(dtype)
        if memory == "i16":
            n, e = (f"<{self.width} x ", ">") if lanes else ("", "")
            bits = self.f.pure(f"zext {n}i16{e} {loaded} to {n}i32{e}", scope)
            return self.from_bits(val(bits, I32), dtype)
        if memory == "half":
            return self.emit("fpext {n}half{e} {0} to {r}", F16, val(loaded, F16))
        return val(loaded, dtype)

    def _to_memory(self, value: Val) -> str:
        """The register as it is stored."""
        n, e = (f"<{self.width} x ", ">") if value.lanes else ("", "")
        if value.dtype is BOOL:
            return self.f.pure(f"zext {n}i1{e} {value.ssa} to {n}i8{e}", value.scope)
        memory = self._memory(value.dtype)
        if memory == "i16":
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
