"""Python's operators on arrays, and the functions `nd.add`, `nd.maximum`, … that take arrays and numbers alike.

One table says which operator computes what. Imperatively both operands broadcast; a number, or a NumPy scalar, goes to
the operator's scalar form, in which the array's element type decides.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

from gluonjit.base import numeric_types
from gluonjit.language.array import Array
from gluonjit.language.running import running
from gluonjit.ndarray.imperative import invoke
from gluonjit.ndarray.ndarray import NDArray
from gluonjit.operators.registry import Operator, get

__all__ = [
    "add",
    "divide",
    "equal",
    "greater",
    "greater_equal",
    "lesser",
    "lesser_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "modulo",
    "multiply",
    "not_equal",
    "power",
    "subtract",
    "true_divide",
]

# function: (of two arrays, of array and number, of number and array, of two numbers)
_TABLE: dict[str, tuple[str, str, str, Callable[[Any, Any], Any]]] = {
    "add": ("broadcast_add", "_plus_scalar", "_plus_scalar", operator.add),
    "subtract": ("broadcast_sub", "_minus_scalar", "_rminus_scalar", operator.sub),
    "multiply": ("broadcast_mul", "_mul_scalar", "_mul_scalar", operator.mul),
    "divide": ("broadcast_div", "_div_scalar", "_rdiv_scalar", operator.truediv),
    "modulo": ("broadcast_mod", "_mod_scalar", "_rmod_scalar", operator.mod),
    "power": ("broadcast_power", "_power_scalar", "_rpower_scalar", operator.pow),
    "maximum": ("broadcast_maximum", "_maximum_scalar", "_maximum_scalar", lambda a, b: a if a > b else b),
    "minimum": ("broadcast_minimum", "_minimum_scalar", "_minimum_scalar", lambda a, b: a if a < b else b),
    "equal": ("broadcast_equal", "_equal_scalar", "_equal_scalar", lambda a, b: int(a == b)),
    "not_equal": ("broadcast_not_equal", "_not_equal_scalar", "_not_equal_scalar", lambda a, b: int(a != b)),
    "greater": ("broadcast_greater", "_greater_scalar", "_lesser_scalar", lambda a, b: int(a > b)),
    "greater_equal": (
        "broadcast_greater_equal",
        "_greater_equal_scalar",
        "_lesser_equal_scalar",
        lambda a, b: int(a >= b),
    ),
    "lesser": ("broadcast_lesser", "_lesser_scalar", "_greater_scalar", lambda a, b: int(a < b)),
    "lesser_equal": (
        "broadcast_lesser_equal",
        "_lesser_equal_scalar",
        "_greater_equal_scalar",
        lambda a, b: int(a <= b),
    ),
    "logical_and": ("broadcast_logical_and", "_logical_and_scalar", "_logical_and_scalar", lambda a, b: int(a and b)),
    "logical_or": ("broadcast_logical_or", "_logical_or_scalar", "_logical_or_scalar", lambda a, b: int(a or b)),
    "logical_xor": (
        "broadcast_logical_xor",
        "_logical_xor_scalar",
        "_logical_xor_scalar",
        lambda a, b: int(bool(a) != bool(b)),
    ),
}


@cache
def _op(name: str) -> Operator:
    """Looked up on first use: until then, the modules that declare operators need not be imported."""
    return get(name)


def _function(name: str) -> Callable[[Any, Any], Any]:
    both, right_number, left_number, numbers = _TABLE[name]

    def function(lhs: Any, rhs: Any) -> Any:
        if isinstance(lhs, numeric_types):
            if isinstance(rhs, numeric_types):
                return numbers(lhs, rhs)
            return invoke(_op(left_number), (_array(rhs, "data"),), {"scalar": float(lhs)})
        if isinstance(rhs, numeric_types):
            return invoke(_op(right_number), (_array(lhs, "data"),), {"scalar": float(rhs)})
        if not _is_operand(rhs):
            raise TypeError(f"type {type(rhs)} not supported")
        return invoke(_op(both), (_array(lhs, "lhs"), rhs), {})

    function.__name__ = function.__qualname__ = name
    function.__module__ = "gluonjit.ndarray"
    shown = [numbers(k, 2) for k in (1, 2, 3)]
    if name.startswith("logical"):
        shown = list(map(bool, shown))  # of numbers, `and` and `or` give one of the two, as in MXNet
    function.__doc__ = (
        f"Elementwise {name.replace('_', ' ')} of arrays or numbers; shapes broadcast. "
        "Comparisons and logic give 0 and 1.\n\nMXNetError if element types differ, or shapes do not broadcast.\n"
        f"\n>>> mx.nd.{name}(mx.nd.array([1, 2, 3]), 2).asnumpy()\n{_printed(shown)}"
    )
    return function


def _printed(numbers: list[float]) -> str:
    """An array of these as NumPy prints it, which itself would take a tenth of a millisecond, for each function."""
    parts = [f"{float(x):g}".partition(".") for x in numbers]
    before, after = (max(len(part[k]) for part in parts) for k in (0, 2))
    return f"array([{', '.join(f'{a:>{before}}.{b:<{after}}' for a, _, b in parts)}], dtype=float32)"


def _array(value: Any, argument: str) -> NDArray:
    if not _is_operand(value):
        raise AssertionError(f"Argument {argument} must have NDArray type, but got {value}")
    return value


add = _function("add")
subtract = _function("subtract")
multiply = _function("multiply")
divide = true_divide = _function("divide")
modulo = _function("modulo")
power = _function("power")
maximum = _function("maximum")
minimum = _function("minimum")
equal = _function("equal")
not_equal = _function("not_equal")
greater = _function("greater")
greater_equal = _function("greater_equal")
lesser = _function("lesser")
lesser_equal = _function("lesser_equal")
logical_and = _function("logical_and")
logical_or = _function("logical_or")
logical_xor = _function("logical_xor")


def _operator(name: str) -> Callable[[NDArray, Any], Any]:
    """The function as method, for `x + other`."""
    both, right_number, _, _ = _TABLE[name]

    def method(self: NDArray, other: Any) -> Any:
        if other.__class__ is NDArray or isinstance(other, NDArray) and not other._numpy:
            return invoke(_op(both), (self, other), {})
        if isinstance(other, numeric_types):
            return invoke(_op(right_number), (self,), {"scalar": float(other)})
        if isinstance(other, Array) and other._symbolic:
            return NotImplemented  # while tracing, the symbol's reflected operator records it
        raise TypeError(f"type {type(other)} not supported")

    return method


def _reflected(name: str) -> Callable[[NDArray, Any], Any]:
    """The function as method, for `other - x`."""
    function = globals()[name]
    return lambda self, other: function(other, self)


def _in_place(name: str, verb: str) -> Callable[[NDArray, Any], NDArray]:
    """The function as method, for `x += other`."""
    both, right_number, _, _ = _TABLE[name]

    def method(self: NDArray, other: Any) -> NDArray:
        if not self.writable:
            raise ValueError(f"trying to {verb} a readonly NDArray")
        if _is_operand(other):
            return invoke(_op(both), (self, other), {}, self)
        if isinstance(other, numeric_types):
            return invoke(_op(right_number), (self,), {"scalar": float(other)}, self)
        raise TypeError(f"type {type(other)} not supported")

    return method


def _is_operand(value: Any) -> bool:
    """Whether it is an array; in a block that is being traced, symbols are arrays."""
    return isinstance(value, NDArray) or running.trace is not None and isinstance(value, Array)


METHODS = {
    "__add__": _operator("add"),
    "__radd__": _operator("add"),
    "__iadd__": _in_place("add", "add to"),
    "__sub__": _operator("subtract"),
    "__rsub__": _reflected("subtract"),
    "__isub__": _in_place("subtract", "subtract from"),
    "__mul__": _operator("multiply"),
    "__rmul__": _operator("multiply"),
    "__imul__": _in_place("multiply", "multiply to"),
    "__truediv__": _operator("divide"),
    "__rtruediv__": _reflected("divide"),
    "__itruediv__": _in_place("divide", "divide from"),
    "__mod__": _operator("modulo"),
    "__rmod__": _reflected("modulo"),
    "__imod__": _in_place("modulo", "take modulo from"),
    "__pow__": _operator("power"),
    "__rpow__": _reflected("power"),
    "__eq__": _operator("equal"),
    "__ne__": _operator("not_equal"),
    "__gt__": _operator("greater"),
    "__ge__": _operator("greater_equal"),
    "__lt__": _operator("lesser"),
    "__le__": _operator("lesser_equal"),
    "__neg__": lambda self: multiply(self, -1.0),
    "__abs__": lambda self: self.abs(),
}
for _name, _method in METHODS.items():
    setattr(NDArray, _name, _method)
