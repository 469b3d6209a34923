"""Attention operators of transformers, on sequences in the layout (length, batch, channels).

Channels are ordered by head; within a head, its queries, keys and values follow each other.
"""

from __future__ import annotations

import math
from typing import Any

from gluonjit.ir.dims import Dim
from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import F64, dtype_of
from gluonjit.operators.attributes import integer
from gluonjit.operators.registry import OperatorError, operator
from gluonjit.operators.support import (
    convert,
    fractional,
    require_float,
    require_numeric,
    require_same_dtype,
    require_shape,
    scalar,
    shape_text,
)

_HEADS = {"heads": integer(low=1, doc="number of heads")}


@operator("_contrib_div_sqrt_dim")
def div_sqrt_dim(b: Emitter, data: Any) -> Any:
    """The data divided by the square root of the length of its last axis

    Shapes: data (…, n) -> the same

    It scales attention scores (Vaswani et al., 2017).

    >>> mx.nd.contrib.div_sqrt_dim(mx.nd.array([[2, 4, 6, 8]])).asnumpy()
    array([[1., 2., 3., 4.]], dtype=float32)
    """
    own = require_numeric("_contrib_div_sqrt_dim", data)
    if not data.shape:
        raise OperatorError("div_sqrt_dim needs an array of at least one axis")
    x, n = fractional(b, data), data.shape[-1]
    if isinstance(n, Dim):
        root = b.sqrt(b.constant(n, F64))
        root = b.cast(root if own.is_float else b.trunc(root), dtype=dtype_of(x))
    else:
        root = scalar(b, math.sqrt(n) if own.is_float else math.isqrt(n), dtype_of(x))
    return convert(b, x / root, own)


def _head_dim(x: Any, heads: int, parts: int) -> int:
    if len(x.shape) != 3 or x.shape[2] % (heads * parts):
        raise OperatorError(
            f"Input should be 3D in sequence-batch-proj, with a last dimension that {heads} heads of {parts} part(s) "
            f"divide, but got {shape_text(x.shape)}"
        )
    return x.shape[2] // (heads * parts)


def _projection(b: Emitter, x: Any, heads: int, parts: int, which: int) -> Any:
    """Part number `which` of `parts` in each head of `x`, as [batch * heads, length, head_dim]."""
    dim = _head_dim(x, heads, parts)
    length, batch = x.shape[:2]
    if parts > 1:
        split = b.reshape(x, shape=(length, batch, heads, parts, dim))
        x = b.slice(split, start=(0, 0, 0, which, 0), size=(length, batch, heads, 1, dim))
    x = b.transpose(b.reshape(x, shape=(length, batch, heads, dim)), perm=(1, 2, 0, 3))
    return b.reshape(x, shape=(batch * heads, length, dim))


def _scores(b: Emitter, queries: Any, keys: Any) -> Any:
    """Products of the scaled queries with the keys: [batch * heads, queries, keys]."""
    return b.dot_general(div_sqrt_dim.expand(b, queries), keys, contract=((2,), (2,)), batch=((0,), (0,)))


def _attended(b: Emitter, attention: Any, values: Any, heads: int) -> Any:
    """Sums of the values weighted by the attention, with concatenated heads: [queries, batch, heads * head_dim]."""
    require_same_dtype(attention, values)
    lines, length, dim = values.shape
    if len(attention.shape) != 3:
        raise OperatorError(f"attention should be 3D, but got {shape_text(attention.shape)}")
    queries = attention.shape[1]
    require_shape(attention, (lines, queries, length), "attention")
    y = b.dot_general(attention, values, contract=((2,), (1,)), batch=((0,), (0,)))
    y = b.transpose(b.reshape(y, shape=(lines // heads, heads, queries, dim)), perm=(2, 0, 1, 3))
    return b.reshape(y, shape=(queries, lines // heads, heads * dim))


@operator("_contrib_interleaved_matmul_selfatt_qk", inputs=("queries_keys_values",), attrs=_HEADS)
def selfatt_qk(b: Emitter, queries_keys_values: Any, *, heads: int) -> Any:
    """Attention scores of self-attention: q kᵀ / sqrt(head_dim) for each head

    Shapes: queries_keys_values (length, batch, heads * 3 * head_dim) -> (batch * heads, length, length)

    >>> mx.nd.contrib.interleaved_matmul_selfatt_qk(mx.nd.array([[[1, 2, 0]], [[3, 4, 0]]]), heads=1).asnumpy()
    array([[[ 2.,  4.],
            [ 6., 12.]]], dtype=float32)
    """
    require_float(queries_keys_values)
    queries, keys = (_projection(b, queries_keys_values, heads, 3, k) for k in (0, 1))
    return _scores(b, queries, keys)


@operator("_contrib_interleaved_matmul_selfatt_valatt", inputs=("queries_keys_values", "attention"), attrs=_HEADS)
def selfatt_valatt(b: Emitter, queries_keys_values: Any, attention: Any, *, heads: int) -> Any:
    """The sum of the values of self-attention, weighted by the attention, for each head

    Shapes: queries_keys_values (length, batch, heads * 3 * head_dim), attention (batch * heads, length, length) ->
    (length, batch, heads * head_dim)

    >>> values = mx.nd.array([[[0, 0, 10]], [[0, 0, 20]]])
    >>> attention = mx.nd.array([[[1, 0], [0.5, 0.5]]])
    >>> mx.nd.contrib.interleaved_matmul_selfatt_valatt(values, attention, heads=1).asnumpy().ravel()
    array([10., 15.], dtype=float32)
    """
    return _attended(b, attention, _projection(b, queries_keys_values, heads, 3, 2), heads)


@operator("_contrib_interleaved_matmul_encdec_qk", inputs=("queries", "keys_values"), attrs=_HEADS)
def encdec_qk(b: Emitter, queries: Any, keys_values: Any, *, heads: int) -> Any:
    """Attention scores of a decoder's queries and an encoder's keys: q kᵀ / sqrt(head_dim) for each head

    Shapes: queries (n, batch, heads * head_dim), keys_values (m, batch, heads * 2 * head_dim) -> (batch * heads, n, m)

    >>> queries, keys_values = mx.nd.array([[[1]]]), mx.nd.array([[[2, 0]], [[3, 0]]])
    >>> mx.nd.contrib.interleaved_matmul_encdec_qk(queries, keys_values, heads=1).asnumpy()
    array([[[2., 3.]]], dtype=float32)
    """
    require_float(queries)
    require_same_dtype(queries, keys_values)
    q, k = _projection(b, queries, heads, 1, 0), _projection(b, keys_values, heads, 2, 0)
    require_shape(k, (q.shape[0], k.shape[1], q.shape[2]), "keys_values, head by head,")
    return _scores(b, q, k)


@operator("_contrib_interleaved_matmul_encdec_valatt", inputs=("keys_values", "attention"), attrs=_HEADS)
def encdec_valatt(b: Emitter, keys_values: Any, attention: Any, *, heads: int) -> Any:
    """The sum of an encoder's values, weighted by the attention, for each head

    Shapes: keys_values (m, batch, heads * 2 * head_dim), attention (batch * heads, n, m) -> (n, batch, heads *
    head_dim)

    >>> keys_values, attention = mx.nd.array([[[0, 10]], [[0, 20]]]), mx.nd.array([[[0.5, 0.5]]])
    >>> mx.nd.contrib.interleaved_matmul_encdec_valatt(keys_values, attention, heads=1).asnumpy()
    array([[[15.]]], dtype=float32)
    """
    return _attended(b, attention, _projection(b, keys_values, heads, 2, 1), heads)
