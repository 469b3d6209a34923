"""`_histogram`: counts the elements between edges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F64, I64
from gluonjit.operators.attributes import integer, numbers, optional
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import check_table, require_numeric, require_same_dtype


def _inputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    return ("data", "bins") if attrs["bin_cnt"] is None else ("data",)


def _even_edges(count: int, low: float, high: float) -> np.ndarray:
    check_table(count)
    k = np.arange(count + 1, dtype=np.float64)
    return (high * k + low * (count - k)) / count


def _even_bin(b: Emitter, x: Any, edges: Any, count: int, low: float, high: float) -> tuple[Any, Any]:
    """The bin of each element of `x`, among `count` bins of the same width, and whether it is in the range at all.

    A quotient gives the bin; comparisons with the rounded edges correct it by one where necessary.
    """
    wide = b.cast(x, dtype=F64)
    inside = (wide >= low) & (wide <= high)
    place = (wide - low) * count / (high - low)
    place = b.select(inside, b.minimum(b.trunc(place), b.constant(count - 1, F64)), b.constant(0, F64))
    index = b.cast(place, dtype=I64)
    one, end = b.constant(1, I64), b.constant(count - 1, I64)

    def edge(of: Any) -> Any:
        return b.gather(edges, of, axis=0)

    index = index - b.cast(x < edge(index), dtype=I64)
    above = (x >= edge(index + one)) & b.ne(index, end)
    return index + b.cast(above, dtype=I64), inside


def bin_of(b: Emitter, x: Any, edges: Any) -> tuple[Any, Any]:
    """The bin of each element of `x`, by bisection of the edges, and whether it is in the range at all."""
    count = edges.shape[0]
    below = b.constant(0, I64)
    for bit in reversed(range(count.bit_length())):
        step = below + (1 << bit)
        within = step <= count
        at = b.minimum(step, b.constant(count, I64)) - 1
        reached = within & (b.gather(edges, at, axis=0) <= x)
        below = b.select(reached, step, below)
    index = b.minimum(below - 1, b.constant(count - 2, I64))
    first, last = (b.slice(edges, start=(k,), size=(1,)) for k in (0, count - 1))
    return index, (x >= first) & (x <= last)


@operator(
    "_histogram",
    inputs=_inputs,
    attrs={
        "bin_cnt": optional(integer(doc="number of equal bins, instead of the input `bins`"), None),
        "range": optional(numbers(doc="(low, high) of equal bins"), None),
    },
    outputs=lambda attrs: ("output0", "output1"),
)
def histogram(
    b: Emitter, data: Any, bins: Any = None, *, bin_cnt: int | None, range: tuple[float, ...] | None
) -> tuple[Any, Any]:
    """The number of elements in each bin, and the bins' edges; the last bin includes its upper edge

    Shapes: data (any), bins (n + 1,), only without `bin_cnt` -> (n,) and (n + 1,)

    The counts are int64. MXNetError unless `bin_cnt` and `range` are given together.

    >>> counts, edges = mx.nd.histogram(mx.nd.array([0, 1, 1, 4]), bins=2, range=(0, 4))
    >>> counts.asnumpy().tolist(), edges.asnumpy().tolist()
    ([3, 1], [0.0, 2.0, 4.0])
    """
    own = require_numeric("_histogram", data)
    if (bin_cnt is None) != (range is None):
        raise OperatorError("cnt and range should both or neither specified")
    x = b.reshape(data, shape=(math.prod(data.shape),))
    if bin_cnt is not None and range is not None:
        if bin_cnt < 1 or len(range) != 2 or not range[0] <= range[1]:
            raise OperatorError(f"histogram needs bin_cnt >= 1 and range = (low, high); got {bin_cnt} and {range}")
        low, high = range if range[0] < range[1] else (range[0] - 0.5, range[1] + 0.5)
        edges = b.constant(_even_edges(bin_cnt, low, high).astype(own.numpy))
        index, inside = _even_bin(b, x, edges, bin_cnt, low, high)
    else:
        require_same_dtype(data, bins)
        if len(bins.shape) != 1 or bins.shape[0] < 2:
            raise OperatorError(f"bins argument should be an 1D vector, number of bounds should be >= 2: {bins.shape}")
        edges = bins
        index, inside = bin_of(b, x, edges)
    size = x.shape[0]
    index = b.select(inside, index, b.constant(-1, I64))
    none = b.broadcast(b.constant(0, I64), shape=(edges.shape[0] - 1,))
    ones = b.broadcast(b.constant(1, I64), shape=(size,))
    return b.scatter_add(none, b.reshape(index, shape=(1, size)), ones), edges
