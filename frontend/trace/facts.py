"""Facts: the guards of a trace, which are what the program learned of types while it ran.

The graph is valid for the signatures for which all facts hold. A fact is a kind and the entries that it is about; a
table maps it to the value that the program saw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gluonjit.ir.dims import are_equal
from gluonjit.ir.types import TensorType
from gluonjit.symbol.graph import Entry

Fact = tuple[Any, ...]
"""(kind, entry, …)"""

KINDS: dict[str, Callable[..., Any]] = {
    "shape": lambda t: t.shape,
    "dtype": lambda t: t.dtype,
    "ndim": lambda t: t.rank,
    "size": lambda t: t.size,
    "len": lambda t: t.shape[0] if t.shape else None,
    "same shape": lambda a, b: are_equal(a.shape, b.shape),
    "same type": lambda a, b: a.dtype == b.dtype and are_equal(a.shape, b.shape),
}
"""The kinds of facts, as functions of the entries' types."""


def value(fact: Fact, types: Mapping[Entry, TensorType]) -> Any:
    """The fact's value for entries of these types. Raises Undecided if it depends on the sizes of open dimensions."""
    kind, *entries = fact
    return KINDS[kind](*(types[e] for e in entries))
