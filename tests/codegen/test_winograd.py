"""Winograd convolutions: native, and by `evaluate`, against a direct convolution in float64."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from gluonjit.codegen.kernels.linear_map import Walk, linear_map, map_both_ways
from gluonjit.codegen.kernels.tiles import Fetches, Tile, steps
from gluonjit.codegen.kernels.winograd_channels import any_channels
from gluonjit.codegen.kernels.winograd_fetch import Pixels, Tiling, next_block
from gluonjit.codegen.program import lower_kernel
from gluonjit.codegen.target import named
from gluonjit.codegen.text import llvm
from gluonjit.common.cook_toom import POINTS, transform
from gluonjit.ir.annotations import SCRATCH, STRIDES, WORKSPACE
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate, evaluate_op
from gluonjit.ir.kernels.product_plans import Winograd
from gluonjit.ir.structure import op_key
from gluonjit.ir.types import F32, F64, TensorType
from gluonjit.passes import run_passes, select_winograd
from gluonjit.runtime import threads
from gluonjit.runtime.arenas import aligned_array, aligned_copy
from gluonjit.runtime.compiler import compile_graph
from support.compare import difference
from support.convolutions import conv
from support.kernels import loaded
from support.selected import in_turn, kernel_name, run_selected, runnable

WITHIN = 5e-6
"""Of max|y|. Rounding of the transforms grows with the product of the matrices' norms: about 30 times that of a sum for
6 points along both axes, and sums of this length are good to 1e-7."""


@pytest.fixture
def tiled(monkeypatch):
    """Has `select` use a tile whatever it is expected to cost."""

    def use(*tile):
        monkeypatch.setattr(select_winograd, "winograd_tile", lambda problem, target: Winograd(*tile))

    return use


def both(size, channels, filters, taps, **kwargs):
    """The same convolution for float32 and float64."""
    return conv(size, channels, filters, taps, **kwargs), conv(size, channels, filters, taps, dtype=F64, **kwargs)


def inputs_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]


def check(graph, exact, target, nthreads=3):
    inputs = inputs_of(graph)
    expected = evaluate(exact, [x.astype(np.float64) for x in inputs])[0][0].astype(np.float32)
    selected = run_passes(graph, "fuse, select", target=target)
    together = any(map(WORKSPACE.is_on, selected.ops))
    run = run_selected(graph, inputs, target, 1 if together else nthreads)
    assert "winograd" in run.kernels
    assert difference(run.outputs[0], expected) < WITHIN
    assert difference(evaluate(run.graph, inputs)[0][0], expected) < WITHIN, "the body is no longer the convolution"


CASES = {
    "4x4": (both((12, 16), 16, 32, 3, low=1, high=1), (4, 4, 4, 32, 1)),
    "2x2": (both((12, 16), 16, 32, 3, low=1, high=1), (2, 2, 5, 32, 2, True)),
    "2x4, all together": (both((12, 16), 16, 32, 3, low=1, high=1), (2, 4, 3, 16, 0)),
    "nothing fits": (both((9, 11), 5, 21, 3, batch=2, low=1, high=1, epilogue="all"), (4, 4, 4, 16, 2, True)),
    "nothing fits, all together": (both((9, 11), 70, 75, 3, low=1, high=1, epilogue="all"), (4, 4, 4, 32, 0)),
    "no padding": (both((8, 10), 7, 40, 3, epilogue="all"), (4, 4, 2, 32, 8)),
    "padding on one side": (both((7, 9), 16, 20, 3, low=(2, 0), high=(0, 2)), (4, 4, 4, 32, 1)),
    "padding beyond the window": (both((3, 4), 6, 9, 3, low=4, high=5), (4, 4, 4, 16, 2)),
    "negative padding": (both((12, 13), 8, 12, 3, low=-1, high=-2), (2, 2, 4, 16, 2)),
    "many tiles": (both((48, 44), 16, 32, 3, low=1, high=1), (4, 4, 5, 32, 2)),
    "many tiles, all together": (both((48, 44), 16, 32, 3, low=1, high=1), (4, 4, 5, 32, 0)),
    "one tile": (both((3, 3), 6, 9, 3, low=1, high=1), (4, 4, 1, 16, 1)),
    "one pixel": (both((1, 1), 6, 9, 3, low=1, high=1), (4, 4, 1, 16, 0)),
    "5x5": (both((11, 9), 10, 24, 5, low=2, high=2, epilogue="all"), (2, 2, 6, 32, 2)),
    "3x5": (both((11, 9), 10, 24, (3, 5), low=(1, 2), high=(1, 2)), (4, 2, 6, 32, 2)),
    "1x7": (both((5, 17), 20, 24, (1, 7), low=(0, 3), high=(0, 3), epilogue="all"), (1, 2, 6, 32, 2)),
    "7x1": (both((17, 5), 20, 24, (7, 1), low=(3, 0), high=(3, 0), epilogue="all"), (2, 1, 6, 32, 0)),
    "1x3 in sixes": (both((5, 17), 20, 24, (1, 3), low=(0, 1), high=(0, 1)), (1, 6, 6, 32, 1)),
    "1-D": (both((29,), 20, 24, 3, batch=3, low=2, epilogue="all"), (1, 4, 4, 16, 2, True)),
    "an axis of one": (both((1, 29), 20, 24, (1, 5), low=(0, 2), high=(0, 2), epilogue="all"), (1, 4, 4, 16, 0)),
    "long sums": (both((6, 6), 300, 16, 3, low=1, high=1), (2, 2, 4, 16, 1)),
}


@pytest.mark.parametrize(("name", "target"), in_turn(CASES))
def test_convolution(name, target, tiled):
    (graph, exact), tile = CASES[name]
    target = runnable(target)
    tiled(*tile[:3], max(tile[3] // 16 * target.lanes(F32), target.lanes(F32)), *tile[4:])
    check(graph, exact, target)


def test_many_tiles_need_no_lower_register_tile(tiled):
    """The last of 27 register tiles of 5 has two tiles, the last of 3 four."""
    tiled(4, 4, 5, 32, 2)
    target = named("x86-64-v3")

    def multiply_adds(size):
        selected = run_passes(conv(size, 16, 32, 3, low=1, high=1), "fuse, select", target=target)
        module = llvm.Module(target)
        lower_kernel("k", next(op for op in selected.ops if kernel_name(op) == "winograd"), module)
        return module.text().count("@llvm.fma")

    assert multiply_adds((48, 44)) == multiply_adds((52, 40)) < multiply_adds((8, 28))


@pytest.mark.parametrize("seed", range(12))
def test_random(seed, tiled):
    rng = np.random.default_rng(seed)

    def pick(*choices):
        return choices[rng.integers(len(choices))]

    taps = pick((3, 3), (3, 3), (5, 5), (3, 1), (1, 5), (7, 1))
    outputs = [1 if r == 1 else {3: pick(2, 4), 5: 2, 7: 2}[r] for r in taps]
    shape = tuple(int(n) for n in rng.integers(1, 24, 2))
    low, high = (tuple(int(rng.integers(0, r + 1)) for r in taps) for _ in range(2))
    low = tuple(max(p, r - n - q) for p, q, r, n in zip(low, high, taps, shape))  # at least one window
    channels, filters = (int(n) for n in rng.integers(1, 70, 2))
    kwargs = {"batch": pick(1, 2), "low": low, "high": high, "epilogue": pick("bias", "all")}
    rows, panels, block, ahead = (int(rng.integers(*span)) for span in ((1, 9), (1, 4), (0, 4), (0, 2)))
    tiled(*outputs, rows, 16 * panels, block, bool(ahead))
    check(*both(shape, channels, filters, taps, **kwargs), runnable("host"))


@pytest.mark.parametrize("block", [0, 1, 3])
def test_every_number_of_threads_gives_the_same_bits(block, tiled):
    """With threads that do run at the same time: they exchange tiles, and wait for each other."""
    tiled(4, 4, 3, 32, block)
    graph = conv((40, 41), 40, 72, 3, batch=2, low=1, high=1, epilogue="all")
    inputs = inputs_of(graph)
    before = threads.get_num_threads()
    results = []
    try:
        for n in (1, 2, 5):
            threads.set_num_threads(n)
            run = compile_graph(graph)
            results += [run.run(inputs)[0][0].tobytes() for _ in range(3)]
    finally:
        threads.set_num_threads(before)
    assert len(set(results)) == 1


def test_epilogue_that_costs_more_than_the_store(tiled):
    """A function of the sum, one pixel after the other where a tile is cut off."""
    tiled(4, 4, 4, 32, 1)
    graphs = []
    for dtype in (F32, F64):
        inner = conv((9, 10), 8, 20, 3, low=1, high=1, dtype=dtype)
        b = Builder("conv", "legal")
        env = {v: b.input(v.name, v.type) for v in inner.inputs}
        for op in inner.ops:
            env.update(zip(op.results, b.emit(op.name, [env[v] for v in op.operands], op.attrs), strict=True))
        y = env[inner.outputs[0]]
        graphs.append(b.build([b.mul(y, b.sigmoid(y))], {"params": (1,)}))
    check(*graphs, runnable("host"))


SHARING = {
    "by blocks": ((9, 8), (4, 4, 3, 32, 2)),
    "fetching ahead": ((9, 8), (4, 4, 3, 32, 2, True)),
    "all together": ((9, 8), (4, 4, 4, 32, 0)),
    "some blocks together": ((30, 9), (4, 2, 3, 32, -2)),
    "1-D": ((29,), (1, 4, 4, 32, 2)),
}


@pytest.mark.parametrize("name", SHARING)
def test_channels_that_differ_share_a_kernel(name, tiled, object_cache, lowered):
    size, tile = SHARING[name]
    tiled(*tile)
    counts = []
    others = ((16, 64), (72, 64)) if name == "by blocks" else ()
    for depth, filters in ((256, 64), (384, 192), (32, 96), (176, 64), *others):
        graph, exact = both(size, depth, filters, 3, batch=2, low=1, high=1, epilogue="all")
        inputs = inputs_of(graph)
        lowered.clear()
        got = compile_graph(graph).run(inputs)[0][0]
        expected = evaluate(exact, [x.astype(np.float64) for x in inputs])[0][0].astype(np.float32)
        assert difference(got, expected) < WITHIN
        counts.append(lowered.count("winograd"))
    # One vector is code of its own, and 72 terms are no whole number of them.
    assert counts == [1, 0, 0, 0, 1, 1][: len(counts)]


@pytest.mark.parametrize(("apart", "padding"), [(1, 1), (2, 1), (1, 3)])
def test_images_of_other_sizes_share_a_kernel(apart, padding, tiled):
    """Also those that tiles do not fill, those whose result is every other pixel of a larger image, as those of a
    gradient's phases are, and those that are padded by more than the window."""
    target = runnable("host")
    tiled(4, 4, 5, 2 * target.lanes(F32), 2)
    codes = {}
    for batch, size, depth in ((8, (16, 24), 32), (12, (8, 40), 48), (9, (15, 22), 32)):
        filters = 4 * target.lanes(F32)
        graph, exact = both(size, depth, filters, 3, batch=batch, low=padding, high=padding, epilogue="all")
        inputs = inputs_of(graph)
        selected = run_passes(graph, "fuse, select", target=target)
        known = dict(zip(selected.inputs, inputs))
        for op in selected.ops:
            if kernel_name(op) == "winograd":
                break
            known.update(zip(op.results, evaluate_op(op, [known[v] for v in op.operands])))
        height, width = (apart * (n + 2 * padding - 2) for n in size)
        whole = aligned_array((batch, height, width, filters), np.dtype(np.float32))
        if apart > 1:
            image, row, pixel, _ = (n // 4 for n in whole.strides)
            places = STRIDES((*[None] * len(op.operands), (image, row * apart, pixel * apart, 1)))
            op = replace(op, attrs={**op.attrs, **places})
        found = any_channels(op, target)
        key = op_key(found.op)
        if key not in codes:
            module = llvm.Module(target, tuple(found.sizes))
            lower_kernel("k", found.op, module)
            codes[key] = loaded(module.text(), target)
        whole[...] = 7
        memory = aligned_array((SCRATCH.of(op),), np.dtype(np.uint8))
        memory[:] = 255
        operands = [aligned_copy(known[v]) for v in op.operands]
        codes[key].call("k", [*operands, whole, memory], 1, [*found.sizes.values()])
        expected = evaluate(exact, [x.astype(np.float64) for x in inputs])[0][0].astype(np.float32)
        assert difference(whole[:, ::apart, ::apart], expected) < WITHIN
        assert apart == 1 or (whole[:, 1::2] == 7).all() and (whole[:, :, 1::2] == 7).all()
    assert len(codes) == 1


def test_many_channels_and_a_tile_for_each_image(tiled):
    """Where its window begins is known, but for the number of channels. Only an executable's kernels have open ones."""
    tiled(4, 4, 2, 32, 2)
    graph, exact = both((4, 4), 256, 64, 3, batch=3, low=1, high=1, epilogue="all")
    inputs = inputs_of(graph)
    expected = evaluate(exact, [x.astype(np.float64) for x in inputs])[0][0].astype(np.float32)
    assert difference(compile_graph(graph).run(inputs)[0][0], expected) < WITHIN


def kernels(graph, winograd=True):
    graph = run_passes(graph, ["fuse", ("select", {"winograd": winograd})], target=runnable("host"))
    return {kernel_name(op) for op in graph.ops}


def test_weights_that_change_are_transformed_where_that_pays():
    assert "winograd" in kernels(conv((40, 40), 64, 64, 3, low=1, high=1, params=()))


def test_what_has_no_such_kernel():
    plain = {"low": 1, "high": 1}
    for graph in (
        conv((40, 40), 64, 64, 3, stride=2, **plain),
        conv((40, 40), 64, 64, 3, dilation=2, **plain),
        conv((40, 40), 64, 64, 3, groups=2, **plain),
        conv((40, 40), 64, 64, 3, dtype=F64, **plain),
        conv((8, 8), 256, 256, 3, params=(), **plain),  # transforming the weights at each call would cost more
        conv((40, 40), 3, 64, 3, **plain),  # a transform costs more than the sum
        conv((8, 8, 8), 32, 32, 3, **plain),
    ):
        assert "conv" in kernels(graph)
    graph = conv((40, 40), 64, 64, 3, **plain)
    assert "winograd" in kernels(graph)
    assert "winograd" not in kernels(graph, winograd=False)


@pytest.mark.parametrize("taps", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("outputs", [1, 2, 3, 4, 6])
def test_transforms_are_exact(outputs, taps):
    if outputs + taps - 2 > len(POINTS):
        with pytest.raises(ValueError, match="points"):
            transform(outputs, taps)
        return
    t = transform(outputs, taps)
    a, g, b, inverse = (np.array(m, object) for m in (t.output, t.weight, t.input, t.inverse))
    rng = np.random.default_rng(0)
    d, w = rng.integers(-9, 10, outputs + taps - 1), rng.integers(-9, 10, taps)
    expected = [sum(int(d[i + k]) * int(w[k]) for k in range(taps)) for i in range(outputs)]
    assert list(a @ ((g @ w) * (b @ d))) == expected
    assert (inverse @ g == np.eye(taps, dtype=int)).all()


def test_linear_map():
    """A matrix with shared terms, and a row of factors none of which is 1."""
    target = runnable("host")
    matrix = (*transform(4, 3).input, (Fraction(0), Fraction(3), Fraction(-5, 2), *(Fraction(0),) * 3))
    module = llvm.Module(target)
    f = module.function("k")
    tile = Tile(f, F32, 1)
    for k, v in enumerate(linear_map(tile, matrix, [tile.load(f.gep(tile.vector, f.table(0), k)) for k in range(6)])):
        f.store(tile.vector, v, f.gep(tile.vector, f.table(1), k), 4)
    x = np.random.default_rng(0).standard_normal((6, tile.lanes)).astype(np.float32)
    y = np.full((7, tile.lanes), np.nan, np.float32)
    llvm.load(llvm.compile_module(module.text(), target)).call("k", [x, y])
    expected = np.array(matrix, np.float64) @ x
    assert np.allclose(y, expected, atol=1e-5)


@pytest.mark.parametrize(("high", "wide", "count"), [(6, 6, 3), (6, 6, None), (6, 1, 2), (1, 6, None)])
def test_map_both_ways(high, wide, count):
    """In loops, and of a single row or column; with all rows of the result, or the first ones."""
    target, matrix, one = runnable("host"), transform(4, 3).output, ((Fraction(1),),)
    left, right = (matrix if n > 1 else one for n in (high, wide))
    module = llvm.Module(target)
    f = module.function("k")
    tile = Tile(f, F32, 1)
    nbytes = tile.lanes * 4

    def load(top):
        return [tile.load(p) for p in steps(f, top, wide * nbytes, high)]

    def store(i, place, y):
        for k, v in enumerate(y):
            f.store(tile.vector, v, f.gep(tile.vector, place, k), 4)

    wanted = None if count is None else f.load("i64", f.table(2))
    rows = Walk(f.table(1), len(right) * nbytes)
    map_both_ways(tile, left, right, Walk(f.table(0), nbytes), load, rows, store, wanted)
    x = np.random.default_rng(0).standard_normal((high, wide, tile.lanes)).astype(np.float32)
    y = np.full((len(left), len(right), tile.lanes), np.nan, np.float32)
    llvm.load(llvm.compile_module(module.text(), target)).call("k", [x, y, np.array([count or 0])])
    expected = np.einsum("iu,uvc,jv->ijc", np.array(left, float), x, np.array(right, float))
    assert np.allclose(y[:count], expected[:count], atol=1e-5)
    assert np.isnan(y[len(y) if count is None else count :]).all()


@pytest.mark.parametrize(("rows", "block", "products"), [(5, 1, 12), (3, 2, 3), (4, 2, 2)])
def test_the_next_block_is_fetched(rows, block, products):
    """Every pixel that its tiles read, but those that they share with the tile before: whatever number of tiles is in
    a row, in an image, and in a block."""
    target, terms, tiles, numbers = runnable("host"), 16, rows * block, products * block
    images, height, width, outputs, nbytes = 2, 11, 14, 4, 64
    strides = (height * width * 16, width * 16, 16)
    tiling = Tiling((images, 3, 4), (outputs, outputs))
    module = llvm.Module(target)
    f = module.function("k")
    pixels = [Pixels("null", "float", strides, 6, (-1, 1), nbytes)]
    first = f.load("i64", f.table(0))
    with f.for_(0, numbers) as loop:
        fetches = list(next_block(f, pixels, tiling, first, rows, block, loop.index, products, terms))
        for k, fetch in enumerate(fetches):
            at = f.gep("i64", f.table(1), f.add(f.mul(loop.index, len(fetches)), k))
            f.store("i64", f.op(f"ptrtoint ptr {fetch.pointer} to i64"), at)
    loaded = llvm.load(llvm.compile_module(module.text(), target))
    for t in (0, 3, 10, 23 - tiles):
        starts = np.zeros(numbers * len(fetches), np.int64)
        loaded.call("k", [np.array([t]), starts])
        fetched = {int(start) + n for start in starts for n in range(0, fetches[0].step * terms, nbytes)}
        wanted = set()
        for image, ty, tx in list(np.ndindex(images, 3, 4))[t : t + tiles]:
            for y, x in np.ndindex(6, outputs):
                row, column = 4 * ty - 1 + y, 4 * tx + 1 + x
                wanted.add(4 * (image * strides[0] + row * strides[1] + column * strides[2]))
        assert wanted <= fetched
        assert len(fetched) <= len(wanted) + 4 * 6 * outputs, "much that nobody asked for"


@pytest.mark.parametrize(("step", "terms"), [(1, 40), (8, 64), (24, 7), (96, 64), (250, 33)])
def test_a_spread_fetch_leaves_nothing_out(step, terms):
    module = llvm.Module(runnable("host"))
    f = module.function("k")
    parts = Fetches.spread(f, f.table(0), step, terms).parts
    for k, part in enumerate(parts):
        f.store("i64", f.op(f"ptrtoint ptr {part.pointer} to i64"), f.gep("i64", f.table(1), k))
    starts, data = np.zeros(len(parts), np.int64), np.zeros(1, np.uint8)
    llvm.load(llvm.compile_module(module.text(), module.target)).call("k", [data, starts])
    fetched = {int(start) - data.ctypes.data + n for start in starts for n in range(parts[0].step * terms)}
    assert fetched.issuperset(range(step * terms))
    assert len(fetched) < (step + len(parts)) * terms, "much that nobody asked for"


@pytest.mark.parametrize("block", [0, 2])
def test_windows_of_a_concat_are_read_and_written(block, tiled):
    """What lies between two convolutions is also part of a concat: its pixels are further apart than its channels."""
    tiled(4, 4, 3, 16, block)
    b = Builder("dense", "legal")
    x = b.input("x", TensorType(F32, (2, 16, 11, 13)))
    plain = {"stride": (1, 1), "low": (1, 1), "high": (1, 1), "dilation": (1, 1), "input_dilation": (1, 1)}
    parts = [x]
    for k, filters in enumerate((24, 16, 20)):
        w = b.input(f"w{k}", TensorType(F32, (filters, parts[-1].shape[1], 3, 3)))
        y = b.conv(parts[-1], w, **plain)
        parts.append(b.maximum(y, b.broadcast(b.constant(0, F32), shape=y.shape)))
    graph = b.build([b.concat(*parts[1:], axis=1)], {"params": (1, 2, 3)})
    made = {}
    native = compile_graph(graph, after=lambda name, before, new, seconds: made.update({name: new}))
    strided = [op for op in made["plan-memory"].ops if kernel_name(op) == "winograd" and STRIDES.is_on(op)]
    assert any(STRIDES.of(op)[0] for op in strided), "none reads a window"
    assert any(STRIDES.of(op)[-1] for op in strided), "none writes a window"
    inputs = inputs_of(graph)
    assert difference(native.run(inputs)[0][0], evaluate(graph, inputs)[0][0]) < 3 * WITHIN
