"""Sums of many products, all of one sign: their rounding errors must not grow with their number."""

import numpy as np
import pytest

from gluonjit.codegen.kernels.tiles import RUN, Tile
from gluonjit.codegen.text.llvm import Module
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import F32, TensorType
from support.compare import difference
from support.selected import TARGETS, run_selected, runnable


def product(m, k, n):
    b = Builder("product", "legal")
    x, w = b.input("x", TensorType(F32, (m, k))), b.input("w", TensorType(F32, (n, k)))
    return b.build([b.dot_general(x, w, contract=((1,), (1,)))], {"params": (1,)})


def convolution(size, channels, filters, taps):
    b = Builder("convolution", "legal")
    x = b.input("x", TensorType(F32, (1, *size, channels)))
    w = b.input("w", TensorType(F32, (*taps, channels, filters)))
    each = dict.fromkeys(("stride", "dilation", "input_dilation"), (1,) * len(size))
    pad = dict.fromkeys(("low", "high"), tuple(t // 2 for t in taps))
    digits = "".join(map(str, range(len(size))))
    y = b.conv(x, w, **each, **pad, groups=1, layout=(f"N{digits}C", f"{digits}IO", f"N{digits}C"))
    return b.build([y], {"params": (1,)})


def error(graph, target):
    """Of the native result, relative to that in float64."""
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(0, 1, v.shape).astype("f4") for v in graph.inputs)
    (got,) = run_selected(graph, [x, w], target, nthreads=2, winograd=False).outputs
    wide = Builder("wide", "legal")
    operands = [wide.input(v.name, TensorType(F32, v.shape)) for v in graph.inputs]
    operands = [wide.cast(v, dtype="f64") for v in operands]
    (op,) = graph.ops
    result = getattr(wide, op.name)(*operands, **op.attrs)
    (expected,), _ = evaluate(wide.build([result]), [x, w])
    return difference(got.astype("f8"), expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m", [1, 3, 16])
def test_matrix_products(m, target):
    assert error(product(m, 20000, 32), runnable(target)) < 1e-6


@pytest.mark.parametrize("k", [RUN - 1, RUN, RUN + 1, 2 * RUN, 2 * RUN + 1, 3 * RUN - 2, 997, 1000])
def test_numbers_of_terms(k):
    # A partial sum is rounded by 2**-24 / √3 of itself, so the sum of a run of n terms by 2**-24 · √(n / 9), and the
    # furthest of 500 results by three times as much. Without runs, sums of 1000 terms would be off by 2e-6.
    run = k if k <= 2 * RUN else RUN
    assert error(product(15, k, 33), runnable("host")) < 3 * 2**-24 * (run / 9) ** 0.5


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("channels", [40, 64, 2000])
def test_convolutions(channels, target):
    assert error(convolution((6, 9), channels, 20, (3, 3)), runnable(target)) < 1e-6


def test_convolutions_along_a_line():
    assert error(convolution((40,), 300, 20, (9,)), runnable("host")) < 1e-6


@pytest.mark.parametrize(("usual", "most"), [(12, 16), (0, 64)], ids=["the last panel of some", "all there is"])
def test_a_rare_tile_is_unrolled_no_further_than_the_others(usual, most):
    f = Module(runnable("x86-64-v3")).function("f", [("ptr", "x"), ("ptr", "w"), ("ptr", "y")])
    tile = Tile(f, F32, 1, usual=usual)
    sums = tile.contract(tile.zeros(4), "%x", [0, 256, 512, 768], "%w", 256, w_step=24, aligned=True)
    for k, (sum,) in enumerate(sums):
        tile.store(sum, f.gep(tile.vector, "%y", k))
    f.end()
    assert f.text().count("call <8 x float> @llvm.fma") == most
