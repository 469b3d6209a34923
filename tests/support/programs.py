"""Random graphs over all primitives, with inputs for which results can be compared.

`random_program(seed)` gives a `Program`: a graph, inputs, and NumPy's results. Compiled and rewritten versions of the
graph must give the same within `compare.close`. To make this possible, each new op is evaluated twice while the program
is built, the second time with a rounding error added to every inexact result. The op is kept only if the difference
stays far below the tolerance (no cancellation, no huge or tiny values). Values that an implementation may compute
differently in the last digit are *inexact*; discontinuous primitives (rounding, comparing, sorting, float to integer)
get only exact values.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gluonjit.ir import opdef
from gluonjit.ir.graph import Builder, Graph, Loc, Value, subgraph
from gluonjit.ir.types import DTYPES, DType, TensorType, type_of
from support.compare import EPSILON, difference, tolerance
from support.draw import DOMAINS, DRAWERS, Case, Unfit, draw, values

JUMPS = frozenset("floor ceil round rint trunc sign mod isnan isinf isfinite eq ne lt le gt ge sort arg_reduce".split())
"""Primitives that turn a small change of an operand into a large one."""

EXACT = (JUMPS - {"mod"}) | frozenset(
    "neg abs maximum minimum select cast broadcast reshape transpose slice reverse pad concat update_slice gather "
    "gather_nd constant iota random_bits add sub sqrt".split()
)
"""Primitives whose results are fully determined: movement, or correct rounding by IEEE. `mul` is not, as it may be
contracted with an `add`; sums and products of several terms are not, as their order is free."""

MAX_ELEMENTS = 1000


@dataclass
class Program:
    seed: int
    graph: Graph
    inputs: list[np.ndarray]
    outputs: list[np.ndarray]
    """What NumPy gives for the graph's outputs."""
    updates: list[np.ndarray]
    drawn: Counter[str]
    """How often each primitive occurs, `fused` bodies included."""


@dataclass
class _Known:
    """A value's contents: exact, and with rounding errors added."""

    array: np.ndarray
    disturbed: np.ndarray
    exact: bool
    usable: bool = True
    """Whether other ops may read it: not when it holds infinities or NaN."""

    @property
    def type(self) -> TensorType:
        return type_of(self.array)


