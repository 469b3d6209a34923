"""The native entry: which calls it runs itself, which it passes to the fallback, and its reference counts."""

import ctypes
import gc
import math
import sys
import threading
import weakref

import numpy as np
import pytest

from gluonjit.codegen.block_memory import Word
from gluonjit.codegen.entry import Field
from gluonjit.codegen.interface import Interface, Layout
from gluonjit.codegen.target import host
from gluonjit.codegen.text import llvm
from gluonjit.codegen.text.intrinsics import flush_bits
from gluonjit.ir.types import IRError, tensor
from gluonjit.runtime import mode, native
from gluonjit.runtime.executable import Executable, address_of
from gluonjit.runtime.fast_call import fast_call
from gluonjit.runtime.kept_blocks import STATE
from gluonjit.runtime.storage import EPOCH, Storage
from support.threads import at_once


class Wrapper:
    """The shape of an NDArray."""

    __slots__ = ("__weakref__", "_array", "_grad_state", "_storage")

    def __init__(self, array):
        self._array, self._storage, self._grad_state = array, None, None


LONG = 10**9
"""The estimate of a call that gives up the GIL."""


def sums(n_outputs=1, arena=64, cost=0, shape=(2, 4), flush_denormals=False):
    """An executable over f32 inputs a and b whose k-th output is a + b + k; it passes through its arena."""
    target = host()
    module = llvm.Module(target)
    f = module.function("main")
    a, b, arena_pointer = f.table(0), f.table(1), f.table(2 + n_outputs)
    outs = [f.table(2 + k) for k in range(n_outputs)]
    with f.for_(0, math.prod(shape)) as loop:
        x = f.load("float", f.gep("float", a, loop.index))
        y = f.load("float", f.gep("float", b, loop.index))
        f.store("float", f.op(f"fadd float {x}, {y}"), f.gep("float", arena_pointer, loop.index))
        z = f.load("float", f.gep("float", arena_pointer, loop.index))
        for k, out in enumerate(outs):
            f.store("float", f.op(f"fadd float {z}, {llvm.float_literal(k)}"), f.gep("float", out, loop.index))
    t = tensor("f32", *shape)
    layout = Layout((t, t), (t,) * n_outputs, arena, (), cost=cost)
    text = module.text()
    return Executable(Interface(layout, n_outputs), llvm.load(llvm.compile_module(text, target)), flush_denormals)


def entry(executable, bare=True, held=(), fallback=None):
    """A fast call of two arguments less those held; the fallback returns its arguments."""
    calls = fallback or (lambda *args: ("fallback", args))
    n = 2 - len(held)
    return fast_call(executable, n, list(held), {}, int(EPOCH[0]), Wrapper, calls, bare)


@pytest.fixture
def ab():
    a = np.arange(8, dtype=np.float32).reshape(2, 4)
    return a, np.full((2, 4), 0.5, np.float32)


def test_run(ab):
    outputs, updates = sums(2).run(ab)
    assert updates == []
    np.testing.assert_array_equal(outputs[0], ab[0] + 0.5)
    np.testing.assert_array_equal(outputs[1], ab[0] + 1.5)


def test_run_takes_any_layout(ab):
    a, b = ab
    strided = np.empty((4, 4), np.float32)[::2]
    strided[...] = a
    raw = np.empty(33, np.uint8)[1:].view(np.float32).reshape(2, 4)  # not aligned
    raw[...] = b
    np.testing.assert_array_equal(sums().run([strided, raw])[0][0], a + 0.5)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a[:1],
        lambda a: a.astype(np.float64),
        lambda a: a.reshape(8),
        lambda a: a.astype(">f4"),
    ],
)
def test_run_refuses_other_types(ab, change):
    with pytest.raises(IRError):
        sums().run([change(ab[0]), ab[1]])
    with pytest.raises(IRError, match="takes 2 inputs"):
        sums().run(ab[:1])


@pytest.mark.parametrize("cost", [0, LONG])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_fast_call(ab, n_outputs, cost):
    a, b = map(Wrapper, ab)
    call = entry(sums(n_outputs, cost=cost), bare=n_outputs == 1)
    results = call(a, b)
    if n_outputs == 1:
        results = [results]
    assert type(results) is list and len(results) == n_outputs
    for k, r in enumerate(results):
        assert type(r) is Wrapper and r._storage is None and r._grad_state is None
        assert r._array.flags.owndata and r._array.flags.writeable
        np.testing.assert_array_equal(r._array, ab[0] + 0.5 + k)


