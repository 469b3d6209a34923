"""One Winograd kernel for any number of channels: where nothing but trip counts and strides would differ.

A kernel takes LLVM a tenth of a second, and a net that widens, or a program that tries widths, has many. So depth and
filters become open dimensions, and the call passes their sizes, how many register tiles a block has, and the strides of
what lies between the steps, which follow from them in ways that no polynomial expresses
(`ir/kernels/winograd_memory.py`). The depth is a multiple of a vector that no machine exceeds, and filters one of a
panel: so neither sums nor transforms have a remainder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gluonjit.codegen.kernels.epilogue import feeding, find_anchor
from gluonjit.codegen.loops.any_size import opened_axis
from gluonjit.codegen.text.kernel_code import AnySize
from gluonjit.ir.annotations import GUARD, STRIDES
from gluonjit.ir.dims import LOWEST, Dim, Extent, Shape, divides
from gluonjit.ir.graph import Builder, Graph, Op, Value
from gluonjit.ir.kernels.product_plans import Winograd
from gluonjit.ir.kernels.winograd_memory import WinogradMemory, stride_unit
from gluonjit.ir.machine import Machine

BLOCK, BLOCK_UNIT = "block", LOWEST
"""The open dimension that is a block's number of register tiles times this, as that may be 1."""


def any_channels(op: Op, target: Machine) -> AnySize | None:
    """The op with open channels; None where one code would not do for others."""
    if STRIDES.of(op) or GUARD.of(op) is not None:
        return None
    plan, body = Winograd.of(op), op.regions[0]
    anchor = find_anchor(body)
    x, y = anchor.operands[0], anchor.result
    extents = [m + r - 1 for m, r in zip(plan.outputs[-(x.ndim - 2) :], anchor.operands[1].shape, strict=False)]
    sizes: dict[str, int] = {}
    depth = opened_axis("d", x.shape[-1], target.line // x.dtype.itemsize, sizes)
    filters = opened_axis("f", y.shape[-1], plan.columns, sizes)
    row = extents[-1] * depth * x.dtype.itemsize
    if not sizes or not divides(target.line, row):
        return None
    count = x.shape[0] * math.prod(-(-n // m) for n, m in zip(reversed(y.shape[1:-1]), reversed(plan.outputs)))
    tall = extents[0] if len(extents) > 1 else 1
    known = (count, x.shape[-1], y.shape[-1], x.dtype.itemsize, target)
    memory = WinogradMemory.of(plan, (tall, extents[-1]), *known)
    opened = _with_channels(body, anchor, _Channels(x.shape[-1], y.shape[-1], depth, filters))
    if opened is None:
        return None
    for name, array in (("v", memory.inputs), ("m", memory.outputs)):
        sizes[f"{name}_tile"], sizes[f"{name}_position"] = (n // stride_unit(target) for n in array[1:])
    if plan.block > 0:
        sizes[BLOCK] = plan.block * BLOCK_UNIT
        plan = replace(plan, block=1)
    return AnySize.of(op, opened, sizes, plan)


class _Channels(NamedTuple):
    depth: int
    filters: int
    open_depth: Extent
    open_filters: Extent

    def of_result(self, shape: Shape) -> Shape | None:
        """The open shape of a value of the epilogue, whose channels are its last axis."""
        if shape[-1:] == (self.filters,):
            return (*shape[:-1], self.open_filters)
        return shape if math.prod(shape) == 1 else None

    def of_weights(self, shape: Shape) -> Shape:
        """That of weights [.., I, O] as they are restored."""
        filters = self.open_filters if isinstance(self.open_filters, Dim) else shape[-1]
        return (*shape[:-2], self.open_depth, filters)


def _with_channels(body: Graph, anchor: Op, channels: _Channels) -> Graph | None:
    x, w = anchor.operands[0], body.inputs[1]
    b = Builder(body.name, body.level)
    env: dict[Value, Value] = {}
    for v in body.inputs:
        shape: Shape | None
        if v is x:
            shape = (*v.shape[:-1], channels.open_depth)
        elif v is w:
            positions, panels, _, columns = v.shape
            opened = isinstance(channels.open_filters, Dim)
            shape = (positions, channels.open_filters // columns if opened else panels, channels.open_depth, columns)
        else:
            shape = channels.of_result(v.shape)
        if shape is None:
            return None
        env[v] = b.input(v.name, v.type.with_shape(shape))
    before = feeding(body, anchor)
    for op in body.ops:
        attrs = _attributes(op, op in before, channels)
        if attrs is None:
            return None
        env.update(zip(op.results, b.emit(op.name, [env[v] for v in op.operands], attrs), strict=True))
    return b.build([env[v] for v in body.outputs])


def _attributes(op: Op, is_before: bool, channels: _Channels) -> Mapping[str, Any] | None:
    """The op's attributes with open channels. `is_before`: it restores weights."""
    attrs = dict(op.attrs)
    if is_before:
        if op.name == "reshape":
            attrs["shape"] = channels.of_weights(op.result.shape)
        elif op.name == "slice":
            attrs["size"] = channels.of_weights(op.result.shape)
    elif op.name == "broadcast":
        shape = channels.of_result(op.result.shape)
        if shape is None:
            return None
        attrs["shape"] = shape
    elif not op.definition.elementwise and op.name not in ("conv", "constant"):
        return None
    return attrs
