"""Logs which attributes of blocks a traced program reads and sets, and whether it draws from Python's generators.

A trace runs `hybrid_forward` once. The value of an attribute that it reads (`x * self.scale`) becomes a constant of the
compiled code, so a later change of the attribute must drop the trace (`changed`). For an attribute that it sets:

* If it was read first (`self.calls += 1`), each call computes something else, and the call cannot be traced. If the
  next call sets nothing (`if self.grid is None: self.grid = ...`), that one can be traced.
* If it is only set, to a plain value, calls of compiled code set it again where other code has changed it meanwhile
  (`Attributes.set_again`). Other values are set once, with a warning.
* A program that draws from `random`, `numpy.random` or a generator that a block holds cannot be traced either.

Reads are noticed by a `__getattribute__` that the class of blocks has only while a trace runs in some thread, so other
calls have no overhead. Only attributes of blocks are tracked: not the elements of a list that an attribute holds, not
globals or closures. An attribute is an entry of a block's `__dict__` or a slot; reading a `property` reads the
attributes behind it, and setting one always counts as a change.
"""

from __future__ import annotations

import random
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Any, Protocol

import numpy as np

from gluonjit.base import StateChange
from gluonjit.language.running import running
from gluonjit.language.source import quote, stacklevel, user_loc
from gluonjit.runtime import forks

MISSING = object()
_PLAIN = (type(None), bool, int, float, complex, str, bytes)

_PLAIN_TO_READ = frozenset({*_PLAIN, list, tuple, dict, set, MethodType, FunctionType})
"""Types of most attributes' values, which are no generators."""

READERS = "_jit_readers"
"""The entry of a block's `__dict__` with the logs of the traces that read or set attributes of it."""


class Reader(Protocol):
    """The owner of a trace."""

    def forget(self, log: Attributes, why: str) -> None:
        """Drops the trace with this log: an attribute that its program read has changed, as `why` says."""

    def look_again(self) -> None:
        """Makes the next call use `Attributes.set_again`: an attribute that a program sets has changed."""


class Attributes:
    """The log of one trace."""

    def __init__(self) -> None:
        self._reads: dict[int, tuple[Any, set[str]]] = {}
        self.finals: list[tuple[Any, str, Any]] = []
        """What each call sets: block, name, value."""
        self._reader: Callable[[], Reader | None] = lambda: None
        self.stale = False
        """Whether an attribute that was read has changed."""
        self._sets: dict[tuple[int, str], _Set] = {}
        self._generators: dict[int, tuple[Any, Any]] = {}
        self._numpy_random = sys.modules.get("numpy.random")
        for generator in (random, self._numpy_random):
            if generator is not None:
                self._generators[id(generator)] = generator, _state(generator)
        self._probed: dict[int, Any] = {}
        self.drawn: dict[str, tuple[Any, tuple[Any, ...]]] = {}
        """The lines at which `probe` found that random numbers had been drawn, and the blocks they were in."""

    def read(self, block: Any, name: str, value: Any) -> None:
        seen = self._reads.get(id(block))
        if seen is None:
            seen = self._reads[id(block)] = block, set()
            self._follow(block)
        if name not in seen[1] and (id(block), name) not in self._sets:
            seen[1].add(name)
        if type(value) not in _PLAIN_TO_READ and _is_generator(value) and id(value) not in self._generators:
            self._generators[id(value)] = value, _state(value)

    def set(self, block: Any, name: str, old: Any, blocks: tuple[Any, ...]) -> None:
        if (id(block), name) not in self._sets:
            loc = user_loc(blocks[-1].name if blocks else "")
            self._sets[id(block), name] = _Set(block, name, old, self._has_read(block, name), loc, blocks)

    def _has_read(self, block: Any, name: str) -> bool:
        seen = self._reads.get(id(block))
        return seen is not None and name in seen[1]

    def _follow(self, block: Any) -> None:
        """Subscribes this log to changes of the block's attributes."""
        with _lock:
            followers = block.__dict__.get(READERS, ())
            others = [ref for ref in followers if (log := ref()) is not self and log is not None and not log.stale]
            block.__dict__[READERS] = [*others, weakref.ref(self)]

    def keep(self, reader: Reader) -> bool:
        """Notifies `reader` of changes from now on. False if an attribute was already changed by another thread.

        To be called after `check` has passed.
        """
        mine = [s for s in self._sets.values() if not s.carried]
        final = [(s.block, s.name, held(s.block, s.name)) for s in mine]
        self.finals = [f for f in final if f[2] is MISSING or _is_plain(f[2])]
        for block in {id(block): block for block, _, _ in self.finals}.values():
            self._follow(block)
        self._reader = weakref.ref(reader)
        self._generators.clear()
        return not self.stale

    def announce(self) -> None:
        """Notifies other traces of the attributes that this one's program has set, once the trace is accepted."""
        for s in self._sets.values():
            if not same(s.old, held(s.block, s.name)):
                _tell(s.block, s.name, but=self)

    @property
    def as_set(self) -> bool:
        """Whether the attributes that the program sets have the values that it would set."""
        return all(same(held(block, name), value) for block, name, value in self.finals)

    def set_again(self) -> None:
        """Sets the attributes that a call of the program sets."""
        for block, name, value in self.finals:
            if not same(held(block, name), value):
                _put(block, name, value)
                _tell(block, name, but=self)

    def changed(self, block: Any, name: str) -> None:
        """An attribute of a block that the log follows has changed."""
        reads = self._has_read(block, name)
        self.stale = self.stale or reads
        reader = self._reader()
        if reader is not None:
            if reads:
                at = user_loc()
                where = f" at {at}" if str(at) else ""
                reader.forget(self, f"attribute {name!r} of {block.name} was set{where}")
            elif any(own is block and its == name for own, its, _ in self.finals):
                reader.look_again()

    @property
    def draws(self) -> bool:
        """Whether the program has drawn from a generator.

        NumPy imports `numpy.random` on first use; a program that imported it while it ran is taken to have drawn.
        """
        if sys.modules.get("numpy.random") is not self._numpy_random:
            return True
        return any(not _same_state(_state(g), before) for g, before in self._generators.values())

    def probe(self, blocks: tuple[Any, ...]) -> None:
        """Records the current line in `drawn` if random numbers have been drawn since the last call."""
        states = {key: _state(generator) for key, (generator, _) in self._generators.items()}
        before = ((key, self._probed.get(key, first)) for key, (_, first) in self._generators.items())
        if blocks and not all(_same_state(states[key], state) for key, state in before):
            loc = user_loc(blocks[-1].name)
            self.drawn.setdefault(str(loc), (loc, blocks))
        self._probed = states

    def changes(self) -> list[_Set]:
        """The attributes whose values differ from those before the trace."""
        return [s for s in self._sets.values() if not same(s.old, held(s.block, s.name))]

    def undo(self) -> None:
        """Restores the attributes to their values before the trace."""
        for s in self._sets.values():
            _put(s.block, s.name, s.old)

    def rewind(self) -> None:
        """Restores the generators to their states before the trace."""
        for generator, before in self._generators.values():
            if not _same_state(_state(generator), before):
                _restore(generator, before)


