"""Loops over open extents: one kernel, called with many sizes, gives what the static graph of each size means."""

from __future__ import annotations

import dataclasses
import random
from contextlib import contextmanager
from types import MappingProxyType

import numpy as np
import pytest

from gluonjit.codegen.kernels.sequential import lower_sequential
from gluonjit.codegen.kernels.sorting import lower_sorting
from gluonjit.codegen.loops.loops import supported
from gluonjit.ir.annotations import KERNEL, STRIDES
from gluonjit.ir.dims import named
from gluonjit.ir.graph import Builder, Graph
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.kernels.element_plans import Loops
from gluonjit.ir.sizes import dimensions, with_sizes
from gluonjit.ir.text import print_graph
from gluonjit.ir.types import BOOL, F16, F32, F64, I32, I64, U8, TensorType
from support.compare import assert_close
from support.kernels import body, opened, opened_together, runnable_targets
from support.open_programs import OPS, SIZES, open_program
from support.soak import tries

N, L, M = named("n"), named("l"), named("m")
WITH_ELEMENT = [name for name in OPS if name not in ("sort", "cumsum", "loop")]
LENGTHS = [2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 101]


def f32(*shape):
    return TensorType(F32, shape)


def arrays(graph, seed=0, top=100):
    rng = np.random.default_rng(seed)
    out = []
    for v in graph.inputs:
        if v.dtype.is_float:
            x = rng.normal(size=v.shape) * 2
        else:
            x = rng.integers(0, 2 if v.dtype is BOOL else top, v.shape)
        out.append(np.asarray(x).astype(v.dtype.numpy))
    return out


@contextmanager
def checking():
    """Gives a function that takes bodies and sizes. At the end, they are compiled as one module for each target, which
    the bodies take in turn; each open kernel gives what evaluating the static graph of each size gives."""
    cases = []

    def add(make, *types, sizes=None, tol=None, top=100, attrs=MappingProxyType({})):
        graph = body(make, *types)
        assert supported(graph) is None
        names = dimensions(graph)
        sizes = sizes or [dict(zip(names, (n, LENGTHS[(3 * k + 1) % len(LENGTHS)]))) for k, n in enumerate(LENGTHS)]
        cases.append((graph, attrs, sizes, tol, top))

    yield add
    targets = runnable_targets()
    for t, target in enumerate(targets):
        mine = cases[t :: len(targets)]
        for run, (graph, _, sizes, tol, top) in zip(opened_together([(*c[:2], None) for c in mine], target), mine):
            for k, s in enumerate(sizes):
                static = with_sizes(graph, s)
                inputs = arrays(static, k, top)
                wanted, _ = evaluate(static, inputs)
                got = run(s, inputs, 1 + k % 4, k % 2 == 0)
                for j, (a, b) in enumerate(zip(got, wanted)):
                    assert_close(a, b, f"output {j} at {s} on {target.vector_bits} bits of\n{graph}", tol)


# ---- elementwise


@pytest.mark.parametrize("dtype", [F32, F64, F16, I32, I64, U8, BOOL])
def test_elementwise(dtype):
    def make(b, x, y):
        if dtype is BOOL:
            return b.__getattr__("and")(x, y)
        return b.maximum(b.add(x, y), b.mul(x, x))

    with checking() as check:
        check(make, TensorType(dtype, (N, L)), TensorType(dtype, (N, L)))
        check(make, TensorType(dtype, (N, 3)), TensorType(dtype, (N, 3)))


def test_functions_and_large_sizes():
    with checking() as check:
        check(lambda b, x: b.exp(b.sin(x)), f32(N, 768), sizes=[{"n": n} for n in (2, 5, 17, 64)])
        check(lambda b, x: b.tanh(x), f32(N), sizes=[{"n": n} for n in (2, 63, 1000, 20011)])


def test_several_outputs():
    with checking() as check:
        check(lambda b, x, y: (b.add(x, y), b.gt(x, y), b.reduce(x, op="sum", axes=(1,))), f32(N, L), f32(N, L))


# ---- movement


def test_broadcast():
    with checking() as check:
        check(lambda b, x, y: b.add(x, b.broadcast(y, shape=x.shape)), f32(N, L, 4), f32(4))
        check(lambda b, x, y: b.add(x, b.broadcast(y, shape=x.shape, dims=(1,))), f32(N, L, 5), f32(L))
        check(lambda b, x, y: b.mul(x, b.broadcast(y, shape=x.shape, dims=(0, 1))), f32(N, 2, L), f32(N, 1))
        check(lambda b, x, y: b.add(x, b.broadcast(y, shape=x.shape)), f32(N, 10), f32(10))
        check(lambda b, x: b.broadcast(x, shape=(N, L), dims=()), f32(), sizes=[{"n": 5, "l": 7}])


