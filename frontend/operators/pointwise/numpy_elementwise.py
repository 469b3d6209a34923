"""Elementwise operators of `mx.np`: functions of one tensor, comparisons, bitwise operations, and `where`.

Functions of one tensor are the operators of `mx.nd`, extended to bool, whose result is bool again. Operands of
different types are refused, as in MXNet, except by the operators in `numpy_operators`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import BOOL, F32, F64, DType, broadcast_shapes, dtype_of
from gluonjit.operators.attributes import boolean, integer, number, optional
from gluonjit.operators.control.looping import loop
from gluonjit.operators.documentation import ELEMENTWISE, documented, example, of_numpy
from gluonjit.operators.movement import creation  # noqa: F401  (declare the operators of `mx.nd`)
from gluonjit.operators.pointwise import unary  # noqa: F401  (declare the operators of `mx.nd`)
from gluonjit.operators.pointwise.binary import beside_scalar
from gluonjit.operators.registry import OPERATORS, OperatorError, operator
from gluonjit.operators.support import require_float, require_numeric, require_same_dtype, scalar, type_name
from gluonjit.operators.vision.boxes import both, negated

Function = Callable[..., Any]

# One tensor

FUNCTIONS = (
    "abs sign negative square floor ceil rint trunc fix reciprocal sqrt cbrt exp expm1 log log2 log10 log1p "
    "sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh degrees radians"
).split()
"""Operators of `mx.nd` that are also declared as `_npi_<name>`."""


def _declare_function(name: str) -> None:
    legacy = OPERATORS[name]

    def expand(b: Emitter, x: Any) -> Any:
        if dtype_of(x) is not BOOL:
            return legacy.expand(b, x)
        return b.cast(legacy.expand(b, b.cast(x, dtype=F32)), dtype=BOOL)

    expand.__doc__ = of_numpy(legacy.doc, "Integers and bool keep their type.")
    known = ("absolute", ("_npi_abs",)) if name == "abs" else (name, ())
    operator(f"_npi_{known[0]}", aliases=known[1], inputs=("x",), same_shape=True)(expand)


for _name in FUNCTIONS:
    _declare_function(_name)


def _never(b: Emitter, x: Any) -> Any:
    return b.ne(x, x)


def _declare_predicate(
    name: str, doc: str, numbers: str, answers: str, function: Function, of_integers: Function = _never
) -> None:
    """`numbers`, `answers`: an example. `of_integers` replaces `function` for integers and bools."""

    def expand(b: Emitter, x: Any) -> Any:
        return (function if dtype_of(x).is_float else of_integers)(b, x)

    call = f">>> mx.np.{name}(mx.np.array({numbers})).asnumpy()\narray({answers})"
    expand.__doc__ = documented(doc, "x (any) -> the same, of bool", call)
    operator(f"_npi_{name}", inputs=("x",), same_shape=True)(expand)


def _is_zero(b: Emitter, x: Any) -> Any:
    return b.eq(x, b.constant(0, dtype_of(x)))


def _is(value: float) -> Function:
    return lambda b, x: b.eq(x, b.constant(value, dtype_of(x)))


_declare_predicate("isnan", "Whether x is NaN", "[1, np.nan]", "[False,  True]", lambda b, x: b.isnan(x))
_declare_predicate("isinf", "Whether x is an infinity", "[1, np.inf]", "[False,  True]", lambda b, x: b.isinf(x))
_declare_predicate(
    "isfinite",
    "Whether x is finite",
    "[1, np.inf]",
    "[ True, False]",
    lambda b, x: b.isfinite(x),
    lambda b, x: b.eq(x, x),
)
_declare_predicate("isposinf", "Whether x is positive infinity", "[-np.inf, np.inf]", "[False,  True]", _is(math.inf))
_declare_predicate("isneginf", "Whether x is negative infinity", "[-np.inf, np.inf]", "[ True, False]", _is(-math.inf))
_declare_predicate("logical_not", "Whether x is 0", "[0, 2]", "[ True, False]", _is_zero, _is_zero)


@operator(
    "_npi_around",
    inputs=("x",),
    attrs={"decimals": integer(0, doc="digits after the point; negative ones before it")},
    same_shape=True,
)
def around(b: Emitter, x: Any, *, decimals: int) -> Any:
    """Rounds x to the given number of decimals, halves to even

    Shapes: x (any) -> the same

    Integers are unchanged. MXNetError for integers and negative `decimals`.

    >>> mx.np.around(mx.np.array([0.5, 1.5, 2.26]), 1).asnumpy().round(3)
    array([0.5, 1.5, 2.3], dtype=float32)
    >>> mx.np.around(mx.np.array([0.5, 1.5, 2.26])).asnumpy()
    array([0., 2., 2.], dtype=float32)
    """
    own = dtype_of(x)
    if not own.is_float:
        if decimals < 0:
            raise OperatorError("around of whole numbers takes no negative decimals")
        return x
    if decimals == 0:
        return b.rint(x)
    factor = b.constant(10.0**decimals, own)
    return b.rint(x * factor) / factor


@operator(
    "_npi_nan_to_num",
    attrs={
        "copy": boolean(True, doc="has no effect"),
        "nan": number(0.0, doc="what replaces NaN"),
        "posinf": optional(number(doc="what replaces infinity; None: the largest finite number"), None),
        "neginf": optional(number(doc="what replaces -infinity; None: the least finite number"), None),
    },
    same_shape=True,
)
def nan_to_num(b: Emitter, data: Any, *, copy: bool, nan: float, posinf: float | None, neginf: float | None) -> Any:
    """Replaces NaN by `nan`, and infinities by `posinf` and `neginf` (by default the largest finite numbers)

    Shapes: data (any) -> the same

    >>> mx.np.nan_to_num(mx.np.array([np.nan, np.inf, 1]), posinf=9).asnumpy()
    array([0., 9., 1.], dtype=float32)
    """
    own = dtype_of(data)
    if not own.is_float:
        return data
    import numpy as np

    largest = float(np.finfo(own.numpy).max)
    high = b.constant(largest if posinf is None else posinf, own)
    low = b.constant(-largest if neginf is None else neginf, own)
    y = b.select(_is(math.inf)(b, data), high, b.select(_is(-math.inf)(b, data), low, data))
    return b.select(b.isnan(data), b.constant(nan, own), y)


# Two tensors


PAIR = "lhs and rhs (any, broadcast against each other) -> the broadcast shape, of bool"
OF_BOOL = "data (any) -> the same, of bool"


def _compared(call: str, answers: str) -> str:
    return f">>> x = mx.np.array([1, 2, 3])\n>>> {call}.asnumpy()\narray({answers})"


def _declare_comparison(name: str, doc: str, primitive: str, answers: str) -> None:
    """`answers`: of comparing 1, 2 and 3 with 2."""

    def expand(b: Emitter, lhs: Any, rhs: Any) -> Any:
        require_same_dtype(lhs, rhs)
        return getattr(b, primitive)(lhs, rhs)

    def beside_number(b: Emitter, data: Any, *, scalar: float, is_int: bool) -> Any:
        data = beside_scalar(b, data, is_int)
        return getattr(b, primitive)(data, number_of(b, scalar, dtype_of(data)))

    first = f"Whether {doc}, element by element"
    expand.__doc__ = documented(first, PAIR, _compared(f"mx.np.{name}(x, mx.np.array([2]))", answers))
    beside_number.__doc__ = documented(f"{first}; rhs is a number", OF_BOOL, _compared(f"mx.np.{name}(x, 2)", answers))
    operator(f"_npi_{name}", inputs=("lhs", "rhs"))(expand)
    operator(f"_npi_{name}_scalar", attrs=_SCALAR, same_shape=True)(beside_number)


_SCALAR = {"scalar": number(1.0, doc="the number"), "is_int": boolean(True, doc="whether the number is whole")}
number_of = scalar

for _name, _doc, _primitive, _answers in [
    ("equal", "lhs == rhs", "eq", "[False,  True, False]"),
    ("not_equal", "lhs != rhs", "ne", "[ True, False,  True]"),
    ("greater", "lhs > rhs", "gt", "[False, False,  True]"),
    ("greater_equal", "lhs >= rhs", "ge", "[False,  True,  True]"),
    ("less", "lhs < rhs", "lt", "[ True, False, False]"),
    ("less_equal", "lhs <= rhs", "le", "[ True,  True, False]"),
]:
    _declare_comparison(_name, _doc, _primitive, _answers)


def _require_whole(x: Any) -> DType:
    if dtype_of(x).is_float:
        raise OperatorError(f"This operation only support integer types, not {type_name(dtype_of(x))}")
    return dtype_of(x)


def _declare_bitwise(name: str, doc: str, answer: int) -> None:
    """`answer`: of 12 (0b1100) and 10 (0b1010)."""

    def expand(b: Emitter, lhs: Any, rhs: Any) -> Any:
        require_same_dtype(lhs, rhs)
        _require_whole(lhs)
        return getattr(b, name)(lhs, rhs)

    def beside_number(b: Emitter, data: Any, *, scalar: float, is_int: bool) -> Any:
        own = _require_whole(data)
        return getattr(b, name)(data, number_of(b, scalar, own))

    x = '>>> x = mx.np.array([12], dtype="int32")'
    pair = (
        f'{x}\n>>> mx.np.bitwise_{name}(x, mx.np.array([10], dtype="int32")).asnumpy()\narray([{answer}], dtype=int32)'
    )
    one = f"{x}\n>>> mx.np.bitwise_{name}(x, 10).asnumpy()\narray([{answer}], dtype=int32)"
    refused = "MXNetError for floats."
    expand.__doc__ = documented(
        doc, "lhs and rhs (any, broadcast against each other) -> the broadcast shape", refused, pair
    )
    beside_number.__doc__ = documented(f"{doc}, where one of them is a number", ELEMENTWISE, refused, one)
    operator(f"_npi_bitwise_{name}", inputs=("lhs", "rhs"))(expand)
    operator(f"_npi_bitwise_{name}_scalar", attrs=_SCALAR, same_shape=True)(beside_number)


_declare_bitwise("and", "The bits that are set in both", 8)
_declare_bitwise("or", "The bits that are set in either", 14)
_declare_bitwise("xor", "The bits that are set in exactly one", 6)


@operator("_npi_bitwise_not", inputs=("x",), same_shape=True)
def bitwise_not(b: Emitter, x: Any) -> Any:
    """The bitwise complement; for bools, not x

    Shapes: x (any) -> the same

    MXNetError for floats.

    >>> mx.np.bitwise_not(mx.np.array([0, 5], dtype="int32")).asnumpy()
    array([-1, -6], dtype=int32)
    """
    _require_whole(x)
    return ~x


def _declare_of_floats(name: str, doc: str, primitive: str, call: str, scalars: Mapping[str, str]) -> None:
    """`call`: the example; `scalars`: the names of the variants with a number as rhs and with a number as lhs, with
    their examples."""

    def expand(b: Emitter, x1: Any, x2: Any) -> Any:
        require_same_dtype(x1, x2)
        require_float(x1)
        return getattr(b, primitive)(x1, x2)

    shapes = "x1 and x2 (any, broadcast against each other) -> the broadcast shape"
    expand.__doc__ = documented(doc, shapes, "MXNetError for integers.", call)
    operator(f"_npi_{name}", inputs=("x1", "x2"))(expand)
    for k, (form, shown) in enumerate(scalars.items()):

        def beside_number(b: Emitter, data: Any, *, scalar: float, is_int: bool, reverse: bool = bool(k)) -> Any:
            own = dtype_of(data)
            pair = (data, number_of(b, scalar, own))
            if not own.is_float:
                pair = (b.cast(data, dtype=F64), b.cast(pair[1], dtype=F64))
            y = getattr(b, primitive)(*(reversed(pair) if reverse else pair))
            return y if own.is_float else b.cast(y, dtype=own)

        beside_number.__doc__ = documented(f"{doc}, where one of them is a number", ELEMENTWISE, shown)
        operator(f"_npi_{form}", attrs=_SCALAR, same_shape=True)(beside_number)


_declare_of_floats(
    "hypot",
    "sqrt(x1**2 + x2**2)",
    "hypot",
    example("mx.np.hypot(mx.np.array([3, 5]), mx.np.array([4, 12]))", "[ 5., 13.]"),
    {},
)
_declare_of_floats(
    "arctan2",
    "The angle of the point (x2, x1) in radians, from -π to π",
    "atan2",
    example("mx.np.arctan2(mx.np.array([0, 1]), mx.np.array([1, 1]))", "[0.   , 0.785]"),
    {
        "arctan2_scalar": example("mx.np.arctan2(mx.np.array([0, 1]), 1)", "[0.   , 0.785]"),
        "rarctan2_scalar": example("mx.np.arctan2(1, mx.np.array([1, 0]))", "[0.785, 1.571]"),
    },
)


# Signs, powers of 2, multiples


def _with_sign(b: Emitter, x: Any, y: Any) -> Any:
    """x with the sign of y. As in MXNet, -0 is not negative, and a NaN y has the sign that x has not."""
    zero = b.constant(0, dtype_of(x))
    shape = broadcast_shapes(tuple(x.shape), tuple(y.shape))
    below, negative, other = (b.broadcast(v, shape=shape) for v in (x < zero, y < zero, y >= zero))
    return b.select(both(b, below, negative) | both(b, negated(b, below), other), x, -x)


def _greatest_divisor(b: Emitter, x: Any, y: Any) -> Any:
    """Euclid's algorithm, on absolute values."""
    shape = broadcast_shapes(tuple(x.shape), tuple(y.shape))
    own = dtype_of(x)

    def body(b: Emitter, index: Any, state: Any, items: Any, captured: Any) -> tuple[list[Any], list[Any]]:
        x, y = state
        none = b.eq(y, b.constant(0, own))
        rest = b.mod(x, b.select(none, b.constant(1, own), y))
        return [b.select(none, x, y), b.select(none, y, rest)], []

    def more(b: Emitter, index: Any, state: Any, captured: Any) -> Any:
        return b.reduce(b.ne(state[1], b.constant(0, own)), op="any", axes=tuple(range(len(shape))))

    begin = [b.broadcast(abs(v), shape=shape) for v in (x, y)]
    (found, _), _ = loop(b, body, begin, (), (), trip=100, condition=more)
    return found


