"""The softmax family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, I64, DType, dtype_of
from gluonjit.operators.attributes import boolean, dtype, enum, integer, number, optional
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import axis_in, first_from_output, narrowed, parameters, require_float, type_name

_ATTRS = {
    "axis": integer(-1, doc="the axis along which the sum runs"),
    "temperature": optional(number(doc="what the data are divided by; None: 1")),
    "dtype": optional(
        dtype(among=("float16", "float32", "float64"), doc="the element type of the result; None: the data's")
    ),
    "use_length": optional(boolean(doc="whether there is an input `length`"), False),
}


def _kept(x: Any, axis: int) -> tuple[int, ...]:
    return (*x.shape[:axis], 1, *x.shape[axis + 1 :])


def _largest(b: Emitter, x: Any, axis: int) -> Any:
    return b.reshape(b.reduce(x, op="max", axes=(axis,)), shape=_kept(x, axis))


def softmax_over(b: Emitter, x: Any, axis: int) -> Any:
    """exp(x - max) divided by its sum: the largest exponent is 0, so nothing overflows."""
    e = b.exp(x - _largest(b, x, axis))
    return e / b.reshape(b.reduce(e, op="sum", axes=(axis,)), shape=_kept(x, axis))


def log_softmax_over(b: Emitter, x: Any, axis: int) -> Any:
    """x - max - log(sum(exp(x - max)))"""
    shifted = x - _largest(b, x, axis)
    total = b.reduce(b.exp(shifted), op="sum", axes=(axis,))
    return shifted - b.reshape(b.log(total), shape=_kept(x, axis))


def _prepared(b: Emitter, data: Any, temperature: float | None, dtype: DType | None) -> tuple[Any, DType]:
    """The exponents, in the wider of input and output type and at least float32; and the output type."""
    own = require_float(data)
    result = dtype or own
    wide = max((own, result, F32), key=lambda d: d.bits)
    x = data if own is wide else b.cast(data, dtype=wide)
    if temperature not in (None, 1.0):
        x = x / temperature
    return x, result


def _without_length(name: str, use_length: bool | None) -> None:
    if use_length:
        raise OperatorError(f"{name} takes no length; use softmax(data, length, use_length=True)")


def _length_shape(attrs: Mapping[str, Any], data: Shape) -> list[Shape | None]:
    if not attrs["use_length"]:
        return []
    axis = axis_in(attrs["axis"], len(data))
    return [(*data[:axis], *data[axis + 1 :])]


def _short(x: Any, dtype: DType | None = None) -> bool:
    """Whether the gradient is computed from the result alone. That of the expansion has a sum by the maximum, which is
    0, and has to know where the maximum was. Results of 16 bits are rounded, so the expansion's is closer there."""
    wide = dtype_of(x)
    return wide.is_float and wide.bits >= 32 and dtype in (None, wide)


def _by_exponents(b: Emitter, g: Any, y: Any, axis: int, temperature: float | None) -> Any:
    """(g - sum(g · y)) · y / temperature: the gradient of y = softmax(x / temperature)."""
    axis = axis_in(axis, len(y.shape), "axis")
    mean = b.reshape(b.reduce(g * y, op="sum", axes=(axis,)), shape=_kept(y, axis))
    return _tempered(b, (g - mean) * y, temperature)


def _tempered(b: Emitter, cotangent: Any, temperature: float | None) -> Any:
    return cotangent if temperature in (None, 1.0) else cotangent / temperature


def _gradient(
    b: Emitter, g: Any, y: Any, x: Any, *, axis: int, temperature: float | None, dtype: DType | None, **_other: Any
) -> tuple[Any, ...] | None:
    if not _short(x[0], dtype):
        return None
    return (_by_exponents(b, g[0], y[0], axis, temperature), *(None,) * (len(x) - 1))


def _log_gradient(
    b: Emitter, g: Any, y: Any, x: Any, *, axis: int, temperature: float | None, dtype: DType | None, **_other: Any
) -> tuple[Any] | None:
    """g - sum(g) · exp(y)"""
    if not _short(x[0], dtype):
        return None
    (y,), (g,) = y, g
    axis = axis_in(axis, len(y.shape))
    total = b.reshape(b.reduce(g, op="sum", axes=(axis,)), shape=_kept(y, axis))
    return (_tempered(b, g - b.exp(y) * total, temperature),)


def _softmin_gradient(b: Emitter, g: Any, y: Any, x: Any, **attrs: Any) -> tuple[Any] | None:
    found = _gradient(b, g, y, x, **attrs)
    return None if found is None else (-found[0],)


