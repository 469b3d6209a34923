"""The compiler from Python: a call's graph at any stage, and a graph compiled, with its code to look at.

graph = net.graph(x)                            # gluonjit.ir.graph.Graph
compiled = gluonjit.compile(graph)
print(compiled.ir, compiled.llvm, compiled.asm, compiled.kernels[0].why)
outputs = compiled(x, *parameters)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from gluonjit.autodiff.computation import Computation
from gluonjit.base import MXNetError
from gluonjit.codegen.program import lower_program
from gluonjit.codegen.target import host, named
from gluonjit.codegen.text import llvm
from gluonjit.common.lazy import cached_property
from gluonjit.execution.block_compiler import trace_call
from gluonjit.ir.arena import Tenant, tenants
from gluonjit.ir.graph import Graph
from gluonjit.ir.machine import Machine
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.text import print_graph
from gluonjit.ir.types import IRError
from gluonjit.ir.verify import verify
from gluonjit.passes import run_passes
from gluonjit.passes.explain import Row, explain
from gluonjit.passes.manager import After, Pipeline
from gluonjit.passes.pipelines import PIPELINE
from gluonjit.runtime.compiler import compile_graph
from gluonjit.runtime.executable import Executable

STAGES = ("trace", "expanded", "optimized")


def graph(block: Any, *args: Any, stage: str = "trace") -> Graph:
    """The graph of a call `block(*args)`, in the current mode, at a stage: `trace`, the operators of MXNet that the
    program records; `expanded`, primitives; `optimized`, kernels and their places in memory, as they are compiled.

    IRError for another stage, ValueError without arguments, and the errors of the call itself."""
    if stage not in STAGES:
        raise IRError(f"there is no stage {stage!r}{did_you_mean(stage, STAGES)}")
    if not args:
        raise ValueError("a graph is for types of arguments, so it needs some, as a call has: graph(x)")
    traced = trace_call(block, args)
    if stage == "trace":
        return traced
    return run_passes(traced, "expand" if stage == "expanded" else PIPELINE, target=host())


def joint_graph(graph: Graph, fixed: Collection[str] = (), after: After | None = None) -> Graph:
    """The graph, of level `traced`, together with its gradient by the parameters, or by its inputs if there are none. A
    recorded call and its gradient are the halves of it. `fixed`: the names of parameters that get no gradient; `after`
    is called after each pass. MXNetError if there is no gradient."""
    computation = Computation(graph, after=after)
    floats = [k for k, v in enumerate(graph.inputs) if v.dtype.is_float and v.name not in fixed]
    params = [k for k in floats if k in graph.attrs.get("params", ())]
    wrt = tuple(params or floats)
    heads = computation.differentiable(wrt)
    if not heads:
        raise MXNetError(f"no output of {graph.name} depends on a parameter or an input in a way that has a gradient")
    return computation.joint(wrt, heads)


def without_gradient(block: Any) -> set[str]:
    """The names of the block's parameters that get no gradient."""
    return {p.name for p in block.collect_params().values() if p.grad_req == "null"}


def compile(graph: Graph, *, target: str | None = None, pipeline: Pipeline | None = None) -> Compiled:
    """The graph, of any level before `planned`, compiled for this machine, or for the target of that name
    (`--target` of the command line). `pipeline`: passes other than the default ones. TypeError for anything else
    than a Graph, VerifyError for one that is not valid, IRError for an unknown target.

    >>> net = nn.Dense(3, in_units=4)
    >>> net.initialize()
    >>> code = mx.compile(net.graph(mx.nd.ones((2, 4))))
    >>> [kernel.what for kernel in code.kernels]
    ['2×3, sums of 4']
    """
    if not isinstance(graph, Graph):
        given = type(graph).__name__
        raise TypeError(
            f"compile takes a Graph, such as net.graph(x) or gluonjit.ir.text.parse_graph(text), got {given}"
        )
    verify(graph)
    steps = PIPELINE if pipeline is None else pipeline
    return Compiled(graph, host() if target is None else named(target), steps)


class Compiled:
    """A compiled graph: callable, with everything that was made on the way. Each part is made when it is first asked
    for."""

    def __init__(self, source: Graph, target: Machine, pipeline: Pipeline) -> None:
        self.source = source
        self.target = target
        self.pipeline = pipeline

    @cached_property
    def graph(self) -> Graph:
        """The graph after all passes."""
        return run_passes(self.source, self.pipeline, target=self.target)

    @property
    def ir(self) -> str:
        """The text of `graph`; long constants are left out."""
        return print_graph(self.graph, elide=16)

    @cached_property
    def llvm(self) -> str:
        """The LLVM IR of the whole program."""
        return lower_program(self.graph, self.target).text

    @cached_property
    def asm(self) -> str:
        """Its assembly."""
        return llvm.assembly(self.llvm, self.target)

    @cached_property
    def kernels(self) -> list[Row]:
        """Each kernel in order: what it computes, its tile, the microseconds expected on one core, and the reason."""
        return explain(self.graph, self.target)

    @cached_property
    def memory_plan(self) -> list[Tenant]:
        """What lies where in the arena, from which op to which."""
        return tenants(self.graph)

    @cached_property
    def executable(self) -> Executable:
        """The native code. IRError if `target` is another machine."""
        if self.target != host():
            raise IRError(f"this is code for {self.target.cpu}, which this machine ({host().cpu}) does not run")
        if not isinstance(self.pipeline, str):
            raise IRError("code is made for a pipeline that is a text, such as 'expand, fuse, select'")
        return compile_graph(self.source, target=self.target, pipeline=self.pipeline)

    def __call__(self, *inputs: Any) -> list[np.ndarray]:
        """The outputs and then the new states, for arrays of the types of the graph's inputs, in their order."""
        arrays: Sequence[np.ndarray] = [np.asarray(getattr(x, "_array", x)) for x in inputs]
        outputs, states = self.executable.run(arrays)
        return [*outputs, *states]

    def __repr__(self) -> str:
        expected = sum(row.microseconds for row in self.kernels)
        return f"<compiled @{self.graph.heading}: {len(self.kernels)} kernels, {expected:.0f} µs expected>"
