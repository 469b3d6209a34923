"""What a program reads and sets of its blocks' attributes, and draws from Python's random generators, while traced.

A trace runs `hybrid_forward` once. What the program reads there (`x * self.scale`) is in the compiled code for good, so
a later change of the attribute must drop the trace (`changed`). What it sets happens once instead of in every call:

* An attribute that is read before it is set (`self.calls += 1`) makes the next call another one: no trace can stand for
  both. If the call after that sets nothing (`if self.grid is None: self.grid = ...`), that one can be traced.
* One that is only set stays so if it is a plain value, and calls of compiled code set it again where others have set
  something else meanwhile (`Attributes.set_again`). Else it is set once, with a warning.
* Numbers from `random`, `numpy.random` and generators that a block holds differ in every call: no trace, either.

Reads are seen by a `__getattribute__` that the class of blocks has only while a trace runs in some thread, so calls of
compiled and of plain blocks cost what they did. Seen are attributes of blocks alone: not the elements of a list that an
attribute holds, not globals or closures. An attribute is what a block has in its dictionary or in a slot; one that is
computed (`property`) is read by reading others, and setting it is a change whatever it does.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MemberDescriptorType
from typing import Any, Protocol

import numpy as np

from gluonjit.base import StateChange
from gluonjit.language.running import running
from gluonjit.language.source import quote, stacklevel, user_loc

MISSING = object()
_PLAIN = (type(None), bool, int, float, complex, str, bytes)

READERS = "_readers"
"""The attribute of a block that holds, by name, the logs of the traces that have read or set it."""


class Reader(Protocol):
    """Who keeps a trace."""

    def forget(self, log: Attributes) -> None:
        """Drops the trace with this log: an attribute that its program read is another one now."""

    def look_again(self) -> None:
        """Has the next call look at `Attributes.set_again`: an attribute that a program sets is another one now."""


class Attributes:
    """The log of one trace."""

    def __init__(self) -> None:
        self._reads: dict[int, tuple[Any, set[str]]] = {}
        self._finals: list[tuple[Any, str, Any]] = []
        self._reader: Callable[[], Reader | None] = lambda: None
        self.stale = False
        """Whether something that was read is another one now."""
        self._sets: dict[tuple[int, str], _Set] = {}
        self._generators: dict[int, tuple[Any, Any]] = {}
        self._numpy_random = sys.modules.get("numpy.random")
        for generator in (random, self._numpy_random):
            if generator is not None:
                self._generators[id(generator)] = generator, _state(generator)
        self._probed: dict[int, Any] = {}
        self.drawn: dict[str, tuple[Any, tuple[Any, ...]]] = {}
        """Places where generators had moved on since `probe` was last called, and the blocks that these were in."""

    def read(self, block: Any, name: str, value: Any) -> None:
        if not self._has_read(block, name) and (id(block), name) not in self._sets:
            self._reads.setdefault(id(block), (block, set()))[1].add(name)
            self._follow(block, name)
        if _is_generator(value) and id(value) not in self._generators:
            self._generators[id(value)] = value, _state(value)

    def set(self, block: Any, name: str, old: Any, blocks: tuple[Any, ...]) -> None:
        if (id(block), name) not in self._sets:
            loc = user_loc(blocks[-1].name if blocks else "")
            self._sets[id(block), name] = _Set(block, name, old, self._has_read(block, name), loc, blocks)

    def _has_read(self, block: Any, name: str) -> bool:
        seen = self._reads.get(id(block))
        return seen is not None and name in seen[1]

    def _follow(self, block: Any, name: str) -> None:
        """From now on, this log is told of changes of the attribute."""
        with _lock:
            followers = block.__dict__.setdefault(READERS, {})
            alive = [ref for ref in followers.get(name, ()) if (log := ref()) is not None and not log.stale]
            followers[name] = [*alive, weakref.ref(self)]

    def keep(self, reader: Reader) -> bool:
        """Has `reader` told of changes from now on. False if what was read has changed already, on another thread.

        To be called when `check` has passed.
        """
        mine = [s for s in self._sets.values() if not s.carried]
        final = [(s.block, s.name, held(s.block, s.name)) for s in mine]
        self._finals = [f for f in final if f[2] is MISSING or _is_plain(f[2])]
        for block, name, _ in self._finals:
            self._follow(block, name)
        self._reader = weakref.ref(reader)
        self._generators.clear()
        return not self.stale

    def announce(self) -> None:
        """Tells other traces of what this one's program has set, now that it has stayed so."""
        for s in self._sets.values():
            if not same(s.old, held(s.block, s.name)):
                _tell(s.block, s.name, but=self)

    @property
    def as_set(self) -> bool:
        """Whether what the program sets is as it would leave it."""
        return all(same(held(block, name), value) for block, name, value in self._finals)

    def set_again(self) -> None:
        """Sets what a call of the program sets."""
        for block, name, value in self._finals:
            if not same(held(block, name), value):
                _put(block, name, value)
                _tell(block, name, but=self)

    def changed(self, block: Any, name: str) -> None:
        reads = self._has_read(block, name)
        self.stale = self.stale or reads
        reader = self._reader()
        if reader is not None:
            if reads:
                reader.forget(self)
            else:
                reader.look_again()

    @property
    def draws(self) -> bool:
        """Whether the program has drawn from a generator.

        NumPy imports `numpy.random` when it is first asked for; a program that has it imported now has drawn from it.
        """
        if sys.modules.get("numpy.random") is not self._numpy_random:
            return True
        return any(not _same_state(_state(g), before) for g, before in self._generators.values())

    def probe(self, blocks: tuple[Any, ...]) -> None:
        """Notes the place if numbers have been drawn since the last time."""
        states = {key: _state(generator) for key, (generator, _) in self._generators.items()}
        before = ((key, self._probed.get(key, first)) for key, (_, first) in self._generators.items())
        if blocks and not all(_same_state(states[key], state) for key, state in before):
            loc = user_loc(blocks[-1].name)
            self.drawn.setdefault(str(loc), (loc, blocks))
        self._probed = states

    def changes(self) -> list[_Set]:
        """The attributes that are others now than before."""
        return [s for s in self._sets.values() if not same(s.old, held(s.block, s.name))]

    def undo(self) -> None:
        """Puts attributes back to where they were."""
        for s in self._sets.values():
            _put(s.block, s.name, s.old)

    def rewind(self) -> None:
        """Puts generators back to where they were."""
        for generator, before in self._generators.values():
            if not _same_state(_state(generator), before):
                _restore(generator, before)


