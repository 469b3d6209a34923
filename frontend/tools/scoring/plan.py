"""What there is to score: the parts of the input, the folder of results, and what a run in it is bound to.

A part is a row group of a Parquet file, or a CSV file. Its results are one file, which gets its name when it is
complete; so a run that was killed goes on with the parts that have no file, and no row is lost or doubled. The folder
belongs to one model, one set of files and one set of options (`_job.json`): a run with others is refused.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.files import atomic

JOB, LOCK, DONE = "_job.json", "_lock", "_SUCCESS"
"""Files in the folder of results; readers of Parquet skip names that begin so."""


@dataclass(frozen=True)
class Part:
    """One piece of the input, and the name of its results."""

    file: str
    group: int | None
    """The row group; None is a whole CSV file."""
    rows: int | None
    """None: not known before it is read."""
    output: str

    @property
    def where(self) -> str:
        return self.file if self.group is None else f"{self.file}, row group {self.group}"


def input_files(patterns: Sequence[str], output: Path) -> list[str]:
    """The files that the patterns name, in order; MXNetError for a pattern that names none, or results of this run."""
    found: list[str] = []
    for pattern in patterns:
        is_pattern = glob.has_magic(pattern) and not os.path.exists(pattern)
        names = sorted(glob.glob(pattern, recursive=True)) if is_pattern else [pattern]
        names = [n for name in names for n in (sorted(_inside(name)) if os.path.isdir(name) else [name])]
        if not names:
            raise MXNetError(f"--rows {pattern!r}: there is no such file")
        found += names
    folder = output.resolve()
    for name in found:
        if not os.path.isfile(name):
            raise MXNetError(f"--input: there is no file {name}")
        if folder in Path(name).resolve().parents:
            raise MXNetError(f"--input: {name} is in the folder of results, {output}; results belong elsewhere")
    once: dict[str, str] = {}
    for name in found:
        once.setdefault(os.path.abspath(name), name)
    return list(once.values())


def _inside(folder: str) -> list[str]:
    names = [os.path.join(folder, n) for n in os.listdir(folder) if not n.startswith(("_", "."))]
    return [n for n in names if n.endswith((".parquet", ".csv"))]


def parts_of(files: Sequence[str]) -> list[Part]:
    """The parts of all files, in order. MXNetError for a file that is neither Parquet nor CSV."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = []
    for number, file in enumerate(files):
        # Names have 255 bytes at most, with what is put around them.
        stem = f"{number:05d}-{os.fsencode(Path(file).stem)[:150].decode(errors='ignore')}"
        if file.endswith(".csv"):
            found.append(Part(file, None, None, f"{stem}.parquet"))
            continue
        try:
            with pq.ParquetFile(file) as f:
                groups = [f.metadata.row_group(k).num_rows for k in range(f.metadata.num_row_groups)]
        except (pa.ArrowException, OSError, ValueError) as e:
            raise MXNetError(f"{file} is not a Parquet file that can be read: {e}") from None
        found += [Part(file, k, rows, f"{stem}-{k:05d}.parquet") for k, rows in enumerate(groups)]
    return found


def bind(output: Path, job: Mapping[str, Any]) -> None:
    """Makes the folder that of this job. MXNetError if it is another job's, or holds anything else."""
    output.mkdir(parents=True, exist_ok=True)
    path = output / JOB
    if not path.exists():
        others = [n for n in os.listdir(output) if n != LOCK]
        if others:
            raise MXNetError(
                f"--output {output}: it holds {others[0]!r} and is not the folder of an earlier run; take an empty one"
            )
        atomic.write(str(path), [json.dumps(job, indent=1, sort_keys=True).encode()])
        return
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise MXNetError(f"{path} cannot be read ({e}); remove the folder to begin anew") from None
    if not isinstance(there, dict):
        raise MXNetError(f"{path} is not that of a run; take another folder")
    now = json.loads(json.dumps(job))
    different = [key for key in sorted({*now, *there}) if there.get(key) != now.get(key)]
    if different and any(n.endswith(".parquet") and not n.startswith("_") for n in os.listdir(output)):
        raise MXNetError(
            f"--output {output}: it belongs to a run with other {', '.join(different)}; take another folder, or remove "
            "this one to begin anew"
        )
    if different:  # nothing was finished: the command was wrong, and has been corrected
        atomic.write(str(path), [json.dumps(now, indent=1, sort_keys=True).encode()])


def fingerprint(file: str) -> dict[str, Any]:
    """What says that a file of rows is the one that it was."""
    facts = os.stat(file)
    return {"file": os.path.abspath(file), "bytes": facts.st_size, "modified": facts.st_mtime_ns}


def digest(file: str) -> str:
    """The SHA-256 of a model's file."""
    found = hashlib.sha256()
    with open(file, "rb") as f:
        while chunk := f.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


@contextlib.contextmanager
def only_run(output: Path) -> Iterator[None]:
    """A context in which no other run works in the folder; MXNetError if one does."""
    output.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # no POSIX system
        yield
        return
    with open(output / LOCK, "w", encoding="utf-8") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise MXNetError(f"--output {output}: another run is working in this folder") from None
        yield


def remove_unfinished(output: Path) -> None:
    """Removes files that were being written when a process ended."""
    for name in os.listdir(output):
        if name.startswith("_new-"):
            (output / name).unlink(missing_ok=True)


def finished(output: Path, parts: Sequence[Part]) -> list[Part]:
    """The parts whose results are there; files that were being written when a run ended are removed."""
    remove_unfinished(output)
    return [part for part in parts if (output / part.output).is_file()]
