"""MXNet's two sparse layouts, as dense arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

DEFAULT, ROW_SPARSE, CSR = 0, 1, 2

AUX = {DEFAULT: (), ROW_SPARSE: ("indices",), CSR: ("row pointers", "indices")}
"""The arrays that each storage type keeps beside its values."""


def densify(storage: int, shape: tuple[int, ...], values: np.ndarray, aux: Sequence[np.ndarray]) -> np.ndarray:
    """A dense array of `shape`. ValueError ("…; expected …") when the parts do not fit together.

    * row_sparse: row `indices[k]` is `values[k]`, the others are 0.
    * csr: in row r, column `indices[k]` is `values[k]` for `pointers[r] <= k < pointers[r + 1]`.
    """
    *pointers, indices = (x.astype(np.int64) for x in aux)  # bytes would wrap around
    if not shape or indices.ndim != 1 or indices.shape != values.shape[:1]:
        raise ValueError(f"indices {indices.shape} for values {values.shape}; expected one for each of the values")
    if storage == ROW_SPARSE:
        if values.shape[1:] != shape[1:]:
            raise ValueError(f"rows of shape {values.shape[1:]}; expected {shape[1:]}")
        _check_indices(indices, shape[0], "row")
        dense = np.zeros(shape, values.dtype)
        dense[indices] = values
        return dense
    (starts,) = pointers
    if len(shape) != 2 or values.ndim != 1:
        raise ValueError(f"shape {shape} and values {values.shape}; expected a matrix and a vector")
    if starts.shape != (shape[0] + 1,):
        raise ValueError(f"row pointers {starts.shape}; expected {shape[0] + 1} of them")
    if starts[0] != 0 or starts[-1] != len(values) or np.any(starts[:-1] > starts[1:]):
        raise ValueError(f"row pointers from {starts[0]} to {starts[-1]}; expected ascending ones, 0 to {len(values)}")
    _check_indices(indices, shape[1], "column")
    dense = np.zeros(shape, values.dtype)
    dense[np.repeat(np.arange(shape[0]), np.diff(starts)), indices] = values
    return dense


def _check_indices(indices: np.ndarray, count: int, what: str) -> None:
    if indices.size and not (0 <= indices.min() and indices.max() < count):
        raise ValueError(
            f"{what} indices from {indices.min()} to {indices.max()}; expected them in the range 0 to {count - 1}"
        )
