"""Random integers, multinomial samples and permutations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I32, I64, DType
from gluonjit.operators.attributes import boolean, dtype, integer, optional, shape
from gluonjit.operators.movement.creation import CTX
from gluonjit.operators.registry import OperatorError, Shape, operator
from gluonjit.operators.sampling import random_draws as draws
from gluonjit.operators.sampling.random_ops import required_shape, working_type
from gluonjit.operators.support import convert, require_float, shape_text


def _one_stream(attrs: Mapping[str, Any], training: bool) -> int:
    return 1


@operator(
    "_random_randint",
    aliases=("random_randint",),
    inputs=(),
    attrs={
        "low": integer(doc="the least number"),
        "high": integer(doc="one more than the largest number"),
        "shape": optional(shape(doc="the shape of the result"), None),
        "ctx": CTX,
        "dtype": optional(dtype(among=("int32", "int64"), doc="None is int32")),
    },
    streams=_one_stream,
)
def randint(b: Emitter, *, low: int, high: int, shape: Shape | None, ctx: str, dtype: DType | None) -> Any:
    """Uniformly distributed integers from low to high - 1

    Shapes: no inputs -> `shape`

    >>> x = mx.nd.random.randint(3, 5, shape=(2, 3)).asnumpy()
    >>> x.shape, set(x.ravel().tolist()) <= {3, 4}
    ((2, 3), True)
    """
    if high <= low:
        raise OperatorError(
            "low must be less or equal to high in uniform distribution, and there must be a number between"
        )
    if high - low >= 2**63:
        raise OperatorError(f"randint knows ranges of less than 2**63 numbers, got {low} … {high}")
    # Taking 63 bits modulo the range makes no number more likely by more than range / 2**63.
    bits = b.shift_right(b.random_bits(required_shape(shape, "_random_randint"), I64), b.constant(1, I64))
    y = b.mod(bits, b.constant(high - low, I64)) + low
    return y if dtype is I64 else b.cast(y, dtype=I32)


@operator(
    "_sample_multinomial",
    aliases=("sample_multinomial",),
    attrs={
        "shape": shape((), doc="the shape of the draws from each distribution"),
        "get_prob": boolean(False, doc="whether to give the logarithm of each draw's probability, too"),
        "dtype": dtype(
            I32, among=("float16", "float32", "float64", "int32", "uint8"), doc="the element type of the result"
        ),
    },
    outputs=lambda attrs: ("output0", "output1") if attrs["get_prob"] else ("output",),
    streams=_one_stream,
)
def multinomial(b: Emitter, data: Any, *, shape: Shape, get_prob: bool, dtype: DType) -> Any:
    """Draws indices with the probabilities along the last axis of the data

    Shapes: data (…, n) -> (…, *shape)

    >>> mx.nd.random.multinomial(mx.nd.array([[0, 1], [1, 0]]), shape=3).asnumpy().tolist()
    [[1, 1, 1], [0, 0, 0]]
    """
    own = require_float(data)
    old = tuple(data.shape)
    if not old or old[-1] == 0:
        raise OperatorError(f"multinomial needs probabilities along the last axis, got {shape_text(old)}")
    rows, choices, each = math.prod(old[:-1]), old[-1], math.prod(shape)
    work = working_type(own)
    chances = b.reshape(data if own is work else b.cast(data, dtype=work), shape=(rows, choices))
    u = draws.uniform(b, (rows, each, 1), work)
    below = b.reshape(b.cumsum(chances, axis=1), shape=(rows, 1, choices)) <= u
    index = b.reduce(b.cast(below, dtype=I32), op="sum", axes=(2,))
    index = b.minimum(index, b.constant(choices - 1, I32))  # probabilities whose sum is less than u
    result = old[:-1] + tuple(shape) or (1,)
    drawn = convert(b, b.reshape(index, shape=result), dtype)
    if not get_prob:
        return drawn
    place = (1, rows, each)
    where = b.concat(b.iota(shape=place, axis=1, dtype=I32), b.reshape(index, shape=place), axis=0)
    likelihood = b.log(b.gather_nd(chances, where))
    likelihood = b.reshape(likelihood, shape=result)
    return drawn, likelihood if own is work else b.cast(likelihood, dtype=own)


@operator("_shuffle", aliases=("shuffle",), same_shape=True, streams=_one_stream)
def shuffle(b: Emitter, data: Any) -> Any:
    """Permutes the data randomly along the first axis

    Shapes: data (n, …) -> the same

    >>> np.sort(mx.nd.random.shuffle(mx.nd.array([1, 2, 3])).asnumpy())
    array([1., 2., 3.], dtype=float32)
    """
    if not data.shape:
        raise OperatorError("shuffle needs an array of at least one axis")
    order = b.sort(b.random_bits((data.shape[0],), I64), axis=0)[1]
    return b.gather(data, order, axis=0) if data.shape[0] else data
