"""Loop nests: every primitive by itself, compositions, and what must hold of the code."""

import itertools
import random
import re
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from gluonjit.codegen.loops import writer
from gluonjit.codegen.loops.access import Buffer
from gluonjit.codegen.loops.evaluate import Evaluator
from gluonjit.codegen.loops.footprint import trace
from gluonjit.codegen.loops.index import variable
from gluonjit.codegen.loops.loops import lower_loops, supported
from gluonjit.codegen.loops.nest import extent, plan_nest
from gluonjit.codegen.target import host, named
from gluonjit.codegen.text import llvm
from gluonjit.ir import opdef
from gluonjit.ir.graph import Builder, Graph
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.kernels.element_plans import Loops
from gluonjit.ir.types import BF16, BOOL, F16, F32, F64, I32, I64, U8, TensorType, broadcast_shapes, tensor, type_of
from support.compare import assert_close, difference
from support.draw import DRAWERS, draw
from support.kernels import body, kernel, run, runnable_targets, text, together
from support.programs import random_program
from support.soak import tries

WITH_ELEMENT = [n for n in DRAWERS if opdef.lookup(n).element is not None]
LOOSE = {"pow": 1e-4, "lgamma": 1e-4, "digamma": 1e-4}
"""Primitives whose references, on operands of all magnitudes, are no better than this."""


def f32(*shape):
    return TensorType(F32, shape)


def arrays(*types, seed=0):
    """Random operands: small whole numbers for integers, normally distributed floats."""
    rng = np.random.default_rng(seed)
    out = []
    for t in types:
        if t.dtype.is_float:
            x = rng.normal(size=t.shape) * 2
        else:
            x = rng.integers(0, 2 if t.dtype is BOOL else 100, t.shape)
        out.append(np.asarray(x).astype(t.dtype.numpy))
    return out


@contextmanager
def checking(*targets):
    """Gives a function like `check`. What it is called with is compiled at the end: each for one of the targets, in
    turn, and as one module for each target. By itself, each of these small kernels would take twice the time."""
    cases = []

    def add(make, *types, nthreads=1, seed=0, inputs=None, tol=None, label=""):
        """`inputs`: a list of operands, or several such lists."""
        graph = body(make, *types)
        assert supported(graph) is None
        inputs = inputs or arrays(*types, seed=seed)
        several = inputs if inputs and isinstance(inputs[0], list) else [inputs]
        cases.append((f"{label} of {', '.join(map(str, types))}", graph, several, nthreads, tol))
        return graph

    yield add
    targets = targets or (host(),)
    for t, target in enumerate(targets):
        mine = cases[t :: len(targets)]
        for compiled, case in zip(together([graph for _, graph, *_ in mine], target), mine):
            label, graph, several, nthreads, tol = case
            for inputs in several:
                wanted, _ = evaluate(graph, inputs)
                for k, (got, want) in enumerate(zip(compiled(inputs, nthreads), wanted)):
                    assert_close(got, want, f"output {k} {label} on {target.cpu}", tol)


def check(make, *types, target=None, **options):
    """The compiled body gives what evaluating it gives; returns the body."""
    with checking(target or host()) as add:
        return add(make, *types, **options)


# ---- every primitive, every dtype


def stretched(case, rng, long):
    """Operands of a drawn case for level 'legal'; with `long`, longer than a vector where that is easy."""
    primitive = opdef.lookup(case.name)
    values = case.values(rng, special=primitive.elementwise and case.name not in LOOSE)
    if not primitive.elementwise:
        return values
    shape = broadcast_shapes(*(t.shape for t in case.operands))
    if long:
        shape = (rng.choice([16, 33, 100]), *shape)
    return [np.ascontiguousarray(np.broadcast_to(x, shape)) for x in values]


def one_op(name, inputs, attrs):
    b = Builder("body", "legal")
    return b.build(b.emit(name, [b.input(f"x{k}", type_of(x)) for k, x in enumerate(inputs)], attrs))


@pytest.mark.parametrize("name", WITH_ELEMENT)
def test_primitive(name):
    targets = runnable_targets()
    for t, target in enumerate(targets):
        cases = []
        for seed in range(t, tries(4), len(targets)):
            rng = random.Random(f"loops {name} {seed}")
            case = draw(name, rng)
            if sum(t.size for t in case.operands) <= 60000:
                inputs = stretched(case, rng, seed % 2)
                cases.append((seed, case, inputs, one_op(name, inputs, case.attrs)))
        runs = together([graph for *_, graph in cases], target)
        for compiled, (seed, case, inputs, graph) in zip(runs, cases):
            (want,), _ = evaluate(graph, inputs)
            (got,) = compiled(inputs, nthreads=1 + seed % 3, at_end=seed % 4 < 2)
            tol = LOOSE.get(name) if want.dtype != np.float64 and want.dtype.kind == "f" else None
            assert_close(got, want, f"{case}, seed {seed}", tol)


# ---- random programs, each as one body


def as_body(graph):
    """The graph without updates: new states are outputs."""
    return Graph("body", graph.inputs, graph.ops, graph.results, level="legal")


@pytest.mark.parametrize("first", range(0, tries(20), 20))
def test_random_programs(first):
    programs = [
        random_program(seed, ops=4 + seed % 9, level="legal", only=WITH_ELEMENT) for seed in range(first, first + 20)
    ]
    bodies = [(p, graph) for p in programs if supported(graph := as_body(p.graph)) is None]
    assert len(bodies) > 10
    targets = runnable_targets()
    for t, target in enumerate(targets):
        mine = bodies[t :: len(targets)]
        for compiled, (program, _) in zip(together([graph for _, graph in mine], target), mine):
            got = compiled(program.inputs, nthreads=1 + program.seed % 2, at_end=program.seed % 4 < 2)
            for k, (a, b) in enumerate(zip(got, [*program.outputs, *program.updates])):
                assert_close(a, b, f"output {k} of program {program.seed}")


# ---- shapes of loops


def test_every_remainder():
    with checking(*runnable_targets()) as check:
        for n in (0, 1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 200, 1000, 20000):
            check(lambda b, x, y: b.add(b.mul(x, y), x), f32(n), f32(n))


