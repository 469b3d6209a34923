"""`outline`: the steps of an unrolled program become calls of one function.

A cell that is unrolled over 48 steps is 48 times the same ops, and passes, code generation and LLVM would take 48 times
as long for it. The pass finds where the ops of a graph repeat, one copy right after the other, and puts a `call` in the
place of each copy. The function is what one copy computes; it is differentiated, optimized and lowered once.

A copy is any stretch of the graph, in program order, of ops with the same operators, attributes and types as those of
the other copies, which read each other and the values around them in the same pattern. Ops that occur once in a while,
such as the slice that takes step t of a sequence, may lie between: they stay outside. Values that all copies read alike
are the *captured* operands of the call. Copies that read different parameters stay as they are: weights are packed in
advance, which a function's own operands cannot be; layers that follow each other are compiled one by one. A first step
whose state is a parameter stays, and the others are calls.

The random ops of a copy draw on streams counted from its first one; the call gets a key that is moved by as much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gluonjit.ir.annotations import STREAM, TRAINING
from gluonjit.ir.graph import Builder, Graph, Op, Rewriter, Value
from gluonjit.ir.opdef import RNG_KEY, attr_key
from gluonjit.ir.types import I64, TensorType
from gluonjit.passes.manager import register_pass

_COPIES = 6
"""The least number of copies that are worth a function."""
_LONGEST = 1000
"""The most ops of a function."""
_SEARCHES = 16
"""How many stretches of a graph are looked for. Both bounds keep the time in proportion to the graph's length."""


@register_pass("outline", whole=True)
def outline(graph: Graph, *, saves: int = 200) -> Graph:
    """Puts calls of one function in the place of ops that are repeated.

    Only for graphs of level `traced`; `saves`: by how many ops the graph must become shorter for a function.
    """
    if graph.level != "traced" or len(graph.ops) < saves:
        return graph
    functions = _Search(graph, saves).functions()
    return _Outlined(graph, functions).run() if functions else graph


@dataclass
class _Copy:
    ops: Sequence[Op]
    outside: list[Value] = field(default_factory=list)
    """The values that it reads, in the order of first use."""
    pattern: Hashable = None
    """What every op reads: a result of the copy, or the number of a value from outside; and its random streams."""
    first_stream: int | None = None

    def __post_init__(self) -> None:
        place: dict[Value, tuple[int, int]] = {}
        number: dict[Value, int] = {}
        pattern: list[Hashable] = []
        for n, op in enumerate(self.ops):
            reads = [place[v] if v in place else number.setdefault(v, len(number)) for v in op.operands]
            stream = op.attrs.get(STREAM.name)
            if stream is not None and self.first_stream is None:
                self.first_stream = stream
            pattern.append((*reads, None if stream is None else stream - self.first_stream))
            place.update((r, (n, k)) for k, r in enumerate(op.results))
        self.outside = list(number)
        self.pattern = tuple(pattern)


@dataclass
class _Function:
    copies: list[_Copy]
    varying: list[int]
    """The numbers, among `outside` of each copy, of the operands that differ from copy to copy."""
    captured: list[int]
    results: list[tuple[int, int]]
    """Which results of which ops are read outside of a copy: of any of them."""


