"""The tape: which computation made an array, and the walk back from there.

Every array that was computed from a *variable* (an array with `attach_grad`) while recording holds an `Edge`: the
`Node` that made it, and which of its results it is. A node refers to the edges of its inputs, never to an array that
was made from it, so what no array leads to is freed at once. Nodes are numbered as they are made; `backward` visits
them from the highest number down, which is an order in which every node follows those that read it.

A node keeps the values that its gradient reads, by reference. If one of them has been written to since, the gradient
would be wrong: `backward` refuses, and names it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import add
from typing import Any, NamedTuple

import numpy as np

from gluonjit.autodiff import anomalies
from gluonjit.autodiff.computation import Backward, Computation, Forward
from gluonjit.autodiff.operator_computations import differentiated, of_number, of_operator, of_values
from gluonjit.base import MXNetError
from gluonjit.ir.graph import Loc
from gluonjit.language import late
from gluonjit.language.interrupts import Uninterrupted
from gluonjit.language.kinds import as_np
from gluonjit.language.modes import Scope, modes
from gluonjit.language.source import quote, user_loc
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.custom_calls import kept_operators
from gluonjit.ndarray.gradient_listeners import announce, listeners
from gluonjit.ndarray.sparse_arrays import BaseSparseNDArray, RowSparseNDArray, add_rows, cast_dense, from_additions
from gluonjit.ndarray.variable import Variable, store, tracked, wants_rows
from gluonjit.runtime.eager import quiet
from gluonjit.runtime.storage import Storage
from gluonjit.runtime.watching import Progress

MAX_TYPES = 64
"""For how many types of operands the computations of an operator with certain attributes are found at once."""

_numbers = itertools.count()


class Edge(NamedTuple):
    """Where an array comes from: a result of a node, by number."""

    node: Node
    number: int


class Program(NamedTuple):
    """What a node has run, for `recorded_symbols`: a graph of operators, or one with its attributes; and the sources of
    all its inputs, None for those that gradients do not flow to."""

    graph: Any
    states: tuple[Any, ...]

    @staticmethod
    def of(graph: Any, inputs: Sequence[NDArray]) -> Program:
        return Program(graph, tuple([x._grad_state for x in inputs]))

    def note(self, results: Sequence[NDArray]) -> None:
        """Gives the program to the nodes that have its results."""
        for k, x in enumerate(results):
            state = x._grad_state
            if state.__class__ is Edge:
                state.node.program = self
                state.node.first = k - state.number


class Node:
    """One recorded computation.

    * `sources`: where each input that gradients flow to comes from.
    * `heads`: the numbers of the results that depend on these inputs.
    * `masks`: for a head, where its inputs of type bool come from, by which the gradient is 0.
    * `points`: for a head that is a gradient, what else it depends on: see `_note_point`.
    * `program`: what ran; its results begin with this node's at number `first`.
    * `reached`: for each head, which of the sources it depends on, by number; None: each on all of them. To the others
      it sends no gradient, not even zeros, as if every operator were a node of its own.
    """

    __slots__ = (
        *("__weakref__", "device", "first", "heads", "loc", "masks", "name", "number", "points", "program"),
        *("reached", "released", "results", "sources"),
    )

    def __init__(self, name: str, sources: Sequence[Any], heads: Sequence[int], results: Sequence[NDArray]) -> None:
        self.number = next(_numbers)
        self.name = name
        self.sources = tuple(sources)
        self.masks: Mapping[int, Sequence[Any]] = {}
        self.points: dict[int, Sequence[Any]] = {}
        self.reached: Mapping[int, frozenset[int]] | None = None
        self.heads = tuple(heads)
        self.results = [(x.shape, x._stand_in.dtype, x._numpy) for x in results]
        self.device = results[0]._device if results else None
        self.loc: Loc = user_loc()
        self.released = False
        self.program: Program | None = None
        self.first = 0

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
        self.sources, self.masks, self.points = (), {}, {}
        self.program = None

    def check(self, saved: Iterable[tuple[str, Saved]]) -> None:
        """MXNetError if a value that the gradient reads, given with its name, has been written to since."""
        for what, value in saved:
            if value.changed:
                raise MXNetError(
                    f"{what} of {self.name} was written to after it was recorded, so its gradient cannot be computed "
                    f"any more. Call backward before, or write to a copy{quote(self.loc)}"
                )

    def origins(self, heads: Collection[int], sent: Collection[int] | None = None) -> list[Any]:
        """What some of the heads depend on: of `sources`, those of them that are `sent` a gradient."""
        numbers = range(len(self.sources)) if self.reached is None else _joined(map(self.reached.__getitem__, heads))
        sources = [self.sources[k] for k in numbers if sent is None or k in sent]
        return _joined([sources, *(x.get(k, ()) for x in (self.masks, self.points) for k in heads)])

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
        storage = x.storage()
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


class Gradient(NamedTuple):
    """A gradient, and what it runs on: the values that it reads, in its order, and the arrays that its updates are
    written to."""

    backward: Backward
    saved: Sequence[Saved]
    written: Sequence[NDArray]


class GraphNode(Node):
    """A computation whose gradient is a graph."""

    __slots__ = ("again", "announces", "gradient", "kept", "late_ops")

    def __init__(
        self,
        name: str,
        sources: Sequence[Any],
        heads: Sequence[int],
        results: Sequence[NDArray],
        gradient: Gradient,
        again: Callable[[tuple[int, ...]], Gradient] | None = None,
    ) -> None:
        super().__init__(name, sources, heads, results)
        self.gradient: Gradient | None = gradient
        self.kept: Sequence[Any] = ()
        self.announces = False
        """Whether the gradients of variables, which `pull` computes, will be stored."""
        self.late_ops: Callable[[Iterable[int]], int] | None = None
        """`Computation.late_ops`, of a block that has several results."""
        self.again = again
        """Gives the gradient from some of the heads that can be recorded, where `saved` holds intermediate values."""
        for value in gradient.saved:
            if value.origin.__class__ is Variable:
                value.origin.note_reader(self)

    def keep_copies(self, storage: Storage, copies: dict[Any, np.ndarray]) -> None:
        """Keeps copies of those saved values that are in `storage`. `copies` are those that other nodes have made."""
        if self.gradient is None:
            return
        saved = []
        for value in self.gradient.saved:
            if value.storage is storage and not value.changed:
                place = value.array.__array_interface__["data"][0], value.array.shape, value.array.strides
                if place not in copies:
                    copies[place] = value.array.copy()
                value = value._replace(array=copies[place], storage=None)
            saved.append(value)
        self.gradient = self.gradient._replace(saved=saved)

    def release(self) -> None:
        super().release()
        self.gradient, self.again, self.late_ops, self.kept = None, None, None, ()

    def pull(
        self, cotangents: Sequence[NDArray], create_graph: bool, given: Collection[int]
    ) -> Sequence[NDArray | None]:
        gradient, heads = self.gradient, self.heads
        if self.again is not None and (create_graph or self._changes_more(given)):
            cotangents = [g for k, g in zip(heads, cotangents, strict=True) if k in given]
            heads = tuple([k for k in heads if k in given])
            gradient = self.again(heads)
        assert gradient is not None, "released"
        exist = [k in given for k in heads]
        return self._pulled(gradient, cotangents, exist, create_graph, modes.training)

    def _changes_more(self, given: Collection[int]) -> bool:
        """Whether the gradient of all results would change states that are on the way of none that has a cotangent."""
        if self.late_ops is None or not modes.training or not self.gradient or not self.gradient.written:
            return False
        return bool(self.late_ops(self.heads) & ~self.late_ops(given))

    def pull_from(self, given: Mapping[int, NDArray]) -> Sequence[NDArray | None] | None:
        if self.again is None:
            return None
        heads = tuple(sorted(given))
        return self._pulled(self.again(heads), [given[k] for k in heads], [True] * len(heads), False, False)

    def _pulled(
        self,
        gradient: Gradient,
        cotangents: Sequence[NDArray],
        exist: Sequence[bool],
        create_graph: bool,
        updates_states: bool,
    ) -> Sequence[NDArray | None]:
        """`exist`: which of the cotangents are not zeros for lack of one."""
        backward, saved, written = gradient
        self.check(
            (f"input {place}" if place >= 0 else f"output {-1 - place}", value)
            for place, value in zip(backward.sources, saved)
            if place not in backward.writes
        )
        arrays = [value.array for value in saved]
        cotangents = [cotangents[n] for n in backward.given]
        cotangents += [NDArray._wrap(np.array(exist[n], np.float32)) for n in backward.told]
        given = [*arrays, *[g._array for g in cotangents]]
        with kept_operators():
            announced = self._announce if self.announces and not backward.additions else None
            outputs, updates = backward.computation.run(given, announced)
        if modes.anomalies and self.again is not None:  # a block: which operator in it?
            incoming, graph = [g._array for g in cotangents], backward.computation.fitted(given).graph
            anomalies.check_gradient(self.name, self.loc, incoming, outputs, graph, given)
        if updates_states and written:
            with Uninterrupted():
                for target, new in zip(written, updates, strict=True):
                    target._store(new)
        if not create_graph:
            return self._gradients(backward, outputs)
        inputs = []
        for value in saved:
            proxy = _array(value.array, value.kind, self.device)
            own = value.origin.__class__ is int
            proxy._grad_state = Edge(self, value.origin) if own else value.origin
            inputs.append(proxy)
        kind = any(numpy for _, _, numpy in self.results)
        results = [_array(_own_memory(x, arrays), kind, self.device) for x in outputs]
        computation = backward.computation.fitted(given)
        record(computation, [*inputs, *cotangents], results, f"the gradient of {self.name}")
        return _visited(backward, results)

    def _announce(self, gradients: Sequence[np.ndarray], progress: Progress) -> None:
        for source, gradient, ready in zip(self.sources, gradients, progress.ready):
            if source.__class__ is Variable:
                announce(source.grad, source.request, gradient, progress, ready)

    def _gradients(self, backward: Backward, outputs: Sequence[np.ndarray]) -> list[NDArray | None]:
        grads = [source.grad if k in backward.additions else None for k, source in enumerate(self.sources)]
        return _visited(backward, in_rows(backward, outputs, grads))


def in_rows(backward: Backward, outputs: Sequence[np.ndarray], grads: Sequence[Any]) -> list[NDArray]:
    """The outputs of `backward`, where those that make up a gradient by rows are one row_sparse array, of the shape of
    its array among `grads`."""
    if not backward.additions:
        return [NDArray._wrap(x) for x in outputs]
    gradients: list[NDArray] = []
    rest = iter(outputs)
    for k, grad in enumerate(grads):
        count = backward.additions.get(k)
        if count is None:
            gradients.append(NDArray._wrap(next(rest)))
        else:
            terms = [(next(rest), next(rest)) for _ in range(count)]
            gradients.append(from_additions(grad.shape, terms, grad._device))
    return [*gradients, *map(NDArray._wrap, rest)]


def _visited(backward: Backward, results: Sequence[NDArray]) -> list[NDArray | None]:
    """The gradients among the results of `backward`, None for inputs that turned out not to be visited."""
    if not backward.visited:
        return [*results]
    count = len(results) - len(backward.visited)
    gradients: list[NDArray | None] = [*results[:count]]
    for n, visits in zip(backward.visited, results[count:], strict=True):
        if visits._array == 0:
            gradients[n] = None
    return gradients


class RuleNode(Node):
    """An operator on sparse arrays, whose gradient is a function of the cotangent of its one result.

    `places`: which of the gradients belong to `sources`. `linear`: the gradient can be differentiated again.
    """

    __slots__ = ("gradient", "linear", "places")

    def __init__(
        self, name: str, inputs: Sequence[NDArray], results: Sequence[NDArray], gradient: Any, linear: bool
    ) -> None:
        self.places = [k for k, x in enumerate(inputs) if x._grad_state is not None and tracked(x)]
        super().__init__(name, [inputs[k]._grad_state for k in self.places], (0,), results)
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


def record_rule(
    name: str, inputs: Sequence[NDArray], results: Sequence[NDArray], gradient: Any, linear: bool = False
) -> None:
    """Notes that an operator on sparse arrays made `results`, one array; see `RuleNode`."""
    RuleNode(name, inputs, results, gradient, linear).mark(results)


class _ConstantNode(Node):
    """A computation whose results do not change with its inputs, almost everywhere: as `sign`. Its gradient is 0."""

    __slots__ = ("types",)

    def __init__(self, name: str, inputs: Sequence[NDArray], results: Sequence[NDArray]) -> None:
        super().__init__(name, [x._grad_state for x in inputs], range(len(results)), results)
        self.types = [(x.shape, x._stand_in.dtype) for x in inputs]

    def pull(
        self, cotangents: Sequence[NDArray], create_graph: bool, given: Collection[int]
    ) -> Sequence[NDArray | None]:
        return [NDArray._wrap(np.zeros(shape, dtype)) for shape, dtype in self.types]


def is_constant(x: NDArray) -> bool:
    """Whether no gradient flows through `x`, which a recorded computation made."""
    return x._grad_state is None or isinstance(x._grad_state.node, _ConstantNode)


class _PointNode(_ConstantNode):
    """A gradient that is a constant: it depends on the point where it was computed by a derivative of 0."""

    __slots__ = ()

    def __init__(self, name: str, point: Sequence[Any], results: Sequence[NDArray]) -> None:
        Node.__init__(self, name, (), range(len(results)), results)
        self.points = dict.fromkeys(self.heads, point)
        self.types = []


class _RefusingNode(Node):
    """A computation that has no gradient, which is an error only where one is asked for."""

    __slots__ = ("error",)

    def __init__(
        self, name: str, inputs: Sequence[NDArray], heads: Sequence[int], results: Sequence[NDArray], error: MXNetError
    ) -> None:
        super().__init__(name, [x._grad_state for x in inputs], heads, results)
        self.error = str(error)

    def pull(
        self, cotangents: Sequence[NDArray], create_graph: bool, given: Collection[int]
    ) -> Sequence[NDArray | None]:
        raise MXNetError(self.error if "\n  at " in self.error else f"{self.error}{quote(self.loc)}")


def note_refusal(
    name: str, inputs: Sequence[NDArray], heads: Sequence[int], results: Sequence[NDArray], error: MXNetError
) -> None:
    """Notes that the gradient of `results` by `inputs` cannot be computed, for the reason that `error` says."""
    _RefusingNode(name, inputs, heads, results, error).mark(results)


def _array(elements: np.ndarray, numpy: bool, device: Any) -> NDArray:
    x = NDArray._wrap(elements)
    if device is not None:
        x._storage = Storage(device)
    return as_np(x) if numpy else x


def _own_memory(x: np.ndarray, others: Sequence[np.ndarray]) -> np.ndarray:
    """`x`, C-contiguous and in memory of its own."""
    fresh = x.flags.c_contiguous and x.flags.writeable and not any(np.may_share_memory(x, y) for y in others)
    return x if fresh else np.array(x, order="C")


def note_others(
    name: str, computation: Computation, inputs: Sequence[NDArray], numbers: Sequence[int], results: Sequence[NDArray]
) -> None:
    """Notes that the results which gradients do not flow through have the gradient 0: of `topk`, the positions.

    `numbers` are those of the inputs that gradients flow to."""
    for k, x in enumerate(results):
        if x._grad_state is None:
            origins = [inputs[n] for n in numbers if n in computation.reached(k)]
            if origins:
                _ConstantNode(name, origins, [x]).mark([x])


def record(
    computation: Computation,
    inputs: Sequence[NDArray],
    results: Sequence[NDArray],
    name: str,
    last: Any = None,
    operator: Any = None,
) -> None:
    """Notes that `computation` made `results` from `inputs`, and from `last`, a random key or number, if it has one.

    Does nothing if no gradient flows to any input. `operator`: what ran, and its attributes, if the graph does not say.
    """
    reached = [k for k, x in enumerate(inputs) if x._grad_state is not None and tracked(x)]
    if not reached:
        return
    program = Program.of(operator or computation.graph, inputs)
    _record(computation, reached, inputs, results, name, last)
    program.note(results)


def _record(
    computation: Computation,
    reached: Sequence[int],
    inputs: Sequence[NDArray],
    results: Sequence[NDArray],
    name: str,
    last: Any,
) -> None:
    if modes.anomalies:
        anomalies.check_operator(name, user_loc(), [x._array for x in inputs], [x._array for x in results])
    wrt = tuple([k for k in reached if inputs[k]._stand_in.dtype != np.bool_])
    heads = computation.differentiable(wrt) if wrt else ()
    if not heads:
        note_others(name, computation, inputs, reached, results)
        return
    rows = tuple([n for n, k in enumerate(wrt) if wants_rows(inputs[k])])
    try:
        backward = computation.backward(wrt, heads, rows)
    except MXNetError as e:
        note_refusal(name, [inputs[k] for k in wrt], heads, results, e)
        return
    values = [*inputs, last]

    def saved(backward: Backward) -> list[Saved]:
        return [
            Saved.of(values[place]) if place >= 0 else Saved.of(results[-1 - place], _number(-1 - place, heads))
            for place in backward.sources
        ]

    again = None
    if backward.additions:
        given = [Saved.later(x) for x in values]
        made = [Saved.later(x, _number(k, heads)) for k, x in enumerate(results)]

        def again(some: tuple[int, ...]) -> Gradient:
            dense = computation.backward(wrt, some)
            read = [given[place]() if place >= 0 else made[-1 - place]() for place in dense.sources]
            return Gradient(dense, read, [inputs[k] for k in dense.writes])

    gradient = Gradient(backward, saved(backward), [inputs[k] for k in backward.writes])
    sources = [inputs[k]._grad_state for k in wrt]
    node = GraphNode(name, sources, heads, results, gradient, again)
    node.masks = _masks(computation, inputs, heads)
    node.reached = computation.reached_from(wrt, heads)
    node.mark(results)
    note_others(name, computation, inputs, wrt, results)


def note_block(
    name: str,
    computation: Computation,
    forward: Forward,
    wrt: tuple[int, ...],
    heads: tuple[int, ...],
    inputs: Sequence[NDArray],
    saved_inputs: Sequence[Saved],
    results: Sequence[NDArray],
    outputs: Sequence[np.ndarray],
    kept: Sequence[Any],
) -> None:
    """Notes that the forward computation of a block gave `outputs`: `results`, then what its gradient needs.

    `saved_inputs` are the values of all its inputs before the call, among them those of the arrays `inputs`; `kept` are
    objects that live as long as the node.
    """

    def saved(backward: Backward) -> list[Saved]:
        return [
            saved_inputs[place]
            if place >= 0
            else Saved.of(results[-1 - place], _number(-1 - place, heads))
            if -1 - place < len(results)
            else Saved.of(outputs[-1 - place])
            for place in backward.sources
        ]

    kept_results = [Saved.of(x, _number(k, heads)) for k, x in enumerate(results)]

    def again(some: tuple[int, ...]) -> Gradient:
        backward = computation.backward(wrt, some)
        read = [saved_inputs[p] if p >= 0 else kept_results[-1 - p] for p in backward.sources]
        return Gradient(backward, read, [inputs[k] for k in backward.writes])

    backward = forward.backward
    gradient = Gradient(backward, saved(backward), [inputs[k] for k in backward.writes])
    sources = [inputs[k]._grad_state for k in wrt]
    node = GraphNode(name, sources, heads, results, gradient, again)
    node.kept, node.masks = kept, _masks(computation, inputs, heads)
    if len(heads) > 1:
        node.late_ops = computation.late_ops
    node.reached = computation.reached_from(wrt, heads)
    node.mark(results)


def _masks(computation: Computation, inputs: Sequence[NDArray], heads: Sequence[int]) -> dict[int, Sequence[Any]]:
    """The sources of the inputs of type bool that each head depends on."""
    flags = {k: x._grad_state for k, x in enumerate(inputs) if x._stand_in.dtype == np.bool_ and tracked(x)}
    return {head: [flags[k] for k in flags if k in computation.reached(head)] for head in heads} if flags else {}


def _number(result: int, heads: Sequence[int]) -> Any:
    return result if result in heads else None


def backward(
    heads: Sequence[NDArray],
    head_grads: Sequence[NDArray | None],
    retain_graph: bool,
    train_mode: bool,
    create_graph: bool = False,
    variables: Sequence[NDArray] | None = None,
) -> list[NDArray]:
    """Computes the gradients of `heads` by all variables that they depend on, and writes them to these.

    With `variables`, returns their gradients instead and writes none.
    """
    pending: list[tuple[int, Node]] = []
    received: dict[Node, dict[int, NDArray | None]] = {}
    leaves: dict[Variable, NDArray | None] = {}
    announces = bool(listeners) and variables is None

    def send(source: Any, g: NDArray | None) -> None:
        """None: a gradient of 0 that nothing is computed from: zeros times an infinite derivative are NaN, and an
        output layer's gradient is not 0."""
        if source.__class__ is Edge:
            node, index = source
            at = received.get(node)
            if at is None:
                at = received[node] = {}
                heapq.heappush(pending, (-node.number, node))  # numbers are unique: nodes are never compared
            at[index] = _sum(at.get(index), g, create_graph)
        elif source is not None and source.request != "null":
            if announces and source not in leaves and g is not None and g.stype == "default":
                announce(source.grad, source.request, g._array)
            leaves[source] = _sum(leaves.get(source), g, create_graph)

    if not heads:
        raise MXNetError("there is nothing to differentiate: the list of heads is empty")
    # A variable that asks for no gradient is an error only where there is nothing else, as in MXNet.
    states = [getattr(h, "_grad_state", None) for h in heads]
    alone = variables is None and all(s.__class__ is Variable and s.request == "null" for s in states)
    for head, g in zip(heads, head_grads, strict=True):
        for what, x in (("head", head), ("head gradient", g)):
            if not isinstance(x, NDArray) and x is not None:
                raise TypeError(f"a {what} is an NDArray, got {type(x).__name__}: make one with mx.nd.array")
        state = head._grad_state
        if state is None or (alone and state.__class__ is Variable):
            raise MXNetError(
                "Cannot differentiate node because it is not in a computational graph. You need to set is_recording to "
                "true or use autograd.record() to save computational graphs for backward. If you want to differentiate "
                "the same graph twice, you need to pass retain_graph=True to backward. If it was recorded: nothing "
                "that it depends on has a gradient (x.attach_grad(), or a parameter's grad_req other than 'null')."
            )
        if state.__class__ is Edge and state.node.released:
            raise freed(state.node)
        if g is None:
            g = NDArray._wrap(np.ones(head.shape, head._stand_in.dtype))
        elif g.shape != head.shape or g._stand_in.dtype != head._stand_in.dtype:
            g = _converted(g, head)
        send(state, g)
    wanted: dict[tuple[int, int], None] = {}
    found: dict[Any, NDArray | None] = {}
    for k, x in enumerate(variables or ()):
        state = x._grad_state
        if not tracked(x):
            raise MXNetError(
                f"Cannot differentiate with respect to the {k + 1}-th variable because it does not require gradient."
            )
        if state.__class__ is Edge:
            wanted[state.node.number, state.number] = None
    visited: list[Node] = []
    with Scope(create_graph, train_mode):
        while pending:
            _, node = heapq.heappop(pending)
            visited.append(node)
            arrived = received.pop(node)
            for index, g in arrived.items():
                if (node.number, index) in wanted:
                    found[node.number, index] = g
            if node.released:
                raise freed(node)
            given = {k: g for k, g in arrived.items() if g is not None}
            if len(given) < len(arrived):
                for source in node.origins(arrived.keys() - given.keys()):
                    send(source, None)
                if not given:
                    continue
            cotangents = [given[k] if k in given else _zeros(Edge(node, k)) for k in node.heads]
            if node.__class__ is GraphNode:
                node.announces = announces  # type: ignore[attr-defined]
            gradients = node.pull(cotangents, create_graph, given)
            if len(given) < len(cotangents) and not create_graph and any(map(_has_nan, gradients)):
                gradients = node.pull_from(given) or gradients
            if modes.anomalies:
                node.inspect(cotangents, gradients)
            reached = None if node.reached is None else frozenset().union(*map(node.reached.__getitem__, given))
            sent = {
                k: (source, g)
                for k, (source, g) in enumerate(zip(node.sources, gradients, strict=True))
                if g is not None and (reached is None or k in reached)
            }
            if create_graph:
                _note_point(node, given, sent)
            for source, g in sent.values():
                send(source, g)
            for source in _joined(node.masks.get(k, ()) for k in given) if node.masks else ():
                if source.__class__ is Edge or source.request != "null":
                    send(source, _zeros(source))
            for source in _joined(node.points.get(k, ()) for k in given) if node.points else ():
                send(source, None)
    if not retain_graph:
        for node in visited:
            node.release()
    if variables is None:
        with Uninterrupted():
            for variable, g in leaves.items():
                write(variable, _zeros(variable) if g is None else g)
        return []
    results = []
    for k, x in enumerate(variables):
        state = x._grad_state
        key: Any = (state.node.number, state.number) if state.__class__ is Edge else state
        among: Mapping[Any, NDArray | None] = found if state.__class__ is Edge else leaves
        if key not in among:
            raise MXNetError(
                f"Cannot differentiate with respect to the {k + 1}-th variable because it is unreachable from the "
                "outputs."
            )
        g = among[key]
        if g is None:
            g = _zeros(state)
        results.append(
            g if create_graph or g.stype != "default" else _array(_own_memory(g._array, ()), x._numpy, x._device)
        )
    return results


