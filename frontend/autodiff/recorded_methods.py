"""Methods of arrays on the tape: indexing, views, copies.

A method of an array that gradients flow to is run as always, and traced: its graph has the gradient. So what a method
means is stated once, where traces run it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from gluonjit.autodiff.computation import Computation
from gluonjit.autodiff.graph_nodes import record
from gluonjit.autodiff.tape import refuse_write
from gluonjit.codes.store import Store
from gluonjit.ir.types import type_of
from gluonjit.language import late
from gluonjit.language.modes import Scope, modes
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.variable import tracked
from gluonjit.trace.tracing import trace

_computations: Store[Computation] = Store(4096)


class _Call:
    """A program (`trace.protocols.HybridForward`) that calls one function on its arguments."""

    _fast_call: Callable[..., Any] | None = None
    _children: dict[str, Any] = {}
    _reg_params: dict[str, Any] = {}

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._function = function

    def hybrid_forward(self, F: Any, *args: Any) -> Any:
        return self._function(*args)

    def name_scope(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def collect_params(self) -> dict[str, Any]:
        return {}


def computation_of(name: str, function: Callable[..., Any], arrays: Sequence[NDArray], key: Any) -> Computation:
    """The graph of `function(*arrays)`, which returns one array.

    `key` tells functions of the same name apart; None: the graph is not cached.
    """
    types = tuple([(x._array.shape, x._array.dtype, x._numpy) for x in arrays])
    signature = (name, key, types) if key is not None else None
    try:
        found = _computations.find(signature)
    except TypeError:
        signature, found = None, None
    if found is None:
        with Scope(False, None):
            traced = trace(_Call(name, function), tuple(NDArray._wrap(x._array) if not x._numpy else x for x in arrays))
        found = Computation(traced.graph([type_of(x._array) for x in arrays], modes.training))
        if signature is not None:
            _computations.keep(signature, found)
    return found


def _record_method(method: Callable[..., Any], x: NDArray, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of `method(x, *args, **kwargs)`, noted on the tape if recording is on."""
    result = method(x, *args, **kwargs)
    if not modes.recording or not isinstance(result, NDArray) or result is x or not tracked(x):
        return result
    name = method.__name__
    inputs: list[NDArray] = [x]
    function: Callable[..., Any]
    key: Any = _exact((args, tuple(kwargs.items())) if kwargs else args)
    if key is not None:
        function = partial(_called, name, args, kwargs)
    elif name == "detach":
        return result
    elif name == "copyto" or name == "as_in_context":
        function = _copied
    else:
        if name == "__getitem__":
            args = (_positions(args[0]), *args[1:])
        inputs, rebuild = _arrays_in((x, *args), kwargs)
        function = partial(_called_on, name, rebuild)
        key = repr((args, sorted(kwargs.items()))) if _is_plain((args, tuple(kwargs.items()))) else None
    record(computation_of(name, function, inputs, key), inputs, [result], name)
    return result


def _exact(values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Arguments as a hashable key that only equal ones have; None if they are more than whole numbers and words, None,
    and tuples and slices of these."""
    found: list[Any] = []
    for value in values:
        kind = value.__class__
        if kind is int or kind is str or value is None:
            found.append(value)
        elif kind is tuple or kind is slice:
            inner = _exact(value if kind is tuple else (value.start, value.stop, value.step))
            if inner is None:
                return None
            found.append((kind, inner))
        else:
            return None
    return tuple(found)


def _called(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], x: Any) -> Any:
    return getattr(x, name)(*args, **kwargs)


def _called_on(name: str, rebuild: Callable[[Sequence[Any]], Any], *given: Any) -> Any:
    (first, *rest), named = rebuild(given)
    return getattr(first, name)(*rest, **named)


def _arrays_in(args: Any, kwargs: dict[str, Any]) -> tuple[list[NDArray], Callable[[Sequence[Any]], Any]]:
    """The arrays in nested arguments, and a function that puts others in their place."""
    arrays: list[NDArray] = []
    shape = _taken(args, arrays), _taken(kwargs, arrays)
    return arrays, lambda given: _put(shape, given)


# Functions of the module: a closure that calls itself is a reference cycle, which would keep the arrays.


def _taken(value: Any, arrays: list[NDArray]) -> Any:
    """Nested arguments with places in place of arrays, which are appended to `arrays`."""
    if isinstance(value, NDArray):
        arrays.append(value)
        return _Place(len(arrays) - 1)
    if isinstance(value, (tuple, list)):
        return type(value)([_taken(v, arrays) for v in value])
    if isinstance(value, dict):
        return {k: _taken(v, arrays) for k, v in value.items()}
    return value


def _put(value: Any, given: Sequence[Any]) -> Any:
    """The reverse of `_taken`."""
    if isinstance(value, _Place):
        return given[value.number]
    if isinstance(value, (tuple, list)):
        return type(value)([_put(v, given) for v in value])
    if isinstance(value, dict):
        return {k: _put(v, given) for k, v in value.items()}
    return value


def _copied(x: Any) -> Any:
    return x.copy()


def _positions(key: Any) -> Any:
    """An index key with positions in place of masks, as a trace does not know how many elements a mask has."""
    parts: list[Any] = []
    masks = False
    for part in key if isinstance(key, tuple) else (key,):
        mask = part._array if isinstance(part, NDArray) else part
        if isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.ndim:
            parts.extend(np.nonzero(mask))
            masks = True
        else:
            parts.append(part)
    return tuple(parts) if masks else key


def _is_plain(value: Any) -> bool:
    """Whether the `repr` of an argument says all about it."""
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or value is Ellipsis or isinstance(value, (bool, int, float, str, slice, type))


class _Place:
    def __init__(self, number: int) -> None:
        self.number = number


def _record_assignment(assign: Callable[..., None], x: NDArray, key: Any, value: Any) -> None:
    """`x[key] = value` while recording: no gradient flows to `x` so far; from now on it is computed from `value`."""
    refuse_write(x)
    before = x._array.copy()
    assign(x, key, value)
    if not isinstance(value, NDArray) or value._grad_state is None or not tracked(value):
        return
    old = NDArray._wrap(before)
    inputs, rebuild = _arrays_in((old, _positions(key), value), {})

    def function(*given: Any) -> Any:
        (target, at, new), _ = rebuild(given)
        result = target.copy()
        result[at] = new
        return result

    record(computation_of("assignment", function, inputs, None), inputs, [x], "assignment")


late.record_method.provide(_record_method)
late.record_assignment.provide(_record_assignment)
