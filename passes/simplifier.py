"""What the rules of `simplify` share: how one is declared, and what they ask about values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gluonjit.ir import array_literal
from gluonjit.ir.graph import Builder, Emitter, Op, Value


class Simplifier(Emitter):
    """What rules emit through: the new graph's builder, and the rules themselves.

    What a rule returns is simplified further by its caller; what it uses as an operand it has to `settle`.

    With `producers`, of values that are not the builder's, it only tells which rules fit, and nothing is counted.
    """

    MAX_DEPTH = 16

    def __init__(self, builder: Builder, producers: Mapping[Value, Op] | None = None) -> None:
        self.builder = builder
        self.producers = producers
        self.depth = 0
        self._made, self._given = builder._producers, producers or {}

    def emit(self, name: str, operands: Sequence[Any], attrs: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        return self.builder.emit(name, operands, attrs)

    def constant(self, value: Any, dtype: Any = None) -> Value:
        return self.builder.constant(value, dtype)

    def producer(self, value: Value) -> Op | None:
        return self._made.get(value) or self._given.get(value)

    def apply(self, op: Op) -> Value | None:
        """What the first rule that fits makes of the op."""
        for rule in RULES.get(op.name, ()):
            value = rule(self, op)
            if value is not None:
                if _fired is not None and self.producers is None:
                    _fired[rule] += 1
                return value
        return None

    def settle(self, value: Value) -> Value:
        """The value after all rules. Rules may nest in each other, but not without end: then it stays as it is."""
        if self.depth == self.MAX_DEPTH:
            return value
        self.depth += 1
        while (op := self.producer(value)) is not None and (better := self.apply(op)) is not None:
            value = better
        self.depth -= 1
        return value


Rule = Callable[[Simplifier, Op], "Value | None"]
"""`rule(b, op)`: a value equal to the op's only result, or None. The operands are values of `b`; the op itself need
not be one of its ops."""

_fired: Counter[Rule] | None = None


@contextmanager
def counting() -> Iterator[Counter[Rule]]:
    """A context that counts how often each rule has found something to do, in all threads."""
    global _fired
    before, _fired = _fired, Counter()
    try:
        yield _fired
    finally:
        _fired = before


RULES: dict[str, list[Rule]] = {}
"""The rules for each primitive, in the order in which they are tried."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Declares the decorated function as a rule for the primitives `names`."""

    def declare(function: Rule) -> Rule:
        for name in names:
            RULES.setdefault(name, []).append(function)
        return function

    return declare


def made_by(b: Simplifier, value: Value, name: str) -> Op | None:
    """The op that made `value`, if it is a `name`."""
    op = b.producer(value)
    return op if op is not None and op.name == name else None


def uniform(b: Simplifier, value: Value) -> np.generic | None:
    """The element that all elements of `value` are, when it is known: a constant, or a broadcast of one."""
    op = b.producer(value)
    while op is not None and op.name == "broadcast":
        value = op.operands[0]
        op = b.producer(value)
    if op is None or op.name != "constant" or value.size == 0:
        return None
    flat = op.attrs["value"].reshape(-1)
    # The second element first: nearly every large constant fails there.
    if flat.size > 1 and (flat[0] != flat[1] or not array_literal.is_uniform(flat)):
        return None
    return flat[0]


def is_number(element: np.generic | None, number: float) -> bool:
    """Whether a uniform element is `number`, to the sign of zero."""
    if element is None or element != number:
        return False
    return number != 0 or bool(np.signbit(np.float64(element)) == np.signbit(np.float64(number)))


def full(b: Simplifier, like: Value, number: float) -> Value:
    """A value of the type of `like` whose elements are all `number`."""
    scalar = b.constant(number, like.dtype)
    return scalar if like.shape == () else b.broadcast(scalar, shape=like.shape)