def test_large_results_begin_at_cache_lines():
    shape = (3, 100, 700)
    a, b = (Wrapper(np.full(shape, k, np.float32)) for k in (1, 2))
    call = entry(sums(2, arena=math.prod(shape) * 4, shape=shape), bare=False)
    taken = []
    for _ in range(20):
        for k, r in enumerate(call(a, b)):
            array = r._array
            taken.append(array)
            assert array.shape == shape and (array == 3 + k).all()
            assert array.flags.c_contiguous and array.flags.owndata and array.flags.writeable and array.flags.aligned
            if hasattr(native.libc(), "aligned_alloc"):
                assert array.ctypes.data % 64 == 0
    taken[0].resize((4, 100, 700))
    assert (taken[0][:3] == 3).all()
    before = sys.getrefcount(taken[1].dtype)
    del taken, array, r
    gc.collect()
    if before != sys.getrefcount(None):  # both are immortal with NumPy 2.5
        assert sys.getrefcount(np.dtype("f4")) < before  # each array held a reference


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss differs")
def test_large_results_are_freed():
    import resource

    shape = (1 << 19,)
    a = Wrapper(np.ones(shape, np.float32))
    call = entry(sums(arena=4 << 19, shape=shape))
    call(a, a)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100):
        assert call(a, a)._array[-1] == 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KB, of 200,000 in all


def test_held_inputs_are_bound(ab):
    call = entry(sums(), held=[ab[1]])
    np.testing.assert_array_equal(call(Wrapper(ab[0]))._array, ab[0] + 0.5)
    ab[1][...] = 2  # the same memory: seen, for nothing was derived from it
    np.testing.assert_array_equal(call(Wrapper(ab[0]))._array, ab[0] + 2)


def unexpected(a):
    class Sub(Wrapper):
        __slots__ = ()

    class Matrix(np.ndarray):
        pass

    empty = Wrapper.__new__(Wrapper)
    elsewhere = Wrapper(a)
    elsewhere._storage = Storage("cpu(1)")
    order = np.asfortranarray(a)
    misaligned = np.empty(a.nbytes + 1, np.uint8)[1:].view(a.dtype).reshape(a.shape)
    return {
        "bare array": a,
        "None": None,
        "subclass of the wrapper": Sub(a),
        "subclass of ndarray": Wrapper(a.view(Matrix)),
        "slot never set": empty,
        "no array": Wrapper([1]),
        "dtype": Wrapper(a.astype(np.float64)),
        "byte order": Wrapper(a.astype(">f4")),
        "rank": Wrapper(a.reshape(2, 2, 2)),
        "shape": Wrapper(a.reshape(4, 2)),
        "layout": Wrapper(order),
        "alignment": Wrapper(misaligned),
        "another device": elsewhere,
    }


@pytest.mark.parametrize("kind", unexpected(np.zeros((2, 4), np.float32)))
@pytest.mark.parametrize("place", [0, 1])
def test_anything_else_goes_to_the_fallback(ab, kind, place):
    args = [Wrapper(ab[0]), Wrapper(ab[1])]
    args[place] = unexpected(ab[0])[kind]
    call = entry(sums())
    word, passed = call(*args)
    assert word == "fallback"
    assert all(x is y for x, y in zip(passed, args, strict=True))


def test_other_argument_counts_go_to_the_fallback(ab):
    a = Wrapper(ab[0])
    call = entry(sums())
    assert call() == ("fallback", ())
    assert call(a)[0] == "fallback" and call(a, a, a)[0] == "fallback"
    with pytest.raises(TypeError, match="keyword"):
        call(x=a)


def test_a_write_to_watched_storage_ends_the_fast_path(ab):
    args = tuple(map(Wrapper, ab))
    call = entry(sums())
    storage = Storage()
    storage.wrote()
    assert type(call(*args)) is Wrapper
    storage.watched = True
    storage.wrote()
    assert call(*args)[0] == "fallback"


def test_modes_suspend_the_fast_path(ab):
    args = tuple(map(Wrapper, ab))
    call = entry(sums())
    mode.change(1)
    try:
        assert call(*args)[0] == "fallback"
    finally:
        mode.change(-1)
    assert type(call(*args)) is Wrapper


def test_errors_of_the_fallback_come_through(ab):
    def fail(*args):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        entry(sums(), fallback=fail)()


