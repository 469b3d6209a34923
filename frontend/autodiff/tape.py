"""The tape: which computation made an array.

Every array that was computed from a *variable* (an array with `attach_grad`) while recording holds an `Edge`: the
`Node` that made it, and which of its results it is. A node refers to the edges of its inputs, never to an array that
was made from it, so what no array leads to is freed at once. Nodes are numbered as they are made.

A node keeps the values that its gradient reads, by reference. If one of them has been written to since, the gradient
would be wrong: `backward` refuses, and names it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from gluonjit.autodiff import anomalies
from gluonjit.base import MXNetError
from gluonjit.ir.graph import Loc
from gluonjit.language import late
from gluonjit.language.kinds import as_np
from gluonjit.language.modes import modes
from gluonjit.language.source import Place, quote, user_loc, user_place
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.sparse_arrays import BaseSparseNDArray
from gluonjit.ndarray.variable import tracked
from gluonjit.runtime.storage import Storage

_numbers = itertools.count()


NOTHING: Mapping[int, Any] = MappingProxyType({})
"""What most nodes have of what few have."""

Described = tuple[tuple[int, ...], np.dtype, bool]
"""The shape and element type of an array, and whether it is one of `mx.np`."""


def described(x: NDArray) -> Described:
    stand_in = x._stand_in
    return stand_in.shape, stand_in.dtype, x._numpy


class Edge(NamedTuple):
    """Where an array comes from: a result of a node, by number."""

    node: Node
    number: int


def note_program(graph: Any, states: tuple[Any, ...], results: Sequence[NDArray]) -> None:
    """Tells the nodes that have these results what they have run: see `Node.graph`."""
    for k, x in enumerate(results):
        state = x._grad_state
        if state.__class__ is Edge:
            node = state.node
            node.graph, node.states, node.first = graph, states, k - state.number


class Node:
    """One recorded computation.

    * `sources`: where each input that gradients flow to comes from.
    * `heads`: the numbers of the results that depend on these inputs.
    * `masks`: for a head, where its inputs of type bool come from, by which the gradient is 0.
    * `points`: for a head that is a gradient, what else it depends on: see `_note_point`.
    * `graph`, `states`: what ran, for `recorded_symbols`: a graph of operators, or one with its attributes; and the
      sources of all its inputs, None for those that gradients do not flow to. Nodes that have results of the same run
      have the same tuple. Its results begin with this node's at number `first`.
    * `results`: the shape, the element type and the kind of each result (`Described`).
    * `reached`: for each head, which of the sources it depends on, by number; None: each on all of them. To the others
      it sends no gradient, not even zeros, as if every operator were a node of its own.
    """

    __slots__ = (
        *("__weakref__", "device", "first", "graph", "heads", "masks", "name", "number", "place", "points"),
        *("reached", "released", "results", "sources", "states"),
    )
    _own_callers = 1
    """How many functions of this package surely call that which finds the user's line (`user_place`)."""

    # A step of training may make a thousand nodes, which are all alive at its end: they share what they can.
    def __init__(
        self,
        name: str,
        sources: tuple[Any, ...],
        heads: tuple[int, ...],
        results: Sequence[NDArray],
        types: Sequence[Described] | None = None,
    ) -> None:
        """`types`: the results, described, if that is known."""
        self.number = next(_numbers)
        self.name = name
        self.sources = sources
        self.masks: Mapping[int, Sequence[Any]] = NOTHING
        self.points: Mapping[int, Sequence[Any]] = NOTHING
        self.reached: Mapping[int, frozenset[int]] | None = None
        self.heads = heads
        self.results = [*map(described, results)] if types is None else types
        self.device = results[0]._device if results else None
        self.place = user_place(self._own_callers)
        self.released = False
        self.graph: Any = None
        self.states: tuple[Any, ...] = ()
        self.first = 0

    @property
    def loc(self) -> Loc:
        """The user's line that made the node."""
        return Place(*self.place).loc

    def pull(
        self, cotangents: Sequence[NDArray], create_graph: bool, given: Collection[int]
    ) -> Sequence[NDArray | None]:
        """The gradients for `sources`, given the cotangents of `heads`; recorded in turn with `create_graph`.

        `given`: the numbers of the heads that have a cotangent; those of the others are zeros. None: of a source that
        the former do not depend on."""
        raise NotImplementedError

    def pull_from(self, given: Mapping[int, NDArray]) -> Sequence[NDArray | None] | None:
        """As `pull` without `create_graph`, given the cotangents of some heads by number, where the others are not
        zeros but do not exist: zeros times an infinite derivative are NaN. None if the node cannot do that. Updates
        nothing."""
        return None

    def release(self) -> None:
        """Frees what was kept for `pull`, which cannot be called any more."""
        self.released = True
        self.sources, self.masks, self.points = (), NOTHING, NOTHING
        self.graph, self.states = None, ()

    def check(self, saved: Iterable[tuple[str, Saved]]) -> None:
        """MXNetError if a value that the gradient reads, given with its name, has been written to since."""
        for what, value in saved:
            if value.changed:
                raise self.was_written(what)

    def was_written(self, what: str) -> MXNetError:
        return MXNetError(
            f"{what} of {self.name} was written to after it was recorded, so its gradient cannot be computed any more. "
            f"Call backward before, or write to a copy{quote(self.loc)}"
        )

    def origins(self, heads: Collection[int], sent: Collection[int] | None = None) -> list[Any]:
        """What some of the heads depend on: of `sources`, those of them that are `sent` a gradient."""
        numbers = range(len(self.sources)) if self.reached is None else joined(map(self.reached.__getitem__, heads))
        sources = [self.sources[k] for k in numbers if sent is None or k in sent]
        return joined([sources, *(x.get(k, ()) for x in (self.masks, self.points) for k in heads)])

    def inspect(self, cotangents: Sequence[NDArray], gradients: Sequence[NDArray | None]) -> None:
        """An error if `pull` has made a nan or infinity."""
        found = [g._array for g in gradients if g is not None]
        anomalies.check_gradient(self.name, self.loc, [g._array for g in cotangents], found)

    def mark(self, results: Sequence[NDArray]) -> None:
        """Makes the node the origin of those results that gradients flow through."""
        for k in self.heads:
            results[k]._grad_state = Edge(self, k)


