"""The list of a graph's calls computes what instructions for each call do."""

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.codegen.program import lower_program
from gluonjit.codegen.target import host
from gluonjit.codegen.text.llvm import compile_module, load
from gluonjit.codegen.threads import calls
from gluonjit.ir.graph import Builder
from gluonjit.ir.types import F32, TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime import host as functions
from gluonjit.runtime.executable import Executable
from support.programs import random_program


def layers(count, rows=64, columns=48):
    """Products, rows that are kept in scratch, and a result that is complete before the end."""
    b = Builder()
    x = b.input("x", TensorType(F32, (rows, columns)))
    results = []
    for k in range(count):
        w = b.input(f"w{k}", TensorType(F32, (columns, columns)))
        x = b.tanh(b.dot_general(x, w, contract=((1,), (0,)), batch=((), ())))
        results.append(b.reduce(x, op="sum", axes=(0,)))
    graph = b.build([*results, x], {"tells_progress": True})
    rng = np.random.default_rng(count)
    return graph, [rng.standard_normal(v.shape).astype(np.float32) / 7 for v in graph.inputs]


def of_a_random_program(seed):
    program = random_program(seed)
    return program.graph.with_attrs(params=tuple(range(0, len(program.graph.inputs), 2))), program.inputs


@pytest.mark.parametrize(
    ("graph", "inputs"),
    [layers(20), *map(of_a_random_program, range(4))],
    ids=["layers", *map(str, range(4))],
)
def test_same_bits(graph, inputs, monkeypatch):
    planned = run_passes(graph, PIPELINE, target=host()).with_attrs(threads=4)
    found = []
    for many in (1, 10**9):
        monkeypatch.setattr(calls, "_MANY", many)
        program = lower_program(planned, host())
        code = Executable(program.interface, load(compile_module(program.text, host()), functions.functions()))
        before = mx.get_num_threads()
        for threads in (1, 2, 4):
            mx.set_num_threads(threads)
            outputs, updates = code.run(inputs)
            found.append([a.tobytes() for a in (*outputs, *updates)])
        mx.set_num_threads(before)
    assert found[1:] == found[:1] * 5


def test_few_calls_are_instructions():
    texts = []
    for count in (2, 40):
        program = lower_program(run_passes(layers(count)[0], PIPELINE, target=host()), host())
        (main,) = (f.text() for f in program.module.functions if f.name == "main")
        texts.append(main)
    assert "_matmul(" in texts[0]
    assert "_matmul(" not in texts[1]
    assert texts[1].count("\n") < 100
