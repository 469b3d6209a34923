"""What a run has found, as JSON: a row for each workload and number of threads.

    {"machine": {"cpu": …}, "rows": [{
        "workload": "W4", "title": …, "threads": 2, "flop": …, "bytes": …, "goal": 1.15 or null,
        "ours": {"seconds": …, "cpu": …, "error": …, "first": …, "memory": …, "version": …},
        "limits": {"flops": flop per second, "bandwidth": bytes per second},
        "peers": {"litert": {… of `measure.Comparison`, "error": …, "difference": …, "first", "memory", "version"}},
        "skipped": {"ncnn": "why"}}]}

`error` is the largest difference from the float64 reference, `difference` that from our output, both divided by the
largest absolute value of the reference; of several outputs, the worst.

A row of `benchmarks.training` has, in place of these, `batch` and, of ours and of each peer, `losses` (of the first
steps) and `best`, the shortest time; `difference` is the largest relative difference from our losses,
`early` that of the first two.
"""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import PEERS
from benchmarks.workloads import WORKLOADS

Row = dict[str, Any]

ALLOWED_ERROR = 1e-5
"""What our outputs may differ from float64's."""


def difference(outputs: Sequence[np.ndarray], references: Sequence[np.ndarray]) -> float:
    """The largest relative difference of an output; infinite if there are more or fewer of them."""
    if len(outputs) != len(references):
        return float("inf")
    return max(map(relative_difference, outputs, references))


def relative_difference(x: np.ndarray, reference: np.ndarray) -> float:
    """The largest difference by the largest absolute value of `reference`; infinite for other shapes, or NaN."""
    if x.shape != reference.shape:
        return float("inf")
    reference = reference.astype(np.float64)
    worst = float(np.abs(x - reference).max() / np.abs(reference).max())
    return worst if worst == worst else float("inf")


def machine() -> dict[str, Any]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor() or platform.machine()
    return {"cpu": cpu}


def key(row: Row) -> tuple[str, int]:
    return row["workload"], row["threads"]


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def merged(old: Iterable[Row], new: Iterable[Row], order: Iterable[str] = WORKLOADS) -> list[Row]:
    """All rows; where both have one, the new one, with those peers of the old one that it has not measured."""
    rows = {key(row): row for row in old}
    for row in new:
        before = rows.get(key(row), {"peers": {}, "skipped": {}, "limits": {}})
        peers = {**before["peers"], **row["peers"]}
        skipped = {name: why for name, why in {**before["skipped"], **row["skipped"]}.items() if name not in peers}
        rows[key(row)] = {**row, "peers": peers, "skipped": skipped, "limits": {**before["limits"], **row["limits"]}}
    places = list(order)
    return sorted(rows.values(), key=lambda row: (places.index(row["workload"]), row["threads"]))


def best_peer(row: Row) -> str | None:
    """Whose time is the shortest beside ours."""
    peers = row["peers"]
    return min(peers, key=lambda name: peers[name]["ratio"]) if peers else None


def counts(row: Row) -> bool:
    """Whether the row says how we stand beside the best peer, undisturbed."""
    best = best_peer(row)
    return best is not None and not row["peers"][best]["disturbed"]


def peers_of(rows: Iterable[Row]) -> list[str]:
    """Those that any row has, in the usual order."""
    there = {name for row in rows for name in row["peers"]}
    return [name for name in PEERS if name in there]


def geometric_mean(rows: Iterable[Row]) -> float | None:
    """Of the ratios to each row's best peer, over the rows that count."""
    ratios = [row["peers"][best_peer(row)]["ratio"] for row in rows if counts(row)]
    return statistics.geometric_mean(ratios) if ratios else None
