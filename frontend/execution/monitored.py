"""`register_op_hook`: shows every operator's results to a callback, which compiled code does not keep."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gluonjit.ir.graph import Graph, Op, Value, evaluate_op
from gluonjit.ndarray import NDArray
from gluonjit.operators import registry
from gluonjit.operators.registry import Operator
from gluonjit.passes import run_passes
from gluonjit.runtime.eager import Eager, quiet

_PREFIX = "mx."


def run_monitored(graph: Graph, inputs: Sequence[np.ndarray], callback: Callable[..., None], monitor_all: bool) -> None:
    """Runs a graph of level `traced` operator by operator; `callback(name, operator, array)` sees each result.

    Names are MXNet's: `conv0_fwd_output`. With `monitor_all`, inputs are shown first, as `conv0_fwd_data`. Of loops and
    branches, the results are.
    """
    values: dict[Value, np.ndarray] = dict(zip(graph.inputs, inputs, strict=True))
    key = next((values[v] for v in graph.inputs if v.name == "rng_key"), None)
    for op in graph.ops:
        operands = [values[v] for v in op.operands]
        if not op.name.startswith(_PREFIX):
            values.update(zip(op.results, evaluate_op(_expanded(op), operands), strict=True))
            if op.regions:
                states = op.attrs.get("carried", 0)
                for v in (*op.results[states:], *op.results[:states]):
                    callback(v.name, _control_name(op), NDArray._wrap(np.array(values[v])))
            continue
        operator = registry.get(op.name[len(_PREFIX) :])
        results = _compute(operator, op, operands, key, bool(graph.attrs.get("training")))
        values.update(zip(op.results, results, strict=True))
        names = operator.outputs(op.attrs)
        visible = operator.visible(op.attrs) if operator.visible else len(names)
        shown = list(zip(names, results))[:visible]  # an expansion may leave out hidden results
        if monitor_all:
            shown = [*zip(operator.input_names(op.attrs), operands, strict=True), *shown]
        for name, x in shown:
            callback(f"{op.results[0].name}_{name}", operator.name, NDArray._wrap(np.array(x)))


def _expanded(op: Op) -> Op:
    """A loop or branch whose graphs are of primitives; another primitive as it is."""
    if not op.regions:
        return op
    return replace(op, regions=tuple(run_passes(body, "expand") for body in op.regions))


def _control_name(op: Op) -> str:
    """The operator that became this loop or branch."""
    return "_cond" if op.name == "branch" else "_foreach" if len(op.regions) == 1 else "_while_loop"


def _compute(
    operator: Operator, op: Op, operands: Sequence[np.ndarray], key: np.ndarray | None, training: bool
) -> tuple[np.ndarray, ...]:
    """The results of one operator, with the random numbers that it draws in the graph."""
    streams = itertools.count(op.attrs.get(".stream", 0))

    def next_key() -> np.ndarray:
        assert key is not None, "a graph with random operators has a key"
        return key + np.array((0, next(streams)), np.int64)

    with quiet():
        eager = Eager(bool(op.attrs.get(".training", training)), next_key)
        return operator.expand_into(eager, operands, op.attrs)
