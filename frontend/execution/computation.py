"""`Computation`: a graph that has run forward, and the graphs of its gradient, made on demand.

A recorded operator and a recorded hybridized block are both computations. They differ in what runs the graphs: the
operator's are interpreted, the block's compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.execution.evaluator import Evaluator
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.opdef import NO_GRADIENT
from gluonjit.ir.sizes import fitted
from gluonjit.ir.types import BOOL, IRError
from gluonjit.language.source import quote
from gluonjit.passes import run_passes
from gluonjit.passes.differentiate import NoGradient
from gluonjit.passes.differentiate_control import without_rules
from gluonjit.passes.manager import PassError
from gluonjit.passes.partition import Halves, divide, saved_bytes, sources
from gluonjit.passes.row_gradients import row_gradients
from gluonjit.runtime import backend as backends

Run = Callable[[Sequence[np.ndarray]], "tuple[list[np.ndarray], list[np.ndarray]]"]
"""Inputs of a graph to its outputs and updates."""
Compile = Callable[[Graph], Run]

GRADIENT_PIPELINE = "expand {gradients = True}, legalize-broadcast, simplify, cse, dce"
"""What is done to a graph before it is differentiated."""
JOINT_PIPELINE = "legalize-broadcast, simplify, fold, cse, dce, join-pads, dce"
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


def _sources(graph: Graph, given: Sequence[int], marks: Mapping[Value, int] = MappingProxyType({})) -> list[int]:
    """What each output depends on, as the union of the bit masks `given` for the inputs, and of `marks` for others."""
    masks = dict(zip(graph.inputs, given, strict=True))
    for op in graph.ops:
        operands = [masks[v] for v in op.operands]
        if op.attrs.get(".detached"):
            found = [0]
        elif op.name == "loop":
            found = _sources_of_loop(op, operands)
        elif op.name == "branch":
            found = [a | b for a, b in zip(*(_sources(region, operands[1:]) for region in op.regions))]
        else:
            found = [reduce(or_, operands, 0)] * len(op.results)
        masks.update((v, mask | marks.get(v, 0)) for v, mask in zip(op.results, found, strict=True))
    return [masks[v] for v in graph.outputs]


def _layers(graph: Graph) -> list[Value]:
    """The first results of those ops whose gradient ignores the cotangents of their results: output layers."""
    training = bool(graph.attrs.get("training", False))
    return [op.results[0] for op in graph.ops if _ignores_cotangents(op, bool(op.attrs.get(".training", training)))]


def _ignores_cotangents(op: Op, training: bool) -> bool:
    regions: Sequence[Graph] = op.regions if op.name == "with_gradient" else ()
    if op.definition.level == "operator" and getattr(op.definition, "gradient", None) is not None:
        own = op.definition.with_gradient([v.type for v in op.operands], op.attrs, training)
        regions = own.regions if own is not None else ()
    if len(regions) != 2:
        return False
    rule = regions[1]
    cotangents = set(rule.inputs[len(rule.inputs) - len(regions[0].outputs) :])
    read = {v for inner in rule.ops for v in inner.operands} | {*rule.outputs}
    return bool(rule.outputs) and not cotangents & read


def _sources_of_loop(op: Op, operands: Sequence[int]) -> list[int]:
    carried = op.attrs["carried"]
    state, rest = list(operands[:carried]), operands[carried:]
    rows = [0] * (len(op.results) - carried)
    for _ in range(op.attrs["trip"]):
        found = _sources(op.regions[0], [0, *state, *rest])
        wider = [a | b for a, b in zip(state, found)]
        rows = [a | b for a, b in zip(rows, found[carried:])]
        if wider == state:
            break
        state = wider
    return [*state, *rows]


def _innermost(error: BaseException) -> BaseException:
    """The error of a pass, without the names of the passes that it went through."""
    while isinstance(error, PassError) and isinstance(error.__cause__, IRError):
        error = error.__cause__
    return error


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
        self._known_layers: list[Value] | None = None
        self._layers_of_output: list[int] | None = None
        self._run: Run | None = None
        self._heads: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._reached_inputs: list[frozenset[int]] | None = None
        self._reached_from: dict[Hashable, Mapping[int, frozenset[int]] | None] = {}
        self._backwards: dict[Hashable, Backward] = {}
        self._forwards: dict[Hashable, Forward] = {}

    def run(self, inputs: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        self.compile()
        assert self._run is not None
        return self._run(inputs)

    def compile(self) -> None:
        """Makes `run` ready."""
        if self._run is None:
            self._run = self._compile(without_rules(self.graph))

    def fitted(self, inputs: Sequence[np.ndarray]) -> Computation:
        """The computation for inputs of these shapes; itself, unless its graph has open dimensions."""
        graph = fitted(self.graph, inputs)
        return self if graph is self.graph else Computation(graph, self._compile, self._remat)

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
            # The states that change late do so where a gradient passes, even one of 0.
            fixed = op.attrs["fixed"] if op.name == "with_gradient" and not op.attrs["late"] else ()
            depends = any(v in active for k, v in enumerate(op.operands) if k not in fixed)
            if depends and getattr(op.definition, "vjp", None) is not NO_GRADIENT:
                active.update(v for v in op.results if v.dtype is not BOOL)
        count = len(self.graph.outputs)
        started = [n for n, v in enumerate(legal.outputs[count:]) if v in active]
        return tuple(
            k
            for k, v in enumerate(legal.outputs[:count])
            if v.dtype is not BOOL and (v in active or any(self._layers_behind[k] >> n & 1 for n in started))
        )

    @property
    def _layers(self) -> list[Value]:
        if self._known_layers is None:
            self._known_layers = _layers(self.graph)
        return self._known_layers

    @property
    def _layers_behind(self) -> list[int]:
        """For each output, the bit mask of the output layers that it depends on. Through whatever: an output layer
        ignores its cotangent, so its gradient is the same behind an op whose gradient is 0."""
        if self._layers_of_output is None:
            marks = {v: 1 << n for n, v in enumerate(self._layers)}
            none = [0] * len(self.graph.inputs)
            self._layers_of_output = _sources(self.graph, none, marks) if marks else [0] * len(self.graph.outputs)
        return self._layers_of_output

    @property
    def has_layers(self) -> bool:
        """Whether the gradient depends on which outputs have a cotangent at all, be it one of 0."""
        return any(self._layers_behind)

    def reached(self, k: int) -> frozenset[int]:
        """The numbers of the inputs that output k depends on, be it through ops whose gradient is 0."""
        if self._reached_inputs is None:
            numbers = range(len(self.graph.inputs))
            masks = _sources(self.graph, [1 << n for n in numbers])
            self._reached_inputs = [frozenset(n for n in numbers if mask >> n & 1) for mask in masks]
        return self._reached_inputs[k]

    def reached_from(self, wrt: tuple[int, ...], heads: tuple[int, ...]) -> Mapping[int, frozenset[int]] | None:
        """For each head, the positions in `wrt` of the inputs that it depends on; None: all do on all."""
        key = wrt, heads
        if key not in self._reached_from:
            found = {k: frozenset(n for n, place in enumerate(wrt) if place in self.reached(k)) for k in heads}
            every = all(len(of) == len(wrt) for of in found.values())
            self._reached_from[key] = None if every else found
        return self._reached_from[key]

    @property
    def legal(self) -> Graph:
        """The graph that is differentiated. Its outputs are followed by the results of output layers."""
        if self._legal is None:
            graph = self.graph
            if self._layers:
                graph = replace(graph, outputs=(*graph.outputs, *self._layers))
            self._legal = run_passes(graph, GRADIENT_PIPELINE)
        return self._legal

    def backward(self, wrt: tuple[int, ...], heads: tuple[int, ...], rows: tuple[int, ...] = ()) -> Backward:
        """The gradient from inputs and outputs alone; what else it needs it computes again. It can be differentiated.

        `rows`: the numbers, in `wrt`, of the inputs whose gradient is wanted as rows, where that is possible."""
        found = self._backwards.get((wrt, heads, rows))
        if found is None:
            joint, additions = row_gradients(self.joint(wrt, heads, keep_rules=True), rows)
            found = self._made(divide(joint, recompute=True), additions)
            self._backwards[wrt, heads, rows] = found
        return found

    def forward(self, wrt: tuple[int, ...], heads: tuple[int, ...], rows: tuple[int, ...] = ()) -> Forward:
        """The forward computation that saves what the gradient would have to compute again."""
        found = self._forwards.get((wrt, heads, rows))
        if found is None:
            joint, additions = row_gradients(self.joint(wrt, heads), rows)
            halves = divide(joint, recompute=(self._remat or default_remat()) == "all", sections=True)
            count = len(self.graph.outputs)
            saved = saved_bytes(halves, count)
            found = Forward(self._compile(halves.forward), count, self._made(halves, additions), saved)
            self._forwards[wrt, heads, rows] = found
        return found

    def joint(self, wrt: Sequence[int], heads: Sequence[int], keep_rules: bool = False) -> Graph:
        """The graph and its gradient, simplified, before it is divided. `keep_rules`: see `differentiate`."""
        legal = self.legal
        options = {"wrt": tuple(wrt), "heads": tuple(heads), "keep_rules": keep_rules}
        count = len(self.graph.outputs)
        if layers := len(legal.outputs) - count:
            behind = reduce(or_, [self._layers_behind[k] for k in heads], 0)
            starts = tuple(count + n for n in range(layers) if behind >> n & 1)
            options |= {"layers": layers, "starts": starts}
        try:
            joint = run_passes(legal, [("differentiate", options)])
        except IRError as e:
            cause = _innermost(e)
            if isinstance(cause, NoGradient):
                raise MXNetError(f"{cause.what} has no gradient{quote(cause.loc)}") from None
            raise MXNetError(str(cause)) from None
        return run_passes(joint, JOINT_PIPELINE)

    def _made(self, halves: Halves, additions: Mapping[int, int]) -> Backward:
        backward = halves.backward
        places = dict(zip(backward.inputs, sources(halves)))
        writes = tuple(places[state] for state, _ in backward.updates)
        read = {v for op in backward.ops for v in op.operands} | {*backward.results}
        reads = tuple(v in read for v in backward.inputs[len(halves.saved) :])
        return Backward(Computation(backward, self._compile), sources(halves), writes, reads, additions)


class OpenComputation(Computation):
    """A computation for inputs of certain sizes, whose forward and backward halves serve other sizes as well.

    `shared` has the graph with open dimensions, and what was made of it; `own` makes the computation for these sizes
    alone, which does whatever cannot be open. `refused` notes, for all sizes, for which inputs that is so.
    """

    def __init__(self, shared: Computation, own: Callable[[], Computation], refused: set[Hashable]) -> None:
        self._shared, self._own, self._refused = shared, own, refused

    @property
    def graph(self) -> Graph:  # type: ignore[override]
        return self._own().graph

    def run(self, inputs: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        return self._own().run(inputs)

    def fitted(self, inputs: Sequence[np.ndarray]) -> Computation:
        return self._own()

    def differentiable(self, wrt: tuple[int, ...]) -> tuple[int, ...]:
        return self._shared.differentiable(wrt)

    @property
    def has_layers(self) -> bool:
        return self._shared.has_layers

    def reached(self, k: int) -> frozenset[int]:
        return self._shared.reached(k)

    def reached_from(self, wrt: tuple[int, ...], heads: tuple[int, ...]) -> Mapping[int, frozenset[int]] | None:
        return self._shared.reached_from(wrt, heads)

    def backward(self, wrt: tuple[int, ...], heads: tuple[int, ...], rows: tuple[int, ...] = ()) -> Backward:
        return self._own().backward(wrt, heads, rows)

    def forward(self, wrt: tuple[int, ...], heads: tuple[int, ...], rows: tuple[int, ...] = ()) -> Forward:
        key = wrt, heads, rows
        if key not in self._refused:
            try:
                found = self._shared.forward(*key)
                found.backward.computation.compile()  # now: what cannot be open must show before anything is saved
                return found
            except (IRError, MXNetError):
                self._refused.add(key)
        return self._own().forward(*key)
