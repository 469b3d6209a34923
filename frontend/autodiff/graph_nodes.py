"""Nodes of the tape whose gradient is a graph, and how computations are noted there: operators and calls of blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gluonjit.autodiff import anomalies
from gluonjit.autodiff.backward import Backward
from gluonjit.autodiff.computation import Computation, Forward
from gluonjit.autodiff.operator_computations import differentiated, number_of, of_number, of_operator, of_values
from gluonjit.autodiff.tape import (
    ConstantNode,
    Described,
    Edge,
    Node,
    RefusingNode,
    RuleNode,
    Saved,
    array_of,
    described,
    note_program,
    own_memory,
)
from gluonjit.base import MXNetError
from gluonjit.ir.types import BOOL
from gluonjit.language import late
from gluonjit.language.interrupts import Uninterrupted
from gluonjit.language.modes import modes
from gluonjit.language.source import user_loc
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.custom_calls import kept_operators
from gluonjit.ndarray.gradient_listeners import announce
from gluonjit.ndarray.variable import Variable, tracked
from gluonjit.runtime.storage import Storage
from gluonjit.runtime.watching import Progress

MAX_TYPES = 64
"""The types of operands for which the computations of an operator with certain attributes are found at once."""


class Gradient(NamedTuple):
    """A gradient, and what it runs on: the values that it reads, in its order, and the arrays that its updates are
    written to."""

    backward: Backward
    saved: Sequence[Saved]
    written: Sequence[NDArray]


class GraphNode(Node):
    """A computation whose gradient is a graph."""

    __slots__ = ("again", "announces", "backward", "forward", "kept", "late_ops", "saved", "written")
    _own_callers = 4  # Node.__init__, the one below, and two of those that note a call

    def __init__(
        self,
        name: str,
        sources: tuple[Any, ...],
        heads: tuple[int, ...],
        results: Sequence[NDArray],
        gradient: Gradient,
        again: Callable[[tuple[int, ...]], Gradient] | None = None,
        types: Sequence[Described] | None = None,
    ) -> None:
        super().__init__(name, sources, heads, results, types)
        self.backward: Backward | None
        self.saved: Sequence[Saved]
        self.backward, self.saved, self.written = gradient
        self.kept: Sequence[Any] = ()
        self.forward: Forward | None = None
        """What computed the results, of a block."""
        self.announces = False
        """Whether the gradients of variables, which `pull` computes, will be stored."""
        self.late_ops: Callable[[Iterable[int]], int] | None = None
        """`Computation.late_ops`, of a block that has several results."""
        self.again = again
        """Gives the gradient from some of the heads that can be recorded, where `saved` holds intermediate values."""
        for value in self.saved:
            if value.origin.__class__ is Variable:
                value.origin.note_reader(self)

    def keep_copies(self, storage: Storage, copies: dict[Any, np.ndarray]) -> None:
        """Keeps copies of those saved values that are in `storage`. `copies` are those that other nodes have made."""
        saved = []
        for value in self.saved:
            if value.storage is storage and not value.changed:
                place = value.array.__array_interface__["data"][0], value.array.shape, value.array.strides
                if place not in copies:
                    copies[place] = value.array.copy()
                value = value._replace(array=copies[place], storage=None)
            saved.append(value)
        self.saved = saved

    def release(self) -> None:
        super().release()
        self.backward, self.saved, self.written = None, (), ()
        self.again, self.late_ops, self.forward, self.kept = None, None, None, ()

    def pull(
        self, cotangents: Sequence[NDArray], create_graph: bool, given: Collection[int]
    ) -> Sequence[NDArray | None]:
        heads = self.heads
        if self.again is not None and (create_graph or self._changes_more(given)):
            cotangents = [g for k, g in zip(heads, cotangents, strict=True) if k in given]
            heads = tuple([k for k in heads if k in given])
            return self._pulled(self.again(heads), cotangents, heads, given, create_graph, modes.training)
        assert self.backward is not None, "released"
        gradient = self.backward, self.saved, self.written
        return self._pulled(gradient, cotangents, heads, given, create_graph, modes.training)

    def _changes_more(self, given: Collection[int]) -> bool:
        """Whether the gradient of all results would change states that are on the way of none that has a cotangent."""
        if self.late_ops is None or not modes.training or not self.written:
            return False
        return bool(self.late_ops(self.heads) & ~self.late_ops(given))

    def pull_from(self, given: Mapping[int, NDArray]) -> Sequence[NDArray | None] | None:
        if self.again is None:
            return None
        heads = tuple(sorted(given))
        return self._pulled(self.again(heads), [given[k] for k in heads], heads, given, False, False)

    def _pulled(
        self,
        gradient: Gradient | tuple[Backward, Sequence[Saved], Sequence[NDArray]],
        cotangents: Sequence[NDArray],
        heads: Sequence[int],
        exist: Collection[int],
        create_graph: bool,
        updates_states: bool,
    ) -> Sequence[NDArray | None]:
        """`exist`: of which heads there are cotangents; the others are zeros in their place."""
        backward, saved, written = gradient
        for what, value in zip(backward.values, saved):
            storage = value.storage
            if storage is not None and storage.version != value.version and not what.changes:
                raise self.was_written(str(what))
        incoming = [cotangents[c.head] for c in backward.cotangents]
        if backward.presences:
            there = [heads[p.head] in exist for p in backward.presences]
            incoming += [NDArray._wrap(np.array(is_there, np.float32)) for is_there in there]
        given = [value.array for value in saved]
        given += [g._array for g in incoming]
        outputs, updates = self._computed(backward, given)
        if modes.anomalies and self.again is not None:  # a block: which operator in it?
            graph = backward.computation.fitted(given).graph
            anomalies.check_gradient(self.name, self.loc, [g._array for g in incoming], outputs, graph, given)
        if updates_states and written:
            with Uninterrupted():
                for target, new in zip(written, updates, strict=True):
                    target._store(new)
        if create_graph:
            return self._noted_in_turn(Gradient(*gradient), incoming, given, outputs)
        if backward.is_dense:
            return [NDArray._wrap(x) for x in outputs]
        targets = [source.grad if r.additions else None for r, source in zip(backward.results, self.sources)]
        return backward.visited(backward.gradients(outputs, targets), outputs)

    def _computed(self, backward: Backward, given: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The results of the gradient's graph."""
        announced = self._announce if self.announces and not backward.has_rows else None
        if not backward.calls_python:
            return backward.computation.run(given, announced)
        with kept_operators():
            return backward.computation.run(given, announced)

    def _noted_in_turn(
        self,
        gradient: Gradient,
        incoming: Sequence[NDArray],
        given: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
    ) -> Sequence[NDArray | None]:
        """The gradients, recorded as computed from what the gradient reads."""
        inputs = []
        for value in gradient.saved:
            proxy = array_of(value.array, value.kind, self.device)
            own = value.origin.__class__ is int
            proxy._grad_state = Edge(self, value.origin) if own else value.origin
            inputs.append(proxy)
        kind = any(numpy for _, _, numpy in self.results)
        arrays = [value.array for value in gradient.saved]
        results = [array_of(own_memory(x, arrays), kind, self.device) for x in outputs]
        computation = gradient.backward.computation.fitted(given)
        record(computation, [*inputs, *incoming], results, f"the gradient of {self.name}")
        return gradient.backward.visited(results[: len(gradient.backward.results)], outputs)

    def _announce(self, gradients: Sequence[np.ndarray], progress: Progress) -> None:
        for source, gradient, ready in zip(self.sources, gradients, progress.ready):
            if source.__class__ is Variable:
                announce(source.grad, source.request, gradient, progress, ready)


