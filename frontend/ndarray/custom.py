"""`nd.Custom`: operators that users wrote in Python; see `gluonjit.operator`."""

from __future__ import annotations

from typing import Any

from gluonjit.autograd import modes
from gluonjit.base import MXNetError
from gluonjit.language.running import running
from gluonjit.ndarray.ndarray import NDArray

__all__ = ["Custom"]


def Custom(*data: Any, op_type: str, name: str | None = None, out: Any = None, **kwargs: Any) -> Any:
    """Runs the operator registered as `op_type`. Arrays come by position, or by the operator's own argument names."""
    from gluonjit import operator
    from gluonjit.operators.custom import custom, properties

    named, attrs = divided(kwargs)
    raw = {"op_type": op_type, **attrs}
    parsed = custom.parse(raw)
    arrays = operator.arranged(data, named, op_type, custom.input_names(parsed))
    if running.trace is not None:
        return running.trace.invoke(custom, arrays, raw, out=out, name=name, hint="custom")
    for value in arrays:
        if not isinstance(value, NDArray):
            raise MXNetError(f"Custom({op_type!r}) computes on NDArrays, got a {type(value).__name__}")
    results = operator.compute(properties(parsed), arrays, modes.training)
    if out is None:
        return results[0] if len(results) == 1 else results
    targets = out if isinstance(out, list) else [out]
    for target, value in zip(targets, results, strict=True):
        target[:] = value
    return out


def divided(kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what may be arrays, attributes) of keywords; None counts as left out."""
    plain = (str, int, float, tuple, list, bool)
    given = {key: value for key, value in kwargs.items() if value is not None}
    attrs = {key: value for key, value in given.items() if isinstance(value, plain)}
    return {key: value for key, value in given.items() if key not in attrs}, attrs
