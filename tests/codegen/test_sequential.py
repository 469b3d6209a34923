"""`cumsum`, `scatter_add` and `sort` against NumPy."""

import dataclasses
import itertools
import random

import numpy as np
import pytest

from gluonjit.codegen.kernels.sequential import lower_sequential
from gluonjit.codegen.kernels.sorting import lower_sorting
from gluonjit.codegen.target import host
from gluonjit.codegen.text.llvm import Module
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.text import parse_graph
from gluonjit.ir.types import DTYPES, F32, IRError, TensorType, type_of
from gluonjit.runtime.compiler import compile_graph
from support.compare import assert_close
from support.draw import draw
from support.kernels import run, runnable_targets
from support.soak import tries


def check(name, inputs, attrs, target=None, nthreads=1, at_end=False):
    b = Builder("graph", "legal")
    graph = b.build(b.emit(name, [b.input(f"x{k}", type_of(x)) for k, x in enumerate(inputs)], attrs))

    def lower(kernel, target, module):
        (lower_sorting if name == "sort" else lower_sequential)(kernel, graph.ops[0], module)

    got = run(graph, inputs, target, nthreads, lower, at_end)
    for k, (a, b) in enumerate(zip(got, evaluate(graph, inputs)[0])):
        if name == "sort":
            assert a.tobytes() == b.tobytes(), f"output {k}: {a} is not {b}"
        else:
            assert_close(a, b, f"output {k} of {name}")


@pytest.mark.parametrize("name", ["cumsum", "scatter_add", "sort"])
def test_random_cases(name):
    targets = runnable_targets()
    for seed in range(tries(12)):
        rng = random.Random(f"sequential {name} {seed}")
        case = draw(name, rng)
        inputs = case.values(rng, special=name == "sort")
        check(name, inputs, case.attrs, targets[seed % len(targets)], 1 + seed % 3, seed % 2 == 0)


@pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.cpu)
def test_long_axes(target):
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 9, (3, 300, 37)).astype(np.float32) / 4  # exact sums, and ties to sort
    for axis, nthreads in itertools.product(range(3), (1, 3)):
        check("cumsum", [x], {"axis": axis}, target, nthreads)
        for descending in (False, True):
            check("sort", [x], {"axis": axis, "descending": descending}, target, nthreads)
    rows = rng.integers(-2, 32, (1, 200)).astype(np.int32)
    data, added = x[0, :30], rng.integers(-8, 9, (200, 37)).astype(np.float32)
    for nthreads in (1, 3):
        check("scatter_add", [np.ascontiguousarray(data), rows, added], {}, target, nthreads)


# Up to 16 elements are ranked; 2 KB are merged, more is divided; of more than 2 (count + 256), the first are selected.
SORTED = [
    ("float32", 16, 5), ("float32", 17, 0), ("int8", 40, 9), ("float64", 33, 0), ("float64", 100, 0),
    ("float32", 900, 0), ("int32", 1000, 10), ("float64", 600, 590), ("uint8", 700, 1), ("float16", 257, 41),
    ("int64", 300, 300), ("float32", 2000, 9), ("int64", 1500, 300), ("float64", 1600, 7),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "n", "count"), SORTED)
def test_every_way_to_sort(dtype, n, count):
    """Bit for bit; with ties, with floats that differ in their last bits alone, and along both kinds of axes."""
    rng = np.random.default_rng(n)
    targets = runnable_targets()
    for k, (shape, axis) in enumerate((((3, n), 1), ((n, 2), 0))):
        x = rng.integers(-60, 60, shape).astype(dtype)
        if x.dtype.kind == "f":
            x = np.where(
                rng.random(shape) < 0.3, (1 + np.finfo(dtype).eps * rng.integers(0, 9, shape)).astype(dtype), x
            )
            for value in (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0):
                x[rng.random(shape) < 0.05] = value
        target = targets[(n + k) % len(targets)]
        attrs = {"axis": axis, "descending": n % 2 == 0, "count": count}
        check("sort", [x], attrs, target, nthreads=2, at_end=True)
        if axis == 1:
            check("sort", [x], {**attrs, "descending": n % 2 == 1, "order": False}, target)


@pytest.mark.parametrize(("dtype", "machine"), [("float64", 0), ("float32", 1), ("float16", 2), ("int64", 3)])
def test_lines_longer_than_a_cache(dtype, machine):
    """They are distributed among buckets, some of which are empty; no line ends with a whole vector."""
    targets = runnable_targets()
    target = dataclasses.replace(targets[machine % len(targets)], l2=1 << 10)
    rng = np.random.default_rng(0)
    x = (100 * rng.standard_normal((3, 33001))).astype(dtype)
    x[1] = np.arange(33001) // 20000
    if x.dtype.kind == "f":
        x[2, ::5] = -0.0
        x[2, ::7] = -np.nan
    for descending in (False, True):
        check("sort", [x], {"axis": 1, "order": False, "descending": descending}, target, at_end=descending)


def _patterns(n):
    """Lines that are hard for quicksort, of whole numbers below 128."""
    k = np.arange(n)
    nines = max(n // 9, 1)
    return {
        "ascending": k * 127 // n,
        "descending": 127 - k * 127 // n,
        "organ pipe": np.minimum(k, n - 1 - k) * 254 // n,
        "teeth": k % 63,
        "blocks": k // 16 * 37 % 101,
        "least where pivots are sought": np.where((k - nines // 2) % nines == 0, 0, 1 + k % 126),
        "one out of order": np.where(k == n // 2, 0, k * 127 // n),
        "equal but one": np.where(k == n - 1, 0, 5),
    }


@pytest.mark.parametrize(("dtype", "order"), [("f32", False), ("f32", True), ("i64", True), ("f64", False)])
def test_one_code_sorts_hard_lines_of_any_length(dtype, order):
    code = compile_graph(
        parse_graph(
            f"graph @g(%x: {dtype}[n]) {{ {'%values, %places' if order else '%values'} = sort(%x) {{axis = 0, "
            f"order = {order}}} return {'%values, %places' if order else '%values'} }}"
        )
    )
    for n in (2, 7, 8, 9, 63, 64, 65, 127, 129, 256, 257, 1023, 2049, 5000):
        for name, line in _patterns(n).items():
            x = line.astype(DTYPES[dtype].numpy)
            (values, *places), _ = code.run([x])
            np.testing.assert_array_equal(values, np.sort(x), f"{name}, {n}")
            if order:
                np.testing.assert_array_equal(places[0], np.argsort(x, kind="stable"), f"{name}, {n}")


@pytest.mark.parametrize("descending", [False, True])
def test_sort_of_special_values(descending):
    x = np.array([np.nan, 1, -0.0, np.inf, np.nan, 0.0, -np.inf, 1, np.nan, -1], np.float32)
    check("sort", [x], {"axis": 0, "descending": descending})
    check("sort", [np.zeros(0, np.float32)], {"axis": 0, "descending": descending})
    check("sort", [np.ones(1, np.float32)], {"axis": 0, "descending": descending})


def test_only_these():
    b = Builder("graph", "legal")
    graph = b.build(b.emit("exp", [b.input("x", TensorType(F32, (3,)))]))
    with pytest.raises(IRError, match="exp has no sequential kernel"):
        lower_sequential("kernel", graph.ops[0], Module(host()))