def record_rule(
    name: str, inputs: Sequence[NDArray], results: Sequence[NDArray], gradient: Any, linear: bool = False
) -> None:
    """Notes that an operator on sparse arrays made `results`, one array; see `RuleNode`."""
    RuleNode(name, inputs, results, gradient, linear).mark(results)


def note_refusal(
    name: str, inputs: Sequence[NDArray], heads: tuple[int, ...], results: Sequence[NDArray], error: MXNetError
) -> None:
    """Notes that the gradient of `results` by `inputs` cannot be computed, for the reason that `error` says."""
    RefusingNode(name, inputs, heads, results, error).mark(results)


def note_others(
    name: str, computation: Computation, inputs: Sequence[NDArray], numbers: Sequence[int], results: Sequence[NDArray]
) -> None:
    """Notes that the results which gradients do not flow through have the gradient 0: of `topk`, the positions.

    `numbers` are those of the inputs that gradients flow to."""
    for k, x in enumerate(results):
        if x._grad_state is None:
            origins = [inputs[n] for n in numbers if n in computation.reached(k)]
            if origins:
                ConstantNode(name, origins, [x]).mark([x])


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
    states = tuple([x._grad_state for x in inputs])
    flows, rows, bit = 0, 0, 1  # sets of inputs, as masks
    for state in states:
        if state.__class__ is Edge:
            if not state.node.released:
                flows |= bit
        elif state is not None and state.request != "null":
            flows |= bit
            if state.stype == "row_sparse":
                rows |= bit
        bit += bit
    if not flows:
        return
    key = flows, rows, results[0]._numpy
    way = computation.recordings.get(key)
    if way is None:
        way = computation.recordings[key] = _Recording.of(computation, _members(flows), _members(rows), results)
    if modes.anomalies:
        anomalies.check_operator(name, user_loc(), [x._array for x in inputs], [x._array for x in results])
    if way.refusal is not None:
        note_refusal(name, [inputs[k] for k in way.wrt], way.heads, results, MXNetError(way.refusal))
    elif way.backward is not None:
        again = _dense_gradient(computation, way, inputs, results, last) if way.backward.has_rows else None
        values = (*inputs, last)
        saved = [Saved.of(values[k]) if k >= 0 else Saved.of(results[-1 - k], origin) for k, origin in way.places]
        gradient = Gradient(way.backward, saved, [inputs[k] for k in way.backward.states])
        sources = states if way.takes_all else tuple([states[k] for k in way.wrt])
        node = GraphNode(name, sources, way.heads, results, gradient, again, way.types)
        if way.masks:
            node.masks = {h: [states[k] for k in flags] for h, flags in way.masks.items()}
        node.reached = way.reached
        node.graph, node.states = operator or computation.graph, states
        node.mark(results)
        if not way.others:
            return
    if way.refusal is None:
        for k, numbers in way.others:
            if results[k]._grad_state is None:
                ConstantNode(name, [inputs[n] for n in numbers], [results[k]]).mark([results[k]])
    note_program(operator or computation.graph, states, results)


