"""How time grows with batch and channels: `python -m benchmarks.growth`.

Each size is measured in turns with the next one. Time should grow no faster than the number of operations; a step where
it does is marked: it shows a kernel, tile or layout that no longer suits the size.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks import report
from benchmarks.engine import Engine, cores, start_ours
from benchmarks.measure import compare
from benchmarks.model import model
from benchmarks.workloads import WORKLOADS

_SUPERLINEAR = 1.15
"""Time per operation that a step may add without being marked: caches fill up, too."""


@dataclass(frozen=True)
class Step:
    """From one size to the next."""

    work: float
    """Operations of the next by those of the first."""
    time: float
    """The same of seconds."""

    @property
    def superlinear(self) -> bool:
        return self.time > _SUPERLINEAR * self.work


@dataclass
class _Size:
    label: str
    flop: float
    engine: Engine


def main(arguments: list[str] | None = None) -> int:
    """1 if any step was superlinear."""
    widening = [key for key, w in WORKLOADS.items() if w.widens]
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.growth",
        description="Shows how the time of a call grows with the batch (1 to 64) and with the channels (1 to 4 times), "
        "beside the number of operations, and marks steps where it grows faster.",
        epilog="example: python -m benchmarks.growth --workloads W3 --batches 1 2 4 8 --threads 2",
    )
    p.add_argument("--workloads", nargs="+", choices=widening, default=["W1", "W2", "W3", "W10", "W12"], metavar="W")
    p.add_argument("--batches", nargs="*", type=int, default=[1, 2, 4, 8, 16, 32, 64], metavar="N")
    p.add_argument("--widths", nargs="*", type=int, default=[1, 2, 3, 4], metavar="K", help="factors of the channels")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seconds", type=float, default=0.5, help="for each side of a step (default: %(default)s)")
    options = p.parse_args(arguments)
    marked = 0
    for key in options.workloads:
        print(f"{key} {WORKLOADS[key].title}")
        batches = [(f"batch {n}", n, 1) for n in options.batches]
        widths = [(f"channels x {k}", None, k) for k in options.widths]
        for series in (batches, widths):
            marked += sum(step.superlinear for step in _series(key, series, options.threads, options.seconds))
    return int(marked > 0)


def _series(key: str, sizes: list[tuple[str, int | None, int]], threads: int, seconds: float) -> Iterator[Step]:
    """Measures and prints one row after the other."""
    with ExitStack() as stack:
        previous: _Size | None = None
        for label, batch, width in sizes:
            size = _start(key, label, batch, width, threads)
            stack.enter_context(size.engine)
            if previous is None:
                previous = size
                continue
            found = compare(previous.engine, size.engine, seconds, seconds / 10)
            if previous.label == sizes[0][0]:
                print(f"  {previous.label:13} {report.time(found.base):>9}")
            step = Step(size.flop / previous.flop, found.ratio)
            text = f"  {label:13} {report.time(found.seconds):>9}  operations x {step.work:.2f}, time x {step.time:.2f}"
            print(text + ("  SUPERLINEAR" if step.superlinear else ""), flush=True)
            yield step
            previous.engine.close()
            previous = size


def _start(key: str, label: str, batch: int | None, width: int, threads: int) -> _Size:
    with tempfile.TemporaryDirectory() as folder:
        files = model(key, Path(folder), batch, width, reference=False)
        return _Size(label, files.facts["flop"], start_ours(files.folder, cores(threads)))


if __name__ == "__main__":
    sys.exit(main())
