"""`Computation`: a graph that has run forward, and the graphs of its gradient, made on demand.

A recorded operator and a recorded hybridized block are both computations. They differ in what runs the graphs: the
operator's are interpreted, the block's compiled.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np

import gluonjit.passes as passes
from gluonjit.autodiff.backward import Backward, Cotangent, Presence, Result, Value
from gluonjit.autodiff.kept_gradients import KeptGradients, backward_from_json, backward_to_json, numbers
from gluonjit.autodiff.presence import Tokens, late_ops, with_tokens, without_tokens
from gluonjit.autodiff.presence import sources as sources_of
from gluonjit.base import MXNetError
from gluonjit.common.lazy import cached_property
from gluonjit.ir.dims import Undecided, hint
from gluonjit.ir.graph import Graph
from gluonjit.ir.interpreter import Interpreter
from gluonjit.ir.opdef import NO_GRADIENT
from gluonjit.ir.sizes import fitted, untold
from gluonjit.ir.types import BOOL, IRError
from gluonjit.language.source import quote
from gluonjit.passes.pipelines import GRADIENT_PIPELINE, JOINT_PIPELINE
from gluonjit.runtime import backend as backends
from gluonjit.runtime.collector import without_collector
from gluonjit.runtime.executable import Executable
from gluonjit.runtime.numpy_memory import InKeptBlocks
from gluonjit.runtime.watching import Watch

if TYPE_CHECKING:
    from gluonjit.passes.manager import After
    from gluonjit.passes.partition import Halves

Run = Callable[..., "tuple[list[np.ndarray], list[np.ndarray]]"]
"""From the inputs of a graph to its outputs and updates. What a `Compiler` makes also takes a `Watch`."""
Compile = Callable[[Graph], Run]


def default_remat() -> str:
    """What gradients compute again where nothing else is said; MXNet's variable asks for as much as possible."""
    return (
        "all" if os.environ.get("MXNET_BACKWARD_DO_MIRROR", "0") not in ("", "0", "false", "False") else "elementwise"
    )


def evaluated(graph: Graph) -> Run:
    """Runs a graph op by op, with NumPy: for graphs too small to be worth compiling, or not yet."""
    run = Interpreter(graph).run
    if not any(hint(v.type.nbytes) >= _LARGE for op in graph.ops for v in op.results):
        return run

    def run_in_kept_blocks(inputs: Sequence[np.ndarray]) -> Any:
        with InKeptBlocks():
            return run(inputs)

    return run_in_kept_blocks


_LARGE = 1 << 16
"""Bytes of a result from which an op may make arrays that are worth keeping: a convolution gathers its operands."""


class Compiler:
    """Compiles the graphs of a recorded call. No value is prepared in advance: parameters change at every step.

    `noted(code, seconds, backward)` is called when code has been made, or found in the object cache; `backward`:
    whether it is that of a gradient."""

    def __init__(
        self,
        backend: backends.Backend,
        options: dict[str, Any],
        noted: Callable[[backends.Callee, float, bool], object] = lambda callee, seconds, backward: None,
    ) -> None:
        self._backend, self._options, self._noted = backend, options, noted

    def __call__(self, graph: Graph) -> Run:
        began = time.perf_counter()
        return self._made(self._backend(graph.with_attrs(params=()), self._options), began, _is_gradient(graph))

    def _made(self, callee: backends.Callee, began: float, backward: bool) -> Run:
        self._noted(callee, time.perf_counter() - began, backward)
        return CompiledRun(callee)

    def gradients(self, graph: Graph) -> KeptGradients | None:
        """What earlier processes found out about the gradient of the graph; None if the backend keeps nothing."""
        if not isinstance(self._backend, backends.Keeping):
            return None
        key = self._backend.gradient_key(graph.with_attrs(params=()), self._options)
        return None if key is None else KeptGradients(graph.name, key)

    def found(self, kept: KeptGradients | None, what: tuple[Hashable, int], graph: Callable[[], Graph]) -> Run | None:
        """The code of a graph of a gradient, by what it computes and its half (1: backward), if the object cache has
        it."""
        began = time.perf_counter()
        key = kept and kept.read(("code", what), str)
        if not key or not isinstance(self._backend, backends.Keeping):
            return None
        callee = self._backend.kept(key, graph, self._options)
        return None if callee is None else self._made(callee, began, what[1] == 1)

    def of_gradient(self, kept: KeptGradients | None, what: tuple[Hashable, int], graph: Callable[[], Graph]) -> Run:
        """The code of a graph of a gradient, which is found the next time."""
        found = self.found(kept, what, graph)
        if found is None:
            found = self(graph())
            code = code_of(found)
            if kept is not None and code is not None and code.key is not None:
                kept.write(("code", what), code.key)
        return found


