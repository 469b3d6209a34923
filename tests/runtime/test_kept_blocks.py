"""Memory of large arrays that died: who gets it, how much waits, and that nothing else may happen to it."""

import ctypes
import gc
import subprocess
import sys
import threading

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon
from gluonjit.codegen.block_memory import LARGE, Word
from gluonjit.ir.machine import ALIGNMENT
from gluonjit.ir.text import parse_graph
from gluonjit.runtime import arenas, kept_blocks, native, numpy_memory
from gluonjit.runtime.arenas import ArenaPool
from gluonjit.runtime.compiler import compile_graph
from gluonjit.runtime.kept_blocks import STATE, empty
from gluonjit.runtime.numpy_memory import InKeptBlocks
from support.convolutions import conv

F32 = np.dtype(np.float32)

pytestmark = pytest.mark.skipif(kept_blocks.handler() is None, reason="NumPy takes no memory from here")


@pytest.fixture(autouse=True)
def nothing_waits():
    gc.collect()
    kept_blocks.release()
    yield
    kept_blocks.release()
    assert STATE[Word.WAITING] == 0


def array(nbytes):
    return empty((nbytes // 4,), F32, nbytes)


def place(x):
    return x.__array_interface__["data"][0]


def test_the_next_array_of_its_size_gets_the_block():
    array(9 * LARGE)  # so much may wait from now on
    a = array(LARGE + 4)
    where = place(a)
    assert where % 4096 == 0
    a[:] = 1
    other = array(3 * LARGE)
    del a
    assert place(array(2 * LARGE)) != where
    b = array(LARGE + 8)  # of as many pages
    assert place(b) == where
    assert place(other) != where


def test_little_more_waits_than_arrays_ever_had_at_once():
    STATE[Word.MOST] = STATE[Word.TAKEN]
    for nbytes in (LARGE, 2 * LARGE, 3 * LARGE, 2 * LARGE):
        a = array(nbytes)
        assert STATE[Word.TAKEN] + STATE[Word.WAITING] <= STATE[Word.MOST] * 9 // 8
        del a
        assert STATE[Word.TAKEN] + STATE[Word.WAITING] <= STATE[Word.MOST] * 9 // 8
    assert STATE[Word.MOST] - STATE[Word.TAKEN] == 3 * LARGE


def test_sizes_that_take_turns_have_a_block_each():
    """Like the gradients of a step, which die one by one while others are made."""

    def step():
        several = [array(2 * LARGE) for _ in range(9)]
        places = [place(a) for a in several]
        del several[0]
        last = array(2 * LARGE + 4096)
        return [*places, place(last)]

    STATE[Word.MOST] = STATE[Word.TAKEN]
    step()
    assert STATE[Word.MOST] - STATE[Word.TAKEN] < 19 * LARGE
    assert len({tuple(sorted(step())) for _ in range(3)}) == 1
    assert STATE[Word.WAITING] > 19 * LARGE


def test_what_is_packed_at_every_step_takes_no_new_memory(monkeypatch):
    graph = conv((16, 16), 64, 64, 3, low=1, high=1)  # transforms its weights, in an arena
    code = compile_graph(graph)
    made = []
    real = arenas.aligned_empty

    def aligned_empty(nbytes):
        made.append(nbytes)
        return real(nbytes)

    monkeypatch.setattr(arenas, "aligned_empty", aligned_empty)
    inputs = [np.ones(t.shape, np.float32) for t in code.input_types]
    code.run(inputs)
    assert any(p.function.working_memory for p in code.prepared) and made
    code.run(inputs)
    made.clear()
    code.run(inputs)
    assert not made


def test_what_nobody_takes_for_a_while_is_freed():
    a = array(7 * LARGE)
    del a
    kept = STATE[Word.WAITING]
    assert kept == 7 * LARGE
    STATE[Word.CLOCK] += 1 << 20
    array(LARGE)
    assert STATE[Word.WAITING] == LARGE


def test_empty_cache_gives_all_back():
    array(LARGE)
    assert STATE[Word.WAITING] > 0
    mx.cpu().empty_cache()
    assert STATE[Word.WAITING] == 0


def test_code_that_goes_leaves_no_blocks():
    class Code:
        pass

    pool, large, small = ArenaPool(kept_blocks.release), Code(), Code()
    pool.lend(small, 1 << 10)
    pool.lend(large, 1 << 20)
    array(LARGE)
    del small
    gc.collect()
    assert STATE[Word.WAITING] > 0
    del large
    gc.collect()
    assert STATE[Word.WAITING] == 0


def test_what_is_packed_again_is_aligned_without_a_handler(monkeypatch):
    """As on a system without `aligned_alloc`."""
    monkeypatch.setattr(kept_blocks, "handler", lambda: None)
    monkeypatch.setattr(numpy_memory, "ours", None)
    graph = parse_graph("""graph @g(%x: f32[4,512], %w: f32[512,512]) level legal {params = (1,)} {
      %y: f32[4,512] = dot_general(%x, %w) {contract = ((1,), (1,))}
      return %y
    }""")
    code = compile_graph(graph)
    x, w = np.ones((4, 512), np.float32), np.ones((512, 512), np.float32)
    for _ in range(3):
        code.run([x, w])
        results = [r for p in code.prepared for r in p.results]
        assert results and max(r.nbytes for r in results) >= LARGE
        assert all(place(r) % ALIGNMENT == 0 for r in results)


def test_arrays_may_be_resized():
    a = array(4 * LARGE)
    a[:] = 5
    for n in (8 * LARGE, 2 * LARGE, 16, LARGE):
        a.resize((n,), refcheck=False)
        assert a[0] == 5
    del a
    array(LARGE)[:] = 0  # who got it may write to all of it


def test_numpy_takes_its_memory_from_here_where_it_is_told_to():
    with InKeptBlocks():
        kept = np.zeros(LARGE)
        where = place(kept)
        kept += 3
        del kept
        cleared = np.zeros(LARGE)
        assert place(cleared) == where and not cleared.any()
        small = np.ones(3)
        with pytest.raises(MemoryError):
            np.empty(1 << 59)
    after = np.zeros(LARGE)
    assert place(after) != where
    del cleared, small


def test_threads_do_not_share_blocks():
    wrong = []

    def work(k):
        for n in range(200):
            a = array(LARGE * (1 + n % 3))
            a[:] = k
            if (a != k).any():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_no_other_thread_runs_while_a_block_is_freed():
    words = np.zeros_like(STATE)
    words[Word.FREE] = native.libc_address("usleep")
    words[Word.FIRST_SLOT : Word.FIRST_SLOT + 2] = 4096, 200_000  # bytes, and microseconds for an address
    rounds, ends = [0], threading.Event()

    def count():
        while not ends.wait(0.001):
            rounds[0] += 1

    other = threading.Thread(target=count)
    other.start()
    before = rounds[0]
    freed = native.entry().free_oldest(words.ctypes.data, -1, 0)
    after = rounds[0]
    ends.set()
    other.join()
    assert freed and after - before < 10


def test_two_threads_may_make_a_handler_each(monkeypatch):
    monkeypatch.setattr(numpy_memory, "ours", None)
    kept_blocks.handler.__wrapped__()  # nothing has a reference to the first one after the second, but code its address
    name = numpy_memory.ours.__class__.__name__
    first = id(numpy_memory.ours)
    kept_blocks.handler.__wrapped__()
    assert name == "PyCapsule" and ctypes.c_ssize_t.from_address(first).value == 1


def test_a_step_of_training_takes_no_new_memory():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(600, activation="relu"), gluon.nn.Dense(500))
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    x = mx.nd.ones((300, 400))
    made = []
    for _ in range(6):
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        trainer.step(300)
        made.append((int(STATE[Word.MOST]), int(STATE[Word.WAITING])))
    assert len(set(made[2:])) == 1 and made[-1][1] > 0


def test_arrays_may_outlive_everything():
    code = """
import numpy as np, gluonjit as mx
from gluonjit.runtime.kept_blocks import empty
a = [empty((1 << 20,), np.dtype("f4"), 1 << 22) for _ in range(3)]
del a[1]
import builtins
builtins.kept = a
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.strip() == "done", done.stderr


def test_references_are_counted_right():
    counts = []
    for _ in range(3):  # the thread's own reference comes with the first array
        arrays = [array(LARGE) for _ in range(20)]
        del arrays
        counts.append(sys.getrefcount(kept_blocks.handler()))
    assert counts[1] == counts[2]
