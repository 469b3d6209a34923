"""`differentiate`: automatic differentiation in reverse mode (Griewank and Walther, "Evaluating derivatives", 2008).

The joint graph is the forward ops, then, from the last to the first, the rule of each (`Primitive.vjp`), which turns
the cotangents of an op's results into those of its operands. The rules are emitted as primitives, so a joint graph can
be differentiated again. Loops, branches and calls: `differentiate_control.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from gluonjit.ir.annotations import DETACHED, without
from gluonjit.ir.graph import Builder, Graph, Loc, Op, Value, copy_ops, reemit
from gluonjit.ir.opdef import NO_GRADIENT, Primitive
from gluonjit.ir.types import BOOL, IRError
from gluonjit.passes.differentiate_control import (
    Functions,
    branch_forward,
    loop_forward,
    needed,
    without_rules,
    zeros,
)
from gluonjit.passes.manager import register_pass

Cotangents = Sequence["Value | None"]
"""One for each value; None stands for zeros."""


class Step(NamedTuple):
    """An op of the forward pass, as the reverse sweep needs it."""

    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    pull: Callable[[Cotangents], Cotangents]
    """Emits the cotangents of the operands, given those of the results."""
    op: Op


@register_pass("differentiate", whole=True, needs="legal", gives="expanded")
def differentiate(
    graph: Graph,
    *,
    wrt: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    keep_rules: bool = False,
) -> Graph:
    """Appends the gradient of a graph to it: the joint graph.

    `wrt`: the numbers of the inputs to differentiate by (default: those of a float type); `heads`: the numbers of the
    outputs that get a cotangent (default: likewise). The result has an input for the cotangent of each head after the
    others, and after the outputs the cotangent of each `wrt`, zeros if nothing depends on it. Its attributes say
    what is what: `primals`, the number of outputs of the given graph, `cotangents`, the number of inputs added, and
    `late`, how many of the updates (the last ones) belong to the gradient: see `with_gradient`.

    `keep_rules`: whether the forward ops are to be differentiated once more. Then each `with_gradient` stays where its
    results are read, without `late`, because the gradient of the gradient follows its rule, too.

    Needs level `legal`, where `broadcast` alone stretches operands. The joint graph has level `expanded`: constants in
    the rules are broadcast implicitly.
    """
    if graph.level != "legal":
        raise IRError(f"@{graph.name} has level {graph.level!r}; gradients need 'legal': run legalize-broadcast before")
    wrt = _numbers("wrt", wrt, graph.inputs)
    heads = _numbers("heads", heads, graph.outputs)
    b = Builder(graph.name, "expanded")
    env = {v: b.input(v.name, v.type) for v in graph.inputs}
    sweep = _Sweep(b, [env[graph.inputs[k]] for k in wrt], keep_rules, needed(graph, heads))
    sweep.forward(graph.ops, env)
    given = [b.input(f"d_{graph.outputs[k].name or k}", graph.outputs[k].type) for k in heads]
    b.loc = None
    gradients = sweep.backward([(env[graph.outputs[k]], g) for k, g in zip(heads, given, strict=True)])
    outputs = [env[v] for v in graph.outputs]
    for state, new in graph.updates:
        b.update(env[state], env[new])
    inputs = {env[v] for v in graph.inputs}
    late = [(state, new) for state, new in sweep.late.items() if state in inputs]
    for state, new in late:
        b.update(state, new)
    results = [g if g is not None else zeros(b, v.type) for g, v in zip(gradients, sweep.wrt, strict=True)]
    attrs = {**graph.attrs, "primals": len(outputs), "cotangents": len(given), "late": len(late)}
    attrs.pop("params", None)
    both = replace(b.build([*outputs, *results]), attrs=attrs)
    return without_rules(both, gates=keep_rules)


def _numbers(what: str, given: Sequence[int] | None, values: Sequence[Value]) -> tuple[int, ...]:
    if given is None:
        return tuple(k for k, v in enumerate(values) if v.dtype.is_float)
    if not isinstance(given, (tuple, list)) or not all(type(k) is int for k in given):
        raise IRError(f"{what} must be a tuple of ints, got {given!r}")
    for k in given:
        if not 0 <= k < len(values):
            raise IRError(f"{what} = {tuple(given)}: there is no number {k}, only {len(values)}")
        if values[k].dtype is BOOL:
            raise IRError(f"{what} = {tuple(given)}: %{values[k].name} is {values[k].type}, which has no gradient")
    return tuple(given)


def joint(graph: Graph, wrt: Sequence[int], heads: Sequence[int], keep_rules: bool = False) -> Graph:
    """`differentiate` without a check of the level, for bodies of loops and branches."""
    return differentiate(graph.with_level("legal"), wrt=tuple(wrt), heads=tuple(heads), keep_rules=keep_rules)


class _Sweep:
    """Emits ops forward while it notes how to go back."""

    def __init__(self, b: Builder, wrt: Sequence[Value], keep_rules: bool, needed: set[Value]) -> None:
        """`needed`: the values of the given graph that its heads depend on."""
        self.b, self.needed = b, needed
        self.joint = partial(joint, keep_rules=keep_rules)
        self.cotangents: dict[Value, Value] = {}
        """The sums so far, on the way back."""
        self.functions = Functions(self.joint, self.cotangents)
        self.wrt = wrt
        self.active: set[Value] = set(wrt)
        """The values that depend on `wrt`."""
        self.steps: list[Step] = []
        self.late: dict[Value, Value] = {}
        """The newest value of each state that changes when the gradient is computed: see `with_gradient`."""

    def forward(self, ops: Iterable[Op], env: dict[Value, Value]) -> None:
        """Emits copies of `ops`; `env` has the values that they read, and gets those that they make. Those that come
        from nowhere come from where the builder is: the operator of whose rule they are."""
        outer = self.b.loc
        for op in ops:
            if op.loc is None and outer is not None:
                op = replace(op, loc=outer)
            self.b.loc = op.loc
            operands = tuple(env[v] for v in op.operands)
            results = self._step(op, operands)
            env.update(zip(op.results, results, strict=True))

    def _step(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        b, definition = self.b, op.definition
        if op.name == "with_gradient":
            return self._with_gradient(op, operands)
        depends = [v in self.active for v in operands]
        assert isinstance(definition, Primitive)
        if not any(depends) or definition.vjp is NO_GRADIENT:
            return reemit(b, op, operands)
        if op.name == "loop":
            used = [r in self.needed for r in op.results]
            results, pull, active = loop_forward(b, op, operands, depends, used, self.joint, self.late)
        elif op.name == "call":
            used = [r in self.needed for r in op.results]
            results, pull, active = self.functions.forward(b, op, operands, depends, used, self.late)
        elif op.name == "branch":
            results, pull, active = branch_forward(b, op, operands, depends, self.joint, self.late)
        else:
            results = reemit(b, op, operands)
            pull, active = _by_rule(b, definition, op, operands, results), [True] * len(results)
        self._note(op, operands, results, pull, active)
        return results

    def _note(
        self, op: Op, operands: Sequence[Value], results: Sequence[Value], pull: Callable, active: Sequence[bool]
    ) -> None:
        self.steps.append(Step(tuple(operands), tuple(results), pull, op))
        self.active.update(r for r, is_active in zip(results, active) if is_active and r.dtype is not BOOL)

    def _with_gradient(self, op: Op, operands: tuple[Value, ...]) -> Sequence[Value]:
        b = self.b
        body, *rules = op.regions
        refuses, active = op.attrs["refuses"], any(v in self.active for v in operands)
        if rules or refuses:
            # Each result is a value of its own, even where it equals an operand or another result: its cotangent is
            # this rule's, and its own.
            results = b.emit("with_gradient", operands, {**op.attrs, "late": ()}, op.regions)
            env = dict(zip(body.inputs, operands, strict=True))
            if op.attrs["late"]:
                copy_ops(b, body.ops, env)
        else:
            inputs = [_constant(b, v, op) if k in op.attrs["fixed"] else v for k, v in enumerate(operands)]
            env = dict(zip(body.inputs, inputs, strict=True))
            self.needed |= needed(body, range(len(body.outputs)))
            self.forward(body.ops, env)
            results = tuple(env[v] for v in body.outputs)
        if op.attrs["late"] and active:  # before the rule, which is followed first and reads the states as they were
            self.steps.append(Step((), tuple(results), lambda g: self._change_states(op, body, operands, env), op))
        if refuses and active:

            def refuse(g: Cotangents) -> Cotangents:
                raise NoGradient(refuses, op.loc)

            self._note(op, operands, results, refuse, [True] * len(results))
        elif rules and any(operands[k] in self.active for k in op.attrs["to"]):
            rule, receivers = rules[0], op.attrs["to"]
            states = {k for k, _ in op.attrs["late"]}

            def pull(g: Cotangents) -> Cotangents:
                given = [x if x is not None else zeros(b, r.type) for x, r in zip(g, results, strict=True)]
                now = [self.late.get(v, v) if k in states else v for k, v in enumerate(operands)]
                values = dict(zip(rule.inputs, [*now, *results, *given], strict=True))
                copy_ops(b, rule.ops, values)
                found: list[Value | None] = [None] * len(operands)
                for k, v in zip(receivers, rule.outputs, strict=True):
                    found[k] = values[v]
                return found

            self._note(op, operands, results, pull, [True] * len(results))
        return results

    def _change_states(self, op: Op, body: Graph, operands: Sequence[Value], env: dict[Value, Value]) -> Cotangents:
        """Computes the late results of `with_gradient` from the newest values of the states; `env` has those that were
        computed forward, from the states as they were then."""
        pairs = [(operands[k], body.inputs[k], body.outputs[j]) for k, j in op.attrs["late"]]
        moved = {inner: self.late[state] for state, inner, _ in pairs if state in self.late}
        changed = set(moved)
        values = env | moved
        for inner in body.ops if moved else ():
            if any(v in changed for v in inner.operands):
                copy_ops(self.b, [inner], values)
                changed.update(inner.results)
        self.late.update((state, values[new]) for state, _, new in pairs)
        return ()

    def backward(self, heads: Sequence[tuple[Value, Value]]) -> list[Value | None]:
        """Emits the cotangents of `wrt`, given pairs of a value and its cotangent."""
        b, cotangents = self.b, self.cotangents

        def add(v: Value, g: Value) -> None:
            if v in self.active:
                cotangents[v] = b.add(cotangents[v], g) if v in cotangents else g

        for v, g in heads:
            add(v, g)
        while self.steps:  # what is left refers to the sweep, and only the garbage collector would find the two
            step = self.steps.pop()
            given = [cotangents.get(r) for r in step.results]
            if all(x is None for x in given):
                continue
            b.loc = step.op.loc
            for v, x in zip(step.operands, step.pull(given), strict=True):
                if x is not None:
                    add(v, x)
        return [cotangents.get(v) for v in self.wrt]


def _constant(b: Builder, v: Value, op: Op) -> Value:
    """A copy of the operand `v` of `op` that is not active: no cotangent passes it."""
    identity = Builder("constant")
    region = identity.build([identity.input("", v.type)])
    notes = DETACHED(True) if DETACHED.of(op) else {}
    return b.emit("with_gradient", [v], {"fixed": (0,), **notes}, [region])[0]


class NoGradient(IRError):
    """An op that the gradient has to pass through has no rule. `what` is its name, `loc` the user's line."""

    def __init__(self, what: str, loc: Loc | None) -> None:
        super().__init__(f"{what} has no gradient" + (f"\n  at {loc}" if loc else ""))
        self.what, self.loc = what, loc


def _by_rule(
    b: Builder, definition: Primitive, op: Op, operands: Sequence[Value], results: Sequence[Value]
) -> Callable[[Cotangents], Cotangents]:
    attrs = without(op.attrs)

    def pull(g: Cotangents) -> Cotangents:
        if definition.vjp is None:
            raise NoGradient(op.attrs.get("function", op.name), op.loc)
        one = len(results) == 1
        out = definition.vjp(b, g[0] if one else tuple(g), results[0] if one else tuple(results), *operands, **attrs)
        found = out if isinstance(out, tuple) else (out,) * len(operands) if out is None else (out,)
        for v, x in zip(operands, found, strict=True):
            if x is not None and x.type != v.type:
                raise IRError(f"the gradient rule of {op.name} gives {x.type} for an operand of type {v.type}")
        return found

    return pull
