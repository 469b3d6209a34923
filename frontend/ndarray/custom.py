"""`nd.Custom`: operators that users wrote in Python; see `gluonjit.operator`."""

from __future__ import annotations

from typing import Any

from gluonjit.base import MXNetError
from gluonjit.ndarray.ndarray import NDArray

__all__ = ["Custom"]


def Custom(*data: Any, op_type: str, name: str | None = None, out: Any = None, **kwargs: Any) -> Any:
    """Runs the operator registered as `op_type`. Arrays come by position, or by the operator's own argument names."""
    from gluonjit import operator

    named = {key: value for key, value in kwargs.items() if not isinstance(value, (str, int, float, tuple, list, bool))}
    named = {key: value for key, value in named.items() if value is not None}
    attrs = {key: value for key, value in kwargs.items() if key not in named}
    for value in (*data, *named.values()):
        if not isinstance(value, NDArray):
            raise MXNetError(
                f"Custom({op_type!r}): operators written in Python compute on NDArrays only, not in compiled graphs; "
                f"got a {type(value).__name__}. Leave the block that calls it unhybridized"
            )
    result = operator.run_custom(list(data), named, op_type, attrs)
    if out is None:
        return result
    targets, results = (x if isinstance(x, list) else [x] for x in (out, result))
    for target, value in zip(targets, results, strict=True):
        target[:] = value
    return out
