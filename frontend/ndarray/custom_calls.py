"""`nd.Custom`: operators that users wrote in Python; see `gluonjit.operator`."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.context import current_context
from gluonjit.language import late
from gluonjit.language.modes import Scope, modes
from gluonjit.language.running import running
from gluonjit.ndarray.constructors import zeros
from gluonjit.ndarray.ndarray import NDArray
from gluonjit.operators.custom import KEPT, OP_TYPE, TO, TRAINING, blamed, custom, properties
from gluonjit.operators.custom_classes import CustomOp, CustomOpProp, arranged, divided

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
    prop = properties(parsed)
    operator, results = compute(op_type, prop, arrays, modes.training)
    if modes.recording:
        count = len(prop.list_arguments())
        late.record_custom(op_type, operator, arrays[:count], arrays[count:], results)
    if out is None:
        return results[0] if len(results) == 1 else results
    targets = out if isinstance(out, list) else [out]
    for target, value in zip(targets, results, strict=True):
        target[:] = value
    return out


def compute(op_type: str, prop: CustomOpProp, arrays: list[NDArray], training: bool) -> tuple[CustomOp, list[NDArray]]:
    """The operator made for this call, and its results for its arguments and auxiliary states, in that order."""
    count = len(prop.list_arguments())
    in_data, aux = arrays[:count], arrays[count:]
    with blamed(op_type):
        _, shapes, *_ = prop.infer_shape([list(x.shape) for x in in_data])
        _, dtypes, *_ = prop.infer_type([x.dtype for x in in_data])
        out = [zeros(tuple(shape), dtype=np.dtype(dtype)) for shape, dtype in zip(shapes, dtypes)]
        operator = prop.create_operator(current_context(), [x.shape for x in arrays], [x.dtype for x in arrays])
        with Scope(False, None):
            operator.forward(training, ["write"] * len(out), in_data, out, aux)
    return operator, out


# Compiled code gets the number of an operator instead of the operator itself. Whoever runs a recorded call keeps the
# operators alive that it made, until its gradient is no longer needed.

_numbers = itertools.count(1)
_operators: weakref.WeakValueDictionary[int, CustomOp] = weakref.WeakValueDictionary()


class _Keeping(threading.local):
    operators: list[CustomOp] | None = None


_keeping = _Keeping()


@contextmanager
def kept_operators() -> Iterator[list[CustomOp]]:
    """A context that collects the operators which recorded calls in this thread make."""
    before, _keeping.operators = _keeping.operators, []
    try:
        yield _keeping.operators
    finally:
        _keeping.operators = before


def _call(operands: Sequence[np.ndarray], arguments: Mapping[str, str]) -> list[np.ndarray]:
    """The callback of compiled code: the operator's results, then the new values of its auxiliary states."""
    prop = properties({"op_type": arguments[OP_TYPE], "arguments": _own(arguments)})
    arrays = [NDArray._wrap(np.array(x)) for x in operands]
    operator, outputs = compute(arguments[OP_TYPE], prop, arrays, arguments[TRAINING] == "True")
    results = [x._array for x in (*outputs, *arrays[len(prop.list_arguments()) :])]
    if KEPT in arguments:
        number = next(_numbers)
        if _keeping.operators is not None:
            _keeping.operators.append(operator)
            _operators[number] = operator
        results.append(np.array(number, np.int64))
    return results


def _call_backward(operands: Sequence[np.ndarray], arguments: Mapping[str, str]) -> list[np.ndarray]:
    """The gradients by the inputs that the arguments name.

    Operands are the gradients of the results, the inputs, results, auxiliary states, and the operator's number.
    """
    op_type = arguments[OP_TYPE]
    prop = properties({"op_type": op_type, "arguments": _own(arguments)})
    *arrays, number = operands
    made, count = len(prop.list_outputs()), len(prop.list_arguments())
    given = [NDArray._wrap(np.array(x)) for x in arrays]
    out_grad, in_data = given[:made], given[made : made + count]
    out_data, aux = given[made + count : made + count + made], given[made + count + made :]
    operator = _operators.get(int(number))
    if operator is None:
        shapes, dtypes = ([*map(of, (*in_data, *aux))] for of in (lambda x: x.shape, lambda x: x.dtype))
        operator = prop.create_operator(current_context(), shapes, dtypes)
    wanted = [int(k) for k in arguments[TO].split()]
    req = ["write" if k in wanted else "null" for k in range(count)]
    before = [x._array.copy() for x in aux]
    found = backward(op_type, operator, req, out_grad, in_data, out_data, aux)
    if any(not np.array_equal(x._array, old, equal_nan=x._array.dtype.kind == "f") for x, old in zip(aux, before)):
        raise MXNetError(
            f"Custom({op_type!r}).backward writes to an auxiliary state, which compiled code cannot keep; write to it "
            "in forward, or do not hybridize the block"
        )
    return [found[k]._array for k in wanted]


def backward(
    op_type: str,
    operator: CustomOp,
    req: list[str],
    out_grad: list[NDArray],
    in_data: list[NDArray],
    out_data: list[NDArray],
    aux: list[NDArray],
) -> list[NDArray]:
    """The gradients by all inputs that a custom operator's `backward` gives; zeros where it gives none."""
    in_grad = [zeros(x.shape, dtype=x.dtype) for x in in_data]
    with blamed(op_type):
        operator.backward(req, out_grad, in_data, out_data, in_grad, aux)
    return in_grad


def _own(arguments: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The operator's own attributes among the arguments of a callback."""
    return tuple((key, value) for key, value in arguments.items() if not key.startswith("."))


late.call_custom.provide(_call)
late.call_custom_backward.provide(_call_backward)
