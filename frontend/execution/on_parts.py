"""Graphs of sparse arrays, which run operator by operator: compiled code keeps every array dense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gluonjit.autodiff import graph_nodes, walk
from gluonjit.autodiff.computation import Computation, evaluated
from gluonjit.execution.session import Monitor
from gluonjit.ir.types import type_of
from gluonjit.language import rng
from gluonjit.language.modes import Scope, modes
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.imperative import invoke
from gluonjit.ndarray.variable import Variable, tracked
from gluonjit.symbol.graph import Entry, Node, post_order
from gluonjit.symbol.lower import lower, stream_numbers


class Run:
    """One run of a graph. `variables`: the arrays of its variables; `gradients`: for those that get a gradient, the
    request and the array that it goes to."""

    def __init__(
        self,
        heads: Sequence[Entry],
        variables: Mapping[Node, NDArray],
        gradients: Mapping[Node, tuple[str, NDArray]],
        training: bool,
        monitor: Monitor | None = None,
    ) -> None:
        self._wanted: list[Variable] = []
        values: dict[Entry, NDArray] = {}
        for node, array in variables.items():
            values[node, 0] = array.detach()
            if node in gradients:
                request, grad = gradients[node]
                variable = Variable.into(request, grad)
                values[node, 0]._grad_state = variable
                self._wanted.append(variable)
        with Scope(bool(gradients), training):
            for node in post_order(heads):
                if node.op is not None:
                    _apply(node, values, training, monitor)
        self.outputs = [values[head] for head in heads]

    def backward(self, cotangents: Sequence[NDArray | None], training: bool) -> None:
        """Stores the gradients by arguments, given those by the outputs; None stands for that by a loss."""
        pairs = [(x, g) for x, g in zip(self.outputs, cotangents, strict=True) if tracked(x)]
        if pairs:
            walk.backward([x for x, _ in pairs], [g for _, g in pairs], False, training)
        for variable in self._wanted:
            if not variable.fresh and variable.request == "write":
                variable.grad[:] = 0 if variable.stype != "csr" else variable.grad * 0


def _apply(node: Node, values: dict[Entry, NDArray], training: bool, monitor: Monitor | None) -> None:
    assert node.op is not None
    operands = [values[e] for e in node.inputs]
    if monitor is not None and monitor.inputs_too:
        for (source, _), x in zip(node.inputs, operands):
            if source.op is None:
                monitor.callback(source.name.encode(), "", x)
    if node.graphs:
        results = _looped(node, operands, training)
    else:
        attrs = {key: value for key, value in node.attrs.items() if not key.startswith("__")}
        results = invoke(node.op, operands, attrs)
        results = results if isinstance(results, (list, tuple)) else [results]
    for k, x in enumerate(results):
        values[node, k] = x
        if monitor is not None:
            monitor.callback(node.output_names[k].encode(), node.op.name, x)


def _looped(node: Node, operands: Sequence[NDArray], training: bool) -> list[NDArray]:
    """The results of a loop or a branch. Its bodies see all arrays as dense ones."""
    inputs = [(Node(None, f"x{k}", {}), 0) for k in range(len(operands))]
    own = Node(node.op, node.name, node.attrs, inputs, node.parsed, node.loc)
    heads = [(own, k) for k in range(len(node.output_names))]
    types = [(e, type_of(x._stand_in)) for e, x in zip(inputs, operands)]
    computation = Computation(lower(node.name, types, [own], heads, training=training), evaluated)
    streams = stream_numbers([own], training, {})[1]
    key = [rng.reserve(streams)] if streams else []
    outputs, _ = computation.run([*(x._array for x in operands), *key])
    results = [NDArray._wrap(np.array(x, order="C")) for x in outputs]
    if modes.recording:
        graph_nodes.record(computation, operands, results, own.name, *key)
    return results
