"""Runs operators the ways a user's call may take: imperatively, evaluated as a graph, and compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import gluonjit
import gluonjit.ndarray  # which knows what `Custom` calls
from gluonjit.ir.graph import Builder, Graph
from gluonjit.ir.quiet import quiet
from gluonjit.ir.types import type_of
from gluonjit.operators import registry
from gluonjit.runtime.eager import Eager, Exact, needs_exact

from .samples import Case
from .samples_custom import define

define(gluonjit)

KEY = (1234, 7)
"""Seed and counter of the random operators."""


def run_eager(operator: str, inputs: Sequence[np.ndarray], attrs: dict[str, Any], training: bool = False) -> list:
    """All results that the expansion gives on ndarrays."""
    op = registry.get(operator)
    draws = iter(range(1000))
    parsed = op.parse(attrs)
    kind = Exact if needs_exact(*inputs, *parsed.values()) else Eager
    b = kind(training, lambda: np.array([KEY[0], KEY[1] + next(draws)]))
    with quiet():
        return [np.asarray(y) for y in op.expand_into(b, b.operands(inputs), parsed)]


_RESULTS: dict[tuple, list[np.ndarray]] = {}


def run_case(case: Case) -> list[np.ndarray]:
    """All results of the imperative call, computed once."""
    key = (case.operator, case.number, case.checksum(), repr(case.attrs))
    if key not in _RESULTS:
        _RESULTS[key] = run_eager(case.operator, case.inputs, case.attrs, case.training)
    return _RESULTS[key]


def graph_of(cases: Sequence[Case]) -> tuple[Graph, list[np.ndarray]]:
    """A graph of level `traced` that holds the operator of each case, and its inputs (`rng_key` not among them)."""
    b = Builder("cases", level="traced")
    outputs: list[Any] = []
    for k, case in enumerate(cases):
        values = [b.input(f"x{k}_{n}", type_of(x)) for n, x in enumerate(case.inputs)]
        # Each case starts the streams anew, as an imperative call of its own does.
        outputs += b.emit(f"mx.{registry.get(case.operator).name}", values, {**case.attrs, ".stream": 0})
    graph = b.build(outputs, {"training": cases[0].training})
    return graph, [x for case in cases for x in case.inputs]


def with_key(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The inputs of an expanded graph: `rng_key` comes last when random operators need one."""
    return [*inputs, np.array(KEY)] if len(graph.inputs) > len(inputs) else list(inputs)
