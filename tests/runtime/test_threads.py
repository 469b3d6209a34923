"""Threads: the same bits on any number, and a team that survives other threads, forks, signals and the exit."""

import ctypes
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.codegen.target import host
from gluonjit.codegen.text import llvm
from gluonjit.codegen.text.intrinsics import float_mode, flush_bits, set_float_mode
from gluonjit.codegen.threads.team import Block
from gluonjit.gluon import nn, rnn
from gluonjit.ir.graph import Builder
from gluonjit.ir.types import F32, IRError, TensorType
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime import cores, native, threads
from gluonjit.runtime.compiler import compile_graph
from support.compare import assert_close
from support.programs import random_program, together
from support.soak import tries
from support.threads import at_once

SHARED = PIPELINE.replace("threads", "threads {grain = 0, share = 0}")
"""As if every kernel, however small, were worth sharing."""
needs_workers = pytest.mark.skipif(native.libc() is None, reason="no POSIX threads here")


@pytest.fixture(autouse=True)
def default_count():
    yield
    threads.set_num_threads(None)


def products(n=6, size=96):
    """A graph: (x, w) → tanh(… tanh(x·w) … ·w), with its inputs; each product needs all of the one before."""
    b = Builder("net")
    x, w = (b.input(name, TensorType(F32, (size, size))) for name in "xw")
    y = x
    for _ in range(n):
        y = b.tanh(b.dot_general(y, w, contract=((1,), (0,))))
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-0.2, 0.2, (size, size)).astype(np.float32) for _ in range(2)]
    return b.build([y], {"params": (1,)}), inputs


# ---- the same bits


def bits_for_every_count(run, counts=(1, 2, 4)):
    """Runs it on several numbers of threads; returns the results of one."""
    results = {}
    for n in counts:
        threads.set_num_threads(n)
        results[n] = run()
    for n in counts[1:]:
        for k, (a, b) in enumerate(zip(results[n], results[counts[0]], strict=True)):
            assert a.tobytes() == b.tobytes(), f"result {k} differs on {n} threads"
    return results[counts[0]]


@pytest.mark.parametrize("first", range(0, tries(20), 20))
def test_random_programs(first):
    programs = [random_program(seed) for seed in range(first, first + 20)]
    inputs = [x for program in programs for x in program.inputs]
    executable = compile_graph(together(programs), pipeline=SHARED)
    bits_for_every_count(lambda: [a for part in executable.run(inputs) for a in part], (1, 2, 3))


def convolutions():
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(24, 3, padding=1, activation="relu"),
        nn.BatchNorm(),
        nn.Conv2D(24, 3, padding=1, groups=24),
        nn.MaxPool2D(),
        nn.Conv2D(40, 1, activation="relu"),
        nn.GlobalAvgPool2D(),
        nn.Dense(10),
    )
    return net, (2, 3, 37, 37)


def branches():
    net = nn.HybridSequential()
    join = mx.gluon.contrib.nn.HybridConcurrent(axis=1)
    join.add(nn.Conv2D(17, 1), nn.Conv2D(9, 3, padding=1), nn.Conv2D(33, 5, padding=2, activation="tanh"))
    net.add(join, nn.LayerNorm(), nn.Dense(50))
    return net, (3, 4, 19, 23)


def recurrent():
    return rnn.LSTM(33, num_layers=2, bidirectional=True), (7, 3, 20)


@pytest.mark.parametrize("make", [convolutions, branches, recurrent])
def test_models(make, monkeypatch):
    net, shape = make()
    net.initialize(mx.init.Xavier())
    x = mx.nd.array(np.random.default_rng(1).standard_normal(shape), dtype="float32")
    imperative = net(x).asnumpy()
    monkeypatch.setattr(
        "gluonjit.execution.backends._backends", {"llvm": lambda g, o: compile_graph(g, pipeline=SHARED)}
    )
    net.hybridize()
    (got,) = bits_for_every_count(lambda: [[net(x) for _ in range(3)][-1].asnumpy()])
    assert_close(got, imperative)


