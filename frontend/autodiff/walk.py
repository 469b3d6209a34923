"""The walk back from heads to the variables that they depend on: `backward`."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from operator import add
from typing import Any

import numpy as np

from gluonjit.autodiff.graph_nodes import GraphNode
from gluonjit.autodiff.tape import Edge, Node, PointNode, array_of, freed, joined, own_memory
from gluonjit.base import MXNetError
from gluonjit.ir.quiet import quiet
from gluonjit.language import late
from gluonjit.language.interrupts import Uninterrupted
from gluonjit.language.modes import Scope, modes
from gluonjit.language.source import quote, user_loc
from gluonjit.ndarray import NDArray, deferred
from gluonjit.ndarray.gradient_listeners import announce, listeners
from gluonjit.ndarray.sparse_arrays import BaseSparseNDArray, RowSparseNDArray, add_rows, cast_dense
from gluonjit.ndarray.variable import Variable, store, tracked


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

    * The gradient of each head is sent to its source: the node that made it, or a variable.
    * Nodes are visited from the latest to the earliest, an order in which each follows those that read its results.
      A node turns the gradients that were sent to its results into those of its sources, and sends them on.
    * What has arrived at variables is written, or returned.
    """
    step = deferred.now.step
    if step is not None and variables is None and not create_graph:
        if step.takes_backward(heads, head_grads, retain_graph, train_mode):
            return []
    walk = _Walk(create_graph, bool(listeners) and variables is None, _numbers_of(variables or ()))
    _send_heads(walk, heads, head_grads, alone=variables is None)
    _check_variables(variables or ())
    with Scope(create_graph, train_mode):
        walk.run()
    if not retain_graph:
        for node in walk.visited:
            node.release()
    if variables is not None:
        return [walk.gradient_of(x, k) for k, x in enumerate(variables)]
    with Uninterrupted():
        for variable, g in walk.leaves.items():
            write(variable, _zeros(variable) if g is None else g)
    if deferred.observed.by is not None:
        deferred.observed.by.note_backward(heads, head_grads, retain_graph or create_graph, train_mode, walk.leaves)
    return []


class _Walk:
    """One walk. `announces`: whether listeners learn of gradients of variables before they are written; `wanted`: the
    results, as (number of the node, number of the result), whose gradients `gradient_of` is asked for."""

    def __init__(self, create_graph: bool, announces: bool, wanted: Collection[tuple[int, int]]) -> None:
        self.visited: list[Node] = []
        self.leaves: dict[Variable, NDArray | None] = {}
        """What has arrived at variables."""
        self._create_graph, self._announces, self._wanted = create_graph, announces, wanted
        self._found: dict[tuple[int, int], NDArray | None] = {}
        self._pending: list[int] = []
        """The negated numbers of the nodes to which something was sent: a heap."""
        self._received: dict[int, tuple[Node, dict[int, NDArray | None]]] = {}
        """Each of these nodes by its number, and the gradients that were sent to its results."""
        self._some_absent = False
        """Whether any gradient that was sent is None."""
        self._sums: set[int] = set()
        """Those of the gradients, by `id`, that are sums, so that nothing else refers to their elements."""

    def send(self, source: Any, g: NDArray | None) -> None:
        """Adds a gradient to what a source has received. None: a gradient of 0 that nothing is computed from: zeros
        times an infinite derivative are NaN, and an output layer's gradient is not 0."""
        if g is None:
            self._some_absent = True
        if source.__class__ is Edge:
            node, index = source
            number = node.number
            known = self._received.get(number)
            if known is None:
                self._received[number] = node, {index: g}
                heapq.heappush(self._pending, -number)
            else:
                arrived = known[1]
                arrived[index] = self._sum(arrived[index], g) if index in arrived else g
        elif source is not None and source.request != "null":
            leaves = self.leaves
            if self._announces and source not in leaves and g is not None and g.stype == "default":
                announce(source.grad, source.request, g._array)
            leaves[source] = self._sum(leaves.get(source), g)

    def _sum(self, a: NDArray | None, b: NDArray | None) -> NDArray | None:
        """The sum of what has arrived so far, and of what arrives."""
        if a is None or b is None:
            return b if a is None else a
        if self._create_graph:
            total: NDArray = add(a, b)
            return total
        if isinstance(a, RowSparseNDArray) and isinstance(b, RowSparseNDArray):
            return add_rows(a, b)
        own, other = id(a) in self._sums, b._array
        with quiet():
            if own and a._array.dtype is other.dtype:
                np.add(a._array, other, out=a._array)
                return a
            total = NDArray._wrap(np.asarray(a._array + other))
        self._sums.discard(id(a))
        self._sums.add(id(total))
        return total

    def run(self) -> None:
        """Visits all nodes that something was sent to."""
        while self._pending:
            node, arrived = self._received.pop(-heapq.heappop(self._pending))
            self.visited.append(node)
            if self._wanted:
                pairs = (((node.number, index), g) for index, g in arrived.items())
                self._found.update((key, g) for key, g in pairs if key in self._wanted)
            if node.released:
                raise freed(node)
            if self._sums:
                self._sums.difference_update(map(id, arrived.values()))
            given: dict[int, NDArray] = arrived  # type: ignore[assignment]
            if self._some_absent:
                given = {k: g for k, g in arrived.items() if g is not None}
                for source in node.origins(arrived.keys() - given.keys()) if len(given) < len(arrived) else ():
                    self.send(source, None)
            if given:
                self._visit(node, given)

    def _visit(self, node: Node, given: Mapping[int, NDArray]) -> None:
        """Sends the gradients of a node's sources, given those of some of its heads."""
        gradients = self._pulled(node, given)
        if node.reached is None and not (self._create_graph or node.masks or node.points):
            for source, g in zip(node.sources, gradients, strict=True):
                if g is not None:
                    self.send(source, g)
            return
        reached = None if node.reached is None else frozenset().union(*map(node.reached.__getitem__, given))
        sent = {
            k: (source, g)
            for k, (source, g) in enumerate(zip(node.sources, gradients, strict=True))
            if g is not None and (reached is None or k in reached)
        }
        if self._create_graph:
            _note_point(node, given, sent)
        for source, g in sent.values():
            self.send(source, g)
        for source in joined(node.masks.get(k, ()) for k in given) if node.masks else ():
            if source.__class__ is Edge or source.request != "null":
                self.send(source, _zeros(source))
        for source in joined(node.points.get(k, ()) for k in given) if node.points else ():
            self.send(source, None)

    def _pulled(self, node: Node, given: Mapping[int, NDArray]) -> Sequence[NDArray | None]:
        """The gradients of a node's sources."""
        cotangents = [given[k] if k in given else _zeros(Edge(node, k)) for k in node.heads]
        if node.__class__ is GraphNode:
            node.announces = self._announces  # type: ignore[attr-defined]
        gradients = node.pull(cotangents, self._create_graph, given)
        if len(given) < len(cotangents) and not self._create_graph and any(map(_has_nan, gradients)):
            gradients = node.pull_from(given) or gradients
        if modes.anomalies:
            node.inspect(cotangents, gradients)
        return gradients

    def gradient_of(self, x: NDArray, position: int) -> NDArray:
        """What has arrived at an array, the one at this position among those that were asked for."""
        state = x._grad_state
        key: Any = (state.node.number, state.number) if state.__class__ is Edge else state
        among: Mapping[Any, NDArray | None] = self._found if state.__class__ is Edge else self.leaves
        if key not in among:
            raise MXNetError(
                f"Cannot differentiate with respect to the {position + 1}-th variable because it is unreachable from "
                "the outputs."
            )
        g = among[key]
        if g is None:
            g = _zeros(state)
        if self._create_graph or g.stype != "default":
            return g
        return array_of(own_memory(g._array, ()), x._numpy, x._device)


