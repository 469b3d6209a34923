"""One Winograd kernel for any number of channels, and any size of the image: where nothing but trip counts and strides
would differ.

A kernel takes LLVM a tenth of a second, and a net that widens, or a program that tries widths, has many. So depth and
filters become open dimensions, and the call passes their sizes, how many register tiles a block has, and the strides of
what lies between the steps, which follow from them in ways that no polynomial expresses
(`ir/kernels/winograd_memory.py`). The depth is a multiple of a vector that no machine exceeds, and filters one of a
panel: so neither sums nor transforms have a remainder. Sizes are open where tiles fill the image, and are many.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gluonjit.codegen.kernels.epilogue import feeding, find_anchor
from gluonjit.codegen.loops.any_size import opened_axis
from gluonjit.codegen.text.kernel_code import AnySize
from gluonjit.ir.annotations import GUARD, STRIDES
from gluonjit.ir.dims import LOWEST, Dim, Extent, Shape, divides, named
from gluonjit.ir.graph import Builder, Graph, Op, Value
from gluonjit.ir.kernels.product_plans import Winograd
from gluonjit.ir.kernels.winograd_memory import WinogradMemory, is_nearly_filled, stride_unit
from gluonjit.ir.machine import Machine
from gluonjit.ir.primitives.movement import broadcast_dims

BLOCK, BLOCK_UNIT = "block", LOWEST
"""The open dimension that is a block's number of register tiles times this, as that may be 1."""