def test_transpose_and_reshape():
    with checking() as check:
        check(lambda b, x: b.transpose(x, perm=(1, 0)), f32(N, L))
        check(lambda b, x: b.transpose(x, perm=(1, 0)), f32(N, 20))
        check(lambda b, x: b.transpose(x, perm=(1, 0)), f32(20, N))
        check(lambda b, x: b.transpose(b.reshape(x, shape=(N, L, 2, 5)), perm=(0, 2, 1, 3)), f32(N, L, 10))
        check(lambda b, x: b.transpose(b.reshape(x, shape=(N, L, 2, 16)), perm=(0, 2, 3, 1)), f32(N * L, 32))
        check(lambda b, x: b.reshape(b.transpose(x, perm=(0, 2, 1, 3)), shape=(N * L, 6)), f32(N, 2, L, 3))
        check(lambda b, x: b.reshape(x, shape=(N * L * 12,)), f32(N, L, 12))
        check(lambda b, x: b.reshape(b.transpose(x, perm=(1, 0)), shape=(N * L,)), f32(N, L))


def test_slice_reverse_pad_concat():
    with checking() as check:
        check(lambda b, x: b.slice(x, start=(0, 1), size=(N, 3)), f32(N, 6))
        check(lambda b, x: b.slice(x, start=(1, 0), size=(N - 1, 3), step=(1, 2)), f32(N, 6))
        check(lambda b, x: b.reverse(x, axes=(1,)), f32(N, L))
        check(lambda b, x: b.reverse(x, axes=(0,)), f32(N, 5))
        check(lambda b, x: b.pad(x, b.constant(3, F32), low=(0, 1), high=(0, 2)), f32(N, L))
        check(lambda b, x: b.pad(x, b.constant(3, F32), low=(1, 0), high=(0, 2), interior=(1, 0)), f32(N, 3))
        check(lambda b, x, y: b.concat(x, y, axis=1), f32(N, L), f32(N, M), sizes=SIZES3)
        check(lambda b, x, y: b.concat(x, y, axis=0), f32(N, 5), f32(L, 5))
        check(lambda b, x, y: b.concat(x, y, axis=1), f32(N, 5), f32(N, 18))
        check(lambda b, x, y, z: b.concat(x, y, z, axis=1), f32(N, L), f32(N, 2), f32(N, M), sizes=SIZES3)
        check(lambda b, x, y: b.update_slice(x, y, start=(0, 1)), f32(N, L + 2), f32(N, L))
        check(lambda b, x, y: b.update_slice(x, y, start=(0, L - 2)), f32(N, L), f32(N, 2))
        check(lambda b, x, y: b.add(b.pad(x, b.constant(3, F32), low=(0, L - 2), high=(0, 0)), y), f32(N, 2), f32(N, L))


SIZES3 = [{"n": n, "l": l, "m": m} for n, l, m in ((2, 3, 5), (7, 16, 33), (3, 64, 2), (17, 2, 64), (5, 33, 31))]


# ---- reductions


@pytest.mark.parametrize("op", ["sum", "max", "min", "prod"])
def test_reductions(op):
    with checking() as check:
        check(lambda b, x: b.reduce(x, op=op, axes=(1,)), f32(N, L), tol=1e-5)
        check(lambda b, x: b.reduce(x, op=op, axes=(0,)), f32(N, L), tol=1e-5)
        check(lambda b, x: b.reduce(x, op=op, axes=(0,)), f32(N, 5), tol=1e-5)
        if op != "prod":
            check(lambda b, x: b.reduce(x, op=op, axes=(0, 1, 2)), f32(N, L, 3), tol=1e-5)
            check(lambda b, x: b.reduce(x, op=op, axes=(0, 2)), f32(N, 4, L), tol=1e-5)
            check(lambda b, x: b.reduce(x, op=op, axes=(1,)), TensorType(I32, (N, L)))


@pytest.mark.parametrize("shape", [(4 * N + 1, 9, 9, 32), (64 * N + 1, 32), (N, 9, 9, 32), (8 * N + 4, 15, 15, 64)])
def test_sums_of_many_pixels(shape):
    """Down columns, of numbers of pixels that are no multiple of what is summed at a time, or may be none."""
    axes = tuple(range(len(shape) - 1))
    with checking() as check:
        sizes = [{"n": n} for n in (2, 3, 8)]
        check(lambda b, x: b.reduce(x, op="sum", axes=axes), f32(*shape), tol=1e-5, sizes=sizes)


