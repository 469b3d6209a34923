"""`gluonjit.load`: a library that `gluonjit build` made, called from Python with NumPy alone.

Neither the compiler nor LLVM is imported. The library's code is executed, so it must come from somebody you trust.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.ir.dims import at, parse
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.sizes import sizes_of
from gluonjit.ir.types import IRError, TensorType, dtype
from gluonjit.runtime import forks
from gluonjit.runtime.cores import available_cores

_PREFIX, _SUFFIX = "lib", ".so"


class Array(NamedTuple):
    """An input or output of a library."""

    name: str
    dtype: np.dtype
    shape: tuple[int | str, ...]
    """Sizes; a text for one that each call may choose: `batch`."""

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


def load(path: str | os.PathLike[str], threads: int | None = None) -> Deployed:
    """The model in a library, `libNAME.so`, to be called with arrays. `threads`: how many a call may use; None: as many
    as there are cores. Raises MXNetError for a file that is not such a library."""
    return Deployed(Path(path), threads or available_cores())


class Deployed:
    """A model in a library.

    `net(x)` takes an array for each input, in order or by name, and returns a new array, or a list if there are several
    outputs. It may be called by several threads, one after the other, and be pickled: another process opens the library
    again.
    """

    def __init__(self, path: Path, threads: int) -> None:
        self.path, self.threads = path, threads
        name = path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        try:
            library = ctypes.CDLL(str(path.resolve(strict=True)))
        except OSError as e:
            raise MXNetError(f"{path} cannot be loaded: {e}") from None
        try:
            self._functions = {
                f: getattr(library, f"{name}_{f}") for f in ("create", "run", "free", "message", "describe")
            }
        except AttributeError as e:
            raise MXNetError(f"{path} is not a library that `gluonjit build` made, or was renamed: {e}") from None
        for f in ("message", "describe"):
            self._functions[f].restype = ctypes.c_char_p
        facts = json.loads(self._functions["describe"]())
        self.name: str = facts["name"]
        self.version: str = facts["compiler"]
        self.inputs, self.outputs = (tuple(map(_array, facts[kind])) for kind in ("inputs", "outputs"))
        self._sizes: list[str] = facts["sizes"]
        self.rows: str | None = facts.get("rows")
        """The open dimension along which rows are computed independently of each other."""
        self.why_rows_mix: str = facts.get("why_rows_mix", "an older gluonjit built it, and did not look")
        weights = facts["weights_file"]
        self._weights = [os.fsencode(path.with_name(weights))] if weights else []
        """The path of the file of weights, which lies beside the library, if there is one."""
        self._in_types, self._out_types = (tuple(map(_type, arrays)) for arrays in (self.inputs, self.outputs))
        self._lock = forks.renewed()  # a fork may come while another thread reads the weights
        self._net: ctypes.c_void_p | None = None
        self._process = -1

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, arrays)) for arrays in (self.inputs, self.outputs))
        return f"<library {self.name}({inputs}) -> {outputs}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return load, (str(self.path), self.threads)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Raises ValueError for arrays that are missing or too many, and for shapes that do not fit."""
        given = self._ordered(args, named)
        arrays = [self._converted(x, array) for x, array in zip(given, self.inputs, strict=True)]
        try:
            sizes = sizes_of(self._in_types, [x.shape for x in arrays], 1)
        except IRError as e:
            wanted = ", ".join(map(str, self.inputs))
            raise ValueError(f"{self.name} takes {wanted}, got shapes {[x.shape for x in arrays]}: {e}") from None
        shapes = [tuple(at(n, sizes) for n in t.shape) for t in self._out_types]
        results = [np.empty(shape, t.dtype.numpy) for shape, t in zip(shapes, self._out_types, strict=True)]
        words = [ctypes.c_int64(sizes[name]) for name in self._sizes]
        pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (*arrays, *results)]
        self._check(self._functions["run"](self._opened(), *words, *pointers))
        return results[0] if len(results) == 1 else results

    def _ordered(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        names = [x.name for x in self.inputs]
        if len(args) > len(names):
            raise ValueError(f"{self.name} takes {len(names)} arrays ({', '.join(names)}), got {len(args)}")
        found = dict(zip(names, args))
        for key, value in named.items():
            if key not in names:
                raise ValueError(f"{self.name} has no input {key!r}{did_you_mean(key, names)}")
            if key in found:
                raise ValueError(f"{self.name} got several arrays for {key!r}")
            found[key] = value
        missing = [name for name in names if name not in found]
        if missing:
            raise ValueError(f"{self.name} needs {', '.join(missing)}")
        return [found[name] for name in names]

    def _converted(self, x: Any, array: Array) -> np.ndarray:
        given = np.asarray(x)
        if not np.can_cast(given.dtype, array.dtype, "same_kind"):
            raise ValueError(f"{self.name} takes {array}, got {given.dtype}: convert it, if that is meant")
        return np.require(given, array.dtype, ["C", "A"])

    def _opened(self) -> ctypes.c_void_p:
        """The net of this process: threads do not survive a fork."""
        with self._lock:
            if self._net is None or self._process != os.getpid():
                net = ctypes.c_void_p()
                self._check(self._functions["create"](self.threads, *self._weights, ctypes.byref(net)))
                self._net, self._process = net, os.getpid()
            return self._net

    def _check(self, status: int) -> None:
        if status:
            raise MXNetError(f"{self.path}: {self._functions['message'](status).decode()}")

    def open(self) -> None:
        """Reads the file of weights and starts the threads, as the first call does otherwise."""
        self._opened()

    def close(self) -> None:
        """Ends the threads and frees the memory; a later call starts anew. No call may be running."""
        with self._lock:
            if self._net is not None and self._process == os.getpid():
                self._functions["free"](self._net)
            self._net = None

    def __enter__(self) -> Deployed:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_net", None) is not None:
            self.close()


def _array(facts: Mapping[str, Any]) -> Array:
    return Array(facts["name"], np.dtype(facts["dtype"]), tuple(facts["shape"]))


def _type(array: Array) -> TensorType:
    return TensorType(dtype(array.dtype), tuple(parse(n) if isinstance(n, str) else n for n in array.shape))
