"""Imperative execution: an emitter that computes each primitive on ndarrays at once, through its NumPy `eval`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.ir import opdef
from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import IRError, dtype, type_of


class Eager(Emitter):
    """`next_key()` gives the (seed, counter) array of type i64[2] for the next `random_bits`."""

    def __init__(self, training: bool, next_key: Callable[[], np.ndarray]) -> None:
        self.training = training
        self._next_key = next_key

    def emit(self, name: str, operands: Sequence[Any], attrs: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        primitive = opdef.lookup(name)
        if not isinstance(primitive, opdef.Primitive):
            raise IRError(f"{name} is not a primitive")
        full = {**primitive.attr_defaults, **(attrs or {})}
        try:
            with np.errstate(all="ignore"):
                out = primitive.eval(*operands, **full)
        except Exception:
            # What NumPy complains about, inference says better; if inference finds nothing, NumPy's word stands.
            primitive.infer([type_of(x) for x in operands], primitive.canonical_attrs(attrs or {}), ())
            raise
        return out if isinstance(out, tuple) else (out,)

    def constant(self, value: Any, dtype_: Any = None) -> np.ndarray:
        return np.asarray(value, dtype(dtype_).numpy if dtype_ is not None else None)

    def random_bits(self, shape: Sequence[int], dtype: Any = "i32") -> np.ndarray:  # type: ignore[override]
        # One key per draw: the counter takes the place of the stream number that a compiled graph adds.
        return self.emit("random_bits", (self._next_key(),), {"shape": tuple(shape), "dtype": dtype, "stream": 0})[0]
