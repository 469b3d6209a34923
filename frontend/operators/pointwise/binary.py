"""Arithmetic, comparison and logic on two tensors, and on a tensor and a number.

Each function below is declared as an operator for equal shapes (`elemwise_add`, `_maximum`), with broadcasting
(`broadcast_add`) and with a scalar (`_plus_scalar`). Comparisons and logic return 0 and 1 in the input's element type.
Element types are not promoted: different ones are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import BOOL, F64, I64, dtype_of
from gluonjit.operators.attributes import boolean, counted, number
from gluonjit.operators.documentation import ELEMENTWISE, documented, example, on
from gluonjit.operators.registry import operator
from gluonjit.operators.support import require_numeric, require_same_dtype, require_same_shape
from gluonjit.operators.support import scalar as constant_scalar

Function = Callable[[Emitter, Any, Any], Any]


def _primitive(name: str) -> Function:
    return lambda b, x, y: getattr(b, name)(x, y)


def modulo(b: Emitter, x: Any, y: Any) -> Any:
    """Modulo with the divisor's sign; 0 where the divisor is 0."""
    dtype = dtype_of(x)
    if not dtype.is_float:
        return b.mod(x, y)
    zero = b.constant(0, dtype)
    none = b.eq(y, zero)
    # The divisor is kept away from 0 for the sake of the gradient, which would be NaN.
    return b.select(none, zero, b.mod(x, b.select(none, b.constant(1, dtype), y)))


def _hypot(b: Emitter, x: Any, y: Any) -> Any:
    dtype = dtype_of(x)
    if dtype.is_float:
        return b.hypot(x, y)
    return b.cast(b.hypot(b.cast(x, dtype=F64), b.cast(y, dtype=F64)), dtype=dtype)


def _comparison(name: str) -> Function:
    return lambda b, x, y: b.cast(getattr(b, name)(x, y), dtype=dtype_of(x))


def _logical(name: str) -> Function:
    def function(b: Emitter, x: Any, y: Any) -> Any:
        return b.cast(getattr(b, name)(b.cast(x, dtype=BOOL), b.cast(y, dtype=BOOL)), dtype=dtype_of(x))

    return function


class Shown(NamedTuple):
    """The example of a function: `y`, as NumPy prints it, is its value for the array `x` and the number `s`."""

    x: str
    s: str
    y: str

    def equal_shapes(self, call: str) -> str:
        return example(f"mx.nd.{call}({on(self.x)}, {on(f'[{self.s}, {self.s}]')})", self.y)

    def broadcast(self, call: str) -> str:
        """A column beside a row."""
        column = ", ".join(f"[{v}]" for v in self.x[1:-1].split(", "))
        rows = [f"[{v}, {v}]" for v in self.y[1:-1].split(", ")]
        operands = f"{on(f'[{column}]')}, {on(f'[{self.s}, {self.s}]')}"
        return example(f"mx.nd.{call}({operands})", "[{}]".format(",\n       ".join(rows)))


BROADCAST = "lhs and rhs (equal, or 1, along each axis) -> the larger along each axis"


def _declare_equal_shapes(name: str, doc: str, shown: Shown, function: Function, aliases: Sequence[str]) -> None:
    def expand(b: Emitter, lhs: Any, rhs: Any) -> Any:
        require_same_dtype(lhs, rhs)
        require_same_shape(lhs, rhs)
        require_numeric(name, lhs)
        return function(b, lhs, rhs)

    call = {"_maximum": "maximum", "_minimum": "minimum"}.get(name, f"_internal.{name}" if name[0] == "_" else name)
    refused = "MXNetError if shapes or element types differ, and for bool."
    expand.__doc__ = documented(doc, "lhs and rhs of one shape -> that shape", refused, shown.equal_shapes(call))
    operator(name, aliases=aliases, inputs=("lhs", "rhs"), same_shape=True)(expand)


def _declare_broadcast(name: str, doc: str, shown: Shown, function: Function, aliases: Sequence[str] = ()) -> None:
    def expand(b: Emitter, lhs: Any, rhs: Any) -> Any:
        require_same_dtype(lhs, rhs)
        require_numeric(name, lhs)
        return function(b, lhs, rhs)

    refused = "MXNetError if element types differ, or shapes do not broadcast, and for bool."
    expand.__doc__ = documented(f"{doc}, with broadcasting", BROADCAST, refused, shown.broadcast(name))
    operator(name, aliases=aliases, inputs=("lhs", "rhs"))(expand)


def beside_scalar(b: Emitter, data: Any, is_int: bool) -> Any:
    """`data` in the element type of the result of an operator on it and a number: bool becomes int64.

    If `is_int` is False, the number is not an integer, and bool and integer tensors become float64.
    """
    dtype = dtype_of(data)
    target = dtype if dtype.is_float else F64 if not is_int else I64 if dtype is BOOL else dtype
    return data if target is dtype else b.cast(data, dtype=target)


