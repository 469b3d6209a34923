"""How long the first call takes, and how much memory: `python -m benchmarks.startup`. Cold (nothing is kept), warm (the
object cache has the code), and packed (the packed parameters are kept, too, as `gluonjit compile` does).

Each figure is from a new process, which builds the net, loads its parameters from a file, hybridizes it, and is timed
from the first call to its result, with all modules imported in advance. Memory is the peak of the process, less the
parameters and their packed copies.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.engine import ROOT, cores
from benchmarks.workloads import WORKLOADS, make


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.startup",
        description="Times the first call: cold, with an empty object cache; warm; and with packed parameters on "
        "disk; in turns, medians of several. Shows the peak of memory, too.",
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


def measure(
    key: str, threads: int, rounds: int, python: str = sys.executable, kinds: Sequence[str] = ("cold", "warm")
) -> dict[str, Runs]:
    """What the processes say that ran the first call, by kind, with the gluonjit that `python` imports."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        net, _ = make(key)
        net.save_parameters(str(folder / "net.params"))
        modules = _first_call(key, folder, threads, (), python)["modules"]
        found: dict[str, Runs] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            shutil.rmtree(folder / "cache", ignore_errors=True)
            for kind in kinds:
                if kind == "packed":
                    _first_call(key, folder, threads, modules, python, keep=True)
                    time.sleep(1)  # a server starts later: what was just written is still on its way to the disk
                found[kind].append(_first_call(key, folder, threads, modules, python))
    return found


def middle(runs: Runs, what: str) -> float:
    return sorted(run[what] for run in runs)[len(runs) // 2]


def _report(key: str, options: argparse.Namespace) -> None:
    found = measure(key, options.threads, options.rounds, kinds=("cold", "warm", "packed"))
    print(f"{key} {WORKLOADS[key].title}, {options.threads} threads")
    for name, runs in found.items():
        above, weights = middle(runs, "above") / 1e6, middle(runs, "weights") / 1e6
        print(
            f"  {name}: first result after {middle(runs, 'seconds'):.3f} s (cpu/wall {middle(runs, 'cpu'):.2f}), "
            f"peak memory {above:.0f} MB above parameters and packed weights ({weights:.0f} MB)"
        )


def _first_call(
    key: str, folder: Path, threads: int, modules: tuple[str, ...], python: str, keep: bool = False
) -> dict[str, Any]:
    environment = {**os.environ, "GLUONJIT_CACHE_DIR": str(folder / "cache")}
    environment.pop("GLUONJIT_CACHE", None)
    words = [
        python,
        "-m",
        "benchmarks.startup_process",
        key,
        str(folder / "net.params"),
        json.dumps(cores(threads)),
        *(["keep"] if keep else []),
    ]
    made = subprocess.run(
        words, env=environment, cwd=ROOT, input=json.dumps(modules), text=True, stdout=subprocess.PIPE
    )
    if made.returncode:
        raise SystemExit(made.returncode)
    return json.loads(made.stdout)


if __name__ == "__main__":
    sys.exit(main())
