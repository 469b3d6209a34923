"""The state of random numbers: one (seed, counter) pair for the whole process.

Every random operator takes a key from here in program order, imperatively or compiled, and computes its numbers from
the key alone (`random_bits`). So the same program gives the same numbers in both modes; a compiled graph with n random
operators reserves n keys at once and gives its k-th operator the k-th of them.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from gluonjit.base import integer_types
from gluonjit.context import Context

_lock = threading.Lock()
_seed = 0
_counter = 0


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Restarts the sequence. `ctx` names the devices to seed; all of them share one generator here."""
    global _seed, _counter
    if not isinstance(seed_state, integer_types):
        raise ValueError("seed_state must be int")
    if ctx != "all":
        Context(ctx)
    with _lock:
        # MXNet keeps the low 32 bits.
        _seed = int(seed_state) & 0xFFFFFFFF
        _counter = 0


def reserve(n: int) -> np.ndarray:
    """The key (seed, counter), of type i64[2], of the next random operator; `n` operators may draw on it.

    The k-th of them adds k to the counter.
    """
    global _counter
    with _lock:
        key = np.array((_seed, _counter), np.int64)
        _counter += n
    return key


def next_key() -> np.ndarray:
    """The key of the next random operator."""
    return reserve(1)


def __getattr__(name: str) -> Any:
    """`mx.random.uniform` and its like are `mx.nd.random`'s."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gluonjit import ndarray

    try:
        return getattr(ndarray.random, name)
    except AttributeError as e:
        raise AttributeError(str(e).replace("gluonjit.ndarray.random", __name__)) from None
