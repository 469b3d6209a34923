"""Plain calls on native code: a graph runs with NumPy until that has cost as much as compiling would.

An operator that a program calls plainly, and its gradient, are graphs of primitives. NumPy takes a pass over memory for
each primitive, and gathers the operands of a convolution in a copy; native code does neither, but has to be compiled,
and to be called. So a graph is compiled when `saving` says that a call gains by it, and all its calls so far would have
gained `BUDGET`: then a program loses at most about as much again as it had lost already. Shapes and the number of calls
decide, never a clock or a cache, so that a program gets the same bits each time.

`GLUONJIT_PLAIN=numpy` keeps all plain calls with NumPy, `GLUONJIT_PLAIN=native` compiles at the first call whatever can
be compiled, whether that pays or not: for tests, and to see what it costs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from gluonjit.autodiff.computation import Run
from gluonjit.base import MXNetError
from gluonjit.ir.graph import Graph, Op
from gluonjit.ir.interpreter import Interpreter
from gluonjit.ir.types import IRError, TensorType, type_of
from gluonjit.language import late, rng
from gluonjit.operators.registry import Operator, operator_graph
from gluonjit.passes import run_passes
from gluonjit.runtime.executable import Executable
from gluonjit.runtime.storage import Storage
from gluonjit.runtime.watching import Watch

BUDGET = 50e6
"""Nanoseconds. A kernel is compiled in some 100 ms, and found in the object cache in 5."""
_CALL = 15e3
"""Nanoseconds of a native call from Python."""
_PASS = 1e3
"""Nanoseconds of a call of NumPy, without what it computes."""
MAX_TYPES = 64
"""For how many types of operands an operator with certain attributes is judged at once."""

WEIGHTS = ("weight", "bias", "gamma", "beta", "parameters", "moving_mean", "moving_var")
"""The inputs of operators that are a layer's parameters."""

_MOVE, _NATIVE_MOVE = 1.0, 0.3
"""Nanoseconds for an element that is copied to another place."""
_STEP, _NATIVE_STEP = 0.15, 0.03
"""For one of an op's `instructions`, of which each element takes some; they are vector instructions in both."""
_STREAM, _NATIVE_STREAM = 0.5, 0.0
"""For each element that a pass writes. Native code keeps intermediate values in registers."""
_PRODUCT, _NATIVE_PRODUCT = 0.06, 0.03
"""For a multiply-add of a convolution; NumPy copies its operands."""
_TAP, _NATIVE_TAP = 0.6, 0.1
"""For an element that a pooling window reads."""
_LOOKUP, _NATIVE_LOOKUP = 6.0, 1.0
"""For an element that is found by an index."""
_SORT, _NATIVE_SORT = 60.0, 10.0
_PACK = 0.5
"""For an element of a matrix that native code packs before it is multiplied; otherwise products take the same time."""


def setting() -> str:
    """`GLUONJIT_PLAIN`: 'numpy', 'native', or '' for the faster one."""
    return os.environ.get("GLUONJIT_PLAIN", "")


def saving(graph: Graph, packs: bool) -> float:
    """About how many nanoseconds of a call native code saves over NumPy; negative if it takes longer. `graph` is of
    level `expanded` or `legal`; `packs`: whether weights are packed in each call."""
    return _saved(graph, packs) - _CALL


def _saved(graph: Graph, packs: bool) -> float:
    return sum(_saved_by(op, packs) for op in graph.ops)


