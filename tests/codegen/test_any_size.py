"""Loops that serve any size: which ops share a kernel, and that it computes what each of them means."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from gluonjit.codegen.loops import any_size as loops_of_any_size
from gluonjit.codegen.loops.any_size import any_size
from gluonjit.codegen.loops.index import divides
from gluonjit.codegen.loops.loops import lower_loops
from gluonjit.codegen.target import named
from gluonjit.codegen.text import llvm
from gluonjit.ir.annotations import KERNEL, STRIDES, THREADS
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.kernels.element_plans import Loops
from gluonjit.ir.structure import op_key
from gluonjit.ir.types import F32, TensorType
from gluonjit.runtime.compiler import compile_graph
from support.kernels import body, kernel, opened, runnable_targets


def f32(*shape):
    return TensorType(F32, shape)


def updated(b, w, g, rate):
    new = b.sub(w, b.mul(g, b.broadcast(rate, shape=w.shape)))
    return new, b.maximum(new, b.broadcast(b.constant(0, F32), shape=w.shape))


def scaled(axis):
    def make(b, x, g):
        return b.mul(x, b.broadcast(g, shape=x.shape, dims=(axis,)))

    return make


def summed(b, x, g):
    return b.mul(b.reduce(b.mul(x, x), op="sum", axes=(0, 2)), g)


def centred(b, x, mean, g):
    d = b.sub(x, b.broadcast(mean, shape=x.shape, dims=(3,)))
    return b.reduce(b.mul(x, x), op="sum", axes=(0, 1, 2)), b.mul(b.reduce(b.mul(d, d), op="sum", axes=(0, 1, 2)), g)


def of_counts(b, x, total):
    """Less a channel's mean, and a part of what they are, which say how many pixels there are."""
    pixels = prod(x.shape[:-1])
    mean = b.div(total, b.broadcast(b.constant(pixels, F32), shape=total.shape))
    part = b.mul(x, b.broadcast(b.constant(1 / pixels, F32), shape=x.shape))
    return b.sub(part, b.broadcast(mean, shape=x.shape, dims=(3,)))


def of_first_image(b, x):
    return b.reduce(b.slice(x, start=(0, 0, 0, 0), size=(1, *x.shape[1:])), op="mean", axes=(0, 1, 2))


