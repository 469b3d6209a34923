"""The machine's two limits as engines that take turns with the others: multiply-adds, and reading memory.

Each call keeps all threads busy for some milliseconds; `Loaded.work` is what it does, in flop or in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.peak import Native, peak
from benchmarks.peers import Loaded
from gluonjit.codegen import llvm
from gluonjit.codegen.target import Target, host
from gluonjit.codegen.tiles import Tile
from gluonjit.ir.types import F32
from gluonjit.runtime.memory import aligned_array

_BYTES = 1 << 27
"""Read by each thread: more than caches hold."""
_STREAMS = 8
"""Places from which it is read at once."""
_REPEATS = 30


def flops(model: Any, threads: int) -> Loaded:
    kernels = [peak(host()) for _ in range(threads)]
    return _loaded(kernels, _REPEATS, kernels[0].flop * _REPEATS * threads)


def bandwidth(model: Any, threads: int) -> Loaded:
    return _loaded([_reader(host()) for _ in range(threads)], 1, float(_BYTES * threads))


def _loaded(kernels: Sequence[Callable[[int], float]], repeats: int, work: float) -> Loaded:
    """Calls all kernels at once. (ctypes gives up the GIL meanwhile.)"""
    pool = ThreadPoolExecutor(len(kernels))

    def call() -> None:
        if len(kernels) == 1:
            kernels[0](repeats)
        else:
            list(pool.map(lambda kernel: kernel(repeats), kernels))

    return Loaded(call, [], lambda _: np.zeros(0), "", work)


def _reader(target: Target) -> Native:
    """Sums an array."""
    module = llvm.Module(target)
    f = module.function("k")
    tile = Tile(f, F32, 1)
    part = _BYTES // 4 // _STREAMS
    with f.for_(0, part, tile.lanes, [(tile.vector, "zeroinitializer")] * _STREAMS) as loop:
        data = f.gep("float", f.table(0), loop.index)
        loads = [tile.load(f.gep("float", data, k * part)) for k in range(_STREAMS)]
        loop.next(*(f.op(f"fadd {tile.vector} {s}, {x}") for s, x in zip(loop.carried, loads)))
    total = loop.results[0]
    for s in loop.results[1:]:
        total = f.op(f"fadd {tile.vector} {total}, {s}")
    f.store(tile.vector, total, f.table(1), 4)
    data = aligned_array((_BYTES // 4,), np.dtype(np.float32))
    data[...] = 1  # pages that were never written are all the same one
    return Native(module, [data, np.zeros(tile.lanes, np.float32)], 0)
