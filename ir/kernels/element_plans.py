"""Plans of what is computed element by element, and of what is not computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from gluonjit.ir.kernels.kernel_plan import Plan

if TYPE_CHECKING:
    from gluonjit.ir.dims import Extent
    from gluonjit.ir.graph import Graph, Op, Value

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


def read_again(body: Graph) -> dict[Value, tuple[Extent, ...]]:
    """Reductions that read rows which another one, that they depend on, has read before, such as a sum of exponentials
    after the maximum; and the shape of such a row. None where results of that shape read rows yet another time."""
    found: dict[Value, tuple[Extent, ...]] = {}
    needed: dict[Value, frozenset[tuple[object, ...]]] = {}
    for op in body.ops:
        before = frozenset[tuple[object, ...]]().union(*(needed.get(v, ()) for v in op.operands))
        if op.name == "reduce":
            shape, axes = op.operands[0].shape, op.attrs["axes"]
            rows = len(shape) - len(axes)
            is_last = shape not in (v.shape for v in body.outputs)
            if is_last and (shape, axes) in before and axes == tuple(range(rows, len(shape))) and rows:
                found[op.result] = shape[rows:]
            before |= {(shape, axes)}
        needed.update(dict.fromkeys(op.results, before))
    return found


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