class _Search:
    """Finds what a graph repeats."""

    def __init__(self, graph: Graph, saves: int) -> None:
        self.graph = graph
        self.saves = saves
        self.position = {op: k for k, op in enumerate(graph.ops)}
        self.params = {graph.inputs[k] for k in graph.attrs.get("params", ())}
        self.leaves = set(graph.results)

    def functions(self) -> list[_Function]:
        numbers: dict[Hashable, int] = {}
        kinds = [numbers.setdefault(_kind(op), len(numbers)) for op in self.graph.ops]
        often = Counter(kinds)
        training = bool(self.graph.attrs.get("training", False))
        one = {kind: op for op, kind in zip(self.graph.ops, kinds) if often[kind] >= _COPIES}
        fits = {kind: _may_be_inside(op, training) for kind, op in one.items()}
        frequent = [(op, kind) for op, kind in zip(self.graph.ops, kinds) if fits.get(kind)]
        ops = [op for op, _ in frequent]
        left = np.array([kind for _, kind in frequent], np.int64)
        found: list[_Function] = []
        for _ in range(_SEARCHES):
            if (run := _longest_run(left, self.saves)) is None:
                break
            start, period, count = run
            found += self._divided(ops[start : start + count], period)
            left[start : start + count] = -1 - np.arange(start, start + count)  # nothing equals it any more
        return found

    def _divided(self, ops: Sequence[Op], period: int) -> list[_Function]:
        """The functions of a stretch that repeats itself: one, unless copies differ in what they read."""
        middle = len(ops) // period // 2 * period
        first = min(range(period), key=lambda k: self._width(ops[middle + k - period : middle + k]))
        copies = [_Copy(ops[k : k + period]) for k in range(first, len(ops) - period + 1, period)]
        alike: dict[Hashable, list[_Copy]] = {}
        for copy in copies:
            if self._is_closed(copy):
                alike.setdefault(copy.pattern, []).append(copy)
        return [f for some in alike.values() if (f := self._function(some)) is not None]

    def _width(self, ops: Sequence[Op]) -> int:
        """How many values pass the border of a copy."""
        inside, made = set(ops), {r for op in ops for r in op.results}
        read = {v for op in ops for v in op.operands if v not in made}
        return len(read) + sum(self._is_read_outside(r, inside) for r in made)

    def _is_read_outside(self, v: Value, inside: Collection[Op]) -> bool:
        return v in self.leaves or any(user not in inside for user in self.graph.uses.get(v, ()))

    def _is_closed(self, copy: _Copy) -> bool:
        """Whether nothing between its ops reads what it computes."""
        start, end = self.position[copy.ops[0]], self.position[copy.ops[-1]]
        inside, made = set(copy.ops), {r for op in copy.ops for r in op.results}
        between = (op for op in self.graph.ops[start:end] if op not in inside)
        return not any(v in made for op in between for v in op.operands)

    def _function(self, copies: list[_Copy]) -> _Function | None:
        """The function of copies with one pattern; None if it is not worth it."""
        length = len(copies[0].ops)
        different = _varying(copies)
        copies = [copy for copy in copies if not any(copy.outside[k] in self.params for k in different)]
        if len(copies) < _COPIES or (len(copies) - 1) * length < self.saves:
            return None
        varying = _varying(copies)
        captured = [k for k in range(len(copies[0].outside)) if k not in varying]
        read: dict[tuple[int, int], None] = {}
        for copy in copies:
            inside = set(copy.ops)
            for n, op in enumerate(copy.ops):
                for k, r in enumerate(op.results):
                    if self._is_read_outside(r, inside):
                        read[n, k] = None
        if len(varying) + len(read) > length:
            return None
        return _Function(copies, varying, captured, sorted(read))


def _varying(copies: Sequence[_Copy]) -> list[int]:
    """The numbers of the values from outside that differ from copy to copy."""
    return [k for k, column in enumerate(zip(*(copy.outside for copy in copies))) if len(set(column)) > 1]


def _kind(op: Op) -> Hashable:
    """Equal for ops that differ at most in their operands, and in the random stream."""
    attrs = [(k, attr_key(v)) for k, v in sorted(op.attrs.items()) if k != STREAM.name]
    types = [v.type for v in (*op.operands, *op.results)]
    return op.name, len(op.operands), tuple(types), tuple(attrs)


def _may_be_inside(op: Op, training: bool) -> bool:
    """Whether an op can be part of a function: an operator that calls no Python."""
    if op.definition.level != "operator":
        return False
    return not _calls_host(op.definition.expansion([v.type for v in op.operands], op.attrs, _mode(op, training)))


def _calls_host(graph: Graph) -> bool:
    return any(op.definition.level == "host" or any(map(_calls_host, op.regions)) for op in graph.ops)


def _mode(op: Op, training: bool) -> bool:
    """Whether an operator is in training mode."""
    return bool(op.attrs.get(TRAINING.name, training))


