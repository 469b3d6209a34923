"""Matrix products: native against NumPy."""

import re

import numpy as np
import pytest

from gluonjit.codegen.kernels.matmul_sizes import any_product
from gluonjit.codegen.program import lower_kernel
from gluonjit.codegen.target import named
from gluonjit.codegen.text import llvm
from gluonjit.ir.annotations import KERNEL, SCRATCH
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate, evaluate_op
from gluonjit.ir.kernels.product_plans import Matmul
from gluonjit.ir.structure import op_key
from gluonjit.ir.types import BF16, BOOL, F16, F32, F64, I32, TensorType
from gluonjit.passes import run_passes
from gluonjit.runtime.arenas import aligned_copy
from gluonjit.runtime.compiler import compile_graph
from support.compare import close, difference
from support.kernels import guarded, loaded
from support.selected import TARGETS, kernel_name, run_selected, runnable


def inputs_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal(v.shape) > 0 if v.dtype is BOOL else rng.standard_normal(v.shape)).astype(v.dtype.numpy)
        for v in graph.inputs
    ]


def check(graph, target, kernels, nthreads=1):
    """Native results equal the reference's, and so does the rewritten graph as plain primitives."""
    inputs = inputs_of(graph)
    expected = evaluate(graph, inputs)[0]
    run = run_selected(graph, inputs, target, nthreads)
    assert run.kernels == kernels
    rewritten = evaluate(run.graph, inputs)[0]
    for native, again, reference in zip(run.outputs, rewritten, expected):
        assert close(native, reference), difference(native, reference)
        assert close(again, reference)
    return run


def zeros(b, y, value=0):
    return b.broadcast(b.constant(value, y.dtype), shape=y.shape)


EPILOGUES = {
    "none": lambda b, y: y,
    "bias": lambda b, y: b.add(y, b.broadcast(b.input("bias", y.type.with_shape(y.shape[-1:])), shape=y.shape)),
    "relu": lambda b, y: b.maximum(EPILOGUES["bias"](b, y), zeros(b, y)),
    "residual": lambda b, y: b.add(EPILOGUES["relu"](b, y), b.input("residual", y.type)),
    "rows": lambda b, y: b.mul(
        y, b.broadcast(b.input("scale", y.type.with_shape(y.shape[:1])), shape=y.shape, dims=(0,))
    ),
    "scalar": lambda b, y: b.sub(y, b.broadcast(b.input("shift", y.type.with_shape(())), shape=y.shape)),
    "compare": lambda b, y: b.select(b.gt(y, zeros(b, y)), y, b.mul(y, zeros(b, y, 0.25))),
    "types": lambda b, y: b.cast(
        b.select(
            b.input("mask", TensorType(BOOL, y.shape)), y, b.cast(b.input("h", TensorType(F16, y.shape)), dtype=F32)
        ),
        dtype=F16,
    ),
    "test": lambda b, y: b.gt(y, zeros(b, y)),
    "costly": lambda b, y: b.sigmoid(EPILOGUES["bias"](b, y)),
}


def dense(m, n, k, epilogue="none", dtype=F32, params=(1,)):
    """FullyConnected: x [m, k] times w [n, k]."""
    b = Builder("dense", "legal")
    x, w = b.input("x", TensorType(dtype, (m, k))), b.input("w", TensorType(dtype, (n, k)))
    y = EPILOGUES[epilogue](b, b.dot_general(x, w, contract=((1,), (1,))))
    return b.build([y], {"params": params})