def test_reference_counts(ab):
    a, b = map(Wrapper, ab)
    call, many = entry(sums()), entry(sums(3), bare=False)
    dtype = np.dtype(np.float32)
    call(a, b), many(a, b)
    before = [sys.getrefcount(x) for x in (ab[0], ab[1], a, b, dtype)]
    for _ in range(1000):
        call(a, b), many(a, b), call(a)
    assert [sys.getrefcount(x) for x in (ab[0], ab[1], a, b, dtype)] == before
    result = call(a, b)
    count = sys.getrefcount(result._array)  # the wrapper's reference and the call's own
    assert count == 2


@pytest.mark.parametrize("field", ["NEW_ARRAY", "NEW_LIST", "ALLOC", "BLOCKS", "NEW_FROM_DESCR"])
def test_without_memory(field):
    bare = field == "NEW_ARRAY"
    shape = (1 << 10, 1 << 10) if field in ("BLOCKS", "NEW_FROM_DESCR") else (2, 4)
    arrays = [np.zeros(shape, np.float32) for _ in range(2)]
    call = entry(sums(1 if bare else 3, arena=arrays[0].nbytes, shape=shape), bare)
    a, b = map(Wrapper, arrays)
    fails = ctypes.cast(ctypes.pythonapi.PyErr_NoMemory, ctypes.c_void_p).value  # returns null, whatever it is given
    full = STATE.copy()
    full[Word.ALLOC], full[Word.CLOCK :] = fails, 0
    bad = full.ctypes.data if field == "BLOCKS" else fails
    good, call.__self__[Field[field]] = int(call.__self__[Field[field]]), bad
    before = [sys.getrefcount(x) for x in (*arrays, a, b)]
    for _ in range(10):
        with pytest.raises(MemoryError):
            call(a, b)
    assert [sys.getrefcount(x) for x in (*arrays, a, b)] == before
    call.__self__[Field[field]] = good
    results = [call(a, b)] if bare else call(a, b)
    assert [r._array.flat[-1] for r in results] == list(range(len(results)))


def test_what_a_call_needs_lives_as_long_as_the_call(ab):
    executable = sums()
    gone = weakref.ref(executable)
    call = entry(executable)
    del executable
    gc.collect()
    assert gone() is not None
    np.testing.assert_array_equal(call(*map(Wrapper, ab))._array, ab[0] + 0.5)
    del call
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("cost", [0, LONG])
def test_many_threads(ab, cost):
    """One entry has one arena: who finds it taken goes to the fallback, which has others."""
    executable = sums(cost=cost)
    wrong = []

    def slow(*args):
        return Wrapper(executable.run([x._array for x in args])[0][0])

    call = entry(executable, fallback=slow)

    def work(k):
        a = Wrapper(np.full((2, 4), k, np.float32))
        b = Wrapper(ab[1])
        for _ in range(3000):
            if not (call(a, b)._array == k + 0.5).all():
                wrong.append(k)

    at_once(work, 4)
    assert not wrong


@pytest.mark.parametrize("cost", [0, LONG])
def test_denormals_are_flushed_if_asked_for_and_kept_outside(cost):
    tiny = np.float32(1e-39)
    a = Wrapper(np.full((2, 4), tiny))
    for flush in (False, True, False):
        executable = sums(cost=cost, flush_denormals=flush)
        for result in (entry(executable)(a, a)._array, executable.run([a._array, a._array])[0][0]):
            assert (result == (0 if flush and flush_bits(host()) else tiny + tiny)).all()
        assert np.add(a._array, a._array)[0, 0] == tiny + tiny != 0


def test_addresses_are_those_of_numpy():
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for array in (x, x[1:, 2:], x[::-1], x.T, x[:, :0], np.array(3.0), np.frombuffer(b"abcd", np.uint8)):
        assert address_of(array) == array.ctypes.data


def test_the_entry_is_made_while_the_program_goes_on(monkeypatch):
    goes_on, made = threading.Event(), []

    def slowly():
        goes_on.wait(60)
        made.append(object())
        if len(made) == 1:
            raise OSError("the disk is full")
        return made[-1]

    monkeypatch.setattr(native, "_entry", None)
    monkeypatch.setattr(native, "_Entry", slowly)
    before = threading.enumerate()
    native.begin()
    (maker,) = {*threading.enumerate()} - {*before}
    assert not made
    goes_on.set()
    maker.join()
    assert native.entry() is made[1]  # who needs it makes it where that has failed
    native.begin()
    assert threading.enumerate() == before
