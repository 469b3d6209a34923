"""The machine's peak rate of multiply-adds, and of reading memory: `python -m benchmarks.peak`.

The first is measured by a loop on registers, with as many independent chains as registers allow: no kernel can be
faster. Clocks change with load and heat, so benchmarks measure the peak in turns with their kernels.
"""

from __future__ import annotations

import ctypes
import random
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from gluonjit.codegen import llvm
from gluonjit.codegen.target import host
from gluonjit.codegen.tiles import Tile
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import F32
from gluonjit.runtime.arenas import aligned_array

_LOOPS = 20_000
_UNROLLED = 4
_STREAMS = 8
"""Places from which memory is read at once."""
_BIG = 1 << 27
"""Bytes; larger than the last-level cache."""


class Native:
    """A kernel `k` of a module over fixed buffers.

    Calling it runs it `n` times in a native loop, and gives the seconds that this thread has computed: what others take
    of the core's time does not count.
    """

    def __init__(self, module: llvm.Module, buffers: Sequence[np.ndarray], work: float) -> None:
        f = module.function("repeated", (("ptr", "table"), ("i64", "n")))
        with f.for_(0, "%n"):
            f.call("k", "void", ("ptr", "%table"), ("i64", 0), ("i64", 1))
        self.work = work  # of one run, in flop or in bytes
        self.buffers = list(buffers)
        start = time.thread_time()
        data = llvm.compile_module(module.text(), module.target)
        self.compile_seconds = time.thread_time() - start
        self._loaded = llvm.load(data)
        self._table = (ctypes.c_void_p * len(buffers))(*(b.ctypes.data for b in buffers))
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        self._function = function(self._loaded.address("repeated"))

    def __call__(self, n: int) -> float:
        start = time.thread_time()
        self._function(ctypes.addressof(self._table), n)
        return time.thread_time() - start


def peak(target: Machine) -> Native:
    """The kernel of nothing but multiply-adds."""
    module = llvm.Module(target)
    f = module.function("k")
    tile = Tile(f, F32, 1)
    x, y = (tile.splat(f.load("float", f.gep("float", f.table(0), k))) for k in range(2))
    chains = target.num_vector_registers - 4
    with f.for_(0, _LOOPS, 1, [(tile.vector, x)] * chains) as loop:
        sums = list(loop.carried)
        for _ in range(_UNROLLED):
            sums = [tile.multiply_add(s, x, y) for s in sums]
        loop.next(*sums)
    _store_sum(f, tile, loop.results)
    # Factor and summand keep the sums near 1.
    buffers = [np.array([0.5, 0.5], np.float32), np.zeros(tile.lanes, np.float32)]
    return Native(module, buffers, 2.0 * tile.lanes * chains * _UNROLLED * _LOOPS)


def reader(target: Machine, nbytes: int = _BIG) -> Native:
    """Sums an array of so many bytes."""
    module = llvm.Module(target)
    f = module.function("k")
    tile = Tile(f, F32, 1)
    part = nbytes // 4 // _STREAMS // tile.lanes * tile.lanes
    with f.for_(0, part, tile.lanes, [(tile.vector, "zeroinitializer")] * _STREAMS) as loop:
        data = f.gep("float", f.table(0), loop.index)
        loads = [tile.load(f.gep("float", data, k * part)) for k in range(_STREAMS)]
        loop.next(*(f.op(f"fadd {tile.vector} {s}, {x}") for s, x in zip(loop.carried, loads)))
    _store_sum(f, tile, loop.results)
    data = aligned_array((nbytes // 4,), np.dtype(np.float32))
    data[...] = 1  # pages that were never written are all the same one
    return Native(module, [data, np.zeros(tile.lanes, np.float32)], 4.0 * part * _STREAMS)


def _store_sum(f: llvm.Function, tile: Tile, vectors: Sequence[str]) -> None:
    """Stores the sums, so that the compiler does not remove their computation."""
    total, *rest = vectors
    for s in rest:
        total = f.op(f"fadd {tile.vector} {total}, {s}")
    f.store(tile.vector, total, f.table(1), 4)


def interleaved(kernels: Sequence[Callable[[int], float]], rounds: int = 15, slice: float = 1e-3) -> list[float]:
    """Median seconds of each, measured in turns of about `slice` seconds so that all see the same clocks.

    The order changes from round to round, so that periodic other load does not always affect the same one.
    """
    counts = [max(1, int(slice / min(k(1) for _ in range(3)))) for k in kernels]
    times: list[list[float]] = [[] for _ in kernels]
    order = list(range(len(kernels)))
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for k in order:
            times[k].append(kernels[k](counts[k]) / counts[k])
    return [statistics.median(t) for t in times]


def main() -> None:
    target = host()
    kernels = peak(target), reader(target)
    flops, read = (kernel.work / seconds / 1e9 for kernel, seconds in zip(kernels, interleaved(kernels)))
    print(f"{target.cpu}, {target.vector_bits}-bit vectors: {flops:.0f} GFLOP/s and {read:.1f} GB/s read on one core")


if __name__ == "__main__":
    main()
