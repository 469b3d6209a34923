"""The process's one copy of the native entry module (`codegen.entry`)."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from typing import Any

from gluonjit.codegen.entry import entry_module
from gluonjit.codegen.target import host
from gluonjit.codegen.text import llvm
from gluonjit.codegen.threads.team import CONDITION, FUTEX, SLEEP
from gluonjit.runtime import cache, forks
from gluonjit.runtime.artifact import Artifact

_METH_FASTCALL = 0x0080


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Entry:
    def __init__(self) -> None:
        target = host()
        sleep = _way_to_sleep()
        symbols = {name: libc_address(name) for name in SLEEP[sleep]}
        key = cache.digest(("native entry", sleep, target))
        found = cache.load(key)
        if found is None:
            found = Artifact("native entry", [llvm.compile_module(entry_module(target, sleep), target)])
            cache.store(key, found)
        self.loaded = llvm.load(found.objects, symbols)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self.run = self._function("run", None, pointer, pointer, number, number, number)
        self.dispatch = self._function("dispatch", None, pointer, pointer, pointer, number, number, number)
        self.pauses = self._function("pauses", None, number)
        self.try_lock = self._function("try_lock", ctypes.c_int32, pointer)
        self.unlock = self._function("unlock", None, pointer)
        self.post = self._function("post", None, pointer, pointer, pointer, number)
        # Other functions of `codegen.block_memory` change the same words, so it keeps the GIL.
        free_oldest = ctypes.PYFUNCTYPE(ctypes.c_bool, pointer, number, number)
        self.free_oldest = free_oldest(self.loaded.address("free_oldest"))
        self.barrier, self.work = self.loaded.address("barrier"), self.loaded.address("work")
        self.chain = self.loaded.address("chain")
        self.set_leave = self._function("set_leave", None, pointer)
        self.leave = _MethodDef(b"__exit__", self.loaded.address("leave"), _METH_FASTCALL, None)
        self.note = _MethodDef(b"gluonjit_note", self.loaded.address("note"), _METH_FASTCALL, None)
        self.method = _MethodDef(b"gluonjit_call", self.loaded.address("fast"), _METH_FASTCALL, None)
        self.new_function = ctypes.pythonapi.PyCFunction_NewEx
        self.new_function.restype = ctypes.py_object
        self.new_function.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)

    def _function(self, name: str, result: Any, *args: Any) -> Any:
        return ctypes.CFUNCTYPE(result, *args)(self.loaded.address(name))


@functools.cache
def libc() -> Any:
    """The process's C library; None if it has no POSIX threads."""
    if os.name != "posix":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "pthread_create") else None


def _way_to_sleep() -> str | None:
    if libc() is None:
        return None
    return FUTEX if platform.system() == "Linux" and platform.machine() in ("x86_64", "aarch64") else CONDITION


def libc_address(name: str) -> int:
    """Where a function of the C library is."""
    return ctypes.cast(getattr(libc(), name), ctypes.c_void_p).value or 0


_lock = forks.renewed()
_entry: _Entry | None = None


def entry() -> _Entry:
    """The entry module, compiled on first use."""
    global _entry
    if _entry is None:
        with _lock:
            if _entry is None:
                _entry = _Entry()
    return _entry