def _send_heads(walk: _Walk, heads: Sequence[NDArray], head_grads: Sequence[NDArray | None], alone: bool) -> None:
    """Checks the heads, and sends their gradients to their sources: ones, unless others are given. `alone`: a variable
    that asks for no gradient is an error if there is no other head, as in MXNet."""
    if not heads:
        raise MXNetError("there is nothing to differentiate: the list of heads is empty")
    states = [getattr(h, "_grad_state", None) for h in heads]
    alone = alone and all(s.__class__ is Variable and s.request == "null" for s in states)
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
        walk.send(state, g)


def _check_variables(variables: Sequence[NDArray]) -> None:
    for k, x in enumerate(variables):
        if not tracked(x):
            raise MXNetError(
                f"Cannot differentiate with respect to the {k + 1}-th variable because it does not require gradient."
            )


def _numbers_of(variables: Sequence[NDArray]) -> frozenset[tuple[int, int]]:
    """The results of nodes that are among the variables, as (number of the node, number of the result)."""
    states = [x._grad_state for x in variables]
    return frozenset((state.node.number, state.number) for state in states if state.__class__ is Edge)


def _zeros(source: Edge | Variable) -> NDArray:
    """Zeros of the type that a source's gradient has."""
    if isinstance(source, Edge):
        shape, dtype, _ = source.node.results[source.number]
        return NDArray._wrap(np.zeros(shape, dtype))
    return NDArray._wrap(np.zeros(source.grad.shape, source.grad._stand_in.dtype))


def _note_point(node: Node, given: Mapping[int, NDArray], sent: dict[int, tuple[Any, NDArray]]) -> None:
    """Notes what the gradients of a node depend on, even with a derivative of 0: the point that they were computed at,
    which are the sources of the heads that lead to them, and the cotangents of these heads.

    Whether a constant slope is found to be one, or computed from the point, depends on how much is simplified: in a
    block more than operator by operator. So the gradients of a block, which are one node, depend on what those of its
    operators would depend on, each for itself."""
    points = {head: joined([[g._grad_state], node.origins([head], sent)]) for head, g in given.items()}
    made = {id(g): g for g in given.values()}
    for k, (source, g) in sent.items():
        point = joined(points[head] for head in given if node.reached is None or k in node.reached[head])
        state = g._grad_state
        if state is None:
            g = _depending(g, point)
        else:
            if id(g) in made or state.__class__ is not Edge or state.node.number < node.number:
                g = g.copy()  # what a function's `backward` only passes on depends on nothing more elsewhere
            made[id(g)] = g
            maker, number = g._grad_state.node, g._grad_state.number
            maker.points = {**maker.points, number: joined([maker.points.get(number, ()), point])}
        sent[k] = source, g


def _depending(constant: NDArray, point: Sequence[Any]) -> NDArray:
    """The constant as a gradient that depends on these sources by a derivative of 0."""
    result = array_of(constant._array, constant._numpy, constant._device)
    PointNode("a gradient", point, [result]).mark([result])
    return result


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


late.backward.provide(backward)
