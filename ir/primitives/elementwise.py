"""Elementwise primitives: result[i] depends on operand[i] alone.

Operands broadcast as in NumPy until `legalize-broadcast` has run. Float16 and bfloat16 are computed in float32 and
rounded once per primitive. Integers wrap; nothing here ever raises on a value.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import numpy as np

from gluonjit.ir.opdef import NO_GRADIENT, REQUIRED, primitive
from gluonjit.ir.primitives import derivatives, special
from gluonjit.ir.primitives.checks import (
    ANY,
    FLOAT,
    INTEGER,
    LOGICAL,
    NUMERIC,
    broadcast,
    check_bool,
    check_kind,
    check_same_dtype,
)
from gluonjit.ir.types import BF16, BOOL, F32, F64, TensorType
from gluonjit.ir.types import dtype as as_dtype

_BF16 = BF16.numpy
_BF16_NUM = BF16.numpy.num  # dtype numbers compare in a third of the time that dtypes take
_F32 = np.dtype(np.float32)
_NARROW = (np.dtype(np.float16).num, _BF16_NUM)

Array = Any
Function = Callable[..., Array]


def _array(x: Any) -> np.ndarray:
    """NumPy's functions give scalars for 0-d operands."""
    return x if type(x) is np.ndarray else np.asarray(x)


def _one(ufunc: Function) -> Function:
    """`eval` from a ufunc of one operand. NumPy rounds float16 once by itself; bfloat16 goes through float32."""

    def run(x: np.ndarray) -> np.ndarray:
        if x.dtype.num == _BF16_NUM:
            y = ufunc(x.astype(_F32))
            return _array(y.astype(_BF16) if y.dtype == _F32 else y)
        return _array(ufunc(x))

    return run


def _two(ufunc: Function) -> Function:
    """`eval` from a ufunc of two operands of one dtype; other operands are an error instead of being promoted."""

    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype is not b.dtype and a.dtype != b.dtype:
            raise TypeError(f"operands of different element types {a.dtype} and {b.dtype}")
        if a.dtype.num == _BF16_NUM:
            y = ufunc(a.astype(_F32), b.astype(_F32))
            return _array(y.astype(_BF16) if y.dtype == _F32 else y)
        return _array(ufunc(a, b))

    return run


def _quick(function: Function, floats_alone: bool = False) -> Callable[..., Function | None]:
    """`Primitive.quick` from the function that `eval` calls in the end. `floats_alone`: it is for floats of 32 and 64
    bits, and for an axis at least."""

    def quick(*types: TensorType) -> Function | None:
        dtype = types[-1].dtype
        if floats_alone and (dtype not in (F32, F64) or not types[0].rank):
            return None
        return None if dtype is BF16 else function

    return quick


def _composed(function: Function) -> Function:
    """`eval` from a function made of several NumPy steps: narrow floats are widened around it, so as to round once.

    The function gets at least one axis, for older NumPys promote 0-d float32 operands to float64.
    """

    def run(x: np.ndarray) -> np.ndarray:
        wide = x.astype(_F32) if x.dtype.num in _NARROW else x
        y = function(wide.reshape(1)).reshape(()) if wide.ndim == 0 else function(wide)
        return y.astype(x.dtype, copy=False)

    return run


def _sigmoid(x: np.ndarray) -> np.ndarray:
    y = np.negative(x)
    np.exp(y, out=y)
    np.add(y, 1, out=y)
    return np.reciprocal(y, out=y)


def _rsqrt(x: np.ndarray) -> np.ndarray:
    y = np.sqrt(x)
    return np.reciprocal(y, out=y)


def _round(x: np.ndarray) -> np.ndarray:
    # x - trunc(x) is exact; trunc(x + 0.5) would round 0.49999997 up.
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)


def _or_identity(float_eval: Function) -> Function:
    """`eval` of a rounding function, which leaves integers unchanged."""
    return lambda x: x if x.dtype.kind in "iu" else float_eval(x)


