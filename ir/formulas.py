"""Formulas: values with Python's operators, so that what is emitted reads as it is written in papers.

    def vjp(b, g, y, x, by):
        return g / by, -(g * y / by)

`g / by` is `b.div(g, by)` on the emitter that made them. A Python number beside a value is a constant of the value's
element type: `1 - x` is `b.sub(b.constant(1, x.dtype), x)`. What has no operator stays a method: `b.exp(x)`,
`b.select(x > 0, g, zero)`, `b.eq(x, y)` (values are compared by identity, as keys of dictionaries), `b.maximum`.

The same formula runs over two emitters (`ir.graph.Emitter`), and has to mean the same:

* Over a `Builder`, values are `ir.graph.Value`s: a `Formula` whose operators emit the primitive, through the builder
  that the value belongs to.
* Over `runtime.eager.Eager`, values are ndarrays, with NumPy's own operators: nothing is wrapped, so that they cost
  less than the method would. That is exact because NumPy computes a ufunc of operands of one element type as our
  primitive does, and takes a Python number as one of the array's type. Where it does not, `eager.Exact` hands out
  arrays with operators of ours: for bfloat16, which NumPy widens beside Python's floats, and for all types with NumPy
  1, which widens 0-d arrays beside numbers.

`Value` is the strict one of the two. It refuses whatever means something else on ndarrays, and as each operator's
samples are also expanded over a `Builder`, tests find it:

* `/` on integers (NumPy gives floats; `b.div` truncates), and `+`, `-`, `*` of bools;
* a fraction beside integers, a bool or an array of NumPy beside anything: what is not an int or a float is made a
  constant by `b.constant(x, dtype)`;
* operands of two element types, which no primitive takes;
* `x += y`, which would write into the array that `x` is, even if it is the user's;
* `if x > y:` and `and`, `or`, `not`, `max`, which ask for a truth that a graph does not know. Both conditions: `&`.

Arithmetic among numbers alone is Python's: `x * (1 / n)` has one constant.
"""

from __future__ import annotations

from typing import Any


class Formula:
    """Something with operators, each of which is the primitive of that name: `_emit(name, left, right)`, `_emit(name,
    operand)`. One operand of two may be a Python number."""

    __slots__ = ()

    def _emit(self, name: str, *operands: Any) -> Any:
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        return self._emit("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._emit("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._emit("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._emit("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._emit("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._emit("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._emit("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._emit("div", other, self)

    def __neg__(self) -> Any:
        return self._emit("neg", self)

    def __abs__(self) -> Any:
        return self._emit("abs", self)

    def __lt__(self, other: Any) -> Any:
        return self._emit("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return self._emit("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return self._emit("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return self._emit("ge", self, other)

    def __and__(self, other: Any) -> Any:
        return self._emit("and", self, other)

    def __or__(self, other: Any) -> Any:
        return self._emit("or", self, other)

    def __xor__(self, other: Any) -> Any:
        return self._emit("xor", self, other)

    def __invert__(self) -> Any:
        return self._emit("not", self)
