"""`io.LibSVMIter`: batches of csr matrices from text files of sparse rows."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.data.text_rows import TextRowsIter, files_of
from gluonjit.ndarray.ndarray import convert, element_type
from gluonjit.ndarray.sparse_arrays import CSRNDArray

__all__ = ["LibSVMIter"]


class LibSVMIter(TextRowsIter):
    """Batches of rows from LibSVM files: lines `label column:value column:value …`, columns from 0 and ascending.

    * `data_libsvm`: a file, or a folder of files; `data_shape`: (columns,) of a row.
    * `label_libsvm`: a file of labels, rows like those of the data, and then csr matrices with `label_shape`. Without
      one, labels are the numbers before the data: `label_shape` of them, 1 by default.
    * The last batch is filled up from the start (`pad` says how many rows); the next pass goes on after these.
    * `num_parts`, `part_index`: reads one of several equal parts.

    MXNetError for a malformed file names the line.
    """

    def __init__(
        self,
        data_libsvm: str,
        data_shape: Any,
        batch_size: int,
        label_libsvm: str | None = None,
        label_shape: Any = (1,),
        num_parts: int = 1,
        part_index: int = 0,
        round_batch: bool = True,
        dtype: Any = "float32",
        data_name: str = "data",
        label_name: str = "softmax_label",
        **_threads: Any,
    ) -> None:
        if not round_batch:
            raise MXNetError("LibSVMIter: round_batch must be True")
        if batch_size < 1 or not 0 <= part_index < num_parts:
            raise MXNetError(f"LibSVMIter: batch_size={batch_size}, part {part_index} of {num_parts} is not possible")
        kind = element_type(dtype or "float32")
        columns, label_columns = _columns("data_shape", data_shape), _columns("label_shape", label_shape)
        apart = label_libsvm not in (None, "NULL")
        data, labels = _read(data_libsvm, columns, kind, None if apart else label_columns)
        label: Any = _read(str(label_libsvm), label_columns, kind, None)[0] if apart else labels
        if len(label) != len(data):
            raise MXNetError(f"LibSVMIter: {len(data)} rows of data, but {len(label)} of labels")
        each = -(-len(data) // num_parts)
        start, stop = min(part_index * each, len(data)), min((part_index + 1) * each, len(data))
        super().__init__(
            data.row_range(start, stop),
            label.row_range(start, stop) if apart else label[start:stop],
            batch_size,
            start,
            True,
            data_name,
            label_name,
        )


def _columns(what: str, shape: Any) -> int:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if len(shape) != 1 or shape[0] < 1:
        raise MXNetError(f"LibSVMIter: {what} is {shape}; expected one positive number")
    return int(shape[0])


CHUNK = 1 << 22
"""Bytes of a file that are parsed at once, and the rest of their last line."""

_APART = bytes.maketrans(b":", b" ")


class _Rows(NamedTuple):
    """Some rows: the elements and their columns, row by row, how many each row has, and the labels before them."""

    values: np.ndarray
    columns: np.ndarray
    counts: np.ndarray
    labels: np.ndarray


def _read(path: str, columns: int, kind: np.dtype, labels: int | None) -> tuple[CSRNDArray, np.ndarray]:
    """The rows of a file or folder, and the labels before them: (rows,) or (rows, labels)."""
    found: list[_Rows] = []
    for name in files_of(path):
        done = 0
        try:
            with open(name, "rb") as file:
                while text := file.read(CHUNK) + file.readline():
                    text = (text if text.endswith(b"\n") else text + b"\n").replace(b"\r\n", b"\n")
                    rows = _parsed(text, columns, labels)
                    found.append(rows or _parsed_by_line(text, columns, labels, name, done))
                    done += text.count(b"\n")
        except OSError as e:
            raise MXNetError(f"cannot read {name}: {e.strerror or e}") from e
    count = sum(len(rows.counts) for rows in found)
    if not count:
        raise MXNetError(f"{path} has no rows")
    values, places, counts, before = (np.concatenate(parts) for parts in zip(*found))
    data = CSRNDArray((count, columns), convert(values, kind), (np.append(0, np.cumsum(counts)), places), sound=True)
    table = convert(before, kind)
    return data, table[:, 0] if labels == 1 else table


def _parsed(text: bytes, columns: int, labels: int | None) -> _Rows | None:
    """The rows of whole lines, all at once; None if there is anything in them that is wrong or unusual."""
    if text.translate(None, b"0123456789.+-eE: \t\n") or columns > 1 << 53:
        return None
    try:
        numbers = np.array([float(word) for word in text.translate(_APART).split()])
    except ValueError:
        return None
    signs = np.frombuffer(b"\n" + text, np.uint8)
    colon = signs == ord(":")
    inside = (signs > ord(" ")) & ~colon  # a number
    start = np.flatnonzero(inside[1:] & ~inside[:-1]) + 1
    end = np.flatnonzero(inside[:-1] & ~inside[1:]) + 1
    is_column, is_value = colon[end], colon[start - 1]
    no_digits = np.cumsum(inside & ((signs < ord("0")) | (signs > ord("9"))))
    if (
        not np.count_nonzero(colon) == np.count_nonzero(is_column) == np.count_nonzero(is_value)
        or np.any(is_column & is_value)
        or np.any((no_digits[end - 1] > no_digits[start - 1]) & is_column)
    ):
        return None
    line = np.cumsum(signs == ord("\n"))[start]
    first = np.append(True, line[1:] != line[:-1])[: len(line)]
    row = np.cumsum(first) - 1
    count = int(row[-1]) + 1 if len(row) else 0
    is_label = ~(is_column | is_value)
    places, row_of_each = numbers[is_column], row[is_column]
    if (
        np.any(is_label[1:] & ~is_label[:-1] & ~first[1:])  # after the elements
        or np.any(places >= columns)
        or np.any((places[1:] <= places[:-1]) & (row_of_each[1:] == row_of_each[:-1]))
        or (labels is not None and np.any(np.bincount(row[is_label], minlength=count) != labels))
    ):
        return None
    before = numbers[is_label].reshape(count, labels) if labels is not None else np.zeros((count, 0))
    return _Rows(numbers[is_value], places.astype(np.int64), np.bincount(row_of_each, minlength=count), before)


def _parsed_by_line(text: bytes, columns: int, labels: int | None, name: str, done: int) -> _Rows:
    """The rows, read line by line. MXNetError for a line that is wrong; `done` lines are before these."""
    values: list[float] = []
    places: list[int] = []
    counts: list[int] = []
    found: list[list[float]] = []
    number = done
    try:
        for line in io.TextIOWrapper(io.BytesIO(text), encoding="utf-8"):
            number += 1
            words = line.split()
            if not words:
                continue
            before = [word for word in words if ":" not in word]
            pairs = [word.partition(":") for word in words[len(before) :]]
            own = [int(column) for column, _, _ in pairs]
            if any(not 0 <= k < columns for k in own) or own != sorted(set(own)):
                raise ValueError(f"columns must ascend and be in the range 0 to {columns - 1}")
            if labels is not None and len(before) != labels:
                raise ValueError(f"{len(before)} labels; expected {labels}")
            values += [float(value) for _, _, value in pairs]
            found.append([float(word) for word in before[: labels or 0]])
            places += own
            counts.append(len(own))
    except ValueError as e:
        raise MXNetError(f"{name}: line {number}: {e}") from None
    table = np.array(found, np.float64).reshape(len(counts), labels or 0)
    return _Rows(np.array(values, np.float64), np.array(places, np.int64), np.array(counts, np.int64), table)
