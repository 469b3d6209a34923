"""`io.LibSVMIter`: batches of csr matrices from text files of sparse rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.data.text_rows import TextRowsIter, files_of
from gluonjit.ndarray.ndarray import element_type
from gluonjit.ndarray.sparse_arrays import CSRNDArray

__all__ = ["LibSVMIter"]


class LibSVMIter(TextRowsIter):
    """Batches of rows from LibSVM files: lines `label column:value column:value …`, columns from 0 and ascending.

    * `data_libsvm`: a file, or a folder of files; `data_shape`: (columns,) of a row.
    * `label_libsvm`: a file of labels, rows like those of the data, and then csr matrices with `label_shape`. Without
      one, labels are the numbers before the data: `label_shape` of them, 1 by default.
    * The last batch is filled up from the start (`pad` says how many rows); the next pass goes on behind these.
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


def _read(path: str, columns: int, kind: np.dtype, labels: int | None) -> tuple[CSRNDArray, np.ndarray]:
    """The rows of a file or folder, and the labels before them: (rows,) or (rows, labels)."""
    values: list[float] = []
    places: list[int] = []
    starts = [0]
    found: list[list[float]] = []
    for name in files_of(path):
        number = 0
        try:
            with open(name, encoding="utf-8") as file:
                for line in file:
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
                    starts.append(len(places))
        except ValueError as e:
            raise MXNetError(f"{name}: line {number}: {e}") from None
        except OSError as e:
            raise MXNetError(f"cannot read {name}: {e.strerror or e}") from e
    if len(starts) == 1:
        raise MXNetError(f"{path} has no rows")
    aux = np.array(starts, np.int64), np.array(places, np.int64)
    data = CSRNDArray((len(starts) - 1, columns), np.array(values, kind), aux)
    table = np.array(found, kind).reshape(len(starts) - 1, -1 if labels != 1 else 1)
    return data, table[:, 0] if labels == 1 else table
