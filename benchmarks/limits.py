"""The machine's two limits (multiply-adds, reading memory) as engines that take turns with the others.

Each call keeps all threads busy for some milliseconds; `Loaded.work` is what it does, in flop or in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.peak import peak, reader
from benchmarks.peers import Loaded
from gluonjit.codegen.target import host

_REPEATS = 30


def flops(model: Any, threads: int) -> Loaded:
    kernels = [peak(host()) for _ in range(threads)]
    return _loaded(kernels, _REPEATS, kernels[0].work * _REPEATS * threads)


def bandwidth(model: Any, threads: int) -> Loaded:
    kernels = [reader(host()) for _ in range(threads)]
    return _loaded(kernels, 1, kernels[0].work * threads)


def _loaded(kernels: Sequence[Callable[[int], float]], repeats: int, work: float) -> Loaded:
    """Calls all kernels at once. (ctypes gives up the GIL meanwhile.)"""
    pool = ThreadPoolExecutor(len(kernels))

    def call() -> None:
        if len(kernels) == 1:
            kernels[0](repeats)
        else:
            list(pool.map(lambda kernel: kernel(repeats), kernels))

    return Loaded(call, [], lambda _: [], "", work)
