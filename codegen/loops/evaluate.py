"""Evaluates a graph at an index: composes the `element` functions of a body over a handler.

Operands are computed on demand, each once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gluonjit.codegen.loops.index import Affine, affine
from gluonjit.ir.annotations import without
from gluonjit.ir.graph import Graph, Value
from gluonjit.ir.opdef import Primitive
from gluonjit.ir.types import IRError, TensorType

Index = tuple[Any, ...]

_DEPTH = 24
"""The most ops that may be nested on Python's stack; deeper operands are computed first (see `Evaluator.run`)."""


_LONG = 30
"""The most terms of an index expression; longer ones are put in a variable. Chains of unaligned reshapes would make an
expression grow without bounds."""


class _Deeper(Exception):
    """Unwinds to `Evaluator.run`, to compute this value there: the stack is too deep to go on."""

    def __init__(self, value: Value, index: Index, context: Any) -> None:
        self.value, self.index, self.context = value, index, context


class Operand:
    """An operand as `element` functions see it: its type, and its scalar at an index."""

    __slots__ = ("_evaluator", "_value")

    def __init__(self, evaluator: Evaluator, value: Value) -> None:
        self._evaluator = evaluator
        self._value = value

    @property
    def type(self) -> TensorType:
        return self._value.type

    @property
    def known(self) -> np.ndarray | None:
        producer = self._evaluator.body.producers.get(self._value)
        return producer.attrs["value"] if producer is not None and producer.name == "constant" else None

    def __call__(self, index: Index) -> Any:
        return self._evaluator.value(self._value, index)


class Evaluator:
    """Computes elements of a graph's values. Besides the protocol of `element` functions, its handler `s` has

    * `load_input(value, index)`: an element of one of the body's inputs;
    * `memo(index)`: the dictionary of values computed at this index that are still valid;
    * `context` (get and set): what else an element depends on (a mask), hashable;
    * `named(expression)`: a variable with the value of an expression that has grown long.
    """

    def __init__(self, body: Graph, s: Any) -> None:
        self.body = body
        self.s = s
        self.frames: list[tuple[Value, Index]] = []
        """The elements that are being computed, outermost first."""
        self._depth = 0
        self._ops: dict[Value, tuple[Any, tuple[Value, ...], dict[str, Any]]] = {}
        """How ops compute their results: element functions, with operands and attributes."""

    def value(self, v: Value, index: Index) -> Any:
        """The element of `v` at `index`."""
        index = tuple([i if isinstance(i, Affine) else affine(i) for i in index])
        for i in index:
            if i.terms and i.size > _LONG:
                index = tuple([self.s.named(i) if i.size > _LONG else i for i in index])
                break
        memo = self.s.memo(index)
        key = (v, index, self.s.context)
        result = memo.get(key)
        if result is not None:
            return result
        if self._depth >= _DEPTH:
            raise _Deeper(v, index, self.s.context)
        self._depth += 1
        self.frames.append((v, index))
        try:
            result = memo[key] = self.compute(v, index)
        finally:
            self._depth -= 1
            self.frames.pop()
        return result

    def compute(self, v: Value, index: Index) -> Any:
        known = self._ops.get(v)
        if known is None:
            op = self.body.producers.get(v)
            if op is None:
                return self.s.load_input(v, index)
            definition = op.definition
            if not isinstance(definition, Primitive) or definition.element is None or len(op.results) != 1:
                raise IRError(f"{op.name} has no element function, so it cannot be part of a loop")
            known = self._ops[v] = definition.element, op.operands, without(op.attrs)
        element, operands, attrs = known
        return element(self.s, index, *[Operand(self, x) for x in operands], **attrs)

    def run(self, thunk: Callable[[], Any]) -> Any:
        """`thunk()`, which evaluates values. Chains of any length work: a value that is nested too deeply is computed
        first, and then the thunk runs again and finds it in the memo."""
        depth, self._depth = self._depth, 0
        context = self.s.context
        waiting: list[_Deeper] = []
        try:
            while True:
                try:
                    if not waiting:
                        return thunk()
                    self.s.context = waiting[-1].context
                    self.value(waiting[-1].value, waiting[-1].index)
                    waiting.pop()
                    self.s.context = context
                except _Deeper as deeper:
                    waiting.append(deeper)
                    self.s.context = context
        finally:
            self._depth = depth
            self.s.context = context
