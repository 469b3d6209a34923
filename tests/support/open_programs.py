"""Random graphs with open dimensions, for passes and generated code.

    program = open_program(seed)                    # a graph of level `expanded` over the names n and l, or n alone
    program = open_program(seed, level="legal")     # the same without implicit broadcasting
    for sizes in SIZES:
        inputs = program.inputs(sizes)              # ndarrays, in the order of `graph.inputs`, rng_key included
        static = with_sizes(transformed, sizes)     # what a pass or a compiler made of `program.graph`
        program.check(evaluate(static, inputs), sizes, "what it was")

`check` compares outputs and updated states with those of `evaluate(with_sizes(program.graph, sizes))`. How far they may
be apart is tracked while the graph is made: `bound` and `error` of each value hold for every size. What is not
continuous (rounding, comparing, sorting) only gets values that are exact. `only` restricts the ops to some of `OPS`;
`graph.attrs["params"]` are static inputs, such as weights, which `hoist` may work with.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gluonjit.ir import opdef
from gluonjit.ir.dims import Dim, Extent, Undecided, at, named
from gluonjit.ir.graph import Builder, Graph, Value
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.sizes import with_sizes
from gluonjit.ir.types import BOOL, F32, F64, I32, I64, DType, IRError, TensorType, broadcast_shapes, type_of

SIZES = ({"n": 2, "l": 2}, {"n": 3, "l": 7}, {"n": 16, "l": 5}, {"n": 33, "l": 3}, {"n": 4, "l": 4})
"""Sizes to try: the smallest, equal ones, and such as are multiples of vectors or not."""
MAX_ELEMENTS = 30_000
"""Of a value with 16 for every name."""
STEP = 2e-6
"""How far the results of an op may differ, relative to its bound, for equal operands: some units in the last place,
and another order of sums."""
MAX_BOUND, MAX_ERROR = 1e3, 1e-3


@dataclass
class OpenProgram:
    seed: int
    graph: Graph
    errors: list[float]
    """How far each output, then each updated state, may be from the expected one."""

    def inputs(self, sizes: dict[str, int]) -> list[np.ndarray]:
        arrays = []
        for k, v in enumerate(self.graph.inputs):
            rng = np.random.default_rng((self.seed, k))
            shape = tuple(at(n, sizes) for n in v.shape)
            arrays.append(_draw(rng, v.dtype, shape))
        return arrays

    def expected(self, sizes: dict[str, int]) -> list[np.ndarray]:
        outputs, updates = evaluate(with_sizes(self.graph, sizes), self.inputs(sizes))
        return [*outputs, *updates]

    def check(
        self, results: tuple[Sequence[np.ndarray], Sequence[np.ndarray]], sizes: dict[str, int], what: object = ""
    ):
        """Raises AssertionError, which shows `what`, unless (outputs, updated states) are those of the graph for these
        sizes."""
        actual = [np.asarray(x) for part in results for x in part]
        expected = self.expected(sizes)
        assert len(actual) == len(expected), what
        for k, (a, b, error) in enumerate(zip(actual, expected, self.errors)):
            where = f"result {k} of program {self.seed} with {sizes}"
            assert type_of(a) == type_of(b), f"{where}: {what}"
            if b.dtype.kind == "f" and error:
                worst = float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max()) if b.size else 0.0
                assert worst <= error, f"{where}: {what}\n{worst:.3g} apart, not {error:.3g}\n{a}\nexpected\n{b}"
            else:
                assert np.array_equal(a, b), f"{where}: {what}\n{a}\nexpected\n{b}"


def _draw(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Multiples of 1/8 between -2 and 2, integers from -4 to 9: products of two and sums of them are exact."""
    if dtype is BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_float:
        return (rng.integers(-16, 17, shape) / 8).astype(dtype.numpy)
    return rng.integers(-4, 10, shape).astype(dtype.numpy)


@dataclass(frozen=True)
class _Fact:
    """What is known of a float's elements for every size: |element| <= bound, and how far they may be from the true
    ones. An error of 0: they have the same bits whoever computes them."""

    bound: float = 0.0
    error: float = 0.0


class Unfit(Exception):
    """This op cannot take this operand."""


