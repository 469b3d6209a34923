"""MXNet's `.states` files: pickled states of optimizers, read without running code.

A pickle may name any function of any module, and have it called. Here a name never becomes the object: it becomes a
`Named`, which only remembers what it was given. The exceptions are names of plain data (`bytearray`, numbers of NumPy),
which are made by the functions of this module. So the result consists of numbers, strings, containers, and `Named`.

    loads(data, name) → {0: Named("mxnet.ndarray.ndarray", "NDArray", {"handle": bytearray(…)}), …}

`dumps` writes such a structure, as MXNet does; `array` and `elements` convert between NumPy arrays and the `Named` that
is an NDArray.
"""

from __future__ import annotations

import io
import os
import pickle
import stat
import struct
import sys
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import numpy as np

from gluonjit.base import CheckpointError, MXNetError
from gluonjit.files import params

PROTOCOL = 4
# In Python: the one in C takes memory for positions that a damaged file names, and writes only what can be imported.
_UNPICKLER: Any = pickle._Unpickler  # type: ignore[attr-defined]
_PICKLER: Any = pickle._Pickler  # type: ignore[attr-defined]
NDARRAY = ("mxnet.ndarray.ndarray", "NDArray")
_ARRAYS = (NDARRAY, ("mxnet.numpy.multiarray", "ndarray"))


class Named:
    """An object of a class that is known by name alone. `made`: whether it is made by a call, `cls(None)`."""

    def __init__(self, module: str, name: str, state: Any, made: bool = False) -> None:
        self.module = module
        self.name = name
        self.state = state
        self.made = made


def elements(x: Any, name: str) -> np.ndarray | None:
    """The elements of a `Named` that is an NDArray; None for anything else. CheckpointError if they are damaged."""
    if not isinstance(x, Named) or (x.module, x.name) not in _ARRAYS:
        return None
    data = x.state.get("handle") if isinstance(x.state, dict) else None
    if not isinstance(data, (bytes, bytearray)):
        raise CheckpointError(f"{name}: an NDArray without elements")
    return params.parse_record(data, name)


def array(x: np.ndarray) -> Named:
    return Named(*NDARRAY, {"handle": params.record(x)}, made=True)


# Reading


class _Instance:
    """What a pickle makes of a name; one class for each name. Keeps the state that it is given, and nothing else."""

    module = ""
    name = ""

    def __new__(cls, *args: Any) -> _Instance:
        return object.__new__(cls)

    def __init__(self, *args: Any) -> None:
        self._own_state: Any = {}

    def __setstate__(self, state: Any) -> None:
        object.__setattr__(self, "_own_state", state)


class _Maker:
    """A function that a pickle may call. Nothing can be set on it."""

    __slots__ = ("make",)
    make: Callable[..., Any]

    def __init__(self, make: Callable[..., Any]) -> None:
        object.__setattr__(self, "make", make)

    def __call__(self, *args: Any) -> Any:
        return self.make(*args)

    def __setattr__(self, key: str, value: Any) -> NoReturn:
        raise AttributeError(key)

    def __setstate__(self, state: Any) -> NoReturn:
        raise pickle.UnpicklingError("a function has no state")


class _Dtype:
    """The element type of a NumPy number."""

    __slots__ = ("dtype",)

    def __init__(self, code: Any, *more: Any) -> None:
        if not isinstance(code, str) or code.lstrip("<=|") not in _NUMBERS:
            raise pickle.UnpicklingError(f"a number of the type {code!r}")
        self.dtype = np.dtype(code.lstrip("<=|"))

    def __setstate__(self, state: Any) -> None:
        """Its byte order and flags, of which the little-endian ones are the default."""
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", "|", "="):
            raise pickle.UnpicklingError("a number that is not little-endian")


_NUMBERS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")


def _scalar(kind: Any, data: Any) -> Any:
    if isinstance(data, str):
        data = data.encode("latin1")
    if not isinstance(kind, _Dtype) or not isinstance(data, bytes) or len(data) != kind.dtype.itemsize:
        raise pickle.UnpicklingError("a damaged number")
    return np.frombuffer(data, kind.dtype)[0].item()


def _bytes(data: Any = b"", encoding: Any = "latin1") -> bytes:
    if isinstance(data, str):  # as protocols before 3 write bytes
        return data.encode("latin1")
    if not isinstance(data, (bytes, bytearray)):  # a number would be a size
        raise pickle.UnpicklingError("bytes of something else")
    return bytes(data)


def _dict(pairs: Any = ()) -> dict[Any, Any]:
    return dict(pairs)


