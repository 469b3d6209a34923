"""The values of a graph at an index: operands are computed where they are asked for, each once.

`Evaluator` composes the `element` functions of a body over a handler. `Tracer` is the handler that computes nothing: it
records which memory is read at which index expressions, in which reductions, and so tells what a loop should look like
before any of it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gluonjit.codegen.index import Affine, Named, Var, affine, flat, variable
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.opdef import Primitive
from gluonjit.ir.types import BOOL, I64, DType, IRError, TensorType, type_of
from gluonjit.ir.types import dtype as as_dtype

Index = tuple[Any, ...]

_DEPTH = 24
"""How many ops deep Python's stack may grow before the rest is computed first (see `Evaluator.run`)."""


_LONG = 30
"""Terms of an index expression. Reshapes that do not fit each other make it grow without bounds."""


class _Deeper(Exception):
    """Unwinds to `Evaluator.run`: this value is needed, and the stack is deep enough."""

    def __init__(self, value: Value, index: Index, context: Any) -> None:
        self.value, self.index, self.context = value, index, context


class Operand:
    """What an `element` function sees of an operand: its type, and its scalar at an index."""

    __slots__ = ("_evaluator", "_value")

    def __init__(self, evaluator: Evaluator, value: Value) -> None:
        self._evaluator = evaluator
        self._value = value

    @property
    def type(self) -> TensorType:
        return self._value.type

    def __call__(self, index: Index) -> Any:
        return self._evaluator.value(self._value, index)


class Evaluator:
    """The handler `s` offers, besides the protocol of `element` functions,

    * `load_input(value, index)`: an element of one of the body's inputs;
    * `memo(index)`: the dictionary that keeps what was computed at this index, as long as it is valid;
    * `context` (get and set): what else an element depends on (a mask), hashable;
    * `named(expression)`: the same index in one variable, when the expression has grown long.
    """

    def __init__(self, body: Graph, s: Any) -> None:
        self.body = body
        self.s = s
        self.frames: list[tuple[Value, Index]] = []
        """What is being computed, outermost first."""
        self._depth = 0
        self._operands: dict[Op, tuple[Operand, ...]] = {}

    def value(self, v: Value, index: Index) -> Any:
        """The element of `v` at `index`."""
        index = tuple([i if isinstance(i, Affine) else affine(i) for i in index])
        if any(i.size > _LONG for i in index):
            index = tuple([self.s.named(i) if i.size > _LONG else i for i in index])
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
        op = self.body.producers.get(v)
        if op is None:
            return self.s.load_input(v, index)
        definition = op.definition
        if not isinstance(definition, Primitive) or definition.element is None or len(op.results) != 1:
            raise IRError(f"{op.name} has no element function, so it cannot be part of a loop")
        operands = self._operands.get(op)
        if operands is None:
            operands = self._operands[op] = tuple([Operand(self, x) for x in op.operands])
        attrs = {k: a for k, a in op.attrs.items() if not k.startswith(".")}
        return definition.element(self.s, index, *operands, **attrs)

    def run(self, thunk: Callable[[], Any]) -> Any:
        """`thunk()`, which asks for values. Chains of any length work: what lies too deep is computed first, and then
        the thunk is run again, which finds it done."""
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


# ---- tracing


class Token:
    """Stands for a scalar while tracing."""

    __slots__ = ("const", "dtype", "var")

    def __init__(self, dtype: DType, const: Any = None) -> None:
        self.dtype = dtype
        self.const = const
        self.var: Var | None = None


@dataclass(eq=False)
class Reduction:
    """A reduction that the element function of `value` asked for at `index`."""

    value: Value
    index: Index
    vars: tuple[Affine, ...]
    """Its own variables, one per extent."""
    loops: tuple[Reduction, ...]
    """The reductions that it is inside of, outermost first."""
    trips: int

    @cached_property
    def leaves(self) -> frozenset[Var]:
        """The variables that its index depends on."""
        return frozenset[Var]().union(*(i.leaves for i in self.index))


@dataclass(eq=False)
class Access:
    """An index expression that code is made of: the flat address of a load or store, or a number that is compared."""

    kind: str
    """'load', 'store', 'range' (low <= expr < high) or 'number'."""
    expr: Affine
    loops: tuple[Reduction, ...] = ()
    guarded: bool = False
    low: int = 0
    high: int = 0


_BOOLEAN = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite"})