def _saved_by(op: Op, packs: bool) -> float:
    """What the native form of one op saves, without the call."""
    if op.name in ("constant", "iota", "extent") or not op.results:
        return 0.0
    if op.name == "loop":
        return op.attrs["trip"] * (_PASS + sum(_saved(r, packs) for r in op.regions))
    if op.name == "branch":
        return max(_saved(r, packs) for r in op.regions)
    if op.name == "with_gradient":
        return _saved(op.regions[0], packs)
    size = op.results[0].type.size
    if op.name in ("reshape", "broadcast", "transpose", "slice", "reverse"):
        return 0.0  # a view; what reads it pays
    if op.name == "dot_general":
        return -_PACK * op.operands[1].type.size if packs else 0.0
    if op.name == "conv":
        filters = op.attrs["layout"][1].index("O")
        taps = op.operands[1].type.size // max(op.operands[1].shape[filters], 1)
        return size * taps * (_PRODUCT - _NATIVE_PRODUCT) + _PASS
    if op.name == "reduce_window":
        return size * math.prod(op.attrs["window"]) * (_TAP - _NATIVE_TAP) + _PASS
    if op.name in ("gather", "gather_nd", "scatter_add"):
        return max(size, op.operands[-1].type.size) * (_LOOKUP - _NATIVE_LOOKUP) + _PASS
    if op.name == "sort":
        return op.operands[0].type.size * (_SORT - _NATIVE_SORT) + _PASS
    if op.definition.moves:
        return size * (_MOVE - _NATIVE_MOVE) + _PASS
    if op.name in ("reduce", "arg_reduce", "cumsum"):
        size = op.operands[0].type.size
    steps = op.definition.instructions * (_STEP - _NATIVE_STEP)
    return size * (_STREAM - _NATIVE_STREAM + steps) + _PASS


def _calls_python(graph: Graph) -> bool:
    """Whether compiled code would call back, or has errors of its own to raise: their texts are NumPy's business."""
    for op in graph.ops:
        if op.definition.level == "host" or op.name == "check_index" or getattr(op.definition, "host", False):
            return True
        if any(map(_calls_python, op.regions)):
            return True
    return False


class Tiered:
    """A graph that moves to native code when it has cost enough: see `native`.

    `params`: the inputs from which values are prepared, if they are the same from call to call."""

    def __init__(self, graph: Callable[[], Graph], expanded: Callable[[], Graph], params: Sequence[int] = ()) -> None:
        self._graph, self._expanded, self._params = graph, expanded, tuple(params)
        self._left = BUDGET
        self._saving: float | None = None
        self._callee: Any = None

    def native(self) -> Any:
        """The code for one more call (`runtime.backend.Callee`); None if NumPy is to compute it."""
        if self._callee is not None:
            return self._callee
        if self._saving is None:
            self._saving = self._judged()
        if self._saving <= 0:
            return None
        self._left -= self._saving
        if self._left > 0:
            return None
        try:
            self._callee = late.compile_graph(self._graph().with_attrs(params=self._params), {})
        except (IRError, MXNetError):  # the plain call still has NumPy
            self._saving = 0.0
        return self._callee

    def _judged(self) -> float:
        mode = setting()
        if mode == "numpy":
            return 0.0
        try:
            graph = self._expanded()
            if _calls_python(graph):
                return 0.0
            return math.inf if mode == "native" else saving(graph, packs=not self._params)
        except (IRError, MXNetError):  # what is wrong with its operands, NumPy's way says better
            return 0.0


def tiered(graph: Graph) -> Run:
    """Runs a graph of level up to `legal` in this way; what `Computation` takes for `compile`."""
    tier = Tiered(lambda: graph, lambda: run_passes(graph, "expand"))
    interpreter: Interpreter | None = None

    def run(inputs: Sequence[np.ndarray], watch: Watch | None = None) -> Any:
        nonlocal interpreter
        callee = tier.native()
        if callee is None:
            interpreter = interpreter or Interpreter(graph)
            return interpreter.run(inputs)
        arrays = [np.asarray(x, order="C") for x in inputs]
        if watch is None or not isinstance(callee, Executable):
            return callee.run(arrays)
        return callee.run(arrays, watch=watch)

    return run