def _zeros(source: Edge | Variable) -> NDArray:
    """Zeros of the type that a source's gradient has."""
    if isinstance(source, Edge):
        shape, dtype, _ = source.node.results[source.number]
        return NDArray._wrap(np.zeros(shape, dtype))
    return NDArray._wrap(np.zeros(source.grad.shape, source.grad._stand_in.dtype))


def _note_point(node: Node, given: Mapping[int, NDArray], sent: dict[int, tuple[Any, NDArray]]) -> None:
    """Notes what the gradients of a node depend on, be it with a derivative of 0: the point that they were computed at,
    which are the sources of the heads that lead to them, and the cotangents of these heads.

    Whether a constant slope is found to be one, or computed from the point, depends on how much is simplified: in a
    block more than operator by operator. So the gradients of a block, which are one node, depend on what those of its
    operators would depend on, each for itself."""
    points = {head: _joined([[g._grad_state], node.origins([head], sent)]) for head, g in given.items()}
    made = {id(g): g for g in given.values()}
    for k, (source, g) in sent.items():
        point = _joined(points[head] for head in given if node.reached is None or k in node.reached[head])
        state = g._grad_state
        if state is None:
            g = _depending(g, point)
        else:
            if id(g) in made or state.__class__ is not Edge or state.node.number < node.number:
                g = g.copy()  # what a function's `backward` only passes on depends on nothing more elsewhere
            made[id(g)] = g
            known, number = g._grad_state.node.points, g._grad_state.number
            known[number] = _joined([known.get(number, ()), point])
        sent[k] = source, g


