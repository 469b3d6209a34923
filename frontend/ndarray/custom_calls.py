"""`nd.Custom`: operators that users wrote in Python; see `gluonjit.operator`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.context import current_context
from gluonjit.language import late
from gluonjit.language.modes import modes
from gluonjit.language.running import running
from gluonjit.ndarray.constructors import zeros
from gluonjit.ndarray.ndarray import NDArray
from gluonjit.operators.custom import OP_TYPE, TRAINING, blamed, custom, properties
from gluonjit.operators.custom_classes import CustomOpProp, arranged, divided

__all__ = ["Custom"]


def Custom(*data: Any, op_type: str, name: str | None = None, out: Any = None, **kwargs: Any) -> Any:
    """Runs the operator registered as `op_type`. Arrays are passed by position or by the operator's argument names."""
    named, attrs = divided(kwargs)
    raw = {"op_type": op_type, **attrs}
    parsed = custom.parse(raw)
    arrays = arranged(data, named, op_type, custom.input_names(parsed))
    if running.trace is not None:
        return running.trace.invoke(custom, arrays, raw, out=out, name=name, hint="custom")
    for value in arrays:
        if not isinstance(value, NDArray):
            raise MXNetError(f"Custom({op_type!r}) computes on NDArrays, got a {type(value).__name__}")
    results = compute(op_type, properties(parsed), arrays, modes.training)
    if out is None:
        return results[0] if len(results) == 1 else results
    targets = out if isinstance(out, list) else [out]
    for target, value in zip(targets, results, strict=True):
        target[:] = value
    return out


def compute(op_type: str, prop: CustomOpProp, arrays: list[NDArray], training: bool) -> list[NDArray]:
    """The results of a custom operator for its arguments and auxiliary states, in that order."""
    count = len(prop.list_arguments())
    in_data, aux = arrays[:count], arrays[count:]
    with blamed(op_type):
        _, shapes, *_ = prop.infer_shape([list(x.shape) for x in in_data])
        _, dtypes, *_ = prop.infer_type([x.dtype for x in in_data])
        out = [zeros(tuple(shape), dtype=np.dtype(dtype)) for shape, dtype in zip(shapes, dtypes)]
        operator = prop.create_operator(current_context(), [x.shape for x in arrays], [x.dtype for x in arrays])
        operator.forward(training, ["write"] * len(out), in_data, out, aux)
    return out


def _call(operands: Sequence[np.ndarray], arguments: Mapping[str, str]) -> list[np.ndarray]:
    """The callback of compiled code: the operator's results, then the new values of its auxiliary states."""
    own = tuple((key, value) for key, value in arguments.items() if not key.startswith("."))
    prop = properties({"op_type": arguments[OP_TYPE], "arguments": own})
    arrays = [NDArray._wrap(np.array(x)) for x in operands]
    outputs = compute(arguments[OP_TYPE], prop, arrays, arguments[TRAINING] == "True")
    return [x._array for x in (*outputs, *arrays[len(prop.list_arguments()) :])]


late.call_custom.provide(_call)