class _Forms:
    """The two forms of an operator's code for operands of certain types."""

    def __init__(self, changing: Tiered, steady: Tiered) -> None:
        self.changing = changing
        """For weights that are others in each call, as in training."""
        self.steady = steady
        """For weights that are the same from call to call: what depends on them alone is prepared."""
        self.seen: WeakKeyDictionary[Storage, _Seen] = WeakKeyDictionary()
        """By the storage of the first weight: its last call."""


class _Seen(NamedTuple):
    """The weights of a call. It does not refer to the storage of the first, and ends with it."""

    places: tuple[int, ...]
    """Their addresses: a storage may hold several weights."""
    others: tuple[Storage | None, ...]
    versions: tuple[Hashable, ...]
    code: Any
    """The steady form, with values prepared from them; None if it never ran."""


class TieredOperator:
    """The plain calls of an operator with certain attributes."""

    def __init__(self, op: Operator, attrs: Mapping[str, Any]) -> None:
        self.name = op.name
        self._op, self._attrs = op, attrs
        self._weights = [k for k, name in enumerate(op.input_names(attrs)) if name in WEIGHTS]
        self._known: dict[Any, _Forms] = {}

    def run(self, inputs: Sequence[Any], training: bool, key: np.ndarray | None) -> list[np.ndarray] | None:
        """All results, in memory of their own; None if NumPy is to compute them. `inputs`: NDArrays. `key`: what it
        draws random numbers with, reserved here if it is None."""
        arrays = [x._array for x in inputs]
        types = (training, *[(x.shape, x.dtype) for x in arrays])
        forms = self._known.get(types)
        if forms is None:
            if len(self._known) >= MAX_TYPES:
                self._known.clear()
            forms = self._known[types] = self._forms([type_of(x) for x in arrays], training)
        versions: list[Hashable] | None = None
        if self._weights:
            callee, versions = self._steady(forms, inputs)
        if versions is None:
            callee = forms.changing.native()
        if callee is None:
            return None
        streams = self._op.streams(self._attrs, training) if self._op.streams is not None else 0
        if streams:
            arrays.append(rng.reserve(streams) if key is None else key)
            versions = versions and [*versions, None]
        return self.compute(callee, arrays, versions)

    def compute(self, code: Any, arrays: Sequence[np.ndarray], versions: Any) -> list[np.ndarray]:
        """Runs the code."""
        outputs: list[np.ndarray]
        outputs, _ = code.run(arrays, versions) if versions is not None else code.run(arrays)
        return outputs

    def _steady(self, forms: _Forms, inputs: Sequence[Any]) -> tuple[Any, list[Hashable] | None]:
        """The code for weights that have not changed since the last call with them, and the versions of all inputs;
        None instead of these if they have."""
        watched = [inputs[k].storage().watch() for k in self._weights]
        first = watched[0][0]
        places = tuple([inputs[k]._array.ctypes.data for k in self._weights])
        others = tuple([storage if storage is not first else None for storage, _ in watched])
        versions = tuple([version for _, version in watched])
        before = forms.seen.get(first)
        if before is None or before[:2] != (places, others):
            forms.seen[first] = _Seen(places, others, versions, None)
            return None, None
        if before.versions != versions:
            forms.seen[first] = before._replace(versions=versions)
            return None, None
        code = before.code
        if code is None:
            code = forms.steady.native()
            if isinstance(code, Executable):
                code = code.for_other_parameters()
            forms.seen[first] = before._replace(code=code)
        every: list[Hashable] = [None] * len(inputs)
        for k, version in zip(self._weights, versions):
            every[k] = version
        return code, every

    def _forms(self, types: Sequence[TensorType], training: bool) -> _Forms:
        op, attrs = self._op, self._attrs

        def tier(params: Sequence[int]) -> Tiered:
            return Tiered(
                lambda: operator_graph(op, attrs, types, training, hidden=True),
                lambda: op.expansion(types, attrs, training),
                params,
            )

        return _Forms(tier(()), tier(self._weights))


late.tiered_operator.provide(TieredOperator)
