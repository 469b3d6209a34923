"""Compares this gluonjit with another version, in turns: `python -m benchmarks.versions OTHER/.venv/bin/python`.

The other version is what the given interpreter imports as `gluonjit`: a checkout of an earlier commit with its own
environment, or a release. Both run as processes of `benchmarks.engine`, with this checkout's benchmarks. A ratio is the
other's time divided by this one's: above 1, this one is faster.

Where a process puts its weights in memory changes the time of a large model by some percent, for as long as the process
lives. So every workload is measured in several pairs of processes, and the quartiles tell of all of them.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import results, startup, training
from benchmarks.engine import ROOT, Engine, Turn, cores, start_ours
from benchmarks.measure import Comparison, measure_pairs, summarize
from benchmarks.model import model
from benchmarks.peers import OURS
from benchmarks.steps import STEPS
from benchmarks.workloads import WORKLOADS

MODELS = ROOT / "build" / "benchmarks"
SMALL = ("W1", "W2", "W5")
"""Workloads that are measured without `hybridize`, too: operators cost more than what they compute, or as much."""
_SETTLED = 80
"""Calls without `hybridize` before those that are measured: operators are compiled meanwhile, one after the other."""


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.versions",
        description="Times this gluonjit beside another one: models, training, imperative calls, import, first call.",
        epilog="example: git worktree add ../before HEAD~20 && make -C ../before .venv/stamp && "
        "python -m benchmarks.versions ../before/.venv/bin/python --workloads W1 W4",
    )
    p.add_argument("python", help="the interpreter that has the other one")
    p.add_argument("--workloads", nargs="*", choices=list(WORKLOADS), default=list(WORKLOADS), metavar="W")
    p.add_argument("--steps", nargs="*", choices=list(STEPS), default=list(STEPS), metavar="T", help="of training")
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N", help="default: 1 2")
    p.add_argument("--seconds", type=float, default=3, help="for each side of a comparison (default: %(default)s)")
    p.add_argument("--processes", type=int, default=3, metavar="N", help="pairs of them, for each (default: 3)")
    p.add_argument("--turn", type=float, default=0.1, help="seconds of one turn (default: %(default)s)")
    p.add_argument("--startup", nargs="*", default=["W4"], metavar="W", help="first calls to time (default: W4)")
    p.add_argument("--rounds", type=int, default=5, help="of imports and first calls (default: %(default)s)")
    options = p.parse_args(arguments)
    ratios: list[float] = []
    for key in options.workloads:
        folder = model(key, MODELS).folder
        for threads in options.threads:
            ratios.append(_beside(f"{OURS}:load", key, folder, threads, options))
        if key in SMALL:
            _beside(f"{OURS}:load_imperative", key, folder, 1, options)
    for key in options.steps:
        folder = training.described(key, STEPS[key].batch)
        for threads in options.threads:
            ratios.append(_beside("training_gluon:ours", key, folder, threads, options))
    if ratios:
        print(f"geometric mean of the hybridized ones: {statistics.geometric_mean(ratios):.3f}")
    _imports(options)
    for key in options.startup:
        _first_calls(key, options)
    return 0


def _beside(function: str, key: str, folder: Path, threads: int, options: argparse.Namespace) -> float:
    """`function`: of `benchmarks.peers`."""
    cpus, name = cores(threads), f"peers.{function}"
    pairs: list[tuple[Turn, Turn]] = []
    for _ in range(options.processes):
        ours = start_ours(folder, cpus) if function == f"{OURS}:load" else Engine(name, folder, cpus)
        with ours, Engine(name, folder, cpus, options.python) as other:
            if function == f"{OURS}:load_imperative":
                ours.turn(_SETTLED)
                other.turn(_SETTLED)
            pairs += measure_pairs(ours, other, options.seconds / options.processes, options.turn)
            if key in STEPS:
                difference = training.difference(training.losses(other), training.losses(ours))
            else:
                difference = results.difference(other.outputs(), ours.outputs())
    found = summarize(pairs)
    title = STEPS[key].title if key in STEPS else WORKLOADS[key].title
    print(_line(f"{key} {title}, {threads} thr", found), end="")
    print(f"  outputs differ by {difference:.1e}{'  imperative' if 'imperative' in function else ''}", flush=True)
    return found.ratio


def _line(what: str, found: Comparison) -> str:
    noisy = "  DISTURBED" if found.disturbed else ""
    return (
        f"{what:42} {found.ratio:6.3f} ({found.low:.3f} to {found.high:.3f})"
        f"  {found.base * 1e3:9.4f} ms, other {found.seconds * 1e3:9.4f} ms{noisy}"
    )


def _imports(options: argparse.Namespace) -> None:
    """The time of `import gluonjit` after `import numpy`, in a process of its own."""
    code = "import numpy, time; t = time.perf_counter(); import gluonjit; gluonjit.nd; print(time.perf_counter() - t)"
    times: dict[str, list[float]] = {sys.executable: [], options.python: []}
    for _ in range(options.rounds + 1):  # the first time, byte code may be missing
        for python, seconds in times.items():
            seconds.append(float(subprocess.check_output([python, "-c", code], cwd=ROOT)))
        time.sleep(0.05)
    ours, other = (statistics.median(seconds[1:]) * 1e3 for seconds in times.values())
    print(f"import gluonjit, mx.nd: {ours:.1f} ms, other {other:.1f} ms", flush=True)


def _first_calls(key: str, options: argparse.Namespace) -> None:
    threads = max(options.threads)
    for name, python in (("this", sys.executable), ("other", options.python)):
        runs = startup.measure(key, threads, options.rounds, python)
        print(
            f"{key} first call, {threads} threads, {name}: cold {startup.middle(runs['cold'], 'seconds'):.3f} s, "
            f"warm {startup.middle(runs['warm'], 'seconds'):.3f} s",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