def packed(b, w):
    """[I, O] → [P, I, 16]."""
    inputs, outputs = w.shape
    return b.transpose(b.reshape(w, shape=(inputs, outputs // 16, 16)), perm=(1, 0, 2))


def packed_with_zeros(b, w):
    """[1, I, O] → [P, I, 48], where O is no multiple of 48."""
    _, inputs, outputs = w.shape
    panels = outputs // 48 + 1
    v = b.reshape(w, shape=(inputs, outputs))
    v = b.pad(v, b.constant(0, F32), low=(0, 0), high=(0, panels * 48 - outputs))
    return b.transpose(b.reshape(v, shape=(inputs, panels, 48)), perm=(1, 0, 2))


def turned(b, w):
    return b.transpose(b.reverse(w, axes=(2,)), perm=(2, 1, 0))


def restored(b, w):
    """[taps, I, O] → [O, I, taps]."""
    return b.transpose(w, perm=(2, 1, 0))


def merged(b, x):
    """[N, C, H, W] → [N, H·W, C], by way of shapes that a transpose of fewer axes does not need."""
    n, c, h, w = x.shape
    return b.reshape(b.transpose(x, perm=(0, 2, 3, 1)), shape=(n, h * w, c))


def shuffled(b, x):
    """Channels in groups, as ShuffleNet's."""
    n, c, h, w = x.shape
    v = b.transpose(b.reshape(x, shape=(n, 4, c // 4, h, w)), perm=(0, 2, 1, 3, 4))
    return b.reshape(v, shape=(n, c, h, w))


FORMS = {
    "last axis": (scaled(3), [[f32(2, h, h, c), f32(c)] for h, c in ((3, 32), (5, 64), (2, 96))]),
    "first axis": (scaled(0), [[f32(c, 3, 16), f32(c)] for c in (2, 3, 32)]),
    "an axis between": (scaled(1), [[f32(n, c, 4, q), f32(c)] for n, c, q in ((2, 3, 8), (4, 32, 16), (3, 7, 24))]),
    "sums": (summed, [[f32(2, c, 48), f32(c)] for c in (2, 5, 64)]),
    "packing": (packed, [[f32(i, o)] for i, o in ((3, 32), (12, 64), (5, 128))]),
    "packing by blocks": (packed, [[f32(i, o)] for i, o in ((16, 32), (24, 64), (40, 128))]),
    "packing with zeros": (packed_with_zeros, [[f32(1, i, o)] for i, o in ((16, 112), (24, 208), (40, 160))]),
    "sums down columns": (
        centred,
        [[f32(n, h, 8, c), f32(c), f32(c)] for n, h, c in ((2, 8, 256), (1, 9, 128), (4, 26, 384))],
    ),
    "counts": (of_counts, [[f32(n, h, 8, c), f32(c)] for n, h, c in ((3, 8, 32), (1, 9, 64), (3, 26, 96))]),
    "means of first images": (of_first_image, [[f32(n, h, 8, c)] for n, h, c in ((2, 9, 256), (3, 16, 128))]),
    "sums of a few rows": (lambda b, x: b.reduce(x, op="sum", axes=(0,)), [[f32(16, c)] for c in (32, 144, 96)]),
    "turning": (turned, [[f32(o, i, 9)] for o, i in ((32, 32), (64, 32), (32, 96))]),
    "restoring": (restored, [[f32(9, i, o)] for i, o in ((32, 32), (64, 32), (32, 96))]),
    "merging": (merged, [[f32(4, c, h, w)] for c, h, w in ((32, 4, 8), (64, 8, 8), (96, 4, 8))]),
    "groups": (shuffled, [[f32(2, c, h, h)] for c, h in ((128, 16), (256, 16), (128, 32))]),
    "runs": (shuffled, [[f32(n, c, 8, 8)] for n, c in ((2, 128), (3, 256), (2, 24))]),
}


def fused(make, types, **attrs):
    op = kernel(body(make, *types), attrs=KERNEL(Loops()))
    return replace(op, attrs={**op.attrs, **attrs})


@pytest.mark.parametrize("name", FORMS)
def test_one_kernel_computes_what_each_op_means(name):
    make, cases = FORMS[name]
    rng = np.random.default_rng(len(name))
    for target in runnable_targets():
        found = [any_size(fused(make, types), target) for types in cases]
        assert all(f is not None for f in found)
        assert len({op_key(f.op) for f in found}) == 1
        (graph,) = found[0].op.regions
        run = opened(graph, target)
        for k, (types, f) in enumerate(zip(cases, found, strict=True)):
            assert min(f.sizes.values()) >= 2
            static = body(make, *types)
            inputs = [rng.standard_normal(t.shape).astype(np.float32) for t in types]
            wanted, _ = evaluate(static, inputs)
            shapes = [tuple(n if isinstance(n, int) else n.at(f.sizes) for n in v.shape) for v in graph.inputs]
            given = [x.reshape(-1)[: prod(s)].reshape(s) for x, s in zip(inputs, shapes, strict=True)]
            got = run(f.sizes, given, 1 + k, bool(k % 2))
            for a, b in zip(got, wanted, strict=True):
                np.testing.assert_allclose(a.reshape(b.shape), b, rtol=2e-6, atol=1e-6)


def test_threads_are_the_callers_business():
    alone, shared = (fused(packed, [f32(16, 64)], **attrs) for attrs in (THREADS(1), {}))
    target = runnable_targets()[0]
    assert op_key(any_size(alone, target).op) == op_key(any_size(shared, target).op)


def test_divisions_by_powers_of_two_know_their_number():
    powers, others = (any_size(fused(of_counts, [f32(h, 8, 8, 64), f32(64)]), runnable_targets()[0]) for h in (2, 3))
    assert sorted(powers.sizes) == ["c", "p"]
    assert {name: n for name, n in others.sizes.items() if name not in "cp"} == {"count0": 192, "count1": 192}


@pytest.mark.parametrize("number", [np.nan, -np.inf, np.inf, 0, -192, 192.5])
def test_numbers_that_count_nothing_are_known(number):
    def lowered(b, x, total):
        return b.maximum(scaled(3)(b, x, total), b.broadcast(b.constant(number, F32), shape=x.shape))

    found = any_size(fused(lowered, [f32(3, 8, 8, 64), f32(64)]), runnable_targets()[0])
    assert sorted(found.sizes) == ["c", "p"]


@pytest.mark.parametrize("channels", [64, 72])
def test_transposes_past_the_caches_write_whole_lines(channels):
    """They know that there are whole lines of 16 elements; others know of whole vectors."""
    target, past = named("x86-64-v3"), KERNEL(Loops(streaming=True))
    alone, streamed = (any_size(fused(merged, [f32(4, channels, 4, 8)], **attrs), target) for attrs in ({}, past))
    assert [divides(16, f.op.results[0].shape[-1]) for f in (alone, streamed)] == [False, channels == 64]
    module = llvm.Module(target, sorted(streamed.sizes))
    lower_loops("kernel", streamed.op, module)
    assert ("!nontemporal" in module.text()) == (channels == 64)
    x = np.random.default_rng(0).random((4, channels, 32), np.float32)
    for machine in runnable_targets():
        run = opened(streamed.op.regions[0], machine, attrs=past)
        for nthreads in (1, 3):
            assert np.array_equal(run(streamed.sizes, [x], nthreads, False)[0], x.swapaxes(1, 2))


def constant(b, x):
    return b.add(x, b.constant(np.arange(64, dtype=np.float32)))


def normalized(b, x):
    total = b.reduce(x, op="sum", axes=(0,))
    return b.div(x, b.broadcast(total, shape=x.shape, dims=(1,)))


def cut_unevenly(b, x):
    return b.reshape(b.transpose(x, perm=(1, 0)), shape=(6, 32))


def two_axes(b, x, y):
    return b.add(scaled(0)(b, x, y), scaled(1)(b, x, y))


def made_a_number(b, x):
    return b.reshape(b.transpose(x, perm=(1, 0)), shape=())


OTHERS = {
    "constants of a size": (constant, [f32(64)], {}),
    "a sum that its terms need": (normalized, [f32(16, 64)], {}),
    "every other element": (
        lambda b, x: b.reduce(b.slice(x, start=(0, 0), size=(256, 64), step=(1, 2)), op="sum", axes=(0,)),
        [f32(256, 128)],
        {},
    ),
    "sums of few pixels": (lambda b, x: b.reduce(x, op="sum", axes=(0,)), [f32(64, 256)], {}),
    "sums of one block of columns": (lambda b, x: b.reduce(x, op="sum", axes=(0,)), [f32(128, 8)], {}),
    "axes that are cut across others": (cut_unevenly, [f32(12, 16)], {}),
    "vectors along two axes": (two_axes, [f32(64, 64), f32(64)], {}),
    "zeros that begin within a vector": (packed_with_zeros, [f32(1, 16, 106)], {}),
    "what is empty": (turned, [f32(0, 32, 64)], {}),
    "what any_length is for": (updated, [f32(64), f32(64), f32()], {}),
    "parts of buffers": (packed, [f32(16, 64)], STRIDES(((128, 2), None))),
    "few that come to lie side by side": (restored, [f32(3, 32, 64)], {}),
    "more than weights are": (restored, [f32(9, 512, 512)], {}),
    "a single element": (made_a_number, [f32(1, 1)], {}),
    "no loop": (lambda b, x: b.gather(x, b.constant(np.zeros(64, np.int32)), axis=0), [f32(64)], {}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_ops_have_kernels_of_their_own(name):
    make, types, attrs = OTHERS[name]
    assert any_size(fused(make, types, **attrs), runnable_targets()[0]) is None


def layer(channels, pixels):
    """relu(x · g), and the same in order along its pixels."""
    b = Builder("layer", "traced")
    x, g = b.input("x", f32(2, channels, pixels)), b.input("g", f32(channels))
    y = b.mul(x, b.broadcast(g, shape=x.shape, dims=(1,)))
    y = b.maximum(y, b.broadcast(b.constant(0, F32), shape=y.shape))
    return b.build([y, b.sort(y, axis=2)[0]])


def test_layers_of_other_widths_compile_less(object_cache, lowered):
    counts = []
    rng = np.random.default_rng(3)
    for channels, pixels in ((32, 64), (64, 64), (96, 128), (24, 40)):
        graph = layer(channels, pixels)
        inputs = [rng.standard_normal(v.type.shape).astype(np.float32) * 3 for v in graph.inputs]
        lowered.clear()
        got, _ = compile_graph(graph).run(inputs)
        counts.append(len(lowered))
        for a, b in zip(got, evaluate(graph, inputs)[0], strict=True):
            np.testing.assert_array_equal(a, b)
    assert counts[0] == 2 and counts[1:] == [1, 1, 1]  # sorting has a kernel for each size


def test_equal_layers_are_opened_once(object_cache, monkeypatch):
    asked = []
    whole = loops_of_any_size._computing
    monkeypatch.setattr(loops_of_any_size, "_computing", lambda *given: asked.append(1) or whole(*given))
    b = Builder("layers", "traced")
    g = b.input("g", f32(32))
    inputs = [b.input(f"x{k}", f32(2, 32, 64)) for k in range(3)]
    compile_graph(b.build([b.sort(b.mul(x, b.broadcast(g, shape=x.shape, dims=(1,))), axis=2)[0] for x in inputs]))
    assert len(asked) == 1