class _Set:
    """An attribute that the program has set: its old value, and whether that was read first (`carried`)."""

    def __init__(self, block: Any, name: str, old: Any, carried: bool, loc: Any, blocks: tuple[Any, ...]) -> None:
        self.block, self.name, self.old, self.carried, self.loc, self.blocks = block, name, old, carried, loc, blocks


def check(log: Attributes) -> None:
    """Raises StateChange, with all changes undone, for a program that reads an attribute and then changes it; warns
    of attributes that will be set only while tracing."""
    changes = log.changes()
    carried = next((s for s in changes if s.carried), None)
    if carried is not None:
        log.undo()
        raise StateChange(
            f"hybrid_forward of {carried.block.name} reads self.{carried.name} and then sets it, so that calls differ"
            f"{quote(carried.loc)}",
            carried.blocks,
            again=True,
            loc=carried.loc,
        )
    for s in changes:
        value = held(s.block, s.name)
        if value is MISSING or _is_plain(value):
            continue
        warnings.warn(
            f"hybrid_forward of {s.block.name} sets self.{s.name}: hybridized, that happens when the block is traced, "
            f"not in every call, and arrays are symbols{quote(s.loc)}\n  instead: return the value",
            stacklevel=stacklevel(),
        )


def random_draws(where: tuple[Any, tuple[Any, ...]]) -> StateChange:
    """The error about a program that draws from Python's or NumPy's generators."""
    loc, blocks = where
    return StateChange(
        "hybrid_forward draws random numbers from Python or NumPy, which compiled code would do only once"
        f"{quote(loc)}\n  instead: F.random, whose numbers are drawn in every call",
        blocks,
        again=False,
        loc=loc,
    )


def same(a: Any, b: Any) -> bool:
    """Whether a program cannot tell two values of an attribute apart: the same object, or equal plain values."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    return _is_plain(a) and repr(a) == repr(b)  # 0.0 is not -0.0, and nan is nan


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if type(value) is tuple else type(value) in _PLAIN


# Attributes of a block


def held(block: Any, name: str) -> Any:
    """The block's own attribute, from its `__dict__` or a slot; MISSING if it has none."""
    found = block.__dict__.get(name, MISSING)
    if found is MISSING and (slot := _slot(block, name)) is not None:
        try:
            found = slot.__get__(block)
        except AttributeError:
            pass  # an empty slot
    return found


