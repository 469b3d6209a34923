"""What a head depends on, where a cotangent of 0 is not the same as none.

In a plain call, `backward` visits what a head depends on, even through ops whose gradient is 0, and nothing else. That
shows in two ways. Output layers ignore their cotangent: they give their gradient where they are visited. And a variable
that is not visited keeps its old gradient.

Both follow from a graph, unless it has branches and loops, for there only a run can tell. So `with_tokens` gives each
value a *token* beside it, a number that depends on the same inputs and output layers. The cotangent of the token, which
`differentiate` computes as any other, is not 0 where the value is visited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import and_, or_
from types import MappingProxyType
from typing import NamedTuple

import gluonjit.passes as passes
from gluonjit.codes.store import Store
from gluonjit.ir.annotations import DETACHED, GATE, TRAINING
from gluonjit.ir.graph import Builder, Graph, Op, Value, copy_ops, reemit
from gluonjit.ir.opdef import NO_GRADIENT, attr_key
from gluonjit.ir.types import BOOL, F32, TensorType
from gluonjit.operators.gradients import refused, zero
from gluonjit.operators.registry import Operator

_TOKEN = TensorType(F32)


def sources(
    graph: Graph, given: Sequence[int], certain: bool = False, own: Mapping[Op, int] = MappingProxyType({})
) -> list[int]:
    """What each output depends on, as the union of the bit masks `given` for the inputs. `certain`: whatever branches
    are taken, and however often loops with a condition run; else in some of these cases. `own`: masks of ops."""
    masks = dict(zip(graph.inputs, given, strict=True))
    for op in graph.ops:
        operands = [masks[v] for v in op.operands]
        if DETACHED.of(op):
            found = [0] * len(op.results)
        elif op.name == "loop":
            found = _sources_of_loop(op, operands, certain, own)
        elif op.name == "branch":
            join = and_ if certain else or_
            found = [
                join(a, b) for a, b in zip(*(sources(region, operands[1:], certain, own) for region in op.regions))
            ]
        elif op.name == "call":
            found = sources(op.regions[0], operands, certain, own)
        else:
            found = [reduce(or_, operands, own.get(op, 0))] * len(op.results)
        masks.update(zip(op.results, found, strict=True))
    return [masks[v] for v in graph.outputs]


def _sources_of_loop(op: Op, operands: Sequence[int], certain: bool, own: Mapping[Op, int]) -> list[int]:
    carried, trip = op.attrs["carried"], op.attrs["trip"]
    state, rest = list(operands[:carried]), operands[carried:]
    rows = [0] * (len(op.results) - carried)
    runs_always = len(op.regions) == 1 and isinstance(trip, int)
    known: dict[tuple[int, ...], int] = {}
    n = 0
    while not runs_always or n < trip:
        if (before := known.get(tuple(state))) is not None:  # from here on, everything repeats
            if not runs_always or n - before == 1:
                break
            n, known = trip - (trip - n) % (n - before), {}
            continue
        known[tuple(state)] = n
        found = sources(op.regions[0], [0, *state, *rest], certain, own)
        rows = [a | b for a, b in zip(rows, found[carried:])]
        if runs_always:
            state = found[:carried]
        else:
            state = [(and_ if certain else or_)(a, b) for a, b in zip(state, found)]
        n += 1
    return [*state, *([0] * len(rows) if certain and not runs_always else rows)]


def _uncertain(graph: Graph) -> list[int]:
    """The numbers of the inputs on which an output may depend or not, as branches and loops go."""
    if not any(op.regions for op in graph.ops):
        return []
    bits = [1 << n for n in range(len(graph.inputs))]
    possible, certain = (sources(graph, bits, certain) for certain in (False, True))
    mask = reduce(or_, [a & ~b for a, b in zip(possible, certain)], 0)
    return [n for n in range(len(bits)) if mask >> n & 1 and graph.inputs[n].dtype is not BOOL]


def _ignores_cotangents(op: Op, training: bool) -> bool:
    """Whether the op is an output layer: it may have a gradient that is not 0 if the cotangents of its results are."""
    regions: Sequence[Graph] = op.regions if op.name == "with_gradient" else ()
    definition = op.definition
    if isinstance(definition, Operator) and (
        definition.gradient is not None or type(definition).with_gradient is not Operator.with_gradient
    ):
        own = definition.with_gradient([v.type for v in op.operands], op.attrs, training)
        regions = own.regions if own is not None else ()
        if own is not None and own.attrs.get("refuses") and definition.gradient is not refused:
            return True
    if len(regions) != 2 or not regions[1].outputs:
        return False
    rule = regions[1]
    depends = {*rule.inputs[len(rule.inputs) - len(regions[0].outputs) :]}
    read = {v for inner in rule.ops for v in inner.operands} | {*rule.outputs}
    if not depends & read:
        return True
    for inner in rule.ops:
        found = [v in depends for v in inner.operands]
        if inner.name == "host_call" or (inner.name in ("add", "sub") and any(found) and not all(found)):
            return True
        if any(found):
            depends.update(inner.results)
    return False


def _layers(graph: Graph, training: bool | None = None) -> list[Op]:
    """The output layers, those in bodies of loops and branches among them."""
    training = bool(graph.attrs.get("training", training))
    found = []
    for op in graph.ops:
        if op.name in ("loop", "branch"):
            found += [layer for region in op.regions for layer in _layers(region, training)]
        elif _ignores_cotangents(op, bool(op.attrs.get(TRAINING.name, training))):
            found.append(op)
    return found


def _late(graph: Graph, training: bool | None = None) -> list[Op]:
    """The ops whose states change when their gradient is computed, those in bodies of loops and branches among them."""
    training = bool(graph.attrs.get("training", training))
    found = []
    for op in graph.ops:
        found += [inner for region in op.regions for inner in _late(region, training)]
        if getattr(op.definition, "late", None) is not None and op.attrs.get(TRAINING.name, training):
            found.append(op)
    return found


def late_ops(graph: Graph) -> list[int]:
    """For each output, the ops that it depends on whose states change when their gradient is computed, as a mask."""
    own = {op: 1 << n for n, op in enumerate(_late(graph))}
    return sources(graph, [0] * len(graph.inputs), own=own)


def _states_after_constants(graph: Graph) -> list[Op]:
    """The ops whose states change when their gradient is computed, if there are others that stop gradients."""
    found = set(_late(graph))
    late = [op for op in graph.ops if op in found]
    return late if late and any(map(_is_constant, graph.ops)) else []


_constants: Store[bool] = Store(4096)
"""Whether an operator's results are constant almost everywhere, by its name, attributes, and types of elements."""


