"""How long the first call takes, cold and from the object cache, and how much memory: `python -m benchmarks.startup`.

Each figure is from a new process, which builds the net, loads its parameters from a file, and is timed from `hybridize`
to the first result, with all modules imported in advance. Memory is the peak of the process, less the parameters and
their packed copies.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.engine import ROOT, cores
from benchmarks.workloads import WORKLOADS, make


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.startup",
        description="Times the first call: cold, with an empty object cache, and warm; in turns, medians of several. "
        "Shows the peak of memory, too.",
        epilog="example: python -m benchmarks.startup W4 --threads 2",
    )
    p.add_argument("workloads", nargs="*", default=["W4", "W7", "W9"], metavar="W", help="default: W4 W7 W9")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    options = p.parse_args(arguments)
    for key in options.workloads:
        _report(key, options)
    return 0


Runs = list[dict[str, Any]]


def measure(key: str, threads: int, rounds: int, python: str = sys.executable) -> tuple[Runs, Runs]:
    """What the processes say that ran the first call cold and warm, with the gluonjit that `python` imports."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        net, _ = make(key)
        net.save_parameters(str(folder / "net.params"))
        modules = _first_call(key, folder, threads, (), python)["modules"]
        cold, warm = [], []
        for _ in range(rounds):
            for entry in (folder / "cache").rglob("*.gluonjit"):
                entry.unlink()
            cold.append(_first_call(key, folder, threads, modules, python))
            warm.append(_first_call(key, folder, threads, modules, python))
    return cold, warm


def middle(runs: Runs, what: str) -> float:
    return sorted(run[what] for run in runs)[len(runs) // 2]


def _report(key: str, options: argparse.Namespace) -> None:
    cold, warm = measure(key, options.threads, options.rounds)
    print(f"{key} {WORKLOADS[key].title}, {options.threads} threads")
    for name, runs in (("cold", cold), ("warm", warm)):
        above, weights = middle(runs, "above") / 1e6, middle(runs, "weights") / 1e6
        print(
            f"  {name}: first result after {middle(runs, 'seconds'):.3f} s (cpu/wall {middle(runs, 'cpu'):.2f}), "
            f"peak memory {above:.0f} MB above parameters and packed weights ({weights:.0f} MB)"
        )


def _first_call(key: str, folder: Path, threads: int, modules: tuple[str, ...], python: str) -> dict[str, Any]:
    environment = {**os.environ, "GLUONJIT_CACHE_DIR": str(folder / "cache")}
    environment.pop("GLUONJIT_CACHE", None)
    words = [
        python,
        "-m",
        "benchmarks.startup_process",
        key,
        str(folder / "net.params"),
        json.dumps(cores(threads)),
    ]
    made = subprocess.run(
        words, env=environment, cwd=ROOT, input=json.dumps(modules), text=True, stdout=subprocess.PIPE
    )
    if made.returncode:
        raise SystemExit(made.returncode)
    return json.loads(made.stdout)


if __name__ == "__main__":
    sys.exit(main())