def test_no_elements_and_one():
    check(lambda b, x: b.exp(x), f32())
    check(lambda b, x: b.exp(x), f32(3, 0, 2))
    check(lambda b, x: b.reduce(x, op="max", axes=(0,)), f32(0, 40))
    check(lambda b, x: b.reduce(x, op="sum", axes=(0, 1)), f32(0, 40))
    check(lambda b, x: b.reduce(x, op="prod", axes=(1,)), f32(5, 0))
    check(lambda b, x: b.reduce(x, op="min", axes=(1,)), TensorType(U8, (5, 0)))
    check(lambda b, x: b.reduce(x, op="sum", axes=(0,)), f32(7, 0))


def test_outputs_that_are_inputs_constants_or_twice_the_same():
    constant = np.arange(37, dtype=np.float32)

    def make(b, x, y):
        s = b.add(x, y)
        return x, s, s, b.constant(constant), b.constant(2.5, "f32")

    check(make, f32(37), f32(37))


def test_outputs_of_several_shapes():
    def make(b, x):
        rows = b.reduce(x, op="sum", axes=(1,))
        return rows, b.exp(x), b.reduce(x, op="max", axes=(0, 1)), b.tanh(rows)

    check(make, f32(33, 70))


@pytest.mark.parametrize("nthreads", [1, 2, 3, 7, 64])
def test_threads_do_not_change_a_bit(nthreads):
    cases = [
        (lambda b, x: b.tanh(x), f32(40000)),
        (lambda b, x: softmax(b, x, (1,)), f32(130, 300)),
        (lambda b, x: softmax(b, x, (1,)), f32(1, 30, 1200)),
        (lambda b, x: b.reduce(x, op="sum", axes=(0, 1)), f32(300, 200)),
        (lambda b, x: b.reduce(x, op="sum", axes=(0,)), f32(300, 200)),
        (lambda b, x: b.transpose(x, perm=(2, 0, 1)), f32(3, 70, 130)),
        (lambda b, x: b.div(x, spread(b, b.reduce(x, op="sum", axes=(0, 1)), x, ())), f32(100, 300)),
    ]
    for make, type in cases:
        graph = body(make, type)
        inputs = arrays(type)
        alone, shared = run(graph, inputs), run(graph, inputs, nthreads=nthreads)
        assert alone[0].tobytes() == shared[0].tobytes()


# ---- movement


def spread(b, x, like, dims):
    return b.broadcast(x, shape=like.shape, dims=dims)


MOVEMENT = {
    "concat of channels": (lambda b, *x: b.concat(*x, axis=1), [f32(2, 3, 7, 9), f32(2, 5, 7, 9), f32(2, 1, 7, 9)]),
    "concat of columns": (lambda b, *x: b.concat(*x, axis=2), [f32(3, 4, 20), f32(3, 4, 3), f32(3, 4, 70)]),
    "concat, then more": (
        lambda b, *x: b.reshape(b.tanh(b.concat(*x, axis=1)), shape=(6, 65)),
        [f32(3, 100), f32(3, 30)],
    ),
    "padded image": (lambda b, x, v: b.pad(x, v, low=(0, 0, 1, 1), high=(0, 0, 1, 2)), [f32(2, 3, 14, 80), f32()]),
    "spread out": (
        lambda b, x, v: b.pad(x, v, low=(0, 1, 1), high=(0, 0, 2), interior=(0, 1, 2)),
        [f32(2, 9, 30), f32()],
    ),
    "written into": (lambda b, x, u: b.update_slice(x, u, start=(1, 3), step=(2, 1)), [f32(9, 70), f32(3, 40)]),
    "reversed": (lambda b, x: b.reverse(x, axes=(0, 1)), [f32(5, 70)]),
    "every third": (lambda b, x: b.slice(x, start=(1, 2), size=(4, 50), step=(2, 3)), [f32(9, 160)]),
    "transposed": (lambda b, x: b.transpose(x, perm=(0, 2, 3, 1)), [f32(2, 35, 6, 7)]),
    "shuffled channels": (
        lambda b, x: b.reshape(b.transpose(b.reshape(x, shape=(2, 3, 8, 49)), perm=(0, 2, 1, 3)), shape=(2, 24, 7, 7)),
        [f32(2, 24, 7, 7)],
    ),
    "depth to space": (
        lambda b, x: b.reshape(
            b.transpose(b.reshape(x, shape=(2, 2, 2, 5, 6, 7)), perm=(0, 3, 4, 1, 5, 2)), shape=(2, 5, 12, 14)
        ),
        [f32(2, 20, 6, 7)],
    ),
    "reshaped across": (lambda b, x: b.exp(b.reshape(b.transpose(x, perm=(1, 0)), shape=(30, 14))), [f32(20, 21)]),
    "three channels": (
        lambda b, x, m: b.sub(x, spread(b, m, x, (2,))),
        [f32(10, 11, 3), f32(3)],
    ),
    "rows by number": (lambda b, x, i: b.gather(x, i, axis=0), [f32(30, 70), TensorType(I32, (11,))]),
    "columns by number": (
        lambda b, x, i: b.gather(x, i, axis=1, mode="wrap"),
        [f32(30, 10), TensorType(I64, (40,))],
    ),
    "points by number": (lambda b, x, i: b.gather_nd(x, i), [f32(30, 10, 18), TensorType(I32, (2, 7))]),
    "numbered": (lambda b: b.iota(shape=(5, 100), axis=1, dtype="f32"), []),
}


def test_movement():
    with checking(*runnable_targets()) as check:
        for name, (make, types) in MOVEMENT.items():
            check(make, *types, label=name)
        for name, (make, types) in MOVEMENT.items():
            narrow = [TensorType(U8, t.shape) if t.dtype is F32 else t for t in types]
            if name not in ("concat, then more", "reshaped across", "numbered"):
                check(make, *narrow, label=name)


def test_known_rows_beside_padding():
    """The positions of elements in the padding lie outside the table of rows."""

    def padded(b, x):
        chosen = b.gather(x, b.constant(rows, I32), axis=0)
        return b.pad(chosen, b.constant(0.0, F32), low=(low, 0), high=(high, 0))

    cases = itertools.product([[2], [0, 3], [3, 0, 1], [3, 2, 3, 1, 2]], [1, 3], [(0, 3), (3, 0), (2, 1)])
    with checking() as check:
        for rows, columns, (low, high) in cases:
            check(padded, f32(4, columns), label=f"rows {rows} between {low} and {high}")


