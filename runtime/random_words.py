"""The words of `random_bits` for imperative execution, and uniform numbers, which native code draws once a program has
drawn many (`codegen.draws`).

The bits are those of the primitive's `eval`, whichever draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.common.aside import aside, imported
from gluonjit.ir.primitives import random_bits
from gluonjit.ir.primitives.random_bits import words_from
from gluonjit.ir.types import dtype
from gluonjit.runtime import forks

_MANY = 1 << 18
"""Words that take NumPy, at 50 ns each, as long as it takes to compile what draws them, where LLVM is needed anyway."""
_CALL = 1 << 11
"""How many words take NumPy as long as what a draw of any size does."""

_drawn = 0
_lock = forks.renewed()
_native: dict[str, Any] = {}
"""`runtime.native.Draw`, by name."""


def words(key: np.ndarray, start: int, size: int, kind: Any) -> np.ndarray:
    """The elements start … start + size - 1 of a flat `random_bits` of type `kind` (i32 or i64) under a key i64[2]."""
    global _drawn
    kind = dtype(kind)
    if not are_many(size):
        with _lock:
            _drawn += size + _CALL
        return words_from(key, start, size, kind, 0)
    out = np.empty(size, kind.numpy)
    _drawing(str(kind)).run(out.ctypes.data, size, start, *map(int, key))
    return out


def uniform(
    key: np.ndarray, shape: Sequence[int], low: float, high: float, most: float, into: np.ndarray | None = None
) -> np.ndarray:
    """Uniform float32 numbers of 32-bit words, as the operator computes them: `most` at most. In `into`, if that is an
    array of this shape and type without gaps."""
    out = into
    if out is None or out.shape != tuple(shape) or out.dtype != np.float32 or not out.flags.carray:
        out = np.empty(shape, np.float32)
    bounds = np.float32(high) - np.float32(low), low, most
    _drawing("uniform").run(out.ctypes.data, out.size, 0, *map(int, key), *map(float, bounds))
    return out


def are_many(size: int) -> bool:
    """Whether native code is to draw so many further words. If not, they are not counted yet."""
    global _drawn
    with _lock:  # a count of calls, not of time: the same program compiles, or does not
        many = _drawn + size + _CALL >= _MANY
        if many:
            _drawn = _MANY
    return many


random_bits.draw = words


def _drawing(name: str) -> Any:
    """The native function of this name, see `codegen.draws.DRAWS`."""
    found = _native.get(name)
    if found is None:
        native = imported("gluonjit.runtime.native")
        with _lock:
            found = _native.get(name)
            if found is None:
                found = _native[name] = aside(lambda: native.Draw(name))
    return found