def _multiple(b: Emitter, x: Any, y: Any) -> Any:
    divisor = _greatest_divisor(b, x, y)
    own = dtype_of(x)
    divisor = b.select(b.eq(divisor, b.constant(0, own)), b.constant(1, own), divisor)
    return abs(b.div(x, divisor) * y)


def _scaled(b: Emitter, x: Any, y: Any) -> Any:
    own = dtype_of(x)
    wide = own if own.is_float else F64
    x, y = (b.cast(v, dtype=wide) for v in (x, y))
    return b.cast(x * b.pow(b.constant(2, wide), y), dtype=own)


def _declare_pair(
    name: str,
    doc: str,
    function: Callable[..., Any],
    shown: Mapping[str, str],
    *,
    whole: bool = False,
) -> None:
    """`shown`: examples of the operator and of its variants with a number as rhs and as lhs."""

    def checked(x: Any) -> Any:
        if whole and not dtype_of(x).is_integer:
            raise OperatorError(f"{name} only supports whole numbers")
        return require_numeric(name, x)

    def expand(b: Emitter, lhs: Any, rhs: Any) -> Any:
        require_same_dtype(lhs, rhs)
        checked(lhs)
        return function(b, lhs, rhs)

    pair, *numbers = shown.items()
    shapes = "lhs and rhs (any, broadcast against each other) -> the broadcast shape"
    expand.__doc__ = documented(doc, shapes, pair[1])
    operator(pair[0], inputs=("lhs", "rhs"))(expand)
    for k, (form, example_of) in enumerate(numbers):

        def beside(b: Emitter, data: Any, *, scalar: float, is_int: bool, reverse: bool = bool(k)) -> Any:
            checked(data)
            data = data if whole else beside_scalar(b, data, is_int)
            value = number_of(b, scalar, dtype_of(data))
            return function(b, value, data) if reverse else function(b, data, value)

        beside.__doc__ = documented(f"{doc}, where one of them is a number", ELEMENTWISE, example_of)
        operator(form, attrs=_SCALAR, same_shape=True)(beside)