def test_what_is_padded_is_computed_nowhere_else():
    """In the lanes beside the quotient, 0 is divided by 0."""

    def padded(b, x, y):
        return b.pad(b.div(x, y), b.constant(0.0, dtype), low=(low,), high=(high,))

    with checking(*runnable_targets()) as check:
        for dtype, (low, high) in itertools.product([F32, F64, F16], [(3, 0), (0, 3), (2, 2)]):
            one = TensorType(dtype, (1,))
            numbers = [np.full(1, k, dtype.numpy) for k in (3, 2)]
            check(padded, one, one, inputs=numbers, label=f"between {low} and {high}")


@pytest.mark.parametrize(
    "name",
    [
        "concat of channels",
        "shuffled channels",
        "concat of columns",
        "three channels",
    ],
)
def test_movement_needs_no_arithmetic_on_indices(name):
    """No gathers, and no divisions other than those that divide the work among threads."""
    make, types = MOVEMENT[name]
    code = text(body(make, *types), named("x86-64-v4"))
    assert "masked.gather" not in code and "urem" not in code
    assert all("%nthreads" in line for line in code.splitlines() if "udiv" in line)


@pytest.mark.parametrize(("name", "has"), [("x86-64-v3", False), ("x86-64-v4", True)])
def test_far_elements_are_gathered_where_that_is_fast(name, has):
    graph = body(lambda b, x: b.slice(x, start=(0,), size=(64,), step=(9,)), TensorType(F32, (64 * 9,)))
    assert ("masked.gather" in text(graph, named(name))) is has


def test_transposes_are_read_in_squares():
    with checking(*runnable_targets()) as check:
        for shape in ((16, 16), (33, 50), (70, 37), (100, 20), (7, 60), (20, 32)):
            for dtype in (F32, F64, F16, U8):
                check(lambda b, x: b.transpose(x, perm=(1, 0)), TensorType(dtype, shape))
            check(lambda b, x, y: b.mul(b.transpose(x, perm=(1, 0)), y), f32(*shape), f32(*shape[::-1]))
            check(lambda b, x: b.transpose(x, perm=(2, 0, 1)), f32(3, *shape), nthreads=2)
            check(lambda b, x: b.transpose(x, perm=(0, 2, 1)), f32(40, *shape), nthreads=3)


@pytest.mark.parametrize("taps", [(2, 2), (3, 3), (5, 5)])
def test_transposes_of_weights_are_blocked(taps):
    """From taps, inputs, outputs to MXNet's order: short rows, merged, are written in blocks of as many rows as a
    vector of the operand holds."""
    graph = check(lambda b, x: b.transpose(x, perm=(3, 2, 0, 1)), f32(*taps, 34, 50), nthreads=2)
    (y,) = graph.outputs
    index = tuple(variable("i", n) for n in y.shape)
    traced = trace(graph, [(y, index)])
    traced.store(Buffer("", y.dtype, y.shape, None).flat(index))
    plan = plan_nest(graph, [v for i in index for v in i.leaves], index, traced, 16)
    assert plan.across is not None and extent(plan.across) == 50


