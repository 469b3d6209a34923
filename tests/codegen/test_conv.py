"""Convolutions: native against NumPy."""

import numpy as np
import pytest

from gluonjit.codegen.kernels.pixel_tiles import Axis, tile_kinds
from gluonjit.codegen.program import lower_kernel
from gluonjit.codegen.target import named
from gluonjit.codegen.text import llvm
from gluonjit.ir.annotations import GUARD, KERNEL
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.kernels.product_plans import Conv
from gluonjit.ir.types import F16, F32, F64, TensorType
from gluonjit.passes import run_passes
from gluonjit.runtime.compiler import compile_graph
from support.compare import close, difference
from support.convolutions import conv
from support.selected import TARGETS, run_selected, runnable


def check(graph, target, kernel, nthreads=2):
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(v.dtype.numpy) for v in graph.inputs]
    (expected,), _ = evaluate(graph, inputs)
    run = run_selected(graph, inputs, target, nthreads, winograd=False)
    assert [k for k in run.kernels if k != "loops"] == ([kernel] if kernel != "loops" else [])
    assert close(run.outputs[0], expected), difference(run.outputs[0], expected)
    assert close(evaluate(run.graph, inputs)[0][0], expected)
    return run


DIRECT = {
    "3x3": conv((9, 17), 5, 20, 3, low=1, high=1),
    "stride": conv((9, 17), 3, 40, 3, batch=2, stride=2, low=1, high=1, epilogue="all"),
    "stem": conv((19, 19), 3, 16, 7, stride=2, low=3, high=3),
    "one channel": conv((12, 12), 1, 20, 5),
    "uneven": conv((9, 30), 4, 33, (3, 2), batch=2, low=(1, 0), high=(0, 1), dilation=2, epilogue="all"),
    "padding beyond the window": conv((5, 4), 3, 7, 3, low=4, high=5),
    "window beyond the input": conv((3, 2), 3, 7, 5, low=2, high=2),
    "negative padding": conv((12, 13), 8, 12, 3, low=-1, high=-2),
    "two groups": conv((9, 13), 8, 12, 3, batch=2, groups=2, low=2, high=2, dilation=2),
    "filters of groups fill no vector": conv((6, 7), 12, 9, 3, groups=3, low=1, high=1, epilogue="all"),
    "many kinds of borders": conv((7, 50), 4, 9, (2, 25), low=(1, 12), high=(0, 12), epilogue="all"),
    "1-D": conv((40,), 8, 12, 5, batch=3, low=2, high=2, epilogue="all"),
    "1-D causal": conv((40,), 8, 12, 3, low=4, dilation=2),
    "3-D": conv((5, 6, 7), 4, 20, 3, low=1, high=1, stride=(1, 2, 1), epilogue="all"),
    "float64": conv((7, 6), 5, 11, 3, low=1, high=1, dtype=F64, epilogue="all"),
    "float16": conv((7, 6), 5, 11, 3, low=1, high=1, dtype=F16),
    "two pixels share a register": conv((9, 17), 24, 20, 3, batch=2, low=1, high=1, epilogue="all"),
    "weights are computed": conv((7, 6), 30, 11, 3, low=1, high=1, params=()),
    "1x1 with stride": conv((5, 6), 10, 20, 1, stride=2),
    "1x1, a gate per image": conv((5, 6), 10, 20, 1, batch=2, epilogue="all"),
    "an axis of one": conv((1, 40), 8, 12, (1, 3), low=(0, 1), high=(0, 1)),
}

