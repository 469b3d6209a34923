"""Code for 64-bit ARM, which does not run here: every kind of kernel multiplies and adds on NEON registers."""

import re

import pytest

from gluonjit.codegen.entry import entry_module
from gluonjit.codegen.program import lower_kernel, lower_program
from gluonjit.codegen.target import named
from gluonjit.codegen.text import llvm
from gluonjit.codegen.threads.team import SLEEP
from gluonjit.ir.graph import Builder
from gluonjit.ir.types import F32, TensorType
from gluonjit.passes import run_passes
from gluonjit.passes.pipelines import PIPELINE
from support.convolutions import conv
from support.selected import kernel_name

TARGET = named("aarch64")


def matmul(m, n, k):
    b = Builder("matmul", "legal")
    x, w = b.input("x", TensorType(F32, (m, k))), b.input("w", TensorType(F32, (k, n)))
    return b.build([b.tanh(b.dot_general(x, w, contract=((1,), (0,))))], {"params": (1,)})


def loops(make):
    b = Builder("loops", "legal")
    return b.build([make(b, b.input("x", TensorType(F32, (64, 64))))])


def softmax(b, x):
    def spread(y):
        return b.broadcast(y, shape=x.shape, dims=(0,))

    e = b.exp(b.sub(x, spread(b.reduce(x, op="max", axes=(1,)))))
    return b.div(e, spread(b.reduce(e, op="sum", axes=(1,))))


GRAPHS = {
    "matmul": matmul(64, 64, 64),
    "matmul, one row": matmul(1, 64, 64),
    "conv": conv((14, 14), 32, 32, 3, stride=2, low=1, high=1),
    "depthwise": conv((14, 14), 32, 32, 3, low=1, high=1, groups=32),
    "winograd": conv((28, 28), 64, 64, 3, low=1, high=1),
    "planar": conv((28, 28), 1, 2, 5),
    "loops": loops(lambda b, x: b.exp(x)),
    "loops, a reduction": loops(softmax),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_fused_multiply_add(name):
    kind = name.partition(",")[0]
    graph = run_passes(GRAPHS[name], "fuse, select", target=TARGET)
    (op,) = [op for op in graph.ops if kernel_name(op) == kind and op.results[0] is graph.outputs[0]]
    module = llvm.Module(TARGET)
    lower_kernel("k", op, module)
    assembly = llvm.assembly(module.text(), TARGET)
    assert re.search(r"\bfmla\s+v\d+\.4s", assembly)
    # Nothing is done lane by lane, or by a function of a library.
    assert not re.search(r"\bfmadd\s+s\d+", assembly)
    assert not re.search(r"\bbl\s+(expf?|tanhf?|memcpy|fmaf?)\b", assembly)


def undefined(text):
    """What the text's object needs from elsewhere. LLVM ends the process at what only an assembler understands."""
    return llvm.undefined_symbols(llvm.compile_module(text, TARGET)) - {"memcpy", "memset", "memmove"}


@pytest.mark.parametrize("sleep", [name for name in SLEEP if name is not None])
def test_native_entry(sleep):
    assert undefined(entry_module(TARGET, sleep)) == set(SLEEP[sleep])


def test_a_graph_calls_nothing():
    b = Builder("net", "traced")
    x, v, w = (b.input(name, TensorType(F32, (400, 400))) for name in "xvw")
    y = b.tanh(b.dot_general(x, v, contract=((1,), (0,))))
    graph = b.build([softmax(b, b.dot_general(y, w, contract=((1,), (0,))))], {"params": (1, 2)})
    planned = run_passes(graph, PIPELINE.replace("threads", "threads {grain = 0, share = 0}"), target=TARGET)
    assert undefined(lower_program(planned, TARGET).text) == set()
