"""Sorting. Equal elements keep their order; NaN counts as the largest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F32, I64, DType, dtype_of
from gluonjit.operators.attributes import boolean, dtype, enum, integer, optional
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import convert, require_numeric

_AXIS = {"axis": optional(integer(doc="the axis along which to sort; None: the flattened data"), -1)}
_INDEX_TYPE = dtype(
    F32, among=("float16", "float32", "float64", "int32", "int64", "uint8"), doc="the element type of the indices"
)


def _line(b: Emitter, name: str, data: Any, axis: int | None) -> tuple[Any, int]:
    """The data and the axis to sort along; the flattened data if no axis is given."""
    require_numeric(name, data)
    if axis is None:
        return b.reshape(data, shape=(math.prod(data.shape),)), 0
    rank = len(data.shape)
    if not -rank <= axis < rank:
        raise OperatorError(f"Invalid axis! axis should be between 0 and {rank}, found axis={axis}")
    return data, axis % rank


def _sorted(b: Emitter, x: Any, axis: int, descending: bool, count: int = 0, order: bool = True) -> Any:
    """`b.sort` along any axis. Lines are brought together first: the elements of others would lie between those of a
    line, each in a line of the cache of its own."""
    if math.prod(x.shape[axis + 1 :]) == 1:
        return b.sort(x, axis=axis, descending=descending, count=count, order=order)
    rank = len(x.shape)
    perm = (*range(axis), *range(axis + 1, rank), axis)
    back = (*range(axis), rank - 1, *range(axis, rank - 1))
    found = b.sort(b.transpose(x, perm=perm), axis=rank - 1, descending=descending, count=count, order=order)
    return tuple(b.transpose(y, perm=back) for y in found) if order else b.transpose(found, perm=back)


@operator(
    "sort",
    attrs={**_AXIS, "is_ascend": boolean(True, doc="whether the least comes first")},
    outputs=lambda attrs: ("output0", "output1"),
    visible=lambda attrs: 1,
)
def sort(b: Emitter, data: Any, *, axis: int | None, is_ascend: bool) -> Any:
    """Sorts the elements along the axis; without an axis, those of the flattened tensor

    Shapes: data (any) -> the same; a vector if `axis` is None

    >>> mx.nd.sort(mx.nd.array([[3, 1, 2]])).asnumpy()
    array([[1., 2., 3.]], dtype=float32)
    """
    x, axis = _line(b, "sort", data, axis)
    return _sorted(b, x, axis, not is_ascend, order=False)


@operator(
    "argsort", attrs={**_AXIS, "is_ascend": boolean(True, doc="whether the least comes first"), "dtype": _INDEX_TYPE}
)
def argsort(b: Emitter, data: Any, *, axis: int | None, is_ascend: bool, dtype: DType) -> Any:
    """The indices that sort the data along the axis

    Shapes: data (any) -> the same; a vector if `axis` is None

    Equal elements keep their order.

    >>> mx.nd.argsort(mx.nd.array([[3, 1, 2]])).asnumpy()
    array([[1., 2., 0.]], dtype=float32)
    """
    x, axis = _line(b, "argsort", data, axis)
    return convert(b, _sorted(b, x, axis, not is_ascend)[1], dtype)


def _topk_outputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    return ("output0", "output1") if attrs["ret_typ"] in ("both", "value") else ("output",)


@operator(
    "topk",
    attrs={
        **_AXIS,
        "k": integer(1, doc="number of elements; less than 1: all"),
        "ret_typ": enum(("value", "indices", "mask", "both"), "indices", doc="what the result is"),
        "is_ascend": boolean(False, doc="whether to select the smallest elements"),
        "dtype": _INDEX_TYPE,
    },
    outputs=_topk_outputs,
    visible=lambda attrs: 2 if attrs["ret_typ"] == "both" else 1,
)
def topk(b: Emitter, data: Any, *, axis: int | None, k: int, ret_typ: str, is_ascend: bool, dtype: DType) -> Any:
    """The k largest elements along the axis, in order: their values, indices, both, or a mask

    Shapes: data (any) -> the same, with k along `axis`; a mask has data's shape

    MXNetError if there are fewer than k.

    >>> mx.nd.topk(mx.nd.array([[3, 1, 2]]), k=2).asnumpy()
    array([[0., 2.]], dtype=float32)
    >>> mx.nd.topk(mx.nd.array([[3, 1, 2]]), k=2, ret_typ="value").asnumpy()
    array([[3., 2.]], dtype=float32)
    """
    x, axis = _line(b, "topk", data, axis)
    n = x.shape[axis]
    if k > n:
        raise OperatorError(f"k must be smaller than {n}, get k = {k}")
    count = k if k >= 1 else n
    wanted = 0 if count == n else count
    if ret_typ == "value":
        return _sorted(b, x, axis, not is_ascend, wanted, order=False)
    values, positions = _sorted(b, x, axis, not is_ascend, wanted)
    if ret_typ == "mask":
        # A matrix whose columns are lines.
        lines = math.prod(x.shape[:axis]) * math.prod(x.shape[axis + 1 :])
        rows = b.reshape(b.transpose(positions, perm=_last(axis, len(x.shape))), shape=(lines, count))
        line = b.broadcast(b.iota(shape=(lines, 1), axis=0, dtype=I64), shape=(lines, count))
        at = b.concat(*(b.reshape(v, shape=(1, lines, count)) for v in (line, rows)), axis=0)
        own = dtype_of(data)
        none, ones = (b.broadcast(b.constant(v, own), shape=s) for v, s in ((0, (lines, n)), (1, (lines, count))))
        mask = b.reshape(b.scatter_add(none, at, ones), shape=_moved(x.shape, axis))
        perm = _last(axis, len(x.shape))
        mask = b.transpose(mask, perm=tuple(sorted(range(len(perm)), key=perm.__getitem__)))
        return b.reshape(mask, shape=tuple(data.shape))
    positions = convert(b, positions, dtype)
    return positions if ret_typ == "indices" else (values, positions)


def _last(axis: int, rank: int) -> tuple[int, ...]:
    """The permutation that makes an axis the last one."""
    return (*(k for k in range(rank) if k != axis), axis)


def _moved(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(shape[k] for k in _last(axis, len(shape)))
