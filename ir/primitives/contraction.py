"""`dot_general`: products of tensors summed over chosen axes, with batch axes; covers every matmul.

Float16 and bfloat16 are summed in float32 and rounded once; integers wrap. The result may have a wider `dtype` than the
operands, which are converted to it before they are multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gluonjit.ir.opdef import REQUIRED, primitive
from gluonjit.ir.primitives.checks import NUMERIC, check_axes, check_kind, check_same_dtype
from gluonjit.ir.primitives.reduction import sums_of
from gluonjit.ir.types import DType, IRError, TensorType, dtype_of

if TYPE_CHECKING:
    from gluonjit.ir.graph import Emitter


Index = Any
AxisPair = Sequence[Sequence[int]]


def _pair(name: str, value: Any, a: TensorType, b: TensorType) -> None:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise IRError(f"{name} must be a pair (axes of a, axes of b), got {value!r}")
    check_axes(f"{name}[0]", value[0], a)
    check_axes(f"{name}[1]", value[1], b)
    if len(value[0]) != len(value[1]):
        raise IRError(f"{name} = {value} pairs {len(value[0])} axes with {len(value[1])}")
    for i, j in zip(*value):
        if a.shape[i] != b.shape[j]:
            raise IRError(f"{name} pairs axis {i} of {a} with axis {j} of {b}: {a.shape[i]} is not {b.shape[j]}")


def free_axes(rank: int, contract: Sequence[int], batch: Sequence[int]) -> tuple[int, ...]:
    """The axes of an operand that are neither summed over nor batch axes."""
    return tuple(k for k in range(rank) if k not in contract and k not in batch)


def _infer(a: TensorType, b: TensorType, contract: Any, batch: Any, dtype: DType | None) -> TensorType:
    check_same_dtype(a, b)
    check_kind(a, NUMERIC)
    _pair("contract", contract, a, b)
    _pair("batch", batch, a, b)
    for x, side in ((a, 0), (b, 1)):
        if set(contract[side]) & set(batch[side]):
            raise IRError(f"an axis of {x} is both summed over and a batch axis")
    return TensorType(sums_of(a.dtype, dtype)[1], _plan(a.shape, b.shape, _tuples(contract), _tuples(batch))[-1])


def _tuples(pair: AxisPair) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(pair[0]), tuple(pair[1])


@lru_cache(maxsize=4096)
def _plan(a: tuple[int, ...], b: tuple[int, ...], contract: Any, batch: Any) -> tuple[Any, ...]:
    """How to compute it as a batched matrix product: (permutation and shape of a, of b, result shape)."""
    free_a, free_b = free_axes(len(a), contract[0], batch[0]), free_axes(len(b), contract[1], batch[1])
    batch_shape = tuple(a[k] for k in batch[0])
    rows, columns = math.prod(a[k] for k in free_a), math.prod(b[k] for k in free_b)
    terms = math.prod(a[k] for k in contract[0])
    lead = (math.prod(batch_shape),) if batch_shape else ()
    return (
        (*batch[0], *free_a, *contract[0]),
        (*lead, rows, terms),
        (*batch[1], *contract[1], *free_b),
        (*lead, terms, columns),
        (*batch_shape, *(a[k] for k in free_a), *(b[k] for k in free_b)),
    )


def _eval(a: np.ndarray, b: np.ndarray, contract: AxisPair, batch: AxisPair, dtype: DType | None) -> np.ndarray:
    if a.dtype != b.dtype:
        raise TypeError(f"product of {a.dtype} and {b.dtype}")
    own = dtype_of(a)
    wide, dtype = sums_of(own, dtype)
    if wide is not own:
        a, b = a.astype(wide.numpy), b.astype(wide.numpy)
    if a.ndim == 2 and b.ndim == 2 and len(contract[0]) == 1 and not batch[0]:
        y = np.matmul(a if contract[0][0] == 1 else a.T, b if contract[1][0] == 0 else b.T)
    else:
        perm_a, shape_a, perm_b, shape_b, shape = _plan(a.shape, b.shape, _tuples(contract), _tuples(batch))
        y = np.matmul(a.transpose(perm_a).reshape(shape_a), b.transpose(perm_b).reshape(shape_b)).reshape(shape)
    return y if wide is dtype else y.astype(dtype.numpy)


def _quick(a: TensorType, b: TensorType, contract: AxisPair, batch: AxisPair, dtype: DType | None) -> Any:
    if a.dtype.bits == 16 or dtype is not None or a.rank != 2 or b.rank != 2 or len(contract[0]) != 1 or batch[0]:
        return None
    turned_a, turned_b = contract[0][0] != 1, contract[1][0] != 0
    if turned_a:
        return (lambda a, b: np.matmul(a.T, b.T)) if turned_b else lambda a, b: np.matmul(a.T, b)
    return (lambda a, b: np.matmul(a, b.T)) if turned_b else np.matmul


def _element(s: Any, i: Index, a: Any, b: Any, contract: AxisPair, batch: AxisPair, dtype: DType | None) -> Any:
    own = a.type.dtype
    wide, dtype = sums_of(own, dtype)
    free_a = free_axes(a.type.rank, contract[0], batch[0])
    free_b = free_axes(b.type.rank, contract[1], batch[1])
    batches = len(batch[0])

    def operand(x: Any, side: int, free: Sequence[int], first: int, k: Index) -> Any:
        at: list[Any] = [None] * x.type.rank
        for axis, index in (*zip(batch[side], i), *zip(free, i[first:]), *zip(contract[side], k)):
            at[axis] = index
        value = x(tuple(at))
        return value if wide is own else s.cast(value, wide)

    def term(k: Index) -> Any:
        left = operand(a, 0, free_a, batches, k)
        return s.mul(left, operand(b, 1, free_b, batches + len(free_a), k))

    extents = tuple(a.type.shape[axis] for axis in contract[0])
    total = s.reduce("sum", extents, term, wide)
    return total if wide is dtype else s.cast(total, dtype)


def _vjp(
    b: Emitter, g: Any, y: Any, x: Any, w: Any, contract: AxisPair, batch: AxisPair, dtype: DType | None
) -> tuple[Any, Any]:
    """Each operand's cotangent is the product of g with the other operand, summed over the latter's own axes."""
    batches = len(batch[0])
    free = [free_axes(len(v.shape), contract[side], batch[side]) for side, v in enumerate((x, w))]
    lead = tuple(range(batches))
    g_free = (
        tuple(range(batches, batches + len(free[0]))),
        tuple(range(batches + len(free[0]), batches + len(free[0]) + len(free[1]))),
    )

    def cotangent(side: int) -> Any:
        other = 1 - side
        operand = (x, w)[other] if dtype is None else b.cast((x, w)[other], dtype=dtype)
        product = b.dot_general(
            g, operand, contract=(g_free[other], tuple(free[other])), batch=(lead, tuple(batch[other]))
        )
        # Its axes: the batch, this operand's own, then the contracted ones in the order of the other operand's axes.
        partner = dict(zip(contract[other], contract[side], strict=True))
        order = (*batch[side], *free[side], *(partner[k] for k in sorted(contract[other])))
        product = b.transpose(product, perm=tuple(order.index(k) for k in range(len(order))))
        return product if dtype is None else b.cast(product, dtype=dtype_of(x))

    return cotangent(0), cotangent(1)


primitive(
    "dot_general",
    infer=_infer,
    eval=_eval,
    quick=_quick,
    element=_element,
    attrs={"contract": REQUIRED, "batch": ((), ()), "dtype": None},
    accumulates="contraction",
    vjp=_vjp,
    doc="sum over the axes paired by contract; result axes are the batch pairs, then a's other axes, then b's",
)
