"""Buffers for native code."""

import gc
import sys
import threading
import weakref

import numpy as np
import pytest

from gluonjit.ir.machine import ALIGNMENT
from gluonjit.runtime.arenas import ArenaPool, CacheFriendly

SHAPES = [(3, 5), (), (0, 4), (1000, 999), (7,), (600, 1000)]


def test_arrays_one_after_the_other():
    pages = CacheFriendly()
    arrays = [pages.array(shape, np.dtype(dtype)) for shape in SHAPES for dtype in ("f4", "f8", "u1")]
    for k, a in enumerate(arrays):
        a[...] = k
    for k, a in enumerate(arrays):
        assert a.ctypes.data % ALIGNMENT == 0 and a.flags.c_contiguous and a.flags.writeable
        assert (a == k).all()
    assert [(a.shape, a.dtype) for a in arrays[::3]] == [(shape, np.float32) for shape in SHAPES]


def test_pages_live_as_long_as_an_array_in_them():
    pages = CacheFriendly()
    first, second = (pages.array((16,), np.dtype("f4")) for _ in range(2))
    second[:] = 1
    memory = first
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    gone = weakref.ref(memory)
    del pages, first, memory
    gc.collect()
    assert gone() is not None and (second == 1).all()
    del second
    gc.collect()
    assert gone() is None


class User:
    """What takes arenas of a size."""

    def __init__(self, pool, nbytes):
        self.pool, self.nbytes = pool, nbytes
        pool.lend(self, nbytes)

    def call(self):
        arena = self.pool.take(self.nbytes)
        assert arena.nbytes >= self.nbytes
        self.pool.put(arena)
        return arena


def test_an_arena_that_grows_has_room_for_more():
    pool = ArenaPool()
    small, large, larger = (User(pool, n << 20) for n in (2, 3, 5))
    small.call()
    arena = large.call()
    assert larger.call() is arena and small.call() is arena
    held = pool.take(5 << 20)
    assert pool.take(100).nbytes == 100  # another call at the same time
    pool.put(held)


@pytest.mark.skipif(sys.platform != "linux", reason="needs mremap")
def test_an_arena_that_grows_keeps_its_pages():
    pool = ArenaPool()
    small, large = User(pool, 8 << 20), User(pool, 12 << 20)
    small.call()[-1] = 7  # what an arena has tells whether its pages are those of the smaller one
    grown = large.call()
    assert grown[small.nbytes - 1] == 7
    grown[:] = 1
    view = grown[:100]
    del grown
    largest = User(pool, 32 << 20)
    assert not largest.call()[large.nbytes - 1] and view.all()  # somebody still has the smaller one


def test_an_arena_goes_with_those_who_need_it():
    pool = ArenaPool()
    small, large = User(pool, 1 << 10), User(pool, 1 << 22)
    gone = weakref.ref(large.call())
    held = pool.take(large.nbytes)
    assert small.call() is not held
    del large
    gc.collect()
    pool.put(held)  # too late
    del held
    gc.collect()
    assert gone() is None and small.call().nbytes == 1 << 10


def test_each_of_many_threads_has_its_arena():
    pool = ArenaPool()
    users = [User(pool, n << 10) for n in range(1, 9)]
    held, lock, together = set(), threading.Lock(), []

    def work(k):
        for n in range(300):
            arena = pool.take(users[(k + n) % len(users)].nbytes)
            with lock:
                together.append(id(arena) in held)
                held.add(id(arena))
            with lock:
                held.remove(id(arena))
            pool.put(arena)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not any(together) and len(pool._free) <= len(threads)
