"""Graphs as a report draws them: nodes and edges, as plain data.

A node has a label, the layer and line that it comes from, its text, the types of what it reads and makes, and the
kernels that compute it, as (program, kernel) of the profile: `main` where it is the main part of these, `within` where
it is another part, such as a ReLU after a convolution. Edges are pairs of numbers of nodes.
"""

from __future__ import annotations

import linecache
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from gluonjit.ir.buffers import runs_kernel
from gluonjit.ir.graph import Graph, Loc, Op, Value
from gluonjit.ir.printer import Names, print_op
from gluonjit.ir.work import origin, origins
from gluonjit.profiling.measured import Program

MOST_INPUTS = 12
"""More inputs are not drawn, such as all the values that a forward half saves for the backward one."""
MOST_OPS = 300
"""Graphs of more primitives have a node for each line of a layer, instead of one for each op."""
LINES = 60
"""Lines of the text of a node that are shown."""

Place = tuple[int, int]
"""The numbers of a program and of a kernel in it."""


class Computed:
    """Which kernels compute what comes from a line of a layer."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._main: dict[Loc, list[Place]] = {}
        self._within: dict[Loc, list[Place]] = {}
        for p, program in enumerate(programs):
            ops = program.compiled.ops if program.compiled is not None else ()
            for k, (kernel, op) in enumerate(zip(program.kernels, ops)):
                if kernel.inside is None:
                    for loc in origins(op):
                        table = self._main if loc == origin(op) else self._within
                        table.setdefault(loc, []).append((p, k))

    def of(self, loc: Loc | None, program: int | None = None) -> dict[str, list[Place]]:
        """`main` and `within` of a node; only the kernels of one program, if its number is given."""
        if loc is None:
            return {"main": [], "within": []}
        tables = {"main": self._main, "within": self._within}
        return {k: [p for p in table.get(loc, []) if program in (None, p[0])] for k, table in tables.items()}


def operators(graph: Graph, computed: Computed) -> dict[str, Any]:
    """A node for each op of a graph of level `traced`, but for those that depend on parameters alone."""
    params = parameters(graph)
    drawing = _Drawing(graph, params)
    for op in _changing(graph, params):
        drawing.add([op], op.name.removeprefix("mx."), op.loc, computed.of(op.loc))
    return drawing.done()


def primitives(graph: Graph, computed: Computed, params: Collection[str], program: int | None = None) -> dict[str, Any]:
    """A node for each op of a graph of primitives, or for each line of a layer, but for what depends on constants and
    parameters alone. `params`: the names of these. `program`: the number of the one that it became, if there is one."""
    drawing = _Drawing(graph, params)
    ops = _changing(graph, params)
    for group in clusters(ops) if len(ops) > MOST_OPS else [[op] for op in ops]:
        loc = next((op.loc for op in group if op.loc is not None), None)
        drawing.add(group, _label(group), loc, computed.of(loc, program))
    return drawing.done()


def _changing(graph: Graph, params: Collection[str]) -> list[Op]:
    """The ops that depend on other inputs than parameters, or on random numbers; all, if there are none."""
    changing = {v for v in graph.inputs if v.name not in params}
    found = []
    for op in graph.ops:
        if changing.intersection(op.operands) or not op.definition.pure:
            changing.update(op.results)
            found.append(op)
    return found or list(graph.ops)


def kernels(number: int, program: Program, params: Collection[str]) -> dict[str, Any]:
    """A node for each kernel of a measured program; what is between them (views) is left out, as are packed
    parameters."""
    assert program.compiled is not None
    graph = program.compiled.graph
    drawing = _Drawing(graph, {*params, *parameters(graph)})
    order = {op: k for k, op in enumerate(program.compiled.ops) if program.kernels[k].inside is None}
    for op in graph.ops:
        if op in order:
            k = order[op]
            here: dict[str, list[Place]] = {"main": [(number, k)], "within": []}
            drawing.add([op], program.kernels[k].what, origin(op), here, program.kernels[k].kind)
        elif not runs_kernel(op):
            drawing.pass_by(op)
    return drawing.done()


def parameters(graph: Graph) -> set[str]:
    """The names of the inputs that change rarely."""
    return {graph.inputs[k].name for k in graph.attrs.get("params", ()) if k < len(graph.inputs)}


class _Drawing:
    def __init__(self, graph: Graph, params: Collection[str]) -> None:
        self._nodes: list[dict[str, Any]] = []
        self._edges: dict[tuple[int, int], None] = {}
        self._makers: dict[Value, tuple[int, ...]] = {}
        self._names = Names(graph)
        for op in graph.ops:
            for r in op.results:
                self._names.define(r)
        inputs = [v for v in graph.inputs if v.name not in params and v in graph.uses]
        for v in inputs if len(inputs) <= MOST_INPUTS else ():
            self._makers[v] = (len(self._nodes),)
            text = f"{self._names.use(v)}: {v.type}"
            self._nodes.append(_node("input", v.name, None, [text], [text], str(v.type), {"main": [], "within": []}))

    def add(
        self, ops: Sequence[Op], label: str, loc: Loc | None, places: Mapping[str, list[Place]], kind: str = ""
    ) -> None:
        """A node for these ops."""
        number, inside = len(self._nodes), {r for op in ops for r in op.results}
        text = [print_op(op, self._names) for op in ops[:LINES]]
        read = list(dict.fromkeys(v for op in ops for v in op.operands if v not in inside))
        types = [f"{self._names.use(v)}: {v.type}" for v in read[:LINES]]
        if len(ops) > LINES:
            text.append(f"… {len(ops) - LINES} lines more")
        for v in read:
            self._edges.update(dict.fromkeys((maker, number) for maker in self._makers.get(v, ())))
        self._makers.update(dict.fromkeys(inside, (number,)))
        result = ", ".join(str(r.type) for r in ops[-1].results[:2])
        self._nodes.append(_node(kind or "op", label, loc, text, types, result, places))

    def pass_by(self, op: Op) -> None:
        """What the op makes counts as made by those who make what it reads."""
        makers = dict.fromkeys(k for v in op.operands for k in self._makers.get(v, ()))
        self._makers.update(dict.fromkeys(op.results, tuple(makers)))

    def done(self) -> dict[str, Any]:
        return {"nodes": self._nodes, "edges": list(self._edges)}


def _node(
    kind: str,
    label: str,
    loc: Loc | None,
    text: list[str],
    reads: list[str],
    result: str,
    places: Mapping[str, list[Place]],
) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": kind, "label": label, "text": text, "reads": reads, "type": result, **places}
    if loc is not None:
        found |= {"layer": loc.block, "file": loc.file, "line": loc.line}
        found["source"] = linecache.getline(loc.file, loc.line).strip() if loc.file else ""
    return found


def _label(ops: Iterable[Op]) -> str:
    """What a group of ops does: its kinds, those that compute something first."""
    names = dict.fromkeys(op.name for op in ops if not op.definition.moves and op.operands)
    names.update(dict.fromkeys(op.name for op in ops))
    return ", ".join([*names][:3]) + (", …" if len(names) > 3 else "")


def clusters(ops: Sequence[Op]) -> list[list[Op]]:
    """The ops, in groups of the same line of a layer, such that no group depends on itself through another one. In an
    order in which each group follows those that it reads. An op of no line belongs to that of the first that reads
    it."""
    lines: dict[Value, Loc | None] = {}
    for op in reversed(ops):
        line = op.loc or next((lines[r] for r in op.results if r in lines), None)
        lines.update(dict.fromkeys((*op.operands, *op.results), line))
    groups: list[list[Op]] = []
    above: list[int] = []
    """For each group, those that it depends on: bit k stands for group k."""
    latest: dict[Loc | None, int] = {}
    makers: dict[Value, int] = {}
    for op in ops:
        read = {makers[v] for v in op.operands if v in makers}
        line = lines[op.results[0]]
        number = latest.get(line)
        if number is None or any(above[k] >> number & 1 for k in read):
            number = latest[line] = len(groups)
            groups.append([])
            above.append(0)
        found = 0
        for k in read - {number}:
            found |= above[k] | 1 << k
        if found & ~above[number]:
            above[:] = [mask | found if k == number or mask >> number & 1 else mask for k, mask in enumerate(above)]
        groups[number].append(op)
        makers.update(dict.fromkeys(op.results, number))
    order = sorted(range(len(groups)), key=lambda k: above[k].bit_count())
    return [groups[k] for k in order]
