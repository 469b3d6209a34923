"""The epilogue of a matrix product or convolution: elementwise work on the accumulators, then the store.

The body of such a kernel holds one *anchor* (`dot_general` or `conv`) and the ops on its result. These are composed of
element functions as in any loop (`codegen.loops.evaluate`), except that the anchor's value at an index of the tile is
an accumulator. So a value per column, such as a bias, is a vector, and a value per row is a scalar.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from gluonjit.codegen.kernels.tiles import Rows, Tile, prefetch, steps
from gluonjit.codegen.loops.access import Access, Buffer
from gluonjit.codegen.loops.evaluate import Evaluator, Index
from gluonjit.codegen.loops.index import Affine, Var, affine
from gluonjit.codegen.math.values import Val
from gluonjit.codegen.text.llvm import Function, memory_type
from gluonjit.ir.annotations import STRIDES
from gluonjit.ir.dims import hint
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.types import I64, IRError
from gluonjit.ir.windows import row_major

_CHEAP = frozenset(
    "add sub mul neg abs maximum minimum select eq ne lt le gt ge and or not isnan constant broadcast cast".split()
)
"""Primitives of one or two instructions."""
_INLINE = 160
"""The most operations that are unrolled over a tile's accumulators; more, or costly ones, become a loop over rows."""
_INTERLEAVED = 4
"""How many registers one iteration of that loop processes, interleaved."""


def find_anchor(body: Graph) -> Op:
    """The one product that the kernel computes; other products in the body only unpack its weights."""
    anchors = [op for op in body.ops if op.definition.accumulates == "contraction"]
    outer = [op for op in anchors[-1:] if feeding(body, op).issuperset(anchors[:-1])]
    if not outer:
        raise IRError(f"the body of such a kernel has one matrix product or convolution, this one {len(anchors)}")
    return outer[0]


