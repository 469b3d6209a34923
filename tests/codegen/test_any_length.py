"""Elementwise kernels of several lengths are one kernel, with the answers of one for each."""

import numpy as np
import pytest

from gluonjit.codegen.program import lower_program
from gluonjit.codegen.target import host
from gluonjit.ir.graph import Builder
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import BF16, F16, F32, F64, I32, I64, TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime import threads
from gluonjit.runtime.compiler import compile_graph
from support.compare import assert_close
from support.selected import TARGETS, runnable

SIZES = (16, 17, 31, 40, 64, 1000, 20_003)


def steps(sizes, dtype=F32, in_place=False):
    """An update of a state for each size, by a rate that is a scalar."""
    b = Builder("steps")
    rate = b.input("rate", TensorType(dtype))
    for n in sizes:
        grad, state = (b.input(name, TensorType(dtype, (n,))) for name in ("grad", "state"))
        new = b.add(b.mul(state, b.broadcast(rate, shape=(n,))), b.maximum(grad, b.neg(grad)))
        b.update(state, new)
    return b.build([], {"in_place": True} if in_place else {})


def kernels(graph, target=None):
    target = target or host()
    return lower_program(run_passes(graph, PIPELINE, target=target), target).kernels


def assert_shared(found):
    """One kernel, or a second one that is compiled fast, for sizes that hardly count beside the others."""
    assert sum(found.values()) == len(SIZES) and len(found) <= 2


def check(graph):
    rng = np.random.default_rng(0)
    inputs = [(rng.standard_normal(v.shape) * 5).astype(v.dtype.numpy) for v in graph.inputs]
    shared = PIPELINE.replace("threads", "threads {grain = 0, share = 0}")
    for pipeline in (PIPELINE, shared):
        for got, want in zip(
            compile_graph(graph, pipeline=pipeline).run(inputs)[1], evaluate(graph, inputs)[1], strict=True
        ):
            assert_close(got, want, str(got.shape))


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16, I32, I64], ids=str)
def test_one_kernel_serves_all_lengths(dtype):
    graph = steps(SIZES, dtype)
    assert_shared(kernels(graph))
    threads.set_num_threads(3)
    try:
        check(graph)
    finally:
        threads.set_num_threads(None)


def test_state_is_written_in_place():
    graph = steps(SIZES, in_place=True)
    assert_shared(kernels(graph))
    rng = np.random.default_rng(1)
    rate, *arrays = (rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs)
    states = arrays[1::2]
    wanted = evaluate(graph, [rate, *arrays])[1]
    compile_graph(graph).bind([np.asarray(rate), *arrays], states)()
    for got, want in zip(states, wanted, strict=True):
        assert_close(got, want, str(got.shape))


@pytest.mark.parametrize("target", TARGETS)
def test_other_targets_share_it_too(target):
    assert_shared(kernels(steps(SIZES), runnable(target)))


def test_a_few_lengths_have_kernels_of_their_own():
    assert sorted(kernels(steps(SIZES[:3])).values()) == [1, 1, 1]


def test_short_arrays_have_kernels_of_their_own():
    assert 5 <= len(kernels(steps([2, 3, 4, 5, *SIZES]))) <= 6


def test_sums_have_kernels_of_their_own():
    b = Builder("g")
    graph = b.build([b.reduce(b.input("x", TensorType(F32, (n,))), axes=(0,), op="sum") for n in SIZES])
    assert sorted(kernels(graph).values()) == [1] * len(SIZES)