SHAPES = [
    (1, 1, 1),
    (1, 5, 128),
    (1, 257, 64),
    (7, 33, 5),
    (14, 32, 3),
    (29, 70, 17),
    (64, 64, 64),
    (101, 97, 13),
    (51, 24, 300),
    (3, 8, 200),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, n, k", SHAPES)
def test_shapes(m, n, k, target):
    check(dense(m, n, k, "relu"), runnable(target), ["loops", "matmul"], nthreads=3)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, n, k", [(2503, 40, 20), (801, 24, 160)])
def test_rows_that_no_near_cache_holds(m, n, k, target):
    run = check(dense(m, n, k, "residual", params=()), runnable(target), ["loops", "matmul"], nthreads=2)
    assert [plan.ahead for op in run.graph.ops if isinstance(plan := KERNEL.of(op), Matmul)] == [True]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("m", "n", "k"), [(157, 61, 2000), (131, 8, 9216)])
def test_long_sums_are_made_in_parts(m, n, k, target):
    graph = dense(m, n, k, "residual", params=())
    inputs = inputs_of(graph)
    alone, together = (run_selected(graph, inputs, runnable(target), n) for n in (1, 3))
    assert [p.part > 0 for op in alone.graph.ops if isinstance(p := KERNEL.of(op), Matmul)] == [True]
    assert close(alone.outputs[0], evaluate(graph, inputs)[0][0])
    np.testing.assert_array_equal(together.outputs[0], alone.outputs[0])


