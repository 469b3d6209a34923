"""The memory accesses of a kernel, found before its code is generated.

`Tracer` is a handler that computes nothing: it records which memory is read at which index expressions, and in which
reductions. `nest` chooses the loops by this record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from gluonjit.codegen.loops.evaluate import Evaluator, Index
from gluonjit.codegen.loops.index import LARGEST, LEAST, Affine, Named, Var, affine, flat, is_inside, lookup, variable
from gluonjit.common.lazy import cached_property
from gluonjit.ir import opdef
from gluonjit.ir.dims import Extent
from gluonjit.ir.graph import Graph, Value
from gluonjit.ir.types import BOOL, I64, DType, type_of
from gluonjit.ir.types import dtype as as_dtype


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
    """The variables of the reduction, one per extent."""
    loops: tuple[Reduction, ...]
    """The reductions that enclose it, outermost first."""
    trips: Extent

    @cached_property
    def leaves(self) -> frozenset[Var]:
        """The variables on which its index depends."""
        return frozenset[Var]().union(*(i.leaves for i in self.index))


@dataclass(eq=False)
class Reference:
    """An index expression that the code computes: the flat address of a load or store, or an index used as a number."""

    kind: str
    """'load', 'store', 'range' (low <= expr < high) or 'number'."""
    expr: Affine
    loops: tuple[Reduction, ...] = ()
    guarded: bool = False
    low: Extent = 0
    high: Extent = 0


@dataclass(eq=False)
class Tracer:
    """A handler whose values are `Token`s."""

    references: list[Reference] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)
    visits: list[tuple[Value, Index, tuple[Reduction, ...]]] = field(default_factory=list)
    """Every (value, index) that is computed, with the enclosing reductions. `substituted` does not change these
    indices."""
    strides: Mapping[Value, Sequence[Extent]] = field(default_factory=dict)
    """The strides of inputs that are not row-major."""
    context: Any = None
    evaluator: Evaluator | None = None

    def __post_init__(self) -> None:
        self._memo: dict[Any, Any] = {}
        self._loops: tuple[Reduction, ...] = ()
        self._guards = 0

    def memo(self, index: Index) -> dict[Any, Any]:
        return self._memo

    def load_input(self, v: Value, index: Index) -> Token:
        return self._load(flat(index, v.shape, self.strides.get(v)), v.dtype)

    def _load(self, e: Affine, dtype: DType) -> Token:
        self.references.append(Reference("load", e, self._loops, self._guards > 0))
        return Token(dtype)

    def array(self, value: np.ndarray) -> Callable[[Index], Token]:
        dtype = type_of(value).dtype
        if value.size <= 1:
            return lambda index: Token(dtype)
        return lambda index: self._load(flat(index, value.shape), dtype)

    def store(self, e: Affine) -> None:
        self.references.append(Reference("store", e))

    def dtype(self, a: Token) -> DType:
        return a.dtype

    def constant(self, value: Any, dtype: Any) -> Token:
        return Token(as_dtype(dtype), value)

    def cast(self, a: Token, dtype: Any) -> Token:
        return Token(as_dtype(dtype))

    def select(self, condition: Token, a: Token, b: Token) -> Token:
        return Token(a.dtype)

    def index_value(self, index: Any, dtype: Any) -> Token:
        self.references.append(Reference("number", affine(index), self._loops))
        return Token(as_dtype(dtype))

    def to_index(self, value: Token) -> Affine:
        if value.var is None:
            value.var = Var("at", LEAST, LARGEST)
        return affine(value.var)

    def lookup(self, table: np.ndarray, index: Index) -> Affine:
        return lookup(table.reshape(-1).tolist(), flat(index, table.shape))

    def named(self, e: Affine) -> Affine:
        known = self._memo.get(e)
        if known is None:
            known = self._memo[e] = affine(Named(e))
        return known

    def in_range(self, index: Any, low: Extent, high: Extent) -> Token:
        e = affine(index)
        known = is_inside(e, low, high)
        if known is not None:
            return Token(BOOL, known)
        self.references.append(Reference("range", e, self._loops, low=low, high=high))
        return Token(BOOL)

    def guarded(self, condition: Token, thunk: Callable[[], Token], otherwise: Token) -> Token:
        if condition.const is not None:
            return thunk() if condition.const else otherwise
        self._guards += 1
        try:
            return thunk()
        finally:
            self._guards -= 1

    def reduce(self, op: str, extents: Sequence[Extent], term: Callable[[Index], Token], dtype: DType) -> Token:
        result = Token(I64 if op in ("argmax", "argmin") else dtype)
        trips = prod(extents)
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
        """The same record with loop variables replaced by expressions in other variables."""
        new: dict[Reduction, Reduction] = {}

        def loops(old: tuple[Reduction, ...]) -> tuple[Reduction, ...]:
            return tuple([new[r] for r in old])

        for r in self.reductions:  # outer ones come first
            index = tuple([i.substitute(values) for i in r.index])
            new[r] = Reduction(r.value, index, r.vars, loops(r.loops), r.trips)
        return Tracer(
            [replace(a, expr=a.expr.substitute(values), loops=loops(a.loops)) for a in self.references],
            list(new.values()),
            [(v, index, loops(outer)) for v, index, outer in self.visits],
        )

    def __getattr__(self, name: str) -> Callable[..., Token]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in ("and", "or"):
            return lambda a, b: self._logic(name, a, b)
        return lambda a, *rest: Token(BOOL if opdef.lookup(name).predicate else a.dtype)

    def _logic(self, name: str, a: Token, b: Token) -> Token:
        """Like the method of the handler that emits code, so that both see the same guards."""
        for x, y in ((a, b), (b, a)):
            if x.dtype is BOOL and x.const is not None:
                return y if x.const is (name == "and") else x
        return Token(a.dtype)


class _TracingEvaluator(Evaluator):
    def compute(self, v: Value, index: Index) -> Any:
        self.s.visits.append((v, index, self.s._loops))
        return super().compute(v, index)


def trace(
    body: Graph, wanted: Sequence[tuple[Value, Index]], strides: Mapping[Value, Sequence[Extent]] | None = None
) -> Tracer:
    """The accesses of computing these values at these indices; `strides`: of the inputs that are not row-major."""
    tracer = Tracer(strides=strides or {})
    evaluator = tracer.evaluator = _TracingEvaluator(body, tracer)

    def all_of_them() -> None:
        for v, index in wanted:
            evaluator.value(v, index)

    evaluator.run(all_of_them)
    tracer.evaluator = None  # it refers to the tracer, and only the garbage collector would find the two
    return tracer
