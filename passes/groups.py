"""Kernels under construction: what `fuse` puts together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gluonjit.ir.graph import Graph, Op, Value

MAX_OPS = 96
"""Bounds register pressure and compile time of one kernel."""
MAX_OPERANDS = 24


@dataclass(eq=False)
class Group:
    """A kernel under construction. `reps[v]` says how often each element of `v` is evaluated or read."""

    root: Op
    ops: set[Op] = field(default_factory=set)
    reps: dict[Value, float] = field(default_factory=dict)
    anchor: Op | None = None
    row_axes: tuple[int, ...] | None = None
    """Axes of the root shape that the group's reductions run over, once it is a row group."""
    reduces: bool = False
    several: bool = False
    """Whether it has results besides the root's."""
    sums: set[Op] = field(default_factory=set)
    """Other sums over the same terms' places, which are results, too (`_join_sums`)."""
    shared: set[Op] = field(default_factory=set)
    """Ops whose results other groups read as well."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.root.results[0].shape

    def take(self, other: Group) -> None:
        """Adds the ops of a group that is to be computed here. Whoever reads its results is not noted."""
        self.ops = self.ops | other.ops
        for v, reps in other.reps.items():
            self.reps[v] = max(self.reps.get(v, 0.0), reps)


def operands_of(ops: Collection[Op]) -> set[Value]:
    """What the ops read that none of them makes."""
    made = {r for op in ops for r in op.results}
    return {v for op in ops for v in op.operands if v not in made}


def after_product(graph: Graph, group: Group, position: Mapping[Op, int]) -> set[Op]:
    """The group's product, and those of its ops that depend on it. `position`: of every op in the graph."""
    found = {group.anchor} if group.anchor is not None else set()
    for op in sorted(group.ops, key=position.__getitem__):
        if any(graph.producers.get(v) in found for v in op.operands):
            found.add(op)
    return found


def needed_for(graph: Graph, root: Op, ops: Collection[Op]) -> set[Op]:
    """Those of the ops that `root` needs, with itself."""
    found: set[Op] = set()
    stack = [root]
    while stack:
        op = stack.pop()
        if op in ops and op not in found:
            found.add(op)
            stack += [graph.producers[v] for v in op.operands if v in graph.producers]
    return found
