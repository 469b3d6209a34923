"""Arithmetic, comparison and logic on two tensors, and on a tensor and a number.

Each function below is declared as an operator for equal shapes (`elemwise_add`, `_maximum`), with broadcasting
(`broadcast_add`) and with a scalar (`_plus_scalar`). Comparisons and logic return 0 and 1 in the input's element type.
Element types are not promoted: different ones are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gluonjit.ir.types import BOOL, F64, I64, dtype_of
from gluonjit.operators.attributes import boolean, counted, number
from gluonjit.operators.registry import operator
from gluonjit.operators.support import require_numeric, require_same_dtype, require_same_shape
from gluonjit.operators.support import scalar as constant_scalar

Function = Callable[[Any, Any, Any], Any]


def _primitive(name: str) -> Function:
    return lambda b, x, y: getattr(b, name)(x, y)


def modulo(b: Any, x: Any, y: Any) -> Any:
    """Modulo with the divisor's sign; 0 where the divisor is 0."""
    dtype = dtype_of(x)
    if not dtype.is_float:
        return b.mod(x, y)
    zero = b.constant(0, dtype)
    none = b.eq(y, zero)
    # The divisor is kept away from 0 for the sake of the gradient, which would be NaN.
    return b.select(none, zero, b.mod(x, b.select(none, b.constant(1, dtype), y)))


def _hypot(b: Any, x: Any, y: Any) -> Any:
    dtype = dtype_of(x)
    if dtype.is_float:
        return b.hypot(x, y)
    return b.cast(b.hypot(b.cast(x, dtype=F64), b.cast(y, dtype=F64)), dtype=dtype)


def _comparison(name: str) -> Function:
    return lambda b, x, y: b.cast(getattr(b, name)(x, y), dtype=dtype_of(x))


def _logical(name: str) -> Function:
    def function(b: Any, x: Any, y: Any) -> Any:
        return b.cast(getattr(b, name)(b.cast(x, dtype=BOOL), b.cast(y, dtype=BOOL)), dtype=dtype_of(x))

    return function


def _declare_equal_shapes(name: str, doc: str, function: Function, aliases: Sequence[str]) -> None:
    def expand(b: Any, lhs: Any, rhs: Any) -> Any:
        require_same_dtype(lhs, rhs)
        require_same_shape(lhs, rhs)
        require_numeric(name, lhs)
        return function(b, lhs, rhs)

    expand.__doc__ = f"{doc}, for equal shapes"
    operator(name, aliases=aliases, inputs=("lhs", "rhs"), same_shape=True)(expand)


def _declare_broadcast(name: str, doc: str, function: Function, aliases: Sequence[str] = ()) -> None:
    def expand(b: Any, lhs: Any, rhs: Any) -> Any:
        require_same_dtype(lhs, rhs)
        require_numeric(name, lhs)
        return function(b, lhs, rhs)

    expand.__doc__ = f"{doc}, with broadcasting"
    operator(name, aliases=aliases, inputs=("lhs", "rhs"))(expand)


def beside_scalar(b: Any, data: Any, is_int: bool) -> Any:
    """`data` in the element type of the result of an operator on it and a number: bool becomes int64.

    If `is_int` is False, the number is not an integer, and bool and integer tensors become float64.
    """
    dtype = dtype_of(data)
    target = dtype if dtype.is_float else F64 if not is_int else I64 if dtype is BOOL else dtype
    return data if target is dtype else b.cast(data, dtype=target)


def _declare_scalar(name: str, doc: str, function: Function, alias: str, reverse: bool = False) -> None:
    """`reverse`: the number is the left operand."""

    def expand(b: Any, data: Any, *, scalar: float, is_int: bool) -> Any:
        data = beside_scalar(b, data, is_int)
        value = constant_scalar(b, scalar, dtype_of(data))
        return function(b, value, data) if reverse else function(b, data, value)

    expand.__doc__ = f"{doc}, where one of them is a number"
    # Powers have a gradient for each constant exponent.
    operator(name, aliases=(alias,), attrs=_SCALAR, same_shape=True, number="" if "power" in name else "scalar")(expand)


_SCALAR = {"scalar": number(1.0), "is_int": boolean(True)}

_ADD, _SUB, _MUL, _DIV = (_primitive(name) for name in ("add", "sub", "mul", "div"))
_POWER, _MAXIMUM, _MINIMUM = (_primitive(name) for name in ("pow", "maximum", "minimum"))

