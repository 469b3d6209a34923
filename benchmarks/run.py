"""Measures ours beside each peer, in turns: `make bench`, or `python -m benchmarks.run --help`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks import report, results
from benchmarks.engine import ROOT, Engine, EngineFailed, cores, start, start_ours
from benchmarks.measure import compare
from benchmarks.model import Model, model
from benchmarks.peers import PEERS
from benchmarks.workloads import WORKLOADS

MODELS = ROOT / "build" / "benchmarks"
LIMITS = ("flops", "bandwidth")
_WRONG = 1e-3
"""A peer whose output differs by more from ours computes something else, and does not count."""


def main(arguments: list[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    old = results.load(options.output)["rows"] if options.add and options.output.exists() else []
    new: list[results.Row] = []
    try:
        for key in options.workloads:
            files = model(key, MODELS)
            for threads in options.threads:
                new.append(_row(key, files, threads, options))
                _write(options.output, results.merged(old, new))
    except KeyboardInterrupt:
        print("interrupted; what was measured is written", file=sys.stderr)
    print(report.summary(results.merged(old, new)))
    print(f"written: {options.output}, and .md and .png beside it", file=sys.stderr)
    return 0 if all(row["ours"]["error"] <= results.ALLOWED_ERROR for row in new) else 1


def _options() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description="Times gluonjit and other engines on the same models with the same weights, in turns, and compares "
        "their outputs. Writes a JSON, a table (.md) and a picture (.png). Keep the machine free meanwhile: "
        "turns in which something else had the cores do not count.",
        epilog="example: python -m benchmarks.run --workloads W3 W4 --peers onnxruntime openvino --threads 1",
    )
    p.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS), metavar="W")
    p.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), metavar="PEER", help=", ".join(PEERS))
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N", help="default: 1 2")
    p.add_argument("--seconds", type=float, default=1.5, help="for each side of a comparison (default: %(default)s)")
    p.add_argument("--turn", type=float, default=0.1, help="seconds of one turn (default: %(default)s)")
    p.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has the real MXNet, which joins then")
    p.add_argument("--output", type=Path, default=MODELS / "results.json", help="default: %(default)s")
    p.add_argument("--add", action="store_true", help="keep what is in the output and was not measured now")
    return p


def _row(key: str, files: Model, threads: int, options: argparse.Namespace) -> results.Row:
    workload, facts = WORKLOADS[key], files.facts
    row: results.Row = {"workload": key, "title": workload.title, "threads": threads}
    row |= {
        "flop": facts["flop"],
        "bytes": facts["bytes"],
        "goal": workload.goal and workload.goal[min(threads, 2) - 1],
    }
    row |= {"limits": {}, "peers": {}, "skipped": {}}
    cpus = cores(threads)
    with ExitStack() as stack:
        ours = stack.enter_context(start_ours(files.folder, cpus))
        answers = ours.outputs()
        row["ours"] = {"error": results.difference(answers, files.reference())}
        row["ours"] |= {"first": ours.first, "memory": ours.memory, "version": ours.version}
        for limit in LIMITS:
            with Engine(f"limits:{limit}", files.folder, cpus) as engine:
                found = compare(ours, engine, min(options.seconds, 1.0), min(options.turn, 0.05))
                assert engine.work is not None
                row["limits"][limit] = engine.work / found.seconds
                row["ours"] |= {"seconds": found.base, "cpu": found.base_cpu}
        print(f"{key} {workload.title}, {threads} thread{'s' * (threads > 1)}: {report.ours(row)}", file=sys.stderr)
        for peer, python in _wanted(options):
            try:
                with start(peer, files.folder, cpus, python) as engine:
                    difference = results.difference(engine.outputs(), answers)
                    if difference > _WRONG:
                        raise EngineFailed(f"another answer: it differs by {difference:.1e}")
                    found = compare(ours, engine, options.seconds, options.turn)
                    error = results.difference(engine.outputs(), files.reference())
                    row["peers"][peer] = {**found.to_json(), "difference": difference, "error": error}
                    row["peers"][peer] |= {"first": engine.first, "memory": engine.memory, "version": engine.version}
                    row["ours"] |= {"seconds": found.base, "cpu": found.base_cpu}
                print(f"    {peer:14} {report.peer(row, peer)}", file=sys.stderr)
            except EngineFailed as e:
                row["skipped"][peer] = str(e)
                print(f"    {peer:14} skipped: {e}", file=sys.stderr)
    return row


def _wanted(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """(peer, interpreter)"""
    for peer in options.peers:
        if peer != "mxnet":
            yield peer, sys.executable
        elif options.mxnet:
            yield peer, options.mxnet


def _write(path: Path, rows: list[results.Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": results.machine(), "rows": rows}, indent=1) + "\n")
    path.with_suffix(".md").write_text(report.markdown(rows, results.machine()))
    report.picture(rows, path.with_suffix(".png"))


if __name__ == "__main__":
    sys.exit(main())
