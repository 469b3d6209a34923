"""What this machine can do at most: multiply-adds per second, and bytes read from memory per second.

The first is measured by a loop on registers, with as many independent chains as registers allow: no kernel can be
faster. Both are measured once for each number of threads, and kept beside the object cache.
"""

from __future__ import annotations

import ctypes
import functools
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gluonjit.codegen.kernels.tiles import Tile
from gluonjit.codegen.target import host
from gluonjit.codegen.text import llvm
from gluonjit.ir.machine import Machine
from gluonjit.ir.types import F32
from gluonjit.runtime import cache, threads
from gluonjit.runtime.arenas import aligned_array
from gluonjit.runtime.machine_use import Clocks

_LOOPS = 20_000
_UNROLLED = 4
_STREAMS = 8
"""Places from which memory is read at once."""
BIG = 1 << 27
"""Bytes; larger than the last-level cache."""
_SECONDS = 0.05
"""Seconds for each of the two measurements."""
_FILE = "peaks.json"


class Peaks(NamedTuple):
    """Rates for float32 on a number of threads."""

    flops: float
    """Per second; a multiply-add counts as two."""
    bandwidth: float
    """Bytes per second that are read from memory."""


class Loop(NamedTuple):
    """A kernel `k` of a module, its table, and its work: flop or bytes of one run on one thread."""

    module: llvm.Module
    buffers: Sequence[np.ndarray]
    work: float


def multiplying(target: Machine) -> Loop:
    """Nothing but multiply-adds; every thread does as many."""
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
    buffers = [np.array([0.5, 0.5], np.float32), np.zeros(tile.lanes * threads.MAX_THREADS, np.float32)]
    return Loop(module, buffers, 2.0 * tile.lanes * chains * _UNROLLED * _LOOPS)


def reading(target: Machine, nbytes: int = BIG, nthreads: int = 1) -> Loop:
    """Sums an array; each of `nthreads` threads, as many as run it, has `nbytes` of its own."""
    module = llvm.Module(target)
    f = module.function("k")
    tile = Tile(f, F32, 1)
    part = nbytes // 4 // _STREAMS // tile.lanes * tile.lanes
    own = f.gep("float", f.table(0), f.mul("%thread", part * _STREAMS))
    with f.for_(0, part, tile.lanes, [(tile.vector, "zeroinitializer")] * _STREAMS) as loop:
        here = f.gep("float", own, loop.index)
        loads = [tile.load(f.gep("float", here, k * part)) for k in range(_STREAMS)]
        loop.next(*(f.op(f"fadd {tile.vector} {s}, {x}") for s, x in zip(loop.carried, loads)))
    _store_sum(f, tile, loop.results)
    data = aligned_array((nthreads * part * _STREAMS,), np.dtype(np.float32))
    data[...] = 1  # pages that were never written are all the same one
    return Loop(module, [data, np.zeros(tile.lanes * threads.MAX_THREADS, np.float32)], 4.0 * part * _STREAMS)


def _store_sum(f: llvm.Function, tile: Tile, vectors: Sequence[str]) -> None:
    """Stores the sums, so that the compiler does not remove their computation."""
    total, *rest = vectors
    for s in rest:
        total = f.op(f"fadd {tile.vector} {total}, {s}")
    f.store(tile.vector, total, f.gep("float", f.table(1), f.mul("%thread", tile.lanes)), 4)


def peaks(nthreads: int) -> Peaks:
    """The rates of calls on `nthreads` threads. The first time on a machine this takes a fifth of a second. What is
    measured while other programs need the cores is not kept for other processes."""
    key = f"{host().cpu} {host().vector_bits} {nthreads}"
    known = _known()
    if key not in known:
        clocks = Clocks.read()
        known[key] = _measured(nthreads)
        use = clocks.use_since()
        if not cache.why_unchangeable() and not (
            use is not None and use.crowded(nthreads)
        ):  # else a later process will
            text = json.dumps({name: list(found) for name, found in known.items()})
            cache.write(cache.folder() / _FILE, [text.encode()])
    return known[key]


def as_measured(target: Machine, nthreads: int) -> Machine:
    """`target` as each of `nthreads` threads finds it here, to tell what can be expected: with the clock at which it
    does the multiply-adds that it does, and with its share of the memory's rate. Kernels are chosen by the rates of
    `target`, which are the same everywhere, so that the same program is the same code."""
    found = peaks(nthreads)
    clock = found.flops / (nthreads * 2e9 * target.lanes(F32) * target.units)
    return replace(target, clock=clock, loop_far=found.bandwidth / (nthreads * 1e9))


@functools.cache
def _known() -> dict[str, Peaks]:
    """The rates that were measured before, by processor and number of threads."""
    data = None if cache.why_off() else cache.read(cache.folder() / _FILE, 1 << 16)
    try:
        found = {str(key): Peaks(*map(float, pair)) for key, pair in json.loads(data or b"{}").items()}
        return {key: p for key, p in found.items() if 0 < p.flops < 1e18 and 0 < p.bandwidth < 1e18}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _measured(nthreads: int) -> Peaks:
    target = host()
    return Peaks(_rate(multiplying(target), nthreads), _rate(reading(target, BIG // nthreads, nthreads), nthreads))


def _rate(loop: Loop, nthreads: int) -> float:
    """Work per second of all threads together, in the fastest run."""
    code = llvm.load(llvm.compile_module(loop.module.text(), loop.module.target))
    table = (ctypes.c_void_p * len(loop.buffers))(*(b.ctypes.data for b in loop.buffers))
    count = threads.start(nthreads)
    begin, best = time.perf_counter(), float("inf")
    while time.perf_counter() < begin + _SECONDS:
        start = time.perf_counter()
        threads.run(code.address("k"), ctypes.addressof(table), count, 10**9)
        best = min(best, time.perf_counter() - start)
    return loop.work * count / best
