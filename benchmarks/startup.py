"""How long the first call takes, and how much memory: `python -m benchmarks.startup`. Cold (nothing is kept), with
kernels (a file has those of the model, as `gluonjit warm` makes it), warm (the object cache has the code), and packed
(the packed parameters are kept, too, as `gluonjit compile` does).

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
        description="Times the first call: cold, with an empty object cache; with its kernels in a file; warm; with "
        "packed parameters on disk; in turns, medians of several. Shows the peak of memory, too.",
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
        if "kernels" in kinds:
            _make_kernels(key, folder, threads, python)
        found: dict[str, Runs] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind in kinds:
                if kind in ("cold", "kernels"):
                    shutil.rmtree(folder / "cache", ignore_errors=True)
                if kind == "kernels":
                    found[kind].append(_first_call(key, folder, threads, modules, python, GLUONJIT_KERNELS=_KERNELS))
                    continue
                if kind == "packed":
                    _first_call(key, folder, threads, modules, python, "keep")
                    time.sleep(1)  # a server starts later: what was just written is still on its way to the disk
                found[kind].append(_first_call(key, folder, threads, modules, python))
    return found


def middle(runs: Runs, what: str) -> float:
    return sorted(run[what] for run in runs)[len(runs) // 2]


def _report(key: str, options: argparse.Namespace) -> None:
    found = measure(key, options.threads, options.rounds, kinds=("cold", "kernels", "warm", "packed"))
    print(f"{key} {WORKLOADS[key].title}, {options.threads} threads")
    for name, runs in found.items():
        above, weights = middle(runs, "above") / 1e6, middle(runs, "weights") / 1e6
        print(
            f"  {name}: first result after {middle(runs, 'seconds'):.3f} s (cpu/wall {middle(runs, 'cpu'):.2f}), "
            f"peak memory {above:.0f} MB above parameters and packed weights ({weights:.0f} MB)"
        )


_KERNELS = "all.kernels"
"""The name of the file of kernels."""


def _make_kernels(key: str, folder: Path, threads: int, python: str) -> None:
    shutil.rmtree(folder / "cache", ignore_errors=True)
    _first_call(key, folder, threads, (), python, GLUONJIT_GRAPHS="seen")
    words = [python, "-m", "gluonjit", "warm", "--from-log", str(folder / "seen"), "--output", str(folder / _KERNELS)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def _first_call(
    key: str, folder: Path, threads: int, modules: tuple[str, ...], python: str, *more: str, **names: str
) -> dict[str, Any]:
    """What a process says that runs the first call. `names`: files or folders in `folder` that the environment is to
    name."""
    environment = {**os.environ, "GLUONJIT_CACHE_DIR": str(folder / "cache")}
    environment |= {variable: str(folder / name) for variable, name in names.items()}
    environment.pop("GLUONJIT_CACHE", None)
    words = [python, "-m", "benchmarks.startup_process", key, str(folder / "net.params"), json.dumps(cores(threads))]
    made = subprocess.run(
        [*words, *more], env=environment, cwd=ROOT, input=json.dumps(modules), text=True, stdout=subprocess.PIPE
    )
    if made.returncode:
        raise SystemExit(made.returncode)
    return json.loads(made.stdout)


if __name__ == "__main__":
    sys.exit(main())
