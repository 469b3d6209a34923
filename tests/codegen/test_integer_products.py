"""Products of 8-bit integers, which kernels multiply as pairs of 16-bit ones: native equals NumPy's exactly."""

import pickle

import numpy as np
import pytest

from gluonjit.codegen.kernels import tiles
from gluonjit.codegen.program import lower_kernel
from gluonjit.codegen.target import named
from gluonjit.codegen.text import llvm
from gluonjit.ir.dims import named as named_size
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import F16, F32, F64, I8, I16, I32, I64, U8, IRError, TensorType, dtype, dtype_of
from gluonjit.passes import run_passes
from gluonjit.runtime.compiler import compile_graph
from support.selected import TARGETS, in_turn, kernel_name, run_selected, runnable


def bytes_of(rng, v):
    low, high = {U8: (0, 256), I8: (-128, 128)}.get(v.dtype, (-1000, 1000))
    return rng.integers(low, high, v.shape).astype(v.dtype.numpy)


def check(graph, target, kernel, nthreads=2):
    """Results equal the reference's, and so does the rewritten graph as plain primitives."""
    rng = np.random.default_rng(0)
    inputs = [bytes_of(rng, v) for v in graph.inputs]
    expected = evaluate(graph, inputs)[0]
    run = run_selected(graph, inputs, target, nthreads)
    assert [k for k in run.kernels if k != "loops"] == kernel
    for native, again, reference in zip(run.outputs, evaluate(run.graph, inputs)[0], expected, strict=True):
        np.testing.assert_array_equal(native, reference)
        np.testing.assert_array_equal(again, reference)


def plain(b, y):
    return y


def requantized(b, y):
    """What follows a quantized layer: a bias, and the sums as bytes."""
    bias = b.broadcast(b.input("bias", TensorType(I32, y.shape[-1:])), shape=y.shape)
    scaled = b.mul(b.cast(b.add(y, bias), dtype=F32), b.broadcast(b.constant(2e-4, F32), shape=y.shape))
    low, high = (b.broadcast(b.constant(v, F32), shape=y.shape) for v in (-127.0, 127.0))
    return b.cast(b.rint(b.minimum(b.maximum(scaled, low), high)), dtype=I8)


def dense(m, n, k, after=plain, own=I8, params=(1,)):
    b = Builder("dense", "legal")
    x, w = b.input("x", TensorType(own, (m, k))), b.input("w", TensorType(I8, (n, k)))
    y = b.dot_general(b.cast(x, dtype=I16), b.cast(w, dtype=I16), contract=((1,), (1,)), dtype=I32)
    return b.build([after(b, y)], {"params": params})


