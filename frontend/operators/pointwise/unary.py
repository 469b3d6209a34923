"""Elementwise functions of one tensor: rounding, exponentials, trigonometry, special functions.

Integers are converted to float32 and the result is truncated toward 0, unless the function is defined on integers. bool
is refused, as in MXNet. NaN is kept except by `sign` and `logical_not`, which compare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F64, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.attributes import number
from gluonjit.operators.documentation import ELEMENTWISE, documented, example, on
from gluonjit.operators.registry import operator
from gluonjit.operators.support import convert, fractional, require_float, require_numeric
from gluonjit.operators.vision.boxes import both

Function = Callable[[Emitter, Any], Any]


def _declare(
    name: str,
    doc: str,
    x: str,
    y: str,
    function: Function,
    *,
    integers: bool = False,
    aliases: Sequence[str] = (),
    gradient: Callable[..., Any] | None = None,
) -> None:
    """`x`, `y`: an example; `integers`: the function applies to integers without conversion."""

    def expand(b: Emitter, data: Any) -> Any:
        dtype = require_numeric(name, data)
        if integers or dtype.is_float:
            return function(b, data)
        return convert(b, function(b, fractional(b, data)), dtype)

    public = name.replace("_contrib_", "contrib.")
    computed = "" if integers else "Integers are computed as float32, and the result is truncated toward 0. "
    call = example(f"mx.nd.{public}({on(x)})", y)
    expand.__doc__ = documented(doc, ELEMENTWISE, f"{computed}MXNetError for bool.", call)
    operator(name, aliases=aliases, same_shape=True, gradient=gradient)(expand)


def _one(b: Emitter, like: Any) -> Any:
    return b.constant(1, dtype_of(like))


def _zero(b: Emitter, like: Any) -> Any:
    return b.constant(0, dtype_of(like))


def _sign(b: Emitter, x: Any) -> Any:
    if not dtype_of(x).is_float:
        return b.sign(x)
    zero, dtype = _zero(b, x), dtype_of(x)
    return b.cast(x > zero, dtype=dtype) - b.cast(x < zero, dtype=dtype)  # NaN is neither: 0


def _rint(b: Emitter, x: Any) -> Any:
    if not dtype_of(x).is_float:
        return x
    below = b.floor(x)
    return b.select(x - below <= 0.5, below, b.ceil(x))


def _gamma(b: Emitter, x: Any) -> Any:
    """exp(log|gamma|) with the sign of gamma, in float64 since exp multiplies the error of its large argument."""
    wide = b.cast(x, dtype=F64)
    zero, one, two = (b.constant(v, F64) for v in (0, 1, 2))
    magnitude = b.exp(b.lgamma(wide))
    # Below 0 the sign alternates between the poles at the whole numbers.
    whole = b.floor(wide)
    sign = one - two * b.mod(whole, two)
    value = b.select(wide < zero, sign * magnitude, magnitude)
    pole = b.select(b.eq(wide, zero), one / wide, b.constant(math.nan, F64))
    return b.cast(b.select(b.eq(whole, wide) & (wide <= zero), pole, value), dtype=dtype_of(x))


def _times(factor: float) -> Function:
    return lambda b, x: x * factor


# Functions that are defined on integers, too
_declare("abs", "|x|", "[-2, 3]", "[2., 3.]", lambda b, x: abs(x), integers=True)
_declare("sign", "-1, 0 or 1; 0 for NaN", "[-2, 0, 3]", "[-1.,  0.,  1.]", _sign, integers=True)
_declare("negative", "-x", "[-2, 3]", "[ 2., -3.]", lambda b, x: -x, integers=True)
_declare("square", "x * x", "[-2, 3]", "[4., 9.]", lambda b, x: x * x, integers=True)
_declare(
    "relu",
    "max(x, 0); keeps NaN",
    "[-2, 3]",
    "[0., 3.]",
    lambda b, x: b.maximum(x, _zero(b, x)),
    integers=True,
    gradient=gradients.relu,
)
_declare(
    "_contrib_round_ste",
    "`round`, whose gradient is 1",
    "[-1.5, 1.2]",
    "[-2.,  1.]",
    lambda b, x: b.round(x),
    integers=True,
    gradient=gradients.unchanged,
)
_declare(
    "_contrib_sign_ste",
    "`sign`, whose gradient is 1",
    "[-2, 0, 3]",
    "[-1.,  0.,  1.]",
    _sign,
    integers=True,
    gradient=gradients.unchanged,
)
_declare("floor", "largest whole number <= x", "[-1.5, 1.5]", "[-2.,  1.]", lambda b, x: b.floor(x), integers=True)
_declare("ceil", "smallest whole number >= x", "[-1.5, 1.5]", "[-1.,  2.]", lambda b, x: b.ceil(x), integers=True)
_declare(
    "round",
    "nearest whole number, halves away from 0",
    "[-1.5, 1.2, 2.5]",
    "[-2.,  1.,  3.]",
    lambda b, x: b.round(x),
    integers=True,
)
_declare("rint", "nearest whole number, halves downward", "[-1.5, 1.2, 2.5]", "[-2.,  1.,  2.]", _rint, integers=True)
_declare("trunc", "x without its fraction", "[-1.5, 1.5]", "[-1.,  1.]", lambda b, x: b.trunc(x), integers=True)
_declare("fix", "nearest whole number toward 0", "[-1.5, 1.5]", "[-1.,  1.]", lambda b, x: b.trunc(x), integers=True)
_declare(
    "logical_not",
    "1 where x is 0, else 0, in x's element type",
    "[-2, 0, 3]",
    "[0., 1., 0.]",
    lambda b, x: b.cast(b.eq(x, _zero(b, x)), dtype=dtype_of(x)),
    integers=True,
)

_declare("reciprocal", "1 / x", "[2, 4]", "[0.5 , 0.25]", lambda b, x: _one(b, x) / x)
_declare("sqrt", "square root", "[4, 9]", "[2., 3.]", lambda b, x: b.sqrt(x))
_declare("rsqrt", "1 / sqrt(x)", "[4, 0.25]", "[0.5, 2. ]", lambda b, x: b.rsqrt(x))
_declare("cbrt", "cube root", "[-8, 3]", "[-2.   ,  1.442]", lambda b, x: b.cbrt(x))
_declare("rcbrt", "1 / cbrt(x)", "[-8, 3]", "[-0.5  ,  0.693]", lambda b, x: _one(b, x) / b.cbrt(x))
_declare("exp", "e**x", "[0, 1]", "[1.   , 2.718]", lambda b, x: b.exp(x))
_declare("expm1", "e**x - 1, accurate near 0", "[0, 1]", "[0.   , 1.718]", lambda b, x: b.expm1(x))
_declare("log", "natural logarithm", "[1, 2]", "[0.   , 0.693]", lambda b, x: b.log(x))
_declare("log2", "logarithm to base 2", "[8, 3]", "[3.   , 1.585]", lambda b, x: b.log2(x))
_declare("log10", "logarithm to base 10", "[100, 2]", "[2.   , 0.301]", lambda b, x: b.log10(x))
_declare("log1p", "log(1 + x), accurate near 0", "[0, 1]", "[0.   , 0.693]", lambda b, x: b.log1p(x))
_declare("sin", "sine (radians)", "[0, 1]", "[0.   , 0.841]", lambda b, x: b.sin(x))
_declare("cos", "cosine (radians)", "[0, 2]", "[ 1.   , -0.416]", lambda b, x: b.cos(x))
_declare("tan", "tangent (radians)", "[0, 1]", "[0.   , 1.557]", lambda b, x: b.tan(x))
_declare("arcsin", "inverse sine (radians)", "[0, 1]", "[0.   , 1.571]", lambda b, x: b.asin(x))
_declare("arccos", "inverse cosine (radians)", "[0, 1]", "[1.571, 0.   ]", lambda b, x: b.acos(x))
_declare("arctan", "inverse tangent (radians)", "[0, 1]", "[0.   , 0.785]", lambda b, x: b.atan(x))
_declare("sinh", "hyperbolic sine", "[0, 1]", "[0.   , 1.175]", lambda b, x: b.sinh(x))
_declare("cosh", "hyperbolic cosine", "[0, 1]", "[1.   , 1.543]", lambda b, x: b.cosh(x))
_declare("tanh", "hyperbolic tangent", "[0, 1]", "[0.   , 0.762]", lambda b, x: b.tanh(x))
_declare("arcsinh", "inverse hyperbolic sine", "[0, 1]", "[0.   , 0.881]", lambda b, x: b.asinh(x))
_declare("arccosh", "inverse hyperbolic cosine", "[1, 2]", "[0.   , 1.317]", lambda b, x: b.acosh(x))
_declare("arctanh", "inverse hyperbolic tangent", "[0, 0.5]", "[0.   , 0.549]", lambda b, x: b.atanh(x))
_declare("degrees", "radians to degrees", "[0, 1]", "[ 0.   , 57.296]", _times(180 / math.pi))
_declare("radians", "degrees to radians", "[0, 90]", "[0.   , 1.571]", _times(math.pi / 180))
_declare("sigmoid", "1 / (1 + exp(-x))", "[0, 2]", "[0.5  , 0.881]", lambda b, x: b.sigmoid(x))
_declare(
    "softsign",
    "x / (1 + |x|)",
    "[-1, 0, 3]",
    "[-0.5 ,  0.  ,  0.75]",
    lambda b, x: x / (_one(b, x) + abs(x)),
    gradient=gradients.softsign,
)
_declare("erf", "error function", "[0, 1]", "[0.   , 0.843]", lambda b, x: b.erf(x))
_declare("erfinv", "inverse of the error function on [-1, 1]", "[0, 0.5]", "[0.   , 0.477]", lambda b, x: b.erfinv(x))
_declare("gamma", "gamma function; NaN at -1, -2, …", "[5, 1.5]", "[24.   ,  0.886]", _gamma)
_declare("gammaln", "log |gamma(x)|", "[3, 5]", "[0.693, 3.178]", lambda b, x: b.lgamma(x))


def _hard_sigmoid_gradient(b: Emitter, g: Any, y: Any, x: Any, *, alpha: float, beta: float) -> tuple[Any]:
    """0 at both corners, as in MXNet."""
    zero, one, slope = (b.constant(v, dtype_of(y[0])) for v in (0, 1, alpha))
    inside = both(b, y[0] > zero, y[0] < one)
    return (b.select(inside, g[0] * slope, zero),)


@operator(
    "hard_sigmoid",
    attrs={"alpha": number(0.2, doc="the slope"), "beta": number(0.5, doc="what is added")},
    same_shape=True,
    gradient=_hard_sigmoid_gradient,
)
def hard_sigmoid(b: Emitter, data: Any, *, alpha: float, beta: float) -> Any:
    """min(max(alpha * x + beta, 0), 1)

    Shapes: data (any) -> the same

    >>> mx.nd.hard_sigmoid(mx.nd.array([-5, 0, 1, 5])).asnumpy().round(3)
    array([0. , 0.5, 0.7, 1. ], dtype=float32)
    """
    dtype = require_float(data)
    line = data * alpha + beta
    return b.minimum(b.maximum(line, b.constant(0, dtype)), b.constant(1, dtype))


@operator("_contrib_quadratic", attrs=dict.fromkeys("abc", number(0.0, doc="a factor")), same_shape=True)
def quadratic(builder: Emitter, data: Any, *, a: float, b: float, c: float) -> Any:
    """a * x**2 + b * x + c

    Shapes: data (any) -> the same

    >>> mx.nd.contrib.quadratic(mx.nd.array([1, 2]), a=1, b=10, c=100).asnumpy()
    array([111., 124.], dtype=float32)
    """
    own = require_numeric("_contrib_quadratic", data)
    x = fractional(builder, data)
    second, first, constant = (builder.constant(factor, dtype_of(x)) for factor in (a, b, c))
    y = builder.add(builder.mul(builder.add(builder.mul(second, x), first), x), constant)
    return convert(builder, y, own)


def _smooth_l1_gradient(b: Emitter, g: Any, y: Any, x: Any, *, scalar: float) -> tuple[Any] | None:
    dtype = dtype_of(x[0])
    if not dtype.is_float:
        return None
    square = scalar * scalar
    limit = b.constant(1 / square if square else math.inf, dtype)
    linear = abs(x[0]) > limit  # there the parabola may be infinite
    return (g[0] * b.select(linear, b.sign(x[0]), x[0] * square),)


@operator(
    "smooth_l1",
    aliases=("_npx_smooth_l1",),
    attrs={"scalar": number(1.0, doc="where the parabola ends: at 1 / scalar²")},
    same_shape=True,
    gradient=_smooth_l1_gradient,
)
def smooth_l1(b: Emitter, data: Any, *, scalar: float) -> Any:
    """0.5 (s x)**2 where |x| < 1 / s**2, else |x| - 0.5 / s**2

    Shapes: data (any) -> the same

    s is `scalar`. From Fast R-CNN (Girshick, 2015), where s is 1.

    >>> mx.nd.smooth_l1(mx.nd.array([-3, 0.5, 3])).asnumpy()
    array([2.5  , 0.125, 2.5  ], dtype=float32)
    """
    own = require_numeric("smooth_l1", data)
    x = fractional(b, data)
    dtype = dtype_of(x)
    scalar = scalar if own.is_float else math.trunc(scalar)
    size, square = abs(x), scalar * scalar
    linear = size - b.constant(0.5 / square if square else math.inf, dtype)
    parabola = x * x * (0.5 * square)
    limit = b.constant(1 / square if square else math.inf, dtype)
    return convert(b, b.select(size > limit, linear, parabola), own)
