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
from gluonjit.ir.graph import Graph, Value
from gluonjit.ir.primitives.host_call import UNREAD
from gluonjit.language import late
from gluonjit.language.modes import Scope, modes
from gluonjit.language.running import running
from gluonjit.ndarray.constructors import zeros
from gluonjit.ndarray.ndarray import NDArray
from gluonjit.operators.control.custom import KEPT, OP_TYPE, TO, TRAINING, blamed, custom, properties
from gluonjit.operators.control.custom_classes import CustomOp, CustomOpProp, arranged, divided
from gluonjit.operators.registry import OPERATORS

__all__ = ["Custom"]


def Custom(*data: Any, op_type: str, name: str | None = None, out: Any = None, **kwargs: Any) -> Any:
    """Runs the operator registered as `op_type`. Arrays are passed by position or by the operator's argument names.

    >>> class Double(mx.operator.CustomOp):
    ...     def forward(self, is_train, req, in_data, out_data, aux):
    ...         self.assign(out_data[0], req[0], in_data[0] * 2)
    >>> @mx.operator.register("shown_double")
    ... class DoubleProp(mx.operator.CustomOpProp):
    ...     def create_operator(self, ctx, shapes, dtypes):
    ...         return Double()
    >>> mx.nd.Custom(mx.nd.array([1, 2]), op_type="shown_double").asnumpy()
    array([2., 4.], dtype=float32)
    """
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


class Kept:
    """An operator that was made by a recorded call, and the arrays of its auxiliary states, if they are known: None in
    place of one that was made in the call, which nobody reads afterwards."""

    def __init__(self, op_type: str, operator: CustomOp) -> None:
        self.op_type, self.operator = op_type, operator
        self.states: Sequence[NDArray | None] | None = None


_numbers = itertools.count(1)
_operators: weakref.WeakValueDictionary[int, Kept] = weakref.WeakValueDictionary()


class _Keeping(threading.local):
    operators: list[Kept] | None = None


_keeping = _Keeping()


@contextmanager
def kept_operators(graph: Graph | None = None, arrays: Sequence[Any] = ()) -> Iterator[list[Kept]]:
    """A context that collects the operators which recorded calls in this thread make.

    `graph`, of level `traced`, is what is called with `arrays`: states among these are noted, as `backward` may write
    to them.
    """
    before, _keeping.operators = _keeping.operators, []
    try:
        yield _keeping.operators
        if graph is not None and _keeping.operators:
            _note_states(_keeping.operators, graph, arrays)
    finally:
        _keeping.operators = before


def _note_states(kept: Sequence[Kept], graph: Graph, arrays: Sequence[Any]) -> None:
    """Notes the arrays of auxiliary states, but not of calls in loops and branches, which run any number of times."""
    calls = [op for op in graph.ops if op.name == "mx.Custom"]
    if [op.attrs["op_type"] for op in calls] != [one.op_type for one in kept]:
        return
    numbers = iter(kept)
    held: dict[Value, NDArray] = dict(zip(graph.inputs, arrays))
    for op in graph.ops:
        operator = OPERATORS.get(op.name.removeprefix("mx."))
        if operator is None or operator.updates is None:
            continue
        if op.name == "mx.Custom":
            aux = op.operands[len(properties(op.attrs).list_arguments()) :]
            next(numbers).states = [held.get(v) for v in aux]
        for at, k in operator.updates(op.attrs).items():
            if op.operands[at] in held:  # the array holds the new value from here on
                held[op.results[k]] = held[op.operands[at]]


def _call(operands: Sequence[np.ndarray], arguments: Mapping[str, str]) -> list[np.ndarray]:
    """The callback of compiled code: the operator's results, then the new values of its auxiliary states."""
    prop = properties({"op_type": arguments[OP_TYPE], "arguments": _own(arguments)})
    arrays = [NDArray._wrap(np.array(x, order="C")) for x in operands]
    operator, outputs = compute(arguments[OP_TYPE], prop, arrays, arguments[TRAINING] == "True")
    results = [x._array for x in (*outputs, *arrays[len(prop.list_arguments()) :])]
    if KEPT in arguments:
        number = next(_numbers)
        if _keeping.operators is not None:
            kept = Kept(arguments[OP_TYPE], operator)
            _keeping.operators.append(kept)
            _operators[number] = kept
        results.append(np.array(number, np.int64))
    return results


def _call_backward(operands: Sequence[np.ndarray], arguments: Mapping[str, str]) -> list[np.ndarray]:
    """The gradients by the inputs that the arguments name.

    Operands are the gradients of the results, the inputs, results, auxiliary states after `forward`, and the operator's
    number. `backward` finds auxiliary states as they are now, and may write to them.
    """
    op_type = arguments[OP_TYPE]
    prop = properties({"op_type": op_type, "arguments": _own(arguments)})
    *arrays, number = operands
    made, count = len(prop.list_outputs()), len(prop.list_arguments())
    given = [NDArray._wrap(np.array(x, order="C")) for x in arrays]
    out_grad, in_data = given[:made], given[made : made + count]
    out_data, aux = given[made + count : made + count + made], given[made + count + made :]
    kept = _operators.get(int(number))
    states = kept.states if kept is not None else None
    if states is not None:
        aux = [x if state is None else state.copy() for x, state in zip(aux, states)]
    if kept is not None:
        operator = kept.operator
    else:
        shapes, dtypes = ([*map(of, (*in_data, *aux))] for of in (lambda x: x.shape, lambda x: x.dtype))
        operator = prop.create_operator(current_context(), shapes, dtypes)
    to = [int(k) for k in arguments[TO].split()]
    unread = {int(k) for k in arguments.get(UNREAD, "").split()}
    wanted = {k for place, k in enumerate(to) if place not in unread}
    req = ["write" if k in wanted else "null" for k in range(count)]
    before = [x._array.copy() for x in aux]
    found = backward(op_type, operator, req, out_grad, in_data, out_data, aux)
    for k, (x, old) in enumerate(zip(aux, before)):
        if np.array_equal(x._array, old, equal_nan=x._array.dtype.kind == "f"):
            continue
        if states is None:
            raise MXNetError(
                f"Custom({op_type!r}).backward writes to an auxiliary state, which is not possible in a hybridized "
                "block that calls a Custom in a loop or branch, too; write to it in forward, or do not hybridize"
            )
        state = states[k]
        if state is not None:
            state._store(x._array)
    return [found[k]._array for k in to]


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