def _is_constant(op: Op) -> bool:
    definition = op.definition
    if not isinstance(definition, Operator) or not op.operands:
        return False
    if definition.gradient is zero:
        return True
    if definition.gradient is not None or definition.late is not None or definition.streams is not None:
        return False
    dtypes = tuple(v.dtype for v in op.operands)
    key = (op.name, dtypes, tuple((k, attr_key(op.attrs[k])) for k in sorted(op.attrs) if not k.startswith(".")))
    found = _constants.find(key)
    if found is None:
        b = Builder(op.name, "traced")
        results = reemit(b, op, [b.input(v.name, v.type) for v in op.operands])
        legal = passes.run_passes(b.build(results), "expand {gradients = True}")
        active = {*legal.inputs}
        for inner in legal.ops:
            if getattr(inner.definition, "vjp", None) is not NO_GRADIENT and not active.isdisjoint(inner.operands):
                active.update(v for v in inner.results if v.dtype is not BOOL)
        found = active.isdisjoint(legal.outputs)
        _constants.keep(key, found)
    return found


def _free(op: Op) -> list[int]:
    """The numbers of the operands that are no states: those must stay the inputs that they are, to get new values."""
    definition, attrs = op.definition, {k: v for k, v in op.attrs.items() if not k.startswith(".")}
    if not isinstance(definition, Operator):
        return [*range(len(op.operands))]
    states = definition.aux_names(attrs)
    return [k for k, name in enumerate(definition.input_names(attrs)) if name not in states]


