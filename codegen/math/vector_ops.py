"""The elementwise primitives on values: what a handler offers to `element` functions under the primitives' names.

f16 and bf16 are computed in f32 and rounded after every operation, which is what NumPy does. Integers wrap; nothing
traps, whatever the operands.
"""

from __future__ import annotations

from typing import Any

from gluonjit.codegen.math import vecmath
from gluonjit.codegen.math.values import Val, Values, register_type
from gluonjit.ir.types import BOOL, F16, F32, F64, I32, I64, U8, DType
from gluonjit.ir.types import dtype as as_dtype


class Arithmetic(Values):
    def dtype(self, a: Val) -> DType:
        return a.dtype

    def _wide(self, a: Val) -> Val:
        """`a` in the type that its arithmetic is done in."""
        return self.retyped(a, F32) if a.dtype.is_float and a.dtype.bits == 16 else a

    def _float(self, pattern: str, *args: Val) -> Val:
        """A floating instruction, rounded to the operands' type."""
        dtype = args[0].dtype
        wide = [self._wide(a) for a in args]
        return (
            self.rounded(self.emit(pattern, wide[0].dtype, *wide), dtype)
            if dtype is not F64
            else self.emit(pattern, F64, *wide)
        )

    # ---- + - * and the like

    def _binary(self, float_op: str, int_op: str, a: Val, b: Val) -> Val:
        if a.dtype.is_float:
            return self._float(float_op + " {t} {0}, {1}", a, b)
        return self.emit(int_op + " {t} {0}, {1}", a.dtype, a, b)

    def add(self, a: Val, b: Val) -> Val:
        return self._binary("fadd", "add", a, b)

    def sub(self, a: Val, b: Val) -> Val:
        return self._binary("fsub", "sub", a, b)

    def mul(self, a: Val, b: Val) -> Val:
        product = self._binary("fmul", "mul", a, b)
        if a.dtype in (F32, F64):
            product.factors = a, b
        return product

    def fma(self, a: Val, b: Val, c: Val) -> Val:
        """a·b + c, rounded once where the machine can (f32 and f64)."""
        if self.target.has_fma:
            return self.intrinsic("llvm.fma", a.dtype, a, b, c)
        return self.add(self.mul(a, b), c)

    def neg(self, a: Val) -> Val:
        if a.const is not None:
            return self.constant(-a.const, a.dtype)
        if a.dtype.is_float:
            return self.emit("fneg {t} {0}", a.dtype, a)
        return self.emit("sub {t} {0}, {1}", a.dtype, self.constant(0, a.dtype), a)

    def abs(self, a: Val) -> Val:
        if a.dtype.is_float:
            return self.intrinsic("llvm.fabs", a.dtype, a)
        return a if a.dtype is U8 else self.intrinsic("llvm.abs", a.dtype, a, extra="i1 false")

    def sign(self, a: Val) -> Val:
        zero, one = self.constant(0, a.dtype), self.constant(1, a.dtype)
        if a.dtype is U8:
            return self.select(self.ne(a, zero), one, zero)
        below = self.select(self.lt(a, zero), self.constant(-1, a.dtype), zero)
        result = self.select(self.gt(a, zero), one, below)
        return self.select(self.isnan(a), a, result) if a.dtype.is_float else result

    def div(self, a: Val, b: Val) -> Val:
        if not a.dtype.is_float:
            return self._divide(a, b)[0]
        wide = self.emit("fdiv {t} {0}, {1}", F64 if a.dtype is F64 else F32, self._wide(a), self._wide(b))
        if a.lanes or b.lanes:
            # In lanes that are masked out, LLVM (22.1) takes the quotient of two zeros for a zero rather than NaN, and
            # leaves out the selection of another value. It must not see where the quotient comes from.
            wide = self.intrinsic("llvm.arithmetic.fence", wide.dtype, wide)
        return wide if a.dtype is F64 else self.rounded(wide, a.dtype)

    def mod(self, a: Val, b: Val) -> Val:
        if a.dtype.is_float:
            return self._by_math("mod", a, b)
        _, r = self._divide(a, b)
        if a.dtype is U8:
            return r
        # The remainder has the sign of the dividend; where the divisor's differs, one divisor is added.
        zero = self.constant(0, a.dtype)
        other_sign = self.lt(self.xor(r, b), zero)
        return self.select(self.both(self.ne(r, zero), other_sign), self.add(r, b), r)

    def _divide(self, a: Val, b: Val) -> tuple[Val, Val]:
        """(quotient truncated toward 0, remainder) of integers; both are 0 where the divisor is."""
        dtype = a.dtype
        zero, one = self.constant(0, dtype), self.constant(1, dtype)
        signed = dtype is not U8
        if b.const is not None:
            if b.const == 0:
                return zero, zero
            if b.const == -1 and signed:
                return self.neg(a), zero
            quotient = self.emit(("sdiv" if signed else "udiv") + " {t} {0}, {1}", dtype, a, b)
            return quotient, self.sub(a, self.mul(quotient, b))
        # The machine traps on a zero divisor and on least / -1: both are computed as x / 1 and set right.
        none = self.eq(b, zero)
        negated = self.eq(b, self.constant(-1, dtype)) if signed else None
        odd = none if negated is None else self.either(none, negated)
        safe = self.select(odd, one, b)
        if (a.lanes or b.lanes) and dtype is not I64:
            # There is no vector division of integers. In a float with twice the bits it is exact after truncation:
            # quotients that are no integers are further from one than half a unit of the float.
            wide = F64 if dtype is I32 else F32
            to, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
            x, y = (self.emit(to + " {t} {0} to {r}", wide, v) for v in (a, safe))
            quotient = self.emit(back + " {t} {0} to {r}", dtype, self.emit("fdiv {t} {0}, {1}", wide, x, y))
        else:
            quotient = self.emit(("sdiv" if signed else "udiv") + " {t} {0}, {1}", dtype, a, safe)
        if negated is not None:
            quotient = self.select(negated, self.neg(a), quotient)
        quotient = self.select(none, zero, quotient)
        return quotient, self.select(none, zero, self.sub(a, self.mul(quotient, b)))

    def pow(self, a: Val, b: Val) -> Val:
        return self._by_math("pow", a, b) if a.dtype.is_float else self._int_pow(a, b)

    def _int_pow(self, a: Val, b: Val) -> Val:
        """a to the power b by squaring, once for each bit of the largest exponent."""
        dtype = a.dtype
        zero, one = self.constant(0, dtype), self.constant(1, dtype)
        positive = b if dtype is U8 else self.maximum(b, zero)
        lanes = a.lanes or b.lanes
        scope = a.scope if a.scope.depth > b.scope.depth else b.scope
        type = self.type(dtype, lanes)
        start = [one, a, positive]
        if lanes:
            start = [self.splat(v) for v in start]
        with self.f.at(scope), self.f.repeat([(type, v.ssa) for v in start]) as loop:
            result, base, left = (Val(name, dtype, lanes, loop.scope) for name in loop.carried)
            bit = self.emit("and {t} {0}, {1}", dtype, left, one)
            result = self.select(self.ne(bit, zero), self.mul(result, base), result)
            base = self.mul(base, base)
            left = self.emit("lshr {t} {0}, {1}", dtype, left, one)
            loop.next(result.ssa, base.ssa, left.ssa)
            loop.again = self.any(self.ne(left, zero))
        power = Val(loop.results[0], dtype, lanes, scope)
        if dtype is U8:
            return power
        # 1 / a**-b truncated: what is left of a negative exponent is the sign of a unit base.
        minus = self.constant(-1, dtype)
        odd = self.ne(self.emit("and {t} {0}, {1}", dtype, b, one), zero)
        unit = self.select(self.eq(a, minus), self.select(odd, minus, one), zero)
        unit = self.select(self.eq(a, one), one, unit)
        return self.select(self.lt(b, zero), unit, power)

    def maximum(self, a: Val, b: Val) -> Val:
        return self._extreme(a, b, "ogt", "max")

    def minimum(self, a: Val, b: Val) -> Val:
        return self._extreme(a, b, "olt", "min")

    def _extreme(self, a: Val, b: Val, wins: str, name: str) -> Val:
        if not a.dtype.is_float:
            return self.intrinsic(("llvm.u" if a.dtype is U8 else "llvm.s") + name, a.dtype, a, b)
        if a.const is not None:
            a, b = b, a
        # This select is one instruction (MAXPS and its like) that gives the second operand when either is NaN.
        if b.const is not None and b.const == b.const:
            return self.select(self.emit("fcmp " + wins + " {t} {0}, {1}", BOOL, b, a), b, a)
        return self.select(self.isnan(a), a, self.select(self.emit("fcmp " + wins + " {t} {0}, {1}", BOOL, a, b), a, b))

    # ---- rounding

    def _rounding(self, name: str, a: Val) -> Val:
        return self.intrinsic(name, a.dtype, a) if a.dtype.is_float else a

    def floor(self, a: Val) -> Val:
        return self._rounding("llvm.floor", a)

    def ceil(self, a: Val) -> Val:
        return self._rounding("llvm.ceil", a)

    def trunc(self, a: Val) -> Val:
        return self._rounding("llvm.trunc", a)

    def rint(self, a: Val) -> Val:
        return self._rounding("llvm.rint", a)

    def round(self, a: Val) -> Val:
        if not a.dtype.is_float:
            return a
        # Half a unit less than 0.5, with the sign of a: 0.5 itself would round 0.49999997 up.
        wide = self._wide(a)
        below = self.constant(0.5 - (2.0**-25 if wide.dtype is F32 else 2.0**-54), wide.dtype)
        return self.retyped(self.trunc(self.add(wide, self.copysign(below, wide))), a.dtype)

    def copysign(self, a: Val, sign: Val) -> Val:
        """|a| with the sign of `sign`, both f32 or both f64.

        By bits: LLVM combines its own intrinsic with later roundings to f16 into calls of its library.
        """
        kind = I64 if a.dtype is F64 else I32
        most = self.constant(2 ** (kind.bits - 1) - 1, kind)
        least = self.constant(-(2 ** (kind.bits - 1)), kind)
        bits = [self.both(self.bitcast(v, kind), mask) for v, mask in ((a, most), (sign, least))]
        return self.bitcast(self.either(*bits), a.dtype)

    # ---- tests, comparisons and logic

    def isnan(self, a: Val) -> Val:
        return self.emit("fcmp uno {t} {0}, {0}", BOOL, a)

    def isinf(self, a: Val) -> Val:
        return self.eq(self.abs(a), self.constant(float("inf"), a.dtype))

    def isfinite(self, a: Val) -> Val:
        return self.lt(self.abs(a), self.constant(float("inf"), a.dtype))

    def _compare(self, name: str, a: Val, b: Val) -> Val:
        if a.dtype.is_float:
            return self.emit(f"fcmp {'u' if name == 'ne' else 'o'}{name} {{t}} {{0}}, {{1}}", BOOL, a, b)
        sign = "" if name in ("eq", "ne") else "s" if a.dtype.kind == "i" else "u"
        return self.emit(f"icmp {sign}{name} {{t}} {{0}}, {{1}}", BOOL, a, b)

    def eq(self, a: Val, b: Val) -> Val:
        return self._compare("eq", a, b)

    def ne(self, a: Val, b: Val) -> Val:
        return self._compare("ne", a, b)

    def lt(self, a: Val, b: Val) -> Val:
        return self._compare("lt", a, b)

    def le(self, a: Val, b: Val) -> Val:
        return self._compare("le", a, b)

    def gt(self, a: Val, b: Val) -> Val:
        return self._compare("gt", a, b)

    def ge(self, a: Val, b: Val) -> Val:
        return self._compare("ge", a, b)

    def both(self, a: Val, b: Val) -> Val:
        for x, y in ((a, b), (b, a)):
            if x.dtype is BOOL and x.const is not None:
                return y if x.const else x
        return self.emit("and {t} {0}, {1}", a.dtype, a, b)

    def either(self, a: Val, b: Val) -> Val:
        for x, y in ((a, b), (b, a)):
            if x.dtype is BOOL and x.const is not None:
                return x if x.const else y
        return self.emit("or {t} {0}, {1}", a.dtype, a, b)

    def xor(self, a: Val, b: Val) -> Val:
        return self.emit("xor {t} {0}, {1}", a.dtype, a, b)

    def inverse(self, a: Val) -> Val:
        if a.dtype is BOOL and a.const is not None:
            return self.constant(not a.const, BOOL)
        return self.xor(a, self.constant(True if a.dtype is BOOL else -1, a.dtype))

    def _shift(self, name: str, a: Val, b: Val) -> Val:
        bits = self.constant(a.dtype.bits, a.dtype)
        if b.const is not None:
            if not 0 <= b.const < a.dtype.bits:
                return self.constant(0, a.dtype)
            return self.emit(name + " {t} {0}, {1}", a.dtype, a, b)
        inside = self.emit("icmp ult {t} {0}, {1}", BOOL, b, bits)
        safe = self.emit("and {t} {0}, {1}", a.dtype, b, self.constant(a.dtype.bits - 1, a.dtype))
        return self.select(inside, self.emit(name + " {t} {0}, {1}", a.dtype, a, safe), self.constant(0, a.dtype))

    def shift_left(self, a: Val, b: Val) -> Val:
        return self._shift("shl", a, b)

    def shift_right(self, a: Val, b: Val) -> Val:
        return self._shift("lshr", a, b)

    def select(self, condition: Val, a: Val, b: Val) -> Val:
        if condition.const is not None:
            return a if condition.const else b
        if condition.lanes or not (a.lanes or b.lanes):
            return self._choose(condition, a, b)
        # A uniform condition selects whole vectors.
        kind = self.type(a.dtype, True)
        scope = max((condition.scope, a.scope, b.scope), key=lambda s: s.depth)
        text = f"select i1 {condition.ssa}, {kind} {self.splat(a).ssa}, {kind} {self.splat(b).ssa}"
        return Val(self.f.pure(text, scope), a.dtype, True, scope)

    # ---- conversions

    def cast(self, a: Val, dtype: Any) -> Val:
        to = as_dtype(dtype)
        if a.dtype is to:
            return a
        if a.const is not None and (a.dtype is BOOL or (a.dtype.is_integer and to is not BOOL)):
            return self.constant(a.const, to)
        if to is BOOL:
            return self.ne(a, self.constant(0, a.dtype))
        if a.dtype.is_float:
            return self._from_float(a, to)
        if to.is_float:
            unsigned = a.dtype in (BOOL, U8)
            wide = F64 if to is F64 else F32
            value = self.emit(("uitofp" if unsigned else "sitofp") + " {t} {0} to {r}", wide, a)
            return self.rounded(value, to) if wide is F32 else value
        return self._between_integers(a, to)

    def _from_float(self, a: Val, to: DType) -> Val:
        if to.is_float:
            if to is F64:
                return self.emit("fpext {t} {0} to {r}", F64, self._wide(a))
            if a.dtype is F64:
                a = self.odd_f32(a) if to is F16 else self.emit("fptrunc {t} {0} to {r}", F32, a)
            return self.rounded(self.retyped(a, F32), to)
        a = self._wide(a)
        lanes = a.lanes
        name = f"llvm.fpto{'u' if to is U8 else 's'}i.sat"
        suffix = f"v{self.width}" if lanes else ""
        full = f"{name}.{suffix}{register_type(to)}.{suffix}{'f64' if a.dtype is F64 else 'f32'}"
        self.f.module.declare(full, self.type(to, lanes), [self.type(a.dtype, lanes)])
        return self.emit(f"call {{r}} @{full}({{t}} {{0}})", to, a)

    def _between_integers(self, a: Val, to: DType) -> Val:
        have, want = (1 if a.dtype is BOOL else a.dtype.bits), to.bits
        if have == want:
            return self.retyped(a, to)
        how = "trunc" if have > want else "zext" if a.dtype in (BOOL, U8) else "sext"
        return self.emit(how + " {t} {0} to {r}", to, a)

    # ---- functions

    def sqrt(self, a: Val) -> Val:
        wide = self._wide(a)
        return self._narrowed(self.intrinsic("llvm.sqrt", wide.dtype, wide), a.dtype)

    def rsqrt(self, a: Val) -> Val:
        wide = self._wide(a)
        root = self.intrinsic("llvm.sqrt", wide.dtype, wide)
        return self._narrowed(self.div(self.constant(1, wide.dtype), root), a.dtype)

    def _by_math(self, name: str, *args: Val) -> Val:
        """A function of `vecmath`: of f32 or f64, the narrow types through f32."""
        result = vecmath.FUNCTIONS[name](self, *(self._wide(a) for a in args))
        return self._narrowed(result, args[0].dtype)

    def _narrowed(self, a: Val, dtype: DType) -> Val:
        return a if a.dtype is F64 else self.rounded(a, dtype)

    def __getattr__(self, name: str) -> Any:
        if name in _KEYWORDS:
            return getattr(self, _KEYWORDS[name])
        if name in vecmath.FUNCTIONS:

            def function(*args: Val) -> Val:
                return self._by_math(name, *args)

            return function
        raise AttributeError(f"the handler has no {name!r}")


_KEYWORDS = {"and": "both", "or": "either", "not": "inverse"}
"""Primitives whose names Python keeps for itself."""
