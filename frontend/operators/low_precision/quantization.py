"""Conversion between float32 and 8-bit integers: `quantize`, `dequantize`, `requantize`.

A quantized tensor comes with two tensors of shape (1,), the minimum and maximum value that its integers represent. The
scale depends only on the larger absolute value of the two, the *range*: it corresponds to 127.5 in int8, 255.5 in uint8
and 2**31 - 1 in int32 (127 and 255 in `quantize` and `requantize`, whose kernels are older). So 0 is always the integer
0, and a uint8 tensor holds no negative values, even if its minimum is negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, I8, I32, U8, DType, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.attributes import enum, number, optional
from gluonjit.operators.movement.creation import filled
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import require_shape, scalar, type_name

SPANS = {I8: 127.5, U8: 255.5, I32: 2147483647.0}
"""The number that the range corresponds to, by element type."""
_OLD_SPANS = {I8: 127.0, U8: 255.0}

_OUT_TYPE = enum(("auto", "int8", "uint8"), "int8", doc="auto: uint8 if calibration found no negative values")
CALIBRATION = {
    "min_calib_range": optional(number(doc="least value, found by calibration"), None),
    "max_calib_range": optional(number(doc="largest value, found by calibration"), None),
}
_INTEGERS = {"int8": I8, "uint8": U8}

Triple = tuple[Any, Any, Any]
"""Integers, minimum, maximum."""


def require_type(x: Any, what: str, *allowed: DType) -> DType:
    dtype = dtype_of(x)
    if dtype not in allowed:
        raise OperatorError(f"{what} must be {' or '.join(map(type_name, allowed))}, got {type_name(dtype)}")
    return dtype


def require_range(*ends: Any) -> None:
    """Minimum and maximum must be float32 of shape (1,)."""
    for x in ends:
        require_type(x, "the minimum or maximum of quantized data", F32)
        require_shape(x, (1,), "minimum or maximum")


def range_of(b: Emitter, least: Any, most: Any) -> Any:
    """The larger absolute value."""
    return b.maximum(abs(least), abs(most))


def to_integers(b: Emitter, x: Any, scale: Any, dtype: DType) -> Any:
    """x times a scale, rounded to the nearest integer (halves to even) and saturated."""
    return b.cast(b.rint(x * scale), dtype=dtype)


def calibrated(attrs: Mapping[str, Any]) -> tuple[float, float] | None:
    least, most = attrs["min_calib_range"], attrs["max_calib_range"]
    return None if least is None or most is None else (least, most)


def _chosen(out_type: str, known: tuple[float, float] | None) -> DType:
    if out_type == "auto":
        return U8 if known is not None and known[0] >= 0 else I8
    return _INTEGERS[out_type]


def _ends(b: Emitter, least: Any, most: Any, dtype: DType) -> tuple[Any, Any]:
    """The minimum and maximum of a quantized result: symmetric for int8."""
    if dtype is U8:
        return least, most
    reach = range_of(b, least, most)
    return -reach, reach


def _quantized(b: Emitter, data: Any, least: Any, most: Any, dtype: DType, span: float) -> Triple:
    scale = scalar(b, span, F32) / range_of(b, least, most)
    return (to_integers(b, data, scale, dtype), *_ends(b, least, most, dtype))


def _extremes(b: Emitter, x: Any) -> tuple[Any, Any]:
    axes = tuple(range(len(x.shape)))
    least, most = (b.reshape(b.reduce(x, op=op, axes=axes), shape=(1,)) for op in ("min", "max"))
    return least, most


def _constants(b: Emitter, ends: tuple[float, float]) -> tuple[Any, Any]:
    return filled(b, ends[0], (1,), F32), filled(b, ends[1], (1,), F32)


@operator(
    "_contrib_quantize",
    inputs=("data", "min_range", "max_range"),
    attrs={"out_type": enum(("int8", "uint8"), "uint8", doc="the element type of the result")},
    outputs=lambda attrs: ("output0", "output1", "output2"),
    gradient=gradients.zero,
)
def quantize(b: Emitter, data: Any, min_range: Any, max_range: Any, *, out_type: str) -> Any:
    """Quantizes float32 data with the given range; also returns the range

    Shapes: data (any), min_range and max_range (1,) -> data's shape, (1,), (1,)

    x span / max(|min|, |max|), rounded and saturated, where span is 127 for int8 and 255 for uint8. 0 is always the
    integer 0. MXNetError for data that are not float32.

    >>> low, high = mx.nd.array([-1]), mx.nd.array([1])
    >>> mx.nd.contrib.quantize(mx.nd.array([-1, 0, 1]), low, high, out_type="int8")[0].asnumpy()
    array([-127,    0,  127], dtype=int8)
    """
    require_type(data, "the data of quantize", F32)
    require_range(min_range, max_range)
    dtype = _INTEGERS[out_type]
    return _quantized(b, data, min_range, max_range, dtype, _OLD_SPANS[dtype])


@operator(
    "_contrib_quantize_v2",
    attrs={"out_type": _OUT_TYPE, **CALIBRATION},
    outputs=lambda attrs: ("output0", "output1", "output2"),
    gradient=gradients.zero,
)
def quantize_v2(b: Emitter, data: Any, *, out_type: str, **calibration: Any) -> Any:
    """Quantizes float32 data with the range found by calibration or else of the data; also returns the range

    Shapes: data (any) -> data's shape, (1,), (1,)

    Integer data are returned unchanged.

    x span / max(|min|, |max|), rounded and saturated, where span is 127.5 for int8 and 255.5 for uint8. MXNetError for
    data of other types.

    >>> y, low, high = mx.nd.contrib.quantize_v2(mx.nd.array([-1, 0, 1]), out_type="int8")
    >>> y.asnumpy(), low.asnumpy(), high.asnumpy()
    (array([-128,    0,  127], dtype=int8), array([-1.], dtype=float32), array([1.], dtype=float32))
    """
    own = require_type(data, "the data of quantize_v2", F32, I8, U8)
    known = calibrated(calibration)
    dtype = _chosen(out_type, known)
    if own is not F32:
        if own is not dtype:
            raise OperatorError(f"quantize_v2 cannot make {type_name(dtype)} of {type_name(own)}")
        return (data, *_constants(b, known or (0.0 if own is U8 else -SPANS[own], SPANS[own])))
    ends = _extremes(b, data) if known is None else _constants(b, known)
    return _quantized(b, data, *ends, dtype, SPANS[dtype])


@operator(
    "_contrib_quantize_asym",
    attrs=dict(CALIBRATION),
    outputs=lambda attrs: ("output0", "output1", "output2"),
    gradient=gradients.zero,
)
def quantize_asym(b: Emitter, data: Any, *, min_calib_range: float | None, max_calib_range: float | None) -> Any:
    """Quantizes float32 data to uint8 so that their minimum becomes 0 and their maximum 255; also scale and shift

    Shapes: data (any) -> data's shape, (1,), (1,)

    x scale + shift, rounded and saturated, where scale is 255 / (maximum − minimum) and shift is 255 − maximum · scale.
    MXNetError for data that are not float32.

    >>> y, scale, shift = mx.nd.contrib.quantize_asym(mx.nd.array([0, 1, 3]))
    >>> y.asnumpy(), scale.asnumpy(), shift.asnumpy()
    (array([  0,  85, 255], dtype=uint8), array([85.], dtype=float32), array([0.], dtype=float32))
    """
    require_type(data, "the data of quantize_asym", F32)
    known = calibrated({"min_calib_range": min_calib_range, "max_calib_range": max_calib_range})
    least, most = _extremes(b, data) if known is None else _constants(b, known)
    span = b.constant(255, F32)
    scale = span / (most - least)
    shift = span - most * scale
    raised = data * scale + (shift + 0.5)
    return b.cast(b.minimum(b.maximum(b.floor(raised), b.constant(0, F32)), span), dtype=U8), scale, shift


@operator(
    "_contrib_dequantize",
    inputs=("data", "min_range", "max_range"),
    attrs={"out_type": enum(("float32",), "float32", doc="the element type of the result")},
    gradient=gradients.zero,
)
def dequantize(b: Emitter, data: Any, min_range: Any, max_range: Any, *, out_type: str) -> Any:
    """Converts quantized integers to the float32 values that they represent

    Shapes: data (any), min_range and max_range (1,) -> data's shape

    data max(|min|, |max|) / span, where span is 127.5 for int8 and 255.5 for uint8.

    >>> low, high = mx.nd.array([-127.5]), mx.nd.array([127.5])
    >>> mx.nd.contrib.dequantize(mx.nd.array([-127, 0, 64], dtype="int8"), low, high).asnumpy()
    array([-127.,    0.,   64.], dtype=float32)
    """
    dtype = require_type(data, "the data of dequantize", I8, U8)
    require_range(min_range, max_range)
    step = range_of(b, min_range, max_range) / scalar(b, SPANS[dtype], F32)
    return b.cast(data, dtype=F32) * step


@operator(
    "_contrib_requantize",
    inputs=("data", "min_range", "max_range"),
    attrs={"out_type": _OUT_TYPE, **CALIBRATION},
    outputs=lambda attrs: ("output0", "output1", "output2"),
    gradient=gradients.zero,
)
def requantize(b: Emitter, data: Any, min_range: Any, max_range: Any, *, out_type: str, **calibration: Any) -> Any:
    """Rescales int32 to 8-bit integers with the range of calibration or of the data, and returns the range

    Shapes: data (any), min_range and max_range (1,) -> data's shape, (1,), (1,)

    In int32, 2³¹ - 1 stands for max(|min|, |max|); in the result, 127 (int8) or 255 (uint8) stands for the largest
    absolute value.

    >>> data, bound = mx.nd.array([2**30, 2**29], dtype="int32"), mx.nd.array([2])
    >>> y, low, high = mx.nd.contrib.requantize(data, -bound, bound)
    >>> y.asnumpy(), high.asnumpy().round(3)
    (array([127,  64], dtype=int8), array([1.], dtype=float32))
    """
    require_type(data, "the data of requantize", I32)
    require_range(min_range, max_range)
    known = calibrated(calibration)
    dtype = _chosen(out_type, known)
    step = range_of(b, min_range, max_range) / scalar(b, SPANS[I32], F32)
    x = b.cast(data, dtype=F32)
    if known is not None:
        least, most = _constants(b, known)
    else:
        reach = range_of(b, *_extremes(b, x)) * step
        least, most = -reach, reach
    scale = step * scalar(b, _OLD_SPANS[dtype], F32) / range_of(b, least, most)
    if dtype is U8:  # no negative values, so the minimum is 0
        return to_integers(b, x, scale, dtype), filled(b, 0, (1,), F32), range_of(b, least, most)
    return (to_integers(b, x, scale, dtype), *_ends(b, least, most, dtype))
