"""Plans of what is computed element by element, and of what is not computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from gluonjit.ir.kernels.kernel_plan import Plan

if TYPE_CHECKING:
    from gluonjit.ir.graph import Op

RUN = 32
"""Consecutive additions in f32 before the sum is added to an f64; only where there are more than twice as many."""


@dataclass(frozen=True)
class Loops(Plan, kernel="loops"):
    """Everything that is computed element by element, with the sums and maxima in it."""

    streaming: Annotated[bool, "results bypass the caches, where whole lines are written in order"] = False
    ahead: Annotated[
        Literal["rows", "reads"] | None, "what is prefetched: `rows` that are reduced, or what is read (`reads`)"
    ] = None
    rare: Annotated[bool, "it should be short rather than fast"] = False
    keeps_rows: Annotated[bool, "rows of open lengths stay in scratch memory"] = False

    shares = "ranges of the outer loops"
    strides = "any"
    by_element = True
    may_overwrite = True

    def is_for(self, op: Op) -> bool:
        return op.name == "fused"

    @property
    def bypasses_caches(self) -> bool:
        return self.streaming

    def remarks(self) -> Iterator[str]:
        if self.streaming:
            yield "written past the caches"


@dataclass(frozen=True)
class Copy(Plan, kernel="copy"):
    """A value that must also lie elsewhere."""

    shares = "ranges of the outer loops"
    strides = "any"
    by_element = True

    def is_for(self, op: Op) -> bool:
        return op.name == "fused"


@dataclass(frozen=True)
class View(Plan, kernel="view"):
    """Nothing is computed: reshapes, slices, transposes and concats that only say where values lie."""

    into: Annotated[bool, "a transpose that the kernel of its operand writes, rather than one that is read"] = False

    computes = False

    def is_for(self, op: Op) -> bool:
        return op.name in (("transpose",) if self.into else ("reshape", "slice", "transpose", "concat"))
