"""Programs that do not hybridize, beside real MXNet, in turns: `python -m benchmarks.plain --help`."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time

import numpy as np

from benchmarks.engine import ROOT, Engine, cores
from benchmarks.measure import compare
from benchmarks.plain_programs import PROGRAMS

FOLDER = ROOT / "build" / "benchmarks" / "plain"


def main(arguments: list[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    unknown = [key for key in options.programs if key not in PROGRAMS]
    if unknown:
        print(f"no program {', '.join(unknown)}; there are {', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    print("program          threads   ours, ms  MXNet, ms  MXNet/ours  first, s: ours  MXNet  memory/MXNet's  differ")
    ratios: list[float] = []
    for key in options.programs or PROGRAMS:
        for threads in options.threads:
            ratios.append(_row(key, threads, options))
    print(f"geometric mean of MXNet's time by ours: {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}")
    return 0


def _options() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.plain",
        description="Times programs that call operators one by one, in gluonjit and in real MXNet, in turns, and "
        "compares what they compute, how long the first call takes, and the most memory that a process had.",
        epilog="example: python -m benchmarks.plain lenet lstm --threads 1 --mxnet oracle/bin/python",
    )
    p.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"default: all of {', '.join(PROGRAMS)}")
    p.add_argument(
        "--mxnet", metavar="PYTHON", required=True, help="an interpreter that has numpy==1.23.5 mxnet==1.9.1"
    )
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N", help="default: 1 2")
    p.add_argument("--seconds", type=float, default=2.0, help="for each side (default: %(default)s)")
    p.add_argument("--warm", type=float, default=5.0, help="seconds before it is measured (default: %(default)s)")
    p.add_argument("--turn", type=float, default=0.1, help="seconds of one turn (default: %(default)s)")
    return p


def _warm(engine: Engine, seconds: float) -> None:
    """Lets the engine run for a while: what a program does once in a while is compiled later than in its first call."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        engine.turn(3)


def _row(key: str, threads: int, options: argparse.Namespace) -> float:
    folder = FOLDER / key
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "facts.json").write_text(json.dumps({"program": key}))
    cpus = cores(threads)
    with (
        Engine("peers.plain_gluon:ours", folder, cpus) as ours,
        Engine("peers.plain_gluon:mxnet", folder, cpus, options.mxnet) as theirs,
    ):
        (mine,), (other,) = ours.outputs(), theirs.outputs()
        for engine in (ours, theirs):
            _warm(engine, options.warm)
        differ = float(np.abs(mine - other).max() / max(np.abs(other).max(), 1e-30))
        found = compare(ours, theirs, options.seconds, options.turn)
        print(
            f"{key:16} {threads:7} {1e3 * found.base:10.3f} {1e3 * found.seconds:10.3f} {found.ratio:11.2f} "
            f"{ours.first:15.2f} {theirs.first:6.2f} {ours.memory / theirs.memory:15.2f}  {differ:.0e}"
            + ("  (disturbed)" if found.disturbed else ""),
            flush=True,
        )
    return found.ratio


if __name__ == "__main__":
    sys.exit(main())
