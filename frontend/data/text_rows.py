"""Iterators over rows of numbers in text files: what `io.CSVIter` and `io.LibSVMIter` have in common."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.data.iterators import DataDesc, MXDataIter
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ndarray import NDArray
from gluonjit.ndarray.sparse_arrays import CSRNDArray

Rows = np.ndarray | CSRNDArray


class TextRowsIter(MXDataIter):
    """Batches of rows of `data` and `label`, all of which are in memory. `first` is the number of the first row.

    `pad` says how many rows at the end of the last batch only fill it. With `rounds` they are the first ones, and the
    next pass goes on after them; otherwise they are those of the batch before (of the start, if there is none), and
    the next pass starts at the start.
    """

    def __init__(
        self, data: Rows, label: Rows, batch_size: int, first: int, rounds: bool, data_name: str, label_name: str
    ) -> None:
        super().__init__(batch_size)
        self._data, self._label = data, label
        self._first, self._rounds = first, rounds
        self._descriptions = data_name, label_name
        self._next = 0
        self._rows = np.zeros(0, np.int64)
        self._pad = 0

    @property
    def provide_data(self) -> list[DataDesc]:
        return [self._describe(self._descriptions[0], self._data)]

    @property
    def provide_label(self) -> list[DataDesc]:
        return [self._describe(self._descriptions[1], self._label)]

    def _describe(self, name: str, rows: Rows) -> DataDesc:
        return DataDesc(name, (self.batch_size, *rows.shape[1:]), np.dtype(rows.dtype).type)

    def reset(self) -> None:
        """Goes to the start of the next pass."""
        self._next = self._next % len(self._data) if self._pad and self._rounds else 0
        self._pad = 0

    def iter_next(self) -> bool:
        count = len(self._data)
        if self._next >= count:
            return False
        stop = self._next + self.batch_size
        rows = np.arange(self._next, stop) % count
        self._pad = max(stop - count, 0)
        if self._pad and not self._rounds and self._next:
            rows[-self._pad :] = self._rows[-self._pad :]
        self._rows = rows
        self._next = stop
        return True

    def getdata(self) -> NDArray:
        return self._taken(self._data)

    def getlabel(self) -> NDArray:
        return self._taken(self._label)

    def _taken(self, rows: Rows) -> NDArray:
        if isinstance(rows, CSRNDArray):
            return rows.take_rows(self._rows)
        return NDArray._wrap(rows[self._rows])

    def getindex(self) -> np.ndarray:
        return (self._first + self._rows).astype(np.uint64)

    def getpad(self) -> int:
        return self._pad


def files_of(path: str) -> list[str]:
    """The file itself, or the files in a folder, by name. MXNetError for what cannot be read to an end (a pipe)."""
    try:
        if os.path.isdir(path):
            return [entry.path for entry in sorted(os.scandir(path), key=lambda e: e.name) if entry.is_file()]
    except OSError as e:
        raise MXNetError(f"cannot read the folder {path}: {e.strerror or e}") from e
    if os.path.exists(path) and not os.path.isfile(path):
        raise MXNetError(f"{path} is neither a file nor a folder")
    return [path]


def no_effect(what: str, settings: dict[str, Any], known: tuple[str, ...]) -> None:
    """MXNetError for settings that are not among those which are accepted and change nothing."""
    for name in settings:
        if name not in known:
            raise MXNetError(f"{what} has no setting {name!r}{did_you_mean(name, known)}")
