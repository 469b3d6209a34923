"""`KeptGradients`: what was found out about the gradient of a graph, in the object cache.

To differentiate a deep network and to divide the joint graph takes far longer than to trace it. What a call and its
gradient need of that is little: which outputs depend on the inputs, which values the gradient reads, under which keys
the cache has the code of both halves. Those are entries of the cache as well, named after the graph, the inputs and the
outputs. The halves' graphs are made only for those who look at them, or where code is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

from gluonjit.autodiff.backward import Backward, Cotangent, Presence, Result, Value
from gluonjit.runtime import cache
from gluonjit.runtime.artifact import Artifact

if TYPE_CHECKING:
    from gluonjit.autodiff.computation import Computation

Found = TypeVar("Found")


class KeptGradients:
    """What is known about one graph, whose entries' names follow from `key`."""

    def __init__(self, name: str, key: str) -> None:
        self._name = name
        self._key = key

    def _entry(self, what: Hashable) -> str:
        return cache.digest((self._key, what))

    def read(self, what: Hashable, understood: Callable[[Any], Found]) -> Found | None:
        """`understood` of the entry for `what`; None if there is none, or one that says something else."""
        found = cache.load(self._entry(what))
        if found is None or found.facts is None:
            return None
        try:
            return understood(found.facts)
        except (ValueError, LookupError, TypeError):
            return None

    def write(self, what: Hashable, facts: Any) -> None:
        cache.store(self._entry(what), Artifact(f"gradient of {self._name}", [], facts=facts))


def numbers(words: Any) -> tuple[int, ...]:
    """A list of integers."""
    if not all(type(n) is int for n in words):
        raise TypeError(words)
    return tuple(words)


def backward_to_json(backward: Backward) -> dict[str, Any]:
    """What a `Backward` is, but for its computation."""
    return {
        "values": [[v.place, int(v.changes)] for v in backward.values],
        "cotangents": [[c.head, int(c.is_read)] for c in backward.cotangents],
        "presences": [p.head for p in backward.presences],
        "results": [[r.additions, int(r.tells)] for r in backward.results],
        "states": backward.states,
        "untold": backward.untold,
    }


def backward_from_json(words: Any, computation: Computation) -> Backward:
    """`backward_to_json` undone, for a gradient in which no code of users has a part."""
    return Backward(
        computation=computation,
        values=tuple(Value(place, bool(changes)) for place, changes in map(numbers, words["values"])),
        cotangents=tuple(Cotangent(head, bool(is_read)) for head, is_read in map(numbers, words["cotangents"])),
        presences=tuple(map(Presence, numbers(words["presences"]))),
        results=tuple(Result(additions, bool(tells)) for additions, tells in map(numbers, words["results"])),
        states=numbers(words["states"]),
        calls_python=False,
        untold=tuple(map(str, words["untold"])),
    )
