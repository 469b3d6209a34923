"""Compares two engines in turns A B, B A, A B, …, by the median of the ratios of neighbouring turns.

Clocks, heat and other load change all the time, but are nearly the same for both turns of a pair. A pair in which other
processes had too much of the cores is discarded and repeated, up to a limit.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.engine import Engine, Turn

_LEAST = 5
"""The least number of pairs, however long a call takes."""
_ATTEMPTS = 4
"""At most this many times the wanted number of pairs is measured to get enough undisturbed ones."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of engine B with engine A."""

    ratio: float
    """Time of B divided by time of A: the median over the undisturbed pairs."""
    low: float
    high: float
    """Its quartiles."""
    seconds: float
    """B's median per call."""
    base: float
    """A's."""
    best: float
    """B's shortest per call, the mean of a turn."""
    base_best: float
    """A's."""
    cpu: float
    base_cpu: float
    """CPU time by wall time: medians."""
    pairs: int
    """How many count."""
    dropped: int
    """How many were disturbed."""

    @property
    def disturbed(self) -> bool:
        """Whether too few pairs were not."""
        return self.pairs < _LEAST

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "disturbed": self.disturbed}


def compare(a: Engine, b: Engine, seconds: float, turn: float) -> Comparison:
    """`seconds` is how long each of them runs in all, `turn` how long a turn takes, unless one call takes longer."""
    return summarize(measure_pairs(a, b, seconds, turn))


def measure_pairs(a: Engine, b: Engine, seconds: float, turn: float) -> list[tuple[Turn, Turn]]:
    """The turns of both, as `compare` makes them: `summarize` may take those of several pairs of processes at once."""
    counts = [calls_for(engine, turn) for engine in (a, b)]
    wanted = max(_LEAST, round(seconds / turn))
    pairs: list[tuple[Turn, Turn]] = []
    kept = 0
    while kept < wanted and len(pairs) < _ATTEMPTS * wanted:
        if len(pairs) % 2:
            second = b.turn(counts[1])
            pair = a.turn(counts[0]), second
        else:
            pair = a.turn(counts[0]), b.turn(counts[1])
        pairs.append(pair)
        kept += not (pair[0].disturbed or pair[1].disturbed)
    return pairs


def calls_for(engine: Engine, seconds: float) -> int:
    """The number of calls that take about `seconds`."""
    calls = 1
    while True:
        spent = engine.turn(calls).seconds * calls
        if spent >= seconds / 2:
            return max(1, round(calls * seconds / spent))
        calls = max(2 * calls, round(calls * seconds / max(spent, 1e-6) / 4))


def summarize(pairs: Sequence[tuple[Turn, Turn]]) -> Comparison:
    """Summarizes the undisturbed pairs; all pairs, if every one was disturbed."""
    good = [pair for pair in pairs if not (pair[0].disturbed or pair[1].disturbed)]
    used = good or pairs
    ratios = sorted(b.seconds / a.seconds for a, b in used)
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios * 3)
    return Comparison(
        statistics.median(ratios),
        low,
        high,
        statistics.median(b.seconds for _, b in used),
        statistics.median(a.seconds for a, _ in used),
        min(b.seconds for _, b in used),
        min(a.seconds for a, _ in used),
        statistics.median(b.cpu for _, b in used),
        statistics.median(a.cpu for a, _ in used),
        len(good),
        len(pairs) - len(good),
    )