class Saved(NamedTuple):
    """A value that a gradient reads. Memory that can be written to is known by its storage and version."""

    array: np.ndarray
    storage: Storage | None
    version: int
    origin: Any
    """The source of the value, for gradients of gradients; of a node's own results, their number."""
    kind: bool
    """Whether it is an array of `mx.np`."""

    @staticmethod
    def of(x: Any, origin: Any = None) -> Saved:
        if not isinstance(x, NDArray):
            return Saved(x, None, 0, None, False)
        storage = x._storage or x.storage()
        return Saved(x._array, storage, storage.version, x._grad_state if origin is None else origin, x._numpy)

    @staticmethod
    def later(x: Any, origin: Any = None) -> Callable[[], Saved]:
        """The value that `of` gives now. A sparse array is made dense when it is asked for, which is seldom."""
        if not isinstance(x, BaseSparseNDArray):
            value = Saved.of(x, origin)
            return lambda: value
        parts, storage, source = x.detach(), x.storage(), x._grad_state if origin is None else origin
        version = storage.version
        return lambda: Saved(parts._array, storage, version, source, False)

    def copied(self) -> Saved:
        """The same value, in memory that nobody writes to."""
        return self._replace(array=self.array.copy(), storage=None)

    @property
    def changed(self) -> bool:
        return self.storage is not None and self.storage.version != self.version


