"""One module compiled as several, at the same time.

Generating code takes most of a compilation, and LLVM works on modules of different contexts in parallel. llvmlite's
lock would let one thread in at a time, so the one long call goes past it; nothing that it touches is shared. (Helper
processes, the other way, would cost the start of an interpreter each.)
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from gluonjit.codegen.llvm import Function, Module, parse
from gluonjit.codegen.target import Target

_WORTH = 150_000
"""Characters of LLVM IR that take about 50 ms, for which a thread pays."""


def compile_parts(module: Module, target: Target, most: int) -> list[bytes]:
    """The module as at most `most` objects, to be loaded together."""
    groups = _balanced(module, most)
    if len(groups) == 1:
        return [_emit(*parse(module.text(), target, own_context=True))]  # another thread may compile, too
    texts = [module.text_of(group) for group in groups]
    objects: list[bytes] = [b""] * len(texts)
    errors: list[BaseException] = []

    def run(k: int) -> None:
        try:
            objects[k] = _emit(*parse(texts[k], target, own_context=True))
        except BaseException as e:  # whatever it is, it is the caller's
            errors.append(e)

    helpers = [threading.Thread(target=run, args=(k,)) for k in range(1, len(texts))]
    for t in helpers:
        t.start()
    run(0)
    for t in helpers:
        t.join()
    if errors:
        raise errors[0]
    return objects


def _balanced(module: Module, most: int) -> list[list[Function]]:
    """The module's functions in groups of about the same length; internal ones follow their callers."""
    lengths = {f: len(f.text()) for f in module.functions if f.linkage != "internal"}
    count = max(1, min(most, sum(lengths.values()) // _WORTH, len(lengths)))
    groups: list[list[Function]] = [[] for _ in range(count)]
    loads = [0] * count
    for f in sorted(lengths, key=lambda f: -lengths[f]):
        k = loads.index(min(loads))
        groups[k].append(f)
        loads[k] += lengths[f]
    return groups


def _emit(module: Any, machine: Any) -> bytes:
    from llvmlite.binding import ffi

    locked = ffi.lib.LLVMPY_TargetMachineEmitToMemory
    with ffi.OutputString() as error:
        buffer = getattr(locked, "_cfn", locked)(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
