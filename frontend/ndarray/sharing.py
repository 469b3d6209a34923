"""Memory that arrays share with NumPy and, through DLPack, with other frameworks.

An array that comes back out of a capsule, or a NumPy array that was shared before, gets the same `Storage` as the array
it aliases, so that compiled code notices writes through either. Another framework's writes cannot be noticed: memory
that it may write to has an *exposed* storage, which compiled code reads again at every call.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.language.running import recorded
from gluonjit.ndarray.constructors import array
from gluonjit.ndarray.ndarray import NDArray, element_type
from gluonjit.runtime.storage import Storage

__all__ = ["from_dlpack", "from_numpy", "to_dlpack_for_read", "to_dlpack_for_write"]

_shared: weakref.WeakValueDictionary[int, Storage] = weakref.WeakValueDictionary()
"""The storage of shared memory, by start address."""


def from_numpy(ndarray: np.ndarray, zero_copy: bool = True) -> NDArray:
    """An NDArray with the elements and element type of a NumPy array; `zero_copy` shares its memory.

    Sharing makes the NumPy array read-only, as in MXNet: it must no longer be changed. If the memory itself is
    read-only (a file mapped for reading, a bytes object), so is the NDArray.

    >>> mx.nd.from_numpy(np.array([1.5, 2.5])).asnumpy()
    array([1.5, 2.5])
    """
    if not zero_copy:
        return array(ndarray, dtype=ndarray.dtype)
    if not ndarray.flags.c_contiguous:
        raise ValueError("Only c-contiguous arrays are supported for zero-copy")
    element_type(ndarray.dtype)
    storage = _storage_at(_owner(ndarray).ctypes.data)
    storage.aliased = True
    return _on(_writable_view(ndarray), storage)


def _owner(array: np.ndarray) -> np.ndarray:
    """The array that owns the memory of this view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _writable_view(array: np.ndarray) -> np.ndarray:
    """A view that is writeable if the memory is; makes `array` itself read-only."""
    locked = [a for a in (_owner(array), array) if not a.flags.writeable]
    try:
        for a in locked:
            a.flags.writeable = True  # ValueError if the memory itself is read-only, not just the flag
        shared = array.view()
    except ValueError:
        return array.view()
    finally:
        for a in locked:
            a.flags.writeable = False
    array.flags.writeable = False
    return shared


def _storage_at(address: int) -> Storage:
    storage = _shared.get(address)
    if storage is None:
        storage = _shared[address] = Storage()
    return storage


def _on(array: np.ndarray, storage: Storage) -> NDArray:
    x = NDArray._wrap(array)
    x._storage = storage
    return x


@recorded
def to_dlpack_for_read(data: NDArray) -> Any:
    """A DLPack capsule through which another framework reads this array's memory.

    >>> x = mx.nd.array([1, 2])
    >>> mx.nd.from_dlpack(mx.nd.to_dlpack_for_read(x)).asnumpy()
    array([1., 2.], dtype=float32)
    """
    return _capsule(data)


@recorded
def to_dlpack_for_write(data: NDArray) -> Any:
    """A DLPack capsule through which another framework reads and writes this array's memory.

    >>> x = mx.nd.array([1, 2])
    >>> mx.nd.from_dlpack(mx.nd.to_dlpack_for_write(x))[:] = 7
    >>> x.asnumpy()
    array([7., 7.], dtype=float32)
    """
    made = _capsule(data)
    storage = data.storage()
    storage.exposed = True
    storage.wrote()
    return made


def _capsule(x: NDArray) -> Any:
    """A DLPack capsule of the array; MXNetError if DLPack cannot represent it."""
    storage = x.storage()
    storage.aliased = True
    try:
        made = x._array.__dlpack__()
    except (BufferError, TypeError) as e:
        raise MXNetError(f"an array of {x._array.dtype} cannot be exported through DLPack: {e}") from e
    _shared[x._array.ctypes.data] = storage
    return made


NDArray.to_dlpack_for_read = to_dlpack_for_read  # type: ignore[attr-defined]
NDArray.to_dlpack_for_write = to_dlpack_for_write  # type: ignore[attr-defined]


class _Capsule:
    """A DLPack capsule as an object with `__dlpack__`, which `np.from_dlpack` needs."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU


def from_dlpack(dlpack: Any) -> NDArray:
    """An NDArray on the memory of a DLPack capsule, or of an object with `__dlpack__`.

    Elements that are not contiguous or not aligned are copied. The NDArray is read-only if the object says so; a bare
    capsule cannot say it.

    >>> mx.nd.from_dlpack(np.array([1.5, 2.5])).asnumpy()
    array([1.5, 2.5])
    """
    bare = type(dlpack).__name__ == "PyCapsule"
    if not bare and not hasattr(dlpack, "__dlpack__"):
        raise TypeError(f"from_dlpack takes a DLPack capsule or an object with __dlpack__(), not {dlpack!r}")
    try:
        source = np.from_dlpack(_Capsule(dlpack) if bare else dlpack)
    except (BufferError, RuntimeError, ValueError) as e:
        raise MXNetError(f"from_dlpack: {e}; a capsule can be used only once, and must be of CPU memory") from e
    element_type(source.dtype)
    if not (source.flags.c_contiguous and source.flags.aligned):
        return array(source, dtype=source.dtype)
    known = _shared.get(source.ctypes.data)
    storage = _storage_at(source.ctypes.data)
    if known is None:
        storage.exposed = True
    return _on(_unlocked(source) if bare else source, storage)


def _unlocked(source: np.ndarray) -> np.ndarray:
    """A writeable view of the same memory: NumPy always makes a capsule's memory read-only."""
    if source.flags.writeable or not source.size:
        return source
    memory = (ctypes.c_byte * source.nbytes).from_address(source.ctypes.data)
    memory._source = source  # type: ignore[attr-defined]  # the buffer that NumPy keeps is this object
    return np.frombuffer(memory, source.dtype).reshape(source.shape)  # type: ignore[call-overload]
