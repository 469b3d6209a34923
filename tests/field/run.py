"""Builds and runs every model that a package registers: imperative, hybridized, and are they equal?

    python tests/field/run.py --package gluoncv2 --names 'resnet18 mobilenet*' --out results.jsonl
    python tests/field/run.py --package gluoncv2 --backward --references references --out gradients.jsonl

Run it where gluonjit and the package are installed (not MXNet). Each model has a process of its own, forked from one
that has imported the package. Results are lines of JSON; a run goes on where the file ends, so that a long one may be
stopped. `--sample` takes one model of each family. `--references DIR` compares with what `reference.py` recorded.

`--backward` differentiates instead, the smallest model of each family on small pictures (`families.py`).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fnmatch
import json
import multiprocessing
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import families
import gradients
import subjects

TOLERANCE = 1e-4
"""Of max|b|, between imperative and hybridized results, and between MXNet's and ours."""


def difference(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    """The largest max|a − b| / max|b| of all results; inf for other shapes, or other places that are not finite."""
    worst = 0.0
    if [x.shape for x in got] != [x.shape for x in want]:
        return float("inf")
    for a, b in zip(got, want):
        a, b = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(b)
        if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return float("inf")
        if finite.any():
            error = float(np.abs(a - b)[finite].max())
            scale = float(np.abs(b)[finite].max())
            worst = max(worst, error / scale if scale else float(error > 0))
    return worst


def flatten(result: Any) -> list[np.ndarray]:
    if isinstance(result, (list, tuple)):
        return [x for part in result for x in flatten(part)]
    return [] if result is None else [result.asnumpy()]


def in_float64(package: subjects.Package, name: str, inputs: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Imperative and hybridized results in double precision.

    They settle the matter where a model puts scores in order, or compares them with a limit: of float32 results, both
    right, that differ in the last digit, one may be chosen and the other not.
    """
    net = subjects.in_float64(package, name)
    with subjects.making_float64():
        subjects.seed()
        expected = flatten(net(*subjects.as_ndarrays(inputs, "float64")))
        net.hybridize()
        subjects.seed()
        return expected, flatten(net(*subjects.as_ndarrays(inputs, "float64")))


def recorded(file: Path) -> list[np.ndarray]:
    with np.load(file) as arrays:
        return [arrays[f"arr_{k}"] for k in range(len(arrays.files))]


def begun(name: str, package: subjects.Package, broken: dict[str, str]) -> tuple[dict[str, Any], Callable[[str], None]]:
    """What is known of a model before it runs; a function that notes the seconds of the step that has just ended."""
    row: dict[str, Any] = {"name": name, "family": package.family(name), "seconds": {}}
    for pattern, why in broken.items():
        if fnmatch.fnmatch(name, pattern):
            row["outside"] = why
    started = time.perf_counter()

    def step(what: str) -> None:
        nonlocal started
        now = time.perf_counter()
        row["seconds"][what] = round(now - started, 2)
        started = now

    return row, step


def run(package: subjects.Package, name: str, references: Path | None) -> dict[str, Any]:
    """What happened to one model: as far as it got, how long each step took, and the reason why it stopped."""
    row, step = begun(name, package, package.broken)
    stage = "build"
    try:
        net = package.build(name)
        subjects.initialize(net)
        inputs = package.inputs(name, net)

        def call() -> list[np.ndarray]:
            subjects.seed()
            return flatten(net(*subjects.as_ndarrays(inputs)))

        row["inputs"] = [list(x.shape) for x in flatten(subjects.as_ndarrays(inputs))]
        step("build")
        stage = "imperative"
        expected = call()
        row["outputs"] = [list(x.shape) for x in expected]
        row["finite"] = all(bool(np.isfinite(x).all()) for x in expected)
        step("imperative")
        if references is not None and (references / f"{name}.npz").exists():
            row["mxnet"] = difference(expected, recorded(references / f"{name}.npz"))
        stage = "hybridized"
        if not package.hybridizes(name):
            row["stage"] = "passed"
            row["unhybrid"] = True
            return row
        net.hybridize()
        got = call()
        step("first call")
        call()
        step("call")
        stage = "equal"
        row["difference"] = difference(got, expected)
        precise = references / f"{name}.float64.npz" if references is not None else None
        if max(row["difference"], row.get("mxnet", 0)) > TOLERANCE:
            with contextlib.suppress(RuntimeError):  # not every model can be cast
                expected, got = in_float64(package, name, inputs)
                row["difference in float64"] = difference(got, expected)
                if precise is not None and precise.exists():
                    row["mxnet in float64"] = difference(expected, recorded(precise))
        if row.get("difference in float64", row["difference"]) <= TOLERANCE:
            stage = "passed"
        else:
            row["reason"] = f"hybridized differs from imperative by {row['difference']:.1e}"
    except BaseException as e:
        row |= reason(package, e)
    row["stage"] = stage
    row["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return row


def reason(package: subjects.Package, e: BaseException) -> dict[str, str]:
    """Why a model stopped, and where in its package."""
    found = {}
    if isinstance(e, ModuleNotFoundError) and (e.name or "").partition(".")[0] not in ("mxnet", "gluonjit"):
        found["outside"] = f"needs the package {e.name}"
    frames = traceback.extract_tb(e.__traceback__)
    ours = next((f for f in reversed(frames) if package.name in f.filename), frames[-1])
    return found | {
        "reason": f"{type(e).__name__}: {e}"[:600],
        "where": f"{Path(ours.filename).name}:{ours.lineno}",
    }


def run_backward(package: subjects.Package, name: str, references: Path | None, plain: bool = False) -> dict[str, Any]:
    """What happened to the gradients of one small model: hybridized, and compared with MXNet's, or with `plain` ones.

    The measure are MXNet's gradients in float64. A difference of `gradients.TOLERANCE`, or of four times that between
    MXNet's float32 and float64, but at most ten times the tolerance, is rounding. Beyond it, float64 decides: a unit
    whose rounded input is on the other side of a ReLU's kink adds its whole gradient, in MXNet and here, but rarely the
    same unit. Where a package does not hybridize the outermost block, those in it are.
    """
    row, step = begun(name, package, package.broken | package.untrained)
    row["kernels"] = []

    def made(dtype: str = "float32") -> tuple[Any, list[Any]]:
        net, inputs = package.small(name)
        gradients.without_dropout(net)
        subjects.initialize(net)
        net.cast(dtype)
        return net, subjects.as_ndarrays(inputs, dtype)

    def hybridize(net: Any) -> None:
        for block in [net] if package.hybridizes(name) else net._children.values():
            block.hybridize()

    def worst(got: gradients.Gradients, want: gradients.Gradients, nothing: float) -> tuple[float, str]:
        return max((d, key) for key, d in gradients.differences(got, want, nothing).items())

    def same(a: gradients.Gradients, b: gradients.Gradients) -> bool:
        return all(np.array_equal(a[key], x, equal_nan=True) for key, x in b.items() if not key.startswith("after "))

    stage = "build"
    try:
        net, arguments = made()
        row["inputs"] = [list(x.shape) for x in gradients.arrays_in(arguments)]
        step("build")
        stage = "hybridized"
        hybridize(net)
        subjects.seed()
        with counting(row["kernels"]):
            got = gradients.gradients(net, arguments)
        row["finite"] = all(bool(np.isfinite(x).all()) for x in got.values())
        step("first step")
        subjects.seed()
        second = gradients.gradients(net, arguments)
        step("step")
        stage = "equal"
        if not same(second, got):  # the first call of a program that sets up what later ones use runs as Python
            subjects.seed()
            if not same(gradients.gradients(net, arguments), second):
                row["reason"] = "the third step has other gradients than the second"
        limit = TOLERANCE
        if references is not None and (references / f"{name}.gradients.npz").exists():
            single, double = gradients.recorded(references / f"{name}.gradients.npz")
            got = {key: gradients.sampled(key, x) for key, x in got.items()}
            if double:
                row["sensitivity"] = worst(single, double, 1e-9)[0]
                limit = max(TOLERANCE, min(4 * row["sensitivity"], 10 * TOLERANCE))
                row["mxnet"], row["of"] = worst(got, double, 1e-9)
            else:
                row["mxnet"], row["of"] = worst(got, single, 1e-4)
            if row["mxnet"] > limit:
                row["reason"] = f"differs from MXNet by {row['mxnet']:.1e}"
                with subjects.making_float64():
                    net, arguments = made("float64")
                    hybridize(net)
                    subjects.seed()
                    precise = gradients.gradients(net, arguments)
                precise = {key: gradients.sampled(key, x) for key, x in precise.items()}
                row["mxnet in float64"], row["of"] = worst(precise, double or single, 1e-9 if double else 1e-4)
                # Where MXNet has float32 only, its rounding is seen, too.
                if row["mxnet in float64"] <= (gradients.IN_FLOAT64 if double else 10 * TOLERANCE):
                    del row["reason"]
            step("compared")
        if plain:
            net, arguments = made()
            subjects.seed()
            expected = gradients.gradients(net, arguments)
            step("plain")
            if "mxnet" in row:
                expected = {key: gradients.sampled(key, x) for key, x in expected.items()}
            row["difference"], row["between"] = worst(got, expected, 1e-4)
            if row["difference"] > max(limit, 1e-3):
                with subjects.making_float64():
                    precise = []
                    for hybrid in (False, True):
                        net, arguments = made("float64")
                        if hybrid:
                            hybridize(net)
                        subjects.seed()
                        precise.append(gradients.gradients(net, arguments))
                row["difference in float64"], row["between"] = worst(precise[1], precise[0], 1e-9)
                if row["difference in float64"] > gradients.IN_FLOAT64:
                    row["reason"] = f"hybridized differs from imperative by {row['difference']:.1e}"
        if "reason" not in row:
            stage = "passed"
    except BaseException as e:
        row |= reason(package, e)
    row["stage"] = stage
    row["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return row


@contextlib.contextmanager
def counting(kernels: list[int]) -> Iterator[None]:
    """Appends the number of kernels of each graph that is compiled."""
    from gluonjit.runtime import build

    lower = build.lower_program

    def lowered(*args: Any) -> Any:
        program = lower(*args)
        kernels.append(len(program.kernels))
        return program

    with mock.patch.object(build, "lower_program", lowered):
        yield


def run_apart(judge: Callable[[], dict[str, Any]], name: str, family: str, timeout: float) -> dict[str, Any]:
    """`judge` in a forked process, which may crash or hang."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=lambda: theirs.send(judge()), daemon=True)
    process.start()
    theirs.close()
    try:
        if ours.poll(timeout):
            return ours.recv()
        reason = f"no result after {timeout:.0f} s"
    except EOFError:
        process.join()
        reason = f"the process died, exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()
    return {"name": name, "family": family, "stage": "killed", "reason": reason}


def chosen(package: subjects.Package, patterns: list[str], sample: bool) -> list[str]:
    names = [n for n in package.names() if not patterns or any(fnmatch.fnmatch(n, p) for p in patterns)]
    if sample:
        first: dict[str, str] = {}
        for name in names:
            first.setdefault(package.family(name), name)
        names = sorted(first.values())
    return names


STAGES = ("killed", "build", "imperative", "hybridized", "equal", "passed")
"""Where a model stopped, in order."""


def report(rows: list[dict[str, Any]]) -> None:
    """A table of how far models got, and reasons by how many models they stop."""
    print(f"\n{'model':44} {'built':6} {'ran':11} {'equal':6} {'MXNet':13} reason")
    for row in sorted(rows, key=lambda row: row["name"]):
        reached = STAGES.index(row["stage"])
        built = "yes" if reached > STAGES.index("build") else "no"
        ran = (
            "plain"
            if "unhybrid" in row
            else "both modes"
            if reached >= STAGES.index("equal")
            else "imperative"
            if row["stage"] == "hybridized"
            else ""
        )
        equal = {"passed": "yes", "equal": "no"}.get(row["stage"], "")
        if equal == "yes" and "difference in float64" in row:
            equal = "in f64"
        against = f"{row['mxnet']:.0e}" if "mxnet" in row else ""
        if "mxnet in float64" in row:
            against = f"{row['mxnet in float64']:.0e} in f64"
        print(f"{row['name']:44} {built:6} {ran:11} {equal:6} {against:13} {row.get('reason', '')[:120]}")
    outside = [row for row in rows if "outside" in row]
    rows = [row for row in rows if "outside" not in row]
    passed = sum(row["stage"] == "passed" for row in rows)
    print(f"\n{passed} of {len(rows)} models pass ({100 * passed / max(len(rows), 1):.1f} %)")
    if outside:
        print(f"{len(outside)} more are not counted:")
        for row in outside:
            print(f"       {row['name']}: {row['outside']}")
    compared = [row.get("mxnet in float64", row["mxnet"]) for row in rows if "mxnet" in row]
    if compared:
        agree = sum(d <= TOLERANCE for d in compared)
        print(f"{agree} of {len(compared)} that MXNet was asked for give its answer; worst {max(compared):.1e}")
    reasons = collections.Counter(row["reason"].splitlines()[0][:160] for row in rows if "reason" in row)
    for reason, count in reasons.most_common():
        print(f"{count:5}  {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", choices=sorted(subjects.PACKAGES), required=True)
    parser.add_argument("--names", default="", help="names or patterns, separated by blanks (default: all)")
    parser.add_argument("--sample", action="store_true", help="one model of each family")
    parser.add_argument("--out", type=Path, default=None, help="lines of JSON; what they have is not run again")
    parser.add_argument("--backward", action="store_true", help="gradients of small models")
    parser.add_argument("--plain", action="store_true", help="with --backward: imperatively, too")
    parser.add_argument("--again", action="store_true", help="run again what did not pass")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for each model (default: %(default)s)")
    parser.add_argument("--references", type=Path, default=None, help="folder that reference.py filled")
    arguments = parser.parse_args()

    import gluonjit

    gluonjit.install_as_mxnet(numpy_aliases=True)
    package = subjects.PACKAGES[arguments.package]
    patterns = arguments.names.split() or (families.NAMES[package.name].split() if arguments.backward else [])
    names = chosen(package, patterns, arguments.sample)
    rows: dict[str, dict[str, Any]] = {}
    if arguments.out is not None and arguments.out.exists():
        for line in arguments.out.read_text().splitlines():
            row = json.loads(line)
            rows[row["name"]] = row
    waiting = [n for n in names if n not in rows or arguments.again and rows[n]["stage"] != "passed"]
    for k, name in enumerate(waiting):
        judge = partial(run_backward, plain=arguments.plain) if arguments.backward else run
        judged = partial(judge, package, name, arguments.references)
        row = rows[name] = run_apart(judged, name, package.family(name), arguments.timeout)
        print(f"[{k + 1}/{len(waiting)}] {name}: {row['stage']} {row.get('reason', '')[:200]}", flush=True)
        if arguments.out is not None:
            with arguments.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    report([rows[name] for name in names])


if __name__ == "__main__":
    main()