def test_other_reductions():
    with checking() as check:
        check(lambda b, x: b.arg_reduce(x, op="argmax", axis=1), f32(N, L))
        check(lambda b, x: b.arg_reduce(x, op="argmin", axis=0), f32(N, L))
        check(lambda b, x: b.arg_reduce(x, op="argmax", axis=1), TensorType(I32, (N, L)), top=4)
        check(lambda b, x: b.reduce(x, op="any", axes=(1,)), TensorType(BOOL, (N, L)))
        check(lambda b, x: b.reduce(x, op="sum", axes=(1,)), TensorType(F16, (N, L)))
        check(lambda b, x: b.reduce(x, op="sum", axes=(1,)), TensorType(F64, (N, L)))


def softmax(b, x, axis):
    kept = tuple(k for k in range(len(x.shape)) if k != axis)
    e = b.exp(b.sub(x, b.broadcast(b.reduce(x, op="max", axes=(axis,)), shape=x.shape, dims=kept)))
    return b.div(e, b.broadcast(b.reduce(e, op="sum", axes=(axis,)), shape=x.shape, dims=kept))


def norm(b, x):
    n, l = x.shape
    size = b.constant(1 / l if isinstance(l, int) else 0.03, F32)
    mean = b.mul(b.reduce(x, op="sum", axes=(1,)), b.broadcast(size, shape=(n,)))
    centered = b.sub(x, b.broadcast(mean, shape=x.shape, dims=(0,)))
    var = b.mul(b.reduce(b.mul(centered, centered), op="sum", axes=(1,)), b.broadcast(size, shape=(n,)))
    eps = b.broadcast(b.constant(1e-5, F32), shape=(n,))
    return b.mul(centered, b.broadcast(b.rsqrt(b.add(var, eps)), shape=x.shape, dims=(0,)))


def test_softmax():
    with checking() as check:
        check(lambda b, x: softmax(b, x, 1), f32(N, L))
        check(lambda b, x: softmax(b, x, 0), f32(N, L))
        check(lambda b, x: softmax(b, x, 1), f32(N, 10))
        check(lambda b, x: softmax(b, x, 1), f32(N, 200), sizes=[{"n": 3}, {"n": 40}])
        check(lambda b, x: softmax(b, x, 3), f32(N, 2, L, L), sizes=[{"n": 2, "l": l} for l in (2, 7, 16, 33)])
        check(lambda b, x: softmax(b, x, 1), f32(N, L, 5))


def test_normalization():
    with checking() as check:
        check(norm, f32(N, 64))
        check(norm, f32(N, 768), sizes=[{"n": n} for n in (2, 7, 33)])
        check(norm, f32(N, L), tol=1e-4)


# ---- computed indices


def test_gather():
    with checking() as check:
        check(lambda b, x, i: b.gather(x, i, axis=0), f32(50, 16), TensorType(I32, (N, L)))
        check(lambda b, x, i: b.gather(x, i, axis=0), f32(L, 7), TensorType(I32, (N,)))
        check(lambda b, x, i: b.gather(x, i, axis=1, mode="wrap"), f32(N, L), TensorType(I32, (N,)))
        check(lambda b, x, i: b.gather_nd(x, i), f32(N, L), TensorType(I64, (2, M)), sizes=SIZES3)


def test_iota():
    with checking() as check:
        check(lambda b, x: b.add(x, b.iota(shape=(N, L), axis=1, dtype=F32)), f32(N, L))
        check(lambda b, x: b.add(x, b.iota(shape=(N, L), axis=0, dtype=I64)), TensorType(I64, (N, L)))


PLANS = [Loops(streaming=True), Loops(ahead="rows"), Loops(ahead="reads"), Loops(rare=True)]


@pytest.mark.parametrize("attrs", [KERNEL(plan) for plan in PLANS], ids=map(str, PLANS))
def test_plans(attrs):
    with checking() as check:
        check(lambda b, x, y: b.concat(b.exp(x), y, axis=1), f32(N, L), f32(N, 64), attrs=attrs)
        check(lambda b, x: softmax(b, x, 1), f32(N, L), attrs=attrs)


def test_open_strides():
    """An operand and a result that are windows of buffers with wider rows."""
    graph = body(lambda b, x: b.mul(x, x), f32(N, L))
    wide = L + 3
    run = opened(graph, attrs=STRIDES(((wide, 1), (wide * 2, 1))), buffers=[f32(N, wide), f32(N, wide * 2)])
    for s in ({"n": 2, "l": 2}, {"n": 5, "l": 33}, {"n": 17, "l": 64}):
        x = np.random.default_rng(0).normal(size=(s["n"], s["l"] + 3)).astype(np.float32)
        (y,) = run(s, [x])
        np.testing.assert_array_equal(y[:, : s["l"]], x[:, : s["l"]] ** 2)
        assert (y[:, s["l"] :] == 7).all()


