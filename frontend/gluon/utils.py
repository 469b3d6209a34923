"""Helpers of blocks and parameters, and functions for training loops: batches, gradients, files."""

from __future__ import annotations

import collections
import math
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from gluonjit import ndarray
from gluonjit.base import MXNetError
from gluonjit.context import Context
from gluonjit.language.kinds import as_current
from gluonjit.language.modes import modes
from gluonjit.ndarray import NDArray
from gluonjit.symbol import Symbol
from gluonjit.util import is_np_array, is_np_shape

__all__ = [
    "check_sha1",
    "clip_global_norm",
    "download",
    "replace_file",
    "shape_is_known",
    "split_and_load",
    "split_data",
]


def split_data(data: NDArray, num_slice: int, batch_axis: int = 0, even_split: bool = True) -> list[NDArray]:
    """`data` split into `num_slice` parts along an axis.

    Raises ValueError if they cannot be equal, unless `even_split` is False: then the first parts are larger by one.
    """
    if num_slice < 1:
        raise ValueError(f"num_slice is a number of parts, 1 or more, got {num_slice}")
    size = data.shape[batch_axis]
    if even_split and size % num_slice:
        raise ValueError(
            f"data with shape {data.shape} cannot be evenly split into {num_slice} slices along axis {batch_axis}. "
            f"Use a batch size that's multiple of {num_slice} or set even_split=False to allow uneven partitioning of "
            "data."
        )
    if size < num_slice:
        raise ValueError(
            f"data with shape {data.shape} cannot be split into {num_slice} slices along axis {batch_axis}"
        )
    small, longer = divmod(size, num_slice)
    ends = [small * k + min(k, longer) for k in range(1, num_slice + 1)]
    if batch_axis == 0:
        return [data[a:b] for a, b in zip([0, *ends], ends)]
    return [ndarray.slice_axis(data, axis=batch_axis, begin=a, end=b) for a, b in zip([0, *ends], ends)]


def split_and_load(
    data: Any, ctx_list: Sequence[Context], batch_axis: int = 0, even_split: bool = True
) -> list[NDArray]:
    """`split_data` with one part per context."""
    if not isinstance(data, NDArray):
        dtype = data.dtype if is_np_array() and isinstance(data, np.ndarray) else None  # else float32
        data = as_current(ndarray.array(data, ctx=ctx_list[0], dtype=dtype))
    if len(ctx_list) == 1:
        return [data.as_in_context(ctx_list[0])]
    parts = split_data(data, len(ctx_list), batch_axis, even_split)
    return [part.as_in_context(ctx) for part, ctx in zip(parts, ctx_list)]


def clip_global_norm(arrays: Sequence[Any], max_norm: float, check_isfinite: bool = True) -> Any:
    """Scales arrays, in place, so that the 2-norm of all their elements together is at most `max_norm`.

    Returns the norm before scaling: a float, or an array of one element if `check_isfinite` is False. With
    `check_isfinite`, warns if the norm is not finite.
    """
    if not arrays:
        raise AssertionError("clip_global_norm needs an array")
    stored = [x if x.stype == "default" else x.data for x in arrays]
    norm = math.sqrt(sum(_sum_of_squares(x._array) for x in stored))
    if check_isfinite and not math.isfinite(norm):
        warnings.warn(UserWarning("nan or inf is detected. Clipping results will be undefined."), stacklevel=2)
    scale = max_norm / (norm + 1e-8)
    if not scale >= 1.0:  # NaN, too
        for x in arrays:
            if x.stype == "default" and x.dtype is np.float32 and x.writable and not modes.recording:
                np.multiply(x._array, np.float32(scale), out=x._array)  # without an array of the results
                x._wrote()
            else:
                x *= scale
    return norm if check_isfinite else ndarray.array([norm])


_TERMS = 1024
"""Squares of float32 that are added up as such: a thousandth of the sum's last digit is lost."""
_LEAST = 1e-30
"""The mean of squares from which on it does not matter that float32 has none below 1e-38."""


