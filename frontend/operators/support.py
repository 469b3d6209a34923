"""Helpers of the expansions: MXNet's type conversions, checks with MXNet's error messages, and partial shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter, Value
from gluonjit.ir.types import BF16, BOOL, F16, F32, F64, I32, DType, dtype_of
from gluonjit.operators.registry import OperatorError, Shape

Shapes = list[Shape | None]


# Element types


def type_name(dtype: DType) -> str:
    """MXNet's name of an element type: `float32`."""
    return dtype.numpy.name


def shape_text(shape: Sequence[int]) -> str:
    """A shape as MXNet's messages print it: `[2,3]`."""
    return f"[{','.join(map(str, shape))}]"


def require_float(x: Any) -> DType:
    """The element type of `x`, which must be a float type."""
    dtype = dtype_of(x)
    if not dtype.is_float:
        raise OperatorError(f"This operation only support floating point types, not {type_name(dtype)}")
    return dtype


def require_numeric(operator: str, x: Any) -> DType:
    """The element type of `x`, which must not be bool."""
    dtype = dtype_of(x)
    if dtype is BOOL:
        raise OperatorError(f"Operator {operator} does not support boolean type; cast it first")
    return dtype


def to_one_dtype(first: str, other: str) -> str:
    """How to convert operands of these element types to one: the end of an error message."""
    parameters = f", or a network's parameters with net.cast({first!r})" if "float" in first else ""
    return f"; convert one: data with x.astype({other!r}){parameters}"


def require_same_dtype(*inputs: Any) -> None:
    first = inputs[0].dtype
    for k, x in enumerate(inputs[1:], 1):
        if x.dtype != first:
            expected, got = type_name(dtype_of(inputs[0])), type_name(dtype_of(x))
            hint = to_one_dtype(expected, got)
            raise OperatorError(f"Incompatible attr in node at {k}-th input: expected {expected}, got {got}{hint}")


def require_same_shape(*inputs: Any) -> None:
    first = inputs[0].shape
    for k, x in enumerate(inputs[1:], 1):
        if x.shape != first:
            raise OperatorError(
                f"Incompatible attr in node at {k}-th input: expected {shape_text(first)}, got {shape_text(x.shape)}"
            )


def require_shape(x: Any, shape: Sequence[int], what: str) -> None:
    """`x` must have the shape that the other inputs and the attributes imply for it."""
    if tuple(x.shape) != tuple(shape):
        raise OperatorError(
            f"Shape inconsistent, Provided = {shape_text(x.shape)}, inferred shape={shape_text(shape)} for {what}"
        )


def scalar(b: Emitter, value: Any, dtype: DType) -> Any:
    """`value` as a 0-d constant, converted as in C++: for integer types, truncated toward 0 and then wrapped.

    A 0-d tensor, as `Operator.number` may be, is returned as it is.
    """
    if isinstance(value, Value):
        return value
    if dtype.is_integer:
        whole = 0 if math.isnan(value) else int(min(max(value, -(2.0**63)), 2.0**63 - 1024))
        return b.constant(np.asarray(whole, np.int64).astype(dtype.numpy))
    if abs(value) > 65504 and dtype is F16:  # infinity, without NumPy's warning
        return b.constant(math.copysign(math.inf, value), dtype)
    return b.constant(value, dtype)


def convert(b: Emitter, x: Any, dtype: DType) -> Any:
    """MXNet's cast. From floats to 8-bit integers it goes through int32 and wraps: 300.0 becomes 44 in uint8."""
    if dtype.is_integer and dtype.bits == 8 and dtype_of(x).is_float:
        x = b.cast(x, dtype=I32)
    return b.cast(x, dtype=dtype)


def fractional(b: Emitter, x: Any) -> Any:
    """Converts integers to float32; floats are unchanged."""
    return x if dtype_of(x).is_float else b.cast(x, dtype=F32)


def widened(b: Emitter, x: Any) -> Any:
    """Converts float16 and bfloat16 to float32, for operators of many steps, which should round only once."""
    return b.cast(x, dtype=F32) if dtype_of(x) in (F16, BF16) else x


