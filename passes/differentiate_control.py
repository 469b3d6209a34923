"""Gradients of `loop`, `branch` and `call`.

The gradient of a loop is a loop that runs backwards. Its body is the gradient of the body, divided by `partition`: the
forward loop keeps what the backward loop needs as rows. Iterations that a condition left out are passed by.

The gradient of a call is a call of the function's backward half; the call itself becomes one of the forward half. Each
function is differentiated once for all calls that need the same of it.

The gradient of a branch is a branch on the same condition, which computes the forward part of its region again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gluonjit.ir.annotations import GATE
from gluonjit.ir.dims import hint
from gluonjit.ir.graph import Builder, Graph, Op, Value, copy_ops, reemit
from gluonjit.ir.opdef import NO_GRADIENT
from gluonjit.ir.primitives.control_flow import INDEX
from gluonjit.ir.types import BOOL, I64, TensorType
from gluonjit.passes.dce import dce
from gluonjit.passes.partition import divide

Cotangents = Sequence["Value | None"]
Pull = Callable[[Cotangents], Cotangents]
Joint = Callable[[Graph, Sequence[int], Sequence[int]], Graph]
Forward = tuple[Sequence[Value], Pull, Sequence[bool]]
"""The results, how to go back, and which results depend on active operands."""


def depends(graph: Graph, active: Sequence[bool]) -> list[bool]:
    """Which outputs depend on the active inputs, through ops that have a gradient."""
    reached = {v for v, is_active in zip(graph.inputs, active, strict=True) if is_active}
    for op in graph.ops:
        if any(v in reached for v in op.operands) and getattr(op.definition, "vjp", None) is not NO_GRADIENT:
            reached.update(r for r in op.results if r.dtype is not BOOL)
    return [v in reached for v in graph.outputs]


def needed(graph: Graph, heads: Sequence[int]) -> set[Value]:
    """The values that these outputs depend on."""
    found = {graph.outputs[k] for k in heads}
    for op in reversed(graph.ops):
        if any(r in found for r in op.results):
            found.update(op.operands)
    return found


def zeros(b: Builder, type: TensorType) -> Value:
    """Zeros of this type."""
    zero = b.constant(0, type.dtype)
    return b.broadcast(zero, shape=type.shape) if type.shape else zero


def _copied(b: Builder, graph: Graph, values: Sequence[Value]) -> list[Value]:
    """The results (outputs, then updated states) of a copy of `graph` over these values. Random ops keep their streams:
    they are drawn again."""
    env = dict(zip(graph.inputs, values, strict=True))
    copy_ops(b, graph.ops, env)
    return [env[v] for v in graph.results]


def without_rules(graph: Graph, gates: bool = False) -> Graph:
    """The graph with the forward region of each `with_gradient` in its place, in bodies of loops and branches, too;
    with `gates`, of gates alone."""
    if not _has_rules(graph):
        return graph
    b = Builder(graph.name, graph.level)
    env = {v: b.input(v.name, v.type) for v in graph.inputs}
    bodies: dict[Graph, Graph] = {}
    """Calls of one function share their region."""
    for op in graph.ops:
        b.loc = op.loc
        operands = [env[v] for v in op.operands]
        if op.name == "with_gradient" and (GATE.is_on(op) or not gates):
            new: Sequence[Value] = _copied(b, without_rules(op.regions[0]), operands)
        else:
            for region in op.regions:
                if region not in bodies:
                    bodies[region] = without_rules(region, gates)
            new = reemit(b, replace(op, regions=tuple(bodies[region] for region in op.regions)), operands)
        env.update(zip(op.results, new, strict=True))
    for state, value in graph.updates:
        b.update(env[state], env[value])
    return b.build([env[v] for v in graph.outputs], graph.attrs)


def _has_rules(graph: Graph) -> bool:
    return any(op.name == "with_gradient" or any(map(_has_rules, op.regions)) for op in graph.ops)


def branch_forward(
    b: Builder, op: Op, operands: Sequence[Value], active: Sequence[bool], joint: Joint, late: dict[Value, Value]
) -> Forward:
    """`late` has the newest values of states that change when the gradient is computed."""
    results = b.emit("branch", operands, op.attrs, op.regions, op.loc, [r.name for r in op.results])
    captured = operands[1:]
    wrt = [k for k, is_active in enumerate(active[1:]) if is_active]
    reached = [any(pair) for pair in zip(*(depends(region, active[1:]) for region in op.regions))]

    def pull(g: Cotangents) -> Cotangents:
        heads = [k for k, is_reached in enumerate(reached) if is_reached and g[k] is not None]
        given = [g[k] for k in heads]
        joints = [joint(region, wrt, heads) for region in op.regions]
        states = sorted({graph.inputs.index(state) for graph in joints for state, _ in graph.updates})
        newest = [late.get(v, v) if k in states else v for k, v in enumerate(captured)]
        regions = [_gradients_only(graph, states) for graph in joints]
        every = b.emit("branch", [operands[0], *newest, *given], {}, regions)  # type: ignore[list-item]
        found: list[Value | None] = [None] * len(operands)
        for k, v in zip(wrt, every):
            found[k + 1] = v
        late.update(zip([captured[k] for k in states], every[len(wrt) :], strict=True))
        return found

    return results, pull, reached


def _gradients_only(graph: Graph, states: Sequence[int]) -> Graph:
    """A joint graph without the outputs of the forward part; after the gradients, the new values of these inputs."""
    b = Builder(graph.name, graph.level)
    inputs = [b.input(v.name, v.type) for v in graph.inputs]
    values = _copied(b, graph, inputs)
    new = dict(zip([graph.inputs.index(state) for state, _ in graph.updates], values[len(graph.outputs) :]))
    gradients = values[graph.attrs["primals"] : len(graph.outputs)]
    return dce(b.build([*gradients, *(new.get(k, inputs[k]) for k in states)]))


class Functions:
    """Differentiates the functions of calls. `sums`: the cotangents of values, while the graph is gone through
    backwards."""

    def __init__(self, joint: Joint, sums: dict[Value, Value]) -> None:
        self._joint = joint
        self._sums = sums
        self._known: dict[Hashable, _Function] = {}

    def forward(
        self,
        b: Builder,
        op: Op,
        operands: Sequence[Value],
        active: Sequence[bool],
        used: Sequence[bool],
        late: dict[Value, Value],
    ) -> Forward:
        """As `loop_forward`, for a call."""
        key = op.regions, op.attrs["captured"], tuple(active), tuple(used)
        function = self._known.get(key)
        if function is None:
            function = self._known[key] = _Function(op, active, used, self._joint)
        return function.call(b, op, operands, late, self._sums)


class _Function:
    """The halves of the region of a call, for the operands that are active and the results that are used."""

    def __init__(self, op: Op, active: Sequence[bool], used: Sequence[bool], joint: Joint) -> None:
        (region,) = op.regions
        captured = len(region.inputs) - op.attrs["captured"]
        reached = depends(region, active)
        self.active_results = [a and u for a, u in zip(reached, used, strict=True)]
        self.wrt = [k for k, is_active in enumerate(active) if is_active]
        self.heads = [k for k, is_active in enumerate(self.active_results) if is_active]
        halves = divide(joint(region, self.wrt, self.heads))
        self.forward, backward = halves.forward, halves.backward
        # What the backward half reads: the number of an operand, or of a result of the forward half.
        place = {v: (False, k) for k, v in reversed(list(enumerate(self.forward.outputs)))}
        place |= {v: (True, k) for k, v in enumerate(self.forward.inputs)}
        saved = [place[v] for v in halves.saved]
        inner = dict(zip(backward.inputs, saved))
        self.states = [inner[state][1] for state, _ in backward.updates]
        """The operands that change late."""
        self.summed = [k for k in self.wrt if k >= captured and k not in self.states]
        """The operands whose cotangents the backward half adds to what other readers gave: a product's kernel goes on
        from there, where the sum of all calls' gradients would be a kernel that reads each."""
        fixed = [is_operand and k >= captured and k not in self.states for is_operand, k in saved]
        self.reads = [place for place, is_fixed in zip(saved, fixed) if not is_fixed]
        self.captured = [k for (_, k), is_fixed in zip(saved, fixed) if is_fixed]
        self.backward = self._summing(backward, fixed)

    def _summing(self, backward: Graph, fixed: Sequence[bool]) -> Graph:
        """The backward half with inputs for the sums so far, before those that are `fixed` in all calls, and with the
        new values of states as its last outputs."""
        b = Builder(backward.name, backward.level)
        saved, cotangents = backward.inputs[: len(fixed)], backward.inputs[len(fixed) :]
        varying = [v for v, is_fixed in zip(saved, fixed) if not is_fixed]
        env = {v: b.input(v.name, v.type) for v in (*varying, *cotangents)}
        gradients = dict(zip(self.wrt, backward.outputs))
        sums = {k: b.input("sum", gradients[k].type) for k in self.summed}
        env.update((v, b.input(v.name, v.type)) for v, is_fixed in zip(saved, fixed) if is_fixed)
        copy_ops(b, backward.ops, env)
        outputs = [b.add(sums[k], env[v]) if k in sums else env[v] for k, v in gradients.items()]
        return b.build([*outputs, *(env[new] for _, new in backward.updates)], backward.attrs)

    def call(
        self, b: Builder, op: Op, operands: Sequence[Value], late: dict[Value, Value], sums: dict[Value, Value]
    ) -> Forward:
        """`sums`: the cotangents so far, which the backward half adds to."""
        names = [r.name for r in op.results]
        every = b.emit("call", operands, op.attrs, [self.forward], op.loc, names)
        results = every[: len(names)]

        def pull(g: Cotangents) -> Cotangents:
            given = [x if (x := g[k]) is not None else zeros(b, results[k].type) for k in self.heads]
            now = [late.get(v, v) if k in self.states else v for k, v in enumerate(operands)]
            read = [now[k] if is_operand else every[k] for is_operand, k in self.reads]
            # Taken out, as an operand that comes twice must not bring its sum twice.
            before = [sums.pop(v) if v in sums else zeros(b, v.type) for v in (operands[k] for k in self.summed)]
            captured = [operands[k] for k in self.captured]
            attrs = {"captured": len(captured)}
            found = b.emit("call", [*read, *given, *before, *captured], attrs, [self.backward], op.loc)
            cotangents: list[Value | None] = [None] * len(operands)
            for k, x in zip(self.wrt, found):
                if k in self.summed:
                    v = operands[k]
                    sums[v] = b.add(sums[v], x) if v in sums else x
                else:
                    cotangents[k] = x
            late.update(zip([operands[k] for k in self.states], found[len(self.wrt) :], strict=True))
            return cotangents

        return results, pull, self.active_results


