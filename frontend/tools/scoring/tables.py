"""Columns of a table to the arrays that a model takes, and its results to columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.ir.dims import Dim
from gluonjit.ir.opdef import did_you_mean
from gluonjit.tools.serving.described import Described

Columns = Mapping[str, tuple[str, ...]]
"""Input → its columns: one that holds it, or several of numbers."""


def chosen(
    inputs: Sequence[Described], given: Mapping[str, Sequence[str]], there: Sequence[str], where: str
) -> Columns:
    """The columns of each input: those that are given, else the one of its name; a single input may have the only
    column. MXNetError, with the columns that are `there`, for any that is not."""
    names = [x.name for x in inputs]
    for name, times in Counter(there).items():
        if times > 1:
            raise MXNetError(f"{where}: {times} columns have the name {name!r}; rename them")
    for name in given:
        if name not in names:
            raise MXNetError(f"--column {name}: the model has no such input{did_you_mean(name, names)}")
    found: dict[str, tuple[str, ...]] = {}
    for x in inputs:
        wanted = tuple(given.get(x.name, (x.name,)))
        missing = [column for column in wanted if column not in there]
        if missing and x.name not in given and len(inputs) == len(there) == 1:
            wanted, missing = tuple(there), []
        if missing:
            near = did_you_mean(missing[0], there)
            near = near if "did you mean" in near else f"; the columns are {', '.join(there)}"
            raise MXNetError(
                f"{where}: there is no column {missing[0]!r} for the input {x.name}{near}; "
                f"--column {x.name}=COLUMN chooses one"
            )
        found[x.name] = wanted
    return found


def arrays(batch: Any, inputs: Sequence[Described], columns: Columns, where: str, first: int) -> dict[str, np.ndarray]:
    """The model's arrays for a batch of rows (a pyarrow.RecordBatch). MXNetError names `where`, the row and the column
    of what cannot be one; `first` is the number of the first row."""
    found = {}
    for x in inputs:
        parts = [_elements(batch.column(name), name, where, first) for name in columns[x.name]]
        if len(parts) == 1:
            array = parts[0]
        else:
            for part, name in zip(parts, columns[x.name]):
                if part.ndim != 1:
                    raise MXNetError(f"{where}: column {name!r} holds lists; of several columns each is a number")
            array = np.stack(parts, axis=1)
        found[x.name] = _shaped(array, x, ", ".join(map(repr, columns[x.name])), where)
    return found


def _elements(column: Any, name: str, where: str, first: int, per_row: int = 1) -> np.ndarray:
    """A column as an array with a row for each of its own. It holds `per_row` elements of each row of the table, whose
    number is `first` for the first ones."""
    import pyarrow as pa

    if isinstance(column, pa.ExtensionArray):
        if hasattr(column, "to_numpy_ndarray") and not column.null_count:
            return column.to_numpy_ndarray()
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        row = first + int(np.flatnonzero(np.asarray(column.is_null()))[0]) // per_row
        raise MXNetError(f"{where}, row {row}: column {name!r} has no value there")
    kind = column.type
    if any(is_one(kind) for is_one in _lists()):
        if not len(column):
            return np.zeros((0, 0), np.float32)
        lengths = np.asarray(column.value_lengths() if not pa.types.is_fixed_size_list(kind) else _fixed(column))
        uneven = np.flatnonzero(lengths != lengths[0])
        if uneven.size:
            k = int(uneven[0])
            raise MXNetError(
                f"{where}, row {first + k // per_row}: column {name!r} has {lengths[k]} elements there, and "
                f"{lengths[0]} in row {first}"
            )
        inner = _elements(column.flatten(), f"{name}[]", where, first, per_row * max(int(lengths[0]), 1))
        return inner.reshape(len(column), int(lengths[0]), *inner.shape[1:])
    if pa.types.is_decimal(kind):
        return np.asarray(column.cast(pa.float64()))
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise MXNetError(f"{where}: column {name!r} is of type {kind}; a model takes numbers, or lists of them")
    return column.to_numpy(zero_copy_only=False)


def _lists() -> list[Callable[[Any], bool]]:
    import pyarrow as pa

    names = ("is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view")
    return [getattr(pa.types, name) for name in names if hasattr(pa.types, name)]


def _fixed(column: Any) -> np.ndarray:
    return np.full(len(column), column.type.list_size)


def _shaped(array: np.ndarray, x: Described, columns: str, where: str) -> np.ndarray:
    """The array with the shape that the model takes, if it has as many elements in each row."""
    if x.shape is None:
        return array
    row = x.shape[1:]
    if not len(array) and not any(isinstance(n, Dim) for n in row):
        return np.zeros((0, *row), x.dtype)
    if array.ndim == len(x.shape):
        return array
    size = math.prod(array.shape[1:])
    if any(isinstance(n, Dim) for n in row):
        raise MXNetError(
            f"{where}: column {columns} has rows of shape {list(array.shape[1:])}; the input {x.name} is {x}, whose "
            "rows have sizes of their own: give lists of lists"
        )
    if size != math.prod(row):
        raise MXNetError(
            f"{where}: column {columns} has {size} elements in a row; the input {x.name} is {x}, {math.prod(row)} a row"
        )
    return array.reshape(len(array), *row)


def with_results(batch: Any, keep: Sequence[str], results: Mapping[str, np.ndarray]) -> Any:
    """The kept columns of a batch, and the results, as a pyarrow.RecordBatch."""
    import pyarrow as pa

    columns = {name: batch.column(name) for name in keep}
    for name, y in results.items():
        if name in columns:
            raise MXNetError(f"the result {name} has the name of a column; --keep says which columns are kept")
        if y.ndim == 0 or len(y) != batch.num_rows:
            raise MXNetError(
                f"the result {name} is of shape {list(y.shape)}: it has no row for each of {batch.num_rows}"
            )
        columns[name] = _column(np.ascontiguousarray(y))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _column(y: np.ndarray) -> Any:
    """Numbers, or lists (of lists) of fixed lengths."""
    import pyarrow as pa

    flat = y.reshape(-1)
    column = pa.array(flat if flat.dtype.kind in "fiub" and flat.dtype.itemsize <= 8 else flat.astype(np.float32))
    for n in reversed(y.shape[1:]):
        if not n:
            return pa.array([[] for _ in y], pa.list_(column.type))
        column = pa.FixedSizeListArray.from_arrays(column, n)
    return column
