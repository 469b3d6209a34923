"""Compares two runs: `python -m benchmarks.compare before.json after.json`.

Machines change from day to day, so absolute times of different runs say little. Instead, the ratios to each peer, which
were measured in turns within each run, are compared: if a peer's ratio has become smaller, gluonjit has become slower,
unless the change is within the scatter of the ratios.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import report, results
from benchmarks.results import Row


@dataclass(frozen=True)
class Change:
    workload: str
    threads: int
    before: float
    after: float
    """Our seconds."""
    speedup: float | None
    """How many times faster we have become beside the same peers (median); None if the runs have none in common."""
    regressed: bool
    error: float
    """The error in the second run."""


def change(before: Row, after: Row, tolerance: float) -> Change:
    """Compares two rows. A regression is slower by more than `tolerance`, beyond the scatter of the ratios."""
    common = [name for name in before["peers"] if name in after["peers"]]
    pairs = [(before["peers"][name], after["peers"][name]) for name in common]
    pairs = [(a, b) for a, b in pairs if not (a["disturbed"] or b["disturbed"])]
    speedup = statistics.median(b["ratio"] / a["ratio"] for a, b in pairs) if pairs else None
    # Even the good quarter of the later turns is below the bad quarter of the earlier ones.
    apart = statistics.median(b["high"] / a["low"] for a, b in pairs) < 1 if pairs else False
    return Change(
        *results.key(after),
        before["ours"]["seconds"],
        after["ours"]["seconds"],
        speedup,
        speedup is not None and speedup < 1 - tolerance and apart,
        after["ours"]["error"],
    )


def changes(before: Iterable[Row], after: Iterable[Row], tolerance: float) -> list[Change]:
    earlier = {results.key(row): row for row in before}
    return [change(earlier[results.key(row)], row, tolerance) for row in after if results.key(row) in earlier]


def main(arguments: list[str] | None = None) -> int:
    """1 if anything has become slower, or wrong."""
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.compare",
        description="Shows what has become faster and slower from one run of benchmarks.run to another.",
        epilog="example: python -m benchmarks.compare benchmarks/results/results.json build/benchmarks/results.json",
    )
    p.add_argument("before", type=Path)
    p.add_argument("after", type=Path)
    p.add_argument("--tolerance", type=float, default=0.05, help="slower by less is none (default: %(default)s)")
    options = p.parse_args(arguments)
    found = changes(*(_rows(path) for path in (options.before, options.after)), options.tolerance)
    if not found:
        print("the runs have no workload in common")
    for c in found:
        speed = "no peer in common" if c.speedup is None else f"{c.speedup:.2f} times as fast"
        text = f"{c.workload:4} {c.threads} thread{'s' * (c.threads > 1):1}  {report.time(c.before):>8} → "
        text += f"{report.time(c.after):>8}  {speed}"
        print(text + ("  REGRESSION" if c.regressed else "") + (f"  ERROR {c.error:.0e}" if _wrong(c) else ""))
    return int(any(c.regressed or _wrong(c) for c in found))


def _wrong(c: Change) -> bool:
    return not c.error <= results.ALLOWED_ERROR


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        return results.load(path)["rows"]
    except (OSError, ValueError, KeyError) as e:
        raise SystemExit(f"{path} is not a result of benchmarks.run: {e}") from e


if __name__ == "__main__":
    sys.exit(main())
