"""Gradients of convolution weights: native against NumPy."""

import numpy as np
import pytest

from gluonjit.codegen import target as targets
from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.dims import named
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.kernels.product_plans import WeightGradient, WinogradGradient
from gluonjit.ir.types import F16, F32, F64, TensorType
from gluonjit.passes import run_passes, select_winograd_gradient
from gluonjit.passes.open_channels import has_open_channels
from gluonjit.passes.partition import divide
from gluonjit.passes.pipelines import pipeline
from gluonjit.runtime import threads
from gluonjit.runtime.compiler import compile_graph
from support.compare import close, difference
from support.open_kernels import Selected
from support.selected import TARGETS, in_turn, kernel_name, run_selected, runnable

WITHIN = 5e-6
"""Of max|y|, as in `test_winograd.py`."""


def gradient(*sizes, **kwargs):
    """The graph of the gradient by the weights of a convolution, channels last."""
    return run_passes(backward(*sizes, **kwargs), "layout, simplify, cse, dce")


def backward(size, channels, filters, taps, batch=2, dtype=F32, **window):
    """That gradient, channels first."""
    axes = len(size)
    spatial = "".join(map(str, range(axes)))
    attrs = {"stride": 1, "low": 0, "high": 0, "dilation": 1, "input_dilation": 1, **window}
    attrs = {key: value if isinstance(value, tuple) else (value,) * axes for key, value in attrs.items()}
    b = Builder("g")
    x = b.input("x", TensorType(dtype, (batch, channels, *size)))
    w = b.input("w", TensorType(dtype, (filters, channels, *taps)))
    layout = ("NC" + spatial, "OI" + spatial, "NC" + spatial)
    y = b.conv(x, w, **attrs, layout=layout)
    joint = run_passes(b.build([y]), "legalize-broadcast, differentiate {wrt = (1,)}, legalize-broadcast, cse, dce")
    return divide(joint).backward


