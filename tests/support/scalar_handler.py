"""A handler for `element` (see `gluonjit.ir.primitives`) over plain Python numbers, and an interpreter on top.

Written with `math` and `struct` alone, so that it shares no code with the NumPy references it judges. Floats are
computed in double precision and rounded to their type after every primitive, narrow ones through float32.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gluonjit.ir import opdef
from gluonjit.ir.graph import Graph
from gluonjit.ir.types import BF16, BOOL, F16, F32, F64, I64, DType, TensorType, type_of


@dataclass(frozen=True)
class Scalar:
    dtype: DType
    value: Any  # bool, int or float, a value of the type


class Operand:
    """What `element` gets for an operand: callable with an index tuple, and typed. Its elements are not `known`."""

    known = None

    def __init__(self, type: TensorType, load: Callable[[tuple[int, ...]], Scalar]) -> None:
        self.type = type
        self._load = load

    def __call__(self, index: tuple[int, ...]) -> Scalar:
        assert len(index) == self.type.rank, f"index {index} into {self.type}"
        assert all(isinstance(k, int) and 0 <= k < n for k, n in zip(index, self.type.shape)), f"{index} in {self.type}"
        return self._load(tuple(index))


def operand(array: np.ndarray) -> Operand:
    type = type_of(array)
    return Operand(type, lambda index: Scalar(type.dtype, _python(array[index], type.dtype)))


def _python(x: Any, dtype: DType) -> Any:
    return bool(x) if dtype is BOOL else int(x) if dtype.is_integer else float(x)


def rounded(value: float, dtype: DType) -> float:
    """The nearest value of a float type, ties to even."""
    if dtype is F64 or not math.isfinite(value):
        return value
    if dtype in (F16, BF16):
        value = rounded(value, F32)
        if not math.isfinite(value):
            return value
    if dtype is BF16:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return struct.unpack("<f", struct.pack("<I", bits))[0]
    code = "<f" if dtype is F32 else "<e"
    try:
        return struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def wrapped(value: int, dtype: DType) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind == "i" and value >> (dtype.bits - 1) else value


def _make(value: Any, dtype: DType) -> Scalar:
    if dtype is BOOL:
        return Scalar(dtype, bool(value))
    return Scalar(dtype, wrapped(int(value), dtype) if dtype.is_integer else rounded(float(value), dtype))


# Functions of one float --------------------------------------------------------------------------------------------


def _or(function: Callable[[float], float], outside: Any) -> Callable[[float], float]:
    """`function`, with what IEEE gives where Python raises: `outside` (or outside(x)) beyond the domain."""

    def run(x: float) -> float:
        try:
            return function(x)
        except (ValueError, ZeroDivisionError):
            return outside(x) if callable(outside) else outside
        except OverflowError:
            return math.inf if x > 0 or function is math.cosh else -math.inf

    return run


def _log_edge(x: float) -> float:
    return -math.inf if x == 0 else math.nan


def _erfinv(x: float) -> float:
    if not -1 < x < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    target, low, high = abs(x), 0.0, 6.0
    for _ in range(200):
        middle = (low + high) / 2
        above = math.erfc(middle) < 1 - target if target > 0.5 else math.erf(middle) > target
        low, high = (low, middle) if above else (middle, high)
    return math.copysign(low, x)


def _digamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, -x)
    if x < 0:
        if x == math.floor(x):
            return math.nan
        return _digamma(1 - x) - math.pi / math.tan(math.pi * math.fmod(x, 1))
    total = 0.0
    while x < 40:
        total -= 1 / x
        x += 1
    return total + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def _cbrt(x: float) -> float:
    if x == 0 or not math.isfinite(x):
        return x
    root = math.copysign(abs(x) ** (1 / 3), x)
    return root - (root * root * root - x) / (3 * root * root)


def _round_half_away(x: float) -> float:
    if not math.isfinite(x):
        return x
    fraction, whole = math.modf(x)
    return math.copysign(abs(whole) + (abs(fraction) >= 0.5), x)


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: math.copysign(function(x), x) if math.isfinite(x) else x


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0 if x < 0 else x


_FLOAT: dict[str, Callable[[float], float]] = {
    "exp": _or(math.exp, math.nan),
    "expm1": _or(math.expm1, math.nan),
    "log": _or(math.log, _log_edge),
    "log1p": _or(math.log1p, lambda x: -math.inf if x == -1 else math.nan),
    "log2": _or(math.log2, _log_edge),
    "log10": _or(math.log10, _log_edge),
    "sqrt": _or(math.sqrt, math.nan),
    "rsqrt": _or(lambda x: 1 / math.sqrt(x), lambda x: math.copysign(math.inf, x) if x == 0 else math.nan),
    "cbrt": _cbrt,
    "sin": _or(math.sin, math.nan),
    "cos": _or(math.cos, math.nan),
    "tan": _or(math.tan, math.nan),
    "asin": _or(math.asin, math.nan),
    "acos": _or(math.acos, math.nan),
    "atan": math.atan,
    "sinh": _or(math.sinh, math.nan),
    "cosh": _or(math.cosh, math.nan),
    "tanh": math.tanh,
    "asinh": math.asinh,
    "acosh": _or(math.acosh, math.nan),
    "atanh": _or(math.atanh, lambda x: math.copysign(math.inf, x) if abs(x) == 1 else math.nan),
    "erf": math.erf,
    "erfinv": _erfinv,
    "lgamma": _or(math.lgamma, math.inf),
    "digamma": lambda x: x if math.isnan(x) or x == math.inf else math.nan if x == -math.inf else _digamma(x),
    "sigmoid": _sigmoid,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "rint": _whole(round),
    "round": _round_half_away,
}


# Functions of two numbers --------------------------------------------------------------------------------------------


def _truncated(a: int, b: int) -> int:
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _divide(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1, b)


def _modulo(a: float, b: float) -> float:
    if b == 0 or math.isinf(a) or math.isnan(a) or math.isnan(b):
        return math.nan
    if math.isinf(b):
        return a if a == 0 or (a < 0) == (b < 0) else b
    return a % b


def _float_power(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        if a == 0:  # a negative power of zero
            return math.copysign(math.inf, a) if b % 2 == 1 else math.inf
        return math.nan


def _int_power(a: int, b: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << 64) if b > 64 else a**b
    return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)


def _extreme(a: Any, b: Any, larger: bool) -> Any:
    if a != a or b != b:
        return math.nan
    return max(a, b) if larger else min(a, b)


class ScalarHandler:
    """`s` for `element`: scalars are `Scalar`s, indices are ints."""

    def dtype(self, value: Scalar) -> DType:
        return value.dtype

    def constant(self, number: Any, dtype: DType) -> Scalar:
        return _make(number, dtype)

    def array(self, value: np.ndarray) -> Operand:
        return operand(value)

    def index_value(self, index: int, dtype: DType) -> Scalar:
        return _make(index, dtype)

    def to_index(self, value: Scalar) -> int:
        assert value.dtype.is_integer
        return value.value

    def lookup(self, table: np.ndarray, index: tuple[int, ...]) -> int:
        return int(table[index])

    def in_range(self, index: int, low: int, high: int) -> Scalar:
        return Scalar(BOOL, low <= index < high)

    def guarded(self, cond: Scalar, thunk: Callable[[], Scalar], otherwise: Scalar) -> Scalar:
        assert cond.dtype is BOOL
        if not cond.value:
            return otherwise
        value = thunk()
        assert value.dtype is otherwise.dtype
        return value

    def reduce(self, op: str, extents: Sequence[int], fn: Callable[[tuple[int, ...]], Scalar], dtype: DType) -> Scalar:
        values = []
        for k in itertools.product(*map(range, extents)):
            value = fn(k)
            assert value.dtype is dtype
            values.append(value.value)
        if op in ("argmax", "argmin"):
            best = 0
            for place, v in enumerate(values):
                if values[best] == values[best] and (
                    v != v or (v > values[best] if op == "argmax" else v < values[best])
                ):
                    best = place
            return Scalar(I64, best)
        if op == "sum":
            return _make(sum(values), dtype)
        if op == "prod":
            return _make(math.prod(values), dtype)
        if op in ("any", "all"):
            return _make(any(values) if op == "any" else all(values), dtype)
        if dtype.is_float:
            result = -math.inf if op == "max" else math.inf
        else:
            info = np.iinfo(dtype.numpy)
            result = int(info.min if op == "max" else info.max)
        for v in values:
            result = _extreme(result, v, op == "max")
        return Scalar(dtype, result)

    # Elementwise primitives; those whose names are Python keywords are set below.

    def neg(self, a: Scalar) -> Scalar:
        return _make(-a.value, a.dtype)

    def abs(self, a: Scalar) -> Scalar:
        return _make(abs(a.value), a.dtype)

    def sign(self, a: Scalar) -> Scalar:
        v = a.value
        return _make(v if v != v else (v > 0) - (v < 0), a.dtype)

    def isnan(self, a: Scalar) -> Scalar:
        return Scalar(BOOL, a.value != a.value)

    def isinf(self, a: Scalar) -> Scalar:
        return Scalar(BOOL, math.isinf(a.value))

    def isfinite(self, a: Scalar) -> Scalar:
        return Scalar(BOOL, math.isfinite(a.value))

    def add(self, a: Scalar, b: Scalar) -> Scalar:
        return self._binary(a, b, lambda x, y: x + y)

    def sub(self, a: Scalar, b: Scalar) -> Scalar:
        return self._binary(a, b, lambda x, y: x - y)

    def mul(self, a: Scalar, b: Scalar) -> Scalar:
        return self._binary(a, b, lambda x, y: x * y)

    def div(self, a: Scalar, b: Scalar) -> Scalar:
        return self._binary(a, b, _divide if a.dtype.is_float else _truncated)

    def mod(self, a: Scalar, b: Scalar) -> Scalar:
        return self._binary(a, b, _modulo if a.dtype.is_float else lambda x, y: x % y if y else 0)

    def pow(self, a: Scalar, b: Scalar) -> Scalar:
        return self._binary(a, b, _float_power if a.dtype.is_float else _int_power)

    def maximum(self, a: Scalar, b: Scalar) -> Scalar:
        return self._binary(a, b, lambda x, y: _extreme(x, y, True))

    def minimum(self, a: Scalar, b: Scalar) -> Scalar:
        return self._binary(a, b, lambda x, y: _extreme(x, y, False))

    def atan2(self, a: Scalar, b: Scalar) -> Scalar:
        return self._binary(a, b, math.atan2)

    def hypot(self, a: Scalar, b: Scalar) -> Scalar:
        return self._binary(a, b, math.hypot)

    def xor(self, a: Scalar, b: Scalar) -> Scalar:
        return self._binary(a, b, lambda x, y: x ^ y)

    def shift_left(self, a: Scalar, b: Scalar) -> Scalar:
        return self._binary(a, b, lambda x, y: x << y if 0 <= y < a.dtype.bits else 0)

    def shift_right(self, a: Scalar, b: Scalar) -> Scalar:
        mask = (1 << a.dtype.bits) - 1
        return self._binary(a, b, lambda x, y: (x & mask) >> y if 0 <= y < a.dtype.bits else 0)

    def select(self, cond: Scalar, a: Scalar, b: Scalar) -> Scalar:
        assert cond.dtype is BOOL and a.dtype is b.dtype
        return a if cond.value else b

    def cast(self, a: Scalar, dtype: DType) -> Scalar:
        if dtype.is_integer and a.dtype.is_float:
            if a.value != a.value:
                return Scalar(dtype, 0)
            info = np.iinfo(dtype.numpy)
            bounded = min(max(a.value, float(info.min)), float(info.max))
            return Scalar(dtype, min(max(int(bounded), int(info.min)), int(info.max)))
        if dtype is BOOL:
            return Scalar(dtype, a.value != 0)
        return _make(a.value, dtype)

    @staticmethod
    def _binary(a: Scalar, b: Scalar, function: Callable[[Any, Any], Any]) -> Scalar:
        assert a.dtype is b.dtype
        return _make(function(a.value, b.value), a.dtype)


def _float_method(function: Callable[[float], float]) -> Any:
    return lambda self, a: a if a.dtype.is_integer else _make(function(a.value), a.dtype)


def _comparison(function: Callable[[Any, Any], bool]) -> Any:
    def method(self: ScalarHandler, a: Scalar, b: Scalar) -> Scalar:
        assert a.dtype is b.dtype
        return Scalar(BOOL, function(a.value, b.value))

    return method


for _name, _function in _FLOAT.items():
    setattr(ScalarHandler, _name, _float_method(_function))
for _name, _compare in {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}.items():
    setattr(ScalarHandler, _name, _comparison(_compare))
setattr(ScalarHandler, "and", lambda self, a, b: self._binary(a, b, lambda x, y: x & y))
setattr(ScalarHandler, "or", lambda self, a, b: self._binary(a, b, lambda x, y: x | y))
setattr(ScalarHandler, "not", lambda self, a: _make(not a.value if a.dtype is BOOL else ~a.value, a.dtype))


def interpret(name: str, arrays: Sequence[np.ndarray], attrs: dict[str, Any]) -> np.ndarray:
    """The result of a primitive with one result, each element by its `element`."""
    primitive = opdef.lookup(name)
    assert isinstance(primitive, opdef.Primitive) and primitive.element is not None
    attrs = primitive.canonical_attrs(attrs)
    (type,) = primitive.infer([type_of(a) for a in arrays], attrs, ())
    if primitive.elementwise:
        arrays = [np.broadcast_to(a, type.shape) for a in arrays]
    operands = [operand(a) for a in arrays]
    result = np.empty(type.shape, type.dtype.numpy)
    handler = ScalarHandler()
    for index in np.ndindex(type.shape):
        value = primitive.element(handler, index, *operands, **attrs)
        assert value.dtype is type.dtype, f"{name}: element is {value.dtype}, type says {type}"
        result[index] = value.value
    return result


def interpret_graph(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs, then updated states, of a graph of primitives; those without `element` by their `eval`."""
    env = dict(zip(graph.inputs, inputs))
    for op in graph.ops:
        operands = [env[v] for v in op.operands]
        definition = op.definition
        assert isinstance(definition, opdef.Primitive)
        if op.regions:
            results = interpret_graph(op.regions[0], operands)
        elif definition.element is not None:
            results = [interpret(op.name, operands, dict(op.attrs))]
        else:
            out = definition.eval(*operands, **op.attrs)
            results = list(out) if isinstance(out, tuple) else [out]
        env.update(zip(op.results, results))
    return [env[v] for v in graph.results]
