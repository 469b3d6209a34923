"""Arrays by name, in whichever format a file's name ends: `.npz`, `.safetensors`, or else MXNet's `.params`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.files import npz, params, safetensors

Arrays = dict[str, np.ndarray] | list[np.ndarray]

FORMATS = {".npz": npz, ".safetensors": safetensors}
"""By file ending; the modules have `read` and `write`. `params` reads and writes everything else."""


def read(path: str | os.PathLike[str], copy: bool = True) -> Arrays:
    """The arrays of a file, each a copy of its own: a dict if they have names, else a list.

    Without `copy`, they may be read-only views of the file: for callers who copy them at once. Raises CheckpointError
    for a malformed file, MXNetError for one that cannot be read.
    """
    return _format(path).read(path, copy)


def write(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> None:
    """Writes what `read` reads; an existing file is replaced at once. MXNetError when it cannot be written."""
    _format(path).write(path, arrays)


def _format(path: str | os.PathLike[str]) -> Any:
    return FORMATS.get(os.path.splitext(os.fspath(path))[1].lower(), params)
