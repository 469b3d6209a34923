"""Measures steps of training beside MXNet, PyTorch and JAX, in turns: `python -m benchmarks.training --help`.

A step is forward, loss, backward and update on the next of a few batches, and it has ended when the new parameters are
there. All engines start from the same parameters and see the same data, so their first losses are compared: those of
the first `EARLY` steps also on their own, because rounding grows from step to step.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks import report, results
from benchmarks.engine import ROOT, Engine, EngineFailed, cores
from benchmarks.measure import compare
from benchmarks.peers import LOSSES
from benchmarks.steps import STEPS

FOLDER = ROOT / "build" / "benchmarks"
ENGINES = {
    "torch_eager": "training_torch:eager",
    "torch_compile": "training_torch:compiled",
    "jax": "training_jax:load",
    "mxnet": "training_gluon:mxnet",
}
_PACKAGES = {"torch_eager": "torch", "torch_compile": "torch", "jax": "jax"}
EARLY = 2
"""Losses that are compared before rounding has grown; the second is the first that an update had a part in."""
GOAL = 0.8
"""MXNet's time by ours, at least."""


def main(arguments: list[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    unknown = [key for key in options.steps if key not in STEPS]
    if unknown:
        print(f"no step {', '.join(unknown)}; there are {', '.join(STEPS)}", file=sys.stderr)
        return 2
    old = results.load(options.output)["rows"] if options.add and options.output.exists() else []
    new: list[results.Row] = []
    try:
        for key in options.steps or STEPS:
            for threads in options.threads:
                new.append(_row(key, threads, options))
                _write(options.output, results.merged(old, new, STEPS))
    except KeyboardInterrupt:
        print("interrupted; what was measured is written", file=sys.stderr)
    print(report.training(results.merged(old, new, STEPS)))
    print(f"written: {options.output}, and .md beside it", file=sys.stderr)
    return 0


def _options() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.training",
        description="Times steps of training in gluonjit and other engines, in turns, and compares their losses. "
        "Writes a JSON and a table (.md). Keep the machine free meanwhile: turns in which something else had the cores "
        "do not count.",
        epilog="example: python -m benchmarks.training T1 T2 --threads 1 --mxnet oracle/bin/python",
    )
    p.add_argument("steps", nargs="*", metavar="T", help=f"default: all of {', '.join(STEPS)}")
    p.add_argument("--engines", nargs="*", choices=ENGINES, default=list(ENGINES), metavar="E", help=", ".join(ENGINES))
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N", help="default: 1 2")
    p.add_argument("--seconds", type=float, default=3.0, help="for each side of a comparison (default: %(default)s)")
    p.add_argument("--turn", type=float, default=0.1, help="seconds of one turn (default: %(default)s)")
    p.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has the real MXNet, which joins then")
    p.add_argument("--small", action="store_true", help="smaller batches, for a quick look")
    p.add_argument("--gradients", action="store_true", help="forward, loss and backward alone, without the update")
    p.add_argument("--output", type=Path, default=FOLDER / "training.json", metavar="FILE", help="default: %(default)s")
    p.add_argument("--add", action="store_true", help="keep what is in the output and was not measured now")
    return p


def _row(key: str, threads: int, options: argparse.Namespace) -> results.Row:
    step = STEPS[key]
    batch = step.small if options.small else step.batch
    folder = described(key, batch, not options.gradients)
    title = f"{step.title}, batch {batch}" + (", without the update" if options.gradients else "")
    row: results.Row = {"workload": key, "title": title, "threads": threads, "goal": GOAL, "batch": batch}
    row |= {"flop": step.gflop * 1e9 * batch / step.batch, "limits": {}, "peers": {}, "skipped": {}}
    cpus = cores(threads)
    with ExitStack() as stack:
        ours = stack.enter_context(Engine("peers.training_gluon:ours", folder, cpus))
        row["ours"] = {"first": ours.first, "version": ours.version}
        curve = losses(ours)
        row["ours"] |= {"losses": curve.tolist(), "memory": ours.memory}
        with Engine("limits:flops", folder, cpus) as engine:
            found = compare(ours, engine, min(options.seconds, 1.0), min(options.turn, 0.05))
            assert engine.work is not None
            row["limits"]["flops"] = engine.work / found.seconds
            row["ours"] |= {"seconds": found.base, "best": found.base_best, "cpu": found.base_cpu}
        print(f"{key} {title}, {threads} thread{'s' * (threads > 1)}: {report.training_ours(row)}", file=sys.stderr)
        for name in options.engines:
            python = options.mxnet if name == "mxnet" else sys.executable
            if python is None:
                row["skipped"][name] = "give --mxnet an interpreter that has it: pip install numpy==1.23.5 mxnet==1.9.1"
                continue
            try:
                with Engine(f"peers.{ENGINES[name]}", folder, cpus, python) as engine:
                    theirs = losses(engine)
                    found = compare(ours, engine, options.seconds, options.turn)
                    row["peers"][name] = {**found.to_json(), "difference": difference(theirs, curve)}
                    row["peers"][name]["early"] = difference(theirs[:EARLY], curve[:EARLY])
                    row["peers"][name] |= {"first": engine.first, "memory": engine.memory, "version": engine.version}
                    row["peers"][name] |= {"losses": theirs.tolist()}
                    row["ours"] |= {"seconds": found.base, "cpu": found.base_cpu}
                    row["ours"]["best"] = min(row["ours"]["best"], found.base_best)
                print(f"    {name:14} {report.training_peer(row, name)}", file=sys.stderr)
            except EngineFailed as e:
                advice = (
                    f" (pip install {_PACKAGES[name]})" if "ModuleNotFoundError" in str(e) and name in _PACKAGES else ""
                )
                row["skipped"][name] = f"{e}{advice}"
                print(f"    {name:14} skipped: {row['skipped'][name]}", file=sys.stderr)
    return row


def described(key: str, batch: int, updates: bool = True) -> Path:
    """A folder with what the engines need to know of a step."""
    folder = FOLDER / "-".join(["training", key, str(batch), *([] if updates else ["gradients"])])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "facts.json").write_text(json.dumps({"step": key, "batch": batch, "updates": updates}))
    return folder


def losses(engine: Engine) -> np.ndarray:
    """Lets the engine run until it has noted the losses of its first steps."""
    (found,) = engine.outputs()
    while len(found) < LOSSES:
        (found,) = engine.outputs()
    return found


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest relative difference of two loss curves."""
    worst = float((np.abs(a - b) / np.abs(b)).max())
    return worst if worst == worst else float("inf")


def _write(path: Path, rows: list[results.Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": results.machine(), "rows": rows}, indent=1) + "\n")
    path.with_suffix(".md").write_text(report.training_markdown(rows, results.machine()))


if __name__ == "__main__":
    sys.exit(main())