class _Set:
    """An attribute that the program has set: its value before, and whether that had been read."""

    def __init__(self, block: Any, name: str, old: Any, carried: bool, loc: Any, blocks: tuple[Any, ...]) -> None:
        self.block, self.name, self.old, self.carried, self.loc, self.blocks = block, name, old, carried, loc, blocks


def check(log: Attributes) -> None:
    """Raises StateChange for a program that a trace cannot stand for, having undone what it did; warns of the rest."""
    changes = log.changes()
    carried = next((s for s in changes if s.carried), None)
    if carried is not None:
        log.undo()
        raise StateChange(
            f"hybrid_forward of {carried.block.name} reads self.{carried.name} and then sets it, so that calls differ"
            f"{quote(carried.loc)}",
            carried.blocks,
            again=True,
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


# What a block has under a name


def held(block: Any, name: str) -> Any:
    """What the block itself has under a name, in its dictionary or in a slot; MISSING if nothing."""
    found = block.__dict__.get(name, MISSING)
    if found is MISSING and (slot := _slot(block, name)) is not None:
        try:
            found = slot.__get__(block)
        except AttributeError:
            pass  # a slot that is empty
    return found


def _put(block: Any, name: str, value: Any) -> None:
    """Gives the block this under a name, or nothing if it is MISSING, unseen by `changed`."""
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


def changed(block: Any, name: str, old: Any, caller: Any) -> None:
    """An attribute of a block has been set, or deleted, by the code of frame `caller`.

    What gluonjit does itself to a block's attributes is no business of any trace.
    """
    if caller.f_globals.get("__name__", "").partition(".")[0] == "gluonjit":
        return
    new = held(block, name)
    elsewhere = old is new is MISSING  # a property, which may keep it anywhere
    trace = running.trace
    if trace is not None:
        if not elsewhere:
            trace.attributes.set(block, name, old, tuple(trace.blocks))
    elif elsewhere or not same(old, new):
        _tell(block, name)


def deleting(block: Any, name: str) -> None:
    """An attribute is about to be deleted: what comes of that shows whether it was there."""
    if running.trace is not None:
        running.trace.attributes.read(block, name, MISSING)


def _tell(block: Any, name: str, but: Attributes | None = None) -> None:
    """Tells all who follow an attribute that it is another one now. The caller holds no lock."""
    followers = block.__dict__.get(READERS)
    for ref in followers.get(name, ()) if followers else ():
        log = ref()
        if log is not None and log is not but:
            log.changed(block, name)


# Seeing reads

_observed: list[Any] = []
"""The class of blocks; see `observe`."""
_running = 0
_lock = threading.RLock()  # a finalizer may read attributes while this thread holds it
if hasattr(os, "register_at_fork"):  # as in `random`
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def observe(cls: type) -> None:
    """Has reads of attributes noted for objects of `cls`."""
    _observed[:] = [cls]


@contextmanager
def noted() -> Iterator[None]:
    """Within, attributes of blocks that this thread's trace reads are noted in its log."""
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
    value = MISSING
    try:
        value = object.__getattribute__(self, name)
    finally:
        trace = running.trace
        if trace is not None and not name.startswith("__"):
            trace.attributes.read(self, name, value)
    return value


# Generators


def _is_generator(value: Any) -> bool:
    if isinstance(value, random.Random):
        return True
    loaded = sys.modules.get("numpy.random")
    return loaded is not None and isinstance(value, (loaded.RandomState, loaded.Generator, loaded.BitGenerator))


def _state(generator: Any) -> Any:
    """The state of a generator, or of the one behind the functions of `random` or `numpy.random`."""
    if isinstance(generator, random.SystemRandom):
        return object()  # no state, and other numbers whenever it is asked
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
