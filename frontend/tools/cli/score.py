"""`gluonjit score`: files of rows through a model."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.tools.cli.inputs import at_least, thread_count
from gluonjit.tools.cli.terminal import unescaped

_INSTALL = 'pip install "gluonjit[score]"'


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "score",
        help="run a model on the rows of Parquet or CSV files",
        description="Runs a model on every row of Parquet or CSV files, and writes Parquet files with the results, one "
        "for each row group, in the same order. A run that was interrupted or killed goes on where it was: no row is "
        f"lost or written twice. Needs {_INSTALL}.",
        epilog="example, for which the first line makes a file of 100 rows:\n"
        '  python -c "import numpy as np, pyarrow as pa, pyarrow.parquet as pq; '
        "pq.write_table(pa.table({'pixels': [*np.random.rand(100, 867)]}), 'images.parquet')\"\n"
        "  gluonjit score examples/fire-symbol.json examples/fire-0000.params "
        "--input data=batchx3x17x17 --rows images.parquet --column data=pixels -o scores/",
    )
    p.add_argument(
        "model",
        nargs="+",
        metavar="MODEL",
        help="a graph that MXNet wrote, and after it its parameters' file; an ONNX file; a library of `gluonjit "
        "build`; FILE.py:NAME",
    )
    p.add_argument("--rows", action="append", required=True, metavar="FILES", help="names, patterns or folders")
    p.add_argument("-o", "--output", required=True, metavar="FOLDER", help="a new folder, or that of a run to go on")
    p.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=SHAPE",
        help="an input's shape and element type, such as data=batchx3x224x224; words are sizes that change. Libraries "
        "and most ONNX files have them already",
    )
    p.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="INPUT=COLUMN,…",
        help="the column that holds an input, or several of numbers that make it up (default: the one of the input's "
        "name; the only column of files that have one, for a model of one input)",
    )
    p.add_argument(
        "--keep", metavar="COLUMN,…", help="columns to copy to the results (default: all that are not inputs)"
    )
    p.add_argument(
        "--batch-size", type=at_least(1), default=64, metavar="N", help="rows of a call (default: %(default)s)"
    )
    p.add_argument(
        "--engine", choices=("local", "ray", "dask"), default="local", help="who works (default: %(default)s)"
    )
    p.add_argument("--workers", type=at_least(1), default=1, metavar="N", help="processes (default: %(default)s)")
    p.add_argument("--address", help="of a cluster of Ray or Dask that is there (default: one on this machine)")
    p.add_argument("--threads", type=thread_count, help="of each worker (default: the cores, divided among workers)")
    p.add_argument("--any-rows", action="store_true", help="also if rows of a batch may depend on each other")
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    missing = [name for name in ("pyarrow", "tqdm") if not importlib.util.find_spec(name)]
    if missing:
        raise MXNetError(f"score needs the package {missing[0]}: {_INSTALL}")
    from gluonjit._version import version
    from gluonjit.runtime.cores import available_cores
    from gluonjit.tools.scoring import plan
    from gluonjit.tools.scoring.scorer import Job
    from gluonjit.tools.serving.predictor import Predictor

    if arguments.engine == "local" and arguments.address:
        raise MXNetError("--address is that of a cluster: with --engine ray or dask")
    shapes = dict(_pair(text, "--input", "data=batchx3x224x224") for text in arguments.input)
    columns = {k: tuple(v.split(",")) for k, v in (_pair(t, "--column", "data=pixels") for t in arguments.column)}
    keep = None if arguments.keep is None else tuple(name for name in arguments.keep.split(",") if name)
    threads = arguments.threads or max(1, available_cores() // arguments.workers)
    output = Path(arguments.output)
    model = [os.path.abspath(file) for file in arguments.model]
    try:
        predictor = Predictor(*model, inputs=shapes, threads=threads)
    except ValueError as e:
        raise MXNetError(str(e)) from None
    files = plan.input_files(arguments.rows, output)
    with plan.only_run(output):
        parts = plan.parts_of(files)
        plan.bind(
            output,
            {
                "version": version,
                "model": [plan.digest(file.rpartition(":")[0] if ".py:" in file else file) for file in model],
                "shapes": shapes,
                "files": [plan.fingerprint(file) for file in files],
                "columns": columns,
                "kept columns": keep,
                "batch size": arguments.batch_size,
            },
        )
        job = Job(predictor, str(output.resolve()), columns, keep, arguments.batch_size, arguments.any_rows)
        _score(arguments, job, output, parts)
        plan.remove_unfinished(output)  # workers that were killed leave some
        rows = _rows(output, parts)
        (output / plan.DONE).touch()
    only = "" if columns else _only_column(parts[0])
    print(f"{rows} rows{only} in {len(parts)} {'file' if len(parts) == 1 else 'files'}, {output}")


def _score(arguments: argparse.Namespace, job: Any, output: Path, parts: Any) -> None:
    """Computes those of the parts that are not there yet, and shows how far it is."""
    from tqdm import tqdm

    from gluonjit.tools.scoring import engines, plan

    done = plan.finished(output, parts)
    left = [part for part in parts if part not in done]
    known = [part.rows for part in parts]
    total = None if None in known else sum(n for n in known if n is not None)
    before = sum(part.rows or 0 for part in done)
    if done:
        print(f"going on: {len(done)} of {len(parts)} parts are there", file=sys.stderr)
    stream = unescaped(sys.stderr)
    with tqdm(
        total=total, initial=before, unit="row", unit_scale=True, file=stream, disable=not stream.isatty()
    ) as bar:
        try:
            engines.run(arguments.engine, job, left, arguments.workers, arguments.address, bar.update)
        except KeyboardInterrupt:
            bar.close()
            there = len(plan.finished(output, parts))
            print(f"stopped: {there} of {len(parts)} parts are there; the same command goes on", file=sys.stderr)
            raise


def _only_column(part: Any) -> str:
    """`of the column …` if there is one alone, which the model's only input gets whatever its name is."""
    from gluonjit.tools.scoring.scorer import column_names

    names = column_names(part)
    return f" of the column {names[0]}" if len(names) == 1 else ""


def _rows(output: Path, parts: Any) -> int:
    """How many rows the results have. MXNetError if a part has another number than its input."""
    import pyarrow.parquet as pq

    total = 0
    for part in parts:
        found = pq.read_metadata(output / part.output).num_rows
        if part.rows is not None and found != part.rows:
            raise MXNetError(f"{output / part.output} has {found} rows, its input {part.rows}: remove it and run again")
        total += found
    return total


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise MXNetError(f"{option} {text!r}: expected such as {example}")
    return name, value
