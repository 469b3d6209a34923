"""`fuse`: groups primitives into kernels, so that intermediates stay in registers.

Every op that does work becomes one `fused` op whose region is what the kernel computes. Groups grow from consumers
to producers (ops are visited in reverse): a producer joins when all its uses lie in one group, that group can hold
it, and computing it there costs no more than storing and reloading it would.

What a group can be:

* a *loop group*: elementwise ops, movement, gathers, at most one reduction on a path, computed at one root shape;
* a *row group*: reductions over the same axes of the root shape, whose results are broadcast back over those axes
  (softmax, LayerNorm): each row is reduced once, then written;
* an *anchor* (dot_general, conv) with an elementwise epilogue of its result's shape.

`concat`, `sort`, `cumsum`, `scatter_add` and calls of the host stay alone; a `reshape` outside a group renames a
buffer and costs nothing, so it joins none. Constants of one element are copied into the groups that use them, as are
index constants of gathers; uniform constants become broadcasts of one element. To limit recomputation, `reps` counts
how often each element of a value would be evaluated: if more than once, only values that cost nothing (movement of a
buffer, iota, constants) may join.

Then groups that sum up the same columns of one array are joined, and those that reduce the same rows, one with the
result of the other (a logarithm of sums of exponentials needs the largest element). Cheap groups are computed again by
their readers where that moves fewer bytes (`compute_again`). What several groups still read is a result of the first of
them, where both are elementwise work (the error function in the gradient of a GELU); and the kernel of a pooling's
maxima has what compares these with the elements of their windows as further results. What a product's epilogue computes
of such a value alone, and takes long, leaves it (the slope of a GELU).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence

import numpy as np

from gluonjit.ir.dims import hint, is_static
from gluonjit.ir.graph import Graph, Op, Rewriter, Value, reemit, subgraph
from gluonjit.ir.types import F32
from gluonjit.passes.compute_again import ComputeAgain
from gluonjit.passes.cse import cse
from gluonjit.passes.groups import MAX_OPERANDS, MAX_OPS, Group, after_product, needed_for, operands_of
from gluonjit.passes.hoist import fixed_ops
from gluonjit.passes.lift import mark_captured
from gluonjit.passes.manager import register_pass
from gluonjit.passes.remarks import missed

_LONGEST_ROW = 1 << 14
"""The most elements of a single row in a row group, which one thread computes."""
_TABLE = 4096
"""The most constant indices of a gather that code is specialized for."""


@register_pass("fuse", needs="legal", gives="fused")
def fuse(graph: Graph) -> Graph:
    """Groups primitives into kernels, so that intermediates stay in registers; the result has level `fused`."""
    graph = _DuplicateCheapOps(graph).run()
    return _Fused(graph, _group(graph)).run()


class _DuplicateCheapOps(Rewriter):
    """Gives every user its own copy of ops that cost nothing: one-element constants, broadcasts, iotas.

    Numbers that are computed from open extents are copied, too: if kernels shared their results, these would be written
    to memory and read at every call. Uniform constants become broadcasts of one element first. `_Fused` merges the
    copies that end up in one body.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, "fused")
        self.cheap: dict[Value, Op] = {}
        self.tables = {op.result for op in graph.ops if _is_table(op, graph)}
        self.numbers = _numbers(graph)

    def value(self, v: Value) -> Value:
        op = self.cheap.get(v)
        if op is None:
            return self.env[v]
        if op.name != "constant" or op.result in self.tables:
            return reemit(self.b, op, [self.value(x) for x in op.operands])[0]
        scalar = self.b.constant(op.attrs["value"].reshape(-1)[0])
        return scalar if v.shape == () else self.b.emit("broadcast", [scalar], {"shape": v.shape})[0]

    def visit(self, op: Op) -> Sequence[Value] | None:
        if (
            op.name in ("broadcast", "iota")
            or op in self.numbers
            or (op.name == "constant" and (op.result in self.tables or _uniform(op.attrs["value"])))
        ):
            self.cheap[op.results[0]] = op
            return ()
        return None


