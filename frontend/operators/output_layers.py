"""Output layers of symbolic models: in the backward pass, they give the gradient of an implied loss.

The forward pass does not read the labels; inference may bind any arrays to them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.ir.types import I32, dtype_of
from gluonjit.operators.attributes import boolean, enum, number
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.softmax import softmax_over
from gluonjit.operators.support import (
    Shapes,
    first_from_output,
    merge,
    narrowed,
    parameters,
    require_float,
    require_same_dtype,
    require_shape,
    widened,
)


def _label_of_classes(attrs: Mapping[str, Any], inputs: Shapes) -> Shapes:
    """The label has one class per distribution; with `multi_output`, a given label shape is left as it is."""
    data, label = inputs
    if data is None or label is not None and attrs["multi_output"]:
        return inputs
    return [data, (data[0], math.prod(data[2:])) if attrs["multi_output"] else merge(label, data[:-1])]


@operator(
    "SoftmaxOutput",
    aliases=("Softmax",),
    inputs=("data", "label"),
    attrs={
        "grad_scale": number(1.0),
        "ignore_label": number(-1.0),
        "multi_output": boolean(False),
        "use_ignore": boolean(False),
        "preserve_shape": boolean(False),
        "normalization": enum(("batch", "null", "valid"), "null"),
        "out_grad": boolean(False),
        "smooth_alpha": number(0.0, low=0, high=1),
    },
    complete=_label_of_classes,
    infer_inputs=first_from_output,
)
def softmax_output(b: Any, data: Any, label: Any, *, multi_output: bool, preserve_shape: bool, **_gradient: Any) -> Any:
    """softmax, with the gradient of the cross entropy with the label

    It runs over all axes but the first; with `multi_output` over axis 1, with `preserve_shape` over the last axis.
    """
    dtype = require_float(data)
    x = widened(b, data)
    if multi_output:
        y = softmax_over(b, x, 1)
    elif preserve_shape:
        y = softmax_over(b, x, len(data.shape) - 1)
    else:
        flat = b.reshape(x, shape=(data.shape[0], math.prod(data.shape[1:])))
        y = b.reshape(softmax_over(b, flat, 1), shape=data.shape)
    return narrowed(b, y, dtype)


def _label_like_data(attrs: Mapping[str, Any], data: Shape) -> Sequence[Shape | None]:
    return [data[:1] if len(data) == 2 and data[1] == 1 else data]


_REGRESSION: dict[str, Any] = {
    "inputs": ("data", "label"),
    "attrs": {"grad_scale": number(1.0)},
    "complete": parameters(_label_like_data),
    "infer_inputs": first_from_output,
}


@operator("LinearRegressionOutput", **_REGRESSION)
def linear_regression_output(b: Any, data: Any, label: Any, *, grad_scale: float) -> Any:
    """The data, with the gradient of the squared distance to the label"""
    return data


@operator(
    "SVMOutput",
    inputs=("data", "label"),
    attrs={"margin": number(1.0), "regularization_coefficient": number(1.0), "use_linear": boolean(False)},
    complete=parameters(lambda attrs, data: [data[:-1]]),
    infer_inputs=first_from_output,
)
def svm_output(b: Any, data: Any, label: Any, **_gradient: Any) -> Any:
    """The data, with the gradient of the hinge loss of the label"""
    require_float(data)
    require_shape(label, data.shape[:-1], "label")
    return data


@operator("MAERegressionOutput", **_REGRESSION)
def mae_regression_output(b: Any, data: Any, label: Any, *, grad_scale: float) -> Any:
    """The data, with the gradient of the absolute distance to the label"""
    return data


@operator("LogisticRegressionOutput", **_REGRESSION)
def logistic_regression_output(b: Any, data: Any, label: Any, *, grad_scale: float) -> Any:
    """sigmoid, with the gradient of the logistic loss of the label"""
    require_float(data)
    return b.sigmoid(data)


@operator("softmax_cross_entropy", inputs=("data", "label"), complete=parameters(lambda attrs, data: [data[:1]]))
def softmax_cross_entropy(b: Any, data: Any, label: Any) -> Any:
    """Sum over the batch of -log(softmax(data)) at the label, as a tensor of shape (1,)

    data (batch, classes), label (batch,); probabilities below 1e-8 count as 1e-8.
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
    return narrowed(b, b.reshape(b.neg(total), shape=(1,)), dtype)
