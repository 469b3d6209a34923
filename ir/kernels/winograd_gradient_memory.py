"""The memory that the kernel `winograd_gradient` works in.

As in `ir/kernels/winograd_memory.py`, an image is cut into tiles, here of the cotangent. Each, and the window of the
input that it belongs to, is transformed into as many *positions*. For each position, a matrix product over tiles makes
a transformed weight of each channel of the input and of the cotangent.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from gluonjit.ir.dims import Dim, Extent, aligned
from gluonjit.ir.kernels.product_plans import WinogradGradient
from gluonjit.ir.kernels.winograd_memory import Transformed
from gluonjit.ir.machine import Machine

OPEN = ("v", "u", "m")
"""What the open dimensions that are strides of `x`, `g` and `sums` begin with (`Transformed.open`)."""


class WinogradGradientMemory(NamedTuple):
    """Bytes, open ones if channels are. A thread's scratch holds `zeros` and a `window`; threads share the rest."""

    zeros: Any
    """A row of a window where an image has none, of the input or the cotangent."""
    window: Any
    """A window of either that is put together from what exists."""
    x: Transformed
    """[positions, tiles of a block, channels of the input]."""
    g: Transformed
    """[positions, tiles of a block, channels of the cotangent]."""
    sums: Transformed
    """[positions, channels of the input, channels of the cotangent]; those that a thread has at once, if plan.wide."""
    at_once: bool
    """Whether each thread has sums of its own, which are transformed as soon as they are complete."""

    @staticmethod
    def of(
        plan: WinogradGradient,
        extents: tuple[int, int],
        channels: Extent,
        filters: Extent,
        itemsize: int,
        machine: Machine,
    ) -> WinogradGradientMemory:
        """The memory for tiles whose windows of the input have `extents` pixels."""
        positions = math.prod(extents)
        images = ((*extents, channels), (plan.height, plan.width, filters))
        rows = [aligned(width * n * itemsize, machine.line) for _, width, n in images]
        # A vector at the end of a pixel is written as a whole.
        window = sum((height + 1) * row for (height, *_), row in zip(images, rows, strict=True))
        if plan.wide and not isinstance(channels, Dim) and not isinstance(filters, Dim):
            line = machine.line // itemsize
            x, g = (
                Transformed.in_groups(positions, plan.block, n, group, itemsize, machine)
                for n, group in ((channels, line), (filters, plan.columns))
            )
            sums = Transformed.of(positions, line, plan.wide * plan.columns, itemsize, machine)
        elif isinstance(channels, Dim) or isinstance(filters, Dim):
            x, g, sums = (Transformed.open(name, positions, machine) for name in OPEN)
        else:
            high, wide = (-(-n // by) * by for n, by in ((channels, plan.rows), (filters, plan.columns)))
            x, g = (Transformed.of(positions, plan.block, n, itemsize, machine, is_odd=True) for n in (high, wide))
            sums = Transformed.of(positions, high, wide, itemsize, machine)
        return WinogradGradientMemory(sum(rows), window, x, g, sums, plan.wide > 0)

    @property
    def own(self) -> Any:
        """Bytes that each thread needs for itself."""
        return self.zeros + self.window + (self.sums.nbytes if self.at_once else 0)

    @property
    def shared(self) -> Any:
        return self.x.nbytes + self.g.nbytes + (0 if self.at_once else self.sums.nbytes)