@dataclass
class _Maker:
    rng: random.Random
    level: str
    names: tuple[Dim, ...]
    b: Builder
    facts: dict[Value, _Fact] = field(default_factory=dict)
    params: list[Value] = field(default_factory=list)

    # Extents and values -----------------------------------------------------------------------------------------------

    def extent(self) -> Extent:
        rng = self.rng
        if rng.random() < 0.5:
            return rng.choice(self.names)
        return rng.choice((1, 2, 3, 4, 5, 8))

    def shape(self, low: int = 1, high: int = 4) -> tuple[Extent, ...]:
        return tuple(self.extent() for _ in range(self.rng.randint(low, high)))

    def input(self, type: TensorType, param: bool = False) -> Value:
        if not _fits(type.shape):
            raise Unfit
        value = self.b.input(f"x{len(self.b._inputs)}", type)
        if param and type.is_static:
            self.params.append(value)
        self.facts[value] = _Fact(2.0 if type.dtype.is_float else 9.0)
        return value

    def number(self, value: Any, dtype: DType) -> Value:
        constant = self.b.constant(value, dtype)
        self.facts[constant] = _Fact(float(np.abs(np.asarray(value, np.float64)).max()))
        return constant

    def existing(
        self, dtypes: Sequence[DType] = (), low: int = 0, exact: bool = False, shape: tuple[Extent, ...] | None = None
    ) -> Value | None:
        """A value, preferably a recent one."""
        fitting = [
            v
            for v, fact in self.facts.items()
            if (not dtypes or v.dtype in dtypes)
            and v.ndim >= low
            and not (exact and fact.error)
            and (shape is None or v.shape == shape)
        ]
        return fitting[int(len(fitting) * max(self.rng.random(), self.rng.random()))] if fitting else None

    def value(self, dtypes: Sequence[DType], low: int = 0, exact: bool = False) -> Value:
        found = self.existing(dtypes, low, exact) if self.rng.random() < 0.85 else None
        return found if found is not None else self.input(TensorType(self.rng.choice(dtypes), self.shape(low)))

    def like(self, x: Value, shape: tuple[Extent, ...], exact: bool = False) -> Value:
        """A value of the element type of `x` and of a shape."""
        found = self.existing((x.dtype,), exact=exact, shape=shape) if self.rng.random() < 0.7 else None
        return found if found is not None else self.input(TensorType(x.dtype, shape), param=self.rng.random() < 0.6)

    def broadcastable(self, x: Value, exact: bool = False) -> Value:
        """A second operand for an elementwise op."""
        shape = x.shape
        if self.rng.random() < 0.5:
            shape = tuple(1 if self.rng.random() < 0.4 else n for n in shape[self.rng.randint(0, len(shape)) :])
        return self.like(x, shape, exact)

    # Ops --------------------------------------------------------------------------------------------------------------

    def emit(self, name: str, *operands: Value, bound: float = 0.0, error: float = 0.0, **attrs: Any) -> Value:
        """One op. The facts of its results, floats that differ by `error` and stay within `bound`."""
        if opdef.lookup(name).elementwise and self.level != "expanded":
            operands = tuple(self.spread(v, _common(operands)) for v in operands)
        if bound > MAX_BOUND or error > MAX_ERROR:
            raise Unfit
        results = self.b.emit(name, operands, attrs)
        for r in results:
            if not _fits(r.shape):
                raise Unfit
            self.facts[r] = _Fact(bound, error if r.dtype.is_float else 0.0)
        return results[0]

    def spread(self, x: Value, shape: tuple[Extent, ...]) -> Value:
        return x if x.shape == shape else self.emit("broadcast", x, shape=shape, **_known(self.facts[x]))

    def moved(self, name: str, *operands: Value, **attrs: Any) -> Value:
        """An op that only moves elements."""
        facts = [self.facts[v] for v in operands]
        return self.emit(name, *operands, bound=max(f.bound for f in facts), error=max(f.error for f in facts), **attrs)

    def scaled(self, x: Value, by: Extent) -> Value:
        """x / by, so that a sum over so many elements stays within the bound of x."""
        fact = self.facts[x]
        if by == 1 or not x.dtype.is_float:
            return x
        divisor = self.number(by, x.dtype) if isinstance(by, int) else self.size(by, x.dtype)
        return self.emit("div", x, divisor, bound=fact.bound, error=fact.error + STEP * fact.bound)

    def size(self, n: Extent, dtype: DType) -> Value:
        number = self.emit("extent", of=n)
        return self.emit("cast", number, dtype=dtype)

    def add(self, name: str) -> bool:
        for _ in range(20):
            b = self.b
            mark = list(b._ops), list(b._inputs), b.key, b.stream, dict(self.facts), list(self.params)
            try:
                OPS[name](self)
                return True
            except (Unfit, Undecided):
                b._ops, b._inputs, b.key, b.stream, self.facts, self.params = mark
        return False


