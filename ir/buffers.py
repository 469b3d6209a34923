"""Memory that ops need: shared knowledge of memory planner, verifier and code generation."""

from __future__ import annotations

from collections.abc import Sequence

from gluonjit.ir.annotations import KERNEL
from gluonjit.ir.dims import Extent, aligned
from gluonjit.ir.graph import Graph, Op
from gluonjit.ir.machine import ALIGNMENT

_KERNEL = KERNEL.name


def is_view(op: Op) -> bool:
    """Whether the op computes nothing: its result is memory that others fill (`ir/windows.py`)."""
    plan = op.attrs.get(_KERNEL)
    return plan is not None and not plan.computes


def runs_kernel(op: Op) -> bool:
    """Whether the op computes something at each call (constants, views and `prepare` do not)."""
    return op.name not in ("constant", "prepare") and not is_view(op)


def control_workspace(regions: Sequence[Graph], op: Op) -> dict[str, Extent]:
    """Where a loop or branch with these planned regions keeps what in its workspace: byte offsets.

    `arena0`, `arena1`: the regions' arenas; for loops also `go` (bool, the result of the condition, if there is one)
    and, for each carried value k, two buffers `a<k>` and `b<k>` that change roles with every iteration. `end`: the
    size.
    """
    sizes: dict[str, Extent] = {f"arena{k}": region.attrs.get("arena", 0) for k, region in enumerate(regions)}
    if op.name == "loop":
        sizes |= {"go": 1} if len(regions) > 1 else {}
        for k, v in enumerate(op.operands[: op.attrs["carried"]]):
            sizes |= {f"a{k}": v.type.nbytes, f"b{k}": v.type.nbytes}
    offsets: dict[str, Extent] = {}
    end: Extent = 0
    for name, size in sizes.items():
        offsets[name] = end
        end = end + aligned(size, ALIGNMENT)
    return {**offsets, "end": end}