def narrowed(b: Emitter, x: Any, dtype: DType) -> Any:
    """Converts a result computed on `widened` operands to `dtype`."""
    return x if dtype_of(x) is dtype else b.cast(x, dtype=dtype)


# Tables

MAX_TABLE = 1 << 27
"""The most entries of a table: a GiB of positions."""


def check_table(*extents: int) -> None:
    """Raises OperatorError for a table of more elements than `MAX_TABLE`.

    Call it before making constants whose size comes from an attribute: even shape inference allocates them.
    """
    if math.prod(extents) > MAX_TABLE:
        raise OperatorError(f"a table of {' x '.join(map(str, extents))} positions is too large")


# Axes


def axis_in(axis: int, rank: int, what: str = "axis") -> int:
    """`axis` counted from 0; raises OperatorError if there is no such axis."""
    if not -rank <= axis < rank:
        raise OperatorError(f"{what} {axis} exceeds the input dimension of {rank}")
    return axis % rank


def along(axis: int, rank: int, length: int) -> tuple[int, ...]:
    """The shape that lets a vector of `length` broadcast along `axis` of a tensor of `rank`."""
    return tuple(length if k == axis else 1 for k in range(rank))


def mean(b: Emitter, x: Any, axes: tuple[int, ...]) -> Any:
    """The mean over `axes`, which are dropped; that of equal numbers is that number. Of integers, their sum is divided
    as integers are.

    There is no wider type for float64. So the mean of what a first mean is off is added to it (Chan, Golub and LeVeque,
    "Algorithms for computing the sample variance", 1983), if it is a number: it is none if an element is infinite.
    """
    if not dtype_of(x).is_float:
        count = b.constant(max(math.prod(x.shape[k] for k in axes), 1), dtype_of(x))
        return b.div(b.reduce(x, op="sum", axes=axes), count)
    first = b.reduce(x, op="mean", axes=axes)
    if dtype_of(x) is not F64:
        return first
    keep = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
    rest = b.reduce(x - b.reshape(first, shape=keep), op="mean", axes=axes)
    return first + b.select(b.isfinite(rest), rest, b.constant(0, F64))


def moments(b: Emitter, x: Any, axes: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Mean and (biased) variance over `axes`, which are kept with length 1, and x - mean.

    Two passes: subtracting the mean first keeps the variance accurate when it is small compared with the mean.
    """
    keep = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
    average = b.reshape(mean(b, x, axes), shape=keep)
    centred = x - average
    count = b.constant(max(math.prod(x.shape[k] for k in axes), 1), dtype_of(x))
    variance = b.div(b.reduce(centred * centred, op="sum", axes=axes), count)  # of integers, too
    return average, b.reshape(variance, shape=keep), centred


# Partial shapes (`registry.Shape`), for `complete` and `infer_inputs` rules


def merge(a: Shape | None, b: Shape | None) -> Shape | None:
    """Combines two partial shapes of one tensor; raises OperatorError if they contradict each other."""
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b) or any(p != q and p and q for p, q in zip(a, b)):
        raise OperatorError(f"Shape inconsistent, Provided = {shape_text(a)}, inferred shape={shape_text(b)}")
    return tuple(p or q for p, q in zip(a, b))


def first_from_output(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    """An `infer_inputs` rule: the first input has the first output's shape."""
    return [merge(inputs[0], outputs[0]), *inputs[1:]]


def parameters(rule: Callable[[Mapping[str, Any], Shape], Sequence[Shape | None]]) -> Callable[..., Shapes]:
    """A `complete` rule from `rule(attrs, data_shape)`, which returns the shapes of the inputs after the first.

    `rule` is called once the rank of the data is known; entries of `data_shape` may be 0.
    """

    def complete(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
        data = shapes[0]
        if data is None:
            return shapes
        return [data, *(merge(s, r) for s, r in zip(shapes[1:], rule(attrs, data)))]

    return complete
