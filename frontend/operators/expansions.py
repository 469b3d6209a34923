"""A cache of operators' expansions, which are needed several times: tracing infers result types from them, lowering
checks these, and the pass `expand` inserts the primitives. A net also repeats many operators.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from gluonjit.ir.graph import Graph
from gluonjit.runtime import forks

LIMIT = 1 << 24
"""The approximate size of the cache in bytes. Beyond it the cache is cleared; what is in use is soon cached again."""
_OP = 1 << 10
"""The approximate size of an op with its values in bytes."""

_known: dict[Hashable, Graph] = {}
_lock = forks.renewed()
_size = 0


def expansion(key: Hashable, make: Callable[[], Graph]) -> Graph:
    """The cached expansion for `key`; `make()` if there is none."""
    global _size
    known = _known.get(key)
    if known is not None:
        return known
    made = make()
    size = _nbytes(made)
    if size <= LIMIT // 8:
        with _lock:
            if _size + size > LIMIT:
                _known.clear()
                _size = 0
            if key not in _known:
                _known[key] = made
                _size += size
    return made


def _nbytes(graph: Graph) -> int:
    total = 0
    for op in graph.ops:
        total += _OP + sum(v.nbytes for v in op.attrs.values() if isinstance(v, np.ndarray))
        total += sum(map(_nbytes, op.regions))
    return total
