"""The first plain call of a net: its results are computed when somebody looks at them.

Programs call a net once after `initialize()`, as that is how layers learn how many features arrive, and drop what it
returns. So the plain operators of a block's first call are noted, with the types of their results. These are deferred
arrays, and so are, meanwhile, the operands from outside (`ndarray/deferred.py`): who looks at a result, or writes to an
argument or a parameter, first has the results computed that still exist. Mostly there are none.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
    compute: Callable[[list[Any]], Any]
    """From ordinary arrays, one for each operand."""
    operands: Sequence[Any]
    """Arrays from outside, results, and None for operands that are left out."""


VIEWS = frozenset(("__getitem__", "as_nd_ndarray", "as_np_ndarray", "detach", "reshape"))
"""Methods that mostly give views, whose types depend on no elements if there are no arrays among the arguments."""


class PostponedCalls:
    """The operators that a thread has called since a block ran for the first time, until the outermost call of a block
    ends, or something looks at one of their arrays. Attribute `running.postponed` of that thread."""

    def __init__(self) -> None:
        self._thread = get_ident()
        self._calls: list[_Call] = []
        self._results: dict[int, _Result] = {}
        """Those that exist, by the ids of their arrays."""
        self._held: dict[int, tuple[Any, type]] = {}
        """The operands from outside, by their ids, and their own classes."""

    def invoke(
        self, op: Operator, call: Any, attrs: Mapping[str, Any], raw: Mapping[str, Any], inputs: Sequence[Any]
    ) -> Any:
        """What the operator returns, without elements; None if it is to run at once. `call`: its `imperative._Call`;
        `raw`: its attributes, not parsed."""
        operands = [x for x in inputs if x is not None]
        with deferred.lock:
            is_usual = operands and len(operands) == call.arity and not call.makes_sparse
            if not (self._is_open() and is_usual and all(map(self._may_wait, operands))):
                return None
            types = _types_of_results(op, attrs, [type_of(x._stand_in) for x in operands])
            if types is None:
                return None
            own = next((own_class(x) for x in operands if x._numpy), NDArray)
            found = [made(deferred_class(own), _without_elements(t)) for t in types[: call.visible]]
            self._note(lambda arrays: invoke(op, arrays, dict(raw)), inputs, found)
        return found[0] if len(found) == 1 else found

    def invoke_method(self, name: str, x: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What a method of an array returns, without elements; None if it is to run at once."""
        if name not in VIEWS or not all(map(_is_plain, (*args, *kwargs.values()))):
            return None
        with deferred.lock:
            if not (self._is_open() and self._may_wait(x)):
                return None
            args, kwargs = copy.deepcopy((args, kwargs))
            own: Any = own_class(x)
            try:
                with no_trace():
                    like = own._wrap_alike(_without_elements(type_of(x._stand_in)))
                    like = getattr(like, name)(*args, **kwargs)
            except (MXNetError, *UNFORESEEN):
                return None  # the method itself says what is wrong
            found = made(deferred_class(like.__class__), _without_elements(type_of(like._array)))
            self._note(lambda arrays: getattr(arrays[0], name)(*args, **kwargs), [x], [found])
        return found

    @property
    def is_own(self) -> bool:
        """Whether this thread has made the calls."""
        return self._thread == get_ident()

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

    def _is_open(self) -> bool:
        """Whether another call may be noted."""
        if modes.recording or modes.training or deferred.now.step not in (None, self):
            running.postponed = None
        return running.postponed is self

    def _note(self, compute: Callable[[list[Any]], Any], inputs: Sequence[Any], found: Sequence[Any]) -> None:
        """Notes a call, and defers its operands. `found`: its results."""
        given = [self._results.get(id(x), x) for x in inputs]
        for x in given:
            if isinstance(x, NDArray) and id(x) not in self._held:
                self._hold(x)
        deferred.now.step = self
        for k, x in enumerate(found):
            self._results[id(x)] = _Result(len(self._calls), k, ref(x, partial(self._dropped, id(x))))
        self._calls.append(_Call(compute, given))

    def _dropped(self, number: int, _: Any) -> None:
        """A result is no more. If it was the last one, nothing is to be computed, whatever this thread is doing."""
        self._results.pop(number, None)
        if not self._results and not deferred.lock._is_owned() and deferred.lock.acquire(blocking=False):
            try:
                self.forget_if_dropped()
            finally:
                deferred.lock.release()

    def forget_if_dropped(self) -> None:
        """Ends to wait if no result exists. `lock` is held."""
        if not self._results and deferred.now.step is self:
            self._forget()

    def _may_wait(self, x: Any) -> bool:
        """Whether an operand is one of these results, or nothing but itself can tell that its elements are wanted."""
        if isinstance(x, Deferred):
            return id(x) in self._results or id(x) in self._held
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
        # In a list, as some of them may die meanwhile.
        alive = {(r.call, r.number): x for r in list(self._results.values()) if (x := r.array()) is not None}
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
                compute, operands = self._calls[k]
                found = compute(
                    [
                        values[x.call][x.number] if isinstance(x, _Result) else x if x is None else self._ordinary(x)
                        for x in operands
                    ]
                )
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


def begin_postponing(code: CodeType) -> None:
    """To be called when a block is to run operator by operator for the first time. The operators that follow in this
    thread may wait until the outermost call ends of the function with this `code`, each of whose calls ends with
    `end_postponing`."""
    if running.trace is not None or modes.recording or modes.training or not _calls_of(code):
        return
    waiting = deferred.now.step or PostponedCalls()
    if isinstance(waiting, PostponedCalls) and waiting.is_own and os.environ.get("MXNET_ENGINE_TYPE") != "NaiveEngine":
        with deferred.lock:
            waiting.forget_if_dropped()
        running.postponed = waiting


def end_postponing(code: CodeType) -> None:
    """To be called by a function with this `code`, if `running.postponed` is not None, before it returns."""
    if _calls_of(code) == 1:
        running.postponed = None


def _calls_of(code: CodeType) -> int:
    """How many calls of a function with this code run in this thread."""
    frame: FrameType | None = sys._getframe()
    count = 0
    while frame is not None:
        count += frame.f_code is code
        frame = frame.f_back
    return count


def _types_of_results(op: Operator, attrs: Mapping[str, Any], types: Sequence[TensorType]) -> list[TensorType] | None:
    """The types of all results of a call that does nothing but compute these; None if it does anything else, or fails,
    or may fail because of elements."""
    if op.imperative_only or op.host:
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


def _is_plain(x: Any) -> bool:
    """Whether an argument holds no arrays."""
    if isinstance(x, (tuple, list)):
        return all(map(_is_plain, x))
    if isinstance(x, slice):
        return all(map(_is_plain, (x.start, x.stop, x.step)))
    return x is None or x is ... or isinstance(x, (int, np.integer))


def _without_elements(type: TensorType) -> np.ndarray:
    """An array for `made` that takes no memory."""
    return np.broadcast_to(np.empty((), type.dtype.numpy), type.shape)