_declare_pair(
    "copysign",
    "The magnitude of lhs with the sign of rhs",
    _with_sign,
    {
        "_npi_copysign": example("mx.np.copysign(mx.np.array([1, 2]), mx.np.array([-3, 3]))", "[-1.,  2.]"),
        "_npi_copysign_scalar": example("mx.np.copysign(mx.np.array([1, 2]), -3)", "[-1., -2.]"),
        "_npi_rcopysign_scalar": example("mx.np.copysign(5, mx.np.array([-1, 2]))", "[-5.,  5.]"),
    },
)
_declare_pair(
    "ldexp",
    "lhs times 2 to the power rhs",
    _scaled,
    {
        "_npi_ldexp": example("mx.np.ldexp(mx.np.array([1, 3]), mx.np.array([2, 1]))", "[4., 6.]"),
        "_npi_ldexp_scalar": example("mx.np.ldexp(mx.np.array([1, 3]), 2)", "[ 4., 12.]"),
        "_npi_rldexp_scalar": example("mx.np.ldexp(3, mx.np.array([0, 2]))", "[ 3., 12.]"),
    },
)
_WHOLE = '(mx.np.array([4, 6], dtype="int32"), {}).asnumpy()\narray([{}], dtype=int32)'
_declare_pair(
    "lcm",
    "The least common multiple",
    _multiple,
    {
        "_npi_lcm": ">>> mx.np.lcm" + _WHOLE.format('mx.np.array([6, 8], dtype="int32")', "12, 24"),
        "_npi_lcm_scalar": ">>> mx.np.lcm" + _WHOLE.format(10, "20, 30"),
    },
    whole=True,
)