def _sign(x: np.ndarray) -> np.ndarray:
    return np.sign(x)


def _truncated_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    divisor = np.where(b == 0, b.dtype.type(1), b)
    q = np.floor_divide(a, divisor)  # INT_MIN / -1 wraps
    if a.dtype.kind == "i":
        q = q + ((a - q * divisor != 0) & ((a < 0) != (divisor < 0))).astype(a.dtype)
    return np.where(b == 0, a.dtype.type(0), q)


def _div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _truncated_quotient(a, b) if a.dtype.kind in "iu" else np.divide(a, b)


def _mod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.mod(a, b)  # NumPy, too, gives 0 for an integer modulo 0


def _pow(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "i":
        return np.power(a, b)
    zero, one = a.dtype.type(0), a.dtype.type(1)
    y = np.power(a, np.maximum(b, zero))
    # A negative exponent gives 1 / a**-b truncated toward 0, which is 0 unless the base is 1 or -1.
    unit = np.where(a == 1, one, np.where(a == -1, np.where(b & one, -one, one), zero))
    return np.where(b < 0, unit, y)


def _logical_shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return _array(np.right_shift(_array(a).view(unsigned), _array(b).view(unsigned))).view(a.dtype)


def _unary(
    name: str,
    evaluate: Function,
    doc: str,
    kinds: str = FLOAT,
    *,
    predicate: bool = False,
    instructions: float = 1.0,
    quick: Callable[..., Function | None] | None = None,
) -> None:
    def infer(x: TensorType) -> TensorType:
        check_kind(x, kinds)
        return x.with_dtype(BOOL) if predicate else x

    def element(s: Any, i: Any, x: Any) -> Any:
        return getattr(s, name)(x(i))

    traits: dict[str, Any] = {"elementwise": True, "predicate": predicate, "instructions": instructions, "quick": quick}
    vjp = derivatives.RULES.get(name, NO_GRADIENT)
    primitive(name, infer=infer, eval=evaluate, element=element, vjp=vjp, doc=doc, **traits)


def _binary(
    name: str, ufunc: Function, doc: str, kinds: str = NUMERIC, *, predicate: bool = False, **traits: Any
) -> None:
    def infer(a: TensorType, b: TensorType) -> TensorType:
        check_same_dtype(a, b)
        if kinds != ANY:
            check_kind(a, kinds)
        shape = a.shape if a.shape == b.shape else broadcast(a, b)
        if not predicate and shape is a.shape:
            return a
        return TensorType(BOOL if predicate else a.dtype, shape)

    def element(s: Any, i: Any, a: Any, b: Any) -> Any:
        return getattr(s, name)(a(i), b(i))

    traits |= {"elementwise": True, "predicate": predicate}
    if isinstance(ufunc, np.ufunc):
        traits["quick"] = _quick(ufunc)
    vjp = derivatives.RULES.get(name, NO_GRADIENT)
    primitive(name, infer=infer, eval=_two(ufunc), element=element, vjp=vjp, doc=doc, **traits)


_unary("neg", _one(np.negative), "-x; integers wrap", NUMERIC, quick=_quick(np.negative))
_unary("abs", _one(np.absolute), "|x|; the least integer stays as it is", NUMERIC, quick=_quick(np.absolute))
_unary("sign", _one(_sign), "-1, 0 or 1; NaN for NaN", NUMERIC, quick=_quick(np.sign))
_unary("floor", _or_identity(_one(np.floor)), "largest whole number <= x", NUMERIC)
_unary("ceil", _or_identity(_one(np.ceil)), "smallest whole number >= x", NUMERIC)
_unary("round", _or_identity(_composed(_round)), "nearest whole number, halves away from zero", NUMERIC)
_unary("rint", _or_identity(_one(np.rint)), "nearest whole number, halves to even", NUMERIC)
_unary("trunc", _or_identity(_one(np.trunc)), "x without its fraction", NUMERIC)
_unary("not", _one(np.invert), "negation of a bool; all bits of an integer", LOGICAL)
_unary("isnan", _one(np.isnan), "whether x is NaN", predicate=True)
_unary("isinf", _one(np.isinf), "whether x is an infinity", predicate=True)
_unary("isfinite", _one(np.isfinite), "whether x is neither NaN nor an infinity", predicate=True)

for _name, _ufunc, _instructions, _doc in [
    ("exp", np.exp, 12, "e**x"),
    ("expm1", np.expm1, 12, "e**x - 1, accurate near 0"),
    ("log", np.log, 12, "natural logarithm"),
    ("log1p", np.log1p, 12, "log(1 + x), accurate near 0"),
    ("log2", np.log2, 12, "logarithm to base 2"),
    ("log10", np.log10, 12, "logarithm to base 10"),
    ("sqrt", np.sqrt, 4, "square root"),
    ("cbrt", np.cbrt, 12, "cube root, of negative numbers too"),
    ("sin", np.sin, 12, "sine (radians)"),
    ("cos", np.cos, 12, "cosine (radians)"),
    ("tan", np.tan, 30, "tangent (radians)"),
    ("asin", np.arcsin, 30, "inverse sine (radians)"),
    ("acos", np.arccos, 30, "inverse cosine (radians)"),
    ("atan", np.arctan, 30, "inverse tangent (radians)"),
    ("sinh", np.sinh, 30, "hyperbolic sine"),
    ("cosh", np.cosh, 30, "hyperbolic cosine"),
    ("tanh", np.tanh, 12, "hyperbolic tangent"),
    ("asinh", np.arcsinh, 30, "inverse hyperbolic sine"),
    ("acosh", np.arccosh, 30, "inverse hyperbolic cosine"),
    ("atanh", np.arctanh, 30, "inverse hyperbolic tangent"),
]:
    _unary(_name, _one(_ufunc), _doc, instructions=_instructions, quick=_quick(_ufunc))
_unary("rsqrt", _composed(_rsqrt), "1 / sqrt(x)", instructions=12, quick=_quick(_rsqrt, True))
_unary("sigmoid", _composed(_sigmoid), "1 / (1 + exp(-x))", instructions=12, quick=_quick(_sigmoid, True))
_unary("erf", _composed(special.erf), "error function", instructions=12)
_unary("erfinv", _composed(special.erfinv), "inverse of erf on [-1, 1]; NaN elsewhere", instructions=30)
_unary("lgamma", _composed(special.lgamma), "log |gamma(x)|; inf at 0, -1, -2, …", instructions=30)
_unary(
    "digamma",
    _composed(special.digamma),
    "derivative of lgamma; NaN at -1, -2, …, and an infinity at 0",
    instructions=30,
)

_binary("add", np.add, "a + b", commutative=True)
_binary("sub", np.subtract, "a - b")
_binary("mul", np.multiply, "a * b", commutative=True)
_binary("div", _div, "a / b; integers truncate toward 0, and x / 0 is 0", instructions=4, quick=_quick(np.divide, True))
_binary("mod", _mod, "a modulo b with the sign of b; integer x modulo 0 is 0", instructions=4, quick=_quick(np.mod))
_binary(
    "pow",
    _pow,
    "a**b; integers truncate toward 0, and 0 to a negative power is 0",
    instructions=30,
    quick=_quick(np.power, True),
)
_binary("maximum", np.maximum, "the larger one; NaN when either is")
_binary("minimum", np.minimum, "the smaller one; NaN when either is")
_binary("atan2", np.arctan2, "angle of the point (b, a) (radians)", FLOAT, instructions=30)
_binary("hypot", np.hypot, "sqrt(a*a + b*b) without overflow", FLOAT)
_binary("and", np.bitwise_and, "both; bitwise for integers", LOGICAL, commutative=True)
_binary("or", np.bitwise_or, "either; bitwise for integers", LOGICAL, commutative=True)
_binary("xor", np.bitwise_xor, "exactly one; bitwise for integers", LOGICAL, commutative=True)
_binary("shift_left", np.left_shift, "a << b; 0 unless 0 <= b < bits", INTEGER)
_binary("shift_right", _logical_shift_right, "a >> b, filling with zeros; 0 unless 0 <= b < bits", INTEGER)
_binary("eq", np.equal, "a == b", ANY, predicate=True, commutative=True)
_binary("ne", np.not_equal, "a != b; true for NaN", ANY, predicate=True, commutative=True)
for _name, _compare, _doc in [
    ("lt", np.less, "a < b"),
    ("le", np.less_equal, "a <= b"),
    ("gt", np.greater, "a > b"),
    ("ge", np.greater_equal, "a >= b"),
]:
    _binary(_name, _compare, _doc, ANY, predicate=True)


def _infer_select(cond: TensorType, a: TensorType, b: TensorType) -> TensorType:
    check_bool(cond, "the condition")
    check_same_dtype(a, b)
    return TensorType(a.dtype, broadcast(cond, a, b))


def _eval_select(cond: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if cond.dtype != np.bool_ or a.dtype != b.dtype:
        raise TypeError(f"select of {cond.dtype}, {a.dtype}, {b.dtype}")
    return np.where(cond, a, b)


def _quick_cast(x: TensorType, dtype: Any) -> Function | None:
    target = as_dtype(dtype)
    saturates = x.dtype.is_float and not target.is_float
    if x.dtype is target or BF16 in (x.dtype, target) or target is BOOL or saturates:
        return None
    return methodcaller("astype", target.numpy)


def _infer_cast(x: TensorType, dtype: Any) -> TensorType:
    return x.with_dtype(as_dtype(dtype))


def _eval_cast(x: np.ndarray, dtype: Any) -> np.ndarray:
    target = as_dtype(dtype)
    if x.dtype.num == target.numpy.num:
        return x
    if target is BOOL:
        return _array(x != 0)
    if x.dtype.num == _BF16_NUM:
        x = x.astype(_F32)
    if x.dtype.kind == "f" and target.is_integer:
        return saturating(x, target.numpy)
    return x.astype(target.numpy)


def saturating(x: np.ndarray, target: np.dtype) -> np.ndarray:
    """Converts floats to integers: truncates toward 0, clips to the type's range, and maps NaN to 0."""
    if x.dtype.num in _NARROW:  # float16 cannot represent the bounds of i32
        x = x.astype(_F32)
    info = np.iinfo(target)
    low, high = float(info.min) - 1, float(info.max) + 1  # of 32 and 64 bits: rounded, still not below min - 1
    if x.size == 0 or (x.min() > low and x.max() < high):  # also false if there is a NaN
        return x.astype(target)
    inside = np.where((x > low) & (x < high), x, x.dtype.type(0)).astype(target)
    return np.where(x <= low, target.type(info.min), np.where(x >= high, target.type(info.max), inside))


primitive(
    "select",
    infer=_infer_select,
    eval=_eval_select,
    quick=lambda cond, a, b: np.where if a.rank and b.rank else None,
    element=lambda s, i, cond, a, b: s.select(cond(i), a(i), b(i)),
    elementwise=True,
    vjp=derivatives.select,
    doc="a where cond, else b",
)
primitive(
    "cast",
    infer=_infer_cast,
    eval=_eval_cast,
    quick=_quick_cast,
    element=lambda s, i, x, dtype: s.cast(x(i), as_dtype(dtype)),
    attrs={"dtype": REQUIRED},
    elementwise=True,
    vjp=derivatives.cast,
    doc="x in another type: float to integer truncates and saturates (NaN is 0), to bool is x != 0, integers wrap",
)
