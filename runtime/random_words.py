"""The words of `random_bits` for imperative execution, which compiled code draws once a program has drawn many.

The bits are those of the primitive's `eval`, whichever draws them.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from gluonjit.ir.graph import Builder, Graph
from gluonjit.ir.primitives.random_bits import word, words_from
from gluonjit.ir.types import I64, TensorType, dtype
from gluonjit.runtime.backend import Backend, Callee

backend: Backend | None = None
"""What compiles; a front end sets it. None: NumPy draws all words."""

_FEW = 1 << 12
"""Words of a draw that NumPy makes in less time than a block of compiled code."""
_MANY = 1 << 20
"""Words after which compiling, or loading what another process has compiled, costs no more than they did."""
_BLOCK = 1 << 14
"""Words that a call of compiled code draws."""

_drawn = 0
_lock = threading.Lock()
_compiled: dict[Any, Callee] = {}


def words(key: np.ndarray, start: int, size: int, kind: Any) -> np.ndarray:
    """The elements start … start + size - 1 of a flat `random_bits` of type `kind` (i32 or i64) under a key i64[2]."""
    global _drawn
    if size < _FEW or backend is None:
        return words_from(key, start, size, kind, 0)
    with _lock:  # a count of calls, not of time: the same program compiles, or does not
        _drawn = min(_drawn + size, _MANY)
        many = _drawn == _MANY
    return _from_blocks(key, start, size, kind) if many else words_from(key, start, size, kind, 0)


def _from_blocks(key: np.ndarray, start: int, size: int, kind: Any) -> np.ndarray:
    run = _block_of(dtype(kind)).run
    out = np.empty(size, dtype(kind).numpy)
    for at in range(0, size, _BLOCK):
        (block,), _ = run([key, np.array(start + at, np.int64)])
        out[at : at + _BLOCK] = block[: size - at]
    return out


def _block_of(kind: Any) -> Callee:
    """The compiled function of (key: i64[2], start: i64[]) to a block of words."""
    with _lock:
        found = _compiled.get(kind)
        if found is None:
            assert backend is not None
            found = _compiled[kind] = backend(block_graph(kind), {})
    return found


def block_graph(kind: Any) -> Graph:
    """The graph of that function."""
    b = Builder(f"random_words_{kind}")
    key, start = b.input("key", TensorType(I64, (2,))), b.input("start", TensorType(I64))
    seed, call = (b.reshape(b.slice(key, start=(k,), size=(1,)), shape=()) for k in (0, 1))
    index = b.add(b.iota(shape=(_BLOCK,), axis=0, dtype=I64), start)
    return b.build([word(b, index, seed, call, kind)])