DEPTHWISE = {
    "3x3": conv((9, 17), 20, 20, 3, groups=20, low=1, high=1),
    "whole vectors": conv((8, 16), 64, 64, 3, batch=2, groups=64, low=1, high=1, epilogue="all"),
    "uneven": conv((9, 16), 33, 33, (3, 5), groups=33, low=(1, 2), high=(1, 3), stride=(2, 1), epilogue="all"),
    "dilation": conv((9, 16), 7, 7, 3, batch=2, groups=7, low=2, high=2, dilation=2, stride=(1, 2)),
    "no padding": conv((9, 16), 48, 48, 3, groups=48, dtype=F64, epilogue="all"),
    "1-D": conv((30,), 40, 40, 4, batch=2, groups=40, low=3, epilogue="all"),
    "padding beyond the window": conv((3, 4), 5, 5, 3, groups=5, low=5, high=5),
    "one column": conv((9, 1), 20, 20, 3, groups=20, low=1, high=1),
    "two filters a channel": conv((6, 7), 18, 36, 3, groups=18, low=1, high=1, epilogue="all"),
    "groups of four": conv((6, 9), 40, 40, 3, groups=10, low=1, high=1, stride=(1, 2), epilogue="all"),
    "groups of two by four": conv((6, 9), 20, 40, 3, groups=10, low=1, high=1),
    "large window": conv((20, 21), 18, 18, (17, 19), groups=18, low=8, high=9, epilogue="all"),
    "long line": conv((300,), 6, 6, 250, batch=2, groups=6, low=249),
    "more than the near caches hold": conv((41, 25), 40, 40, 3, batch=2, groups=40, low=1, high=1, epilogue="all"),
    "the same with stride": conv((51, 50), 28, 28, 3, batch=3, groups=28, low=1, high=1, stride=2),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", DIRECT)
def test_direct(name, target):
    check(DIRECT[name], runnable(target), "conv")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", DEPTHWISE)
def test_depthwise(name, target):
    check(DEPTHWISE[name], runnable(target), "depthwise")


@pytest.mark.parametrize(
    "graph",
    [conv((5, 6), 40, 20, 1, batch=2), conv((5, 6), 10, 20, (5, 6), batch=3), conv((7,), 10, 20, 1)],
    ids=["1x1", "the whole input", "1-D"],
)
def test_matrix_products(graph):
    check(graph, runnable("host"), "matmul")


@pytest.mark.parametrize("nthreads", [1, 2])
@pytest.mark.parametrize("name", ["many kinds of borders", "large window", "one channel"])
def test_padding_that_is_written_out_is_no_term(name, nthreads):
    """The kernel reads zeros there, and has loops take its place where a weight times zero is not zero."""
    cases = {**DIRECT, **DEPTHWISE, "one channel": conv((16, 16), 1, 2, 5, low=2, high=2)}
    graph = cases[name]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(v.dtype.numpy) for v in graph.inputs]
    inputs[1].flat[:2] = np.inf, np.nan
    (expected,), _ = evaluate(graph, inputs)
    assert np.isnan(expected).any() and np.isfinite(expected).any()
    run = run_selected(graph, inputs, runnable("host"), nthreads, winograd=False)
    assert any(map(GUARD.is_on, run.graph.ops))
    np.testing.assert_allclose(run.outputs[0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(evaluate(run.graph, inputs)[0][0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("channels", "filters", "halved"), [(24, 20, True), (5, 20, False), (24, 4, False)])
def test_two_pixels_share_a_register_where_that_saves_time(channels, filters, halved):
    """Not where sums are short, nor where loads take the time."""
    graph = conv((9, 17), channels, filters, 3, low=1, high=1)
    graph = run_passes(graph, ["fuse", ("select", {"winograd": False})], target=named("x86-64-v3"))
    assert [p.halved for op in graph.ops if isinstance(p := KERNEL.of(op), Conv)] == [halved]


def test_dilated_input_and_empty_batch_are_loops():
    check(conv((4, 5), 3, 4, 3, low=2, high=2, input_dilation=2), runnable("host"), "loops")
    check(conv((4, 5), 3, 4, 3, batch=0), runnable("host"), "loops")


@pytest.mark.parametrize("seed", range(16))
def test_random(seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 3))
    groups = int(rng.choice([1, 1, 2, 3]))
    depth, per_group = (int(n) for n in rng.integers(1, 8, 2))
    if rng.random() < 0.3:
        groups, depth, per_group = int(rng.integers(2, 40)), 1, 1

    def each(low, high):
        return tuple(int(n) for n in rng.integers(low, high, rank))

    taps, dilation = each(1, 5), each(1, 3)
    low, high = each(-1, 4), each(-1, 4)
    size = tuple(n + (t - 1) * d + 2 for n, t, d in zip(each(1, 30 if rank == 2 else 60), taps, dilation))
    graph = conv(
        size,
        groups * depth,
        groups * per_group,
        taps,
        batch=int(rng.integers(1, 3)),
        stride=each(1, 4),
        low=low,
        high=high,
        dilation=dilation,
        groups=groups,
        epilogue=str(rng.choice(["bias", "all"])),
    )
    inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    run = run_selected(graph, inputs, runnable("host"), nthreads=3, winograd=False)
    assert sum(k != "loops" for k in run.kernels) == 1
    expected = evaluate(graph, inputs)[0][0]
    assert close(run.outputs[0], expected), difference(run.outputs[0], expected)


@pytest.mark.parametrize("graph", [DIRECT["stride"], DEPTHWISE["whole vectors"]], ids=["direct", "depthwise"])
def test_every_number_of_threads_gives_the_same_bits(graph):
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    results = {
        run_selected(graph, inputs, runnable("host"), t, winograd=False).outputs[0].tobytes() for t in (1, 2, 5, 64)
    }
    assert len(results) == 1


def test_values_that_pixels_have_in_common_take_no_registers_from_sums():
    """Adjacent pixels of one channel share values among taps: with 12 accumulators, LLVM kept them on the stack."""
    target, module = named("x86-64-v3"), llvm.Module(named("x86-64-v3"))
    *_, op = run_passes(conv((12, 12), 1, 20, 5), "fuse, select", target=target).ops
    plan = KERNEL.of(op)
    assert isinstance(plan, Conv) and (plan.pixels, plan.columns) == (4, 24)
    lower_kernel("k", op, module)
    lines = llvm.assembly(module.text(), target).splitlines()
    products = [k for k, line in enumerate(lines) if "vfmadd" in line]
    assert len(products) >= 60
    assert not [line for line in lines[products[0] : products[-1]] if "ymm" in line and "(%rsp)" in line]


def test_few_channels_are_multiplied_by_several_vectors_of_filters():
    """A tile of one vector loads a value for each multiply-add, wherever it lies."""
    for channels, taps in ((1, 5), (3, 3)):
        low = taps // 2
        layer = conv((28, 28), channels, 16, taps, low=low, high=low)
        graph = run_passes(layer, "fuse, select", target=named("x86-64-v3"))
        plan = KERNEL.of(graph.ops[-1])
        assert isinstance(plan, Conv) and plan.columns == 16


def test_a_network_through_the_whole_pipeline():
    """NCHW as models write it: two convolutions, a residual, pooling."""
    b = Builder("net", "traced")
    x = b.input("x", TensorType(F32, (2, 3, 12, 12)))
    w0, w1 = b.input("w0", TensorType(F32, (8, 3, 3, 3))), b.input("w1", TensorType(F32, (8, 1, 3, 3)))
    plain = {"stride": (1, 1), "low": (1, 1), "high": (1, 1), "dilation": (1, 1), "input_dilation": (1, 1)}
    y = b.conv(x, w0, **plain)
    y = b.maximum(y, b.broadcast(b.constant(0, F32), shape=y.shape))
    y = b.add(b.conv(y, w1, groups=8, **plain), y)
    y = b.reduce(y, op="sum", axes=(2, 3))
    graph = b.build([y], {"params": (1, 2)})
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    (native,), _ = compile_graph(graph).run(inputs)
    assert close(native, evaluate(graph, inputs)[0][0])


@pytest.mark.parametrize("how", [{}, {"groups": 2, "filters": 32}, {"taps": 5, "low": 3}, {"channels": 3}], ids=str)
def test_any_number_of_images_shares_a_kernel(how, object_cache, lowered):
    given = {"size": (19, 11), "channels": 16, "filters": 24, "taps": 3, "stride": 2, "low": 1, "high": 1, **how}
    for epilogue in ("all", "rows"):
        counts = []
        for batch in (11, 12, 10):  # as many images as rows in the last one
            graph = conv(batch=batch, epilogue=epilogue, **given)
            inputs = [np.random.default_rng(0).standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
            lowered.clear()
            (found,), _ = compile_graph(graph, pipeline="fuse, select, hoist, threads, plan-memory").run(inputs)
            (expected,), _ = evaluate(graph, inputs)
            assert close(found, expected), difference(found, expected)
            counts.append(lowered.count("conv"))
        assert counts == [1, 0, 1 if epilogue == "rows" else 0]


@pytest.mark.parametrize("groups", [1, 3])
def test_padding_and_strides_of_any_size(groups):
    """Neither compiling nor running takes time for what is only padding, or in between."""
    far = 10**9
    b = Builder("net")
    x, w = b.input("x", TensorType(F32, (1, 3, 8, 8))), b.input("w", TensorType(F32, (3, 3 // groups, 3, 3)))
    one = (1, 1)
    attrs = {"stride": (far, far), "low": (far, far), "high": (far, far), "dilation": one, "input_dilation": one}
    y = b.conv(x, w, groups=groups, **attrs)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.type.shape).astype(np.float32) for v in (x, w)]
    (got,), _ = compile_graph(b.build([y])).run(inputs)
    expected = np.zeros((1, 3, 3, 3), np.float32)
    for channel in range(3):  # one window is within the input, at its first pixels
        depth = slice(channel, channel + 1) if groups == 3 else slice(None)
        expected[0, channel, 1, 1] = (inputs[0][0, depth, :3, :3] * inputs[1][channel]).sum()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_a_stride_of_any_size():
    """Windows beyond the first are outside, so the stride is of no account."""
    x, w = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), np.ones((1, 1, 3, 3), np.float32)
    for stride, expected in ((1, [[45, 54], [81, 90]]), (2**63 - 1, [[45]])):
        b = Builder("net")
        operands = [b.input("x", TensorType(F32, x.shape)), b.input("w", TensorType(F32, w.shape))]
        none, one = (0, 0), (1, 1)
        y = b.conv(*operands, stride=(stride, stride), low=none, high=none, dilation=one, input_dilation=one)
        graph = b.build([y])
        for (result,), _ in (evaluate(graph, [x, w]), compile_graph(graph).run([x, w])):
            assert result[0, 0].tolist() == expected


@pytest.mark.parametrize("merge", [False, True])
def test_kinds_of_tiles(merge):
    """Each tile's taps, as they are defined; and an axis that is far too long to look at each tile."""
    for size, taps, stride, low, dilation in ((7, 3, 1, 5, 2), (3, 5, 2, 9, 1), (20, 3, 1, 1, 1), (1, 1, 3, 4, 1)):
        axis = Axis(size, out=14, taps=taps, stride=stride, low=low, dilation=dilation)
        for pixels in (1, 4, 14, 20):
            read = []
            for kind, first, number in tile_kinds(axis, pixels, merge):
                assert first * pixels == len(read)
                for _ in range(number):
                    among = [(s, tap) for s in kind.segments for tap in range(s.first, s.last)]
                    read += [{tap for s, tap in among if c in s.active} for c in range(kind.pixels)]
            places = [[o * stride + tap * dilation - low for tap in range(taps)] for o in range(14)]
            assert read == [{tap for tap, k in enumerate(row) if 0 <= k < size} for row in places]
    far = 10**12
    runs = tile_kinds(Axis(size=8, out=2 * far + 6, taps=3, stride=1, low=far, dilation=1), 4, merge)
    assert len(runs) < 10 and sum(number for _, _, number in runs) == (2 * far + 6 + 3) // 4
