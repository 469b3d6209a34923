"""Functions that a lower layer calls and a higher layer implements, such as `Symbol.bind`.

Imports point down only. Each function here is implemented in a higher layer, in the module that is named; the first
call imports that module.

    late.bind(symbol, ...)                    # the caller: symbol/symbol.py
    late.bind.provide(bind)                   # the implementation: execution/executor.py

This is the only way up: no other module of this package imports one of a higher layer, by name or otherwise
(`tests/project/test_imports.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


class Late:
    """A function that `gluonjit.<module>` implements."""

    def __init__(self, module: str) -> None:
        self.module = module
        self._function: Callable[..., Any] | None = None

    def provide(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._function is None:
            import_module(f"gluonjit.{self.module}")
        assert self._function is not None, f"gluonjit.{self.module} provides it"
        return self._function(*args, **kwargs)


load_numpy = Late("numpy.namespaces")
"""`()`: declares the classes of `mx.np` and their counterparts of `mx.nd` and `mx.sym` (`kinds`)."""
numpy_packages = Late("numpy.namespaces")
"""`(package, symbolic)`: the modules `np` and `npx` of `mx.nd` or `mx.sym`, by each of their names."""

call_custom = Late("ndarray.custom_calls")
"""`(operands, arguments)`: what compiled code calls for operators that users wrote in Python."""
call_custom_backward = Late("ndarray.custom_calls")
"""`(operands, arguments)`: what compiled code calls for their gradients."""
record_custom = Late("autodiff.python_functions")
"""`(name, operator, in_data, aux, results)`: notes on the tape that such an operator made `results`."""

tiered_operator = Late("autodiff.tiering")
"""`(op, attrs)`: the plain calls of an operator, which move to native code where that pays."""
compile_graph = Late("execution.backends")
"""`(graph, options)`: the compiler, for plain calls of operators."""

feed_forward_class = Late("module.feed_forward")
"""`()`: the class `FeedForward`, which `mx.model` exports."""
executor_class = Late("execution.executor")
"""`()`: the class `Executor`, which `mx.sym` exports."""
cached_op_class = Late("execution.cached_op")
"""`()`: the class `CachedOp`, which `mx.nd` exports."""
bind = Late("execution.executor")
simple_bind = Late("execution.executor")
"""`Symbol.bind` and `Symbol.simple_bind`."""

record_operator = Late("autodiff.graph_nodes")
"""`(op, attrs, inputs, results, key, known, types)`: notes on the tape that an operator made `results`."""
record_rule = Late("autodiff.graph_nodes")
"""`(name, inputs, results, gradient)`: notes on the tape that `results` (one) were made from `inputs`, and that
`gradient` makes of the result's cotangent those of the inputs."""
record_method = Late("autodiff.recorded_methods")
"""`(method, x, args, kwargs)`: calls a method of an array that gradients flow to, and notes it on the tape."""
record_assignment = Late("autodiff.recorded_methods")
"""`(assign, x, key, value)`: `x[key] = value` while recording."""
refuse_write = Late("autodiff.tape")
"""`(x)`: an error if recording is on and gradients flow to this array."""
backward = Late("autodiff.walk")
"""`(heads, head_grads, retain_graph, train_mode)`."""
