"""`threads`: decides on how many threads a graph is worth running, and which of its kernels they share.

A kernel that takes less than `grain` nanoseconds is left to the first thread (`.threads = 1`): what the others would
save, they lose at the barrier, and in fetching from another core's cache what they did not write themselves. A graph
gets as many threads as find `share` nanoseconds of shared kernels each; below two of them it stays on one thread as a
whole. Neither changes any result: kernels divide their outputs, never a sum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from gluonjit.ir.annotations import KERNEL, THREADS
from gluonjit.ir.buffers import is_view, runs_kernel
from gluonjit.ir.cost import graph_cost, nanoseconds
from gluonjit.ir.dims import Dim, hint
from gluonjit.ir.graph import Graph, Op, with_notes, with_regions
from gluonjit.ir.machine import WORTH_A_THREAD, Machine
from gluonjit.ir.sizes import is_open
from gluonjit.passes.manager import register_pass


@register_pass("threads", needs="fused")
def threads(graph: Graph, *, target: Machine, grain: int = 2000, share: int = WORTH_A_THREAD) -> Graph:
    """Decides how many threads are worth using, and which kernels they share.

    Sets the graph attributes `threads` and `cost` (nanoseconds on one thread), and `.threads = 1` on small kernels. A
    kernel with open dimensions may be large: `threads` is the most that some sizes need, and `cost` an expression."""

    time = functools.cache(functools.partial(nanoseconds, target=target))
    known: dict[Graph, float] = {}
    any_open = bool(graph.open_names)
    shares = {op: _shared(op, time, grain, any_open, known) for op in graph.ops}

    def decided(op: Op) -> Op:
        if op.name == "prepare":
            return with_regions(op, [threads(op.regions[0], target=target, grain=grain, share=share)])
        if KERNEL.is_on(op) and runs_kernel(op) and shares[op] == 0:
            return with_notes(op, THREADS(1))
        return op

    useful = int(sum(shares.values()) // share) if share else _MOST
    count = max(1, min(useful, _MOST))
    ops = tuple([decided(op) for op in graph.ops])
    return replace(graph, ops=ops).with_attrs(threads=count, cost=graph_cost(graph, time))


_MOST = 256
_UNBOUNDED = 1e12
"""The time of a kernel with open dimensions: enough for any number of threads, not for an absurd `share`."""


def _shared(op: Op, time: Callable[[Op], float], grain: int, any_open: bool, known: dict[Graph, float]) -> float:
    """Nanoseconds of the op that threads share: all or nothing of a kernel, the sum of kernels inside of a loop.
    `any_open`: whether the graph has open dimensions; `known`: those of regions, which calls of one function share."""
    if op.definition.level == "control":
        for region in op.regions:
            if region not in known:
                known[region] = sum(_shared(o, time, grain, any_open, known) for o in region.ops)
        inside = sum(known[region] for region in op.regions)
        trip = op.attrs.get("trip", 1)
        return _UNBOUNDED if inside and isinstance(trip, Dim) else inside * hint(trip)
    if any_open and is_open(op) and not is_view(op):
        return _UNBOUNDED
    took = time(op)
    return took if took > 0 and took >= grain else 0.0
