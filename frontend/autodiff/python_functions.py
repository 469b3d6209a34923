"""`autograd.Function`: a computation with a gradient that its user wrote."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from gluonjit.autodiff.tape import Node, Saved, array_of
from gluonjit.base import MXNetError, TraceError
from gluonjit.common.signals import is_from_signal
from gluonjit.language import late
from gluonjit.language.array import Array
from gluonjit.language.modes import Scope, modes
from gluonjit.language.running import running
from gluonjit.language.source import quote
from gluonjit.ndarray import NDArray, custom_calls
from gluonjit.ndarray.constructors import zeros
from gluonjit.ndarray.variable import tracked
from gluonjit.operators.control.custom_classes import CustomOp
from gluonjit.symbol.traced_gradients import with_own_gradient


class _FunctionNode(Node):
    __slots__ = ("function", "saved")

    def __init__(self, function: Function, sources: Sequence[Any], results: Sequence[NDArray]) -> None:
        super().__init__(type(function).__name__, tuple(sources), tuple(range(len(results))), results)
        self.function: Function | None = function
        self.saved = [Saved.of(x) for x in function.saved_tensors if isinstance(x, NDArray)]

    def release(self) -> None:
        super().release()
        self.function = None
        self.saved = []

    def pull(
        self, cotangents: Sequence[NDArray], create_graph: bool, given: Collection[int]
    ) -> Sequence[NDArray | None]:
        assert self.function is not None
        self.check((f"saved_tensors[{k}]", value) for k, value in enumerate(self.saved))
        with Scope(create_graph, None):
            # What is recorded in turn is known by its identity.
            own = cotangents if create_graph else [*map(_own, cotangents)]
            return _gradients(self.function, own, len(self.sources))


class _CustomNode(Node):
    """A call of a custom operator; its `backward` may change the auxiliary states."""

    __slots__ = ("in_data", "aux", "op_type", "operator", "out_data", "req", "saved")

    def __init__(
        self,
        name: str,
        operator: CustomOp,
        in_data: Sequence[NDArray],
        aux: Sequence[NDArray],
        results: Sequence[NDArray],
    ) -> None:
        heads = tuple([k for k, x in enumerate(results) if x._array.dtype.kind == "f"])
        self.req = ["write" if tracked(x) else "null" for x in in_data]
        sources = tuple([x._grad_state for x in in_data if tracked(x)])
        super().__init__(f"Custom({name!r})", sources, heads, results)
        self.op_type = name
        self.operator: CustomOp | None = operator
        self.aux = list(aux)
        self.in_data, self.out_data = ([NDArray._wrap(x._array) for x in arrays] for arrays in (in_data, results))
        self.saved = [(f"input {k}", Saved.of(x)) for k, x in enumerate(in_data)]
        self.saved += [(f"output {k}", Saved.of(x)) for k, x in enumerate(results)]

    def release(self) -> None:
        super().release()
        self.operator = None
        self.in_data, self.out_data, self.aux, self.saved = [], [], [], []

    def pull(
        self, cotangents: Sequence[NDArray], create_graph: bool, given: Collection[int]
    ) -> Sequence[NDArray | None]:
        assert self.operator is not None
        if create_graph:
            raise MXNetError(f"the gradient of {self.name} cannot be differentiated in turn{quote(self.loc)}")
        self.check(self.saved)
        received = dict(zip(self.heads, map(_own, cotangents), strict=True))
        out_grad = [
            received[k] if k in received else zeros(x.shape, dtype=x.dtype) for k, x in enumerate(self.out_data)
        ]
        with Scope(False, None):
            found = custom_calls.backward(
                self.op_type, self.operator, self.req, out_grad, self.in_data, self.out_data, self.aux
            )
        return [g for g, req in zip(found, self.req) if req != "null"]


def _own(cotangent: NDArray) -> NDArray:
    """A copy for code that its user wrote, which may write to it: other nodes may have the same cotangent."""
    if cotangent.stype != "default":
        return cotangent.copy()
    return array_of(np.array(cotangent._array, order="C"), cotangent._numpy, cotangent._device)


def _record_custom(
    name: str, operator: CustomOp, in_data: Sequence[NDArray], aux: Sequence[NDArray], results: Sequence[NDArray]
) -> None:
    if any(tracked(x) for x in in_data):
        node = _CustomNode(name, operator, in_data, aux, results)
        node.mark(results)


def _gradients(function: Function, cotangents: Sequence[Any], count: int) -> Sequence[Any]:
    """What the function's `backward` returns: a gradient for each of its `count` inputs."""
    found = function.backward(*cotangents)
    gradients = list(found) if isinstance(found, (list, tuple)) else [found]
    if len(gradients) != count:
        raise MXNetError(
            f"{type(function).__name__}.backward must return exactly the same number of NDArrays as the number of "
            f"NDArrays arguments to forward. Expecting {count} got {len(gradients)}"
        )
    return gradients


def _arrays(found: Any, kind: type) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """The arrays among what `forward` returned, and a function that puts others in their places."""
    if not isinstance(found, (list, tuple)):
        return [found], lambda given: given[0]
    places = [k for k, x in enumerate(found) if isinstance(x, kind)]

    def rebuild(given: Sequence[Any]) -> list[Any]:
        results = list(found)
        for k, x in zip(places, given, strict=True):
            results[k] = x
        return results

    return [found[k] for k in places], rebuild


class Function:
    """A computation with a gradient of its own: subclasses define `forward(*inputs)` and `backward(*gradients)`.

    While recording, an instance may be called only once, because `backward` needs what that call saved. `backward` gets
    the gradients by the results of `forward` and returns those by its inputs. A result of `forward` that is one of its
    inputs is copied.
    """

    def __init__(self) -> None:
        self._used = False
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *args: Any) -> None:
        """Notes what `backward` finds in `self.saved_tensors`."""
        self.saved_tensors = args

    def __call__(self, *inputs: Any) -> Any:
        if self._used:
            raise AssertionError("Each Function instance can only be called once. Please create another instance.")
        self._used = modes.recording
        if running.trace is not None:
            return self._traced(self.forward(*inputs), inputs, running.trace)
        with Scope(False, None):
            found = self.forward(*inputs)
        if not modes.recording:
            return found
        sources = [x._grad_state if isinstance(x, NDArray) and tracked(x) else None for x in inputs]
        if all(source is None for source in sources):
            return found
        results, rebuild = _arrays(found, NDArray)
        results = [x.copy() if any(x is y for y in inputs) else x for x in results]
        _FunctionNode(self, sources, results).mark(results)
        return rebuild(results)

    def _traced(self, found: Any, inputs: Sequence[Any], trace: Any) -> Any:
        """The results of `forward` in a trace. `backward` is traced, too; that fails only once a gradient is wanted."""
        results, rebuild = _arrays(found, Array)
        results = [trace.lift(x) for x in results]
        if trace.paused:
            return rebuild(results)
        name = type(self).__name__

        def gradient(*cotangents: Any) -> Sequence[Any]:
            return _gradients(self, cotangents, len(inputs))

        try:
            results = with_own_gradient(name, results, [trace.lift(x) for x in inputs], gradient, trace)
        except TraceError as e:
            trace.refused_gradient = e
        except Exception as e:
            if is_from_signal(e):
                raise
            trace.refused_gradient = TraceError(f"{name}.backward cannot be compiled: {type(e).__name__}: {e}")
        return rebuild(results)

    def forward(self, *inputs: Any) -> Any:
        raise NotImplementedError

    def backward(self, *output_grads: Any) -> Any:
        raise NotImplementedError


late.record_custom.provide(_record_custom)