def _numbers(graph: Graph) -> set[Op]:
    """The ops that compute one number from open extents and constants."""
    found = {op for op in graph.ops if op.name == "extent"}
    for op in graph.ops if found else ():
        if op.definition.elementwise and op.results[0].size == 1:
            made = [graph.producers.get(v) for v in op.operands]
            if not found.isdisjoint(made) and all(o in found or (o is not None and o.name == "constant") for o in made):
                found.add(op)
    return found


def _is_table(op: Op, graph: Graph) -> bool:
    """Whether the op is the constant indices of a gather: a kernel that knows them can use loads and shuffles."""
    return (
        op.name == "constant"
        and 1 < op.result.size <= _TABLE
        and any(user.name == "gather" and op.result is user.operands[1] for user in graph.uses.get(op.result, ()))
    )


def _uniform(value: np.ndarray) -> bool:
    """Whether the array is not empty and all its elements have the same bytes (nan equals nan, -0.0 is not 0.0)."""
    flat = value.reshape(-1)
    return flat.size > 0 and bool((flat.view(np.uint8).reshape(flat.size, -1) == flat[:1].view(np.uint8)).all())


def _is_outside(op: Op) -> bool:
    """Whether the op belongs to no group: it has regions, or needs no kernel."""
    return op.definition.level in ("structural", "control") or op.name in ("constant", "reshape")


def _stays_alone(op: Op) -> bool:
    return op.definition.has_own_kernel or op.name == "concat"


def _is_anchor(op: Op) -> bool:
    return op.definition.accumulates == "contraction"


def _needs_buffers(op: Op) -> bool:
    """Whether the op's operands must be in memory."""
    return op.definition.has_own_kernel or _is_anchor(op)


def _is_free(op: Op) -> bool:
    """Whether evaluating the op again costs index arithmetic at most. (A `reshape` renames a buffer instead.)"""
    return op.definition.moves == "affine" and op.name != "reshape"


def _group(graph: Graph) -> dict[Op, Group]:
    """The group of each op that belongs to one."""
    group_of: dict[Op, Group] = {}
    results = set(graph.results)
    epilogue = _epilogue_ops(graph)
    fixed = fixed_ops(graph)
    numbers = _numbers(graph)
    for op in reversed(graph.ops):
        if _is_outside(op):
            # A constant of one element, or of a gather's indices, has one use and belongs to its user.
            small = op.name == "constant" and (op.result.size == 1 or _is_table(op, graph))
            if small and op.result not in results:
                readers = graph.uses.get(op.result, ())
                if len(readers) == 1 and readers[0] in group_of and not _needs_buffers(readers[0]):
                    group_of[op] = group_of[readers[0]]
                    group_of[op].ops.add(op)
            continue
        users = {group_of.get(user) for r in op.results for user in graph.uses.get(r, ())}
        leaves = any(r in results for r in op.results)
        why = "its results have several kernels as readers" if len(users) > 1 else ""
        if len(users) == 1:
            (group,) = users
            number = op in numbers and not leaves and group is not None and _takes_numbers(group, epilogue)
            if group is None:
                pass  # its readers need no kernel
            elif op in fixed and not _is_free(op) and group.root not in fixed:
                why = "it depends on parameters alone, so it is computed when one is written, not at every call"
            elif op in epilogue and not _is_epilogue(group):
                why = "the kernel of the product in front can compute it, but not what reads it"
            elif not number:
                why = _refusal(group, op, graph, leaves)
            if group is not None and not why:
                _join(group, op, graph)
                group.several |= leaves
                group_of[op] = group
                continue
        if why:
            missed(op, why)
        group = Group(op)
        _join(group, op, graph)
        group_of[op] = group
    _join_sums(graph, group_of)
    _join_rows(graph, group_of)
    again = ComputeAgain(graph, group_of, fixed)
    again.run()
    for op in graph.ops:
        group = group_of.get(op)
        if group is not None and group.root is op and group.anchor is not None:
            _leave_slope(group, again, group_of)
    for op in reversed(graph.ops):
        group = group_of.get(op)
        if group is not None and group.root is op and op not in fixed and results.isdisjoint(op.results):
            _join_first(group, again, group_of)
    _join_windows(again, group_of)
    return group_of