def conv(size, channels, filters, taps, after=plain, groups=1, stride=1, low=0, dilation=1, batch=2, params=(1,)):
    n = len(size)
    b = Builder("conv", "legal")
    spatial = "01"[:n]
    x = b.input("x", TensorType(U8, (batch, *size, channels)))
    w = b.input("w", TensorType(I8, (*(taps,) * n, channels // groups, filters)))
    y = b.conv(
        b.cast(x, dtype=I16),
        b.cast(w, dtype=I16),
        stride=(stride,) * n,
        low=(low,) * n,
        high=(low,) * n,
        dilation=(dilation,) * n,
        input_dilation=(1,) * n,
        groups=groups,
        layout=(f"N{spatial}C", f"{spatial}IO", f"N{spatial}C"),
        dtype=I32,
    )
    return b.build([after(b, y)], {"params": params})


PRODUCTS = [
    dense(1, 1, 1),
    dense(7, 33, 5, requantized),
    dense(1, 257, 64, own=U8),
    dense(101, 97, 13, params=()),
    dense(51, 24, 2300, requantized, own=U8),
    dense(64, 48, 64, requantized, params=()),
]
CONVOLUTIONS = [
    conv((9, 17), 3, 20, 3, requantized, low=1),
    conv((9, 17), 16, 24, 3, low=1, stride=2),
    conv((9, 11), 12, 18, 3, requantized, groups=3, low=2, dilation=2),
    conv((30,), 5, 9, 4, low=3, params=()),
]


@pytest.mark.parametrize(("graph", "target"), in_turn(PRODUCTS))
def test_matrix_products(graph, target):
    check(graph, runnable(target), ["matmul"])


@pytest.mark.parametrize(("graph", "target"), in_turn(CONVOLUTIONS))
def test_convolutions(graph, target):
    check(graph, runnable(target), ["conv"])


def test_a_convolution_of_pixels_is_a_product_and_that_of_single_channels_is_left_to_loops():
    check(conv((5, 6), 7, 9, 1), runnable("host"), ["matmul"])
    check(conv((5, 6), 6, 6, 3, groups=6), runnable("host"), [])


@pytest.mark.parametrize("target", TARGETS)
def test_sums_wrap(target):
    b = Builder("product", "legal")
    x, w = b.input("x", TensorType(I16, (5, 6))), b.input("w", TensorType(I16, (6, 9)))
    graph = b.build([b.dot_general(x, w, contract=((1,), (0,)), dtype=I32)])
    least = [np.full(v.shape, -(2**15), np.int16) for v in graph.inputs]
    run = run_selected(graph, least, runnable(target), 1)
    assert run.kernels == ["loops", "matmul"]
    np.testing.assert_array_equal(run.outputs[0], np.full((5, 9), -(2**31), np.int32))


def test_machines_without_an_instruction_for_pairs_multiply_their_halves(monkeypatch):
    monkeypatch.setattr(tiles, "pair_products", lambda machine: None)
    check(dense(7, 33, 5, requantized), runnable("host"), ["matmul"])


@pytest.mark.parametrize(
    ("target", "instruction"),
    [("x86-64-v3", "vpmaddwd"), ("x86-64-v4", "vpmaddwd"), ("znver4", "vpdpwssd"), ("aarch64", "mla")],
)
def test_pairs_are_multiplied_by_one_instruction(target, instruction):
    machine = named(target)
    graph = run_passes(dense(64, 48, 64), "fuse, select", target=machine)
    module = llvm.Module(machine)
    lower_kernel("kernel", next(op for op in graph.ops if kernel_name(op) == "matmul"), module)
    assert f"\t{instruction}\t" in llvm.assembly(module.text(), machine)


def test_rows_an_odd_distance_apart_are_copied_first():
    """As rows of pairs, half an element would be lost."""
    for width in (11, 12):
        b = Builder("product", "legal")
        x, w = b.input("x", TensorType(I8, (9, width))), b.input("w", TensorType(I8, (5, 8)))
        wide = b.slice(b.cast(x, dtype=I16), start=(0, 1), size=(9, 8))
        y = b.dot_general(wide, b.cast(w, dtype=I16), contract=((1,), (1,)), dtype=I32)
        graph = b.build([y, b.cast(x, dtype=I32)], {"params": (1,)})
        inputs = [bytes_of(np.random.default_rng(width), v) for v in graph.inputs]
        np.testing.assert_array_equal(compile_graph(graph).run(inputs)[0][0], evaluate(graph, inputs)[0][0])


@pytest.mark.parametrize(
    ("own", "wide", "kernel"), [(I16, I64, ""), (F32, F64, ""), (F16, F32, "matmul"), (I16, I16, "")]
)
def test_sums_of_a_type_that_kernels_do_not_have_are_left_to_loops(own, wide, kernel):
    b = Builder("product", "legal")
    x, w = b.input("x", TensorType(own, (9, 40))), b.input("w", TensorType(own, (40, 24)))
    graph = b.build([b.dot_general(x, w, contract=((1,), (0,)), dtype=wide)])
    inputs = [np.random.default_rng(k).integers(-60, 60, v.shape).astype(own.numpy) for k, v in enumerate(graph.inputs)]
    run = run_selected(graph, inputs, runnable("host"))
    assert ("matmul" in run.kernels) is bool(kernel)
    expected = evaluate(graph, inputs)[0][0]
    assert expected.dtype == wide.numpy
    np.testing.assert_array_equal(compile_graph(graph).run(inputs)[0][0], expected)


def test_an_open_number_of_terms_is_left_to_loops():
    selected = run_passes(open_terms(), "fuse, select", target=named("x86-64-v3"))
    assert "loops" in map(kernel_name, selected.ops) and "matmul" not in map(kernel_name, selected.ops)
    compiled, rng = compile_graph(open_terms()), np.random.default_rng(0)
    for k in (1, 6, 31):
        x, w = rng.integers(-128, 128, (4, k)).astype(np.int8), rng.integers(-128, 128, (5, k)).astype(np.int8)
        np.testing.assert_array_equal(compiled.run([x, w])[0][0], x.astype(np.int32) @ w.T.astype(np.int32))


def open_terms():
    b = Builder("product", "legal")
    x, w = (b.input(name, TensorType(I8, (rows, named_size("k")))) for name, rows in (("x", 4), ("w", 5)))
    return b.build([b.dot_general(b.cast(x, dtype=I16), b.cast(w, dtype=I16), contract=((1,), (1,)), dtype=I32)])


def test_no_program_names_their_type():
    for name in ("i16", "int16", np.int16, np.dtype(np.int16)):
        with pytest.raises(IRError, match="unsupported element type"):
            dtype(name)
    assert pickle.loads(pickle.dumps(I16)) is I16 is dtype_of(np.zeros(1, np.int16))


def test_through_the_whole_pipeline():
    graph = conv((9, 9), 3, 20, 3, requantized, low=1)
    rng = np.random.default_rng(1)
    inputs = [bytes_of(rng, v) for v in graph.inputs]
    np.testing.assert_array_equal(compile_graph(graph).run(inputs)[0][0], evaluate(graph, inputs)[0][0])
