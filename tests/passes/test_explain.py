"""What `explain` says of a graph: every kernel once, and the reason that the selection had."""

import pytest

from gluonjit.codegen.target import named
from gluonjit.ir.graph import Builder
from gluonjit.ir.text import parse_graph
from gluonjit.ir.types import F32, TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.explain import explain, table
from support.convolutions import conv

TARGET = named("x86-64-v3")


def rows(graph):
    return explain(run_passes(graph, "fuse, select, hoist, views, threads", target=TARGET), TARGET)


@pytest.mark.parametrize(
    ("graph", "kernel", "what", "why"),
    [
        (conv((28, 28), 64, 64, 3, low=1, high=1), "winograd", "3×3, 64 -> 64 @28×28", "times as fast as directly"),
        (conv((28, 28), 64, 64, 3, stride=2), "conv", "3×3 /2, 64 -> 64 @13×13", "no transform for strides"),
        (conv((9, 9), 4, 8, 3), "conv", "3×3, 4 -> 8 @7×7", "a transform saves too little"),
        (conv((28, 28), 1, 2, 5), "planar", "5×5, 1 -> 2 @24×24", "lanes are pixels"),
        (conv((14, 14), 32, 32, 3, groups=32), "depthwise", "3×3, 32 groups, 32 -> 32 @12×12", "lanes are channels"),
        (conv((14, 14), 64, 32, 1), "matmul", "196×32, sums of 64", "bound by"),
    ],
    ids=["winograd", "stride", "small", "planar", "depthwise", "1x1"],
)
def test_convolutions(graph, kernel, what, why):
    row = rows(graph)[-1]
    assert (row.kernel, row.what) == (kernel, what)
    assert why in row.why and row.tile and row.microseconds > 0


def test_a_transform_is_expected_to_be_faster():
    graph = conv((28, 28), 64, 64, 3, low=1, high=1)
    direct = run_passes(graph, "fuse, select {winograd = False}", target=TARGET)
    assert rows(graph)[-1].microseconds < 0.9 * explain(direct, TARGET)[-1].microseconds


def test_loops_concats_and_views():
    graph = parse_graph(
        """graph @g(%x: f32[8,32], %y: f32[2,4]) level legal {
          %a = exp(%x) %b = log(%x) %c = concat(%a, %b) {axis = 1}
          %d = cumsum(%c) {axis = 0} %r = reshape(%d) {shape = (16, 32)} %s = transpose(%r) {perm = (1, 0)}
          return %s
        }"""
    )
    found = rows(graph)
    assert [r.kernel for r in found] == ["loops", "loops", "sequential", "loops"]
    assert "written into a concat" in found[0].why and "too small to share" in found[0].why
    assert "one element after the other" in found[2].why
    text = table(run_passes(graph, "fuse, select, hoist, views, threads", target=TARGET), TARGET)
    assert text.splitlines()[0].split() == ["kernel", "what", "tile", "µs", "why"]
    assert "4 kernels" in text and "2 views" in text


def test_calls_tell_which_kernels_they_run():
    graph = parse_graph(
        """graph @g(%x: f32[8,32], %w: f32[32,32]) level legal {
          %y, %z = call(%x, %w) {captured = 1} (@f(%x: f32[8,32], %w: f32[32,32]) {
            %p = dot_general(%x, %w) {contract = ((1,), (0,))} %e = exp(%x) %s = cumsum(%e) {axis = 0} return %p, %s
          })
          return %y, %z
        }"""
    )
    row = next(r for r in rows(graph) if r.kernel == "call")
    assert row.what == "of matmul, loops, sequential -> f32[8,32]"


def test_open_dimensions():
    graph = parse_graph(
        """graph @g(%x: f32[n,l,64], %w: f32[32,64]) level legal {params = (1,)} {
          %y = dot_general(%x, %w) {contract = ((2,), (1,))} %z = dot_general(%y, %y) {contract = ((2,), (2,)),
          batch = ((0,), (0,))} return %z
        }"""
    )
    planned = run_passes(graph, "fuse, select, hoist, views, threads", target=TARGET)
    found = explain(planned, TARGET)
    assert [r.what for r in found] == ["l*n×32, sums of 64", "transpose -> f32[n,32,l]", "n × l×l, sums of 32"]
    assert "expected on one core (for l = n = 16), work for up to 256 threads" in table(planned, TARGET)


def test_alternatives_of_a_convolution():
    """The chosen algorithm is the one that is expected to be the fastest; so is the tile."""
    row = rows(conv((28, 28), 64, 64, 3, low=1, high=1))[-1]
    assert [a.what for a in row.alternatives] == ["directly", "F(2×2)", "F(2×4)", "F(4×2)", "F(4×4)"]
    (chosen,) = (a for a in row.alternatives if a.chosen)
    assert chosen == min(row.alternatives, key=lambda a: a.microseconds)
    row = rows(conv((14, 14), 64, 32, 1))[-1]
    first, *others = row.alternatives
    assert first.chosen and first.what == "tiles of " + "×".join(row.tile.split("×")[:2])
    assert others and all(a.kind == "tile" and a.microseconds >= first.microseconds and not a.chosen for a in others)


def weight_gradient(size, channels, filters, taps, stride):
    """Of a convolution by filters of taps × taps, over 2 images; `size`: of its result."""
    inner = tuple((n - 1) * stride + taps for n in size)
    b = Builder("g")
    x = b.input("x", TensorType(F32, (2, *inner, channels)))
    g = b.input("g", TensorType(F32, (2, *size, filters)))
    window = dict.fromkeys(("low", "high"), (0, 0)) | dict.fromkeys(("stride", "input_dilation"), (1, 1))
    y = b.conv(x, g, **window, dilation=(stride, stride), layout=("C01N", "I01O", "01NC"))
    return run_passes(b.build([y]), "legalize-broadcast")


def test_gradients_of_weights_are_named_by_their_convolution():
    row = rows(weight_gradient((8, 10), 16, 32, 3, 1))[-1]
    assert (row.kernel, row.what) == ("weight_gradient", "gradient of 3×3, 16 -> 32 @8×10")
    first, *others = row.alternatives
    assert first.chosen and others and first.what == "tiles of " + "×".join(row.tile.split("×")[:2])
    assert "each weight" in row.why and "copies" not in row.why
    by_winograd = rows(weight_gradient((28, 28), 64, 64, 3, 1))[-1]
    assert (by_winograd.kernel, by_winograd.what) == ("winograd_gradient", "gradient of 3×3, 64 -> 64 @28×28")
    assert [a.what for a in by_winograd.alternatives] == ["directly", "F(2×2)", "F(4×4)"]
    assert "times as fast as directly" in by_winograd.why
    strided = rows(weight_gradient((56, 56), 64, 64, 3, 2))[-1]
    assert rows(weight_gradient((12, 12), 24, 96, 1, 1))[-1].what == "gradient of a product, 24 -> 96, sums of 288"
    assert strided.what == "gradient of 3×3 /2, 64 -> 64 @56×56" and "copies pixels of the input" in strided.why


def test_no_alternatives_where_shapes_decide():
    assert rows(conv((14, 14), 32, 32, 3, groups=32))[-1].alternatives == []
    assert rows(parse_graph("graph @f(%x: f32[8,8]) level legal { %y = tanh(%x) return %y }"))[-1].alternatives == []
