"""Primitives whose elements depend on each other: `cumsum`, `scatter_add`. The kernel `sequential`.

An array is viewed as [outer, n, inner] around the axis. Along it, steps follow each other; outer and
inner indices are independent, so vectors run over the inner ones and threads share them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from gluonjit.codegen.loops.access import Access, Buffer
from gluonjit.codegen.loops.index import Affine, Var, affine, counter
from gluonjit.codegen.math.values import Val
from gluonjit.codegen.text.kernel_code import writes
from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.ir.dims import Dim, Extent
from gluonjit.ir.graph import Op
from gluonjit.ir.kernels.op_plans import Sequential
from gluonjit.ir.primitives.reduction import accumulator
from gluonjit.ir.types import BOOL, I64, IRError

_SMALL = 1 << 12
"""Elements up to which one thread does all the work."""


@writes(Sequential)
def lower_sequential(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module. Its table: the op's operands, then its results."""
    lower = {"cumsum": _cumsum, "scatter_add": _scatter_add}.get(op.name)
    if lower is None:
        raise IRError(f"{op.name} has no sequential kernel")
    f = module.function(name)
    if all(r.size for r in op.results):
        lower(f, Access(f, module.target.width), op)


def _buffer(f: Function, op: Op, k: int, *shape: Extent) -> Buffer:
    """The k-th pointer of the table, seen as an array of `shape`."""
    return Buffer(f.table(k), (*op.operands, *op.results)[k].dtype, shape, f.root)


def _around(shape: tuple[Extent, ...], axis: int) -> tuple[Extent, Extent, Extent]:
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def _bound(s: Access, ssa: str, low: Extent, high: Extent) -> Affine:
    """An i64 of the innermost open loop as an index in [low, high]."""
    return _bind(s, Var("i", low, high), ssa)


def _bind(s: Access, var: Var, ssa: str) -> Affine:
    s.bind(var, Val(ssa, I64, False, s.f.scope))
    return affine(var)


def for_each(s: Access, count: Extent, work: Extent, body: Callable[[Affine], None]) -> None:
    """`body` for every index below `count`, divided among threads; `work`: elements per index."""
    f = s.f
    begin: Any = 0
    end: Any = count
    if isinstance(count, Dim) or isinstance(work, Dim):
        begin, end = _share(f, count, work)
        with f.for_(begin, end) as loop:
            body(_bound(s, loop.index, 0, count - 1))
        return
    if count * work < _SMALL or count == 1:
        with f.if_(f.op("icmp eq i64 %thread, 0")), f.for_(0, count) as loop:
            body(_bound(s, loop.index, 0, count - 1))
        return
    begin = f.op(f"udiv i64 {f.mul('%thread', count)}, %nthreads")
    end = f.op(f"udiv i64 {f.mul(f.add('%thread', 1), count)}, %nthreads")
    with f.for_(begin, end) as loop:
        body(_bound(s, loop.index, 0, count - 1))


def _share(f: Function, count: Any, work: Any) -> tuple[str, str]:
    """This thread's part of `count` indices, each of which takes `work`; if that is little, the first does all."""
    small = f.op(f"icmp slt i64 {f.extent(f.mul(count, work))}, {_SMALL}")
    threads = f.op(f"select i1 {small}, i64 1, i64 %nthreads")
    first = f.min("%thread", threads)
    last = f.min(f.add("%thread", 1), threads)
    return f.op(f"udiv i64 {f.mul(first, count)}, {threads}"), f.op(f"udiv i64 {f.mul(last, count)}, {threads}")


