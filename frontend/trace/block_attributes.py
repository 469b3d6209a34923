"""What a program reads and sets of its blocks' attributes, and draws from Python's random generators, while traced.

A trace runs `hybrid_forward` once. What the program reads there (`x * self.scale`) is in the compiled code for good, so
a later change of the attribute must drop the trace (`changed`). What it sets happens once instead of in every call:

* An attribute that is read before it is set (`self.calls += 1`) makes the next call another one: no trace can stand for
  both. If the call after that sets nothing (`if self.grid is None: self.grid = ...`), that one can be traced.
* One that is only set is left as it is; with a warning, unless it is a plain value, which every call would set alike.
* Numbers from `random`, `numpy.random` and generators that a block holds differ in every call: no trace, either.

Reads are seen by a `__getattribute__` that the class of blocks has only while a trace runs in some thread, so calls of
compiled and of plain blocks cost what they did. Seen are attributes of blocks alone: not the elements of a list that an
attribute holds, not globals or closures.
"""

from __future__ import annotations

import os
import random
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gluonjit.base import StateChange
from gluonjit.language.running import running
from gluonjit.language.source import quote, stacklevel, user_loc

MISSING = object()
_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator)
_PLAIN = (type(None), bool, int, float, complex, str, bytes)

READERS = "_readers"
"""The attribute of a block that holds, by name, what was traced with the value it has now."""


class Attributes:
    """The log of one trace."""

    def __init__(self) -> None:
        self._reads: dict[int, tuple[Any, set[str]]] = {}
        self._sets: dict[tuple[int, str], _Set] = {}
        self._generators: dict[int, tuple[Any, Any]] = {}
        for generator in (random, np.random):
            self._generators[id(generator)] = generator, _state(generator)
        self.drawn: tuple[Any, tuple[Any, ...]] | None = None
        """Where the program first drew random numbers, as far as `probe` was called, and the blocks it was in."""

    def read(self, block: Any, name: str, value: Any) -> None:
        self._reads.setdefault(id(block), (block, set()))[1].add(name)
        if isinstance(value, _GENERATORS) and id(value) not in self._generators:
            self._generators[id(value)] = value, _state(value)

    def set(self, block: Any, name: str, old: Any, blocks: tuple[Any, ...]) -> None:
        if (id(block), name) not in self._sets:
            seen = self._reads.get(id(block))
            carried = seen is not None and name in seen[1]
            loc = user_loc(blocks[-1].name if blocks else "")
            self._sets[id(block), name] = _Set(block, name, old, carried, loc, blocks)

    @property
    def reads(self) -> Iterator[tuple[Any, str]]:
        """(block, attribute) for all that was read."""
        return ((block, name) for block, names in self._reads.values() for name in names)

    @property
    def draws(self) -> bool:
        """Whether the program has drawn from a generator."""
        return any(not _same_state(_state(g), before) for g, before in self._generators.values())

    def probe(self, blocks: tuple[Any, ...]) -> None:
        """Notes the place if it is the first one after which numbers are drawn."""
        if self.drawn is None and self.draws:
            self.drawn = user_loc(blocks[-1].name if blocks else ""), blocks

    def changes(self) -> list[_Set]:
        """The attributes that are others now than before."""
        return [s for s in self._sets.values() if not same(s.old, vars(s.block).get(s.name, MISSING))]

    def undo(self) -> None:
        """Puts attributes and generators back to where they were."""
        for s in self._sets.values():
            if s.old is MISSING:
                s.block.__dict__.pop(s.name, None)
            else:
                s.block.__dict__[s.name] = s.old
        for generator, before in self._generators.values():
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
        if _is_plain(vars(s.block).get(s.name)):
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


# Who read what


def remember(log: Attributes, reader: Any, trace: Any) -> None:
    """From now on, a change of an attribute that was read has `reader.forget(trace)` called."""
    entry = weakref.ref(reader), weakref.ref(trace)
    for block, name in log.reads:
        readers = block.__dict__.setdefault(READERS, {})
        readers[name] = [e for e in readers.get(name, ()) if e[1]() is not None] + [entry]


def changed(block: Any, name: str, old: Any, caller: Any) -> None:
    """An attribute of a block has been set, or deleted, by the code of frame `caller`.

    What gluonjit does itself to a block's attributes is no business of any trace.
    """
    own = caller.f_globals.get("__name__", "").partition(".")[0] == "gluonjit"
    if own or same(old, block.__dict__.get(name, MISSING)):
        return
    trace = running.trace
    if trace is not None:
        trace.attributes.set(block, name, old, tuple(trace.blocks))
        return
    readers = block.__dict__.get(READERS)
    for reader, trace in readers.pop(name, ()) if readers else ():
        if (cached := reader()) is not None:
            cached.forget(trace())


# Seeing reads

_observed: list[Any] = []
"""The class of blocks; see `observe`."""
_running = 0
_lock = threading.Lock()
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


def _state(generator: Any) -> Any:
    if generator is random or isinstance(generator, random.Random):
        return generator.getstate()
    if generator is np.random or isinstance(generator, np.random.RandomState):
        return generator.get_state()
    return generator.bit_generator.state


def _restore(generator: Any, state: Any) -> None:
    if generator is random or isinstance(generator, random.Random):
        generator.setstate(state)
    elif generator is np.random or isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


def _same_state(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_same_state, a, b))
    if isinstance(a, dict):
        return all(_same_state(a[key], b[key]) for key in a)
    return bool(a == b)