CASES = {
    "3x3": gradient((9, 17), 5, 20, (3, 3), low=1, high=1),
    "stride": gradient((9, 18), 3, 40, (3, 3), stride=2, low=1, high=1),
    "stem": gradient((19, 19), 3, 16, (7, 7), stride=2, low=3, high=3),
    "pointwise": gradient((5, 6), 30, 70, (1, 1)),
    "pointwise, more than the near caches hold": gradient((40, 48), 28, 20, (1, 1)),
    "pointwise, 1-D": gradient((35,), 9, 40, (1,), batch=3),
    "many channels": gradient((4, 4), 33, 35, (3, 3), low=1, high=1),
    "dilation": gradient((12, 11), 4, 9, (3, 2), dilation=(2, 3), low=(2, 1), high=2),
    "padding beyond the image": gradient((2, 3), 4, 9, (3, 3), low=4, high=3),
    "one channel, padding beyond the image": gradient((2, 3), 1, 6, (3, 9), low=(4, 20), high=(3, 20)),
    "one channel": gradient((9, 37), 1, 6, (5, 5)),
    "one channel, stride, dilation": gradient((23, 31), 1, 9, (3, 4), stride=2, dilation=(1, 3), low=(1, 0), high=-1),
    "one channel, 1-D": gradient((41,), 1, 7, (11,), batch=3, low=-2, high=0),
    "two channels, stride": gradient((9, 40), 2, 5, (3, 4), stride=2, low=1, high=2),
    "negative padding": gradient((9, 9), 4, 9, (3, 3), low=-1, high=-2),
    "1-D": gradient((23,), 4, 9, (5,), batch=3, low=2, high=2),
    "3-D": gradient((4, 5, 6), 3, 18, (3, 3, 3), low=1, high=1, stride=(1, 2, 1)),
    "many rows": gradient((40, 60), 2, 3, (3, 3), batch=3, low=1, high=1),
    "long rows of the cotangent": gradient((5, 150), 3, 64, (3, 3), low=1, high=1, stride=(1, 2)),
    "long rows, more than the near caches hold": gradient((41, 90), 5, 50, (3, 3), low=1, high=1, batch=3),
    "far pixels": gradient((5, 7), 260, 20, (3, 3), low=1, high=1),
    "far pixels of both": gradient((4, 9), 261, 264, (1, 3), batch=3, stride=2, low=(0, 1), high=(0, 1)),
    "far pixels, padding beyond the image": gradient((2, 3), 256, 257, (3, 3), low=4, high=3),
    "far apart by their stride, several blocks": gradient((8, 9), 130, 40, (4, 4), stride=2, low=1, high=1, batch=9),
    "far pixels, 1-D": gradient((23,), 30, 300, (5,), batch=3, low=2, high=2),
    "far pixels, 3-D": gradient((3, 4, 5), 258, 9, (3, 2, 2), low=1, high=1, stride=(1, 2, 1)),
    "transposed": gradient((4, 5), 20, 9, (4, 3), low=(2, 1), high=(2, 1), input_dilation=2),
    "transposed, dilated taps": gradient(
        (4, 5), 6, 9, (3, 2), low=(0, 3), high=4, dilation=(2, 3), input_dilation=(3, 1)
    ),
    "float64": gradient((7, 6), 5, 11, (3, 3), low=1, high=1, dtype=F64),
}
WINOGRAD = {
    "whole tiles": ((4, 4, 4, 16, 12), gradient((8, 12), 16, 32, (3, 3), low=1, high=1)),
    "pixels and channels that fill no tile": (
        (4, 4, 5, 16, 20),
        gradient((9, 18), 21, 37, (3, 3), batch=3, low=1, high=1),
    ),
    "several blocks": ((4, 4, 3, 16, 10), gradient((13, 14), 9, 24, (3, 3), low=1, high=1)),
    "small tiles": ((2, 2, 4, 16, 24), gradient((6, 6), 64, 72, (3, 3), batch=8, low=1, high=1)),
    "tiles that are no squares": ((4, 2, 4, 16, 24), gradient((6, 7), 3, 8, (3, 3), batch=8, low=1, high=1)),
    "no padding": ((4, 4, 2, 32, 12), gradient((13, 14), 20, 33, (3, 3))),
    "different padding": ((4, 4, 4, 16, 12), gradient((10, 9), 17, 40, (3, 3), low=(0, 2), high=(2, 0))),
    "padding beyond the image": ((4, 4, 6, 16, 18), gradient((5, 6), 24, 40, (3, 3), low=4, high=3)),
    "5x5": ((2, 2, 4, 16, 16), gradient((12, 13), 20, 50, (5, 5), batch=4)),
    "3x5": ((4, 2, 4, 16, 20), gradient((10, 11), 16, 18, (3, 5), low=(1, 2), high=(1, 2))),
    "negative padding": ((4, 4, 4, 16, 24), gradient((15, 15), 24, 40, (3, 3), low=-1, high=-2)),
    "1-D": ((1, 4, 4, 16, 20), gradient((50,), 33, 66, (3,), batch=3, low=1, high=1)),
    "1x3": ((1, 4, 4, 16, 60), gradient((9, 24), 33, 48, (1, 3), low=(0, 1), high=(0, 1))),
    "3x1": ((4, 1, 4, 16, 60), gradient((24, 9), 33, 48, (3, 1), low=(1, 0), high=(1, 0))),
    "sums at once": ((4, 4, 4, 16, 8, 2), gradient((5, 6), 40, 100, (3, 3), batch=2, low=1, high=1)),
    "sums at once, 1-D": ((1, 4, 2, 16, 15, 1), gradient((20,), 33, 66, (3,), batch=3, low=1, high=1)),
}
"""A plan, and what it computes."""


@pytest.fixture
def planned(monkeypatch):
    """Has `select` use a plan for Winograd's algorithm, whatever it is expected to cost."""

    def use(*plan):
        chosen = WinogradGradient(*plan)
        monkeypatch.setattr(select_winograd_gradient, "winograd_gradient", lambda problem, target: chosen)

    return use


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_gradients(case, target):
    graph = CASES[case]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(v.dtype.numpy) for v in graph.inputs]
    (expected,), _ = evaluate(graph, inputs)
    run = run_selected(graph, inputs, runnable(target), 2, winograd=False)
    assert [k for k in run.kernels if k != "loops"] == ["weight_gradient"]
    assert close(run.outputs[0], expected), difference(run.outputs[0], expected)