def _join_windows(again: ComputeAgain, group_of: dict[Op, Group]) -> None:
    """Has the kernel of a pooling's maxima compute, too, what is elementwise work of these and of their windows: a ReLU
    of them, and which element was the largest, as the gradient needs to know. Else the input would be read once more,
    when no cache has it."""
    for pool in again.graph.ops:
        group = group_of.get(pool)
        if pool.name != "reduce_window" or group is None or group.ops != {pool}:
            continue
        readers = again.readers.get(pool.result, set())
        joined = [g for g in readers if g is not None and _is_of_windows(g, pool)]
        for other in sorted(joined, key=lambda g: again.position[g.root]):
            if group.root is pool and len(joined) == len(readers) and pool.result not in again.graph.results:
                group.root = other.root  # the maxima alone need not be written
            else:
                group.shared.add(other.root)
            group.take(other)
            group.several = True
            group_of.update((op, group) for op in other.ops if group_of.get(op) is other)


def _is_of_windows(group: Group, pool: Op) -> bool:
    """Whether a group is elementwise work of a pooling's result, and of elements of its input."""
    if group.several or group.anchor is not None or group.shape != pool.result.shape or _stays_alone(group.root):
        return False
    if len(group.ops) >= MAX_OPS or not operands_of(group.ops) <= {pool.operands[0], pool.result}:
        return False
    return all(op.name in ("constant", "pad") or op.definition.elementwise or _is_free(op) for op in group.ops)


def _join_first(group: Group, again: ComputeAgain, group_of: dict[Op, Group]) -> None:
    """Has the first of several groups that read a group's result compute it for all of them, as another result, if both
    are elementwise work of the same shape: it need not read it then."""
    result = group.root.results[0]
    readers = [g for g in again.readers.get(result, ()) if g is not None]
    if len(readers) < 2 or len(readers) < len(again.readers[result]) or group.several:
        return
    first = min(readers, key=lambda g: again.position[g.root])
    both = group.ops | first.ops
    if not all(_is_epilogue(g) and g.anchor is None and g.shape == result.shape for g in (group, first)):
        return
    if any(_stays_alone(g.root) for g in readers):
        return  # a concat may have it written in its place
    if first.reps.get(result, 1.0) > 1 or len(both) > MAX_OPS or len(operands_of(both)) > MAX_OPERANDS:
        return
    for v in operands_of(group.ops):
        if group in again.readers.get(v, ()):
            again.readers[v] = again.readers[v] - {group} | {first}
    first.take(group)
    first.several = True
    first.shared.add(group.root)
    group_of.update((op, first) for op in group.ops if group_of.get(op) is group)


_COSTLY = 8
"""Instructions of a primitive from which on it is better not computed on a product's accumulators: there are no
registers left for it, and so one element waits for the other."""


def _leave_slope(group: Group, again: ComputeAgain, group_of: dict[Op, Group]) -> None:
    """Takes out of an epilogue what it computes of its operands alone, if that is one value, takes long, and reads what
    another group has for this one and one more: this last one computes all of it, as another result. So the slope of a
    GELU is computed with the GELU itself, which the gradient of the next layer's weights reads."""
    graph, producers = again.graph, again.graph.producers
    follows = after_product(graph, group, again.position)
    read = {v for op in follows if op is not group.anchor for v in op.operands}
    slopes = [op for op in group.ops - follows if op.result in read and op.name not in ("broadcast", "constant")]
    if len(slopes) != 1:
        return
    moved = needed_for(graph, slopes[0], group.ops - follows)
    if max(op.definition.instructions for op in moved) < _COSTLY:
        return
    for v in sorted(operands_of(moved) & producers.keys(), key=lambda v: again.position[producers[v]]):
        made, others = group_of.get(producers[v]), again.readers.get(v, set()) - {group}
        other = others.pop() if len(others) == 1 else None
        if made is None or other is None or not _takes_slope(other, made, slopes[0], moved):
            continue
        if made.root.result is not v or again.position[other.root] > again.position[group.root]:
            continue
        if v in operands_of(group.ops - moved):
            continue  # the epilogue would read it from a group that is no more
        for x in operands_of(made.ops):
            if made in again.readers.get(x, ()):
                again.readers[x] = again.readers[x] - {made} | {other}
        other.take(made)
        other.ops, other.several = other.ops | moved, True
        other.shared.add(slopes[0])
        group.ops = group.ops - moved
        for x in operands_of(moved) - operands_of(group.ops):
            again.readers.get(x, set()).discard(group)
        again.readers[slopes[0].result] = {group}
        group_of.update((op, other) for op in other.ops if group_of.get(op) in (made, group))
        return


