"""Files of arrays, whose format follows from the file's ending: `.npz`, `.safetensors`, or else MXNet's `.params`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.files import params, safetensors
from gluonjit.files.sparse import Parts

ENDINGS = (".params", ".npz", ".safetensors")
"""What names of files end in that hold arrays."""

Arrays = dict[str, Any] | list[Any]


def read(path: str | os.PathLike[str], copy: bool = True, keep_sparse: bool = False) -> Arrays:
    """The arrays of a file: a dict if they have names, else a list. Arrays do not share memory.

    Without `copy`, they may be read-only views of the file, for callers that copy them immediately. CheckpointError for
    a malformed file, MXNetError for one that cannot be read. `keep_sparse`: see `params.read`.
    """
    format = _format(path)
    return params.read(path, copy, keep_sparse=keep_sparse) if format is params else format.read(path, copy)


def write(path: str | os.PathLike[str], arrays: Mapping[str, Any] | Sequence[Any]) -> None:
    """Writes arrays; an existing file is replaced atomically. MXNetError if it cannot be written.

    Sparse ones (`sparse.Parts`) can only be written as `.params`.
    """
    format = _format(path)
    values = arrays.values() if isinstance(arrays, Mapping) else arrays
    if format is not params and any(isinstance(x, Parts) for x in values):
        raise MXNetError(f"cannot write {path}: the format has no sparse arrays; use .tostype('default'), or .params")
    format.write(path, arrays)


def _format(path: str | os.PathLike[str]) -> Any:
    """The module, with functions `read` and `write`, for files with this ending."""
    ending = os.path.splitext(os.fspath(path))[1].lower()
    if ending == ".npz":
        from gluonjit.files import npz

        return npz
    return safetensors if ending == ".safetensors" else params
