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

    `blocks`: the blocks whose programs were running, from the outermost to the one that contains the line `loc`.
    """

    blocks: Sequence[Any] = ()
    loc: Any = None


class StateChange(ValueNeeded):
    """A program changes state that its next call reads, or draws random numbers that compiled code would draw once.

    `again`: whether the next call may not do so (`if self.grid is None: self.grid = ...`).
    """

    def __init__(self, text: str, blocks: Sequence[Any], again: bool, loc: Any) -> None:
        super().__init__(text)
        self.blocks, self.loc = blocks, loc
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


SymbolHandle = ctypes.c_void_p
mx_int = ctypes.c_int
mx_uint = ctypes.c_uint
mx_float = ctypes.c_float
mx_float_p = ctypes.POINTER(mx_float)


def c_str(string: str) -> ctypes.c_char_p:
    """A string for C."""
    return ctypes.c_char_p(string.encode("utf-8"))


def c_str_array(strings: Sequence[str]) -> Any:
    """An array of strings for C."""
    return c_array(ctypes.c_char_p, [s.encode("utf-8") for s in strings])


def c_array(ctype: Any, values: Sequence[Any]) -> Any:
    """An array for C with copies of the values."""
    return (ctype * len(values))(*values)


def c_array_buf(ctype: Any, buf: Any) -> Any:
    """An array for C in the memory of a buffer (`array.array`)."""
    return (ctype * len(buf)).from_buffer(buf)


def c_handle_array(objects: Sequence[Any]) -> Any:
    """An array for C with the handles of the objects."""
    return c_array(ctypes.c_void_p, [x.handle for x in objects])


def check_call(status: int) -> None:
    """Raises the error of a function of MXNet's C library; `status` is what it has returned."""
    if status:
        raise MXNetError(f"a function of a C library has failed with status {status}")


class _Library:
    """Stands for MXNet's C library, which is not here: programs import it, and mostly do not call it."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith(("MX", "NN")):
            raise AttributeError(name)

        def refuse(*_: Any) -> None:
            raise MXNetError(
                f"{name} is a function of MXNet's C library, which gluonjit does not have; call what mxnet offers in "
                "Python instead"
            )

        return refuse


_LIB = _Library()


def ctypes2buffer(cptr: Any, length: int) -> bytearray:
    """A copy of the `length` bytes that a pointer to characters points to."""
    if not isinstance(cptr, ctypes.POINTER(ctypes.c_char)):
        raise RuntimeError("expected char pointer")
    return bytearray(ctypes.string_at(cptr, length))


def ctypes2numpy_shared(cptr: Any, shape: Sequence[int]) -> np.ndarray:
    """An array in the memory that a pointer to floats points to."""
    if not isinstance(cptr, mx_float_p):
        raise RuntimeError("expected float pointer")
    return np.ctypeslib.as_array(cptr, tuple(shape))


def build_param_doc(
    arg_names: Sequence[str], arg_types: Sequence[str], arg_descs: Sequence[str], remove_dup: bool = True
) -> str:
    """The section "Parameters" of a docstring in NumPy's style."""
    seen: set[str] = set()
    lines = ["Parameters", "----------"]
    for name, kind, text in zip(arg_names, arg_types, arg_descs):
        if remove_dup and name in seen:
            continue
        seen.add(name)
        lines += [f"{name} : {kind}", *([f"    {text}"] if text else [])]
    return "\n".join(lines) + "\n"


class classproperty:
    """A property of a class, as a decorator."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self.function(owner)


def with_metaclass(meta: type, *bases: type) -> Any:
    """A base by which a class gets the metaclass `meta`, as in Python 2 and 3."""

    class Once(meta):  # type: ignore[valid-type,misc]
        def __new__(cls, name: str, _: Any, content: dict[str, Any]) -> Any:
            return meta(name, bases, content)

    return type.__new__(Once, "temporary_class", (), {})


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
