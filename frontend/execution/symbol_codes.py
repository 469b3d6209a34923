"""Code for a symbol, whose variables are arrays: what executors and cached operators of any shapes run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

import numpy as np

from gluonjit.autodiff.computation import Compiler, Computation, evaluated
from gluonjit.codes.compile_log import COMPILED, CompileLog, Signature
from gluonjit.codes.open_shapes import fits
from gluonjit.codes.store import Store
from gluonjit.common.lazy import cached_property
from gluonjit.execution.backends import get_backend
from gluonjit.execution.session import Session
from gluonjit.ir.graph import Graph
from gluonjit.ir.types import TensorType, type_of
from gluonjit.runtime.backend import Backend, Callee
from gluonjit.runtime.executable import Executable
from gluonjit.runtime.reference import reference
from gluonjit.symbol.graph import Entry, post_order, variables
from gluonjit.symbol.lower import lower, stream_numbers

LEARNED = ("weight", "bias", "gamma", "beta", "alpha")
"""The endings of names of layers' parameters."""
_FEW = 1 << 12
"""The most elements of all operands and results of an operator that is not worth compiling. A matrix product of that
size takes 100 µs without BLAS."""


def is_tiny(graph: Graph) -> bool:
    """Whether a graph of level `traced` is one operator (no loop, no branch) on at most `_FEW` elements. Compiling it
    would take tens of milliseconds, interpreting it takes microseconds. The choice depends on the graph alone, never on
    a clock, so that the same program always gives the same bits, which are those of the plain call."""
    if len(graph.ops) != 1 or graph.ops[0].definition.level != "operator":
        return False
    (op,) = graph.ops
    return sum(v.size for v in (*op.operands, *op.results)) <= _FEW


class SymbolCode:
    """What a symbol runs on arrays of some types, in a mode. `family`: what it has in common with code for other types.
    `graph()` is the graph for these types alone."""

    def __init__(
        self, types: Sequence[TensorType], session: Session, family: Hashable, graph: Callable[[], Graph]
    ) -> None:
        self.types, self.session, self.family = types, session, family
        self._graph = graph

    @cached_property
    def computation(self) -> Computation:
        """What runs where gradients are wanted."""
        graph = self._graph()
        return Computation(graph, evaluated if is_tiny(graph) else Compiler(get_backend(None), {}))


class SymbolCodes:
    """The code of one symbol. Executors that were reshaped share it.

    `inputs`: the names of the arguments that change in each call, if they are known; the others are parameters."""

    def __init__(self, symbol: Any, inputs: Collection[str] | None = None) -> None:
        self.symbol = symbol
        self.name = symbol.name or "group"
        self.arguments, self.aux = variables(symbol._heads)
        self._inputs = inputs
        self.store: Store[SymbolCode] = Store(code_of=lambda code: code.session, log=CompileLog(self.name))

    def code(self, arrays: Sequence[np.ndarray], training: bool, given: Collection[str] = ()) -> SymbolCode:
        """The code for arrays of these types, arguments first. `given` names those that change often.

        Code for any size, if there have been two; else code for these sizes alone."""
        key = (tuple([(x.shape, x.dtype) for x in arrays]), training, tuple(given))
        found = self.store.find(key)
        if found is not None:
            return found
        types, params = [type_of(x) for x in arrays], self._parameters(given)
        family = (training, params, tuple((t.dtype, t.rank) for t in types))
        with self.store.lock:
            served = next((code for code in self.store.open_of(family) if fits(code.types, types)), None)
            session = served.session if served is not None else self._made(types, training, params, family)
            found = SymbolCode(types, session, family, lambda: self.graph(types, training))
            self.store.keep(key, found)
        return found

    def _made(self, types: Sequence[TensorType], training: bool, params: tuple[int, ...], family: Hashable) -> Session:
        if is_tiny(self.graph(types, training)):
            return self._compiled(types, training, params, reference)
        tried = self.store.openings(family)

        def open_code(open_types: tuple[TensorType, ...]) -> SymbolCode:
            session = self._compiled(open_types, training, params, get_backend(None))
            _ = session.callee
            return SymbolCode(open_types, session, family, lambda: session.graph)

        found = tried.first(tried.candidates(types), open_code)
        tried.history.append(types)
        if found is None:
            return self._compiled(types, training, params, get_backend(None))
        for other in self.store.entries:
            if other.family == family:
                found.session.share(other.session)
        self.store.keep_open(family, found)
        return found.session

    def _compiled(
        self, types: Sequence[TensorType], training: bool, params: tuple[int, ...], backend: Backend
    ) -> Session:
        names = tuple(node.name for node in (*self.arguments, *self.aux))
        signature = Signature(names, tuple(types), training=training)
        text = f"{names[0]}: {types[0]}, …" if names else ""
        why = self.store.why(signature, None)
        self.store.note_made(signature)

        def note(callee: Callee, seconds: float) -> None:
            if isinstance(callee, Executable):
                assert self.store.log is not None
                self.store.log.add(COMPILED, why, text, seconds, callee.was_cached)

        return Session(
            self.graph(types, training),
            backend,
            {},
            params=params,
            written=[k for k, _ in self._updates],
            streams=stream_numbers(post_order(self.symbol._heads), training, {})[1],
            compiled=note,
            signature=text,
        )

    def graph(self, types: Sequence[TensorType], training: bool) -> Graph:
        """The graph, of level `traced`, for arrays of these types."""
        heads, leaves = self.symbol._heads, [*self.arguments, *self.aux]
        inputs = [((n, 0), t) for n, t in zip(leaves, types)]
        updates = [((leaves[k], 0), entry) for k, entry in self._updates]
        return lower(self.name, inputs, post_order(heads), heads, training=training, updates=updates)

    def _parameters(self, given: Collection[str]) -> tuple[int, ...]:
        """Positions of the arrays that are assumed to change rarely: what depends on them alone is computed once.

        These are all except for the inputs that the caller named, or that `forward` was called with. If there are
        none, they are those whose names end like a layer's parameters. A wrong guess only costs time.
        """
        inputs = self._inputs or given
        names = [node.name for node in self.arguments]
        rarely = [k for k, name in enumerate(names) if (name not in inputs if inputs else name.endswith(LEARNED))]
        return (*rarely, *range(len(names), len(names) + len(self.aux)))

    @cached_property
    def _updates(self) -> list[tuple[int, Entry]]:
        """The positions of arrays that operators write to, with the entries of their new values."""
        places = {node: k for k, node in enumerate([*self.arguments, *self.aux])}
        found = {}
        for node in post_order(self.symbol._heads):
            for at, k in node.op.updates(node.parsed).items() if node.op and node.op.updates else ():
                if node.inputs[at][0] in places:
                    found[places[node.inputs[at][0]]] = node, k
        return sorted(found.items(), key=lambda item: item[0])