@pytest.mark.parametrize(("case", "target"), in_turn(WINOGRAD))
def test_winograd(case, target, planned):
    plan, graph = WINOGRAD[case]
    planned(*plan)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    (expected,), _ = evaluate(graph, inputs)
    run = run_selected(graph, inputs, runnable(target))
    assert [k for k in run.kernels if k != "loops"] == ["winograd_gradient"]
    assert difference(run.outputs[0], expected) < WITHIN


def test_sums_that_no_near_cache_holds_are_transformed_at_once(planned):
    """Where all tiles are one block; with the same bits."""
    target = targets.named("x86-64-v3")
    for images, channels, at_once in ((64, 512, True), (65, 512, False), (64, 48, False)):
        problem = select_winograd_gradient.Problem(images, (4, 4), (3, 3), 1.0, channels, channels, F32)
        plans = [plan for plan, _ in select_winograd_gradient.winograd_plans(problem, target) if plan.height == 4]
        assert [plan.wide > 0 for plan in plans] == [at_once]
    graph = gradient((5, 6), 40, 100, (3, 3), batch=2, low=1, high=1)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    bits = set()
    for wide in (0, 1, 2, 9):
        planned(4, 4, 4, 16, 8, wide)
        bits.add(run_selected(graph, inputs, runnable("host")).outputs[0].tobytes())
    assert len(bits) == 1


def test_winograd_gradient_is_chosen_where_it_saves_time():
    many, few = gradient((14, 14), 64, 64, (3, 3), batch=4, low=1, high=1), CASES["3x3"]
    for graph, wanted, winograd in ((many, True, True), (many, False, False), (few, False, True)):
        selected = run_passes(graph, ["fuse", ("select", {"winograd": winograd})], target=targets.named("x86-64-v3"))
        assert ("winograd_gradient" in [*map(kernel_name, selected.ops)]) == wanted


def test_channels_that_differ_share_a_kernel(object_cache, lowered):
    rng = np.random.default_rng(0)
    counts = []
    for channels, filters in ((32, 64), (48, 96), (272, 80), (256, 64), (64, 256), (288, 320), (16, 64), (40, 64)):
        graph = backward((5, 6), channels, filters, (3, 3), low=1, high=1)
        inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
        lowered.clear()
        (got,), _ = compile_graph(graph).run(inputs)
        (expected,), _ = evaluate(graph, inputs)
        assert close(got, expected), difference(got, expected)
        counts.append(lowered.count("weight_gradient"))
    # Copies of the cotangent, or of both, are code of their own; so are 16 channels, and 40, which are no multiple.
    assert counts == [1, 0, 1, 0, 1, 0, 1, 1]


@pytest.mark.parametrize(("taps", "stride", "pad"), [((3, 3), 2, 1), ((3, 3), 1, 0), ((3, 1), 2, (1, 0))])
def test_images_of_other_sizes_share_a_kernel(taps, stride, pad, object_cache, lowered):
    """Also of other batches. Sizes of which a stride leaves others over have code of their own."""
    counts = kernels_written(lowered, 256, taps, stride, pad)
    assert counts == [1, 0, int(stride == 2), 0]


def test_images_of_three_channels_share_a_kernel(object_cache, lowered):
    assert kernels_written(lowered, 3, (3, 3), 1, 1) == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("channels", "filters", "size", "copied", "ahead"),
    [(3, 64, 224, (False, True), True), (3, 32, 224, (False, False), True), (128, 256, 28, (True, True), False)],
)
def test_strided_layers(channels, filters, size, copied, ahead):
    """Long rows of the cotangent are copied, and fetched ahead; of many channels, tiles are those of all layers, in
    blocks that fill half of the first-level cache."""
    graph = gradient((size, size), channels, filters, (3, 3), stride=2, low=1, high=1, batch=16)
    selected = run_passes(graph, ["fuse", ("select", {"winograd": False})], target=targets.named("x86-64-v3"))
    (plan,) = (p for op in selected.ops if isinstance(p := KERNEL.of(op), WeightGradient))
    assert ((plan.copies_x, plan.copies_g), plan.ahead) == (copied, ahead)
    assert channels == 3 or plan.tile[:2] == (6, 16) and plan.block == 6


