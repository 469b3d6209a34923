"""Loop nests for fused groups: the kernel `loops`.

The body is a graph of primitives that have an `element` function; its outputs are written by loops over their shapes,
everything between inputs and outputs is computed on the way. One nest serves all outputs of one shape:

* Where a condition on a loop variable decides what is read (`concat`, `pad`, `update_slice`), the variable's range is
  cut there, so that most elements are computed without conditions.
* Variables are split, merged and put in order (`codegen/loops/nest`), and one of them is chosen for vectors.
* Code is placed in the outermost loop that it depends on (`codegen/math/values`), so a reduction over a row, or
  anything else that is the same along the row, is computed once per row: softmax and the normalizations come out as a
  loop over rows with a few phases inside. What is expensive and needed by several phases is kept in a row of scratch
  memory.

Work is divided among threads by ranges of the outer loops; no result depends on how many there are.

What bodies are supported: see `supported`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gluonjit.codegen.loops.access import Buffer, Index
from gluonjit.codegen.loops.any_size import any_size
from gluonjit.codegen.loops.footprint import Reference, Tracer, trace
from gluonjit.codegen.loops.handler import Handler
from gluonjit.codegen.loops.index import Affine, Var, affine, variable
from gluonjit.codegen.loops.nest import NestPlan, Space, count, extent, plan_nest
from gluonjit.codegen.loops.writer import NestWriter, Written, elements_of_line
from gluonjit.codegen.text.intrinsics import finish_streaming
from gluonjit.codegen.text.kernel_code import always, writes
from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.ir.annotations import KERNEL, SCRATCH, STRIDES
from gluonjit.ir.dims import Dim, Extent, Undecided, is_less, is_static
from gluonjit.ir.graph import Graph, Op
from gluonjit.ir.kernels.element_plans import Copy, Loops, read_again
from gluonjit.ir.opdef import Primitive

_PIECES = 16
"""Into how many parts conditions may cut one nest."""


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


@writes(Loops, Copy, same_sums=always, for_any_size=any_size)
def lower_loops(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module. Its table: operands, results, and, if it keeps rows, memory of each thread (see
    `scratch`). A `rare` one is not cut; what is fetched `ahead`: see `Handler`."""
    _lowered(name, op, module)


def _lowered(name: str, op: Op, module: Module) -> Handler:
    plan = KERNEL.of(op)
    loops = plan if isinstance(plan, Loops) else Loops()
    body, f = op.regions[0], module.function(name)
    first = len(body.inputs)
    strides = STRIDES.of(op) or (None,) * (first + len(body.outputs))
    handler = Handler(f, body, module.target.width, strides[:first])
    handler.ahead = loops.ahead
    handler.read_again = read_again(body) if loops.ahead == "rows" else {}
    if loops.keeps_rows:
        handler.scratch = f.table(first + len(body.outputs))
    outputs = [
        (Buffer(f.table(first + k), v.dtype, v.shape, f.root, strides[first + k]), v)
        for k, v in enumerate(body.outputs)
    ]
    most = 0 if loops.rare else _PIECES
    nests = [*_nests(handler, outputs, most)]
    if loops.streaming:
        _write_streaming(handler, nests)
    else:
        _write(handler, nests)
    del handler.evaluator  # it refers to the handler, and only the garbage collector would find the two
    return handler


def scratch(op: Op, module: Module) -> Extent:
    """Bytes of scratch memory per thread that the kernel wants for rows of open lengths. Without, it computes their
    elements again."""
    body = op.regions[0]
    if all(
        is_static(op.operands[0].shape[axis] for axis in op.attrs["axes"]) for op in body.ops if op.name == "reduce"
    ):
        return 0
    unused = Module(module.target, module.dims)
    return _lowered("kernel", keeping_rows(op, 1), unused).scratch_used


def keeping_rows(op: Op, nbytes: Extent) -> Op:
    """The op, annotated with the bytes of scratch memory for rows of open lengths."""
    plan = KERNEL.of(op)
    loops = plan if isinstance(plan, Loops) else Loops()
    return replace(op, attrs={**op.attrs, **KERNEL(replace(loops, keeps_rows=True)), **SCRATCH(nbytes)})


_Nest = tuple[Sequence[Written], NestPlan]
"""What a nest of loops writes, and how."""


