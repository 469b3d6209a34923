"""ONNX's elementwise operators, comparisons and casts."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from gluonjit.files.type_flags import TYPE_FLAGS
from gluonjit.onnx.importing.importer import Importer, Untranslated, Val, translation
from gluonjit.onnx.importing.onnx_files import Call, element_type

_SAME = {
    "Abs": "abs",
    "Acos": "arccos",
    "Acosh": "arccosh",
    "Asin": "arcsin",
    "Asinh": "arcsinh",
    "Atan": "arctan",
    "Atanh": "arctanh",
    "BitwiseNot": "_npi_bitwise_not",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "_npi_isnan",
    "Log": "log",
    "Neg": "negative",
    "Not": "_npi_logical_not",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "_npi_around",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}


@translation(*_SAME)
def _same(g: Importer, call: Call, x: Val) -> Val:
    return g.op(_SAME[call.op], x)


@translation("Identity", "Dropout")
def _identity(g: Importer, call: Call, x: Val, *more: Any) -> Any:
    if call.op == "Dropout" and len([name for name in call.outputs if name]) > 1:
        return [x, g.op("_npi_equal", g.op("zeros_like", x), g.op("zeros_like", x))]
    if call.op == "Dropout" and len(more) > 1 and more[1] is not None and g.known(more[1], "training_mode").any():
        raise Untranslated("in training")
    return x


_BINARY = {
    # name: operator of two tensors, of a tensor and a number, and of a number and a tensor
    "Add": ("broadcast_add", "_plus_scalar", "_plus_scalar"),
    "Sub": ("broadcast_sub", "_minus_scalar", "_rminus_scalar"),
    "Mul": ("broadcast_mul", "_mul_scalar", "_mul_scalar"),
    "Div": ("broadcast_div", "_div_scalar", "_rdiv_scalar"),
    "Pow": ("broadcast_power", "_power_scalar", "_rpower_scalar"),
    "Max": ("broadcast_maximum", "_maximum_scalar", "_maximum_scalar"),
    "Min": ("broadcast_minimum", "_minimum_scalar", "_minimum_scalar"),
}


def binary(g: Importer, op: str, x: Val, y: Val) -> Val:
    """Numbers become attributes: they take no parameter, and any engine can fold them."""
    both, right, left = _BINARY[op]
    for a, b, name in ((x, y, right), (y, x, left)):
        if a.floats and b.array is not None and b.array.size == 1 and b.rank <= a.rank and b.type.dtype is a.type.dtype:
            value = float(b.array.reshape(()))
            # Numbers are multiplied with the reciprocal, which is another division where it is rounded.
            if math.isfinite(value) and (name != "_div_scalar" or math.frexp(value)[0] == 0.5):
                return g.op(name, a, scalar=value)
    return g.op(both, x, y)


@translation("Add", "Sub", "Mul")
def _binary(g: Importer, call: Call, x: Val, y: Val) -> Val:
    return binary(g, call.op, x, y)


@translation("Div")
def _div(g: Importer, call: Call, x: Val, y: Val) -> Val:
    """The quotient; that of integers rounds toward 0."""
    if x.floats:
        return binary(g, "Div", x, y)
    size = truncated_quotient(g, x, y)
    return size


def truncated_quotient(g: Importer, x: Val, y: Val) -> Val:
    sign = g.op("broadcast_mul", g.op("sign", x), g.op("sign", y))
    a, b = g.op("abs", x), g.op("abs", y)
    whole = g.op("broadcast_sub", a, g.op("broadcast_mod", a, b))
    return g.op("broadcast_mul", sign, g.op("broadcast_div", whole, b))


@translation("Pow")
def _pow(g: Importer, call: Call, x: Val, y: Val) -> Val:
    if x.type.dtype is y.type.dtype:
        return binary(g, "Pow", x, y)
    if x.floats:
        return binary(g, "Pow", x, cast(g, y, x.dtype))
    wide = np.dtype(np.float64)
    return cast(g, g.op("broadcast_power", cast(g, x, wide), cast(g, y, wide)), x.dtype)


@translation("Max", "Min")
def _extreme(g: Importer, call: Call, *xs: Val) -> Val:
    return reduce(lambda a, b: binary(g, call.op, a, b), xs)


@translation("Sum", "Mean")
def _sum(g: Importer, call: Call, *xs: Val) -> Val:
    total = reduce(lambda a, b: binary(g, "Add", a, b), xs)
    return total if call.op == "Sum" or len(xs) == 1 else g.op("_div_scalar", total, scalar=float(len(xs)))


@translation("Mod")
def _mod(g: Importer, call: Call, x: Val, y: Val) -> Val:
    if not call.get("fmod", 0):
        return g.op("broadcast_mod", x, y)
    rest = g.op("broadcast_mod", g.op("abs", x), g.op("abs", y))  # with the sign of x
    return g.op("broadcast_mul", g.op("sign", x), rest)


_LOGIC = {
    "And": "_npi_bitwise_and",
    "Or": "_npi_bitwise_or",
    "Xor": "_npi_bitwise_xor",
    "BitwiseAnd": "_npi_bitwise_and",
    "BitwiseOr": "_npi_bitwise_or",
    "BitwiseXor": "_npi_bitwise_xor",
    "Equal": "_npi_equal",
    "Greater": "_npi_greater",
    "GreaterOrEqual": "_npi_greater_equal",
    "Less": "_npi_less",
    "LessOrEqual": "_npi_less_equal",
}


@translation(*_LOGIC)
def _logic(g: Importer, call: Call, x: Val, y: Val) -> Val:
    return g.op(_LOGIC[call.op], x, y)


@translation("BitShift")
def _shift(g: Importer, call: Call, x: Val, y: Val) -> Val:
    factor = g.op("broadcast_power", g.constant(np.array(2, x.dtype)), y)
    return g.op("broadcast_mul" if call.get("direction") == "LEFT" else "broadcast_div", x, factor)


@translation("IsInf")
def _is_infinite(g: Importer, call: Call, x: Val) -> Val:
    below, above = call.get("detect_negative", 1), call.get("detect_positive", 1)
    if below and above:
        return g.op("_npi_isinf", x)
    if below or above:
        return g.op("_npi_isposinf" if above else "_npi_isneginf", x)
    return g.op("_npi_not_equal", g.op("zeros_like", x), g.op("zeros_like", x))


@translation("Where")
def _where(g: Importer, call: Call, condition: Val, x: Val, y: Val) -> Val:
    return g.op("_npi_where", condition, x, y)


@translation("Cast", "CastLike")
def _cast(g: Importer, call: Call, x: Val, like: Val | None = None) -> Val:
    to = like.dtype if like is not None else element_type(call.attrs["to"], f"what {call.name or 'Cast'} makes")
    if x.floats and to == np.bool_:
        return g.op("_npi_not_equal", x, g.op("zeros_like", x))
    return cast(g, x, to)


def cast(g: Importer, x: Val, dtype: Any) -> Val:
    dtype = np.dtype(dtype)
    if x.dtype == dtype:
        return x
    if dtype.name not in TYPE_FLAGS:
        raise Untranslated(f"to {dtype.name}")
    if x.array is not None and x.array.size <= 1 << 20:
        with np.errstate(all="ignore"):
            return g.constant(x.array.astype(dtype))
    if dtype == np.bool_:
        return g.op("_npi_not_equal", x, g.op("zeros_like", x))
    return g.op("Cast", x, dtype=dtype.name)


@translation("Clip")
def _clip(g: Importer, call: Call, x: Val, low: Val | None = None, high: Val | None = None) -> Val:
    ends = []
    for end, name in ((low, "min"), (high, "max")):
        if end is None and name in call.attrs:
            end = g.constant(np.array(call.attrs[name], x.dtype))
        ends.append(end)
    low, high = ends
    numbers: list[Any] = [None if end is None or end.array is None else float(end.array.reshape(())) for end in ends]
    if x.floats and None not in numbers and numbers[0] <= numbers[1] and all(map(math.isfinite, numbers)):
        return g.op("clip", x, a_min=numbers[0], a_max=numbers[1])
    if low is not None:
        x = binary(g, "Max", x, low)
    return x if high is None else binary(g, "Min", x, high)


# Activations


@translation("LeakyRelu")
def _leaky(g: Importer, call: Call, x: Val) -> Val:
    return g.op("LeakyReLU", x, act_type="leaky", slope=call.get("alpha", 0.01))


@translation("Elu")
def _elu(g: Importer, call: Call, x: Val) -> Val:
    return g.op("LeakyReLU", x, act_type="elu", slope=call.get("alpha", 1.0))


@translation("Selu")
def _selu(g: Importer, call: Call, x: Val) -> Val:
    alpha, gamma = call.get("alpha", 1.6732632423543772), call.get("gamma", 1.0507009873554805)
    if abs(alpha - 1.6732632) < 1e-5 and abs(gamma - 1.0507010) < 1e-5:
        return g.op("LeakyReLU", x, act_type="selu")
    return g.op("_mul_scalar", g.op("LeakyReLU", x, act_type="elu", slope=alpha), scalar=gamma)


@translation("Gelu")
def _gelu(g: Importer, call: Call, x: Val) -> Val | None:
    return g.op("LeakyReLU", x, act_type="gelu") if call.get("approximate", "none") == "none" else None


@translation("Softplus")
def _softplus(g: Importer, call: Call, x: Val) -> Val:
    return g.op("Activation", x, act_type="softrelu")


@translation("Mish")
def _mish(g: Importer, call: Call, x: Val) -> Val:
    return g.op("broadcast_mul", x, g.op("tanh", g.op("Activation", x, act_type="softrelu")))


@translation("HardSigmoid")
def _hard_sigmoid(g: Importer, call: Call, x: Val) -> Val:
    return g.op("hard_sigmoid", x, alpha=call.get("alpha", 0.2), beta=call.get("beta", 0.5))


@translation("HardSwish")
def _hard_swish(g: Importer, call: Call, x: Val) -> Val:
    return g.op("broadcast_mul", x, g.op("hard_sigmoid", x, alpha=1 / 6, beta=0.5))


@translation("PRelu")
def _prelu(g: Importer, call: Call, x: Val, slope: Val) -> Val:
    channels = x.shape[1] if x.rank > 1 else None
    if slope.array is not None and slope.floats and slope.array.size == channels and slope.rank == x.rank - 1:
        if slope.shape[0] == channels:
            gamma = g.constant(slope.array.reshape(-1), slope.name)
            return g.op("LeakyReLU", x, gamma, act_type="prelu")
    below = g.op("_npi_less", x, g.op("zeros_like", x))
    return g.op("_npi_where", below, g.op("broadcast_mul", x, slope), x)


@translation("ThresholdedRelu")
def _thresholded(g: Importer, call: Call, x: Val) -> Val:
    above = g.op("_npi_greater_scalar", x, scalar=call.get("alpha", 1.0))
    return g.op("_npi_where", above, x, g.op("zeros_like", x))


@translation("Shrink")
def _shrink(g: Importer, call: Call, x: Val) -> Val:
    bias, limit = call.get("bias", 0.0), call.get("lambd", 0.5)
    zero = g.op("zeros_like", x)
    low = g.op("_npi_where", g.op("_npi_less_scalar", x, scalar=-limit), g.op("_plus_scalar", x, scalar=bias), zero)
    above = g.op("_npi_greater_scalar", x, scalar=limit)
    return g.op("_npi_where", above, g.op("_minus_scalar", x, scalar=bias), low)