def kernels_written(lowered, channels, taps, stride, pad):
    """How many kernels were written for each of four batches of images, after those before. Their results are right."""
    rng, target = np.random.default_rng(0), runnable("x86-64-v3")
    counts = []
    for batch, size in enumerate(((16, 12), (12, 20), (13, 9), (17, 11)), 3):
        graph = backward(size, channels, 64, taps, batch=batch, stride=stride, low=pad, high=pad)
        inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
        lowered.clear()
        (got,), _ = compile_graph(graph, target=target, pipeline=pipeline(winograd=False)).run(inputs)
        (expected,), _ = evaluate(graph, inputs)
        assert close(got, expected), difference(got, expected)
        counts.append(lowered.count("weight_gradient"))
    return counts


def test_pointwise_layers_of_any_size_share_a_kernel(object_cache, lowered):
    rng = np.random.default_rng(0)
    counts = []
    for size, channels, filters in (((32, 32), 96, 96), ((56, 56), 96, 96), ((32, 64), 48, 96)):
        graph = backward(size, channels, filters, (1, 1))
        inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
        lowered.clear()
        (got,), _ = compile_graph(graph).run(inputs)
        (expected,), _ = evaluate(graph, inputs)
        assert close(got, expected), difference(got, expected)
        counts.append(lowered.count("weight_gradient"))
    assert counts == [1, 0, 0]


def test_channels_that_differ_share_a_kernel_by_winograd(object_cache, lowered, planned):
    rng = np.random.default_rng(0)
    counts = []
    for channels, filters in ((32, 64), (48, 96), (272, 80), (64, 256), (40, 64)):
        planned(4, 4, 5, 16, 20)
        graph = backward((9, 8), channels, filters, (3, 3), batch=5, low=1, high=1)
        inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
        lowered.clear()
        (got,), _ = compile_graph(graph).run(inputs)
        (expected,), _ = evaluate(graph, inputs)
        assert difference(got, expected) < WITHIN
        counts.append(lowered.count("winograd_gradient"))
    assert counts == [1, 0, 0, 0, 1]


@pytest.mark.parametrize("padding", [1, 3])
def test_images_of_other_sizes_share_a_kernel_by_winograd(padding, object_cache, lowered, planned):
    rng = np.random.default_rng(0)
    counts = []
    for size, batch, block in (((8, 8), 5, 20), ((12, 16), 3, 12), ((7, 13), 7, 10)):
        planned(4, 4, 5, 16, block)
        graph = backward(size, 32, 64, (3, 3), batch=batch, low=padding, high=padding)
        inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
        lowered.clear()
        (got,), _ = compile_graph(graph).run(inputs)
        (expected,), _ = evaluate(graph, inputs)
        assert difference(got, expected) < WITHIN
        counts.append(lowered.count("winograd_gradient"))
    assert counts == [1, 0, 0]


@pytest.mark.parametrize(
    "case",
    [
        "many rows",
        "long rows of the cotangent",
        "far pixels of both",
        "pointwise, more than the near caches hold",
    ],
)
def test_any_number_of_threads_gives_the_same_bits(case):
    graph = CASES[case]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    one, *others = (run_selected(graph, inputs, runnable("host"), n).outputs[0].tobytes() for n in (1, 2, 3, 5))
    assert all(bits == one for bits in others)


def test_any_number_of_threads_gives_the_same_bits_by_winograd(planned):
    """They have to meet, so they are those of a program."""
    planned(4, 4, 5, 16, 20)
    graph = backward((14, 15), 40, 72, (3, 3), batch=4, low=1, high=1)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    (expected,), _ = evaluate(graph, inputs)
    compiled = compile_graph(graph)
    before = threads.get_num_threads()
    found = []
    try:
        for count in (1, 2, 4):
            threads.set_num_threads(count)
            found.append(compiled.run(inputs)[0][0])
    finally:
        threads.set_num_threads(before)
    assert difference(found[0], expected) < WITHIN
    assert len({y.tobytes() for y in found}) == 1


