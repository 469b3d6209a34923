"""The computations of single operators, which recording needs; cached, as a program repeats them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import gluonjit.passes as passes
from gluonjit.autodiff.backward import Backward
from gluonjit.autodiff.computation import Computation
from gluonjit.autodiff.tiering import Codes, tiered
from gluonjit.codes.store import Store
from gluonjit.ir.dims import Undecided
from gluonjit.ir.graph import Builder, Graph
from gluonjit.ir.opdef import attr_key
from gluonjit.ir.types import TensorType, dtype_of, type_of
from gluonjit.ndarray.ndarray import EAGER
from gluonjit.operators.gradients import zero
from gluonjit.operators.registry import Operator, operator_graph
from gluonjit.operators.support import scalar

if TYPE_CHECKING:
    from gluonjit.passes.partition import Halves

_LIMIT = 4096
"""Computations that are kept: an attribute or a shape that changes with every call must not fill the memory."""
_computations: Store[Computation] = Store(_LIMIT)
_codes: Store[Codes] = Store(_LIMIT)
"""Code of gradients."""


def of_operator(op: Operator, attrs: Mapping[str, Any], operands: Sequence[np.ndarray], training: bool) -> Computation:
    """The computation of an operator with these (parsed) attributes, on arrays of these types."""
    types = tuple(type_of(x) for x in operands)
    try:
        program = op, training, tuple((k, attr_key(attrs[k])) for k in sorted(attrs))
        found = _computations.find((program, types))
    except TypeError:  # an attribute that cannot be hashed
        return OperatorComputation(op, attrs, types, training, None)
    if found is None:
        found = OperatorComputation(op, attrs, types, training, program)
        _computations.keep((program, types), found)
    return found


def of_number(op: Operator, attrs: Mapping[str, Any], data: np.ndarray, training: bool) -> Computation:
    """The computation of an operator (with `Operator.number`) on floats and its number, the graph's last input."""
    type = type_of(data)
    rest = {k: v for k, v in attrs.items() if k != op.number}
    key = (op, type, training, tuple(sorted(rest.items())))
    found = _computations.find(key)
    if found is None:
        b = Builder(op.name, training=training)
        operands = b.input("data", type), b.input(op.number, TensorType(type.dtype, ()))
        result = op.expand(b, operands[0], **rest, **{op.number: operands[1]})
        found = Computation(b.build([result]), tiered)
        _computations.keep(key, found)
    return found


def number_of(op: Operator, attrs: Mapping[str, Any], data: np.ndarray) -> np.ndarray:
    """An operator's number as the last input of the graph of `of_number`."""
    number: np.ndarray = scalar(EAGER[False], attrs[op.number], dtype_of(data))
    return number


def differentiated(op: Operator, operands: Sequence[Any]) -> Sequence[Any]:
    """The operands by which an operator of `of_values` is differentiated: all, if none gets a gradient."""
    return operands if op.gradient is zero else operands[:1]


def of_values(op: Operator, attrs: Mapping[str, Any], operands: Sequence[np.ndarray]) -> Computation:
    """The computation of an operator by its first operand, where the shape of the result depends on the others' values.

    They are constants of its graph. Without a gradient, its operands are all, and its result is a constant.
    """
    data, *others = operands
    b = Builder(op.name)
    if op.gradient is zero:
        for k, x in enumerate(operands):
            b.input(f"x{k}", type_of(x))
        return Computation(b.build([b.constant(op.expand(b, *operands, **attrs))]))
    return Computation(b.build([op.expand(b, b.input("data", type_of(data)), *others, **attrs)]))


class OperatorComputation(Computation):
    """The computation of an operator for operands of certain types. Its gradients share their code with those for other
    sizes. `key`: the operator with its attributes and mode; None if these cannot be hashed."""

    def __init__(
        self, op: Operator, attrs: Mapping[str, Any], types: Sequence[TensorType], training: bool, key: Hashable
    ) -> None:
        self._make = lambda types: Computation(operator_graph(op, attrs, types, training))
        self._types, self._key = tuple(types), key
        super().__init__(operator_graph(op, attrs, types, training), tiered)

    def _made(
        self, halves: Halves, wrt: Sequence[int], heads: Sequence[int], additions: Mapping[int, int], find: Any = None
    ) -> Backward:
        found = super()._made(halves, wrt, heads, additions, find)
        if additions or self._key is None:
            return found
        form = _form(found)
        key = self._key, tuple(wrt), tuple(heads), form
        codes = _codes.find(key)
        if codes is None:
            codes = Codes(found.computation.graph.name, self._gradient_of(tuple(wrt), tuple(heads), form))
            _codes.keep(key, codes)
        return replace(found, computation=_Gradient(found.computation.graph, codes, self._types))

    def _gradient_of(
        self, wrt: tuple[int, ...], heads: tuple[int, ...], form: Hashable
    ) -> Callable[[Sequence[TensorType]], Graph]:
        make = self._make

        def graph_of(types: Sequence[TensorType]) -> Graph:
            found = make(types).backward(wrt, heads)
            if _form(found) != form:
                raise Undecided("its gradient needs other values")
            return passes.differentiate_control.without_rules(found.computation.graph)

        return graph_of


class _Gradient(Computation):
    """A gradient by operands of these types. Its calls share `codes` with those for other sizes; gradients of itself,
    whose graphs are others, do not."""

    def __init__(self, graph: Graph, codes: Codes, types: Sequence[TensorType]) -> None:
        super().__init__(graph, tiered)
        self._codes, self._types = codes, types

    def compile(self) -> None:
        if self._run is None:
            self._run = tiered(passes.differentiate_control.without_rules(self.graph), self._codes, self._types)


def _form(found: Backward) -> Hashable:
    """What the arguments and results of a gradient are. The sizes of operands may have a part in it: by simplification,
    the maximum of one element does not need this element."""
    return found.values, found.cotangents, found.presences, found.results, found.states
