"""Rewrites the body of a kernel with an anchor for a result whose axes are merged.

A matrix product needs [batch…, M, N] where the graph has any number of free axes. Views outside of the kernel merge the
axes, and the epilogue is rewritten: elementwise ops get another shape, and a broadcast operand must vary along either
all of a merged axis or none of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gluonjit.ir.graph import Builder, Graph, Op, Value
from gluonjit.ir.primitives.movement import broadcast_dims

Groups = Sequence[tuple[int, ...]]
"""For each new axis, the old axes that it merges (none: an axis of 1)."""


@dataclass(frozen=True)
class SideInput:
    """Input `index` of the old body as an input of the new one, with shape `shape`; broadcast to the result's axes
    `dims`, unless None."""

    index: int
    shape: tuple[int, ...]
    dims: tuple[int, ...] | None


@dataclass(frozen=True)
class Epilogue:
    """The ops that follow the anchor. `sides` maps values of the old body to the buffers that these ops read."""

    ops: tuple[Op, ...]
    shape: tuple[int, ...]
    sides: dict[Value, SideInput]
    output: Value


def merged_shape(shape: Sequence[int], groups: Groups) -> tuple[int, ...]:
    return tuple(math.prod(shape[d] for d in group) for group in groups)


def regroup(body: Graph, anchor: Op, groups: Groups) -> Epilogue | None:
    """The epilogue over merged axes; None if it has an op that no kernel's epilogue can compute."""
    shape = anchor.result.shape
    inputs = {v: k for k, v in enumerate(body.inputs)}
    sides: dict[Value, SideInput] = {}
    ops = tuple(op for op in body.ops if op is not anchor)
    produced = {op.result for op in ops if len(op.results) == 1}
    if len(body.outputs) != 1 or body.outputs[0].shape != shape:
        return None
    if body.outputs[0] is not anchor.result and body.outputs[0] not in produced:
        return None
    for op in ops:
        if op.name == "constant":
            if op.result.size != 1:
                return None
        elif op.name == "broadcast":
            x = op.operands[0]
            if op.result.shape != shape:
                return None
            if x in inputs:
                side = _merged_broadcast(inputs[x], x, op, groups)
                if side is None:
                    return None
                sides[op.result] = side
            elif x.size != 1:
                return None
        elif not (op.definition.elementwise and op.result.shape == shape):
            return None
        else:
            for x in op.operands:
                if x in inputs:
                    if x.shape != shape:
                        return None
                    sides[x] = SideInput(inputs[x], merged_shape(shape, groups), None)
    return Epilogue(ops, merged_shape(shape, groups), sides, body.outputs[0])


def _merged_broadcast(index: int, x: Value, op: Op, groups: Groups) -> SideInput | None:
    shape = op.result.shape
    dims = broadcast_dims(x.ndim, shape, op.attrs["dims"])
    present = [d for d, n in zip(dims, x.shape, strict=True) if n != 1]
    kept: list[tuple[int, int]] = []
    for axis, group in enumerate(groups):
        mine = [d for d in group if d in present]
        if mine:
            if mine != [d for d in group if shape[d] != 1]:
                return None
            kept.append((axis, math.prod(shape[d] for d in mine)))
    return SideInput(index, tuple(n for _, n in kept), tuple(axis for axis, _ in kept))


def write_epilogue(body: Builder, epilogue: Epilogue, anchor: Op, result: Value, names: Sequence[str]) -> Value:
    """Emits the epilogue after `result` (the anchor's result in its new shape), and declares the buffers that it reads
    as inputs of `body`."""
    env: dict[Value, Value] = {anchor.result: result}
    for (old, side), name in zip(epilogue.sides.items(), names, strict=True):
        inner = body.input(name, old.type.with_shape(side.shape))
        if side.dims is not None:
            inner = body.broadcast(inner, shape=epilogue.shape, dims=side.dims)
        env[old] = inner
    for op in epilogue.ops:
        if op.result in epilogue.sides:
            continue
        body.loc = op.loc
        if op.name == "constant":
            new = body.constant(op.attrs["value"].reshape(()))
        elif op.name == "broadcast":
            new = env[op.operands[0]]
        else:
            operands = [_stretched(body, env[v], epilogue.shape) for v in op.operands]
            new = body.emit(op.name, operands, op.attrs)[0]
        env[op.result] = new
    return _stretched(body, env[epilogue.output], epilogue.shape)


def _stretched(body: Builder, x: Value, shape: tuple[int, ...]) -> Value:
    return x if x.shape == shape else body.broadcast(x, shape=shape, dims=())