@pytest.mark.parametrize(("m", "n", "k"), [(9, 61, 4000), (101, 61, 4001), (101, 61, 700)])
def test_few_rows_or_terms_and_a_prime_number_of_terms_have_no_parts(m, n, k):
    selected = run_passes(dense(m, n, k), ["fuse", "select"], target=named("x86-64-v3"))
    assert [p.part for op in selected.ops if isinstance(p := KERNEL.of(op), Matmul)] == [0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_epilogues(epilogue, target):
    check(dense(19, 37, 11, epilogue), runnable(target), ["loops", "matmul"])


def test_a_tile_reads_its_residual_before_it_is_stored():
    # A load after a store whose address ends in the same bits, as a row a page away does, would wait for it.
    target = named("x86-64-v3")
    graph = run_passes(dense(12, 1024, 8, "residual"), "fuse, select", target=target)
    module = llvm.Module(target)
    lower_kernel("kernel", next(op for op in graph.ops if kernel_name(op) == "matmul"), module)
    blocks = [re.findall(r"store <|= load <", block) for block in re.split(r"\n(?=\S+:)", module.text())]
    finished = [accesses for accesses in blocks if accesses.count("store <") > 1]
    assert finished
    assert all("= load <" not in accesses[accesses.index("store <") :] for accesses in finished)


def test_a_residual_is_fetched_again_before_the_end_of_a_long_sum():
    target = named("x86-64-v3")

    def fetches(m, k):
        graph = run_passes(dense(m, 24, k, "residual"), "fuse, select", target=target)
        module = llvm.Module(target)
        lower_kernel("kernel", next(op for op in graph.ops if kernel_name(op) == "matmul"), module)
        return module.text().count(", i32 1, i32 3, i32 1)")  # lines to write

    # A small residual stays in the first-level cache, and few terms do not drive it from there.
    assert fetches(800, 200) == fetches(800, 80) * 2 > fetches(80, 200) == 0


@pytest.mark.parametrize("target", TARGETS)
def test_float64(target):
    check(dense(19, 37, 11, "residual", F64), runnable(target), ["loops", "matmul"])


def test_an_operand_that_is_no_parameter_is_packed_when_it_pays():
    target = runnable("host")
    b = Builder("product", "legal")
    x, y = b.input("x", TensorType(F32, (3, 40))), b.input("y", TensorType(F32, (40, 50)))
    check(b.build([b.dot_general(x, y, contract=((1,), (0,)))]), target, ["matmul"])
    b = Builder("product", "legal")
    x, y = b.input("x", TensorType(F32, (300, 40))), b.input("y", TensorType(F32, (40, 500)))
    check(b.build([b.dot_general(x, y, contract=((1,), (0,)))]), target, ["loops", "matmul"])


@pytest.mark.parametrize("m, n, k, kernels", [(70, 200, 40, ["matmul"]), (70, 1024, 40, ["loops", "matmul"])])
def test_a_panel_that_stays_in_the_first_cache_is_read_as_it_lies(m, n, k, kernels):
    """Rows that are a page apart would meet in one set of it. Some tiles prefetch rows that do not exist."""
    b = Builder("product", "legal")
    x, y = b.input("x", TensorType(F32, (m, k))), b.input("y", TensorType(F32, (k, n)))
    check(b.build([b.dot_general(x, y, contract=((1,), (0,)))]), runnable("host"), kernels, nthreads=2)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("epilogue", ["none", "residual"])
def test_operands_change_places_where_that_transposes_less(epilogue, target):
    """A layer that learns, with a small batch: its input and its result are transposed instead of its weights."""
    kernels = ["loops", "matmul", "loops"]
    check(dense(16, 150, 90, epilogue, params=()), runnable(target), kernels, nthreads=3)
    check(dense(150, 16, 90, epilogue, params=()), runnable(target), ["loops", "matmul"])


def test_operands_with_batches_and_several_axes_change_places():
    b = Builder("product", "legal")
    x, w = b.input("x", TensorType(F32, (2, 4, 5, 90))), b.input("w", TensorType(F32, (2, 3, 100, 90)))
    y = b.dot_general(x, w, contract=((3,), (3,)), batch=((0,), (0,)))
    y = b.mul(y, b.broadcast(b.input("scale", y.type.with_shape((5,))), shape=y.shape, dims=(2,)))
    check(b.build([y]), runnable("host"), ["loops", "matmul", "loops"])


@pytest.mark.parametrize("target", TARGETS)
def test_remainder_columns_of_an_unpacked_operand(target):
    b = Builder("product", "legal")
    x, y = b.input("x", TensorType(F32, (2, 3, 19))), b.input("y", TensorType(F32, (2, 19, 5)))
    product = b.dot_general(x, y, contract=((2,), (1,)), batch=((0,), (0,)))
    check(b.build([b.add(product, zeros(b, product, 1.5))]), runnable(target), ["matmul"], nthreads=2)


@pytest.mark.parametrize("seed", range(12))
def test_any_axes(seed):
    """Random batch, free and contracted axes in random order."""
    rng = np.random.default_rng(seed)
    counts = {"b": rng.integers(0, 3), "c": rng.integers(0, 3), "m": rng.integers(0, 3), "n": rng.integers(0, 3)}
    sizes = {f"{kind}{k}": int(rng.integers(1, 6)) for kind, count in counts.items() for k in range(count)}
    left = rng.permutation([a for a in sizes if a[0] in "bcm"]).tolist()
    right = rng.permutation([a for a in sizes if a[0] in "bcn"]).tolist()
    pairs = {kind: [a for a in left if a[0] == kind] for kind in "bc"}
    b = Builder("product", "legal")
    x = b.input("x", TensorType(F32, tuple(sizes[a] for a in left)))
    y = b.input("y", TensorType(F32, tuple(sizes[a] for a in right)))
    indices = {kind: tuple(tuple(side.index(a) for a in pairs[kind]) for side in (left, right)) for kind in "bc"}
    product = b.dot_general(x, y, contract=indices["c"], batch=indices["b"])
    shape = product.shape
    if shape:
        axis = int(rng.integers(len(shape)))
        side = b.input("side", TensorType(F32, shape[axis : axis + 1]))
        product = b.mul(product, b.broadcast(side, shape=shape, dims=(axis,)))
    graph = b.build([product], {"params": (1,) if seed % 2 else ()})
    inputs = inputs_of(graph)
    run = run_selected(graph, inputs, runnable("host"), nthreads=2)
    assert run.kernels.count("matmul") == 1
    assert close(run.outputs[0], evaluate(graph, inputs)[0][0])


def test_one_value_as_operand_weight_and_residual():
    b = Builder("gram", "legal")
    x = b.input("x", TensorType(F32, (21, 21)))
    y = b.add(b.dot_general(x, x, contract=((1,), (1,))), x)
    check(b.build([y]), runnable("host"), ["loops", "matmul"])


def test_an_epilogue_over_part_of_the_rows_gets_a_kernel_of_its_own():
    """The product's rows merge two axes, of which the other operand has one."""
    b = Builder("positions", "legal")
    x, w = b.input("x", TensorType(F32, (3, 5, 8))), b.input("w", TensorType(F32, (20, 8)))
    y = b.dot_general(x, w, contract=((2,), (1,)))
    table = b.input("table", TensorType(F32, (5, 20)))
    y = b.add(y, b.broadcast(table, shape=y.shape, dims=(1, 2)))
    check(b.build([y], {"params": (1,)}), runnable("host"), ["loops", "matmul", "loops"])


def test_a_few_columns_are_loops():
    """Most lanes would be empty; a sum along the terms fills them."""
    target = runnable("host")
    check(dense(7, 2, 128, "relu"), target, ["loops"])
    b = Builder("other", "legal")
    x, w = b.input("x", TensorType(F32, (7, 128))), b.input("w", TensorType(F32, (128, 2)))
    check(b.build([b.dot_general(x, w, contract=((1,), (0,)))], {"params": (1,)}), target, ["loops", "matmul"])


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_narrow_floats_are_summed_in_float32(dtype):
    """Casts around the kernel; rounded once, before the epilogue."""
    run = check(dense(19, 37, 40, "bias", dtype), runnable("host"), ["loops", "loops", "loops", "matmul"])
    assert run.outputs[0].dtype == dtype.numpy


def test_types_that_the_kernel_does_not_know_are_loops():
    b = Builder("ints", "legal")
    x, w = b.input("x", TensorType(I32, (3, 4))), b.input("w", TensorType(I32, (4, 5)))
    run = run_selected(
        b.build([b.dot_general(x, w, contract=((1,), (0,)))]),
        [np.ones((3, 4), np.int32), np.ones((4, 5), np.int32)],
        named("x86-64-v3"),
    )
    assert run.kernels == ["loops"]


@pytest.mark.parametrize("m, n, k", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
def test_empty_operands_are_loops(m, n, k):
    check(dense(m, n, k, "bias"), named("x86-64-v3"), ["loops"])


@pytest.mark.parametrize(
    ("images", "m", "n", "k"),
    [(1, 1, 300, 40), (1, 101, 33, 40), (1, 29, 70, 9000), (5, 29, 70, 17), (3, 33, 20, 9000)],
)
def test_every_number_of_threads_gives_the_same_bits(images, m, n, k):
    """With one block of rows and several (long rows do not stay in the cache), one product and several."""
    b = Builder("g", "legal")
    x, w = b.input("x", TensorType(F32, (images, m, k))), b.input("w", TensorType(F32, (images, k, n)))
    y = b.dot_general(x, w, contract=((2,), (1,)), batch=((0,), (0,)))
    graph = b.build([b.maximum(y, zeros(b, y))], {"params": (1,)})
    inputs = inputs_of(graph)
    alone = run_selected(graph, inputs, runnable("host"), 1)
    assert alone.kernels[-1] == "matmul"
    assert close(alone.outputs[0], evaluate(graph, inputs)[0][0])
    for nthreads in (2, 3, 4, 11, 64):
        together = run_selected(graph, inputs, runnable("host"), nthreads)
        np.testing.assert_array_equal(together.outputs[0], alone.outputs[0])


ANY_SIZE = {
    "rows that stay near": [(1103, 384, 64), (1103, 192, 96), (640, 192, 96)],
    "rows that are fetched ahead": [(640, 192, 896), (640, 384, 640), (700, 192, 896)],
    "few terms": [(1103, 384, 48), (1103, 192, 48), (800, 384, 48)],
    "terms in parts": [(403, 384, 3072), (307, 192, 6144)],
    "a last panel of fewer vectors": [(1103, 400, 64), (1103, 208, 64), (1103, 592, 64)],
}


def opened(m, n, k, epilogue, target):
    """Of a dense layer: the kernel's op, with open sizes, the operands that it takes, its scratch memory, and what it
    should give."""
    graph = dense(m, n, k, epilogue)
    inputs = inputs_of(graph)
    selected = run_passes(graph, ["fuse", "select"], target=target)
    op = next(op for op in selected.ops if kernel_name(op) == "matmul")
    known = dict(zip(selected.inputs, inputs))
    for other in selected.ops:
        if other is not op:
            known.update(zip(other.results, evaluate_op(other, [known[v] for v in other.operands])))
    memory = guarded(np.full(SCRATCH.of(op) or 0, 0xFF, np.uint8), at_end=True)
    operands = [aligned_copy(known[v]) for v in op.operands]
    return any_product(op, target), operands, memory, evaluate(graph, inputs)[0][0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ANY_SIZE)
def test_one_kernel_serves_products_of_any_size(name, target):
    target = runnable(target)
    for epilogue in ("none", "residual"):
        compiled = {}
        for m, n, k in ANY_SIZE[name]:  # other tiles may be chosen for another number of rows
            general, operands, memory, expected = opened(m, n, k, epilogue, target)
            key = op_key(general.op)
            if key not in compiled:
                module = llvm.Module(target, tuple(general.sizes))
                lower_kernel("k", general.op, module)
                compiled[key] = loaded(module.text(), target)
            results = [guarded(np.full(expected.shape, np.nan, np.float32), at_end=True) for _ in range(2)]
            for nthreads, result in zip((1, 3), results, strict=True):
                compiled[key].call("k", [*operands, result, memory], nthreads, [*general.sizes.values()])
            assert close(results[0], expected), difference(results[0], expected)
            np.testing.assert_array_equal(*results)
        assert len(compiled) < len(ANY_SIZE[name])


def test_layers_of_other_sizes_compile_no_product(object_cache, lowered):
    counts = []
    for m, n, k in ANY_SIZE["rows that are fetched ahead"][:2]:
        graph = dense(m, n, k, "relu")
        inputs = inputs_of(graph)
        lowered.clear()
        (got,), _ = compile_graph(graph).run(inputs)
        assert close(got, evaluate(graph, inputs)[0][0])
        counts.append(lowered.count("matmul"))
    assert counts == [1, 0]


OWN_SIZE = {
    "few rows": (100, 384, 64),
    "a vector that is not full": (640, 196, 64),
    "a remainder of terms": (640, 384, 100),
}


@pytest.mark.parametrize("name", OWN_SIZE)
def test_other_products_have_code_of_their_own(name):
    found, *_ = opened(*OWN_SIZE[name], "none", named("x86-64-v3"))
    assert found is None or "k" not in found.sizes


def test_long_sums_stay_accurate():
    graph = dense(5, 20, 20_000)
    x, w = inputs_of(graph)
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    native = run_selected(graph, [x, w], runnable("host")).outputs[0]
    assert np.abs(native - exact).max() < 1e-5 * np.abs(exact).max()


def test_a_network_through_the_whole_pipeline():
    b = Builder("mlp", "traced")
    h = b.input("x", TensorType(F32, (2, 40)))
    for k, (n, m) in enumerate([(30, 40), (20, 30), (2, 20)]):
        w = b.input(f"w{k}", TensorType(F32, (n, m)))
        h = b.dot_general(h, w, contract=((1,), (1,)))
        h = b.add(h, b.broadcast(b.input(f"b{k}", TensorType(F32, (n,))), shape=h.shape))
        h = b.maximum(h, b.broadcast(b.constant(0, F32), shape=h.shape))
    graph = b.build([h], {"params": tuple(range(1, 7))})
    inputs = inputs_of(graph)
    (native,), _ = compile_graph(graph).run(inputs)
    assert close(native, evaluate(graph, inputs)[0][0])
