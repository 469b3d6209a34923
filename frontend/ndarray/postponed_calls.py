"""The call of a net that completes the shapes of its parameters: its results are computed when somebody looks at them.

Programs call a net once after `initialize()`, as that is how layers learn how many features arrive, and drop what it
returns. So the plain operators of such a call are noted, with the types of their results. These are deferred arrays,
and so are, meanwhile, the operands from outside (`ndarray/deferred.py`): who looks at a result, or writes to an
argument or a parameter, first has the results computed that still exist. Mostly there are none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.ir.types import IRError, TensorType, type_of
from gluonjit.language.modes import Scope, modes
from gluonjit.language.running import no_trace, running
from gluonjit.ndarray import deferred
from gluonjit.ndarray.deferred import Deferred, deferred_class, made, own_class, replace, stand_in, storage_of
from gluonjit.ndarray.imperative import invoke
from gluonjit.ndarray.ndarray import NDArray
from gluonjit.ndarray.settled_calls import all_ops
from gluonjit.operators.registry import UNFORESEEN, Operator
from gluonjit.runtime.storage import EPOCH


class _Result(NamedTuple):
    """A result of a call that is noted: the numbers of the call and of the result, and the array, while it exists."""

    call: int
    number: int
    array: ref[Any]


class _Call(NamedTuple):
    op: Operator
    attrs: Mapping[str, Any]
    """As they were given, not parsed."""
    operands: Sequence[Any]
    """Arrays from outside, results, and None for operands that are left out."""


class PostponedCalls:
    """The operators that a thread has called since parameters lacked a shape, until the outermost call of a block ends,
    or something looks at one of their arrays. Attribute `running.postponed` of that thread."""

    def __init__(self) -> None:
        self._thread = get_ident()
        self._outermost: tuple[int, CodeType] | None = None
        """The outermost call: the id of its frame, and the code that this runs."""
        self._calls: list[_Call] = []
        self._results: dict[int, _Result] = {}
        """By the ids of arrays, which may have died since."""
        self._held: dict[int, tuple[Any, type]] = {}
        """The operands from outside, by their ids, and their own classes."""

    def last_until_end_of(self, frame: FrameType) -> bool:
        """Notes the operators that are called before the function of this frame, of this thread, returns. False if
        another thread has made the calls so far."""
        if self._thread != get_ident():
            return False
        self._outermost = id(frame), frame.f_code
        return True

    def invoke(self, op: Operator, call: Any, raw: Mapping[str, Any], inputs: Sequence[Any]) -> Any:
        """What the operator returns, without elements; None if it is to run at once. `call`: its
        `imperative._Call`."""
        if running.postponed is not self or modes.recording or modes.training or not self._is_inside():
            running.postponed = None
            return None
        operands = [x for x in inputs if x is not None]
        with deferred.lock:
            if deferred.now.step is not None and deferred.now.step is not self:
                running.postponed = None
                return None
            is_usual = operands and len(operands) == call.arity and not call.makes_sparse
            if not is_usual or not all(map(self._may_wait, operands)):
                return None
            types = _types_of_results(op, call.attrs, [type_of(x._stand_in) for x in operands])
            if types is None:
                return None
            own = next((own_class(x) for x in operands if x._numpy), NDArray)
            found = [made(deferred_class(own), _without_elements(t)) for t in types[: call.visible]]
            given = [x if x is None else self._results[id(x)] if self._is_result(x) else x for x in inputs]
            for x in given:
                if isinstance(x, NDArray) and id(x) not in self._held:
                    self._hold(x)
            deferred.now.step = self
            self._results.update((id(x), _Result(len(self._calls), k, ref(x))) for k, x in enumerate(found))
            self._calls.append(_Call(op, raw, given))
        return found[0] if len(found) == 1 else found

    def settle(self) -> None:
        """Computes the results that still exist. Afterwards there is nothing deferred; after an error, the results do
        not exist. `lock` is held."""
        if running.postponed is self:
            running.postponed = None
        try:
            for array, value in self._computed():
                replace(array, own_class(array), value)
        except Exception:
            self._forget()
            raise
        self._forget()

    def takes(self, caller: Any, args: Any) -> None:
        """`Waiting.takes`: no step of training waits."""
        deferred.settle()

    def takes_backward(self, heads: Any, head_grads: Any, keeps_graph: bool, train_mode: bool) -> bool:
        """`Waiting.takes_backward`: no step of training waits."""
        deferred.settle()
        return False

    def _is_inside(self) -> bool:
        """Whether the outermost call of a block has not ended."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and (id(frame), frame.f_code) != self._outermost:
            frame = frame.f_back
        return frame is not None

    def _is_result(self, x: Any) -> bool:
        known = self._results.get(id(x))
        return known is not None and known.array() is x

    def _may_wait(self, x: Any) -> bool:
        """Whether an operand is one of these results, or nothing but itself can tell that its elements are wanted."""
        if isinstance(x, Deferred):
            return self._is_result(x) or id(x) in self._held
        if not isinstance(x, NDArray) or x.stype != "default" or x._device is not None:
            return False
        storage = storage_of(x)
        return storage is None or not (storage.aliased or storage.exposed)

    def _hold(self, x: Any) -> None:
        """Defers an operand from outside."""
        own = x.__class__
        self._held[id(x)] = x, own
        x.__class__ = deferred_class(own)
        storage = storage_of(x)
        if storage is not None and storage.watched:
            EPOCH[0] += 1  # native code that reads or writes it comes to see that it is deferred

    def _computed(self) -> list[tuple[Any, Any]]:
        """The results that exist, deferred, each with an ordinary array."""
        alive = {(r.call, r.number): x for r in self._results.values() if (x := r.array()) is not None}
        last: dict[int, int] = {k: len(self._calls) for k, _ in alive}
        """The last call that reads results of each that is needed."""
        for k in reversed(range(len(self._calls))):
            if k in last:
                for x in self._calls[k].operands:
                    if isinstance(x, _Result):
                        last.setdefault(x.call, k)
        values: dict[int, list[Any]] = {}
        with no_trace(), Scope(False, False):
            for k in sorted(last):
                op, attrs, operands = self._calls[k]
                inputs = [
                    values[x.call][x.number] if isinstance(x, _Result) else x if x is None else self._ordinary(x)
                    for x in operands
                ]
                found = invoke(op, inputs, dict(attrs))
                values[k] = list(found) if isinstance(found, (list, tuple)) else [found]
                for x in operands:
                    if isinstance(x, _Result) and last[x.call] == k:
                        values.pop(x.call, None)
        return [(x, values[k][number]) for (k, number), x in alive.items()]

    def _ordinary(self, x: Any) -> Any:
        return stand_in(x, self._held[id(x)][1])

    def _forget(self) -> None:
        for x, own in self._held.values():
            x.__class__ = own
        self._calls, self._results, self._held = [], {}, {}
        deferred.now.step = None


