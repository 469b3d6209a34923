"""`nd.save`, `nd.load` and `nd.load_frombuffer`: arrays in files.

A file is MXNet's `.params`, whatever its name, unless that ends in `.npz` or `.safetensors`.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from gluonjit.files import formats, params
from gluonjit.files.sparse import NAMES, Parts
from gluonjit.ndarray.ndarray import NDArray
from gluonjit.ndarray.sparse_arrays import CLASSES, BaseSparseNDArray

__all__ = ["load", "load_frombuffer", "save"]

Arrays = dict[str, NDArray] | list[NDArray]


def save(fname: str | os.PathLike[str], data: Any) -> None:
    """Writes an NDArray, a list of them or a dict of them by name; an existing file is replaced at once.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mx.nd.save(f"{folder}/x.params", {"w": mx.nd.array([1, 2])})
    ...     mx.nd.load(f"{folder}/x.params")["w"].asnumpy()
    array([1., 2.], dtype=float32)
    """
    if isinstance(data, NDArray):
        data = [data]
    if not isinstance(data, (dict, list)):
        raise ValueError("data needs to either be a NDArray, dict of str, NDArray pairs or a list of NDarrays.")
    names, arrays = (data.keys(), data.values()) if isinstance(data, dict) else ((), data)
    if not all(isinstance(x, str) for x in names) or not all(isinstance(x, NDArray) for x in arrays):
        raise TypeError("save only accept dict str->NDArray or list of NDArray")
    plain = [_plain(x) for x in arrays]
    formats.write(fname, dict(zip(names, plain)) if isinstance(data, dict) else plain)


def load(fname: str | os.PathLike[str]) -> Arrays:
    """The arrays of a file that `save` or MXNet wrote: a list, or a dict if they have names.

    Raises CheckpointError for a malformed file, MXNetError for one that cannot be
    read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mx.nd.save(f"{folder}/x.params", [mx.nd.array([1, 2])])
    ...     mx.nd.load(f"{folder}/x.params")[0].asnumpy()
    array([1., 2.], dtype=float32)
    """
    if not isinstance(fname, (str, os.PathLike)):
        raise TypeError("fname required to be a string")
    return _wrapped(formats.read(fname, keep_sparse=True))


def borrow(fname: str | os.PathLike[str]) -> Arrays:
    """`load` for a caller that copies the arrays at once: they are read-only, and may be views of the mapped file.

    Sparse arrays become dense.
    """
    return _wrapped(formats.read(fname, copy=False))


def load_frombuffer(buf: bytes | str) -> Arrays:
    """`load` for the contents of a file.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mx.nd.save(f"{folder}/x.params", [mx.nd.array([1, 2])])
    ...     mx.nd.load_frombuffer(pathlib.Path(folder, "x.params").read_bytes())[0].asnumpy()
    array([1., 2.], dtype=float32)
    """
    if not isinstance(buf, (str, bytes)):
        raise TypeError("buf required to be a string or bytes")
    return _wrapped(params.parse(buf.encode() if isinstance(buf, str) else buf, "<buffer>", keep_sparse=True))


def _plain(x: NDArray) -> np.ndarray | Parts:
    return Parts(x._layout, x._shape, x._values, x._aux) if isinstance(x, BaseSparseNDArray) else x._array


def _wrapped(arrays: dict[str, Any] | list[Any]) -> Arrays:
    if isinstance(arrays, dict):
        return {name: _array(x) for name, x in arrays.items()}
    return [_array(x) for x in arrays]


def _array(x: np.ndarray | Parts) -> NDArray:
    return CLASSES[NAMES[x.storage]](x.shape, x.values, x.aux) if isinstance(x, Parts) else NDArray._wrap(x)