class CompiledRun:
    """A `Run` of compiled code."""

    def __init__(self, callee: backends.Callee) -> None:
        self.callee = callee

    def __call__(self, inputs: Sequence[np.ndarray], watch: Watch | None = None) -> Any:
        arrays = [np.asarray(x, order="C") for x in inputs]
        if watch is None or not isinstance(self.callee, Executable):
            return self.callee.run(arrays)
        return self.callee.run(arrays, watch=watch)


def code_of(run: Run | None) -> Executable | None:
    """The native code of a `Run`; None if it has none."""
    return run.callee if isinstance(run, CompiledRun) and isinstance(run.callee, Executable) else None


def _innermost(error: BaseException) -> BaseException:
    """The error of a pass, without the names of the passes that it went through."""
    while isinstance(error, passes.PassError) and isinstance(error.__cause__, IRError):
        error = error.__cause__
    return error


@dataclass
class Forward:
    """A forward computation that also gives what its gradient needs: outputs after the first `count`.

    `saved_bytes` is the size of these.
    """

    run: Run
    count: int
    backward: Backward
    saved_bytes: int


class Computation:
    """`graph` may have any level up to `legal`; `compile` makes its graphs callable; `remat` is what gradients compute
    again rather than save (`passes.partition.REMAT`), None for the default. `after` is called after each pass on the
    way to the joint graph (`passes.manager.After`). `find` is what gives the code of a graph that is made on demand."""

    def __init__(
        self,
        graph: Graph | Callable[[], Graph],
        compile: Compile = evaluated,
        remat: str | None = None,
        after: After | None = None,
        find: Callable[[Callable[[], Graph]], Run] | None = None,
    ) -> None:
        self._graph = graph
        self._after = after
        self._compile = compile
        self._remat = remat
        self._find = find or (lambda make: compile(make()))
        self._legal: Graph | None = None
        self._known_tokens: Tokens | None = None
        self._run: Run | None = None
        self._heads: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._reached_inputs: list[frozenset[int]] | None = None
        self._late_ops: list[int] | None = None
        self._reached_from: dict[Hashable, Mapping[int, frozenset[int]] | None] = {}
        self._backwards: dict[Hashable, Backward] = {}
        self._forwards: dict[Hashable, Forward] = {}
        self.recordings: dict[Hashable, Any] = {}
        """What recording a call needs (`graph_nodes`), by the inputs that gradients flow to."""

    @property
    def graph(self) -> Graph:
        if not isinstance(self._graph, Graph):
            self._graph = self._graph()
        return self._graph

    @cached_property
    def _kept(self) -> KeptGradients | None:
        """What earlier processes found out about the gradient."""
        if self._after is not None or not isinstance(self._compile, Compiler):
            return None
        return self._compile.gradients(self.graph)

    def run(
        self, inputs: Sequence[np.ndarray], watch: Watch | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Runs the graph. `watch`, if the graph is a compiled gradient, learns of results while they are computed."""
        if self._run is None:
            self.compile()
            assert self._run is not None
        return self._run(inputs) if watch is None or self._compile is evaluated else self._run(inputs, watch)

    def compile(self) -> None:
        """Makes `run` ready."""
        if self._run is None:
            self._run = self._find(lambda: passes.differentiate_control.without_rules(self.graph))

    @property
    def code(self) -> Executable | None:
        """The native code that `run` runs; None if there is none, or none yet."""
        return code_of(self._run)

    def fitted(self, inputs: Sequence[np.ndarray]) -> Computation:
        """The computation for inputs of these shapes; itself, unless its graph has open dimensions."""
        graph = fitted(self.graph, inputs)
        return self if graph is self.graph else Computation(graph, self._compile, self._remat)

    def differentiable(self, wrt: tuple[int, ...]) -> tuple[int, ...]:
        """The numbers of the outputs that depend on the inputs `wrt` through ops that have a gradient, or that may: on
        which inputs they depend, only a run tells."""
        found = self._heads.get(wrt)
        if found is None:
            kept = self._kept
            found = None if kept is None else kept.read(("heads", wrt), numbers)
            if found is None:
                found = self._reached(wrt)
                if kept is not None:
                    kept.write(("heads", wrt), found)
            self._heads[wrt] = found
        return found

    def _reached(self, wrt: Sequence[int]) -> tuple[int, ...]:
        legal, tokens = self.legal, self._tokens
        active = {legal.inputs[k] for k in (*wrt, *(tokens.inputs[k] for k in wrt if k in tokens.inputs))}
        for op in legal.ops:
            # The states that change late do so where a gradient passes, even one of 0.
            fixed = op.attrs["fixed"] if op.name == "with_gradient" and not op.attrs["late"] else ()
            depends = any(v in active for k, v in enumerate(op.operands) if k not in fixed)
            if depends and getattr(op.definition, "vjp", None) is not NO_GRADIENT:
                active.update(v for v in op.results if v.dtype is not BOOL)
        outputs = legal.outputs
        return tuple(
            k
            for k in range(len(self.graph.outputs))
            if outputs[k] in active or (k in tokens.outputs and outputs[tokens.outputs[k]] in active)
        )

    @property
    def _tokens(self) -> Tokens:
        if self._known_tokens is None:
            self._known_tokens = with_tokens(self.graph)
        return self._known_tokens

    def reached(self, k: int) -> frozenset[int]:
        """The numbers of the inputs that output k depends on, even through ops whose gradient is 0."""
        if self._reached_inputs is None:
            numbers = range(len(self.graph.inputs))
            masks = sources_of(self.graph, [1 << n for n in numbers])
            self._reached_inputs = [frozenset(n for n in numbers if mask >> n & 1) for mask in masks]
        return self._reached_inputs[k]

    def late_ops(self, heads: Iterable[int]) -> int:
        """The ops that some outputs depend on and whose states change when their gradient is computed, as a mask."""
        if self._late_ops is None:
            self._late_ops = late_ops(self.graph)
        return reduce(or_, [self._late_ops[k] for k in heads], 0)

    def reached_from(self, wrt: tuple[int, ...], heads: tuple[int, ...]) -> Mapping[int, frozenset[int]] | None:
        """For each head, the positions in `wrt` of the inputs that it depends on; None: every head depends on every
        input."""
        key = wrt, heads
        if key not in self._reached_from:
            found = {k: frozenset(n for n, place in enumerate(wrt) if place in self.reached(k)) for k in heads}
            every = all(len(of) == len(wrt) for of in found.values())
            self._reached_from[key] = None if every else found
        return self._reached_from[key]

    @property
    def legal(self) -> Graph:
        """The graph that is differentiated, with tokens: see `presence.py`."""
        if self._legal is None:
            self._legal = passes.run_passes(self._tokens.graph, GRADIENT_PIPELINE, after=self._after)
        return self._legal

    def backward(self, wrt: tuple[int, ...], heads: tuple[int, ...], rows: tuple[int, ...] = ()) -> Backward:
        """The gradient from inputs and outputs alone; it computes again whatever else it needs. It can be
        differentiated.

        `rows`: the numbers, in `wrt`, of the inputs whose gradient is wanted as rows, where that is possible."""
        found = self._backwards.get((wrt, heads, rows))
        if found is None:
            joint, additions = passes.row_gradients.row_gradients(self.joint(wrt, heads, keep_rules=True), rows)
            found = self._made(passes.partition.divide(joint, recompute=True), wrt, heads, additions)
            self._backwards[wrt, heads, rows] = found
        return found

    def forward(self, wrt: tuple[int, ...], heads: tuple[int, ...], rows: tuple[int, ...] = ()) -> Forward:
        """The forward computation that saves what the gradient would have to compute again."""
        found = self._forwards.get((wrt, heads, rows))
        if found is None:
            with without_collector():
                found = self._known_forward(wrt, heads, rows) or self._new_forward(wrt, heads, rows)
            self._forwards[wrt, heads, rows] = found
        return found

    def _new_forward(self, wrt: tuple[int, ...], heads: tuple[int, ...], rows: tuple[int, ...]) -> Forward:
        halves, additions = self._halves(wrt, heads, rows)
        count = len(self.graph.outputs)
        saved = passes.partition.saved_bytes(halves, count)
        kept, compile = self._kept, self._compile
        if kept is None or not isinstance(compile, Compiler) or _calls_python(halves.backward):
            return Forward(compile(halves.forward), count, self._made(halves, wrt, heads, additions), saved)
        what = wrt, heads, rows, self._remat or default_remat()
        backward = self._made(halves, wrt, heads, additions, functools.partial(compile.of_gradient, kept, (what, 1)))
        found = Forward(compile.of_gradient(kept, (what, 0), lambda: halves.forward), count, backward, saved)
        kept.write(("forward", what), {"saved": saved, "backward": backward_to_json(backward)})
        return found

    def _known_forward(self, wrt: tuple[int, ...], heads: tuple[int, ...], rows: tuple[int, ...]) -> Forward | None:
        """What an earlier process made; None if it is not kept."""
        kept, compile, graph, remat = self._kept, self._compile, self.graph, self._remat or default_remat()
        if kept is None or not isinstance(compile, Compiler):
            return None
        halves = functools.cache(lambda: Computation(graph, compile, remat)._halves(wrt, heads, rows)[0])
        what = wrt, heads, rows, remat
        find = functools.partial(compile.of_gradient, kept, (what, 1))
        computation = Computation(lambda: _of_gradient(halves().backward), compile, find=find)
        known = kept.read(
            ("forward", what), lambda words: (int(words["saved"]), backward_from_json(words["backward"], computation))
        )
        run = known and compile.found(kept, (what, 0), lambda: halves().forward)
        return Forward(run, len(graph.outputs), known[1], known[0]) if known and run else None

    def _halves(
        self, wrt: tuple[int, ...], heads: tuple[int, ...], rows: tuple[int, ...]
    ) -> tuple[Halves, Mapping[int, int]]:
        """The forward computation that saves, and its gradient; which gradients are rows, as in `row_gradients`."""
        joint, additions = passes.row_gradients.row_gradients(self.joint(wrt, heads), rows)
        recompute = (self._remat or default_remat()) == "all"
        return passes.partition.divide(joint, recompute=recompute, sections=True), additions

    def joint(self, wrt: Sequence[int], heads: Sequence[int], keep_rules: bool = False) -> Graph:
        """The graph and its gradient, simplified, before it is divided. `keep_rules`: see `differentiate`."""
        legal, tokens = self.legal, self._tokens
        given, told, visited = self._numbers(wrt, heads)
        marked = [k for k in heads if k in tokens.outputs]
        options = {
            "wrt": (*wrt, *(tokens.inputs[wrt[n]] for n in visited)),
            "heads": (*(heads[n] for n in given), *(tokens.outputs[k] for k in marked)),
            "keep_rules": keep_rules,
        }
        try:
            joint = passes.run_passes(legal, [("differentiate", options)], after=self._after)
        except IRError as e:
            cause = _innermost(e)
            if isinstance(cause, passes.differentiate.NoGradient):
                raise MXNetError(f"{cause.what} has no gradient{quote(cause.loc)}") from None
            raise MXNetError(str(cause)) from None
        if tokens.graph is not self.graph:
            joint = without_tokens(joint, tokens, len(self.graph.outputs), len(marked), bool(told))
        return passes.run_passes(joint, JOINT_PIPELINE, after=self._after)

    def _numbers(
        self, wrt: Sequence[int], heads: Sequence[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The heads that have a cotangent, and those that have a presence, by position; the positions in `wrt` of the
        inputs of which a number tells whether they were visited: see `Backward`."""
        tokens, outputs = self._tokens, self.graph.outputs
        given = tuple(n for n, k in enumerate(heads) if outputs[k].dtype is not BOOL)
        told = tuple(n for n, k in enumerate(heads) if k in tokens.outputs) if len(heads) > 1 else ()
        return given, told, tuple(n for n, k in enumerate(wrt) if k in tokens.inputs)

    def _made(
        self,
        halves: Halves,
        wrt: Sequence[int],
        heads: Sequence[int],
        additions: Mapping[int, int],
        find: Callable[[Callable[[], Graph]], Run] | None = None,
    ) -> Backward:
        graph = halves.backward
        given, told, visited = self._numbers(wrt, heads)
        places = passes.partition.sources(halves)
        place_of = dict(zip(graph.inputs, places))
        states = tuple(place_of[state] for state, _ in graph.updates)
        read = {v for op in graph.ops for v in op.operands} | {*graph.results}
        cotangents = zip(given, graph.inputs[len(halves.saved) :])
        return Backward(
            computation=Computation(_of_gradient(graph), self._compile, find=find),
            values=tuple(Value(place, place in states) for place in places),
            cotangents=tuple(Cotangent(head, v in read) for head, v in cotangents),
            presences=tuple(Presence(head) for head in told),
            results=tuple(Result(additions.get(n, 0), n in visited) for n in range(len(wrt))),
            states=states,
            calls_python=_calls_python(graph),
            untold=tuple(untold(graph)),
        )


def _of_gradient(graph: Graph) -> Graph:
    """The graph of a gradient, which tells `watch` of its results."""
    return graph.with_attrs(tells_progress=True)


def _is_gradient(graph: Graph) -> bool:
    return bool(graph.attrs.get("tells_progress"))


def _calls_python(graph: Graph) -> bool:
    return any(op.name == "host_call" or any(map(_calls_python, op.regions)) for op in graph.ops)


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

    def run(
        self, inputs: Sequence[np.ndarray], watch: Watch | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        return self._own().run(inputs, watch)

    def fitted(self, inputs: Sequence[np.ndarray]) -> Computation:
        return self._own()

    def differentiable(self, wrt: tuple[int, ...]) -> tuple[int, ...]:
        return self._shared.differentiable(wrt)

    def reached(self, k: int) -> frozenset[int]:
        return self._shared.reached(k)

    def late_ops(self, heads: Iterable[int]) -> int:
        return self._shared.late_ops(heads)

    def reached_from(self, wrt: tuple[int, ...], heads: tuple[int, ...]) -> Mapping[int, frozenset[int]] | None:
        return self._shared.reached_from(wrt, heads)

    def backward(self, wrt: tuple[int, ...], heads: tuple[int, ...], rows: tuple[int, ...] = ()) -> Backward:
        return self._own().backward(wrt, heads, rows)

    def forward(self, wrt: tuple[int, ...], heads: tuple[int, ...], rows: tuple[int, ...] = ()) -> Forward:
        key = wrt, heads, rows
        if key not in self._refused:
            try:
                found = self._shared.forward(*key)
                backward = found.backward.computation
                backward.compile()  # now: what cannot be open must show before anything is saved
                if names := found.backward.untold:  # as where the gradient of a reshape only has that of its result
                    raise Undecided(f"the gradient's inputs do not tell {', '.join(names)}")
                return found
            except (IRError, MXNetError):
                self._refused.add(key)
        return self._own().forward(*key)
