"""Networks of vectors and quicksort: any number of items is sorted as NumPy sorts it, and nothing else is touched."""

from __future__ import annotations

import numpy as np
import pytest

from gluonjit.codegen.kernels.sorting_network import ROWS, Network
from gluonjit.codegen.kernels.sorting_partition import PADDING, Quicksort, sort_in_place
from gluonjit.codegen.target import host
from gluonjit.codegen.text import llvm
from support.kernels import runnable_targets


def compiled(write, target, dims=("n",)):
    """A kernel of a table of three pointers that ends with the one that `write(f)` returns."""
    module = llvm.Module(target, dims)
    f = module.function("kernel")
    f.store("ptr", write(f), f.table(2), 8)
    return llvm.load(llvm.compile_module(module.text(), target))


def check(loaded, x, behind, sizes):
    """Sorts x; nothing further than `behind` items after it is written."""
    end = len(x) + behind
    memory = [np.full(end + 8, 7, x.dtype) for _ in range(2)]
    where = np.zeros(1, np.uint64)
    memory[0][: len(x)] = x
    loaded.call("kernel", [*memory, where], sizes=sizes)
    (found,) = (m for m in memory if m.ctypes.data == where[0])
    np.testing.assert_array_equal(found[: len(x)], np.sort(x))
    for m in memory:
        np.testing.assert_array_equal(m[end:], 7)


@pytest.mark.parametrize(("item", "lanes"), [("i32", 4), ("i32", 8), ("i64", 8), ("i64", 2), ("i32", 16)])
def test_any_length(item, lanes):
    """Blocks, runs without a partner, and several passes; with many equal items, and with none."""

    def write(f):
        network, n = Network(f, item, lanes), f._size("n")
        network.pad(f.table(0), n)
        return network.sort(f.table(0), f.table(1), n)

    loaded = compiled(write, host())
    rng = np.random.default_rng(lanes)
    dtype = np.dtype(item.replace("i", "int"))
    block = ROWS * lanes
    for size in (1, lanes, block, block + 1, 3 * block, 777, 4 * block):
        for most in (3, np.iinfo(dtype).max):
            check(loaded, rng.integers(-most, most, size).astype(dtype), block, [size])


@pytest.mark.parametrize("registers", [2, 4, 8])
def test_known_length(registers):
    """A block of as few registers as the length needs."""
    for size in (registers * 4 - 1, registers * 4):

        def write(f, size=size):
            assert Network(f, "i32", 4).rows(size) == registers
            sort_in_place(f, "i32", 4, f.table(0), f.table(1), size)
            return f.table(0)

        x = np.random.default_rng(size).permutation(size).astype(np.int32)
        check(compiled(write, host(), ()), x, registers * 4, ())


def patterns(rng, n, dtype):
    """Arrays that quicksort finds easy or hard."""
    least, greatest = np.iinfo(dtype).min, np.iinfo(dtype).max
    yield rng.integers(least, greatest, n, dtype)
    yield np.arange(n).astype(dtype)
    yield -np.arange(n).astype(dtype)
    yield np.minimum(np.arange(n), n - np.arange(n)).astype(dtype)
    for values in ((5,), (least, greatest), (greatest,), (least,), (1, 2, 3, greatest)):
        yield rng.choice(np.array(values, dtype), n)


@pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("limit", [None, "2"])
@pytest.mark.parametrize("item", ["i32", "i64"])
def test_quicksort(item, limit, target, monkeypatch):
    """Pieces that are divided, and pieces that are merged because that was done too often."""
    if limit is not None:
        monkeypatch.setattr(Quicksort, "limit", lambda self: limit)
    lanes = target.vector_bits // int(item[1:])

    def write(f):
        sort_in_place(f, item, lanes, f.table(0), f.table(1), f._size("n"))
        return f.table(0)

    loaded = compiled(write, target)
    rng = np.random.default_rng(lanes)
    for n in (1, 16 * lanes, 16 * lanes + 1, 1500, 4099):
        for x in patterns(rng, n, np.dtype(item.replace("i", "int"))):
            check(loaded, x, PADDING * lanes, [n])