class Tokens(NamedTuple):
    """A graph with tokens. `inputs`: the number of the token of each input that has one; `outputs` likewise."""

    graph: Graph
    inputs: Mapping[int, int]
    outputs: Mapping[int, int]


def with_tokens(graph: Graph) -> Tokens:
    """The graph with tokens after its inputs and outputs, where they tell anything: the same graph, if nowhere.

    An output layer becomes `gate(operands, token)`, the layer, and `gate(results, token)`: identities, of which the
    first one lets the layer's gradient through only where the token's cotangent is not 0, and the second one sees to it
    that the layer has a cotangent, even one of zeros. The latter also for the sake of states, such as BatchNorm's
    moving mean, that change where a gradient passes."""
    layers = _layers(graph)
    if len(graph.outputs) == 1 and [op.results[0] for op in layers] == [*graph.outputs]:
        layers = []
    layers += [op for op in _states_after_constants(graph) if op not in layers]
    uncertain = _uncertain(graph)
    if not layers and not uncertain:
        return Tokens(graph, {}, {})
    b = Builder(graph.name, graph.level, bool(graph.attrs.get("training", False)))
    env = {v: b.input(v.name, v.type) for v in graph.inputs}
    inputs = {n: len(graph.inputs) + k for k, n in enumerate(uncertain)}
    tokens = {graph.inputs[n]: b.input("", _TOKEN) for n in uncertain}
    _Writer(b, {op: n for n, op in enumerate(layers)}).write(graph, env, tokens)
    for state, new in graph.updates:
        b.update(env[state], env[new])
    count = len(graph.outputs)
    marked = [k for k, v in enumerate(graph.outputs) if v in tokens]
    results = [env[v] for v in graph.outputs] + [tokens[graph.outputs[k]] for k in marked]
    outputs = {k: count + n for n, k in enumerate(marked)}
    return Tokens(b.build(results, graph.attrs), inputs, outputs)


