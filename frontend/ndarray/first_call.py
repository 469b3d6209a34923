"""The call of a block that completes its parameters: what it computes waits until somebody looks at it.

Programs call a network once to complete the shapes of its parameters, `net(x)`, and do not look at the result. Nothing
has to be computed for that: operators tell the types of their results. So while such a call runs (`postponing`),
operators are noted, and their results are deferred (`ndarray/deferred.py`). Whoever looks at one, or writes to what was
read, first has those computed that somebody still holds, by the same operators on the same arrays; what nobody holds
is never computed.

What draws random numbers, writes to its operands, calls Python, or is recorded, is computed at once, and with it all
that was noted before.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.ir.types import IRError, type_of
from gluonjit.language.interrupts import Uninterrupted, Whole
from gluonjit.language.modes import Scope, modes
from gluonjit.language.running import no_trace, running
from gluonjit.ndarray import deferred
from gluonjit.ndarray.deferred import complete, deferred_class, made, storage_of
from gluonjit.ndarray.imperative import invoke
from gluonjit.ndarray.ndarray import NDArray
from gluonjit.operators.registry import UNFORESEEN, Operator
from gluonjit.runtime import mode

_RESULT = deferred_class(NDArray)


class _Noted(NamedTuple):
    """A call of an operator, or, with None in its place, of `reshape` to the shape `attrs`."""

    op: Operator | None
    attrs: Any
    """Not parsed yet."""
    sources: list[NDArray | tuple[int, int]]
    """The operands: arrays, or (number of the call, number of its result)."""
    results: list[weakref.ref[Any]]


class FirstCall:
    """The operators of such a call; a `deferred.Waiting`."""

    def __init__(self) -> None:
        self.owner = threading.get_ident()
        self._over = False
        """Whether somebody has looked at a result, so that all that follows is computed at once."""
        self._forget()

    def _forget(self) -> None:
        self._calls: list[_Noted] = []
        self._places: dict[int, tuple[weakref.ref[Any], tuple[int, int]]] = {}
        """By the id of a result, the result, and where it comes from."""
        self._read: dict[int, NDArray] = {}
        """By their ids, the arrays from outside that the operators read, which are deferred meanwhile."""
        self._alive = 0
        """How many results somebody holds."""

    # ---- what is called

    def invoke(self, op: Operator, inputs: Sequence[Any], raw: Mapping[str, Any], attrs: Any, visible: int) -> Any:
        """The results of an operator on `inputs`, deferred; None if it has to be computed at once. `raw` and `attrs`:
        its attributes, as given and parsed; `visible`: the number of results that users get."""
        draws = op.streams is not None and op.streams(attrs, modes.training)
        if op.imperative_only or op.host or op.updates is not None or draws:
            return None
        inputs = [x for x in inputs if x is not None]

        def types() -> Any:
            return [(t.shape, t.dtype.numpy) for t in op.infer([type_of(x._stand_in) for x in inputs], attrs)[:visible]]

        return self._note(op, raw, inputs, types)

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        """A view of a result in another shape of its size, deferred; None if it cannot be."""
        found = self._note(None, shape, [x], lambda: [(shape, x._stand_in.dtype)]) if id(x) in self._places else None
        return found and found[0]

    def _note(self, op: Operator | None, attrs: Any, inputs: Sequence[Any], types: Any) -> list[Any] | None:
        if not inputs or self._over or modes.recording or modes.training or modes.anomalies:
            return None
        with deferred.lock:
            step = deferred.now.step
            if step is not None and step is not self:
                return None
            sources: list[Any] = [*map(self._source, inputs)]
            if any(s is None for s in sources):
                return None
            try:
                found = types()
            except (MXNetError, IRError, *UNFORESEEN):  # the computation says why
                return None
            deferred.now.step = self
            for x, source in zip(inputs, sources):
                if source is x:
                    self._read[id(x)] = x
                    x.__class__ = _RESULT
            results = [made(_RESULT, np.broadcast_to(np.empty((), dtype), shape)) for shape, dtype in found]
            refs = [weakref.ref(y, self._ended) for y in results]
            self._places.update((id(y), (ref, (len(self._calls), k))) for k, (y, ref) in enumerate(zip(results, refs)))
            self._calls.append(_Noted(op, attrs, sources, refs))
            self._alive += len(results)
        return results

    def _source(self, x: Any) -> Any:
        """What `_Noted.sources` has for an operand; None if it is an array that may change unnoticed."""
        ref, place = self._places.get(id(x), (None, None))
        if ref is not None and ref() is x:
            return place
        if x.__class__ is not NDArray and id(x) not in self._read:
            return None
        storage = storage_of(x)
        shared = storage is not None and (storage.aliased or storage.exposed or storage.context is not None)
        return None if shared else x

    # ---- what is done with the results

    def _ended(self, _: weakref.ref[Any]) -> None:
        """One of the results is gone; with the last one, all that was noted."""
        if not deferred.lock.acquire(blocking=False):  # the garbage collector may call this on any thread
            return
        try:
            self._alive -= 1
            if not self._alive and deferred.now.step is self:
                self._release()
        finally:
            deferred.lock.release()

    def _release(self) -> None:
        """Makes what was read ordinary arrays again: nothing waits any more."""
        for x in self._read.values():
            x.__class__ = NDArray
        deferred.now.step = None
        self._forget()

    def settle(self) -> None:
        """Computes the results that somebody holds."""
        with deferred.lock, Uninterrupted(), no_trace(), Scope(False, False):
            if deferred.now.step is not self:
                return
            self._over = True
            calls = self._calls
            uses = _uses(calls)
            self._release()
            values: dict[tuple[int, int], Any] = {}
            for number, call in enumerate(calls):
                wanted = [ref() for ref in call.results]
                if not any(x is not None or (number, k) in uses for k, x in enumerate(wanted)):
                    continue
                operands = [s if isinstance(s, NDArray) else values[s] for s in call.sources]
                if call.op is None:
                    found: Any = operands[0]._in_shape(call.attrs)
                else:
                    found = invoke(call.op, operands, dict(call.attrs))
                for k, (x, y) in enumerate(zip(wanted, found if isinstance(found, list) else [found], strict=True)):
                    if x is not None:
                        complete(x, NDArray, None, y)
                    if (number, k) in uses:
                        values[number, k] = y if x is None else x
                for s in call.sources:
                    if not isinstance(s, NDArray):
                        uses[s] -= 1
                        if not uses[s]:
                            del values[s]

    def takes(self, caller: Any, args: Any) -> Any:
        self.settle()
        return None

    def takes_backward(self, heads: Any, head_grads: Any, keeps_graph: bool, train_mode: bool) -> bool:
        return False


def _uses(calls: Sequence[_Noted]) -> dict[tuple[int, int], int]:
    """How many operands each result is, of calls that must be computed as somebody holds what depends on them."""
    uses: dict[tuple[int, int], int] = {}
    for number in reversed(range(len(calls))):
        call = calls[number]
        if any(ref() is not None or (number, k) in uses for k, ref in enumerate(call.results)):
            for s in call.sources:
                if not isinstance(s, NDArray):
                    uses[s] = uses.get(s, 0) + 1
    return uses


class _Postponing(Whole):
    __slots__ = ()

    def _set(self) -> None:
        running.first = FirstCall()

    def _restore(self) -> None:
        running.first = None


def may_wait() -> bool:
    """Whether operators of this thread could wait, and do not yet: not where each is to be computed at once, nor where
    they are timed."""
    at_once = mode.is_kept_off() or os.environ.get("MXNET_ENGINE_TYPE") == "NaiveEngine"
    return running.first is None and not (at_once or modes.recording or modes.training)


def postponing() -> Whole:
    """A context in which operators of this thread are noted, and computed when somebody looks at their results."""
    return _Postponing()
