"""Sums over the same terms of several vectors, in one loop.

A sum over pixels of each channel, with channels last, has a vector's lanes run over channels, and its terms lie a pixel
apart: less than a line of the cache of each. Written one after the other, such sums fetch each line several times, from
memory if the map is large. In one loop they share lines, and several sums over one map share what they read of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gluonjit.codegen.loops.index import Affine, Var, affine, divides
from gluonjit.codegen.math.values import Val
from gluonjit.ir.dims import Dim, Extent
from gluonjit.ir.kernels.element_plans import RUN
from gluonjit.ir.types import F32, F64, I64

_ACCUMULATORS = 8
"""Additions that do not wait for each other, so that their latency is hidden."""
TERMS = _ACCUMULATORS
"""An open number of terms is a multiple of this, so that it consists of whole blocks."""


class _Plan(Protocol):
    @property
    def order(self) -> list[Var]: ...


class Sum(Protocol):
    """What is needed of a reduction (`reduce_loops`)."""

    @property
    def plan(self) -> _Plan: ...

    def more(self, values: dict[Var, Affine], state: list[Val]) -> list[Val]: ...

    def added(self, a: Val, b: Val) -> Val: ...


class RunsOfSums:
    """Sums, vectors of f32, over the same terms: runs of them in f32, which are added up in f64. `s` is the handler
    that emits code."""

    def __init__(self, s: Any, terms: Extent, sums: Sequence[Sum], rows: int | None = None) -> None:
        """`rows`: how many terms of each sum a run has, if not `RUN` of each accumulator."""
        self.s, self.terms, self.sums = s, terms, sums
        self.unroll = max(1, _ACCUMULATORS // len(sums))
        """Terms of each sum that are added to accumulators of their own at a time, a block."""
        self.blocks = terms // self.unroll
        self.length = RUN if rows is None else max(1, rows // self.unroll)
        """Blocks of a run."""
        self.zeros = [s.splat(s.constant(0.0, F32))] * (len(sums) * self.unroll)
        self.totals = [s.splat(s.constant(0.0, F64))] * len(sums)
        """What totals begin with."""

    def carried(self, values: Sequence[Val]) -> list[tuple[str, str]]:
        return [(self.s.type(v.dtype, True), self.s.splat(v).ssa) for v in values]

    def bound(self, values: Sequence[Val], names: Sequence[str], scope: Any) -> list[Val]:
        return [Val(name, v.dtype, True, scope) for v, name in zip(values, names, strict=True)]

    def runs(self, carried: Sequence[tuple[str, str]] = ()) -> Any:
        """The loop over the runs, which counts blocks."""
        return self.s.f.for_(0, self.blocks, self.length, carried=carried)

    def run(self, begin: Any, totals: Sequence[Val]) -> list[Val]:
        """The totals with the run that begins at this block."""
        f, n = self.s.f, len(self.sums)
        end = f.add(begin, self.length)
        if not divides(self.length, self.blocks):
            end = f.min(end, self.blocks)
        with f.for_(begin, end, carried=self.carried(self.zeros), hint="k") as loop:
            block = Var("k", 0, self.blocks - 1)
            self.s.bind(block, Val(loop.index, I64, False, loop.scope))
            parts = self.bound(self.zeros, loop.carried, loop.scope)
            new: list[Val] = []
            for u in range(self.unroll):
                new += self._more(affine(block) * self.unroll + u, parts[u * n : (u + 1) * n])
            loop.next(*(self.s.splat(v).ssa for v in new))
        return self._moved(totals, self.bound(self.zeros, loop.results, f.scope))

    def finished(self, totals: Sequence[Val]) -> list[Val]:
        """The sums, of totals that have all runs."""
        rest = 0 if isinstance(self.terms, Dim) else self.terms % self.unroll
        for position in range(rest):
            totals = self._moved(totals, self._more(Affine(self.terms - rest + position), self.zeros[: len(self.sums)]))
        return [self.s.cast(total, F32) for total in totals]

    def _more(self, position: Affine, parts: Sequence[Val]) -> list[Val]:
        return [e.more({e.plan.order[0]: position}, [part])[0] for e, part in zip(self.sums, parts, strict=True)]

    def _moved(self, totals: Sequence[Val], parts: Sequence[Val]) -> list[Val]:
        """The totals with what the accumulators have: those of the first term of a block, then of the second …"""
        found = []
        for k, (e, total) in enumerate(zip(self.sums, totals, strict=True)):
            own = list(parts[k :: len(self.sums)])
            while len(own) > 1:
                own = [*(e.added(a, b) for a, b in zip(own[::2], own[1::2])), *own[len(own) // 2 * 2 :]]
            found.append(e.added(total, self.s.cast(own[0], F64)))
        return found


def sums_together(s: Any, terms: Extent, sums: Sequence[Sum]) -> list[Val]:
    """The sums, vectors of f32, each of so many terms. `s` is the handler that emits code."""
    all = RunsOfSums(s, terms, sums)
    with all.runs(all.carried(all.totals)) as run:
        inside = all.run(run.index, all.bound(all.totals, run.carried, run.scope))
        run.next(*(s.splat(v).ssa for v in inside))
    return all.finished(all.bound(all.totals, run.results, s.f.scope))


class StoredTotals:
    """Totals of the sums down many columns of a matrix, in memory: so each run goes over all of them before the next
    one begins, and rows are read from front to end."""

    def __init__(self, s: Any, vectors: int) -> None:
        """Zeros: for so many vectors, on the stack."""
        self.s, self.f, self.type = s, s.f, s.type(F64, True)
        self.pointer = self.f.alloca("double", vectors * s.width, 64)

    def load(self, first: Any, count: int) -> list[Val]:
        return [Val(self.f.load(self.type, self._at(first, k), 64), F64, True, self.f.scope) for k in range(count)]

    def store(self, first: Any, totals: Sequence[Val]) -> None:
        for k, total in enumerate(totals):
            self.f.store(self.type, self.s.splat(total).ssa, self._at(first, k), 64)

    def _at(self, first: Any, k: int) -> str:
        return self.f.gep(self.type, self.pointer, self.f.add(first, k))
