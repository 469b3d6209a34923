"""One Winograd kernel for any number of channels and images, and any size of these: where nothing but trip counts and
strides would differ.

A kernel takes LLVM a tenth of a second, and a net that widens, or a program that tries widths, has many. So depth and
filters become open dimensions, and the call passes their sizes, how many register tiles a block has, and the strides of
what lies between the steps, which follow from them in ways that no polynomial expresses
(`ir/kernels/winograd_memory.py`). The depth is a multiple of a vector that no machine exceeds, and filters one of a
panel: so neither sums nor transforms have a remainder. Images and their sizes are open where tiles are many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gluonjit.codegen.kernels.epilogue import find_anchor
from gluonjit.codegen.kernels.open_convolution import Opening, with_sizes
from gluonjit.codegen.loops.any_size import opened_axis
from gluonjit.codegen.text.kernel_code import AnySize
from gluonjit.ir.annotations import GUARD, STRIDES
from gluonjit.ir.dims import LOWEST, Extent, Shape, divides, named
from gluonjit.ir.graph import Op
from gluonjit.ir.kernels.product_plans import Winograd
from gluonjit.ir.kernels.winograd_memory import WinogradMemory, is_nearly_filled
from gluonjit.ir.machine import Machine

BLOCK, BLOCK_UNIT = "block", LOWEST
"""The open dimension that is a block's number of register tiles times this, as that may be 1."""


def any_channels(op: Op, target: Machine) -> AnySize | None:
    """The op with open channels, and open images; None where one code would not do for others."""
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
    images: Extent = y.shape[0]
    pixels: Shape = y.shape[1:-1]
    if plan.block > 0 and is_nearly_filled(count, plan.rows):
        images = opened_axis("i", y.shape[0], 1, sizes)
        # What is fetched ahead is divided by the size for each register tile, and sizes should be known for that.
        if not plan.ahead:
            pixels = tuple(
                open_size(f"p{k}", n, i - n, sizes) for k, (n, i) in enumerate(zip(pixels, x.shape[1:-1], strict=True))
            )
    opening = Opening(y.shape, x.shape, (images, *pixels), depth, filters)
    opened = with_sizes(body, anchor, opening)
    if opened is None:
        return None
    for name, array in (("v", memory.inputs), ("m", memory.outputs)):
        sizes |= array.open_sizes(name, target)
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


def open_size(name: str, n: Any, more: Any, sizes: dict[str, int]) -> Extent:
    """A size of the result's image, open from `LOWEST` on. The input's is larger by `more`, which is negative where
    much is padded: sizes are counted from the first one whose input has a pixel."""
    if n < LOWEST:
        return n
    fewest = max(1, 1 - more)
    sizes[name] = n - fewest + LOWEST
    return named(name) + (fewest - LOWEST)


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
