"""Operators that return their input, and differ in their gradient, shape inference or storage type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gluonjit.operators.attributes import boolean, enum, number
from gluonjit.operators.registry import operator
from gluonjit.operators.support import Shapes, first_from_output, merge, require_same_shape


@operator("_contrib_gradientmultiplier", attrs={"scalar": number(1.0), "is_int": boolean(True)}, same_shape=True)
def gradient_multiplier(b: Any, data: Any, **_gradient: Any) -> Any:
    """The input; its gradient is multiplied by `scalar`"""
    return data


@operator(
    "IdentityAttachKLSparseReg",
    inputs=("data", "moving_avg"),
    aux=("moving_avg",),
    attrs={"sparseness_target": number(0.1, low=0, high=1), "penalty": number(0.001), "momentum": number(0.9)},
    infer_inputs=first_from_output,
    initializers={"moving_avg": '["zero", {}]'},
)
def attach_sparseness(b: Any, data: Any, moving_avg: Any, **_gradient: Any) -> Any:
    """The input; its gradient gets a KL divergence penalty that makes activations sparse"""
    return data


def _alike(attrs: Mapping[str, Any], inputs: Shapes) -> Shapes:
    return [merge(*inputs)] * 2


@operator("_identity_with_attr_like_rhs", inputs=("lhs", "rhs"), complete=_alike, infer_inputs=first_from_output)
def identity_like(b: Any, lhs: Any, rhs: Any) -> Any:
    """The first input, which must have the shape of the second"""
    require_same_shape(lhs, rhs)
    return lhs


@operator("cast_storage", attrs={"stype": enum(("csr", "default", "row_sparse"))}, same_shape=True)
def cast_storage(b: Any, data: Any, *, stype: str) -> Any:
    """The input; compiled code keeps every array dense"""
    return data
