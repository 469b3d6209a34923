"""Loading ResNet-50's parameters compared with `numpy.load`: `python -m benchmarks.loading`.

Every file holds the same 299 arrays and is in the page cache. All loaders take turns in one run, in changing order; the
last column is the median of the ratios to `numpy.load` within a turn. A separate run with `tracemalloc` measures
copies: the peak memory, divided by the size of the arrays.
"""

from __future__ import annotations

import gc
import random
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import gluonjit as mx
from benchmarks.command_line import parser
from gluonjit.gluon.model_zoo import vision

ROUNDS = 21


def numpy_load(path: Path) -> Mapping[str, np.ndarray]:
    """All arrays: `np.load` alone reads none."""
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def ways(folder: Path) -> tuple[dict[str, Callable[[], Any]], int]:
    """What is measured, `numpy.load` first, and the size of the arrays in bytes."""
    net = vision.resnet50_v1()
    net.initialize(mx.init.Xavier())
    net(mx.nd.zeros((1, 3, 32, 32)))  # completes the shapes
    files = {ending: folder / f"net.{ending}" for ending in ("params", "npz", "safetensors")}
    net.save_parameters(files["params"])
    arrays = mx.nd.load(files["params"])
    np.savez(files["npz"], **{name: x.asnumpy() for name, x in arrays.items()})
    mx.nd.save(files["safetensors"], arrays)
    fresh = [vision.resnet50_v1() for _ in range(ROUNDS + 2)]  # making one takes longer than loading
    return {
        "numpy.load, .npz": lambda: numpy_load(files["npz"]),
        "mx.nd.load, .params": lambda: mx.nd.load(files["params"]),
        "mx.nd.load, .npz": lambda: mx.nd.load(files["npz"]),
        "mx.nd.load, .safetensors": lambda: mx.nd.load(files["safetensors"]),
        "net.load_parameters, new": lambda: fresh.pop().load_parameters(files["params"]),
        "net.load_parameters, initialized": lambda: net.load_parameters(files["params"]),
    }, sum(x.asnumpy().nbytes for x in arrays.values())


def seconds(call: Callable[[], Any]) -> float:
    gc.collect()
    start = time.perf_counter()
    result = call()
    taken = time.perf_counter() - start
    del result
    return taken


def peak(call: Callable[[], Any]) -> int:
    tracemalloc.start()
    result = call()
    nbytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del result
    return nbytes


def main() -> None:
    parser("loading", __doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        calls, size = ways(Path(folder))
        copies = {name: peak(call) / size for name, call in calls.items()}  # and warms up
        times: dict[str, list[float]] = {name: [] for name in calls}
        order = list(calls)
        shuffle = random.Random(0).shuffle
        for _ in range(ROUNDS):
            shuffle(order)
            for name in order:
                times[name].append(seconds(calls[name]))
    baseline = next(iter(times.values()))
    print(f"{size / 1e6:.1f} MB, median of {ROUNDS} turns")
    print(f"{'':34}{'ms':>8}{'GB/s':>8}{'copies':>8}{'of numpy.load':>15}")
    for name, taken in times.items():
        middle = statistics.median(taken)
        ratio = statistics.median(t / b for t, b in zip(taken, baseline))
        print(f"{name:34}{middle * 1e3:8.1f}{size / middle / 1e9:8.1f}{copies[name]:8.2f}{ratio:15.2f}")


if __name__ == "__main__":
    main()