def _members(mask: int) -> list[int]:
    """The numbers in a set that is a mask."""
    return [k for k in range(mask.bit_length()) if mask >> k & 1]


class _Recording(NamedTuple):
    """How calls of a computation are recorded whose gradients flow to the same inputs."""

    wrt: tuple[int, ...]
    """The numbers of these inputs, those of flags left out, and of the results that depend on them."""
    heads: tuple[int, ...]
    backward: Backward | None
    """None: no result depends on them."""
    refusal: str | None
    """Why there is no gradient, if there is none."""
    places: tuple[tuple[int, Any], ...]
    """For each value that the gradient reads, as in `Value.place`; and, of a result, its number as an origin."""
    masks: Mapping[int, Sequence[int]]
    """For each head, the flags that it depends on; empty if there are none."""
    reached: Mapping[int, frozenset[int]] | None
    """See `Node.reached`."""
    others: tuple[tuple[int, tuple[int, ...]], ...]
    """The results that depend on the inputs only by a gradient of 0, and on which of them."""
    takes_all: bool
    """Whether `wrt` is all inputs."""
    types: Sequence[Described]
    """The results."""

    @staticmethod
    def of(
        computation: Computation, reached: Sequence[int], rows: Sequence[int], results: Sequence[NDArray]
    ) -> _Recording:
        """`reached`: the inputs that gradients flow to; `rows`: those whose gradients are to be rows."""
        flags = {k for k in reached if computation.graph.inputs[k].dtype is BOOL}
        wrt = tuple([k for k in reached if k not in flags])
        heads = computation.differentiable(wrt) if wrt else ()
        backward, refusal, sources = None, None, None
        if heads:
            try:
                backward = computation.backward(wrt, heads, tuple([n for n, k in enumerate(wrt) if k in rows]))
            except MXNetError as e:
                refusal = str(e)
            sources = computation.reached_from(wrt, heads)
        masks = {h: sorted(flags & computation.reached(h)) for h in heads} if flags else {}
        places = [v.place for v in backward.values] if backward is not None else []
        inputs = wrt if heads else reached
        others = [(k, tuple([n for n in inputs if n in computation.reached(k)])) for k in range(len(results))]
        return _Recording(
            wrt,
            heads,
            backward,
            refusal,
            tuple([(k, None if k >= 0 else own_origin(-1 - k, heads)) for k in places]),
            masks,
            sources,
            tuple([(k, numbers) for k, numbers in others if numbers and k not in heads]),
            wrt == tuple(range(len(computation.graph.inputs))),
            [*map(described, results)],
        )