_declare_equal_shapes("elemwise_add", "lhs + rhs", _ADD, ("_plus", "_Plus", "_add"))
_declare_equal_shapes("elemwise_sub", "lhs - rhs", _SUB, ("_minus", "_Minus", "_sub"))
_declare_equal_shapes("elemwise_mul", "lhs * rhs", _MUL, ("_mul", "_Mul"))
_declare_equal_shapes("elemwise_div", "lhs / rhs; integers truncate, and x / 0 is 0", _DIV, ("_div", "_Div"))
_declare_broadcast("broadcast_add", "lhs + rhs", _ADD, ("broadcast_plus",))
_declare_broadcast("broadcast_sub", "lhs - rhs", _SUB, ("broadcast_minus",))
_declare_broadcast("broadcast_mul", "lhs * rhs", _MUL)
_declare_broadcast("broadcast_div", "lhs / rhs; integers truncate, and x / 0 is 0", _DIV)
_declare_scalar("_plus_scalar", "x + s", _ADD, "_PlusScalar")
_declare_scalar("_minus_scalar", "x - s", _SUB, "_MinusScalar")
_declare_scalar("_rminus_scalar", "s - x", _SUB, "_RMinusScalar", reverse=True)
_declare_scalar("_mul_scalar", "x * s", _MUL, "_MulScalar")
_declare_scalar("_div_scalar", "x / s", _DIV, "_DivScalar")
_declare_scalar("_rdiv_scalar", "s / x", _DIV, "_RDivScalar", reverse=True)
_declare_scalar("_rmod_scalar", "s modulo x, with x's sign; 0 where x is 0", modulo, "_RModScalar", reverse=True)
_declare_scalar("_rpower_scalar", "s**x", _POWER, "_RPowerScalar", reverse=True)

# The same function under three names: `_x`, `broadcast_x` and `_x_scalar`.
for _stem, _camel, _doc, _function in [
    ("mod", "Mod", "lhs modulo rhs, with rhs's sign; 0 where rhs is 0", modulo),
    ("power", "Power", "lhs**rhs", _POWER),
    ("maximum", "Maximum", "the larger of two elements; NaN if either is NaN", _MAXIMUM),
    ("minimum", "Minimum", "the smaller of two elements; NaN if either is NaN", _MINIMUM),
    ("hypot", "Hypot", "sqrt(lhs**2 + rhs**2)", _hypot),
    ("equal", "Equal", "lhs == rhs", _comparison("eq")),
    ("not_equal", "Not_Equal", "lhs != rhs", _comparison("ne")),
    ("greater", "Greater", "lhs > rhs", _comparison("gt")),
    ("greater_equal", "Greater_Equal", "lhs >= rhs", _comparison("ge")),
    ("lesser", "Lesser", "lhs < rhs", _comparison("lt")),
    ("lesser_equal", "Lesser_Equal", "lhs <= rhs", _comparison("le")),
    ("logical_and", "Logical_And", "whether both are nonzero", _logical("and")),
    ("logical_or", "Logical_Or", "whether either is nonzero", _logical("or")),
    ("logical_xor", "Logical_Xor", "whether exactly one is nonzero", _logical("xor")),
]:
    _declare_equal_shapes(f"_{_stem}", _doc, _function, (f"_{_camel}",))
    _declare_broadcast(f"broadcast_{_stem}", _doc, _function)
    if _stem != "power":
        _declare_scalar(f"_{_stem}_scalar", _doc, _function, f"_{_camel.replace('_', '')}Scalar")


@operator("_power_scalar", aliases=("_PowerScalar",), attrs=_SCALAR, same_shape=True)
def power_scalar(b: Any, data: Any, *, scalar: float, is_int: bool) -> Any:
    """lhs**rhs, where one of them is a number"""
    data = beside_scalar(b, data, is_int)
    if scalar == 2:
        return b.mul(data, data)
    return b.pow(data, constant_scalar(b, scalar, dtype_of(data)))


@operator(
    "add_n",
    aliases=("ElementWiseSum",),
    variadic=True,
    attrs={"num_args": counted()},
    same_shape=True,
)
def add_n(b: Any, *args: Any, num_args: int) -> Any:
    """Sum of all inputs, which have one shape and element type"""
    require_same_dtype(*args)
    require_same_shape(*args)
    require_numeric("add_n", args[0])
    total = args[0]
    for x in args[1:]:
        total = b.add(total, x)
    return total
