"""Operators that are called again and again with operands of the same types: their primitives, ready to run.

An expansion looks at shapes, axes and attributes, and then calls a few primitives. What it finds is the same for all
operands of certain types. So after some calls with these, the graph that it makes of them is interpreted, with the same
bits (`tests/operators/test_settled_calls.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.ir.graph import Graph
from gluonjit.ir.interpreter import Interpreter
from gluonjit.ir.types import IRError, type_of
from gluonjit.language import rng
from gluonjit.operators.registry import UNFORESEEN, Operator

_AFTER = 8
"""So many calls come before: making the graph takes as long as some ten."""
_LARGEST = 1 << 14
"""Elements of the largest value: expansions compute larger ones in pieces that stay in the cache."""
MAX_TYPES = 64
"""The types of operands that are told apart."""


class SettledCalls:
    """The calls of an operator with certain attributes."""

    def __init__(self, op: Operator, attrs: Mapping[str, Any]) -> None:
        self.name = op.name
        self._op, self._attrs = op, attrs
        self._known: dict[Any, Interpreter | int | None] = {}
        """By mode and types: what runs the primitives, the number of calls so far, or None: they cannot be run so."""

    @staticmethod
    def of(op: Operator, attrs: Mapping[str, Any]) -> SettledCalls | None:
        """None for operators that are more than their primitives: that write to operands, call Python, or have another
        number in each call."""
        others = op.imperative_only or op.host or op.number or op.updates is not None
        return None if others else SettledCalls(op, attrs)

    def find(self, types: Any, arrays: Sequence[np.ndarray]) -> Interpreter | None:
        """What runs the operator on arrays of these types, led by the training mode; None if its expansion is to."""
        known = self._known.get(types, 0)
        if known.__class__ is not int:
            return known  # type: ignore[return-value]
        if len(self._known) >= MAX_TYPES and not known:
            self._known.clear()
        self._known[types] = known + 1 if known < _AFTER else self._made(arrays, types[0])  # type: ignore[operator]
        return None

    def compute(
        self, interpreter: Interpreter, arrays: Sequence[np.ndarray], key: np.ndarray | None
    ) -> list[np.ndarray]:
        """All results; they may share memory with operands. `key`: what it draws random numbers with, reserved here if
        it is None."""
        if len(interpreter.graph.inputs) == len(arrays):
            return interpreter.run(arrays)[0]
        if key is None:
            key = rng.reserve(interpreter.graph.attrs["streams"])
        return interpreter.run([*arrays, key])[0]

    def _made(self, arrays: Sequence[np.ndarray], training: bool) -> Interpreter | None:
        try:
            graph = self._op.expansion([type_of(x) for x in arrays], self._attrs, training)
            if not all(map(_is_small_primitive, all_ops(graph))):
                return None
            interpreter = Interpreter(graph)
            results = self.compute(interpreter, arrays, np.zeros(2, np.int64))
        except (IRError, MXNetError, *UNFORESEEN):  # the expansion says it better
            return None
        constants = [op.attrs["value"] for op in all_ops(graph) if op.name == "constant"]
        # A result that is one would be the caller's to write to.
        shared = any(np.may_share_memory(x, c) for x in results for c in constants)
        return None if shared else interpreter


def all_ops(graph: Graph) -> Iterator[Any]:
    """The ops of a graph and of its regions."""
    for op in graph.ops:
        yield op
        for region in op.regions:
            yield from all_ops(region)


def _is_small_primitive(op: Any) -> bool:
    runs_python = op.definition.level == "host" or op.name == "check_index"
    return not runs_python and all(v.type.size <= _LARGEST for v in op.results)
