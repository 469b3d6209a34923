"""Loop nests for fused groups: `.kernel = 'loops'`.

The body is a graph of primitives that have an `element` function; its outputs are written by loops over their shapes,
everything between inputs and outputs is computed on the way. One nest serves all outputs of one shape:

* Where a condition on a loop variable decides what is read (`concat`, `pad`, `update_slice`), the variable's range is
  cut there, so that most elements are computed without conditions.
* Variables are split, merged and put in order (`codegen/nest`), and one of them is chosen for vectors.
* Code is placed in the outermost loop that it depends on (`codegen/values`), so a reduction over a row, or anything
  else that is the same along the row, is computed once per row: softmax and the normalizations come out as a loop over
  rows with a few phases inside. What is expensive and needed by several phases is kept in a row of scratch memory.

Work is divided among threads by ranges of the outer loops; no result depends on how many there are.

What bodies are supported: see `supported`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from gluonjit.codegen.access import Buffer, Index
from gluonjit.codegen.evaluate import Access, Evaluator, Tracer, trace
from gluonjit.codegen.index import Affine, Var, affine, variable
from gluonjit.codegen.llvm import Function, Module
from gluonjit.codegen.nest import Choice, Space, choose_vector, extent
from gluonjit.codegen.reduction import Reductions
from gluonjit.codegen.target import Target
from gluonjit.codegen.values import Val
from gluonjit.codegen.vecmath import FUNCTIONS
from gluonjit.ir.graph import Graph, Value
from gluonjit.ir.opdef import Primitive
from gluonjit.ir.types import I64

_SMALL = 1 << 14
"""Elements (times terms, of a reduction) that are not worth dividing among threads."""
_PIECES = 16
"""Into how many parts conditions may cut one nest."""
_TASKS = 64
"""Iterations of the outer loops that are enough to divide."""

Written = tuple[Buffer, Value]


class Handler(Reductions):
    """What the element functions of a body are evaluated over, while its code is written."""

    def __init__(self, f: Function, body: Graph, width: int) -> None:
        super().__init__(f, width)
        self.body = body
        self.evaluator = _KeepingEvaluator(body, self)
        self._inputs = {v: Buffer(f.table(k), v.dtype, v.shape, f.root) for k, v in enumerate(body.inputs)}

    @property
    def context(self) -> Val | None:
        return self.mask

    @context.setter
    def context(self, mask: Val | None) -> None:
        self.mask = mask

    def memo(self, index: Index) -> dict[Any, Any]:
        scope = self.scope_of(v for i in index for v in i.leaves)
        if self.mask is not None and self.mask.scope.depth > scope.depth:
            scope = self.mask.scope
        return scope.memo

    def load_input(self, v: Value, index: Index) -> Val:
        return self.load(self._inputs[v], index)


class _KeepingEvaluator(Evaluator):
    """Takes kept values from their rows."""

    s: Handler

    def compute(self, v: Value, index: Index) -> Val:
        if v not in self.s.kept:
            return super().compute(v, index)
        value = self.s.recall(v, index)
        if value is None:
            value = super().compute(v, index)
            self.s.keep(v, index, value)
        return value


def supported(body: Graph) -> str | None:
    """None if `lower_loops` takes the body, else the reason why not.

    Every op must be a primitive with an `element` function and one result, and reductions that do not run at every
    element of an output (they are computed once per row) must nest: of any two, one depends on all the loop variables
    that the other depends on. `x / sum(x, axis=1)` is fine, and so is a normalization over several axes; a softmax over
    rows of a softmax over columns would compute one of them again and again.
    """
    for op in body.ops:
        definition = op.definition
        if not isinstance(definition, Primitive) or definition.element is None:
            return f"{op.name} has no element function"
        if len(op.results) != 1:
            return f"{op.name} has {len(op.results)} results"
    for shape in dict.fromkeys(v.shape for v in body.outputs):
        if 0 in shape:
            continue
        index = tuple(variable("i", n) for n in shape)
        traced = trace(body, [(v, index) for v in body.outputs if v.shape == shape])
        dims = frozenset[Var]().union(*(i.leaves for i in index))
        rows = {r.leaves & dims for r in traced.reductions}
        chain = sorted(rows, key=len)
        if any(not a <= b for a, b in zip(chain, chain[1:])):
            return "its reductions run over rows that do not nest"
    return None


def lower_loops(name: str, body: Graph, attrs: Mapping[str, Any], target: Target, module: Module) -> None:
    """Appends the kernel to the module. Its table: the body's inputs, then its outputs."""
    f = module.function(name)
    handler = Handler(f, body, target.width)
    first = len(body.inputs)
    outputs = [(Buffer(f.table(first + k), v.dtype, v.shape, f.root), v) for k, v in enumerate(body.outputs)]
    for shape in dict.fromkeys(v.shape for v in body.outputs if v.size):
        group = [(buffer, v) for buffer, v in outputs if v.shape == shape]
        index = tuple(variable("i", n) for n in shape)
        for piece, traced in _pieces(body, group, index):
            _Nest(handler, group, piece, traced).write()


