"""`mx.nd.CachedOp`: a symbol that is called with arrays. In MXNet, hybridized blocks use it; programs may, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gluonjit.autodiff.recorded_calls import recorded_call
from gluonjit.base import MXNetError
from gluonjit.execution.backends import FLAGS, parsed_flags
from gluonjit.execution.session import Inputs, Monitor
from gluonjit.execution.symbol_codes import SymbolCode, SymbolCodes
from gluonjit.ir.opdef import did_you_mean
from gluonjit.language import late
from gluonjit.language.kinds import as_np
from gluonjit.language.modes import is_training, modes
from gluonjit.ndarray import NDArray

_FLAGS = (*FLAGS, "data_indices", "param_indices", "subgraph", "is_dynamic")
"""MXNet's flags for memory allocation and bulking. They do not change results, and are ignored here."""


class CachedOp:
    """`op(*arrays)` computes `sym`; arrays are in the order of `sym.list_inputs()`.

    Returns an array, or a list of several. Each combination of element types, shapes and training mode is compiled at
    its first call. `flags` are pairs of name and value; MXNetError for a name that MXNet does not know.
    """

    def __init__(self, sym: Any, flags: Iterable[tuple[str, Any]] = ()) -> None:
        for key, value in flags:
            if key in FLAGS:
                parsed_flags({key: value})
            elif key not in _FLAGS:
                raise MXNetError(
                    f"Cannot find argument '{key}', Possible Arguments: {', '.join(_FLAGS)}{did_you_mean(key, _FLAGS)}"
                )
        self.is_np_sym = bool(sym._numpy)
        self._symbol = sym.__copy__()
        names = sym.list_inputs()
        arguments, aux = sym.list_arguments(), sym.list_auxiliary_states()
        if len(set(names)) != len(names):
            raise ValueError(f"Duplicate names detected, {names}")
        self._names = names
        self._order = [names.index(name) for name in (*arguments, *aux)]
        self._codes = SymbolCodes(self._symbol)
        self._monitor: Monitor | None = None

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        if kwargs:
            raise TypeError(f"CachedOp.__call__ got unexpected keyword argument(s): {', '.join(kwargs)}")
        if len(args) != len(self._names):
            raise MXNetError(f"CachedOp takes {len(self._names)} arrays ({', '.join(self._names)}), got {len(args)}")
        for name, x in zip(self._names, args):
            if not isinstance(x, NDArray):
                raise TypeError(f"CachedOp computes on NDArrays, got a {type(x).__name__} for {name}")
        arrays = [args[k] for k in self._order]
        code = self._codes.code([x._array for x in arrays], is_training())
        session = code.session
        inputs = session.inputs(arrays)
        results = self._recorded(code, inputs) if modes.recording else None
        if results is None:
            results = [NDArray._wrap(x) for x in session.run(inputs, self._monitor)]
        if out is not None:
            targets = out if isinstance(out, (list, tuple)) else [out]
            if len(targets) != len(results):
                raise MXNetError(f"CachedOp gives {len(results)} arrays, out has {len(targets)}")
            for target, result in zip(targets, results):
                target[:] = result
            return out
        if self.is_np_sym:
            results = as_np(results)
        return results[0] if len(results) == 1 else results

    def _recorded(self, code: SymbolCode, inputs: Inputs) -> list[NDArray] | None:
        """The results, noted on the tape; None if no gradient flows through the call."""
        name, kinds = self._symbol.name or "CachedOp", [False] * len(self._symbol)
        return recorded_call(name, code.session, code.computation, inputs, self._monitor, kinds, None)

    def _register_op_hook(self, callback: Callable[..., None] | None, monitor_all: bool = False) -> None:
        """Registers `callback(name, operator, array)` for every operator's results; `monitor_all`: and for inputs."""
        self._monitor = Monitor(callback, monitor_all, as_bound=False) if callback else None


late.cached_op_class.provide(lambda: CachedOp)
