"""Scalars and vectors of the code that is being written, and the instructions on them.

A `Val` is either *uniform*, one scalar, or has *lanes*, a vector of `width` elements. Instructions take any mix: when
one operand has lanes the uniform ones are splat. Every instruction is placed in the innermost scope that one of its
operands needs, so loop-invariant code ends up outside the loop, and the same instruction in the same scope is emitted
once. In registers f16 and bf16 are f32 values, rounded to their type, and bool is i1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gluonjit.codegen.text.llvm import Function, Scope, float_literal, vector
from gluonjit.ir.dims import Dim
from gluonjit.ir.types import BF16, BOOL, F16, F32, F64, I32, I64, DType

_REGISTER = {"f16": "float", "bf16": "float", "f32": "float", "f64": "double", "u8": "i8", "bool": "i1"}


def register_type(dtype: DType) -> str:
    """The LLVM type of one element in a register."""
    return _REGISTER.get(dtype.name, dtype.name)


class Val:
    """`ssa` is an LLVM value; `const` is the Python number when it is a uniform constant; `factors` are the values of
    which it is the product, if it is one in f32 or f64."""

    __slots__ = ("const", "dtype", "factors", "lanes", "scope", "ssa")

    def __init__(self, ssa: str, dtype: DType, lanes: bool, scope: Scope, const: Any = None) -> None:
        self.ssa = ssa
        self.dtype = dtype
        self.lanes = lanes
        self.scope = scope
        self.const = const
        self.factors: tuple[Val, Val] | None = None

    def __repr__(self) -> str:
        return f"{'lanes of ' if self.lanes else ''}{self.dtype} {self.ssa}"


class Values:
    """Emits instructions on `Val`s into `f`. `width` is the number of lanes."""

    def __init__(self, f: Function, width: int) -> None:
        self.f = f
        self.width = width
        self.target = f.target
        self._constants: dict[tuple[str, Any], Val] = {}
        self._types: dict[tuple[DType, bool], str] = {}
        self._patterns: dict[tuple[str, str, str, bool], str] = {}
        self._lane_constants: dict[tuple[DType, tuple[int, ...]], Val] = {}

    def type(self, dtype: DType, lanes: bool) -> str:
        """The LLVM type of a value."""
        known = self._types.get((dtype, lanes))
        if known is None:
            scalar = register_type(dtype)
            known = self._types[dtype, lanes] = vector(self.width, scalar) if lanes else scalar
        return known

    def emit(self, pattern: str, dtype: DType, *args: Val) -> Val:
        """An instruction without side effects. In `pattern`, {0}, {1} … are the operands, {t} the type of the first,
        {r} the type of the result, {n} the prefix `<L x ` or nothing and {e} its end, for types written out."""
        lanes = False
        scope = self.f.root
        for a in args:
            if a.lanes:
                lanes = True
            if a.scope.depth > scope.depth:
                scope = a.scope
        names = [self.splat(a).ssa if lanes and not a.lanes else a.ssa for a in args]
        first = self.type(args[0].dtype, lanes)
        result = first if dtype is args[0].dtype else self.type(dtype, lanes)
        key = pattern, first, result, lanes
        typed = self._patterns.get(key)
        if typed is None:
            n, e = (f"<{self.width} x ", ">") if lanes else ("", "")
            typed = self._patterns[key] = pattern.format(*_PLACES[: len(args)], t=first, r=result, n=n, e=e)
        return Val(self.f.pure(typed.format(*names), scope), dtype, lanes, scope)

    def intrinsic(self, name: str, dtype: DType, *args: Val, flags: str = "", extra: str = "") -> Val:
        """A call of an intrinsic overloaded on the type of its first operand; `extra`: more arguments, as text."""
        lanes = any(a.lanes for a in args)
        types = [self.type(a.dtype, lanes) for a in args]
        suffix = f"v{self.width}" if lanes else ""
        full = f"{name}.{suffix}{_SUFFIX[register_type(args[0].dtype)]}"
        more = [part.split()[0] for part in extra.split(", ")] if extra else []
        self.f.module.declare(full, self.type(dtype, lanes), [*types, *more])
        operands = ", ".join([f"{t} {{{k}}}" for k, t in enumerate(types)] + ([extra] if extra else []))
        return self.emit(f"call {flags + ' ' if flags else ''}{{r}} @{full}({operands})", dtype, *args)

    def constant(self, value: Any, dtype: DType) -> Val:
        """A Python number as a uniform value, rounded (integers: wrapped) to `dtype`; an open extent likewise."""
        key = (dtype.name, value if type(value) is int else repr(value))  # -0.0 == 0.0, NaN != NaN
        known = self._constants.get(key)
        if known is None:
            if isinstance(value, Dim):
                known = self._constants[key] = self._open_extent(value, dtype)
                return known
            if dtype is BOOL:
                const: Any = bool(value)
                text = "true" if const else "false"
            elif dtype.is_integer:
                const = wrapped(int(value), dtype)
                text = str(const)
            else:
                with np.errstate(over="ignore"):
                    const = float(np.asarray(value, np.float64).astype(dtype.numpy))
                text = float_literal(const, register_type(dtype))
            known = self._constants[key] = Val(text, dtype, False, self.f.root, const)
        return known

    def _open_extent(self, n: Dim, dtype: DType) -> Val:
        """An open extent as a uniform value."""
        size = Val(self.f.extent(n), I64, False, self.f.root)
        if dtype.is_integer:
            return size if dtype is I64 else self.emit("trunc {t} {0} to {r}", dtype, size)
        wide = F64 if dtype is F64 else F32
        value = self.emit("sitofp {t} {0} to {r}", wide, size)
        return value if dtype is F64 else self.rounded(value, dtype)

    def lane_constant(self, values: Any, dtype: DType) -> Val:
        """A vector of Python numbers; lists shorter than the vector are filled with zeros."""
        if not dtype.is_integer:  # -0.0 == 0.0, NaN != NaN
            return self._new_lane_constant(values, dtype)
        key = dtype, tuple(values)
        known = self._lane_constants.get(key)
        if known is None:
            known = self._lane_constants[key] = self._new_lane_constant(values, dtype)
        return known

    def _new_lane_constant(self, values: Any, dtype: DType) -> Val:
        scalar = register_type(dtype)
        literals = [self.constant(v, dtype).ssa for v in values]
        literals += [self.constant(0, dtype).ssa] * (self.width - len(literals))
        if len(set(literals)) == 1:
            return Val(literals[0], dtype, False, self.f.root, self.constant(values[0], dtype).const)
        return Val("<" + ", ".join(f"{scalar} {v}" for v in literals) + ">", dtype, True, self.f.root)

    def splat(self, a: Val) -> Val:
        """The same value in all lanes."""
        if a.lanes:
            return a
        scalar = register_type(a.dtype)
        if a.const is not None:
            return Val(f"splat ({scalar} {a.ssa})", a.dtype, True, a.scope)
        type = vector(self.width, scalar)
        one = self.f.pure(f"insertelement {type} poison, {scalar} {a.ssa}, i64 0", a.scope)
        all = self.f.pure(
            f"shufflevector {type} {one}, {type} poison, {vector(self.width, 'i32')} zeroinitializer", a.scope
        )
        return Val(all, a.dtype, True, a.scope)

    def retyped(self, a: Val, dtype: DType) -> Val:
        """The same register as another element type of the same register type (f16, bf16 and f32)."""
        return a if a.dtype is dtype else Val(a.ssa, dtype, a.lanes, a.scope, a.const)

    def bitcast(self, a: Val, dtype: DType) -> Val:
        """The bits of `a` as `dtype`, of the same width in registers."""
        return self.emit("bitcast {t} {0} to {r}", dtype, a)

    def any(self, a: Val) -> str:
        """Whether a bool holds in any lane, as an i1."""
        if not a.lanes:
            return a.ssa
        bits = self.f.pure(f"bitcast {self.type(BOOL, True)} {a.ssa} to i{self.width}", a.scope)
        return self.f.pure(f"icmp ne i{self.width} {bits}, 0", a.scope)

    # ---- rounding to the narrow float types, and back from their bits

    def rounded(self, a: Val, dtype: DType) -> Val:
        """An f32 value rounded to what `dtype` (f16, bf16 or f32) can hold, to nearest even; still in an f32."""
        if dtype is F32:
            return a
        if a.const is not None:
            return self.constant(a.const, dtype)
        if dtype is F16 and self.target.has_f16:
            narrow = self.emit("fptrunc {t} {0} to {n}half{e}", F16, a)
            return self.emit("fpext {n}half{e} {0} to {r}", F16, narrow)
        bits = self.bf16_bits(a) if dtype is BF16 else self.f16_bits(a)
        return self.from_bits(bits, dtype)

    def bf16_bits(self, a: Val) -> Val:
        """The bits of an f32 rounded to bf16, in the low half of an i32."""
        u = self.bitcast(a, I32)
        odd = self.emit("and {t} {0}, {1}", I32, self.emit("lshr {t} {0}, {1}", I32, u, self._i32(16)), self._i32(1))
        up = self.emit("add {t} {0}, {1}", I32, self.emit("add {t} {0}, {1}", I32, u, odd), self._i32(0x7FFF))
        # Rounding up a NaN could carry into its exponent, so a NaN gets its quiet bit set instead.
        quiet = self.emit("or {t} {0}, {1}", I32, u, self._i32(0x400000))
        nan = self.emit("fcmp uno {t} {0}, {0}", BOOL, a)
        return self.emit("lshr {t} {0}, {1}", I32, self._choose(nan, quiet, up), self._i32(16))

    def f16_bits(self, a: Val) -> Val:
        """The bits of an f32 rounded to f16, in the low half of an i32, for machines without such an instruction.

        Normal results: add half a unit (less one if even) below bit 13 and rebias the exponent by -112. Subnormal ones:
        adding 0.5 to |a| moves the result's bits to the bottom of the mantissa, rounded by the addition itself.
        """
        u = self.bitcast(a, I32)
        i32 = self._i32

        def op(name: str, x: Val, y: Val) -> Val:
            return self.emit(name + " {t} {0}, {1}", I32, x, y)

        sign = op("and", op("lshr", u, i32(16)), i32(0x8000))
        magnitude = op("and", u, i32(0x7FFFFFFF))
        odd = op("and", op("lshr", magnitude, i32(13)), i32(1))
        normal = op("lshr", op("add", op("add", magnitude, odd), i32(0xFFF - (112 << 23))), i32(13))
        half = self.constant(0.5, F32)
        sum = self.emit("fadd {t} {0}, {1}", F32, self.bitcast(magnitude, F32), half)
        small = op("sub", self.bitcast(sum, I32), i32(0x3F000000))
        result = self._choose(self.emit("icmp ult {t} {0}, {1}", BOOL, magnitude, i32(113 << 23)), small, normal)
        infinite = self.emit("icmp uge {t} {0}, {1}", BOOL, magnitude, i32(0x477FF000))  # 65520 and above
        result = self._choose(infinite, i32(0x7C00), result)
        nan = self.emit("icmp ugt {t} {0}, {1}", BOOL, magnitude, i32(0x7F800000))
        return op("or", self._choose(nan, i32(0x7E00), result), sign)

    def from_bits(self, bits: Val, dtype: DType) -> Val:
        """The f32 value of f16 or bf16 bits in the low half of an i32."""
        i32 = self._i32

        def op(name: str, x: Val, y: Val) -> Val:
            return self.emit(name + " {t} {0}, {1}", I32, x, y)

        if dtype is BF16:
            return self.retyped(self.bitcast(op("shl", bits, i32(16)), F32), dtype)
        sign = op("shl", op("and", bits, i32(0x8000)), i32(16))
        magnitude = op("and", bits, i32(0x7FFF))
        shifted = op("shl", magnitude, i32(13))
        normal = op("add", shifted, i32(112 << 23))
        special = op("add", shifted, i32(224 << 23))
        # A subnormal m is m * 2**-24: as an integer it converts exactly.
        subnormal = self.bitcast(
            self.emit(
                "fmul {t} {0}, {1}",
                F32,
                self.emit("sitofp {t} {0} to {r}", F32, magnitude),
                self.constant(2.0**-24, F32),
            ),
            I32,
        )
        result = self._choose(self.emit("icmp ult {t} {0}, {1}", BOOL, magnitude, i32(0x400)), subnormal, normal)
        result = self._choose(self.emit("icmp uge {t} {0}, {1}", BOOL, magnitude, i32(0x7C00)), special, result)
        return self.retyped(self.bitcast(op("or", result, sign), F32), dtype)

    def odd_f32(self, a: Val) -> Val:
        """An f64 rounded to an f32 so that a later rounding to f16 is right: inexact results get an odd last bit."""
        u = self.bitcast(a, I64)
        low = self.emit("and {t} {0}, {1}", I64, u, self.constant((1 << 29) - 1, I64))
        sticky = self.emit("icmp ne {t} {0}, {1}", BOOL, low, self.constant(0, I64))
        kept = self.emit("xor {t} {0}, {1}", I64, u, low)
        odd = self.emit("or {t} {0}, {1}", I64, kept, self.constant(1 << 29, I64))
        exact = self.bitcast(self._choose(sticky, odd, kept), F64)
        return self.emit("fptrunc {t} {0} to {r}", F32, exact)

    def _i32(self, value: int) -> Val:
        return self.constant(value, I32)

    def _choose(self, condition: Val, a: Val, b: Val) -> Val:
        lanes = "{n}i1{e}"
        kind = register_type(a.dtype)
        return self.emit(
            f"select {lanes} {{0}}, {{n}}{kind}{{e}} {{1}}, {{n}}{kind}{{e}} {{2}}", a.dtype, condition, a, b
        )


_PLACES = ("{0}", "{1}", "{2}", "{3}")
_SUFFIX = {"float": "f32", "double": "f64", "i1": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64"}


def wrapped(value: int, dtype: DType) -> int:
    """`value` modulo 2**bits, in the range of `dtype`."""
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind == "i" and value >> (dtype.bits - 1) else value