@dataclass
class _Maker:
    rng: random.Random
    level: str
    builder: Builder
    known: dict[Value, _Known] = field(default_factory=dict)
    inputs: dict[Value, np.ndarray] = field(default_factory=dict)

    # Operands ---------------------------------------------------------------------------------------------------------

    def fresh(self, type: TensorType, limit: tuple[int, int] | None = None) -> Value:
        """A new input, or sometimes a constant."""
        array = values(type, self.rng, limit)
        if self.rng.random() < 0.2:
            value = self.builder.constant(array)
        else:
            value = self.builder.input(f"x{len(self.inputs)}", type)
            self.inputs[value] = array
        self.known[value] = _Known(array, array, exact=True)
        return value

    def existing(self, type: TensorType | None = None, exact: bool = False, dtype: DType | None = None) -> Value | None:
        """An existing value, preferably a recent one."""
        fitting = [
            v
            for v, k in self.known.items()
            if k.usable
            and (not exact or k.exact)
            and (type is None or v.type == type)
            and (dtype is None or v.type.dtype is dtype)
        ]
        if not fitting:
            return None
        return fitting[int(len(fitting) * max(self.rng.random(), self.rng.random()))]

    def operand(self, case: Case, k: int) -> Value:
        """A value for operand `k` of `case`: an existing one if it fits, else a new one."""
        type = case.operands[k]
        exact = case.name in JUMPS
        value = self.existing(type, exact) if self.rng.random() < 0.7 else None
        if value is not None and k in case.limits:
            low, high = case.limits[k]
            array = self.known[value].array
            if array.size and (array.min() < low or array.max() > high):
                value = None
        return value if value is not None else self.fresh(type, case.limits.get(k))

    def within(self, x: Value, low: float, high: float) -> Value:
        """`x`, mapped into low..high if it exceeds these bounds."""
        array = self.known[x].array
        if array.size == 0 or (array.min() >= low and array.max() <= high):
            return x
        b = self.builder
        scale = self.spread(b.constant((high - low) * 0.96, x.dtype), x.shape)
        offset = self.spread(b.constant(low + (high - low) * 0.02, x.dtype), x.shape)
        squeezed = self.op("sigmoid", (x,))
        scaled = squeezed and self.op("mul", (*squeezed, scale))
        moved = scaled and self.op("add", (*scaled, offset))
        if not moved:
            raise Unfit
        return moved[0]

    def spread(self, x: Value, shape: tuple[int, ...]) -> Value:
        """`x`, made here by the builder alone, known and of a shape that elementwise ops may combine."""
        array = self.builder._ops[-1].attrs["value"]
        self.known[x] = _Known(array, array, exact=True)
        if self.level == "expanded" or x.shape == shape:
            return x
        return self.op("broadcast", (x,), {"shape": shape, "dims": None})[0]

    # Ops --------------------------------------------------------------------------------------------------------------

    def op(self, name: str, operands: Sequence[Value], attrs: dict[str, Any] | None = None) -> tuple[Value, ...]:
        """Emits the op if its results can be compared; gives () and emits nothing if not."""
        primitive = opdef.lookup(name)
        assert isinstance(primitive, opdef.Primitive)
        attrs = primitive.canonical_attrs(attrs or {})
        known = [self.known[v] for v in operands]
        with np.errstate(all="ignore"):
            results = _tuple(primitive.eval(*(k.array for k in known), **attrs))
            disturbed = _tuple(primitive.eval(*(k.disturbed for k in known), **attrs))
        exact = all(k.exact for k in known) and self._is_exact(name, attrs, results)
        facts = []
        for result, other in zip(results, disturbed):
            fact = self._judge(np.asarray(result), np.asarray(other), exact)
            if fact is None:
                return ()
            facts.append(fact)
        if self.rng.random() < 0.3:
            self.builder.loc = Loc("net.py", self.rng.randint(1, 99), self.rng.choice(("", "net0_dense0")))
        values = self.builder.emit(name, operands, attrs)
        self.builder.loc = None
        self.known.update(zip(values, facts))
        return values

    @staticmethod
    def _is_exact(name: str, attrs: dict[str, Any], results: Iterable[np.ndarray]) -> bool:
        if not any(type_of(r).dtype.is_float for r in results):
            return True
        return name in EXACT or attrs.get("op") in ("max", "min")

    def _judge(self, result: np.ndarray, disturbed: np.ndarray, exact: bool) -> _Known | None:
        """What is known of a result, or None when it cannot be compared."""
        dtype = type_of(result).dtype
        if result.size > MAX_ELEMENTS:
            return None
        if not dtype.is_float:
            return _Known(result, disturbed, True) if np.array_equal(result, disturbed) else None
        wide = result.astype(np.float64)
        if result.size and np.isfinite(wide).all():
            largest = np.abs(wide).max()
            if largest > 1e4 or 0 < largest < 1e-2:
                return None
        elif result.size:
            # The maximum of nothing may be returned, but nothing is computed from it.
            return _Known(result, disturbed, exact, usable=False) if np.isinf(wide).all() and exact else None
        if not exact:
            # The few last digits that functions are free in; narrow types are computed in float32 and then rounded.
            few = EPSILON[dtype] * (4 if dtype.bits > 16 else 1)
            noise = np.random.default_rng(self.rng.getrandbits(32)).choice([1 - few, 1 + few], result.shape)
            disturbed = (disturbed.astype(np.float64) * noise).astype(result.dtype)
        if difference(disturbed, result) > tolerance(dtype) / 4:
            return None
        return _Known(result, disturbed, exact)

    def add(self, name: str) -> bool:
        """One op of primitive `name`, with whatever it needs; False when none was found that fits."""
        for _ in range(20):
            mark = self._mark()
            try:
                if self.fused() if name == "fused" else self._try(name):
                    return True
            except Unfit:
                pass
            self._reset(mark)
        return False

    def _try(self, name: str) -> bool:
        first = None
        if self.rng.random() < 0.75:
            first = self.existing(exact=name in JUMPS)
        case = draw(name, self.rng, first.type if first is not None else None)
        if self.level != "expanded" and _is_elementwise(name):
            shape = case.operands[0].shape
            case = Case(name, tuple(t.with_shape(shape) for t in case.operands), case.attrs, case.limits)
        if name == "random_bits":
            return self.random_bits(case)
        operands = [first] if first is not None else []
        operands += [self.operand(case, k) for k in range(len(operands), len(case.operands))]
        if name == "cast":
            self.check_cast(operands[0], case.attrs["dtype"])
        if operands and operands[0].dtype.is_float:
            if name in DOMAINS:
                operands[0] = self.within(operands[0], *DOMAINS[name])
            elif name == "div":
                operands[1] = self.within(operands[1], 0.5, 3)
            elif name == "pow":
                operands = [self.within(operands[0], 0.3, 3), self.within(operands[1], -3, 3)]
        return bool(self.op(name, operands, case.attrs))

    def check_cast(self, x: Value, dtype: DType) -> None:
        """Digits that an inexact value does not have must not become significant."""
        if not self.known[x].exact and not (dtype.is_float and EPSILON[dtype] >= EPSILON[x.dtype]):
            raise Unfit

    def random_bits(self, case: Case) -> bool:
        b = self.builder
        known = b.key is not None
        bits = b.random_bits(case.attrs["shape"], case.attrs["dtype"])
        if not known:
            self.inputs[b.key] = np.array([self.rng.getrandbits(40), self.rng.getrandbits(20)])
        op = b._ops[-1]
        array = op.definition.eval(self.inputs[b.key], **op.attrs)
        self.known[bits] = _Known(array, array, exact=True)
        return True

    def fused(self) -> bool:
        """An op with a region: a few elementwise ops on a value, taken out of the graph again."""
        b = self.builder
        start = len(b._ops)
        x = self.existing()
        if x is None:
            return False
        names = [n for n in DRAWERS if _is_elementwise(n) and n != "constant"]
        values: list[Value] = [x]
        for _ in range(30):
            name = self.rng.choice(names)
            try:
                done = self._try_on(name, values[-1])
            except Unfit:
                continue
            if done is not None:
                values.append(done)
            if len(values) > 4:
                break
        ops = b._ops[start:]
        made = {r for op in ops for r in op.results}
        outside = list(dict.fromkeys(v for op in ops for v in op.operands if v not in made))
        kept = [v for v in values[1:] if v in made]
        if not kept:
            return False
        results = list(dict.fromkeys([kept[-1], *self.rng.sample(kept, self.rng.randint(0, 1))]))
        body = subgraph("body", ops, outside, results, "legal")
        facts = [self.known[v] for v in results]
        for v in made:
            del self.known[v]
        del b._ops[start:]
        self.known.update(zip(b.emit("fused", outside, {}, (body,)), facts))
        return True

    def _try_on(self, name: str, x: Value) -> Value | None:
        case = draw(name, self.rng, x.type)
        if name in JUMPS and not self.known[x].exact:
            raise Unfit
        others = []
        for type in case.operands[1:]:
            other = self.existing(type.with_shape(x.shape), exact=name in JUMPS)
            if other is None:
                raise Unfit
            others.append(other)
        if name in DOMAINS or name in ("div", "pow") or name.startswith("shift"):
            raise Unfit  # these need a conditioned operand
        if name == "cast":
            self.check_cast(x, case.attrs["dtype"])
        done = self.op(name, (x, *others), case.attrs)
        return done[0] if done else None

    # A failed attempt leaves nothing behind.

    def _mark(self) -> tuple[Any, ...]:
        b = self.builder
        return list(b._ops), list(b._inputs), b.key, b.stream, dict(self.known), dict(self.inputs)

    def _reset(self, mark: tuple[Any, ...]) -> None:
        b = self.builder
        b._ops, b._inputs, b.key, b.stream, self.known, self.inputs = mark


