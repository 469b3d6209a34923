"""A cache of operators' expansions, which are needed several times: tracing infers result types from them, lowering
checks these, and the pass `expand` inserts the primitives. A net also repeats many operators; those with a rule for
their gradient then share its graphs, so that each pass goes through them once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from gluonjit.ir.graph import Graph
from gluonjit.runtime import forks

LIMIT = 1 << 24
"""The approximate size of the cache in bytes. Beyond it the cache is cleared; what is in use is soon cached again."""
_ENTRY = 1 << 9
"""That of a key."""
_OP = 1 << 10
"""The approximate size of an op with its values in bytes."""

T = TypeVar("T")

_MISSING: Any = object()
_known: dict[Hashable, Any] = {}
_lock = forks.renewed()
_size = 0


def kept(key: Hashable, make: Callable[[], T], graphs: Callable[[T], Sequence[Graph]]) -> T:
    """What is cached for `key`; `make()` if there is nothing. `graphs`: those that it consists of."""
    global _size
    known = _known.get(key, _MISSING)
    if known is not _MISSING:
        return known
    made = make()
    size = _ENTRY + sum(map(_nbytes, graphs(made)))
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