def _nests(s: Handler, outputs: Sequence[Written], most: int) -> Iterator[_Nest]:
    """The loops that write all outputs, each cut while it is in fewer than `most` pieces."""
    for shape in dict.fromkeys(v.shape for _, v in outputs if v.size):
        group = [(buffer, v) for buffer, v in outputs if v.shape == shape]
        index = tuple(variable("i", n) for n in shape)
        for piece, traced in _pieces(s, group, index, most):
            yield group, plan_nest(s.body, _variables(piece), piece, traced, s.width)


def _write(s: Handler, nests: Iterable[_Nest]) -> None:
    for group, plan in nests:
        NestWriter(s, group, plan).write()


def _write_streaming(s: Handler, nests: Sequence[_Nest]) -> None:
    """`_write` past the caches where that is possible, and where it is any good: a line that is written in pieces, with
    others between them, goes to memory piece by piece."""
    line = elements_of_line(s)
    in_pieces = {b for group, plan in nests for b, _ in group if not plan.writes_lines(line, b.dtype)}
    streamed = [b for b in dict.fromkeys(buffer for group, _ in nests for buffer, _ in group) if b not in in_pieces]
    for buffer in streamed:
        buffer.streaming = True
    if streamed:
        s.aligned = _all_aligned(s.f, streamed)
    _write(s, nests)
    if streamed:
        finish_streaming(s.f)


def _all_aligned(f: Function, buffers: Sequence[Buffer]) -> str:
    """Whether all begin at multiples of a vector's size (i1)."""
    bits: Any = 0
    for buffer in buffers:
        address = f.op(f"ptrtoint ptr {buffer.pointer} to i64")
        bits = address if bits == 0 else f.op(f"or i64 {bits}, {address}")
    return f.op(f"icmp eq i64 {f.op(f'and i64 {bits}, {f.target.vector_bits // 8 - 1}')}, 0")


# ---- cutting at conditions


def _traced(s: Handler, group: Sequence[Written], index: Index) -> Tracer:
    traced = trace(s.body, [(v, index) for _, v in group], s.strides)
    for buffer, _ in group:
        traced.store(buffer.flat(index))
    return traced


def _variables(index: Index) -> list[Var]:
    """The variables of an index, in row-major order."""
    return list(dict.fromkeys(v for i in index for v in sorted(i.leaves, key=lambda v: v.key)))


def _pieces(s: Handler, group: Sequence[Written], index: Index, most: int) -> list[tuple[Index, Tracer]]:
    """The index with variables cut where conditions change, as far as that is worth it; and what is accessed there."""
    done: list[tuple[Index, Tracer]] = []
    left = [index]
    while left:
        index = left.pop()
        traced = _traced(s, group, index)
        space = Space(_variables(index), traced.references)
        space.split()
        index, traced = space.applied(index, traced)
        cut = _cut(traced.references, space.order) if len(done) + len(left) < most else None
        if cut is None:
            done.append((index, traced))
            continue
        var, bounds = cut
        edges: list[Extent] = [0, *bounds, extent(var)]
        parts = [index_with(index, var, variable(var.name, b - a) + a) for a, b in zip(edges, edges[1:])]
        left.extend(reversed(parts))
    return done


def index_with(index: Index, var: Var, value: Affine) -> Index:
    return tuple(i.substitute({var: value}) for i in index)


def _cut(references: Sequence[Reference], order: Sequence[Var]) -> tuple[Var, list[Extent]] | None:
    """A variable, and the values at which conditions on it begin or cease to hold, whatever the others are."""
    for var in order:
        bounds: set[Extent] = set()
        for a in references:
            c = a.expr.coefficient(var) if a.kind == "range" else None
            if c is None or c == 0 or isinstance(c, Dim):
                continue
            rest = a.expr - affine(var) * c
            if c < 0:  # low <= -v + rest < high  is  1 - high <= v - rest < 1 - low
                low, high, rest, c = 1 - a.high, 1 - a.low, rest * -1, -c
            else:
                low, high = a.low, a.high
            # It holds for sure from `first` on, and before `last`.
            try:
                first, last = -(-(low - rest.low) // c), -(-(high - rest.high) // c)
            except Undecided:
                continue
            if is_less(first, last):
                bounds |= {b for b in (first, last) if is_less(0, b) and is_less(b, extent(var))}
        # The last variable is usually the vector's: cutting it costs partial vectors.
        worth = isinstance(extent(var), Dim) or count(var) >= 64 or var is not order[-1]
        if bounds and worth and len(bounds) < _PIECES:
            try:
                return var, sorted(bounds)
            except Undecided:  # which of them comes first depends on sizes
                continue
    return None
