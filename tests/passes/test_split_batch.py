"""`split-batch`: the same gradients as with the whole batch at a time, and the same bits on any number of threads."""

from dataclasses import replace

import numpy as np
import pytest

from gluonjit.codegen.target import host
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.text import print_graph
from gluonjit.ir.types import F16, F32, F64, TensorType
from gluonjit.passes import run_passes
from gluonjit.runtime.compiler import compile_graph
from gluonjit.runtime.threads import set_num_threads
from support.gradients import joint

TARGET = replace(host(), l2=0, l3=1 << 12)
"""A machine for which the arrays below are large, and each image is a part of its own."""
SHAPE = (6, 9, 8, 16)
PRODUCT = {
    "stride": (1, 1),
    "low": (0, 0),
    "high": (0, 0),
    "dilation": (1, 1),
    "input_dilation": (1, 1),
    "groups": 1,
    "layout": ("N01C", "01IO", "N01C"),
}
"""A 1×1 convolution."""


def normalized(b, y):
    """Batch normalization, in two passes."""
    mean = b.reduce(y, op="mean", axes=(0, 1, 2))
    apart = b.sub(y, b.broadcast(mean, shape=y.shape, dims=(3,)))
    squares = b.reduce(b.mul(apart, apart), op="sum", axes=(0, 1, 2))
    return b.mul(apart, b.broadcast(b.rsqrt(squares), shape=y.shape, dims=(3,)))


def clipped(b, y):
    return b.maximum(y, b.broadcast(b.constant(0, y.dtype), shape=y.shape, dims=()))


def block(dtype):
    """An inverted residual: 1×1, depthwise, 1×1, each with batch normalization, and what it began with."""
    b = Builder(level="legal")
    x = b.input("x", TensorType(dtype, SHAPE))
    weights = [b.input("w", TensorType(dtype, s)) for s in ((1, 1, 16, 24), (3, 3, 1, 24), (1, 1, 24, 16))]
    y = x
    for w, groups in zip(weights, (1, 24, 1), strict=True):
        pad = (w.shape[0] // 2,) * 2
        y = b.conv(y, w, **{**PRODUCT, "low": pad, "high": pad, "groups": groups})
        y = clipped(b, normalized(b, y)) if w is not weights[-1] else normalized(b, y)
    return joint(b.build([clipped(b, b.add(x, y))]))


def data(graph, offset):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(0, 1, v.shape) for v in graph.inputs]
    arrays[0] += offset
    return arrays


def loops(graph):
    return [op for op in graph.ops if op.name == "loop"]


@pytest.fixture(scope="module")
def graph():
    return block(F32)


def test_the_chains(graph):
    """One for each layer, forward and backward, and the same each time."""
    split = run_passes(graph, "cse, split-batch", target=TARGET)
    assert len(loops(split)) >= 6
    assert {op.attrs["trip"] for op in loops(split)} == {6}
    again = run_passes(graph, "cse, split-batch", target=TARGET)
    assert print_graph(again) == print_graph(split)


@pytest.mark.parametrize("offset", [0, 300, 10_000])
def test_gradients(graph, offset):
    """As near those of float64 as those of the whole batch at a time."""
    arrays = data(graph, offset)
    exact = evaluate(block(F64), arrays)[0]
    arrays = [x.astype(np.float32) for x in arrays]
    split = run_passes(graph, "split-batch, join-moments", target=TARGET)
    whole = evaluate(graph, arrays)[0]
    for y, other, expected in zip(evaluate(split, arrays)[0], whole, exact, strict=True):
        error, before = (np.abs(a - expected).max() for a in (y, other))
        assert error <= 1e-6 * np.abs(expected).max() + 2 * before


def test_what_an_array_is_needed_whole_for():
    """The distances of all images from each other, of which there are as many as images."""
    b = Builder(level="legal")
    x, w = b.input("x", TensorType(F32, SHAPE)), b.input("w", TensorType(F32, (1, 1, 16, 16)))
    y = b.conv(clipped(b, normalized(b, x)), w, **PRODUCT)
    means = b.reduce(y, op="mean", axes=(1, 2))
    ours, theirs = (b.broadcast(means, shape=(6, 6, 16), dims=dims) for dims in ((0, 2), (1, 2)))
    apart = b.tanh(b.sub(ours, theirs))
    graph = joint(b.build([b.reduce(b.mul(apart, apart), op="sum", axes=(1, 2))]))
    split = run_passes(graph, "cse, split-batch", target=TARGET)
    assert loops(split)
    arrays = [a.astype(np.float32) for a in data(graph, 0)]
    for y, expected in zip(evaluate(split, arrays)[0], evaluate(graph, arrays)[0], strict=True):
        assert np.abs(y - expected).max() <= 1e-5 * np.abs(expected).max()


def test_sums_in_float16_are_not_rounded_part_by_part():
    b = Builder(level="legal")
    x, w = b.input("x", TensorType(F32, SHAPE)), b.input("w", TensorType(F16, (1, 1, 16, 16)))
    y = b.conv(b.cast(clipped(b, normalized(b, x)), dtype=F16), w, **PRODUCT)
    split = run_passes(joint(b.build([normalized(b, b.cast(y, dtype=F32))])), "cse, split-batch", target=TARGET)
    assert loops(split)
    assert [op.result.dtype for op in split.ops if op.name == "conv" and op.attrs["layout"][0] == "C01N"] == [F16]


def test_native_code(graph):
    arrays = [x.astype(np.float32) for x in data(graph, 1)]
    executable = compile_graph(graph, target=TARGET)
    found = []
    for threads in (1, 2):
        set_num_threads(threads)
        try:
            found.append(executable.run(arrays)[0])
        finally:
            set_num_threads(None)
    expected = evaluate(graph, arrays)[0]
    for one, two, y in zip(*found, expected, strict=True):
        assert one.tobytes() == two.tobytes()
        assert np.abs(one - y).max() <= 1e-5 * np.abs(y).max()
