"""Matrix products in one kernel with the depthwise convolutions that read them: native against NumPy."""

from dataclasses import replace

import numpy as np
import pytest

from gluonjit.codegen.target import named
from gluonjit.ir.annotations import KERNEL, SCRATCH, STRIDES
from gluonjit.ir.dims import named as named_dim
from gluonjit.ir.graph import Builder, reemit
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.sizes import with_sizes
from gluonjit.ir.types import F32, F64, TensorType
from gluonjit.passes import run_passes
from gluonjit.runtime.compiler import compile_graph
from support.compare import close, difference
from support.open_kernels import Selected
from support.selected import TARGETS, in_turn, kernel_name, run_kernel, run_selected, runnable

MERGE = ("fuse-depthwise",)


def pair(size, depth, channels, taps, *, batch=1, dtype=F32, groups=None, residual=False, **window):
    """A 1×1 convolution and a depthwise one, each with a bias; the former has bounds, too, and may have a residual."""
    b = Builder("pair", "legal")
    taps = (taps, taps) if isinstance(taps, int) else taps
    window = {k: (v, v) if isinstance(v, int) else v for k, v in window.items()}
    one, none = (1, 1), (0, 0)
    plain = {"stride": one, "low": none, "high": none, "dilation": one, "input_dilation": one}
    layout = ("N01C", "01IO", "N01C")

    def biased(y, name):
        return b.add(y, b.broadcast(b.input(name, TensorType(dtype, (channels,))), shape=y.shape))

    x = b.input("x", TensorType(dtype, (batch, *size, depth)))
    w = b.input("w", TensorType(dtype, (1, 1, depth, channels)))
    y = biased(b.conv(x, w, **plain, groups=1, layout=layout), "bias")
    y = b.minimum(b.maximum(y, b.broadcast(b.constant(-1, dtype), shape=y.shape)), b.exp(y))
    if residual:
        y = b.add(y, b.input("residual", y.type))
    groups = groups or channels
    filters = b.input("filters", TensorType(dtype, (*taps, channels // groups, channels)))
    y = biased(b.conv(y, filters, **{**plain, **window}, groups=groups, layout=layout), "bias2")
    fixed = [k for k, v in enumerate(b._inputs) if v.name not in ("x", "residual")]
    return b.build([b.abs(y)], {"params": tuple(fixed)})


def numbers(graph, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(v.shape).astype(v.dtype.numpy) for v in graph.inputs]


def check(graph, target, nthreads=2):
    inputs = numbers(graph)
    (expected,), _ = evaluate(graph, inputs)
    run = run_selected(graph, inputs, target, nthreads, after=MERGE)
    assert [k for k in run.kernels if k != "loops"] == ["expand_depthwise"]
    assert close(run.outputs[0], expected), difference(run.outputs[0], expected)
    assert close(evaluate(run.graph, inputs)[0][0], expected)
    return run


def merged(graph, target):
    """The kernel of both."""
    graph = run_passes(graph, ["fuse", "select", *MERGE], target=named(target))
    (op,) = [op for op in graph.ops if kernel_name(op) == "expand_depthwise"]
    return op


CASES = {
    "3x3": pair((9, 17), 6, 40, 3, low=1, high=1),
    "stride": pair((14, 14), 16, 96, 3, low=1, high=1, stride=2, batch=2),
    "no padding, residual": pair((12, 10), 5, 33, (3, 2), residual=True),
    "dilation": pair((9, 16), 7, 24, 3, low=2, high=2, dilation=2, stride=(1, 2)),
    "one panel, as it is": pair((8, 8), 4, 32, 3, low=1, high=1),
    "groups of two": pair((6, 9), 10, 40, 3, groups=20, low=1, high=1),
    "padding beyond the window": pair((3, 4), 5, 20, 3, low=5, high=5),
    "one column": pair((9, 1), 6, 20, 3, low=1, high=1),
    "negative padding": pair((9, 10), 6, 20, 3, low=-1, high=-2),
    "float64": pair((7, 6), 5, 20, 3, low=1, high=1, dtype=F64),
    "long sums": pair((5, 6), 300, 20, 3, low=1, high=1),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    check(CASES[name], runnable("host"))


@pytest.mark.parametrize("target", TARGETS[1:])
@pytest.mark.parametrize("name", ["3x3", "groups of two"])
def test_targets(name, target):
    check(CASES[name], runnable(target))


@pytest.mark.parametrize(("stride", "band", "height"), [(1, 1, 1), (1, 3, 2), (1, 5, 2), (2, 2, 1), (2, 5, 2)])
def test_bands(stride, band, height):
    """Rows divided among tasks in any way: the bits are those of a single band."""
    op = merged(pair((11, 13), 6, 47, 3, low=1, high=1, stride=stride), "host")
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(v.shape).astype(np.float32) for v in op.operands]
    plan = KERNEL.of(op)
    assert plan.band == -(-11 // stride)
    other = replace(op, attrs={**op.attrs, **KERNEL(replace(plan, band=band, height=height))})
    (whole,), (parts,) = (run_kernel(o, operands, runnable("host"), 3) for o in (op, other))
    assert parts.tobytes() == whole.tobytes()


@pytest.mark.parametrize("seed", range(8))
def test_random(seed):
    rng = np.random.default_rng(seed)

    def each(low, high):
        return tuple(int(n) for n in rng.integers(low, high, 2))

    taps, dilation = each(1, 4), each(1, 3)
    size = tuple(n + (t - 1) * d + 2 for n, t, d in zip(each(1, 30), taps, dilation))
    window = {"stride": each(1, 3), "low": each(-1, 3), "high": each(-1, 3), "dilation": dilation}
    depth, channels = (int(n) for n in rng.integers(1, 70, 2))
    batch = int(rng.integers(1, 3))
    graph = pair(size, depth, max(channels, 8), taps, batch=batch, residual=bool(rng.random() < 0.3), **window)
    inputs = numbers(graph, seed)
    (expected,), _ = evaluate(graph, inputs)
    run = run_selected(graph, inputs, runnable("host"), nthreads=3, after=MERGE)
    assert close(run.outputs[0], expected), difference(run.outputs[0], expected)


def test_every_number_of_threads_gives_the_same_bits():
    graph = pair((20, 14), 6, 40, 3, low=1, high=1, batch=2)
    runs = [run_selected(graph, numbers(graph), runnable("host"), t, after=MERGE) for t in (1, 2, 5, 64)]
    assert len({run.outputs[0].tobytes() for run in runs}) == 1


def test_rows_are_bands_where_they_would_not_stay_near():
    op = merged(pair((112, 112), 16, 96, 3, low=1, high=1, stride=2), "x86-64-v3")
    assert KERNEL.of(op).band < 56
    assert SCRATCH.of(op) <= named("x86-64-v3").l2 // 2


def test_in_strides():
    """It reads a part of wider pixels, and writes into a concat."""
    inner = pair((6, 7), 32, 32, 3, low=1, high=1)
    b = Builder("windows", "legal")
    x = b.input("x", TensorType(F32, (2, 6, 7, 64)))
    parts = []
    for k in range(2):
        env = {v: b.input(f"{v.name}{k}", v.type) for v in inner.inputs[1:]}
        env[inner.inputs[0]] = b.slice(x, start=(k, 0, 0, 32 * k), size=(1, 6, 7, 32))
        for op in inner.ops:
            env.update(zip(op.results, reemit(b, op, [env[v] for v in op.operands])))
        parts.append(env[inner.outputs[0]])
    graph = b.build([b.neg(b.concat(*parts, axis=3))], {"params": tuple(range(1, 1 + 2 * 4))})
    planned = run_passes(graph, "fuse, select, fuse-depthwise, hoist, views", target=named("x86-64-v3"))
    strides = [STRIDES.of(o) for o in planned.ops if kernel_name(o) == "expand_depthwise"]
    assert len(strides) == 2
    assert all(s[0] and s[-1] for s in strides), strides
    inputs = numbers(graph)
    assert close(compile_graph(graph).run(inputs)[0][0], evaluate(graph, inputs)[0][0])


@pytest.mark.parametrize(("residual", "target"), in_turn([False, True]))
def test_an_open_batch(residual, target):
    graph = pair((9, 12), 7, 40, 3, low=1, high=1, batch=named_dim("n"), residual=residual)
    kernel = Selected(graph, "expand_depthwise", runnable(target), after=MERGE)
    for n in (2, 3, 7):
        kernel.check({"n": n}, 3)


def test_images_of_open_size_stay_two_kernels():
    h = named_dim("h")
    graph = pair((4 * h, 8 * h), 5, 20, 3, low=1, high=1, stride=2)
    compiled = compile_graph(graph)
    for size in (2, 5):
        static = with_sizes(graph, {"h": size})
        inputs = numbers(static)
        assert difference(compiled.run(inputs)[0][0], evaluate(static, inputs)[0][0]) < 1e-5
