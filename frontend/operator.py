"""`mx.operator`: operators that users write in Python, called as `nd.Custom(x, op_type="name")`."""

from __future__ import annotations

from gluonjit.operators.custom_classes import PROPS, CustomOp, CustomOpProp, register
from gluonjit.operators.registry import OPERATORS

__all__ = ["CustomOp", "CustomOpProp", "get_all_registered_operators", "register"]


def get_all_registered_operators() -> list[str]:
    """The names of all operators, MXNet's own and registered ones."""
    return sorted({op.name for op in OPERATORS.values()} | set(PROPS))
