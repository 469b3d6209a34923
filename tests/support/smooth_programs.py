"""Random graphs of float64 that have derivatives, over all primitives with a gradient rule, loops, branches and rules.

`smooth_program(seed)` gives a graph and inputs at which nothing is steep, at which no two elements tie where MXNet
gives both of them the whole gradient, and at which rounding decides no comparison and no function with jumps.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gluonjit.ir import opdef
from gluonjit.ir.graph import Builder, Graph, Value, copy_ops
from gluonjit.ir.interpreter import Interpreter, evaluate
from gluonjit.ir.types import BOOL, F64, I64, TensorType, type_of
from gluonjit.passes import run_passes
from support.draw import DOMAINS, DRAWERS, Unfit, draw

NAMES = tuple(n for n in DRAWERS if n not in ("constant", "iota", "random_bits", "cast", "not"))
INTEGER_ONLY = frozenset("and or xor shift_left shift_right".split())
REGIONS = ("loop", "branch", "call", "with_gradient", "noise")
COMPARISONS = frozenset("eq ne lt le gt ge".split())
JUMPS = {"floor": 0.0, "ceil": 0.0, "trunc": 0.0, "rint": 0.5, "round": 0.5}
"""How far from the integers functions of one operand jump."""
NEAR = 1e-9
LARGEST = 20.0
MOST_ELEMENTS = 300


@dataclass
class SmoothProgram:
    seed: int
    graph: Graph
    inputs: list[np.ndarray]
    drawn: Counter[str]


class _Maker:
    """Emits ops and knows what each value is at the given inputs."""

    def __init__(self, rng: random.Random, name: str, depth: int = 0) -> None:
        self.rng = rng
        self.gen = np.random.default_rng(rng.getrandbits(32))
        self.b = Builder(name)
        self.depth = depth
        self.arrays: dict[Value, np.ndarray] = {}
        self.usable: list[Value] = []
        """Values of float64 that ops may read."""
        self.drawn: Counter[str] = Counter()

    # Values -----------------------------------------------------------------------------------------------------------

    def input(self, array: np.ndarray, name: str = "") -> Value:
        v = self.b.input(name or f"x{len(self.b._inputs)}", type_of(array))
        self.arrays[v] = array
        if v.dtype is F64:
            self.usable.append(v)
        return v

    def fresh(self, type: TensorType, limit: tuple[int, int] | None = None) -> Value:
        """A new input or constant; in the body of a loop always a constant."""
        array: Any
        if type.dtype is F64:
            array = self.gen.uniform(0.3, 1.5, type.shape) * self.gen.choice((-1, 1), type.shape)
        elif type.dtype is BOOL:
            array = self.gen.integers(0, 2, type.shape)
        else:
            low, high = limit or (0, 5)
            array = self.gen.integers(max(low, 0) if type.dtype.kind == "u" else low, high + 1, type.shape)
        array = np.asarray(array).astype(type.dtype.numpy)
        if self.depth or self.rng.random() < 0.2 or type.dtype is not F64:
            v = self.b.constant(array)
            self.arrays[v] = array
            if type.dtype is F64:
                self.usable.append(v)
            return v
        return self.input(array)

    def existing(self, type: TensorType | None = None) -> Value | None:
        fitting = [v for v in self.usable if type is None or v.type == type]
        return fitting[int(len(fitting) * max(self.rng.random(), self.rng.random()))] if fitting else None

    def emit(self, name: str, operands: Sequence[Value], attrs: Any = None, regions: Sequence[Graph] = ()) -> Any:
        """The results, if they are finite and of moderate size; else Unfit."""
        definition = opdef.lookup(name)
        values = self.b.emit(name, operands, attrs or {}, regions)
        given = {**self.b._ops[-1].attrs, **({"regions": tuple(map(Interpreter, regions))} if regions else {})}
        if len(set(operands)) > 1 or name not in COMPARISONS:
            self._refuse_jumps(name, [self.arrays[v] for v in operands])
        with np.errstate(all="ignore"):
            out = definition.eval(*(self.arrays[v] for v in operands), **given)  # type: ignore[attr-defined]
        for v, x in zip(values, out if isinstance(out, tuple) else (out,), strict=True):
            x = np.asarray(x)
            if x.size > MOST_ELEMENTS or (x.dtype.kind == "f" and not (np.abs(x) < LARGEST).all()):
                raise Unfit
            self.arrays[v] = x
            if v.dtype is F64:
                self.usable.append(v)
        self.drawn[name] += 1
        return values if len(values) > 1 else values[0]

    def _refuse_jumps(self, name: str, operands: Sequence[np.ndarray]) -> None:
        """Unfit if rounding decides about the result: the last bit differs between kernels."""
        if not all(x.dtype.kind == "f" for x in operands):
            return
        if name in COMPARISONS:
            distance = np.subtract(*operands)
        elif name == "mod":
            distance = np.divide(*operands)
            distance = distance - np.rint(distance)
        elif name in JUMPS:
            distance = operands[0] + JUMPS[name]
            distance = distance - np.rint(distance)
        elif name == "sign":
            distance = operands[0]
        else:
            return
        if distance.size and np.abs(distance).min() < NEAR:
            raise Unfit

    def number(self, value: float) -> Value:
        v = self.b.constant(value, F64)
        self.arrays[v] = np.asarray(value, np.float64)
        return v

    def within(self, x: Value, low: float, high: float) -> Value:
        array = self.arrays[x]
        if array.size == 0 or (array.min() >= low and array.max() <= high):
            return x
        squeezed = self.emit("mul", (self.emit("sigmoid", (x,)), self.number((high - low) * 0.9)))
        return self.emit("add", (squeezed, self.number(low + (high - low) * 0.05)))

    # Ops --------------------------------------------------------------------------------------------------------------

    def add(self, name: str) -> bool:
        for _ in range(10):
            b = self.b
            mark = (
                list(b._ops),
                list(b._inputs),
                b.key,
                b.stream,
                dict(self.arrays),
                list(self.usable),
                self.drawn.copy(),
            )
            try:
                getattr(self, f"_{name}", lambda: self._primitive(name))()
                return True
            except Unfit:
                b._ops, b._inputs, b.key, b.stream, self.arrays, self.usable, self.drawn = mark
        return False

    def _primitive(self, name: str) -> None:
        first = self.existing() if name != "select" and self.rng.random() < 0.85 else None
        case = draw(name, self.rng, first.type if first is not None else None)
        types = [t.with_dtype(F64) if t.dtype.is_float else t for t in case.operands]
        if name == "select":
            types[1:] = [t.with_dtype(F64) for t in types[1:]]
        floats = [k for k, t in enumerate(types) if t.dtype is F64]
        if not floats or sum(t.size for t in types) > MOST_ELEMENTS or name in INTEGER_ONLY:
            raise Unfit
        operands = [first] if first is not None else []
        for k, t in enumerate(types[len(operands) :], len(operands)):
            v = self.existing(t) if self.rng.random() < 0.7 else None
            operands.append(v if v is not None else self.fresh(t, case.limits.get(k)))
        if name in DOMAINS:
            operands[0] = self.within(operands[0], *DOMAINS[name])
        elif name == "cbrt" and self.arrays[operands[0]].size and np.abs(self.arrays[operands[0]]).min() < 0.05:
            raise Unfit  # its slope is infinite at 0
        elif name in ("div", "mod", "atan2", "hypot"):
            operands[1] = self.within(operands[1], 0.5, 2)
        elif name == "pow":
            operands = [self.within(operands[0], 0.4, 2), self.within(operands[1], -2, 2)]
        elif name == "reduce" and case.attrs["op"] in ("max", "min"):
            values = self.arrays[operands[0]]
            if len(np.unique(values)) < values.size:  # every maximum would get the whole gradient
                raise Unfit
        results = self.emit(name, operands, case.attrs)
        if isinstance(results, Value) and results.dtype is BOOL:
            self._use_condition(results)

    def _use_condition(self, condition: Value) -> None:
        """A condition is worth something only where it decides."""
        x = self.existing(condition.type.with_dtype(F64))
        if x is None:
            raise Unfit
        self.emit("select", (condition, x, self.emit("sin", (x,))))

    # Ops with regions -------------------------------------------------------------------------------------------------

    def _body(self, given: Sequence[tuple[str, np.ndarray]], ops: int) -> _Maker:
        """A maker of a body with these inputs, and with some ops in it."""
        if self.depth > 1:
            raise Unfit
        body = _Maker(self.rng, "", self.depth + 1)
        for name, array in given:
            body.input(array, name)
        for name in [self.rng.choice(NAMES) for _ in range(ops)] + self.rng.sample(REGIONS, self.rng.randint(0, 1)):
            if name != "noise":
                body.add(name)
        self.drawn.update(body.drawn)
        return body

    def _of_type(self, type: TensorType) -> Value:
        """A bounded value of this type, which depends on some value that there is."""
        x = self.existing(type)
        if x is None:
            y = self.existing()
            assert y is not None
            x = self.emit("broadcast", (self._scalar(y),), {"shape": type.shape})
        return self.emit("tanh", (x,))

    def _scalar(self, x: Value) -> Value:
        total = self.emit("reduce", (x,), {"op": "sum", "axes": tuple(range(x.ndim))})
        return self.emit("sin", (total,))

    def _loop(self) -> None:
        rng = self.rng
        trip = rng.choice((0, 1, 2, 3))
        states = [self._any() for _ in range(rng.randint(1, 2))]
        captured = [self._any() for _ in range(rng.randint(0, 2))]
        row = TensorType(F64, tuple(rng.randint(1, 3) for _ in range(rng.randint(0, 2))))
        scanned = [self.fresh(row.with_shape((trip, *row.shape)))] if rng.random() < 0.7 else []
        rows = [self.arrays[v][0] if trip else np.zeros(row.shape) for v in scanned]
        arrays = [
            np.asarray(x) for x in (*(self.arrays[v] for v in states), *rows, *(self.arrays[v] for v in captured))
        ]
        body = self._body([("i", np.asarray(0)), *(("", x) for x in arrays)], rng.randint(1, 4))
        new = [body._of_type(v.type) for v in states]
        if rng.random() < 0.3:
            new = new[::-1] if len({v.type for v in new}) == 1 else new
        out = [body.existing() for _ in range(rng.randint(0, 2))]
        regions = [body.b.build([*new, *out])]
        if rng.random() < 0.4:
            condition = Builder("")
            inputs = [condition.input("", v.type) for v in (body.b._inputs[0], *states, *captured)]
            last = condition.constant(rng.randint(0, 3), I64)
            regions.append(condition.build([condition.lt(inputs[0], last)]))
        attrs = {"carried": len(states), "scanned": len(scanned), "trip": trip}
        self.emit("loop", [*states, *scanned, *captured], attrs, regions)

    def _branch(self) -> None:
        captured = [self._any() for _ in range(self.rng.randint(1, 3))]
        arrays = [("", self.arrays[v]) for v in captured]
        makers = [self._body(arrays, self.rng.randint(1, 3)) for _ in range(2)]
        wanted = [makers[0].existing().type for _ in range(self.rng.randint(1, 2))]  # type: ignore[union-attr]
        regions = [m.b.build([m._of_type(t) for t in wanted]) for m in makers]
        condition = self.fresh(TensorType(BOOL))
        self.emit("branch", [condition, *captured], {}, regions)

    def _call(self) -> None:
        """A function that is called twice, the second time with a result of the first in the place of an operand."""
        operands = [self._any() for _ in range(self.rng.randint(2, 4))]
        body = self._body([("", self.arrays[v]) for v in operands], self.rng.randint(1, 4))
        results = [body._of_type(operands[0].type), *(body.existing() for _ in range(self.rng.randint(0, 2)))]
        region = body.b.build(results)
        attrs = {"captured": self.rng.randint(0, len(operands) - 1)}
        first = self.emit("call", operands, attrs, [region])
        self.emit("call", [first if isinstance(first, Value) else first[0], *operands[1:]], attrs, [region])

    def _with_gradient(self) -> None:
        """One whose rule is the gradient of its forward region, found by `differentiate`."""
        operands = [self._any() for _ in range(self.rng.randint(1, 2))]
        body = self._body([("", self.arrays[v]) for v in operands], self.rng.randint(1, 3))
        results = [body.existing() for _ in range(self.rng.randint(1, 2))]
        forward = body.b.build(results)
        both = run_passes(forward, "legalize-broadcast, differentiate")
        rule = Builder("")
        values = [rule.input("", v.type) for v in (*operands, *results, *results)]  # type: ignore[union-attr]
        env = dict(zip(both.inputs, [*values[: len(operands)], *values[len(operands) + len(results) :]], strict=True))
        copy_ops(rule, both.ops, env)
        gradient = rule.build([env[v] for v in both.outputs[len(results) :]])
        regions = [forward, gradient] if self.rng.random() < 0.7 else [forward]
        self.emit("with_gradient", operands, {"to": tuple(range(len(operands))) if len(regions) == 2 else ()}, regions)

    def _noise(self) -> None:
        """A product with random numbers, as in Dropout."""
        b = self.b
        x = self._any()
        known = b.key is not None
        key = b.random_key()
        if not known:
            self.arrays[key] = np.array([self.rng.getrandbits(40), self.rng.getrandbits(20)])
        bits = b.random_bits(x.shape, "i32")
        self.arrays[bits] = b._ops[-1].definition.eval(self.arrays[key], **b._ops[-1].attrs)  # type: ignore[attr-defined]
        scale = 2.0**-30
        wide = b.cast(bits, dtype=F64)
        self.arrays[wide] = self.arrays[bits].astype(np.float64)
        noise = b.mul(wide, self.number(scale))
        self.arrays[noise] = self.arrays[wide] * scale
        self.emit("mul", (x, noise))

    def _any(self) -> Value:
        v = self.existing() if self.rng.random() < 0.8 else None
        shape = tuple(self.rng.randint(1, 3) for _ in range(self.rng.randint(0, 2)))
        return v if v is not None else self.fresh(TensorType(F64, shape))


def smooth_program(seed: int, ops: int = 8) -> SmoothProgram:
    rng = random.Random(f"smooth {seed}")
    maker = _Maker(rng, f"p{seed}")
    every = (*NAMES, *REGIONS)
    for name in [every[seed % len(every)], *(rng.choice(every) for _ in range(ops - 1))]:
        maker.add(name)
    made = [v for v in maker.usable if v in {r for op in maker.b._ops for r in op.results if op.name != "constant"}]
    outputs = list(dict.fromkeys([*made[-2:], *(rng.choice(made) for _ in range(2))])) if made else []
    if maker.b._inputs and rng.random() < 0.1:
        outputs.append(maker.b._inputs[0])  # an output that is an input
    if outputs and rng.random() < 0.1:
        outputs.append(outputs[0])
    outputs = [v for v in outputs if v.dtype is F64]
    graph = maker.b.build(outputs)
    inputs = [maker.arrays[v] for v in graph.inputs]
    found, _ = evaluate(graph, inputs)
    for v, x in zip(graph.outputs, found, strict=True):
        np.testing.assert_array_equal(x, maker.arrays[v])
    return SmoothProgram(seed, graph, inputs, maker.drawn)
