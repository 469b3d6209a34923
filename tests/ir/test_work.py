"""What ops are taken to compute, counted by `ir/work.py`."""

import random

import numpy as np
import pytest

from gluonjit.codegen.target import named
from gluonjit.ir.cost import nanoseconds
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import F32, TensorType
from gluonjit.ir.work import flops, taps_inside


def test_taps_inside():
    rng = random.Random(0)
    for _ in range(2000):
        size, out, taps, low = rng.randint(0, 9), rng.randint(1, 9), rng.randint(1, 9), rng.randint(-5, 9)
        stride, dilation, inner = (rng.randint(1, 4) for _ in range(3))
        places = [o * stride + t * dilation - low for o in range(out) for t in range(taps)]
        count = sum(place % inner == 0 and 0 <= place // inner < size for place in places)
        assert taps_inside(size, out, taps, low, stride, dilation, inner) == count
    assert taps_inside(8, 2 * 10**9, 3, 10**9) == 24, "whatever the padding, without a loop over it"


WINDOWS = {
    "the gradient of 5x5 on a small image": {"low": (4, 4), "high": (4, 4)},
    "stride": {"stride": (2, 1), "low": (2, 1), "high": (1, 2)},
    "dilation": {"dilation": (1, 2), "low": (0, 4), "high": (3, 4)},
    "an input with gaps": {"input_dilation": (2, 3), "low": (4, 3), "high": (4, 4)},
    "padding that is written out": {"low": (0, 1), "high": (1, 0), "blank_low": (2, 1), "blank_high": (1, 2)},
    "cropped": {"low": (-1, 2), "high": (2, -1)},
}


@pytest.mark.parametrize("name", WINDOWS)
def test_products_are_the_terms_that_exist(name):
    """Of ones, the sum of a convolution's result is the number of its terms, as is that of its weights' gradient."""
    ones = (1, 1)
    window = {"stride": ones, "low": (0, 0), "high": (0, 0), "dilation": ones, "input_dilation": ones, **WINDOWS[name]}
    b = Builder("conv", "legal")
    x, w = b.input("x", TensorType(F32, (2, 6, 7, 3))), b.input("w", TensorType(F32, (5, 5, 3, 4)))
    conv = b.conv(x, w, **window, groups=1, layout=("N01C", "01IO", "N01C"))
    outputs = [conv]
    if set(window["input_dilation"]) == {1} and "blank_low" not in window:
        g = b.input("g", TensorType(F32, (2, *conv.shape[1:3], 3)))
        there = {key: window[key] for key in ("stride", "low", "dilation")}
        outputs.append(b.depthwise_gradient(x, g, taps=(5, 5), **there))
    graph = b.build(outputs)
    results, _ = evaluate(graph, [np.ones(v.shape, np.float32) for v in graph.inputs])
    target = named("x86-64-v3")
    for op, result in zip(graph.ops, results, strict=True):
        terms = int(result.sum())
        assert flops(op) == 2 * terms
        bytes_only = sum(v.type.nbytes for v in (*op.operands, *op.results)) / target.loop_near
        assert nanoseconds(op, target) - 50 == pytest.approx(max(bytes_only, terms / 8 / target.multiply_adds))
