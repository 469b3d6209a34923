"""Plans of ops that are not fused with others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from gluonjit.ir.kernels.kernel_plan import Plan

if TYPE_CHECKING:
    from gluonjit.ir.graph import Op


@dataclass(frozen=True)
class Sequential(Plan, kernel="sequential"):
    """Primitives whose elements depend on each other: `cumsum`, `scatter_add`, `sort`."""

    read: Annotated[tuple[int, ...] | None, "which results of a `sort` are read; others are not written"] = None

    shares = "lines, and what lies beside the axis"
    why = "one element after the other"

    def computing(self, op: Op) -> float:
        return 12.0 * op.operands[0].type.size if op.name == "sort" else 2.0 * op.operands[-1].type.size


@dataclass(frozen=True)
class Host(Plan, kernel="host"):
    """Calls of Python: `host_call`, `check_index`."""

    shares = "nothing: the first thread calls"


@dataclass(frozen=True)
class Loop(Plan, kernel="loop"):
    """Loops of the graph, whose regions are functions."""

    alternating: Annotated[bool, "every other iteration reads the weights from the last to the first"] = False

    shares = "each kernel of the body, or the rows of an open batch"


@dataclass(frozen=True)
class Branch(Plan, kernel="branch"):
    """Branches of the graph, whose regions are functions."""

    shares = "each kernel of the regions"