def test_small_graphs_stay_on_one_thread():
    for size, several in ((8, False), (256, True)):
        graph, _ = products(2, size)
        layout = compile_graph(graph).main.layout
        assert (layout.threads > 1) is several


def halving(size=1 << 16):
    b = Builder("net")
    x = b.input("x", TensorType(F32, (size,)))
    half = b.broadcast(b.constant(0.5, F32), shape=(size,), dims=())
    return b.build([b.mul(x, half)]), [np.full(size, 1e-39, np.float32)]


@needs_workers
def test_workers_compute_in_the_mode_of_the_call():
    """One call flushes denormals, the next one does not; so do all of its threads."""
    graph, (x,) = halving()
    executables = {f: compile_graph(graph, pipeline=SHARED, flush_denormals=f) for f in (False, True)}
    threads.set_num_threads(4)
    for flush in (False, True, False, True, False):
        (y,), _ = executables[flush].run([x])
        assert (y == (0 if flush and flush_bits(host()) else x / 2)).all()


@needs_workers
def test_workers_compute_in_the_mode_of_the_caller():
    """A thread that flushes denormals by itself does so plainly, hybridized and on every worker."""
    target = host()
    if not flush_bits(target):
        pytest.skip("no control register known for this architecture")
    module = llvm.Module(target)
    f = module.function("set_mode", (("i64", "off"), ("i64", "on")))
    mode = f.op(f"and i64 {float_mode(f)}, {f.op('xor i64 %off, -1')}")
    set_float_mode(f, f.op(f"or i64 {mode}, %on"))
    loaded = llvm.load(llvm.compile_module(module.text(), target))
    set_mode = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(loaded.address("set_mode"))
    graph, (x,) = halving()
    executable = compile_graph(graph, pipeline=SHARED)
    threads.set_num_threads(4)
    set_mode(0, flush_bits(target))
    try:
        plain, (hybridized,) = x * np.float32(0.5), executable.run([x])[0]
    finally:
        set_mode(flush_bits(target), 0)
    assert not plain.any() and not hybridized.any()
    assert (executable.run([x])[0][0] == x / 2).all()


def test_threads_that_flush_denormals_leave_others_alone():
    graph, (x,) = halving(256)
    executables = [compile_graph(graph, flush_denormals=f) for f in (False, True)]

    def work(k):
        flush = bool(k % 2) and flush_bits(host()) != 0
        for _ in range(200):
            (y,), _ = executables[k % 2].run([x])
            assert (y == (0 if flush else x / 2)).all()
            assert (x * np.float32(0.5)).all()

    at_once(work, 4)


# ---- how many


def test_set_num_threads():
    assert mx.get_num_threads() == threads.get_num_threads() >= 1
    mx.set_num_threads(3)
    assert mx.get_num_threads() == 3
    for wrong in (0, -1, 10_000, 1.5, "2"):
        with pytest.raises(ValueError, match="number of threads is 1 to 256"):
            mx.set_num_threads(wrong)
    assert mx.get_num_threads() == 3


def test_environment(monkeypatch):
    monkeypatch.setenv("GLUONJIT_NUM_THREADS", "7")
    threads.set_num_threads(None)
    assert threads.get_num_threads() == 7
    for wrong in ("0", "many", "-1", "1e9"):
        monkeypatch.setenv("GLUONJIT_NUM_THREADS", wrong)
        threads.set_num_threads(None)
        with pytest.raises(IRError, match="GLUONJIT_NUM_THREADS is a number"):
            threads.get_num_threads()
    monkeypatch.delenv("GLUONJIT_NUM_THREADS")


