"""Convolutions over an open batch: one kernel, called with many sizes, against NumPy."""

import numpy as np
import pytest

from gluonjit.ir.annotations import SCRATCH, WORKSPACE
from gluonjit.ir.dims import named
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.kernels.product_plans import Winograd
from gluonjit.ir.sizes import with_sizes
from gluonjit.passes import select_winograd
from gluonjit.runtime import threads
from gluonjit.runtime.compiler import compile_graph
from support.compare import difference
from support.convolutions import conv
from support.open_kernels import Selected
from support.selected import TARGETS, in_turn, runnable

N = named("n")
SIZES = (2, 3, 7)

DIRECT = {
    "3x3": conv((9, 17), 5, 20, 3, low=1, high=1, batch=N),
    "stride": conv((9, 17), 3, 40, 3, batch=N, stride=2, low=1, high=1, epilogue="all"),
    "two groups": conv((9, 13), 8, 12, 3, batch=2 * N, groups=2, low=2, high=2, dilation=2),
    "1-D": conv((40,), 8, 12, 5, batch=N, low=2, high=2, epilogue="all"),
    "padding that is written out": conv((7, 50), 4, 9, (2, 25), low=(1, 12), high=(0, 12), batch=N),
}
DEPTHWISE = {
    "3x3": conv((9, 17), 20, 20, 3, groups=20, low=1, high=1, batch=N, epilogue="all"),
    "whole vectors": conv((8, 16), 64, 64, 3, batch=3 * N, groups=64, low=1, high=1, epilogue="all"),
    "1-D": conv((30,), 40, 40, 4, batch=N, groups=40, low=3, epilogue="all"),
    "large window": conv((10, 11), 18, 18, (17, 19), groups=18, low=8, high=9, epilogue="all", batch=N),
}


def check(graph, kernel, target, **options):
    selected = Selected(graph, kernel, runnable(target), **options)
    for n in SIZES:
        selected.check({"n": n}, 3)


@pytest.mark.parametrize(("name", "target"), in_turn(DIRECT))
def test_direct(name, target):
    check(DIRECT[name], "conv", target, winograd=False)


@pytest.mark.parametrize(("name", "target"), in_turn(DEPTHWISE))
def test_depthwise(name, target):
    check(DEPTHWISE[name], "depthwise", target)


@pytest.mark.parametrize("target", TARGETS)
def test_planar(target):
    check(conv((12, 21), 1, 2, 5, batch=N, low=2, high=2), "planar", target)


@pytest.mark.parametrize("filters", [20, 40])
def test_pointwise(filters):
    """Products of open numbers of rows; with 20 columns, two rows share the last vector of columns."""
    check(conv((5, 7), 10, filters, 1, batch=N, epilogue="bias"), "matmul", "host")


H, W = named("h"), named("w")
IMAGES = {
    "3x3": conv((H, W), 5, 40, 3, low=1, high=1, epilogue="all"),
    "several batches": conv((H, 8 * W + 3), 3, 12, 3, batch=N, low=1, high=1),
    "stride": conv((32 * H, 32 * W), 3, 20, 7, low=3, high=3, stride=2, epilogue="all"),
    "stride, one position left over": conv((8 * H + 3, 8 * W + 4), 5, 20, 3, low=1, high=1, stride=2),
    "only strides": conv((4 * H, 4 * W), 5, 20, 1, stride=2, epilogue="all"),
    "dilation": conv((H, 4 * W + 1), 5, 20, 3, low=2, high=2, dilation=2),
    "padding that is written out": conv((H, W), 4, 9, 3, low=6, high=6, dilation=6),
    "no padding": conv((H, W + 1), 4, 40, 2, groups=2),
    "one open axis": conv((9, W), 4, 20, 3, low=1, high=1),
    "1-D": conv((W,), 8, 20, 3, low=1, high=1, epilogue="all"),
    "1-D, strides": conv((6 * W + 1,), 8, 20, 4, low=2, high=2, stride=3, batch=N),
}
DEPTHWISE_IMAGES = {
    "3x3": conv((H, W), 20, 20, 3, groups=20, low=1, high=1, epilogue="all"),
    "stride": conv((8 * H + 3, 8 * W), 24, 24, 3, groups=24, low=1, high=1, stride=2, batch=N),
    "large window": conv((H + 1, W), 18, 18, (17, 19), groups=18, low=9, high=9),
    "1-D": conv((W,), 40, 40, 4, groups=40, low=3),
}
EXTENTS = [(2, 2), (3, 2), (2, 3), (2, 7), (5, 12), (2, 14), (2, 15), (3, 29)]


def check_images(graph, kernel, target):
    selected = Selected(graph, kernel, runnable(target), winograd=False)
    for h, w in EXTENTS:
        selected.check({"h": h, "w": w, "n": 1 + h}, 3)


@pytest.mark.parametrize(("name", "target"), in_turn(IMAGES))
def test_images_of_open_size(name, target):
    """Lines of one tile and of several, padding at both ends, and neighbours that share a pixel."""
    check_images(IMAGES[name], "conv", target)


