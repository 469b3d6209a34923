"""`hoist`: moves ops that depend on parameters and constants alone into `prepare` ops, run when a parameter changes.

These ops pack and transpose weights, and fold scales. Each connected component becomes one `prepare(params)(region)`,
so that writing one parameter recomputes only what depends on it. Components that hold only views stay where they are.

What depends on the size of an open dimension is computed at each call. It leaves the bodies of loops nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gluonjit.ir.buffers import is_view
from gluonjit.ir.graph import Builder, Graph, Op, Rewriter, Value, rewrite, subgraph
from gluonjit.ir.sizes import is_open
from gluonjit.passes.dce import is_pure
from gluonjit.passes.lift import Lifts
from gluonjit.passes.manager import register_pass


@register_pass("hoist", whole=True, needs="fused")
def hoist(graph: Graph) -> Graph:
    """Moves ops that depend on parameters and constants alone into `prepare` ops.

    Needs the graph attribute `params`: the indices of the inputs that change rarely.
    """
    return _hoist(graph, False)


def _hoist(graph: Graph, open_too: bool) -> Graph:
    """`open_too`: with what depends on the size of an open dimension, for a loop's body, which all of this leaves."""
    graph = _lift_all(graph)
    params = {graph.inputs[k] for k in graph.attrs.get("params", ())}
    hoisted = _unprepared(fixed_ops(graph, open_too))
    components = _components(hoisted)
    moved = {op for component in components for op in component if not _is_number(op)}
    if not moved:
        return graph

    needed = {v for op in graph.ops if op not in moved for v in op.operands} | set(graph.results)
    # Numbers that only moved ops read have no use left.
    moved.update(op for op in hoisted if _is_number(op) and op.result not in needed)
    return _Hoisted(graph, components, moved, params, needed).run()


class _Hoisted(Rewriter):
    """The graph that begins with a `prepare` op for each component, and lacks the ops that were moved there."""

    def __init__(
        self, graph: Graph, components: list[list[Op]], moved: set[Op], params: set[Value], needed: set[Value]
    ) -> None:
        super().__init__(graph)
        self.moved = moved
        for component in components:
            self._prepare(component, params, needed)

    def visit(self, op: Op) -> Sequence[Value] | None:
        return () if op in self.moved else None

    def _prepare(self, component: list[Op], params: set[Value], needed: set[Value]) -> None:
        operands = list(dict.fromkeys(v for op in component for v in op.operands if v in params))
        results = [r for op in component if not _is_number(op) for r in op.results if r in needed]
        region = subgraph("prepare", component, operands, results, self.b.level)
        names = [r.name for r in results]
        values = self.b.emit("prepare", [self.env[v] for v in operands], {}, [region], component[-1].loc, names)
        self.env.update(zip(results, values, strict=True))


def fixed_ops(graph: Graph, open_too: bool = False) -> dict[Op, None]:
    """The ops that depend on parameters and constants alone, and, unless `open_too`, not on the size of an open
    dimension, in order."""
    fixed = {graph.inputs[k] for k in graph.attrs.get("params", ())}
    found: dict[Op, None] = {}
    for op in graph.ops:
        if fixed.issuperset(op.operands) and is_pure(op) and (open_too or not is_open(op)):
            fixed.update(op.results)
            found[op] = None
    return found


def _is_number(op: Op) -> bool:
    """Whether it is a constant, or a kernel that only writes a number: reading that from elsewhere takes longer."""
    if op.name == "fused" and not op.operands:
        return all(o.name in ("constant", "broadcast") for o in op.regions[0].ops)
    return op.name == "constant"


def _unprepared(ops: Iterable[Op]) -> list[Op]:
    """The ops that are no `prepare` ops and need no results of any: what was hoisted before stays before its uses."""
    prepared: set[Value] = set()
    found = []
    for op in ops:
        if op.name == "prepare" or not prepared.isdisjoint(op.operands):
            prepared.update(op.results)
        else:
            found.append(op)
    return found


def _lift_all(graph: Graph) -> Graph:
    """Hoists in the bodies of loops and branches, and moves the `prepare` ops that this makes out of these."""

    lifts = Lifts()
    hoisted: dict[Graph, Graph] = {}
    """Calls of one function share their region."""

    def rule(b: Builder, op: Op, operands: tuple[Value, ...]) -> tuple[Value, ...] | None:
        if op.definition.level != "control":
            return None
        for region in op.regions:
            if region not in hoisted:
                hoisted[region] = _hoist(region, op.name != "branch")
        return lifts.lift(b, replace(op, regions=tuple(hoisted[region] for region in op.regions)), operands)

    return rewrite(graph, rule, only_with=lambda op: op.definition.level == "control")


def _components(ops: list[Op]) -> list[list[Op]]:
    """Groups of ops that are connected through their results, without groups that need no kernel."""
    parent: dict[Op, Op] = {op: op for op in ops}

    def find(op: Op) -> Op:
        while parent[op] is not op:
            parent[op] = parent[parent[op]]
            op = parent[op]
        return op

    producer = {r: op for op in ops for r in op.results}
    for op in ops:
        for v in op.operands:
            if v in producer and not _is_number(producer[v]):
                parent[find(op)] = find(producer[v])
    groups: dict[Op, list[Op]] = {}
    for op in ops:
        if not _is_number(op):
            groups.setdefault(find(op), []).append(op)
    work = [g for g in groups.values() if any(not is_view(op) for op in g)]
    # A number is copied into each component that reads it.
    numbers = {op.result: op for op in ops if _is_number(op)}
    return [[*dict.fromkeys(numbers[v] for op in group for v in op.operands if v in numbers), *group] for group in work]
