"""`autograd.Function`: a computation with a gradient that its user wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.execution.tape import Node
from gluonjit.language.modes import Scope, modes
from gluonjit.language.running import running
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.variable import tracked


class _FunctionNode(Node):
    __slots__ = ("function",)

    def __init__(self, function: Function, sources: Sequence[Any], results: Sequence[NDArray]) -> None:
        super().__init__(type(function).__name__, sources, range(len(results)), results)
        self.function: Function | None = function

    def release(self) -> None:
        super().release()
        self.function = None

    def pull(self, cotangents: Sequence[NDArray], create_graph: bool) -> Sequence[NDArray | None]:
        assert self.function is not None
        with Scope(create_graph, None):
            found = self.function.backward(*cotangents)
        gradients = list(found) if isinstance(found, (list, tuple)) else [found]
        if len(gradients) != len(self.sources):
            raise MXNetError(
                f"{self.name}.backward must return exactly the same number of NDArrays as the number of NDArrays "
                f"arguments to forward. Expecting {len(self.sources)} got {len(gradients)}"
            )
        return gradients


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
        with Scope(False, None):
            found = self.forward(*inputs)
        if running.trace is not None or not modes.recording:
            return found
        sources = [x._grad_state if tracked(x) else None for x in inputs]
        if all(source is None for source in sources):
            return found
        single = not isinstance(found, (list, tuple))
        results = [x.copy() if any(x is y for y in inputs) else x for x in ([found] if single else found)]
        _FunctionNode(self, sources, results).mark(results)
        return results[0] if single else results

    def forward(self, *inputs: Any) -> Any:
        raise NotImplementedError

    def backward(self, *output_grads: Any) -> Any:
        raise NotImplementedError