_PLAIN: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "bytearray"): lambda *args: bytearray(_bytes(*args)),
    ("builtins", "bytes"): _bytes,
    ("_codecs", "encode"): _bytes,
    ("collections", "OrderedDict"): _dict,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy._core.multiarray", "scalar"): _scalar,
}


class _Reader(_UNPICKLER):  # type: ignore[misc]
    dispatch: ClassVar[dict[int, Any]] = dict(_UNPICKLER.dispatch)

    def load_bytearray8(self) -> None:
        """Its size is compared with what is left of the file: the method that this replaces takes the memory first."""
        (size,) = struct.unpack("<Q", self.read(8))
        data = self.read(size) if size < sys.maxsize else b""
        if len(data) != size:
            raise pickle.UnpicklingError(f"a bytearray of {size} bytes of which {len(data)} are there")
        self.append(bytearray(data))

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8

    def find_class(self, module: str, name: str) -> Any:
        make = _PLAIN.get((module, name))
        if make is not None:
            return _Maker(make)
        return type("_Instance", (_Instance,), {"module": module, "name": name})

    def get_extension(self, code: int) -> NoReturn:
        raise pickle.UnpicklingError("an extension code")


def contents(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file; MXNetError for a device, whose bytes may have no end."""
    with open(path, "rb") as file:
        if stat.S_ISCHR(os.fstat(file.fileno()).st_mode):
            raise MXNetError(f"cannot read {os.fspath(path)}: it is a device")
        return file.read()


def loads(data: bytes, name: str = "states") -> Any:
    """The structure that a pickle describes, see above. CheckpointError for one that is damaged."""
    if data.startswith(struct.pack("<Q", params.MAGIC)):
        raise CheckpointError(f"{name}: not the states of an optimizer, but a file of parameters")
    try:
        return _cleaned(_Reader(io.BytesIO(data), encoding="latin1").load(), {})
    except RecursionError:
        raise CheckpointError(f"{name}: nested too deeply") from None
    except MemoryError:
        raise
    except Exception as e:
        raise CheckpointError(f"{name}: not the states of an optimizer ({type(e).__name__}: {e})") from None


def _cleaned(x: Any, seen: dict[int, Any]) -> Any:
    """The structure with a `Named` for each instance. What occurs twice is one object in the result, too."""
    if id(x) in seen:
        return seen[id(x)][1]
    if isinstance(x, _Instance):
        made = Named(x.module, x.name, None)
        seen[id(x)] = x, made
        made.state = _cleaned(x._own_state, seen)
        return made
    if x.__class__ is dict:
        table: dict[Any, Any] = {}
        seen[id(x)] = x, table
        table.update((_cleaned(k, seen), _cleaned(v, seen)) for k, v in x.items())
        return table
    if x.__class__ is list:
        items: list[Any] = []
        seen[id(x)] = x, items
        items.extend(_cleaned(v, seen) for v in x)
        return items
    if x.__class__ is tuple:
        seen[id(x)] = x, tuple(_cleaned(v, seen) for v in x)
        return seen[id(x)][1]
    if x is None or x.__class__ in (bool, int, float, complex, str, bytes, bytearray, set, frozenset):
        return x
    raise pickle.UnpicklingError(f"a {type(x).__name__}")


# Writing


_DATA = (bool, int, float, complex, str, bytes, bytearray, tuple, list, dict, set)


class _Class:
    """A class that exists in the file alone."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name


class _Writer(_PICKLER):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, PROTOCOL)
        self._classes: dict[tuple[str, str], _Class] = {}

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, Named):
            self._save_named(obj)
        elif isinstance(obj, np.generic):
            super().save(obj.item())
        elif obj is None or obj is bytearray or isinstance(obj, _DATA):
            super().save(obj)
        else:
            raise TypeError(f"a {type(obj).__name__}")

    def _save_named(self, x: Named) -> None:
        if id(x) in self.memo:
            self.write(self.get(self.memo[id(x)][0]))
            return
        self._save_class(x.module, x.name)
        self.save((None,) if x.made else ())
        self.write(pickle.REDUCE if x.made else pickle.NEWOBJ)
        self.memoize(x)
        self.save(x.state)
        self.write(pickle.BUILD)

    def _save_class(self, module: str, name: str) -> None:
        known = self._classes.setdefault((module, name), _Class(module, name))
        if id(known) in self.memo:
            self.write(self.get(self.memo[id(known)][0]))
            return
        self.save(module)
        self.save(name)
        self.write(pickle.STACK_GLOBAL)
        self.memoize(known)


def dumps(structure: Any) -> bytes:
    """The pickle of a structure of numbers, strings, containers, and `Named`. TypeError for anything else."""
    file = io.BytesIO()
    _Writer(file).dump(structure)
    return file.getvalue()
