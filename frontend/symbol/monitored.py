"""Runs a graph operator by operator, to pass every result to a hook or monitor; compiled code does not keep them.

MXNet names the results in two ways. In hybridized blocks (`register_op_hook`), results without a name of their own are
`relu0_0`, `split0_1`. Executors (`set_monitor_callback`) name them `relu0_output`, and also show results that only
gradients need, and variables under their own names. In both, names are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.graph import Graph, Op
from gluonjit.ir.interpreter import Interpreter
from gluonjit.language.mxnet_names import named_results, unnamed_inputs
from gluonjit.ndarray import NDArray
from gluonjit.operators.registry import Operator


def run_monitored(
    graph: Graph, inputs: Sequence[np.ndarray], callback: Callable[..., None], monitor_all: bool, bound: bool = False
) -> None:
    """Runs a graph of level `traced` operator by operator; calls `callback(name, operator, array)` for each result.

    `monitor_all`: also for each input, before the results, as `conv0_fwd_data`. `bound`: names are those of an
    executor. For loops and branches only the results are shown, not those of operators in their bodies.
    """
    variables = frozenset(graph.inputs)

    def show(name: str, operator: str, x: np.ndarray) -> None:
        callback(name.encode(), operator.encode(), NDArray._wrap(np.array(x, order="C")))

    def watch(op: Op, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        operator = op.definition
        if not isinstance(operator, Operator):
            if op.regions and op.name != "with_gradient":
                states = op.attrs.get("carried", 0)
                pairs = [*zip(op.results, results)]
                for v, x in (*pairs[states:], *pairs[:states]):
                    node, _, number = v.name.rpartition("_output")
                    show(v.name if bound else f"{node}_{number or 0}", _control_name(op), x)
            return
        node = op.results[0].name
        if monitor_all:
            for v, x, name in zip(op.operands, operands, _input_names(operator, op.attrs)):
                if bound and v in variables:
                    show(v.name, operator.name, x)
                show(f"{node}_{name}", operator.name, x)
        for name, x in zip(_result_names(operator, op.attrs, bound), results):
            show(f"{node}_{name}", operator.name, x)

    Interpreter(graph).run(inputs, watch)


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


def _control_name(op: Op) -> str:
    """The MXNet operator of a loop or branch."""
    return "_cond" if op.name == "branch" else "_foreach" if len(op.regions) == 1 else "_while_loop"
