"""Arrays whose elements a deferred step of training reads or makes: whoever looks at them has it computed first.

The calls of a step of training may wait until its last one, the update of the weights, and then run together
(`execution/step_replay.py`). Until then, arrays of two sorts are *deferred*: the results, which have no elements yet,
and those that the step reads or writes, such as parameters and gradients, whose elements must not change before, or are
out of date. An array is deferred by its class, a subclass of its own one in which its slots are properties: each
access to elements, gradient or storage first has the step computed that waits (`settle`). So no other code has to know
of deferral. Shapes and element types are known.

The arrays that each step reads or writes stay deferred from one step to the next, though their elements are up to date
(`Held`): as long as nobody looks at one of them, nothing about them has to be checked again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from operator import is_
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.language import late
from gluonjit.ndarray.ndarray import NDArray
from gluonjit.runtime import forks
from gluonjit.runtime.storage import EPOCH, Storage

lock = forks.renewed()
"""Held while a deferred step is computed, or begins or ends to wait."""

_SLOTS = {name: NDArray.__dict__[name] for name in ("_array", "_grad_state", "_storage")}
elements, origin_of, storage_of = (_SLOTS[name].__get__ for name in ("_array", "_grad_state", "_storage"))
"""`elements(x)`: the ndarray of an array that may be deferred; likewise what `_grad_state` and `_storage` hold."""
_set_elements, _set_origin, _set_storage = (_SLOTS[name].__set__ for name in ("_array", "_grad_state", "_storage"))
_new = object.__new__


class Waiting(Protocol):
    """A deferred step."""

    def settle(self) -> None:
        """Computes what was called so far, and makes its arrays ordinary ones. `lock` is held."""

    def takes(self, caller: Any, args: Any) -> Any:
        """The result, deferred, of a recorded call of a block, if the step goes on with it; None if it does not, and
        then it is settled, unless the step is another thread's."""

    def takes_backward(self, heads: Any, head_grads: Any, keeps_graph: bool, train_mode: bool) -> bool:
        """Whether the step goes on with this `backward`, which is deferred, too."""


class _Now:
    """There is at most one of each in a process."""

    step: Waiting | None = None
    """The step that waits."""
    held: Held | None = None
    """The arrays of its kind of steps, or of the steps that were replayed last, while they are deferred."""


now = _Now()


class _Changes:
    """Counts what tells that something may be another one than in the last step."""

    parameters = 0
    """Moves with every attribute of a Gluon parameter that is set."""


changes = _Changes()


class _Observed(threading.local):
    """`by`: what learns of the calls of this thread since a trainer's last step (`observed_steps.Observation`), or None
    unless trainers have asked for it: `wanted`."""

    def __init__(self) -> None:
        self.by: Any = None
        self.wanted: WeakSet[Any] = WeakSet()


observed = _Observed()


def settle() -> None:
    """Computes the step that waits, if there is one."""
    with lock:
        if now.step is not None:
            now.step.settle()


def release() -> None:
    """Makes the arrays ordinary ones that are deferred although no step waits: whoever is handed one may ask for its
    class."""
    if now.held is not None and now.step is None:
        with lock:
            if now.held is not None and now.step is None:
                now.held.release()


