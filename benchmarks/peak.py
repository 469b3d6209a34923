"""The machine's peak rate of multiply-adds, and of reading memory: `python -m benchmarks.peak`.

The loops are those of `runtime/peaks.py`. Clocks change with load and heat, so benchmarks measure the peak in
turns with their kernels.
"""

from __future__ import annotations

import ctypes
import random
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.command_line import parser
from gluonjit.codegen.target import host
from gluonjit.codegen.text import llvm
from gluonjit.ir.machine import Machine
from gluonjit.runtime import peaks


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
    return Native(*peaks.multiplying(target))


def reader(target: Machine, nbytes: int = peaks.BIG) -> Native:
    """Sums an array of so many bytes."""
    return Native(*peaks.reading(target, nbytes))


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
    parser("peak", __doc__).parse_args()
    target = host()
    kernels = peak(target), reader(target)
    flops, read = (kernel.work / seconds / 1e9 for kernel, seconds in zip(kernels, interleaved(kernels)))
    print(f"{target.cpu}, {target.vector_bits}-bit vectors: {flops:.0f} GFLOP/s and {read:.1f} GB/s read on one core")


if __name__ == "__main__":
    main()