class Epilogue(Evaluator):
    """Writes the epilogue of the body of `op`, which has one result, for one tile at a time.

    `first`: the slot of the op's first operand in the kernel's table. The other inputs and the result follow."""

    def __init__(self, f: Function, op: Op, anchor: Op, first: int = 0) -> None:
        self.f = f
        body = op.regions[0]
        self.handler = _Handler(f, f.target.lanes(anchor.result.dtype))
        super().__init__(body, self.handler)
        self.anchor = anchor
        self.result = body.outputs[0]
        self.ops = [op for op in body.ops if op is not anchor and op not in feeding(body, anchor)]
        read = {v for op in self.ops for v in op.operands}
        strides = STRIDES.of(op) or (None,) * (len(body.inputs) + 1)
        for k, v in enumerate(body.inputs):
            if v in read or v is self.result:
                self.handler.buffers[v] = Buffer(f.table(first + k), v.dtype, v.shape, f.root, strides[k])
        out = f.table(first + len(body.inputs))
        self.out = Buffer(out, self.result.dtype, self.result.shape, f.root, strides[-1])
        # Buffers as large as the result are read once, so they are not in the caches.
        direct = {v for op in self.ops if op.name != "broadcast" for v in op.operands}
        self.streams = [
            b
            for v, b in self.handler.buffers.items()
            if v in direct and v.shape == self.result.shape and hint(v.type.nbytes) > f.target.l1
        ]
        self._accumulators: dict[tuple[Any, ...], str] = {}
        self._parked = ""

    def prefetch(self, tile: Tile, rows: int, index: Sequence[str | int]) -> None:
        """Prefetches what `write` will read and write for this tile. To be called well ahead: stores that miss the
        first-level cache wait in a short queue. The tile need not exist."""
        f = self.f
        is_large = hint(self.result.type.nbytes) > f.target.l1
        for buffer in (*self.streams, *([self.out] if is_large else [])):
            strides = buffer.strides or row_major(buffer.shape)
            offset: str | int = 0
            for i, step in zip(index, strides, strict=True):
                offset = f.add(offset, f.mul(i, step))
            type = memory_type(buffer.dtype)
            first = f.op(f"getelementptr {type}, ptr {buffer.pointer}, i64 {f.extent(offset)}")
            for row in steps(f, first, strides[-2] * buffer.dtype.itemsize, rows):
                for at in range(0, tile.vectors * tile.lanes * buffer.dtype.itemsize, f.target.line):
                    prefetch(f, row, at, write=buffer is self.out)

    def write(self, tile: Tile, acc: Rows, index: Sequence[str | int]) -> None:
        """Finishes and stores a tile whose first element has result index `index` (i64 values).

        Its rows follow each other along the last axis but one, its columns along the last.
        """
        f = self.f
        if len(acc) == 1 or self._is_inline(len(acc) * tile.vectors):
            self._write(tile, acc, index)
            return
        # A loop with the same code for every row; the accumulators are kept on the stack.
        if not self._parked:
            self._parked = f.alloca(tile.vector, f.target.num_vector_registers, f.target.vector_bits // 8)
        for k, register in enumerate(v for row in acc for v in row):
            f.store(tile.vector, register, f.gep(tile.vector, self._parked, k))

        def some(first: Any, rows: int) -> None:
            parked = f.gep(tile.vector, self._parked, f.mul(first, tile.vectors))
            loaded = [
                [f.load(tile.vector, f.gep(tile.vector, parked, r * tile.vectors + v)) for v in range(tile.vectors)]
                for r in range(rows)
            ]
            self._write(tile, loaded, [*index[:-2], f.add(index[-2], first), index[-1]])

        step = max(1, _INTERLEAVED // tile.vectors)
        whole, rest = divmod(len(acc), step)
        with f.for_(0, whole * step, step, hint="row") as loop:
            some(loop.index, step)
        if rest:
            some(whole * step, rest)

    def _is_inline(self, registers: int) -> bool:
        computing = sum(op.name not in ("constant", "broadcast") for op in self.ops)
        return all(op.name in _CHEAP for op in self.ops) and computing * registers <= _INLINE

    def _write(self, tile: Tile, acc: Rows, index: Sequence[str | int]) -> None:
        self.handler.forget()
        *lead, row, column = (self._index(i, n) for i, n in zip(index, self.result.shape, strict=True))
        self._accumulators.clear()
        finished: list[tuple[Index, Val]] = []
        """What is to be stored after the last row of a residual is read."""

        def finish(r: int, v: int) -> None:
            if tile.left is not None and tile.is_partial(v):
                with self.handler.last_lanes(self.result.shape[-1], column + v * tile.lanes, tile.left) as last:
                    self.handler.store(self.out, *finish_at(r, v, last))
                return
            lanes = self.handler.lane_number(tile.last if tile.is_partial(v) else tile.lanes)
            place = finish_at(r, v, column + (affine(lanes) + v * tile.lanes))
            if self.streams:
                finished.append(place)
            else:
                self.handler.store(self.out, *place)

        def finish_at(r: int, v: int, columns: Affine) -> tuple[Index, Val]:
            at = (*lead, row + r, columns)
            self._accumulators[at] = acc[r][v]
            return at, self.run(partial(self.value, self.result, at))

        cells = [partial(finish, r, v) for v in range(tile.vectors) for r in range(len(acc))]
        if len(cells) <= _INTERLEAVED:
            self.f.alternate(cells)
        else:
            for finish_one in cells:  # one at a time, as their operands take registers as well
                finish_one()
        # A load waits for a store before it if their addresses end in the same bits, as those of rows a page apart do.
        for at, value in finished:
            self.handler.store(self.out, at, value)

    def _index(self, i: str | int, extent: Any) -> Affine:
        if isinstance(i, int):
            return Affine(i)
        var = Var("at", 0, extent - 1)
        self.handler.bind(var, Val(i, I64, False, self.f.scope))
        return affine(var)

    def compute(self, v: Value, index: tuple[Any, ...]) -> Val:
        if v is self.anchor.result:
            return Val(self._accumulators[index], v.dtype, True, self.f.scope)
        return super().compute(v, index)


class _Handler(Access):
    """A handler that loads the body's inputs, and keeps what it has computed for the current tile."""

    context = None

    def __init__(self, f: Function, width: int) -> None:
        super().__init__(f, width)
        self.buffers: dict[Value, Buffer] = {}
        self._memo: dict[Any, Val] = {}

    def load_input(self, v: Value, index: tuple[Any, ...]) -> Val:
        return self.load(self.buffers[v], index)

    def memo(self, index: tuple[Any, ...]) -> dict[Any, Val]:
        return self._memo

    def forget(self) -> None:
        self._memo.clear()


def feeding(body: Graph, anchor: Op) -> set[Op]:
    """The ops before the anchor. They unpack its weights, which tells readers and `evaluate` what the kernel means."""
    found: set[Op] = set()
    stack = list(anchor.operands)
    while stack:
        op = body.producers.get(stack.pop())
        if op is not None and op not in found:
            found.add(op)
            stack.extend(op.operands)
    return found
