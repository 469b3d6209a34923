"""`mx.sym`: graphs, and every operator as a function that appends to one."""

from typing import Any as _Any

from gluonjit.namespace import Flavour, populate
from gluonjit.symbol.executor import Executor
from gluonjit.symbol.functions import (
    arange,
    eye,
    full,
    hypot,
    linspace,
    maximum,
    minimum,
    ones,
    pow,
    power,
    split_v2,
    zeros,
)
from gluonjit.symbol.symbol import Group, Symbol, Variable, invoke, var
from gluonjit.trace import state as _state

__all__ = [
    "Executor",
    "Group",
    "Symbol",
    "Variable",
    "arange",
    "eye",
    "full",
    "hypot",
    "invoke",
    "linspace",
    "maximum",
    "minimum",
    "ones",
    "pow",
    "power",
    "split_v2",
    "var",
    "zeros",
]


def _adopt(value: _Any) -> _Any:
    """While tracing, an array from outside may be an operand."""
    from gluonjit.ndarray import NDArray

    trace = _state.current_trace()
    return trace.capture(value) if trace is not None and isinstance(value, NDArray) else None


populate(globals(), Flavour(__name__, Symbol, invoke, imperative=False, adopt=_adopt))
