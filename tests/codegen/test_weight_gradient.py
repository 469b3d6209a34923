"""Gradients of convolution weights: native against NumPy."""

import numpy as np
import pytest

from gluonjit.ir.dims import named
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import F16, F32, F64, TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.partition import divide
from gluonjit.runtime.compiler import compile_graph
from support.compare import close, difference
from support.open_kernels import Selected
from support.selected import TARGETS, run_selected, runnable


def gradient(size, channels, filters, taps, batch=2, dtype=F32, **window):
    """The graph of the gradient by the weights of a convolution, channels last."""
    axes = len(size)
    spatial = "".join(map(str, range(axes)))
    attrs = {"stride": 1, "low": 0, "high": 0, "dilation": 1, **window}
    attrs = {key: value if isinstance(value, tuple) else (value,) * axes for key, value in attrs.items()}
    b = Builder("g")
    x = b.input("x", TensorType(dtype, (batch, channels, *size)))
    w = b.input("w", TensorType(dtype, (filters, channels, *taps)))
    layout = ("NC" + spatial, "OI" + spatial, "NC" + spatial)
    y = b.conv(x, w, **attrs, input_dilation=(1,) * axes, layout=layout)
    joint = run_passes(b.build([y]), "legalize-broadcast, differentiate {wrt = (1,)}, legalize-broadcast, cse, dce")
    return run_passes(divide(joint).backward, "layout, simplify, cse, dce")


CASES = {
    "3x3": gradient((9, 17), 5, 20, (3, 3), low=1, high=1),
    "stride": gradient((9, 18), 3, 40, (3, 3), stride=2, low=1, high=1),
    "stem": gradient((19, 19), 3, 16, (7, 7), stride=2, low=3, high=3),
    "pointwise": gradient((5, 6), 30, 70, (1, 1)),
    "many channels": gradient((4, 4), 33, 35, (3, 3), low=1, high=1),
    "dilation": gradient((12, 11), 4, 9, (3, 2), dilation=(2, 3), low=(2, 1), high=2),
    "padding beyond the image": gradient((2, 3), 4, 9, (3, 3), low=4, high=3),
    "one channel, padding beyond the image": gradient((2, 3), 1, 6, (3, 9), low=(4, 20), high=(3, 20)),
    "one channel": gradient((9, 37), 1, 6, (5, 5)),
    "two channels, stride": gradient((9, 40), 2, 5, (3, 4), stride=2, low=1, high=2),
    "negative padding": gradient((9, 9), 4, 9, (3, 3), low=-1, high=-2),
    "1-D": gradient((23,), 4, 9, (5,), batch=3, low=2, high=2),
    "3-D": gradient((4, 5, 6), 3, 18, (3, 3, 3), low=1, high=1, stride=(1, 2, 1)),
    "many rows": gradient((40, 60), 2, 3, (3, 3), batch=3, low=1, high=1),
    "float64": gradient((7, 6), 5, 11, (3, 3), low=1, high=1, dtype=F64),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_gradients(case, target):
    graph = CASES[case]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(v.dtype.numpy) for v in graph.inputs]
    (expected,), _ = evaluate(graph, inputs)
    run = run_selected(graph, inputs, runnable(target), 2)
    assert [k for k in run.kernels if k != "loops"] == ["weight_gradient"]
    assert close(run.outputs[0], expected), difference(run.outputs[0], expected)


def test_any_number_of_threads_gives_the_same_bits():
    graph = CASES["many rows"]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    one, *others = (run_selected(graph, inputs, runnable("host"), n).outputs[0].tobytes() for n in (1, 2, 3, 5))
    assert all(bits == one for bits in others)


def test_half_precision_sums_in_float32():
    graph = gradient((6, 6), 4, 9, (3, 3), low=1, high=1, dtype=F16)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(np.float16) for v in graph.inputs]
    (expected,), _ = evaluate(graph, inputs)
    (got,), _ = compile_graph(graph).run(inputs)
    assert np.abs(got.astype(float) - expected).max() <= 2e-3 * np.abs(expected).max()


@pytest.mark.parametrize("target", TARGETS)
def test_an_open_batch(target):
    b = Builder("g", "legal")
    n = named("n")
    x, g = b.input("x", TensorType(F32, (n, 9, 17, 5))), b.input("g", TensorType(F32, (n, 9, 17, 20)))
    one = (1, 1)
    attrs = {"stride": one, "low": one, "high": one, "dilation": one, "input_dilation": one, "groups": 1}
    y = b.conv(x, g, **attrs, layout=("C01N", "I01O", "01NC"))
    kernel = Selected(b.build([y]), "weight_gradient", runnable(target))
    for size in (2, 3, 7, 40):
        kernel.check({"n": size}, 3)
