"""Gradients of depthwise filters: native against NumPy."""

import numpy as np
import pytest

from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.kernels.product_plans import DepthwiseGradient
from gluonjit.ir.types import F16, F32, F64, TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.partition import divide
from support.compare import close, difference
from support.selected import TARGETS, run_selected, runnable


def gradient(size, channels, taps, batch=2, dtype=F32, each=1, **window):
    """The graph of the gradient by the filters of a depthwise convolution, `each` for a channel."""
    axes = len(size)
    spatial = "".join(map(str, range(axes)))
    attrs = {"stride": 1, "low": 0, "high": 0, "dilation": 1, **window}
    attrs = {key: value if isinstance(value, tuple) else (value,) * axes for key, value in attrs.items()}
    b = Builder("g")
    x = b.input("x", TensorType(dtype, (batch, channels, *size)))
    w = b.input("w", TensorType(dtype, (each * channels, 1, *taps)))
    layout = ("NC" + spatial, "OI" + spatial, "NC" + spatial)
    y = b.conv(x, w, **attrs, input_dilation=(1,) * axes, groups=channels, layout=layout)
    joint = run_passes(b.build([y]), "legalize-broadcast, differentiate {wrt = (1,)}, legalize-broadcast, cse, dce")
    return run_passes(divide(joint).backward, "layout, simplify, cse, dce")


CASES = {
    "3x3": gradient((9, 17), 40, (3, 3), low=1, high=1),
    "stride": gradient((9, 18), 33, (3, 3), stride=2, low=1, high=1),
    "5x5, few channels": gradient((11, 7), 3, (5, 5), low=2, high=2),
    "more taps than registers": gradient((6, 40), 8, (2, 31), low=(0, 15), high=(1, 15)),
    "1x1": gradient((5, 6), 30, (1, 1)),
    "1x1, padding at the end alone": gradient((5, 6), 30, (1, 1), high=(3, 2)),
    "dilation": gradient((12, 11), 9, (3, 2), dilation=(2, 3), low=(2, 1), high=2),
    "padding beyond the image": gradient((2, 3), 9, (3, 3), low=4, high=3),
    "columns of which none is inside everywhere": gradient((5, 2), 9, (3, 7), low=(1, 3), high=(1, 4)),
    "negative padding": gradient((9, 9), 17, (3, 3), low=-1, high=-2),
    "1-D": gradient((23,), 9, (5,), batch=3, low=2, high=2),
    "3-D": gradient((4, 5, 6), 18, (3, 3, 3), low=1, high=1, stride=(1, 2, 1)),
    "many rows": gradient((40, 60), 70, (3, 3), batch=3, low=1, high=1),
    "float64": gradient((7, 6), 11, (3, 3), low=1, high=1, dtype=F64),
}


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)))
def test_gradients(number, case):
    """Each on two targets."""
    graph = CASES[case]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(v.dtype.numpy) for v in graph.inputs]
    (expected,), _ = evaluate(graph, inputs)
    for target in (TARGETS[number % len(TARGETS)], TARGETS[(number + 1) % len(TARGETS)]):
        run = run_selected(graph, inputs, runnable(target), 2)
        assert [k for k in run.kernels if k != "loops"] == ["depthwise_gradient"]
        assert close(run.outputs[0], expected), f"{target}: {difference(run.outputs[0], expected)}"


def test_any_number_of_threads_gives_the_same_bits():
    graph = CASES["many rows"]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    runs = [run_selected(graph, inputs, runnable("host"), n) for n in (1, 2, 3, 5)]
    assert len({run.outputs[0].tobytes() for run in runs}) == 1
    plans = [plan for op in runs[0].graph.ops if isinstance(plan := KERNEL.of(op), DepthwiseGradient)]
    assert [plan.ahead for plan in plans] == [True]  # no near cache holds both operands


@pytest.mark.parametrize(("dtype", "each", "taps"), [(F16, 1, 3), (F32, 2, 3), (F32, 1, 9)])
def test_others_are_sums_for_each_tap(dtype, each, taps):
    graph = gradient((6, 6), 4, (taps, taps), low=5, high=5, dtype=dtype, each=each)
    assert "depthwise_gradient" not in {op.name for op in graph.ops}