# ---- cutting at conditions


def _traced(body: Graph, group: Sequence[Written], index: Index) -> Tracer:
    traced = trace(body, [(v, index) for _, v in group])
    for buffer, _ in group:
        traced.store(index, buffer.shape)
    return traced


def _variables(index: Index) -> list[Var]:
    """The variables of an index, in row-major order."""
    return list(dict.fromkeys(v for i in index for v in sorted(i.leaves, key=lambda v: v.key)))


def _pieces(body: Graph, group: Sequence[Written], index: Index) -> list[tuple[Index, Tracer]]:
    """The index with variables cut where conditions change, as far as that is worth it; and what is accessed there."""
    done: list[tuple[Index, Tracer]] = []
    left = [index]
    while left:
        index = left.pop()
        traced = _traced(body, group, index)
        space = Space(_variables(index), traced.accesses)
        space.split()
        index, traced = space.applied(index, traced)
        cut = _cut(traced.accesses, space.order) if len(done) + len(left) < _PIECES else None
        if cut is None:
            done.append((index, traced))
            continue
        var, bounds = cut
        edges = [0, *bounds, extent(var)]
        parts = [index_with(index, var, variable(var.name, b - a) + a) for a, b in zip(edges, edges[1:])]
        left.extend(reversed(parts))
    return done


def index_with(index: Index, var: Var, value: Affine) -> Index:
    return tuple(i.substitute({var: value}) for i in index)


