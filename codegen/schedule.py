"""Where the threads that run a list of kernels need barriers.

Each thread calls the same kernels in the same order and does its share of each. A *step* that touches what an earlier
one wrote, or writes what an earlier one touches, waits at a barrier until all threads are done with that one; others
go on. Of two steps that only one thread runs, always the same one, neither needs to wait for the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Span(NamedTuple):
    """Bytes of a buffer. Different buffers do not overlap."""

    buffer: str | int
    start: int
    stop: int
    run: int = 0
    pitch: int = 0
    """If not 0: only the first `run` of every `pitch` bytes."""

    def overlaps(self, other: Span) -> bool:
        if self.buffer != other.buffer or max(self.start, other.start) >= min(self.stop, other.stop):
            return False
        if not self.pitch or self.pitch != other.pitch:
            return True
        after = (other.start - self.start) % self.pitch
        return after < self.run or after + other.run > self.pitch


@dataclass
class Step:
    reads: list[Span]
    writes: list[Span]
    shared: bool
    """All threads run it; else the first one alone."""


def barriers(steps: Sequence[Step]) -> list[bool]:
    """For each step, whether a barrier goes in front of it."""
    out = []
    since: list[Step] = []  # the steps after the last barrier
    for step in steps:
        meet = any((step.shared or other.shared) and _conflict(step, other) for other in since)
        if meet:
            since.clear()
        since.append(step)
        out.append(meet)
    return out


def _conflict(later: Step, earlier: Step) -> bool:
    return (
        _overlap(later.reads, earlier.writes)
        or _overlap(later.writes, earlier.reads)
        or _overlap(later.writes, earlier.writes)
    )


def _overlap(a: Iterable[Span], b: Sequence[Span]) -> bool:
    return any(x.overlaps(y) for x in a for y in b)