def _longest_run(kinds: np.ndarray, saves: int) -> tuple[int, int, int] | None:
    """The stretch (start, period, length) in which a copy follows the other that makes the graph the shortest."""
    best: tuple[int, int, int] | None = None
    for period in range(1, min(len(kinds) // _COPIES, _LONGEST) + 1):
        edges = np.flatnonzero(np.diff(kinds[:-period] == kinds[period:], prepend=False, append=False))
        starts, lengths = edges[::2], edges[1::2] - edges[::2] + period
        if len(starts):
            k = int(np.argmax(lengths))
            count = int(lengths[k]) // period
            saved = (count - 1) * period
            if count >= _COPIES and saved >= saves:
                best, saves = (int(starts[k]), period, int(lengths[k])), saved + 1
    return best


class _Outlined(Rewriter):
    """The graph with a call after the last op of each copy, in the place of all of them."""

    def __init__(self, graph: Graph, functions: Iterable[_Function]) -> None:
        super().__init__(graph)
        self.inside: set[Op] = set()
        self.ends: dict[Op, Callable[[], None]] = {}
        self.key = next((v for v in graph.inputs if v.name == RNG_KEY), None)
        self.streams = 0
        for function in functions:
            region = self._region(function)
            for copy in function.copies:
                self.inside.update(copy.ops)
                self.ends[copy.ops[-1]] = self._caller(function, copy, region)

    def visit(self, op: Op) -> Sequence[Value] | None:
        if op in self.ends:
            self.ends[op]()
        return () if op in self.inside else None

    def finish(self, results: Sequence[Value]) -> Graph:
        new = super().finish(results)
        return new.with_attrs(streams=max(self.streams, new.attrs.get("streams", 0))) if self.streams else new

    def _region(self, function: _Function) -> Graph:
        copy = function.copies[0]
        training = bool(self.graph.attrs.get("training", False))
        b = Builder(copy.ops[0].results[0].name or "function", "traced", training)
        inputs = [copy.outside[k] for k in function.varying]
        env = {v: b.input(v.name, v.type) for v in inputs}
        if self._draws(copy):
            b.input(RNG_KEY, TensorType(I64, (2,)))
        env.update((v, b.input(v.name, v.type)) for v in (copy.outside[k] for k in function.captured))
        for op in copy.ops:
            attrs = dict(op.attrs)
            if STREAM.name in attrs:
                attrs |= STREAM(attrs[STREAM.name] - (copy.first_stream or 0))
            results = tuple(Value(r.name, r.type) for r in op.results)
            b.emit_typed(op.name, [env[v] for v in op.operands], attrs, results, loc=op.loc)
            env.update(zip(op.results, results, strict=True))
        return b.build([env[copy.ops[n].results[k]] for n, k in function.results], {"training": training})

    def _draws(self, copy: _Copy) -> bool:
        return self.key is not None and copy.first_stream is not None

    def _caller(self, function: _Function, copy: _Copy, region: Graph) -> Callable[[], None]:
        """What emits the call of a copy."""

        def call() -> None:
            b = self.b
            b.loc = copy.ops[0].loc
            operands = [self.env[copy.outside[k]] for k in function.varying]
            if self.key is not None and copy.first_stream is not None:
                moved = b.constant([0, copy.first_stream], I64)
                operands.append(b.add(self.env[self.key], moved))
                self._note_streams(copy)
            operands += [self.env[copy.outside[k]] for k in function.captured]
            old = [copy.ops[n].results[k] for n, k in function.results]
            names = [v.name for v in old]
            new = b.emit("call", operands, {"captured": len(function.captured)}, [region], result_names=names)
            self.env.update(zip(old, new, strict=True))

        return call

    def _note_streams(self, copy: _Copy) -> None:
        """`streams` tells how many random streams the graph takes, those of its functions included."""
        last = next(op for op in reversed(copy.ops) if STREAM.name in op.attrs)
        mode = _mode(last, bool(self.graph.attrs.get("training", False)))
        drawn = last.definition.expansion([v.type for v in last.operands], last.attrs, mode).attrs.get("streams", 0)
        self.streams = max(self.streams, last.attrs[STREAM.name] + drawn)
