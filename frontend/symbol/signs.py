"""The operators of `+`, `>` and similar signs on symbols, and the names of their nodes."""

from __future__ import annotations

from numbers import Number
from typing import Any, NamedTuple

from gluonjit.base import numeric_types


class Sign(NamedTuple):
    """One arithmetic sign.

    `both` is for two symbols, `scalar` for symbol and number, `reverse` for number and symbol; after each comes the
    hint from which MXNet makes the node's name (it calls most of them by an old CamelCase alias, in lower case).
    Imperatively, arrays of different shapes take `broadcast_<key>`.
    """

    both: str
    both_hint: str
    scalar: str
    scalar_hint: str
    reverse: str
    reverse_hint: str


ARITHMETIC = {
    "add": Sign("elemwise_add", "_plus", "_plus_scalar", "_plusscalar", "_plus_scalar", "_plusscalar"),
    "sub": Sign("elemwise_sub", "_minus", "_minus_scalar", "_minusscalar", "_rminus_scalar", "_rminusscalar"),
    "mul": Sign("elemwise_mul", "_mul", "_mul_scalar", "_mulscalar", "_mul_scalar", "_mulscalar"),
    "div": Sign("elemwise_div", "_div", "_div_scalar", "_divscalar", "_rdiv_scalar", "_rdivscalar"),
    "mod": Sign("_mod", "_mod", "_mod_scalar", "_modscalar", "_rmod_scalar", "_rmodscalar"),
    "power": Sign("_power", "_power", "_power_scalar", "_powerscalar", "_rpower_scalar", "_rpower_scalar"),
    "maximum": Sign("_maximum", "_maximum", "_maximum_scalar", "_maximumscalar", "_maximum_scalar", "_maximumscalar"),
    "minimum": Sign("_minimum", "_minimum", "_minimum_scalar", "_minimumscalar", "_minimum_scalar", "_minimumscalar"),
    "hypot": Sign("_hypot", "_hypot", "_hypot_scalar", "_hypotscalar", "_hypot_scalar", "_hypotscalar"),
    # A comparison with the number on the left arrives mirrored: Python turns 2 > x into x < 2.
    **{
        name: Sign(f"_{name}", f"_{name}", f"_{name}_scalar", f"_{name}_scalar", "", "")
        for name in ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal")
    },
}
"""Operators by the broadcasting name without `broadcast_`."""


class SignMethods:
    """Python's operators, as methods that call `_arithmetic(what, other, numbers, reverse)`.

    `numbers` are the accepted types of a number operand (MXNet's comparisons accept fewer); `reverse` means
    `other <what> self`.
    """

    __slots__ = ()

    def _arithmetic(self, what: str, other: Any, numbers: Any = Number, reverse: bool = False) -> Any:
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        return self._arithmetic("add", other)

    def __radd__(self, other: Any) -> Any:
        return self._arithmetic("add", other)

    def __sub__(self, other: Any) -> Any:
        return self._arithmetic("sub", other)

    def __rsub__(self, other: Any) -> Any:
        return self._arithmetic("sub", other, reverse=True)

    def __mul__(self, other: Any) -> Any:
        return self._arithmetic("mul", other)

    def __rmul__(self, other: Any) -> Any:
        return self._arithmetic("mul", other)

    def __truediv__(self, other: Any) -> Any:
        return self._arithmetic("div", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._arithmetic("div", other, reverse=True)

    __div__, __rdiv__ = __truediv__, __rtruediv__

    def __mod__(self, other: Any) -> Any:
        return self._arithmetic("mod", other)

    def __rmod__(self, other: Any) -> Any:
        return self._arithmetic("mod", other, reverse=True)

    def __pow__(self, other: Any) -> Any:
        return self._arithmetic("power", other)

    def __rpow__(self, other: Any) -> Any:
        return self._arithmetic("power", other, reverse=True)

    def __neg__(self) -> Any:
        return self._arithmetic("mul", -1.0)

    def __abs__(self) -> Any:
        return self.abs()  # type: ignore[attr-defined]

    def __eq__(self, other: Any) -> Any:  # type: ignore[override]
        return self._arithmetic("equal", other, numeric_types)

    def __ne__(self, other: Any) -> Any:  # type: ignore[override]
        return self._arithmetic("not_equal", other, numeric_types)

    def __gt__(self, other: Any) -> Any:
        return self._arithmetic("greater", other, numeric_types)

    def __ge__(self, other: Any) -> Any:
        return self._arithmetic("greater_equal", other, numeric_types)

    def __lt__(self, other: Any) -> Any:
        return self._arithmetic("lesser", other, numeric_types)

    def __le__(self, other: Any) -> Any:
        return self._arithmetic("lesser_equal", other, numeric_types)
