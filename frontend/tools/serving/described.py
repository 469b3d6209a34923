"""What a predictor knows of a model's inputs and outputs."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from gluonjit.ir.types import TensorType, dtype


class Described(NamedTuple):
    """An input or output of a model."""

    name: str
    dtype: np.dtype
    shape: tuple[Any, ...] | None
    """Sizes; open ones are `ir.dims.Dim`. None if the rank is not known before a call."""

    def __str__(self) -> str:
        return f"{self.dtype}[{'...' if self.shape is None else ','.join(map(str, self.shape))}]"

    @property
    def type(self) -> TensorType:
        assert self.shape is not None
        return _type(self.dtype, self.shape)


@functools.lru_cache(1024)
def _type(element: np.dtype, shape: tuple[Any, ...]) -> TensorType:
    return TensorType(dtype(element), shape)