def _takes_slope(other: Group, made: Group, slope: Op, moved: set[Op]) -> bool:
    """Whether `other` may compute these ops, which end with `slope`, and what `made` does, without reading any more."""
    both = other.ops | made.ops
    if not all(_is_epilogue(g) and g.anchor is None and g.shape == slope.result.shape for g in (made, other)):
        return False
    if made.several or other.several or _stays_alone(other.root):  # a concat may have it written in its place
        return False
    return len(both | moved) <= MAX_OPS and operands_of(both | moved) <= operands_of(both)


def _join_sums(graph: Graph, group_of: dict[Op, Group]) -> None:
    """Joins sums down the same columns of terms that have an array in common, such as both sums of the gradient of a
    batch normalization: its kernel then reads the array once."""
    position = {op: k for k, op in enumerate(graph.ops)}
    alike: dict[Hashable, list[Group]] = {}
    for group in dict.fromkeys(group_of.values()):
        op = _sum_of_columns(group)
        if op is not None:
            alike.setdefault((op.operands[0].type, op.attrs["axes"]), []).append(group)
    for groups in alike.values():
        later: Group | None = None
        for group in sorted(groups, key=lambda g: position[g.root], reverse=True):
            if later is not None and not _can_join(group, later, graph, position):
                _cut(group, later, graph, group_of, position)
            if later is None or not _can_join(group, later, graph, position):
                later = group
                continue
            later.take(group)
            later.sums |= {group.root}
            later.several = True
            group_of.update(dict.fromkeys(group.ops, later))


_LONG = 64
"""Terms of sums that are worth a kernel together."""


def _sum_of_columns(group: Group) -> Op | None:
    """The group's only reduction, if it is a long sum of f32 over axes in front of those that lie side by side, and the
    group's result has its shape."""
    reductions = [op for op in group.ops if op.definition.accumulates]
    if len(reductions) != 1 or group.several:
        return None
    (op,) = reductions
    if op.name != "reduce" or op.attrs["op"] != "sum" or op.result.dtype is not F32 or op.result.shape != group.shape:
        return None
    source, axes = op.operands[0], op.attrs["axes"]
    if not is_static(source.shape) or source.ndim - 1 in axes or math.prod(source.shape[k] for k in axes) <= _LONG:
        return None
    return op


def _can_join(group: Group, later: Group, graph: Graph, position: dict[Op, int], inside: Collection[Op] = ()) -> bool:
    """Whether a group, which comes before `later`, may be computed there. `inside`: those ops of `later` that read its
    result."""
    ops, shared = group.ops | later.ops, operands_of(group.ops) & operands_of(later.ops)
    if len(ops) > MAX_OPS or len(operands_of(ops)) > MAX_OPERANDS:
        return False
    if not any(math.prod(v.shape) > math.prod(group.shape) for v in shared if is_static(v.shape)):
        return False
    users = [user for user in graph.uses.get(group.root.result, ()) if user not in inside]
    return all(position[user] > position[later.root] for user in users)