class _Writer:
    """Writes the copy of a graph with tokens. `layers` are numbered."""

    def __init__(self, b: Builder, layers: Mapping[Op, int]) -> None:
        self.b, self.layers = b, layers
        self.totals: dict[frozenset[Value], Value] = {}

    def write(self, graph: Graph, env: dict[Value, Value], tokens: dict[Value, Value]) -> None:
        """Emits copies of the ops; `env` and `tokens` have what stands for the inputs, and get the rest."""
        for op in graph.ops:
            operands = [env[v] for v in op.operands]
            given = [tokens.get(v) for v in op.operands]
            results, found = self._op(op, operands, given)
            env.update(zip(op.results, results, strict=True))
            tokens.update((v, token) for v, token in zip(op.results, found, strict=True) if token is not None)

    def _op(
        self, op: Op, operands: Sequence[Value], given: Sequence[Value | None]
    ) -> tuple[Sequence[Value], Sequence[Value | None]]:
        inside = op.name in ("loop", "branch") and any(
            layer in self.layers for region in op.regions for layer in _layers(region)
        )
        token = None if DETACHED.of(op) else self._total(given)
        if op in self.layers:
            number, token = self.layers[op], self._none() if token is None else token
            if _ignores_cotangents(op, bool(op.attrs.get(TRAINING.name, self.b.training))):
                free = _free(op)
                *gated, token = _gate(self.b, [operands[k] for k in free], token, op, number)
                new = dict(zip(free, gated))
                operands = [new.get(k, v) for k, v in enumerate(operands)]
            result, *others = reemit(self.b, op, operands)
            result, token = _gate(self.b, [result], token, op, number, stops=False)
            return [result, *others], [token] * (1 + len(others))
        if token is None and not inside:
            return reemit(self.b, op, operands), [None] * len(op.results)
        if op.name == "loop":
            return self._loop(op, operands, given)
        if op.name == "branch":
            return self._branch(op, operands, given)
        if GATE.is_on(op) and op.name == "select" and token is not None:
            # In a gradient that is differentiated again, what a gate lets through is visited where it lets it through.
            open = self.b.cast(operands[0], dtype=F32)
            open = self.b.reduce(open, op="sum", axes=tuple(range(open.ndim))) if open.ndim else open
            token = self.b.select(self.b.ne(open, self._none()), token, self._none())
        return reemit(self.b, op, operands), [token] * len(op.results)

    def _none(self) -> Value:
        return self.b.constant(0, F32)

    def _total(self, tokens: Iterable[Value | None]) -> Value | None:
        """A token that depends on all of these."""
        different = list(dict.fromkeys(t for t in tokens if t is not None))
        if not different:
            return None
        key = frozenset(different)
        if key not in self.totals:
            self.totals[key] = reduce(self.b.add, different)
        return self.totals[key]

    def _region(
        self, region: Graph, split: int, more: int, tokens_of: Sequence[int | None]
    ) -> tuple[Builder, list[Value], list[Value]]:
        """A copy of a region with `more` tokens as inputs before its input `split`, and others at its end; what gives
        its outputs, and their tokens. `tokens_of`: the number of the token among all of these of each input."""
        b = Builder(region.name, region.level, bool(region.attrs.get("training", False)))
        env = {v: b.input(v.name, v.type) for v in region.inputs[:split]}
        taken = [b.input("", _TOKEN) for _ in range(more)]
        env.update((v, b.input(v.name, v.type)) for v in region.inputs[split:])
        count = max([-1, *(n for n in tokens_of if n is not None)]) + 1
        taken += [b.input("", _TOKEN) for _ in range(count - more)]
        tokens = {v: taken[n] for v, n in zip(region.inputs, tokens_of, strict=True) if n is not None}
        writer = _Writer(b, self.layers)
        writer.write(region, env, tokens)
        outputs = [env[v] for v in region.outputs]
        return b, outputs, [tokens[v] if v in tokens else writer._none() for v in region.outputs]

    def _branch(
        self, op: Op, operands: Sequence[Value], given: Sequence[Value | None]
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        outside = list(dict.fromkeys(t for t in given[1:] if t is not None))
        tokens_of = [None if t is None else outside.index(t) for t in given[1:]]
        regions = []
        for region in op.regions:
            b, outputs, tokens = self._region(region, len(region.inputs), len(outside), tokens_of)
            regions.append(b.build([*outputs, *tokens], region.attrs))
        names = [r.name for r in op.results]
        every = self.b.emit("branch", [*operands, *outside], op.attrs, regions, op.loc, names)
        return every[: len(names)], every[len(names) :]

    def _loop(
        self, op: Op, operands: Sequence[Value], given: Sequence[Value | None]
    ) -> tuple[Sequence[Value], Sequence[Value | None]]:
        """The tokens of the state are carried beside it; those of rows are rows, of which the sum is the token."""
        carried = op.attrs["carried"]
        body, *condition = op.regions
        outside = list(dict.fromkeys(t for t in given[carried:] if t is not None))
        tokens_of: list[int | None] = [None, *range(carried)]
        tokens_of += [None if t is None else carried + outside.index(t) for t in given[carried:]]
        b, outputs, tokens = self._region(body, 1 + carried, carried, tokens_of)
        outputs[carried:carried] = tokens[:carried]
        regions = [b.build([*outputs, *tokens[carried:]], body.attrs)]
        if condition:
            regions.append(_with_inputs(condition[0], 1 + carried, carried, len(outside)))
        state = [self._none() if t is None else t for t in given[:carried]]
        names = [r.name for r in op.results]
        names[carried:carried] = [""] * carried
        every = self.b.emit(
            "loop",
            [*operands[:carried], *state, *operands[carried:], *outside],
            {**op.attrs, "carried": 2 * carried},
            regions,
            op.loc,
            names,
        )
        after = every[carried : 2 * carried]
        rows = [self.b.reduce(t, op="sum", axes=(0,)) for t in every[len(names) :]]
        return [*every[:carried], *every[2 * carried : len(names)]], [*after, *rows]


def _with_inputs(graph: Graph, split: int, before: int, after: int) -> Graph:
    """The graph with tokens that it does not read, as inputs before input `split`, and after the others."""
    b = Builder(graph.name, graph.level)
    env = {v: b.input(v.name, v.type) for v in graph.inputs[:split]}
    for _ in range(before):
        b.input("", _TOKEN)
    env.update((v, b.input(v.name, v.type)) for v in graph.inputs[split:])
    for _ in range(after):
        b.input("", _TOKEN)
    copy_ops(b, graph.ops, env)
    return b.build([env[v] for v in graph.outputs], graph.attrs)


def _gate(b: Builder, values: Sequence[Value], token: Value, op: Op, number: int, stops: bool = True) -> list[Value]:
    """The values and the token, with a gradient that `stops` where the token's cotangent is 0. The layer's `number`
    keeps its gates from being taken for those of another one on the same values."""
    places = [k for k, v in enumerate(values) if v.dtype is not BOOL]
    types = [*(values[k].type for k in places), _TOKEN]
    forward, rule = Builder("gate", b.level), Builder("gate_gradient", b.level)
    inputs = [forward.input("", t) for t in types]
    for t in 2 * types:
        rule.input("", t)
    *cotangents, visited = [rule.input("", t) for t in types]
    if stops and cotangents:
        open = rule.ne(visited, rule.constant(0, F32))
        cotangents = [_where(rule, open, g) for g in cotangents]
    attrs = {"to": tuple(range(len(types))), **GATE(number)}
    regions = [forward.build(inputs), rule.build([*cotangents, visited])]
    *found, token = b.emit("with_gradient", [*(values[k] for k in places), token], attrs, regions, op.loc)
    results = list(values)
    for k, v in zip(places, found, strict=True):
        results[k] = v
    return [*results, token]


def _where(b: Builder, condition: Value, x: Value) -> Value:
    none = b.constant(0, x.dtype)
    if x.shape:
        condition, none = (b.broadcast(v, shape=x.shape) for v in (condition, none))
    return b.emit("select", (condition, x, none), GATE(0))[0]


def without_tokens(joint: Graph, tokens: Tokens, primals: int, heads: int, given: bool) -> Graph:
    """The joint graph of a graph with tokens, of which the last inputs are the cotangents of `heads` tokens: no other
    inputs and outputs than those of the graph without them, which has `primals` outputs, and, after the gradients, the
    cotangents of tokens. `given`: whether those of heads stay inputs; otherwise all are 1."""
    b = Builder(joint.name, joint.level)
    env: dict[Value, Value] = {}
    numbers = {*tokens.inputs.values()}
    first = len(joint.inputs) - heads
    for k, v in enumerate(joint.inputs):
        if k in numbers or (k >= first and not given):
            env[v] = b.constant(0 if k in numbers else 1, F32)
        else:
            env[v] = b.input(v.name, v.type)
    copy_ops(b, joint.ops, env)
    for state, new in joint.updates:
        b.update(env[state], env[new])
    outputs = [*joint.outputs[:primals], *joint.outputs[joint.attrs["primals"] :]]
    attrs = {**joint.attrs, "primals": primals}
    if not given:
        attrs["cotangents"] -= heads
    return replace(b.build([env[v] for v in outputs]), attrs=attrs)
