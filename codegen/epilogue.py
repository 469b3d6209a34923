"""What follows a matrix product or convolution in its kernel: elementwise work on the accumulators, then the store.

The body of such a kernel holds one *anchor* (`dot_general` or `conv`) and elementwise primitives of the result's
shape, whose other operands are constants, buffers of that shape, or broadcasts of smaller buffers: along the columns
(a bias, read as vectors), per row, per image, … Whatever the operand, its element for a result index is a sum of
stride · index, so its address is one pointer per tile and a constant displacement per row and vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gluonjit.codegen.arithmetic import Arithmetic
from gluonjit.codegen.llvm import Function, memory_type
from gluonjit.codegen.tiles import Rows, Tile
from gluonjit.codegen.values import Val
from gluonjit.ir import opdef
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.primitives.movement import broadcast_dims
from gluonjit.ir.types import IRError

ANCHORS = ("dot_general", "conv")
_CHEAP = frozenset(
    "add sub mul neg abs maximum minimum select eq ne lt le gt ge and or not isnan constant broadcast cast".split()
)
"""An instruction or two each."""
_INLINE = 160
"""So many operations are written out for the accumulators of a tile; more, or costly ones, become a loop over rows."""


@dataclass(frozen=True)
class Side:
    """A buffer read by the epilogue: element Σ strides[k] · index[k] for result index `index`."""

    value: Value
    strides: tuple[int, ...]


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def find_anchor(body: Graph) -> Op:
    anchors = [op for op in body.ops if op.name in ANCHORS]
    if len(anchors) != 1:
        raise IRError(f"the body of such a kernel has one of {ANCHORS}, this one {len(anchors)}")
    return anchors[0]


class Epilogue:
    """Writes the epilogue of `body` for one tile at a time. The result is the kernel's only one."""

    def __init__(self, f: Function, body: Graph, anchor: Op) -> None:
        self.f = f
        self.anchor = anchor
        self.result = body.outputs[0]
        self.shape = self.result.shape
        self.strides = row_major(self.shape)
        feeding = _feeding(body, anchor)
        self.ops = [op for op in body.ops if op not in feeding and op is not anchor]
        self.sides: dict[Value, Side] = {}
        self.values = Arithmetic(f, f.target.lanes(anchor.result.dtype))
        inputs = set(body.inputs)
        for op in self.ops:
            if op.name == "broadcast" and op.operands[0] in inputs:
                x = op.operands[0]
                self.sides[op.result] = Side(x, _broadcast_strides(x, op, self.shape))
            for v in op.operands:
                if v in inputs and op.name != "broadcast":
                    self.sides[v] = Side(v, self.strides)
        slot = {v: k for k, v in enumerate(body.inputs)}
        self._pointers = {s.value: f.table(slot[s.value]) for s in self.sides.values()}
        self._out = f.table(len(body.inputs))
        self._parked = ""

    def write(self, tile: Tile, acc: Rows, index: Sequence[str | int]) -> None:
        """Finishes and stores a tile whose first element has result index `index` (i64 values).

        Its rows follow each other along the last axis but one, its columns along the last.
        """
        f = self.f
        if len(acc) == 1 or self._is_inline(len(acc) * tile.vectors):
            self._write(tile, acc, index)
            return
        # The same code for every row: its accumulators wait on the stack.
        if not self._parked:
            self._parked = f.alloca(tile.vector, f.target.num_vector_registers, f.target.vector_bits // 8)
        flat = [register for row in acc for register in row]
        for k, register in enumerate(flat):
            f.store(tile.vector, register, f.gep(tile.vector, self._parked, k))
        with f.for_(0, len(acc), hint="row") as loop:
            parked = f.gep(tile.vector, self._parked, f.mul(loop.index, tile.vectors))
            row = [f.load(tile.vector, f.gep(tile.vector, parked, v)) for v in range(tile.vectors)]
            self._write(tile, [row], [*index[:-2], f.add(index[-2], loop.index), index[-1]])

    def _is_inline(self, registers: int) -> bool:
        return all(op.name in _CHEAP for op in self.ops) and len(self.ops) * registers <= _INLINE

    def _write(self, tile: Tile, acc: Rows, index: Sequence[str | int]) -> None:
        f = self.f
        pointers = {v: self._at(self._pointers[s.value], s, index) for v, s in self.sides.items()}
        out = self._at(self._out, Side(self.result, self.strides), index)
        for r, row in enumerate(acc):
            for v, register in enumerate(row):
                value = self._compute(tile, register, r, v, pointers)
                p = f.gep(memory_type(self.result.dtype), out, self._displacement(self.strides, tile, r, v))
                self._store(tile, v, value, p)

    def _displacement(self, strides: Sequence[int], tile: Tile, r: int, v: int) -> int:
        return r * strides[-2] + v * tile.lanes * strides[-1]

    def _at(self, pointer: str, side: Side, index: Sequence[str | int]) -> str:
        offset: str | int = 0
        for stride, i in zip(side.strides, index, strict=True):
            offset = self.f.add(offset, self.f.mul(i, stride))
        return self.f.gep(memory_type(side.value.dtype), pointer, offset)

    def _compute(self, tile: Tile, register: str, r: int, v: int, pointers: dict[Value, str]) -> Val:
        env = {self.anchor.result: Val(register, self.anchor.result.dtype, True, self.f.scope)}

        def get(x: Value) -> Val:
            if x not in env:
                env[x] = self._load(tile, self.sides[x], pointers[x], r, v)
            return env[x]

        for op in self.ops:
            if op.result in self.sides:
                continue
            if op.name == "constant":
                env[op.result] = self.values.constant(op.attrs["value"].reshape(-1)[0], op.result.dtype)
            elif op.name == "broadcast":
                env[op.result] = get(op.operands[0])
            else:
                definition = op.definition
                assert isinstance(definition, opdef.Primitive) and definition.element is not None
                operands = [lambda i, x=x: get(x) for x in op.operands]
                env[op.result] = definition.element(self.values, (), *operands, **op.attrs)
        return self.values.splat(get(self.result))

    def _load(self, tile: Tile, side: Side, pointer: str, r: int, v: int) -> Val:
        """Pure: nothing that an epilogue reads is written by its kernel."""
        f, dtype = self.f, side.value.dtype
        type = memory_type(dtype)
        at = self._displacement(side.strides, tile, r, v)
        p = f.pure(f"getelementptr inbounds {type}, ptr {pointer}, i64 {at}", f.scope) if at else pointer
        if not side.strides[-1]:
            return Val(f.pure(f"load {type}, ptr {p}, align {dtype.itemsize}", f.scope), dtype, False, f.scope)
        vector = f"<{tile.lanes} x {type}>"
        if not tile.is_partial(v):
            text = f"load {vector}, ptr {p}, align {dtype.itemsize}"
        else:
            name = f"llvm.masked.load.v{tile.lanes}{_suffix(type)}.p0"
            f.module.declare(name, vector, ["ptr", "i32", f"<{tile.lanes} x i1>", vector])
            text = f"call {vector} @{name}(ptr {p}, i32 {dtype.itemsize}, {tile.mask}, {vector} zeroinitializer)"
        return Val(f.pure(text, f.scope), dtype, True, f.scope)

    def _store(self, tile: Tile, v: int, value: Val, pointer: str) -> None:
        f, dtype = self.f, value.dtype
        vector = f"<{tile.lanes} x {memory_type(dtype)}>"
        if not tile.is_partial(v):
            f.store(vector, value.ssa, pointer, dtype.itemsize)
            return
        name = f"llvm.masked.store.v{tile.lanes}{_suffix(memory_type(dtype))}.p0"
        f.module.declare(name, "void", [vector, "ptr", "i32", f"<{tile.lanes} x i1>"])
        f.emit(f"call void @{name}({vector} {value.ssa}, ptr {pointer}, i32 {dtype.itemsize}, {tile.mask})")


def _suffix(type: str) -> str:
    return {"float": "f32", "double": "f64"}.get(type, type)


def _feeding(body: Graph, anchor: Op) -> set[Op]:
    """The ops whose results the anchor needs: what unpacks its weights, for readers and `evaluate` alone."""
    found: set[Op] = set()
    stack = list(anchor.operands)
    while stack:
        op = body.producers.get(stack.pop())
        if op is not None and op not in found:
            found.add(op)
            stack.extend(op.operands)
    return found


def _broadcast_strides(x: Value, op: Op, shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [0] * len(shape)
    dims = broadcast_dims(x.ndim, shape, op.attrs["dims"])
    for d, n, step in zip(dims, x.shape, row_major(x.shape), strict=True):
        if n != 1:
            strides[d] = step
    if strides[-1] not in (0, 1):
        raise IRError(f"%{x.name} of shape {x.shape} does not lie along the columns of {shape}")
    return tuple(strides)
