"""Elementwise values that are computed again in each kernel that reads them, where that moves fewer bytes.

Groups of `fuse` do not share ops, so a value with several readers is written to memory. Often its readers read what it
is made of anyway: the gradient of a batch normalization behind a ReLU needs the masked cotangent for two sums over x,
and again together with x, and the mask takes nothing but x. So a group of cheap elementwise ops is added to all groups
that read its result if they then move fewer bytes, or to those of them that then read fewer. The last op of an epilogue
may move, too: the product then writes what it has before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gluonjit.ir.dims import hint
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.passes.groups import MAX_OPERANDS, MAX_OPS, Group, after_product, needed_for, operands_of

_MOST = 12
"""Vector instructions for an element that is computed again: they take about as long as memory takes to deliver it."""


class ComputeAgain:
    """Adds groups to those that read their results, where that saves bytes; ops may then be in several groups.

    `group_of` is changed so that it has the groups that are left. Of ops in several it has one."""

    def __init__(self, graph: Graph, group_of: dict[Op, Group], excluded: Collection[Op]) -> None:
        """`excluded`: ops that are not computed at every call."""
        self.graph, self.group_of, self.excluded = graph, group_of, excluded
        self.position = {op: k for k, op in enumerate(graph.ops)}
        self.readers: dict[Value, set[Group | None]] = {}
        """By value, the groups that read it from memory; None stands for what is in no group."""
        for op in graph.ops:
            group = group_of.get(op)
            for v in op.operands:
                made = graph.producers.get(v)
                if made is not None and (group is None or group_of.get(made) is not group):
                    self.readers.setdefault(v, set()).add(group)

    def run(self) -> None:
        results = set(self.graph.results)
        for op in self.graph.ops:
            group = self.group_of.get(op)
            if group is None or group.root is not op or group.several or op in self.excluded:
                continue
            if len(op.results) != 1 or op.result in results or not self.readers.get(op.result):
                continue
            if group.anchor is None:
                self._move(group, group.ops)
            else:
                moved, rest = self._last(group)
                if rest is not None:
                    self._move(group, moved, rest)

    def _move(self, group: Group, moved: set[Op], rest: Value | None = None) -> None:
        """Adds ops, which end with the group's root, to the groups that read its result, if that saves bytes. `rest`:
        what the group computes without them, if they are not all of it."""
        v, size = group.root.result, _bytes([group.root.result])
        sources = operands_of(moved)
        readers = self.readers[v]
        more = {r: _bytes(sources - operands_of(r.ops)) for r in readers if r is not None and _takes(r, v, moved)}
        if not more or not _is_cheap(moved):
            return
        before = _bytes(operands_of(group.ops)) + size
        after = 0 if rest is None else _bytes(operands_of(group.ops - moved)) + size
        if len(more) == len(readers) and after + sum(more.values()) < before + len(readers) * size:
            self._add(group, moved, list(more))
            del self.readers[v]
            heir = next(iter(more))
            for op in moved:
                if self.group_of.get(op) is group:
                    self.group_of[op] = heir
            group.ops = group.ops - moved
            left = operands_of(group.ops)
            for x in sources - left:
                self.readers.get(x, set()).discard(group)
            if rest is not None:
                group.root = self.graph.producers[rest]
        elif rest is None:
            gains = [r for r, extra in more.items() if extra < size]
            self._add(group, moved, gains)
            readers.difference_update(gains)

    def _add(self, group: Group, moved: set[Op], readers: Iterable[Group]) -> None:
        sources = operands_of(moved)
        for r in readers:
            r.ops = r.ops | moved
            for x in sources:
                r.reps[x] = max(r.reps.get(x, 0.0), group.reps.get(x, 1.0))
                if x in self.graph.producers:
                    self.readers.setdefault(x, set()).add(r)

    def _last(self, group: Group) -> tuple[set[Op], Value | None]:
        """The last op after a product with what is computed for it alone, and the value before it."""
        root, producers = group.root, self.graph.producers
        follows = after_product(self.graph, group, self.position)
        before = [v for v in dict.fromkeys(root.operands) if producers.get(v) in follows]
        if root is group.anchor or len(before) != 1 or before[0].type != root.result.type:
            return set(), None
        return group.ops - needed_for(self.graph, producers[before[0]], group.ops), before[0]


def _takes(group: Group, v: Value, moved: Collection[Op]) -> bool:
    """Whether the group, which reads `v`, can compute it by these ops at each element instead."""
    ops = group.ops | set(moved)
    if group.row_axes is not None and group.reduces or group.reps.get(v, 1.0) > 1:
        return False
    if group.root.definition.has_own_kernel or group.root.name == "concat":
        return False
    if len(ops) > MAX_OPS or len(operands_of(ops)) > MAX_OPERANDS:
        return False
    if group.anchor is None:
        return True
    return v not in group.anchor.operands and all(
        op.name in ("broadcast", "constant") or op.result.shape == group.shape for op in moved
    )


def _is_cheap(ops: Collection[Op]) -> bool:
    """Whether they are elementwise work that takes no longer than reading the result from memory."""
    work = [op for op in ops if op.name not in ("broadcast", "constant")]
    return len(work) <= _MOST and all(op.definition.elementwise and op.definition.instructions <= 1 for op in work)


def _bytes(values: Iterable[Value]) -> int:
    return sum(hint(v.type.nbytes) for v in values)