def _dense_gradient(
    computation: Computation, way: _Recording, inputs: Sequence[NDArray], results: Sequence[NDArray], last: Any
) -> Callable[[tuple[int, ...]], Gradient]:
    """The gradient as arrays, of a call some of whose gradients are rows: see `GraphNode.again`."""
    given = [Saved.later(x) for x in (*inputs, last)]
    made = [Saved.later(x, own_origin(k, way.heads)) for k, x in enumerate(results)]

    def again(some: tuple[int, ...]) -> Gradient:
        dense = computation.backward(way.wrt, some)
        read = [given[v.place]() if v.place >= 0 else made[-1 - v.place]() for v in dense.values]
        return Gradient(dense, read, [inputs[k] for k in dense.states])

    return again


class BlockCall(NamedTuple):
    """A forward computation that has run."""

    name: str
    computation: Computation
    forward: Forward
    wrt: tuple[int, ...]
    """The numbers of the inputs that gradients flow to, and of the outputs that depend on them."""
    heads: tuple[int, ...]
    inputs: Sequence[NDArray]
    saved: Sequence[Saved]
    """The values of all inputs before the call, those that are no arrays of the caller among them."""
    results: Sequence[NDArray]
    outputs: Sequence[np.ndarray]
    """`results`, then what the gradient needs."""
    kept: Sequence[Any]
    """Objects that live as long as the gradient can be computed."""


def note_block(call: BlockCall) -> None:
    """Notes the call of a block."""
    computation, wrt, heads, inputs, saved = call.computation, call.wrt, call.heads, call.inputs, call.saved
    own = [Saved.of(x, own_origin(k, heads)) for k, x in enumerate(call.results)]
    rest = [Saved.of(x) for x in call.outputs[len(own) :]]

    def again(some: tuple[int, ...]) -> Gradient:  # which must not refer to the results, as these do to the node
        backward = computation.backward(wrt, some)
        read = [saved[v.place] if v.place >= 0 else own[-1 - v.place] for v in backward.values]
        return Gradient(backward, read, [inputs[k] for k in backward.states])

    backward, made = call.forward.backward, [*own, *rest]
    read = [saved[v.place] if v.place >= 0 else made[-1 - v.place] for v in backward.values]
    gradient = Gradient(backward, read, [inputs[k] for k in backward.states])
    sources = tuple([inputs[k]._grad_state for k in wrt])
    node = GraphNode(call.name, sources, heads, call.results, gradient, again)
    node.kept, node.forward = call.kept, call.forward
    if len(heads) > 1:
        node.late_ops = computation.late_ops
    _mark(node, computation, wrt, inputs, call.results)


def _mark(
    node: GraphNode,
    computation: Computation,
    wrt: tuple[int, ...],
    inputs: Sequence[NDArray],
    results: Sequence[NDArray],
) -> None:
    """Notes what the heads of a node depend on, and makes it the origin of its results."""
    flags = {k: x._grad_state for k, x in enumerate(inputs) if x._stand_in.dtype.kind == "b" and tracked(x)}
    if flags:
        node.masks = {h: [flags[k] for k in flags if k in computation.reached(h)] for h in node.heads}
    node.reached = computation.reached_from(wrt, node.heads)
    node.mark(results)


def own_origin(result: int, heads: Sequence[int]) -> Any:
    """The number of a result, as an origin (`Saved`), if gradients flow through it."""
    return result if result in heads else None


def _record_operator(
    op: Any,
    attrs: dict[str, Any],
    inputs: Sequence[NDArray],
    results: Any,
    key: Any,
    known: dict[Any, Computation],
    types: Any = None,
) -> None:
    """Notes that an operator made `results` in the current mode. `known`: computations for these attributes, whatever
    the operator's number, by `types`: the mode, and the shapes and element types of operands."""
    if results.__class__ is not list:
        results = list(results) if isinstance(results, tuple) else [results]
    if op.imperative_only:
        of_these = of_values(op, attrs, [x._array for x in inputs])
        record(of_these, differentiated(op, inputs), results, op.name)
        return
    operands = [x._stand_in for x in inputs]
    if types is None:
        types = (modes.training, *[(x.shape, x.dtype) for x in operands])
    found = known.get(types)
    has_number = op.number and operands[0].dtype.kind == "f"
    if found is None:
        if len(known) >= MAX_TYPES:
            known.clear()
        make: Any = of_number if has_number else of_operator
        found = known[types] = make(op, attrs, operands[0] if has_number else operands, modes.training)
    if has_number:
        record(found, inputs, results, op.name, number_of(op, attrs, operands[0]), (op, attrs))
    else:
        record(found, inputs, results, op.name, key)


late.record_operator.provide(_record_operator)
late.record_rule.provide(record_rule)
