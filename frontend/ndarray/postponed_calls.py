"""The first plain call of a net whose result is dropped: nothing is computed that nobody looks at.

Programs call a net once after `initialize()`, as that is how layers learn how many features arrive:

    net(x)

So the plain operators of such a call are noted, with the types of their results. These are deferred arrays, and so are,
meanwhile, the operands from outside (`ndarray/deferred.py`): who looks at a result, or writes to an argument or a
parameter, first has the results computed that exist. So does the end of the call, with those that the program has kept:
mostly none. A call whose result is used is computed at once.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import CodeType, FrameType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.ir.types import IRError, TensorType, type_of
from gluonjit.language.bytecode import asks_for_classes, drops_result
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

    def __init__(self, outermost: FrameType) -> None:
        """`outermost`: that call."""
        self._call, self._args = outermost.f_code, outermost.f_locals["args"]
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
            if not (self.is_open and is_usual and all(map(self._may_wait, operands))):
                return None
            types = _types_of_results(op, attrs, [type_of(x._stand_in) for x in operands])
            if types is None:
                return None
            own = next((own_class(x) for x in operands if x._numpy), NDArray)
            found = [made(deferred_class(own), _without_elements(t)) for t in types[: call.visible]]
            given = copy.deepcopy(dict(raw))  # lists that the program may change
            self._note(lambda arrays: invoke(op, arrays, given), inputs, found)
        return found[0] if len(found) == 1 else found

    def invoke_method(self, name: str, x: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What a method of an array returns, without elements; None if it is to run at once."""
        if name not in VIEWS or not all(map(_is_plain, (*args, *kwargs.values()))):
            return None
        with deferred.lock:
            if not (self.is_open and self._may_wait(x)):
                return None
            args, kwargs = copy.deepcopy((args, kwargs))
            own: Any = own_class(x)
            try:
                with no_trace():
                    like = own._wrap_alike(_without_elements(type_of(x._stand_in)))
                    view = getattr(like, name)(*args, **kwargs)
            except (MXNetError, *UNFORESEEN):
                return None  # the method itself says what is wrong
            if view is like:  # as x[:] is x
                return x
            found = made(deferred_class(view.__class__), _without_elements(type_of(view._array)))
            self._note(lambda arrays: getattr(arrays[0], name)(*args, **kwargs), [x], [found])
        return found

    def is_made_in(self, args: tuple[Any, ...]) -> bool:
        """Whether the outermost call of a block is the one with these arguments."""
        return args is self._args

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

    @property
    def is_open(self) -> bool:
        """Whether another call may be noted."""
        if modes.recording or modes.training or deferred.now.step not in (None, self) or not self._is_running():
            running.postponed = None
        return running.postponed is self

    def _is_running(self) -> bool:
        """Whether the outermost call has not ended; an interrupt may have ended it."""
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code is self._call and frame.f_locals["args"] is self._args:
                return True
            frame = frame.f_back
        return False

    def _note(self, compute: Callable[[list[Any]], Any], inputs: Sequence[Any], found: Sequence[Any]) -> None:
        """Notes a call, and defers its operands. `found`: its results."""
        given = [self._results.get(id(x), x) for x in inputs]
        deferred.now.step = self  # first: were this interrupted, who looks at an operand would have it undeferred
        for x in given:
            if isinstance(x, NDArray) and id(x) not in self._held:
                self._hold(x)
        self._calls.append(_Call(compute, given))
        for k, x in enumerate(found):
            self._results[id(x)] = _Result(len(self._calls) - 1, k, ref(x, partial(self._dropped, id(x))))

    def _dropped(self, number: int, _: Any) -> None:
        """A result is no more. If it was the last one, nothing is to be computed, whatever this thread is doing."""
        self._results.pop(number, None)
        if not self._results and not deferred.lock._is_owned() and deferred.lock.acquire(blocking=False):
            try:
                if not self._results and deferred.now.step is self:
                    self._forget()
            finally:
                deferred.lock.release()

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


def begin_postponing(call: CodeType, others: Collection[CodeType]) -> None:
    """To be called when a block is to run operator by operator for the first time. The operators that follow in this
    thread may wait until the outermost call of the function with the code `call`, the method `(self, *args)` of blocks,
    ends, if its result is dropped: then that call ends with `end_postponing`. Functions with the codes `others` just
    return what it does."""
    if running.trace is not None or modes.recording or modes.training or not may_postpone():
        return
    if (running.postponed is not None and running.postponed.is_open) or deferred.now.step is not None:
        return
    outermost = frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is call:
            outermost = frame
    caller = outermost.f_back
    while caller is not None and caller.f_code in others:
        caller = caller.f_back
    if caller is None or outermost.f_code is not call:
        return
    block = outermost.f_locals["self"]
    if not outermost.f_locals["args"]:
        return  # () is the same as any other one, so this call could not be told from those in it
    if getattr(type(block).__call__, "__code__", None) not in (call, *others):
        return  # what the program calls may do anything with the result, such as keep it for the next call
    if drops_result(caller, block) and not _asks_for_classes(block):
        running.postponed = PostponedCalls(outermost)


def end_postponing() -> None:
    """To be called when the call ends that `running.postponed` is made in, and its result is dropped. Afterwards there
    is nothing deferred."""
    waiting, running.postponed = running.postponed, None
    with deferred.lock:
        if deferred.now.step is waiting is not None:
            waiting.settle()


def may_postpone() -> bool:
    """Whether anything may wait."""
    return os.environ.get("MXNET_ENGINE_TYPE") != "NaiveEngine"


def _asks_for_classes(block: Any) -> bool:
    """Whether a program's function that takes part in computing a block, or one in it, asks for the class of something:
    that of a deferred array is another one."""
    own = type(block)
    hooks = [*block._forward_pre_hooks.values(), *block._forward_hooks.values()]
    functions = [own.forward, getattr(own, "hybrid_forward", None), *hooks, *vars(block).values()]
    return asks_for_classes(functions, own) or any(map(_asks_for_classes, block._children.values()))


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