def _cut(accesses: Sequence[Access], order: Sequence[Var]) -> tuple[Var, list[int]] | None:
    """A variable, and the values at which conditions on it begin or cease to hold, whatever the others are."""
    for var in order:
        bounds: set[int] = set()
        for a in accesses:
            c = a.expr.coefficient(var) if a.kind == "range" else None
            if not c:
                continue
            rest = a.expr - affine(var) * c
            if c < 0:  # low <= -v + rest < high  is  1 - high <= v - rest < 1 - low
                low, high, rest, c = 1 - a.high, 1 - a.low, rest * -1, -c
            else:
                low, high = a.low, a.high
            # It holds for sure from `first` on, and before `last`.
            first, last = -(-(low - rest.low) // c), -(-(high - rest.high) // c)
            if first < last:
                bounds |= {b for b in (first, last) if 0 < b < extent(var)}
        # The last variable is usually the vector's: cutting it costs partial vectors.
        worth = extent(var) >= 64 or var is not order[-1]
        if bounds and worth and len(bounds) < _PIECES:
            return var, sorted(bounds)
    return None


# ---- one nest


class _Nest:
    """The loops that write a group of outputs of one shape, for the elements at `index`."""

    def __init__(self, s: Handler, group: Sequence[Written], index: Index, traced: Tracer) -> None:
        self.s, self.f, self.group = s, s.f, group
        order, rows = _ordered(_variables(index), traced)
        space = Space(order, traced.accesses, {v: v in rows for v in order})
        space.merge()
        index, traced = space.applied(index, traced)
        self.work = 1 + 0.2 * sum(1 for _, _, loops in traced.visits if not loops)
        choice = choose_vector(space.order, traced.accesses, self.work, s.width)
        flat = _flattened(index, traced, space, self.work, s.width)
        if flat is not None and flat[2].cost < choice.cost:
            index, space, choice, traced = flat
        self.index, self.choice = index, choice
        s.new_nest(_worth_keeping(s.body, traced))
        self.rows = [v for v in space.order if space.group.get(v)]
        self.order = _with_vector_inside(space.order, self.rows, choice.var)
        terms = max((r.trips for r in traced.reductions), default=1)
        self.big = prod(map(extent, self.order)) * terms >= _SMALL

    def write(self) -> None:
        f = self.f
        if not self.big:
            with f.if_(f.op("icmp eq i64 %thread, 0")):
                self._level(self.order, self.index, None)
            return
        order, index = self.order, self.index
        before = order[: order.index(self.choice.var)] if self.choice.var in order else order
        # Loops that may be divided: over rows only, if there are rows, for each row is computed as a whole.
        outer = [v for v in before if v in self.rows] if self.rows else before
        outer = before[: len(outer)]
        count = 0
        while count < len(outer) and prod(map(extent, outer[:count])) < _TASKS:
            count += 1
        tasks = prod(map(extent, outer[:count]))
        vectors = extent(self.choice.var) // self.s.width if self.choice.var is not None else 0
        divisible = self.choice.var is not None and (not self.rows or self.choice.var in self.rows)
        if divisible and tasks < min(vectors, _TASKS):
            self._level(order, index, self.choice.var)
            return
        if not count:
            with f.if_(f.op("icmp eq i64 %thread, 0")):
                self._level(order, index, None)
            return
        begin = f.op(f"udiv i64 {f.mul('%thread', tasks)}, %nthreads")
        end = f.op(f"udiv i64 {f.mul(f.add('%thread', 1), tasks)}, %nthreads")
        with f.for_(begin, end, hint="task") as loop:
            task = self._bound("task", tasks, loop.index)
            values: dict[Var, Affine | int] = {}
            left = task
            for v in reversed(outer[:count]):
                values[v] = left % extent(v)
                left = left // extent(v)
            self._level(order[count:], tuple(i.substitute(values) for i in index), None)

    def _bound(self, name: str, trips: int, ssa: str) -> Affine:
        """A variable for the counter of the innermost open loop."""
        var = Var(name, 0, trips - 1)
        self.s.bind(var, Val(ssa, I64, False, self.f.scope))
        return affine(var)

    def _level(self, order: Sequence[Var], index: Index, divided: Var | None) -> None:
        """The loops over `order`, outermost first; `divided`: the one that is divided among threads."""
        if not order:
            self._element(index)
            return
        var, rest = order[0], order[1:]

        def inside(value: Affine) -> None:
            self._level(rest, tuple(i.substitute({var: value}) for i in index), divided)

        if var is self.choice.var:
            self._vectors(var, inside, divided is var)
            return
        with self.f.for_(0, extent(var)) as loop:
            inside(self._bound(var.name, extent(var), loop.index))

    def _vectors(self, var: Var, inside: Callable[[Affine], None], divided: bool) -> None:
        """A loop over blocks of vectors, then over single vectors, then a partial one."""
        f, s, n, width = self.f, self.s, extent(var), self.s.width
        innermost = var is self.order[-1]
        unroll = self.choice.unroll
        if unroll == 1 and innermost:
            unroll = 4 if self.work <= 3 else 2 if self.work <= 6 else 1
        unroll = max(1, min(unroll, n // width))
        lane = affine(s.lane_number(width)) if n >= width else Affine(0)
        blocks = n // (width * unroll)
        begin: Any = 0
        end: Any = blocks
        if divided:
            begin = f.op(f"udiv i64 {f.mul('%thread', blocks)}, %nthreads")
            end = f.op(f"udiv i64 {f.mul(f.add('%thread', 1), blocks)}, %nthreads")

        def whole(start: Any, stop: Any, first: int, trips: int, step: int) -> None:
            if trips == 1 and not divided:
                for j in range(step):
                    inside(lane + (first + j) * width)
                return
            with f.for_(start, stop) as loop:
                i = self._bound(var.name, trips, loop.index)
                for j in range(step):
                    inside(i * (width * step) + lane + (first + j) * width)

        if blocks:
            whole(begin, end, 0, blocks, unroll)
        done = blocks * unroll
        singles, partial = n // width - done, n % width
        if not singles and not partial:
            return

        def remainder() -> None:
            if singles:
                if self.choice.unroll > 1:  # a pattern that repeats per block: each vector has its own
                    for j in range(singles):
                        inside(lane + (done + j) * width)
                else:
                    with f.for_(0, singles) as loop:
                        inside(self._bound(var.name, singles, loop.index) * width + lane + done * width)
            if partial:
                inside(affine(s.lane_number(partial)) + n // width * width)

        if divided:
            with f.if_(f.op(f"icmp eq i64 {f.add('%thread', 1)}, %nthreads")):
                remainder()
        else:
            remainder()

    def _element(self, index: Index) -> None:
        def compute() -> list[Val]:
            return [self.s.evaluator.value(v, index) for _, v in self.group]

        for (buffer, _), value in zip(self.group, self.s.evaluator.run(compute)):
            self.s.store(buffer, index, value)


def _ordered(variables: Sequence[Var], traced: Tracer) -> tuple[list[Var], set[Var]]:
    """(the order of the loops, the variables of rows): what reductions depend on comes first, as far as some variables
    are such and others are not."""
    dims = set(variables)
    rows = [r.leaves & dims for r in traced.reductions]
    rows = [r for r in rows if r != dims]
    count = {v: sum(v in r for r in rows) for v in variables}
    return sorted(variables, key=lambda v: -count[v]), {v for v in variables if count[v]}


_COST = {**dict.fromkeys(FUNCTIONS, 12), **dict.fromkeys(("div", "sqrt", "rsqrt"), 4)}
"""Instructions that a primitive takes, where it is more than about one."""


def _worth_keeping(body: Graph, traced: Tracer) -> frozenset[Value]:
    """Values that several phases compute (reductions over the same rows, and what follows them), the last ones of
    their kind on the way to the results, and which take longer to compute again than to store and load."""
    phases: dict[Value, set[Any]] = {}
    for v, _, loops in traced.visits:
        phases.setdefault(v, set()).add(loops[-1] if loops else None)
    again = {v for v, where in phases.items() if len(where) > 1}
    cost: dict[Value, int] = {}
    for op in body.ops:
        for r in op.results:
            if r in again:
                own = 8 if op.name in ("reduce", "arg_reduce", "reduce_window", "dot_general", "conv") else 1
                cost[r] = _COST.get(op.name, own) + sum(cost.get(v, 0) for v in dict.fromkeys(op.operands))
    leaving = set(body.outputs)
    return frozenset(
        v
        for v in again
        if cost.get(v, 0) >= 8 and (v in leaving or any(op.results[0] not in again for op in body.uses[v]))
    )


def _with_vector_inside(order: Sequence[Var], rows: Sequence[Var], var: Var | None) -> list[Var]:
    """The vector's loop last among its kind: of the rows, or of what is inside them."""
    if var is None:
        return list(order)
    first = [v for v in order if v in rows and v is not var]
    second = [v for v in order if v not in rows and v is not var]
    return [*first, var, *second] if var in rows else [*first, *second, var]


def _flattened(
    index: Index, traced: Tracer, space: Space, work: float, width: int
) -> tuple[Index, Space, Choice, Tracer] | None:
    """The same nest with short inner loops merged at any price, for when that makes better vectors."""
    order = list(space.order)
    if len(order) < 2 or extent(order[-1]) >= 2 * width:
        return None
    joined = Space(order, [], space.group)
    while len(joined.order) > 1 and extent(joined.order[-1]) < 4 * width:
        if joined.group.get(joined.order[-2], 0) != joined.group.get(joined.order[-1], 0):
            break
        joined.join(len(joined.order) - 2)
    if joined.order == order:
        return None
    index, traced = joined.applied(index, traced)
    return index, joined, choose_vector(joined.order, traced.accesses, work, width), traced