def _cut(group: Group, later: Group, graph: Graph, group_of: dict[Op, Group], position: dict[Op, int]) -> None:
    """Leaves `later` with its sum alone, if what follows it is what reads the sum of `group` too early."""
    total = _sum_of_columns(later)
    users = graph.uses.get(group.root.result, ())
    if total is None or total is later.root or any(position[op] < position[total] for op in (*users, later.root)):
        return
    if position[group.root] > position[total]:
        return
    mine = needed_for(graph, total, later.ops)
    if any(user in later.ops - mine for op in mine - {total} for user in graph.uses.get(op.result, ())):
        return
    rest = Group(later.root)
    for op in sorted(later.ops - mine, key=position.__getitem__, reverse=True):
        _join(rest, op, graph)
        group_of[op] = rest
    later.root, later.ops = total, mine


def _join_rows(graph: Graph, group_of: dict[Op, Group]) -> None:
    """Has what is reduced of rows computed by the kernel that reduces the same rows with it: the largest elements by
    the one that sums up exponentials, means by the one that sums up squares. It reads each row from memory once."""
    position = {op: k for k, op in enumerate(graph.ops)}
    for group in sorted(dict.fromkeys(group_of.values()), key=lambda g: position[g.root], reverse=True):
        rows, result = _reduced_rows(group), group.root.results[0]
        if rows is None:
            continue
        users = [user for user in graph.uses.get(result, ()) if user in group_of]
        readers = {group_of[user] for user in users if _reduced_rows(group_of[user]) == rows} - {group}
        if not readers:
            continue
        first = min(readers, key=lambda g: position[g.root])
        inside = [user for user in users if group_of[user] is first]
        if not all(user.result.shape == result.shape or _repeats_rows(user, rows) for user in inside):
            continue
        if not _can_join(group, first, graph, position, inside):
            continue
        first.take(group)
        first.several = True
        if len(inside) < len(graph.uses[result]) or result in graph.results:
            first.shared.add(group.root)
        first.shared |= group.shared
        group_of.update(dict.fromkeys(group.ops, first))


def _reduced_rows(group: Group) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(shape, axes) of what the group's reductions reduce, if they all reduce the same last axes, of many short rows,
    and its results are numbers of rows."""
    reductions = [op for op in group.ops if op.definition.accumulates]
    if not reductions or group.anchor is not None or group.sums or any(op.name != "reduce" for op in reductions):
        return None
    kinds = {(op.operands[0].shape, op.attrs["axes"]) for op in reductions}
    shape, axes = kinds.pop()
    if kinds or not is_static(shape) or reductions[0].result.shape != group.shape or math.prod(group.shape) < 2:
        return None
    if axes != tuple(range(len(shape) - len(axes), len(shape))):
        return None
    return (shape, axes) if math.prod(shape[k] for k in axes) <= _LONGEST_ROW else None


def _repeats_rows(op: Op, rows: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    """Whether the op gives all elements of a row the row's number."""
    return op.name == "broadcast" and (op.result.shape, _broadcast_over(op)) == rows


def _epilogue_ops(graph: Graph) -> set[Op]:
    """Elementwise ops that can run on an anchor's accumulators, and so stay out of groups that no anchor can join."""
    found: set[Op] = set()
    for op in graph.ops:
        if op.definition.elementwise:
            for v in op.operands:
                producer = graph.producers.get(v)
                if producer is not None and (_is_anchor(producer) or producer in found):
                    if len(graph.uses[v]) == 1 and v.shape == op.results[0].shape:
                        found.add(op)
    return found


def _takes_numbers(group: Group, epilogue: set[Op]) -> bool:
    """Whether the group may compute a number, which an anchor's epilogue cannot."""
    return group.anchor is None and group.ops.isdisjoint(epilogue) and not _stays_alone(group.root)


def _is_epilogue(group: Group) -> bool:
    """Whether the group is elementwise work at its root shape and nothing else, so that an anchor can join it."""
    return all(
        o.name in ("broadcast", "constant") or (o.definition.elementwise and o.results[0].shape == group.shape)
        for o in group.ops
    )