def _declare_scalar(
    name: str, doc: str, call: str, y: str, function: Function, alias: str = "", reverse: bool = False
) -> None:
    """`call`, `y`: an example. `reverse`: the number is the left operand."""

    def expand(b: Emitter, data: Any, *, scalar: float, is_int: bool) -> Any:
        data = beside_scalar(b, data, is_int)
        value = constant_scalar(b, scalar, dtype_of(data))
        return function(b, value, data) if reverse else function(b, data, value)

    expand.__doc__ = documented(doc, ELEMENTWISE, NUMBER, example(call, y))
    # Powers have a gradient for each constant exponent.
    operator(
        name,
        aliases=(alias,) if alias else (),
        attrs=_SCALAR,
        same_shape=True,
        number="" if "power" in name else "scalar",
    )(expand)


NUMBER = "The number is `scalar`. With one that is not whole, integer data become float64."
_SCALAR = {"scalar": number(1.0, doc="the number"), "is_int": boolean(True, doc="whether the number is whole")}

_ADD, _SUB, _MUL, _DIV = (_primitive(name) for name in ("add", "sub", "mul", "div"))
_POWER, _MAXIMUM, _MINIMUM = (_primitive(name) for name in ("pow", "maximum", "minimum"))

_QUOTIENT = "lhs / rhs; integers truncate, and x / 0 is 0"
_SUM, _DIFFERENCE, _PRODUCT = (
    Shown("[5, 6]", "2", "[7., 8.]"),
    Shown("[5, 6]", "2", "[3., 4.]"),
    Shown("[5, 6]", "2", "[10., 12.]"),
)
_RATIO = Shown("[5, 6]", "2", "[2.5, 3. ]")
_declare_equal_shapes("elemwise_add", "lhs + rhs", _SUM, _ADD, ("_plus", "_Plus", "_add", "_grad_add"))
_declare_equal_shapes("elemwise_sub", "lhs - rhs", _DIFFERENCE, _SUB, ("_minus", "_Minus", "_sub"))
_declare_equal_shapes("elemwise_mul", "lhs * rhs", _PRODUCT, _MUL, ("_mul", "_Mul"))
_declare_equal_shapes("elemwise_div", _QUOTIENT, _RATIO, _DIV, ("_div", "_Div"))
_declare_equal_shapes(
    "_scatter_elemwise_div", f"{_QUOTIENT}; of the rows that a row_sparse lhs stores", _RATIO, _DIV, ()
)
_declare_broadcast("broadcast_add", "lhs + rhs", _SUM, _ADD, ("broadcast_plus",))
_declare_broadcast("broadcast_sub", "lhs - rhs", _DIFFERENCE, _SUB, ("broadcast_minus",))
_declare_broadcast("broadcast_mul", "lhs * rhs", _PRODUCT, _MUL)
_declare_broadcast("broadcast_div", _QUOTIENT, _RATIO, _DIV)

_X = on("[5, 6]")


def _scattered(name: str) -> str:
    return f"mx.nd._internal._scatter_{name}_scalar({_X}, scalar=2)"


_declare_scalar("_plus_scalar", "x + s", f"({_X} + 2)", "[7., 8.]", _ADD, "_PlusScalar")
_declare_scalar("_minus_scalar", "x - s", f"({_X} - 2)", "[3., 4.]", _SUB, "_MinusScalar")
_declare_scalar("_scatter_plus_scalar", "x + s, of what a sparse x stores", _scattered("plus"), "[7., 8.]", _ADD)
_declare_scalar("_scatter_minus_scalar", "x - s, of what a sparse x stores", _scattered("minus"), "[3., 4.]", _SUB)
_declare_scalar("_rminus_scalar", "s - x", f"(2 - {_X})", "[-3., -4.]", _SUB, "_RMinusScalar", reverse=True)
_declare_scalar("_mul_scalar", "x * s", f"({_X} * 2)", "[10., 12.]", _MUL, "_MulScalar")
_declare_scalar("_div_scalar", "x / s", f"({_X} / 2)", "[2.5, 3. ]", _DIV, "_DivScalar")
_declare_scalar("_rdiv_scalar", "s / x", f"(3 / {_X})", "[0.6, 0.5]", _DIV, "_RDivScalar", reverse=True)
_declare_scalar(
    "_rmod_scalar", "s modulo x, with x's sign; 0 where x is 0", f"(8 % {_X})", "[3., 2.]", modulo, "_RModScalar", True
)
_declare_scalar("_rpower_scalar", "s**x", f"(2 ** {_X})", "[32., 64.]", _POWER, "_RPowerScalar", reverse=True)

