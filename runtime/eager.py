"""Imperative execution: an emitter that computes each primitive on ndarrays at once, through its NumPy `eval`.

Callers silence NumPy's warnings once around the expansions that they run:

    with quiet():
        out = op.expand(eager, *arrays, **attrs)
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ir import opdef
from gluonjit.ir.formulas import Formula
from gluonjit.ir.graph import Emitter
from gluonjit.ir.quiet import OLD_NUMPY
from gluonjit.ir.types import BF16, IRError, dtype, type_of
from gluonjit.runtime import random_words


class Eager(Emitter):
    """`next_key()` gives the (seed, counter) array of type i64[2] for the next `random_bits`. `into`: an array that
    uniform numbers may be drawn into, if they are all that is computed."""

    def __init__(self, training: bool, next_key: Callable[[], np.ndarray], into: np.ndarray | None = None) -> None:
        self.training = training
        self._next_key = next_key
        self._into = into

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The function of primitive `name`. Kept on the instance: the next use costs a plain attribute read."""
        if name.startswith("_"):
            raise AttributeError(name)
        primitive = _primitive(name)
        evaluate, defaults = primitive.eval, primitive.attr_defaults
        count = len(defaults)

        def call(*operands: Any, **attrs: Any) -> Any:
            try:
                if len(attrs) == count:
                    return evaluate(*operands, **attrs)
                return evaluate(*operands, **{**defaults, **attrs})
            except Exception:
                _explain(primitive, operands, attrs)
                raise

        self.__dict__[name] = call
        return call

    def emit(self, name: str, operands: Sequence[Any], attrs: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        out = getattr(self, name)(*operands, **(attrs or {}))
        return out if isinstance(out, tuple) else (out,)

    def constant(self, value: Any, dtype_: Any = None) -> np.ndarray:
        return np.asarray(value, dtype(dtype_).numpy if dtype_ is not None else None)

    def random_bits(self, shape: Sequence[int], dtype: Any = "i32") -> np.ndarray:
        # One key per draw: the counter takes the place of the stream number that a compiled graph adds.
        return random_words.words(self._next_key(), 0, math.prod(shape), dtype).reshape(shape)

    def elementwise(
        self,
        compute: Callable[[Any, tuple[int, ...]], Any],
        shape: tuple[int, ...],
        uniform: tuple[float, float, float] | None = None,
    ) -> Any:
        size = math.prod(shape)
        if uniform is not None and random_words.are_many(size):
            return random_words.uniform(self._next_key(), shape, *uniform, self._into)
        if size <= PIECE:
            return compute(self, shape)
        draws: list[_Draw] = []
        whole: Any = None
        for start in range(0, size, PIECE):
            piece = compute(_Piece(self, draws, start, size), (min(PIECE, size - start),))
            if whole is None:
                whole = np.empty(size, piece.dtype)
            whole[start : start + PIECE] = piece
        return whole.reshape(shape)


PIECE = 1 << 14
"""Elements whose temporaries stay in the cache. Pages of fresh memory cost more than the computation."""


class _Draw:
    """The words of one `random_bits` of `size` elements, which pieces ask for in turn. Compiled code draws as many at a
    time as its call is worth."""

    def __init__(self, key: np.ndarray, size: int, kind: Any) -> None:
        self._key, self._size, self._kind = key, size, kind
        self._first = 0
        self._words = np.empty(0, np.uint8)

    def words(self, start: int, count: int) -> np.ndarray:
        """The elements from `start` on."""
        if start + count > self._first + self._words.size:
            ahead = min(_AHEAD, self._size - start)
            self._first, self._words = start, random_words.words(self._key, start, ahead, self._kind)
        return self._words[start - self._first :][:count]


_AHEAD = 1 << 18
"""Words that are drawn by one call: it takes as long as 30,000 of them."""


class _Piece(Eager):
    """Computes the elements from `start` on of a tensor of `size`, taken as flat. Every piece draws from the same."""

    def __init__(self, whole: Eager, draws: list[_Draw], start: int, size: int) -> None:
        super().__init__(whole.training, whole._next_key)
        self._draws, self._start, self._size = draws, start, size
        self._places = itertools.count()

    def random_bits(self, shape: Sequence[int], dtype: Any = "i32") -> np.ndarray:
        k = next(self._places)
        if k == len(self._draws):
            self._draws.append(_Draw(self._next_key(), self._size, dtype))
        return self._draws[k].words(self._start, shape[0])

    def elementwise(
        self,
        compute: Callable[[Any, tuple[int, ...]], Any],
        shape: tuple[int, ...],
        uniform: tuple[float, float, float] | None = None,
    ) -> Any:
        return compute(self, shape)


class Exact(Eager):
    """Computes on arrays whose operators are primitives, where NumPy's mean something else: see `needs_exact`."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        compute = super().__getattr__(name)

        def call(*operands: Any, **attrs: Any) -> Any:
            out = compute(*map(_plain, operands), **attrs)
            return tuple(map(_exact, out)) if isinstance(out, tuple) else _exact(out)

        self.__dict__[name] = call
        return call

    def operands(self, values: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return [_exact(x) for x in values]

    def constant(self, value: Any, dtype_: Any = None) -> np.ndarray:
        return _exact(super().constant(value, dtype_))

    def random_bits(self, shape: Sequence[int], dtype: Any = "i32") -> np.ndarray:
        return _exact(super().random_bits(shape, dtype))

    def elementwise(
        self,
        compute: Callable[[Any, tuple[int, ...]], Any],
        shape: tuple[int, ...],
        uniform: tuple[float, float, float] | None = None,
    ) -> Any:
        return compute(self, shape)


class _ExactArray(Formula, np.ndarray):
    """An ndarray with the operators of `Value`."""

    def _emit(self, name: str, *operands: Any) -> Any:
        if not _met.difference:
            _met.difference = self.dtype is BFLOAT16 or any(_is_widened(x, self) for x in operands)
        arrays = [np.asarray(x, None if isinstance(x, np.ndarray) else self.dtype) for x in operands]
        return _exact(_primitive(name).eval(*arrays))


class _Met(threading.local):
    difference = True
    """Whether `Exact` has computed what NumPy's own operators would not have, since this was set to False."""


_met = _Met()


def _is_widened(number: Any, x: np.ndarray) -> bool:
    """Whether NumPy 1 might widen `x` beside `number`. What the sizes of arrays say has a place in every float32."""
    if isinstance(number, np.ndarray):
        return False
    return not x.ndim or x.dtype not in (np.float32, np.float64) or np.result_type(x, number) != x.dtype


def noting_difference(run: Callable[[], Any]) -> tuple[Any, bool]:
    """What `run()` gives, which computes with `Exact`, and whether `Eager` might have given anything else for arrays of
    these ranks and element types."""
    _met.difference = False
    try:
        return run(), _met.difference
    finally:
        _met.difference = True


def _exact(x: np.ndarray) -> np.ndarray:
    return x.view(_ExactArray)


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if type(x) is _ExactArray else x


def unwrapped(x: Any) -> Any:
    """A result of `Exact` as an ndarray, which owns its memory if the result is all of it."""
    if type(x) is not _ExactArray:
        return x
    whole = x.base
    if type(whole) is np.ndarray and whole.shape == x.shape and whole.strides == x.strides:
        return whole
    return x.view(np.ndarray)


BFLOAT16 = BF16.numpy


def needs_exact(*values: Any) -> bool:
    """Whether `Exact` has to compute with these arrays and attributes, because in formulas (`ir/formulas.py`) NumPy's
    operators are not our primitives: it widens bfloat16 beside Python's floats, and older ones widen 0-d arrays."""
    return OLD_NUMPY or any(x is BF16 or getattr(x, "dtype", None) is BFLOAT16 for x in values)


def _primitive(name: str) -> opdef.Primitive:
    primitive = opdef.lookup(name)
    if not isinstance(primitive, opdef.Primitive):
        raise IRError(f"{name} is not a primitive")
    return primitive


def _explain(primitive: opdef.Primitive, operands: Sequence[Any], attrs: Mapping[str, Any]) -> None:
    """What NumPy complains about, inference says better: raises its IRError, or nothing if it finds nothing."""
    primitive.infer([type_of(x) for x in operands], primitive.canonical_attrs(attrs), ())
