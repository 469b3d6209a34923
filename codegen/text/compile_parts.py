"""Compiles a module in parts, in parallel, while its functions are still being written.

Generating machine code takes most of a compilation, and LLVM can work on modules of different contexts in parallel.
llvmlite's lock would admit one thread at a time, so the one long call bypasses it, which is safe as it shares no data.
The call does not need the GIL either, so another thread can write kernels meanwhile. (Helper processes would each cost
the start of an interpreter.)
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from gluonjit.codegen.text.fork_guard import inside_llvm
from gluonjit.codegen.text.llvm import Function, Module, optimization_level, parsed_apart
from gluonjit.common import aside
from gluonjit.common.stages import stage
from gluonjit.ir.machine import Machine

_PART = 40_000
"""Characters of LLVM IR that take some 20 ms if they are one kernel, and 120 if they are many small ones. Smaller parts
are not worth a thread and the fixed cost of a part; a larger one, begun last, is waited for by all other threads."""
_ALONE, _ALONE_FOR_ANY = 6_000, 1_500
"""Characters of a kernel that is worth keeping: it takes about 5 ms, and a part of its own costs one or two. Fewer, if
it is for any size."""
_COLD = 0
"""LLVM's optimization level for cold functions: it takes a quarter of the time, or less."""


class Parts:
    """Compiles a module's functions, as they are written, to objects that are to be loaded together.

    with Parts(module, target, threads=2) as parts:
        ...                       # writes functions, followed by parts.add(functions)
        objects = parts.finish()

    The caller's thread is one of `threads`; it begins to compile in `finish`. What a part consists of does not depend
    on their number. `keeps_all`: every kernel has objects of its own.
    """

    def __init__(self, module: Module, target: Machine, threads: int, keeps_all: bool = False) -> None:
        self._module = module
        self._target = target
        self._most = threads
        self._least = {True: _ALONE_FOR_ANY, False: _ALONE}
        """Characters of a kernel that has objects of its own, by whether it is for any size."""
        if keeps_all:
            self._least = {True: 0, False: 0}
        self._levels = {False: optimization_level(), True: _COLD}
        """LLVM's optimization level, by whether functions are cold."""
        self._threads: list[threading.Thread] = []
        self._written: dict[bool, list[Function]] = {False: [], True: []}
        """The functions of the next part, by whether they are cold."""
        self._length = {False: 0, True: 0}
        self._waiting: deque[tuple[int, str, int]] = deque()
        """Number, text and level of the parts that no thread has taken yet."""
        self._changed = threading.Condition()
        self._objects: list[bytes] = []
        self._of_kernels: dict[str, list[int]] = {}
        self._error: BaseException | None = None
        self._complete = False
        self._share: Callable[[float], object] = lambda _: None

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *error: object) -> None:
        """Waits for the threads; parts that none of them has begun are not compiled."""
        with self._changed:
            self._waiting.clear()
            self._complete = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def add(self, functions: Sequence[Function], kernel: str | None = None, is_for_any: bool = False) -> None:
        """Adds functions that are complete. Internal ones need not be added: they follow their callers.

        `kernel`: the name of the kernel that they are, if other programs could use it. It has objects of its own,
        unless it is small, in particular one that is not for any size.
        """
        aside.check()
        for function in functions:
            function.end()
        functions = [f for f in functions if f.linkage != "internal"]
        length = sum(len(f.text()) for f in functions)
        if kernel is not None and functions and length >= self._least[is_for_any]:
            for kind in self._levels:
                if alike := [f for f in functions if f.is_cold is kind]:
                    self._of_kernels.setdefault(kernel, []).append(len(self._objects))
                    self._begin(alike, kind)
            return
        for function in functions:
            kind = function.is_cold
            self._written[kind].append(function)
            self._length[kind] += len(function.text())
            if self._length[kind] >= _PART:
                self._end_part(kind)

    def finish(self, share: Callable[[float], object] = lambda _: None) -> list[bytes]:
        """Waits for all objects. Meanwhile `share`, called on any thread, receives the finished fraction, from 0 to 1.

        Raises what went wrong with any, IRError for LLVM IR that is not valid.
        """
        self._share = share
        for kind, functions in self._written.items():
            if functions:
                self._end_part(kind)
        with self._changed:
            self._complete = True
            self._changed.notify_all()
        self._work()
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error
        return self._objects

    def kernels(self) -> dict[str, list[bytes]]:
        """The objects of each kernel that has its own, when all are finished."""
        return {kernel: [self._objects[k] for k in numbers] for kernel, numbers in self._of_kernels.items()}

    def _end_part(self, kind: bool) -> None:
        functions, self._written[kind], self._length[kind] = self._written[kind], [], 0
        self._begin(functions, kind)

    def _begin(self, functions: Sequence[Function], kind: bool) -> None:
        """Makes a part of the functions, which the next free thread compiles."""
        text = self._module.text_of(functions)
        with self._changed:
            self._waiting.append((len(self._objects), text, self._levels[kind]))
            self._objects.append(b"")
            self._changed.notify()
        # Threads start with the second part: the first one may be the only one, which the caller compiles.
        if len(self._objects) > 1 and len(self._threads) < self._most - 1:
            self._threads.append(threading.Thread(target=self._work))
            self._threads[-1].start()

    def _work(self) -> None:
        """Compiles parts until none is left and none will come."""
        while True:
            with self._changed:
                while not self._waiting and not self._complete:
                    self._changed.wait()
                if not self._waiting or self._error is not None:
                    return
                number, text, level = self._waiting.popleft()
            try:
                aside.check()
                with stage("LLVM"), parsed_apart(text, self._target, level) as (module, machine):
                    self._objects[number] = _emit(module, machine)
                if self._complete:
                    self._share(sum(map(bool, self._objects)) / len(self._objects))
            except BaseException as e:  # whatever it is, it is the caller's
                self._error = e


def _emit(module: Any, machine: Any) -> bytes:
    from llvmlite.binding import ffi

    locked = ffi.lib.LLVMPY_TargetMachineEmitToMemory
    with ffi.OutputString() as error:
        with inside_llvm():
            buffer = getattr(locked, "_cfn", locked)(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
