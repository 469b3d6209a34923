"""`mx.operator`: operators that users write in Python (`nd.Custom(x, op_type="name")`), and what operators take."""

from __future__ import annotations

from typing import NamedTuple

from gluonjit.ir.opdef import REQUIRED
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.language.namespace import input_names
from gluonjit.operators.attributes import Attr
from gluonjit.operators.control.custom_classes import PROPS, CustomOp, CustomOpProp, register
from gluonjit.operators.registry import OPERATORS, get
from gluonjit.symbol.python_operators import NDArrayOp, NumpyOp, PythonOp

__all__ = [
    "CustomOp",
    "CustomOpProp",
    "NDArrayOp",
    "NumpyOp",
    "OperatorArguments",
    "PythonOp",
    "get_all_registered_operators",
    "get_operator_arguments",
    "register",
]


class OperatorArguments(NamedTuple):
    """What an operator takes, inputs before attributes: how many, their names, and their types in words."""

    narg: int
    names: list[str]
    types: list[str]


def get_all_registered_operators() -> list[str]:
    """The names of all operators, MXNet's own and registered ones."""
    return sorted({op.name for op in OPERATORS.values()} | set(PROPS))


def get_operator_arguments(op_name: str) -> OperatorArguments:
    """What the operator takes; MXNetError if there is none of that name."""
    op = get(op_name)
    inputs, kind = input_names(op), "NDArray-or-Symbol"
    if op.variadic:
        inputs, kind = ("args" if op.name == "add_n" else "data",), "NDArray-or-Symbol[]"
    names = [*inputs, *op.attrs]
    return OperatorArguments(len(names), names, [*[kind] * len(inputs), *map(_in_words, op.attrs.values())])


def _in_words(attr: Attr) -> str:
    return f"{attr.kind}, required" if attr.default is REQUIRED else f"{attr.kind}, optional, default={attr.default}"


_mxnet_names.explain(__name__)