def test_many_equal_terms():
    """All sums of blocks round alike: of these 784, one after the other, to 1e-5."""
    graph = gradient((112, 112), 32, 32, (1, 1), batch=4)
    x, g = (np.ones(v.shape, np.float32) for v in graph.inputs)
    x *= np.random.default_rng(0).uniform(1, 2, x.shape[1]).astype(np.float32)[:, None, None]
    run = run_selected(graph, [x, g], runnable("host"))
    assert "weight_gradient" in run.kernels
    expected = np.broadcast_to(x[0, :, 0, 0] * (4 * 112 * 112.0), (32, 32))[..., None, None]
    assert difference(run.outputs[0], expected) < 3e-6


def test_half_precision_sums_in_float32():
    graph = backward((6, 6), 4, 9, (3, 3), low=1, high=1, dtype=F16)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(np.float16) for v in graph.inputs]
    (expected,), _ = evaluate(graph, inputs)
    (got,), _ = compile_graph(graph).run(inputs)
    assert np.abs(got.astype(float) - expected).max() <= 2e-3 * np.abs(expected).max()


def open_gradient(image, stride, channels):
    """The graph of a gradient, channels last, of any batch and, if `image` is "open", of any size of images."""
    b = Builder("g", "legal")
    n, h, w = map(named, "nhw") if image == "open" else (named("n"), 9, 17)
    x = b.input("x", TensorType(F32, (n, stride * h, stride * w, channels)))
    g = b.input("g", TensorType(F32, (n, h, w, 20)))
    one = (1, 1)
    attrs = {"stride": one, "low": one, "high": (2 - stride,) * 2, "dilation": (stride,) * 2, "input_dilation": one}
    y = b.conv(x, g, **attrs, groups=1, layout=("C01N", "I01O", "01NC"))
    assert y.shape == (3, 3, channels, 20)
    return b.build([y])


def check_sizes(kernel, image, nthreads):
    for size in ({"n": 2, "h": 2, "w": 3}, {"n": 3, "h": 9, "w": 17}, {"n": 40, "h": 5, "w": 2}):
        kernel.check({name: size[name] for name in (("n", "h", "w") if image == "open" else ("n",))}, nthreads)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("image", ["closed", "open"])
@pytest.mark.parametrize("channels", [5, 260])
def test_open_batches_and_images(stride, image, channels):
    """Targets take turns: each of two has every pair of settings."""
    target = TARGETS[(stride + (image == "open") + (channels == 260)) % len(TARGETS)]
    graph = open_gradient(image, stride, channels)
    check_sizes(Selected(graph, "weight_gradient", runnable(target), winograd=False), image, 3)


@pytest.mark.parametrize("image", ["closed", "open"])
def test_open_batches_and_images_by_winograd(image, planned):
    planned(4, 4, 5, 16, 20)
    target = TARGETS[(image == "open") % len(TARGETS)]
    check_sizes(Selected(open_gradient(image, 1, 21), "winograd_gradient", runnable(target)), image, 1)


@pytest.mark.parametrize(
    ("x", "w", "has"),
    [
        (("n", 3, 8, 8), (4, 3, 3, 3), False),
        ((2, 3, "n", "m"), (4, 3, 3, 3), False),
        ((2, "c", 8, 8), (4, "c", 3, 3), True),
        ((2, 3, 8, 8), ("c", 3, 3, 3), True),
    ],
)
def test_open_channels(x, w, has):
    """Of a convolution and its gradients, which are convolutions, too."""
    x, w = (tuple(named(n) if isinstance(n, str) else n for n in shape) for shape in (x, w))
    b = Builder("g")
    x, w = b.input("x", TensorType(F32, x)), b.input("w", TensorType(F32, w))
    attrs = dict.fromkeys(("stride", "low", "high", "dilation", "input_dilation"), (1, 1))
    forward = b.build([b.conv(x, w, **attrs, layout=("NC01", "OI01", "NC01"))])
    joint = run_passes(forward, "legalize-broadcast, differentiate {wrt = (0, 1)}, legalize-broadcast, cse, dce")
    assert has_open_channels(forward) == has
    assert has_open_channels(divide(joint).backward) == has