@pytest.mark.parametrize(
    ("files", "membership", "quota"),
    [
        ({"cpu.max": "max 100000"}, "0::/", None),
        ({"cpu.max": "250000 100000"}, "0::/", 2.5),
        ({"a/cpu.max": "max 100000", "cpu.max": "100000 100000"}, "0::/a/b", 1.0),
        ({"a/cpu.max": "150000 100000", "cpu.max": "400000 100000"}, "0::/a", 1.5),
        ({"cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/a\n0::/", 3.0),
        ({"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/a", None),
        ({"memory/a/cpu.max": "100000 100000"}, "4:memory:/a", None),
        ({"cpu.max": "nonsense"}, "0::/", None),
        ({}, "0::/gone", None),
    ],
)
def test_quota(tmp_path, files, membership, quota):
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (tmp_path / "cgroup").write_text(membership + "\n")
    assert cores._cgroup_quota(tmp_path / "cgroup", tmp_path / "root") == quota


@needs_workers
def test_the_system_may_refuse(monkeypatch):
    graph, inputs = products()
    executable = compile_graph(graph, pipeline=SHARED)
    want = executable.run(inputs)[0][0]
    threads.set_num_threads(4)
    create, granted = threads._new_thread, iter([True, False])
    monkeypatch.setattr(threads, "_new_thread", lambda *args: create(*args) if next(granted) else None)
    assert threads.start(4) == 2
    np.testing.assert_array_equal(executable.run(inputs)[0][0], want)


# ---- in company


def test_many_callers():
    """The team serves one of them at a time; the others compute alone."""
    threads.set_num_threads(2)
    nets = []
    for width in (64, 65):
        net = nn.HybridSequential()
        net.add(nn.Dense(width, activation="relu"), nn.Dense(width))
        net.initialize(mx.init.Xavier())
        net.hybridize()
        nets.append(net)
    x = mx.nd.array(np.random.default_rng(0).standard_normal((512, 128)), dtype="float32")
    assert [net(x).shape for net in nets] == [(512, 64), (512, 65)]
    assert nets[0]._fast_call is not None
    want = [net(x).asnumpy() for net in nets]
    wrong = []

    def work(k):
        for _ in range(100):
            if not np.array_equal(nets[k % 2](x).asnumpy(), want[k % 2]):
                wrong.append(k)

    callers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in callers:
        t.start()
    for _ in range(5):
        threads.set_num_threads(3)
        threads.set_num_threads(2)
    for t in callers:
        t.join()
    assert not wrong


@needs_workers
def test_idle_workers_sleep():
    graph, inputs = products()
    executable = compile_graph(graph, pipeline=SHARED)
    threads.set_num_threads(3)
    want = executable.run(inputs)[0][0]
    deadline = time.monotonic() + 60
    while not (_asleep() == 1).all():
        assert time.monotonic() < deadline, "the workers do not go to sleep"
        time.sleep(0.001)
    np.testing.assert_array_equal(executable.run(inputs)[0][0], want)


def _asleep():
    words = threads.block.view(np.int32)
    return words[[(Block.LINES + k * Block.LINE_SIZE) // 4 + 1 for k in (1, 2)]]


# ---- processes of their own


PREAMBLE = """
import os, signal, sys, threading, time
import numpy as np
from gluonjit.ir.graph import Builder
from gluonjit.ir.types import F32, I64, TensorType
from gluonjit.runtime import native, threads
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime.compiler import compile_graph

def loop(trip, size=64):
    "An executable that multiplies matrices `trip` times; its barriers are as many."
    body = Builder("body")
    body.input("i", TensorType(I64))
    t = TensorType(F32, (size, size))
    h, w = body.input("h", t), body.input("w", t)
    region = body.build([body.tanh(body.dot_general(h, w, contract=((1,), (0,))))])
    b = Builder("net")
    h, w = b.input("h", t), b.input("w", t)
    graph = b.build(b.emit("loop", [h, w], {"carried": 1, "trip": trip}, [region]), {"params": (1,)})
    return compile_graph(graph, pipeline=PIPELINE.replace("threads", "threads {grain = 0, share = 0}"))

rng = np.random.default_rng(0)
inputs = [rng.uniform(-0.2, 0.2, (64, 64)).astype(np.float32) for _ in range(2)]
run = lambda e: e.run(inputs, (0, 0))[0][0]
threads.set_num_threads(2)
"""


def process(code):
    """Runs the code behind PREAMBLE in a new interpreter, which must end well; what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PREAMBLE + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # NumPy's threads are not what this is about
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


def test_exit_while_another_thread_computes():
    code = """
    e = loop(10_000)
    run(loop(10))
    threading.Thread(target=run, args=(e,), daemon=True).start()
    time.sleep(0.05)
    print('end')
    """
    assert process(code) == ["end"]


@needs_workers
def test_fork():
    """Python warns of a fork in the company of threads of the program's own, of which the second part has one; of ours,
    which end before, it must not: warnings are errors in the first part."""
    code = """
    e, long = loop(10), loop(3000)
    want = run(e).copy()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    import warnings; warnings.filterwarnings("ignore")
    other = threading.Thread(target=lambda: [run(long) for _ in range(3)])
    for company in (False, True):
        if company:
            other.start()
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                same = np.array_equal(run(e), want) and threads.start(2) == 2
                os._exit(0 if same else 1)
            assert os.waitpid(pid, 0)[1] == 0
            assert np.array_equal(run(e), want)
    other.join()
    assert threads.start(2) == 2
    print("end")
    """
    assert process(code) == ["end"]


@needs_workers
def test_interrupt():
    # A process that a shell started in the background ignores the signal, and so do its children.
    code = """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    e, short = loop(10_000), loop(10)
    want = run(short).copy()
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        run(e)
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted")
    print(np.array_equal(run(short), want), threads.start(2))
    """
    assert process(code) == ["interrupted", "True", "2"]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="Linux tells the masks of threads")
def test_workers_block_signals():
    """And sleep when the process ends."""
    code = """
    import pathlib
    run(loop(10))
    masks = [line.split()[1] for status in pathlib.Path("/proc/self/task").glob("*/status")
             for line in status.read_text().splitlines() if line.startswith("SigBlk")]
    print(sorted(f"{int(m, 16):064b}"[-2] for m in masks))  # SIGINT is 2
    time.sleep(0.05)
    """
    assert process(code) == ["['0',", "'1']"]


@needs_workers
def test_condition_variables_in_place_of_futexes():
    code = """
    e, long = loop(10), loop(1000)
    want = run(e).copy(), run(long).copy()
    threads.set_num_threads(1)
    native._entry, native._way_to_sleep = None, lambda: "condition"
    threads._SPIN_SECONDS = threads._YIELDS = 0
    threads.set_num_threads(3)
    e, long = loop(10), loop(1000)
    for _ in range(5):
        assert np.array_equal(run(e), want[0]) and np.array_equal(run(long), want[1])
        time.sleep(0.001)
    print(threads.start(3))
    """
    assert process(code) == ["3"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores have no numbers here")
def test_who_shares_a_core_with_another_sleeps():
    """Looking on for what the other one does would keep him from doing it. The next call is not divided then."""
    code = """
    import resource
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    e = loop(1000)
    want = run(e).copy()
    for count in (2, 3):
        threads.set_num_threads(count)
        for _ in range(2):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw  # does not count who lets others have the core
            assert np.array_equal(run(e), want)
            print(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before > 500)
    """
    assert process(code) == ["True", "False"] * 2


@needs_workers
def test_without_spinning():
    """Whoever computes in an exit handler of his own then does so without workers."""
    code = """
    threads._SPIN_SECONDS = threads._YIELDS = 0
    e = loop(1000)
    want = run(e).copy()
    threads.set_num_threads(4)
    for _ in range(5):
        assert np.array_equal(run(e), want)
    print(threads.start(4))
    threads._at_exit()
    print(np.array_equal(run(e), want), threads.start(2))
    """
    assert process(code) == ["4", "True", "1"]


def test_workers_do_not_start_while_a_call_runs_alone():
    """After a fork there are none; a call that began then holds the team's mutex until it ends."""
    threads.set_num_threads(2)
    try:
        assert threads.start(2) == 2 and threads._stop(10)
        entry, team = native.entry(), threads.block.ctypes.data
        assert entry.try_lock(team)
        try:
            assert threads.start(2) == 1
            assert not entry.try_lock(team)
        finally:
            entry.unlock(team)
        assert threads.start(2) == 2
    finally:
        threads.set_num_threads(None)