# where


def _chosen(b: Emitter, condition: Any, x: Any, y: Any) -> Any:
    require_same_dtype(x, y)
    return b.select(condition if dtype_of(condition) is BOOL else b.cast(condition, dtype=BOOL), x, y)


@operator("_npi_where", inputs=("condition", "x", "y"))
def where(b: Emitter, condition: Any, x: Any, y: Any) -> Any:
    """x where the condition is not 0, else y, with broadcasting

    Shapes: condition, x, y (any, broadcast against each other) -> the broadcast shape

    >>> mx.np.where(mx.np.array([1, 0]), mx.np.array([5, 6]), mx.np.array([[7], [8]])).asnumpy()
    array([[5., 7.],
           [5., 8.]], dtype=float32)
    """
    return _chosen(b, condition, x, y)


@operator("_npi_where_lscalar", inputs=("condition", "x"), attrs={"scalar": number(0.0, doc="the number")})
def where_lscalar(b: Emitter, condition: Any, x: Any, *, scalar: float) -> Any:
    """The number where the condition is not 0, else x, with broadcasting

    Shapes: condition and x (any, broadcast against each other) -> the broadcast shape

    >>> mx.np.where(mx.np.array([1, 0]), 9, mx.np.array([5, 6])).asnumpy()
    array([9., 6.], dtype=float32)
    """
    return _chosen(b, condition, number_of(b, scalar, dtype_of(x)), x)