@pytest.mark.parametrize("n", [2, 10, 16, 40, 64])
def test_short_rows(n):
    """Several rows at a time, and those that are left over, on any number of threads."""
    graphs = []
    for rows in (1, 3, 8, 29, 600):
        graphs.append(body(lambda b, x: softmax(b, x, (1,)), f32(rows, n)))
    for rows in (1, 3, 8, 29, 600):
        graphs.append(body(lambda b, x, g, h: normalized(b, x, g, h, (1,), (1,)), f32(rows, n), f32(n), f32(n)))
    targets = runnable_targets()
    for t, target in enumerate(targets):
        mine = graphs[t :: len(targets)]
        for graph, compiled in zip(mine, together(mine, target)):
            inputs = arrays(*(v.type for v in graph.inputs), seed=n)
            rows = len(inputs[0])
            inputs[0][rows // 2, n // 2] = np.nan
            wanted, _ = evaluate(graph, inputs)
            (one,), (three,) = compiled(inputs), compiled(inputs, nthreads=3)
            assert_close(one, wanted[0], f"{rows} rows on one thread of {target.cpu}")
            np.testing.assert_array_equal(one, three, f"{rows} rows on {target.cpu}")


@pytest.mark.parametrize(
    ("ahead", "what"), [("rows", "softmax"), ("rows", "entropy"), ("reads", "pooled"), ("reads", "sums")]
)
def test_operands_fetched_ahead(ahead, what):
    """What is asked for may lie behind the operand's end."""

    def make(b, x):
        if what == "softmax":
            return softmax(b, x, (1,))
        if what == "entropy":
            above = b.sub(x, b.broadcast(b.reduce(x, op="max", axes=(1,)), shape=x.shape, dims=(0,)))
            return b.reduce(b.exp(above), op="sum", axes=(1,))
        if what == "sums":
            return b.reduce(b.mul(x, x), op="sum", axes=(0,))
        return b.reduce_window(x, op="max", window=(3, 1), stride=(1, 1), low=(1, 0), high=(1, 0), dilation=(1, 1))

    graph = body(make, f32(200, 130))

    def lower(name, target, module):
        lower_loops(name, kernel(graph, Loops(ahead=ahead)), module)

    module = llvm.Module(named("x86-64-v3"))
    lower("kernel", module.target, module)
    assert "llvm.prefetch" in module.text() and "llvm.prefetch" not in text(graph)
    inputs = arrays(f32(200, 130))
    for at_end in (False, True):
        assert_close(run(graph, inputs, lower=lower, at_end=at_end)[0], evaluate(graph, inputs)[0][0], ahead)


def known(indices):
    """Gathers by indices that are known, as an axis of 20 or 300 is resized, by themselves and multiplied."""
    return lambda b, x: b.gather(x, b.constant(np.array(indices), I32), axis=x.ndim - 1)


@pytest.mark.parametrize("n", [5, 20, 300])
def test_known_indices(n):
    with checking(*runnable_targets()) as check:
        for size in (1, 7, 16, 28, 33, 100, 600):
            place = np.linspace(0, n - 1, size).astype(int)
            check(known(place), f32(6, n), label=f"{size} in order")
            check(known(place[::-1]), f32(6, n), label=f"{size} from the end")
            down = lambda b, x: b.gather(x, b.constant(place, I32), axis=0)  # noqa: B023, E731
            check(down, f32(n, 21), nthreads=3, label=f"{size} rows")


def test_known_pixels():
    """Rows and columns of an image picked: short rows that are one loop together."""
    rows, columns = np.linspace(0, 6, 9).astype(int), np.linspace(0, 5, 11).astype(int)

    def resized(b, x):
        return b.gather(b.gather(x, b.constant(rows, I32), axis=0), b.constant(columns, I32), axis=1)

    with checking(*runnable_targets()) as check:
        for channels in (1, 2, 3, 5, 20):
            check(resized, f32(7, 6, channels))
            check(lambda b, x: b.gather(x, b.constant(rows, I32), axis=0), f32(7, channels))


def test_known_indices_of_any_kind():
    rng = np.random.default_rng(0)
    wild = rng.integers(-40, 40, (3, 19))
    with checking() as check:
        for mode in ("clip", "wrap"):
            for axis in (0, 1, 2):
                picked = lambda b, x: b.gather(x, b.constant(wild, I32), axis=axis, mode=mode)  # noqa: B023, E731
                check(picked, f32(17, 18, 19), label=f"{mode} axis {axis}")
        check(lambda b, x: b.neg(b.gather(x, b.constant(wild[0, :2], I64), axis=1)), TensorType(U8, (3, 50)))
        # Terms of a sum.
        check(lambda b, x: b.reduce(known(wild[0] % 30)(b, x), op="sum", axes=(1,)), f32(40, 30))


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_arg_reduce_of_special_rows(op):
    """NaN is better than any number; of equals, zeros of either sign among them, the first one counts."""
    rng = np.random.default_rng(0)
    for target in runnable_targets():
        with checking(target) as check:
            for shape, axis in [
                ((5, 1000), 1),
                ((7, 20), 1),
                ((3, 9), 1),
                ((3, 40, 17), 1),
                ((65,), 0),
                ((4, 6, 3), 0),
            ]:
                small = rng.integers(0, 5, shape).astype(np.float32)
                worst = np.full(shape, -np.inf if op == "argmax" else np.inf, np.float32)
                zeros = np.where(rng.random(shape) < 0.5, np.float32(-0.0), np.float32(0.0))
                nan = np.full(shape, np.nan, np.float32)
                some = rng.random(shape) < 0.1
                every = (small, worst, zeros, nan, np.where(some, nan, small), np.where(some, small, worst))
                best = lambda b, v: b.arg_reduce(v, op=op, axis=axis)  # noqa: B023, E731
                check(best, f32(*shape), inputs=[[x] for x in every])
                check(best, TensorType(I32, shape), inputs=[small.astype(np.int32)])


def test_known_indices_are_loads_and_shuffles():
    code = text(body(known(np.linspace(0, 13, 28).astype(int)), f32(10, 14)), named("x86-64-v4"))
    assert "gather" not in code and "shufflevector" in code


@pytest.mark.parametrize("shape, loads", [((64, 64), 16), ((64, 40), 8)])
def test_a_transpose_reads_whole_lines_of_the_cache(shape, loads):
    code = text(body(lambda b, x: b.transpose(x, perm=(1, 0)), f32(*shape)), named("x86-64-v3"))
    assert code.count("= load <8 x float>") == loads


def test_packing_cuts_some_rows_at_a_time():
    def packed(b, x):
        return b.transpose(b.reshape(x, shape=(32, 4, 8)), perm=(1, 0, 2))

    code = text(body(packed, f32(32, 32)), named("x86-64-v3"))
    assert re.findall(r"icmp slt i64 %\S+, (\d+)", code) == ["8", "4", "4"]  # rows of a block, pieces, blocks


def test_a_transpose_gathers_at_its_edges_only():
    code = text(body(lambda b, x: b.transpose(x, perm=(1, 0)), f32(64, 64)), named("x86-64-v4"))
    assert "gather" not in code and code.count("load <16 x float>") == 16


def test_conditions_are_cut_out_of_the_loops():
    code = text(body(*flattened(MOVEMENT["concat of channels"])), named("x86-64-v4"))
    assert "icmp ult" not in code  # no condition left; those of the loops are signed


def flattened(pair):
    make, types = pair
    return [make, *types]


# ---- reductions


def test_reduce():
    every = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]
    with checking(*runnable_targets()) as check:
        for op, dtype in (("sum", F32), ("max", F32), ("min", F32), ("prod", F32), ("sum", I32), ("sum", F16)):
            for axes in every:
                check(lambda b, x: b.reduce(x, op=op, axes=axes), TensorType(dtype, (5, 18, 37)), label=f"{op} {axes}")  # noqa: B023
        for axes in every:
            check(lambda b, x: b.reduce(b.gt(x, b.neg(x)), op="any", axes=axes), f32(5, 18, 37), label=f"any {axes}")  # noqa: B023


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_arg_reduce(op):
    rng = np.random.default_rng(0)
    for target in runnable_targets():
        with checking(target) as check:
            for shape, axis in (((40, 70), 1), ((70, 40), 0), ((3, 5, 7), 1), ((200,), 0), ((40, 3), 1)):
                x = rng.integers(0, 9, shape).astype(np.float32)  # with ties
                some = np.where(rng.random(shape) < 0.05, np.float32(np.nan), x)
                every = (x, some, np.full(shape, np.inf, np.float32))
                check(lambda b, v: b.arg_reduce(v, op=op, axis=axis), f32(*shape), inputs=[[x] for x in every])  # noqa: B023
            check(lambda b, x: b.arg_reduce(x, op=op, axis=1), TensorType(I32, (9, 100)))