def _put(block: Any, name: str, value: Any) -> None:
    """Sets an attribute, or deletes it for MISSING, without a call of `changed`."""
    slot = _slot(block, name)
    if value is not MISSING:
        if slot is not None:
            slot.__set__(block, value)
        else:
            block.__dict__[name] = value
    elif held(block, name) is not MISSING:
        if slot is not None:
            slot.__delete__(block)
        else:
            del block.__dict__[name]


def _slot(block: Any, name: str) -> Any:
    found = next((vars(c)[name] for c in type(block).__mro__ if name in vars(c)), None)
    return found if type(found) is MemberDescriptorType else None


def state_of(block: Any) -> dict[str, Any]:
    """All attributes of a block's own, those in slots included."""
    kept = {name: value for name in slot_names(type(block)) if (value := held(block, name)) is not MISSING}
    return {**block.__dict__, **kept}


def slot_names(kind: type) -> set[str]:
    return {name for c in kind.__mro__ for name, found in vars(c).items() if type(found) is MemberDescriptorType}


def changed(block: Any, name: str, old: Any, caller: Any) -> None:
    """An attribute of a block has been set, or deleted, by the code of frame `caller`.

    Changes that gluonjit itself makes concern no trace.
    """
    if caller.f_globals.get("__name__", "").partition(".")[0] == "gluonjit":
        return
    new = held(block, name)
    elsewhere = old is new is MISSING  # a property, which may store its value anywhere
    trace = running.trace
    if trace is not None:
        if not elsewhere:
            trace.attributes.set(block, name, old, tuple(trace.blocks))
    elif elsewhere or not same(old, new):
        _tell(block, name)


def deleting(block: Any, name: str) -> None:
    """An attribute is about to be deleted. This counts as a read, as deletion fails if the attribute is missing."""
    if running.trace is not None:
        running.trace.attributes.read(block, name, MISSING)


def _tell(block: Any, name: str, but: Attributes | None = None) -> None:
    """Notifies the followers of a block that an attribute has changed. The caller must not hold `_lock`."""
    for ref in block.__dict__.get(READERS, ()):
        log = ref()
        if log is not None and log is not but:
            log.changed(block, name)


# Logging reads

_observed: list[Any] = []
"""The class of blocks; see `observe`."""
_own: frozenset[str] = frozenset()
_running = 0
_lock = forks.held()  # reentrant, as a finalizer may read attributes while this thread holds it


def observe(cls: type, own: frozenset[str]) -> None:
    """Makes `noted` log attribute reads of objects of `cls`, but for those of its `own`: whatever changes such an
    attribute after it was set first drops compiled code itself, or has no effect on it."""
    global _own
    _observed[:] = [cls]
    _own = own


@contextmanager
def noted() -> Iterator[None]:
    """A context in which attributes of blocks that this thread's trace reads are logged."""
    global _running
    with _lock:
        _running += 1
        if _running == 1:
            for cls in _observed:
                cls.__getattribute__ = _noting
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if not _running:
                for cls in _observed:
                    del cls.__getattribute__


def _noting(self: Any, name: str) -> Any:
    if name in _own:  # most of them
        return _get(self, name)
    trace = running.trace
    if trace is None or name[:2] == "__":
        return _get(self, name)
    value = MISSING
    try:
        value = _get(self, name)
    finally:
        trace.attributes.read(self, name, value)
    return value


_get = object.__getattribute__


# Generators


def _is_generator(value: Any) -> bool:
    if isinstance(value, random.Random):
        return True
    loaded = sys.modules.get("numpy.random")
    return loaded is not None and isinstance(value, (loaded.RandomState, loaded.Generator, loaded.BitGenerator))


def _state(generator: Any) -> Any:
    """The state of a generator, or of the global one of the module `random` or `numpy.random`."""
    if isinstance(generator, random.SystemRandom):
        return object()  # it has no state; a new object makes it count as drawn from
    for method in ("getstate", "get_state"):  # Python's, NumPy's old ones
        if hasattr(generator, method):
            return getattr(generator, method)()
    return getattr(generator, "bit_generator", generator).state


def _restore(generator: Any, state: Any) -> None:
    if isinstance(generator, random.SystemRandom):
        return
    for method in ("setstate", "set_state"):
        if hasattr(generator, method):
            getattr(generator, method)(state)
            return
    getattr(generator, "bit_generator", generator).state = state


def _same_state(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_same_state, a, b))
    if isinstance(a, dict):
        return all(_same_state(a[key], b[key]) for key in a)
    return bool(a == b)