def any_channels(op: Op, target: Machine) -> AnySize | None:
    """The op with open channels, and an open size of the image; None where one code would not do for others."""
    strides: Sequence[Any] = STRIDES.of(op) or ()
    if any(strides[:-1]) or GUARD.of(op) is not None:
        return None
    plan, body = Winograd.of(op), op.regions[0]
    anchor = find_anchor(body)
    x, y = anchor.operands[0], anchor.result
    outputs = plan.outputs[-(x.ndim - 2) :]
    extents = [m + r - 1 for m, r in zip(outputs, anchor.operands[1].shape, strict=False)]
    sizes: dict[str, int] = {}
    depth = opened_axis("d", x.shape[-1], target.line // x.dtype.itemsize, sizes)
    filters = opened_axis("f", y.shape[-1], plan.columns, sizes)
    row = extents[-1] * depth * x.dtype.itemsize
    if not sizes or not divides(target.line, row):
        return None
    count = x.shape[0] * math.prod(-(-n // m) for n, m in zip(y.shape[1:-1], outputs, strict=True))
    tall = extents[0] if len(extents) > 1 else 1
    known = (count, x.shape[-1], y.shape[-1], x.dtype.itemsize, target)
    memory = WinogradMemory.of(plan, (tall, extents[-1]), *known)
    pixels: Shape = y.shape[1:-1]
    # What is fetched ahead is divided by the size for each register tile, and sizes should be known for that.
    if plan.block > 0 and not plan.ahead and is_nearly_filled(count, plan.rows):
        pixels = tuple(
            open_size(f"p{k}", n, m, i - n, sizes)
            for k, (n, m, i) in enumerate(zip(pixels, outputs, x.shape[1:-1], strict=True))
        )
    opening = _Opening(y.shape, x.shape, (y.shape[0], *pixels), depth, filters)
    opened = _with_sizes(body, anchor, opening)
    if opened is None:
        return None
    for name, array in (("v", memory.inputs), ("m", memory.outputs)):
        sizes[f"{name}_tile"], sizes[f"{name}_position"] = (n // stride_unit(target) for n in array[1:])
    if plan.block > 0:
        sizes[BLOCK] = plan.block * BLOCK_UNIT
        plan = replace(plan, block=1)
    found = AnySize.of(op, opened, sizes, plan)
    if not any(strides):
        return found
    apart = _open_strides(strides[-1], y.shape, opened.outputs[0].shape)
    if apart is None:
        return None
    return found._replace(op=replace(found.op, attrs={**found.op.attrs, **STRIDES((*strides[:-1], apart))}))


def open_size(name: str, n: Any, outputs: int, more: Any, sizes: dict[str, int]) -> Extent:
    """A size of the result's image, open if tiles fill it; a single one may do so. The input's is larger by `more`,
    which is negative where much is padded: sizes are counted from the first one whose input has a pixel."""
    if n % outputs or outputs == 1 and n < LOWEST:
        return n
    fewest = max(1, -((more - 1) // outputs))
    sizes[name] = n // outputs - fewest + LOWEST
    return outputs * named(name) + outputs * (fewest - LOWEST)


def _open_strides(strides: Sequence[Any], known: Sequence[Any], opened: Shape) -> tuple[Extent, ...] | None:
    """The strides of what lies in every so many pixels of a larger image, and rows of it; None if it is something
    else."""
    found: list[Extent] = [1]
    dense, open_step = 1, found[0]
    for step, n, size in zip(strides[-2::-1], known[:0:-1], opened[:0:-1], strict=True):
        dense *= n
        if step % dense:
            return None
        open_step = open_step * size * (step // dense)
        found.insert(0, open_step)
        dense = step
    return tuple(found) if strides[-1] == 1 else None


class _Opening(NamedTuple):
    """What becomes of known shapes."""

    result: Shape
    input: Shape
    lead: Shape
    """The open shape of the result but for its channels."""
    depth: Extent
    filters: Extent

    def of_input(self) -> Shape:
        image, *pixels, _ = self.input
        more = (n - known for n, known in zip(pixels, self.result[1:-1], strict=True))
        return (image, *(n + k for n, k in zip(self.lead[1:], more, strict=True)), self.depth)

    def of_result(self, shape: Shape) -> Shape | None:
        """The open shape of a value of the epilogue, whose channels are its last axis."""
        if shape[-1:] != self.result[-1:]:
            return shape if math.prod(shape) == 1 else None
        if shape == self.result:
            return (*self.lead, self.filters)
        return (*shape[:-1], self.filters) if len(shape) <= 2 or self.lead == self.result[:-1] else None

    def spreads_alike(self, op: Op) -> bool:
        """Whether what the op broadcasts is the same for all pixels, or their number is known."""
        ndim, shape = op.operands[0].ndim, op.result.shape
        dims = broadcast_dims(ndim, shape, op.attrs["dims"])
        return self.lead == self.result[:-1] or all(d in (0, len(shape) - 1) for d in dims)

    def of_weights(self, shape: Shape) -> Shape:
        """That of weights [.., I, O] as they are restored."""
        filters = self.filters if isinstance(self.filters, Dim) else shape[-1]
        return (*shape[:-2], self.depth, filters)


def _with_sizes(body: Graph, anchor: Op, opening: _Opening) -> Graph | None:
    x, w = anchor.operands[0], body.inputs[1]
    b = Builder(body.name, body.level)
    env: dict[Value, Value] = {}
    for v in body.inputs:
        shape: Shape | None
        if v is x:
            shape = opening.of_input()
        elif v is w:
            positions, panels, _, columns = v.shape
            opened = isinstance(opening.filters, Dim)
            shape = (positions, opening.filters // columns if opened else panels, opening.depth, columns)
        else:
            shape = opening.of_result(v.shape)
        if shape is None:
            return None
        env[v] = b.input(v.name, v.type.with_shape(shape))
    before = feeding(body, anchor)
    for op in body.ops:
        attrs = _attributes(op, op in before, opening)
        if attrs is None:
            return None
        env.update(zip(op.results, b.emit(op.name, [env[v] for v in op.operands], attrs), strict=True))
    return b.build([env[v] for v in body.outputs])


def _attributes(op: Op, is_before: bool, opening: _Opening) -> Mapping[str, Any] | None:
    """The op's attributes with open sizes. `is_before`: it restores weights."""
    attrs = dict(op.attrs)
    if is_before:
        if op.name == "reshape":
            attrs["shape"] = opening.of_weights(op.result.shape)
        elif op.name == "slice":
            attrs["size"] = opening.of_weights(op.result.shape)
    elif op.name == "broadcast":
        shape = opening.of_result(op.result.shape)
        if shape is None or not opening.spreads_alike(op):
            return None
        attrs["shape"] = shape
    elif not op.definition.elementwise and op.name not in ("conv", "constant"):
        return None
    return attrs
