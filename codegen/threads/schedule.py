"""Where the threads that run a list of kernels need barriers.

Each thread calls the same kernels in the same order and does its share of each. A *step* that touches what an earlier
one wrote, or writes what an earlier one touches, waits at a barrier until all threads are done with that one; others
go on. Of two steps that only one thread runs, always the same one, neither needs to wait for the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gluonjit.ir.dims import Extent, Undecided, is_at_most


class Span(NamedTuple):
    """Bytes of a buffer. Different buffers do not overlap; parts of one whose places are open do unless it is certain
    that they do not."""

    buffer: str | int
    start: Extent
    stop: Extent
    run: Extent = 0
    pitch: Extent = 0
    """If not 0: only the first `run` of every `pitch` bytes."""

    def overlaps(self, other: Span) -> bool:
        spans = ((self, other), (other, self), (self, self), (other, other))
        if self.buffer != other.buffer or any(is_at_most(a.stop, b.start) for a, b in spans):
            return False
        if not self.pitch or self.pitch != other.pitch:
            return True
        try:
            after = (other.start - self.start) % self.pitch
            return bool(after < self.run or after + other.run > self.pitch)
        except Undecided:
            return True


@dataclass
class Step:
    reads: list[Span]
    writes: list[Span]
    shared: bool
    """All threads run it; else the first one alone."""


_Touched = dict["str | int", list[tuple[Span, bool]]]
"""By buffer: what steps touch, each with whether the step is shared."""


def barriers(steps: Sequence[Step]) -> list[bool]:
    """For each step, whether a barrier goes in front of it."""
    out = []
    read: _Touched = {}  # since the last barrier
    written: _Touched = {}
    for step in steps:
        meet = (
            _overlap(step.reads, written, step.shared)
            or _overlap(step.writes, read, step.shared)
            or _overlap(step.writes, written, step.shared)
        )
        if meet:
            read, written = {}, {}
        for spans, touched in ((step.reads, read), (step.writes, written)):
            for span in spans:
                touched.setdefault(span.buffer, []).append((span, step.shared))
        out.append(meet)
    return out


def _overlap(spans: Iterable[Span], touched: _Touched, shared: bool) -> bool:
    """Whether a step that touches these bytes meets another one there, and they are not both the first thread's."""
    return any(
        (shared or is_shared) and span.overlaps(other)
        for span in spans
        for other, is_shared in touched.get(span.buffer, ())
    )
