"""`Computation`: a graph that has run forward, and the graphs of its gradient, made on demand.

A recorded operator and a recorded hybridized block are both computations. They differ in what runs the graphs: the
operator's are interpreted, the block's compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.execution.evaluator import Evaluator
from gluonjit.ir.graph import Graph
from gluonjit.ir.opdef import NO_GRADIENT
from gluonjit.ir.types import BOOL, IRError
from gluonjit.passes import run_passes
from gluonjit.passes.partition import Halves, divide, saved_bytes, sources
from gluonjit.passes.row_gradients import row_gradients
from gluonjit.runtime import backend as backends

Run = Callable[[Sequence[np.ndarray]], "tuple[list[np.ndarray], list[np.ndarray]]"]
"""Inputs of a graph to its outputs and updates."""
Compile = Callable[[Graph], Run]

GRADIENT_PIPELINE = "expand {gradients = True}, legalize-broadcast, simplify, cse, dce"
"""What is done to a graph before it is differentiated."""
JOINT_PIPELINE = "legalize-broadcast, simplify, fold, cse, dce"
"""What is done to the joint graph before it is divided."""


def default_remat() -> str:
    """What gradients compute again where nothing else is said; MXNet's variable asks for as much as possible."""
    return (
        "all" if os.environ.get("MXNET_BACKWARD_DO_MIRROR", "0") not in ("", "0", "false", "False") else "elementwise"
    )


def evaluated(graph: Graph) -> Run:
    """Runs a graph op by op, with NumPy: for graphs too small to be worth compiling."""
    return Evaluator(graph).run


def compiled(backend: backends.Backend, options: dict[str, Any]) -> Compile:
    """What compiles the graphs of a recorded call. No value is prepared in advance: parameters change at every step."""

    def compile(graph: Graph) -> Run:
        run = backend(graph.with_attrs(params=()), options).run
        return lambda inputs: run([np.asarray(x, order="C") for x in inputs])

    return compile


class Backward(NamedTuple):
    """The gradient of a computation by some of its inputs, given cotangents of some of its outputs.

    Its inputs are those values of the forward computation that `sources` numbers (input k is k, output k is -1 - k),
    then the cotangents. Its outputs are the gradients. `writes`: the inputs of the forward computation that get new
    values, one for each of its updates; they are read as they are when it runs. `reads`: whether the gradients depend
    on each of the cotangents. `additions`: the gradients that are given as rows, by number, and as how many outputs
    (indices, rows) each: see `passes/row_gradients.py`.
    """

    computation: Computation
    sources: tuple[int, ...]
    writes: tuple[int, ...]
    reads: tuple[bool, ...]
    additions: Mapping[int, int] = MappingProxyType({})


@dataclass
class Forward:
    """A forward computation that also gives what its gradient needs: outputs behind the first `count`.

    `saved_bytes` is the size of those.
    """

    run: Run
    count: int
    backward: Backward
    saved_bytes: int


class Computation:
    """`graph` may have any level up to `legal`; `compile` makes its graphs callable; `remat` is what gradients compute
    again rather than save (`passes.partition.REMAT`), None for the default."""

    def __init__(self, graph: Graph, compile: Compile = evaluated, remat: str | None = None) -> None:
        self.graph = graph
        self._compile = compile
        self._remat = remat
        self._legal: Graph | None = None
        self._run: Run | None = None
        self._heads: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._backwards: dict[Hashable, Backward] = {}
        self._forwards: dict[Hashable, Forward] = {}

    def run(self, inputs: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        if self._run is None:
            self._run = self._compile(self.graph)
        return self._run(inputs)

    def differentiable(self, wrt: tuple[int, ...]) -> tuple[int, ...]:
        """The numbers of the outputs that depend on the inputs `wrt` through ops that have a gradient."""
        found = self._heads.get(wrt)
        if found is None:
            found = self._heads[wrt] = self._reached(wrt)
        return found

    def _reached(self, wrt: Sequence[int]) -> tuple[int, ...]:
        legal = self.legal
        active = {legal.inputs[k] for k in wrt}
        for op in legal.ops:
            if any(v in active for v in op.operands) and getattr(op.definition, "vjp", None) is not NO_GRADIENT:
                active.update(v for v in op.results if v.dtype is not BOOL)
        return tuple(k for k, v in enumerate(legal.outputs) if v.dtype is not BOOL and v in active)

    @property
    def legal(self) -> Graph:
        """The graph that is differentiated."""
        if self._legal is None:
            self._legal = run_passes(self.graph, GRADIENT_PIPELINE)
        return self._legal

    def backward(self, wrt: tuple[int, ...], heads: tuple[int, ...], rows: tuple[int, ...] = ()) -> Backward:
        """The gradient from inputs and outputs alone; what else it needs it computes again.

        `rows`: the numbers, in `wrt`, of the inputs whose gradient is wanted as rows, where that is possible."""
        found = self._backwards.get((wrt, heads, rows))
        if found is None:
            joint, additions = row_gradients(self.joint(wrt, heads), rows)
            found = self._made(divide(joint, recompute=True), additions)
            self._backwards[wrt, heads, rows] = found
        return found

    def forward(self, wrt: tuple[int, ...], heads: tuple[int, ...], rows: tuple[int, ...] = ()) -> Forward:
        """The forward computation that saves what the gradient would have to compute again."""
        found = self._forwards.get((wrt, heads, rows))
        if found is None:
            joint, additions = row_gradients(self.joint(wrt, heads), rows)
            halves = divide(joint, recompute=(self._remat or default_remat()) == "all")
            count = len(self.graph.outputs)
            saved = saved_bytes(halves, count)
            found = Forward(self._compile(halves.forward), count, self._made(halves, additions), saved)
            self._forwards[wrt, heads, rows] = found
        return found

    def joint(self, wrt: Sequence[int], heads: Sequence[int]) -> Graph:
        """The graph and its gradient, simplified, before it is divided."""
        legal = self.legal
        options = {"wrt": tuple(wrt), "heads": tuple(heads)}
        try:
            joint = run_passes(legal, [("differentiate", options)])
        except IRError as e:
            raise MXNetError(str(e)) from None
        return run_passes(joint, JOINT_PIPELINE)

    def _made(self, halves: Halves, additions: Mapping[int, int]) -> Backward:
        backward = halves.backward
        places = dict(zip(backward.inputs, sources(halves)))
        writes = tuple(places[state] for state, _ in backward.updates)
        read = {v for op in backward.ops for v in op.operands} | {*backward.results}
        reads = tuple(v in read for v in backward.inputs[len(halves.saved) :])
        return Backward(Computation(backward, self._compile), sources(halves), writes, reads, additions)
