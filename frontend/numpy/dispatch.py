"""Applies operators to arrays or symbols, of `mx.np` or legacy ones, for the functions of `mx.np`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from gluonjit.base import MXNetError, numeric_types
from gluonjit.language.array import Array
from gluonjit.language.kinds import as_np
from gluonjit.language.namespace import clean
from gluonjit.language.running import running
from gluonjit.ndarray import NDArray
from gluonjit.operators.registry import get
from gluonjit.symbol import Symbol


def apply(
    op: str,
    operands: Sequence[Any],
    attrs: dict[str, Any] | None = None,
    out: Any = None,
    name: str | None = None,
    symbolic: bool = False,
) -> Any:
    """Runs an operator on arrays, or appends a node for symbols; the results are arrays or symbols of `mx.np`.

    Operands may be legacy ones, too. `symbolic` decides if there are no operands. TypeError for other operands.
    """
    untyped = symbolic
    for x in operands:
        if not isinstance(x, NDArray):
            if not isinstance(x, Array):
                raise TypeError(f"type {type(x)} not supported")
            untyped = True
    operator = _operator(op)
    # dtype=None counts as no dtype here; for operators called by name it is NumPy's default.
    raw = clean({key: value for key, value in attrs.items() if key != "dtype" or value is not None}) if attrs else {}
    trace = running.trace
    if trace is not None and trace.concerns(operands):
        result = trace.invoke(operator, operands, raw, out, name, None, _hint(op))
    elif untyped:
        result = Symbol._invoke(operator, operands, raw, None, name, None, _hint(op))
    else:
        result = NDArray._invoke(operator, operands, raw, out)
    return result if out is not None else as_np(result)


_operator = cache(get)


def _hint(op: str) -> str:
    """The prefix of automatic node names: `mean` for `_npi_mean`."""
    return op.lstrip("_").partition("_")[2]


def is_number(x: Any) -> bool:
    return isinstance(x, numeric_types)


def unsupported(what: str) -> MXNetError:
    return MXNetError(f"{what}: MXNet 1.9.1 has it, gluonjit lacks it")
