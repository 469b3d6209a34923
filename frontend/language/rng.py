"""The generator of all random operators: one (seed, counter) pair for the whole process.

Every random operator takes a key in program order and computes its numbers from the key alone (`random_bits`), so a
program draws the same numbers whether it is compiled or not: a compiled graph with n random operators reserves n keys
at once, and its k-th operator uses the k-th of them.

Initializations that are postponed until a parameter's shape is known have a second sequence of keys (`postponed`): a
plain call runs each between the random operators of its layers, a compiled one runs all of them first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from gluonjit.base import integer_types
from gluonjit.context import Context
from gluonjit.ir import opdef
from gluonjit.ir.types import I64
from gluonjit.language.running import running
from gluonjit.runtime import forks

_lock = forks.held()
_seed = 0
_counter = 0
_POSTPONED = 1 << 62
"""The first counter of postponed initializations: as far from the others as can be."""
_postponed = [0, _POSTPONED]
"""[seed, counter] of postponed initializations."""


class _Fork(threading.local):
    state: list[int] | None = None
    """[seed, counter] of the generator that this thread uses instead of the process's, within `forked`."""


_fork = _Fork()


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Restarts the sequence. `ctx` names the devices to seed; all of them share one generator here."""
    global _seed, _counter
    if running.trace is not None:
        running.trace.refuse(
            "mx.random.seed() cannot be compiled: every call would have to seed", "seed before the call", for_value=True
        )
    if not isinstance(seed_state, integer_types):
        raise ValueError("seed_state must be int")
    if ctx != "all":
        Context(ctx)
    with _lock:
        # MXNet keeps the low 32 bits.
        _seed = int(seed_state) & 0xFFFFFFFF
        _counter = 0
        _postponed[:] = _seed, _POSTPONED


def get_state() -> tuple[int, int, int]:
    """The generator's state: the seed, and how many keys have been drawn since, by postponed initializations last.

    Not in MXNet.
    """
    with _lock:
        return _seed, _counter, _postponed[1] - _POSTPONED


def set_state(state: tuple[int, int, int]) -> None:
    """Goes on from a state that `get_state` has returned."""
    global _seed, _counter
    if running.trace is not None:
        running.trace.refuse(
            "mx.random.set_state() cannot be compiled: every call would have to set it", "set it before", for_value=True
        )
    try:
        seed, counter, postponed = (int(x) for x in state)
    except (TypeError, ValueError):
        message = f"the state must be what mx.random.get_state() returns, three integers, got {state!r}"
        raise ValueError(message) from None
    if not (0 <= seed <= 0xFFFFFFFF and 0 <= counter < _POSTPONED and 0 <= postponed < _POSTPONED):
        raise ValueError(f"the state must be what mx.random.get_state() returns, got {state!r}")
    with _lock:
        _seed, _counter = seed, counter
        _postponed[:] = seed, _POSTPONED + postponed


def reserve(n: int) -> np.ndarray:
    """Reserves keys for the next `n` random operators. Returns the first, (seed, counter) of type i64[2].

    The k-th operator adds k to the counter.
    """
    global _counter
    fork = _fork.state
    with _lock:
        if fork is not None:  # `_postponed` is all threads'
            key = np.array(fork, np.int64)
            fork[1] += n
            return key
        key = np.array((_seed, _counter), np.int64)
        _counter += n
    return key


def next_key() -> np.ndarray:
    """The key of the next random operator."""
    return reserve(1)


@contextmanager
def forked() -> Iterator[None]:
    """A context whose operators draw from a generator of their own, seeded by one key of the current one.

    Later random numbers then depend neither on the number of a loop's iterations nor on which branch was taken.
    Compiled loops and branches do the same.
    """
    primitive = opdef.lookup("random_bits")
    assert isinstance(primitive, opdef.Primitive)
    bits = primitive.eval(next_key(), shape=(1,), dtype=I64, stream=0)
    outer, _fork.state = _fork.state, [int(bits[0]), 0]
    try:
        yield
    finally:
        _fork.state = outer


@contextmanager
def postponed() -> Iterator[None]:
    """A context whose operators draw from the sequence of postponed initializations."""
    outer, _fork.state = _fork.state, _postponed
    try:
        yield
    finally:
        _fork.state = outer
