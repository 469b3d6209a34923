"""Matrix products with open extents: one kernel, called with many sizes, against NumPy."""

import pytest

from gluonjit.codegen.target import named
from gluonjit.ir.annotations import KERNEL, SCRATCH
from gluonjit.ir.dims import named as dim
from gluonjit.ir.graph import Builder
from gluonjit.ir.kernels.product_plans import Matmul
from gluonjit.ir.types import F32, F64, TensorType
from gluonjit.passes.select_matmul import unpack
from gluonjit.passes.tiling import register_tile
from support.open_kernels import OpenKernel
from support.selected import TARGETS, in_turn, runnable

N, L = dim("n"), dim("l")
SIZES = (2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 64)


def dense(m, k, n, tile, target, epilogue=None, batch=(), **notes):
    """[batch…, m, k] times packed weights [batch…, P, k, columns], and an epilogue."""
    columns = tile[1]
    b = Builder("body", "fused")
    x = b.input("x", TensorType(F32, (*batch, m, k)))
    w = b.input("w", TensorType(F32, (*batch, -(-n // columns), k, columns)))
    axes = tuple(range(len(batch)))
    inner = (len(batch) + 1,), (len(batch),)
    y = b.dot_general(x, unpack(b, w, batch, k, n), contract=inner, batch=(axes, axes))
    if epilogue:
        y = epilogue(b, y)
    notes = KERNEL(plan := Matmul(*tile, packed=True, **notes))
    if plan.part:
        notes |= SCRATCH(plan.block * plan.rows * w.shape[-3] * columns * F32.itemsize)
    return OpenKernel(b.build([y]), notes, ("n", "l"), target)


def bias_residual_relu(b, y):
    bias = b.input("bias", TensorType(F32, y.shape[-1:]))
    y = b.add(y, b.broadcast(bias, shape=y.shape))
    y = b.add(y, b.input("residual", y.type))
    return b.maximum(y, b.broadcast(b.constant(0, F32), shape=y.shape))


@pytest.mark.parametrize(("rows", "target"), in_turn([1, 6, 8]))
@pytest.mark.parametrize("part", [0, 10])
def test_an_open_number_of_rows(rows, target, part):
    target = runnable(target)
    kernel = dense(N, 30 if part else 19, 37, (rows, 2 * target.lanes(F32), 2), target, bias_residual_relu, part=part)
    for n in SIZES:
        kernel.check({"n": n, "l": 2}, 3)


@pytest.mark.parametrize(
    ("m", "rows", "block"),
    [
        (N * L, 7, 3),
        (7 * N, 14, 3),
        (12 * N, 8, 2),
        (7 * N, 7, 20),
        (N - 1, 4, 1),
        (49 * N * L + 14, 14, 4),
        (3 * N + 1, 6, 2),
    ],
)
def test_rows_that_are_other_polynomials(m, rows, block):
    target = runnable("host")
    kernel = dense(m, 19, 37, (rows, 2 * target.lanes(F32), block), target, bias_residual_relu)
    for n, l in [(2, 2), (3, 7), (5, 3), (16, 2), (17, 5)]:
        kernel.check({"n": n, "l": l}, 3)


@pytest.mark.parametrize(("batch", "m"), [((N,), 5), ((N, L), 5), ((3, N), L), ((N,), 5 * L)])
def test_an_open_number_of_products(batch, m):
    target = runnable("host")
    kernel = dense(m, 19, 37, (4, 2 * target.lanes(F32), 1), target, bias_residual_relu, batch)
    for n, l in [(2, 2), (3, 7), (5, 3), (16, 2)]:
        kernel.check({"n": n, "l": l}, 3)


def product(batch, m, k, n, tile, target, epilogue=None, dtype=F32):
    """[batch…, m, k] times [batch…, k, n], not packed."""
    b = Builder("body", "fused")
    x, y = b.input("x", TensorType(dtype, (*batch, m, k))), b.input("y", TensorType(dtype, (*batch, k, n)))
    axes = tuple(range(len(batch)))
    z = b.dot_general(x, y, contract=((len(batch) + 1,), (len(batch),)), batch=(axes, axes))
    if epilogue:
        z = epilogue(b, z)
    return OpenKernel(b.build([z]), KERNEL(Matmul(*tile)), ("n", "l"), target)


LENGTHS = ((2, 2), (2, 3), (3, 5), (2, 7), (3, 8), (2, 13), (2, 16), (3, 17), (2, 31), (2, 33), (2, 64))


@pytest.mark.parametrize(("rows", "target"), in_turn([8, 1, 3]))
def test_scores_of_attention(rows, target):
    """[n·heads, l, d] by [n·heads, d, l]: rows and columns are open, and so is the distance of the latter's rows."""
    target = runnable(target)

    def scaled(b, y):
        return b.mul(y, b.broadcast(b.constant(0.25, F32), shape=y.shape))

    kernel = product((3 * N,), L, 20, L, (rows, 2 * target.lanes(F32), 2), target, scaled)
    for n, l in LENGTHS:
        kernel.check({"n": n, "l": l}, 3)


@pytest.mark.parametrize("target", TARGETS)
def test_mixtures_of_attention(target):
    """[n·heads, l, l] by [n·heads, l, d]: rows and terms are open."""
    target = runnable(target)
    kernel = product((3 * N,), L, L, 40, (6, 2 * target.lanes(F32), 2), target, bias_residual_relu)
    for n, l in LENGTHS:
        kernel.check({"n": n, "l": l}, 3)
    for l in (127, 128, 129, 300, 1000):
        kernel.check({"n": 2, "l": l})


@pytest.mark.parametrize("dtype", [F32, F64])
def test_all_extents_are_open(dtype):
    target = runnable("host")
    kernel = product((), N, L, N + L, (4, 2 * target.lanes(dtype), 2), target, dtype=dtype)
    for n, l in [*LENGTHS, (64, 3), (33, 200), (5, 1000)]:
        kernel.check({"n": n, "l": l}, 2)


def test_rows_of_which_there_may_be_one():
    kernel = product((), N - 1, 5, L, (8, 16, 4), runnable("host"))
    for n in (2, 3, 4, 8, 9, 10, 26):
        kernel.check({"n": n, "l": 7}, 2)


def test_few_rows_of_few_columns():
    """One row of one vector, whose partial sums are several chains."""
    target = runnable("host")
    kernel = product((), 1, L, N, (1, target.lanes(F32), 1), target)
    for n, l in [*LENGTHS, (5, 1000)]:
        kernel.check({"n": n, "l": l}, 2)


def test_packed_weights_for_open_terms():
    target = runnable("host")
    kernel = dense(N, L, 37, (6, 2 * target.lanes(F32), 2), target, bias_residual_relu)
    for n, l in [*LENGTHS, (5, 1000)]:
        kernel.check({"n": n, "l": l}, 2)


def test_panels_from_the_last_to_the_first():
    """If one tile has all rows, which sizes tell."""
    target = runnable("host")
    tile = (6, 2 * target.lanes(F32), 8)
    kernel = dense(N, 19, 200, tile, target, reversed=True)
    for n in (2, 6, 7, 20):
        kernel.check({"n": n, "l": 2}, 3)


def test_panels_are_alike_where_there_is_code_for_every_height():
    """512 columns are panels of 48 and one of 32, or panels of 32 in about the same time."""
    target = named("x86-64-v4")
    assert register_tile(16, 512, 512, 2048, F32, target) == (8, 48)
    assert register_tile(16, 512, 512, 2048, F32, target, alike=True) == (8, 32)
