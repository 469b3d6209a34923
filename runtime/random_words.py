"""The words of `random_bits` for imperative execution, which compiled code draws once a program has drawn many.

The bits are those of the primitive's `eval`, whichever draws them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gluonjit.ir.dims import LOWEST, named
from gluonjit.ir.graph import Builder, Graph
from gluonjit.ir.primitives import random_bits
from gluonjit.ir.primitives.random_bits import words_from
from gluonjit.ir.types import I8, I64, TensorType, dtype
from gluonjit.runtime import forks
from gluonjit.runtime.backend import Backend, Callee

backend: Backend | None = None
"""What compiles; a front end sets it. None: NumPy draws all words."""

_MANY = 1 << 19
"""Words after which loading what another process has compiled costs no more than they did. Compiling takes three times
as long, once on a machine."""
_CALL = 1 << 11
"""How many words take NumPy as long as what a draw of any size does."""

_drawn = 0
_lock = forks.renewed()
_compiled: dict[Any, Callee] = {}


def words(key: np.ndarray, start: int, size: int, kind: Any) -> np.ndarray:
    """The elements start … start + size - 1 of a flat `random_bits` of type `kind` (i32 or i64) under a key i64[2]."""
    global _drawn
    if size < LOWEST or backend is None:
        return words_from(key, start, size, kind, 0)
    with _lock:  # a count of calls, not of time: the same program compiles, or does not
        _drawn = min(_drawn + size + _CALL, _MANY)
        many = _drawn == _MANY
    if not many:
        return words_from(key, start, size, kind, 0)
    (drawn,), _ = _drawing(dtype(kind)).run([np.array((*key, start), np.int64), np.empty(size, np.int8)])
    return drawn


random_bits.draw = words


def _drawing(kind: Any) -> Callee:
    """The compiled function of (key: i64[3], like: i8[n]) to n words."""
    with _lock:
        found = _compiled.get(kind)
        if found is None:
            assert backend is not None
            found = _compiled[kind] = backend(words_graph(kind), {})
    return found


def words_graph(kind: Any) -> Graph:
    """The graph of that function, which reads of `like` no more than its size."""
    b = Builder(f"random_words_{kind}")
    count = named("n")
    key = b.input("key", TensorType(I64, (3,)))
    b.input("like", TensorType(I8, (count,)))
    return b.build(list(b.emit("random_bits", [key], {"shape": (count,), "dtype": kind, "stream": 0})))
