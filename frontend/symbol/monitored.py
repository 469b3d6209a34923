"""Runs a graph operator by operator, to pass every result to a hook or monitor; compiled code does not keep them.

MXNet names the results in two ways. In hybridized blocks (`register_op_hook`), results without a name of their own are
`relu0_0`, `split0_1`. Executors (`set_monitor_callback`) name them `relu0_output`, and also show results that only
gradients need, and variables under their own names. In both, names are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gluonjit.ir.graph import Graph, Op, Value, evaluate_op
from gluonjit.language.mxnet_names import named_results, unnamed_inputs
from gluonjit.ndarray import NDArray
from gluonjit.operators import registry
from gluonjit.operators.registry import Operator
from gluonjit.passes import run_passes
from gluonjit.symbol.interpreted import PREFIX, computed, random_key, training_of


def run_monitored(
    graph: Graph, inputs: Sequence[np.ndarray], callback: Callable[..., None], monitor_all: bool, bound: bool = False
) -> None:
    """Runs a graph of level `traced` operator by operator; calls `callback(name, operator, array)` for each result.

    `monitor_all`: also for each input, before the results, as `conv0_fwd_data`. `bound`: names are those of an
    executor. For loops and branches only the results are shown, not those of operators in their bodies.
    """
    values: dict[Value, np.ndarray] = dict(zip(graph.inputs, inputs, strict=True))
    key = random_key(graph, values)
    variables = frozenset(graph.inputs)

    def show(name: str, operator: str, x: np.ndarray) -> None:
        callback(name.encode(), operator.encode(), NDArray._wrap(np.array(x)))

    for op in graph.ops:
        operands = [values[v] for v in op.operands]
        if not op.name.startswith(PREFIX):
            values.update(zip(op.results, evaluate_op(_expanded(op), operands), strict=True))
            if op.regions and op.name != "with_gradient":
                states = op.attrs.get("carried", 0)
                for v in (*op.results[states:], *op.results[:states]):
                    node, _, number = v.name.rpartition("_output")
                    show(v.name if bound else f"{node}_{number or 0}", _control_name(op), values[v])
            continue
        operator = registry.get(op.name[len(PREFIX) :])
        results = computed(operator, op, operands, key, training_of(graph))
        values.update(zip(op.results, results, strict=True))
        node = op.results[0].name
        if monitor_all:
            for v, name in zip(op.operands, _input_names(operator, op.attrs), strict=True):
                if bound and v in variables:
                    show(v.name, operator.name, values[v])
                show(f"{node}_{name}", operator.name, values[v])
        for name, x in zip(_result_names(operator, op.attrs, bound), results):
            show(f"{node}_{name}", operator.name, x)


def _input_names(operator: Operator, attrs: Mapping[str, Any]) -> Sequence[str]:
    names = operator.input_names(attrs)
    return [f"input{k}" for k in range(len(names))] if operator.name in unnamed_inputs() else names


def _result_names(operator: Operator, attrs: Mapping[str, Any], bound: bool) -> Sequence[str]:
    """The names of the results that are shown; the operator may return fewer results."""
    names = operator.outputs(attrs)
    if bound:
        return names
    visible = operator.visible(attrs) if operator.visible else len(names)
    return names[:visible] if operator.name in named_results() else [str(k) for k in range(visible)]


def _expanded(op: Op) -> Op:
    """A loop or branch with its bodies expanded to primitives; any other op unchanged."""
    if not op.regions:
        return op
    return replace(op, regions=tuple(run_passes(body, "expand") for body in op.regions))


def _control_name(op: Op) -> str:
    """The MXNet operator of a loop or branch."""
    return "_cond" if op.name == "branch" else "_foreach" if len(op.regions) == 1 else "_while_loop"