@dataclass(eq=False)
class Tracer:
    """A handler whose values are `Token`s."""

    accesses: list[Access] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)
    visits: list[tuple[Value, Index, tuple[Reduction, ...]]] = field(default_factory=list)
    """Every (value, index) that is computed, and inside which reductions. (`substituted` leaves these indices.)"""
    context: Any = None
    evaluator: Evaluator | None = None

    def __post_init__(self) -> None:
        self._memo: dict[Any, Any] = {}
        self._loops: tuple[Reduction, ...] = ()
        self._guards = 0

    def memo(self, index: Index) -> dict[Any, Any]:
        return self._memo

    def load_input(self, v: Value, index: Index) -> Token:
        return self._load(index, v.shape, v.dtype)

    def _load(self, index: Index, shape: Sequence[int], dtype: DType) -> Token:
        self.accesses.append(Access("load", flat(index, shape), self._loops, self._guards > 0))
        return Token(dtype)

    def array(self, value: np.ndarray) -> Callable[[Index], Token]:
        dtype = type_of(value).dtype
        if value.size <= 1:
            return lambda index: Token(dtype)
        return lambda index: self._load(index, value.shape, dtype)

    def store(self, index: Index, shape: Sequence[int]) -> None:
        self.accesses.append(Access("store", flat(index, shape)))

    def dtype(self, a: Token) -> DType:
        return a.dtype

    def constant(self, value: Any, dtype: Any) -> Token:
        return Token(as_dtype(dtype), value)

    def cast(self, a: Token, dtype: Any) -> Token:
        return Token(as_dtype(dtype))

    def select(self, condition: Token, a: Token, b: Token) -> Token:
        return Token(a.dtype)

    def index_value(self, index: Any, dtype: Any) -> Token:
        self.accesses.append(Access("number", affine(index), self._loops))
        return Token(as_dtype(dtype))

    def to_index(self, value: Token) -> Affine:
        if value.var is None:
            value.var = Var("at", -(2**63), 2**63 - 1)
        return affine(value.var)

    def named(self, e: Affine) -> Affine:
        known = self._memo.get(e)
        if known is None:
            known = self._memo[e] = affine(Named(e))
        return known

    def in_range(self, index: Any, low: int, high: int) -> Token:
        e = affine(index)
        if low <= e.low and e.high < high:
            return Token(BOOL, True)
        if e.high < low or e.low >= high:
            return Token(BOOL, False)
        self.accesses.append(Access("range", e, self._loops, low=low, high=high))
        return Token(BOOL)

    def guarded(self, condition: Token, thunk: Callable[[], Token], otherwise: Token) -> Token:
        if condition.const is not None:
            return thunk() if condition.const else otherwise
        self._guards += 1
        try:
            return thunk()
        finally:
            self._guards -= 1

    def reduce(self, op: str, extents: Sequence[int], term: Callable[[Index], Token], dtype: DType) -> Token:
        result = Token(I64 if op in ("argmax", "argmin") else dtype)
        trips = int(np.prod(extents, dtype=np.int64))
        if trips == 0:
            return result
        assert self.evaluator is not None
        value, index = self.evaluator.frames[-1]
        vars = tuple(variable("k", n) for n in extents)
        reduction = Reduction(value, index, vars, self._loops, trips)
        self.reductions.append(reduction)
        outer, self._loops = self._loops, (*self._loops, reduction)
        try:
            self.evaluator.run(lambda: term(vars))
        finally:
            self._loops = outer
        return result

    def substituted(self, values: Mapping[Var, Affine]) -> Tracer:
        """The same record, with loop variables replaced by expressions in others."""
        new: dict[Reduction, Reduction] = {}

        def loops(old: tuple[Reduction, ...]) -> tuple[Reduction, ...]:
            return tuple([new[r] for r in old])

        for r in self.reductions:  # outer ones come first
            index = tuple([i.substitute(values) for i in r.index])
            new[r] = Reduction(r.value, index, r.vars, loops(r.loops), r.trips)
        return Tracer(
            [replace(a, expr=a.expr.substitute(values), loops=loops(a.loops)) for a in self.accesses],
            list(new.values()),
            [(v, index, loops(outer)) for v, index, outer in self.visits],
        )

    def __getattr__(self, name: str) -> Callable[..., Token]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in ("and", "or"):
            return lambda a, b: self._logic(name, a, b)
        return lambda a, *rest: Token(BOOL if name in _BOOLEAN else a.dtype)

    def _logic(self, name: str, a: Token, b: Token) -> Token:
        """As the handler that emits code, so that both see the same guards."""
        for x, y in ((a, b), (b, a)):
            if x.dtype is BOOL and x.const is not None:
                return y if x.const is (name == "and") else x
        return Token(a.dtype)


class _TracingEvaluator(Evaluator):
    def compute(self, v: Value, index: Index) -> Any:
        self.s.visits.append((v, index, self.s._loops))
        return super().compute(v, index)


def trace(body: Graph, wanted: Sequence[tuple[Value, Index]]) -> Tracer:
    """What computing these values at these indices reads."""
    tracer = Tracer()
    evaluator = tracer.evaluator = _TracingEvaluator(body, tracer)

    def all_of_them() -> None:
        for v, index in wanted:
            evaluator.value(v, index)

    evaluator.run(all_of_them)
    return tracer