def test_max_of_nan_is_nan():
    x = np.zeros((4, 100), np.float32)
    x[0, 5] = x[1, 99] = np.nan
    x[2] = -np.inf
    window = {"window": (1, 3), "stride": (1, 1), "low": (0, 1), "high": (0, 1)}
    with checking() as check:
        for dtype, op in itertools.product((F32, F64, F16, BF16), ("max", "min")):
            t, some = TensorType(dtype, (4, 100)), x.astype(dtype.numpy)
            for axis in (0, 1):
                check(lambda b, v: b.reduce(v, op=op, axes=(axis,)), t, inputs=[some], label=op)  # noqa: B023
            check(lambda b, v: b.reduce_window(v, op=op, **window), t, inputs=[some], label=f"{op} of windows")  # noqa: B023


@pytest.mark.parametrize(
    "shape, axes", [((1 << 20,), (0,)), ((1 << 17, 8), (0,)), ((64, 128, 128), (0, 2)), ((3, 1 << 18), (1,))]
)
def test_sums_of_many_terms(shape, axes):
    """The error does not grow with the number of terms: the same addend again and again, and random ones."""
    rng = np.random.default_rng(0)
    for x in (
        np.full(shape, 0.1, np.float32),
        rng.random(shape, np.float32),
        rng.normal(size=shape).astype(np.float32),
    ):
        (got,) = run(body(lambda b, v: b.reduce(v, op="sum", axes=axes), f32(*shape)), [x])
        exact = x.astype(np.float64).sum(axes)
        assert np.all(np.abs(got - exact) <= 4e-7 * np.abs(x.astype(np.float64)).sum(axes))


def moments(b, x, g):
    """The mean and the variance of each column, and what else its gradient needs."""
    total = b.reduce(x, op="sum", axes=(0, 1))
    mean = b.mul(total, spread(b, b.constant(1 / (x.shape[0] * x.shape[1]), F32), total, ()))
    off = b.sub(x, spread(b, mean, x, (2,)))
    return mean, b.reduce(b.mul(off, off), op="sum", axes=(0, 1)), b.reduce(b.mul(g, off), op="sum", axes=(0, 1))


@pytest.mark.parametrize("columns", [8, 40, 72, 100])
def test_long_sums_of_columns(columns):
    """Of whole blocks of vectors, of fewer, and of a part of one; those of a stage together, whose number of terms no
    number of accumulators divides. Every number of threads gives the same bits."""
    graph = body(moments, f32(13, 31, columns), f32(13, 31, columns))
    rng = np.random.default_rng(0)
    x, g = (rng.normal(3, 1, (13, 31, columns)).astype(np.float32) for _ in range(2))
    exact = x.astype(np.float64) - x.astype(np.float64).mean((0, 1))
    wanted = [x.astype(np.float64).mean((0, 1)), (exact * exact).sum((0, 1)), (exact * g).sum((0, 1))]
    for target in runnable_targets():
        (run_it,) = together([graph], target)
        first = run_it([x, g], 1)
        for got, want, most in zip(first, wanted, (1, 403, 403 * 3), strict=True):
            assert np.abs(got - want).max() <= 1e-6 * most
        for nthreads in (2, 3):
            assert all(np.array_equal(a, b) for a, b in zip(first, run_it([x, g], nthreads)))


def test_long_sums_of_columns_share_what_they_read():
    """Four vectors of a product with `g` and of `g`: eight accumulators, so eight loads, of lines side by side."""

    def sums(b, x, g):
        return b.reduce(b.mul(x, g), op="sum", axes=(0,)), b.reduce(g, op="sum", axes=(0,))

    code = text(body(sums, f32(1000, 64), f32(1000, 64)), named("x86-64-v3"))
    (inner,) = [b for b in code.split("\nloop.") if "load <8 x float>" in b and "phi <8 x float>" in b]
    assert inner.count("load <8 x float>") == 8
    assert len(re.findall("fadd <8 x float>|llvm.fma.v8f32", inner.split("\nexit.")[0])) == 8


@pytest.mark.parametrize("most", [writer._TOTALS, 64])
def test_long_sums_go_over_all_columns_in_each_run(most, monkeypatch):
    """So a matrix is read from front to end: the loop over runs is around that over blocks of columns, in code that
    does not grow with the number of these. Their totals are on the stack, as far as there is room, for any number of
    threads."""
    monkeypatch.setattr(writer, "_TOTALS", most)

    def sums(b, x, g):
        return b.reduce(b.mul(x, g), op="sum", axes=(0,)), b.reduce(g, op="sum", axes=(0,))

    narrow, wide = (text(body(sums, f32(1000, n), f32(1000, n)), named("x86-64-v3")) for n in (64, 640))
    assert len(narrow.splitlines()) == len(wide.splitlines())
    rows = re.findall(r" = add nsw i64 %i\.\d+, (\d+)\n", narrow)
    assert str(writer._ROWS) in rows and "32" not in rows, rows
    endless = text(body(sums, f32(1000, 1 << 24), f32(1000, 1 << 24)), named("x86-64-v3"))
    assert all(int(n) <= most for n in re.findall(r"alloca double, i64 (\w+)", endless)) and "alloca double" in endless
    for columns in (96, 80, 416):
        rng = np.random.default_rng(0)
        x, g = (rng.normal(3, 1, (999, columns)).astype(np.float32) for _ in range(2))
        exact = [(x.astype(np.float64) * g).sum(0), g.astype(np.float64).sum(0)]
        for target in runnable_targets():
            (run_it,) = together([body(sums, f32(*x.shape), f32(*x.shape))], target)
            first = run_it([x, g], 1)
            for got, want in zip(first, exact, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-6)
            for nthreads in (2, 3):
                assert all(np.array_equal(a, b) for a, b in zip(first, run_it([x, g], nthreads)))


def test_window_reductions():
    for target in runnable_targets():
        for op in ("max", "sum"):
            check(
                lambda b, x: b.reduce_window(
                    x,
                    op=op,  # noqa: B023
                    window=(1, 1, 3, 3),
                    stride=(1, 1, 2, 2),
                    low=(0, 0, 1, 1),
                    high=(0, 0, 1, 1),
                ),
                f32(2, 3, 30, 90),
                target=target,
            )
            check(
                lambda b, x: b.reduce_window(
                    x,
                    op=op,  # noqa: B023
                    window=(1, 2, 5, 1),
                    stride=(1, 2, 1, 1),
                    low=(0,) * 4,
                    high=(0,) * 4,
                ),
                f32(2, 14, 14, 20),
                target=target,
            )