class Deferred:
    """The part of the class of a deferred array that comes before the array's own class."""

    __slots__ = ()

    _own: type
    """Its class while it is not deferred."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self._stand_in.shape

    @property
    def ndim(self) -> int:
        return self._stand_in.ndim

    @property
    def size(self) -> int:
        return self._stand_in.size

    @property
    def dtype(self) -> type:
        return self._stand_in.dtype.type

    @property
    def _stand_in(self) -> np.ndarray:
        found: np.ndarray = elements(self)
        return found

    @property
    def _device(self) -> None:
        return None  # others are not deferred

    def wait_to_read(self) -> None:
        """Has the array computed."""
        _ready(self)

    def backward(self, out_grad: Any = None, retain_graph: bool = False, train_mode: bool = True) -> None:
        step = now.step
        if step is None or not step.takes_backward([self], [out_grad], retain_graph, train_mode):
            late.backward([self], [out_grad], retain_graph, train_mode)

    def __reduce_ex__(self, protocol: Any) -> Any:
        _ready(self)
        return self.__reduce_ex__(protocol)  # of the array's own class, which it has again


def _ready(x: Any) -> None:
    """Makes the array an ordinary one. MXNetError if it cannot be computed."""
    with lock:
        if isinstance(x, Deferred):
            settle()
            release()
        if isinstance(x, Deferred):
            raise MXNetError("this result does not exist, since what computes it has failed")


def _settled(name: str) -> property:
    slot = _SLOTS[name]

    def get(x: Any) -> Any:
        _ready(x)
        return slot.__get__(x)

    def set(x: Any, value: Any) -> None:
        _ready(x)
        slot.__set__(x, value)

    return property(get, set)


for _name in _SLOTS:
    setattr(Deferred, _name, _settled(_name))


_CLASSES: dict[type, type] = {}


def deferred_class(own: type) -> type:
    """The class of deferred arrays that are else of the class `own`."""
    found = _CLASSES.get(own)
    if found is None:
        names = {"__slots__": (), "_own": own, "__module__": own.__module__, "__doc__": own.__doc__}
        found = _CLASSES[own] = type(own.__name__, (Deferred, own), names)
    return found


def stand_in(x: Any, own: type) -> Any:
    """An ordinary array of the class `own` that is the same as `x`, which stays deferred."""
    y: Any = _new(own)
    storage = storage_of(x)
    if storage is None:
        storage = Storage()
        _set_storage(x, storage)
    _set_elements(y, elements(x))
    _set_storage(y, storage)
    _set_origin(y, origin_of(x))
    return y


def own_class(x: Any) -> type:
    """The class of an array that is not deferred, or would have if it were not."""
    return x._own if isinstance(x, Deferred) else x.__class__


def made(kind: type, array: np.ndarray) -> Any:
    """A deferred array, of a `deferred_class`, whose elements will be in `array`."""
    x: Any = _new(kind)
    _set_elements(x, array)
    _set_origin(x, None)
    _set_storage(x, None)
    return x


def replace(x: Any, own: type, by: Any) -> None:
    """Makes a deferred result an ordinary array that is the same as another one."""
    _set_elements(x, elements(by))
    _set_storage(x, storage_of(by))
    _set_origin(x, origin_of(by))
    x.__class__ = own


class Held:
    """The arrays that each step of a kind reads or writes: those that gradients are computed from, those that they are
    written to, and those that the update writes. `lock` is held when methods are called, but for `dismiss`."""

    def __init__(self, read: Sequence[Any], computed: Sequence[Any], updated: Sequence[Any]) -> None:
        arrays = {id(x): x for x in [*read, *computed, *updated]}.values()
        self._classes = [(x, x.__class__, deferred_class(x.__class__)) for x in arrays]
        self._elements = [*map(elements, arrays)]
        self._computed, self._updated = computed, updated
        self._storages: tuple[list[Storage], list[Storage]] = [], []
        """Of what is computed and what is updated, while the arrays are deferred."""
        self.are_watched = False
        """Whether compiled code depends on one of these."""
        self.are_deferred = False
        """Whether all of them have been deferred, and none has been looked at since."""
        self.are_noted = False
        """Whether a whole step's writes have been noted since they were deferred. Who asks for the version of an array,
        or whether its gradient is fresh, looks at the array; so there is nothing more to note."""

    @property
    def classes(self) -> dict[int, type]:
        """The arrays' own classes, by their ids."""
        return {id(x): own for x, own, _ in self._classes}

    @property
    def are_intact(self) -> bool:
        """Whether the arrays, which are not deferred, have the same class and memory as ever."""
        if not all(map(is_, map(elements, [x for x, _, _ in self._classes]), self._elements)):
            return False
        return all(x.__class__ is own or isinstance(x, Deferred) for x, own, _ in self._classes)

    @property
    def may_be_shared(self) -> bool:
        """Whether elements may be read or written through other arrays. No change while they are deferred."""
        return any((s := storage_of(x)) is not None and (s.aliased or s.exposed) for x, _, _ in self._classes)

    def defer(self) -> None:
        """Makes the arrays deferred ones; there are no others."""
        if now.held is not None:
            now.held.release()
        now.held = self
        computed, updated = self._storages = _storages(self._computed), _storages(self._updated)
        self.are_watched = any(s.watched for s in [*computed, *updated])
        for x, _, kind in self._classes:
            x.__class__ = kind
        self.are_noted = False
        self.are_deferred = True

    def note_writes(self, has_updated: bool) -> None:
        """A step has written to the arrays: `NDArray._wrote` for all of them."""
        computed, updated = self._storages
        for s in computed:
            s.version += 1
        if has_updated:
            for s in updated:
                s.version += 1
        if self.are_watched:
            EPOCH[0] += 1

    def release(self) -> None:
        """Makes the arrays ordinary ones again. May be called again if a signal's handler has ended it."""
        if now.held is not self:
            return  # no array is deferred because of this
        self.are_deferred = False
        for x, own, _ in self._classes:
            x.__class__ = own
        now.held = None

    def dismiss(self) -> None:
        """`release`, when nothing else refers to such steps any more: whatever this thread is doing, so it cannot wait
        for a lock. If there was something to wait for, it is done for who looks at an array."""
        if lock._is_owned():
            self.release()
            return
        try:
            if lock.acquire(blocking=False):
                self.release()
        finally:  # also where a signal's handler raises an error as soon as the lock is taken
            if lock._is_owned():
                lock.release()


def _storages(arrays: Sequence[Any]) -> list[Storage]:
    return [s for x in arrays if (s := storage_of(x)) is not None]
