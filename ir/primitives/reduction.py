"""Primitives that combine the elements along axes. Float16 and bfloat16 are combined in float32 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gluonjit.ir.opdef import NO_GRADIENT, REQUIRED, primitive
from gluonjit.ir.primitives.checks import FLOAT, NUMERIC, check_axes, check_axis, check_bool, check_choice, check_kind
from gluonjit.ir.types import F32, F64, I64, DType, IRError, TensorType, dtype_of

if TYPE_CHECKING:
    from gluonjit.ir.graph import Emitter


Index = Any

_UFUNCS = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}


def accumulator(dtype: DType) -> DType:
    """The type in which values of `dtype` are summed."""
    return F32 if dtype.is_float and dtype.bits == 16 else dtype


def sums_of(dtype: DType, given: DType | None) -> tuple[DType, DType]:
    """The types in which products of `dtype` are summed, and that the sums have in the end: `given`, if that is not
    None. Raises IRError if it would have less room."""
    if given is None:
        return accumulator(dtype), dtype
    if given.kind != dtype.kind or given.bits < dtype.bits:
        raise IRError(f"sums of products of {dtype} cannot be {given}")
    return accumulator(given), given


def _accumulator_of(op: str, dtype: DType) -> DType:
    """The type in which a reduction goes on. Up to 2**29 equal floats of 32 bits have an exact sum in float64; so their
    mean is that number, which a float32 sum, rounded after every step, does not give."""
    if op == "mean":
        return F64
    return accumulator(dtype) if op in ("sum", "prod") else dtype


def identity(op: str, dtype: DType) -> float | int | bool:
    """The result of a reduction over no elements."""
    if op in ("max", "min"):
        if dtype.is_float:
            return -np.inf if op == "max" else np.inf
        info = np.iinfo(dtype.numpy)
        return int(info.min if op == "max" else info.max)
    return {"sum": 0, "prod": 1, "any": False, "all": True}[op]


def _infer_reduce(x: TensorType, op: Any, axes: Any) -> TensorType:
    check_choice("op", op, (*_UFUNCS, "mean"))
    check_axes("axes", axes, x)
    if op == "mean":
        check_kind(x, FLOAT)
    elif op in ("any", "all"):
        check_bool(x, f"the operand of {op}")
    else:
        check_kind(x, NUMERIC)
    return x.with_shape(tuple(n for axis, n in enumerate(x.shape) if axis not in axes))


_RUN = 512  # terms; longer float64 sums along axes other than the last are split into runs of this length


def _eval_reduce(x: np.ndarray, op: str, axes: Sequence[int]) -> np.ndarray:
    axes = tuple(axes)
    if op == "mean":
        return _eval_mean(x, axes)
    ufunc = _UFUNCS[op]
    kind = x.dtype.kind
    if (kind == "b") != (op in ("any", "all")):
        raise TypeError(f"{op} of {x.dtype}")
    if op in ("max", "min"):
        if kind == "V":
            return np.asarray(_eval_reduce(x.astype(np.float32), op, axes)).astype(x.dtype)
        if x.size == 0:
            start = -np.inf if op == "max" else np.inf
            if kind != "f":
                start = np.iinfo(x.dtype).min if op == "max" else np.iinfo(x.dtype).max
            return np.asarray(ufunc.reduce(x, axes, initial=x.dtype.type(start)))
        return np.asarray(ufunc.reduce(x, axes))
    if kind in "fV":
        if x.dtype.itemsize == 2:
            return summed(ufunc, x.astype(np.float32), axes).astype(x.dtype)
        return summed(ufunc, x, axes)
    return np.asarray(ufunc.reduce(x, axes, dtype=x.dtype))  # NumPy would widen small integers


def _quick_reduce(x: TensorType, op: str, axes: Sequence[int]) -> Any:
    ufunc, dtype = _UFUNCS.get(op), x.dtype
    if ufunc is None or dtype.is_float and dtype.bits == 16 or x.size == 0 or not axes:
        return None
    if op in ("sum", "prod"):
        if not dtype.is_float:
            return partial(ufunc.reduce, axis=tuple(axes), dtype=dtype.numpy)
        if sorted(axes) != [*range(x.rank - len(axes), x.rank)]:
            return None  # `summed` takes several steps
    return partial(ufunc.reduce, axis=tuple(axes))


def summed(ufunc: Any, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """A float sum (product) whose error does not grow with the number of terms.

    NumPy adds pairwise along trailing axes but row by row along others, which loses a digit every hundred rows. So
    each group of adjacent axes is summed by itself, last group first: rows of float32 in float64, as MXNet's
    compensated sums lose nothing either (differences of large sums show it), and long groups of float64 in runs.
    """
    if len(axes) == x.ndim:
        return np.asarray(ufunc.reduce(x, axes))
    left = sorted(axes)
    while left:
        last = first = left.pop()
        while left and left[-1] == first - 1:
            first = left.pop()
        if last == x.ndim - 1:
            x = ufunc.reduce(x, tuple(range(first, last + 1)))
            continue
        if x.dtype == np.float32:
            x = ufunc.reduce(x, tuple(range(first, last + 1)), dtype=np.float64).astype(np.float32)
            continue
        x = x.reshape(*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :])
        while x.shape[first] > _RUN:
            whole = x.shape[first] // _RUN * _RUN
            head, tail = np.split(x, [whole], first)
            runs = ufunc.reduce(head.reshape(*x.shape[:first], -1, _RUN, *x.shape[first + 1 :]), first + 1)
            x = np.concatenate([runs, ufunc.reduce(tail, first, keepdims=True)], first)
        x = ufunc.reduce(x, first)
    return x


def _eval_mean(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    if x.dtype.kind == "V":
        return _eval_mean(x.astype(np.float32), axes).astype(x.dtype)
    if x.dtype == np.float64:
        total = summed(np.add, x, axes)
    else:
        total = np.add.reduce(x, axes, dtype=np.float64)  # converts piece by piece, without a copy of x
    with np.errstate(invalid="ignore"):
        return np.asarray(total / math.prod(x.shape[axis] for axis in axes)).astype(x.dtype)


def _element_reduce(s: Any, i: Index, x: Any, op: str, axes: Sequence[int]) -> Any:
    shape, dtype = x.type.shape, x.type.dtype
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    order = sorted(axes)
    wide = _accumulator_of(op, dtype)
    extents = tuple(shape[axis] for axis in order)

    def term(k: Index) -> Any:
        at: list[Any] = [None] * len(shape)
        for axis, index in (*zip(kept, i), *zip(order, k)):
            at[axis] = index
        value = x(tuple(at))
        return value if wide is dtype else s.cast(value, wide)

    total = s.reduce("sum" if op == "mean" else op, extents, term, wide)
    if op == "mean":
        total = s.div(total, s.cast(s.index_value(math.prod(extents), I64), wide))
    return total if wide is dtype else s.cast(total, dtype)


def _infer_arg_reduce(x: TensorType, op: Any, axis: Any) -> TensorType:
    check_choice("op", op, ("argmax", "argmin"))
    check_axis(axis, x)
    check_kind(x, NUMERIC)
    if x.shape[axis] == 0:
        raise IRError(f"{op} along axis {axis} of {x} has no elements to choose from")
    return TensorType(I64, x.shape[:axis] + x.shape[axis + 1 :])


def _eval_arg_reduce(x: np.ndarray, op: str, axis: int) -> np.ndarray:
    key = x.astype(np.float32) if x.dtype.kind == "V" else x
    return np.asarray(key.argmax(axis) if op == "argmax" else key.argmin(axis), np.int64)


def _element_arg_reduce(s: Any, i: Index, x: Any, op: str, axis: int) -> Any:
    return s.reduce(op, (x.type.shape[axis],), lambda k: x((*i[:axis], k[0], *i[axis:])), x.type.dtype)


def _infer_cumsum(x: TensorType, axis: Any) -> TensorType:
    check_axis(axis, x)
    check_kind(x, NUMERIC)
    return x


def _eval_cumsum(x: np.ndarray, axis: int) -> np.ndarray:
    wide = x.astype(np.float32) if x.dtype.kind in "fV" and x.dtype.itemsize == 2 else x
    return np.add.accumulate(wide, axis, dtype=wide.dtype).astype(x.dtype, copy=False)


def _vjp_reduce(b: Emitter, g: Any, y: Any, x: Any, op: str, axes: Sequence[int]) -> Any:
    if op in ("any", "all"):
        return None
    kept = tuple(axis for axis in range(len(x.shape)) if axis not in axes)

    def spread(value: Any) -> Any:
        return b.broadcast(value, shape=x.shape, dims=kept)

    if op == "sum":
        return spread(g)
    if op == "mean":
        return spread(g / math.prod(x.shape[axis] for axis in axes))
    if op == "prod":
        return spread(g) * _products_of_others(b, x, axes)
    # Every maximum gets the whole cotangent, as in MXNet.
    return b.select(b.eq(x, spread(y)), spread(g), b.constant(0, dtype_of(g)))


def _products_of_others(b: Emitter, x: Any, axes: Sequence[int]) -> Any:
    """The product of all other elements that `x` is multiplied with over `axes`: right at zeros, where y / x is not.

    Prefix and suffix products in log2(n) steps of doubled distance (Hillis and Steele, "Data parallel algorithms",
    CACM 1986).
    """
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    perm = (*kept, *sorted(axes))
    n = math.prod(x.shape[axis] for axis in axes)
    lead = tuple(x.shape[axis] for axis in kept)
    if not n:
        return x
    rows = b.reshape(b.transpose(x, perm=perm), shape=(*lead, n))
    one = b.constant(1, dtype_of(x))
    none = (0,) * len(lead)

    def shifted(row: Any, low: int, high: int) -> Any:
        """The row moved by `low` to the right, or `high` to the left; ones come in."""
        part = b.slice(row, start=(*none, high), size=(*lead, n - low - high))
        return b.pad(part, one, low=(*none, low), high=(*none, high))

    before, after = shifted(rows, 1, 0), shifted(rows, 0, 1)
    distance = 1
    while distance < n:
        before = before * shifted(before, distance, 0)
        after = after * shifted(after, 0, distance)
        distance *= 2
    others = b.reshape(before * after, shape=tuple(x.shape[axis] for axis in perm))
    return b.transpose(others, perm=tuple(sorted(range(len(perm)), key=lambda k: perm[k])))


def _vjp_cumsum(b: Emitter, g: Any, y: Any, x: Any, axis: int) -> Any:
    return b.reverse(b.cumsum(b.reverse(g, axes=(axis,)), axis=axis), axes=(axis,))


primitive(
    "reduce",
    infer=_infer_reduce,
    eval=_eval_reduce,
    quick=_quick_reduce,
    element=_element_reduce,
    attrs={"op": REQUIRED, "axes": REQUIRED},
    accumulates="reduction",
    vjp=_vjp_reduce,
    doc="sum, mean, prod, max, min, any or all over axes, which are dropped; max and min of NaN are NaN",
)
primitive(
    "arg_reduce",
    infer=_infer_arg_reduce,
    eval=_eval_arg_reduce,
    element=_element_arg_reduce,
    attrs={"op": REQUIRED, "axis": REQUIRED},
    accumulates="reduction",
    vjp=NO_GRADIENT,
    doc="where along an axis the first largest (argmax) or smallest (argmin) element is; NaN counts as either",
)
primitive(
    "cumsum",
    infer=_infer_cumsum,
    eval=_eval_cumsum,
    attrs={"axis": REQUIRED},
    vjp=_vjp_cumsum,
    doc="running sum along an axis; narrow floats are summed in float32 and rounded as they are written",
)
