"""Kernels compiled and run by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gluonjit.codegen import llvm
from gluonjit.codegen.loops import lower_loops
from gluonjit.codegen.target import Target, host, named
from gluonjit.ir.graph import Builder, Graph, Value
from gluonjit.ir.types import TensorType


def runnable_targets() -> list[Target]:
    """The host, and lesser machines whose code it can run."""
    targets = [host()]
    if host().arch == "x86":
        lesser = [named("x86-64-v3"), named("x86-64-v2")]
        targets += [t for t in lesser if t.vector_bits < host().vector_bits or t.vector_bits == 128]
    return targets


def body(make: Callable[..., Any], *types: TensorType) -> Graph:
    """The graph of `make(builder, *inputs)`, which returns a value or several."""
    b = Builder("body", "legal")
    made = make(b, *(b.input(f"x{k}", t) for k, t in enumerate(types)))
    return b.build([made] if isinstance(made, Value) else list(made))


def text(graph: Graph, target: Target | None = None) -> str:
    """The LLVM IR of the loops for a body."""
    target = target or host()
    module = llvm.Module(target)
    lower_loops("kernel", graph, {}, target, module)
    return module.text()


def run(
    graph: Graph,
    inputs: Sequence[np.ndarray],
    target: Target | None = None,
    nthreads: int = 1,
    lower: Callable[..., None] | None = None,
) -> list[np.ndarray]:
    """What the compiled body writes. `lower(name, target, module)` instead of `lower_loops` for other kernels.

    Outputs are filled with 7 before, so what is not written shows.
    """
    target = target or host()
    if lower is None:
        source = text(graph, target)
    else:
        module = llvm.Module(target)
        lower("kernel", target, module)
        source = module.text()
    loaded = llvm.load(llvm.compile_module(source, target))
    outputs = [np.full(v.shape, 7, v.dtype.numpy) for v in graph.outputs]
    loaded.call("kernel", [*inputs, *outputs], nthreads)
    return outputs
