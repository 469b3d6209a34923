"""The memory that the kernel `weight_gradient` works in: a thread's scratch, in elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gluonjit.ir.dims import Extent
from gluonjit.ir.kernels.product_plans import WeightGradient
from gluonjit.ir.machine import Machine

_OFTEN = 8
"""How often the vectors of a row have to be read for a copy to be worth it."""


class WeightGradientMemory(NamedTuple):
    """The sums of a group of tiles, and copies of what the group reads of some blocks of rows."""

    sums: int
    """[tasks, rows, columns]."""
    g: Extent
    """[rows of pixels, panels, pixels, columns]; 0: g is read where it is."""
    x: Extent
    """[rows of pixels, pixels, `depth`]; 0: x is read where it is."""
    depth: int
    """The channels of x that a group reads, and some that keep pixels from meeting in few sets of the caches."""

    @staticmethod
    def of(
        plan: WeightGradient, x: Sequence[Extent], g: Sequence[Extent], taps: Sequence[int], item: int, machine: Machine
    ) -> WeightGradientMemory:
        """`x`, `g`: the shapes of the operands."""
        count, lines = math.prod(taps), plan.block * plan.near
        line = machine.line // item
        depth = -(-plan.high * plan.rows // line) * line
        depth += line if depth * item % (machine.page // 8) == 0 else 0
        filters = plan.wide * plan.columns
        reads = (x[-1], taps[-1] * plan.wide), (g[-1], count * plan.high)
        copies_x, copies_g = (n * item >= machine.page // 4 and often >= _OFTEN for n, often in reads)
        return WeightGradientMemory(
            count * plan.high * plan.rows * filters,
            lines * g[-2] * filters if copies_g else 0,
            lines * x[-2] * depth if copies_x else 0,
            depth,
        )

    @property
    def elements(self) -> Extent:
        return self.sums + self.g + self.x