@pytest.mark.parametrize(("name", "target"), in_turn(DEPTHWISE_IMAGES))
def test_depthwise_images_of_open_size(name, target):
    check_images(DEPTHWISE_IMAGES[name], "depthwise", target)


WINOGRAD = {
    "blocks": ((12, 16), 16, 32, (4, 4, 4, 32, 1)),
    "blocks, ragged": ((7, 10), 5, 20, (4, 4, 7, 32, 2)),
    "together": ((9, 5), 20, 40, (2, 2, 5, 16, 0)),
    "a line": ((1, 30), 8, 12, (1, 4, 3, 16, 0)),
}


@pytest.mark.parametrize("name", WINOGRAD)
def test_winograd(name, monkeypatch):
    """Numbers of tiles that fill register tiles and blocks, and others."""
    size, channels, filters, tile = WINOGRAD[name]
    monkeypatch.setattr(select_winograd, "winograd_tile", lambda problem, target: Winograd(*tile))
    taps, low = ((1, 3), (0, 1)) if size[0] == 1 else (3, 1)
    graph = conv(size, channels, filters, taps, low=low, high=low, batch=N, epilogue="all")
    selected = Selected(graph, "winograd", runnable("host"))
    assert isinstance(SCRATCH.of(selected.op), int) and isinstance(WORKSPACE.of(selected.op), int)
    for n in (2, 3, 5, 16, 17):
        selected.check({"n": n}, 1 if WORKSPACE.is_on(selected.op) else 3)


SPATIAL_WINOGRAD = {
    "multiples": ((16 * H, 8 * W), 16, 32, (4, 4, 4, 32, 1)),
    "multiples, ragged": ((4 * H + 3, 4 * W + 2), 5, 20, (4, 4, 7, 32, 2)),
    "number of tiles is no polynomial": ((H, W), 5, 20, (4, 4, 4, 32, 2)),
    "together": ((H, 2 * W + 1), 20, 40, (2, 2, 5, 16, 0)),
    "one open axis": ((9, W), 20, 40, (2, 4, 5, 16, 0)),
    "a line": ((1, W), 8, 12, (1, 4, 3, 16, 0)),
}


@pytest.mark.parametrize("name", SPATIAL_WINOGRAD)
def test_winograd_of_images_of_open_size(name, monkeypatch):
    size, channels, filters, tile = SPATIAL_WINOGRAD[name]
    monkeypatch.setattr(select_winograd, "winograd_tile", lambda problem, target: Winograd(*tile))
    taps, low = ((1, 3), (0, 1)) if size[0] == 1 else (3, 1)
    graph = conv(size, channels, filters, taps, low=low, high=low, batch=2, epilogue="all")
    selected = Selected(graph, "winograd", runnable("host"))
    assert isinstance(SCRATCH.of(selected.op), int) and isinstance(WORKSPACE.of(selected.op), int)
    for h, w in ((2, 2), (3, 2), (2, 3), (4, 9), (5, 7)):
        selected.check({"h": h, "w": w}, 1 if WORKSPACE.is_on(selected.op) else 3)


@pytest.mark.parametrize("block", [-2, 2])
def test_every_number_of_threads_gives_the_same_bits(block, monkeypatch):
    """With threads that do run at the same time: they exchange blocks of tiles, and wait for each other."""
    monkeypatch.setattr(select_winograd, "winograd_tile", lambda *_: Winograd(4, 4, 3, 32, max(block, 0)))
    monkeypatch.setattr(select_winograd, "tiles_together", lambda *_: -block)
    graph = conv((20, 21), 40, 72, 3, batch=N, low=1, high=1, epilogue="all")
    rng = np.random.default_rng(0)
    before = threads.get_num_threads()
    try:
        compiled = []
        for count in (1, 2, 5):
            threads.set_num_threads(count)
            compiled.append((count, compile_graph(graph)))
        for n in (2, 3, 16):
            static = with_sizes(graph, {"n": n})
            inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in static.inputs]
            results = set()
            for count, executable in compiled:
                threads.set_num_threads(count)
                for _ in range(3):
                    (found,), _ = executable.run(inputs)
                    results.add(found.tobytes())
            assert len(results) == 1
            assert difference(found, evaluate(static, inputs)[0][0]) < 1e-5
    finally:
        threads.set_num_threads(before)


def test_pixels_of_two_tiles_have_the_same_bits_for_every_number_of_threads():
    """A tile at the end of a line may add up its terms in another order than its neighbour, which overlaps it."""
    graph = conv((W,), 256, 256, 3, batch=1, groups=2, low=1, high=1)
    rng = np.random.default_rng(0)
    before = threads.get_num_threads()
    try:
        compiled = compile_graph(graph)
        for w in (4, 9, 11, 12, 17, 29):
            static = with_sizes(graph, {"w": w})
            inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in static.inputs]
            results = set()
            for count in (1, 2, 5):
                threads.set_num_threads(count)
                for _ in range(100):
                    (found,), _ = compiled.run(inputs)
                    results.add(found.tobytes())
            assert len(results) == 1
            assert difference(found, evaluate(static, inputs)[0][0]) < 1e-5
    finally:
        threads.set_num_threads(before)