# The same function under three names: `_x`, `broadcast_x` and `_x_scalar`. The scalar's example: `{}` is the array.
for _stem, _camel, _doc, _shown, _beside, _function in [
    (
        "mod",
        "Mod",
        "lhs modulo rhs, with rhs's sign; 0 where rhs is 0",
        Shown("[-1, 5]", "3", "[2., 2.]"),
        "({} % 3)",
        modulo,
    ),
    ("power", "Power", "lhs**rhs", Shown("[2, 3]", "2", "[4., 9.]"), "", _POWER),
    (
        "maximum",
        "Maximum",
        "The larger of two elements; NaN if either is NaN",
        Shown("[1, 3]", "2", "[2., 3.]"),
        "mx.nd.maximum({}, 2)",
        _MAXIMUM,
    ),
    (
        "minimum",
        "Minimum",
        "The smaller of two elements; NaN if either is NaN",
        Shown("[1, 3]", "2", "[1., 2.]"),
        "mx.nd.minimum({}, 2)",
        _MINIMUM,
    ),
    (
        "hypot",
        "Hypot",
        "sqrt(lhs**2 + rhs**2)",
        Shown("[5, 9]", "12", "[13., 15.]"),
        "mx.nd._internal._hypot_scalar({}, 12)",
        _hypot,
    ),
    ("equal", "Equal", "lhs == rhs, as 0 or 1", Shown("[1, 2]", "2", "[0., 1.]"), "({} == 2)", _comparison("eq")),
    (
        "not_equal",
        "Not_Equal",
        "lhs != rhs, as 0 or 1",
        Shown("[1, 2]", "2", "[1., 0.]"),
        "({} != 2)",
        _comparison("ne"),
    ),
    ("greater", "Greater", "lhs > rhs, as 0 or 1", Shown("[2, 3]", "2", "[0., 1.]"), "({} > 2)", _comparison("gt")),
    (
        "greater_equal",
        "Greater_Equal",
        "lhs >= rhs, as 0 or 1",
        Shown("[1, 2]", "2", "[0., 1.]"),
        "({} >= 2)",
        _comparison("ge"),
    ),
    ("lesser", "Lesser", "lhs < rhs, as 0 or 1", Shown("[1, 2]", "2", "[1., 0.]"), "({} < 2)", _comparison("lt")),
    (
        "lesser_equal",
        "Lesser_Equal",
        "lhs <= rhs, as 0 or 1",
        Shown("[2, 3]", "2", "[1., 0.]"),
        "({} <= 2)",
        _comparison("le"),
    ),
    (
        "logical_and",
        "Logical_And",
        "1 if both are nonzero, else 0",
        Shown("[0, 3]", "2", "[0., 1.]"),
        "mx.nd.logical_and({}, 2)",
        _logical("and"),
    ),
    (
        "logical_or",
        "Logical_Or",
        "1 if either is nonzero, else 0",
        Shown("[0, 3]", "0", "[0., 1.]"),
        "mx.nd.logical_or({}, 0)",
        _logical("or"),
    ),
    (
        "logical_xor",
        "Logical_Xor",
        "1 if exactly one is nonzero, else 0",
        Shown("[0, 3]", "2", "[1., 0.]"),
        "mx.nd.logical_xor({}, 2)",
        _logical("xor"),
    ),
]:
    _declare_equal_shapes(f"_{_stem}", _doc, _shown, _function, (f"_{_camel}",))
    _declare_broadcast(f"broadcast_{_stem}", _doc, _shown, _function)
    if _stem != "power":
        _call = _beside.format(on(_shown.x))
        _declare_scalar(
            f"_{_stem}_scalar",
            _doc.replace("lhs", "x").replace("rhs", "s"),
            _call,
            _shown.y,
            _function,
            f"_{_camel.replace('_', '')}Scalar",
        )


@operator("_power_scalar", aliases=("_PowerScalar",), attrs=_SCALAR, same_shape=True)
def power_scalar(b: Emitter, data: Any, *, scalar: float, is_int: bool) -> Any:
    """x**s, where s is a number

    Shapes: data (any) -> the same

    >>> (mx.nd.array([1, 2, 3]) ** 3).asnumpy()
    array([ 1.,  8., 27.], dtype=float32)
    """
    data = beside_scalar(b, data, is_int)
    if scalar == 2:
        return data * data
    return b.pow(data, constant_scalar(b, scalar, dtype_of(data)))


@operator(
    "add_n",
    aliases=("ElementWiseSum",),
    variadic=True,
    attrs={"num_args": counted(doc="how many inputs there are")},
    same_shape=True,
)
def add_n(b: Emitter, *args: Any, num_args: int) -> Any:
    """Sum of all inputs, which have one shape and element type

    Shapes: any number of arrays of one shape -> that shape

    >>> mx.nd.add_n(mx.nd.array([1, 2]), mx.nd.array([10, 20]), mx.nd.array([100, 200])).asnumpy()
    array([111., 222.], dtype=float32)
    """
    require_same_dtype(*args)
    require_same_shape(*args)
    require_numeric("add_n", args[0])
    total = args[0]
    for x in args[1:]:
        total = total + x
    return total
