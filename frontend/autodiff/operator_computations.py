"""The computations of single operators, which recording needs; cached, as a program repeats them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.autodiff.computation import Computation
from gluonjit.autodiff.tiering import tiered
from gluonjit.ir.graph import Builder
from gluonjit.ir.opdef import attr_key
from gluonjit.ir.types import TensorType, type_of
from gluonjit.ndarray.ndarray import EAGER
from gluonjit.operators.gradients import zero
from gluonjit.operators.registry import Operator, operator_graph
from gluonjit.operators.support import scalar

_LIMIT = 4096
_known: dict[Any, Computation] = {}


def of_operator(op: Operator, attrs: Mapping[str, Any], operands: Sequence[np.ndarray], training: bool) -> Computation:
    """The computation of an operator with these (parsed) attributes, on arrays of these types."""
    types = tuple(type_of(x) for x in operands)
    try:
        key = (op, types, training, tuple((k, attr_key(attrs[k])) for k in sorted(attrs)))
        found = _known.get(key)
    except TypeError:  # an attribute that cannot be hashed
        return _made(op, attrs, types, training)
    if found is None:
        found = _remember(key, _made(op, attrs, types, training))
    return found


def _remember(key: Any, computation: Computation) -> Computation:
    if len(_known) >= _LIMIT:  # an attribute or a shape that changes with every call must not fill the memory
        _known.clear()
    _known[key] = computation
    return computation


def of_number(
    op: Operator, attrs: Mapping[str, Any], data: np.ndarray, training: bool
) -> tuple[Computation, np.ndarray]:
    """The computation of an operator (with `Operator.number`) on floats and its number, and this number as an array.

    The number is the graph's last input.
    """
    type, value = type_of(data), attrs[op.number]
    rest = {k: v for k, v in attrs.items() if k != op.number}
    key = (op, type, training, tuple(sorted(rest.items())))
    found = _known.get(key)
    if found is None:
        b = Builder(op.name, training=training)
        operands = b.input("data", type), b.input(op.number, TensorType(type.dtype, ()))
        result = op.expand(b, operands[0], **rest, **{op.number: operands[1]})
        found = _remember(key, Computation(b.build([result])))
    return found, scalar(EAGER[training], value, type.dtype)


def differentiated(op: Operator, operands: Sequence[Any]) -> Sequence[Any]:
    """Those of an operator that needs values which `of_values` is about: all, if none gets a gradient."""
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


def _made(op: Operator, attrs: Mapping[str, Any], types: Sequence[TensorType], training: bool) -> Computation:
    return Computation(operator_graph(op, attrs, types, training), tiered)