# ---- rows: reductions whose results meet the elements again


def softmax(b, x, axes, log=False):
    kept = tuple(k for k in range(x.ndim) if k not in axes)
    d = b.sub(x, spread(b, b.reduce(x, op="max", axes=axes), x, kept))
    e = b.exp(d)
    total = b.reduce(e, op="sum", axes=axes)
    if log:
        return b.sub(d, spread(b, b.log(total), x, kept))
    return b.div(e, spread(b, total, x, kept))


def normalized(b, x, gamma, beta, axes, dims):
    """(x - mean) / sqrt(var + eps) · gamma + beta, with the statistics over `axes` and gamma along `dims`."""
    kept = tuple(k for k in range(x.ndim) if k not in axes)
    rows = tuple(x.shape[k] for k in kept)
    count = float(np.prod([x.shape[k] for k in axes]))

    def number(v):
        return b.broadcast(b.constant(v, "f32"), shape=rows, dims=())

    mean = b.mul(b.reduce(x, op="sum", axes=axes), number(1 / count))
    d = b.sub(x, spread(b, mean, x, kept))
    var = b.mul(b.reduce(b.mul(d, d), op="sum", axes=axes), number(1 / count))
    y = b.mul(d, spread(b, b.rsqrt(b.add(var, number(1e-5))), x, kept))
    return b.add(b.mul(y, spread(b, gamma, x, dims)), spread(b, beta, x, dims))


def group_norm(b, x, gamma):
    n, c, h, w = x.shape
    y = b.reshape(x, shape=(n, 4, c // 4 * h * w))
    z = b.sub(y, spread(b, b.reduce(y, op="sum", axes=(2,)), y, (0, 1)))
    return b.mul(b.reshape(z, shape=x.shape), spread(b, gamma, x, (1,)))


ROWS = {
    "softmax": (lambda b, x: softmax(b, x, (1,)), [f32(40, 300)]),
    "softmax of ten": (lambda b, x: softmax(b, x, (1,)), [f32(40, 10)]),
    "softmax of three": (lambda b, x: softmax(b, x, (1,)), [f32(100, 3)]),
    "softmax of one row": (lambda b, x: softmax(b, x, (0,)), [f32(70)]),
    "softmax of long rows": (lambda b, x: softmax(b, x, (1,)), [f32(3, 40000)]),
    "softmax of channels": (lambda b, x: softmax(b, x, (1,)), [f32(2, 21, 9, 11)]),
    "softmax of the first axis": (lambda b, x: softmax(b, x, (0,)), [f32(50, 37)]),
    "softmax of everything": (lambda b, x: softmax(b, x, (0, 1)), [f32(50, 37)]),
    "log softmax": (lambda b, x: softmax(b, x, (2,), log=True), [f32(3, 7, 100)]),
    "layer norm": (lambda b, x, g, h: normalized(b, x, g, h, (2,), (2,)), [f32(3, 9, 100), f32(100), f32(100)]),
    "instance norm": (lambda b, x, g, h: normalized(b, x, g, h, (2, 3), (1,)), [f32(2, 5, 7, 9), f32(5), f32(5)]),
    "batch norm": (lambda b, x, g, h: normalized(b, x, g, h, (0, 2, 3), (1,)), [f32(2, 5, 7, 9), f32(5), f32(5)]),
    "group norm": (group_norm, [f32(2, 20, 7, 7), f32(20)]),
    "row over its norm": (
        lambda b, x: b.div(x, spread(b, b.sqrt(b.reduce(b.mul(x, x), op="sum", axes=(1,))), x, (0,))),
        [f32(20, 64)],
    ),
    "softmax twice": (lambda b, x: softmax(b, b.tanh(softmax(b, x, (1,))), (1,)), [f32(7, 50)]),
    "rows, then everything": (
        lambda b, x: b.div(softmax(b, x, (1,)), spread(b, b.reduce(x, op="max", axes=(0, 1)), x, ())),
        [f32(7, 50)],
    ),
}


def test_rows():
    with checking(*runnable_targets()) as check:
        for name, (make, types) in ROWS.items():
            check(make, *types, label=name)
            check(make, *types, nthreads=3, seed=1, label=f"{name}, on three threads")


def random_rows(seed, dtype=F32):
    """A body that mixes elementwise work with reductions over one set of axes whose results meet the elements again."""
    rng = random.Random(seed)
    shape = tuple(rng.choice([1, 2, 3, 5, 7, 16, 17, 33]) for _ in range(rng.randint(1, 4)))
    axes = tuple(sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape)))))
    kept = tuple(k for k in range(len(shape)) if k not in axes)
    count = float(np.prod([shape[k] for k in axes]))

    def make(b, x, y):
        pool, rows = [x, y], []
        for _ in range(rng.randint(3, 9)):
            v = rng.choice(pool)
            kind = rng.random()
            if kind < 0.35:
                pool.append(rng.choice([b.tanh, b.sigmoid, b.neg, b.sin])(v))
            elif kind < 0.55:
                pool.append(rng.choice([b.add, b.sub, b.maximum])(v, rng.choice(pool)))
            else:
                op = rng.choice(["sum", "max", "min"])
                r = b.reduce(b.tanh(v) if op == "sum" else v, op=op, axes=axes)
                if op == "sum":
                    r = b.div(r, spread(b, b.constant(count, dtype), r, ()))
                if rows and rng.random() < 0.5:
                    r = b.add(b.tanh(r), rng.choice(rows))
                rows.append(r)
                pool.append(spread(b, r, x, kept))
        return [pool[-1], *rng.sample(pool, 1), *rows[:1]]

    return make, [TensorType(dtype, shape)] * 2