def loop_forward(
    b: Builder,
    op: Op,
    operands: Sequence[Value],
    active: Sequence[bool],
    used: Sequence[bool],
    joint: Joint,
    late: dict[Value, Value],
) -> Forward:
    """`used`: which results the heads depend on; `late` has the newest values of states that change when the gradient
    is computed."""
    return _Loop(b, op, operands, active, used, joint, late).forward()


_MOST_ROWS = 1 << 16
"""Loops that may run for longer, but stop by a condition, compute again what is not carried: there is no room for rows
that will hardly ever be used."""


def _with_counter(condition: Graph, place: int) -> Graph:
    """A loop's condition with one more input, a number that it does not read."""
    b = Builder(condition.name, condition.level)
    values = [b.input(v.name, v.type) for v in condition.inputs[:place]]
    b.input("count", INDEX)
    values += [b.input(v.name, v.type) for v in condition.inputs[place:]]
    return b.build(_copied(b, condition, values))


class _Loop:
    """The two loops of one loop. Inputs of a body: the index, what is carried, one row of each scanned operand, what
    is captured. Outputs: what is carried, the rows."""

    def __init__(
        self,
        b: Builder,
        op: Op,
        operands: Sequence[Value],
        active: Sequence[bool],
        used: Sequence[bool],
        joint: Joint,
        late: dict[Value, Value],
    ) -> None:
        self.b, self.op, self.operands, self.late = b, op, tuple(operands), late
        self.body = op.regions[0]
        self.carried, self.scanned = op.attrs["carried"], op.attrs["scanned"]
        self.trip = op.attrs["trip"]
        self.conditional = len(op.regions) == 2
        rest = list(active[self.carried :])
        state = list(active[: self.carried])
        while True:  # what one iteration makes active is active in the next
            reached = depends(self.body, [False, *state, *rest])
            wider = [a or r for a, r in zip(state, reached)]
            if wider == state:
                break
            state = wider
        self.active_inputs = [False, *state, *rest]
        needs = list(used)
        while True:  # what the next iteration needs is needed of this one
            read = needed(self.body, [k for k, is_needed in enumerate(needs) if is_needed])
            wider = [n or v in read for n, v in zip(needs, self.body.inputs[1 : 1 + self.carried])]
            if wider == needs[: self.carried]:
                break
            needs[: self.carried] = wider
        self.active_outputs = [a and n for a, n in zip([*state, *reached[self.carried :]], needs)]
        wrt = [k for k, is_active in enumerate(self.active_inputs) if is_active]
        heads = [k for k, is_active in enumerate(self.active_outputs) if is_active]
        self.halves = divide(joint(self.body, wrt, heads), recompute=self.conditional and hint(self.trip) > _MOST_ROWS)

    def forward(self) -> Forward:
        b, op, body = self.b, self.op, self.body
        forward = self.halves.forward
        saved = self.halves.saved
        # A value that the backward body reads: an input of the body, or one that the forward body gives as well.
        inputs = {v: k for k, v in enumerate(forward.inputs)}
        end = 1 + self.carried
        extra = [v for v in saved if v not in inputs or 1 <= inputs[v] < end]
        # Where no rows are kept, the number of iterations is enough, however many there might be.
        counted = self.conditional and not (extra or self.scanned or any(self.active_outputs[self.carried :]))
        inner = Builder(body.name, forward.level)
        values = [inner.input(v.name, v.type) for v in forward.inputs[:end]]
        count = [inner.input("count", INDEX)] if counted else []
        values += [inner.input(v.name, v.type) for v in forward.inputs[end:]]
        env = dict(zip(forward.inputs, values, strict=True))
        from_body = dict(zip(forward.outputs, _copied(inner, forward, values), strict=True))
        rows = [env[v] if v in env else from_body[v] for v in extra]
        flags = [inner.constant(1, I64)] if self.conditional and not counted else []
        outputs = [from_body[v] for v in forward.outputs[: len(body.outputs)]]
        outputs[self.carried : self.carried] = [inner.add(n, inner.constant(1, I64)) for n in count]
        regions = [inner.build([*outputs, *rows, *flags]), *op.regions[1:]]
        operands, attrs, names = list(self.operands), dict(op.attrs), [r.name for r in op.results]
        if counted:
            regions[1] = _with_counter(regions[1], end)
            operands.insert(self.carried, b.constant(0, I64))
            names.insert(self.carried, "")
            attrs["carried"] = self.carried + 1
        every = list(b.emit("loop", operands, attrs, regions, op.loc, names))
        ran = every.pop(self.carried) if counted else None
        results = every[: len(op.results)]
        kept = dict(zip(extra, every[len(op.results) :]))
        flag = every[-1] if flags else None

        def pull(g: Cotangents) -> Cotangents:
            return self._pull(g, results, kept, flag, ran, inputs)

        return results, pull, self.active_outputs

    def _sources(
        self, kept: dict[Value, Value], inputs: dict[Value, int], late: Mapping[int, int]
    ) -> tuple[dict[Value, tuple[str, int]], list[Value], list[Value]]:
        """Where the backward body finds each saved value: as the `index`, in the `state` (`late`: the place of an
        operand that changes late), in the `row` that is scanned, or in what it reads as a `whole`, each with its
        number; and the operands of these rows and wholes."""
        source: dict[Value, tuple[str, int]] = {}
        scanned: list[Value] = []
        whole: list[Value] = []
        end = 1 + self.carried
        for v in self.halves.saved:
            k = inputs.get(v, -1)
            if k == 0:
                source[v] = "index", 0
            elif k in late:
                source[v] = "state", late[k]
            elif v in kept or end <= k < end + self.scanned:
                source[v] = "row", len(scanned)
                scanned.append(kept[v] if v in kept else self.operands[k - 1])
            else:
                source[v] = "whole", len(whole)
                whole.append(self.operands[k - 1])
        return source, scanned, whole

    def _pull(
        self,
        g: Cotangents,
        results: Sequence[Value],
        kept: dict[Value, Value],
        flag: Value | None,
        ran: Value | None,
        inputs: dict[Value, int],
    ) -> Cotangents:
        """The backward loop. It carries the cotangents of the state, the sums of those of what is captured, and what is
        captured and changes late; it scans, in the opposite order, the saved rows, those of the scanned operands, and
        the cotangents of the rows. Iterations that did not run are known by `flag`, a row for each, or are the first
        ones after `ran`."""
        b, backward, saved = self.b, self.halves.backward, self.halves.saved
        end, first_captured = 1 + self.carried, 1 + self.carried + self.scanned
        states = [k for k in range(1, end) if self.active_inputs[k]]
        items = [k for k in range(end, first_captured) if self.active_inputs[k]]
        captured = [k for k in range(first_captured, len(self.active_inputs)) if self.active_inputs[k]]
        heads = [k for k, is_active in enumerate(self.active_outputs) if is_active]
        row_heads = [k for k in heads if k >= self.carried]

        def operand(k: int) -> Value:
            return self.operands[k - 1]

        def cotangent(k: int) -> Value:
            x = g[k]
            return x if x is not None else zeros(b, results[k].type)

        from_forward = dict(zip(backward.inputs, saved))
        late = [inputs[from_forward[state]] for state, _ in backward.updates]
        carried = [cotangent(k - 1) for k in states] + [zeros(b, operand(k).type) for k in captured]
        summed = len(carried)
        carried += [self.late.get(operand(k), operand(k)) for k in late]
        source, scanned, whole = self._sources(kept, inputs, {k: summed + n for n, k in enumerate(late)})
        first_head = len(scanned)
        scanned += map(cotangent, row_heads)
        if flag is not None:
            scanned.append(flag)
        if ran is not None:
            whole.append(ran)

        body = Builder(f"{self.body.name}_backward", "expanded")
        number = body.input("i", INDEX)
        state = [body.input("", v.type) for v in carried]
        row = [body.input("", v.type.with_shape(v.shape[1:])) for v in scanned]
        fixed = [body.input("", v.type) for v in whole]
        last = body.constant(self.trip - 1, I64) if ran is None else body.sub(fixed[-1], body.constant(1, I64))
        index = body.sub(last, number)
        read = {"index": [index], "state": state, "row": row, "whole": fixed}
        given = [read[kind][k] for kind, k in (source[v] for v in saved)]
        by_head = dict(zip(row_heads, row[first_head:])) | {k - 1: state[n] for n, k in enumerate(states)}
        results_of_body = _copied(body, backward, [*given, *(by_head[k] for k in heads)])
        by_input = dict(zip([k for k, is_active in enumerate(self.active_inputs) if is_active], results_of_body))
        new = [by_input[k] for k in states]
        new += [body.add(state[len(states) + n], by_input[k]) for n, k in enumerate(captured)]
        new += results_of_body[len(backward.outputs) :]
        out = [by_input[k] for k in items]
        if flag is not None:
            has_run = body.ne(row[-1], body.constant(0, I64))
            new = [body.select(has_run, x, old) for x, old in zip(new, state)]
            out = [body.select(has_run, x, body.constant(np.zeros((), x.dtype.numpy), x.dtype)) for x in out]
        attrs = {"carried": len(carried), "scanned": len(scanned), "trip": self.trip}
        attrs["last_first"] = not self.op.attrs["last_first"]
        regions = [body.build([*new, *out])]
        if ran is not None:
            condition = Builder(f"{self.body.name}_backward_condition", "expanded")
            at, *_, last = [condition.input("", v.type) for v in (number, *state, *fixed)]
            regions.append(condition.build([condition.lt(at, last)]))
        every = b.emit("loop", [*carried, *scanned, *whole], attrs, regions)
        found: list[Value | None] = [None] * len(self.operands)
        for k, x in zip([*states, *captured], every):
            found[k - 1] = x
        self.late.update(zip(map(operand, late), every[summed:]))
        for k, x in zip(items, every[len(carried) :]):
            found[k - 1] = x
        return found