def _depending(constant: NDArray, point: Sequence[Any]) -> NDArray:
    """The constant as a gradient that depends on these sources by a derivative of 0."""
    result = _array(constant._array, constant._numpy, constant._device)
    _PointNode("a gradient", point, [result]).mark([result])
    return result


def _joined(sources: Iterable[Iterable[Any]]) -> list[Any]:
    return [source for source in dict.fromkeys(itertools.chain.from_iterable(sources)) if source is not None]


def _converted(g: NDArray, head: NDArray) -> NDArray:
    """A head gradient in the shape and type of its head: MXNet takes any shape of equal size."""
    if g.shape != head.shape:
        if g.size != head.size:
            raise MXNetError(f"the head gradient has shape {g.shape}, the head {head.shape}")
        g = g.reshape(head.shape) if g.size else NDArray._wrap(np.zeros(head.shape, g._stand_in.dtype))
    if g._stand_in.dtype == head._stand_in.dtype:
        return g
    converted: NDArray = g.astype(head.dtype)
    if head._stand_in.dtype.kind in "iu" and not np.array_equal(g._array, converted._array):
        raise MXNetError(
            f"the head gradient is not made of {head._stand_in.dtype} numbers, which is the type of the head: cast the "
            f"head to a float type first{quote(user_loc())}"
        )
    return converted