def test_random_rows():
    made = [(seed, *random_rows(seed)) for seed in range(tries(16))]
    bodies = [(seed, types, body(make, *types)) for seed, make, types in made]
    targets = runnable_targets()
    for t, target in enumerate(targets):
        mine = bodies[t :: len(targets)]
        for compiled, (seed, types, graph) in zip(together([graph for *_, graph in mine], target), mine):
            assert supported(graph) is None
            inputs = arrays(*types, seed=seed)
            wanted, _ = evaluate(graph, inputs)
            make, wide = random_rows(seed, F64)
            exact, _ = evaluate(body(make, *wide), [x.astype(np.float64) for x in inputs])
            alone, shared = compiled(inputs, at_end=seed % 4 < 2), compiled(inputs, nthreads=3)
            for a, b, want, near in zip(alone, shared, wanted, exact):
                lost = difference(want.astype(np.float64), near)  # by cancellations, which NumPy has, too
                assert lost < 1e-2, f"seed {seed}: it tells nothing"
                assert_close(a, want, f"seed {seed}", max(1e-5, 10 * lost))
                assert a.tobytes() == b.tobytes()


def test_row_at_a_computed_index():
    def make(b, x, i):
        e = b.exp(x)
        total = b.reduce(e, op="sum", axes=(1,))
        return b.gather_nd(b.div(e, b.broadcast(total, shape=x.shape, dims=(0,))), i)

    check(make, f32(40, 40), TensorType(I64, (2,)))


def test_rows_in_other_dtypes():
    for dtype in (F64, F16):
        check(lambda b, x: softmax(b, x, (1,)), TensorType(dtype, (9, 100)))
        check(lambda b, x: softmax(b, x, (1,)), TensorType(dtype, (3, 20, 33)))


def test_what_is_expensive_is_computed_once():
    """A softmax has one exponential per element, in one loop each for whole and partial vectors."""
    code = text(body(*flattened(ROWS["softmax"])), named("x86-64-v4"))
    alone = text(body(lambda b, x: b.exp(x), f32(40, 300)), named("x86-64-v4"))
    polynomials = code.count("0x3F81112FA0000000") or code.count("fma.v16f32")
    assert polynomials <= alone.count("fma.v16f32") * 4
    # Row by row: the loop over rows holds three inner loops, and the store is in the last.
    assert "alloca" in code


def test_reductions_leave_the_loop_over_elements():
    """Loads of x: once for its maximum, once for the exponential; not once for every element of the row."""
    graph = body(lambda b, x: b.div(x, spread(b, b.reduce(x, op="sum", axes=(1,)), x, (0,))), f32(64, 640))
    code = text(graph, named("x86-64-v4"))
    blocks = code.split("\nloop.")
    # The loop that stores holds no reduction: no other loop inside it.
    stores = [b for b in blocks if "store <16 x float>" in b]
    assert len(stores) == 1 and "phi <16 x float>" not in stores[0]


def test_bodies_that_are_not_supported_say_why():
    def crossed(b, x):
        return b.add(softmax(b, x, (0,)), softmax(b, x, (1,)))

    assert "do not nest" in supported(body(crossed, f32(8, 9)))
    assert "cumsum" in supported(body(lambda b, x: b.cumsum(x, axis=0), f32(8)))
    assert "sort" in supported(body(lambda b, x: b.sort(x, axis=0)[0], f32(8)))
    # All the same the answer would be right.
    graph = body(crossed, f32(8, 9))
    inputs = arrays(f32(8, 9))
    assert_close(run(graph, inputs)[0], evaluate(graph, inputs)[0][0])


# ---- size and safety


def test_long_chains_need_no_stack():
    def make(b, x):
        y = x
        for _ in range(300):
            y = b.add(b.neg(y), x)
        return y

    def moving(b, x):
        y = x
        for _ in range(80):
            y = b.add(b.reshape(b.transpose(b.reshape(y, shape=(4, 5)), perm=(1, 0)), shape=(20,)), x)
        return y

    limit = sys.getrecursionlimit()
    check(make, f32(5))
    check(moving, f32(20), tol=1e-4)
    assert sys.getrecursionlimit() == limit


def test_long_sums_of_padded_operands(monkeypatch):
    """As the gradient of an array of which many slices were taken. The conditions are computed at every element, for
    they are too many to cut the loops; some of them where operands nest too deeply for the stack."""
    evaluated, compute = [], Evaluator.compute

    def counted(self, v, index):
        evaluated.append(v)
        assert len(evaluated) < 1000 * 30
        return compute(self, v, index)

    def make(b, x, *parts):
        zero = b.constant(0.0, F32)
        for k, part in enumerate(parts):
            x = b.add(x, b.pad(part, zero, low=(0, k), high=(0, len(parts) - 1 - k)))
        return x

    monkeypatch.setattr(Evaluator, "compute", counted)
    check(make, f32(4, 30), *[f32(4, 1)] * 30)


def test_a_value_used_twice_is_computed_once():
    """Doubling chains: 2**40 operations if each use computed its operand anew."""

    def make(b, x):
        y = x
        for _ in range(40):
            y = b.sub(b.add(y, y), y)
        return y

    check(make, f32(50))


def test_nothing_outside_the_buffers_is_touched():
    rows = ("softmax", "softmax of three", "softmax of channels", "group norm")
    cases = [*MOVEMENT.values(), *(ROWS[k] for k in rows)]
    cases += [
        (lambda b, x: b.reduce(x, op="sum", axes=(1,)), [f32(7, 37)]),
        (lambda b, x: b.reduce(x, op="sum", axes=(0,)), [f32(37, 7)]),
        (lambda b, x: b.slice(x, start=(0, 1), size=(3, 17), step=(1, 2)), [f32(3, 34)]),
        (
            lambda b, x: b.reduce_window(x, op="max", window=(3, 3), stride=(2, 2), low=(1, 1), high=(1, 1)),
            [f32(19, 19)],
        ),
        (  # rows outside are masked as a whole, with a partial vector behind
            lambda b, x: b.reduce_window(x, op="sum", window=(9, 1), stride=(1, 1), low=(8, 0), high=(8, 0)),
            [f32(20, 21)],
        ),
        (lambda b, x: b.cast(x, dtype="f16"), [TensorType(U8, (45,))]),
        (lambda b, x: b.cast(x, dtype="u8"), [TensorType(I32, (33,))]),  # a single lane of a truncated vector
    ]
    graphs = [body(make, *types) for make, types in cases]
    for target in runnable_targets():
        for graph, compiled in zip(graphs, together(graphs, target)):
            inputs = arrays(*(v.type for v in graph.inputs))
            wanted, _ = evaluate(graph, inputs)
            for at_end in (False, True):
                for got, want in zip(compiled(inputs, at_end=at_end), wanted):
                    assert_close(got, want, f"{target.cpu}, at the end: {at_end}")


@pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.cpu)
def test_stores_past_the_caches(target):
    cases = [
        (lambda b, x: b.exp(x), [f32(1000)]),
        (lambda b, x: b.exp(x), [f32(5, 331)]),
        (lambda b, x, y: (b.add(x, y), b.reduce(x, op="sum", axes=(1,))), [f32(9, 64), f32(9, 64)]),
        (lambda b, x: b.transpose(x, perm=(1, 0)), [f32(40, 33)]),
        (lambda b, x: b.cast(x, dtype="f16"), [f32(163)]),
        (lambda b, x: b.slice(x, start=(0, 1), size=(8, 17)), [f32(8, 18)]),
        (lambda b, x: b.transpose(x, perm=(1, 0)), [f32(64, 57)]),
        (lambda b, x: b.transpose(x, perm=(0, 2, 1)), [f32(3, 32, 48)]),
        (lambda b, x: b.transpose(x, perm=(1, 0)), [tensor("f64", 32, 48)]),
    ]
    for make, types in cases:
        graph = body(make, *types)
        inputs = arrays(*types)

        def lower(name, target, module, graph=graph):
            lower_loops(name, kernel(graph, Loops(streaming=True)), module)

        wanted = evaluate(graph, inputs)[0]
        for nthreads, at_end in itertools.product((1, 3), (False, True)):
            for got, want in zip(run(graph, inputs, target, nthreads, lower, at_end), wanted):
                assert_close(got, want)
    assert len(re.findall("store .*align 64, !nontemporal", _streamed(cases[0], named("x86-64-v4")))) >= 4
    plain = text(body(cases[0][0], *cases[0][1]), named("x86-64-v4"))
    assert "!nontemporal" not in plain
    # One loop for results that are aligned and for others.
    assert _streamed(cases[0], named("x86-64-v4")).count("= load <") == plain.count("= load <") > 0
    one_by_one = [
        cases[3],
        (lambda b, x: b.transpose(x, perm=(1, 0)), [tensor("bf16", 64, 64)]),
        (lambda b, x: b.sub(x, spread(b, b.reduce(x, op="max", axes=(0,)), x, (1,))), [f32(64, 64)]),
        (
            lambda b, x: b.reduce_window(x, op="max", window=(2, 2), stride=(2, 2), low=(0,) * 2, high=(0,) * 2),
            [f32(8, 64)],
        ),
    ]
    for case in one_by_one:  # lines that are written in pieces
        assert "!nontemporal" not in _streamed(case, named("x86-64-v4"))
    rows = (lambda b, x: b.sub(x, spread(b, b.reduce(x, op="max", axes=(1,)), x, (0,))), [f32(64, 64)])
    assert "!nontemporal" in _streamed(rows, named("x86-64-v4"))
    # Lines of squares: the two vectors of each of eight rows, one after the other.
    code = _streamed(cases[6], named("x86-64-v3"))
    places = re.findall(r"store <8 x float> .*, ptr (\S+), .*nontemporal", code)
    pairs = list(zip(places[::2], places[1::2]))
    first = pairs[0][0]
    assert len(pairs) == 8 and f"{pairs[0][1]} = getelementptr float, ptr {first}, i64 8\n" in code
    for (k, pair), j in itertools.product(enumerate(pairs[1:], 1), (0, 1)):
        assert f"{pair[j]} = getelementptr float, ptr {first}, i64 {64 * k + 8 * j}\n" in code


def _streamed(case, target):
    module = llvm.Module(target)
    lower_loops("kernel", kernel(body(case[0], *case[1]), Loops(streaming=True)), module)
    return module.text()


def test_few_terms_of_many_instructions_are_a_loop():
    """Code does not grow with them: ten exponentials, of four vectors each, would take LLVM a tenth of a second."""

    def lines(n):
        graph = body(lambda b, x: b.reduce(b.exp(x), op="sum", axes=(0,)), f32(n, 64))
        return len(text(graph, named("x86-64-v3")).splitlines())

    assert lines(10) == lines(14) < 2 * lines(2)


def test_code_for_another_architecture():
    from gluonjit.codegen.text import llvm

    for make, types in (ROWS["softmax"], MOVEMENT["depth to space"]):
        target = named("aarch64")
        assert "kernel:" in llvm.assembly(text(body(make, *types), target), target)


def test_constants_in_the_body():
    table = np.arange(100, dtype=np.float32)
    same = np.full((3, 100), 1.5, np.float32)
    check(lambda b, x: b.mul(b.add(x, b.constant(same)), spread(b, b.constant(table), x, (1,))), f32(3, 100))
    check(lambda b: b.reduce(b.constant(table), op="sum", axes=(0,)))


@pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.cpu)
def test_contractions_by_element(target):
    """`dot_general` and `conv` without a kernel of their own."""
    check(lambda b, x, y: b.dot_general(x, y, contract=((1,), (0,))), f32(9, 70), f32(70, 33), target=target)
    check(lambda b, x, y: b.dot_general(x, y, contract=((1,), (0,))), *[tensor("i32", 9, 9)] * 2, target=target)
    check(
        lambda b, x, w: b.conv(
            x, w, stride=(2, 1), low=(1, 0), high=(1, 2), dilation=(1, 2), input_dilation=(1, 1), groups=2
        ),
        f32(2, 6, 9, 30),
        f32(4, 3, 3, 2),
        target=target,
    )


def test_rows_chosen_by_number():
    """A softmax of gathered rows, vectorised over the numbers: each lane has a row of its own."""

    def make(b, x, i):
        return softmax(b, b.gather(x, i, axis=1), (0,))

    check(make, f32(20, 50), TensorType(I32, (40,)), inputs=[*arrays(f32(20, 50)), np.arange(40, dtype=np.int32) % 7])
    check(make, f32(20, 50), TensorType(I32, (1,)), inputs=[*arrays(f32(20, 50)), np.array([3], np.int32)])
