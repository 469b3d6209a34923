"""Files of arrays, whose format follows from the file's ending: `.npz`, `.safetensors`, or else MXNet's `.params`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit.files import params, safetensors

Arrays = dict[str, np.ndarray] | list[np.ndarray]


def read(path: str | os.PathLike[str], copy: bool = True) -> Arrays:
    """The arrays of a file: a dict if they have names, else a list. Arrays do not share memory.

    Without `copy`, they may be read-only views of the file, for callers that copy them immediately. CheckpointError for
    a malformed file, MXNetError for one that cannot be read.
    """
    return _format(path).read(path, copy)


def write(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> None:
    """Writes arrays; an existing file is replaced atomically. MXNetError if it cannot be written."""
    _format(path).write(path, arrays)


def _format(path: str | os.PathLike[str]) -> Any:
    """The module, with functions `read` and `write`, for files with this ending."""
    ending = os.path.splitext(os.fspath(path))[1].lower()
    if ending == ".npz":
        from gluonjit.files import npz

        return npz
    return safetensors if ending == ".safetensors" else params
