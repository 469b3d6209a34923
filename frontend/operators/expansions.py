"""Expansions of operators, each made once: a trace asks for an operator's result types, lowering checks them, and the
pass `expand` wants the primitives, of which a net repeats many.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

import numpy as np

from gluonjit.ir.graph import Graph

LIMIT = 1 << 24
"""Bytes that are kept, about. Beyond them all is forgotten: what is in use is soon there again."""
_OP = 1 << 10
"""Bytes of an op with its values."""

_known: dict[Hashable, Graph] = {}
_lock = threading.Lock()
_size = 0


def expansion(key: Hashable, make: Callable[[], Graph]) -> Graph:
    """What `make` gives, or has given for an equal key."""
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
