"""Calls with batch sizes and lengths in random order, beside engines that take any size: `python -m benchmarks.sizes
--help`.

Every engine is a process of its own that loads the model and makes all calls; its time is that of the calls, the first
ones included, with all that they compile. The engines take turns, round by round. Ours runs with an empty object cache
(cold), with the one that the run before has filled (warm), and, again with an empty one, with the dimensions that
change declared to be open (declared), as they are in the models that the other engines get.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine import ROOT, cores
from benchmarks.model import Model, model

ENGINES = ("ours cold", "ours warm", "declared", "onnxruntime", "openvino")
_OURS = ("ours cold", "ours warm", "declared")
DIMS = {61: "n", 67: "l"}
"""Sizes with which a model is exported for engines that then take any: primes that no layer of a workload has."""
LENGTHS = {"W11": (8, 384)}
"""Workloads whose second dimension changes, too, and between what."""
BATCHES = (1, 64)


def shapes(key: str, calls: int, largest: int, seed: int = 0) -> list[tuple[int, ...]]:
    """The shape of the input of each call."""
    from benchmarks.workloads import WORKLOADS

    rng = np.random.default_rng(seed)
    (own,) = WORKLOADS[key].shapes(DIMS_OF["n"], 1)
    found = []
    for _ in range(calls):
        shape = [int(rng.integers(BATCHES[0], largest + 1)) if n == DIMS_OF["n"] else n for n in own]
        if key in LENGTHS:
            low, high = LENGTHS[key]
            shape[1] = int(rng.integers(low, high + 1))
        found.append(tuple(shape))
    return found


DIMS_OF = {name: n for n, name in DIMS.items()}


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.sizes",
        description="Times calls with batch sizes and lengths in random order, beside engines that take any size: all "
        "calls together, the first ones included.",
        epilog="example: python -m benchmarks.sizes W5 --calls 50 --threads 2",
    )
    p.add_argument("workloads", nargs="*", default=["W4", "W5", "W10", "W11"], metavar="W", help="default: %(default)s")
    p.add_argument("--calls", type=int, default=200, help="default: %(default)s")
    p.add_argument("--largest", type=int, default=BATCHES[1], help="batch size (default: %(default)s)")
    p.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    p.add_argument("--rounds", type=int, default=1, help="default: %(default)s")
    p.add_argument("--engines", nargs="*", default=list(ENGINES), choices=ENGINES, metavar="E", help=", ".join(ENGINES))
    p.add_argument(
        "--static",
        nargs="+",
        type=int,
        metavar="N",
        help="instead: calls with these batch sizes by code for any, and by code for each, in turns",
    )
    p.add_argument("--seconds", type=float, default=2.0, help="for each size, with --static (default: %(default)s)")
    p.add_argument("--process", nargs=2, help=argparse.SUPPRESS)
    options = p.parse_args(arguments)
    if options.process:
        _process(*options.process)
        return 0
    if options.static:
        for key in options.workloads:
            _beside_static(key, options.static, options.threads, options.seconds)
        return 0
    for part in ("frontend", "ir", "passes", "codegen", "runtime"):  # as pip does with packages that it installs
        compileall.compile_dir(ROOT / part, quiet=1)
    print(f"{'':6} {'engine':12} {'seconds':>9} {'/ ours warm':>11} {'compiling':>9} {'memory':>9}")
    for key in options.workloads:
        found: dict[str, list[dict[str, float]]] = {}
        with tempfile.TemporaryDirectory() as cache:
            for number in range(options.rounds):
                for engine in options.engines:
                    facts = _run(engine, key, options, f"{cache}/{number}{' declared' * (engine == 'declared')}")
                    found.setdefault(engine, []).append(facts)
        own = statistics.median(f["seconds"] for f in found.get("ours warm", [{"seconds": float("nan")}]))
        for engine, rounds in found.items():
            seconds, compiling, memory = (
                statistics.median(f[name] for f in rounds) for name in ("seconds", "compiling", "memory")
            )
            share = f"{compiling / seconds:9.0%}" if engine in _OURS else " " * 9
            print(
                f"{key:6} {engine:12} {seconds:9.2f} {seconds / own:11.2f} {share} {memory / 1e6:6.0f} MB", flush=True
            )
    return 0


def _beside_static(key: str, batches: Sequence[int], threads: int, seconds: float) -> None:
    """Prints how long calls take by code for any size, and how many times as long as by code for that size alone."""
    import gluonjit as mx
    from benchmarks.workloads import WORKLOADS, make

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores(threads))
    mx.set_num_threads(threads)
    own = WORKLOADS[key].shapes(DIMS_OF["n"], 1)
    names = ["data"] if len(own) == 1 else [f"data{k}" for k in range(len(own))]
    dynamic = {name: {shape.index(DIMS_OF["n"]): "batch"} for name, shape in zip(names, own, strict=True)}
    nets = [make(key)[0] for _ in range(2)]
    nets[0].hybridize(dynamic=dynamic)
    nets[1].hybridize(dynamic=False)
    ratios = []
    for n in batches:
        shapes = [tuple(n if size == DIMS_OF["n"] else size for size in shape) for shape in own]
        inputs = [mx.nd.array(np.random.default_rng(0).uniform(-1, 1, shape)) for shape in shapes]
        best = [float("inf")] * 2
        for net in nets:
            net(*inputs).wait_to_read()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or best[0] == float("inf"):
            for k, net in enumerate(nets):
                for _ in range(3):
                    start = time.perf_counter()
                    net(*inputs).wait_to_read()
                    best[k] = min(best[k], time.perf_counter() - start)
        ratios.append(best[0] / best[1])
        print(f"{key:4} batch {n:3}: {best[0] * 1e3:10.4f} ms, {ratios[-1]:.3f} times as long as static", flush=True)
    print(f"{key:4} geometric mean {statistics.geometric_mean(ratios):.3f}", flush=True)


def _run(engine: str, key: str, options: argparse.Namespace, cache: str) -> dict[str, float]:
    made = model(key, ROOT / "build" / "benchmarks", reference=False)
    cpus = cores(options.threads)
    facts = {
        "key": key,
        "shapes": shapes(key, options.calls, options.largest),
        "cpus": cpus,
        "folder": str(made.folder),
    }
    environment = {**os.environ, "GLUONJIT_CACHE_DIR": cache}
    command = [sys.executable, "-m", "benchmarks.sizes", "--process", engine, json.dumps(facts)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(
            f"{engine}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}"
        )
    return json.loads(done.stdout.splitlines()[-1])


def _process(engine: str, text: str) -> None:
    facts = json.loads(text)
    cpus = facts["cpus"]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)
    os.environ["OMP_NUM_THREADS"] = str(len(cpus))
    load = {"onnxruntime": _onnxruntime, "openvino": _openvino, "declared": _declared}.get(engine, _ours)
    call, compiling = load(Model(Path(facts["folder"])), facts["key"], len(cpus))
    rng = np.random.default_rng(1)
    inputs = {shape: rng.uniform(-1, 1, shape).astype(np.float32) for shape in map(tuple, facts["shapes"])}
    start = time.perf_counter()
    for shape in facts["shapes"]:
        call(inputs[tuple(shape)])
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"seconds": seconds, "compiling": compiling(), "memory": peak}), flush=True)
    os._exit(0)


_Loaded = tuple[Callable[[np.ndarray], Any], Callable[[], float]]


def _declared(made: Model, key: str, threads: int) -> _Loaded:
    from benchmarks.workloads import WORKLOADS

    (own,) = WORKLOADS[key].shapes(DIMS_OF["n"], 1)
    names = {own.index(DIMS_OF["n"]): "batch"}
    if key in LENGTHS:
        names[1] = "length"
    return _ours(made, key, threads, {"data": names})


def _ours(made: Model, key: str, threads: int, dynamic: Any = None) -> _Loaded:
    import gluonjit as mx
    from benchmarks.workloads import make
    from gluonjit.execution.cached_call import CachedCall

    mx.set_num_threads(threads)
    net, _ = make(key)
    net.hybridize(dynamic=dynamic)
    spent = [0.0]
    compile_ = CachedCall._new

    def timed(*args: Any) -> Any:
        start = time.perf_counter()
        try:
            return compile_(*args)
        finally:
            spent[0] += time.perf_counter() - start

    CachedCall._new = timed  # type: ignore[method-assign]
    return lambda x: net(mx.nd.array(x)).wait_to_read(), lambda: spent[0]


def _exported(made: Model, key: str) -> bytes:
    from benchmarks.graph import read
    from benchmarks.peers.onnx_model import onnx_model
    from benchmarks.workloads import WORKLOADS

    (own,) = WORKLOADS[key].shapes(DIMS_OF["n"], 1)
    shape = (own[0], DIMS_OF["l"], *own[2:]) if key in LENGTHS else own
    return onnx_model(read(made.prefix, {"data": shape}), DIMS)


def _onnxruntime(made: Model, key: str, threads: int) -> _Loaded:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(_exported(made, key), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"data": x}), lambda: 0.0


def _openvino(made: Model, key: str, threads: int) -> _Loaded:
    import openvino

    core = openvino.Core()
    options = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads}
    options["INFERENCE_PRECISION_HINT"] = "f32"
    request = core.compile_model(core.read_model(_exported(made, key)), "CPU", options).create_infer_request()
    return lambda x: request.infer([x], share_inputs=True, share_outputs=True), lambda: 0.0


if __name__ == "__main__":
    sys.exit(main())