def begin(code: CodeType) -> None:
    """To be called when a block, which runs operator by operator in this thread, has found shapes that were missing.
    The operators that follow may wait, until the outermost of the calls that run the function with this `code` ends."""
    if running.trace is not None or modes.recording or modes.training:
        return
    waiting = deferred.now.step or PostponedCalls()
    if not isinstance(waiting, PostponedCalls) or os.environ.get("MXNET_ENGINE_TYPE") == "NaiveEngine":
        return
    outermost, frame = None, sys._getframe(1)
    while frame is not None:
        if frame.f_code is code:
            outermost = frame
        frame = frame.f_back  # type: ignore[assignment]
    if outermost is not None and waiting.last_until_end_of(outermost):
        running.postponed = waiting


def _types_of_results(op: Operator, attrs: Mapping[str, Any], types: Sequence[TensorType]) -> list[TensorType] | None:
    """The types of all results of a call that does nothing but compute these; None if it does anything else, or fails,
    or may fail because of elements."""
    if op.imperative_only or op.host or op.number:
        return None
    try:
        graph = op.expansion(types, attrs)
    except (MXNetError, IRError, *UNFORESEEN):
        return None
    if graph.attrs["streams"] or any(o.definition.level == "host" or o.name == "check_index" for o in all_ops(graph)):
        return None
    if op.updates is not None:
        for at, k in op.updates(attrs).items():
            if graph.outputs[k] is not graph.inputs[at]:
                return None
    found = [v.type for v in graph.outputs]
    return found if all(t.is_static for t in found) else None


def _without_elements(type: TensorType) -> np.ndarray:
    """An array for `made` that takes no memory."""
    return np.broadcast_to(np.empty((), type.dtype.numpy), type.shape)
