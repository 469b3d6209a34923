"""Facts: the guards of a trace, which are what the program learned of types while it ran.

The graph is valid for the signatures for which all facts hold. A fact is a kind and the entries that it is about; a
table maps it to the value that the program saw. Kinds are names, or what computes the value themselves (`Subscript`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gluonjit.ir.dims import are_equal, is_equal
from gluonjit.ir.types import TensorType
from gluonjit.ndarray.index_keys import Basic, parse
from gluonjit.symbol.graph import Entry

Fact = tuple[Any, ...]
"""(kind, entry, …)"""


@dataclass(frozen=True)
class Subscript:
    """The kind of fact on which `x[key]` depends when the key itself goes into the graph. `parts`: an integer, None, or
    the ends of a slice for each axis."""

    parts: tuple[int | None | tuple[int | None, int | None], ...]

    def __call__(self, t: TensorType) -> Any:
        """The rank, whether the elements are contiguous, whether there are any, and whether they are all; None if the
        key does not fit."""
        try:
            meaning = parse(tuple(slice(*p) if isinstance(p, tuple) else p for p in self.parts), t.shape)
        except IndexError:
            return None
        assert isinstance(meaning, Basic)
        return t.rank, meaning.contiguous, 0 not in meaning.size, are_equal(meaning.size, t.shape)

    def __str__(self) -> str:
        return "subscripts"


KINDS: dict[str, Callable[..., Any]] = {
    "shape": lambda t: t.shape,
    "dtype": lambda t: t.dtype,
    "ndim": lambda t: t.rank,
    "size": lambda t: t.size,
    "len": lambda t: t.shape[0] if t.shape else None,
    "same shape": lambda a, b: are_equal(a.shape, b.shape),
    "same size": lambda a, b: is_equal(math.prod(a.shape), math.prod(b.shape)),
    "same type": lambda a, b: a.dtype == b.dtype and are_equal(a.shape, b.shape),
}
"""The kinds of facts, as functions of the entries' types."""


def value(fact: Fact, types: Mapping[Entry, TensorType]) -> Any:
    """The fact's value for entries of these types. Raises Undecided if it depends on the sizes of open dimensions."""
    kind, *entries = fact
    function = KINDS[kind] if isinstance(kind, str) else kind
    return function(*(types[e] for e in entries))
