"""The memory that the kernel `weight_gradient` works in: a thread's scratch, in elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gluonjit.ir.dims import Extent, hint
from gluonjit.ir.kernels.product_plans import WeightGradient
from gluonjit.ir.machine import Machine

_OFTEN = 8
"""How often the vectors of a row have to be read for a copy to be worth it."""
_WORD = 8
"""Bytes of a word of the list."""


class WeightGradientMemory(NamedTuple):
    """The sums of a group of tiles, and copies of what the group reads of a block of rows."""

    sums: int
    """[2, tasks, rows, columns]: those of some blocks, and totals."""
    g: Extent
    """[rows of pixels, panels, pixels, columns]; 0: g is read where it is."""
    x: Extent
    """[rows of pixels, pixels, `copied_channels`]; 0: x is read where it is."""
    places: Extent
    """Of each tap along the last axis, where its terms are in the copies: words [taps, 1 + pixels of a block]."""

    @staticmethod
    def of(
        plan: WeightGradient, x: Sequence[Extent], g: Sequence[Extent], taps: Sequence[int], item: int, machine: Machine
    ) -> WeightGradientMemory:
        """`x`, `g`: the shapes of the operands."""
        lines, filters = plan.block, plan.wide * plan.columns
        depth = copied_channels(plan, item, machine)
        return WeightGradientMemory(
            2 * math.prod(taps) * plan.high * plan.rows * filters,
            lines * g[-2] * filters if plan.copies_g else 0,
            lines * x[-2] * depth if plan.copies_x else 0,
            taps[-1] * (1 + lines * g[-2]) * (_WORD // item) if plan.copies_x else 0,
        )

    @property
    def elements(self) -> Extent:
        return self.sums + self.g + self.x + self.places


def copied_channels(plan: WeightGradient, item: int, machine: Machine) -> int:
    """The channels of x that a group reads, and some that keep pixels from meeting in few sets of the caches."""
    line = machine.line // item
    depth = -(-plan.high * plan.rows // line) * line
    return depth + (line if depth * item % (machine.page // 8) == 0 else 0)


def with_copies(
    plan: WeightGradient,
    x: Sequence[Extent],
    g: Sequence[Extent],
    taps: Sequence[int],
    step: int,
    item: int,
    machine: Machine,
) -> WeightGradient:
    """The plan, with copies of operands whose pixels are read far apart, and often enough. `step`: along the last axis,
    between the pixels of x that a tap reads. Where x is copied, so is g: a list tells what of both is multiplied. Rows
    of g that take most of the first-level cache are copied, too, as a panel of them would be in few of its sets."""
    reads = (x[-1] * step, taps[-1] * plan.wide), (g[-1], math.prod(taps) * plan.high)
    copies_x, copies_g = (apart * item >= machine.page // 8 and often >= _OFTEN for apart, often in reads)
    is_long = math.prod(taps) >= _OFTEN and hint(g[-2]) * g[-1] * item > machine.l1 // 2
    return replace(plan, copies_x=copies_x, copies_g=copies_g or copies_x or is_long)
