"""LLVM's optimization level: the code differs, its bits do not."""

import numpy as np
import pytest

from gluonjit.codegen.target import host
from gluonjit.codegen.text.llvm import optimization_level
from gluonjit.ir.graph import Builder
from gluonjit.ir.types import F32, F64, IRError, TensorType
from gluonjit.passes import run_passes
from gluonjit.runtime.compiler import artifact_of, compile_graph
from support.convolutions import conv
from support.programs import random_program
from support.selected import TARGETS, in_turn, kernel_name, runnable
from support.soak import tries

LEVELS = ("0", "1", "2", "3")


def bits(graph, inputs, level, monkeypatch, target=None):
    monkeypatch.setenv("GLUONJIT_LLVM_LEVEL", level)
    outputs, updates = compile_graph(graph, target=target).run(inputs)
    return [a.tobytes() for a in (*outputs, *updates)]


def test_random_programs(monkeypatch):
    for seed in range(tries(6)):
        program = random_program(seed)
        by_level = [bits(program.graph, program.inputs, level, monkeypatch) for level in "02"]
        assert by_level[0] == by_level[1], f"seed {seed}"


KERNELS = {
    "conv": conv((9, 17), 5, 20, 3, low=1, high=1, stride=2, batch=2, epilogue="all"),
    "depthwise": conv((9, 17), 20, 20, 3, groups=20, low=1, high=1, epilogue="all"),
    "planar": conv((12, 21), 1, 2, 5, batch=2, low=2, high=2),
    "matmul": conv((5, 7), 10, 40, 1, batch=3),
    "winograd": conv((20, 21), 40, 72, 3, low=1, high=1, epilogue="all"),
}


@pytest.mark.parametrize(("name", "target"), in_turn(KERNELS))
def test_kernels(name, target, monkeypatch):
    graph, target = KERNELS[name], runnable(target)
    selected = run_passes(graph, "fuse, select", target=target)
    assert name in [kernel_name(op) for op in selected.ops]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    assert bits(graph, inputs, "0", monkeypatch, target) == bits(graph, inputs, "2", monkeypatch, target)


@pytest.mark.parametrize("target", TARGETS)
def test_sums_of_products(target, monkeypatch):
    """Where multiplication and addition may be fused, the IR says whether they are."""
    b = Builder("sums", "traced")
    inputs, outputs = [], []
    for dtype in (F32, F64):
        for shape in ((5, 7), (33, 128), (128, 33)):
            pair = [b.input(f"x{len(inputs) + k}", TensorType(dtype, shape)) for k in range(2)]
            product = b.mul(*pair)
            outputs += [b.reduce(product, op="sum", axes=axes) for axes in ((0,), (1,), (0, 1))]
            outputs.append(b.add(product, pair[0]))
            inputs += pair
    rng = np.random.default_rng(0)
    graph, arrays = b.build(outputs), [rng.standard_normal(v.type.shape).astype(v.type.dtype.numpy) for v in inputs]
    levels = LEVELS if target == "host" else ("0", "2")
    found = [bits(graph, arrays, level, monkeypatch, runnable(target)) for level in levels]
    assert all(each == found[0] for each in found)


def test_each_level_has_entries_of_its_own(object_cache, monkeypatch):
    graph = random_program(0).graph
    objects = {}
    for level in "02":
        monkeypatch.setenv("GLUONJIT_LLVM_LEVEL", level)
        made = artifact_of(graph, host())
        assert not made.was_there
        assert artifact_of(graph, host()).was_there
        objects[level] = made.artifact.objects
    assert objects["0"] != objects["2"]


def test_the_default_is_2(monkeypatch):
    monkeypatch.delenv("GLUONJIT_LLVM_LEVEL", raising=False)
    assert optimization_level() == 2


def test_other_words_are_refused(monkeypatch):
    monkeypatch.setenv("GLUONJIT_LLVM_LEVEL", "fast")
    with pytest.raises(IRError, match="GLUONJIT_LLVM_LEVEL is 0, 1, 2 or 3, got 'fast'"):
        compile_graph(random_program(0).graph)
