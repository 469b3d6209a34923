"""Networks of vectors: any number of registers and lanes sorts what NumPy sorts, and touches nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from gluonjit.codegen import llvm
from gluonjit.codegen.sorting_network import Network
from gluonjit.codegen.target import host


@pytest.mark.parametrize(("item", "lanes"), [("i32", 4), ("i32", 8), ("i64", 8), ("i64", 2), ("i32", 16)])
def test_any_length(item, lanes):
    """Blocks, runs without a partner, and several passes; with many equal items, and with none."""
    module = llvm.Module(host(), ["n"])
    f = module.function("kernel")
    network = Network(f, item, lanes)
    n = f._size("n")
    network.pad(f.table(0), n)
    f.store("ptr", network.sort(f.table(0), f.table(1), n), f.table(2), 8)
    loaded = llvm.load(llvm.compile_module(module.text(), host()))
    rng = np.random.default_rng(lanes)
    dtype = np.dtype(item.replace("i", "int"))
    for size in (1, lanes, 8 * lanes, 8 * lanes + 1, 24 * lanes, 777, 4 * 8 * lanes):
        for most in (3, np.iinfo(dtype).max):
            x = rng.integers(-most, most, size).astype(dtype)
            padded = -(-size // (8 * lanes)) * 8 * lanes
            memory = [np.full(padded + 8, 7, dtype), np.full(padded + 8, 7, dtype)]
            where = np.zeros(1, np.uint64)
            memory[0][:size] = x
            loaded.call("kernel", [*memory, where], sizes=[size])
            (found,) = (m for m in memory if m.ctypes.data == where[0])
            np.testing.assert_array_equal(found[:size], np.sort(x))
            for m in memory:
                np.testing.assert_array_equal(m[padded:], 7)


@pytest.mark.parametrize("registers", [2, 4, 8])
def test_known_length(registers):
    """A block of as few registers as the length needs, or several blocks."""
    for size in (registers * 4 - 1, registers * 4):
        module = llvm.Module(host())
        f = module.function("kernel")
        network = Network(f, "i32", 4)
        network.pad(f.table(0), size)
        f.store("ptr", network.sort(f.table(0), f.table(1), size), f.table(2), 8)
        assert network.rows(size) == registers
        loaded = llvm.load(llvm.compile_module(module.text(), host()))
        x = np.random.default_rng(size).permutation(size).astype(np.int32)
        memory = np.zeros(32, np.int32)
        memory[:size] = x
        loaded.call("kernel", [memory, np.zeros(32, np.int32), np.zeros(1, np.uint64)])
        np.testing.assert_array_equal(memory[:size], np.arange(size))
