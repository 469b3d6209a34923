"""Which tiles Winograd kernels get, for targets that are the same everywhere."""

from dataclasses import replace

import pytest

from gluonjit.codegen.target import named
from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.graph import Builder
from gluonjit.ir.kernels.product_plans import Matmul, Winograd
from gluonjit.ir.types import F32, TensorType
from gluonjit.passes import tiling
from gluonjit.passes.select_winograd import transformed_weights
from gluonjit.passes.tiling_winograd import Problem, tiles_together, winograd_tile, working_memory

WIDE = replace(named("x86-64-v4"), l1=48 << 10, l2=1 << 20, l3=32 << 20)
SHAPES = [(1, 56, 64, 64), (1, 224, 64, 64), (1, 28, 128, 32), (1, 14, 512, 512), (16, 14, 256, 256), (3, 9, 20, 24)]


def problem(images, size, depth, filters):
    return Problem(images, (size, size), (3, 3), 1.0, depth, filters, F32)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_register_tiles_fit(shape, target):
    target = named(target)
    tile = winograd_tile(problem(*shape), target)
    if tile is not None:
        vectors = tile.columns // target.lanes(F32)
        assert tiling.registers(tile.rows, vectors, target) <= target.num_vector_registers


def test_many_tiles_go_in_blocks_and_many_weights_together():
    for shape in ((1, 56, 64, 64), (1, 56, 256, 256), (16, 28, 128, 128), (16, 14, 256, 256)):
        tile = winograd_tile(problem(*shape), WIDE)
        assert tile.block > 0, "transformed tiles would all go through memory"
        assert working_memory(problem(*shape), tile, WIDE).transformed < WIDE.l3 // 2
    for shape in ((1, 14, 512, 512), (1, 7, 512, 512)):
        assert winograd_tile(problem(*shape), WIDE).block == 0, "each thread would read all weights"


def test_an_open_batch_goes_in_blocks_if_its_fewest_images_do():
    """And where it does not, the memory for what lies between the steps is bounded."""
    for shape, blocks in (((16, 56, 64, 64), True), ((16, 14, 256, 256), False), ((16, 7, 512, 512), False)):
        some = problem(*shape)._replace(least=2)
        tile = winograd_tile(some, WIDE)
        assert (tile.block > 0) == blocks
        count = tiles_together(some, tile, WIDE)
        weights = 36 * 4 * some.depth * some.filters
        together = working_memory(some, replace(tile, block=-count), WIDE)
        assert blocks or (1 < count and together.transformed <= max(2 * WIDE.l2, weights // 3))


def test_weights_decide_on_the_size_of_tiles():
    """36 / 9 times the filters' bytes are worth it for many pixels, not for few."""
    assert winograd_tile(problem(1, 56, 64, 64), WIDE).outputs == (4, 4)
    assert winograd_tile(problem(1, 7, 512, 512), WIDE).outputs == (2, 2)


def test_two_threads_share_the_register_tiles_evenly():
    """196 tiles are 14 register tiles of 14, 7 for each; in twelves, one thread would have one more than the other."""
    tile = winograd_tile(problem(1, 56, 256, 256), WIDE)
    assert -(-196 // tile.rows) % 2 == 0


@pytest.mark.parametrize(("taps", "together"), [(3, False), (5, True)])
def test_few_taps_are_read_again_for_every_tile_of_positions(taps, together):
    b = Builder("g", "fused")
    w = b.input("w", TensorType(F32, (taps, taps, 64, 64)))
    graph = b.build([transformed_weights(b, w, Winograd(2, 2, 6, 16, 1), named("x86-64-v3"))])
    (plan,) = (plan for op in graph.ops if isinstance(plan := KERNEL.of(op), Matmul))
    assert plan.block == (-(-((taps + 1) ** 2) // plan.rows) if together else 1)
