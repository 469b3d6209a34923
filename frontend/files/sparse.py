"""MXNet's two sparse layouts: their parts, and conversion to dense arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

DEFAULT, ROW_SPARSE, CSR = 0, 1, 2

NAMES = {DEFAULT: "default", ROW_SPARSE: "row_sparse", CSR: "csr"}

AUX = {DEFAULT: (), ROW_SPARSE: ("indices",), CSR: ("row pointers", "indices")}
"""The arrays that each storage type keeps beside its values."""

STEP = 1 << 14
"""Indices that are processed together: few, so that temporary arrays stay small."""
MEMORY = 1 << 18
"""The most bytes of rows that are written together, unless one row is larger."""


class Parts(NamedTuple):
    """A sparse array, as files hold it; `aux` as in AUX."""

    storage: int
    shape: tuple[int, ...]
    values: np.ndarray
    aux: tuple[np.ndarray, ...]


def densify(storage: int, shape: tuple[int, ...], values: np.ndarray, aux: Sequence[np.ndarray]) -> np.ndarray:
    """A dense array of `shape`. ValueError ("…; expected …") if the parts do not fit together.

    * row_sparse: row `indices[k]` is `values[k]`, the others are 0.
    * csr: in row r, column `indices[k]` is `values[k]` for `pointers[r] <= k < pointers[r + 1]`.

    The parts may be unaligned. Little memory is used besides the result.
    """
    check(storage, shape, values, aux)
    indices = aux[-1]
    dense = np.zeros(shape, values.dtype)
    if storage == ROW_SPARSE:
        row_bytes = max(1, dense[0].nbytes if len(dense) else 0)
        for start, part in _pieces(indices, step=max(1, min(STEP, MEMORY // row_bytes))):
            rows = part if len(part) > 1 else int(part[0])  # one row is copied directly, however long it is
            dense[rows] = values[start : start + len(part)]
        return dense
    for row, part in _pieces(aux[0], overlap=1):
        for start, columns in _pieces(indices[part[0] : part[-1]]):
            first = part[0] + start
            places = np.arange(first, first + len(columns))
            rows = row + np.searchsorted(part, places, side="right") - 1
            dense[rows, columns] = values[places[0] : places[-1] + 1]
    return dense


def check(storage: int, shape: tuple[int, ...], values: np.ndarray, aux: Sequence[np.ndarray]) -> None:
    """ValueError ("…; expected …") if the parts do not fit together; see `densify`."""
    *pointers, indices = aux
    if not shape or indices.ndim != 1 or indices.shape != values.shape[:1]:
        raise ValueError(f"indices {indices.shape} for values {values.shape}; expected one for each of the values")
    if storage == ROW_SPARSE:
        if values.shape[1:] != shape[1:]:
            raise ValueError(f"rows of shape {values.shape[1:]}; expected {shape[1:]}")
        _check_indices(indices, shape[0], "row")
        return
    (starts,) = pointers
    if len(shape) != 2 or values.ndim != 1:
        raise ValueError(f"shape {shape} and values {values.shape}; expected a matrix and a vector")
    if starts.shape != (shape[0] + 1,):
        raise ValueError(f"row pointers {starts.shape}; expected {shape[0] + 1} of them")
    ascending = all(np.all(part[:-1] <= part[1:]) for _, part in _pieces(starts, overlap=1))
    if starts[0] != 0 or starts[-1] != len(values) or not ascending:
        raise ValueError(f"row pointers from {starts[0]} to {starts[-1]}; expected ascending ones, 0 to {len(values)}")
    _check_indices(indices, shape[1], "column")


def _pieces(numbers: np.ndarray, overlap: int = 0, step: int | None = None) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (position, piece of the numbers as i64, in which sums do not wrap around).

    Each piece also has the first `overlap` numbers of the next one.
    """
    step = step or STEP
    for start in range(0, len(numbers) - overlap, step):
        yield start, numbers[start : start + step + overlap].astype(np.int64)


def _check_indices(indices: np.ndarray, count: int, what: str) -> None:
    if indices.size and not (0 <= indices.min() and indices.max() < count):
        raise ValueError(
            f"{what} indices from {indices.min()} to {indices.max()}; expected them in the range 0 to {count - 1}"
        )