def _lines(s: Access, outer: Extent, inner: Extent, work: Extent, line: Callable[[Affine, Affine], None]) -> None:
    """`line(o, at)` for every outer index and every vector of inner ones, `at` being the index of its lanes; divided
    among threads. `work`: steps of a line."""
    f, width = s.f, s.width
    if not isinstance(inner, Dim):
        vectors, run = _vectors(s, inner)

        def task(t: Affine) -> None:
            run(t % vectors, lambda at: line(t // vectors, at))

        for_each(s, outer * vectors, work * min(inner, width), task)
        return
    whole = s.whole(inner, width)
    partial = f.op(f"icmp slt i64 {f.extent(f.mul(whole, width))}, {f.extent(inner)}")
    each = f.add(whole, f.op(f"zext i1 {partial} to i64"))
    begin, end = _share(f, f.mul(outer, each), f.mul(work, width))
    with f.for_(begin, end) as loop:
        o = _bound(s, f.div(loop.index, each), 0, outer - 1)
        number = f.mod(loop.index, each)
        with f.if_(f.op(f"icmp slt i64 {number}, {f.extent(whole)}")):
            line(o, _bind(s, counter("i", inner, width), number) * width + affine(s.lane_number(width)))
        with f.if_(f.op(f"icmp eq i64 {number}, {f.extent(whole)}")):
            first = _bind(s, counter("i", inner, width, last=True), number) * width
            with s.last_lanes(inner, first, f.sub(inner, f.mul(whole, width))) as at:
                line(o, at)


def _vectors(s: Access, n: int) -> tuple[int, Callable[[Affine, Callable[[Affine], None]], None]]:
    """(how many vectors hold n elements, `run(v, body)`: `body` with the index of vector v's lanes).

    The last one may be partial: it has code of its own, under a test of v.
    """
    f, width = s.f, s.width
    if n == 1:
        return 1, lambda v, body: body(Affine(0))
    whole, partial = divmod(n, width)

    def run(v: Affine, body: Callable[[Affine], None]) -> None:
        number = s.uniform(v).ssa
        if whole:
            with f.if_(f.op(f"icmp slt i64 {number}, {whole}")):
                body(v * width + affine(s.lane_number(width)))
        if partial:
            with f.if_(f.op(f"icmp eq i64 {number}, {whole}")):
                body(affine(s.lane_number(partial)) + whole * width)

    return whole + bool(partial), run


def _cumsum(f: Function, s: Access, op: Op) -> None:
    """Running sums; narrow floats are summed in f32 and rounded as they are written."""
    outer, n, inner = _around(op.operands[0].shape, op.attrs["axis"])
    x, y = _buffer(f, op, 0, outer, n, inner), _buffer(f, op, 1, outer, n, inner)
    wide = accumulator(x.dtype)

    def line(o: Affine, at: Affine) -> None:
        lanes = s.varies(at.leaves)
        zero = s.constant(0, wide)
        start = s.splat(zero) if lanes else zero
        with f.for_(0, n, carried=[(s.type(wide, lanes), start.ssa)]) as loop:
            k = _bound(s, loop.index, 0, n - 1)
            sum = s.add(Val(loop.carried[0], wide, lanes, loop.scope), s.cast(s.load(x, (o, k, at)), wide))
            s.store(y, (o, k, at), s.cast(sum, y.dtype))
            loop.next(sum.ssa)

    _lines(s, outer, inner, n, line)


def _columns(s: Access, inner: Extent, work: Extent) -> Callable[[Callable[[Affine], None]], None]:
    """`each(body)`: calls `body` with the index of the lanes of every vector of inner elements that is this thread's.
    `work`: what there is to do for each element."""
    f, width = s.f, s.width
    if not isinstance(inner, Dim):
        vectors, run = _vectors(s, inner)
        begin, end = _share(f, vectors, f.mul(work, min(inner, width)))

        def each(body: Callable[[Affine], None]) -> None:
            with f.for_(begin, end) as loop:
                run(_bound(s, loop.index, 0, vectors - 1), body)

        return each
    whole = s.whole(inner, width)
    partial = f.op(f"icmp slt i64 {f.extent(f.mul(whole, width))}, {f.extent(inner)}")
    count = f.add(whole, f.op(f"zext i1 {partial} to i64"))
    begin, end = _share(f, count, f.mul(work, width))

    def each_of_open(body: Callable[[Affine], None]) -> None:
        with f.for_(begin, f.min(end, whole)) as loop:
            body(_bind(s, counter("i", inner, width), loop.index) * width + affine(s.lane_number(width)))
        with f.if_(f.op(f"and i1 {partial}, {f.op(f'icmp eq i64 {f.extent(end)}, {f.extent(count)}')}")):
            first = _bind(s, counter("i", inner, width, last=True), f.extent(whole)) * width
            with s.last_lanes(inner, first, f.sub(inner, f.mul(whole, width))) as at:
                body(at)

    return each_of_open


def _scatter_add(f: Function, s: Access, op: Op) -> None:
    """Copies the operand, then adds in order of the points; each thread does both for its own inner elements, row by
    row, so that whole lines of memory are read and written."""
    data, points, _ = (v.shape for v in op.operands)
    depth, count = points[0], prod(points[1:])
    rows, inner = prod(data[:depth]), prod(data[depth:])
    x, y = _buffer(f, op, 0, rows, inner), _buffer(f, op, 3, rows, inner)
    where, u = _buffer(f, op, 1, depth, count), _buffer(f, op, 2, count, inner)
    each = _columns(s, inner, rows + count)
    with f.for_(0, rows) as loop:
        copied = _bound(s, loop.index, 0, rows - 1)
        each(lambda at: s.store(y, (copied, at), s.load(x, (copied, at))))
    if count == 0:
        return
    with f.for_(0, count) as loop:
        point = _bound(s, loop.index, 0, count - 1)
        inside = s.constant(True, BOOL)
        row = Affine(0)
        for k in range(depth):
            index = s.cast(s.load(where, (k, point)), I64)
            fits = s.emit("icmp ult {t} {0}, {1}", BOOL, index, s.constant(data[k], I64))
            inside = s.both(inside, fits)
            row = row * data[k] + s.to_index(index)
        with f.if_(inside.ssa) as then:
            # In a scope of its own: what is read here has been written since the loop was entered.
            here = Buffer(y.pointer, y.dtype, y.shape, then)
            each(lambda at: s.store(y, (row, at), s.add(s.load(here, (row, at)), s.load(u, (point, at)))))
