"""Makes a graph that shows a fault of a pass smaller, as long as it still shows it (delta debugging).

Over and over, until nothing helps, it tries: fewer outputs; an inner value as the only output; a value as an input, so
that what computes it goes; an operand of an op in place of its result, if they have one type. Pieces begin large and
are halved (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from gluonjit.ir.dims import LOWEST
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.sizes import dimensions, with_sizes
from gluonjit.ir.types import IRError
from gluonjit.ir.verify import verify
from gluonjit.passes.dce import dce
from gluonjit.passes.manager import PassError, Pipeline, run_passes

Shows = Callable[[Graph], bool]
"""Whether a graph shows the fault."""


def reduced(graph: Graph, shows: Shows, progress: Callable[[int, int], object] = lambda ops, tried: None) -> Graph:
    """A graph that shows the fault, none of whose reductions does. IRError if `graph` does not show it.

    `progress(ops, tried)` is called for each graph that is smaller, and shows it."""
    tried = 0
    if not shows(graph):
        raise IRError("the graph does not show the fault, so there is nothing to reduce")
    while True:
        for candidate in _smaller(graph):
            tried += 1
            if shows(candidate):
                graph = candidate
                progress(len(graph.ops), tried)
                break
        else:
            return graph


def fails(pipeline: Pipeline, **how: object) -> Shows:
    """A `Shows` for a pipeline that fails (`run_passes`, with these keywords): with the pass and the error of the first
    graph again."""
    kinds: list[tuple[str, type]] = []

    def shows(graph: Graph) -> bool:
        try:
            run_passes(graph, pipeline, verify_each=True, **how)  # type: ignore[arg-type]
        except PassError as e:
            kinds.append((e.name, type(e.__cause__)))
            return kinds[-1] == kinds[0]
        return False

    return shows


def differs(pipeline: Pipeline, tolerance: float = 1e-3, seed: int = 0, **how: object) -> Shows:
    """A `Shows` for a pipeline that changes results: by more than `tolerance`, relative to the largest element, for
    random inputs of some small sizes, or in which elements are finite."""

    def shows(graph: Graph) -> bool:
        sizes = dict.fromkeys(dimensions(graph), LOWEST + 1)
        try:
            inputs = _samples(with_sizes(graph, sizes), seed)
            before = _evaluated(with_sizes(graph, sizes), inputs)
            result = run_passes(graph, pipeline, verify_each=True, **how)  # type: ignore[arg-type]
            after = _evaluated(with_sizes(result, sizes), inputs)
        except (IRError, ArithmeticError, ValueError, TypeError, IndexError):
            return False  # another fault
        return any(_distance(x, y) > tolerance for x, y in zip(before, after, strict=True))

    return shows


def _evaluated(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    if any(op.definition.level == "operator" for op in graph.ops):
        graph = run_passes(graph, "expand")
        inputs = [*inputs, *(np.zeros(v.shape, v.type.dtype.numpy) for v in graph.inputs[len(inputs) :])]
    outputs, states = evaluate(graph, inputs)
    return [*outputs, *states]


def _samples(graph: Graph, seed: int) -> list[np.ndarray]:
    """Inputs that are the same for an input of the same name, whatever others there are."""
    found = []
    for v in graph.inputs:
        rng = np.random.default_rng([seed, *v.name.encode()])
        x: np.ndarray
        if v.type.dtype.kind == "f":
            x = rng.standard_normal(v.shape)
        elif v.type.dtype.kind == "b":
            x = rng.integers(0, 2, v.shape)
        else:
            x = rng.integers(0, 3, v.shape)
        found.append(np.asarray(x).astype(v.type.dtype.numpy))
    return found


def _distance(x: np.ndarray, y: np.ndarray) -> float:
    if x.shape != y.shape or x.dtype != y.dtype:
        return np.inf
    a, b = (z.astype(np.float64) for z in (x, y))
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return np.inf
    finite = np.isfinite(a)
    scale = float(np.abs(a[finite]).max(initial=0.0))
    gap = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    return gap / scale if scale else gap


# ---- smaller graphs


def _smaller(graph: Graph) -> Iterator[Graph]:
    """Graphs with fewer ops or outputs, the smallest first."""
    seen = {_size(graph)}
    for make in (_by_outputs, _by_inner_outputs, _by_inputs, _by_bypass):
        for candidate in make(graph):
            try:
                candidate = _tidy(candidate)
                verify(candidate)
            except IRError:
                continue  # a piece that does not stand alone, such as half of a pair of random streams
            if _size(candidate) < min(seen):
                yield candidate


def _size(graph: Graph) -> tuple[int, int, int]:
    return len(graph.ops), len(graph.outputs) + len(graph.updates), len(graph.inputs)


def _tidy(graph: Graph) -> Graph:
    """The graph without dead ops, and without inputs that nothing reads."""
    graph = dce(graph)
    read = {v for op in graph.ops for v in op.operands} | {*graph.outputs, *(v for pair in graph.updates for v in pair)}
    kept = tuple(v for v in graph.inputs if v in read)
    # Attributes that number inputs, such as `params`, would number others.
    attrs = graph.attrs if len(kept) == len(graph.inputs) else {k: v for k, v in graph.attrs.items() if k == "training"}
    return replace(graph, inputs=kept, attrs=attrs)


def _chunks(n: int) -> Iterator[range]:
    """Ranges that cover 0 … n - 1, halves first, then smaller ones."""
    size = n
    while size:
        for begin in range(0, n, size):
            yield range(begin, min(begin + size, n))
        size //= 2


def _by_outputs(graph: Graph) -> Iterator[Graph]:
    if graph.updates:
        yield replace(graph, updates=())
    for chunk in _chunks(len(graph.outputs)):
        if 0 < len(chunk) < len(graph.outputs):
            yield replace(graph, outputs=tuple(graph.outputs[k] for k in chunk), updates=())


def _by_inner_outputs(graph: Graph) -> Iterator[Graph]:
    """The first ops alone, with the last result as the output: by bisection, then one after the other."""
    n = len(graph.ops)
    for k in dict.fromkeys([*(n >> s for s in range(1, n.bit_length())), *range(n)]):
        op = graph.ops[k]
        if op.results:
            yield replace(graph, outputs=op.results, updates=())


def _by_inputs(graph: Graph) -> Iterator[Graph]:
    """Ops in a row go, and what others read of them are inputs."""
    for chunk in _chunks(len(graph.ops)):
        gone = [graph.ops[k] for k in chunk]
        if any(op.regions for op in gone) and len(gone) > 1:
            continue
        yield _without(graph, gone)


def _without(graph: Graph, gone: Sequence[Op]) -> Graph:
    away = {id(op) for op in gone}
    names = {v.name for v in graph.inputs}
    made: dict[Value, Value] = {}
    for op in gone:
        for v in op.results:
            name = v.name if v.name and v.name not in names else f"in{len(names)}"
            names.add(name)
            made[v] = Value(name, v.type)
    return _replaced(replace(graph, inputs=(*graph.inputs, *made.values())), made, away)


def _by_bypass(graph: Graph) -> Iterator[Graph]:
    for op in graph.ops:
        if len(op.results) == 1:
            for v in dict.fromkeys(op.operands):
                if v.type == op.results[0].type:
                    yield _replaced(graph, {op.results[0]: v}, {id(op)})


def _replaced(graph: Graph, instead: dict[Value, Value], gone: set[int]) -> Graph:
    def new(v: Value) -> Value:
        return instead.get(v, v)

    ops = tuple(
        replace(op, operands=tuple(map(new, op.operands))) if any(v in instead for v in op.operands) else op
        for op in graph.ops
        if id(op) not in gone
    )
    updates = tuple((state, new(v)) for state, v in graph.updates)
    return replace(graph, ops=ops, outputs=tuple(map(new, graph.outputs)), updates=updates)