def _has_nan(gradient: NDArray | None) -> bool:
    if gradient is None or gradient.stype != "default":
        return False
    x = gradient._array
    return bool(x.size and x.dtype.kind not in "biu" and np.isnan(x.min()))


def freed(node: Node) -> MXNetError:
    return MXNetError(
        f"the graph of {node.name} has been used by an earlier backward, which freed it. If you want to differentiate "
        f"the same graph twice, you need to pass retain_graph=True to backward.{quote(node.loc)}"
    )


def _sum(a: NDArray | None, b: NDArray | None, create_graph: bool) -> NDArray | None:
    if a is None or b is None:
        return b if a is None else a
    if create_graph:
        total: NDArray = add(a, b)
        return total
    if isinstance(a, RowSparseNDArray) and isinstance(b, RowSparseNDArray):
        return add_rows(a, b)
    with quiet():
        return NDArray._wrap(np.asarray(a._array + b._array))


def write(variable: Variable, g: NDArray) -> None:
    """Writes a gradient to a variable's array, or adds it."""
    target = variable.grad
    if isinstance(target, BaseSparseNDArray):
        if g.stype != target.stype:
            g = cast_dense(g._array, target.stype, target._device)
        new: Any = g if g.dtype == target.dtype else g.astype(target.dtype)
        target._become(new + target if variable.request == "add" else new)
    else:
        store(target, variable.request, g._array)
    variable.fresh = True