def _sum_of_squares(x: np.ndarray) -> float:
    """Of all elements, without an array of squares, which would be as large as `x` or larger.

    It is added up in float64. Squares of float32 are first added up in rows, a third of the time of one sum in float64,
    unless that leaves the range of float32.
    """
    flat = x.reshape(-1)
    if flat.dtype == np.float32:
        rows, rest = flat[: flat.size // _TERMS * _TERMS].reshape(-1, _TERMS), flat[flat.size // _TERMS * _TERMS :]
        with np.errstate(over="ignore"):
            found = float(np.einsum("rk,rk->r", rows, rows).sum(dtype=np.float64)) + _exact_sum_of_squares(rest)
        if _LEAST * flat.size <= found < math.inf:
            return found
    return _exact_sum_of_squares(flat)


def _exact_sum_of_squares(flat: np.ndarray) -> float:
    """Of all elements, added up in float64."""
    return float(np.einsum("i,i->", flat, flat, dtype=np.float64, casting="same_kind"))


def check_sha1(filename: str | os.PathLike[str], sha1_hash: str) -> bool:
    """Whether a file's SHA-1 is `sha1_hash`."""
    import hashlib

    digest = hashlib.sha1(usedforsecurity=False)
    with open(filename, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest() == sha1_hash


def download(
    url: str,
    path: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    sha1_hash: str | None = None,
    retries: int = 5,
    verify_ssl: bool = True,
) -> str:
    """The local copy of `url`: the file `path`, or the URL's last part in the folder `path` or the current folder.

    Nothing is downloaded: raises MXNetError if the file does not exist or does not have the hash `sha1_hash`.
    """
    name = url.split("/")[-1]
    file = name if path is None else os.path.expanduser(os.fspath(path))
    if path is not None and os.path.isdir(file):
        file = os.path.join(file, name)
    advice = f"gluonjit downloads nothing; fetch {url} and save it as {file}"
    if not os.path.isfile(file):
        raise MXNetError(f"there is no file {file}: {advice}")
    if sha1_hash and not check_sha1(file, sha1_hash):
        raise MXNetError(f"the file {file} is not the expected one, its SHA-1 differs from {sha1_hash}: {advice}")
    return file


def replace_file(src: str | os.PathLike[str], dst: str | os.PathLike[str]) -> None:
    """Replaces file `dst` by `src`, atomically."""
    os.replace(src, dst)


def _get_repo_url() -> str:
    """Where MXNet's model and data files are published."""
    url = os.environ.get("MXNET_GLUON_REPO", "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/")
    return url if url.endswith("/") else url + "/"


def _get_repo_file_url(namespace: str, filename: str) -> str:
    return f"{_get_repo_url()}{namespace}/{filename}"


class HookHandle:
    """The result of `register_forward_hook`: `detach()`, or leaving it as a context manager, removes the hook."""

    def __init__(self) -> None:
        self._hooks: Callable[[], Any] | None = None
        self._id: int | None = None

    def attach(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        if self._hooks is not None:
            raise AssertionError("The same handle cannot be attached twice.")
        self._id = id(hook)
        hooks[self._id] = hook
        self._hooks = weakref.ref(hooks)

    def detach(self) -> None:
        """Removes the hook. Does nothing if it was removed before or the block no longer exists."""
        hooks = self._hooks() if self._hooks is not None else None
        if hooks is not None:
            hooks.pop(self._id, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.detach()

    # A weak reference cannot be pickled; the dictionary it points to can.
    def __getstate__(self) -> tuple[Any, int | None]:
        return (self._hooks() if self._hooks is not None else None, self._id)

    def __setstate__(self, state: tuple[Any, int | None]) -> None:
        hooks, self._id = state
        self._hooks = weakref.ref(hooks if hooks is not None else collections.OrderedDict())


def shape_is_known(shape: tuple[int, ...] | None) -> bool:
    """Whether all dimensions are known: 0 is an unknown dimension, None an unknown shape, and so is `()`, unless
    `np_shape` makes it that of a number."""
    if not shape:
        return shape is not None and is_np_shape()
    if min(shape) < 0:
        raise AssertionError(f"shape dimension size cannot be less than 0, while received {min(shape)}")
    return 0 not in shape


def tensor_kinds(value: Any) -> set[type]:
    """Which of the types NDArray and Symbol occur in nested `value`."""
    if isinstance(value, (list, tuple)):
        return set().union(*map(tensor_kinds, value))
    return {kind for kind in (NDArray, Symbol) if isinstance(value, kind)}


def _indent(text: str, spaces: int) -> str:
    """Indents every line but the first."""
    return text.replace("\n", "\n" + " " * spaces)


def _brief_print_list(items: Iterable[Any], limit: int = 7) -> str:
    """The quoted items; if there are more than about `limit`, with an ellipsis in the middle."""
    names = [f"'{item}'" for item in items]
    if len(names) > limit:
        names = names[: limit // 2] + ["..."] + names[-(limit // 2) - limit % 2 :]
    return ", ".join(names)