def _refusal(group: Group, op: Op, graph: Graph, leaves: bool) -> str:
    """Why `op`, all of whose uses lie in `group`, must not be computed there; "" if it may be."""
    if _stays_alone(op) or len(op.results) != 1:
        return f"{op.name} has a kernel of its own"
    if _stays_alone(group.root):
        return f"its reader, {group.root.name}, has a kernel of its own"
    if len(group.ops) >= MAX_OPS or not _has_room(group, op):
        return f"its reader's kernel would have more than {MAX_OPS} ops or {MAX_OPERANDS} operands"
    result = op.results[0]
    reps = group.reps.get(result, 1.0)
    if leaves and (result.shape != group.shape or reps > 1 or group.anchor is not None or _is_anchor(op)):
        return "it is a result of the graph, and its reader's kernel does not compute each element once"
    if _is_anchor(op):
        return _anchor_refusal(group, op, graph)
    if group.anchor is not None:
        # Side inputs of an epilogue; what the anchor itself reads must be a buffer.
        if result in group.anchor.operands:
            return f"its reader, {group.anchor.name}, reads elements several times, from memory"
        movable = (op.definition.elementwise and result.shape == group.shape) or op.name == "broadcast"
        return "" if reps <= 1 and movable else "the epilogue of a product takes elementwise ops of its shape alone"
    again = f"each element would be computed {reps:.0f} times" if reps < float("inf") else _WITHOUT_END
    if op.definition.accumulates == "reduction":
        if _accepts_reduction(group, op, reps):
            return ""
        return again if reps > 1 else "its reader's kernel has another reduction, which does not run over the same rows"
    if _is_free(op):
        whole = reps <= 1 or all(v not in graph.producers or _is_free(graph.producers[v]) for v in op.operands)
        return "" if whole else f"what it moves is computed, and {again}"
    # Evaluated several times per element, unless it is a row's value, computed once per row.
    once = reps <= 1 or (op.definition.elementwise and _row_level(group, op, graph))
    return "" if once else again


def _has_room(group: Group, op: Op) -> bool:
    """Whether the group with `op` has no more than MAX_OPERANDS operands."""
    at_most = len(group.reps) + len(op.operands)  # what the group reads is among `reps`
    return at_most <= MAX_OPERANDS or len(operands_of(group.ops | {op})) <= MAX_OPERANDS


_WITHOUT_END = "its reader reads elements any number of times"


def _anchor_refusal(group: Group, op: Op, graph: Graph) -> str:
    """An anchor joins a group that is nothing but an elementwise epilogue of its result."""
    if group.anchor is not None:
        return f"its reader's kernel has a product already, {group.anchor.name}"
    if group.several or group.reduces or group.reps.get(op.result, 1.0) > 1 or not _is_epilogue(group):
        return "its reader's kernel is more than elementwise work on its result"
    # The accumulator exists only at its own index.
    direct = all(user.definition.elementwise for user in graph.uses[op.result])
    return "" if direct and op.result.shape == group.shape else "its reader needs the result in another shape"


def _accepts_reduction(group: Group, op: Op, reps: float) -> bool:
    source = op.operands[0]
    if op.name == "reduce" and source.shape == group.shape and source.size:
        if group.row_axes == op.attrs["axes"]:
            return True
    return reps <= 1 and not group.reduces and group.row_axes is None


def _row_level(group: Group, op: Op, graph: Graph) -> bool:
    """Whether `op` computes a row's value: elementwise work between a reduction over the row axes and its broadcast."""
    return group.row_axes is not None and _reduces_rows(op, group.row_axes, group.shape, graph)


def _reduces_rows(op: Op, axes: tuple[int, ...], shape: tuple[int, ...], graph: Graph) -> bool:
    """Whether elementwise ops alone lead from a reduction of `shape` over `axes` to `op`.

    Otherwise (say, if it comes from a parameter) the value is better computed once, in another kernel.
    """
    seen: set[Op] = set()
    stack = [op]
    while stack and len(seen) < MAX_OPS:
        o = stack.pop()
        if o in seen:
            continue
        seen.add(o)
        if o.name == "reduce":
            if o.attrs["axes"] == axes and o.operands[0].shape == shape:
                return True
        elif o.definition.elementwise:
            stack.extend(graph.producers[v] for v in o.operands if v in graph.producers)
    return False