def _tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def _is_elementwise(name: str) -> bool:
    return getattr(opdef.lookup(name), "elementwise", False)


def random_program(seed: int, ops: int = 10, level: str = "expanded", only: Sequence[str] | None = None) -> Program:
    """The program of `seed`, with about `ops` ops besides those that make operands fit.

    `level` is 'expanded' (elementwise ops broadcast), 'legal' (they do not) or 'fused' (some ops are regions). `only`
    restricts the primitives.
    """
    rng = random.Random(f"{seed} {level}")
    maker = _Maker(rng, level, Builder(f"p{seed}", level))
    names = list(only or (*DRAWERS, *(["fused"] * 6 if level == "fused" else ())))
    # Every primitive has its turn: seed k starts with the k-th.
    queue = [names[seed % len(names)], *(rng.choice(names) for _ in range(ops - 1))]
    for name in queue:
        maker.add(name)
    return _finished(maker, seed)


def _finished(maker: _Maker, seed: int) -> Program:
    rng, b, known = maker.rng, maker.builder, maker.known
    if not b._ops:
        maker.fresh(TensorType(DTYPES["f32"], (2,)))
    made = [r for op in b._ops for r in op.results]
    used = {v for op in b._ops for v in op.operands}
    # What nothing reads is returned, but for some dead values; other values are returned as well.
    outputs = [v for v in made if v not in used and rng.random() < 0.9]
    outputs += [v for v in (made or list(known)) if rng.random() < 0.1]
    if rng.random() < 0.1 and maker.inputs:
        outputs.append(rng.choice(list(maker.inputs)))
    outputs = outputs or [rng.choice(made or list(known))]
    for state in maker.inputs:
        fitting = [v for v in made if v.type == state.type]
        if fitting and state is not b.key and rng.random() < 0.2:
            b.update(state, rng.choice(fitting))
    graph = b.build(outputs)
    return Program(
        seed,
        graph,
        [maker.inputs[v] for v in graph.inputs],
        [known[v].array if v in known else maker.inputs[v] for v in graph.outputs],
        [known[v].array for _, v in graph.updates],
        drawn(graph),
    )