@operator("_npi_where_rscalar", inputs=("condition", "y"), attrs={"scalar": number(0.0, doc="the number")})
def where_rscalar(b: Emitter, condition: Any, y: Any, *, scalar: float) -> Any:
    """y where the condition is not 0, else the number, with broadcasting

    Shapes: condition and y (any, broadcast against each other) -> the broadcast shape

    >>> mx.np.where(mx.np.array([1, 0]), mx.np.array([5, 6]), 9).asnumpy()
    array([5., 9.], dtype=float32)
    """
    return _chosen(b, condition, y, number_of(b, scalar, dtype_of(y)))


@operator(
    "_npi_where_scalar2",
    inputs=("condition",),
    attrs={
        "x": number(0.0, doc="the number where the condition is not 0"),
        "y": number(0.0, doc="the number where the condition is 0"),
    },
    same_shape=True,
)
def where_scalar2(b: Emitter, condition: Any, *, x: float, y: float) -> Any:
    """The number x where the condition is not 0, else the number y, as float32

    Shapes: condition (any) -> the same

    >>> mx.np.where(mx.np.array([1, 0]), 5, 6).asnumpy()
    array([5., 6.], dtype=float32)
    """
    return _chosen(b, condition, b.constant(x, F32), b.constant(y, F32))
