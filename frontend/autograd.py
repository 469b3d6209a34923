"""`mx.autograd`: the modes (`language.modes`) and gradients (`autodiff`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gluonjit.autodiff.anomalies import detect_anomaly
from gluonjit.autodiff.python_functions import Function
from gluonjit.autodiff.recorded_symbols import recorded_symbol
from gluonjit.autodiff.walk import backward as _backward
from gluonjit.base import string_types as string_types
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language.modes import (
    is_recording,
    is_training,
    pause,
    predict_mode,
    record,
    set_recording,
    set_training,
    train_mode,
)
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.variable import Variable
from gluonjit.symbol import Symbol as Symbol

__all__ = [
    "Function",
    "backward",
    "detect_anomaly",
    "get_symbol",
    "grad",
    "is_recording",
    "is_training",
    "mark_variables",
    "pause",
    "predict_mode",
    "record",
    "set_recording",
    "set_training",
    "train_mode",
]


def _listed(heads: Any, head_grads: Any) -> tuple[list[Any], list[Any]]:
    if isinstance(heads, NDArray):
        heads = [heads]
        head_grads = [head_grads] if not isinstance(head_grads, (list, tuple)) else head_grads
    elif not isinstance(heads, (list, tuple)):
        raise TypeError(f"heads are an NDArray or a list of them, got {type(heads).__name__}")
    heads = list(heads)
    if head_grads is None:
        return heads, [None] * len(heads)
    if len(head_grads) != len(heads):
        raise ValueError(f"heads and head_grads must be of the same length, got {len(heads)} and {len(head_grads)}")
    return heads, list(head_grads)


def backward(heads: Any, head_grads: Any = None, retain_graph: bool = False, train_mode: bool = True) -> None:
    """Computes the gradients of `heads`, an array or a list, by all variables that they depend on.

    Each variable's `grad` is written as its `grad_req` says. `head_grads` has an array for each head, None for ones.
    Frees what was recorded unless `retain_graph`. MXNetError for heads that were not recorded.
    """
    _backward(*_listed(heads, head_grads), retain_graph, train_mode)


def grad(
    heads: Any,
    variables: Any,
    head_grads: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    train_mode: bool = True,
) -> list[Any]:
    """Returns the gradients of `heads` by `variables`, in new arrays: a list, also for one variable.

    With `create_graph` the result can be differentiated in turn; `retain_graph` defaults to it. MXNetError for a
    variable that the heads do not depend on.
    """
    listed: Sequence[Any] = [variables] if isinstance(variables, NDArray) else list(variables)
    if not listed:
        raise ValueError("variables cannot be an empty list.")
    retain = create_graph if retain_graph is None else retain_graph
    return _backward(*_listed(heads, head_grads), retain, train_mode, create_graph, listed)


def get_symbol(x: Any) -> Any:
    """The recorded computation of `x` as a Symbol; variables and nodes have names of their own.

    MXNetError for what was not recorded, was freed by `backward`, or is no graph of operators.
    """
    if not isinstance(x, NDArray):
        raise AssertionError(f"get_symbol: Invalid argument type, expecting {NDArray}, got {type(x)}")
    return recorded_symbol(x)


def mark_variables(variables: Any, gradients: Any, grad_reqs: Any = "write") -> None:
    """Asks for gradients by arrays, to be written to the arrays `gradients`; see `NDArray.attach_grad`."""
    if isinstance(variables, NDArray):
        variables, gradients = [variables], [gradients]
    if isinstance(grad_reqs, str):
        grad_reqs = [grad_reqs] * len(variables)
    for x, gradient, request in zip(variables, gradients, grad_reqs, strict=True):
        x._grad_state = Variable.into(request, gradient)


_mxnet_names.explain(__name__)