@pytest.mark.parametrize("seed", range(tries(12)))
def test_random_program(seed):
    program = open_program(seed, ops=3 + seed % 7, level="legal", only=WITH_ELEMENT)
    graph = Graph("body", program.graph.inputs, program.graph.ops, program.graph.results, level="legal")
    if supported(graph) is not None:
        pytest.skip("not a body")
    targets = runnable_targets()
    run = opened(graph, targets[seed % len(targets)])
    for k, sizes in enumerate((*SIZES, {"n": 17, "l": 16})):
        for got, want in zip(run(sizes, program.inputs(sizes), 1 + k % 3, k % 2 == 0), program.expected(sizes)):
            assert_close(got, want, f"program {seed} at {sizes}", 1e-4)


# ---- sequential kernels


def check_op(name, *types, tops=(100, 100, 100), **attrs):
    b = Builder("graph", "legal")
    graph = b.build(b.emit(name, [b.input(f"x{k}", t) for k, t in enumerate(types)], attrs))
    target = random.Random(print_graph(graph)).choice(runnable_targets())
    lower = lower_sorting if name == "sort" else lower_sequential
    run = opened(graph, target, lambda kernel, target, module: lower(kernel, graph.ops[0], module))
    for k, n in enumerate(LENGTHS):
        s = {"n": n, "l": LENGTHS[(3 * k + 1) % len(LENGTHS)]}
        static = with_sizes(graph, s)
        inputs = [x % top if x.dtype.kind == "i" else x for x, top in zip(arrays(static, k), tops)]
        for j, (a, b) in enumerate(zip(run(s, inputs, 1 + k % 4, k % 2 == 0), evaluate(static, inputs)[0])):
            assert_close(a, b, f"output {j} of {name} at {s} on {target.vector_bits} bits", 1e-5)


def test_sequential():
    for axis in (0, 1, 2):
        check_op("cumsum", f32(N, 3, L), axis=axis)
        check_op("sort", f32(N, 3, L), axis=axis, descending=axis == 1)
    check_op("sort", f32(N, 300, L), axis=1, count=7)
    check_op("cumsum", f32(N, L), axis=1)
    check_op("cumsum", f32(N, L, 5), axis=1)
    check_op("sort", TensorType(I32, (N, L)), axis=0, tops=(4,), descending=False)
    check_op("scatter_add", f32(N, L), TensorType(I64, (1, N * 2)), f32(N * 2, L), tops=(1, 9, 1))
    check_op("scatter_add", f32(30, L), TensorType(I64, (1, N)), f32(N, L), tops=(1, 30, 1))
    check_op("scatter_add", f32(N, L), TensorType(I32, (2, N)), f32(N), tops=(1, 5, 1))


def test_sort_of_lines_that_may_be_longer_than_a_cache():
    """The same code sorts a short line in place, and distributes a long one among buckets."""
    for target, type in zip(runnable_targets(), (f32(2, L), TensorType(F64, (2, L)), TensorType(I64, (2, L)))):
        small = dataclasses.replace(target, l2=1 << 10)
        b = Builder("graph", "legal")
        graph = b.build([b.sort(b.input("x", type), axis=1, order=False)])
        sort = graph.ops[0]
        run = opened(graph, small, lambda kernel, target, module, op=sort: lower_sorting(kernel, op, module))
        for size in (0, 40, 33001):
            x = np.random.default_rng(size).standard_normal((2, size)) * 100
            x[1, ::7] = np.nan if type.dtype.is_float else 0
            x = x.astype(type.dtype.numpy)
            np.testing.assert_array_equal(run({"l": size}, [x], 1, True)[0], np.sort(x))


# ---- what must hold of sums


def test_threads_do_not_change_bits():
    for make, *types in (
        (lambda b, x: softmax(b, x, 1), f32(N, L)),
        (lambda b, x: b.reduce(x, op="sum", axes=(0,)), f32(N, L)),
        (lambda b, x: b.exp(b.transpose(x, perm=(1, 0))), f32(N, L)),
    ):
        graph = body(make, *types)
        run = opened(graph)
        for s in ({"n": 170, "l": 131}, {"n": 33, "l": 1000}):
            x = arrays(with_sizes(graph, s))
            (alone,) = run(s, x)
            for nthreads in (2, 3, 5):
                np.testing.assert_array_equal(run(s, x, nthreads)[0], alone)


@pytest.mark.parametrize("axis", [0, 1])
def test_long_sums_are_accurate(axis):
    graph = body(lambda b, x: b.reduce(x, op="sum", axes=(axis,)), f32(*((N, 3) if axis == 0 else (3, N))))
    run = opened(graph)
    for n in (1000, 100_003):
        x = np.random.default_rng(n).random((n, 3) if axis == 0 else (3, n), np.float32)
        exact = x.astype(np.float64).sum(axis)
        assert np.abs(run({"n": n}, [x])[0] - exact).max() < 2e-7 * exact.max()