class RuleNode(Node):
    """An operator on sparse arrays, whose gradient is a function of the cotangent of its one result.

    `places`: which of the gradients belong to `sources`. `linear`: the gradient can be differentiated again.
    """

    __slots__ = ("gradient", "linear", "places")

    def __init__(
        self, name: str, inputs: Sequence[NDArray], results: Sequence[NDArray], gradient: Any, linear: bool
    ) -> None:
        self.places = [k for k, x in enumerate(inputs) if x._grad_state is not None and tracked(x)]
        super().__init__(name, tuple([inputs[k]._grad_state for k in self.places]), (0,), results)
        self.gradient = gradient
        self.linear = linear

    def release(self) -> None:
        super().release()
        self.gradient = None

    def pull(
        self, cotangents: Sequence[NDArray], create_graph: bool, given: Collection[int]
    ) -> Sequence[NDArray | None]:
        if create_graph and not self.linear:
            raise MXNetError(
                f"the gradient of {self.name} on sparse arrays cannot be differentiated again: use "
                f".tostype('default') before{quote(self.loc)}"
            )
        gradients = self.gradient(cotangents[0])
        return [gradients[k] for k in self.places]


class ConstantNode(Node):
    """A computation whose results do not change with its inputs, almost everywhere: as `sign`. Its gradient is 0."""

    __slots__ = ("types",)

    def __init__(self, name: str, inputs: Sequence[NDArray], results: Sequence[NDArray]) -> None:
        super().__init__(name, tuple([x._grad_state for x in inputs]), tuple(range(len(results))), results)
        self.types = [(x.shape, x._stand_in.dtype) for x in inputs]

    def pull(
        self, cotangents: Sequence[NDArray], create_graph: bool, given: Collection[int]
    ) -> Sequence[NDArray | None]:
        return [NDArray._wrap(np.zeros(shape, dtype)) for shape, dtype in self.types]


def is_constant(x: NDArray) -> bool:
    """Whether no gradient flows through `x`, which a recorded computation made."""
    return x._grad_state is None or isinstance(x._grad_state.node, ConstantNode)


class PointNode(ConstantNode):
    """A gradient that is a constant: it depends on the point where it was computed by a derivative of 0."""

    __slots__ = ()

    def __init__(self, name: str, point: Sequence[Any], results: Sequence[NDArray]) -> None:
        Node.__init__(self, name, (), tuple(range(len(results))), results)
        self.points = dict.fromkeys(self.heads, point)
        self.types = []


class RefusingNode(Node):
    """A computation that has no gradient, which is an error only where one is asked for."""

    __slots__ = ("error",)

    def __init__(
        self,
        name: str,
        inputs: Sequence[NDArray],
        heads: tuple[int, ...],
        results: Sequence[NDArray],
        error: MXNetError,
    ) -> None:
        super().__init__(name, tuple([x._grad_state for x in inputs]), heads, results)
        self.error = str(error)

    def pull(
        self, cotangents: Sequence[NDArray], create_graph: bool, given: Collection[int]
    ) -> Sequence[NDArray | None]:
        raise MXNetError(self.error if "\n  at " in self.error else f"{self.error}{quote(self.loc)}")


def array_of(elements: np.ndarray, numpy: bool, device: Any) -> NDArray:
    x = NDArray._wrap(elements)
    if device is not None:
        x._storage = Storage(device)
    return as_np(x) if numpy else x


def own_memory(x: np.ndarray, others: Sequence[np.ndarray]) -> np.ndarray:
    """`x`, C-contiguous and in memory of its own."""
    fresh = x.flags.c_contiguous and x.flags.writeable and not any(np.may_share_memory(x, y) for y in others)
    return x if fresh else np.array(x, order="C")


def joined(sources: Iterable[Iterable[Any]]) -> list[Any]:
    return [source for source in dict.fromkeys(itertools.chain.from_iterable(sources)) if source is not None]


def freed(node: Node) -> MXNetError:
    return MXNetError(
        f"the graph of {node.name} has been used by an earlier backward, which freed it. If you want to differentiate "
        f"the same graph twice, you need to pass retain_graph=True to backward.{quote(node.loc)}"
    )


def refuse_write(x: NDArray) -> None:
    """MXNetError if `x` was computed from a variable, or is one: its new elements would have no gradient."""
    if modes.recording and x._grad_state is not None and tracked(x):
        raise MXNetError(
            "Assigning to NDArrays that are already in a computational graph will cause undefined behavior when "
            "evaluating gradients. Please call backward first to clear the graph or do this out side of a record "
            f"section.{quote(user_loc())}"
        )


late.refuse_write.provide(refuse_write)
