"""Arithmetic and other operators of `mx.np`: element types are promoted, and tensors may have rank 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import BOOL, F32, I32, I64, DType, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.attributes import boolean, dtype, number, optional, shape, string
from gluonjit.operators.documentation import ELEMENTWISE, documented, example
from gluonjit.operators.pointwise.binary import NUMBER, beside_scalar, modulo
from gluonjit.operators.reductions.reduction import reduced_axes
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import convert, fractional, narrowed, require_numeric, shape_text, widened
from gluonjit.operators.support import mean as mean_over
from gluonjit.operators.support import scalar as constant_scalar

Function = Callable[[Emitter, Any, Any], Any]


# Two tensors


def _promoted(x: DType, y: DType) -> DType:
    """The promoted type: a float before an integer, then the one of more bits; int32 for int8 and uint8."""
    if x is y:
        return x
    if x.is_float != y.is_float:
        return x if x.is_float else y
    if BOOL in (x, y):
        return y if x is BOOL else x
    if x.bits == y.bits:
        return I32
    return x if x.bits > y.bits else y


def _declare(name: str, doc: str, y: str, function: Function, divides: bool = False) -> None:
    """Declares `_npi_<name>` of two tensors. `y`: the result for 5, 6 and 2. `divides`: integers are converted to
    float32."""

    def expand(b: Emitter, lhs: Any, rhs: Any) -> Any:
        found = _promoted(dtype_of(lhs), dtype_of(rhs))
        if found is BOOL and name in ("subtract", "mod"):
            raise OperatorError(f"Operator _npi_{name} does not support boolean type; cast it first")
        if divides and not found.is_float:
            found = F32
        own = I32 if found is BOOL else found
        y = function(b, narrowed(b, lhs, own), narrowed(b, rhs, own))
        return narrowed(b, y, found)

    promoted = "A float type wins over an integer type, then the wider one. Integers give float32."
    expand.__doc__ = documented(
        f"{doc}, with broadcasting",
        "lhs and rhs (any, broadcast against each other) -> the broadcast shape",
        promoted if divides else promoted.partition(" Integers")[0],
        ">>> lhs, rhs = mx.np.array([5, 6]), mx.np.array([2])\n" + example(f"mx.np.{name}(lhs, rhs)", y),
    )

    operator(f"_npi_{name}", inputs=("lhs", "rhs"))(expand)


def _declare_scalar(
    name: str, doc: str, call: str, y: str, function: Function, divides: bool = False, reverse: bool = False
) -> None:
    """Declares `_npi_<name>_scalar` of a tensor and a number, which is the left operand if `reverse`. `call`, `y`: an
    example."""

    def expand(b: Emitter, data: Any, *, scalar: float, is_int: bool) -> Any:
        if divides:
            data = fractional(b, data)
        else:
            data = beside_scalar(b, data, is_int)
        value = constant_scalar(b, scalar, dtype_of(data))
        return function(b, value, data) if reverse else function(b, data, value)

    note = "Integers become float32." if divides else NUMBER
    expand.__doc__ = documented(doc, ELEMENTWISE, note, example(call, y))

    attrs = {"scalar": number(1.0, doc="the number"), "is_int": boolean(True, doc="whether the number is whole")}
    free = "" if "power" in name else "scalar"
    operator(f"_npi_{name}_scalar", attrs=attrs, same_shape=True, number=free)(expand)


_X = "mx.np.array([5, 6])"
for _name, _doc, _sign, _y, _reversed, _function in [
    ("add", "lhs + rhs", "+", "[7., 8.]", "", lambda b, x, y: x + y),
    ("subtract", "lhs - rhs", "-", "[3., 4.]", "[-3., -4.]", lambda b, x, y: x - y),
    ("multiply", "lhs * rhs", "*", "[10., 12.]", "", lambda b, x, y: x * y),
    ("true_divide", "lhs / rhs", "/", "[2.5, 3. ]", "[0.4  , 0.333]", lambda b, x, y: x / y),
    ("power", "lhs**rhs", "**", "[25., 36.]", "[32., 64.]", lambda b, x, y: b.pow(x, y)),
    ("mod", "lhs modulo rhs, with rhs's sign; 0 where rhs is 0", "%", "[1., 0.]", "[2., 2.]", modulo),
]:
    _divides = _name == "true_divide"
    _declare(_name, _doc, _y, _function, _divides)
    _of_number = _doc.replace("lhs", "x").replace("rhs", "s")
    _declare_scalar(_name, _of_number, f"({_X} {_sign} 2)", _y, _function, _divides)
    if _reversed:
        _of_number = _doc.replace("lhs", "s").replace("rhs", "x")
        _declare_scalar(f"r{_name}", _of_number, f"(2 {_sign} {_X})", _reversed, _function, _divides, reverse=True)


# One tensor


@operator("_npx_relu", same_shape=True, gradient=gradients.relu)
def relu(b: Emitter, data: Any) -> Any:
    """max(x, 0); keeps NaN

    Shapes: data (any) -> the same

    >>> mx.npx.relu(mx.np.array([-1, 2])).asnumpy()
    array([0., 2.], dtype=float32)
    """
    return b.maximum(data, b.constant(0, require_numeric("_npx_relu", data)))


@operator("_npx_sigmoid", same_shape=True)
def sigmoid(b: Emitter, data: Any) -> Any:
    """1 / (1 + exp(-x))

    Shapes: data (any) -> the same

    >>> mx.npx.sigmoid(mx.np.array([0, 2])).asnumpy().round(3)
    array([0.5  , 0.881], dtype=float32)
    """
    own = require_numeric("_npx_sigmoid", data)
    return convert(b, b.sigmoid(fractional(b, data)), own)


@operator("_np_copy", inputs=("a",), same_shape=True)
def copy(b: Emitter, a: Any) -> Any:
    """Returns the input

    Shapes: a (any) -> the same

    >>> mx.np.copy(mx.np.array([1, 2])).asnumpy()
    array([1., 2.], dtype=float32)
    """
    return a


@operator(
    "_np_reshape",
    inputs=("a",),
    attrs={
        "newshape": shape(doc="the shape of the result; -1 is inferred"),
        "order": string("C", doc="has no effect: always C"),
    },
)
def reshape(b: Emitter, a: Any, *, newshape: Shape, order: str) -> Any:
    """Changes the shape; a dimension of -1 is inferred from the number of elements

    Shapes: a (any) -> `newshape`, of as many elements

    MXNetError if the number of elements would change.

    >>> mx.np.reshape(mx.np.array([1, 2, 3, 4]), (2, -1)).asnumpy()
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    old, new = tuple(a.shape), tuple(newshape)
    size = math.prod(old)
    if any(n < -1 for n in new) or new.count(-1) > 1:
        raise OperatorError(f"The shape dimension size to inferred must be -1, and one alone: {new}")
    known = math.prod(n for n in new if n != -1)
    if size != known and (-1 not in new or not known or size % known) or -1 in new and not known:
        raise OperatorError(f"Cannot reshape array of size {size} into shape {shape_text(new)}")
    return b.reshape(a, shape=tuple(size // known if n == -1 else n for n in new))


_REDUCTION = {
    "axis": optional(shape(doc="axes to reduce; None: all")),
    "dtype": optional(
        dtype(
            among=("bool", "float16", "float32", "float64", "int32", "int64", "int8"),
            doc="the element type of the result; None: the data's",
        )
    ),
    "keepdims": boolean(False, doc="whether reduced axes stay, with length 1"),
    "initial": optional(number(doc="must be None"), None),
}


def _reduced(
    b: Emitter,
    a: Any,
    axis: Shape | None,
    keepdims: bool,
    initial: float | None,
    function: Callable[[tuple[int, ...]], Any],
) -> tuple[Any, int]:
    """`function` of the axes of `a` that are reduced, and the number of elements in each result. () reduces no axes."""
    if initial is not None:
        raise OperatorError("initial is not supported yet")
    old = tuple(a.shape)
    gone = () if axis == () else reduced_axes(old, axis)
    y = function(gone) if gone else a
    if keepdims:
        y = b.reshape(y, shape=tuple(1 if k in gone else n for k, n in enumerate(old)))
    return y, math.prod(old[k] for k in gone)


def _accumulated(b: Emitter, a: Any, own: DType) -> Any:
    """Converts `a` to the type to sum in for a result of type `own`: `own`, unless a float would lose digits."""
    found = dtype_of(a)
    wider = found.is_float and (not own.is_float or found.bits > own.bits)
    return a if found is own or wider else convert(b, a, own)


@operator("_np_sum", inputs=("a",), attrs=_REDUCTION)
def total(b: Emitter, a: Any, *, axis: Shape | None, dtype: DType | None, keepdims: bool, initial: float | None) -> Any:
    """The sum over axes; bool counts as int64

    Shapes: a (any) -> a's without the reduced axes

    >>> mx.np.sum(mx.np.array([[1, 2], [3, 4]]), axis=1).asnumpy()
    array([3., 7.], dtype=float32)
    """
    own = dtype or (I64 if dtype_of(a) is BOOL else dtype_of(a))
    x = _accumulated(b, a, own)
    y, _ = _reduced(b, x, axis, keepdims, initial, lambda gone: b.reduce(x, op="sum", axes=gone))
    return y if dtype_of(y) is own else convert(b, y, own)


@operator("_npi_mean", inputs=("a",), attrs=_REDUCTION)
def mean(b: Emitter, a: Any, *, axis: Shape | None, dtype: DType | None, keepdims: bool, initial: float | None) -> Any:
    """The mean over axes; 0 for no elements, and float32 for integers

    Shapes: a (any) -> a's without the reduced axes

    >>> mx.np.mean(mx.np.array([[1, 2], [3, 4]]), axis=1).asnumpy()
    array([1.5, 3.5], dtype=float32)
    """
    own = dtype or (dtype_of(a) if dtype_of(a).is_float else F32)
    x = widened(b, _accumulated(b, a, own))
    y, count = _reduced(b, x, axis, keepdims, initial, lambda gone: mean_over(b, x, gone))
    if count == 0:
        y = b.broadcast(b.constant(0, dtype_of(y)), shape=tuple(y.shape))
    return y if dtype_of(y) is own else convert(b, y, own)