def _known(fact: _Fact) -> dict[str, float]:
    return {"bound": fact.bound, "error": fact.error}


def _common(operands: Sequence[Value]) -> tuple[Extent, ...]:
    return broadcast_shapes(*(v.shape for v in operands))


def _fits(shape: Sequence[Extent]) -> bool:
    """Few elements, and a low degree."""
    count = math.prod(at(n, {"n": 16, "l": 16}) for n in shape)
    degree = sum(max(map(len, n.terms)) for n in shape if isinstance(n, Dim))
    return count <= MAX_ELEMENTS and degree <= 3 and len(shape) <= 5


# Elementwise ----------------------------------------------------------------------------------------------------------

FLOATS, INTS = (F32, F32, F32, F64), (I32, I64)
NUMBERS = (*FLOATS, *INTS)
ALL = (*NUMBERS, BOOL)


def _unary(m: _Maker) -> None:
    x = m.value(FLOATS)
    fact = m.facts[x]
    name = m.rng.choice(("tanh", "sigmoid", "sin", "cos", "exp", "sqrt", "erf", "neg", "abs"))
    if name in ("neg", "abs"):
        m.emit(name, x, **_known(fact))
        return
    if name == "sqrt":
        # The slope is at most 1 from 1/4 on.
        x = m.emit("maximum", m.emit("abs", x, **_known(fact)), m.number(0.25, x.dtype), **_known(fact))
    if name == "exp":
        x = m.emit("minimum", x, m.number(1.0, x.dtype), **_known(fact))
    slope = 2.8 if name == "exp" else 1.2
    bound = 2.8 if name == "exp" else max(1.0, fact.bound)
    m.emit(name, x, bound=bound, error=slope * fact.error + STEP * bound)


def _binary(m: _Maker) -> None:
    x = m.value(NUMBERS)
    y = m.broadcastable(x)
    if m.rng.random() < 0.3:
        x, y = y, x
    name = m.rng.choice(("add", "sub", "mul", "maximum", "minimum", "div"))
    a, b = m.facts[x], m.facts[y]
    if not x.dtype.is_float:
        # Integers wrap. Their sizes are not tracked.
        m.emit("add" if name == "div" else name, x, y)
        return
    if name in ("maximum", "minimum"):
        m.emit(name, x, y, bound=max(a.bound, b.bound), error=max(a.error, b.error))
    elif name == "mul":
        bound = a.bound * b.bound
        m.emit(name, x, y, bound=bound, error=a.error * b.bound + b.error * a.bound + STEP * bound)
    elif name == "div":
        one = m.number(1.0, y.dtype)
        y = m.emit("add", m.emit("abs", y, **_known(b)), one, bound=b.bound + 1, error=b.error + STEP * (b.bound + 1))
        m.emit(name, x, y, bound=a.bound, error=a.error + a.bound * m.facts[y].error + STEP * a.bound)
    else:
        bound = a.bound + b.bound
        exact = not a.error and not b.error and bound < 64
        m.emit(name, x, y, bound=bound, error=0.0 if exact else a.error + b.error + STEP * bound)


def _compare(m: _Maker) -> None:
    x = m.value(NUMBERS, exact=True)
    m.emit(m.rng.choice(("lt", "le", "eq", "ne", "gt")), x, m.broadcastable(x, exact=True))


def _logic(m: _Maker) -> None:
    x = m.value((BOOL,))
    m.emit(m.rng.choice(("and", "or", "xor")), x, m.broadcastable(x))


def _select(m: _Maker) -> None:
    cond = m.value((BOOL,))
    x = m.input(TensorType(m.rng.choice(FLOATS), cond.shape)) if m.rng.random() < 0.5 else m.value(FLOATS)
    shape = _fit(lambda: _common((cond, x)))
    y = m.like(x, shape)
    a, b = m.facts[x], m.facts[y]
    m.emit("select", cond, x, y, bound=max(a.bound, b.bound), error=max(a.error, b.error))


