"""The process's one copy of the native entry module (`codegen.entry`)."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gluonjit.codegen.draws import draw_module, parameters
from gluonjit.codegen.entry import entry_module, steps_module
from gluonjit.codegen.target import host
from gluonjit.codegen.text import llvm
from gluonjit.codegen.threads.team import CONDITION, FUTEX, SLEEP
from gluonjit.common.aside import Stopped, while_process_lives
from gluonjit.runtime import cache, forks
from gluonjit.runtime.artifact import Artifact
from gluonjit.runtime.short_turns import short_turns

_METH_FASTCALL = 0x0080


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def _loaded(name: str, facts: tuple[Any, ...], text: Callable[[], str], symbols: dict[str, int]) -> llvm.Loaded:
    """A module, from the object cache if it is there. `facts`: what its text depends on, the machine first."""
    key = cache.digest((name, *facts))
    found = cache.load(key)
    if found is None:
        found = Artifact(name, [llvm.compile_module(text(), facts[0])])
        cache.store(key, found)
    return llvm.load(found.objects, symbols)


def _function(loaded: llvm.Loaded, name: str, result: Any, *args: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *args)(loaded.address(name))


def new_function(method: _MethodDef, record: Any) -> Any:
    """A Python callable that is this native function, whose `self` is a record."""
    return _new_function(ctypes.byref(method), record, None)


_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.restype = ctypes.py_object
_new_function.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)


class _Entry:
    def __init__(self) -> None:
        target = host()
        sleep = _way_to_sleep()
        symbols = {name: libc_address(name) for name in SLEEP[sleep]}
        self.loaded = _loaded("native entry", (target, sleep), lambda: entry_module(target, sleep), symbols)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self.run = _function(self.loaded, "run", None, pointer, pointer, number, number, number)
        self.dispatch = _function(self.loaded, "dispatch", None, pointer, pointer, pointer, number, number, number)
        self.pauses = _function(self.loaded, "pauses", None, number)
        self.try_lock = _function(self.loaded, "try_lock", ctypes.c_int32, pointer)
        self.unlock = _function(self.loaded, "unlock", None, pointer)
        self.post = _function(self.loaded, "post", None, pointer, pointer, pointer, number)
        # Other functions of `codegen.block_memory` change the same words, so it keeps the GIL.
        free_oldest = ctypes.PYFUNCTYPE(ctypes.c_bool, pointer, number, number)
        self.free_oldest = free_oldest(self.loaded.address("free_oldest"))
        self.barrier, self.work = self.loaded.address("barrier"), self.loaded.address("work")
        self.chain = self.loaded.address("chain")
        self.method = _MethodDef(b"gluonjit_call", self.loaded.address("fast"), _METH_FASTCALL, None)


class _Steps:
    """The module for steps of training."""

    def __init__(self) -> None:
        target = host()
        self.loaded = _loaded("native steps", (target,), lambda: steps_module(target), {})
        self.set_leave = _function(self.loaded, "set_leave", None, ctypes.c_void_p)
        self.leave = _MethodDef(b"__exit__", self.loaded.address("leave"), _METH_FASTCALL, None)
        self.note = _MethodDef(b"gluonjit_note", self.loaded.address("note"), _METH_FASTCALL, None)


class Draw:
    """A function of `codegen.draws`: `run` calls it."""

    def __init__(self, name: str) -> None:
        target = host()
        self.loaded = _loaded("native draws", (target, name), lambda: draw_module(target, name), {})
        kinds = {"ptr": ctypes.c_void_p, "i64": ctypes.c_int64, "float": ctypes.c_float}
        self.run = _function(self.loaded, name, None, *(kinds[type] for type, _ in parameters(name)))


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
_steps: _Steps | None = None


def entry() -> _Entry:
    """The entry module, compiled on first use."""
    global _entry
    if _entry is None:
        with _lock:
            if _entry is None:
                _entry = _Entry()
    return _entry


def begin() -> None:
    """Has another thread make `entry()`. Without the object cache that takes LLVM a tenth of a second, in which the
    program has things to do, such as to trace what is to be compiled."""
    if _entry is None:
        # No daemon: the process must not end while LLVM runs.
        with suppress(RuntimeError):  # the system refuses, or the interpreter is about to end
            threading.Thread(target=_make_early, name="gluonjit compiler").start()


def _make_early() -> None:
    def make() -> None:
        with short_turns():
            entry()

    with suppress(Stopped, Exception):  # who needs it will be told
        while_process_lives(make)


def steps() -> _Steps:
    """The module for steps of training, compiled on first use."""
    global _steps
    if _steps is None:
        with _lock:
            if _steps is None:
                _steps = _Steps()
    return _steps