def _mode_axis(x: Any, mode: str) -> int:
    return axis_in(1, len(x.shape)) if mode == "channel" else len(x.shape) - 1


def _activation_gradient(b: Emitter, g: Any, y: Any, x: Any, *, mode: str) -> tuple[Any] | None:
    return (_by_exponents(b, g[0], y[0], _mode_axis(x[0], mode), None),) if _short(x[0]) else None


@operator(
    "softmax",
    gradient=_gradient,
    inputs=lambda attrs: ("data", "length") if attrs["use_length"] else ("data",),
    attrs=_ATTRS,
    complete=parameters(_length_shape),
    infer_inputs=first_from_output,
)
def softmax(
    b: Emitter,
    data: Any,
    length: Any = None,
    *,
    axis: int,
    temperature: float | None,
    dtype: DType | None,
    use_length: bool | None,
) -> Any:
    """exp(x / temperature) divided by its sum along the axis

    Shapes: data (any), length (data's without `axis`), only with `use_length` -> data's shape

    With `use_length`, only the first `length` elements along the axis count, and the others give 0. `dtype` is the type
    of the output (None: that of the input). MXNetError for data that are not floats, and a length that is not an
    integer.

    >>> mx.nd.softmax(mx.nd.array([[1, 1], [0, 1]])).asnumpy().round(3)
    array([[0.5  , 0.5  ],
           [0.269, 0.731]], dtype=float32)
    """
    x, result = _prepared(b, data, temperature, dtype)
    axis = axis_in(axis, len(x.shape), "axis")
    if length is None:
        return narrowed(b, softmax_over(b, x, axis), result)
    index = dtype_of(length)
    if not index.is_integer:
        raise OperatorError(f"This operation only support integer types, not {type_name(index)}")
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    if tuple(length.shape) != rest:
        raise OperatorError(f"Shape inconsistent, Provided = {list(length.shape)}, inferred shape={list(rest)}")
    wide = dtype_of(x)
    position = b.iota(shape=x.shape, axis=axis, dtype=I64)
    counts = position < b.reshape(b.cast(length, dtype=I64), shape=_kept(x, axis))
    y = softmax_over(b, b.select(counts, x, b.constant(float("-inf"), wide)), axis)
    return narrowed(b, b.select(counts, y, b.constant(0, wide)), result)


@operator("log_softmax", gradient=_log_gradient, attrs=_ATTRS, same_shape=True)
def log_softmax(
    b: Emitter, data: Any, *, axis: int, temperature: float | None, dtype: DType | None, use_length: bool | None
) -> Any:
    """log(softmax(x)), accurate even where softmax underflows

    Shapes: data (any) -> the same

    >>> mx.nd.log_softmax(mx.nd.array([[1, 1], [0, 1]])).asnumpy().round(3)
    array([[-0.693, -0.693],
           [-1.313, -0.313]], dtype=float32)
    """
    _without_length("log_softmax", use_length)
    x, result = _prepared(b, data, temperature, dtype)
    return narrowed(b, log_softmax_over(b, x, axis_in(axis, len(x.shape))), result)


@operator("softmin", gradient=_softmin_gradient, attrs=_ATTRS, same_shape=True)
def softmin(
    b: Emitter, data: Any, *, axis: int, temperature: float | None, dtype: DType | None, use_length: bool | None
) -> Any:
    """softmax(-x)

    Shapes: data (any) -> the same

    >>> mx.nd.softmin(mx.nd.array([[1, 1], [0, 1]])).asnumpy().round(3)
    array([[0.5  , 0.5  ],
           [0.731, 0.269]], dtype=float32)
    """
    _without_length("softmin", use_length)
    x, result = _prepared(b, data, temperature, dtype)
    return narrowed(b, softmax_over(b, -x, axis_in(axis, len(x.shape))), result)


@operator(
    "SoftmaxActivation",
    gradient=_activation_gradient,
    attrs={"mode": enum(("channel", "instance"), "instance", doc="the axis of the sum")},
    same_shape=True,
)
def softmax_activation(b: Emitter, data: Any, *, mode: str) -> Any:
    """softmax over the last axis (`instance`) or over axis 1 (`channel`)

    Shapes: data (batch, …) -> the same

    >>> mx.nd.SoftmaxActivation(mx.nd.array([[1, 1], [0, 1]])).asnumpy().round(3)
    array([[0.5  , 0.5  ],
           [0.269, 0.731]], dtype=float32)
    """
    x, result = _prepared(b, data, None, None)
    return narrowed(b, softmax_over(b, x, _mode_axis(x, mode)), result)
