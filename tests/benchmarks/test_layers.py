"""What the listing of a net's products counts."""

from benchmarks.layers import describe, flop
from gluonjit.codegen.target import named
from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.kernels.product_plans import Product
from gluonjit.passes import run_passes
from support.convolutions import conv


def product(graph, winograd=True):
    graph = run_passes(graph, ["fuse", ("select", {"winograd": winograd})], target=named("x86-64-v4"))
    # Transforming the weights is a product, too, and comes first.
    return [op for op in graph.ops if isinstance(KERNEL.of(op), Product)][-1]


def test_taps_on_padding_do_not_count():
    op = product(conv((5, 5), 4, 8, 3, low=1, high=1), winograd=False)
    assert describe(op) == "3x3 4 -> 8 @5x5"
    assert flop(op) == 2 * 13 * 13 * 4 * 8  # along an axis 2 + 3 + 3 + 3 + 2 taps read something


def test_a_transform_has_its_own_multiplications():
    op = product(conv((40, 42), 64, 64, 3, low=1, high=1))
    assert KERNEL.of(op).outputs == (4, 4)
    assert flop(op) == 2 * 10 * 11 * 36 * 64 * 64


def test_a_convolution_of_one_pixel_is_a_product():
    op = product(conv((6, 7), 16, 48, 1))
    assert describe(op) == "42 x 48 x 16"
    assert flop(op) == 2 * 42 * 48 * 16
