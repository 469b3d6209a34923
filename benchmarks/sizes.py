"""Calls with batch sizes and lengths in random order, beside engines that take any size: `python -m benchmarks.sizes
--help`.

Every engine is a process of its own that loads the model and makes all calls; its time is that of the calls, the first
ones included, with all that they compile. The engines take turns, round by round. Ours runs with an empty object cache
(cold), with the one that the run before has filled (warm), and, again with an empty one, with the dimensions that
change declared to be open (declared), as they are in the models that the other engines get. At the end, each makes
three calls more, whose outputs are compared with ours. For comparison with ours' memory, one more process makes a
single call, of the largest shape, with code for that shape alone (largest).
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import json
import math
import os
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
from benchmarks.worker import peak_memory

ENGINES = ("ours cold", "ours warm", "declared", "largest", "onnxruntime", "openvino")
_OURS = ("ours cold", "ours warm", "declared", "largest")
DIMS = {61: "n", 67: "l"}
"""Sizes with which a model is exported for engines that then take any: primes that no layer of a workload has."""
LENGTHS = {"W11": (8, 384)}
"""Workloads whose second dimension changes, too, and between what."""
BATCHES = (1, 64)
TOKENS = 4096
"""The largest product of batch size and length; without a limit, 200 calls of BERT-base would be 1.4 million tokens,
half an hour of one core."""
ALLOWED = 1e-4
"""What outputs of engines may differ by, relative to the largest value."""


def shapes(key: str, calls: int, largest: int, tokens: int = TOKENS, seed: int = 0) -> list[tuple[int, ...]]:
    """The shape of the input of each call. Batch sizes and lengths are uniform among those whose product is at most
    `tokens`."""
    from benchmarks.workloads import WORKLOADS

    rng = np.random.default_rng(seed)
    (own,) = WORKLOADS[key].shapes(DIMS_OF["n"], 1)
    found: list[tuple[int, ...]] = []
    while len(found) < calls:
        shape = [int(rng.integers(BATCHES[0], largest + 1)) if n == DIMS_OF["n"] else n for n in own]
        if key in LENGTHS:
            low, high = LENGTHS[key]
            shape[1] = int(rng.integers(low, high + 1))
            if shape[0] * shape[1] > tokens:
                continue
        found.append(tuple(shape))
    return found


DIMS_OF = {name: n for n, name in DIMS.items()}


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.sizes",
        description="Times calls with batch sizes and lengths in random order, beside engines that take any size: all "
        "calls together, the first ones included.",
        epilog="example: python -m benchmarks.sizes W5 --calls 50 --threads 2",
    )
    p.add_argument(
        "workloads", nargs="*", default=["W4", "W5", "W10", "W11", "W14"], metavar="W", help="default: %(default)s"
    )
    p.add_argument("--calls", type=int, default=200, help="default: %(default)s")
    p.add_argument("--largest", type=int, default=BATCHES[1], help="batch size (default: %(default)s)")
    p.add_argument(
        "--tokens",
        type=int,
        default=TOKENS,
        help="where lengths change, too (W11): batch size times length at most; both are drawn again until they fit "
        "(default: %(default)s)",
    )
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
    p.add_argument("--process", nargs=3, help=argparse.SUPPRESS)
    return p


def main(arguments: list[str] | None = None) -> int:
    p = _parser()
    options = p.parse_args(arguments)
    if options.process:
        _process(*options.process)
        return 0
    if options.tokens < max(low for low, _ in LENGTHS.values()):
        p.error(f"no length fits in {options.tokens} tokens")
    if "ours warm" in options.engines and "ours cold" not in options.engines:
        p.error("'ours warm' needs 'ours cold' before it, which fills the cache")
    if options.static:
        for key in options.workloads:
            _beside_static(key, options.static, options.threads, options.seconds)
        return 0
    from benchmarks import results  # not above: engines' processes need not have gluonjit in memory

    for part in ("frontend", "ir", "passes", "codegen", "runtime"):  # as pip does with packages that it installs
        compileall.compile_dir(ROOT / part, quiet=1)
    print(
        f"{'':6} {'engine':12} {'loading':>7} {'seconds':>9} {'/ ours warm':>11} {'compiling':>9} {'codes':>5} "
        f"{'memory':>9} {'difference':>10}"
    )
    same = True
    for key in options.workloads:
        found: dict[str, list[dict[str, float]]] = {}
        outputs: dict[str, list[np.ndarray]] = {}
        with tempfile.TemporaryDirectory() as folder:
            for number in range(options.rounds):
                for engine in options.engines:
                    # Warm is what finds what cold has left.
                    cache = Path(folder, f"{number} {engine.replace('warm', 'cold')}")
                    facts, outputs[engine] = _run(engine, key, options, cache)
                    found.setdefault(engine, []).append(facts)
        own = statistics.median(f["seconds"] for f in found.get("ours warm", [{"seconds": float("nan")}]))
        for engine, rounds in found.items():
            seconds, loading, compiling, memory = (
                statistics.median(f[name] for f in rounds) for name in ("seconds", "loading", "compiling", "memory")
            )
            share = " " * 15
            if engine in _OURS:
                share = f"{compiling / seconds:9.0%} {rounds[0]['codes']:5.0f}"
            # From our latest, or from the first engine if ours is not there. `largest` has the last outputs alone.
            first = min(outputs, key=lambda e: (e == "largest", e not in _OURS, e != "ours warm"))
            difference = results.difference(outputs[engine], outputs[first][-len(outputs[engine]) :])
            same &= difference <= ALLOWED
            print(
                f"{key:6} {engine:12} {loading:7.2f} {seconds:9.2f} {seconds / own:11.2f} {share} "
                f"{memory / 1e6:6.0f} MB " + (f"{difference:10.0e}" if engine != first else ""),
                flush=True,
            )
    return 0 if same else 1


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
            net(*inputs)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or best[0] == float("inf"):
            for k, net in enumerate(nets):
                for _ in range(3):
                    start = time.perf_counter()
                    net(*inputs)
                    best[k] = min(best[k], time.perf_counter() - start)
        ratios.append(best[0] / best[1])
        print(f"{key:4} batch {n:3}: {best[0] * 1e3:10.4f} ms, {ratios[-1]:.3f} times as long as static", flush=True)
    print(f"{key:4} geometric mean {statistics.geometric_mean(ratios):.3f}", flush=True)


def _run(engine: str, key: str, options: argparse.Namespace, cache: Path) -> tuple[dict[str, float], list[np.ndarray]]:
    """What `_process` has measured, and its outputs."""
    calls = shapes(key, options.calls, options.largest, options.tokens)
    files = model(key, ROOT / "build" / "benchmarks", reference=False)
    exported = cache.parent / f"{key}.onnx"
    if engine in PEERS and not exported.exists():
        _export(files, key, exported)
    facts = {
        "key": key,
        "shapes": [max(calls, key=math.prod)] if engine == "largest" else calls,
        "cpus": cores(options.threads),
        "exported": str(exported),
    }
    environment = {**os.environ, "GLUONJIT_CACHE_DIR": str(cache)}
    made = cache.parent / "outputs.npz"
    command = [sys.executable, "-m", "benchmarks.sizes", "--process", engine, json.dumps(facts), str(made)]
    last = ""
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        for last in process.stdout:
            if sys.stderr.isatty():
                progress = f"{key} {engine}: {last.strip()} of {len(calls)} calls" if last[0] != "{" else ""
                print(f"\r\x1b[K{progress}", end="", file=sys.stderr, flush=True)
        if process.wait():
            log.seek(0)
            raise SystemExit(f"{engine}: {[str(process.returncode), *log.read().strip().splitlines()][-1]}")
    with np.load(made) as archive:
        return json.loads(last), list(archive.values())


_PROGRESS = 1.0
"""Seconds between two lines that tell how many calls are done."""


def _process(engine: str, text: str, outputs: str) -> None:
    """Makes all calls, prints how many are done, and at last, as JSON, what was measured; saves outputs of three calls.

    Seconds are those of all calls, `compiling` those of them that ours spends on code, of which there are `codes`;
    `loading` is what another engine needs before them, from the model's file to the first call (ours does everything in
    its calls, but for reading parameters); `memory` is the most bytes that the process had by then."""
    facts = json.loads(text)
    cpus, key = facts["cpus"], facts["key"]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)
    os.environ["OMP_NUM_THREADS"] = str(len(cpus))
    codes: list[float] = []
    loading = 0.0
    if engine in PEERS:
        importlib.import_module(engine)
        loading = -time.perf_counter()
        call = PEERS[engine](facts["exported"], len(cpus))
        loading += time.perf_counter()
    else:
        call, codes = _ours(key, len(cpus), {"declared": _declared(key), "largest": False}.get(engine))
    calls = [tuple(shape) for shape in facts["shapes"]]
    elements = _elements(max(map(math.prod, calls)))

    def given(shape: tuple[int, ...]) -> np.ndarray:
        return elements[: math.prod(shape)].reshape(shape)

    start = told = time.perf_counter()
    for done, shape in enumerate(calls, 1):
        call(given(shape))
        if (now := time.perf_counter()) - told > _PROGRESS:
            told = now
            print(done, flush=True)
    seconds = time.perf_counter() - start
    compiling, count = sum(codes), len(codes)
    peak = peak_memory()
    by_size = sorted(set(calls), key=math.prod)
    chosen = dict.fromkeys([by_size[0], by_size[len(by_size) // 2], by_size[-1]])
    answers = [y for shape in chosen for y in map(_array, call(given(shape)))]
    np.savez(outputs, *answers)
    measured = {"seconds": seconds, "loading": loading, "compiling": compiling, "codes": count, "memory": peak}
    print(json.dumps(measured), flush=True)
    os._exit(0)


def _elements(count: int) -> np.ndarray:
    """What all inputs are parts of, so that they count little in the process's memory: numbers from -1 to 1.

    They begin with a cache line, as allocators of all the engines have it."""
    line = 64
    memory = np.empty(4 * count + line, np.uint8)
    start = -memory.ctypes.data % line
    found = memory[start : start + 4 * count].view(np.float32)
    np.random.default_rng(1).random(out=found, dtype=np.float32)
    found *= 2
    found -= 1
    return found


def _array(x: Any) -> np.ndarray:
    """A copy."""
    return np.array(x if isinstance(x, np.ndarray) else x.asnumpy())


_Call = Callable[[np.ndarray], Sequence[Any]]
"""From an input to the outputs."""


def _declared(key: str) -> dict[str, dict[int, str]]:
    """The dimensions that change, for `hybridize`."""
    from benchmarks.workloads import WORKLOADS

    (own,) = WORKLOADS[key].shapes(DIMS_OF["n"], 1)
    names = {own.index(DIMS_OF["n"]): "batch"}
    if key in LENGTHS:
        names[1] = "length"
    return {"data": names}


def _ours(key: str, threads: int, dynamic: Any = None) -> tuple[_Call, list[float]]:
    """The call, and the seconds that each compilation takes, as they are made."""
    import gluonjit as mx
    from benchmarks import workloads
    from gluonjit.execution.block_compiler import BlockCompiler

    mx.set_num_threads(threads)
    net, _ = workloads.make(key)
    net.hybridize(dynamic=dynamic)
    codes: list[float] = []
    compile_ = BlockCompiler._compiled

    def timed(*args: Any) -> Any:
        start = time.perf_counter()
        try:
            return compile_(*args)
        finally:
            codes.append(time.perf_counter() - start)

    BlockCompiler._compiled = timed  # type: ignore[method-assign]

    return lambda x: workloads.results(net(mx.nd.from_numpy(x))), codes


def _export(made: Model, key: str, path: Path) -> None:
    from benchmarks.peers.onnx_model import write
    from benchmarks.workloads import WORKLOADS

    (own,) = WORKLOADS[key].shapes(DIMS_OF["n"], 1)
    shape = (own[0], DIMS_OF["l"], *own[2:]) if key in LENGTHS else own
    write(made, path, {"data": shape}, DIMS)


def _onnxruntime(exported: str | bytes, threads: int) -> _Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(exported, options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"data": x})


def _openvino(exported: str | bytes, threads: int) -> _Call:
    import openvino

    core = openvino.Core()
    options = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads}
    options["INFERENCE_PRECISION_HINT"] = "f32"
    compiled = core.compile_model(core.read_model(exported), "CPU", options)
    request = compiled.create_infer_request()

    def call(x: np.ndarray) -> list[Any]:
        made = request.infer([x], share_inputs=True, share_outputs=True)
        return [made[output] for output in compiled.outputs]

    return call


PEERS: dict[str, Callable[[Any, int], _Call]] = {"onnxruntime": _onnxruntime, "openvino": _openvino}


if __name__ == "__main__":
    sys.exit(main())
