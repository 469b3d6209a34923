"""Operators that return their input, and differ in their gradient, shape inference or storage type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import dtype_of
from gluonjit.operators.attributes import boolean, enum, number
from gluonjit.operators.registry import operator
from gluonjit.operators.support import Shapes, first_from_output, merge, parameters, require_same_shape, widened


def _multiplied(b: Emitter, g: Any, y: Any, x: Any, *, scalar: float, is_int: bool) -> tuple[Any]:
    return (g[0] * b.constant(scalar, dtype_of(x[0])),)


@operator(
    "_contrib_gradientmultiplier",
    attrs={
        "scalar": number(1.0, doc="what the gradient is multiplied by"),
        "is_int": boolean(True, doc="whether the number is whole"),
    },
    same_shape=True,
    gradient=_multiplied,
)
def gradient_multiplier(b: Emitter, data: Any, **_gradient: Any) -> Any:
    """The input; its gradient is multiplied by `scalar`

    Shapes: data (any) -> the same

    A negative factor makes an adversary of what comes before (Ganin and Lempitsky, 2015).

    >>> x = mx.nd.array([3])
    >>> x.attach_grad()
    >>> with mx.autograd.record():
    ...     y = mx.nd.contrib.gradientmultiplier(x, scalar=-1)
    >>> y.backward()
    >>> y.asnumpy(), x.grad.asnumpy()
    (array([3.], dtype=float32), array([-1.], dtype=float32))
    """
    return data


def _activity(b: Emitter, data: Any, moving_avg: Any, momentum: float) -> Any:
    """The moving average of each unit's activity after the batch `data`."""
    wide = widened(b, data)
    mean = b.reduce(wide, op="sum", axes=(0,)) * (1 / max(data.shape[0], 1))
    mean = b.cast(b.reshape(mean, shape=tuple(moving_avg.shape)), dtype=dtype_of(moving_avg))
    old, new = b.constant(momentum, dtype_of(mean)), b.constant(1 - momentum, dtype_of(mean))
    return moving_avg * old + mean * new


def _sparseness(
    b: Emitter, g: Any, y: Any, x: Any, *, sparseness_target: float, penalty: float, momentum: float
) -> tuple[Any, None]:
    """Adds the derivative of penalty · KL(target || activity) by each unit's activity."""
    data, moving_avg = x
    activity = _activity(b, data, moving_avg, momentum)
    pull = -sparseness_target / activity
    push = (1 - sparseness_target) / (1 - activity)
    slope = (pull + push) * penalty
    return g[0] + b.cast(b.reshape(slope, shape=(1, *data.shape[1:])), dtype=dtype_of(data)), None


def _new_activity(b: Emitter, y: Any, x: Any, *, momentum: float, **_attrs: Any) -> dict[int, Any]:
    data, moving_avg = x
    return {1: _activity(b, data, moving_avg, momentum)}


@operator(
    "IdentityAttachKLSparseReg",
    gradient=_sparseness,
    late=_new_activity,
    inputs=("data", "moving_avg"),
    aux=("moving_avg",),
    attrs={
        "sparseness_target": number(0.1, low=0, high=1, doc="the mean activation to reach"),
        "penalty": number(0.001, doc="what the penalty is multiplied by"),
        "momentum": number(0.9, doc="the share of the old mean in the new one"),
    },
    complete=parameters(lambda attrs, data: [data[1:2] if len(data) > 1 else None]),
    infer_inputs=first_from_output,
    initializers={"moving_avg": '["zero", {}]'},
)
def attach_sparseness(b: Emitter, data: Any, moving_avg: Any, **_gradient: Any) -> Any:
    """The input; its gradient gets a KL divergence penalty that makes activations sparse

    Shapes: data (batch, units), moving_avg (units,) -> data's shape

    With the mean activation q of a unit, kept in `moving_avg`, and the target p, `penalty` times (1 - p) / (1 - q) - p
    / q is added to the gradient.

    >>> mx.nd.IdentityAttachKLSparseReg(mx.nd.array([[0.2, 0.4]]), mx.nd.zeros(2)).asnumpy()
    array([[0.2, 0.4]], dtype=float32)
    """
    return data


def _alike(attrs: Mapping[str, Any], inputs: Shapes) -> Shapes:
    return [merge(*inputs)] * 2


@operator("_identity_with_attr_like_rhs", inputs=("lhs", "rhs"), complete=_alike, infer_inputs=first_from_output)
def identity_like(b: Emitter, lhs: Any, rhs: Any) -> Any:
    """The first input, which must have the shape of the second

    Shapes: lhs and rhs of one shape -> that shape

    >>> mx.nd._internal._identity_with_attr_like_rhs(mx.nd.array([1, 2]), mx.nd.zeros(2)).asnumpy()
    array([1., 2.], dtype=float32)
    """
    require_same_shape(lhs, rhs)
    return lhs


@operator(
    "cast_storage",
    attrs={"stype": enum(("csr", "default", "row_sparse"), doc="the storage; has no effect in compiled code")},
    same_shape=True,
)
def cast_storage(b: Emitter, data: Any, *, stype: str) -> Any:
    """The input; compiled code keeps every array dense

    Shapes: data (any) -> the same

    >>> mx.nd.cast_storage(mx.nd.array([[0, 1]]), "default").asnumpy()
    array([[0., 1.]], dtype=float32)
    """
    return data
