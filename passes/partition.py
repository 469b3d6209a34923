"""`partition`: divides a joint graph into a forward and a backward graph.

What the backward graph reads of the forward part is either saved or computed again. Cheap ops, element by element or
moves, may be computed again from saved values; of all choices, the one that saves the fewest bytes is a minimum cut
between what must be computed in the forward graph and what the gradient reads (as in Chen et al., "Training deep nets
with sublinear memory cost", 2016, but for ops that a kernel fuses for nothing). Inputs of the graph are saved for free:
they exist anyway.

A value that is computed again may differ from the first one in the last bit, for it is in another kernel. So decisions
are saved, never taken again: where the maximum was, which side a comparison fell on, what was rounded to what.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from gluonjit.ir.dims import hint
from gluonjit.ir.graph import Builder, Graph, Op, Value, copy_ops
from gluonjit.ir.types import IRError, TensorType
from gluonjit.passes.layout import carried_last, first_perm, last_perm
from gluonjit.passes.manager import register_pass
from gluonjit.passes.minimum_cut import SINK, SOURCE, Network


class Halves(NamedTuple):
    """The inputs of `backward` are `saved`, then the cotangents; its outputs the gradients."""

    forward: Graph
    saved: tuple[Value, ...]
    """Inputs and outputs of `forward`, in the order in which `backward` takes them."""
    backward: Graph


REMAT = ("elementwise", "all")
"""What the backward graph may compute again: what a kernel fuses for nothing, or everything, so that only inputs and
outputs of the forward graph are saved, and of a long one what lives between its sections."""


@register_pass("partition", whole=True, needs="expanded")
def partition(graph: Graph, *, half: str = "forward", remat: str = "elementwise") -> Graph:
    """One half of a joint graph.

    `forward` has the given graph's inputs and, after its outputs, what is saved; its attribute `saved_bytes` tells how
    much memory that takes. `backward` takes the saved values, among them inputs, and the cotangents; its attribute
    `saved` numbers where the former come from: input k as k, output k as -1 - k. `remat` is what the backward graph may
    compute again: `elementwise` or `all`.
    """
    if half not in ("forward", "backward"):
        raise IRError(f"half must be 'forward' or 'backward', got {half!r}")
    if remat not in REMAT:
        raise IRError(f"remat must be one of {', '.join(REMAT)}, got {remat!r}")
    halves = divide(graph, recompute=remat == "all", sections=True)
    if half == "forward":
        return halves.forward.with_attrs(saved_bytes=saved_bytes(halves, graph.attrs["primals"]))
    return halves.backward.with_attrs(saved=sources(halves))


def sources(halves: Halves) -> tuple[int, ...]:
    """Where each saved value comes from: input k of the forward graph is k, its output k is -1 - k."""
    places = {v: -1 - k for k, v in reversed(list(enumerate(halves.forward.outputs)))}
    places.update({v: k for k, v in enumerate(halves.forward.inputs)})
    return tuple(places[v] for v in halves.saved)


def saved_bytes(halves: Halves, results: int) -> int:
    """The size of what is saved besides inputs and the first `results` outputs, which exist anyway; of what is open,
    with sizes of HINT."""
    return sum(hint(v.type.nbytes) for v in halves.forward.outputs[results:])


def divide(graph: Graph, recompute: bool = False, sections: bool = False) -> Halves:
    """Both halves of the joint graph that `differentiate` made.

    With `recompute`, only inputs and outputs of the given graph are saved, whatever it costs to compute the rest again;
    with `sections`, of a long graph also what lives between its sections.
    """
    if "primals" not in graph.attrs:
        raise IRError(f"@{graph.name} is not a joint graph; run differentiate before")
    count, given, late = (
        _at_most(graph, key, len(values))
        for key, values in (("primals", graph.outputs), ("cotangents", graph.inputs), ("late", graph.updates))
    )
    inputs, cotangents = graph.inputs[: len(graph.inputs) - given], graph.inputs[len(graph.inputs) - given :]
    outputs, gradients = graph.outputs[:count], graph.outputs[count:]
    split = len(graph.updates) - late
    updates, late_updates = graph.updates[:split], graph.updates[split:]

    backward_ops, backward_values = _after(graph, cotangents, [*outputs, *(new for _, new in updates)])
    if any(v in backward_values for v in (*outputs, *(new for _, new in updates))):
        raise IRError(f"@{graph.name} is not a joint graph: one of its first {count} outputs depends on a cotangent")
    wanted = [v for op in backward_ops for v in op.operands]
    wanted += [*gradients, *(v for pair in late_updates for v in pair)]
    read = [v for v in dict.fromkeys(wanted) if v not in backward_values]
    again = _recomputable(graph)
    states = [state for state, _ in late_updates]
    between = _between(graph, outputs, _following(graph, states, graph.ops)) if recompute and sections else []
    if between:
        decided = [r for op in graph.ops if op not in again and _decides(op, ()) for r in op.results]
        saved = _nearest(graph, (*inputs, *outputs, *between, *decided), read)
    elif recompute:
        saved = _nearest(graph, (*inputs, *outputs), read)
        if any(op not in again and _decides(op, ()) for op in graph.ops):
            # Decisions are taken again after all, but on nothing that was computed before.
            saved = _nearest(graph, inputs, read)
    else:
        saved = _cheapest(graph, inputs, read, again, _following(graph, states, again))

    name = graph.name
    there = {*inputs, *outputs}
    kept = [v for v in saved if v not in there]
    forward, env = _half(graph, f"{name}_forward", inputs, [*outputs, *kept], updates, ())
    last = carried_last(forward)
    turned = {v for v in kept if env[v] in last}
    if turned:
        forward, env = _half(graph, f"{name}_forward", inputs, [*outputs, *kept], updates, (), turned)
    backward, _ = _half(graph, f"{name}_backward", [*saved, *cotangents], gradients, late_updates, saved, turned)
    backward = _computed_late(backward, len(cotangents))
    attrs = {k: v for k, v in graph.attrs.items() if k not in ("primals", "cotangents", "late")}
    return Halves(replace(forward, attrs=attrs), tuple(env[v] for v in saved), replace(backward, attrs=attrs))


def _at_most(graph: Graph, key: str, most: int) -> int:
    value = graph.attrs.get(key)
    if type(value) is not int or not 0 <= value <= most:
        raise IRError(f"the attribute {key!r} of a joint graph must be an int from 0 to {most}, got {value!r}")
    return value


def _after(graph: Graph, cotangents: Sequence[Value], results: Sequence[Value]) -> tuple[list[Op], set[Value]]:
    """The ops of the backward graph, and their values: those that depend on the cotangents.

    Of a gradient that does not, as a loss layer's, those that cost something and that no result of the forward graph
    needs.
    """
    needed = set(results)
    for op in reversed(graph.ops):
        if any(r in needed for r in op.results):
            needed.update(op.operands)
    values = set(cotangents)
    ops = []
    for op in graph.ops:
        late = _costs(op) and not any(r in needed for r in op.results)
        if late or any(v in values for v in op.operands):
            ops.append(op)
            values.update(op.results)
    return ops, values


def _half(
    graph: Graph,
    name: str,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    updates: Sequence[tuple[Value, Value]],
    known: Collection[Value],
    turned: Collection[Value] = (),
) -> tuple[Graph, dict[Value, Value]]:
    """The graph of what `outputs` and `updates` need, and which of its values stand for those of the joint graph.

    Those that are `turned` are channels-last as inputs and as outputs.
    """
    given = {*inputs, *known}
    live = {*outputs, *(new for _, new in updates)} - given
    ops = []
    for op in reversed(graph.ops):
        if not live.isdisjoint(op.results):
            ops.append(op)
            live.update(v for v in op.operands if v not in given)
    b = Builder(name, graph.level)
    env: dict[Value, Value] = {}
    for v in inputs:
        if v in turned:
            x = b.input(v.name, TensorType(v.dtype, tuple(v.shape[p] for p in last_perm(v.ndim))))
            env[v] = b.transpose(x, perm=first_perm(v.ndim))
        else:
            env[v] = b.input(v.name, v.type)
    fixed = {v: env[v] for v in known}
    for op in reversed(ops):
        copy_ops(b, [op], env)
        env.update(fixed)  # of an op with several results, one may be saved and another be computed again
    for state, new in updates:
        b.update(env[state], env[new])
    env.update((v, b.transpose(env[v], perm=last_perm(v.ndim))) for v in outputs if v in turned)
    return b.build([env[v] for v in outputs]), env


def _computed_late(graph: Graph, cotangents: int) -> Graph:
    """A backward graph in which what is computed again comes just before it is read, so that not all of it exists at
    once. The last inputs are the cotangents."""
    values = set(graph.inputs[len(graph.inputs) - cotangents :])
    readers: dict[Value, list[Op]] = {}
    gradient = []
    for op in graph.ops:
        if any(v in values for v in op.operands):
            gradient.append(op)
            values.update(op.results)
        for v in set(op.operands):
            readers.setdefault(v, []).append(op)
    wanted: set[Op] = set()
    _collect(graph, [v for op in gradient for v in op.operands], wanted)
    done: dict[Op, None] = {}

    def emit(op: Op) -> None:
        """Emits the op after what it needs, and then what only states need of its results."""
        pending = [op]
        while pending:
            next_op = pending[-1]
            missing = [p for v in next_op.operands if (p := graph.producers.get(v)) is not None and p not in done]
            if missing:
                pending += reversed(missing)
                continue
            pending.pop()
            if next_op in done:
                continue
            done[next_op] = None
            for v in next_op.results:
                pending += [r for r in readers.get(v, ()) if r not in wanted and _ready(graph, r, done)]

    for op in gradient:
        wanted.add(op)
    for op in gradient:
        emit(op)
    for op in graph.ops:
        emit(op)
    return replace(graph, ops=tuple(done))


def _collect(graph: Graph, values: Iterable[Value], found: set[Op]) -> None:
    """Adds the ops that these values are computed by."""
    pending = list(values)
    while pending:
        op = graph.producers.get(pending.pop())
        if op is not None and op not in found:
            found.add(op)
            pending += op.operands


def _ready(graph: Graph, op: Op, done: Collection[Op]) -> bool:
    return op not in done and all(p in done for v in op.operands if (p := graph.producers.get(v)) is not None)


_KEEPS_BITS = frozenset("neg abs sign maximum minimum select sort floor ceil round rint trunc".split())
"""Primitives whose result has the same bits in every kernel, if the operands have; those that move have it, too."""
_DECIDES = frozenset("floor ceil round rint trunc mod".split())


def _recomputable(graph: Graph) -> set[Op]:
    """The ops that cost next to nothing beside the one that reads it, with which it is fused, and decide nothing."""
    found = set()
    exact: set[Value] = set(graph.inputs)
    """Values that have the same bits whenever they are computed."""
    constant: set[Value] = set()
    for op in graph.ops:
        if all(v in constant for v in op.operands) and not op.regions:
            constant.update(op.results)
        same = all(v in exact for v in op.operands)
        if same and _keeps_bits(op):
            exact.update(op.results)
        if not _costs(op) and (same or not _decides(op, constant)):
            found.add(op)
    return found


def _costs(op: Op) -> bool:
    definition = op.definition
    if op.name == "random_bits":  # a pure function of the key
        return False
    return bool(not definition.pure or definition.accumulates or definition.has_own_kernel or op.regions)


def _keeps_bits(op: Op) -> bool:
    if not any(v.dtype.is_float for v in (*op.operands, *op.results)):
        return True
    extremum = op.attrs.get("op") in ("max", "min", "argmax", "argmin")
    return bool(op.definition.moves) or op.definition.predicate or op.name in _KEEPS_BITS or extremum


def _decides(op: Op, constant: Collection[Value]) -> bool:
    """Whether a change of a float operand in the last bit may change the result altogether. Not so a comparison with a
    constant: there, one side is as good as the other, and the masks of activations shall cost nothing."""
    if not any(v.dtype.is_float for v in op.operands):
        return False
    if op.name in ("with_gradient", "call"):
        return any(_decides(inner, ()) for inner in op.regions[0].ops)
    if op.definition.predicate:
        return not any(v in constant for v in op.operands)
    return op.name in _DECIDES or op.name == "cast" and not op.result.dtype.is_float


def _nearest(graph: Graph, known: Sequence[Value], read: Sequence[Value]) -> list[Value]:
    """Those of the `known` values from which all of `read` can be computed."""
    known_values, seen = set(known), set()
    pending = list(read)
    while pending:
        v = pending.pop()
        if v in seen:
            continue
        seen.add(v)
        if v not in known_values:
            pending += graph.producers[v].operands
    return [v for v in dict.fromkeys(known) if v in seen]


_FEW = 8
"""The ratio of what a gradient reads to what lives between two ops up to which a graph is not divided into sections."""


def _between(graph: Graph, outputs: Sequence[Value], late: Collection[Value]) -> list[Value]:
    """What is saved where everything is computed again: the values, none of `late`, that live between the sections of
    a long forward computation. Each section is computed again when the gradient gets there, so with sections as large
    as all that lives between them, the peak grows with the root of the length only (Chen et al., as above)."""
    forward: set[Op] = set()
    _collect(graph, outputs, forward)
    ops = [op for op in graph.ops if op in forward]
    last = {v: k for k, op in enumerate(ops) for v in op.operands}
    read = {v for op in graph.ops if op not in forward for v in op.operands}
    made = [sum(hint(r.type.nbytes) for r in op.results if r in read and op.name != "broadcast") for op in ops]
    living: dict[Value, None] = {}
    alive: list[tuple[Value, ...]] = []
    """The values that are made before and read after each op, in the order of the graph: code in the object cache
    must not depend on the process that made it."""
    for k, op in enumerate(ops):
        living.update((r, None) for r in op.results if last.get(r, k) > k)
        for v in op.operands:
            if last[v] == k:
                living.pop(v, None)
        alive.append(tuple(living))
    sizes = [sum(hint(v.type.nbytes) for v in values) for values in alive]
    usual, total = sorted(sizes)[len(sizes) // 4] if sizes else 0, sum(made)
    if not usual or total <= _FEW * usual:
        return []
    most = math.sqrt(total * usual)
    found: dict[Value, None] = {}
    since, best = 0, 0
    for k, size in enumerate(made):
        since += size
        if since <= most / 2 or sizes[k] <= sizes[best]:
            best = k
        if since >= most and k < len(ops) - 1:
            found.update((v, None) for v in alive[best] if v not in late)
            since, best = sum(made[best + 1 : k + 1]), k
    return [*found]


def _following(graph: Graph, states: Sequence[Value], again: Collection[Op]) -> set[Value]:
    """The values that can be computed again and depend on states which get new values when the gradient is computed.

    Two recorded calls may each change a state, one after the other, so what depends on it must be computed late.
    """
    found = set(states)
    for op in graph.ops if states else ():
        if op in again and any(v in found for v in op.operands):
            found.update(op.results)
    return found


_WRITING = 16
"""By which part of its size a value that the forward graph would not write to memory costs more to be saved."""


def _stored(graph: Graph, read: Sequence[Value]) -> set[Value]:
    """The values that a kernel of the forward graph writes in any case, since what reads them are a product or several
    kernels: not x - mean of a normalization, but x, which the sums of mean and deviation read."""
    forward: set[Op] = set()
    _collect(graph, read, forward)
    found: set[Value] = set()
    for op in forward:
        if not _costs(op):
            continue
        alone = op.definition.accumulates == "reduction"
        for v in op.operands:
            if not alone or sum(user in forward for user in graph.uses[v]) > 1:
                found.add(v)
    return found


def _cheapest(
    graph: Graph, inputs: Sequence[Value], read: Sequence[Value], again: Collection[Op], late: Collection[Value]
) -> list[Value]:
    """The values to save from which all of `read` can be computed by the ops `again`, in the order of the graph; none
    of `late`."""
    taken, goals = set(inputs), set(read)
    stored = _stored(graph, read)
    network = Network()
    ends: dict[Value, tuple[int, int]] = {}
    """By value, the nodes before and after the arc that stands for saving it."""

    def nodes(v: Value) -> tuple[int, int]:
        if v not in ends:
            ends[v] = network.node(), network.node()
            pending.append(v)
        return ends[v]

    pending: list[Value] = []
    for v in read:
        nodes(v)
    while pending:
        v = pending.pop()
        before, after = ends[v]
        price = max(hint(v.type.nbytes), 1)
        price += 0 if v in stored else price // _WRITING
        network.arc(before, after, 0 if v in taken else None if v in late else price)
        if v in goals:
            network.arc(after, SINK)
        op = graph.producers.get(v)
        if op not in again:
            network.arc(SOURCE, before)
            continue
        assert op is not None
        for x in op.operands:
            network.arc(nodes(x)[1], before)
    reaches = network.behind_the_cut()
    saved = [v for v, (before, after) in ends.items() if reaches[after] and not reaches[before]]
    order = {v: k for k, v in enumerate((*graph.inputs, *(r for op in graph.ops for r in op.results)))}
    return sorted(saved, key=order.__getitem__)
