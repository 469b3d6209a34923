"""Sums over the same terms of several vectors, in one loop.

A sum over pixels of each channel, with channels last, has a vector's lanes run over channels, and its terms lie a pixel
apart: less than a line of the cache of each. Written one after the other, such sums fetch each line several times, from
memory if the map is large. In one loop they share lines, and several sums over one map share what they read of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gluonjit.codegen.loops.index import Affine, Var, affine
from gluonjit.codegen.math.values import Val
from gluonjit.ir.types import F32, F64, I64

_ACCUMULATORS = 8
"""Additions that do not wait for each other, so that their latency is hidden."""
RUN = 32
"""Consecutive additions in f32 before the sum is added to an f64; only where there are more than twice as many."""


class _Plan(Protocol):
    @property
    def order(self) -> list[Var]: ...


class Sum(Protocol):
    """What is needed of a reduction (`reduce_loops`)."""

    @property
    def plan(self) -> _Plan: ...

    def more(self, values: dict[Var, Affine], state: list[Val]) -> list[Val]: ...

    def added(self, a: Val, b: Val) -> Val: ...


def sums_together(s: Any, terms: int, sums: Sequence[Sum]) -> list[Val]:
    """The sums, vectors of f32, each of so many terms. `s` is the handler that emits code."""
    f = s.f
    unroll = max(1, _ACCUMULATORS // len(sums))
    blocks = terms // unroll
    zeros = [s.splat(s.constant(0.0, F32))] * (len(sums) * unroll)
    totals = [s.splat(s.constant(0.0, F64))] * len(sums)

    def carried(values: Sequence[Val]) -> list[tuple[str, str]]:
        return [(s.type(v.dtype, True), s.splat(v).ssa) for v in values]

    def bound(values: Sequence[Val], names: Sequence[str], scope: Any) -> list[Val]:
        return [Val(name, v.dtype, True, scope) for v, name in zip(values, names, strict=True)]

    def more(position: Affine, parts: Sequence[Val]) -> list[Val]:
        return [e.more({e.plan.order[0]: position}, [part])[0] for e, part in zip(sums, parts, strict=True)]

    def moved(totals: Sequence[Val], parts: Sequence[Val]) -> list[Val]:
        """The totals with what the accumulators have: those of the first term of a block, then of the second …"""
        found = []
        for k, (e, total) in enumerate(zip(sums, totals, strict=True)):
            own = list(parts[k :: len(sums)])
            while len(own) > 1:
                own = [*(e.added(a, b) for a, b in zip(own[::2], own[1::2])), *own[len(own) // 2 * 2 :]]
            found.append(e.added(total, s.cast(own[0], F64)))
        return found

    with f.for_(0, blocks, RUN, carried=carried(totals)) as run:
        inside = bound(totals, run.carried, run.scope)
        end = f.add(run.index, RUN)
        if blocks % RUN:
            end = f.min(end, blocks)
        with f.for_(run.index, end, carried=carried(zeros), hint="k") as loop:
            block = Var("k", 0, blocks - 1)
            s.bind(block, Val(loop.index, I64, False, loop.scope))
            parts = bound(zeros, loop.carried, loop.scope)
            n = len(sums)
            new: list[Val] = []
            for u in range(unroll):
                new += more(affine(block) * unroll + u, parts[u * n : (u + 1) * n])
            loop.next(*(s.splat(v).ssa for v in new))
        inside = moved(inside, bound(zeros, loop.results, f.scope))
        run.next(*(s.splat(v).ssa for v in inside))
    totals = bound(totals, run.results, f.scope)
    for position in range(blocks * unroll, terms):
        totals = moved(totals, more(Affine(position), zeros[: len(sums)]))
    return [s.cast(total, F32) for total in totals]
