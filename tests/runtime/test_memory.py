"""Buffers for native code."""

import gc
import weakref

import numpy as np

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


def test_an_arena_that_grows_has_room_for_more():
    pool = ArenaPool()
    for nbytes in (2 << 20, 3 << 20):
        arena = pool.take(nbytes)
        assert arena.nbytes >= nbytes
        pool.put(arena)
    assert pool.take(5 << 20) is arena
    assert pool.take(100).nbytes == 100  # another call at the same time
