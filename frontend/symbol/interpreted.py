"""Interprets graphs that are too small to be worth compiling: one operator on a few elements.

Compiling takes tens of milliseconds, interpreting such a graph microseconds. The choice depends on the graph alone,
never on a clock, so that the same program always gives the same bits, which are those of the plain call.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.annotations import STREAM, TRAINING
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.operators import registry
from gluonjit.operators.registry import Operator
from gluonjit.runtime.eager import Eager, quiet

PREFIX = "mx."
_FEW = 1 << 12
"""The most elements of all operands and results together. A matrix product of that size takes 100 µs without BLAS."""


def is_tiny(graph: Graph) -> bool:
    """Whether a graph of level `traced` is one operator (no loop, no branch) on at most `_FEW` elements."""
    if len(graph.ops) != 1 or not graph.ops[0].name.startswith(PREFIX):
        return False
    (op,) = graph.ops
    return sum(v.size for v in (*op.operands, *op.results)) <= _FEW


class Interpreted:
    """A callee (`runtime.backend.Callee`) that runs a graph operator by operator, as the plain call does."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(
        self, inputs: Sequence[np.ndarray], versions: Sequence[Hashable] | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """(outputs, updated states), all new arrays."""
        graph = self.graph
        values: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
        key = random_key(graph, values)
        for op in graph.ops:
            operator = registry.get(op.name[len(PREFIX) :])
            results = computed(operator, op, [values[v] for v in op.operands], key, training_of(graph))
            values.update(zip(op.results, results))
        return [np.array(values[v]) for v in graph.outputs], [np.array(values[v]) for _, v in graph.updates]


def interpreted(graph: Graph, options: dict[str, Any]) -> Interpreted:
    """The backend for tiny graphs."""
    return Interpreted(graph)


def random_key(graph: Graph, values: Mapping[Value, np.ndarray]) -> np.ndarray | None:
    """The key of a graph's random operators; None if it has none."""
    return next((values[v] for v in graph.inputs if v.name == "rng_key"), None)


def training_of(graph: Graph) -> bool:
    return bool(graph.attrs.get("training"))


def computed(
    operator: Operator, op: Op, operands: Sequence[np.ndarray], key: np.ndarray | None, training: bool
) -> tuple[np.ndarray, ...]:
    """The results of one operator of a graph. `key` is the graph's, from which it draws its random numbers."""
    streams = itertools.count(STREAM.of(op))

    def next_key() -> np.ndarray:
        assert key is not None, "a graph with random operators has a key"
        return key + np.array((0, next(streams)), np.int64)

    with quiet():
        eager = Eager(bool(op.attrs.get(TRAINING.name, training)), next_key)
        return operator.expand_into(eager, operands, op.attrs)
