"""`Backward`: the graph of a gradient, and what each of its arguments and results is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from gluonjit.common.lazy import cached_property
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.sparse_arrays import from_additions

if TYPE_CHECKING:
    from gluonjit.autodiff.computation import Computation

Argument = TypeVar("Argument")


class Value(NamedTuple):
    """An argument that is a value of the forward computation."""

    place: int
    """k for input k, -1 - k for output k."""
    changes: bool
    """Whether it is a state that gets a new value: it is read as it is when the gradient is computed."""

    def __str__(self) -> str:
        return f"input {self.place}" if self.place >= 0 else f"output {-1 - self.place}"


class Cotangent(NamedTuple):
    """An argument that is the cotangent of a head."""

    head: int
    """Its position among the heads."""
    is_read: bool
    """Whether the gradients depend on it."""


class Presence(NamedTuple):
    """An argument that is not 0 if a head has a cotangent, even one of zeros."""

    head: int


class Result(NamedTuple):
    """The gradient by an input."""

    additions: int
    """The number of pairs (indices, rows) whose sum it is, each of which is two results of the graph
    (`passes/row_gradients.py`); 0: it is one array."""
    tells: bool
    """Whether there is, after all gradients, a number that is 0 if the heads turn out not to depend on the input."""


@dataclass(frozen=True, kw_only=True)
class Backward:
    """The gradient of a computation by some of its inputs, given cotangents of some of its outputs, its heads.

    The arguments of its graph are values, cotangents and presences, in this order. Its results are the gradients, then
    the numbers that tell which inputs were visited. `states` are the inputs of the forward computation that get new
    values, one for each of its updates.
    """

    computation: Computation
    values: tuple[Value, ...]
    cotangents: tuple[Cotangent, ...]
    presences: tuple[Presence, ...]
    results: tuple[Result, ...]
    states: tuple[int, ...]
    calls_python: bool
    """Whether code that users wrote in Python has a part in it."""
    untold: tuple[str, ...] = ()
    """The open dimensions whose sizes do not follow from the shapes of the arguments."""

    @cached_property
    def has_rows(self) -> bool:
        """Whether some gradients are given as rows."""
        return any(result.additions for result in self.results)

    @cached_property
    def is_dense(self) -> bool:
        """Whether the results of the graph are the gradients, and these the arrays of all inputs."""
        return not any(result.additions or result.tells for result in self.results)

    def arguments(
        self,
        value: Callable[[int], Argument],
        cotangent: Callable[[Cotangent], Argument],
        presence: Callable[[int], Argument],
    ) -> list[Argument]:
        """The arguments, given the function that makes a value from its place, and a presence from its head."""
        values = [value(v.place) for v in self.values]
        return [*values, *map(cotangent, self.cotangents), *(presence(p.head) for p in self.presences)]

    def gradients(self, outputs: Sequence[np.ndarray], targets: Sequence[Any]) -> list[NDArray]:
        """The gradients among the results of the graph. One that is given as rows is a row_sparse array, of the shape
        of its array among `targets`."""
        rest = iter(outputs)
        found: list[NDArray] = []
        for k, result in enumerate(self.results):
            if not result.additions:
                found.append(NDArray._wrap(next(rest)))
            else:
                terms = [(next(rest), next(rest)) for _ in range(result.additions)]
                found.append(from_additions(targets[k].shape, terms, targets[k]._device))
        return found

    def visited(self, gradients: Sequence[NDArray], outputs: Sequence[Any]) -> list[NDArray | None]:
        """The gradients, None for inputs that the heads turned out not to depend on. `outputs`: all results."""
        found: list[NDArray | None] = [*gradients]
        telling = [k for k, result in enumerate(self.results) if result.tells]
        for k, number in zip(telling, outputs[len(outputs) - len(telling) :]):
            if number == 0:
                found[k] = None
        return found