def _record_operator(
    op: Any, attrs: dict[str, Any], inputs: Sequence[NDArray], results: Any, key: Any, known: dict[Any, Computation]
) -> None:
    """Notes that an operator made `results` in the current mode. `known`: computations for these attributes."""
    outputs = list(results) if isinstance(results, (list, tuple)) else [results]
    if op.imperative_only:
        of_these = of_values(op, attrs, [x._array for x in inputs])
        record(of_these, differentiated(op, inputs), outputs, op.name)
        return
    if op.number and inputs[0]._stand_in.dtype.kind == "f":
        computation, number = of_number(op, attrs, inputs[0]._stand_in, modes.training)
        record(computation, inputs, outputs, op.name, number, (op, attrs))
        return
    operands = [x._stand_in for x in inputs]
    types = (modes.training, *[(x.shape, x.dtype) for x in operands])
    found = known.get(types)
    if found is None:
        if len(known) >= MAX_TYPES:
            known.clear()
        found = known[types] = of_operator(op, attrs, operands, modes.training)
    record(found, inputs, outputs, op.name, key)


def refuse_write(x: NDArray) -> None:
    """MXNetError if `x` was computed from a variable, or is one: its new elements would have no gradient."""
    if modes.recording and x._grad_state is not None and tracked(x):
        raise MXNetError(
            "Assigning to NDArrays that are already in a computational graph will cause undefined behavior when "
            "evaluating gradients. Please call backward first to clear the graph or do this out side of a record "
            f"section.{quote(user_loc())}"
        )


late.record_operator.provide(_record_operator)
late.record_rule.provide(record_rule)
late.refuse_write.provide(refuse_write)
late.backward.provide(backward)