def together(programs: Sequence[Program]) -> Graph:
    """One graph that computes all of them, side by side. Every other input of each is declared to be a parameter."""

    def all_of(name: str) -> tuple[Any, ...]:
        return tuple(item for program in programs for item in getattr(program.graph, name))

    first, inputs = programs[0].graph, all_of("inputs")
    params = {v for program in programs for v in program.graph.inputs[::2]}
    attrs = {"params": tuple(k for k, v in enumerate(inputs) if v in params)}
    return Graph("programs", inputs, all_of("ops"), all_of("outputs"), all_of("updates"), first.level, attrs)


def drawn(graph: Graph) -> Counter[str]:
    """How often each primitive occurs in `graph`, regions included."""
    counts = Counter(op.name for op in graph.ops)
    for op in graph.ops:
        for region in op.regions:
            counts += drawn(region)
    return counts


def coverage(programs: Iterable[Program]) -> tuple[Counter[str], Counter[tuple[str, str]], int]:
    """Over many programs: uses of each primitive, of each (primitive, dtype of its first result), and empty results."""
    names: Counter[str] = Counter()
    types: Counter[tuple[str, str]] = Counter()
    empty = 0
    for program in programs:
        names += program.drawn
        for op in program.graph.ops:
            types[op.name, str(op.results[0].dtype)] += 1
            empty += op.results[0].size == 0
    return names, types, empty
