"""`io.CSVIter`: batches of arrays from text files of numbers with commas between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.data.text_rows import TextRowsIter, files_of, no_effect

__all__ = ["CSVIter"]

_TYPES = ("float32", "int32", "int64")


class CSVIter(TextRowsIter):
    """Batches of rows from CSV files: lines of numbers with commas between them. Empty lines, and a comma at the end
    of a line, are passed over.

    * `data_csv`: a file, or a folder of files. `data_shape`: the shape of a row's array.
    * `label_csv`, `label_shape`: those of labels; without a file labels are 0. A `label_shape` of (1,) gives labels of
      shape (batch_size,).
    * `dtype`: 'float32', 'int32' or 'int64', of data and labels. Whole numbers must be written as such.
    * The last batch is filled up from the start (`pad` says how many rows); the next pass goes on after these. Without
      `round_batch`, it is filled up with rows of the batch before, and every pass begins at the start.

    `prefetch_buffer` and `ctx` have no effect. MXNetError for a malformed file names the line.
    """

    def __init__(
        self,
        data_csv: str,
        data_shape: Any,
        batch_size: int,
        label_csv: str | None = None,
        label_shape: Any = (1,),
        round_batch: bool = True,
        dtype: Any = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        **others: Any,
    ) -> None:
        no_effect("CSVIter", others, ("prefetch_buffer", "ctx"))
        if batch_size < 1:
            raise MXNetError(f"CSVIter: batch_size is {batch_size}, not a number of rows")
        kind = "float32" if dtype in (None, "None") else np.dtype(dtype).name
        if kind not in _TYPES:
            raise MXNetError(f"CSVIter: dtype is {kind}; {', '.join(_TYPES)} are read")
        shapes = [_shape(*named) for named in (("data_shape", data_shape), ("label_shape", label_shape))]
        data = _read(data_csv, shapes[0], np.dtype(kind))
        if label_csv in (None, "NULL"):
            label = np.zeros((len(data), *shapes[1]), kind)
        else:
            label = _read(str(label_csv), shapes[1], np.dtype(kind))
        if len(label) != len(data):
            raise MXNetError(f"CSVIter: {len(data)} rows of data in {data_csv}, but {len(label)} in {label_csv}")
        if shapes[1] == (1,):
            label = label[:, 0]
        super().__init__(data, label, batch_size, 0, bool(round_batch), data_name, label_name)


def _shape(what: str, shape: Any) -> tuple[int, ...]:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not shape or not all(isinstance(n, (int, np.integer)) and n > 0 for n in shape):
        raise MXNetError(f"CSVIter: {what} is {shape}; expected positive numbers")
    return shape


def _read(path: str, shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    """The rows of a file or folder: `kind`[rows, *shape]."""
    parts = []
    for name in files_of(path):
        try:
            # One row at least: of none, NumPy warns.
            if next(_lines(name), None) is not None:
                parts.append(_table(_texts(name), kind))
        except OSError as e:
            raise MXNetError(f"cannot read {name}: {e.strerror or e}") from e
        except (ValueError, OverflowError) as e:
            raise _fault(name, math.prod(shape), kind, e) from None
        if parts and parts[-1].shape[1] != math.prod(shape):
            raise _fault(name, math.prod(shape), kind, None)
    if not parts:
        raise MXNetError(f"{path} has no rows")
    return np.concatenate(parts).reshape(-1, *shape)


def _table(lines: Iterable[str], kind: np.dtype) -> np.ndarray:
    """`kind`[lines, numbers of a line]. ValueError or OverflowError for a word that is no such number."""
    if kind.kind not in "iu":
        return np.loadtxt(lines, kind, comments=None, delimiter=",", ndmin=2)
    # NumPy 1.26 would cut 4.5 to 4, and large numbers to their lower bits.
    table = np.loadtxt(lines, np.int64, comments=None, delimiter=",", ndmin=2, converters=_integer, encoding="utf-8")
    limits = np.iinfo(kind)
    if table.size and (table.min() < limits.min or table.max() > limits.max):
        raise OverflowError(f"a number is beyond {kind}")
    return table.astype(kind)


def _integer(word: str) -> int:
    number = int(word.replace("_", "?"))  # Python's own spelling 1_000 is none of CSV's
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"{number} is beyond int64")
    return number


def _lines(name: str) -> Iterator[tuple[int, str]]:
    """(number, text without a comma at its end) of each line that has text."""
    with open(name, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            text = line.strip()
            if text:
                yield number, text.removesuffix(",")


def _texts(name: str) -> Iterator[str]:
    return (text for _, text in _lines(name))


def _fault(name: str, columns: int, kind: np.dtype, error: Exception | None) -> MXNetError:
    """What is wrong with a file that could not be read: its first line of another length, or with another word."""
    number = 0
    try:
        for number, text in _lines(name):
            words = text.split(",")
            if len(words) != columns:
                return MXNetError(f"{name}: line {number} has {len(words)} numbers; the shape given has {columns}")
            for word in words:
                try:
                    _table([word or " "], kind)
                except (ValueError, OverflowError):
                    return MXNetError(f"{name}: line {number}: {word.strip()[:50]!r} is not a number of type {kind}")
    except UnicodeDecodeError:
        return MXNetError(f"{name}: line {number + 1} is not text in UTF-8")
    return MXNetError(f"{name}: {error}")
