"""`random_bits`: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

A counter-based generator: element k of stream t under key (seed, counter) is a pure function of those four numbers,
so any part of a result can be computed alone, on any thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gluonjit.ir.opdef import NO_GRADIENT, REQUIRED, primitive
from gluonjit.ir.primitives.checks import ints
from gluonjit.ir.types import I32, I64, IRError, TensorType
from gluonjit.ir.types import dtype as as_dtype

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the key after each round
ROUNDS = 10
_MASK = 0xFFFFFFFF
_BLOCK = 1 << 13  # elements: the six 64-bit rows of a block stay in the L2 cache


def philox(counter: Sequence[Any], key: tuple[int, int], memory: np.ndarray | None = None) -> list[np.ndarray]:
    """The four 32-bit words (as uint64) of each counter.

    `counter` is four 32-bit words as uint64, single numbers or arrays of one shape (n,); the third is an array.
    `memory`: u64[3, 2, n or more], which is written to, and holds the results.
    """
    # Words 0 and 2, and 1 and 3, are rows of one array: each step of a round is one call of NumPy for both.
    c0, c1, c2, c3 = counter
    even, odd, product = np.empty((3, 2, c2.size), np.uint64) if memory is None else memory[..., : c2.size]
    even[0], even[1], odd[0], odd[1] = c0, c2, c1, c3
    crossed = product[::-1]
    for keys in _round_keys(key):
        np.multiply(even, _FACTORS, out=product)
        np.right_shift(crossed, _HALF, out=even)
        np.bitwise_xor(even, odd, out=even)
        np.bitwise_xor(even, keys, out=even)
        np.bitwise_and(crossed, _LOW, out=odd)
    return [even[0], odd[0], even[1], odd[1]]


@lru_cache(16)
def _round_keys(key: tuple[int, int]) -> np.ndarray:
    """The keys of the rounds, for the rows of `philox`."""
    keys = [[(k + r * w) & _MASK for k, w in zip(key, WEYL)] for r in range(ROUNDS)]
    return np.array(keys, np.uint64).reshape(ROUNDS, 2, 1)


_FACTORS = np.array(MULTIPLIERS, np.uint64).reshape(2, 1)
_LOW, _HALF = np.array(_MASK, np.uint64), np.array(32, np.uint64)


def words_from(key: np.ndarray, start: int, size: int, dtype: Any, stream: int = 0) -> np.ndarray:
    """The elements start … start + size - 1 of a flat `random_bits`."""
    seed, counter = (int(v) & 0xFFFFFFFFFFFFFFFF for v in key)
    counter = (counter + stream) & 0xFFFFFFFFFFFFFFFF
    wide = as_dtype(dtype) is I64
    out = np.empty(size, np.uint64 if wide else np.uint32)
    memory = np.empty((3, 2, min(_BLOCK, size)), np.uint64)  # of all blocks: fresh pages cost as much as the rounds
    for at in range(0, size, _BLOCK):
        index = np.arange(start + at, start + min(at + _BLOCK, size), dtype=np.uint64)
        call = np.uint64(counter & _MASK), np.uint64(counter >> 32)
        first, second, *_ = philox((*call, index & _LOW, index >> _HALF), (seed & _MASK, seed >> 32), memory)
        out[at : at + index.size] = second << _HALF | first if wide else first
    return out.view(as_dtype(dtype).numpy)


def _infer(key: TensorType, shape: Any, dtype: Any, stream: Any) -> TensorType:
    if key not in (TensorType(I64, (2,)), TensorType(I64, (3,))):
        raise IRError(f"the key must be i64[2] (seed, counter) or i64[3] (and the first index), got {key}")
    if as_dtype(dtype) not in (I32, I64):
        raise IRError(f"dtype must be i32 or i64, got {as_dtype(dtype)}; cast the bits")
    if not isinstance(stream, int) or isinstance(stream, bool) or stream < 0:
        raise IRError(f"stream must be an int >= 0, got {stream!r}")
    return TensorType(as_dtype(dtype), ints("shape", shape, low=0))


def _eval(key: np.ndarray, shape: Sequence[int], dtype: Any, stream: int) -> np.ndarray:
    start = int(key[2]) if key.size == 3 else 0
    return words_from(key[:2], start, math.prod(shape), dtype, stream).reshape(shape)


draw: Callable[..., np.ndarray] = words_from
"""What draws words where a graph is run again and again, given key, start, size and type. The runtime sets what is
faster for many of them, and has the same bits (`runtime/random_words.py`)."""


def _quick(key: TensorType, shape: Sequence[int], dtype: Any, stream: int) -> Callable[..., np.ndarray] | None:
    if key.shape != (2,):
        return None
    size, of, kind, step = math.prod(shape), tuple(shape), as_dtype(dtype), np.array((0, stream), np.int64)
    return lambda key: draw(key + step, 0, size, kind).reshape(of)


def word(s: Any, index: Any, seed: Any, call: Any, dtype: Any) -> Any:
    """The element at the flat `index`, with `call` as the sum of counter and stream, over a handler or a builder.

    32-bit words are held in i64, whose products and logical shifts are those of u64.
    """
    both, xor = getattr(s, "and"), s.xor
    mask, half = s.constant(_MASK, I64), s.constant(32, I64)

    def low(value: Any) -> Any:
        return both(value, mask)

    def high(value: Any) -> Any:
        return s.shift_right(value, half)

    c0, c1, c2, c3 = low(call), high(call), low(index), high(index)
    k0, k1 = low(seed), high(seed)
    m0, m1, w0, w1 = (s.constant(v, I64) for v in (*MULTIPLIERS, *WEYL))
    for r in range(ROUNDS):
        if r:
            k0, k1 = low(s.add(k0, w0)), low(s.add(k1, w1))
        p0, p1 = s.mul(c0, m0), s.mul(c2, m1)
        c0, c1, c2, c3 = xor(xor(high(p1), c1), k0), low(p1), xor(xor(high(p0), c3), k1), low(p0)
    if as_dtype(dtype) is I32:
        return s.cast(c0, dtype=I32)
    return getattr(s, "or")(s.shift_left(c1, half), c0)


def _element(s: Any, i: Any, key: Any, shape: Sequence[int], dtype: Any, stream: int) -> Any:
    flat: Any = 0
    for k, n in zip(i, shape):
        flat = flat * n + k
    call = s.add(key((1,)), s.constant(stream, I64))
    index = s.index_value(flat, I64)
    if key.type.size == 3:
        index = s.add(index, key((2,)))
    return word(s, index, key((0,)), call, dtype)


primitive(
    "random_bits",
    infer=_infer,
    eval=_eval,
    quick=_quick,
    element=_element,
    attrs={"shape": REQUIRED, "dtype": REQUIRED, "stream": REQUIRED},
    pure=False,
    instructions=40.0,
    vjp=NO_GRADIENT,
    doc=(
        "Philox4x32-10 words: counter words (low, high of key[1] + stream; low, high of the flat index), key words "
        "(low, high of key[0]); i32 is word 0, i64 is word 1 above word 0. key[2], if there is one, is added to indices"
    ),
)