def _cast(m: _Maker) -> None:
    x = m.value((F32, BOOL, I32, I64))
    if x.dtype is F32:
        m.emit("cast", x, dtype=F64, **_known(m.facts[x]))
    elif x.dtype is BOOL:
        m.emit("cast", x, dtype=m.rng.choice(NUMBERS), bound=1.0)
    else:
        last = m.emit("mod", x, m.number(5, x.dtype), bound=5.0)
        m.emit("cast", last, dtype=m.rng.choice((F32, F64, I64)), bound=5.0)


def _fit(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except IRError:
        raise Unfit from None


# Movement -------------------------------------------------------------------------------------------------------------


def _iota(m: _Maker) -> None:
    shape = m.shape()
    index = m.emit("iota", shape=shape, axis=m.rng.randrange(len(shape)), dtype=m.rng.choice(INTS))
    if m.rng.random() < 0.5:
        m.emit("mod", index, m.number(m.rng.randint(2, 5), index.dtype))


def _extent(m: _Maker) -> None:
    n = m.rng.choice(m.names)
    m.emit("extent", of=m.rng.choice((n, n + 1, 3 * n, n * m.rng.choice(m.names))))


def _broadcast(m: _Maker) -> None:
    x = m.value(ALL)
    rank = m.rng.randint(x.ndim, max(4, x.ndim))
    dims = tuple(sorted(m.rng.sample(range(rank), x.ndim)))
    shape = [m.extent() for _ in range(rank)]
    for n, d in zip(x.shape, dims):
        shape[d] = n if n != 1 else shape[d]
    trailing = dims == tuple(range(rank - x.ndim, rank))
    m.moved("broadcast", x, shape=tuple(shape), dims=None if trailing else dims)


def _reshape(m: _Maker) -> None:
    """Merges neighbouring axes, splits axes into factors, puts axes of 1 in or out."""
    rng = m.rng
    x = m.value(ALL)
    shape = [n for n in x.shape if n != 1 or rng.random() < 0.5]
    for _ in range(rng.randint(0, 2)):
        if len(shape) > 1 and rng.random() < 0.6:
            k = rng.randrange(len(shape) - 1)
            shape[k : k + 2] = [shape[k] * shape[k + 1]]
        elif shape:
            k = rng.randrange(len(shape))
            shape[k : k + 1] = _factors(rng, shape[k])
    if rng.random() < 0.3:
        shape.insert(rng.randint(0, len(shape)), 1)
    m.moved("reshape", x, shape=tuple(shape))


def _factors(rng: random.Random, n: Extent) -> list[Extent]:
    """Two factors of an extent, in any order."""
    if isinstance(n, int):
        fitting = [k for k in range(1, n + 1) if n % k == 0]
        one: Extent = rng.choice(fitting)
    else:
        one = 1
        for name in sorted(n.names):
            if all(name in term for term in n.terms) and rng.random() < 0.6:
                one = one * named(name)
        common = math.gcd(*n.terms.values())
        one = one * rng.choice([k for k in range(1, common + 1) if common % k == 0])
    parts = [one, n // one]
    return rng.sample(parts, 2)


def _transpose(m: _Maker) -> None:
    x = m.value(ALL, low=2)
    m.moved("transpose", x, perm=tuple(m.rng.sample(range(x.ndim), x.ndim)))


def _window(m: _Maker, shape: Sequence[Extent]) -> tuple[tuple[Extent, ...], tuple[Extent, ...], tuple[int, ...]]:
    """Start, size and step of a slice of `shape`, of at least one element."""
    rng = m.rng
    start: list[Extent] = []
    size: list[Extent] = []
    step: list[int] = []
    for n in shape:
        by = 1
        if isinstance(n, int):
            by = rng.choice((1, 1, 2))
            first: Extent = rng.randint(0, n - 1)
            count: Extent = rng.randint(1, (n - int(first) + by - 1) // by)
        else:
            first, count = rng.choice(((0, n), (0, n), (1, n - 1), (0, n - 1), (0, 1), (n - 1, 1), (1, 1)))
            for name in m.names:
                if n == 2 * name and rng.random() < 0.5:
                    first, count = rng.choice(((0, name), (name, name)))
        start.append(first)
        size.append(count)
        step.append(by)
    return tuple(start), tuple(size), tuple(step)


def _slice(m: _Maker) -> None:
    x = m.value(ALL, low=1)
    start, size, step = _window(m, x.shape)
    m.moved("slice", x, start=start, size=size, step=None if set(step) == {1} else step)


def _update_slice(m: _Maker) -> None:
    x = m.value(ALL, low=1)
    start, size, step = _window(m, x.shape)
    m.moved("update_slice", x, m.like(x, size), start=start, step=None if set(step) == {1} else step)


def _reverse(m: _Maker) -> None:
    x = m.value(ALL, low=1)
    m.moved("reverse", x, axes=tuple(k for k in range(x.ndim) if m.rng.random() < 0.5))


def _pad(m: _Maker) -> None:
    x = m.value((*FLOATS, *INTS), low=1)
    low, high = (tuple(m.rng.choice((0, 0, 1, 2, *m.names)) for _ in x.shape) for _ in range(2))
    interior = tuple(m.rng.choice((0, 0, 1)) for _ in x.shape) if m.rng.random() < 0.3 else None
    m.moved("pad", x, m.number(1, x.dtype), low=low, high=high, interior=interior)


def _concat(m: _Maker) -> None:
    x = m.value(ALL, low=1)
    axis = m.rng.randrange(x.ndim)
    others = [m.like(x, (*x.shape[:axis], m.extent(), *x.shape[axis + 1 :])) for _ in range(m.rng.randint(1, 2))]
    m.moved("concat", x, *others, axis=axis)


def _gather(m: _Maker) -> None:
    x = m.value(ALL, low=1)
    idx = m.existing(INTS, exact=True)
    if idx is None:
        idx = m.input(TensorType(m.rng.choice(INTS), m.shape(0, 2)))
    m.moved("gather", x, idx, axis=m.rng.randrange(x.ndim), mode=m.rng.choice(("clip", "wrap")))


def _gather_nd(m: _Maker) -> None:
    x = m.value(ALL, low=1)
    idx = m.input(TensorType(m.rng.choice(INTS), (m.rng.randint(1, x.ndim), *m.shape(0, 2))))
    y = m.emit("gather_nd", x, idx, **_known(m.facts[x]))
    if x.dtype in INTS and m.rng.random() < 0.5:
        m.emit("scatter_add", x, idx, m.like(x, y.shape))


def _sort(m: _Maker) -> None:
    x = m.value(NUMBERS, low=1, exact=True)
    m.moved("sort", x, axis=m.rng.randrange(x.ndim), descending=m.rng.random() < 0.5)


def _random_bits(m: _Maker) -> None:
    bits = m.b.random_bits(m.shape(), m.rng.choice((I32, I64)))
    if not _fits(bits.shape):
        raise Unfit
    m.facts[bits] = _Fact()
    last = m.emit("mod", bits, m.number(7, bits.dtype))
    m.emit("cast", last, dtype=F32, bound=7.0)


# Sums -----------------------------------------------------------------------------------------------------------------


def _reduce(m: _Maker) -> None:
    x = m.value(ALL)
    axes = tuple(k for k in range(x.ndim) if m.rng.random() < 0.5)
    if x.dtype is BOOL:
        m.emit("reduce", x, op=m.rng.choice(("any", "all")), axes=axes)
        return
    op = m.rng.choice(("sum", "sum", "max", "min"))
    if op == "sum":
        x = m.scaled(x, math.prod(x.shape[k] for k in axes))
    fact = m.facts[x]
    m.emit("reduce", x, op=op, axes=axes, **_summed(x, fact, op == "sum" and bool(axes)))


def _summed(x: Value, fact: _Fact, is_sum: bool) -> dict[str, float]:
    """The facts of a sum of elements of `scaled`: as if it were one of what was scaled."""
    if not x.dtype.is_float:
        return {}
    return {"bound": fact.bound, "error": fact.error + (STEP * fact.bound if is_sum else 0.0)}


def _softmax(m: _Maker) -> None:
    x = m.value(FLOATS, low=1)
    axis = m.rng.randrange(x.ndim)
    keep = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    fact = m.facts[x]
    if fact.error > 1e-5:
        raise Unfit
    top = m.emit("reduce", x, op="max", axes=(axis,), **_known(fact))
    shift = m.emit("sub", x, m.moved("reshape", top, shape=keep), bound=2 * fact.bound, error=2 * fact.error + STEP)
    e = m.emit("exp", shift, bound=1.0, error=m.facts[shift].error * 2 + STEP * (1 + 2 * fact.bound))
    relative = m.facts[e].error * 4
    total = m.emit("reduce", e, op="sum", axes=(axis,), bound=MAX_BOUND, error=0.0)
    m.emit("div", e, m.moved("reshape", total, shape=keep), bound=1.0, error=relative + 4 * STEP)
    # The sum grows with the axis; only the quotient is well behaved.
    for v in [v for v in m.facts if v is total or (v.shape == keep and m.b.producer(v) is not None)]:
        if v is total or m.b.producer(v).operands[:1] == (total,):  # type: ignore[union-attr]
            del m.facts[v]


def _arg_reduce(m: _Maker) -> None:
    x = m.value(NUMBERS, low=1, exact=True)
    m.emit("arg_reduce", x, op=m.rng.choice(("argmax", "argmin")), axis=m.rng.randrange(x.ndim))


def _cumsum(m: _Maker) -> None:
    x = m.value(NUMBERS, low=1)
    axis = m.rng.randrange(x.ndim)
    x = m.scaled(x, x.shape[axis])
    m.emit("cumsum", x, axis=axis, **_summed(x, m.facts[x], True))


def _dot_general(m: _Maker) -> None:
    rng = m.rng
    a = m.value(NUMBERS, low=1)
    axes = rng.sample(range(a.ndim), rng.randint(1, a.ndim))
    contract, batch = axes[:1], axes[1 : 1 + rng.randint(0, 2)]
    sources: list[Any] = [*contract, *batch, *("free" for _ in range(rng.randint(0, 2)))]
    rng.shuffle(sources)
    w = m.like(a, tuple(m.extent() if k == "free" else a.shape[k] for k in sources))
    a = m.scaled(a, a.shape[contract[0]])
    x, y = m.facts[a], m.facts[w]
    known = {}
    if a.dtype.is_float:
        bound = x.bound * y.bound
        known = {"bound": bound, "error": x.error * y.bound + y.error * x.bound + STEP * bound}
    pairs = {
        "contract": (tuple(contract), tuple(sources.index(k) for k in contract)),
        "batch": (tuple(batch), tuple(sources.index(k) for k in batch)),
    }
    m.emit("dot_general", a, w, **known, **pairs)


def _conv(m: _Maker) -> None:
    """Over an open batch, or over open channels, as the gradient of a weight is."""
    rng = m.rng
    spatial = rng.choice((1, 2, 2))
    digits = "".join(map(str, range(spatial)))
    layout = ("NC" + digits, "OI" + digits, "NC" + digits)
    if rng.random() < 0.4:
        layout = tuple("".join(rng.sample(text, len(text))) for text in layout)  # type: ignore[assignment]
    groups = rng.choice((1, 1, 2))
    depth: Extent = rng.choice((1, 2, 3)) if rng.random() < 0.8 or groups > 1 else rng.choice(m.names)
    sizes: dict[str, Extent] = {"N": m.extent(), "C": groups * depth, **{d: rng.randint(3, 6) for d in digits}}
    weight: dict[str, Extent] = {"O": groups * rng.randint(1, 3), "I": depth, **{d: rng.randint(1, 3) for d in digits}}
    dtype = rng.choice(FLOATS)
    x = m.like(m.number(0, dtype), tuple(sizes[letter] for letter in layout[0]))
    w = m.input(TensorType(dtype, tuple(weight[letter] for letter in layout[1])), param=rng.random() < 0.8)
    x = m.scaled(x, depth)
    each = tuple(rng.choice((1, 1, 2)) for _ in digits)
    a, c = m.facts[x], m.facts[w]
    bound = 9 * a.bound * c.bound
    m.emit(
        "conv",
        x,
        w,
        stride=each,
        low=tuple(rng.choice((0, 1)) for _ in digits),
        high=tuple(rng.choice((0, 1)) for _ in digits),
        dilation=(1,) * spatial,
        input_dilation=(1,) * spatial if rng.random() < 0.8 else (2,) * spatial,
        groups=groups,
        layout=layout,
        bound=bound,
        error=9 * a.error * c.bound + STEP * bound,
    )


def _reduce_window(m: _Maker) -> None:
    rng = m.rng
    x = m.existing(FLOATS, low=3)
    if x is None:
        x = m.input(TensorType(F32, (rng.choice(m.names), 2, 6, 5)))
    window, stride, edge = [], [], []
    for n in x.shape:
        taps = rng.randint(1, 3) if isinstance(n, int) and n >= 3 else 1
        window.append(taps)
        stride.append(rng.randint(1, 2) if taps > 1 else 1)
        edge.append(rng.choice((0, 1)) if taps > 1 else 0)
    op = rng.choice(("sum", "max", "min"))
    if op != "sum":
        # Padding is no number, but every window has an element: none is wider than its padding.
        edge = [min(e, t - 1) for e, t in zip(edge, window)]
    times = math.prod(window) if op == "sum" else 1
    fact = m.facts[x]
    error = times * fact.error + (STEP * times * fact.bound if times > 1 else 0.0)
    m.emit(
        "reduce_window",
        x,
        op=op,
        window=tuple(window),
        stride=tuple(stride),
        low=tuple(edge),
        high=tuple(edge),
        bound=times * fact.bound,
        error=error,
    )


def _loop(m: _Maker) -> None:
    """h = tanh(h + row), a few times; the rows are static in number, open in extent."""
    x = m.value((F32,), low=2)
    trip, row = x.shape[0], x.type.with_shape(x.shape[1:])
    if not isinstance(trip, int) or m.facts[x].error > 1e-5:
        raise Unfit
    body = Builder("body", m.level)
    body.input("i", TensorType(I64))
    h, item = body.input("h", row), body.input("row", row)
    new = body.tanh(body.add(h, item))
    region = body.build([new, new])
    start = m.like(m.number(0, F32), row.shape)
    fact = m.facts[x]
    error = m.facts[start].error + trip * (fact.error + STEP * (2 + fact.bound))
    results = m.b.emit("loop", (start, x), {"carried": 1, "scanned": 1, "trip": trip}, (region,))
    if error > MAX_ERROR:
        raise Unfit
    m.facts.update({r: _Fact(1.0, error) for r in results})


OPS: dict[str, Callable[[_Maker], None]] = {
    f.__name__[1:]: f
    for f in (_unary, _binary, _compare, _logic, _select, _cast, _iota, _extent, _broadcast, _reshape, _transpose)
    + (_slice, _update_slice, _reverse, _pad, _concat, _gather, _gather_nd, _sort, _random_bits, _reduce, _softmax)
    + (_arg_reduce, _cumsum, _dot_general, _conv, _reduce_window, _loop)
}
"""What a program is made of, by name: primitives, and small groups of them."""

OFTEN = ("unary", "binary", "binary", "reshape", "transpose", "slice", "broadcast", "reduce", "softmax", "dot_general")


def open_program(seed: int, ops: int = 10, level: str = "expanded", only: Sequence[str] | None = None) -> OpenProgram:
    """The program of `seed`, with about `ops` ops besides those that make operands fit."""
    rng = random.Random(f"open {seed} {level}")
    names = (named("n"), named("l")) if rng.random() < 0.6 else (named("n"),)
    maker = _Maker(rng, level, names, Builder(f"p{seed}", level))
    # Every name is the extent of an axis of some input.
    for name in names:
        maker.input(TensorType(F32, (name, *(n for n in maker.shape(1, 2) if _fits((n, name, name))))))
    pool = list(only or (*OPS, *OFTEN))
    # Every op has its turn: seed k starts with the k-th.
    for name in [pool[seed % len(pool)], *(rng.choice(pool) for _ in range(ops - 1))]:
        maker.add(name)
    return _finished(maker, seed, rng)


def _finished(maker: _Maker, seed: int, rng: random.Random) -> OpenProgram:
    b, facts = maker.b, maker.facts
    made = [r for op in b._ops for r in op.results if r in facts]
    used = {v for op in b._ops for v in op.operands}
    outputs = [v for v in made if v not in used and rng.random() < 0.9]
    outputs += [v for v in made if rng.random() < 0.1] or [rng.choice(made or list(b._inputs))]
    for state in b._inputs:
        fitting = [v for v in made if v.type == state.type]
        if fitting and state is not b.key and rng.random() < 0.1:
            b.update(state, rng.choice(fitting))
    graph = b.build(outputs)
    params = tuple(k for k, v in enumerate(graph.inputs) if v in maker.params and v not in b._updates)
    graph = graph.with_attrs(params=params)
    errors = [2 * facts[v].error if v in facts else 0.0 for v in graph.results]
    return OpenProgram(seed, graph, errors)