def _join(group: Group, op: Op, graph: Graph) -> None:
    """Adds `op` to the group, and updates how often its operands are evaluated."""
    group.ops.add(op)
    reps = group.reps.setdefault(op.results[0], 1.0)
    if _is_anchor(op):
        group.anchor = op
    elif op.definition.accumulates == "reduction":
        group.reduces = True
        if op.name == "reduce" and op.attrs["axes"] == group.row_axes:
            reps = 1.0  # once per row, however often it is read
    elif op.name == "broadcast" and group.row_axes is None and not group.reduces and op.result.shape == group.shape:
        producer = graph.producers.get(op.operands[0])
        axes = _broadcast_over(op)
        rows = math.prod(n for k, n in enumerate(group.shape) if k not in axes)
        alone = rows == 1 and hint(op.result.size) > _LONGEST_ROW
        if producer is not None and axes and group.anchor is None and not alone:
            if _reduces_rows(producer, axes, group.shape, graph):
                group.row_axes = axes
    once = op.definition.elementwise and not op.definition.has_own_kernel
    for v in op.operands:
        factor = 1.0 if once else _reads_per_element(op, v)
        group.reps[v] = max(group.reps.get(v, 0.0), reps * factor)


def _broadcast_over(op: Op) -> tuple[int, ...]:
    """The axes of the result along which a broadcast repeats its operand."""
    source, shape = op.operands[0], op.attrs["shape"]
    dims = op.attrs["dims"]
    if dims is None:
        dims = tuple(range(len(shape) - source.ndim, len(shape)))
    kept = {d for k, d in enumerate(dims) if source.shape[k] == shape[d]}
    return tuple(a for a in range(len(shape)) if a not in kept)


def _reads_per_element(op: Op, v: Value) -> float:
    """How often `op` reads each element of its operand `v`."""
    if _is_anchor(op) or _stays_alone(op):
        return float("inf")
    size = op.results[0].size
    if op.name == "reduce_window":
        size *= math.prod(op.attrs["window"])  # windows that do not overlap read each element once
    elif op.name in ("gather", "gather_nd"):
        if v is not op.operands[1]:
            return float("inf")
    elif op.name != "broadcast":
        return 1.0
    return max(1.0, hint(size) / max(hint(v.size), 1))


class _Fused(Rewriter):
    """The graph with a `fused` op for each group."""

    def __init__(self, graph: Graph, group_of: dict[Op, Group]) -> None:
        super().__init__(graph, "fused")
        self.group_of = group_of
        self.marked: dict[Hashable, tuple[Graph, ...]] = {}
        """The regions of functions, which their calls go on sharing."""
        self.results = set(graph.results)
        self.position = {op: k for k, op in enumerate(graph.ops)}

    def visit(self, op: Op) -> Sequence[Value] | None:
        if op.definition.level == "control":
            names = [r.name for r in op.results]
            key = (op.regions, len(op.operands), tuple(op.attrs.items()))
            regions = self.marked.get(key)
            if regions is None:
                regions = self.marked[key] = mark_captured(op)
            return self.b.emit(op.name, [self.env[v] for v in op.operands], op.attrs, regions, op.loc, names)
        group = self.group_of.get(op)
        if group is None:
            return None
        return self._emit(group) if group.root is op else ()

    def _emit(self, group: Group) -> Sequence[Value] | None:
        root = group.root
        if root.definition.has_own_kernel:
            return None
        ops = sorted(group.ops, key=self.position.__getitem__)
        outside = operands_of(group.ops)
        operands = list(dict.fromkeys(v for op in ops for v in op.operands if v in outside))
        inside = [op for op in ops if op is not root]
        others = [r for op in inside for r in op.results if r in self.results or op in group.sums or op in group.shared]
        outputs = [*root.results, *others]
        region = cse(subgraph("body", ops, operands, outputs, "fused"))
        names = [v.name for v in outputs]
        new = self.b.emit("fused", [self.env[v] for v in operands], {}, [region], root.loc, names)
        self.env.update(zip(others, new[len(root.results) :], strict=True))
        return new[: len(root.results)]
