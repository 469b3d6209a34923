"""Plans of ops that are not fused with others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from gluonjit.ir.kernels.kernel_plan import Plan

if TYPE_CHECKING:
    from gluonjit.ir.graph import Op

_SORT, _ORDER = 0.3, 0.5
"""Nanoseconds for an element that is sorted and each doubling of its line, without and with its place."""


@dataclass(frozen=True)
class Sequential(Plan, kernel="sequential"):
    """Primitives whose elements depend on each other: `cumsum`, `scatter_add`."""

    shares = "lines, and what lies beside the axis"
    why = "one element after the other"

    def is_for(self, op: Op) -> bool:
        return op.definition.has_own_kernel and op.name != "sort"

    def computing(self, op: Op) -> float:
        return 2.0 * op.operands[-1].type.size


@dataclass(frozen=True)
class Sorting(Plan, kernel="sorting"):
    """`sort`."""

    read: Annotated[tuple[int, ...] | None, "which results are read; others are not written"] = None

    shares = "lines"
    why = "one line after the other"

    def is_for(self, op: Op) -> bool:
        return op.name == "sort" and all(0 <= k < len(op.results) for k in self.read or ())

    def computing(self, op: Op) -> float:
        x, axis = op.operands[0], op.attrs["axis"]
        return (_ORDER if op.attrs["order"] else _SORT) * math.log2(max(x.shape[axis], 2)) * x.type.size


@dataclass(frozen=True)
class Host(Plan, kernel="host"):
    """Calls of Python: `host_call`, `check_index`."""

    shares = "nothing: the first thread calls"

    def is_for(self, op: Op) -> bool:
        return op.definition.level == "host"


@dataclass(frozen=True)
class Loop(Plan, kernel="loop"):
    """Loops of the graph, whose regions are functions."""

    alternating: Annotated[bool, "every other iteration reads the weights from the last to the first"] = False

    shares = "each kernel of the body, or the rows of an open batch"

    def is_for(self, op: Op) -> bool:
        return op.name == "loop"


@dataclass(frozen=True)
class Call(Plan, kernel="call"):
    """Calls of a region, which is a function that equal calls share."""

    shares = "each kernel of the function"

    def is_for(self, op: Op) -> bool:
        return op.name == "call"


@dataclass(frozen=True)
class Branch(Plan, kernel="branch"):
    """Branches of the graph, whose regions are functions."""

    shares = "each kernel of the regions"

    def is_for(self, op: Op) -> bool:
        return op.name == "branch"
