"""The work of one part: rows in, results out. Workers of every engine run it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.tools.scoring import tables
from gluonjit.tools.scoring.plan import Part
from gluonjit.tools.serving.predictor import Predictor


@dataclass(frozen=True)
class Job:
    """What all parts have in common; may be pickled, for workers elsewhere."""

    predictor: Predictor
    output: str
    columns: dict[str, tuple[str, ...]]
    """The columns of inputs, as given."""
    keep: tuple[str, ...] | None
    """Columns that are copied to the results; None: all that are not inputs."""
    batch: int
    """Rows of a call."""
    any_rows: bool = False
    """Whether a model is run whose rows are not known to be independent."""


def score(job: Job, part: Part, told: Callable[[int], object] = lambda rows: None) -> int:
    """Writes the results of a part; returns how many rows it has. `told(rows)` is called after each batch.

    MXNetError, with the file, the row group, the row and the column, for rows that the model cannot take."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    predictor = _opened(job)
    temporary = Path(job.output) / f"_new-{os.getpid()}-{part.output}"
    writer = None
    rows = 0
    try:
        for batch in _batches(part, job.batch, _floats(job, predictor)):
            where = f"{part.where}, rows {rows} to {rows + batch.num_rows - 1}" if batch.num_rows else part.where
            there = batch.schema.names
            columns = tables.chosen(predictor.inputs, job.columns, there, part.where)
            used = {name for names in columns.values() for name in names}
            keep = [n for n in there if n not in used] if job.keep is None else list(job.keep)
            for name in keep:
                if name not in there:
                    raise MXNetError(
                        f"{part.where}: --keep {name}: there is no such column; there are {', '.join(there)}"
                    )
            given = tables.arrays(batch, predictor.inputs, columns, part.where, rows)
            try:
                results = predictor(given)
            except ValueError as e:
                raise MXNetError(f"{where}: {e}") from None
            out = tables.with_results(batch, keep, results)
            if writer is None:
                writer = pq.ParquetWriter(temporary, out.schema)
            writer.write_batch(out)
            rows += batch.num_rows
            told(batch.num_rows)
        if writer is None:  # a part without a batch: nothing is known of its results
            raise MXNetError(f"{part.where} has no rows that can be read")
        writer.close()
        writer = None
        with open(temporary, "rb") as f:
            os.fsync(f.fileno())
        os.replace(temporary, Path(job.output) / part.output)
    except (pa.ArrowException, OSError) as e:
        raise MXNetError(f"{part.where}: {e}") from e
    finally:
        if writer is not None:
            writer.close()
        temporary.unlink(missing_ok=True)
    return rows


def _opened(job: Job) -> Predictor:
    """The job's predictor, once per process."""
    key = (job.predictor.files, tuple(sorted(job.predictor._given.items())), job.predictor.threads)
    if key not in _predictors:
        model = job.predictor.model
        if not job.any_rows and job.predictor.sizes is None and model.why_rows_mix:
            raise MXNetError(
                f"{job.predictor.files[0]}: results depend on which rows are computed together: {model.why_rows_mix}. "
                "--any-rows computes them in batches nevertheless"
            )
        _predictors[key] = job.predictor
    return _predictors[key]


_predictors: dict[Any, Predictor] = {}


def _floats(job: Job, predictor: Predictor) -> set[str]:
    """Columns of inputs that are floats."""
    kinds = {x.name: x.dtype.kind for x in predictor.inputs}
    columns = {**{name: (name,) for name in kinds}, **job.columns}
    return {column for name, of in columns.items() for column in of if kinds.get(name, "f") == "f"}


def column_names(part: Part) -> list[str]:
    """The names of a part's columns."""
    return list(next(_batches(part, 1)).schema.names)


def _batches(part: Part, rows: int, floats: AbstractSet[str] = frozenset()) -> Iterator[Any]:
    """The rows of a part, as pyarrow.RecordBatches of `rows` rows; an empty one for a part without rows. `floats`:
    columns that hold floats even where the first ones look like integers."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    try:
        if part.group is None:
            with pyarrow.csv.open_csv(part.file) as reader:
                guessed = reader.schema
            kinds = {x.name: pa.float64() for x in guessed if x.name in floats and _may_be_float(x.type)}
            options = pyarrow.csv.ConvertOptions(column_types=kinds)
            with pyarrow.csv.open_csv(part.file, convert_options=options) as reader:
                yield from _regrouped(reader, rows, reader.schema)
            return
        with pq.ParquetFile(part.file, pre_buffer=False, buffer_size=1 << 20) as f:
            empty = True
            for batch in f.iter_batches(batch_size=rows, row_groups=[part.group]):
                empty = False
                yield batch
            if empty:
                yield pa.RecordBatch.from_pylist([], schema=f.schema_arrow)
    except (pa.ArrowException, OSError, ValueError) as e:
        raise MXNetError(f"{part.where} cannot be read: {e}") from e


def _may_be_float(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_null(kind))


def _regrouped(batches: Any, rows: int, schema: Any) -> Iterator[Any]:
    """Batches of `rows` rows, but for the last one, from batches of any number of rows."""
    import pyarrow as pa

    held: list[Any] = []
    count = 0
    empty = True
    for batch in batches:
        empty = empty and not batch.num_rows
        held.append(batch)
        count += batch.num_rows
        while count >= rows:
            table = pa.Table.from_batches(held).combine_chunks()
            yield table.slice(0, rows).to_batches(max_chunksize=rows)[0]
            held = table.slice(rows).to_batches()
            count -= rows
    if empty:
        yield pa.RecordBatch.from_pylist([], schema=schema)
    elif count:
        table = pa.Table.from_batches(held, schema)
        yield from table.combine_chunks().to_batches(max_chunksize=rows)
