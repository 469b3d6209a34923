"""Output layers of symbolic models: in the backward pass, they give the gradient of an implied loss.

The forward pass does not read the labels; inference may bind any arrays to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gluonjit.ir.dims import Dim, Extent, are_equal
from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, F64, I32, dtype_of
from gluonjit.operators import gradients
from gluonjit.operators.attributes import boolean, enum, number
from gluonjit.operators.layers.softmax import softmax_over
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.support import (
    Shapes,
    first_from_output,
    merge,
    narrowed,
    parameters,
    require_float,
    require_numeric,
    require_same_dtype,
    require_shape,
    widened,
)


def _labels_of_softmax(data: Shape, multi_output: bool) -> list[Shape]:
    """The shapes that a label may have, the one to infer first: one class per distribution, or probabilities."""
    if not multi_output:
        return [data[:-1], data]
    flat = (data[0], math.prod(data[2:]))
    return [flat, (data[0], *data[2:]), (data[0], 1, *data[2:]), data]


def _label_of_softmax(attrs: Mapping[str, Any], inputs: Shapes) -> Shapes:
    data, label = inputs
    if data is None or len(data) < 2 and attrs["multi_output"]:
        return inputs
    shapes = _labels_of_softmax(data, attrs["multi_output"])
    if label is None:
        return [data, shapes[0]]
    return [data, merge(label, next((shape for shape in shapes if _may_be(label, shape)), shapes[0]))]


def _may_be(partial: Shape, shape: Shape) -> bool:
    return len(partial) == len(shape) and all(p == q or not p or not q for p, q in zip(partial, shape))


def _softmax_gradient(
    b: Emitter,
    g: Any,
    y: Any,
    x: Any,
    *,
    grad_scale: float,
    ignore_label: float,
    multi_output: bool,
    use_ignore: bool,
    preserve_shape: bool,
    normalization: str,
    out_grad: bool,
    smooth_alpha: float,
) -> Any:
    """Probabilities minus labels, scaled; a label is a class, or a distribution if it has the shape of the data."""
    (head,), (y,), (data, label) = g, y, x
    own, shape = dtype_of(data), tuple(data.shape)
    y = widened(b, y)
    wide = dtype_of(y)
    if are_equal(label.shape, shape):
        return _scaled(b, y - b.cast(label, dtype=wide), grad_scale, head if out_grad else None, own), None
    if multi_output:
        rows = (shape[0], shape[1], math.prod(shape[2:]))
    else:
        classes = shape[-1] if preserve_shape else math.prod(shape[1:])
        rows = (math.prod(shape) // max(classes, 1), classes, 1)
    count, classes, rest = rows
    label = b.reshape(label, shape=(math.prod(label.shape),))
    if label.shape[0] > count * rest:  # MXNet reads as many labels as there are distributions
        label = b.slice(label, start=(0,), size=(count * rest,))
    label = b.cast(b.reshape(label, shape=(count, 1, rest)), dtype=I32)
    at_label = b.eq(b.iota(shape=(1, classes, 1), axis=1, dtype=I32), label)
    if multi_output:  # as in MXNet
        smooth_alpha = 0.0
    other = smooth_alpha / (classes - 1) if smooth_alpha and classes > 1 else 0.0
    target = b.select(at_label, b.constant(1 - smooth_alpha, wide), b.constant(other, wide))
    d = b.reshape(y, shape=rows) - target
    ignored = b.eq(label, b.constant(math.trunc(ignore_label), I32))
    if use_ignore:
        d = b.select(ignored, b.constant(0, wide), d)
    over: Extent = 1
    if normalization == "valid":
        valid = b.reduce(b.select(ignored, b.constant(0, F32), b.constant(1, F32)), op="sum", axes=(0, 1, 2))
        d = d / b.cast(b.maximum(valid, b.constant(1, F32)), dtype=wide)
    else:
        # With `multi_output`, MXNet averages over the positions, too.
        over = max(rest * (count if normalization == "batch" else 1), 1)
    return _scaled(b, b.reshape(d, shape=shape), grad_scale, head if out_grad else None, own, over), None


def _scaled(b: Emitter, d: Any, factor: float, head: Any, dtype: Any, over: Extent = 1) -> Any:
    """d · factor / over · head in another type; a head of None is 1."""
    wide = dtype_of(d)
    if isinstance(over, Dim):
        d = d * b.cast(b.constant(factor, F64) / b.constant(over, F64), dtype=wide)
    elif factor / over != 1:
        d = d * (factor / over)
    if head is not None:
        d = d * b.cast(head, dtype=wide)
    return narrowed(b, d, dtype)


@operator(
    "SoftmaxOutput",
    gradient=_softmax_gradient,
    aliases=("Softmax",),
    inputs=("data", "label"),
    attrs={
        "grad_scale": number(1.0, doc="what the gradient is multiplied by"),
        "ignore_label": number(-1.0, doc="the label whose gradient is 0, with `use_ignore`"),
        "multi_output": boolean(False, doc="whether softmax runs over axis 1"),
        "use_ignore": boolean(False, doc="whether `ignore_label` has an effect"),
        "preserve_shape": boolean(False, doc="whether softmax runs over the last axis"),
        "normalization": enum(("batch", "null", "valid"), "null", doc="what the gradient is divided by"),
        "out_grad": boolean(False, doc="whether the gradient is multiplied by that of the result"),
        "smooth_alpha": number(
            0.0, low=0, high=1, doc="the probability that label smoothing spreads over the other classes"
        ),
    },
    complete=_label_of_softmax,
    infer_inputs=first_from_output,
)
def softmax_output(
    b: Emitter, data: Any, label: Any, *, multi_output: bool, preserve_shape: bool, **_gradient: Any
) -> Any:
    """softmax, with the gradient of the cross entropy with the label

    Shapes: data (batch, …), label (batch,), or with other axes too, without that of the classes, or data's shape ->
    data's shape

    A label of the data's shape holds probabilities.
    It runs over all axes but the first; with `multi_output` over axis 1, with `preserve_shape` over the last axis.

    >>> mx.nd.SoftmaxOutput(mx.nd.array([[0, 0]]), mx.nd.array([1])).asnumpy()
    array([[0.5, 0.5]], dtype=float32)
    """
    dtype = require_float(data)
    allowed = _labels_of_softmax(tuple(data.shape), multi_output)
    if not any(are_equal(label.shape, shape) for shape in allowed):
        require_shape(label, allowed[0], "label")
    x = widened(b, data)
    if multi_output:
        y = softmax_over(b, x, 1)
    elif preserve_shape:
        y = softmax_over(b, x, len(data.shape) - 1)
    else:
        flat = b.reshape(x, shape=(data.shape[0], math.prod(data.shape[1:])))
        y = b.reshape(softmax_over(b, flat, 1), shape=data.shape)
    return narrowed(b, y, dtype)


def _label_of_regression(attrs: Mapping[str, Any], inputs: Shapes) -> Shapes:
    """A label whose shape is known keeps it: it need only have as many elements as the data, sample by sample."""
    data, label = inputs
    if data is None:
        return inputs
    inferred = data[:1] if len(data) == 2 and data[1] == 1 else data
    if label is None:
        return [data, inferred]
    if 0 in label or 0 in data:
        return [data, merge(label, next((shape for shape in (inferred, data) if _may_be(label, shape)), label))]
    if label[:1] != data[:1] or math.prod(label) != math.prod(data):
        merge(label, inferred)
    return [data, label]


_REGRESSION: dict[str, Any] = {
    "inputs": ("data", "label"),
    "attrs": {"grad_scale": number(1.0, doc="what the gradient is multiplied by")},
    "complete": _label_of_regression,
    "infer_inputs": first_from_output,
}


def _require_label_like(data: Any, label: Any) -> None:
    """Both have the same first dimension and the same number of elements."""
    if data.shape and (label.shape[:1] != data.shape[:1] or math.prod(label.shape) != math.prod(data.shape)):
        require_shape(label, data.shape, "label")


def _regression(distance: Callable[[Emitter, Any, Any], Any]) -> Callable[..., Any]:
    """The gradient of a regression whose loss has the derivative `distance(b, y, label)`, summed over what a sample has
    and averaged over its elements."""

    def gradient(b: Emitter, g: Any, y: Any, x: Any, *, grad_scale: float) -> Any:
        (y,), (data, label) = y, x
        each = max(math.prod(y.shape[1:]), 1)
        if not dtype_of(data).is_float and (isinstance(each, Dim) or grad_scale / each % 1):
            return gradients.refused
        label = b.reshape(b.cast(label, dtype=dtype_of(y)), shape=tuple(y.shape))
        return _scaled(b, distance(b, y, label), grad_scale, None, dtype_of(data), each), None

    return gradient


def _side(b: Emitter, y: Any, label: Any) -> Any:
    one = b.constant(1, dtype_of(y))
    return b.select(y > label, one, -one)  # -1 where they are equal, as in MXNet


def _difference(b: Emitter, y: Any, label: Any) -> Any:
    return y - label


@operator("LinearRegressionOutput", gradient=_regression(_difference), **_REGRESSION)
def linear_regression_output(b: Emitter, data: Any, label: Any, *, grad_scale: float) -> Any:
    """The data, with the gradient of the squared distance to the label

    Shapes: data (batch, …), label (the same) -> the same

    The gradient is grad_scale / m times (data - label), where m is the number of elements of a sample.

    >>> mx.nd.LinearRegressionOutput(mx.nd.array([[1, 2]]), mx.nd.array([[1, 1]])).asnumpy()
    array([[1., 2.]], dtype=float32)
    """
    require_numeric("LinearRegressionOutput", data)
    _require_label_like(data, label)
    return data


def _svm_gradient(
    b: Emitter, g: Any, y: Any, x: Any, *, margin: float, regularization_coefficient: float, use_linear: bool
) -> tuple[Any, None]:
    """The gradient of max(0, margin - score) at the label plus max(0, margin + score) at the others, or of their
    squares."""
    data, label = x
    dtype = dtype_of(data)
    zero, one = b.constant(0, dtype), b.constant(1, dtype)
    classes = b.iota(shape=(*(1,) * (len(data.shape) - 1), data.shape[-1]), axis=len(data.shape) - 1, dtype=I32)
    at_label = b.eq(classes, b.reshape(b.cast(label, dtype=I32), shape=(*label.shape, 1)))
    sign = b.select(at_label, -one, one)
    loss = margin + sign * data
    slope = one if use_linear else 2 * loss
    slope = b.select(loss > zero, slope, zero)
    return sign * slope * regularization_coefficient, None


@operator(
    "SVMOutput",
    gradient=_svm_gradient,
    inputs=("data", "label"),
    attrs={
        "margin": number(1.0, doc="the margin of the hinge"),
        "regularization_coefficient": number(1.0, doc="what the gradient is multiplied by"),
        "use_linear": boolean(False, doc="whether the hinge itself is taken, not its square"),
    },
    complete=parameters(lambda attrs, data: [data[:-1]]),
    infer_inputs=first_from_output,
)
def svm_output(b: Emitter, data: Any, label: Any, **_gradient: Any) -> Any:
    """The data, with the gradient of the hinge loss of the label

    Shapes: data (batch, classes), label (batch,) -> data's shape

    `use_linear` takes the hinge, otherwise its square (Tang, 2013).

    >>> mx.nd.SVMOutput(mx.nd.array([[1, 2]]), mx.nd.array([1])).asnumpy()
    array([[1., 2.]], dtype=float32)
    """
    require_float(data)
    require_shape(label, data.shape[:-1], "label")
    return data


@operator("MAERegressionOutput", gradient=_regression(_side), **_REGRESSION)
def mae_regression_output(b: Emitter, data: Any, label: Any, *, grad_scale: float) -> Any:
    """The data, with the gradient of the absolute distance to the label

    Shapes: data (batch, …), label (the same) -> the same

    The gradient is grad_scale / m times sign(data - label), where m is the number of elements of a sample.

    >>> mx.nd.MAERegressionOutput(mx.nd.array([[1, 2]]), mx.nd.array([[1, 1]])).asnumpy()
    array([[1., 2.]], dtype=float32)
    """
    require_numeric("MAERegressionOutput", data)
    _require_label_like(data, label)
    return data


@operator("LogisticRegressionOutput", gradient=_regression(_difference), **_REGRESSION)
def logistic_regression_output(b: Emitter, data: Any, label: Any, *, grad_scale: float) -> Any:
    """sigmoid, with the gradient of the logistic loss of the label

    Shapes: data (batch, …), label (the same) -> the same

    The gradient is grad_scale / m times (sigmoid(data) - label), where m is the number of elements of a sample.

    >>> mx.nd.LogisticRegressionOutput(mx.nd.array([[0]]), mx.nd.array([[1]])).asnumpy()
    array([[0.5]], dtype=float32)
    """
    require_float(data)
    _require_label_like(data, label)
    return b.sigmoid(data)


def _cross_entropy_gradient(b: Emitter, g: Any, y: Any, x: Any) -> tuple[Any, None]:
    """(softmax - label) · g, as if there was no least probability."""
    data, label = x
    p = softmax_over(b, widened(b, data), 1)
    at_label = b.eq(
        b.iota(shape=(1, data.shape[1]), axis=1, dtype=I32),
        b.reshape(b.cast(label, dtype=I32), shape=(data.shape[0], 1)),
    )
    d = p - b.cast(at_label, dtype=dtype_of(p))
    return narrowed(b, d * b.cast(b.reshape(g[0], shape=(1, 1)), dtype=dtype_of(p)), dtype_of(data)), None


@operator(
    "softmax_cross_entropy",
    inputs=("data", "label"),
    complete=parameters(lambda attrs, data: [data[:1]]),
    gradient=_cross_entropy_gradient,
)
def softmax_cross_entropy(b: Emitter, data: Any, label: Any) -> Any:
    """The sum over the batch of -log(softmax(data)) at the label

    Shapes: data (batch, classes), label (batch,) -> (1,)

    Probabilities below 1e-8 count as 1e-8.

    >>> mx.nd.softmax_cross_entropy(mx.nd.array([[0, 0]]), mx.nd.array([1])).asnumpy().round(3)
    array([0.693], dtype=float32)
    """
    dtype = require_float(data)
    require_same_dtype(data, label)
    if len(data.shape) != 2:
        raise OperatorError(f"softmax_cross_entropy needs data of 2 dimensions, got {len(data.shape)}")
    require_shape(label, data.shape[:1], "label")
    x = widened(b, data)
    wide = dtype_of(x)
    log = b.log(b.maximum(softmax_over(b, x, 1), b.constant(1e-8, wide)))
    at_label = b.eq(
        b.iota(shape=data.shape, axis=1, dtype=I32), b.reshape(b.cast(label, dtype=I32), shape=(data.shape[0], 1))
    )
    total = b.reduce(b.select(at_label, log, b.constant(0, wide)), op="sum", axes=(0, 1))
    return narrowed(b, b.reshape(-total, shape=(1,)), dtype)
