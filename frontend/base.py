"""What MXNet keeps in `mxnet.base`: the error classes users catch, and a few type aliases."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.language import mxnet_names as _mxnet_names


class MXNetError(RuntimeError):
    """The error MXNet raises for what its engine refuses."""


class NotImplementedForSymbol(MXNetError):
    """A method that only NDArray has was called on a Symbol."""

    def __init__(self, function: object, alias: str | None, *args: object) -> None:
        super().__init__()
        self.function = getattr(function, "__name__", str(function))
        self.alias = alias
        self.args = tuple(str(type(a)) for a in args)

    def __str__(self) -> str:
        text = f"Function {self.function}"
        if self.alias:
            text += f' (namely operator "{self.alias}")'
        if self.args:
            text += f" with arguments ({', '.join(self.args)})"
        return text + " is not implemented for Symbol and only available in NDArray."


class NotSupportedForSparseNDArray(MXNetError):
    """A method that only dense arrays have was called on a sparse one."""


class TraceError(MXNetError):
    """Something in `hybrid_forward` cannot be compiled; the message shows the user's line and what to write instead."""


class ValueNeeded(TraceError):
    """A program cannot be compiled because it needs the value of an array; it would run operator by operator.

    `blocks`: the blocks whose programs were running, from the outermost to the one that contains the line.
    """

    blocks: Sequence[Any] = ()


class StateChange(ValueNeeded):
    """A program changes state that its next call reads, or draws random numbers that compiled code would draw once.

    `again`: whether the next call may not do so (`if self.grid is None: self.grid = ...`).
    """

    def __init__(self, text: str, blocks: Sequence[Any], again: bool) -> None:
        super().__init__(text)
        self.blocks = blocks
        self.again = again


class CheckpointError(MXNetError, ValueError):
    """A model file is malformed; the message names the file, the place in it and what was expected."""


string_types = (str,)
numeric_types = (float, int, np.generic)
integer_types = (int, np.int32, np.int64)
mx_real_t = np.float32


class _NullType:
    """The type of `_Null`, which stands for an attribute that was not given (None is a value)."""

    def __repr__(self) -> str:
        return "_Null"

    def __reduce__(self) -> str:
        return "_Null"


_Null = _NullType()


NDArrayHandle = ctypes.c_void_p
"""The type that MXNet passes to callbacks instead of an array; `nd.NDArray(handle)` is the array."""


def py_str(x: bytes) -> str:
    """Decodes a string from C."""
    return x.decode("utf-8")


def dtype_name(dtype: object) -> str:
    """The name MXNet stores for an element type: `np.float32`, `'f4'` and `np.dtype('float32')` are `'float32'`.

    TypeError, as from `np.dtype`, for what is no element type. None means `float64`, as it does to `np.dtype`.
    """
    if dtype == "bfloat16":  # known to NumPy only once ml_dtypes is imported
        return "bfloat16"
    return _name(np.dtype(dtype))  # type: ignore[call-overload]


@functools.cache
def _name(dtype: np.dtype) -> str:
    return dtype.name  # NumPy computes it


def _as_list(obj: object) -> list:
    """A list or tuple as list, anything else as a list of it."""
    return list(obj) if isinstance(obj, (list, tuple)) else [obj]


def data_dir() -> str:
    """The folder for models and datasets: `$MXNET_HOME`, or `~/.mxnet`."""
    return os.getenv("MXNET_HOME") or os.path.join(os.path.expanduser("~"), ".mxnet")


_mxnet_names.explain(__name__)
